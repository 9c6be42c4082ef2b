"""One directory, two brokers: what we write, Apache Kafka 4.1.1 opens, dumps and serves; and what it leaves, we go on
with.

Kafka makes the topics, since that is its controller's work. From then on the two take turns on the same log directory,
and
each is stopped in order or killed.
"""
import base64
import random
import re
import shutil
import struct
import sys
import time
from pathlib import Path

import pytest

from size import needs_kafka
from broker_process import FIXTURES, ROOT, BrokerProcess, Client, free_port, properties, running
from by_hand import compact, compact_array, request
from log_by_hand import base_offset, fetch, next_offset, placed, produce, read_fetch, read_produce, record
from log_by_hand import record_batch, split

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.log.compression import compress

pytestmark = needs_kafka

CREATE_TOPICS = 19
CODECS = 0, 1, 2, 3, 4
TOPICS = {   # name → partitions, settings
    'plain': (3, {}), 'other.topic': (2, {}), 'Producers_1': (1, {}), 'stamped': (1,
        {'message.timestamp.type': 'LogAppendTime'}),
    'zipped': (1, {'compression.type': 'gzip'}), 'compact': (1, {'cleanup.policy': 'compact'}),
    'small': (1, {'max.message.bytes': '2000'}),
    'strict': (1, {'message.timestamp.before.max.ms': '3600000', 'message.timestamp.after.max.ms': '3600000'}),
    'empty': (1, {})}
# quick to notice a kill
SETTINGS = {'offsets.topic.num.partitions': 1, 'log.cleaner.enable': 'false', 'broker.session.timeout.ms': 4000,
            'broker.heartbeat.interval.ms': 500}
SMALL_SEGMENTS = {'internal_segment_bytes': 20_000, 'log_index_interval_bytes': 1_000}


# --- Both brokers -----------------------------------------------------------------------------------------------------

def create_topics(topics: dict) -> bytes:
    "CreateTopics 7, with settings."
    each = [compact(name) + struct.pack('>ih', partitions,
                                        1) + b'\1' + compact_array([compact(key) + compact(value) + b'\0' for key,
                                                                    value in settings.items()]) + b'\0'
            for name, (partitions, settings) in topics.items()]
    return request(CREATE_TOPICS, 7, 1, compact_array(each) + struct.pack('>i?', 30_000, False) + b'\0')


def kafka_on(directory: Path) -> real_kafka.RealKafka:
    kafka = real_kafka.RealKafka(directory, SETTINGS)
    kafka.output.unlink(missing_ok=True)
    return kafka


def kill(kafka: real_kafka.RealKafka):
    "SIGKILL, for the process that we started."
    kafka.process.kill()
    kafka.process.wait(20)
    kafka.process = None


@pytest.fixture(scope='module')
def made_by_kafka(tmp_path_factory):
    "A log directory with topics in it, as Kafka leaves it after a stop in order. Tests work on copies."
    directory = tmp_path_factory.mktemp('made')
    with kafka_on(directory) as kafka:
        with Client(kafka.port) as client: client.ask(create_topics(TOPICS))
        real_kafka.wire.wait_for(lambda: kafka.leads({name: partitions for name, (partitions, _) in TOPICS.items()}),
                                 60, 'leaders')
    return directory/'logs'


def place_copy(logs: Path, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copytree(logs, directory/'logs')
    return directory


class Killed(BrokerProcess):
    "Our broker, for the tests that end it the hard way."
    def __init__(self, directory: Path, **settings):
        port = free_port()
        file = properties(directory/'ours.properties', node_id=1, listeners=f'PLAINTEXT://127.0.0.1:{port}',
                          log_dirs=directory/'logs', **settings)
        super().__init__(directory, file, port=port)
    def __enter__(self): return self.wait_ready()
    def __exit__(self, kind, *_):
        self.process.kill()
        self.wait()
        if kind is None: assert 'Traceback' not in self.stderr and 'mistake of ours' not in self.stderr, self.stderr


def ours_on(directory: Path, killed: bool = False, **settings):
    "Our broker in a directory: stopped in order when its block is left, or killed."
    return Killed(directory, **settings) if killed else running(directory, **settings)


# --- Records ----------------------------------------------------------------------------------------------------------

def now() -> int: return time.time_ns() // 1_000_000


class Expected:
    "Everything that should be in the logs: batches as they were sent, and their records as a consumer prints them."
    def __init__(self): self.batches, self.lines = {}, []   # (topic, partition) → [batch at its offset]

    def add(self, place, batch: bytes, records: list):
        offset = next_offset(self.batches[place][-1]) if self.batches.get(place) else 0
        self.batches.setdefault(place, []).append(placed(batch, offset))
        for delta, (timestamp, key, value, headers) in enumerate(records):
            self.lines.append((timestamp, place[1], offset + delta, shown(headers), text(key), text(value)))
        return offset


def text(data: bytes | None) -> str: return '<null>' if data is None else data.decode()
def shown(headers) -> str: return ','.join(f'{text(name)}:{text(value)}' for name, value in headers) or 'NO_HEADERS'


HEADERS = [(), (), ((b'trace', b'1-2-3'),), ((b'a', b''), (b'a', None), ('größe'.encode(), 'längste'.encode()))]
KEYS = [None, None, b'', b'key', 'schlüssel-ß'.encode()]


def make_batch(place, number: int, chance: random.Random, codec: int = 0, count: int | None = None,
               **header) -> tuple[bytes, list]:
    "A batch with something of everything, and its records: time, key, value, headers."
    count, start, records = count or chance.choice([1, 1, 2, 7, 40]), now() - 60_000, []
    for delta in range(count):
        value = chance.choice([f'{place[0]}/{place[1]}/{number}/{delta} '.encode() + chance.randbytes(chance.choice([0,
            3, 25, 350])).hex().encode(), b'', None])
        records.append((start + chance.randrange(-5_000, 5_000), chance.choice(KEYS), value, chance.choice(HEADERS)))
    raw = [record(value, key, headers, delta, timestamp - start) for delta,
           (timestamp, key, value, headers) in enumerate(records)]
    header = {'base_timestamp': start, 'max_timestamp': max(timestamp for timestamp, *_ in records), **header}
    return record_batch(raw, attributes=codec, pack=lambda data: compress(codec, data), **header), records


NOT_LEADER = 6


def settle(port: int, places: list):
    """Until a Kafka that was just started leads its partitions, not only in its metadata: for a second, as it may be
    fenced once more."""
    topics = {}
    for topic, index in places: topics.setdefault(topic, {})[index] = 0
    led_since, deadline = None, time.monotonic() + 30
    with Client(port) as client:
        while led_since is None or time.monotonic() < led_since + 1:
            assert time.monotonic() < deadline, 'Kafka leads nothing'
            answer = read_fetch(client.ask(fetch(1, topics, version=12, max_wait_ms=0)), 12)
            led = all(data['error_code'] != NOT_LEADER for partitions in answer['topics'].values() for data
                      in partitions.values())
            led_since = (led_since or time.monotonic()) if led else None
            time.sleep(0.05)


def send_all(port: int, expected: Expected, places: list, number: int, seed: int):
    "Batches of every kind, many of them in one request, with acks 1 and -1. Each gets the offset that it should."
    chance = random.Random(seed)
    with Client(port) as client:
        for i in range(number):
            topics, offsets = {}, {}
            for place in chance.sample(places, chance.randrange(1, len(places) + 1)):
                batch, records = make_batch(place, i, chance, codec=chance.choice(CODECS))
                topics.setdefault(place[0], {})[place[1]] = batch
                offsets[place] = expected.add(place, batch, records)
            answer = read_produce(client.ask(produce(i, topics, acks=chance.choice([1, -1]))))
            assert {(topic, index): (data['error_code'], data['base_offset']) for topic,
                    partitions in answer['topics'].items() for index, data in partitions.items()} \
                == {place: (0, offset) for place, offset in offsets.items()}


def send_sequences(port: int, expected: Expected, place, producer_id: int, first: int = 0, count: int = 12) -> int:
    "An idempotent producer: its batches in order, some of them twice. Returns the sequence that comes next."
    chance, sequence = random.Random(producer_id), first
    with Client(port) as client:
        for number in range(count):
            batch, records = make_batch(place, number, chance, codec=number % 5, producer_id=producer_id,
                                        producer_epoch=1, base_sequence=sequence)
            offset = expected.add(place, batch, records)
            for _ in range(1 + (number % 3 == 0)):
                [data] = read_produce(client.ask(produce(number,
                                                         {place[0]: {place[1]: batch}})))['topics'][place[0]].values()
                assert (data['error_code'], data['base_offset']) == (0, offset)
            sequence += len(records)
    return sequence


def read_log(port: int, place, offset: int = 0) -> list[bytes]:
    "All batches of a partition, through Fetch."
    found = []
    with Client(port) as client:
        while True:
            data = read_fetch(client.ask(fetch(1, {place[0]: {place[1]: offset}}, version=12, max_wait_ms=0)),
                              12)['topics'][place[0]][place[1]]
            assert data['error_code'] == 0, data
            if offset == data['high_watermark']: return found
            for batch in split(data['records']):
                found.append(batch)
                offset = next_offset(batch)


def without_epoch(batches: list[bytes]) -> list[bytes]: return [placed(batch, base_offset(batch)) for batch in batches]


# --- What Kafka says --------------------------------------------------------------------------------------------------

COMPLAINTS = re.compile(
    r'isvalid: false|mismatch|out of order|non-consecutive|exception|error|corrupt|not a valid|could not|no message',
    re.I)


def check_dump(logs: Path, places=None) -> str:
    "`kafka-dump-log` reads every file, and has nothing to complain of. Returns what it printed of the logs."
    directories = [path for path in sorted(logs.iterdir()) if path.is_dir() and not path.name.startswith('__')
                   and (places is None or path.name in places)]
    files = {kind: [str(path) for directory in directories for path in sorted(directory.glob(f'*.{kind}'))] for kind
             in ('log', 'index', 'timeindex', 'snapshot', 'txnindex')}
    printed = dump(files['log'] + files['snapshot'] + files['txnindex'], '--deep-iteration', '--print-data-log')
    for line in printed.splitlines():
        about = re.sub(r' (key|payload|headerKeys): .*', '', line)
        assert not COMPLAINTS.search(about), line
    for option in '--verify-index-only', '--index-sanity-check':
        said = dump(files['index'] + files['timeindex'], option)
        assert not COMPLAINTS.search(said), said
    assert len(re.findall('passed sanity check|is empty', said)) == len(files['index'] + files['timeindex']), said
    return printed


def dump(files: list[str], *options: str) -> str:
    return real_kafka.run_tool('kafka.tools.DumpLogSegments', *options, '--files', ','.join(files)) if files else ''


def check_kafka_output(kafka: real_kafka.RealKafka):
    "Kafka found nothing to mend."
    said = kafka.output.read_text(errors='replace')
    assert not re.search(r'ERROR|corrupt|invalid|truncat|rebuil|Exception', said, re.I), said[:5_000]


def consume(kafka: real_kafka.RealKafka, topics: list[str], count: int) -> list[tuple]:
    "Everything that the Java consumer gets from the beginning on: time, partition, offset, headers, key, value."
    shown_too = [word for name in ('timestamp', 'partition', 'offset', 'headers', 'key') for word in ('--property',
        f'print.{name}=true')]
    printed = real_kafka.run_tool('org.apache.kafka.tools.consumer.ConsoleConsumer', '--bootstrap-server',
                                  f'127.0.0.1:{kafka.port}', '--include', '|'.join(map(re.escape, topics)),
                                  '--from-beginning', '--max-messages', count, '--timeout-ms', 20_000, '--property',
                                  'null.literal=<null>', *shown_too)
    found = []
    for line in printed.splitlines():
        timestamp, partition, offset, headers, key, value = line.split('\t')
        found.append((int(timestamp.rpartition(':')[2]), int(partition.partition(':')[2]),
                      int(offset.partition(':')[2]), headers, key, value))
    return sorted(found)


def check_in_kafka(directory: Path, expected: Expected):
    "Kafka starts on the directory, and has everything."
    with kafka_on(directory) as kafka:
        for place, batches in expected.batches.items():
            assert without_epoch(read_log(kafka.port, place)) == without_epoch(batches), place
        assert consume(kafka, sorted({topic for topic, _ in expected.batches}),
                       len(expected.lines)) == sorted(expected.lines)
    check_kafka_output(kafka)


# --- What we write ----------------------------------------------------------------------------------------------------

PLACES = [('plain', 0), ('plain', 1), ('plain', 2), ('other.topic', 0), ('other.topic', 1)]


@pytest.mark.parametrize('killed', [False, True], ids=['stopped', 'killed'])
def test_kafka_serves_what_we_wrote(made_by_kafka, tmp_path, killed):
    directory, expected = place_copy(made_by_kafka, tmp_path/'both'), Expected()
    with ours_on(directory, killed, **SMALL_SEGMENTS) as broker:
        send_all(broker.port, expected, PLACES, 120, seed=1)
        sequence = send_sequences(broker.port, expected, ('Producers_1', 0), 4000)
    with ours_on(directory, killed, **SMALL_SEGMENTS) as broker:   # and once more, on what we left ourselves
        send_all(broker.port, expected, PLACES, 60, seed=2)
        sequence = send_sequences(broker.port, expected, ('Producers_1', 0), 4000, sequence)
        for place, batches in expected.batches.items(): assert without_epoch(read_log(broker.port, place)) == batches
    assert all(len(list((directory/'logs'/f'{topic}-{index}').glob('*.log'))) > 2 for topic, index in PLACES)
    if not killed: check_dump(directory/'logs')
    check_in_kafka(directory, expected)
    check_dump(directory/'logs')


def test_what_kafka_python_produced_through_us(made_by_kafka, tmp_path):
    """A client that others wrote, as far as it gets without a coordinator: it finds the leader, and sends; Kafka has it
    afterwards."""
    kafka_python = pytest.importorskip('kafka', reason='needs kafka-python')
    directory, sent = place_copy(made_by_kafka, tmp_path/'both'), []
    with ours_on(directory, **SMALL_SEGMENTS) as broker:
        for codec in (None, 'gzip'):
            producer = kafka_python.KafkaProducer(bootstrap_servers=f'127.0.0.1:{broker.port}', compression_type=codec,
                                                  acks='all', enable_idempotence=False, linger_ms=5)
            for i in range(200):
                key, value, headers, timestamp = f'k{i % 7}'.encode(), f'{codec} {i} '.encode() + b'x' * (i % 50), [('number', str(i).encode())], now() + i  # noqa: E501
                future = producer.send('plain', value=value, key=key, headers=headers, timestamp_ms=timestamp,
                                       partition=i % 3)
                sent.append((future, timestamp, i % 3, shown([(b'number', str(i).encode())]), text(key), text(value)))
            producer.flush(20)
            producer.close(20)
    expected = sorted((timestamp, partition, future.get(1).offset, *rest) for future, timestamp, partition,
                      *rest in sent)
    check_dump(directory/'logs')
    with kafka_on(directory) as kafka: assert consume(kafka, ['plain'], len(expected)) == expected
    check_kafka_output(kafka)


# --- What Kafka wrote -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('killed', [False, True], ids=['stopped', 'killed'])
def test_taking_turns(made_by_kafka, tmp_path, killed):
    "Kafka writes, we serve it and append, Kafka serves all of it and appends, and once more."
    directory, expected, sequence = place_copy(made_by_kafka, tmp_path/'both'), Expected(), 0
    for turn in range(2):
        kafka = kafka_on(directory)
        with kafka:
            settle(kafka.port, PLACES)
            send_all(kafka.port, expected, PLACES, 30, seed=10 + turn)
            sequence = send_sequences(kafka.port, expected, ('Producers_1', 0), 5000, sequence)
            for place, batches in expected.batches.items():
                assert without_epoch(read_log(kafka.port, place)) == batches, place
            if killed: kill(kafka)
        if not killed: check_kafka_output(kafka)
        with ours_on(directory, killed, **SMALL_SEGMENTS) as broker:
            for place, batches in expected.batches.items():
                assert without_epoch(read_log(broker.port, place)) == batches, place
            send_all(broker.port, expected, PLACES, 30, seed=20 + turn)
            sequence = send_sequences(broker.port, expected, ('Producers_1', 0), 5000, sequence)
            for place, batches in expected.batches.items():
                assert without_epoch(read_log(broker.port, place)) == batches, place
    if not killed: check_dump(directory/'logs')
    check_in_kafka(directory, expected)
    check_dump(directory/'logs')


# --- The recorded logs ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('killed', [False, True], ids=['stopped', 'killed'])
def test_recorded_logs_after_we_appended(tmp_path, killed):
    "Logs of all kinds (compacted, transactional, trimmed, of many segments) get a few batches more, and stay sound."
    directory = place_copy(FIXTURES/'segments'/'logs', tmp_path/'recorded')
    places = sorted(path.name for path in (directory/'logs').iterdir() if path.is_dir()
                    and not path.name.startswith('__'))
    starts = {f'{topic}-{index}': int(offset) for topic, index, offset in map(str.split,
        (directory/'logs'/'log-start-offset-checkpoint').read_text().splitlines()[2:])}
    before, appended, chance = {}, {}, random.Random(7)
    with ours_on(directory, killed, **SMALL_SEGMENTS) as broker:
        with Client(broker.port) as client:
            for name in places:
                topic, index, start = name.rpartition('-')[0], int(name.rpartition('-')[2]), starts.get(name, 0)
                before[name] = read_log(broker.port, (topic, index), start)
                for number in range(3):
                    batch, _ = make_batch((topic, index), number, chance, codec=chance.choice(CODECS))
                    if 'compact' in name: batch = record_batch([record(b'value', b'key')], base_timestamp=now())
                    [data] = read_produce(client.ask(produce(1, {topic: {index: batch}})))['topics'][topic].values()
                    assert data['error_code'] == 0, (name, data)
                    appended.setdefault(name, []).append(data['base_offset'])
                after = read_log(broker.port, (topic, index), start)
                assert after[:len(before[name])] == before[name] and [base_offset(batch) for batch
                                                                      in after[
                                                                          len(before[name]):]] == appended[name], name
    assert sum(len(batches) for batches in before.values()) > 100
    if killed:
        with ours_on(directory): pass   # mends, and leaves in order
    check_dump(directory/'logs')


# --- The same answers -------------------------------------------------------------------------------------------------

def simple(*values: bytes | None, key: bytes | None = None, headers=(), **header) -> bytes:
    "A batch of plain records, made just now."
    return record_batch([record(value, key, headers, delta) for delta, value in enumerate(values)],
                        **{'base_timestamp': START, **header})


START = now()
TWO = [record(b'one'), record(b'two', offset_delta=1)]
PACKED = {codec: lambda data, codec=codec: bytes(compress(codec, data)) for codec in CODECS}


def leaning(data: bytes) -> bytes:
    "An LZ4 frame whose header says that blocks may refer to earlier ones; it has only one, not compressed."
    return bytes.fromhex('04224d18 4070df') + (len(data) | 1 << 31).to_bytes(4, 'little') + data + bytes(4)


def damaged(codec: int, how: str) -> bytes:
    "A compressed batch with a checksum that fits, but a payload that doesn't."
    def pack(data: bytes) -> bytes:
        packed = bytes(compress(codec, data))
        return {'empty': b'', 'cut off': packed[:len(packed) // 2], 'noise': b'\xaa' * 40,
                'a wrong byte': packed[:-6] + bytes([packed[-6] ^ 0xff]) + packed[-5:],
                'twice': packed + packed, 'something behind': packed + b'behind'}[how]
    return record_batch([record(b'value %d ' % i * 40, offset_delta=i) for i in range(20)], attributes=codec,
                        base_timestamp=START, pack=pack)


def broken_batches() -> dict[str, bytes]:
    "Batches with which something is wrong, and some that only look like it."
    whole = simple(b'one', b'two')
    cases = {
        'sound': whole, 'no records': record_batch([], base_timestamp=START), 'null value': simple(None),
        'empty value': simple(b''), 'empty key': simple(b'v', key=b''),
        'nothing at all': b'', 'half a header': whole[:30], 'cut off': whole[:-1],
        'two batches': whole + simple(b'three'), 'a byte behind': whole + b'\0',
        'half a batch behind': whole + whole[:40], 'wrong checksum': record_batch(TWO, crc=1, base_timestamp=START),
        'checksum of an empty batch': record_batch([], count=1, base_timestamp=START),
        **{f'length {length:+d}': record_batch(TWO, base_timestamp=START,
                                               length=len(whole) - 12 + length) for length in (-1, 1, 10)},
        **{f'length {length}': record_batch(TWO, base_timestamp=START, length=length) for length in (-1, 0, 13, 14, 48,
            49, 2**31 - 1)},
        **{f'magic {magic}': record_batch(TWO, base_timestamp=START, magic=magic) for magic in (-1, 0, 1, 3)},
        **{f'count {count}': record_batch(TWO, base_timestamp=START, count=count) for count in (-1, 0, 1, 3,
            2**31 - 1)},
        **{f'last_offset_delta {delta}': record_batch(TWO, base_timestamp=START,
                                                      last_offset_delta=delta) for delta in (-1, 0, 2, 2**31 - 1)},
        'count and delta too small': record_batch(TWO, base_timestamp=START, count=1, last_offset_delta=0),
        'count and delta too large': record_batch(TWO, base_timestamp=START, count=3, last_offset_delta=2),
        **{f'base_offset {offset}': record_batch(TWO, base_timestamp=START, base_offset=offset) for offset in (-1, 1,
            5)},
        **{f'leader_epoch {epoch}': record_batch(TWO, base_timestamp=START, leader_epoch=epoch) for epoch in (-1, 99)},
        **{f'attributes {attributes:x}': record_batch(TWO, base_timestamp=START,
                                                      attributes=attributes) for attributes in (0x5, 0x7, 0x8, 0x20,
                                                          0x28, 0x40, 0x80, 0x100)},
        'trailing bytes': record_batch(TWO, base_timestamp=START, rest=b'behind'),
        'trailing zeros': record_batch(TWO, base_timestamp=START, rest=bytes(5)),
        'record length 0': record_batch([record(b'v', length=0)], base_timestamp=START),
        'record length -1': record_batch([record(b'v', length=-1)], base_timestamp=START),
        'record length too small': record_batch([record(b'value', length=9)], base_timestamp=START),
        'record length too large': record_batch([record(b'value', length=12)], base_timestamp=START),
        'record length huge': record_batch([record(b'value', length=2**31 - 1)], base_timestamp=START),
        'record length takes the next one': record_batch([record(b'one', length=len(TWO[0]) - 1 + len(TWO[1])), TWO[1]],
                                                         base_timestamp=START),
        'header_count -1': record_batch([record(b'v', header_count=-1)], base_timestamp=START),
        'header_count 5': record_batch([record(b'v', header_count=5)], base_timestamp=START),
        'header_count huge': record_batch([record(b'v', header_count=2**31 - 1)], base_timestamp=START),
        'header with a null key': record_batch([record(b'v', headers=[(None, b'x')])], base_timestamp=START),
        'header with a null value': record_batch([record(b'v', headers=[(b'x', None)])], base_timestamp=START),
        'header that is no text': record_batch([record(b'v', headers=[(b'\xff\xfe', b'x')])], base_timestamp=START),
        'headers that end with 0': record_batch([record(b'v', headers=[(b'a', b'')]),
                                                 record(b'v', headers=[(b'a', b'')], offset_delta=1)],
                                                 base_timestamp=START),
        'headers that only end with 0': record_batch([record(b'v', headers=[(b'a', b'')]),
                                                      record(b'v', headers=[(b'a', b'')], offset_delta=1,
                                                             header_count=3)], base_timestamp=START),
        'record attributes': record_batch([record(b'v', attributes=0x7f)], base_timestamp=START),
        'offset deltas 1, 0': record_batch([record(b'v', offset_delta=1), record(b'v')], base_timestamp=START),
        'offset deltas 0, 0': record_batch([record(b'v'), record(b'v')], base_timestamp=START),
        'offset deltas 0, 2': record_batch([record(b'v'), record(b'v', offset_delta=2)], base_timestamp=START),
        'offset delta -1': record_batch([record(b'v', offset_delta=-1)], base_timestamp=START),
        'max_timestamp too late': simple(b'v', max_timestamp=START + 999),
        'max_timestamp too early': simple(b'v', max_timestamp=START - 999),
        'max_timestamp -1': simple(b'v', max_timestamp=-1),
        'earlier than the base': record_batch([record(b'v', timestamp_delta=-50)], base_timestamp=START),
        'one earlier, one later': record_batch([record(b'v', timestamp_delta=-50),
                                                record(b'w', offset_delta=1, timestamp_delta=50)],
                                                base_timestamp=START),
        'no time': simple(b'v', base_timestamp=-1, max_timestamp=-1), 'before 1970': simple(b'v',
            base_timestamp=-5_000), 'long ago': simple(b'v', base_timestamp=1),
        'tomorrow': simple(b'v', base_timestamp=START + 86_400_000), 'the end of time': simple(b'v',
            base_timestamp=2**63 - 1),
        'a timestamp_delta of nine bytes': record_batch([record(b'v', timestamp_delta=-2**55)], base_timestamp=START),
        'producer without a sequence': simple(b'v', producer_id=77), 'sequence without a producer': simple(b'v',
            base_sequence=5),
        'producer in epoch -1': simple(b'v', producer_id=78, base_sequence=0),
        'producer begins with 5': simple(b'v', producer_id=79, producer_epoch=0, base_sequence=5),
        'producer goes on': simple(b'v', producer_id=79, producer_epoch=0, base_sequence=6),
        'the same again': simple(b'v', producer_id=79, producer_epoch=0, base_sequence=6),
        'a gap': simple(b'v', producer_id=79, producer_epoch=0, base_sequence=9),
        'the past': simple(b'v', producer_id=79, producer_epoch=0, base_sequence=1),
        'a new epoch, not from 0': simple(b'v', producer_id=79, producer_epoch=1, base_sequence=7),
        'a new epoch': simple(b'v', producer_id=79, producer_epoch=1, base_sequence=0),
        'the old epoch': simple(b'v', producer_id=79, producer_epoch=0, base_sequence=7),
        'transactional, without a producer': simple(b'v', attributes=0x10),
        **{f'codec {codec}': record_batch(TWO, attributes=codec, pack=PACKED[codec],
                                          base_timestamp=START) for codec in CODECS},
        **{f'codec {codec}, {how}': damaged(codec, how) for codec in CODECS[1:] for how in ('empty', 'cut off', 'noise',
            'a wrong byte', 'something behind')},
        **{f'codec {codec}, trailing bytes inside': record_batch([*TWO, b'\0\0'], count=2, last_offset_delta=1,
                                                                 attributes=codec, pack=PACKED[codec],
                                                                 base_timestamp=START)
           for codec in CODECS[1:]},
        **{f'codec {codec}, a record too few': record_batch(TWO, count=3, last_offset_delta=2, attributes=codec,
                                                            pack=PACKED[codec], base_timestamp=START) for codec
                                                            in CODECS[1:]},
        **{f'codec {codec}, max_timestamp too late': record_batch(TWO, attributes=codec, pack=PACKED[codec],
                                                                  base_timestamp=START,
                                                                  max_timestamp=START + 5) for codec in CODECS[1:]},
        'codec 3, blocks that lean on each other': record_batch(TWO, attributes=3, pack=leaning, base_timestamp=START),
        'codec 1, LogAppendTime': record_batch(TWO, attributes=9, pack=PACKED[1], base_timestamp=START),
        'raw snappy': record_batch([record(b'v')], attributes=2, base_timestamp=START,
                                   pack=lambda data: bytes([len(data), len(data) - 1 << 2]) + data),
    }
    return cases


def produce_cases(ids: dict) -> list[tuple[str, bytes, int]]:
    """Name, request, version: every version with a sound batch, and every batch in the version that clients of today
    send."""
    batches, cases = broken_batches(), []
    for version in range(3, 14):
        topic = ids['plain'] if version == 13 else 'plain'
        for acks in (1, -1):
            cases.append((f'v{version}, acks {acks}', produce(1, {topic: {0: simple(b'v%d' % version)}}, version, acks),
                          version))
        cases.append((f'v{version}, wrong checksum', produce(1, {topic: {0: batches['wrong checksum']}}, version),
                      version))
        cases.append((f'v{version}, zstd', produce(1, {topic: {0: batches['codec 4']}}, version), version))
        cases.append((f'v{version}, unknown partition', produce(1, {topic: {0: simple(b'v'), 7: simple(b'v')}},
                                                                version), version))
    for name, batch in batches.items(): cases.append((name, produce(1, {'plain': {1: batch}}), 11))
    for topic in 'stamped', 'zipped', 'compact', 'small', 'strict':
        for name in ('sound', 'null value', 'empty key', 'trailing bytes', 'count 3', 'wrong checksum', 'attributes 8',
                     'header that is no text',
                     'before 1970', 'max_timestamp too late', 'earlier than the base', 'long ago',
                     'tomorrow', 'no time', 'codec 1', 'codec 2', 'codec 3', 'codec 4', 'codec 1, cut off',
                     'codec 3, noise', 'offset deltas 0, 2', 'record length -1',
                     'two batches'):
            cases.append((f'{topic}: {name}', produce(1, {topic: {0: batches[name]}}), 11))
    cases.append(('stamped: codec 1, LogAppendTime', produce(1, {'stamped': {0: batches['codec 1, LogAppendTime']}}),
                  11))
    # what is wrong with one, and what becomes of the other?
    for name in ('length 0', 'magic 3', 'length 14', 'cut off', 'nothing at all'):
        cases.append((f'one sound, one with {name}', produce(1, {'plain': {0: simple(b'v')},
                                                                 'other.topic': {1: batches[name]}}), 11))
    cases += [('small: too large', produce(1, {'small': {0: simple(b'x' * 2_000)}}), 11),
              ('small: just right', produce(1, {'small': {0: simple(b'x' * 1_900)}}), 11),
              ('compact: with and without a key',
               produce(1, {'compact': {0: record_batch([record(b'v', b'k'), record(b'w', offset_delta=1)],
                                                       base_timestamp=START)}}), 11),
              ('too large', produce(1, {'plain': {0: simple(b'x' * 1_100_000)}}), 11),
              ('acks 2', produce(1, {'plain': {0: simple(b'v')}}, acks=2), 11),
              ('no topics', produce(1, {}), 11), ('no partitions', produce(1, {'plain': {}}), 11),
              ('unknown topic', produce(1, {'nobody': {0: simple(b'v')}}), 11),
              ('unknown id', produce(1, {b'no such topic id': {0: simple(b'v')}}, 13), 13),
              ('a name that is none', produce(1, {'no name!': {0: simple(b'v')}}), 11),
              ('transactional', produce(1, {'plain': {0: simple(b'v', attributes=0x10, producer_id=5, producer_epoch=0,
                                                                base_sequence=0)}}, transactional_id='me'), 11),
              ('several topics, some wrong', produce(1, {'plain': {0: simple(b'v'), 1: batches['wrong checksum']},
                                                         'nobody': {0: simple(b'v')},
                                                          'other.topic': {1: simple(b'v'), 9: simple(b'v')}}), 11)]
    return cases


def fetch_cases(ids: dict) -> list[tuple[str, bytes, int]]:
    "Every version, many offsets, and limits around the sizes that matter."
    def named(version: int, topic: str): return ids[topic] if version >= 13 else topic
    cases = [(f'before, {i}', produce(1, {'plain': {2: simple(*[b'%d' % i * (i % 9 + 1)] * (i % 4 + 1))},
                                          'other.topic': {0: simple(b'v' * i)}}), 11) for i in range(30)]
    for version in range(4, 19):
        for name, topics in {'one': {'plain': {2: 0}}, 'several': {'other.topic': {0: 3, 7: 0}, 'empty': {0: 0},
                                                                   'plain': {2: 20}},
                             'unknown partition': {'plain': {9: 0}}, 'out of range': {'plain': {2: 10**6}}}.items():
            cases.append((f'v{version}, {name}', fetch(1, {named(version, topic): partitions for topic,
                                                           partitions in topics.items()}, version, max_wait_ms=0),
                                                           version))
    for offset in (-2, -1, 0, 1, 5, 17, 40, 74, 75, 76, 10_000):
        for isolation in (0, 1):
            cases.append((f'offset {offset}, isolation {isolation}', fetch(1, {ids['plain']: {2: offset}},
                max_wait_ms=0, isolation=isolation), 16))
    for most in (-1, 0, 1, 60, 61, 100, 200, 1_000, 3_000):
        cases.append((f'max_bytes {most}', fetch(1, {ids['plain']: {2: 0}, ids['other.topic']: {0: 0}}, max_wait_ms=0,
                                                 max_bytes=most), 16))
        cases.append((f'partition_max_bytes {most}', fetch(1, {ids['plain']: {2: 0}, ids['other.topic']: {0: 0}},
                                                           max_wait_ms=0, partition_max_bytes=most), 16))
    for epoch in (-1, 0, 1, 2, 3, 99):
        cases.append((f'leader_epoch {epoch}', fetch(1, {ids['plain']: {2: 0}}, max_wait_ms=0, leader_epoch=epoch), 16))
    for epoch in (0, 1, 2, 3, 99):
        for offset in (0, 4, 10_000):
            cases.append((f'last_fetched_epoch {epoch}, offset {offset}',
                          fetch(1, {ids['plain']: {2: offset}}, max_wait_ms=0, last_fetched_epoch=epoch), 16))
    cases += [('empty', fetch(1, {ids['empty']: {0: 0}}, max_wait_ms=50), 16),
              ('unknown id', fetch(1, {b'no such topic id': {0: 0, 1: 0}}, max_wait_ms=50), 16),
              ('nothing', fetch(1, {}, max_wait_ms=50), 16),
              ('unknown name', fetch(1, {'nobody': {0: 0}}, 12, max_wait_ms=50), 12),
              ('min_bytes', fetch(1, {ids['plain']: {2: 0}}, max_wait_ms=100, min_bytes=10**7), 16)]
    return cases


def answers_to(port: int, cases: list) -> dict[str, str]:
    "The answers as text, with what depends on the clock and the port taken out."
    found = {}
    for name, sent, version in cases:
        with Client(port, patience=5) as client:
            try: frame = client.ask(sent)
            except TimeoutError: found[name] = 'silence'; continue
        if frame is None: found[name] = 'closed'; continue
        if struct.unpack_from('>h', sent, 4)[0] == 0: found[name] = str(timeless(read_produce(frame, version)))
        else: found[name] = frame.replace(struct.pack('>i', port), b'port').hex()
    return found


def timeless(answer: dict) -> dict:
    for partitions in answer['topics'].values():
        for data in partitions.values():
            if abs(data['log_append_time_ms'] - now()) < 3_600_000: data['log_append_time_ms'] = 'now'
            # where, is compared in the end: else one difference would be followed by many
            if data['base_offset'] >= 0: data['base_offset'] = 'stored'
            data['record_errors'] = data.get('record_errors') and [(index,
                                                                    re.sub(r'within \[-?\d+, -?\d+\]', 'within',
                                                                        text or '')) for index,
                                                                            text in data['record_errors']]
    # Kafka's order is that of a hash
    answer['topics'] = {topic: dict(sorted(partitions.items())) for topic,
                        partitions in sorted(answer['topics'].items())}
    return answer


def comparable(place, batches: list[bytes]) -> list:
    """What is the same in the logs of both brokers: all of it, but for times in one topic, and the way of packing in
    another."""
    if place[0] == 'stamped': return [batch[:17] + batch[21:35] + batch[43:] for batch in batches]
    if place[0] == 'zipped':
        return [(base_offset(batch), next_offset(batch), batch[21:23], batch[35:61]) for batch in batches]
    return batches


# What the two brokers say differently, and why we leave it at that.
STRICTER = 'Kafka stores it as it is, and every consumer stumbles over it: we refuse it'
KNOWN = {
    **{f'Produce: {name}': STRICTER for name in ('offset deltas 1, 0', 'offset deltas 0, 0', 'offset deltas 0, 2',
                                                 'offset delta -1',
                                                 'codec 1, something behind', 'codec 3, something behind')},
    **{f'Produce: {topic}: offset deltas 0, 2': STRICTER for topic in ('stamped', 'zipped', 'compact', 'small',
        'strict')},
    'Produce: length 2147483647': 'an overflow in Java: error -1 instead of 87',
    'Produce: codec 4, empty': 'the Java library takes nothing for an empty frame, ours for a broken one: error 87 '
                               'instead of -1',
    'Produce: zipped: before 1970': "Kafka can't pack such a batch anew, and fails with error -1; we can",
    'Produce: stamped: codec 1, LogAppendTime': 'the same error; its text names a class of the Java broker',
}


def test_the_same_answers(made_by_kafka, tmp_path):
    """Hundreds of Produce and Fetch requests to both brokers, each on its copy of one directory; then what is in the
    logs; then what is known to differ."""
    ids = {name: base64.urlsafe_b64decode(re.search(r'topic_id: (\S+)',
                                                    (made_by_kafka/f'{name}-0'/'partition.metadata').read_text())[1]
                                                    + '==') for name in TOPICS}
    cases = [(f'{api}: {name}', *rest) for api, found in (('Produce', produce_cases(ids)),
                                                          ('Fetch', fetch_cases(ids))) for name, *rest in found]
    names = {name for name, *_ in cases}
    assert len(names) == len(cases) > 400 and names >= KNOWN.keys()
    places = [(topic, index) for topic, (partitions, _) in TOPICS.items() for index in range(partitions)]

    def ask_everything(port: int) -> tuple[dict, dict, dict]:
        said = answers_to(port, [case for case in cases if case[0] not in KNOWN])
        return said, {place: read_log(port, place) for place in places}, answers_to(port,
            [case for case in cases if case[0] in KNOWN])

    with kafka_on(place_copy(made_by_kafka, tmp_path/'theirs')) as kafka:
        theirs, their_logs, theirs_known = ask_everything(kafka.port)
    with running(place_copy(made_by_kafka, tmp_path/'ours')) as broker:
        ours, our_logs, ours_known = ask_everything(broker.port)
    different = [name for name in ours if ours[name] != theirs[name]]
    assert not different, '\n'.join(f'{name}:\n  ours   {ours[name][:600]}\n  kafkas {theirs[name][:600]}' for name
                                    in different)
    for place in places: assert comparable(place, our_logs[place]) == comparable(place, their_logs[place]), place
    assert [name for name in KNOWN if ours_known[name] == theirs_known[name]] == [], 'no difference any more'
