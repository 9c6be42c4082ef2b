"""Groups seen from outside: listed, described, deleted. What a real broker says of them is in the recorded
conversations."""
import pytest

from groups_by_hand import NOW, Other, Table, group_node
from kafka_scratch.wire.codes import AUTHORIZED_OPERATIONS_OMITTED, ErrorCode, Operation, Resource
from kafka_scratch.groups.admin import *
from kafka_scratch.groups.classic import EMPTY, PREPARING, STABLE
from kafka_scratch.groups.offsets import OffsetCommitKey, OffsetCommitValue


def commit(here, group_id: str, partition: int = 0):
    here.coordinator.write(group_id, [(OffsetCommitKey(group=group_id, topic='t', partition=partition),
                                       OffsetCommitValue(offset=5, metadata='', commit_timestamp=NOW))])


def test_lists_every_kind_of_group_in_order():
    table = Table('classic')
    table.pair()
    table.here.coordinator.groups['other'] = Other(is_empty=False)
    commit(table.here, 'a-simple-one')
    found = [(each.group_id, each.protocol_type, each.group_state,
              each.group_type) for each in table.here.answer(ListGroupsRequest()).groups]
    assert found == [('a-simple-one', '', 'Empty', 'classic'), ('classic', 'consumer', 'Stable', 'classic'),
                     ('other', 'consumer', 'Stable', 'consumer')]


@pytest.mark.parametrize('states, types, expected', [
    ([], [], 'abc'), (['stable'], [], 'b'), (['STABLE', 'Empty'], [], 'abc'), (['Empty'], ['Classic'], 'a'),
    (['nonsense'], [], ''), ([], ['CONSUMER'], 'c'),
    (['Dead'], [], ''), ([''], [], ''), ([], ['share'], '')])
def test_filters(states, types, expected):
    table = Table('b')
    table.pair()
    commit(table.here, 'a')
    table.here.coordinator.groups['c'] = Other(is_empty=True)
    table.here.coordinator.groups['c'].group_id = 'c'
    assert ''.join(each.group_id for each in table.here.answer(ListGroupsRequest(states_filter=states,
        types_filter=types)).groups) == expected


def test_who_may_not_look_at_the_cluster_sees_only_some_groups():
    table = Table('mine')
    table.pair()
    commit(table.here, 'yours')
    table.here.node.authorizer = lambda caller, operation, kind, name: (operation, kind, name) == (Operation.DESCRIBE,
        Resource.GROUP, 'mine')
    assert [each.group_id for each in table.here.answer(ListGroupsRequest()).groups] == ['mine']
    described = table.here.answer(DescribeGroupsRequest(groups=['mine', 'yours', 'nobodys'],
                                                        include_authorized_operations=True)).groups
    assert [(each.group_id, each.error_code, each.authorized_operations) for each in described] == [
        ('mine', 0, 1 << Operation.DESCRIBE), ('yours', 30, AUTHORIZED_OPERATIONS_OMITTED),
        ('nobodys', 30, AUTHORIZED_OPERATIONS_OMITTED)]
    assert (table.here.answer(DeleteGroupsRequest(groups_names=['yours'])).results[0].error_code
            == ErrorCode.GROUP_AUTHORIZATION_FAILED)


def test_describes_members_and_their_assignments():
    table = Table()
    leader, follower = table.pair(protocols=(('range', b'wants'),), client='me')
    group, = table.here.answer(DescribeGroupsRequest(groups=['g'])).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (STABLE, 'consumer', 'range')
    assert [(each.member_id, each.client_id, each.client_host, each.member_metadata,
             each.member_assignment) for each in group.members] == [
        (leader, 'me', '/127.0.0.1', b'wants', b'L'), (follower, 'me', '/127.0.0.1', b'wants', b'F')]
    table.join(leader)
    group, = table.here.answer(DescribeGroupsRequest(groups=['g'])).groups
    assert (group.group_state, group.protocol_data, group.members[0].member_metadata,
            group.members[0].member_assignment) == (PREPARING, '', b'', b'L')


def test_to_look_is_not_to_change():
    here = group_node()
    commit(here, 'simple')
    assert (len(here.answer(ListGroupsRequest()).groups) == 1
            and here.answer(DescribeGroupsRequest(groups=['simple'])).groups[0].error_code == 0)
    assert not here.coordinator.groups and list(here.coordinator.offsets) == ['simple']


def test_to_describe_is_not_to_create():
    here = group_node()
    here.answer(DescribeGroupsRequest(groups=['nobody']))
    assert not here.coordinator.groups and here.answer(ListGroupsRequest()).groups == []


def test_deletes_a_group_with_its_offsets_in_one_batch():
    table = Table()
    member = table.come().member_id
    commit(table.here, 'g', 0), commit(table.here, 'g', 1)
    assert [each.error_code for each in table.here.answer(DeleteGroupsRequest(groups_names=['g', 'nobody',
        'g'])).results] == [68, 69]
    table.leave((member, None))
    written, batches = len(table.here.store.pairs), []
    write = table.here.store.write
    table.here.store.write = lambda partition, pairs, **header: batches.append(pairs) or write(partition, pairs,
        **header)
    assert [each.error_code for each in table.here.answer(DeleteGroupsRequest(groups_names=['g'])).results] == [0]
    assert len(batches) == 1 and [(key[:2], value) for key, value in batches[0]] == [(b'\0\1', None), (b'\0\1', None),
        (b'\0\2', None)]
    assert (not table.here.coordinator.groups and not table.here.coordinator.offsets
            and len(table.here.store.pairs) == written + 3)
    again = group_node(written=table.here.store.pairs)
    assert (not again.coordinator.groups and not again.coordinator.offsets
            and again.answer(ListGroupsRequest()).groups == [])


def test_deletes_a_group_that_consists_of_offsets():
    here = group_node()
    commit(here, 'simple')
    assert here.answer(DeleteGroupsRequest(groups_names=['simple'])).results[0].error_code == 0
    # after a restart it isn't there either: so it is with a real Kafka
    for each in (here, group_node(written=here.store.pairs)):
        assert (each.answer(ListGroupsRequest()).groups == []
                and each.answer(DescribeGroupsRequest(groups=['simple'])).groups[0].error_code == 69)


def test_what_cant_be_written_isnt_deleted():
    here = group_node()
    commit(here, 'simple')
    here.store.refuses = True
    assert here.answer(DeleteGroupsRequest(groups_names=['simple'])).results[0].error_code == ErrorCode.NOT_COORDINATOR
    assert here.coordinator.offsets['simple'] and [each.group_state for each
                                                   in here.answer(ListGroupsRequest()).groups] == [EMPTY]


def test_a_deleted_group_can_be_founded_again():
    table = Table()
    table.leave((table.come().member_id, None))
    table.here.answer(DeleteGroupsRequest(groups_names=['g']))
    assert table.come().generation_id == 1
