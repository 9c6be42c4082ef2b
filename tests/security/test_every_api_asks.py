"""Nobody gets past the authorizer: a request to each API of a node, in every version, in the name of somebody who may
do nothing.

The answer has to refuse, or to be empty; and nothing may have changed on the disk. The same request in the name of
somebody who may do everything
has to get further, or it would prove nothing. A new API has to be in one of the two tables.
"""
import hashlib

import pytest
from small_node import small_node

from kafka_scratch.apis.api import Node
from kafka_scratch.apis.api import Later
from kafka_scratch.broker.apis import APIS
from kafka_scratch.cluster.records import ClientQuotaRecord, EntityData, PartitionChangeRecord
from kafka_scratch.log.records import Record, write_batch
from kafka_scratch.wire.codes import API_NAMES, ErrorCode
from kafka_scratch.wire.frames import RequestHeader
from kafka_scratch.wire.schema import Message

# What everybody may ask, and why.
OPEN = {
    'ApiVersions': 'a client has to learn which versions we speak before it can say who it is',
    'SaslHandshake': 'it is how a client says who it is; where the guard has let it in, the answer is always that it '
                     'is too late for that',
    'SaslAuthenticate': 'the same',
    'DescribeCluster': "a client that was let in has to find the brokers; what it may do to the cluster isn't told "
                       "(see below)"}
# lists that are open: for the same reason as DescribeCluster; because it is what the caller asked for
BROKERS = {'Metadata': {'brokers'}, 'AlterClientQuotas': {'entity'}}

BATCH = write_batch([Record(value=b'mine')])
TOPIC_ID = object()   # stands for the id of `salaries`, which is another one each time
SALARIES = {'name': 'salaries', 'partitions': [0]}
OFFSETS = {'name': 'salaries', 'partitions': [{'partition_index': 0, 'committed_offset': 1, 'committed_metadata': ''}]}
PAY = {'transactional_id': 'pay', 'producer_id': 0, 'producer_epoch': 0}
ANY_RULE = {'resource_type_filter': 1, 'resource_name_filter': None, 'pattern_type_filter': 1, 'principal_filter': None,
            'host_filter': None,
            'operation': 1, 'permission_type': 1}
NEW_RULE = {'resource_type': 2, 'resource_name': 'salaries', 'principal': 'User:mallory', 'host': '*', 'operation': 2,
            'permission_type': 3}
TOPIC, GROUP, BROKER = 2, 32, 4   # types of resources that have settings
LEVEL = {'name': 'retention.ms', 'value': '1'}


def produced(**topic) -> list: return [{**topic, 'partition_data': [{'index': 0, 'records': BATCH}]}]
def fetched(**topic) -> list: return [{**topic, 'partitions': [{'partition': 0, 'partition_max_bytes': 1000}]}]


# By API: requests, as what they say of their fields. `since`: the first version that can say it.
REQUESTS = {
    'Produce': [{'acks': 1, 'topic_data': produced(name='salaries', topic_id=TOPIC_ID)},
                {'acks': 1, 'transactional_id': 'pay', 'topic_data': produced(name='salaries', topic_id=TOPIC_ID)}],
    'Fetch': [{'session_epoch': -1, 'max_bytes': 1000, 'topics': fetched(topic='salaries', topic_id=TOPIC_ID)}],
    'ListOffsets': [{'replica_id': -1,
                     'topics': [{'name': 'salaries', 'partitions': [{'partition_index': 0, 'timestamp': -1}]}]}],
    'Metadata': [{'topics': [{'name': 'salaries'}]}, {'topics': [{'name': 'new'}], 'allow_auto_topic_creation': True},
                 {'topics': None, 'since': 1},
                 {'topics': [{'name': None, 'topic_id': TOPIC_ID}], 'since': 12}],
    'OffsetCommit': [{'group_id': 'billing', 'topics': [OFFSETS]}],
    'OffsetFetch': [{'group_id': 'billing', 'topics': [{'name': 'salaries', 'partition_indexes': [0]}],
                     'groups': [{'group_id': 'billing', 'topics': [{'name': 'salaries', 'partition_indexes': [0]}]}]},
                    {'group_id': 'billing', 'topics': None, 'groups': [{'group_id': 'billing', 'topics': None}],
                     'since': 2}],
    'FindCoordinator': [{'key': 'billing', 'key_type': kind, 'coordinator_keys': ['billing']} for kind in (0, 1)],
    'JoinGroup': [{'group_id': 'billing', 'session_timeout_ms': 10_000, 'rebalance_timeout_ms': 10_000,
                   'protocol_type': 'consumer',
                   'protocols': [{'name': 'range', 'metadata': b''}]}],
    'Heartbeat': [{'group_id': 'billing', 'generation_id': 1, 'member_id': 'm'}],
    'LeaveGroup': [{'group_id': 'billing', 'member_id': 'm', 'members': [{'member_id': 'm'}]}],
    'SyncGroup': [{'group_id': 'billing', 'generation_id': 1, 'member_id': 'm', 'protocol_type': 'consumer',
                   'protocol_name': 'range'}],
    'DescribeGroups': [{'groups': ['billing']}],
    'ListGroups': [{}],
    'CreateTopics': [{'topics': [{'name': 'new', 'num_partitions': 1, 'replication_factor': 1}]}],
    'DeleteTopics': [{'topics': [{'name': 'salaries'}], 'topic_names': ['salaries'], 'timeout_ms': 1000},
                     {'topics': [{'name': None, 'topic_id': TOPIC_ID}], 'timeout_ms': 1000, 'since': 6}],
    'DeleteRecords': [{'topics': [{'name': 'salaries', 'partitions': [{'partition_index': 0, 'offset': -1}]}]}],
    'InitProducerId': [{'transactional_id': None}, {'transactional_id': 'pay', 'transaction_timeout_ms': 1000}],
    'OffsetForLeaderEpoch': [{'topics': [{'topic': 'salaries', 'partitions': [{'partition': 0,
        'current_leader_epoch': -1, 'leader_epoch': 0}]}]}],
    'AddPartitionsToTxn': [{'transactions': [{**PAY, 'topics': [SALARIES]}], 'v3_and_below_topics': [SALARIES],
                            **{f'v3_and_below_{name}': value for name, value in PAY.items()}}],
    'AddOffsetsToTxn': [{**PAY, 'group_id': 'billing'}],
    'EndTxn': [{**PAY, 'committed': True}],
    'WriteTxnMarkers': [{'markers': [{'producer_id': 0, 'topics': [{'name': 'salaries', 'partition_indexes': [0]}]}]}],
    'TxnOffsetCommit': [{**PAY, 'group_id': 'billing', 'topics': [OFFSETS]}],
    'DescribeAcls': [ANY_RULE],
    'CreateAcls': [{'creations': [NEW_RULE]}],
    'DeleteAcls': [{'filters': [ANY_RULE]}],
    'DescribeConfigs': [{'resources': [{'resource_type': kind, 'resource_name': name, 'configuration_keys': None}]}
                        for kind, name in ((TOPIC, 'salaries'), (BROKER, '1'), (BROKER, ''), (GROUP, 'billing'))],
    'AlterConfigs': [{'resources': [{'resource_type': kind, 'resource_name': name, 'configs': [LEVEL]}]} for kind,
                     name in ((TOPIC, 'salaries'), (BROKER, ''))],
    'CreatePartitions': [{'topics': [{'name': 'salaries', 'count': 2, 'assignments': None}]}],
    'DeleteGroups': [{'groups_names': ['billing']}],
    'IncrementalAlterConfigs': [{'resources': [{'resource_type': kind, 'resource_name': name,
                                                'configs': [LEVEL]}]} for kind,
                                                name in ((TOPIC, 'salaries'), (BROKER, ''))],
    'OffsetDelete': [{'group_id': 'billing', 'topics': [{'name': 'salaries', 'partitions': [{'partition_index': 0}]}]}],
    'DescribeClientQuotas': [{'components': []}],
    'AlterClientQuotas': [{'entries': [{'entity': [{'entity_type': 'user', 'entity_name': 'alice'}],
                                        'ops': [{'key': 'producer_byte_rate', 'value': 1.0}]}]}],
    'DescribeUserScramCredentials': [{'users': None}, {'users': [{'name': 'alice'}]}],
    'AlterUserScramCredentials': [{'upsertions': [{'name': 'mallory', 'mechanism': 1, 'iterations': 4096, 'salt': b'x',
                                                   'salted_password': b'x'}]},
                                  {'deletions': [{'name': 'alice', 'mechanism': 1}]}],
    'DescribeLogDirs': [{'topics': None}, {'topics': [{'topic': 'salaries', 'partitions': [0]}]}],
    'AlterReplicaLogDirs': [{'dirs': [{'path': '/tmp', 'topics': [SALARIES]}]}],
    'DescribeProducers': [{'topics': [{'name': 'salaries', 'partition_indexes': [0]}]}],
    'DescribeTransactions': [{'transactional_ids': ['pay']}],
    'ListTransactions': [{}],
    'ConsumerGroupHeartbeat': [{'group_id': 'new', 'member_id': 'm', 'rebalance_timeout_ms': 1000,
                                'subscribed_topic_names': ['salaries'], 'topic_partitions': []}],
    'ConsumerGroupDescribe': [{'group_ids': ['billing']}],
    'ListConfigResources': [{}],
    'ElectLeaders': [{'election_type': kind, 'topic_partitions': [{'topic': 'salaries', 'partitions': [0]}]}
                     for kind in (0, 1)] + [{'topic_partitions': None}],
    'AlterPartitionReassignments': [{'topics': [{'name': 'salaries', 'partitions': [{'partition_index': 0,
        'replicas': replicas}]}]} for replicas in ([1], None)],
    'ListPartitionReassignments': [{'topics': None}],
    'DescribeQuorum': [{'topics': [{'topic_name': '__cluster_metadata', 'partitions': [{'partition_index': 0}]}]}],
    'UpdateFeatures': [{'feature_updates': [{'feature': 'transaction.version', 'max_version_level': 2}]}],
    'DescribeTopicPartitions': [{'topics': [], 'response_partition_limit': 10},
                                {'topics': [{'name': 'salaries'}], 'response_partition_limit': 10}],
}


class Everything:
    "An authorizer that always says the same, and counts how often it was asked."
    def __init__(self, allowed: bool): self.allowed, self.asked = allowed, 0
    def __call__(self, caller, operation, resource, name) -> bool: return self.of_some(caller, operation, resource)
    def of_some(self, caller, operation, resource) -> bool:
        self.asked += 1
        return self.allowed


def loaded(name: str): return APIS[API_NAMES.index(name)]


def made(kind: type, facts: dict, node: Node) -> Message:
    "A message with these fields, and messages in it."
    def value_of(value, type):
        if value is TOPIC_ID: return node.salaries_id
        if isinstance(value, list): return [value_of(each, type.element) for each in value]
        return made(type, value, node) if isinstance(value, dict) else value
    return kind(**{f.name: value_of(facts[f.name], f.type) for f in kind.FIELDS if f.name in facts})


def ask(node: Node, api, facts: dict, version: int) -> Message | Later | None:
    header = RequestHeader(api_key=api.key, api_version=version, correlation_id=1,
                           client_id='anybody').encode(api.request_header_version(version))
    said = node.answer(header + made(api.request, facts, node).encode(version))
    if isinstance(said, Later) or not said: return said or None
    for secret in (b'classified', b'grain of salt'): assert node.authorizer.allowed or secret not in said
    return api.response.decode(said, version, 8 + api.response_header_version(version))


REFUSALS = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


def granted(message: Message, version: int, public: set = frozenset(), whole: bool = True):
    "What an answer says that isn't a refusal: errors of another kind (or none), and lists of things."
    fields = [f for f in message.FIELDS if version in f.versions]
    errors = {f.name: getattr(message, f.name) for f in fields if f.name.endswith('error_code')}
    lists = {f.name: getattr(message, f.name) or [] for f in fields if isinstance(getattr(message, f.name),
        list) and f.name not in public}
    refused = any(errors.values()) and set(errors.values()) <= REFUSALS | {0}
    listing = whole and lists and not any(errors.values())   # a list of what the caller may see: what is in it counts
    if errors and not refused and not listing: yield type(message).__name__, errors
    if not errors and not lists: yield type(message).__name__, 'something that has no error'
    for name, values in lists.items():
        for value in values:
            if isinstance(value, Message): yield from granted(value, version, public, whole=False)
            else: yield name, value


def errors_in(value):
    "Every error code in an answer."
    for each in value if isinstance(value, list) else []: yield from errors_in(each)
    if not isinstance(value, Message): return
    for f in value.FIELDS:
        found = getattr(value, f.name)
        if f.name.endswith('error_code'): yield found
        else: yield from errors_in(found)


def stored(directory) -> dict:
    "All that a node would know after a restart."
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.rglob('*') if path.is_file()}


@pytest.fixture
def node(tmp_path):
    "A node with something of everything."
    node = small_node(tmp_path)
    node.authorizer = Everything(True)
    node.create({'salaries': 1, 'moving': 1})
    node.salaries_id = node.image.topics['salaries'].topic_id
    node.controller.write([ClientQuotaRecord(entity=[EntityData(entity_type='user', entity_name='classified')],
                                             key='producer_byte_rate', value=1.)])
    node.controller.write([PartitionChangeRecord(topic_id=node.image.topics['moving'].topic_id, partition_id=0,
                                                 replicas=[2, 1], adding_replicas=[2])])
    for coordinator in (node.groups, node.transactions): coordinator.store.ensure()
    def do(name, facts, version): return ask(node, loaded(name), facts, version)
    secret = [{'name': 'salaries',
               'partition_data': [{'index': 0, 'records': write_batch([Record(value=b'classified')])}]}]
    noted, longer = {'partition_index': 0, 'committed_offset': 1,
                     'committed_metadata': 'classified'}, {'name': 'retention.ms', 'value': '86400000'}
    done = [do('Produce', {'acks': 1, 'topic_data': secret}, 9), do('InitProducerId', REQUESTS['InitProducerId'][1], 3),
            do('OffsetCommit', {'group_id': 'billing', 'topics': [{'name': 'salaries', 'partitions': [noted]}]}, 8),
            do('CreateAcls', {'creations': [NEW_RULE | {'principal': 'User:classified'}]}, 3),
            do('AlterUserScramCredentials', {'upsertions': [{'name': 'alice', 'mechanism': 1, 'iterations': 4096,
                                                             'salt': b'grain of salt', 'salted_password': b'x'}]}, 0),
            do('IncrementalAlterConfigs', {'resources': [{'resource_type': TOPIC, 'resource_name': 'salaries',
                                                          'configs': [longer]}]}, 1),
            do('AddPartitionsToTxn', REQUESTS['AddPartitionsToTxn'][0], 3)]
    assert set(errors_in(done)) == {0}, done
    yield node
    node.crash()


@pytest.mark.parametrize('name', sorted(API_NAMES[key] for key in APIS))
def test_nothing_without_permission(node, tmp_path, name):
    assert (name in REQUESTS) != (name in OPEN), f'{name} is in neither table (or in both): who may ask it?'
    if name in OPEN: return
    api, public, before = loaded(name), BROKERS.get(name, set()), stored(tmp_path)
    cases = [(facts, version) for facts in REQUESTS[name] for version in api.versions if version >= facts.get('since',
        0)]
    for facts, version in cases:
        node.authorizer = Everything(False)
        answer = ask(node, api, facts, version)
        assert isinstance(answer, Message), (version, answer)
        assert list(granted(answer, version, public)) == [], (version, facts)
        assert node.authorizer.asked, (version, facts)
    assert stored(tmp_path) == before
    for number, facts in enumerate(REQUESTS[name]):
        node.authorizer, got = Everything(True), []
        for version in [version for case, version in cases if case is facts]:
            answer = ask(node, api, facts, version)
            got += [answer] if not isinstance(answer, Message) else granted(answer, version, public)
        assert got, f'request {number} gets nowhere, even with permission'


def test_no_name_is_in_a_table_in_vain():
    assert {*REQUESTS, *OPEN} == {API_NAMES[key] for key in APIS}


@pytest.mark.parametrize('version', APIS[60].versions)
def test_what_one_may_do_to_the_cluster_is_not_told(node, version):
    node.authorizer = Everything(False)
    assert ask(node, loaded('DescribeCluster'), {'include_cluster_authorized_operations': True},
               version).cluster_authorized_operations == 0
