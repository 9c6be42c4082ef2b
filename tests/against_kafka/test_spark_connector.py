"""Beside Spark's own Kafka connector: it asks a real Apache Kafka for its records, we read that broker's files, and the
rows are the same."""
import json
import subprocess
import sys

import pytest

from size import kafka_absent, spark_absent
from broker_process import ROOT, environment

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka, spark_connector

if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)
from kafka_scratch.client.client import Client as Broker, send_batch
from kafka_scratch.log.records import Record, RecordHeader, write_batch

absent = kafka_absent() or spark_connector.absent()
pytestmark = pytest.mark.skipif(bool(absent), reason=str(absent))

PATIENCE = 600
CODECS = 'gzip', 'snappy', 'lz4', 'zstd'
TOPICS = {   # name → partitions, settings. Where a topic names a codec, it is Kafka that compresses.
    'plain': (3, {}), 'stamped': (1, {'message.timestamp.type': 'LogAppendTime'}),
    'long': (1, {'segment.bytes': '1048576'}), 'empty': (1, {}), 'odd': (1, {}),
    'transactions': (2, {}), **{codec: (1, {'compression.type': codec}) for codec in CODECS}}
START = 1_700_000_000_000


@pytest.fixture(scope='module')
def kafka(tmp_path_factory):
    "A broker with something of everything in it. One transaction is still open, and stays so."
    kafka_python = pytest.importorskip('kafka', reason='kafka-python is not installed')
    settings = {'transaction.max.timeout.ms': 900_000, 'log.retention.ms': -1}   # our records are old, and should stay
    with real_kafka.RealKafka(tmp_path_factory.mktemp('kafka'), settings) as running:
        servers = f'127.0.0.1:{running.port}'
        admin = kafka_python.KafkaAdminClient(bootstrap_servers=servers)
        admin.create_topics({name: {'num_partitions': partitions, 'replication_factor': 1, 'configs': configs}
                             for name, (partitions, configs) in TOPICS.items()})
        admin.close()
        real_kafka.wire.wait_for(lambda: running.leads({name: partitions for name, (partitions, _) in TOPICS.items()}),
                                 60, 'leaders')
        producer = kafka_python.KafkaProducer(bootstrap_servers=servers, linger_ms=20)
        for topic in ('plain', 'stamped', *CODECS):
            for number in range(300): producer.send(topic, **record(number), partition=number % TOPICS[topic][0])
        for number in range(5000):
            producer.send('long', b'%d ' % number * 100, b'%d' % number, timestamp_ms=START + number)
        producer.flush(60)
        producer.close(60)
        send_odd(servers)
        writers = [kafka_python.KafkaProducer(bootstrap_servers=servers, transactional_id=name,
                                              transaction_timeout_ms=900_000) for name in ('one', 'two')]
        write_transactions(*writers)
        yield running
        # Left alone, they would wait for the broker after it has gone.
        for writer in writers: writer.close(0)


def record(number: int) -> dict:
    "A record: some have no key, some no value, some headers."
    return dict(key=None if number % 7 == 0 else b'key %d' % (number % 50),
                value=None if number % 11 == 0 and number % 7 else b'value %d ' % number * (number % 40),
                headers=[('number', b'%d' % number), ('Ünïcode', b'\xff\0'),
                         ('number', b'')] if number % 5 == 0 else [],
                timestamp_ms=START + number * 1001)


def send_odd(servers: str):
    """What clients of today don't send, or not any more: neither key nor value, a header without a value, no time, the
    first of all times."""
    client = Broker(servers)
    for base in -1, 0, START:
        nameless = [RecordHeader(key='', value=None), RecordHeader(key='', value=b'')]
        odd = [Record(offset_delta=0), Record(offset_delta=1, key=b'', value=b'', headers=nameless),
               Record(offset_delta=2, value=bytes(range(256)) * 100)]
        send_batch(client, 'odd', 0, write_batch(odd, base_timestamp=base, max_timestamp=base))
    client.close()


def write_transactions(one, two):
    """Committed and aborted ones that overlap, in two partitions; records between them; and one that nobody ever
    decides."""
    def send(producer, first: int, count: int = 10):
        for number in range(first, first + count): producer.send('transactions', **record(number), partition=number % 2)
        producer.flush(30)
    for producer in one, two: producer.init_transactions()
    for round, ends in enumerate([('commit', 'commit'), ('abort', 'commit'), ('commit', 'abort'), ('abort', 'abort'),
                                  ('commit', 'commit')]):
        for producer in one, two: producer.begin_transaction()
        for part in range(3):
            for number, producer in enumerate((one, two)): send(producer, round * 1000 + part * 100 + number * 10)
        for producer, end in zip((one, two), ends): getattr(producer, f'{end}_transaction')()
    one.begin_transaction()
    send(one, 9000)                       # undecided from here on
    two.begin_transaction()
    send(two, 9100)
    two.commit_transaction()              # committed, but behind it


JOB = '''
import json, sys
from kafka_scratch.spark.session import get_session
from pyspark.sql.functions import expr
jars, servers, logs, topics = json.loads(sys.argv[1])
spark = get_session('local[2]', **{'spark.jars': jars, 'spark.sql.shuffle.partitions': 2})
NAMES = ['key', 'value', 'topic', 'partition', 'offset', 'timestamp', 'timestampType', 'headers']
COLUMNS = [name if name != 'timestamp' else 'unix_micros(timestamp) as timestamp' for name in NAMES]   # JSON would keep milliseconds only

def theirs(isolation):
    "Spark's own connector."
    return (spark.read.format('kafka').option('kafka.bootstrap.servers', servers).option('subscribe', ','.join(topics)).option('includeHeaders', 'true')
            .option('kafka.isolation.level', isolation).option('startingOffsets', 'earliest').option('endingOffsets', 'latest').load())

def ours(frame):
    "Our columns under its names. Control records never reach it; a record without headers has null there, with us an empty list."
    frame = frame.where('not control').withColumn('headers', expr('if(size(headers) = 0, null, headers)'))
    return frame.withColumn('timestampType', expr("if(timestamp_type = 'CREATE_TIME', 0, 1)"))

def files(isolation, split_size='128m'):
    return ours(spark.read.format('kafka-log').option('topics', ','.join(topics)).option('isolationLevel', isolation)
                .option('splitSize', split_size).load(logs))

def broker(isolation):
    return ours(spark.read.format('kafka-broker').option('kafka.bootstrap.servers', servers).option('subscribe', ','.join(topics))
                .option('isolationLevel', isolation).load())

def digest(frame):
    "Of every partition: how many rows, and a hash over all of their columns, whatever their order."
    row = f"sha2(to_json(struct({', '.join(NAMES)}), map('ignoreNullFields', 'false')), 256)"
    hashes = frame.selectExpr(*COLUMNS).selectExpr('topic', 'partition', f'{row} as hash')
    sums = hashes.groupBy('topic', 'partition').agg(expr('count(1)'), expr("sha2(concat_ws(',', sort_array(collect_list(hash))), 256)"))
    return {f'{topic}-{partition}': [count, hash] for topic, partition, count, hash in sums.collect()}

def show(one, other):
    "Rows that one has and the other hasn't: for whoever has to find out why."
    one, other = (frame.selectExpr(*COLUMNS) for frame in (one, other))
    return [str(row) for row in [*one.exceptAll(other).take(3), *other.exceptAll(one).take(3)]]

for isolation in 'read_uncommitted', 'read_committed':
    expected = digest(theirs(isolation))
    for name, read in ('kafka-log', files), ('kafka-log, small splits', lambda isolation: files(isolation, '64k')), ('kafka-broker', broker):
        frame = read(isolation)
        found = digest(frame)
        print(json.dumps([isolation, name, expected, found, [] if found == expected else show(theirs(isolation), frame)]), flush=True)
'''  # noqa: E501


@pytest.fixture(scope='module')
def compared(kafka) -> dict:
    "Everything read by everybody, in a process of its own: jars are added when Java starts, and ours runs already."
    told = json.dumps([','.join(map(str, spark_connector.jars())), f'127.0.0.1:{kafka.port}', str(kafka.log_dir),
                       sorted(TOPICS)])
    done = subprocess.run([sys.executable, '-c', JOB, told], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT,
                          env=environment(PYTHONPATH=None))
    assert done.returncode == 0, done.stderr[:5000]
    return {(isolation, name): rest for isolation, name, *rest in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize('isolation', ['read_uncommitted', 'read_committed'])
@pytest.mark.parametrize('source', ['kafka-log', 'kafka-log, small splits', 'kafka-broker'])
def test_the_rows_are_those_of_the_connector(compared, isolation, source):
    theirs, ours, differences = compared[isolation, source]
    assert ours == theirs, differences
    assert {name.rpartition('-')[0] for name in theirs} == TOPICS.keys() - {'empty'}
    assert {name: theirs[f'{name}-0'][0] for name in ('long', 'stamped', *CODECS)} == {'long': 5000, 'stamped': 300,
        **{codec: 300 for codec in CODECS}}


def test_the_transactions_mattered(compared):
    "Five pairs of sixty records, the four aborted halves left out, and nothing from the undecided one on."
    counts = {isolation: sum(count for name, (count, _) in compared[isolation,
                                                                    'kafka-log'][0].items()
                                                                    if name.startswith('transactions'))
              for isolation in ('read_uncommitted', 'read_committed')}
    assert counts == {'read_uncommitted': 5 * 60 + 20, 'read_committed': 6 * 30}


def test_the_logs_are_what_they_should_be(kafka):
    "Compressed, and of several segments; otherwise this would be a comparison of less than it says."
    from kafka_scratch.log.reader import chosen_sources, sound_batches
    paths = lambda topic: chosen_sources(str(kafka.log_dir), topic)[0].paths
    codecs = {codec: {batch.header.attributes & 7 for path in paths(codec) for _,
                      batch in sound_batches(path)} for codec in CODECS}
    assert codecs == {'gzip': {1}, 'snappy': {2}, 'lz4': {3}, 'zstd': {4}} and len(paths('long')) >= 2
