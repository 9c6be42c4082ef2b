"""OffsetForLeaderEpoch and DeleteRecords: what a real broker says, over a real socket, and after a restart.

`python tests/apis/test_log_ends.py` asks a real Kafka again and writes the fixtures anew.
"""
import sys
import tempfile
import time
from pathlib import Path

if __name__ == '__main__': sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pytest
from hypothesis import given, strategies as st

from size import needs_kafka
from benchmarks import real_kafka, wire
from broker_process import Client, running
from node_by_hand import node_with
from recording import Recorder, answer_in, framed, recorded
from kafka_scratch.log import partition as partition_log
from kafka_scratch.wire.codes import Operation, Resource
from kafka_scratch.apis.api import EVERYONE, Api, Call, Node
from kafka_scratch.apis.list_offsets import EARLIEST, LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, list_offsets
from kafka_scratch.apis.log_ends import *
from kafka_scratch.log.partition import LogConfig, append, move_start
from kafka_scratch.log.recovery import open_log
from kafka_scratch.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData, produce
from kafka_scratch.log.records import Batch, Record, write_batch
from kafka_scratch.log.segments import read_checkpoint

TOPICS = {'ends.a': (2, 'delete'), 'ends.compact': (1, 'compact'), 'ends.both': (1, 'compact,delete')}


def put(port: int, topic: str, count: int, partition: int = 0) -> int:
    "Sends some records, a batch each; returns the offset of the last."
    for _ in range(count):
        data = PartitionProduceData(index=partition, records=write_batch([Record(key=b'k', value=b'some value')]))
        request = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
        with Client(port) as client: said = answer_in(produce, 9, client.ask(framed(produce, 9, request)))
        stored, = said.responses[0].partition_responses
        assert not stored.error_code, stored
    return stored.base_offset


def ends(*topics, replica_id=-1) -> OffsetForLeaderEpochRequest:
    "`('orders', (partition, current epoch, epoch), …)`, …"
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=[OffsetForLeaderTopic(topic=name, partitions=[
        OffsetForLeaderPartition(partition=p, current_leader_epoch=c, leader_epoch=e) for p, c, e in asked]) for name, *asked in topics])


def deletes(*topics, timeout_ms=1000) -> DeleteRecordsRequest:
    "`('orders', (partition, offset), …)`, …"
    return DeleteRecordsRequest(timeout_ms=timeout_ms, topics=[DeleteRecordsTopic(name=name, partitions=[
        DeleteRecordsPartition(partition_index=p, offset=o) for p, o in asked]) for name, *asked in topics])


def questions_about_epochs() -> dict:
    a = 'ends.a'
    found = {'every epoch': (4, ends((a, *((0, -1, epoch) for epoch in (0, 1, 2, 3, 6, 7, 100, -1, -2))))),
             'current epochs': (4, ends((a, *((0, known, 0) for known in range(-3, 10))))),
             'an empty log': (4, ends((a, *((1, -1, epoch) for epoch in range(-3, 10))))),
             'an empty log, current epochs': (4, ends((a, *((1, known, epoch) for epoch in (-1, 0, 7) for known in (-1, 5, 6, 9))))),
             'unknown partitions': (4, ends((a, (7, -1, 0), (-1, 0, 0), (1, 9, 9)))),
             'unknown topics': (4, ends(('nobody', (0, -1, 0)), ('a b!', (0, 5, 0)), ('', (0, -1, -1)))),
             'a compacted topic': (4, ends(('ends.compact', (0, -1, 0), (0, -1, 6)))),
             'a topic without partitions': (4, ends((a,))), 'no topics': (4, ends()),
             'twice': (4, ends((a, (0, -1, 0)), ('x', (0, -1, 0)), (a, (1, -1, 2), (0, -1, 2), (0, -1, 2)))),
             'in order': (4, ends(('zz', (0, -1, 0)), ('ends.compact', (0, -1, 0)), (a, (1, -1, 0), (0, -1, 0)))),
             'the metadata': (4, ends(('__cluster_metadata', (0, -1, 0))))}
    found |= {f'version {version}': (version, ends((a, (0, -1, 0), (0, 3, 0), (9, 9, 9)))) for version in (2, 3, 4)}
    return found | {f'replica {replica}': (4, ends((a, (0, -1, 2)), replica_id=replica)) for replica in (-3, -2, 0, 1, 5)}


def deletions() -> dict:
    a = 'ends.a'
    return {'unknown topics': (2, deletes(('nobody', (0, 1)), ('', (0, 1)), ('a b!', (0, -1)))), 'unknown partitions': (2, deletes((a, (7, 1), (-1, 0)))),
            'beyond the end': (2, deletes((a, (0, 10)))), 'far beyond the end': (2, deletes((a, (0, 2**62)))),
            'below -1': (2, deletes((a, (0, -2)))), 'far below': (2, deletes((a, (0, -2**63)))), 'nothing': (2, deletes((a, (0, 0)))),
            'up to 2, version 0': (0, deletes((a, (0, 2)))), 'back to 1': (2, deletes((a, (0, 1)))), 'up to 3, version 1': (1, deletes((a, (0, 3)))),
            'up to 5': (2, deletes((a, (0, 5)))), 'twice, the last is wrong': (2, deletes((a, (0, 6), (0, 7)), (a, (0, -5), (1, 0)))),
            'twice, the last is right': (2, deletes((a, (0, 100), (0, 6)))), 'a timeout below zero': (2, deletes((a, (0, 6)), timeout_ms=-1)),
            'an empty log, all': (2, deletes((a, (1, -1)))), 'an empty log, 0': (2, deletes((a, (1, 0)))), 'an empty log, 1': (2, deletes((a, (1, 1)))),
            'compacted, all': (2, deletes(('ends.compact', (0, -1)))), 'compacted, beyond': (2, deletes(('ends.compact', (0, 77)))),
            'compacted and deleted': (2, deletes(('ends.both', (0, 1)))), 'no topics': (2, deletes()), 'no partitions': (2, deletes((a,))),
            'several': (2, deletes(('zz', (0, 0)), ('ends.both', (0, 0)), (a, (1, 0), (0, 0)), ('ends.compact', (0, 0)))),
            'the metadata': (2, deletes(('__cluster_metadata', (0, -1)))), 'internal': (2, deletes(('__consumer_offsets', (0, -1), (99, -1)))),
            'all': (2, deletes((a, (0, -1)))), 'all again': (2, deletes((a, (0, -1)))), 'and one more': (2, deletes((a, (0, 10))))}


# --- The record -------------------------------------------------------------------------------------------------------

def record():
    "Three leaders that write, by restarts; then all questions."
    import warnings
    warnings.simplefilter('ignore')
    from kafka.admin import KafkaAdminClient, NewTopic
    with tempfile.TemporaryDirectory() as place:
        kafka = real_kafka.RealKafka(place, {'offsets.topic.num.partitions': 1})
        state = {}   # per log: start, end
        def logs():
            policies = {f'{name}-{i}': policy for name, (count, policy) in TOPICS.items() for i in range(count)} | {'__consumer_offsets-0': 'compact'}
            return {name: {'epochs': [[int(x) for x in row] for row in read_checkpoint(kafka.log_dir/name/'leader-epoch-checkpoint')], **state[name], 'policy': policy}
                    for name, policy in policies.items()}
        try:
            kafka.start()
            admin = KafkaAdminClient(bootstrap_servers=f'127.0.0.1:{kafka.port}')
            admin.create_topics([NewTopic(name, count, 1, topic_configs={'cleanup.policy': policy}) for name, (count, policy) in TOPICS.items()])
            admin.create_topics([NewTopic('__consumer_offsets', 1, 1, topic_configs={'cleanup.policy': 'compact'})])
            admin.close()
            time.sleep(1)
            state |= {name: {'start': 0, 'end': 0} for name in ('ends.a-0', 'ends.a-1', 'ends.compact-0', 'ends.both-0', '__consumer_offsets-0')}
            put(kafka.port, 'ends.a', 3), put(kafka.port, 'ends.both', 2), put(kafka.port, 'ends.compact', 1)
            kafka.stop(), kafka.start(), put(kafka.port, 'ends.a', 4)
            for _ in range(2): kafka.stop(), kafka.start(), time.sleep(1)
            put(kafka.port, 'ends.a', 2)
            state['ends.a-0']['end'], state['ends.both-0']['end'], state['ends.compact-0']['end'] = 9, 2, 1
            recorder = Recorder(kafka.port)
            for name, (version, request) in questions_about_epochs().items():
                recorder.ask(name, offset_for_leader_epoch, version, request, leader_epoch=6, logs=logs())
            recorder.save('offset-for-leader-epoch.jsonl')
            recorder = Recorder(kafka.port)
            for name, (version, request) in deletions().items():
                before = logs()
                said = recorder.ask(name, delete_records, version, request, leader_epoch=6, logs=before)
                for topic in said.topics:
                    for each in topic.partitions:
                        if not each.error_code: state[f'{topic.name}-{each.partition_index}']['start'] = each.low_watermark
                time.sleep(0.1)
                recorder.cases[-1]['after'] = logs()
                recorder.cases[-1]['logs'] = before
            recorder.save('delete-records.jsonl')
        finally: kafka.stop()


# --- What a real broker said ------------------------------------------------------------------------------------------

def filled(log, count: int, leader_epoch: int):
    for _ in range(count):
        batch = bytearray(write_batch([Record(value=b'some value')]))
        append(log, batch, Batch(batch).header, leader_epoch, now=0)


def like(directory: Path, state: dict):
    "A log in the state of one of the real broker's."
    log = open_log(str(directory), LogConfig(cleanup_policy=state['policy']))
    epochs = state['epochs'] or [[0, 0]]
    for offset in range(state['end']): filled(log, 1, max((e for e, start in epochs if start <= offset), default=epochs[0][0]))
    move_start(log, state['start'])
    log.epochs.entries = [tuple(entry) for entry in state['epochs']]
    return log


def node_of(directory: Path, case: dict, allowed=EVERYONE) -> Node:
    "A node that has the logs of a case, and nothing else."
    logs = [like(directory/name, state) for name, state in case['logs'].items()]
    held = {(log.topic, log.partition): log for log in logs}
    return node_with(held, offset_for_leader_epoch, delete_records, leader_epoch=case['leader_epoch'], authorizer=allowed)


def asked(case: dict, node: Node) -> tuple[bytes, bytes]:
    "Our answer, and the real one."
    return node.answer(bytes.fromhex(case['request_hex'])[4:]), bytes.fromhex(case['response_hex'])


def by_name(case): return case['name']


@pytest.mark.parametrize('case', recorded('offset-for-leader-epoch.jsonl'), ids=by_name)
def test_ends_of_epochs_are_those_of_a_real_broker(tmp_path, case):
    ours, theirs = asked(case, node_of(tmp_path, case))
    assert ours == theirs


def in_order(case: dict, raw: bytes) -> DeleteRecordsResponse:
    "A real broker collects its answers in a hash map."
    answer = answer_in(delete_records, case['api_version'], raw)
    for topic in answer.topics: topic.partitions.sort(key=lambda each: each.partition_index)
    answer.topics.sort(key=lambda topic: topic.name)
    return answer


@pytest.mark.parametrize('case', recorded('delete-records.jsonl'), ids=by_name)
def test_deletions_are_those_of_a_real_broker_and_leave_the_same_logs(tmp_path, case):
    node = node_of(tmp_path, case)
    ours, theirs = asked(case, node)
    assert in_order(case, ours) == in_order(case, theirs)
    for (topic, partition), log in node.logs.held.items():
        name = f'{topic}-{partition}'
        left = {'epochs': [list(entry) for entry in log.epochs.entries], 'start': log.start_offset, 'end': log.end_offset}
        assert left.items() <= case['after'][name].items(), name
        on_disk = [[int(x) for x in row] for row in read_checkpoint(log.path('leader-epoch-checkpoint'))]
        if case['after'][name] != case['logs'][name]: assert on_disk == left['epochs']


def test_who_may_not_see_a_topic_hears_nothing_of_it(tmp_path):
    case = recorded('offset-for-leader-epoch.jsonl')[0]
    def allowed(caller, operation, resource, name): return (operation, resource) == (Operation.DESCRIBE, Resource.TOPIC) and name == 'ends.both'
    node = node_of(tmp_path, case, allowed)
    request = ends(('ends.a', (0, -1, 0)), ('ends.both', (0, -1, 0)), ('nobody', (0, -1, 0)))
    said = offset_for_leader_epoch.answer(request, Call(4, node))   # what is refused comes last
    assert [(t.topic, t.partitions[0].error_code, t.partitions[0].end_offset) for t in said.topics] == [('ends.both', 0, 2), ('ends.a', 29, -1), ('nobody', 29, -1)]
    said = delete_records.answer(deletes(('ends.a', (0, 5)), ('ends.both', (0, 1))), Call(2, node))
    assert [(t.name, t.partitions[0].error_code, t.partitions[0].low_watermark) for t in said.topics] == [('ends.a', 29, -1), ('ends.both', 29, -1)]
    assert node.logs.held['ends.a', 0].start_offset == node.logs.held['ends.both', 0].start_offset == 0


def test_a_broker_may_ask_about_every_topic(tmp_path):
    def allowed(caller, operation, resource, name): return (operation, resource, name) == (Operation.CLUSTER_ACTION, Resource.CLUSTER, 'kafka-cluster')
    case = recorded('offset-for-leader-epoch.jsonl')[0]
    ours, theirs = asked(case, node_of(tmp_path, case, allowed))
    assert ours == theirs


def test_who_does_not_lead_says_so(tmp_path):
    case = recorded('delete-records.jsonl')[0]
    node = node_of(tmp_path, case)
    node.logs.held, node.logs.error, node.logs.leader_epoch = dict.fromkeys(node.logs.held), 6, 9
    assert offset_for_leader_epoch.answer(ends(('ends.a', (0, 3, 0))), Call(4, node)).topics[0].partitions[0].error_code == 6
    assert delete_records.answer(deletes(('ends.a', (0, 3))), Call(2, node)).topics[0].partitions[0].error_code == 6


def test_a_disk_that_fails_is_an_error(tmp_path, monkeypatch):
    case = recorded('delete-records.jsonl')[0]
    node = node_of(tmp_path, case | {'leader_epoch': 9})
    def fails(*_): raise OSError(28, 'No space left on device')
    monkeypatch.setattr(partition_log, 'write_checkpoint', fails)
    assert offset_for_leader_epoch.answer(ends(('ends.a', (0, -1, 9))), Call(4, node)).topics[0].partitions[0].error_code == 56
    assert delete_records.answer(deletes(('ends.a', (0, 5))), Call(2, node)).topics[0].partitions[0].error_code == 56
    monkeypatch.undo()
    assert offset_for_leader_epoch.answer(ends(('ends.a', (0, -1, 9))), Call(4, node)).topics[0].partitions[0].end_offset == 9


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=6), st.integers(-3, 25), st.integers(0, 20))
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
    return tuple(ask(port, list_offsets, 10, ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[each])])).topics[0].partitions[0].offset
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
            ListOffsetsTopic(name='orders', partitions=[ListOffsetsPartition(timestamp=LATEST)])])).topics[0].partitions[0].leader_epoch
        said = ask(broker.port, offset_for_leader_epoch, 4, ends(('orders', (0, -1, epoch), (0, -1, 0), (0, -1, epoch + 1))))
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
            while len(found) < 3 and time.monotonic() < deadline: found += [r.offset for rs in consumer.poll(500).values() for r in rs]
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


if __name__ == '__main__':
    record()
