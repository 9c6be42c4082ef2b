"""InitProducerId without a name: ids that nobody has had, across restarts; and idempotence, from the first request to
the restart of the broker."""
import json
from pathlib import Path

import pytest
from broker_process import running
from small_node import small_node

from kafka_scratch.apis.api import Call
from kafka_scratch.wire.codes import ErrorCode, Operation, Resource
from kafka_scratch.log.partition import StorageError
from kafka_scratch.transactions.producers import InitProducerIdRequest, InitProducerIdResponse
from kafka_scratch.transactions.producers import answer_init_producer_id
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_scratch.apis.produce import answer_produce
from kafka_scratch.log.records import Record, read_batches, write_batch

EDGE = Path(__file__).parents[1]/'fixtures'/'wire'/'edge'/'other-apis.jsonl'


def init(node, version=5, **request) -> InitProducerIdResponse:
    return answer_init_producer_id(InitProducerIdRequest(**{'transactional_id': None, **request}), Call(version, node))


def send(node, producer_id: int, sequence: int, *values: bytes, epoch: int = 0, topic: str = 'pay',
         version: int = 11) -> tuple[int, int]:
    "An error code and an offset."
    records = [Record(offset_delta=i, value=value) for i, value in enumerate(values)]
    batch = write_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
                        base_timestamp=node.now(), max_timestamp=node.now())
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = answer_produce(ProduceRequest(acks=-1, topic_data=[data]),
                            Call(version, node)).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


# --- Ids
# ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('case', [json.loads(line) for line in EDGE.open() if '"init-producer-id' in line],
                         ids=lambda case: case['name'])
def test_answers_are_kafkas(tmp_path, case):
    "The answers on record, byte for byte but for the id."
    node = small_node(tmp_path)
    # the real one had given out some before
    while init(node).producer_id + 1 < case['response_decoded']['producerId']: pass
    if case['response_decoded']['producerId'] == 0: node = small_node(tmp_path/'new')
    assert node.answer(bytes.fromhex(case['request_hex'])[4:]).hex() == case['response_hex']


def test_no_id_twice(tmp_path):
    "Whether the broker stops in order or is killed, with whatever is left of a block."
    given = []
    for life in range(5):
        node = small_node(tmp_path)
        node.transactions.producer_ids.block = 10
        given += [init(node).producer_id for _ in range(3 + 5 * life)]
        node.crash()
    assert len(given) == len(set(given)) and given == sorted(given)


def test_ids_are_noted_before_they_are_given(tmp_path):
    "The metadata log, as Kafka reads it, is always ahead."
    node = small_node(tmp_path)
    for _ in range(2500): assert init(node).producer_id < node.image.next_producer_id
    assert node.image.next_producer_id == 3000


def test_kafkas_ids_are_not_given_again(tmp_path):
    "A cluster that has given out ids up to 5000 goes on from there."
    from kafka_scratch.cluster.records import ProducerIdsRecord
    node = small_node(tmp_path)
    node.controller.write([ProducerIdsRecord(broker_id=1, broker_epoch=4, next_producer_id=5000)])
    assert init(node).producer_id == 5000


def test_a_disk_that_refuses(tmp_path, monkeypatch):
    node = small_node(tmp_path)
    def refuse(*_): raise StorageError('full')
    monkeypatch.setattr(node.controller, 'next_producer_ids', refuse)
    assert (init(node).error_code, init(node).producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    assert init(node, transactional_id='pay',
                transaction_timeout_ms=1000).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    monkeypatch.undo()
    assert init(node).producer_id == 0


def test_who_may_have_one(tmp_path):
    "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic; with a name, WRITE on that name."
    node = small_node(tmp_path)
    node.create({'pay': 1})
    allowed = set()
    class Rules:
        def __call__(self, caller, *what): return what in allowed
        def of_some(self, caller, *what): return any(each[:2] == what for each in allowed)
    node.authorizer = Rules()
    assert init(node).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allowed.add((Operation.WRITE, Resource.TOPIC, 'pay'))
    assert init(node).error_code == 0
    assert init(node, transactional_id='t',
                transaction_timeout_ms=1000).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allowed.add((Operation.WRITE, Resource.TRANSACTIONAL_ID, 't'))
    assert init(node, transactional_id='t', transaction_timeout_ms=1000).error_code == 0


# --- Idempotence
# --------------------------------------------------------------------------------------------------------

def test_the_same_batch_again_and_again(tmp_path):
    "While the broker lives, after it was killed, and after it was stopped in order."
    from kafka_scratch.cluster.logs import end_logs
    node = small_node(tmp_path)
    node.create({'pay': 1})
    producer_id = init(node).producer_id
    assert [send(node, producer_id, sequence, b'a', b'b') for sequence in (0, 2, 4, 4, 2, 0)] == [(0, 0), (0, 2),
        (0, 4), (0, 4), (0, 2), (0, 0)]
    node.crash()
    node = small_node(tmp_path)
    assert [send(node, producer_id, sequence, b'a', b'b') for sequence in (4, 2, 0, 6)] == [(0, 4), (0, 2), (0, 0),
        (0, 6)]
    end_logs(node.logs)
    node = small_node(tmp_path)
    # the last one is in the snapshot
    assert [send(node, producer_id, sequence, b'a', b'b') for sequence in (6, 8, 6, 10)] == [(0, 6), (0, 8), (0, 6),
        (0, 10)]
    # those before it are not
    assert send(node, producer_id, 4, b'a', b'b')[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert node.partition('pay').end_offset == 12


def test_a_new_epoch_begins_at_zero(tmp_path):
    node = small_node(tmp_path)
    node.create({'pay': 1})
    producer_id = init(node).producer_id
    assert send(node, producer_id, 0, b'a') == (0, 0) and send(node, producer_id, 0, b'a', epoch=1) == (0, 1)
    assert send(node, producer_id, 1, b'a')[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(node, producer_id, 5, b'a', epoch=2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize('client', ['confluent', 'kafka-python'])
def test_with_a_client(tmp_path, client):
    "Ordinary producers with their default of idempotence, or asked for it; a restart in between."
    for life in range(2):
        with running(tmp_path, auto_create_topics_enable='true') as broker:
            boot = f'127.0.0.1:{broker.port}'
            if client == 'confluent':
                kafka = pytest.importorskip('confluent_kafka')
                producer = kafka.Producer({'bootstrap.servers': boot, 'enable.idempotence': True})
                for number in range(100): producer.produce('pay', f'{life} {number}')
                assert producer.flush(10) == 0
            else:
                from kafka import KafkaProducer
                producer = KafkaProducer(bootstrap_servers=boot, enable_idempotence=True)
                for future in [producer.send('pay', f'{life} {number}'.encode()) for number in range(100)]:
                    future.get(10)
                producer.close()
    stored = [batch for path in sorted((tmp_path/'logs').glob('pay-*/*.log')) for batch
              in read_batches(path.read_bytes())]
    assert sum(batch.header.record_count for batch in stored) == 200
    ids = {batch.header.producer_id for batch in stored}
    assert len(ids) == 2 and min(ids) >= 0   # each life its own
