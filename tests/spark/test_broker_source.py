"""A broker as a table and as a stream: the same rows as from its log directory, from our broker and from Apache Kafka.

Most of this needs no Java: the readers are driven as Spark drives them.
"""
import json
import os
import shutil
import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from size import needs_kafka, spark_absent
if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)

import pyarrow as pa

from broker_process import FIXTURES, ROOT, free_port, running, wait_until
from by_hand import metadata_log, topic_batch, write_log
from cluster_by_hand import two_brokers
from log_by_hand import message_batch, record, record_batch

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.client.client import Client, NoBroker, Unanswered, UnknownTopic, refresh_metadata, send_batch
from kafka_scratch.wire.codes import ErrorCode
from kafka_scratch.log.reader import Damaged
from kafka_scratch.log.records import CONTROL, TRANSACTIONAL
from kafka_scratch.log.segments import segments
from kafka_scratch.spark import broker_source
from kafka_scratch.spark.broker_ranges import (aborted_in, broker_options, cut_range, cut_ranges, next_size,
                                               pack_ranges,
                                               wanted_places)
from kafka_scratch.spark.broker_source import KafkaBroker, plan_in_cluster
from kafka_scratch.spark.headers import scan
from kafka_scratch.spark.kernel import as_array
from kafka_scratch.spark.options import FOREVER, BadOption, read_options, table_schema
from kafka_scratch.spark.plan import Range
from kafka_scratch.spark.positions import DataLoss, Held
from kafka_scratch.spark.read import read_table

LOGS = FIXTURES/'segments'/'logs'


# --- Readers, driven as Spark drives them -----------------------------------------------------------------------------

def source(port: int, **given) -> KafkaBroker:
    return KafkaBroker({'kafka.bootstrap.servers': f'127.0.0.1:{port}',
                        **{name.replace('__', '.'): str(text) for name, text in given.items()}})


def schema_of(broker: KafkaBroker, columns=None):
    whole = broker.schema()
    return type(whole)([field for field in whole.fields if columns is None or field.name in columns])


def table(port: int, columns=None, filters=(), **given) -> pa.Table:
    "What Spark would get."
    broker = source(port, **given)
    reader = broker.reader(schema_of(broker, columns))
    reader.filters = list(filters)
    return pa.Table.from_batches([made for part in reader.partitions() for made in reader.read(part)], reader.schema)


def of_log(path, columns=None, filters=(), **given) -> pa.Table:
    "The same, from the log directory."
    options = read_options({name: str(text) for name, text in given.items()})
    return read_table(str(path), options, columns and [name for name in table_schema(options).names if name in columns],
                      filters)


def same(ours: pa.Table, theirs: pa.Table):
    order = [(name, 'ascending') for name in ('topic', 'partition', 'offset')]
    assert ours.sort_by(order).to_pylist() == theirs.sort_by(order).to_pylist()
    return ours.num_rows


@pytest.fixture(scope='module')
def fixture_broker(tmp_path_factory):
    "Our broker on a copy of what Apache Kafka left behind. Nothing is too old for it."
    directory = tmp_path_factory.mktemp('fixture')
    # Without the diary of transactions, nobody aborts the one that was left open when the broker starts: its time has
    # long been over.
    shutil.copytree(LOGS, directory/'logs', ignore=shutil.ignore_patterns('__transaction_state-*'))
    with running(directory, log_retention_ms=-1) as broker: yield broker


# --- Pure parts -------------------------------------------------------------------------------------------------------

@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**5))
def test_cuts(first, size, most):
    parts = cut_range(first, first + size, most)
    assert [a for a, _ in parts[1:]] == [b for _, b in parts[:-1]]
    assert all(0 < b - a <= most for a, b in parts)
    assert not size or (parts[0][0], parts[-1][1]) == (first, first + size)
    assert len(parts) == -(-size // most)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 1000)), max_size=20), st.integers(1, 500),
       st.integers(1, 50))
def test_cuts_of_many(sizes, most, least):
    ranges = {('t', number): Range(first, first + size) for number, (first, size) in enumerate(sizes)}
    parts = cut_ranges(ranges, most, least)
    total = sum(size for _, size in sizes)
    assert len(parts) >= min(least, total)
    for place, wanted in ranges.items():
        own = [(each.first, each.end) for where, each in parts if where == place]
        assert own[0][0] == wanted.first and own[-1][1] == wanted.end and [a for a, _ in own[1:]] == [b for _,
            b in own[:-1]]
    groups = pack_ranges(parts, 300)
    assert [each for group in groups for each in group] == parts
    assert all(len(group) == 1 or sum(each.end - each.first for _, each in group) <= 300 for group in groups)


def test_how_much_to_ask_for():
    assert next_size(1 << 20, 1000, 10**9, 16 << 20) == 16 << 20          # as much as allowed
    assert next_size(1 << 20, 1000, 100, 16 << 20) == (100 * (1 << 20) // 1000) * 5 // 4
    assert next_size(100, 10, 1, 16 << 20) == 1 << 16 and next_size(0, 0, 5, 1 << 20) == 1 << 16


def test_markers_end_what_was_aborted():
    marker = lambda producer, kind, offset: record_batch([record(b'\0\0\0\0\0\0', key=b'\0\0\0' + bytes([kind]))],
                                                         base_offset=offset,
                                                         attributes=TRANSACTIONAL | CONTROL, producer_id=producer,
                                                         producer_epoch=0)
    data = as_array(message_batch(b'a', base_offset=4, attributes=TRANSACTIONAL, producer_id=7,
                                  producer_epoch=0) + marker(7, 1, 5) +
                    message_batch(b'b', base_offset=6, attributes=TRANSACTIONAL, producer_id=7,
                                  producer_epoch=0) + marker(8, 0, 7) + marker(7, 0, 8))
    listed = [SimpleNamespace(producer_id=7, first_offset=6), SimpleNamespace(producer_id=9, first_offset=1),
              SimpleNamespace(producer_id=8, first_offset=0)]
    assert [tuple(each) for each in aborted_in(listed, data, scan(data)[0])] == [(8, 0, 7), (7, 6, 8), (9, 1, FOREVER)]


@pytest.mark.parametrize('given, said', [
    ({}, 'kafka.bootstrap.servers is missing'), ({'bootstrap.servers': 'localhost'}, "'localhost' is no address"),
    ({'kafka.bootstrap.servers': 'a:1', 'table': 'topics'}, 'table is records here'),
    ({'kafka.bootstrap.servers': 'a:1', 'deleted': 'true'}, 'deleted is for log directories'),
    ({'kafka.bootstrap.servers': 'a:1', 'maxBytesPerTrigger': '5'}, 'maxBytesPerTrigger is for log directories'),
    ({'kafka.bootstrap.servers': 'a:1', 'minPartitions': '-1'}, 'minPartitions is a number'),
    ({'kafka.bootstrap.servers': 'a:1', 'kafka.security.protocol': 'SSL'}, 'there is no TLS'),
    ({'kafka.bootstrap.servers': 'a:1', 'kafka.group.id': 'x'}, "there is no option 'kafka.group.id'"),
    ({'kafka.bootstrap.servers': 'a:1', 'topik': 'x'}, 'did you mean')])
def test_options_that_are_refused(given, said):
    with pytest.raises(BadOption) as error: broker_options(given)
    assert said in str(error.value) and '\n' not in str(error.value)


def test_options_in_the_words_of_the_connector():
    asking = broker_options({'kafka.bootstrap.servers': 'a:1,b:2', 'subscribe': 'x, y',
                             'kafka.isolation.level': 'read_committed', 'kafka.request.timeout.ms': '1500',
                             'minPartitions': '8', 'failOnDataLoss': 'false', 'maxOffsetsPerTrigger': '10'})
    assert asking.options.topics == ('x',
                                     'y') and asking.options.committed and asking.patience == 1.5 and asking.least_parts == 8  # noqa: E501
    assert not asking.stream.fail_on_data_loss and asking.stream.most_offsets == 10
    assert broker_options({'bootstrap.servers': 'a:1', 'subscribePattern': 'x.*'}).options.topic_pattern == 'x.*'


# --- Tables -----------------------------------------------------------------------------------------------------------

def test_every_column_of_every_fixture(fixture_broker): assert same(table(fixture_broker.port), of_log(LOGS)) == 392


def test_decided_records(fixture_broker):
    found = table(fixture_broker.port, isolationLevel='read_committed')
    same(found, of_log(LOGS, isolationLevel='read_committed'))
    told = json.load(open(FIXTURES/'segments'/'records-read-committed.json'))
    offsets = {}
    for row in found.to_pylist(): offsets.setdefault(f'{row["topic"]}-{row["partition"]}', []).append(row['offset'])
    assert offsets == {name: each['offsets'] for name, each in told.items() if each['offsets']}


@pytest.mark.parametrize('given', [
    dict(topics='seg.multi', startingOffsets=7, endingOffsets=101), dict(topics='seg.multi', minPartitions=9),
    dict(topics='seg.tx,seg_shapes', partitions=1),
    dict(topicPattern=r'seg\.java.*'), dict(topics='seg.multi', fetchSize=1), dict(topics='seg.big', fetchSize=1),
    dict(topics='seg.tx', isolationLevel='read_committed', minPartitions=21, fetchSize=1),
    dict(topics='seg.multi,seg.trimmed', startingOffsets='{"seg.multi": {"0": 100}, "seg.trimmed": {"0": -2}}',
         endingOffsets='{"seg.multi": {"0": -1}}'),
    dict(topics='seg.trimmed', startingTimestamp=1700000040000, endingTimestamp=1700000050000),
    dict(topics='__consumer_offsets'), dict(topics='seg.compacted'),
    dict(topics='seg-empty'), dict(startingTimestamp='2100-01-01'), dict(topics='seg.multi', endingOffsets=0)])
def test_parts(fixture_broker, given):
    "What the options leave of a topic, however it is cut and however small the answers."
    only_here = ('minPartitions', 'fetchSize')
    same(table(fixture_broker.port, **given), of_log(LOGS, **{name: value for name,
                                                              value in given.items() if name not in only_here}))


def test_pieces(fixture_broker):
    broker = source(fixture_broker.port, topics='seg.multi', maxRecordsPerPartition=50)
    parts = broker.reader(broker.schema()).partitions()
    assert [[(place, wanted.first, wanted.end) for place, _,
             wanted in part.value] for part in parts] == [[(('seg.multi', 0), 0, 46), (('seg.multi', 0), 46, 93),
                                                           (('seg.multi', 0), 93, 140)]]
    broker = source(fixture_broker.port, topics='seg.multi', minPartitions=4)
    assert [len(part.value) for part in broker.reader(broker.schema()).partitions()] == [1] * 4


def test_some_columns(fixture_broker):
    for columns in (('offset',), ('topic', 'partition'), ('value_size', 'key_size', 'offset', 'topic', 'partition')):
        found = table(fixture_broker.port, columns, topics='seg.multi', startingOffsets=3)
        assert found.num_rows == 137


@pytest.mark.parametrize('filters', [[('offset', '>=', 77)], [('partition', '=', 1)],
                                     [('topic', '=', 'seg.tx'), ('offset', '<', 5)], [('topic', 'in', ('nobody',))]])
def test_filters(fixture_broker, filters):
    "They narrow what is fetched; what comes is at least what they let pass."
    same(table(fixture_broker.port, filters=filters), of_log(LOGS, filters=filters))


def test_a_time_is_looked_up(fixture_broker):
    "The broker's index says where to begin: nothing before that is fetched."
    broker = source(fixture_broker.port, topics='seg.trimmed', startingTimestamp=1700000050000)
    part, = broker.reader(broker.schema()).partitions()
    (_, _, wanted), = part.value
    assert (wanted.first, wanted.end) == (50, 60)


def test_the_end_is_settled_when_it_is_planned(tmp_path):
    write_log(tmp_path/'logs', metadata_log(orders=1))
    with running(tmp_path, log_retention_ms=-1) as broker, Client(f'127.0.0.1:{broker.port}') as client:
        for number in range(5): send_batch(client, 'orders', 0, message_batch(b'%d' % number))
        asked = source(broker.port)
        reader = asked.reader(asked.schema())
        parts = reader.partitions()
        send_batch(client, 'orders', 0, message_batch(b'late'))
        assert sum(made.num_rows for part in parts for made in reader.read(part)) == 5
        assert table(broker.port).num_rows == 6


# --- Damage -----------------------------------------------------------------------------------------------------------

def test_a_wrong_checksum(tmp_path):
    write_log(tmp_path/'logs', metadata_log(orders=1))
    with running(tmp_path, log_retention_ms=-1) as broker, Client(f'127.0.0.1:{broker.port}') as client:
        for number in range(3): send_batch(client, 'orders', 0, message_batch(b'%d' % number))
        (_, path), = segments(tmp_path/'logs'/'orders-0')
        data = bytearray(open(path, 'rb').read())
        data[scan(bytes(data))[0].position[1] + 65] ^= 1
        with open(path, 'r+b') as file: file.write(data)   # as a disk might
        with pytest.raises(Damaged, match='partition 0 of topic orders, offset 1: the checksum'): table(broker.port)
        assert table(broker.port, onDamage='skip')['offset'].to_pylist() == [0, 2]
        found = table(broker.port, onDamage='quarantine').to_pylist()
        assert [row['damage'] is None for row in found] == [True, False,
                                                            True] and [row['offset'] for row in found] == [0, 1, 2]
        assert table(broker.port, checkCrcs='false').num_rows == 3


# --- Loss -------------------------------------------------------------------------------------------------------------

def test_a_topic_that_is_not_there(fixture_broker):
    with pytest.raises(UnknownTopic, match=r"the cluster at 127.0.0.1:\d+ has no topic 'nobody'"):
        table(fixture_broker.port, topics='nobody')
    with pytest.raises(BadOption, match='nobody-0'):
        table(fixture_broker.port, topics='seg.tx', startingOffsets='{"nobody": {"0": 1}}')


def test_nobody_there():
    port = free_port()
    with pytest.raises(NoBroker, match=f'no broker answers: 127.0.0.1:{port}: Connection refused'): table(port)


def test_the_beginning_goes_between_plan_and_read(tmp_path):
    "Retention, in the worst moment: an error that says what, or what is left."
    write_log(tmp_path/'logs', metadata_log(orders=1))
    with running(tmp_path, internal_segment_bytes=150,
                 log_retention_ms=-1) as broker, Client(f'127.0.0.1:{broker.port}') as client:
        for number in range(6): send_batch(client, 'orders', 0, message_batch(b'%d' % number * 50))
    def reader(port, **given):
        asked = source(port, **given)
        return asked.reader(asked.schema())
    with running(tmp_path, internal_segment_bytes=150, log_retention_ms=-1) as broker:
        parts = reader(broker.port).partitions()
    for base, path in segments(tmp_path/'logs'/'orders-0')[:3]: os.unlink(path)
    with running(tmp_path, internal_segment_bytes=150, log_retention_ms=-1) as broker:
        with pytest.raises(DataLoss,
                           match='partition 0 of topic orders: offset 0 is wanted, but the log begins at 3 now'):
            [made for part in parts for made in reader(broker.port).read(part)]
        easy = reader(broker.port, failOnDataLoss='false')
        assert [offset for part in parts for made in easy.read(part) for offset in made['offset'].to_pylist()] == [3, 4,
            5]


def test_a_batch_that_begins_before_the_log(fixture_broker):
    "Offset 31 is in a batch with 30, which was deleted: it stays so, though the batch comes whole."
    asked = source(fixture_broker.port, topics='seg.trimmed', failOnDataLoss='false')
    reader = asked.reader(asked.schema())
    part, = reader.partitions()
    part.value = [(place, topic_id, Range(5, 60)) for place, topic_id, _ in part.value]
    assert [offset for made in reader.read(part) for offset in made['offset'].to_pylist()] == list(range(31, 60))


def test_the_end_goes_between_plan_and_read(tmp_path):
    write_log(tmp_path/'logs', metadata_log(orders=1))
    with running(tmp_path, log_retention_ms=-1) as broker, Client(f'127.0.0.1:{broker.port}') as client:
        for number in range(6): send_batch(client, 'orders', 0, message_batch(b'%d' % number))
        asked = source(broker.port)
        parts = asked.reader(asked.schema()).partitions()
    (_, path), = segments(tmp_path/'logs'/'orders-0')
    os.truncate(path, int(scan(open(path, 'rb').read())[0].position[4]))
    with running(tmp_path, log_retention_ms=-1) as broker:
        asked = source(broker.port, kafka__request__timeout__ms=300)
        with pytest.raises(DataLoss, match='offset 6 is wanted, but the log ends at 4 now'):
            [made for part in parts for made in asked.reader(asked.schema()).read(part)]
        asked = source(broker.port, kafka__request__timeout__ms=300, failOnDataLoss='false')
        assert [o for part in parts for made in asked.reader(asked.schema()).read(part) for o
                in made['offset'].to_pylist()] == [0, 1, 2, 3]


def test_another_topic_of_the_same_name(tmp_path):
    write_log(tmp_path/'logs', metadata_log(orders=1))
    with running(tmp_path, log_retention_ms=-1) as broker, Client(f'127.0.0.1:{broker.port}') as client:
        send_batch(client, 'orders', 0, message_batch(b'a'))
        asked = source(broker.port)
        reader = asked.reader(asked.schema())
        part, = reader.partitions()
        part.value = [(place, bytes(15) + b'x', wanted) for place, _, wanted in part.value]
        with pytest.raises(DataLoss, match="'orders' was deleted, and there is another one of this name"):
            list(reader.read(part))


# --- Several brokers --------------------------------------------------------------------------------------------------

def test_leaders_on_several_brokers(tmp_path):
    with two_brokers(tmp_path, {0: 1, 1: 2, 2: 2}) as cluster:
        found = table(cluster.ports[1], ('partition', 'offset', 'value'))
        assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == [(number, offset,
            b'%d-%d' % (number, offset)) for number in range(3) for offset in range(6)]


def test_a_broker_goes_down(tmp_path):
    "Partitions that others lead are still read; for those that it led, one sentence after the time that we were given."
    with two_brokers(tmp_path, {0: 1, 1: 2}) as cluster:
        cluster.brokers[2].check_end()
        servers = f'127.0.0.1:{cluster.ports[2]},127.0.0.1:{cluster.ports[1]}'
        given = {'kafka.bootstrap.servers': servers, 'kafka.request.timeout.ms': '700'}
        for partition, works in (('0', True), ('1', False)):
            asked = KafkaBroker({**given, 'partitions': partition})
            reader, begun = asked.reader(asked.schema()), time.monotonic()
            if works: assert sum(made.num_rows for part in reader.partitions() for made in reader.read(part)) == 6
            else:
                with pytest.raises(Unanswered,
                                   match='no answer about partition 1 of orders within 0.7 seconds: .*Connection '
                                         'refused'):
                    reader.partitions()
                assert time.monotonic() - begun < 10


# --- Streams ----------------------------------------------------------------------------------------------------------

class Engine:
    "Spark, as a source sees it."
    def __init__(self, port: int, columns=('topic', 'partition', 'offset', 'value'), **given):
        self.port, self.columns, self.given, self.at, self.rows = port, columns, given, None, []
        self.restart()

    def restart(self):
        asked = source(self.port, **self.given)
        self.reader = asked.streamReader(schema_of(asked, self.columns))
        if self.at is None: self.at = self.reader.initialOffset()
        return self

    def read(self, start, end):
        return [tuple(row.values()) for part in self.reader.partitions(start,
            end) for made in self.reader.read(part) for row in made.to_pylist()]

    def trigger(self) -> list:
        end = self.reader.latestOffset(json.loads(json.dumps(self.at)), self.reader.getDefaultReadLimit())
        found = self.read(self.at, end) if end != self.at else []
        self.at = end
        self.rows += found
        return found


def test_a_stream_of_every_fixture(fixture_broker):
    engine = Engine(fixture_broker.port, startingOffsets='earliest', maxOffsetsPerTrigger=100)
    while engine.restart().trigger(): pass
    wanted = of_log(LOGS, ('topic', 'partition', 'offset', 'value')).to_pylist()
    assert sorted(engine.rows, key=lambda row: row[:3]) == sorted((tuple(row.values()) for row in wanted),
                                                                  key=lambda row: row[:3])


def test_a_stream_of_decided_records(fixture_broker):
    engine = Engine(fixture_broker.port, startingOffsets='earliest', isolationLevel='read_committed',
                    maxOffsetsPerTrigger=40)
    for _ in range(20): engine.trigger()
    assert len(engine.rows) == of_log(LOGS, isolationLevel='read_committed').num_rows
    assert engine.at['seg.tx'] == {'0': 17, '1': 4}


@pytest.mark.parametrize('given, first', [({}, 3), ({'startingOffsets': 'earliest'}, 0),
                                          ({'startingOffsets': '{"orders": {"0": 2}}'}, 2),
                                          ({'startingTimestamp': '1726045973900'}, 3), ({'startingTimestamp': '5'}, 0)])
def test_where_a_stream_begins(tmp_path, given, first):
    "At the end, if nobody says otherwise: as with Spark's connector."
    write_log(tmp_path/'logs', metadata_log(orders=1))
    with running(tmp_path, log_retention_ms=-1) as broker, Client(f'127.0.0.1:{broker.port}') as client:
        for number in range(3): send_batch(client, 'orders', 0, message_batch(b'%d' % number))
        assert Engine(broker.port, **given).at == {'orders': {'0': first}}


def test_a_stream_goes_on(tmp_path):
    "New records, a new topic, a stop in order, available now."
    path = write_log(tmp_path/'logs', metadata_log(orders=2))
    with running(tmp_path, log_retention_ms=-1) as broker, Client(f'127.0.0.1:{broker.port}') as client:
        engine = Engine(broker.port, startingOffsets='earliest', maxOffsetsPerTrigger=4)
        assert engine.trigger() == []
        for number in range(3): send_batch(client, 'orders', 0, message_batch(b'a', b'b'))
        send_batch(client, 'orders', 1, message_batch(b'c'))
        assert engine.reader.latestOffset(engine.at, engine.reader.getDefaultReadLimit()) == {'orders': {'0': 3,
            '1': 1}}
        engine.restart().reader.prepareForTriggerAvailableNow()
        send_batch(client, 'orders', 1, message_batch(b'late'))
        with open(path, 'ab') as file: file.write(topic_batch(4, 'new', 1))
        wait_until(lambda: refresh_metadata(client, ['new'])['new'].error_code == 0, 'the topic')
        send_batch(client, 'new', 0, message_batch(b'newer'))
        while engine.trigger(): pass
        assert sorted(engine.rows) == [('orders', 0, offset,
                                        b'ab'[offset % 2:offset % 2 + 1]) for offset in range(6)] + [('orders', 1, 0,
                                            b'c')]
        engine.restart()
        assert sorted(engine.trigger()) == [('new', 0, 0, b'newer'), ('orders', 1, 1, b'late')]


def test_a_stream_and_a_loss(tmp_path):
    write_log(tmp_path/'logs', metadata_log(orders=1))
    with running(tmp_path, log_retention_ms=-1) as broker, Client(f'127.0.0.1:{broker.port}') as client:
        for number in range(3): send_batch(client, 'orders', 0, message_batch(b'%d' % number))
        for at, said in (({'orders': {'0': 9}}, 'offset 9 is wanted, but the log ends at 3 now'),
                         ({'orders': {'0': 1}, 'gone': {'0': 5}},
                          'topic gone: offset 5 is wanted, but there is no such log')):
            strict, easy = Engine(broker.port), Engine(broker.port, failOnDataLoss='false')
            strict.at = easy.at = at
            with pytest.raises(DataLoss, match=said): strict.trigger()
            easy.trigger()
            assert easy.at == {'orders': {'0': 3}}


def test_a_topic_made_again_under_a_stream(fixture_broker, monkeypatch):
    "By its offsets alone all would be well: it is longer than we have read. Its id tells."
    place, now = ('seg.tx', 0), {'id': b'a' * 16, 'end': 5}
    monkeypatch.setattr(broker_source, 'wanted_places', lambda *_, **__: {place: now['id']})
    monkeypatch.setattr(broker_source, 'find_held', lambda *_: {place: Held(0, now['end'])})
    strict, lenient = (Engine(fixture_broker.port, startingOffsets='earliest',
                              failOnDataLoss=fail).reader for fail in ('true', 'false'))
    latest = lambda reader, offset: reader.latestOffset({'seg.tx': {'0': offset}},
                                                        reader.getDefaultReadLimit())['seg.tx']['0']
    for reader in (strict, lenient): assert latest(reader, 0) == 5
    now.update(id=b'b' * 16, end=9)
    # what was planned is read from the one we meant, or not at all
    assert plan_in_cluster(strict, {place: 0}, {place: 5})[0][0][1] == b'a' * 16
    with pytest.raises(DataLoss, match='offset 5 is wanted, but the log was cut off at 0'): latest(strict, 5)
    assert latest(lenient, 5) == 0 and latest(lenient, 0) == 9   # back to the beginning, and on


@pytest.mark.parametrize('must_exist', [True, False])
def test_a_topic_that_may_not_be_read(must_exist):
    "An error about a topic is not an empty topic."
    topic = SimpleNamespace(name='secret', error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partitions=[],
                            topic_id=bytes(16))
    client = Client('nowhere:1')
    client.ask = lambda *_: (SimpleNamespace(brokers=[], topics=[topic]), 13)
    with pytest.raises(Unanswered, match="TOPIC_AUTHORIZATION_FAILED of the topic 'secret'"):
        wanted_places(client, read_options({}), must_exist)


def test_a_stream_of_nobody(fixture_broker):
    with pytest.raises(UnknownTopic, match="has no topic 'nobody'"): Engine(fixture_broker.port, topics='nobody')
    with pytest.raises(BadOption, match='a stream has no end'): Engine(fixture_broker.port, endingOffsets=5)


# --- Spark ------------------------------------------------------------------------------------------------------------

def registered(spark):
    from kafka_scratch.spark.session import register
    register(spark).dataSource.register(KafkaBroker)
    return spark


def test_spark_reads_a_broker(spark, fixture_broker):
    frame = registered(spark).read.format('kafka-broker').option('kafka.bootstrap.servers',
                                                                 f'127.0.0.1:{fixture_broker.port}').load()
    assert frame.where("topic = 'seg.multi' and offset >= 100").count() == 40
    ours = {(row.topic, row.partition, row.offset, row.timestamp,
             row.value) for row in frame.where('topic like "seg%"').collect()}
    log = spark.read.format('kafka-log').load(str(LOGS))
    theirs = {(row.topic, row.partition, row.offset, row.timestamp, row.value) for row in log.collect()}
    assert ours == theirs and len(ours) == 392


def test_spark_queries_of_one_table_keep_their_filters_apart(spark, fixture_broker):
    "Spark 4.2.0 mixes them up if it is told of them, so it isn't."
    frame = registered(spark).read.format('kafka-broker').option('kafka.bootstrap.servers',
                                                                 f'127.0.0.1:{fixture_broker.port}').load()
    multi, tx = frame.where("topic = 'seg.multi'"), frame.where("topic = 'seg.tx' and partition = 0")
    assert multi.count() == 140
    assert (frame.count(), multi.union(tx).count()) == (392, 140 + tx.count())


def test_spark_follows_a_broker(spark, tmp_path):
    "Every record once, though the query is stopped and started again."
    write_log(tmp_path/'logs', metadata_log(orders=2))
    with running(tmp_path, log_retention_ms=-1) as broker, Client(f'127.0.0.1:{broker.port}') as client:
        for turn in range(2):
            for number in range(10):
                send_batch(client, 'orders', number % 2, message_batch(b'%d-%d' % (turn, number), b'x'))
            stream = registered(spark).readStream.format('kafka-broker').option('bootstrap.servers',
                f'127.0.0.1:{broker.port}')
            stream = stream.option('startingOffsets', 'earliest').option('maxOffsetsPerTrigger', 7).option('subscribe',
                'orders').load().select('partition', 'offset')
            query = stream.writeStream.format('parquet').option('path',
                                                                str(tmp_path/'rows')).option('checkpointLocation',
                                                                    str(tmp_path/'checkpoint'))
            assert query.trigger(availableNow=True).start().awaitTermination(300)
        rows = sorted((row.partition, row.offset) for row in spark.read.parquet(str(tmp_path/'rows')).collect())
        assert rows == [(number, offset) for number in range(2) for offset in range(20)]


def test_spark_says_it_in_a_sentence(spark, fixture_broker):
    reader = registered(spark).read.format('kafka-broker').option('kafka.bootstrap.servers',
                                                                  f'127.0.0.1:{fixture_broker.port}').option('subscribe', 'nobody')  # noqa: E501
    with pytest.raises(Exception) as error: reader.load().count()
    assert "has no topic 'nobody'" in str(error.value) and 'Traceback' not in str(error.value)


# --- Apache Kafka -----------------------------------------------------------------------------------------------------

@needs_kafka
def test_apache_kafka_gives_the_same_rows_as_its_files(tmp_path):
    """Records of every codec, transactions among them; from the broker while it runs, and from its log directory after
    it has stopped."""
    from kafka_scratch.log.compression import compress
    shutil.copytree(LOGS, tmp_path/'kafka'/'logs')
    kafka = real_kafka.RealKafka(tmp_path/'kafka', {'log.retention.ms': -1, 'log.cleaner.enable': 'false',
                                                    'offsets.topic.num.partitions': 1,
                                                    'transaction.state.log.num.partitions': 1})
    with kafka:
        with Client(f'127.0.0.1:{kafka.port}', 60) as client:
            for codec in range(5):
                batch = record_batch([record(b'codec %d, %d' % (codec, i), offset_delta=i) for i in range(4)],
                                     attributes=codec, pack=lambda data: compress(codec, data))
                assert send_batch(client, 'seg-empty', 0, batch) == 4 * codec
        topics = ','.join(sorted({path.name.rpartition('-')[0] for path in LOGS.glob('seg*')}))
        found = table(kafka.port, topics=topics)
        committed = table(kafka.port, topics=topics, isolationLevel='read_committed')
        small = table(kafka.port, topics='seg.multi,seg.tx,seg.compacted,seg.big', fetchSize=1, minPartitions=13)
    assert same(found, of_log(kafka.log_dir, topics=topics)) >= 412
    same(committed, of_log(kafka.log_dir, topics=topics, isolationLevel='read_committed'))
    same(small, of_log(kafka.log_dir, topics='seg.multi,seg.tx,seg.compacted,seg.big'))
