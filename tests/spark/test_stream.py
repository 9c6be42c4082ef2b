"""A live log, followed: bookkeeping, the end of a log and what may happen to it, and queries that are stopped, killed
and started again.

Most of this needs no Java: the reader is driven as Spark drives it, by `Engine` below.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from size import budget, long, spark_absent
if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from broker_process import FIXTURES, ROOT, environment, running, wait_until
from by_hand import metadata_log, topic_batch, write_log
from log_by_hand import message_batch, produce, record, record_batch

from kafka_scratch.log.reader import BadPath, Damaged, chosen_sources, partition_records
from kafka_scratch.log.partition import LogConfig, append, roll
from kafka_scratch.log.retention import move_start, remove_segments
from kafka_scratch.log.recovery import close_log, open_log
from kafka_scratch.log.records import CONTROL, HEADER, TRANSACTIONAL
from kafka_scratch.log.segments import File
from kafka_scratch.log.checkpoints import write_checkpoint
from kafka_scratch.spark.options import BadOption, Options, table_schema
from kafka_scratch.spark.positions import DataLoss, Held, begin_at, find_loss, from_json, share, to_json
from kafka_scratch.spark.read import read_split, read_table
from kafka_scratch.spark.stream import LogStreamReader, plan_range, still_there, stream_options
from kafka_scratch.spark.tail import FollowedLog, after_batch, after_bytes, find_batch, hops, look, range_bytes

LOGS = FIXTURES/'segments'/'logs'
NOW = 1_726_045_973_899


# --- Logs that we write -----------------------------------------------------------------------------------------------

def add(log, *values: bytes, **header) -> int:
    "Appends a batch, as a broker does."
    batch = bytearray(message_batch(*values, **header))
    return append(log, batch, HEADER.read(batch, 0)[0], 0, NOW)


def add_marker(log, producer_id: int, commit: bool) -> int:
    batch = bytearray(record_batch([record(b'\0\0\0\0\0\1', key=b'\0\0\0\1' if commit else b'\0\0\0\0')],
                                   attributes=TRANSACTIONAL | CONTROL,
                                   producer_id=producer_id, producer_epoch=0))
    return append(log, batch, HEADER.read(batch, 0)[0], 0, NOW)


def reopened(log):
    "What a broker makes of the log when it starts again after a crash."
    return open_log(log.directory, log.config, NOW, clean=False)


def values_in(followed: FollowedLog, start: int, end: int, options=Options()) -> list:
    "Offset and value of the records in a range, read as a task reads them."
    rows = []
    for split in plan_range(followed, ('orders', 0), start, end, options):
        for made in read_split(split, options, ['offset', 'value']):
            rows += zip(made['offset'].to_pylist(), made['value'].to_pylist())
    return rows


class Engine:
    "Spark, as a source sees it: asks how far it goes, reads that, remembers. `restart` forgets all but the bookmark."
    def __init__(self, path, columns=('topic', 'partition', 'offset', 'value'), **options):
        self.path, self.given, self.rows, self.at = str(path), options, [], None
        self.columns = columns
        self.restart()

    def restart(self):
        options = stream_options(self.given).options
        schema = from_arrow_schema(table_schema(options))
        schema = type(schema)([field for field in schema.fields if field.name
                               in self.columns]) if self.columns else schema
        self.reader = LogStreamReader(self.path, self.given, schema)
        if self.at is None: self.at = self.reader.initialOffset()
        return self

    def planned(self, limit=None) -> dict:
        return self.reader.latestOffset(json.loads(json.dumps(self.at)), limit or self.reader.getDefaultReadLimit())

    def read(self, start: dict, end: dict) -> list:
        found = []
        for partition in self.reader.partitions(start, end):
            for made in self.reader.read(partition): found += [tuple(row.values()) for row in made.to_pylist()]
        return found

    def trigger(self, limit=None) -> list:
        "One micro-batch: its rows, which are also kept."
        end = self.planned(limit)
        found = self.read(self.at, end) if end != self.at else []
        self.at = end
        self.reader.commit(end)
        self.rows += found
        return found

    def available_now(self) -> list:
        self.restart()
        self.reader.prepareForTriggerAvailableNow()
        before = len(self.rows)
        for _ in range(1000):
            at = self.at
            self.trigger()
            if self.at == at: return self.rows[before:]
        raise AssertionError('it never ends')


@pytest.fixture
def log(tmp_path): return open_log(str(tmp_path/'orders-0'), LogConfig(segment_bytes=400))


# --- Bookkeeping ------------------------------------------------------------------------------------------------------

PLACES = st.tuples(st.text('abc.', min_size=1, max_size=3), st.integers(0, 20))


@given(st.dictionaries(PLACES, st.integers(0, 2**62)))
def test_bookmarks(offsets):
    shuffled = dict(random.sample(list(offsets.items()), len(offsets)))
    assert json.dumps(to_json(offsets)) == json.dumps(to_json(shuffled))
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


@given(st.integers(1, 10**6), st.dictionaries(st.integers(0, 50), st.integers(0, 2**40)))
def test_shares(limit, lags):
    parts = share(limit, lags)
    assert parts.keys() == lags.keys()
    assert all(parts[place] <= lag and (parts[place] > 0) == (lag > 0) for place, lag in lags.items())
    assert sum(parts.values()) <= limit + sum(lag > 0 for lag in lags.values())
    if sum(lags.values()) <= limit: assert parts == lags


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.none() | st.integers(0, 100))
def test_where_to_go_on(wanted, first, size, cut):
    place, held = ('orders', 3), Held(first, first + size, cut)
    begin = begin_at({place: wanted}, {place: held}, fail=False)[place]
    loss = find_loss(place, wanted, held)
    if loss is None: assert begin == wanted and begin_at({place: wanted}, {place: held}) == {place: wanted}
    else:
        assert 'partition 3 of topic orders' in loss and f'offset {wanted} ' in loss
        with pytest.raises(DataLoss): begin_at({place: wanted}, {place: held})
    assert begin <= held.end


def test_the_sentences_name_what_is_there():
    assert 'begins at 7 now' in find_loss(('a', 0), 5, Held(7, 9))
    assert 'ends at 9 now' in find_loss(('a', 0), 12, Held(7, 9))
    assert 'no such log' in find_loss(('a', 0), 12, None)
    assert 'cut off at 3' in find_loss(('a', 0), 12, Held(0, 20, 3))


@pytest.mark.parametrize('given, said', [
    ({'maxOffsetsPerTrigger': '0'}, 'maxOffsetsPerTrigger is a number'),
    ({'maxBytesPerTrigger': 'x'}, 'maxBytesPerTrigger is a number of bytes'),
    ({'failOnDataLoss': 'perhaps'}, 'failOnDataLoss is true or false'),
    ({'maxBytesPerTrigger': '1', 'maxOffsetsPerTrigger': '1'}, 'one of them'),
    ({'endingOffsets': '7'}, 'a stream has no end'), ({'endingTimestamp': '7'}, 'a stream has no end'),
    ({'table': 'brokers'}, "brokers can't be followed"),
    ({'deleted': 'true'}, 'deleted is for tables'), ({'table': 'nothing'}, 'table is one of')])
def test_options_that_are_refused(given, said):
    with pytest.raises(BadOption) as error: stream_options(given)
    assert said in str(error.value) and '\n' not in str(error.value)


def test_options_in_any_case():
    following = stream_options({'MAXOFFSETSPERTRIGGER': '5', 'failondataloss': 'False', 'Topics': 'a,b'})
    assert (following.most_offsets, following.fail_on_data_loss, following.options.topics) == (5, False, ('a', 'b'))


# --- The end of a log -------------------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.sampled_from(['add', 'add', 'add', 'half', 'roll', 'retain', 'cut', 'look', 'look',
                                            'start']), st.integers(0, 2**16)), max_size=25)


@budget(100)
@given(STEPS)
def test_a_followed_log_is_what_there_is(tmp_path_factory, steps):
    """Whatever happens to a log between two looks, the next look tells the truth; and a range of offsets has the
    records that are there now."""
    log = open_log(str(tmp_path_factory.mktemp('log')/'orders-0'), LogConfig(segment_bytes=500))
    followed, there, start = FollowedLog(log.directory), {}, 0
    for step, number in steps:
        if step == 'add':
            values = [b'%d-%d' % (number, i) * (1 + number % 9) for i in range(1 + number % 4)]
            first = add(log, *values)
            there |= {first + i: value for i, value in enumerate(values)}
        if step == 'half':
            with open(log.active.path, 'ab') as file:
                file.write(message_batch(b'never', base_offset=log.end_offset)[:1 + number % 70])
            assert look(followed, start) == (held := Held(log.start_offset, log.end_offset, followed.cut)), held
            os.truncate(log.active.path, log.active.size)
        if step == 'roll' and log.active.size: roll(log, NOW)
        if step == 'retain': remove_segments(log, number % len(log.segments))
        if step == 'start':
            move_start(log, log.start_offset + number % (log.end_offset - log.start_offset + 1))
            start = log.start_offset
        if step == 'cut' and log.active.size:
            last = find_last_batch(log)
            os.truncate(log.active.path, last)
            log = open_log(log.directory, log.config, NOW, clean=False, start_offset=log.start_offset)
        if step in ('look', 'half'):
            held = look(followed, start)
            assert (held.first, held.end) == (log.start_offset, log.end_offset)
            there = {offset: value for offset, value in there.items() if log.start_offset <= offset < log.end_offset}
            a, b = sorted((held.first + number % (held.end - held.first + 1),
                           held.first + number // 7 % (held.end - held.first + 1)))
            assert values_in(followed, a, b) == [(o, v) for o, v in sorted(there.items()) if a <= o < b]
    assert look(followed, start)[:2] == look(FollowedLog(log.directory), start)[:2]


def find_last_batch(log) -> int:
    positions = [placed.position for placed in stream_batches(log)]
    return positions[-1]


def stream_batches(log):
    from kafka_scratch.log.segments import placed_batches
    return list(placed_batches(File(log.active.path), 0, log.active.size))


@budget(60)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(['add', 'add', 'commit', 'abort', 'plain', 'look'])),
                max_size=30))
def test_a_followed_log_of_decided_records(tmp_path_factory, steps):
    "It ends where the log isn't decided any more, and has what a consumer of decided records gets."
    log = open_log(str(tmp_path_factory.mktemp('log')/'orders-0'), LogConfig(segment_bytes=600))
    followed, options, seen, at = FollowedLog(log.directory, committed=True), Options(committed=True), [], 0
    sequences = {}
    for producer, step in steps:
        if step == 'add':
            add(log, b'%d' % producer, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0,
                base_sequence=sequences.get(producer, 0))
            sequences[producer] = sequences.get(producer, 0) + 1
        if step in ('commit', 'abort') and producer in log.producers.open: add_marker(log, producer, step == 'commit')
        if step == 'plain': add(log, b'plain')
        if step == 'look':
            held = look(followed)
            assert held == Held(0, log.stable_offset)
            seen += [offset for offset, _ in values_in(followed, at, held.end, options)]
            at = held.end
    end = look(followed).end
    seen += [offset for offset, _ in values_in(followed, at, end, options)]
    source, = chosen_sources(log.directory)
    assert seen == [r.offset for batch, records in partition_records(source, committed=True) for r in records]


def test_looking_again_is_cheap(log, monkeypatch):
    "A look reads what is new, and no more than a header of what it has seen."
    for number in range(200): add(log, b'x' * 50)
    followed, read = FollowedLog(log.directory), []
    look(followed)
    real = File.read
    monkeypatch.setattr(File, 'read', lambda self, position, size: read.append(size) or real(self, position, size))
    look(followed)
    assert sum(read) <= 61
    read.clear()
    add(log, b'new')
    look(followed)
    assert sum(read) < 600
    read.clear()
    find_batch(followed, log.end_offset - 1)
    find_batch(followed, log.end_offset)   # where the next range begins
    read.clear()
    find_batch(followed, log.end_offset)
    assert sum(read) == 0


def test_a_large_log_is_entered_by_its_index(log, monkeypatch):
    log.config = LogConfig(index_interval_bytes=100)
    log.active.index_interval = 100
    for number in range(500): add(log, b'x' * 50)
    close_log(log)
    read, real = [], File.read
    monkeypatch.setattr(File, 'read', lambda self, position, size: read.append(size) or real(self, position, size))
    assert look(FollowedLog(log.directory)).end == 500
    assert sum(read) < 3000 < log.active.size


def test_zeros_are_waited_for_and_garbage_is_not(log):
    add(log, b'one')
    followed = FollowedLog(log.directory)
    with open(log.active.path, 'ab') as file: file.write(bytes(200))
    assert look(followed) == Held(0, 1) and followed.damage is None
    os.truncate(log.active.path, log.active.size)
    add(log, b'two')
    assert look(followed) == Held(0, 2)
    with open(log.active.path, 'ab') as file: file.write(b'garbage, and rather a lot of it' * 3)
    assert look(followed) == Held(0, 2) and 'byte' in followed.damage


def test_an_offset_out_of_place_is_damage(log):
    "No checksum covers it; if we believed it, the stream would never read a record again."
    add(log, b'one')
    with open(log.active.path, 'ab') as file: file.write(message_batch(b'two', base_offset=2**60))
    followed = FollowedLog(log.directory)
    assert look(followed) == Held(0, 1) and 'no place' in followed.damage


def test_a_compacted_segment_is_no_loss(log):
    for number in range(12): add(log, b'%d' % number * 20)
    followed = FollowedLog(log.directory)
    assert look(followed) == Held(0, 12)
    found = plan_range(followed, ('orders', 0), 1, 3, Options())
    first = Path(log.segments[0].path)
    kept = first.read_bytes()[find_batch(followed, 1).position:]   # what compaction leaves: without the first batch
    first.with_suffix('.swap').write_bytes(kept)
    os.replace(first.with_suffix('.swap'), first)
    assert look(followed) == Held(0, 12)
    assert values_in(followed, 0, 3) == [(1, b'1' * 20), (2, b'2' * 20)]
    rows = []
    for split, inode in found.items():   # planned before, read after
        for each in still_there(split, inode, Options()):
            for made in read_split(each, Options(), ['offset']): rows += made['offset'].to_pylist()
    assert rows == [1, 2]


@pytest.mark.parametrize('split_size', ['1', '128m'])
def test_compaction_makes_one_segment_of_two(log, tmp_path, split_size):
    "Planned before it, read after it: every record once, though the first segment has those of the second now."
    for number in range(12): add(log, b'%d' % number * 20)
    engine = Engine(tmp_path, splitSize=split_size)
    planned = engine.reader.partitions(engine.at, engine.planned())
    first, second = (Path(segment.path) for segment in log.segments[:2])
    first.with_suffix('.swap').write_bytes(first.read_bytes() + second.read_bytes())
    os.replace(first.with_suffix('.swap'), first)
    os.rename(second, f'{second}.deleted')
    offsets = [row['offset'] for part in planned for made in engine.reader.read(part) for row in made.to_pylist()]
    assert sorted(offsets) == list(range(12))


def test_a_deleted_segment_can_be_read_for_a_while(log):
    for number in range(12): add(log, b'%d' % number * 20)
    followed = FollowedLog(log.directory)
    look(followed)
    (split, inode), *_ = plan_range(followed, ('orders', 0), 1, 3, Options()).items()
    os.rename(split.path, split.path + '.deleted')
    each, = still_there(split, inode, Options())
    assert [o for made in read_split(each, Options(), ['offset']) for o in made['offset'].to_pylist()] == [1, 2]
    os.unlink(split.path + '.deleted')
    assert still_there(split, inode, Options()) is None


def test_portions_by_bytes(log):
    for number in range(40): add(log, b'x' * (number * 7 % 90))
    followed = FollowedLog(log.directory)
    look(followed)
    for budget in (1, 150, 400, 1000, 1 << 20):
        at, ends = 0, []
        while at < 40:
            end = after_bytes(followed, at, 40, budget)
            size = sum(b - a for _, _, a, b in range_bytes(followed, at, end))
            assert end > at and (size <= budget or end == at + 1)
            at = end
            ends.append(end)
        assert ends[-1] == 40


def test_batches_are_not_cut_in_two(log):
    for number in range(5): add(log, b'a', b'b', b'c')
    followed = FollowedLog(log.directory)
    look(followed)
    assert [after_batch(followed, offset) for offset in (0, 1, 2, 3, 4, 15)] == [0, 3, 3, 3, 6, 15]


# --- The reader, driven as Spark drives it ----------------------------------------------------------------------------

def test_every_fixture_row_once(tmp_path):
    "In portions of seven, restarted each time: what a consumer gets, and the markers."
    engine = Engine(LOGS, maxOffsetsPerTrigger='7')
    while engine.restart().planned() != engine.at: engine.trigger()
    wanted = [(source.topic, source.partition, r.offset, r.value) for source in chosen_sources(str(LOGS)) for _,
              records in partition_records(source) for r in records]
    assert sorted(engine.rows) == sorted(wanted) and len(wanted) > 381


@pytest.mark.parametrize('limit', [{}, {'maxOffsetsPerTrigger': '9'}, {'maxBytesPerTrigger': '700'}])
def test_decided_rows_once(limit):
    engine = Engine(LOGS, isolationLevel='read_committed', **limit)
    for _ in range(200): engine.trigger()
    told = json.load(open(FIXTURES/'segments'/'records-read-committed.json'))
    for name, each in told.items():
        topic, _, number = name.rpartition('-')
        assert [o for t, p, o, _ in engine.rows if (t, p) == (topic, int(number))] == each['offsets'], name
        assert engine.at[topic][number] == max(each['endOffset'], 31 if topic == 'seg.trimmed' else 0), name


def test_new_partitions_and_topics(tmp_path):
    one = open_log(str(tmp_path/'orders-0'))
    add(one, b'a')
    engine = Engine(tmp_path)
    assert engine.trigger() == [('orders', 0, 0, b'a')]
    add(open_log(str(tmp_path/'orders-1')), b'b')
    add(open_log(str(tmp_path/'audit-0')), b'c')
    assert sorted(engine.trigger()) == [('audit', 0, 0, b'c'), ('orders', 1, 0, b'b')]
    assert engine.at == {'audit': {'0': 1}, 'orders': {'0': 1, '1': 1}}
    assert engine.trigger() == []


def test_only_what_is_asked_for(tmp_path):
    for name in ('orders-0', 'orders-1', 'audit-0', '__consumer_offsets-0'):
        add(open_log(str(tmp_path/name)), name.encode())
    assert [row[3] for row in sorted(Engine(tmp_path).trigger())] == [b'audit-0', b'orders-0', b'orders-1']
    assert [row[3] for row in Engine(tmp_path, topics='orders', partitions='1').trigger()] == [b'orders-1']
    assert [row[3] for row in Engine(tmp_path, topicPattern='a.*').trigger()] == [b'audit-0']
    assert [row[3] for row in Engine(tmp_path, topics='__consumer_offsets').trigger()] == [b'__consumer_offsets-0']
    assert [row[3] for row in Engine(tmp_path/'orders-1').trigger()] == [b'orders-1']
    later = Engine(tmp_path, topics='later')
    assert later.trigger() == []
    add(open_log(str(tmp_path/'later-0')), b'here')
    assert [row[3] for row in later.trigger()] == [b'here']


@pytest.mark.parametrize('offsets, first', [('earliest', 0), ('latest', 3), ('2', 2), ('{"orders": {"0": 1}}', 1),
                                            ('{"orders": {"0": -1}}', 3), ('{"other": {"0": 1}}', 0)])
def test_where_a_query_begins(log, offsets, first):
    for value in (b'a', b'b', b'c'): add(log, value)
    engine = Engine(Path(log.directory).parent, startingOffsets=offsets)
    assert engine.at == {'orders': {'0': first}}
    add(log, b'd')
    assert [row[2] for row in engine.trigger()] == list(range(first, 4))


def test_limits(log):
    for number in range(20): add(log, b'%d' % number)
    engine = Engine(Path(log.directory).parent)
    assert len(engine.trigger(ReadMaxRows(7))) == 7 and len(engine.trigger(ReadMaxRows(7))) == 7
    assert len(engine.trigger(ReadMaxBytes(1))) == 1
    assert len(engine.trigger(ReadAllAvailable())) == 5
    assert engine.trigger(ReadMaxBytes(1)) == engine.trigger(ReadMaxRows(1)) == []
    assert engine.reader.getDefaultReadLimit() == ReadAllAvailable()
    assert Engine(LOGS, maxOffsetsPerTrigger='5').reader.getDefaultReadLimit() == ReadMaxRows(5)
    assert Engine(LOGS, maxBytesPerTrigger='5k').reader.getDefaultReadLimit() == ReadMaxBytes(5120)


def test_available_now_means_now(log, tmp_path):
    "What comes later, in a partition that is there or in a new one, is left for later. And it ends."
    for number in range(10): add(log, b'%d' % number)
    engine = Engine(tmp_path, maxOffsetsPerTrigger='3')
    engine.reader.prepareForTriggerAvailableNow()
    engine.trigger()
    add(log, b'late')
    add(open_log(str(tmp_path/'new-0')), b'later')
    for _ in range(5): engine.trigger()
    assert [row[2] for row in engine.rows] == list(range(10)) and engine.planned() == engine.at == {'orders': {'0': 10}}
    assert sorted(row[3] for row in engine.available_now()) == [b'late', b'later']


def test_the_same_range_is_the_same_rows(log, tmp_path):
    "A range that was planned before a kill is read after it: by another process, from more segments."
    for number in range(10): add(log, b'%d' % number)
    engine = Engine(tmp_path)
    end = engine.planned(ReadMaxRows(6))
    before = engine.read(engine.at, end)
    for number in range(10): add(log, b'more')
    assert engine.restart().read(engine.at, end) == before and len(before) == 6


def test_batches_as_a_stream(log, tmp_path):
    for number in range(9): add(log, b'a', b'b', b'c')
    engine = Engine(tmp_path, columns=('base_offset', 'record_count'), table='batches', maxOffsetsPerTrigger='4')
    while engine.restart().planned() != engine.at: engine.trigger()
    assert engine.rows == [(offset, 3) for offset in range(0, 27, 3)]


def test_metadata_as_a_stream(tmp_path):
    "A topic is made while we watch."
    pytest.importorskip('kafka_scratch.spark.metadata_records')
    path = write_log(tmp_path, metadata_log(foo=2))
    engine = Engine(tmp_path, columns=('offset', 'type', 'name'), table='metadata_records')
    first = engine.trigger()
    assert [row[1] for row in first] == ['FeatureLevelRecord', 'TopicRecord', 'PartitionRecord', 'PartitionRecord']
    with open(path, 'ab') as file: file.write(topic_batch(4, 'bar', 1))
    assert [(row[1], row[2]) for row in engine.trigger()] == [('TopicRecord', 'bar'), ('PartitionRecord', None)]


def test_paths_that_are_refused(tmp_path, log):
    add(log, b'a')
    with pytest.raises(BadPath, match='is no directory'): Engine(tmp_path/'nowhere')
    with pytest.raises(BadPath, match='is no directory'): Engine(log.active.path)
    shutil.copytree(log.directory, tmp_path/'orders')
    with pytest.raises(BadPath, match="isn't that of a partition"): Engine(tmp_path/'orders')


# --- Loss -------------------------------------------------------------------------------------------------------------

def lossy(tmp_path, **options): return Engine(tmp_path, failOnDataLoss='false', **options)


def test_the_beginning_is_gone(log, tmp_path):
    for number in range(20): add(log, b'%d' % number * 20)
    strict, easy = Engine(tmp_path), lossy(tmp_path)
    for engine in (strict, easy): engine.trigger(ReadMaxRows(3))
    end = easy.planned(ReadMaxRows(10))
    remove_segments(log, 2)
    assert log.start_offset > 3
    with pytest.raises(DataLoss, match=f'offset 3 is wanted, but the log begins at {log.start_offset} now'):
        strict.trigger()
    # the same after a restart, in the middle of a range
    with pytest.raises(DataLoss, match='begins at'): strict.restart().read(strict.at, end)
    assert [row[2] for row in easy.restart().read(easy.at, end)] == list(range(log.start_offset,
        from_json(end)['orders', 0]))
    assert [row[2] for row in easy.trigger()] == list(range(log.start_offset, 20))
    assert [row[2] for row in easy.trigger()] == []


def test_the_start_has_moved(log, tmp_path):
    "DeleteRecords: the segment is still there, the checkpoint says that its first records are not."
    for number in range(8): add(log, b'%d' % number)
    strict, easy = Engine(tmp_path), lossy(tmp_path)
    for engine in (strict, easy): engine.trigger(ReadMaxRows(2))
    write_checkpoint(str(tmp_path/'log-start-offset-checkpoint'), [('orders', 0, 5)])
    with pytest.raises(DataLoss, match='begins at 5'): strict.trigger()
    assert [row[2] for row in easy.trigger()] == [5, 6, 7]
    assert Engine(tmp_path).at == {'orders': {'0': 5}}


def test_the_end_is_gone(log, tmp_path):
    log.config = LogConfig()
    for number in range(6): add(log, b'%d' % number)
    strict, easy = Engine(tmp_path), lossy(tmp_path)
    for engine in (strict, easy): engine.trigger()
    for _ in range(2):
        os.truncate(log.active.path, find_last_batch(log))
        log = reopened(log)
    assert log.end_offset == 4
    with pytest.raises(DataLoss, match='offset 6 is wanted, but the log ends at 4 now'): strict.trigger()
    with pytest.raises(DataLoss, match='ends at 4'): strict.restart().trigger()
    assert easy.trigger() == [] and easy.at == {'orders': {'0': 4}}   # first back
    add(log, b'new')
    assert easy.trigger() == [('orders', 0, 4, b'new')]               # then on


def test_the_end_is_gone_and_has_grown_again(log, tmp_path):
    log.config = LogConfig()
    for number in range(6): add(log, b'%d' % number)
    strict, easy = Engine(tmp_path), lossy(tmp_path)
    for engine in (strict, easy): engine.trigger()
    os.truncate(log.active.path, find_last_batch(log))
    log = reopened(log)
    for number in range(9): add(log, b'new')
    with pytest.raises(DataLoss, match='offset 6 is wanted, but the log was cut off at 5'): strict.trigger()
    easy.trigger(), easy.trigger()
    assert easy.rows[6:] == [('orders', 0, offset, b'new') for offset in range(5, 14)]
    add(log, b'newer')
    assert easy.trigger() == [('orders', 0, 14, b'newer')]


def test_a_cut_ahead_of_us_is_no_loss(log, tmp_path):
    log.config = LogConfig()
    for number in range(6): add(log, b'%d' % number)
    engine = Engine(tmp_path)
    engine.trigger(ReadMaxRows(2))
    os.truncate(log.active.path, find_last_batch(log))
    log = reopened(log)
    for number in range(3): add(log, b'new')
    engine.trigger(ReadMaxRows(1))
    while engine.planned() != engine.at: engine.trigger(ReadMaxRows(1))
    assert [row[3] for row in engine.rows] == [b'0', b'1', b'2', b'3', b'4', b'new', b'new', b'new']


def test_a_topic_is_deleted(log, tmp_path):
    add(log, b'a')
    add(open_log(str(tmp_path/'other-0')), b'b')
    strict, easy = Engine(tmp_path), lossy(tmp_path)
    for engine in (strict, easy): engine.trigger()
    os.rename(log.directory, tmp_path/('orders-0.' + 'ab' * 16 + '-delete'))
    with pytest.raises(DataLoss,
                       match='partition 0 of topic orders: offset 1 is wanted, but there is no such log any more'):
        strict.trigger()
    assert easy.trigger() == [] and easy.at == {'other': {'0': 1}}
    add(open_log(str(tmp_path/'orders-0')), b'again')
    assert easy.trigger() == [('orders', 0, 0, b'again')]


def test_a_segment_goes_between_plan_and_read(log, tmp_path):
    for number in range(20): add(log, b'%d' % number * 20)
    strict, easy = Engine(tmp_path), lossy(tmp_path)
    planned = [engine.reader.partitions(engine.at, engine.planned()) for engine in (strict, easy)]
    remove_segments(log, 1)
    with pytest.raises(DataLoss, match='was deleted before it could be read'):
        [made for part in planned[0] for made in strict.reader.read(part)]
    offsets = [row['offset'] for part in planned[1] for made in easy.reader.read(part) for row in made.to_pylist()]
    assert offsets == list(range(log.start_offset, 20))


# --- Damage -----------------------------------------------------------------------------------------------------------

def flip(path, position):
    with open(path, 'r+b') as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize('policy, offsets', [('skip', [0, 2]), ('quarantine', [0, 1, 2])])
def test_a_wrong_checksum(log, tmp_path, policy, offsets):
    for number in range(3): add(log, b'%d' % number)
    flip(log.active.path, stream_batches(log)[1].position + 65)
    with pytest.raises(Damaged, match='checksum of the batch at offset 1'): Engine(tmp_path).trigger()
    engine = Engine(tmp_path, columns=('offset', 'damage'), onDamage=policy)
    assert [row[0] for row in engine.trigger()] == offsets
    if policy == 'quarantine': assert [row[1] is None for row in engine.rows] == [True, False, True]


@pytest.mark.parametrize('rolled', [True, False])
def test_garbage_in_the_middle(tmp_path, rolled):
    "Where an index knows how to go on, everything behind it comes, once, however small the portions."
    log = open_log(str(tmp_path/'orders-0'), LogConfig(index_interval_bytes=150))
    for number in range(30): add(log, b'%d' % number * 20)
    broken = stream_batches(log)[13].position
    path = log.active.path
    roll(log, NOW) if rolled else close_log(log)
    if rolled: add(log, b'last')
    flip(path, broken + 16)   # magic
    wanted = [row['offset'] for row in read_table(str(tmp_path), Options(on_damage='skip'), ['offset']).to_pylist()]
    assert 13 not in wanted and wanted[:13] == list(range(13)) and wanted[-1] == 29 + rolled
    with pytest.raises(Damaged, match=f'byte {broken}'):
        strict = Engine(tmp_path, maxOffsetsPerTrigger='4')
        for _ in range(20): strict.trigger()
    for limit in ({'maxOffsetsPerTrigger': '1'}, {'maxOffsetsPerTrigger': '4'}, {'maxBytesPerTrigger': '300'}, {}):
        engine = Engine(tmp_path, onDamage='skip', **limit)
        for _ in range(40): engine.restart().trigger() if limit == {'maxOffsetsPerTrigger': '4'} else engine.trigger()
        assert [row[2] for row in engine.rows] == wanted, limit


def test_a_length_that_is_too_large(tmp_path):
    "It looks as if somebody were still writing. But an index knows what comes behind it."
    log = open_log(str(tmp_path/'orders-0'), LogConfig(index_interval_bytes=150))
    for number in range(30): add(log, b'%d' % number * 20)
    broken = stream_batches(log)[13].position
    close_log(log)
    with open(log.active.path, 'r+b') as file:
        file.seek(broken + 8)
        file.write((10**6).to_bytes(4, 'big'))
    wanted = [row['offset'] for row in read_table(str(tmp_path), Options(on_damage='skip'), ['offset']).to_pylist()]
    engine = Engine(tmp_path, onDamage='skip')
    engine.trigger()
    assert [row[2] for row in engine.rows] == wanted and wanted[:13] == list(range(13)) and wanted[-1] == 29


def test_two_cuts_before_anybody_asks(log):
    """The last batch goes and another comes in its place; the log grows, and the same happens again. The earlier cut is
    the one that counts."""
    for number in range(3): add(log, b'%d' % number)
    followed = FollowedLog(log.directory)
    look(followed)
    for cut in (2, 3):
        os.truncate(log.active.path, stream_batches(log)[-1].position)
        log = reopened(log)
        add(log, b'other')
        assert look(followed) == Held(0, cut + 1, 2)
        add(log, b'more')
        look(followed)


def test_a_file_with_the_name_of_a_partition(log, tmp_path):
    add(log, b'0')
    (tmp_path/'backup-2024').write_text('not a directory')
    assert [row[2] for row in Engine(tmp_path).trigger()] == [0]


def test_a_file_that_is_cut_while_we_read_it(log):
    "Whole batches come, and it ends."
    for number in range(3): add(log, b'%d' % number)
    size, batches = log.active.size, stream_batches(log)
    for end in (size - 1, size - 40, 100, 61, 5, 0):
        os.truncate(log.active.path, end)
        for piece in (64, 1 << 20):
            found = sum(len(headers) for _, _, headers in hops(File(log.active.path), 0, size, piece))
            assert found == sum(each.position + each.size <= end for each in batches)


def test_garbage_at_the_end(log, tmp_path):
    "What comes before it is read; then an error, or patience until there is a new segment."
    add(log, b'0')
    with open(log.active.path, 'ab') as file: file.write(b'garbage, and rather a lot of it' * 3)
    strict, easy = Engine(tmp_path), Engine(tmp_path, onDamage='skip')
    for engine in (strict, easy): assert [row[2] for row in engine.trigger()] == [0]
    with pytest.raises(Damaged, match='byte'): strict.trigger()
    assert easy.trigger() == []
    roll(log, NOW)
    add(log, b'1')
    assert [row[2] for row in easy.trigger()] == [1]


# --- Spark ------------------------------------------------------------------------------------------------------------

def source(spark, path, **options):
    from kafka_scratch.spark.session import register
    return register(spark).readStream.format('kafka-log').options(**options).load(str(path))


def start_query(spark, path, out, **options):
    stream = source(spark, path, **options).select('topic', 'partition', 'offset', 'value')
    return stream.writeStream.format('parquet').option('path', str(out/'rows')).option('checkpointLocation',
        str(out/'checkpoint'))


def rows_in(spark, out) -> list:
    "What the sink holds, as its own log says."
    return sorted((row.topic, row.partition, row.offset,
                   bytes(row.value)) for row in spark.read.parquet(str(out/'rows')).collect())


def finish(query, patience: float = 300):
    assert query.awaitTermination(patience), 'it never ends'
    if query.exception(): raise query.exception()


def test_spark_follows_a_fixture(spark, tmp_path):
    finish(start_query(spark, LOGS, tmp_path, maxOffsetsPerTrigger='150').trigger(availableNow=True).start())
    wanted = [(source.topic, source.partition, r.offset, r.value or b'') for source in chosen_sources(str(LOGS)) for _,
              records in partition_records(source) for r in records]
    found = sorted((row.topic, row.partition, row.offset,
                    bytes(row.value or b'')) for row in spark.read.parquet(str(tmp_path/'rows')).collect())
    assert found == sorted(wanted)


def test_spark_tells_what_was_lost(spark, tmp_path, log):
    for number in range(20): add(log, b'%d' % number * 20)
    out = tmp_path/'out'
    # `once` takes all there is
    finish(start_query(spark, log.directory, out, maxOffsetsPerTrigger='3',
                       startingOffsets='0').trigger(once=True).start())
    assert [row[2] for row in rows_in(spark, out)] == list(range(20))
    os.truncate(log.active.path, find_last_batch(log))
    query = start_query(spark, log.directory, out).trigger(availableNow=True).start()
    with pytest.raises(Exception) as error: query.awaitTermination(300)
    assert 'partition 0 of topic orders: offset 20 is wanted, but the log ends at 19 now' in str(error.value)


@long
def test_every_record_once_however_often_it_is_stopped(spark, tmp_path):
    """A broker is written to, segments roll and old ones are deleted, and a query with small portions is stopped in the
    middle again and
    again. In the end the sink has every record exactly once, in order."""
    write_log(tmp_path/'broker'/'logs', metadata_log(orders=2))
    sent = {0: [], 1: []}
    with running(tmp_path/'broker', internal_segment_bytes=2000,
                 log_retention_ms=-1) as broker, broker.client() as client:
        def send(count):
            for _ in range(count):
                for number in sent:
                    values = [b'%d-%d' % (number, len(sent[number]) + i) for i in range(3)]
                    assert client.ask(produce(1, {'orders': {number: message_batch(*values)}}))
                    sent[number] += values

        def delete_old(out):
            "The segments that the query has done with, and which it won't ask for again even if it is killed."
            done = committed_offsets(out/'checkpoint')
            for number in sent:
                directory = tmp_path/'broker'/'logs'/f'orders-{number}'
                bases = sorted(int(path.stem) for path in directory.glob('*.log'))
                for base, after in zip(bases, bases[1:]):
                    if after <= done.get(('orders', number), 0): (directory/f'{base:020}.log').unlink()

        out = tmp_path/'out'
        for turn in range(3):
            send(40)
            query = start_query(spark, tmp_path/'broker'/'logs', out, topics='orders',
                                maxOffsetsPerTrigger='37').start()
            wait_until(lambda: (query.lastProgress or {}).get('batchId', -1) >= 0 or not query.isActive, 'a batch', 300)
            send(20)
            if turn % 2:
                wait_until(lambda: not query.isActive or query.lastProgress['numInputRows'] == 0, 'the end', 300)
            query.stop()
            if query.exception(): raise query.exception()
            delete_old(out)
        send(5)
        finish(start_query(spark, tmp_path/'broker'/'logs', out, topics='orders').trigger(availableNow=True).start())
        wanted = [('orders', number, offset, value) for number, values in sent.items() for offset,
                  value in enumerate(values)]
        assert rows_in(spark, out) == wanted
        assert min(int(path.stem) for path
                   in (tmp_path/'broker'/'logs'/'orders-0').glob('*.log')) > 0, 'nothing was deleted'


def committed_offsets(checkpoint: Path) -> dict:
    "How far a query has come for sure: the offsets of the last batch that it has noted as done."
    done = [int(path.name) for path in (checkpoint/'commits').glob('[0-9]*')] if checkpoint.exists() else []
    if not done: return {}
    lines = (checkpoint/'offsets'/str(max(done))).read_text().splitlines()
    return from_json(json.loads(lines[-1]))


PROGRAM = '''
import sys
from kafka_scratch.spark.session import get_session
logs, out = sys.argv[1:]
spark = get_session('local[2]', **{'spark.sql.shuffle.partitions': 2})
stream = spark.readStream.format('kafka-log').option('maxOffsetsPerTrigger', 25).load(logs).select('topic', 'partition', 'offset', 'value')
query = stream.writeStream.format('parquet').option('path', out + '/rows').option('checkpointLocation', out + '/checkpoint').start()
query.awaitTermination()
'''  # noqa: E501


@long
def test_every_record_once_though_it_is_killed(spark, tmp_path):
    "The whole driver, twice, with SIGKILL and in the middle of its work; old segments go meanwhile."
    log = open_log(str(tmp_path/'logs'/'orders-0'), LogConfig(segment_bytes=600))
    out, count = tmp_path/'out', 0

    def send(batches):
        nonlocal count
        for _ in range(batches):
            add(log, *(b'%d' % (count + i) for i in range(5)))
            count += 5

    def batches_planned() -> int:
        return len(list((out/'checkpoint'/'offsets').glob('[0-9]*'))) if (out/'checkpoint'/'offsets').exists() else 0

    for turn in range(2):
        send(40)
        before = batches_planned()
        with open(tmp_path/f'driver-{turn}.out', 'wb') as said:
            driver = subprocess.Popen([sys.executable, '-c', PROGRAM, str(tmp_path/'logs'), str(out)], stdout=said,
                                      stderr=said, stdin=subprocess.DEVNULL,
                                      start_new_session=True, env=environment(PYTHONPATH=str(ROOT)))
        try:
            wait_until(lambda: batches_planned() >= before + 3 or driver.poll() is not None, 'three batches', 300)
            assert driver.poll() is None, Path(tmp_path/f'driver-{turn}.out').read_text()
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait(20)
        done = committed_offsets(out/'checkpoint').get(('orders', 0), 0)
        assert done < count, 'it was too quick to be killed in the middle'
        remove_segments(log, sum(after.base_offset <= done for after in log.segments[1:]))
    send(3)
    finish(start_query(spark, tmp_path/'logs', out).trigger(availableNow=True).start())
    assert log.start_offset > 0
    assert rows_in(spark, out) == [('orders', 0, offset, b'%d' % offset) for offset in range(count)]
