"""May you? The decision against one that was written without any cleverness, and the recorded conversations with a real
broker."""
from types import SimpleNamespace

import pytest
from hypothesis import example, given, strategies as st

from size import budget
from kafka_scratch.security.acls import AclConfig, Authorizer, Rules, decide, host_text, read_acl_config
from kafka_scratch.security.acl_apis import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from kafka_scratch.security.acl_apis import DescribeAclsRequest, answer_create_acls, answer_delete_acls, matches
from kafka_scratch.security.scram_apis import (AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest,
                                               ScramCredentialUpsertion,
                                               answer_alter_user_scram_credentials,
                                               answer_describe_user_scram_credentials)
from kafka_scratch.cluster.properties import ConfigError, read_properties
from kafka_scratch.apis.describe_topic_partitions import operations_on
from kafka_scratch.wire.codes import Operation, Resource
from kafka_scratch.apis.api import Call, Caller, Node
from kafka_scratch.cluster.image import Image
from kafka_scratch.cluster.records import AccessControlEntryRecord
from security_by_hand import AUTHORIZER, security_node


# --- The decision -----------------------------------------------------------------------------------------------------

NAMES = ['a', 'ab', 'abc', 'b', '*']
PRINCIPALS = ['User:*', 'User:alice', 'User:bob', 'Group:alice']
HOSTS = ['*', '10.0.0.1', '10.0.0.2']

rules = st.builds(
    AccessControlEntryRecord, id=st.binary(min_size=16, max_size=16), resource_type=st.sampled_from([2, 3]),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from([3, 4]), principal=st.sampled_from(PRINCIPALS), host=st.sampled_from(HOSTS),
    operation=st.sampled_from([2, 3, 4, 6, 7, 8, 10, 11]), permission_type=st.sampled_from([2, 3]))
callers = st.builds(Caller, st.sampled_from(['User:alice', 'User:bob', 'User:carol']),
                    st.sampled_from(['10.0.0.1', '10.0.0.2', '10.0.0.3']))


def slowly(rules, caller, operation, resource, name, otherwise):
    "The decision, sentence by sentence, as Kafka's documentation has it."
    about = [rule for rule in rules if rule.resource_type == resource and (
        rule.pattern_type == 3 and rule.resource_name in (name,
                                                          '*') or rule.pattern_type == 4
                                                          and name.startswith(rule.resource_name))]
    if not about: return otherwise
    ours = [rule for rule in about if rule.principal in ('User:*', caller.principal) and rule.host in ('*',
        caller.host)]
    if any(rule.permission_type == 2 and rule.operation in (2, operation) for rule in ours): return False
    also = {8: {3, 4, 6, 7}, 10: {11}}.get(operation, set())
    return any(rule.permission_type == 3 and rule.operation in {2, operation} | also for rule in ours)


@budget(400)
@given(st.lists(rules, max_size=8), callers, st.sampled_from([3, 4, 5, 6, 7, 8, 10, 11]),
       st.sampled_from(['a', 'ab', 'abcd', 'b', 'c']), st.booleans())
def test_decisions(rules, caller, operation, name, otherwise):
    assert decide(Rules(rules).about(Resource.TOPIC, name), caller, operation, otherwise) == slowly(rules, caller,
        operation, 2, name, otherwise)


def test_a_long_name_takes_no_longer_than_the_rules_do():
    "A group's name is chosen by anybody. It isn't compared with each of its beginnings."
    asked, rule = [], AccessControlEntryRecord(resource_type=3, resource_name='x' * 5, pattern_type=4,
                                               principal='User:*', host='*', operation=3, permission_type=3)
    known = Rules([rule])
    class Counted(dict):
        def get(self, key, otherwise): return asked.append(key) or super().get(key, otherwise)
    known.prefixed = Counted(known.prefixed)
    assert known.about(Resource.GROUP, 'x' * 32_767) == [rule] and asked == [(3, 'xxxxx')]
    assert known.about(Resource.GROUP, 'xxxx') == [] and len(asked) == 1


@budget(100)
@given(st.lists(st.tuples(rules, callers, st.sampled_from(['a', 'ab', 'b'])), min_size=1, max_size=10))
def test_answers_that_are_remembered_are_never_old(steps):
    image = SimpleNamespace(acls={}, last_offset=0)
    authorizer = Authorizer(AclConfig(frozenset(), False), lambda: image)
    for rule, caller, name in steps:
        for _ in range(2):
            assert authorizer(caller, 3, 2, name) == slowly(image.acls.values(), caller, 3, 2, name, False)
        image.acls[rule.id], image.last_offset = rule, image.last_offset + 1
    image = SimpleNamespace(acls={}, last_offset=image.last_offset)   # another image, that is as old
    assert not authorizer(caller, 3, 2, name)


def test_super_users_are_above_the_rules():
    never = AccessControlEntryRecord(id=bytes(16), resource_type=2, resource_name='*', pattern_type=3,
                                     principal='User:*', host='*', operation=2, permission_type=2)
    authorizer = Authorizer(AclConfig(frozenset({'User:admin'}), True),
                            lambda: SimpleNamespace(acls={1: never}, last_offset=1))
    assert authorizer(Caller('User:admin'), 3, 2, 'x') and not authorizer(Caller('User:Admin'), 3, 2,
        'x') and not authorizer(Caller('Group:admin'), 3, 2, 'x')
    assert authorizer(Caller('User:alice'), 3, 3, 'x'), 'nothing is said about groups'
    assert authorizer.of_some(Caller('User:admin'), 4, 2) and not authorizer.of_some(Caller('User:alice'), 4,
        2) and authorizer.of_some(Caller('User:alice'), 4, 3)


def test_remembering_has_an_end():
    authorizer = Authorizer(AclConfig(frozenset(), False), lambda: IMAGE)
    IMAGE = SimpleNamespace(acls={}, last_offset=1)
    for number in range(25_000): authorizer(Caller(), 3, 2, f'topic-{number}')
    assert len(authorizer.known) <= authorizer.most


def test_names_that_are_too_long_are_not_remembered():
    "Whoever asks makes them up: a group's name may be as long as a string can be."
    image = SimpleNamespace(acls={}, last_offset=1)
    authorizer = Authorizer(AclConfig(frozenset(), True), lambda: image)
    assert all(authorizer(Caller(), 3, 3, 'x' * length) for length in (1, 249, 250, 32_767) for _ in range(2))
    assert sorted(len(name) for *_, name in authorizer.known) == [1, 249]


def rule(pattern_type, permission_type, name='ab'):
    return AccessControlEntryRecord(id=bytes(16), resource_type=2, resource_name=name, pattern_type=pattern_type,
                                    principal='User:alice', host='*', operation=4,
                                    permission_type=permission_type)


@budget(400)
@given(st.lists(rules, max_size=8), callers, st.sampled_from([3, 4]))
@example([rule(4, 3), rule(3, 2)], Caller('User:alice'), 4)
@example([rule(4, 3), rule(4, 2, 'a')], Caller('User:alice'), 4)
def test_something_is_allowed_if_there_is_a_name_for_it(rules, caller, operation):
    """As Kafka answers InitProducerId: also if the one name that is forbidden is the one that the permission begins
    with."""
    image = SimpleNamespace(acls=dict(enumerate(rules)), last_offset=1)
    # each that a rule mentions, and others with the same beginnings
    names = [*NAMES, *(name + '?' for name in NAMES), '?']
    expected = any(slowly(rules, caller, operation, 2, name, False) for name in names)
    assert Authorizer(AclConfig(frozenset(), False), lambda: image).of_some(caller, operation, 2) == expected


def test_bits():
    node = Node(image=Image())
    # as Kafka says without rules
    assert [operations_on(Call(0, node), kind, 'x') for kind in (Resource.TOPIC, Resource.CLUSTER,
                                                                 Resource.GROUP)] == [3576, 8096, 3400]
    node.authorizer = lambda caller, operation, resource, name: operation in (Operation.READ, Operation.DESCRIBE)
    assert operations_on(Call(0, node), Resource.TOPIC, 'x') == 1 << 3 | 1 << 8


@pytest.mark.parametrize('address, text', [('127.0.0.1', '127.0.0.1'), ('::1', '0:0:0:0:0:0:0:1'),
                                           ('::ffff:1.2.3.4', '1.2.3.4'), ('fe80::a%lo', 'fe80:0:0:0:0:0:0:a')])
def test_addresses_as_java_writes_them(address, text): assert host_text(address) == text


# --- Limits -----------------------------------------------------------------------------------------------------------

def test_a_disk_that_is_full():
    node = security_node()
    node.controller.full = True
    new = AclCreation(resource_type=2, resource_name='x', principal='User:x', host='*', operation=3, permission_type=3)
    assert [result.error_code for result in answer_create_acls(CreateAclsRequest(creations=[new, new]),
                                                               Call(3, node)).results] == [56, 56]
    key = ScramCredentialUpsertion(name='x', mechanism=1, iterations=4096, salt=b'x', salted_password=b'x')
    said = answer_alter_user_scram_credentials(AlterUserScramCredentialsRequest(upsertions=[key]), Call(0, node))
    assert [(result.user, result.error_code) for result in said.results] == [('x',
        56)] and not node.image.acls and not node.image.scram
    node.controller.full = False
    answer_create_acls(CreateAclsRequest(creations=[new]), Call(3, node))
    node.controller.full = True
    every = DeleteAclsFilter(resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
                             principal_filter=None, host_filter=None, operation=1, permission_type=1)
    assert answer_delete_acls(DeleteAclsRequest(filters=[every]), Call(3,
        node)).filter_results[0].error_code == 56 and len(node.image.acls) == 1


def test_too_much_at_a_time():
    "More than ten thousand records are refused as a whole; exactly so many are written."
    node = security_node()
    def new(n):
        return AclCreation(resource_type=2, resource_name=f'x{n}', principal='User:x', host='*', operation=3,
                           permission_type=3)
    def key(n):
        return ScramCredentialUpsertion(name=f'x{n}', mechanism=1, iterations=4096, salt=b'x', salted_password=b'x')
    said = answer_create_acls(CreateAclsRequest(creations=[new(n) for n in range(10_001)]), Call(3, node))
    assert {each.error_code for each in said.results} == {44} and len(said.results) == 10_001 and not node.image.acls
    said = answer_create_acls(CreateAclsRequest(creations=[new(n) for n in range(10_000)]), Call(3, node))
    assert {each.error_code for each in said.results} == {0} and len(node.image.acls) == 10_000
    every = DeleteAclsFilter(resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
                             principal_filter=None, host_filter=None, operation=1, permission_type=1)
    said = answer_delete_acls(DeleteAclsRequest(filters=[every, every]), Call(3, node))
    assert [each.error_code for each in said.filter_results] == [44, 44] and len(node.image.acls) == 10_000
    said = answer_alter_user_scram_credentials(AlterUserScramCredentialsRequest(upsertions=[key(n) for n
        in range(10_001)]), Call(0, node))
    assert {each.error_code for each in said.results} == {44} and not node.image.scram


def test_keys_are_never_told():
    node = security_node()
    key = ScramCredentialUpsertion(name='x', mechanism=1, iterations=4096, salt=b'salt-of-x',
                                   salted_password=b'password-of-x')
    answer_alter_user_scram_credentials(AlterUserScramCredentialsRequest(upsertions=[key]), Call(0, node))
    said = answer_describe_user_scram_credentials(DescribeUserScramCredentialsRequest(users=None),
                                                  Call(0, node)).encode(0)
    record = node.image.scram[1, 'x']
    assert b'-of-x' not in said and record.stored_key not in said and b'password-of-x' not in record.encode(0)


def test_who_may_not_asks_for_all_users():
    "A real broker doesn't answer that at all."
    node = security_node()
    said = answer_describe_user_scram_credentials(DescribeUserScramCredentialsRequest(users=None),
                                                  Call(0, node, Caller('User:alice')))
    assert (said.error_code, said.results) == (31, [])


# --- Filters ----------------------------------------------------------------------------------------------------------

filters = st.builds(
    DescribeAclsRequest, resource_type_filter=st.sampled_from([1, 2, 3, 99]),
    resource_name_filter=st.sampled_from([None, *NAMES]),
    pattern_type_filter=st.sampled_from([1, 2, 3, 4, 99]), principal_filter=st.sampled_from([None, *PRINCIPALS]),
    host_filter=st.sampled_from([None, *HOSTS]),
    operation=st.sampled_from([1, 2, 3, 8, 99]), permission_type=st.sampled_from([1, 2, 3, 99]))


@budget(300)
@given(rules, filters)
def test_filters(rule, filter):
    expected = True
    for asked, said, anything in ((filter.resource_type_filter, rule.resource_type, 1),
                                  (filter.principal_filter, rule.principal, None),
                                  (filter.host_filter, rule.host, None), (filter.operation, rule.operation, 1),
                                  (filter.permission_type, rule.permission_type, 1)):
        expected &= asked in (anything, said)
    kind, name = filter.pattern_type_filter, filter.resource_name_filter
    if kind in (3, 4): expected &= kind == rule.pattern_type and name in (None, rule.resource_name)
    elif kind == 1: expected &= name in (None, rule.resource_name)
    elif kind == 2:
        expected &= name is None or any(each is rule for each in Rules([rule]).about(rule.resource_type, name))
    else: expected = False
    assert matches(filter, rule) == expected


# --- Settings ---------------------------------------------------------------------------------------------------------

def test_settings():
    def read(text): return read_acl_config(read_properties(text, 'server.properties'))
    assert read('') is None and read('super.users=User:x') is None
    assert read(f'authorizer.class.name={AUTHORIZER}') == (frozenset(), False)
    assert read(
        f'authorizer.class.name={AUTHORIZER}\nsuper.users= User:a ;; '
        f'User:CN=b,O=c;\nallow.everyone.if.no.acl.found=true') == ({'User:a', 'User:CN=b,O=c'}, True)
    for wrong in ('authorizer.class.name=x', f'authorizer.class.name={AUTHORIZER}\nsuper.users=a',
                  f'authorizer.class.name={AUTHORIZER}\nallow.everyone.if.no.acl.found=si'):
        with pytest.raises(ConfigError): read(wrong)
