"""Elections, moves of partitions and levels of features in one directory, which Apache Kafka 4.1.1 and we use in turn:
what one has written, the other comes up with, and says again."""

from size import needs_kafka
from broker_process import Client, running
from cluster_by_requests import elect, ongoing, quorum, reassign, register, update
from player import answer_in, framed
from benchmarks import real_kafka

from kafka_scratch.apis.api_versions import ApiVersionsRequest
from kafka_scratch.apis.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_scratch.broker.apis import APIS
from kafka_scratch.cluster.metadata_log import load_image
from kafka_scratch.wire.schema import kafka_json

pytestmark = needs_kafka
METADATA = quorum(('__cluster_metadata', 0))


def ask(port: int, request) -> dict:
    api, version = APIS[request.API_KEY], request.VERSIONS[-1]
    with Client(port) as client: said = client.ask(framed(api, version, request))
    return kafka_json(answer_in(api, version, said), version)


def levels(port: int) -> dict[str, int]:
    said = ask(port, ApiVersionsRequest(client_software_name='x', client_software_version='1'))
    return {each['name']: each['maxVersionLevel'] for each in said['finalizedFeatures']}


def moves(port: int) -> list:
    return sorted(map(str, ask(port, ongoing(everything=True))['topics']))


def epoch(port: int) -> int: return ask(port, METADATA)['topics'][0]['partitions'][0]['leaderEpoch']


def agreed(port: int, changes: dict, kind: int):
    assert ask(port, update(changes, kind))['errorCode'] == 0


def errors(said: dict) -> list[int]:
    return [each['errorCode'] for topic in said['responses'] for each in topic['partitions']]


def make(port: int, **topics: int):
    ask(port, CreateTopicsRequest(timeout_ms=30_000, topics=[
        CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics.items()]))


def test_a_new_cluster_of_ours(tmp_path):
    with running(tmp_path) as broker:
        agreed(broker.port, {'transaction.version': 1, 'group.version': 0, 'metadata.version': 24}, 2)   # first of all
        agreed(broker.port, {'eligible.leader.replicas.version': 1}, 1)
        make(broker.port, orders=3)
        assert errors(ask(broker.port, reassign(('orders', {0: [1], 2: [1]})))) == [0, 0]
        assert [each['partitionResult'] for each in ask(broker.port, elect(everything=True))[
            'replicaElectionResults']] == [[]]
        ours = levels(broker.port)
        assert ours == {'metadata.version': 24, 'transaction.version': 1, 'eligible.leader.replicas.version': 1}
        first = epoch(broker.port)
        assert first == load_image(tmp_path/'logs').last_epoch == 1
    with real_kafka.RealKafka(tmp_path) as kafka:
        assert levels(kafka.port) == ours and epoch(kafka.port) > first
        assert kafka.leads({'orders': 3}) and moves(kafka.port) == []
        agreed(kafka.port, {'metadata.version': 27, 'transaction.version': 2, 'group.version': 1}, 1)
        agreed(kafka.port, {'share.version': 1}, 1)   # share groups, which we don't have
        theirs, second = levels(kafka.port), epoch(kafka.port)
    with running(tmp_path) as broker:
        assert levels(broker.port) == theirs and epoch(broker.port) == second   # we have written nothing yet
        make(broker.port, more=1)
        assert epoch(broker.port) > second


def test_partitions_on_their_way(tmp_path):
    with real_kafka.RealKafka(tmp_path) as kafka:
        kafka.create_topics({'orders': 3, 'payments': 1})
        register(kafka, 2)
        assert errors(ask(kafka.port, reassign(('orders', {0: [2], 1: [1, 2]}), ('payments', {0: [2, 1]})))) == [0] * 3
        theirs = moves(kafka.port)
        assert len(theirs) == 2
    with running(tmp_path) as broker:
        assert moves(broker.port) == theirs
        assert errors(ask(broker.port, reassign(('orders', {0: None, 1: None, 2: [2]})))) == [0] * 3
        elected, = ask(broker.port, elect(('payments', 0)))['replicaElectionResults']
        assert [each['errorCode'] for each in elected['partitionResult']] == [80]
        ours = moves(broker.port)
        assert ours != theirs and len(ours) == 2
    with real_kafka.RealKafka(tmp_path) as kafka:
        assert moves(kafka.port) == ours and kafka.leads({'orders': 3, 'payments': 1})
        assert errors(ask(kafka.port, reassign(('orders', {2: None}), ('payments', {0: None})))) == [0, 0]
        agreed(kafka.port, {'kraft.version': 1}, 1)   # what we can't write, and have to live with
    with running(tmp_path) as broker:
        assert moves(broker.port) == []
        make(broker.port, more=1)
    with real_kafka.RealKafka(tmp_path) as kafka: assert kafka.leads({'orders': 3, 'payments': 1, 'more': 1})


def test_the_tools_that_come_with_kafka(tmp_path):
    with running(tmp_path) as broker:
        make(broker.port, orders=2)
        def tool(name, *arguments):
            return real_kafka.run_tool(f'org.apache.kafka.tools.{name}', '--bootstrap-server',
                                       f'127.0.0.1:{broker.port}', *arguments)
        status = tool('MetadataQuorumCommand', 'describe', '--status')
        assert 'LeaderId:               1' in status and 'CurrentVoters:          [{"id": 1}]' in status
        assert 'Valid replica already elected for partitions orders-1' in tool(
            'LeaderElectionCommand', '--election-type', 'preferred', '--topic', 'orders', '--partition', '1')
        (tmp_path/'moves.json').write_text(
            '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}')
        moves = 'reassign.ReassignPartitionsCommand', '--reassignment-json-file', tmp_path/'moves.json'
        assert 'Successfully started partition reassignment for orders-0' in tool(*moves, '--execute')
        assert 'Reassignment of partition orders-0 is completed.' in tool(*moves, '--verify')
        assert 'transaction.version was downgraded to 1.' in tool('FeatureCommand', 'downgrade', '--feature',
                                                                  'transaction.version=1')
        assert 'transaction.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 2\tFinalizedVersionLevel: 1' in tool(
            'FeatureCommand', 'describe')
