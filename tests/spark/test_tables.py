"""Tables out of log directories, without Spark: what is planned, what is read, and what becomes of damage.

Truth is what a Java consumer saw (records.jsonl), the reader of the chapters (log_reader), and filtering afterwards.
"""
import json
import os
import pickle
import re
import shutil
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from segments_by_hand import COMMITTED, DAMAGE, DAMAGED, EPOCH, EXPECTED, LOGS, MARKER, as_consumer, place, write_log
from size import spark_absent
if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)


from broker_process import FIXTURES
from kafka_scratch.log.reader import BadPath, Damaged, find_decided, find_sources, partition_records
from kafka_scratch.log.partition import LogConfig, append
from kafka_scratch.log.recovery import open_log
from kafka_scratch.wire.primitives import DecodeError
from kafka_scratch.log.records import Batch, Record, read_batches, read_records, write_batch
from kafka_scratch.log.segments import file_name
from kafka_scratch.spark import plan as planning, read as reading
from kafka_scratch.spark.decided import decide
from kafka_scratch.spark.index import read_index
from kafka_scratch.spark.options import FOREVER, BadOption, Options, read_options, table_columns, table_schema
from kafka_scratch.spark.plan import pack, plan
from kafka_scratch.spark.read import read_split, read_table

DIRECTORIES = [LOGS, FIXTURES/'single-broker'/'logs']


def rows(path, columns=None, filters=(), **options) -> list[dict]:
    "A table as dicts."
    return read_table(str(path), read_options(options), columns, filters).to_pylist()


def places(found) -> list: return sorted(map(place, found))


# --- What a Java consumer saw -----------------------------------------------------------------------------------------


def test_records_are_those_that_a_consumer_got():
    found = [as_consumer(row) for row in rows(LOGS) if not row['control']]
    assert sorted(found, key=place) == sorted(EXPECTED, key=place) and len(found) == 381


def test_read_committed():
    found = {name: [] for name in COMMITTED}
    for row in rows(LOGS, isolationLevel='read_committed'):
        assert not row['control']
        found[f'{row["topic"]}-{row["partition"]}'].append(row['offset'])
    assert found == {name: told['offsets'] for name, told in COMMITTED.items()}


def taught(path, committed=False, former=False) -> list[tuple]:
    "Every record as the reader of the chapters reads it, with all that its batch says."
    found = []
    for source in find_sources(str(path), former):
        if source.topic and source.topic.startswith('__'): continue
        if former: source = source._replace(start=0)
        for batch, records in partition_records(source, committed=committed):
            head = batch.header
            for r in records:
                sequence = (head.base_sequence + r.offset - head.base_offset) % 2**31 if head.base_sequence >= 0 else -1
                found.append((source.topic, source.partition, r.offset, r.timestamp,
                              'LOG_APPEND_TIME' if batch.log_append_time else 'CREATE_TIME',
                              r.key, r.value, [(k, v) for k, v in r.headers], head.partition_leader_epoch,
                              head.producer_id, head.producer_epoch,
                              sequence, batch.transactional, batch.control))
    return found


def as_taught(row: dict) -> tuple:
    values = dict(row, timestamp=round((row['timestamp'] - EPOCH) / timedelta(milliseconds=1)),
                  headers=[(h['key'], h['value']) for h in row['headers']])
    return tuple(values[name] for name in ('topic', 'partition', 'offset', 'timestamp', 'timestamp_type', 'key',
                                           'value', 'headers', 'leader_epoch',
                                           'producer_id', 'producer_epoch', 'sequence', 'transactional', 'control'))


@pytest.mark.parametrize('committed', [False, True])
@pytest.mark.parametrize('directory', DIRECTORIES, ids=lambda path: path.parent.name)
def test_every_fixture_equals_the_taught_reader(directory, committed):
    found = [as_taught(row) for row in rows(directory,
                                            isolationLevel='read_committed' if committed else 'read_uncommitted')]
    assert found == taught(directory, committed) and found


@pytest.mark.parametrize('name', sorted(path.name for path in LOGS.iterdir() if path.is_dir()))
def test_a_partition_and_a_segment_are_paths_too(name):
    whole = rows(LOGS, topics=name.rpartition('-')[0], partitions=name.rpartition('-')[2])
    assert rows(LOGS/name) == whole
    assert [row for path in sorted((LOGS/name).glob('*.log')) for row in rows(path)] == whole


def test_transactions_are_decided_by_the_whole_log_also_for_a_segment():
    found = [row['offset'] for path in sorted((LOGS/'seg.compacted-tx-0').glob('*.log')) for row in rows(path,
        isolationLevel='read_committed')]
    assert found == COMMITTED['seg.compacted-tx-0']['offsets']


@pytest.mark.parametrize('source', [source for directory in DIRECTORIES for source in find_sources(str(directory))],
                         ids=lambda s: f'{s.topic[:30]}-{s.partition}')
def test_decide_equals_find_decided(source):
    if source.topic == '__cluster_metadata': pytest.skip('– has no transactions')
    theirs, (end, aborted) = find_decided(source.log), decide(source.log)
    assert min(theirs.end, FOREVER) == end
    assert sorted(aborted) == sorted((txn.producer_id, txn.first_offset,
                                      txn.last_offset) for each in theirs.aborted.values() for txn in each)


# --- Batches ----------------------------------------------------------------------------------------------------------

def test_batches_add_up_to_the_files():
    "Every byte of every segment is in one batch; and they say what the records say."
    found = rows(LOGS, table='batches', deleted='true', topicPattern='seg.*')
    sizes = {}
    for row in found: sizes[row['segment']] = sizes.get(row['segment'], 0) + row['size']
    assert sizes == {f'{path.parent.name}/{path.name}': path.stat().st_size for path in LOGS.glob('seg*/*.log')
                     if path.stat().st_size}
    assert sum(row['record_count'] for row in found) == len(rows(LOGS, deleted='true'))
    assert {row['codec'] for row in found} == {'none', 'gzip', 'snappy', 'lz4', 'zstd'}


def test_batches_know_where_they_are():
    for row in rows(LOGS, table='batches', topics='seg.multi'):
        segment = (LOGS/row['segment']).read_bytes()
        batch = Batch(segment, row['position'])
        assert (batch.base_offset, batch.last_offset, batch.end - batch.start) == (row['base_offset'],
            row['last_offset'], row['size'])


@pytest.mark.parametrize('size', ['1', '300', '1k', '128m'])
def test_batches_are_the_same_for_every_split_size(size, monkeypatch):
    monkeypatch.setattr(reading, 'PIECE', 200)
    monkeypatch.setattr(reading.pieces, '__defaults__', (False, 200))
    assert rows(LOGS, table='batches', splitSize=size) == rows(LOGS, table='batches')


# --- Columns ----------------------------------------------------------------------------------------------------------

def test_columns_in_the_order_asked_for():
    found = read_table(str(LOGS), Options(), ['value_size', 'partition', 'topic', 'offset', 'segment'])
    assert found.schema.names == ['value_size', 'partition', 'topic', 'offset', 'segment']
    values = {place(row): row['value'] for row in rows(LOGS)}
    for row in found.to_pylist():
        value = values[place(row)]
        assert row['value_size'] == (-1 if value is None
                                     else len(value)) and row['segment'].startswith(
                                         f'{row["topic"]}-{row["partition"]}/')


def test_schemas():
    assert table_schema(Options()).names == ['topic', 'partition', 'offset', 'timestamp', 'timestamp_type', 'key',
                                             'value', 'headers', 'leader_epoch',
                                             'producer_id', 'producer_epoch', 'sequence', 'transactional', 'control']
    assert table_schema(Options(on_damage='quarantine')).names[-1] == 'damage'
    assert {'key_size', 'value_size', 'segment'} <= set(table_columns(Options()))
    for name in ('records', 'batches'):
        for split in plan(str(LOGS), Options(table=name)):
            for batch in read_split(split, Options(table=name)):
                assert batch.schema.equals(table_schema(Options(table=name)))


def test_no_column_at_all_still_counts():
    found = [batch for split in plan(str(LOGS), Options()) for batch in read_split(split, Options(), ['offset'])]
    assert sum(batch.num_rows for batch in found) == 392


def test_splits_and_options_travel():
    "Workers get them pickled."
    options = read_options(dict(isolationLevel='read_committed', startingOffsets='{"seg.tx": {"0": 2}}'))
    splits = plan(str(LOGS), options)
    again, same = pickle.loads(pickle.dumps((splits, options)))
    assert again == splits and same == options
    assert [b.to_pylist() for s in again for b in read_split(s,
                                                             same)] == [b.to_pylist() for s in splits for b
                                                                 in read_split(s, options)]


# --- Generated logs ---------------------------------------------------------------------------------------------------

one_record = st.tuples(st.one_of(st.none(), st.binary(max_size=20)), st.one_of(st.none(), st.binary(max_size=120)),
                       st.integers(-50, 50))
one_batch = st.tuples(st.lists(one_record, min_size=1, max_size=6), st.integers(0, 1000),
                      st.sampled_from([0, 0, 1, 2, 3, 4]), st.booleans(),
                      st.integers(0, 3))   # records; time; codec; LogAppendTime; whose
steps = st.lists(st.one_of(one_batch, st.tuples(st.just(MARKER), st.integers(1, 3), st.integers(0, 1))), min_size=1,
                 max_size=14)


@pytest.fixture(scope='module')
def scratch(tmp_path_factory): return tmp_path_factory.mktemp('logs')


def fresh(scratch) -> Path:
    where = scratch/'data'
    if where.exists(): shutil.rmtree(where)
    where.mkdir()
    return where


@given(steps, st.integers(1, 500), st.integers(200, 3000), st.sampled_from([0, 60, 10**6]), st.integers(61, 400),
       st.booleans(), st.booleans())
def test_every_split_size_gives_the_same_rows(scratch, batches, split_size, segment_bytes, interval, piece, committed,
                                              with_index):
    "And those of the taught reader; with pieces so small that batches don't fit in, too, and with no index."
    where = fresh(scratch)
    write_log(where/'orders-0', batches, segment_bytes, interval)
    if not with_index:
        for path in (where/'orders-0').glob('*index'): path.unlink()
    options = Options(split_size=split_size, committed=committed)
    splits = plan(str(where), options)
    assert all(split.size > 0 for split in splits)
    before, reading.pieces.__defaults__ = reading.pieces.__defaults__, (False, piece)
    try:
        found = [as_taught(row) for split in splits for batch in read_split(split,
            options) for row in batch.to_pylist()]
    finally: reading.pieces.__defaults__ = before
    assert found == taught(where, committed)
    bytes_planned = sum(split.size for split in splits)
    if not committed: assert bytes_planned == sum(path.stat().st_size for path in where.rglob('*.log'))
    assert [split for group in pack(splits, options) for split in group] == splits


@given(steps, st.integers(0, 40), st.integers(0, 40), st.integers(200, 3000), st.sampled_from([0, 60, 10**6]))
def test_offset_ranges_equal_filtering_afterwards(scratch, batches, first, end, segment_bytes, interval):
    where = fresh(scratch)
    write_log(where/'orders-0', batches, segment_bytes, interval)
    whole = rows(where)
    wanted = [row for row in whole if first <= row['offset'] < end]
    assert rows(where, startingOffsets=first, endingOffsets=end) == wanted
    assert rows(where, startingOffsets=json.dumps({'orders': {'0': first}}),
                endingOffsets=json.dumps({'orders': {'0': end}})) == wanted
    assert rows(where, filters=[('offset', '>=', first), ('offset', '<', end)]) == wanted
    assert rows(where, filters=[('offset', '>', first - 1), ('offset', '<=', end - 1)], splitSize=100) == wanted
    assert [row for row in rows(where, filters=[('offset', 'in', (first, end))]) if row['offset'] in (first,
        end)] == [row for row in whole if row['offset'] in (first, end)]
    assert rows(where, ['value_size'], startingOffsets=first,
                endingOffsets=end) == [{'value_size': -1 if row['value'] is None else len(row['value'])} for row
                                       in wanted]
    held = rows(where, table='batches', startingOffsets=first, endingOffsets=end)
    assert held == [row for row in rows(where,
                                        table='batches') if row['last_offset'] >= first
                                        and row['base_offset'] < end] if first < end else not held


@given(steps, st.integers(-60, 1100), st.integers(-60, 1100), st.integers(200, 3000), st.sampled_from([0, 60]))
def test_time_ranges_equal_filtering_afterwards(scratch, batches, start, end, segment_bytes, interval):
    where = fresh(scratch)
    write_log(where/'orders-0', batches, segment_bytes, interval)
    whole = rows(where)
    at = lambda ms, us=0: EPOCH + timedelta(milliseconds=ms, microseconds=us)
    wanted = [row for row in whole if at(start) <= row['timestamp'] < at(end)]
    assert rows(where, startingTimestamp=start, endingTimestamp=end) == wanted
    assert rows(where, startingTimestamp=at(start).isoformat(), endingTimestamp=at(end).isoformat(),
                splitSize=150) == wanted
    for us in (0, 1, -1):
        for comparison in ('=', '<', '<=', '>', '>='):
            limit = at(start, us)
            assert rows(where, filters=[('timestamp', comparison,
                                         limit)]) == [row for row in whole
                                                      if planning.COMPARISONS[comparison](row['timestamp'],
                                                          limit)], (comparison, us)
    assert rows(where, ['offset'],
                filters=[('timestamp', '>=',
                          at(start).replace(tzinfo=None))]) == [{'offset': row['offset']} for row in whole
                                                                if row['timestamp'] >= at(start)]
    held = rows(where, table='batches', filters=[('max_timestamp', '>=', at(start))])
    assert [row for row in held if row['max_timestamp'] >= at(start)] == [row for row in rows(where,
        table='batches') if row['max_timestamp'] >= at(start)]


@pytest.mark.parametrize('filter', [('topic', '=', 'seg.tx'), ('topic', 'in', ('seg.tx', 'seg.big', None)),
                                    ('topic', 'starts', 'seg.java'), ('topic', '>', 'seg.r'),
                                    ('partition', '=', 1), ('partition', '>', 0), ('partition', 'in', (1, 7)),
                                    ('topic', '=', '__consumer_offsets')], ids=str)
def test_filters_on_topic_and_partition(filter):
    column, comparison, value = filter
    whole = [row for row in rows(LOGS) if planning.COMPARISONS[comparison](row[column], value)]
    assert rows(LOGS, filters=[filter]) == whole
    planned = {(split.topic, split.partition) for split in plan(str(LOGS), Options(), [filter])}
    assert planned == {place(row)[:2] for row in whole} | {('seg-empty', 0)} & planned


@pytest.mark.parametrize('filter', [('offset', '=', None), ('offset', '>', 2.5), ('offset', '>', True),
                                    ('value', '=', b'x'), ('timestamp', '>', 5), ('offset', 'starts', '1'),
                                    ('topic', '=', 3), ('nothing', '=', 3), ('offset', 'in', (1, 'x'))], ids=str)
def test_filters_that_planning_can_not_use_are_left_to_others(filter): assert rows(LOGS, filters=[filter]) == rows(LOGS)


def test_a_filter_spares_files(monkeypatch):
    "Segments that can't hold what is wanted are not even opened."
    planned = plan(str(LOGS), Options(), [('topic', '=', 'seg.multi'), ('offset', '>=', 100)])
    assert 0 < len(planned) < len(list((LOGS/'seg.multi-0').glob('*.log'))) and {split.topic for split
        in planned} == {'seg.multi'}
    latest = max(row['timestamp'] for row in rows(LOGS, topics='seg.multi'))
    assert len(plan(str(LOGS), Options(topics=('seg.multi',)), [('timestamp', '>=', latest)])) < len(plan(str(LOGS),
        Options(topics=('seg.multi',))))


# --- Splits -----------------------------------------------------------------------------------------------------------

def test_a_large_segment_is_cut_at_entries_of_its_index(tmp_path):
    batches = [([(None, b'x' * 100, 0)], 0, 0, False, 0)] * 200
    write_log(tmp_path/'orders-0', batches, segment_bytes=10**9, interval=1000)
    size = (tmp_path/'orders-0'/file_name(0)).stat().st_size
    splits = plan(str(tmp_path), Options(split_size=size // 4))
    assert len(splits) == 4 and max(split.size for split in splits) < 1.2 * size / 4
    assert [split.start for split in splits[1:]] == [split.end for split in splits[:-1]]
    (tmp_path/'orders-0'/file_name(0, 'index')).unlink()
    assert len(plan(str(tmp_path), Options(split_size=size // 4))) == 4


@pytest.mark.parametrize('nonsense', [b'\0' * 64, b'\xff' * 64, b'abc', bytes(range(64)),
                                      b'\0\0\0\1\0\0\0\1\0\0\0\2\0\0\0\2', b''])
def test_an_index_that_lies(tmp_path, nonsense):
    "Nobody believes it unless there is a batch where it says."
    batches = [([(None, b'x' * 100, 0)], 0, 0, False, 0)] * 50
    write_log(tmp_path/'orders-0', batches, segment_bytes=10**9, interval=200)
    whole = rows(tmp_path)
    (tmp_path/'orders-0'/file_name(0, 'index')).write_bytes(nonsense)
    for size in (100, 1000, 10**6):
        assert rows(tmp_path, splitSize=size) == whole
        assert rows(tmp_path, splitSize=size, startingOffsets=20, endingOffsets=30) == whole[20:30]


def test_many_small_partitions_make_few_tasks(tmp_path):
    for i in range(40): write_log(tmp_path/f'orders-{i}', [([(None, b'v', 0)], 0, 0, False, 0)])
    options = Options()
    splits = plan(str(tmp_path), options)
    assert len(splits) == 40 and len(pack(splits, options)) == 1 and len(pack(splits, Options(split_size=1))) == 40


def test_live_index_is_larger_than_its_entries(tmp_path):
    "A broker makes the file large and fills it by and by: zeros at the end mean nothing."
    batches = [([(None, b'x' * 100, 0)], 0, 0, False, 0)] * 50
    write_log(tmp_path/'orders-0', batches, segment_bytes=10**9, interval=200)
    index = tmp_path/'orders-0'/file_name(0, 'index')
    entries = len(index.read_bytes()) // 8
    index.write_bytes(index.read_bytes() + bytes(80_000))
    assert len(read_index(str(index.with_suffix('.log')), 0, 10**9).positions) == entries
    assert len(plan(str(tmp_path), Options(split_size=1000))) > 3 and len(rows(tmp_path, splitSize=1000)) == 50


# --- What was deleted -------------------------------------------------------------------------------------------------

def test_log_start_is_honoured():
    assert [row['offset'] for row in rows(LOGS/'seg.trimmed-0')] == [*range(31, 60)]
    assert [row['offset'] for row in rows(LOGS, topics='seg.trimmed', startingOffsets=3)] == [*range(31, 60)]
    dead = [row['offset'] for row in rows(LOGS, topics='seg.trimmed', deleted='true')]
    assert dead[-29:] == [*range(31, 60)] and 0 < len(dead) - 29


def test_deleted_topics():
    single = FIXTURES/'single-broker'/'logs'
    assert 'short.lived' not in {row['topic'] for row in rows(single, table='batches')}
    found = {row['segment'].split('/')[0] for row in rows(single, table='batches',
                                                          deleted='true') if row['topic'] == 'phoenix'}
    planned = {split.name.split('/')[0] for split in plan(str(single), Options(deleted=True))}
    assert found <= planned and [as_taught(row) for row in rows(single, deleted='true')] == taught(single, former=True)


# --- Damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('name', DAMAGE)
def test_damage_in_records(name):
    path, (sound, position, offset) = DAMAGED/name/f'{0:020}.log', DAMAGE[name]
    found = rows(path, onDamage='quarantine')
    if position is None:
        assert [row['offset'] for row in rows(path)] == sound == [row['offset'] for row in found] and {row['damage']
            for row in found} == {None}
        return
    with pytest.raises(Damaged, match=re.escape(f'{path}, byte {position}: ')): rows(path)
    assert [row['offset'] for row in rows(path,
                                          onDamage='skip')] == [row['offset'] for row in found if not row['damage']]
    assert all('damage' not in row for row in rows(path, onDamage='skip'))
    bad = [row for row in found if row['damage']]
    assert bad[0]['damage'].startswith(f'{name}/{path.name}, byte {position}: ') and not any(bad[0][column] for column
        in ('key', 'value', 'headers', 'timestamp', 'control'))


@pytest.mark.parametrize('name', DAMAGE)
def test_the_reason_is_that_of_the_taught_reader(name):
    path, theirs, ours = DAMAGED/name/f'{0:020}.log', None, None
    try:
        for batch in read_batches(path.read_bytes()): read_records(batch)
    except DecodeError as error: theirs = f'{path}, byte {error.offset}: {error.message}'
    try: rows(path)
    except Damaged as error: ours = str(error)
    assert ours == theirs


@pytest.mark.parametrize('name', DAMAGE)
@pytest.mark.parametrize('size', [1, 100, 10**6])
def test_damage_is_the_same_for_every_split_size(name, size):
    path = DAMAGED/name
    for policy in ('skip', 'quarantine'):
        assert rows(path, onDamage=policy, splitSize=size) == rows(path, onDamage=policy)


def damage_log(where: Path, count=60, codec=0, interval=300) -> Path:
    write_log(where/'orders-0', [([(b'k', b'v%04d' % i * 10, 0)], i, codec, False, 0) for i in range(count)],
              segment_bytes=10**9, interval=interval)
    return where/'orders-0'/file_name(0)


@pytest.fixture
def in_a_hurry(monkeypatch): monkeypatch.setattr(reading.time, 'sleep', lambda moment: None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_damage_never_breaks_anything(scratch, in_a_hurry, data):
    "Whatever is overwritten: what is read is what was written, under every policy, and for every split size."
    where = fresh(scratch)
    path = damage_log(where, 40, data.draw(st.sampled_from([0, 1, 4])), data.draw(st.sampled_from([100, 300, 10**6])))
    sound = {row['offset']: row for row in rows(where)}
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at, garbage = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.binary(min_size=1, max_size=20))
        raw[at:at + len(garbage)] = garbage
    cut = data.draw(st.integers(0, len(raw)))
    path.write_bytes(raw if data.draw(st.booleans()) else raw[:cut])
    found = rows(where, onDamage='quarantine')
    kept = [row for row in found if row['damage'] is None]
    for row in kept:   # base offset and leader epoch stand before what a checksum covers
        same = sound.get(row['offset'])
        assert same is None or row['value'] in {each['value'] for each in sound.values()}
    assert [{k: v for k, v in row.items() if k != 'damage'} for row in kept] == rows(where, onDamage='skip')
    for size in (1, 200, 1000): assert rows(where, onDamage='quarantine', splitSize=size) == found
    if len(kept) < len(found):
        with pytest.raises(Damaged): rows(where)
    else: assert rows(where) == [{k: v for k, v in row.items() if k != 'damage'} for row in found]


def test_after_a_broken_length_the_index_shows_how_to_go_on(tmp_path):
    path = damage_log(tmp_path)
    whole = rows(tmp_path)
    batch = rows(tmp_path, table='batches')[20]
    raw = bytearray(path.read_bytes())
    raw[batch['position'] + 8:batch['position'] + 12] = b'\0\0\0\0'
    path.write_bytes(raw)
    found = rows(tmp_path, onDamage='skip')
    assert [row['offset'] for row in found][:20] == [*range(20)] and found[-1] == whole[-1] and 55 <= len(found) < 60
    bad, = [row for row in rows(tmp_path, onDamage='quarantine') if row['damage']]
    assert f'byte {batch["position"]}: batch_length is at least 49, not 0' in bad['damage']
    path.with_suffix('.index').unlink()
    assert [row['offset'] for row in rows(tmp_path, onDamage='skip')] == [*range(20)]


def test_a_length_that_leads_astray(tmp_path):
    "It is plausible, but it isn't right: the index knows of batches that one would jump over."
    path = damage_log(tmp_path, interval=100)
    batches = rows(tmp_path, table='batches')
    raw = bytearray(path.read_bytes())
    raw[batches[20]['position'] + 8:batches[20]['position'] + 12] = (3 * batches[20]['size'] - 12 + 1).to_bytes(4,
        'big')
    path.write_bytes(raw)
    found = rows(tmp_path, onDamage='quarantine')
    bad = [row for row in found if row['damage']]
    assert len(bad) == 1 and bad[0]['offset'] == 20 and [row['offset'] for row in found
                                                         if not row['damage']] == [*range(20), *range(21, 60)]
    for size in (1, 500, 3000): assert rows(tmp_path, onDamage='quarantine', splitSize=size) == found


def test_without_checksums_a_flipped_byte_goes_unnoticed():
    path = DAMAGED/'flipped-byte-in-value'
    assert [row['offset'] for row in rows(path, checkCrcs='false')] == [*range(10)]


@pytest.mark.parametrize('name', ['truncated-last-batch', 'truncated-in-header', 'trailing-zeros', 'bad-magic'])
def test_damage_in_batches(name):
    path, (_, position, offset) = DAMAGED/name, DAMAGE[name]
    with pytest.raises(Damaged, match=f'byte {position}: '): rows(path, table='batches')
    bad, = [row for row in rows(path, table='batches', onDamage='quarantine') if row['damage']]
    assert (bad['position'], bad['base_offset']) == (position,
                                                     offset if 'truncated-in' not in name else bad['base_offset'])
    assert bad['segment'] == f'{name}/{0:020}.log'


def test_damage_beyond_what_is_wanted_is_nobodys_business():
    path = DAMAGED/'flipped-byte-in-value'
    assert [row['offset'] for row in rows(path, endingOffsets=8)] == [*range(8)]
    assert [row['offset'] for row in rows(path, startingOffsets=9)] == [9]


def test_a_file_that_is_gone(tmp_path):
    path = damage_log(tmp_path)
    for policy in ('fail', 'skip', 'quarantine'):
        options = read_options(dict(onDamage=policy))
        splits = plan(str(tmp_path), options)
        path.rename(tmp_path/'aside')
        read = lambda: [row for split in splits for batch in read_split(split, options) for row in batch.to_pylist()]
        if policy == 'fail':
            with pytest.raises(Damaged, match='the file is gone: it was deleted after the plan was made'): read()
        elif policy == 'skip': assert read() == []
        else:
            assert [row['damage'] for row
                    in read()] == [
                        f'orders-0/{path.name}, byte 0: the file is gone: it was deleted after the plan was made']
        (tmp_path/'aside').rename(path)


def test_a_marker_that_can_not_be_read(tmp_path):
    "Then nobody knows that the transaction was committed."
    record = ([(None, b'v', 0)], 0, 0, False)
    write_log(tmp_path/'orders-0', [(*record, 1), (MARKER, 1, 1), (*record, 2), (MARKER, 2, 1), (*record, 0)],
              segment_bytes=10**9)
    assert [row['offset'] for row in rows(tmp_path, isolationLevel='read_committed')] == [0, 2, 4]
    path = tmp_path/'orders-0'/file_name(0)
    marker = rows(tmp_path, table='batches')[1]
    raw = bytearray(path.read_bytes())
    raw[marker['position'] + marker['size'] - 1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Damaged, match=f'byte {marker["position"]}: the marker of a transaction is damaged'):
        rows(tmp_path, isolationLevel='read_committed')
    assert [row['offset'] for row in rows(tmp_path, isolationLevel='read_committed', onDamage='skip')] == [2, 4]


# --- A log that grows -------------------------------------------------------------------------------------------------

def test_a_batch_in_the_making_is_no_damage(tmp_path, monkeypatch):
    path = damage_log(tmp_path)
    whole, raw = rows(tmp_path), path.read_bytes()
    last = rows(tmp_path, table='batches')[-1]
    for cut in (1, 30, 60, last['size'] - 1):
        path.write_bytes(raw[:last['position'] + cut])
        monkeypatch.setattr(reading.time, 'sleep', lambda moment: path.write_bytes(raw))
        assert rows(tmp_path) == whole[:-1]
        path.write_bytes(raw[:last['position'] + cut])
        monkeypatch.setattr(reading.time, 'sleep', lambda moment: None)
        with pytest.raises(Damaged, match=f'byte {last["position"]}: '): rows(tmp_path)


def test_only_the_last_segment_may_be_in_the_making(tmp_path, monkeypatch):
    path = damage_log(tmp_path)
    (tmp_path/'orders-0'/file_name(60)).write_bytes(b'')
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(reading.time, 'sleep', lambda moment: pytest.fail('nothing to wait for'))
    with pytest.raises(Damaged): rows(tmp_path)


def test_what_was_written_after_the_plan_is_not_read(tmp_path):
    path = damage_log(tmp_path)
    whole, raw = rows(tmp_path), path.read_bytes()
    splits = plan(str(tmp_path), Options())
    path.write_bytes(raw + raw)
    assert [row for split in splits for batch in read_split(split, Options()) for row in batch.to_pylist()] == whole
    path.write_bytes(raw[:1000])   # and what was cut off since isn't there
    found = [row for split in splits for batch in read_split(split, Options()) for row in batch.to_pylist()]
    assert found == whole[:len(found)] and 0 < len(found) < 20


def test_a_log_under_a_busy_broker(tmp_path):
    """Batches are appended, segments roll and old ones are deleted, while tables are read: always a part without a gap,
    or a file that is gone."""
    log = open_log(str(tmp_path/'orders-0'), LogConfig(segment_bytes=3000, index_interval_bytes=200))
    stop, written = threading.Event(), 0

    def write():
        nonlocal written
        while not stop.is_set():
            batch = bytearray(write_batch([Record(value=b'v' * 50)], max_timestamp=0))
            append(log, batch, Batch(batch).header, 0, now=0)
            written += 1
            if written % 400 == 0:
                os.rename(log.segments[written // 400 - 1].path, f'{log.segments[written // 400 - 1].path}.deleted')
            if written % 20 == 0: time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until, seen, gone = time.monotonic() + 60, -1, 0
        while (written < 3000 or seen < 2000) and time.monotonic() < until:
            before = written
            try: offsets = [row['offset'] for row in rows(tmp_path, ['offset'])]
            except Damaged as error:
                assert 'is gone' in str(error)
                gone += 1
                continue
            except BadPath: continue   # nothing there yet
            if not offsets: continue
            assert offsets == [*range(offsets[0], offsets[-1] + 1)] and offsets[-1] >= max(seen, before - 1)
            seen = offsets[-1]
        assert seen >= 2000 and gone < 20
    finally:
        stop.set()
        writer.join()


# --- Paths and options ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('path, options, says', [
    ('/nowhere/at-all', {}, '/nowhere/at-all is neither a file nor a directory'),
    (LOGS/'meta.properties', {}, 'meta.properties is no segment: their names end in .log'),
    (FIXTURES/'wire', {}, 'wire is no log directory: there is no partition in it'),
    (LOGS, dict(topics='nobody'), 'logs has no log of nobody'),
    (LOGS, dict(topics='seg.tx', partitions='9'), 'logs has no such partition: 9'),
    (LOGS/'seg.tx-0', dict(topics='seg.big'), 'has no log of seg.big'),
    (FIXTURES/'wire', dict(table='topics'), 'has no __cluster_metadata-0 in it'),
    (LOGS/'meta.properties', dict(table='topics'), 'is a file: topics are read from a log directory'),
    ('/nowhere', dict(table='brokers'), '/nowhere is neither a file nor a directory')], ids=str)
def test_paths_that_are_no_good(path, options, says):
    with pytest.raises(BadPath) as error: plan(str(path), read_options(options))
    assert says in str(error.value) and '\n' not in str(error.value)


def test_a_log_directory_without_topics_is_empty(tmp_path):
    assert plan(str(FIXTURES/'three-brokers'/'node-1'),
                Options()) == [] and rows(FIXTURES/'three-brokers'/'node-1') == []


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = damage_log(tmp_path)
    def refuse(name, *rest): raise PermissionError(13, 'Permission denied', name)
    monkeypatch.setattr(planning, 'File', refuse)
    with pytest.raises(BadPath, match=re.escape(f"{path} can't be read: Permission denied")):
        plan(str(tmp_path), Options())


@pytest.mark.parametrize('given, says', [
    (dict(table='record'), "table is one of records, batches, metadata_records, topics, partitions, configs, brokers, "
                           "not 'record'"),
    (dict(topics='a,,b'), "topics is names of topics with commas between them, not 'a,,b'"),
    (dict(topics=''), "topics is names"),
    (dict(topicPattern='('), "topicPattern is a regular expression that matches whole names of topics, not '('"),
    (dict(partitions='1,x'), "partitions is numbers of partitions with commas between them, not '1,x'"),
    (dict(partitions='-1'), 'partitions is'),
    (dict(startingOffsets='soon'),
     """startingOffsets is earliest, latest, a number, or JSON like {"orders": {"0": 23}}, not 'soon'"""),
    (dict(startingOffsets='{"a": 3}'), 'startingOffsets is'), (dict(startingOffsets='[1]'), 'startingOffsets is'),
    (dict(startingOffsets='{"a": {"x": 3}}'), 'startingOffsets is'),
    (dict(startingOffsets='{"a": {"0": "3"}}'), 'startingOffsets is'), (dict(startingOffsets='-3'),
        'startingOffsets is'), (dict(startingOffsets='{"a": {"0": -3}}'), 'startingOffsets is'),
    (dict(startingOffsets='{"a": {"0": true}}'), 'startingOffsets is'),
    (dict(endingOffsets='earliest'), 'endingOffsets is latest, a number'),
    (dict(endingOffsets='{"a": {"0": -2}}'), 'endingOffsets is'),
    (dict(startingTimestamp='yesterday'),
     "startingTimestamp is milliseconds since 1970, or a time like 2024-05-01T12:00:00Z, not 'yesterday'"),
    (dict(endingTimestamp='2024-13-01'), 'endingTimestamp is'), (dict(isolationLevel='committed'),
                                                                 "isolationLevel is read_uncommitted or "
                                                                 "read_committed, not 'committed'"),
    (dict(splitSize='many'), "splitSize is a number of bytes, at least 1, like 64m or 1g, not 'many'"),
    (dict(splitSize='0'), 'splitSize is'), (dict(splitSize='-1m'), 'splitSize is'),
    (dict(splitSize='1t'), 'splitSize is'), (dict(checkCrcs='maybe'), "checkCrcs is true or false, not 'maybe'"),
    (dict(pushFilters='maybe'), "pushFilters is auto, true or false, not 'maybe'"),
    (dict(onDamage='ignore'), "onDamage is fail, skip or quarantine, not 'ignore'"),
    (dict(deleted='1'), 'deleted is true or false'),
    (dict(topics='a', topicPattern='b'), 'topics and topicPattern: one of them is enough'),
    (dict(tabel='records'), "there is no option 'tabel': did you mean table?"),
    (dict(onDamaged='skip'), "there is no option 'onDamaged': did you mean onDamage?"),
    (dict(subscribe='orders'), "there is no option 'subscribe': did you mean topics?"),
    (dict(subscribePattern='o.*'), 'did you mean topicPattern?'),
    (dict(startOffset='3'), 'did you mean startingOffsets?'), (dict(qqq='x'),
                                                               "there is no option 'qqq': there are table, topics, ")],
                                                               ids=str)
def test_options_that_are_no_good(given, says):
    with pytest.raises(BadOption) as error: read_options(given)
    assert says in str(error.value) and '\n' not in str(error.value)


def test_options_in_any_case_and_with_spaces():
    found = read_options({'TABLE': 'Batches', 'topics': ' a , b ', 'PARTITIONS': '1, 2', 'startingoffsets': 'EARLIEST',
                          'splitsize': '64 MB', 'isolationlevel': 'READ_COMMITTED',
                          'ondamage': 'Skip', 'checkcrcs': 'False', 'path': '/x', 'maxOffsetsPerTrigger': '10',
                          'startingTimestamp': '1970-01-01', 'endingTimestamp': '-5'})
    assert found == Options(table='batches', topics=('a', 'b'), partitions=(1, 2), split_size=64 << 20, committed=True,
                            on_damage='skip', check_crcs=False,
                            starting_timestamp=0, ending_timestamp=-5)
    assert (read_options({}) == Options()
            and read_options({'startingTimestamp': '2024-05-01T12:00:00+02:00'}).starting_timestamp == 1714557600000)


def test_offsets_that_can_not_be_meant():
    for given, says in ((dict(startingOffsets='latest'), 'startingOffsets latest is for streams'),
                        (dict(startingOffsets='{"seg.tx": {"0": -1}}'), 'is for streams'),
                        (dict(endingOffsets='{"seg.tx": {"7": 3}}'),
                         'endingOffsets names seg.tx-7, which is not among what is read from'),
                        (dict(startingOffsets='{"nobody": {"0": 3}}'), 'startingOffsets names nobody-0')):
        with pytest.raises(BadOption, match=re.escape(says)): plan(str(LOGS), read_options(given))


def test_offsets_for_some_partitions_leave_the_others_whole():
    found = rows(LOGS, topics='seg.tx,seg.multi', startingOffsets='{"seg.tx": {"0": 5, "1": -2}}',
                 endingOffsets='{"seg.multi": {"0": 3}}')
    assert {place(row)[:2]: row['offset'] for row in reversed(found)} == {('seg.tx', 0): 5, ('seg.tx', 1): 0,
        ('seg.multi', 0): 0}
    assert [row['offset'] for row in found if row['topic'] == 'seg.multi'] == [0, 1, 2]


def test_topics_and_patterns():
    assert {row['topic'] for row in rows(LOGS, topics='seg.tx,seg.big')} == {'seg.tx', 'seg.big'}
    assert {row['topic'] for row in rows(LOGS, topicPattern=r'seg\.java.*')} == {f'seg.java-{name}' for name in ('none',
        'gzip', 'snappy', 'lz4', 'zstd')}
    assert {row['topic'] for row in rows(LOGS, topicPattern='.*')} == {row['topic'] for row in rows(LOGS)}
    assert rows(LOGS, topics='__consumer_offsets') and {row['partition'] for row in rows(LOGS, partitions='1')} == {1}
    assert rows(LOGS, topicPattern='nothing') == []


def test_a_relative_path_is_made_absolute(monkeypatch):
    monkeypatch.chdir(LOGS)
    assert all(os.path.isabs(split.path) for split in plan('.', Options())) and len(rows('.')) == 392
