"Elections, moves of partitions and features on a node: what the recordings don't have."
import pytest

from broker_process import Client, running
from cluster_by_requests import elect, ongoing, quorum, reassign, update
from player import answer_in, framed
from small_node import small_node
from kafka_scratch.apis.api_versions import ApiVersionsRequest
from kafka_scratch.broker.apis import APIS
from kafka_scratch.cluster.metadata_log import load_image
from kafka_scratch.cluster.records import FeatureLevelRecord, PartitionChangeRecord, RegisterBrokerRecord
from kafka_scratch.log.partition import StorageError


def ask(node, request, version=None):
    api, version = APIS[request.API_KEY], request.VERSIONS[-1] if version is None else version
    return answer_in(api, version, node.answer(framed(api, version, request)[4:]))


@pytest.fixture
def node(tmp_path):
    "A node with a topic, beside a broker that isn't there."
    node = small_node(tmp_path)
    node.create({'orders': 2})
    there = RegisterBrokerRecord(broker_id=2, features=node.image.brokers[1].features, end_points=[], rack=None)
    node.controller.write([there])
    yield node
    node.crash()


def change(node, **facts):
    topic = node.image.topics['orders']
    node.controller.write([PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, **facts)])


def test_an_election_is_written(node, tmp_path):
    change(node, replicas=[2, 1], isr=[2], leader=-1)
    assert [each.error_code for each in ask(node, elect(('orders', 0))).replica_election_results[0].partition_result] \
        == [80]
    result, = ask(node, elect(everything=True, kind=1)).replica_election_results
    assert [(each.partition_id, each.error_code) for each in result.partition_result] == [(0, 0)]
    led = load_image(tmp_path).topics['orders'].partition(0)   # as the log has it
    assert (led.leader, led.isr, led.leader_recovery_state, led.leader_epoch) == (1, (1,), 1, 2)
    assert ask(node, elect(everything=True, kind=1)).replica_election_results[0].partition_result == []


def test_a_move_that_only_unclean_elections_could_call_off(node):
    change(node, replicas=[2, 1], isr=[2], adding_replicas=[2], removing_replicas=[1])
    def call_off():
        said, = ask(node, reassign(('orders', {0: None}))).responses[0].partitions
        return said.error_code, said.error_message
    code, text = call_off()
    assert code == 39 and 'it would require an unclean leader election' in text
    node.image.configs[2, 'orders'] = {'unclean.leader.election.enable': 'true'}
    assert call_off() == (0, None)
    partition = node.image.topics['orders'].partition(0)
    assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)


def test_in_an_old_cluster_records_have_no_directories(node, tmp_path):
    node.controller.write([FeatureLevelRecord(name='metadata.version', feature_level=16)])
    assert ask(node, reassign(('orders', {0: [2, 1]}))).responses[0].partitions[0].error_code == 0
    assert load_image(tmp_path).topics['orders'].partition(0).adding_replicas == (2,)
    assert len(ask(node, ongoing(everything=True)).topics) == 1
    assert ask(node, update({'metadata.version': 27})).error_code == 0
    assert ask(node, update({'metadata.version': 16}, 2)).error_code == 95


def test_if_the_disk_refuses_nothing_changes(node):
    change(node, replicas=[2, 1], isr=[2], leader=-1)
    def full(records): raise StorageError('/a/secret/place: no space left')
    node.controller.write, notes = full, []
    node.logs.note = notes.append
    assert ask(node, elect(('orders', 0), kind=1)).error_code == 56
    assert ask(node, reassign(('orders', {0: [1]}))).error_code == 56
    answer = ask(node, update({'transaction.version': 1}, 2))
    assert (answer.error_code, answer.error_message) == (56, None)
    assert len(notes) == 3 and node.image.features['transaction.version'] == 2


def test_a_broker_that_knows_less_keeps_the_cluster_back(node):
    node.controller.write([RegisterBrokerRecord(broker_id=3, features=[], end_points=[], rack=None)])
    assert 'Broker 3 does not support this feature.' in ask(node, update({'transaction.version': 1}, 2)).error_message
    assert ask(node, update({'transaction.version': 0}, 2)).error_code == 0


def test_levels_are_told_at_once_and_after_a_restart(tmp_path):
    def levels(port):
        asked = framed(APIS[18], 4, ApiVersionsRequest(client_software_name='x', client_software_version='1'))
        with Client(port) as client: said = answer_in(APIS[18], 4, client.ask(asked))
        return {each.name: each.max_version_level for each in said.finalized_features}
    def send(port, request):
        with Client(port) as client: return answer_in(APIS[request.API_KEY], 2, client.ask(framed(
            APIS[request.API_KEY], 2, request)))
    with running(tmp_path) as broker:
        assert levels(broker.port) == {} == levels(broker.port)   # nothing is written yet; and answers are remembered
        assert send(broker.port, update({'group.version': 0, 'transaction.version': 1}, 2)).error_code == 0
        assert levels(broker.port) == {'metadata.version': 27, 'transaction.version': 1} == levels(broker.port)
        log, = send(broker.port, quorum(('__cluster_metadata', 0))).topics[0].partitions
        assert (log.leader_epoch, log.high_watermark) == (1, load_image(tmp_path/'logs').last_offset + 1)
    with running(tmp_path) as broker: assert levels(broker.port) == {'metadata.version': 27, 'transaction.version': 1}
