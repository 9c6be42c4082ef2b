"""Records `elections.jsonl`, `reassignments.jsonl`, `quorum.jsonl`, `features.jsonl` and `cluster-rights.jsonl`:
`python tests/record/cluster_apis.py`.

A second broker is registered and never comes: with it, a real Kafka of one node has partitions that could be elsewhere.
"""
import tempfile
import time
from pathlib import Path

from recording import answer_in, command_line, framed, record

from admin_by_hand import *
from cluster_by_requests import *
from benchmarks import real_kafka
from broker_process import Client
from kafka_scratch.apis.api_versions import ApiVersionsRequest
from kafka_scratch.apis.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kafka_scratch.security.acl_apis import AclCreation, CreateAclsRequest, create_acls
from kafka_scratch.wire.codes import Operation, Resource
from kafka_scratch.groups.consumer_describe import ConsumerGroupDescribeRequest
from kafka_scratch.groups.heartbeat import ConsumerGroupHeartbeatRequest


# --- The conversations ------------------------------------------------------------------------------------------------

def described(*names): return DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])


def electing(ask):
    "Elections, of which none is needed; and of partitions whose preferred replica isn't there."
    ask('three topics', create(topic('orders', 3), topic('a.b'),
                               topic('moved', -1, -1, [(0, [2, 1]), (1, [1, 2])])), 4)
    for version in range(3):
        for kind in (0, 1):
            ask(f'version {version}, type {kind}', elect(('orders', 0, 2), ('a.b', 0), kind=kind), version)
            ask(f'all, version {version}, type {kind}', elect(everything=True, kind=kind), version)
    ask('not preferred', elect(('moved', 0, 1)))
    ask('not preferred, unclean', elect(('moved', 0, 1), kind=1))
    ask('unknown', elect(('nobody', 0), ('orders', 7, -1, 0), ('', 0), ('bad name', 0), ('__cluster_metadata', 0)))
    ask('unknown, unclean', elect(('nobody', 0), ('orders', 7, -1, 0), kind=1))
    for kind in (2, -1, 127):
        for version in (1, 2):
            ask(f'type {kind}, version {version}', elect(('orders', 0), ('nobody', 1, 2), kind=kind), version)
        ask(f'type {kind}, all', elect(everything=True, kind=kind))
    ask('nothing', elect())
    ask('nothing, of a type that nobody knows', elect(kind=9))
    ask('no partitions', elect(('orders',), ('nobody',)))
    ask('a partition twice', elect(('orders', 0, 0)))
    ask('a topic twice', elect(('orders', 0), ('a.b', 0), ('orders', 1)))
    for timeout_ms in (0, -1): ask(f'no time, {timeout_ms}', elect(('orders', 0), ('nobody', 1), timeout_ms=timeout_ms))
    ask('no time, all', elect(everything=True, timeout_ms=0))
    ask('no time, nothing', elect(timeout_ms=0))
    ask('as before', described('orders', 'a.b', 'moved'))


def reassigning(ask):
    "Partitions that stay, that can't go, and that are on their way to a broker that never comes."
    ask('topics', create(topic('orders', 3), topic('a.b'), topic('pair', -1, -1, [(0, [1, 2]), (1, [2, 1])])), 4)
    ask('none', ongoing(everything=True))
    for version in (0, 1): ask(f'the same, version {version}', reassign(('orders', {0: [1], 2: [1]})), version)
    for n, replicas in enumerate(([], [7], [1, 1], [1, 7], [7, 7], [-1], [7, 1, 1], [2, 2], [1, 2, 2])):
        ask(f'wrong {n}', reassign(('orders', {1: replicas})))
        ask(f'wrong {n}, no other factor', reassign(('orders', {1: replicas}), may_change=False))
    ask('called off', reassign(('orders', {0: None, 1: None, 9: None}), ('nobody', {0: None})))
    ask('unknown', reassign(('nobody', {0: [1]}), ('orders', {7: [1], -1: [1]}), ('', {0: [1]}), ('bad name', {0: [7]}),
                            ('__cluster_metadata', {0: [1]})))
    ask('nothing', reassign())
    ask('nothing, no other factor', reassign(may_change=False))
    ask('no partitions', reassign(('orders', {}), ('nobody', {})))
    ask('twice', reassign(('orders', [(0, [1]), (0, [7])]), ('orders', {0: None})))
    for timeout_ms in (0, -1): ask(f'no time, {timeout_ms}', reassign(('orders', {0: [1]}), timeout_ms=timeout_ms))
    ask('no time, nothing', reassign(timeout_ms=0))
    ask('another factor', reassign(('orders', {0: [1, 2]}), may_change=False))
    ask('turned round', reassign(('pair', {0: [2, 1]})))
    ask('turned round, there', described('pair'))
    ask('fewer', reassign(('pair', {1: [1]})))
    ask('fewer, there', described('pair'))
    ask('moved', reassign(('orders', {0: [2], 1: [1, 2], 2: [2, 1]}), ('a.b', {0: [2]})))
    ask('moved, there', described('orders', 'a.b'))
    ask('listed', ongoing(everything=True))
    ask('listed by name', ongoing(('orders', 0, 2, 7), ('nobody', 0), ('pair', 0, 1), ('a.b',)))
    ask('listed, nothing', ongoing())
    ask('listed in no time', ongoing(everything=True, timeout_ms=0))
    ask('listed twice', ongoing(('orders', 0, 0), ('orders', 1)))
    ask('elected on the way', elect(('orders', 0, 1, 2), ('a.b', 0)))
    ask('elected on the way, unclean', elect(('orders', 0, 1, 2), kind=1))
    ask('moved again, another factor', reassign(('orders', {0: [1, 2], 1: [1]}), may_change=False))
    ask('moved again', reassign(('orders', {1: [2]})))
    ask('moved again, there', described('orders'))
    ask('moved back', reassign(('orders', {2: [1]})))
    ask('moved back, there', described('orders'))
    ask('called off now', reassign(('orders', {0: None, 1: None, 2: None}), ('a.b', {0: None})))
    ask('called off, there', described('orders', 'a.b', 'pair'))
    ask('listed at the end', ongoing(everything=True))


def asking_the_quorum(ask):
    "Who leads?"
    for version in range(3):
        ask(f'version {version}', quorum(('__cluster_metadata', 0)), version)
        ask(f'unknown, version {version}', quorum(('orders', 0)), version)
    ask('another partition', quorum(('__cluster_metadata', 1)))
    ask('two partitions', quorum(('__cluster_metadata', 0, 1)))
    ask('twice', quorum(('__cluster_metadata', 0, 0)))
    ask('two topics', quorum(('__cluster_metadata', 0), ('orders', 0)))
    ask('nothing', quorum())
    ask('no partitions', quorum(('__cluster_metadata',)))


GROUP = ConsumerGroupHeartbeatRequest(group_id='g', member_id='AAAAAAAAAAAAAAAAAAAAAQ', member_epoch=0,
                                      subscribed_topic_names=['orders'], rebalance_timeout_ms=5000, topic_partitions=[])

def agreeing(ask):
    "Levels that are possible, and many that aren't."
    def versions(name):
        for version in (3, 4):
            ask(f'{name}, version {version}', ApiVersionsRequest(client_software_name='x', client_software_version='1'),
                version)
    versions('at first')
    for version in range(3):
        ask(f'the same, version {version}', update({'group.version': 1}), version)
        ask(f'unknown, version {version}', update({'unheard.of': 1}), version)
        ask(f'unknown, and a good one, version {version}', update({'unheard.of': 1, 'group.version': 1}), version)
        ask(f'nothing, version {version}', update({}), version)
    for kind in (0, 4, -1, 127): ask(f'type {kind}', update({'group.version': 7}, kind, check=True))
    for kind in (1, 2, 3):
        for name, levels in {'group.version': (-1, 0, 1, 2), 'transaction.version': (0, 1, 2, 3),
                             'metadata.version': (-1, 0, 6, 7, 16, 22, 23, 24, 26, 27, 28, 29, 32767),
                             'eligible.leader.replicas.version': (-1, 0, 1, 2)}.items():
            for level in levels: ask(f'{name} {level}, type {kind}', update({name: level}, kind, check=True))
    for level in (0, 1): ask(f'shares {level}', update({'share.version': level}, check=True))
    for level in (0, 1, 2): ask(f'quorums {level}', update({'kraft.version': level}, check=True))
    ask('an empty name', update({'': 1}))
    ask('a name of tests', update({'test.feature.version': 1}))
    ask('streams', update({'streams.version': 1}))
    for timeout_ms in (0, -1): ask(f'no time, {timeout_ms}', update({'group.version': 1}, timeout_ms=timeout_ms))
    ask('allowed in version 0', update({'transaction.version': 1}, allow=True), 0)
    ask('twice', update([('transaction.version', 2, 1), ('transaction.version', 1, 2)]))
    ask('checked only', update({'transaction.version': 1, 'group.version': 0}, 2, check=True))
    versions('after checks')
    ask('transactions 1, groups 0', update({'transaction.version': 1, 'group.version': 0}, 2))
    versions('transactions 1, groups 0')
    ask('a heartbeat at level 0', GROUP, 1)
    ask('a description at level 0', ConsumerGroupDescribeRequest(group_ids=['g', 'h']), 1)
    ask('transactions 0', update({'transaction.version': 0}, 3))
    ask('transactions 0 again', update({'transaction.version': 0}, 2))
    ask('metadata 25', update({'metadata.version': 25}, 2))
    versions('metadata 25')
    ask('metadata 24, 26', update([('metadata.version', 24, 2), ('transaction.version', 1, 1)]))
    ask('metadata 23', update({'metadata.version': 23}, 2))
    ask('metadata 22', update({'metadata.version': 22}, 2))
    ask('eligible leaders 0', update({'eligible.leader.replicas.version': 0}, 2))
    versions('eligible leaders 0')
    ask('min.insync.replicas of a broker', alter((4, '1', [('min.insync.replicas', 0, '3')])))
    ask('min.insync.replicas, gone', alter((4, '', [('min.insync.replicas', 1, None)])))
    ask('eligible leaders 1', update({'eligible.leader.replicas.version': 1}))
    ask('its settings', settings_of((4, '1', ['min.insync.replicas']), (4, '', ['min.insync.replicas'])))
    ask('everything up', update({'metadata.version': 27, 'transaction.version': 2, 'group.version': 1}))
    versions('at the end')


def without_rights(ask):
    "What is said to those who may not."
    for version in range(3):
        ask(f'elections, version {version}', elect(('orders', 0), ('nobody', 1)), version)
        ask(f'elections of all, version {version}', elect(everything=True), version)
        ask(f'quorum, version {version}', quorum(('__cluster_metadata', 0)), version)
        ask(f'quorum of nothing, version {version}', quorum(), version)
        ask(f'features, version {version}', update({'group.version': 1, 'unheard.of': 1}), version)
    for version in (0, 1):
        ask(f'moves, version {version}', reassign(('orders', {0: [1]}), ('nobody', {0: None})), version)
    ask('moves, no other factor', reassign(('orders', {0: [1]}), may_change=False))
    ask('list', ongoing(everything=True))
    ask('list by name', ongoing(('orders', 0)))


# --- To record --------------------------------------------------------------------------------------------------------

def forbid(port: int):
    "Nobody may describe or alter the cluster. Whoever has rules at all has to be allowed the rest."
    rules = [AclCreation(resource_type=Resource.CLUSTER, resource_name='kafka-cluster', resource_pattern_type=3,
                         principal='User:*', host='*', operation=operation, permission_type=permission)
             for operation, permission in ((2, 3), (Operation.ALTER, 2), (Operation.DESCRIBE, 2))]
    with Client(port) as client:
        said = answer_in(create_acls, 3, client.ask(framed(create_acls, 3, CreateAclsRequest(creations=rules))))
    assert not any(each.error_code for each in said.results), said
    time.sleep(1)


TALKS = {'elections.jsonl': electing, 'reassignments.jsonl': reassigning, 'quorum.jsonl': asking_the_quorum,
         'features.jsonl': agreeing, 'cluster-rights.jsonl': without_rights}
STRICT = {'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
          'allow.everyone.if.no.acl.found': 'true'}


def record_one(file: str, to: Path):
    rights = file == 'cluster-rights.jsonl'
    with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, STRICT if rights else {}) as kafka:
        if rights: forbid(kafka.port)
        if file in ('elections.jsonl', 'reassignments.jsonl'): register(kafka, 2)
        record(kafka.port, TALKS[file], file, to, controller_port=kafka.controller_port)


if __name__ == '__main__':
    asked = command_line(__doc__)
    for file in TALKS: record_one(file, asked.to)
