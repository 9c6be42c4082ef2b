"Classic groups: what no recording shows."
import asyncio
import gzip
import json
import re
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from size import needs_kafka
from broker_process import ROOT, BrokerProcess, Client, free_port, properties, wait_until
from groups_by_hand import *
from player import answer_in, differences, framed, recorded
from recordings import RECORDINGS
from small_node import small_node

sys.path.insert(0, str(ROOT))
from benchmarks.real_kafka import RealKafka
from kafka_scratch.groups.heartbeat import ConsumerGroupHeartbeatRequest, consumer_group_heartbeat
from kafka_scratch.groups.coordinator import Pending, replay, write_state
from kafka_scratch.groups.find_coordinator import FindCoordinatorRequest, find_coordinator
from kafka_scratch.wire.codes import ErrorCode, Operation
from kafka_scratch.apis.api import Call
from kafka_scratch.groups.admin import DescribeGroupsRequest, ListGroupsRequest, describe_groups, list_groups
from kafka_scratch.groups import classic
from kafka_scratch.groups.classic_messages import *
from kafka_scratch.groups.classic import *
from kafka_scratch.groups.classic_log import *
from kafka_scratch.groups.classic_apis import *
from kafka_scratch.groups.offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from kafka_scratch.log.records import read_batches, read_records
from kafka_scratch.apis.delete_topics import DeleteTopicsRequest, delete_topics

FIXTURES = Path(__file__).parents[1]/'fixtures'

# What a real broker said is in `conversations/test_recorded.py`

def test_a_difference_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(classic, 'join_response', lambda group,
                        member: JoinGroupResponse(generation_id=group.generation))
    recording, lines = RECORDINGS['groups-first-round.jsonl'], recorded('groups-first-round.jsonl')
    count, different = differences(recording, recording.node(tmp_path, lines), lines)
    assert different


# Records

def test_records_of_a_real_broker_are_read_and_written_again():
    dump = gzip.open(FIXTURES/'single-broker'/'consumer_offsets.dump.txt.gz', 'rt').read()
    expected = [json.loads(text) for text in re.findall(r'"type":"2".*? payload: (\{.*\})$', dump, re.MULTILINE)]
    found = []
    for path in sorted((FIXTURES/'single-broker'/'logs').glob('__consumer_offsets-*/*.log')):
        for record in (record for batch in read_batches(path.read_bytes()) for record in read_records(batch)):
            if record.key[:2] != b'\0\2' or record.value is None: continue
            value = GroupMetadataValue.decode(record.value, 3, 2)
            group = ClassicGroup(GroupMetadataKey.decode(record.key, 0, 2).group)
            restore(group, value)
            group.store = lambda again: found.append((again, record.value))
            save(group)
    assert len(found) == len(expected) >= 3
    for (value, raw), theirs in zip(found, expected):
        assert write_state(value, RECORD_VERSION) == raw and theirs['version'] == '3'
        data = theirs['data']
        assert (value.protocol_type, value.generation, value.protocol,
                value.leader) == tuple(data[key] for key in ('protocolType', 'generation', 'protocol', 'leader'))
        for member, expected_member in zip(value.members, data['members'], strict=True):
            assert topics_in(member.subscription) == expected_member['subscription']['topics']
            assigned = unwrap(ConsumerProtocolAssignment, member.assignment).assigned_partitions
            assert [(each.topic, each.partitions) for each in assigned] == [(each['topic'],
                each['partitions']) for each in expected_member['assignment']['assignedPartitions']]


@pytest.mark.parametrize('version', range(5))
def test_every_version_of_a_record_can_be_read(version):
    member = MemberMetadata(member_id='m', client_id='c', client_host='/h', session_timeout=9,
                            rebalance_timeout=7 if version else 0, subscription=b's', assignment=b'a')
    value = GroupMetadataValue(protocol_type='consumer', generation=4, protocol='range', leader='m',
                               current_state_timestamp=5 if version >= 2 else -1, members=[member])
    here = group_node()
    replay(here.coordinator, SimpleNamespace(producer_id=-1, partition=0, timestamp=0), b'\0\2\0\1g',
           write_state(value, version), 0)
    group = here.coordinator.groups['g']
    assert (group.state, group.generation, group.members['m'].assignment) == (STABLE, 4, b'a')
    assert group.members['m'].rebalance_timeout_ms == (7 if version else 9)   # before there was one, the session was it


# The machine

@pytest.fixture
def table(): return Table()


def test_a_group_that_was_loaded_goes_on_where_it_was(table):
    leader, follower = table.pair()
    again = table.restart()
    group = again.group
    assert (group.state, group.generation, group.leader,
            [member.assignment for member in group.members.values()]) == (STABLE, 2, leader, [b'L', b'F'])
    assert again.beat(leader) == again.beat(follower) == 0 and again.sync(follower).assignment == b'F'
    assert len(again.here.store.pairs) == len(table.here.store.pairs)   # nothing had to be written


def test_sessions_begin_anew_after_a_restart(table):
    leader, follower = table.pair()
    table.pass_time(9_999)
    again = table.restart()
    again.pass_time(9_999)
    assert again.beat(follower) == 0
    again.pass_time(1)
    assert list(again.group.members) == [follower] and again.beat(follower) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_loaded_member_may_join_with_more_protocols_than_the_one_that_was_kept(table):
    both = (('range', b'r'), ('sticky', b's'))
    leader, follower = table.pair(protocols=both)
    again = table.restart()
    first, second = again.join(leader, protocols=both), again.join(follower, protocols=both)
    assert isinstance(first, Pending) and first.result.generation_id == second.generation_id == 3


def test_a_group_that_is_too_large_when_it_is_loaded_has_to_join_again(table):
    leader, follower = table.pair()
    again = table.restart({'group.max.size': '1'})
    assert again.group.state == PREPARING and again.beat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    waits = again.join(leader)
    assert again.join(follower).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED and follower not in again.group.members
    again.pass_time(10_000)
    assert waits.result.generation_id == 3 and list(again.group.members) == [leader]


def test_a_deleted_group_is_dead(table):
    member = table.come().member_id
    table.leave((member, None))
    group = table.group
    table.here.coordinator.write('g', group.tombstones())
    assert group.state == DEAD and 'g' not in table.here.coordinator.groups
    request = JoinGroupRequest(group_id='g', session_timeout_ms=10_000, protocol_type='consumer',
                               protocols=[JoinGroupRequestProtocol(name='range')])
    assert classic_group_join(group, request, NOW).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert classic_group_heartbeat(group, HeartbeatRequest(member_id=member),
                                   NOW) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert classic_group_sync(group, SyncGroupRequest(member_id=member), NOW).error_code == group.check_commit('',
        -1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 'g' not in group_node(written=table.here.store.pairs).coordinator.groups


def test_a_client_that_is_gone_stays_a_member_until_its_session_ends(table):
    leader, follower = table.pair()
    waits = table.join(leader)
    waits.cancel()   # its connection breaks
    table.join(follower)
    assert table.group.state == COMPLETING and set(table.group.members) == {leader, follower}
    table.pass_time(9_999)
    assert leader in table.group.members and table.beat(follower) == 0
    table.pass_time(2)
    assert leader not in table.group.members


def test_a_new_member_may_wait_for_five_minutes(table):
    leader, _ = table.pair(rebalance=1_000_000, session=1_000_000)
    waits = table.come(session=6_000, rebalance=1_000_000)
    table.pass_time(299_999)
    assert not waits.settled
    table.pass_time(1)
    assert waits.result.error_code == ErrorCode.UNKNOWN_MEMBER_ID and waits.result.member_id == ''


def test_an_old_member_that_waits_needs_no_heartbeats(table):
    leader, follower = table.pair(rebalance=60_000, session=6_000)
    waits = table.join(leader, rebalance=60_000, session=6_000)
    for _ in range(8):
        table.pass_time(5_000)
        assert table.beat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    assert not waits.settled and leader in table.group.members
    table.join(follower, rebalance=60_000, session=6_000)
    assert waits.result.error_code == 0


def test_a_commit_is_a_sign_of_life(table):
    leader, follower = table.pair()
    table.pass_time(6_000)
    assert table.group.check_commit(follower, 2, now=table.here.clock) == 0
    table.pass_time(6_000)
    assert list(table.group.members) == [follower]


def test_a_waiting_request_that_is_sent_again_is_answered_on_both_connections(table):
    "A real broker leaves the first one without an answer, and its connection stuck."
    leader, follower = table.pair()
    first = table.join(leader)
    second = table.join(leader)
    assert first.result.error_code == ErrorCode.REBALANCE_IN_PROGRESS and not second.settled
    table.join(follower)
    assert second.result.generation_id == 3
    first = table.sync(follower)
    second = table.sync(follower)
    assert first.result.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    table.sync(leader, {follower: b'x'})
    assert second.result.assignment == b'x'


def test_a_sync_of_a_member_that_is_removed_is_answered(table):
    leader, follower = table.pair()
    table.join(leader), table.join(follower)
    waits = table.sync(follower)
    assert table.leave((follower, None)) == [0] and waits.result.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_holds_up_a_round_only_so_long(table):
    leader, follower = table.pair()
    table.join(session=8_000)   # and never comes back
    waits = table.join(leader)
    table.join(follower)
    assert not waits.settled
    table.pass_time(8_000)
    assert waits.result.generation_id == 3 and not table.group.pending_join_members


# When the disk refuses

def test_a_group_that_cant_be_written_isnt_created(table):
    table.here.store.refuses = True
    assert table.join().error_code == ErrorCode.NOT_COORDINATOR and not table.here.coordinator.groups


def test_assignments_that_cant_be_written_are_not_given(table):
    leader, follower = table.pair()
    table.join(leader), table.join(follower)
    waits = table.sync(follower)
    table.here.store.refuses = True
    assert table.sync(leader, {leader: b'x',
                               follower: b'y'}).error_code == waits.result.error_code == ErrorCode.NOT_COORDINATOR
    assert table.group.state == PREPARING and {member.assignment for member in table.group.members.values()} == {b''}
    table.here.store.refuses = False
    table.join(leader), table.join(follower)
    assert table.sync(leader, {leader: b'x',
                               follower: b'y'}).assignment == b'x' and table.sync(follower).assignment == b'y'


def test_a_static_member_whose_return_cant_be_written_isnt_replaced(table):
    member = table.join(instance='i').member_id
    table.sync(member, {member: b'x'}, instance='i')
    table.here.store.refuses = True
    assert table.join(instance='i', protocols=(('range', b'new'),)).error_code == ErrorCode.NOT_COORDINATOR
    assert (table.beat(member, instance='i') == 0 and table.group.members[member].metadata('range') == b''
            and table.group.leader == member)


def test_an_empty_generation_that_cant_be_written_does_no_harm(table):
    member = table.come().member_id
    table.sync(member, {member: b'x'})
    table.here.store.refuses = True
    assert table.leave((member, None)) == [0] and table.group.state == EMPTY
    again = group_node(written=table.here.store.pairs)
    assert list(again.coordinator.groups['g'].members) == [member]
    again.at(10_000)
    assert again.coordinator.groups['g'].state == EMPTY and again.coordinator.groups['g'].generation == 2


# When the group's partition of `__consumer_offsets` isn't here, or can't be read

@pytest.mark.parametrize('reason', [NO_TOPIC, NOT_LOADED])
def test_a_real_broker_that_isnt_the_coordinator_was_asked_everything(reason):
    asked = [case['name'].split(': ')[1] for case in recorded('not-coordinator.jsonl')
             if case['name'].startswith(reason)]
    assert asked == [name for name, *_ in questions()]


@pytest.mark.parametrize('reason', [NO_TOPIC, NOT_LOADED])
def test_members_of_a_group_whose_partition_is_gone_are_not_served(reason):
    table = not_coordinator(reason)
    group = table.group
    leader, follower = group.members
    assert (table.join(leader).error_code
            == table.sync(follower).error_code == table.beat(leader) == ErrorCode.NOT_COORDINATOR)
    left = table.here.answer(LeaveGroupRequest(group_id='g', members=[MemberIdentity(member_id=leader)]))
    assert (left.error_code, left.members) == (ErrorCode.NOT_COORDINATOR, []) and list(group.members) == [leader,
        follower]
    assert group.state == STABLE and table.here.answer(ListGroupsRequest()).groups == []

def test_somebody_deletes_the_topic_with_all_groups(tmp_path):
    """Then they are gone at once, not at the next start; who waits for an answer looks for a coordinator, and begins
    anew."""
    node = small_node(tmp_path)
    node.create({'t': 1})
    node.groups.store.ensure()
    def join(): return join_group.answer(JoinGroupRequest(
        group_id='g', session_timeout_ms=10_000, rebalance_timeout_ms=60_000, protocol_type='consumer',
        protocols=[JoinGroupRequestProtocol(name='range')]), Call(3, node))
    first = join()
    assert (first.error_code, first.leader) == (0, first.member_id)
    second = join()
    consumer_group_heartbeat.answer(ConsumerGroupHeartbeatRequest(
        group_id='new', member_id='A' * 22, rebalance_timeout_ms=1000, subscribed_topic_names=['t'],
        topic_partitions=[]), Call(1, node))
    node.groups.write('simple', [(OffsetCommitKey(group='simple', topic='t', partition=0),
                                  OffsetCommitValue(offset=5))])
    assert isinstance(second, Pending) and not second.settled and {*node.groups.groups, *node.groups.offsets} == {'g',
        'new', 'simple'}
    delete = DeleteTopicsRequest(topic_names=['__consumer_offsets'], timeout_ms=1000)
    assert delete_topics.answer(delete, Call(5, node)).responses[0].error_code == 0
    assert second.settled and second.result.error_code == ErrorCode.NOT_COORDINATOR
    assert not node.groups.groups and not node.groups.offsets and join().error_code == ErrorCode.NOT_COORDINATOR
    node.turn_clock(100_000)                        # what was wound up for them doesn't ring
    assert node.groups.store.known is None and not node.notes
    node.groups.store.ensure()                      # as FindCoordinator does
    assert join().generation_id == 1 and [*node.groups.groups] == ['g']



def test_nobody_joins_before_somebody_asked_for_the_coordinator(tmp_path):
    node = small_node(tmp_path)
    ask_node = lambda api, request: api.answer(request, Call(api.request.VERSIONS[-1], node))
    assert ask_node(join_group,
                    join_request()).error_code == ErrorCode.NOT_COORDINATOR and '__consumer_offsets' not in node.image.topics  # noqa: E501
    ask_node(find_coordinator, FindCoordinatorRequest(coordinator_keys=['g']))
    assert '__consumer_offsets' in node.image.topics and ask_node(join_group,
                                                                  join_request()).error_code == ErrorCode.MEMBER_ID_REQUIRED  # noqa: E501


def test_share_groups_are_for_brokers_to_ask_about(tmp_path):
    "As a real broker says to a client without that right, and to one who has it where there are no share groups."
    node = small_node(tmp_path)
    def ask():
        return find_coordinator.answer(FindCoordinatorRequest(key_type=2,
                                                              coordinator_keys=['g:AAAAAAAAAAAAAAAAAAAAAA:0']),
                                                              Call(6, node)).coordinators[0].error_code
    assert ask() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.authorizer = lambda caller, operation, *_: operation != Operation.CLUSTER_ACTION
    assert ask() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_groups_of_a_damaged_partition_are_not_served(tmp_path):
    node = small_node(tmp_path)
    node.groups.store.ensure()
    ask_node = lambda api, request: api.answer(request, Call(api.request.VERSIONS[-1], node))
    member = ask_node(join_group, join_request(group_instance_id='i')).member_id
    beat = HeartbeatRequest(group_id='g', generation_id=1, member_id=member, group_instance_id='i')
    assert ask_node(heartbeat, beat).error_code == 0
    node.crash()
    path = tmp_path/'__consumer_offsets-0'/f'{0:020}.log'
    node = small_node(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[70] ^= 1   # after recovery, so that the batch isn't cut off
    path.write_bytes(raw)
    node.groups.load()
    assert node.groups.store.unread == {0}
    for request, api in ((beat, heartbeat), (join_request(), join_group), (join_request(member_id=member), join_group)):
        assert ask_node(api, request).error_code == ErrorCode.NOT_COORDINATOR
    assert ask_node(list_groups, ListGroupsRequest()).groups == []


# Neighbours

def test_a_group_of_another_kind_speaks_another_language():
    table = Table('other')
    table.here.coordinator.groups['other'] = other = Other(is_empty=False)
    other.kind = 'share'   # of consumer groups one can be a member with these requests
    assert table.join().error_code == table.join('m').error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert table.beat('m', generation=1) == ErrorCode.UNKNOWN_MEMBER_ID and table.leave(('m',
        None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    answer = table.here.answer(SyncGroupRequest(group_id='other', member_id='m', protocol_type='consumer',
                                                protocol_name='range'))
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID and not table.here.store.pairs


def test_an_empty_group_of_another_kind_gives_way():
    table = Table('other')
    table.here.coordinator.groups['other'] = Other(is_empty=True)
    assert table.join('m').error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert table.join().error_code == ErrorCode.MEMBER_ID_REQUIRED and table.group.kind == 'classic'
    assert [value is None for value in table.here.records('other')] == [True, False]


def test_a_name_with_offsets_is_a_group():
    table = Table('simple')
    table.here.coordinator.offsets['simple'] = {('t', 0): None}
    assert table.beat('m', generation=0) == ErrorCode.UNKNOWN_MEMBER_ID and table.leave(('m',
        None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert not table.here.coordinator.groups   # nobody has joined it
    # nothing to write before it is stable
    assert table.come().generation_id == 1 and table.here.records('simple') == []


def test_any_type_of_protocol_will_do():
    table = Table()
    worker = table.come(kind='connect', protocols=(('sessioned', b'\xff\0raw'),))
    assert worker.members[0].metadata == b'\xff\0raw' and table.sync(worker.member_id,
                                                                     {worker.member_id: b'\0'}).assignment == b'\0'
    assert (not table.group.subscribed('t')
            and table.join(kind='consumer').error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def test_who_reads_what():
    table = Table()
    wants = write_state(ConsumerProtocolSubscription(topics=['a', 'b']), 1)
    table.come(protocols=(('range', wants),))
    assert table.group.subscribed('a') and not table.group.subscribed('c')
    strange = Table('strange')
    # a real broker's round doesn't end with such a member
    strange.come(protocols=(('range', b'\x66\x6f\x6c\x6c\x6f\x77'),))
    assert strange.group.subscribed('anything')


def test_settings_are_checked():
    from kafka_scratch.cluster.properties import ConfigError, read_properties
    read = lambda text: read_group_config(read_properties(text, 'test'))
    assert read('group.min.session.timeout.ms=10\ngroup.max.session.timeout.ms=20') == GroupConfig(10, 20)
    with pytest.raises(ConfigError, match='group.max.size'): read('group.max.size=many')


def test_a_member_id_is_a_name_and_something_random():
    first, second = generate_member_id('ann'), generate_member_id('ann')
    assert first != second and re.fullmatch(r'ann-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}', first)


def test_a_static_member_that_comes_back_with_a_shorter_session_is_missed_in_time(table):
    member = table.join(instance='i', session=60_000).member_id
    table.sync(member, {member: b'x'}, instance='i')
    member = table.join(instance='i', session=6_000).member_id
    assert table.beat(member, instance='i') == 0
    table.pass_time(6_000)
    assert table.group.state == EMPTY


def test_many_heartbeats_leave_few_timers(table):
    leader, follower = table.pair()
    for _ in range(500):
        table.pass_time(100)
        assert table.beat(leader) == table.beat(follower) == 0
    assert len(table.here.timers.heap) < 10


# On sockets

def settings_for(port: int, logs) -> dict:
    return {'node.id': 1, 'listeners': f'PLAINTEXT://127.0.0.1:{port}', 'log.dirs': logs,
            'offsets.topic.num.partitions': 4}


def ask(port: int, api, request, version: int | None = None):
    version = api.request.VERSIONS[-1] if version is None else version
    with Client(port) as client: return answer_in(api, version, client.ask(framed(api, version, request)))


def test_an_answer_that_waits_comes_when_the_others_are_there_and_a_broken_connection_is_no_goodbye(tmp_path):
    port = free_port()
    file = properties(tmp_path/'server.properties', **settings_for(port, tmp_path/'logs'))
    broker = BrokerProcess(tmp_path, file, port=port).wait_ready()
    assert ask(port, find_coordinator, FindCoordinatorRequest(coordinator_keys=['g'])).coordinators[0].error_code == 0
    join = lambda member_id='': JoinGroupRequest(group_id='g', session_timeout_ms=6_000, rebalance_timeout_ms=6_000,
                                                 member_id=member_id, protocol_type='consumer',
                                                 protocols=[JoinGroupRequestProtocol(name='range', metadata=b'')])
    ann = ask(port, join_group, join(), 3).member_id
    with Client(port) as bob:
        bob.send(framed(join_group, 3, join()))
        assert bob.stays_open()   # and hears nothing
        assert ask(port, heartbeat, HeartbeatRequest(group_id='g', generation_id=1,
                                                     member_id=ann)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        begun = time.monotonic()
        assert ask(port, join_group, join(ann), 3).generation_id == 2
        assert bob.frame() is not None and time.monotonic() - begun < 3
    found, = ask(port, describe_groups, DescribeGroupsRequest(groups=['g'])).groups
    assert (found.group_state, len(found.members)) == (COMPLETING, 2)   # bob's connection is closed, but he is a member
    wait_until(lambda: ask(port, describe_groups, DescribeGroupsRequest(groups=['g'])).groups[0].group_state == EMPTY,
               'their sessions to end', 30)
    broker.check_end()



@needs_kafka
def test_a_real_kafka_goes_on_where_we_stopped_and_we_where_it_stopped(tmp_path):
    port = free_port()
    file = properties(tmp_path/'ours.properties', **settings_for(port, tmp_path/'logs'))
    wants = write_state(ConsumerProtocolSubscription(topics=['t']), 3)
    assignment = write_state(ConsumerProtocolAssignment(assigned_partitions=[ConsumerPartitions(topic='t',
        partitions=[0, 1])]), 3)
    join = JoinGroupRequest(group_id='g', session_timeout_ms=120_000, rebalance_timeout_ms=120_000,
                            group_instance_id='north', protocol_type='consumer',
                            protocols=[JoinGroupRequestProtocol(name='range', metadata=wants)])
    def sync(member_id, assignments=()):
        return SyncGroupRequest(group_id='g', generation_id=1, member_id=member_id, group_instance_id='north',
                                protocol_type='consumer', protocol_name='range',
                                assignments=[SyncGroupRequestAssignment(member_id=member_id,
                                    assignment=each) for each in assignments])
    def described(port): return ask(port, describe_groups, DescribeGroupsRequest(groups=['g']))

    broker = BrokerProcess(tmp_path, file, port=port).wait_ready()
    assert ask(port, find_coordinator, FindCoordinatorRequest(coordinator_keys=['g']),
               4).coordinators[0].error_code == 0
    member = ask(port, join_group, join).member_id
    assert ask(port, sync_group, sync(member, [assignment])).assignment == assignment
    before = described(port)
    broker.check_end()

    with RealKafka(tmp_path) as kafka:
        wait_until(lambda: described(kafka.port).groups[0].error_code == 0, 'Kafka to load its groups', 60)
        assert described(kafka.port) == before
        assert ask(kafka.port, heartbeat, HeartbeatRequest(group_id='g', generation_id=1, member_id=member,
                                                           group_instance_id='north')).error_code == 0
        back = ask(kafka.port, join_group, join)   # the static member is restarted, and gets a new id
        assert (back.error_code, back.generation_id, back.skip_assignment) == (0, 1, True)
        after = described(kafka.port)

    broker = BrokerProcess(tmp_path, file, port=port).wait_ready()
    assert described(port) == after != before
    assert ask(port, sync_group, sync(back.member_id)).assignment == assignment
    broker.check_end()


def test_consumers_of_three_kinds_share_a_topic_and_dont_notice_that_the_broker_was_killed(tmp_path):
    confluent_kafka, kafka, aiokafka = map(pytest.importorskip, ('confluent_kafka', 'kafka', 'aiokafka'))
    port = free_port()
    file = properties(tmp_path/'server.properties', **settings_for(port, tmp_path/'logs'))
    broker = BrokerProcess(tmp_path, file, port=port).wait_ready()
    bootstrap, done, seen = f'127.0.0.1:{port}', threading.Event(), []

    def confluent():
        consumer = confluent_kafka.Consumer({
            'bootstrap.servers': bootstrap, 'group.id': 'g', 'auto.offset.reset': 'earliest',
            'session.timeout.ms': 10_000, 'heartbeat.interval.ms': 500,
            'partition.assignment.strategy': 'range', 'auto.commit.interval.ms': 200, 'log_level': 0,
            'client.id': 'confluent'})
        consumer.subscribe(['t'])
        while not done.is_set():
            message = consumer.poll(0.1)
            if message and not message.error(): seen.append(message.value())
        consumer.close()

    def python():
        consumer = kafka.KafkaConsumer('t', bootstrap_servers=bootstrap, group_id='g', auto_offset_reset='earliest',
                                       session_timeout_ms=10_000, heartbeat_interval_ms=500,
                                       auto_commit_interval_ms=200, client_id='python')
        while not done.is_set():
            seen.extend(message.value for messages in consumer.poll(100).values() for message in messages)
        consumer.close()

    def asynchronous():
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        async def read():
            consumer = aiokafka.AIOKafkaConsumer('t', bootstrap_servers=bootstrap, group_id='g',
                                                 auto_offset_reset='earliest', session_timeout_ms=10_000,
                                                 client_id='aio',
                                                 heartbeat_interval_ms=500, auto_commit_interval_ms=200,
                                                 partition_assignment_strategy=(RangePartitionAssignor,))
            await consumer.start()
            while not done.is_set():
                seen.extend(message.value for messages in (await consumer.getmany(timeout_ms=100)).values() for message
                            in messages)
            await consumer.stop()
        asyncio.run(read())

    def owners() -> dict:
        found, = ask(port, describe_groups, DescribeGroupsRequest(groups=['g'])).groups
        if found.group_state != STABLE: return {}
        return {member.client_id: [p for each in unwrap(ConsumerProtocolAssignment,
                                                        member.member_assignment).assigned_partitions for p
                                                        in each.partitions]
                for member in found.members}

    def shared_by(count: int) -> bool:
        dealt = owners()
        return len(dealt) == count and sorted(p for partitions in dealt.values() for p in partitions) == list(range(6))

    admin = pytest.importorskip('confluent_kafka.admin')
    client = admin.AdminClient({'bootstrap.servers': bootstrap})
    client.create_topics([admin.NewTopic('t', 6, 1)])['t'].result()
    producer, sent = confluent_kafka.Producer({'bootstrap.servers': bootstrap, 'log_level': 0}), 0
    def produce(count: int):
        nonlocal sent
        for sent in range(sent + 1, sent + count + 1): producer.produce('t', str(sent).encode())
        assert producer.flush(30) == 0

    threads = []
    try:
        for number, kind in enumerate((confluent, python, asynchronous), 1):
            threads.append(threading.Thread(target=kind, daemon=True))
            threads[-1].start()
            wait_until(lambda: shared_by(number), f'{number} consumers to share the topic', 30)
            produce(100)
        before = owners()
        broker.stop(signal.SIGKILL)
        broker = BrokerProcess(tmp_path, file, port=port).wait_ready()
        assert owners() == before
        produce(100)
        wait_until(lambda: len(set(seen)) == sent, 'everything to be read', 40)
        found, = ask(port, describe_groups, DescribeGroupsRequest(groups=['g'])).groups
        assert owners() == before and found.protocol_data == 'range'   # nobody had to join again
    finally:
        done.set()
        for thread in threads: thread.join(20)
    wait_until(lambda: ask(port, describe_groups, DescribeGroupsRequest(groups=['g'])).groups[0].group_state == EMPTY,
               'everybody to leave', 20)
    broker.check_end()
