"OffsetForLeaderEpoch and DeleteRecords: who may ask, over a real socket, and after a restart."
import tempfile
import time

from hypothesis import given, strategies as st

from size import needs_kafka
from benchmarks import real_kafka, wire
from broker_process import Client, running
from log_ends_by_hand import deletes, ends, filled, node_of, put
from player import answer_in, framed, recorded
from kafka_scratch.log import partition as partition_log, retention
from kafka_scratch.wire.codes import Operation, Resource
from kafka_scratch.apis.api import Api, Call
from kafka_scratch.apis.list_offsets import EARLIEST, LATEST, ListOffsetsPartition, ListOffsetsRequest
from kafka_scratch.apis.list_offsets import ListOffsetsTopic, list_offsets
from kafka_scratch.apis.offset_for_leader_epoch import *
from kafka_scratch.apis.delete_records import *
from kafka_scratch.log.retention import move_start
from kafka_scratch.log.recovery import open_log

# --- A node that has some logs
# -------------------------------------------------------------------------------------------

def test_who_may_not_see_a_topic_hears_nothing_of_it(tmp_path):
    case = recorded('offset-for-leader-epoch.jsonl')[0]
    def allowed(caller, operation, resource, name):
        return (operation, resource) == (Operation.DESCRIBE, Resource.TOPIC) and name == 'ends.both'
    node = node_of(tmp_path, case, allowed)
    request = ends(('ends.a', (0, -1, 0)), ('ends.both', (0, -1, 0)), ('nobody', (0, -1, 0)))
    said = offset_for_leader_epoch.answer(request, Call(4, node))   # what is refused comes last
    assert [(t.topic, t.partitions[0].error_code, t.partitions[0].end_offset) for t in said.topics] == [('ends.both', 0,
        2), ('ends.a', 29, -1), ('nobody', 29, -1)]
    said = delete_records.answer(deletes(('ends.a', (0, 5)), ('ends.both', (0, 1))), Call(2, node))
    assert [(t.name, t.partitions[0].error_code, t.partitions[0].low_watermark) for t in said.topics] == [('ends.a', 29,
        -1), ('ends.both', 29, -1)]
    assert node.logs.held['ends.a', 0].start_offset == node.logs.held['ends.both', 0].start_offset == 0


def test_a_broker_may_ask_about_every_topic(tmp_path):
    def allowed(caller, operation, resource, name):
        return (operation, resource, name) == (Operation.CLUSTER_ACTION, Resource.CLUSTER, 'kafka-cluster')
    case = recorded('offset-for-leader-epoch.jsonl')[0]
    node = node_of(tmp_path, case, allowed)
    assert node.answer(bytes.fromhex(case['request_hex'])[4:]) == bytes.fromhex(case['response_hex'])


def test_who_does_not_lead_says_so(tmp_path):
    case = recorded('delete-records.jsonl')[0]
    node = node_of(tmp_path, case)
    node.logs.held, node.logs.error, node.logs.leader_epoch = dict.fromkeys(node.logs.held), 6, 9
    assert offset_for_leader_epoch.answer(ends(('ends.a', (0, 3, 0))), Call(4,
        node)).topics[0].partitions[0].error_code == 6
    assert delete_records.answer(deletes(('ends.a', (0, 3))), Call(2, node)).topics[0].partitions[0].error_code == 6


def test_a_disk_that_fails_is_an_error(tmp_path, monkeypatch):
    case = recorded('delete-records.jsonl')[0]
    node = node_of(tmp_path, case | {'leader_epoch': 9})
    def fails(*_): raise OSError(28, 'No space left on device')
    for module in (partition_log, retention): monkeypatch.setattr(module, 'write_checkpoint', fails)
    assert offset_for_leader_epoch.answer(ends(('ends.a', (0, -1, 9))),
                                          Call(4, node)).topics[0].partitions[0].error_code == 56
    assert delete_records.answer(deletes(('ends.a', (0, 5))), Call(2, node)).topics[0].partitions[0].error_code == 56
    monkeypatch.undo()
    assert offset_for_leader_epoch.answer(ends(('ends.a', (0, -1, 9))),
                                          Call(4, node)).topics[0].partitions[0].end_offset == 9


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=6), st.integers(-3, 25),
       st.integers(0, 20))
def test_the_end_of_an_epoch_is_where_its_last_record_was(spans, epoch, start):
    "Against the records themselves: whoever wrote last among those up to the epoch ended there."
    with tempfile.TemporaryDirectory() as place:
        log, latest, owners = open_log(f'{place}/some-0'), -1, []
        for step, count in spans:
            latest += step
            filled(log, count, latest)
            owners += [latest] * count
        move_start(log, min(start, log.end_offset))
        kept = owners[log.start_offset:] or [owners[-1]]   # of an emptied log, the leader in office stays known
        written = [e for e in kept if e <= epoch]
        end = log.start_offset + sum(e <= epoch for e in owners[log.start_offset:])
        if epoch == -1 or epoch > latest: expected = (-1, -1)
        else: expected = (written[-1] if written else epoch, end)
        assert end_of_epoch(log, epoch) == expected


# --- A whole broker ---------------------------------------------------------------------------------------------------

def made(port: int, topics: dict[str, int]):
    with Client(port) as client: said = wire.parse_create_topics(client.ask(wire.create_topics_request(topics)))
    assert not any(said.values()), said


def ask(port: int, api: Api, version: int, request):
    with Client(port) as client: return answer_in(api, version, client.ask(framed(api, version, request)))


def start_of(port: int, topic: str) -> tuple[int, int]:
    "Where the log starts and ends, as ListOffsets tells it."
    asked = [ListOffsetsPartition(partition_index=0, timestamp=time) for time in (EARLIEST, LATEST)]
    return tuple(ask(port, list_offsets, 10, ListOffsetsRequest(replica_id=-1,
                                                                topics=[ListOffsetsTopic(name=topic,
                                                                    partitions=[each])])).topics[0].partitions[0].offset
                 for each in asked)


def test_what_was_deleted_stays_deleted_after_a_restart_and_a_new_leader_is_known_before_it_writes(tmp_path):
    with running(tmp_path) as broker:
        made(broker.port, {'orders': 1})
        put(broker.port, 'orders', 9)
        said = ask(broker.port, delete_records, 2, deletes(('orders', (0, 5))))
        assert (said.topics[0].partitions[0].low_watermark, start_of(broker.port, 'orders')) == (5, (5, 9))
    with running(tmp_path) as broker:
        assert start_of(broker.port, 'orders') == (5, 9)
        epoch = ask(broker.port, list_offsets, 10, ListOffsetsRequest(replica_id=-1, topics=[
            ListOffsetsTopic(name='orders',
                             partitions=[ListOffsetsPartition(timestamp=LATEST)])])).topics[
                                 0].partitions[0].leader_epoch
        said = ask(broker.port, offset_for_leader_epoch, 4, ends(('orders', (0, -1, epoch), (0, -1, 0),
                                                                  (0, -1, epoch + 1))))
        assert [(p.leader_epoch, p.end_offset) for p in said.topics[0].partitions] == [(epoch, 9), (0, 9), (-1, -1)]
        ask(broker.port, delete_records, 2, deletes(('orders', (0, -1))))
        assert put(broker.port, 'orders', 1) == 9   # offsets are never used again
    with running(tmp_path) as broker: assert start_of(broker.port, 'orders') == (9, 10)


def test_consumers_that_wait_or_stand_before_the_start_hear_of_it(tmp_path):
    "kafka-python: delete with the admin client, and a consumer that was too slow goes to the earliest record."
    from kafka import KafkaConsumer, TopicPartition
    from kafka.admin import KafkaAdminClient
    with running(tmp_path) as broker:
        made(broker.port, {'orders': 1})
        put(broker.port, 'orders', 9)
        where, at = TopicPartition('orders', 0), f'127.0.0.1:{broker.port}'
        admin = KafkaAdminClient(bootstrap_servers=at)
        consumer = KafkaConsumer(bootstrap_servers=at, auto_offset_reset='earliest', fetch_max_wait_ms=100)
        try:
            consumer.assign([where]), consumer.seek(where, 2)
            admin.delete_records({where: 6})
            found = []
            deadline = time.monotonic() + 20
            while len(found) < 3 and time.monotonic() < deadline:
                found += [r.offset for rs in consumer.poll(500).values() for r in rs]
            assert found == [6, 7, 8]
        finally: consumer.close(), admin.close()


@needs_kafka
def test_a_real_kafka_honours_what_we_have_deleted_and_the_other_way_round(tmp_path):
    with real_kafka.RealKafka(tmp_path) as kafka:
        kafka.create_topics({'orders': 1})
        put(kafka.port, 'orders', 9)
        ask(kafka.port, delete_records, 2, deletes(('orders', (0, 3))))
    settings = dict(node_id=1, log_dirs=kafka.log_dir)
    with running(tmp_path/'ours', **settings) as broker:
        assert start_of(broker.port, 'orders') == (3, 9)
        ask(broker.port, delete_records, 2, deletes(('orders', (0, 5))))
        put(broker.port, 'orders', 1)
    with kafka: wire.wait_for(lambda: start_of(kafka.port, "orders") == (5, 10), 30, "Kafka to lead orders")
