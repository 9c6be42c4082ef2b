"""The ListOffsets API: every captured frame, every recorded question, real logs, and what a running Kafka answers to
some more.

A real broker collects its answers in a hash map. They are put in the order of the questions before bytes are compared.
"""
import json
import shutil
import sys

import pytest

from size import needs_kafka
from broker_process import FIXTURES, ROOT, Client, running, wait_until
from node_by_hand import node_with
from declarations import check, needs_jars, of_jars, of_kafka_python
from edge_cases import PRODUCE, read_cases, recorded_broker
from wire_frames import WIRE, frames_of, spans_touch

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.wire.codes import ErrorCode
from kafka_scratch.wire.frames import RequestHeader, ResponseHeader
from kafka_scratch.apis.api import Call, Node, explain_request, explain_response, find_api, read_request
from kafka_scratch.apis.list_offsets import CLIENT, EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from kafka_scratch.apis.list_offsets import Found, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse
from kafka_scratch.apis.list_offsets import ListOffsetsTopic, answer_list_offsets, end_for, find_offset, is_known
from kafka_scratch.apis.list_offsets import list_offsets
from kafka_scratch.apis.current_leader import check_epoch
from kafka_scratch.log.partition import append
from kafka_scratch.log.retention import move_start
from kafka_scratch.log.recovery import open_log
from kafka_scratch.wire.primitives import Int32
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafka_scratch.apis.produce import produce
from kafka_scratch.log.records import Batch, Record, write_batch
from kafka_scratch.wire.schema import kafka_json
from kafka_scratch.log.checkpoints import read_checkpoint

KEY = list_offsets.key
SEGMENTS = FIXTURES/'segments'
RECORDED = [case for case in read_cases('other-apis') if case['name'].startswith('list-offsets')]


# --- Every frame ------------------------------------------------------------------------------------------------------

def captured():
    "Direction, name, version, bytes and Kafka's own decoding of every frame of this API."
    for path in sorted(WIRE.glob('clients/*.jsonl')):
        for line in map(json.loads, path.open()):
            if line['api_key'] == KEY:
                yield line['direction'], f'{path.stem}-{line["correlation_id"]}', line[
                    'api_version'], *frames_of(line['hex']), line['decoded']
    for case in RECORDED:
        for direction in ('request', 'response'):
            yield direction, case['name'], case['api_version'], bytes.fromhex(
                case[f'{direction}_hex']), case[f'{direction}_decoded']


FRAMES = list(captured())

def each(direction):
    chosen = [frame[1:] for frame in FRAMES if frame[0] == direction]
    return pytest.mark.parametrize('name, version, raw, decoded', chosen, ids=[frame[0] for frame in chosen])


def test_that_many_frames_are_checked():
    assert len(FRAMES) == 36 + 2 * 26 and len(RECORDED) == 26
    assert {frame[2] for frame in FRAMES} == set(range(1,
                                                       11)) == set(
                                                           ListOffsetsRequest.VERSIONS) == set(
                                                               ListOffsetsResponse.VERSIONS)


@each('request')
def test_a_request_is_read_written_and_explained(name, version, raw, decoded):
    api, found = find_api(raw, {KEY: list_offsets}, 4)
    header, body = read_request(raw[4:], api, found)
    assert found == version and kafka_json(body, version) == decoded
    again = header.encode(api.request_header_version(version)) + body.encode(version)
    assert Int32.write(len(again)) + again == raw
    explanation = explain_request(raw, {KEY: list_offsets})
    assert explanation.error is None and spans_touch(explanation) and explanation.end == len(raw)


@each('response')
def test_a_response_is_read_written_and_explained(name, version, raw, decoded):
    header, pos = ResponseHeader.codec(list_offsets.response_header_version(version)).read(raw, 4)
    body, end = ListOffsetsResponse.codec(version).read(raw, pos)
    assert end == len(raw) and kafka_json(body, version) == decoded
    again = header.encode(list_offsets.response_header_version(version)) + body.encode(version)
    assert Int32.write(len(again)) + again == raw
    explanation = explain_response(raw, list_offsets, version)
    assert explanation.error is None and spans_touch(explanation) and explanation.end == len(raw)


@pytest.mark.parametrize('cls', [ListOffsetsRequest, ListOffsetsResponse])
def test_the_declarations_are_kafka_pythons(cls): check(cls, of_kafka_python()[cls.__name__])


@needs_jars
@pytest.mark.parametrize('cls', [ListOffsetsRequest, ListOffsetsResponse])
def test_the_declarations_are_the_jars(cls): check(cls, of_jars()[cls.__name__])


# --- Recorded questions -----------------------------------------------------------------------------------------------

def in_order(frame: bytes, answer: bytes) -> bytes:
    "The answer of a real broker, with everything in the order in which it was asked for."
    api, version = find_api(frame, {KEY: list_offsets}, 4)
    asked = [(topic.name, p.partition_index) for topic in read_request(frame[4:], api,
        version)[1].topics for p in topic.partitions]
    names = [name for name, _ in asked]
    start = 8 + api.response_header_version(version)
    body = ListOffsetsResponse.decode(answer, version, start)
    body.topics.sort(key=lambda topic: names.index(topic.name))
    for topic in body.topics:
        topic.partitions.sort(key=lambda partition: asked.index((topic.name, partition.partition_index)))
    return answer[:start] + body.encode(version)


@pytest.fixture
def broker(tmp_path):
    with recorded_broker(tmp_path) as broker: yield broker


def test_recorded(broker):
    "In the order of the recording: first what was produced, then the questions."
    for case in PRODUCE:
        with broker.client() as client:
            client.send(bytes.fromhex(case['request_hex']))
            if case['response_hex']: assert client.frame()
            elif 'still open' in case['outcome'] and case['name'] != 'v11-null-records': assert client.stays_open()
            else: assert client.is_closed()
    with broker.client() as client:
        for case in RECORDED:
            frame = bytes.fromhex(case['request_hex'])
            assert client.ask(frame) == in_order(frame, bytes.fromhex(case['response_hex'])), case['name']


# --- Real logs --------------------------------------------------------------------------------------------------------

EXPECTED = json.loads((SEGMENTS/'expected.json').read_text())
EPOCHS = {(t['name'], p['partitionIndex']): p['leaderEpoch'] for t in EXPECTED['describeTopicPartitionsV0']['topics']
          for p in t['partitions']}
OFFSETS = {(t['name'], p['partition']): p['offsets'] for t in EXPECTED['topics'] for p in t['partitions']}
WORDS = {'earliest': (EARLIEST, 0), 'latest': (LATEST, 0), 'latestReadCommitted': (LATEST, 1),
         'maxTimestamp': (MAX_TIMESTAMP, 0)}


@pytest.fixture(scope='module')
def real_logs(tmp_path_factory):
    "Copies of the logs that a real broker left behind, opened."
    place = tmp_path_factory.mktemp('segments')/'logs'
    shutil.copytree(SEGMENTS/'logs', place)
    starts = {(topic, int(number)): int(offset) for topic, number,
              offset in read_checkpoint(place/'log-start-offset-checkpoint')}
    return {(topic, number): open_log(f'{place}/{topic}-{number}', start_offset=starts.get((topic, number),
        0)) for topic, number in OFFSETS}


@pytest.mark.parametrize('where', OFFSETS, ids=lambda where: f'{where[0]}-{where[1]}')
def test_offsets_that_a_real_broker_told(real_logs, where):
    log = real_logs[where]
    for word, (timestamp, isolation_level) in WORDS.items():
        found = find_offset(log, timestamp, end_for(log, CLIENT, isolation_level), EPOCHS[where])
        theirs = OFFSETS[where][word]
        assert found == Found(theirs['offset'], theirs['timestamp'], theirs.get('leaderEpochOfOffset', -1)), word


def test_every_time_finds_the_first_record_since_then(real_logs):
    "Compared with the records, one by one; those that compaction or DeleteRecords took away don't count."
    records = {}
    for line in map(json.loads, (SEGMENTS/'records.jsonl').open()):
        records.setdefault((line['topic'], line['partition']), []).append(line)
    for where, lines in records.items():
        # where markers, which are no records for a consumer, have times too
        if where[0] in ('seg.tx', 'seg.compacted-tx'): continue
        log, times = real_logs[where], {line['timestamp'] for line in lines}
        for time in {max(time + delta, 0) for time in times for delta in (-1, 0, 1)} | {2**62}:
            first = next((line for line in sorted(lines, key=lambda line: line['offset']) if line['timestamp'] >= time),
                         None)
            found = find_offset(log, time, log.high_watermark, 2)
            assert found == (Found(first['offset'], first['timestamp'],
                                   first['leaderEpoch']) if first else Found()), (where, time)


def test_a_running_broker_on_those_logs(tmp_path):
    "The same offsets through a socket, for all partitions in one request."
    # Without the diary of transactions, nobody aborts the one that was left open: its time has long been over.
    shutil.copytree(SEGMENTS/'logs', tmp_path/'logs', ignore=shutil.ignore_patterns('__transaction_state-*'))
    with running(tmp_path) as ours:
        for word, (timestamp, isolation_level) in WORDS.items():
            topics = [ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=number,
                timestamp=timestamp)]) for name, number in OFFSETS]
            response = ours.ask(written(10, topics, isolation_level=isolation_level))
            found = {(t.name, p.partition_index): (p.error_code, p.offset,
                                                   p.timestamp) for t in ListOffsetsResponse.decode(response, 10,
                                                       9).topics for p in t.partitions}
            expected = {where: (0, told[word]['offset'], told[word]['timestamp']) for where, told in OFFSETS.items()}
            assert all(found[where] == told for where,
                       told in expected.items() if where[0] != '__transaction_state'), word


# --- Made by hand -----------------------------------------------------------------------------------------------------

def timed_batch(*times: int, **header) -> bytearray:
    records = [Record(offset_delta=i, timestamp_delta=time, value=b'v') for i, time in enumerate(times)]
    return bytearray(write_batch(records, max_timestamp=max(times), **header))


def add(log, *times: int, leader_epoch: int = 0):
    batch = timed_batch(*times)
    append(log, batch, Batch(batch).header, leader_epoch, now=0)


@pytest.fixture
def log(tmp_path):
    "Two leaders, times that don't ascend."
    log = open_log(str(tmp_path/'orders-0'))
    add(log, 100, 900, 200)
    add(log, 300, 400, leader_epoch=3)
    return log


def test_epochs_are_those_of_the_record_or_of_the_leader_now(log):
    found = {timestamp: find_offset(log, timestamp, log.end_offset, 5) for timestamp in (EARLIEST, EARLIEST_LOCAL,
        LATEST, MAX_TIMESTAMP, LATEST_TIERED, 150, 901)}
    assert found == {EARLIEST: Found(0, -1, 0), EARLIEST_LOCAL: Found(0, -1, 0), LATEST: Found(5, -1, 5),
                     MAX_TIMESTAMP: Found(1, 900, 0),
                     LATEST_TIERED: Found(), 150: Found(1, 900, 0), 901: Found()}
    move_start(log, 4)
    assert find_offset(log, EARLIEST, 5, 5) == Found(4, -1, 3) and find_offset(log, 150, 5, 5) == Found(4, 400, 3)
    move_start(log, 5)
    assert find_offset(log, EARLIEST, 5, 5) == Found(5, -1, 5)   # empty: the next record will be of the leader now


def test_nothing_beyond_the_end_is_found(log):
    assert find_offset(log, MAX_TIMESTAMP, 1, 0) == find_offset(log, 150, 1, 0) == Found()
    assert find_offset(log, LATEST, 1, 0) == Found(1, -1, 0) and find_offset(log, 50, 1, 0) == Found(0, 100, 0)
    log.stable_offset, log.high_watermark = 2, 3
    assert [end_for(log, *who) for who in ((-1, 0), (-1, 1), (-2, 1), (0, 1), (7, 0))] == [3, 2, 5, 5, 5]


def test_which_version_has_which_question():
    assert [[t for t in range(-8, 2) if is_known(t, version)] for version in (1, 6, 7, 8, 9, 10)] == [
        [-2, -1, 0, 1], [-2, -1, 0, 1], [-3, -2, -1, 0, 1], [-4, -3, -2, -1, 0, 1], [-5, -4, -3, -2, -1, 0, 1],
        [-5, -4, -3, -2, -1, 0, 1]]


def hosting(log=None, error: int = 0, leader_epoch: int = 5) -> Node:
    "A node with one topic of one partition."
    return node_with({('orders', 0): log}, list_offsets, error=error, leader_epoch=leader_epoch)


def asked(node: Node, *partitions, version: int = 10, name: str = 'orders', **fields):
    topics = [ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=time,
        current_leader_epoch=epoch)
                                                      for index, time, epoch in partitions])]
    answer = answer_list_offsets(ListOffsetsRequest(**{'replica_id': CLIENT, 'topics': topics} | fields),
                                 Call(version, node))
    assert ListOffsetsResponse.decode(answer.encode(version), version).encode(version) == answer.encode(version)
    return [(p.partition_index, p.error_code, p.offset) for topic in answer.topics for p in topic.partitions]


def test_errors_and_which_comes_first(log):
    broker = hosting(log)
    assert asked(broker, (0, LATEST, -1)) == asked(broker, (0, LATEST, 5)) == [(0, 0, 5)]
    assert asked(broker, (0, LATEST, 4)) == [(0, 74, -1)] and asked(broker, (0, LATEST, 6)) == [(0, 75, -1)]
    assert asked(broker, (1, LATEST, -1)) == asked(broker, (1, LATEST, 6)) == [(1, 3, -1)] and asked(broker,
        (-1, LATEST, -1)) == [(-1, 3, -1)]
    assert asked(broker, (0, LATEST, -1), name='') == [(0, 3, -1)]
    assert asked(broker, (1, -6, 6)) == asked(broker, (1, MAX_TIMESTAMP, -1), version=6) == [(1, 35, -1)]
    assert asked(broker, (1, -6, -1), (0, LATEST, -1), (1, LATEST, -1)) == [(1, 42, -1), (0, 0, 5)]
    assert asked(broker, (0, LATEST, -1), (0, LATEST, -1), isolation_level=2) == [(0, -1, -1), (0, -1, -1)]
    assert asked(broker) == []


def test_errors_of_the_log():
    for error in (6, 56): assert asked(hosting(error=error), (0, LATEST, 4)) == [(0, error, -1)]


def test_a_topic_that_comes_twice_is_answered_once(log):
    def topic(*numbers):
        return ListOffsetsTopic(name='orders', partitions=[ListOffsetsPartition(partition_index=number,
            timestamp=LATEST) for number in numbers])
    request = ListOffsetsRequest(replica_id=CLIENT, topics=[topic(0), ListOffsetsTopic(name='nobody'), topic(7),
                                                            topic()])
    answer = answer_list_offsets(request, Call(10, hosting(log)))
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics] == [('orders',
        [(0, 0), (7, 3)])]


def test_damage_is_told(log):
    "Where records have to be read, damage is noticed; where not, it does no harm."
    with open(log.active.path, 'r+b') as file:
        file.seek(61)
        file.write(b'\xff')
    broker = hosting(log)
    assert asked(broker, (0, LATEST, -1)) == [(0, 0, 5)] and asked(broker, (0, EARLIEST, -1)) == [(0, 0, 0)]
    assert asked(broker, (0, 1, -1)) == asked(broker, (0, MAX_TIMESTAMP, -1)) == [(0, 2, -1)]


def test_a_file_that_is_gone_is_told(log):
    def gone(position, size): raise OSError(5, 'Input/output error')
    log.active.held.read = gone
    assert asked(hosting(log), (0, 1, -1)) == [(0, 56, -1)] and asked(hosting(log), (0, LATEST, -1)) == [(0, 0, 5)]


def test_epochs():
    assert [check_epoch(ListOffsetsPartition(current_leader_epoch=known), 4) for known in (-2, -1, 0, 3, 4, 5)] == [0,
        0, 74, 74, 0, 75]


# --- Side by side -----------------------------------------------------------------------------------------------------

def written(version: int, topics, replica_id: int = CLIENT, **fields) -> bytes:
    header = RequestHeader(api_key=KEY, api_version=version, correlation_id=7,
                           client_id='test').encode(list_offsets.request_header_version(version))
    body = ListOffsetsRequest(replica_id=replica_id, topics=topics, **fields).encode(version)
    return Int32.write(len(header) + len(body)) + header + body


def produced(topic: str, partition: int, batch: bytes) -> bytes:
    header = RequestHeader(api_key=0, api_version=9, correlation_id=8, client_id='test').encode(2)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))])
    body = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]).encode(9)
    return Int32.write(len(header) + len(body)) + header + body


def questions() -> dict[str, bytes]:
    def topic(name, *partitions): return ListOffsetsTopic(name=name, partitions=[
        ListOffsetsPartition(partition_index=index, timestamp=time, current_leader_epoch=epoch) for index, time,
        epoch in partitions])
    one = lambda time, epoch=-1, index=0: [topic('orders', (index, time, epoch))]
    times = [*range(-8, 3), -2**63, 99, 100, 101, 150, 350, 400, 899, 900, 901, 2**63 - 1]
    found = {f'time {time}, partition {index}, version {version}': written(version, one(time, index=index))
             for time in times for index in (0, 1, 2) for version in (1, 6, 7, 8, 10)}
    found |= {f'epoch {epoch}, time {time}': written(10, one(time, epoch, index)) for epoch in (-2, -1, 0, 1,
        9) for time in (LATEST, -6) for index in (0, 9)}
    found |= {f'isolation level {level}, version {version}': written(version,
                                                                     [topic('orders', (0, LATEST, -1), (0, 1, -1)),
                                                                      topic('x', (1, 1, -1))], isolation_level=level)
              for level in (0, 1, 2, -1) for version in (2, 10)}
    found |= {f'replica {replica}': written(10, one(LATEST), replica) for replica in (-3, -2, 0, 1, 5)}
    return found | {
        'no topics': written(10, []), 'no partitions': written(10, [topic('orders')]),
        'no name': written(10, [topic('', (0, LATEST, -1))]),
        'a topic twice': written(10, [topic('orders', (0, LATEST, -1)), topic('x', (0, 0, -1)),
                                      topic('orders', (1, EARLIEST, -1))]),
        'a partition twice, in two topics': written(10, [topic('orders', (0, LATEST, -1)),
                                                         topic('orders', (0, EARLIEST, -1), (77, 1, -1))]),
        'twice, and unknown': written(10, [topic('nobody', (0, -9, 5), (0, -9, 5))])}


@needs_kafka
def test_side_by_side_with_a_running_kafka(tmp_path):
    "We answer from copies of the logs that it writes, and say what it says."
    with real_kafka.RealKafka(tmp_path/'kafka') as kafka, Client(kafka.port) as client:
        kafka.create_topics({'orders': 3})
        for partition, batch in ((0, timed_batch(100, 900, 200)), (0, timed_batch(300, 400)),
                                 (1, timed_batch(150, 150, 100, attributes=1))):
            def stored() -> bool:
                response = ProduceResponse.decode(client.ask(produced('orders', partition, batch)), 9,
                                                  8 + produce.response_header_version(9))
                error = response.responses[0].partition_responses[0].error_code
                assert error in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)   # which a new leader may say for a moment
                return error == 0
            wait_until(stored, 'Kafka to store a batch')
        logs = {number: open_log(shutil.copytree(kafka.log_dir/f'orders-{number}',
                                                 tmp_path/'copies'/f'orders-{number}').__fspath__()) for number
                                                 in range(3)}
        ours = node_with({('orders', number): log for number, log in logs.items()}, list_offsets)
        for name, frame in questions().items():
            with Client(kafka.port) as client: assert ours.answer(frame[4:]) == in_order(frame, client.ask(frame)), name
