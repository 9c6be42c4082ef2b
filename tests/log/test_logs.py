"""Logs without a broker: Kafka's own, read and left as they were; damaged ones, mended as Kafka mends them; and ours,
against a list of batches.

What is in a log after any number of appends, rolls, deletions, restarts and crashes is what a plain list would hold:
nothing more, nothing less,
nothing twice and nothing out of order.
"""
import hashlib
import json
import os
import random
import shutil
import tempfile
import zlib
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from size import budget
from broker_process import FIXTURES
from kafka_scratch.cluster.image import Image
from kafka_scratch.cluster import log_dirs
from kafka_scratch.cluster.log_dirs import CLEAN, InUse, LogDir, begin_directory, open_partition
from kafka_scratch.cluster.logs import Logs, begin_logs, end_logs, remove_deleted, remove_old
from kafka_scratch.log.partition import LogConfig, OutOfRange, append, roll, with_ends
from kafka_scratch.log.slices import aborted_for, locate, read_slice
from kafka_scratch.log.flush import begin_flush, end_flush, sync_files
from kafka_scratch.log.timestamps import find_latest_time, find_time
from kafka_scratch.log.retention import move_start, retain
from kafka_scratch.log.recovery import close_log, open_log
from kafka_scratch.wire.primitives import DecodeError
from kafka_scratch.log.producer_state import BadSequence, OldEpoch
from kafka_scratch.log.records import CONTROL, HEADER, LOG_APPEND_TIME, TRANSACTIONAL, Batch, Record, read_records
from kafka_scratch.log.records import write_batch
from kafka_scratch.log.log_segment import Segment, scan_segment
from kafka_scratch.log.checkpoints import read_checkpoint

SEGMENTS = FIXTURES/'segments'
HALF_A_BATCH = 'a batch that is cut off'


# --- Kafka's logs -----------------------------------------------------------------------------------------------------

def kafkas_partitions() -> list[str]:
    return sorted(path.name for path in (SEGMENTS/'logs').iterdir() if path.is_dir()
                  and path.name != '__cluster_metadata-0')


KAFKAS = kafkas_partitions()
START = {f'{topic}-{number}': int(offset) for topic, number,
         offset in read_checkpoint(SEGMENTS/'logs'/'log-start-offset-checkpoint')}
OFFSETS = {f'{topic["name"]}-{partition["partition"]}': partition['offsets'] for topic
           in json.loads((SEGMENTS/'expected.json').read_text())['topics']
           for partition in topic['partitions']}
COMMITTED = json.loads((SEGMENTS/'records-read-committed.json').read_text())
RECOVERED = json.loads((SEGMENTS/'damaged'/'expected-broker-recovery.json').read_text())

RECORDS = defaultdict(list)
for line in (SEGMENTS/'records.jsonl').read_text().splitlines():
    RECORDS['{topic}-{partition}'.format(**json.loads(line))].append(json.loads(line))


def open_copy(tmp_path: Path, name: str, **options):
    "One of Kafka's logs, in a directory where it may be written to."
    shutil.copytree(SEGMENTS/'logs'/name, tmp_path/name)
    return open_log(str(tmp_path/name), start_offset=START.get(name, 0), **options)


def whole_batches(data: bytes) -> list[Batch]:
    "The batches of a slice, as a client takes them: the last one may be cut off."
    found, at = [], 0
    while len(data) - at >= 12 and at + 12 + int.from_bytes(data[at + 8:at + 12], 'big') <= len(data):
        found.append(Batch(data, at).check())
        at = found[-1].end
    assert found or not data, HALF_A_BATCH
    return found


def consume(log, offset: int, max_bytes: int, limit: int | None = None):
    "All batches from an offset on, fetched piece by piece, each with the slice in which it came."
    while part := locate(log, offset, max_bytes, limit=limit):
        for batch in whole_batches(read_slice(part)):
            yield batch, part
            offset = batch.last_offset + 1


def as_recorded(data: bytes | None) -> dict | None:
    if data is None: return None
    return {'len': len(data), 'sha256': hashlib.sha256(data).hexdigest()} if len(data) > 400 else {'hex': data.hex()}


def consumed(log, max_bytes: int) -> list[dict]:
    "What a consumer hands to its user, in the form in which it was written down."
    return [{'topic': log.topic, 'partition': log.partition, 'offset': record.offset,
             'leaderEpoch': batch.header.partition_leader_epoch, 'timestamp': record.timestamp,
             'timestampType': 'LOG_APPEND_TIME' if batch.header.attributes & LOG_APPEND_TIME else 'CREATE_TIME',
             'key': as_recorded(record.key),
             'value': as_recorded(record.value), 'headers': [[key, as_recorded(value)] for key,
                                                             value in record.headers]}
            for batch, _ in consume(log, log.start_offset,
                                    max_bytes) if not batch.control for record in read_records(batch)
                                    if record.offset >= log.start_offset]


@pytest.mark.parametrize('clean', [True, False], ids=['clean', 'unclean'])
@pytest.mark.parametrize('max_bytes', [1, 700, 1 << 20])
@pytest.mark.parametrize('name', KAFKAS)
def test_every_record_of_kafka(tmp_path, name, max_bytes, clean):
    log = open_copy(tmp_path, name, clean=clean)
    if not name.startswith('__'): assert consumed(log, max_bytes) == RECORDS[name]
    assert (log.start_offset, log.high_watermark,
            log.stable_offset) == tuple(OFFSETS[name][which]['offset'] for which in ('earliest', 'latest',
                'latestReadCommitted'))


def test_the_recorded_records_are_all_there():
    assert set(RECORDS) <= set(KAFKAS) and sum(map(len, RECORDS.values())) == 381


@pytest.mark.parametrize('clean', [True, False], ids=['clean', 'unclean'])
@pytest.mark.parametrize('max_bytes', [1, 150, 1 << 20])
@pytest.mark.parametrize('name', COMMITTED)
def test_read_committed(tmp_path, name, max_bytes, clean):
    """As a consumer does it: what comes up to the stable offset, without the records of transactions that are listed as
    aborted."""
    log, offsets, aborting = open_copy(tmp_path, name, clean=clean), [], set()
    for batch, part in consume(log, log.start_offset, max_bytes, limit=log.stable_offset):
        listed = {(txn.producer_id, txn.first_offset) for txn in aborted_for(log, batch.base_offset, part)}
        aborting |= {producer for producer, first in listed if first <= batch.last_offset and batch.transactional}
        if batch.control:
            if read_records(batch)[0].key[3] == 0: aborting.discard(batch.header.producer_id)
        elif not (batch.transactional and batch.header.producer_id in aborting
                  and any(producer == batch.header.producer_id and first <= batch.base_offset for producer,
                          first in listed)):
            offsets += [record.offset for record in read_records(batch) if record.offset >= log.start_offset]
    assert offsets == COMMITTED[name]['offsets'] and log.stable_offset == COMMITTED[name]['endOffset']


@pytest.mark.parametrize('name', KAFKAS)
def test_the_latest_time_is_kafkas(tmp_path, name):
    expected, found = OFFSETS[name]['maxTimestamp'], find_latest_time(open_copy(tmp_path, name))
    assert (expected['offset'], expected['timestamp']) == ((found.offset, found.timestamp) if found else (-1, -1))


@pytest.mark.parametrize('name', [name for name in KAFKAS if RECORDS[name]])
def test_every_time_can_be_found(tmp_path, name):
    log, records = open_copy(tmp_path, name), RECORDS[name]
    if any(batch.control for batch, _ in consume(log, log.start_offset, 1 << 20)):
        pytest.skip('– markers have times, too, but no consumer sees them')
    for time in {record['timestamp'] + more for record in records for more in (-1, 0, 1)}:
        expected = next(((record['timestamp'], record['offset']) for record in records if record['timestamp'] >= time),
                        None)
        assert find_time(log, time) == expected, time


# --- Kafka's files, left as they were ---------------------------------------------------------------------------------

def contents(directory: Path) -> dict[str, bytes]:
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in sorted(directory.rglob('*'))
            if path.is_file()}


def outdated_snapshots(files: dict[str, bytes]) -> set[str]:
    "Snapshots that Kafka would remove, too, when it has a newer one: those that belong to no segment."
    def of(kind): return sorted(name for name in files if name.endswith(kind))
    bases = {name.removesuffix('.log') for name in of('.log')}
    return {name for name in of('.snapshot')[:-2] if name.removesuffix('.snapshot') not in bases}


@pytest.mark.parametrize('clean', [True, False], ids=['clean', 'unclean'])
@pytest.mark.parametrize('name', KAFKAS)
def test_opened_and_closed_again(tmp_path, name, clean):
    "Also after a crash: an index that is made anew has the same entries."
    config = {'seg.multi-0': LogConfig(index_interval_bytes=200),
              'seg.trimmed-0': LogConfig(index_interval_bytes=150)}.get(name, LogConfig())
    close_log(open_copy(tmp_path, name, config=config, clean=clean))
    before, after = contents(SEGMENTS/'logs'/name), contents(tmp_path/name)
    for snapshot in outdated_snapshots(before): before.pop(snapshot), after.pop(snapshot, None)
    if not clean: before, after = (without_later_times(files) for files in (before, after))
    assert after == before


def without_later_times(files: dict[str, bytes]) -> dict[str, bytes]:
    """Each time Kafka closed a segment it noted its latest time; after that the segment may have gone on. Who makes the
    index anew can't know where that was."""
    return {name: data[-12:] if name.endswith('.timeindex') else data for name, data in files.items()}


def test_a_whole_directory_is_left_as_it_was(tmp_path):
    "Nothing but the files that any broker writes at the root of its directory."
    shutil.copytree(SEGMENTS/'logs', tmp_path/'logs')
    logs, notes = Logs([str(tmp_path/'logs')], node_id=1, note=lambda text: notes.append(text)), []
    logs.image = Image()
    begin_logs(logs)
    for name in KAFKAS: open_partition(logs.directories[0], name, LogConfig(), 0)
    end_logs(logs)
    before, after = contents(SEGMENTS/'logs'), contents(tmp_path/'logs')
    for name in KAFKAS:
        for snapshot in outdated_snapshots({file.partition('/')[2]: data for file,
                                            data in before.items() if file.startswith(name + '/')}):
            before.pop(f'{name}/{snapshot}'), after.pop(f'{name}/{snapshot}', None)
    for checkpoint in ('recovery-point', 'replication', 'log-start'):
        name = f'{checkpoint}-offset-checkpoint'
        def rows(files): return sorted(files.pop(name).decode().splitlines())
        assert rows(after) == rows(before)
    assert after.pop('.lock') == b'' and json.loads(after.pop('.kafka_cleanshutdown')) == {'version': 0,
        'brokerEpoch': -1} and before.pop('.kafka_cleanshutdown')
    assert after == before and notes == []


# --- Damage -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('damage', RECOVERED)
def test_mended_as_kafka_mends(tmp_path, damage):
    expected, directory, notes = RECOVERED[damage], tmp_path/'damaged-0', []
    directory.mkdir()
    shutil.copy(SEGMENTS/'damaged'/damage/f'{0:020}.log', directory)
    log = open_log(str(directory), clean=False, note=notes.append)
    assert os.path.getsize(log.active.path) == log.size == expected['fileBytesAfterBrokerRecovery']
    assert (log.start_offset, log.end_offset) == (expected['earliest'], expected['latest'])
    assert len(notes) == (expected['fileBytesBefore'] != expected['fileBytesAfterBrokerRecovery'])
    close_log(log)
    assert open_log(str(directory)).end_offset == expected['latest']


def index_entries(segment) -> tuple:
    return (list(zip(segment.index.offsets, segment.index.positions)), list(zip(segment.time_index.timestamps,
        segment.time_index.offsets)))


def assert_indexed_anew(log, segment):
    "The indexes of a segment are those that reading all of it gives."
    fresh = Segment(segment.directory, segment.base_offset, segment.index_interval)
    assert scan_segment(fresh, os.path.getsize(segment.path), check=True) is None
    assert index_entries(segment) == index_entries(fresh)
    assert (segment.size, segment.largest_timestamp, segment.largest_at) == (fresh.size, fresh.largest_timestamp,
        fresh.largest_at)


@pytest.mark.parametrize('name', KAFKAS)
def test_indexes_after_recovery(tmp_path, name):
    log = open_copy(tmp_path, name, clean=False, config=LogConfig(index_interval_bytes=200))
    for segment in log.segments: assert_indexed_anew(log, segment)


SMALL = LogConfig(segment_bytes=4000, index_interval_bytes=300)


def batch_of(count: int = 1, size: int = 10, times=(1000,), producer: tuple[int, int, int] | None = None,
             attributes: int = 0, seed: int = 0) -> bytearray:
    "A batch with values that can be told apart."
    values = random.Random(seed)
    records = [Record(timestamp_delta=times[i % len(times)] - times[0], offset_delta=i,
                      value=values.randbytes(size)) for i in range(count)]
    header = dict(zip(('producer_id', 'producer_epoch', 'base_sequence'), producer or (-1, -1, -1)))
    return bytearray(write_batch(records, attributes=attributes, base_timestamp=times[0],
                                 max_timestamp=max(times[:count]), **header))


def put(log, batch: bytearray, leader_epoch: int = 0, now: int = 0) -> int:
    return append(log, batch, HEADER.read(batch, 0)[0], leader_epoch, now)


def filled(directory: Path, batches: int = 60, config: LogConfig = SMALL):
    log = open_log(str(directory), config)
    for number in range(batches): put(log, batch_of(1 + number % 3, 80, (1000 + number, 1001 + number), seed=number))
    return log


def everything(log) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value) for batch, _ in consume(log, log.start_offset,
                                                                  1 << 20) for record in read_records(batch)]


@pytest.mark.parametrize('kind', ['index', 'timeindex'])
@pytest.mark.parametrize('damage', ['gone', 'empty', 'zeros', 'odd', 'swapped', 'beyond', 'garbage'])
def test_a_bad_index_costs_no_record(tmp_path, kind, damage):
    "Indexes are derived. If one of them is nonsense, the log that it belongs to isn't."
    log = filled(tmp_path/'foo-0')
    expected, times = everything(log), {time: find_time(log, time) for time in range(990, 1070)}
    close_log(log)
    for path in (tmp_path/'foo-0').glob(f'*.{kind}'):
        data, entry = path.read_bytes(), 8 if kind == 'index' else 12
        if damage == 'gone': path.unlink()
        if damage == 'empty': path.write_bytes(b'')
        if damage == 'zeros': path.write_bytes(bytes(len(data)))
        if damage == 'odd': path.write_bytes(data + b'\0')
        if damage == 'swapped': path.write_bytes(data[entry:2 * entry] + data[:entry] + data[2 * entry:])
        if damage == 'beyond': path.write_bytes(data + (2**31 - 1).to_bytes(4, 'big') * (entry // 4))
        if damage == 'garbage': path.write_bytes(data[:-1] + bytes([data[-1] ^ 5]))
    log = open_log(str(tmp_path/'foo-0'), SMALL)
    assert log.end_offset == expected[-1][0] + 1
    # of a sealed segment, it isn't noticed before
    if (kind, damage) == ('index', 'garbage'): log = open_log(str(tmp_path/'foo-0'), SMALL, clean=False)
    assert everything(log) == expected
    if damage not in ('beyond', 'garbage'): assert {time: find_time(log, time) for time in times} == times


def test_a_bad_txn_index_is_made_anew(tmp_path):
    "After a crash, that is, as all the rest."
    shutil.copytree(SEGMENTS/'logs'/'seg.tx-0', tmp_path/'seg.tx-0')
    path = tmp_path/'seg.tx-0'/f'{0:020}.txnindex'
    before = path.read_bytes()
    path.write_bytes(before[:-1])
    close_log(open_log(str(tmp_path/'seg.tx-0'), clean=False))
    assert path.read_bytes() == before


def test_bad_epochs_are_read_from_the_batches(tmp_path):
    "All of them, wherever they are, and however much was surely on the disk."
    log = open_log(str(tmp_path/'foo-0'), SMALL)
    for number in range(60): put(log, batch_of(1, 100, seed=number), leader_epoch=number // 10)
    expected, end = list(log.epochs.entries), log.end_offset
    close_log(log)
    (tmp_path/'foo-0'/'leader-epoch-checkpoint').write_text('0\n7\nfoo')
    for _ in range(2):   # and they are there when it is opened again
        log = open_log(str(tmp_path/'foo-0'), SMALL, recovery_point=end)
        assert log.epochs.entries == expected
        close_log(log)


def test_leaders_of_records_that_are_gone(tmp_path):
    """At the beginning they are deleted, at the end a crash took them: the epochs that are left are those of the
    records that are left."""
    log = open_log(str(tmp_path/'foo-0'))
    for number in range(60): put(log, batch_of(1, 100, seed=number), leader_epoch=number // 10)
    size, path = log.size // 60, log.active.path
    move_start(log, 15)
    assert log.epochs.entries == [(1, 15), (2, 20), (3, 30), (4, 40), (5, 50)]
    del log
    os.truncate(path, 35 * size - 1)
    log = open_log(str(tmp_path/'foo-0'), clean=False, start_offset=15)
    assert log.end_offset == 34 and log.epochs.entries == [(1, 15), (2, 20), (3, 30)]


def test_what_a_crash_leaves_behind(tmp_path):
    "Files that were about to be removed or replaced, and indexes of segments that are gone."
    log = filled(tmp_path/'foo-0')
    expected, names = everything(log), None
    close_log(log)
    names = sorted(os.listdir(tmp_path/'foo-0'))
    for name in (f'{7:020}.log.deleted', f'{7:020}.index.deleted', f'{9:020}.index', f'{9:020}.timeindex',
                 f'{9:020}.txnindex', f'{0:020}.index.tmp', f'{0:020}.log.cleaned'):
        (tmp_path/'foo-0'/name).write_bytes(b'whatever')
    log = open_log(str(tmp_path/'foo-0'), SMALL, clean=False)
    assert everything(log) == expected
    close_log(log)
    assert sorted(os.listdir(tmp_path/'foo-0')) == names


@pytest.mark.parametrize('position', range(8))
def test_an_offset_that_no_checksum_covers(tmp_path, position):
    """The base offset of a batch isn't covered by its checksum. One that is far away must not make a log that can't be
    written any more."""
    log = filled(tmp_path/'foo-0', 10)
    last = whole_batches(read_slice(locate(log, log.end_offset - 1, 1)))[0]
    at, path = log.active.size - (last.end - last.start), log.active.path
    del log
    with open(path, 'r+b') as file:
        file.seek(at + position)
        file.write(b'\x55')
    log = open_log(str(tmp_path/'foo-0'), SMALL, clean=False)
    assert put(log, batch_of(seed=4711)) >= 0
    close_log(log)
    assert everything(open_log(str(tmp_path/'foo-0'), SMALL))[-1][1] == random.Random(4711).randbytes(10)


def test_old_messages_are_no_damage(tmp_path):
    "Messages from before Kafka 0.11 are refused, not cut off."
    log = filled(tmp_path/'foo-0', 3)
    close_log(log)
    path = tmp_path/'foo-0'/f'{0:020}.log'
    message = b'\1\0' + bytes(8) + b'\xff\xff\xff\xff' + (4).to_bytes(4, 'big') + b'text'
    old = (6).to_bytes(8, 'big') + (4 + len(message)).to_bytes(4, 'big') + zlib.crc32(message).to_bytes(4,
        'big') + message
    path.write_bytes(before := path.read_bytes() + old)
    for clean in (True, False):
        with pytest.raises(DecodeError, match='format 1, from before Kafka 0.11'):
            open_log(str(tmp_path/'foo-0'), SMALL, clean=clean)
    assert path.read_bytes() == before


@pytest.mark.parametrize('cut', range(1, 90, 4))
def test_zeros_where_a_batch_should_be(tmp_path, cut):
    "What a file system leaves after a power failure: the beginning of a batch, and then zeros in its full length."
    log = filled(tmp_path/'foo-0', 5)
    path, size, expected = log.active.path, log.size, everything(log)
    data = batch_of(1, 300)
    put(log, data)
    del log
    with open(path, 'r+b') as file:
        file.truncate(size + cut)
        file.truncate(size + len(data))
    log = open_log(str(tmp_path/'foo-0'), SMALL, clean=False)
    assert everything(log) == expected and log.size == size


# --- Files ------------------------------------------------------------------------------------------------------------

def open_files(directory: Path) -> int:
    "How many files below a directory we have open."
    if not os.path.isdir('/proc/self/fd'): pytest.skip('needs /proc')
    return sum(str(os.path.realpath(link)).startswith(str(directory)) for link in Path('/proc/self/fd').iterdir())


def test_only_the_last_segment_is_held_open(tmp_path):
    "However many segments a log has, it costs one open file."
    log = filled(tmp_path/'foo-0', 400)
    assert len(log.segments) > 10 and open_files(tmp_path) == 1
    assert len(everything(log)) == log.end_offset and open_files(tmp_path) == 1
    close_log(log)
    assert open_files(tmp_path) == 0
    log = open_log(str(tmp_path/'foo-0'), SMALL, clean=False)
    assert open_files(tmp_path) == 1
    del log
    assert open_files(tmp_path) == 0


def test_a_reader_may_finish(tmp_path):
    "Who has a segment open can read it to its end, though it was removed."
    log = filled(tmp_path/'foo-0')
    part = locate(log, 0, 1 << 20)
    file, expected = part.segment.file, read_slice(part)
    move_start(log, log.end_offset)
    assert not os.path.exists(part.segment.path) and file.read(part.position, part.size) == expected


# --- Retention --------------------------------------------------------------------------------------------------------

def test_by_size(tmp_path):
    "The oldest segments go, as long as what stays is enough; never the last one."
    log = filled(tmp_path/'foo-0')
    sizes = [segment.size for segment in log.segments]
    assert len(sizes) > 3
    for kept in range(sum(sizes) + 10, -1, -500):
        log.config = log.config._replace(retention_bytes=kept)
        retain(log, now=0)
        stay = next(count for count in range(1, len(sizes) + 1) if sum(sizes[-count:]) >= min(kept, sum(sizes)))
        assert [segment.size for segment in log.segments] == sizes[-stay:]
    assert (log.start_offset == log.active.base_offset > 0
            and sorted(os.listdir(tmp_path/'foo-0'))[0] >= f'{log.start_offset:020}')
    with pytest.raises(OutOfRange): locate(log, log.start_offset - 1, 1)


def test_by_time(tmp_path):
    log = filled(tmp_path/'foo-0', config=SMALL._replace(retention_ms=100))
    latest, end = [segment.largest_timestamp for segment in log.segments], log.end_offset
    for now in range(latest[0] + 95, latest[-1] + 105):
        retain(log, now)
        expected = sum(now - time > 100 for time in latest)
        if expected < len(latest): assert [segment.largest_timestamp for segment in log.segments] == latest[expected:]
    assert log.start_offset == log.end_offset == end and log.size == 0   # the last one went, too
    assert put(log, batch_of(), now=now) == end
    assert retain(log, 0) == 0


def test_without_a_time(tmp_path):
    "Records that say no time are as old as their file."
    log = open_log(str(tmp_path/'foo-0'), LogConfig(retention_ms=1000))
    put(log, batch_of(times=(-1,)))
    written = int(os.path.getmtime(log.active.path) * 1000)
    assert retain(log, written + 900) == 0 and retain(log, written + 1100) == 1


@pytest.mark.parametrize('policy, removed', [('delete', True), ('compact', False), ('compact,delete', True),
                                             ('delete,compact', True)])
def test_who_compacts_does_not_delete(tmp_path, policy, removed):
    log = filled(tmp_path/'foo-0', config=SMALL._replace(cleanup_policy=policy, retention_bytes=1))
    assert (retain(log, 0) > 0) == removed


@pytest.mark.parametrize('unlimited', [-1])
def test_for_ever(tmp_path, unlimited):
    log = filled(tmp_path/'foo-0', config=SMALL._replace(retention_ms=unlimited, retention_bytes=unlimited))
    assert retain(log, 2**62) == 0


# --- Time -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('seed', range(12))
def test_times_in_any_order(tmp_path, seed):
    "Producers' clocks differ: the first record of a time or later is what going through all of them finds."
    rng = random.Random(seed)
    log = open_log(str(tmp_path/'foo-0'), SMALL)
    for number in range(80):
        times = [number * 10 + rng.randrange(-200, 200) if rng.random() < 0.9 else -1 for _ in range(rng.randrange(1,
            5))]
        put(log, batch_of(len(times), rng.randrange(200), [max(time, -1) for time in times], seed=number))
    if seed % 3 == 1: move_start(log, rng.randrange(log.end_offset))
    if seed % 3 == 2:
        close_log(log)
        log = open_log(str(tmp_path/'foo-0'), SMALL, clean=bool(seed % 2))
    records = [record for batch,
               _ in consume(log, log.start_offset,
                            1 << 20) for record in read_records(batch) if record.offset >= log.start_offset]
    for time in range(0, 1100, 7):
        assert find_time(log, time) == next(((r.timestamp, r.offset) for r in records if r.timestamp >= time),
                                            None), time
    latest = max(records, key=lambda record: (record.timestamp, -record.offset))
    assert find_latest_time(log) == (latest.timestamp, latest.offset)


# --- Directories ------------------------------------------------------------------------------------------------------

def test_a_log_without_a_topic_is_not_judged(tmp_path):
    """After a crash every log is opened, also those of topics that we don't know (yet). The broker's own settings
    aren't theirs."""
    shutil.copytree(SEGMENTS/'logs', tmp_path/'logs')
    (tmp_path/'logs'/CLEAN).unlink(missing_ok=True)
    logs = Logs([str(tmp_path/'logs')], 1, LogConfig(retention_ms=1), note=lambda text: None)
    begin_logs(logs)
    before = sorted(path for path in (tmp_path/'logs').rglob('*.log'))
    assert len(logs.opened()) > 5 and remove_old(logs) == 0 and sorted((tmp_path/'logs').rglob('*.log')) == before
    end_logs(logs)


def test_all_directories_are_taken_before_anything_is_touched(tmp_path, monkeypatch):
    for name in 'ab':
        (tmp_path/name).mkdir()
        (tmp_path/name/CLEAN).touch()
    logs, lock = Logs([str(tmp_path/name) for name in 'ab'], 1), log_dirs.lock_directory
    def lock_directory(path):
        if path.endswith('b'): raise InUse('another broker')
        return lock(path)
    monkeypatch.setattr(log_dirs, 'lock_directory', lock_directory)
    with pytest.raises(InUse): begin_logs(logs)
    assert all((tmp_path/name/CLEAN).exists() for name in 'ab')
    logs.directories[0].lock.close()


def test_a_few_directories_at_a_time(tmp_path):
    logs = Logs([str(tmp_path)], 1)
    logs.to_be_deleted = [(0, str(tmp_path/str(n))) for n in range(120)] + [(2**62, 'later')]
    gone = []
    assert [remove_deleted(logs, gone.append) for _ in range(4)] == [50, 50, 20, 0]
    assert gone == [str(tmp_path/str(n)) for n in range(120)] and logs.to_be_deleted == [(2**62, 'later')]


def test_a_new_log_has_no_past(tmp_path):
    """A topic that was removed may have left lines in the checkpoints. A new one of the same name doesn't start where
    the old one ended."""
    (tmp_path/'log-start-offset-checkpoint').write_text('0\n1\nfoo 0 31\n')
    (tmp_path/'recovery-point-offset-checkpoint').write_text('0\n1\nfoo 0 60\n')
    directory = LogDir(str(tmp_path), print)
    begin_directory(directory)
    log = open_partition(directory, 'foo-0', SMALL, 0)
    assert (log.start_offset, log.end_offset, log.recovery_point) == (0, 0, 0)
    directory.lock.close()


@pytest.mark.parametrize('content', ['1\n0\n', '0\nx\n', '0\n2\nfoo 0 1\n', '0\n1\nfoo 0\n', '0\n1\nfoo zero 1\n',
                                     '\0' * 20, '\xff'])
@pytest.mark.parametrize('name', ['log-start-offset-checkpoint', 'recovery-point-offset-checkpoint',
                                  'replication-offset-checkpoint'])
def test_bad_checkpoints_are_found_out_anew(tmp_path, name, content):
    close_log(filled(tmp_path/'foo-0'))
    (tmp_path/name).write_text(content, encoding='latin-1')
    (tmp_path/'.kafka_cleanshutdown').touch()
    directory, notes = LogDir(str(tmp_path), lambda text: notes.append(text)), []
    begin_directory(directory)
    log = open_partition(directory, 'foo-0', SMALL, 0)
    assert not directory.clean and len(notes) == 1 and name in notes[0]
    assert log.start_offset == 0 and len(everything(log)) == log.end_offset == 120
    directory.lock.close()


def test_empty_checkpoints_say_nothing(tmp_path):
    """Kafka makes them when it starts, and writes into them a minute later. Nothing is wrong with a directory in
    between."""
    close_log(filled(tmp_path/'foo-0'))
    for name in 'recovery-point', 'log-start', 'replication': (tmp_path/f'{name}-offset-checkpoint').touch()
    directory = LogDir(str(tmp_path), pytest.fail)
    begin_directory(directory)
    log = open_partition(directory, 'foo-0', SMALL, 0)
    assert log.start_offset == 0 and len(everything(log)) == log.end_offset == 120
    directory.lock.close()


# --- Producers --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('reopen', ['clean', 'unclean', 'unclean, without snapshots', 'unclean, with a bad snapshot'])
def test_duplicates_are_known_after_a_restart(tmp_path, reopen):
    log, sent = open_log(str(tmp_path/'foo-0'), SMALL), {}
    for number in range(100):
        producer, sequence = number % 7, number // 7
        sent[producer] = batch_of(3, 50, producer=(producer, 2, 3 * sequence)), log.end_offset
        put(log, bytearray(sent[producer][0]))
    if reopen == 'clean': close_log(log)
    directory = str(tmp_path/'foo-0')
    del log
    for path in sorted(Path(directory).glob('*.snapshot'))[-1:] if 'bad' in reopen else Path(
        directory).glob('*.snapshot') if 'without' in reopen else ():
        path.write_bytes(path.read_bytes()[:-1] + b'!') if 'bad' in reopen else path.unlink()
    log = open_log(directory, SMALL, clean=reopen == 'clean')
    for producer, (batch, offset) in sent.items():
        header = HEADER.read(batch, 0)[0]
        assert log.producers.find_duplicate(header).first_offset == offset
        with pytest.raises(BadSequence):
            log.producers.check(HEADER.read(batch_of(3, producer=(producer, 2, header.base_sequence + 4)), 0)[0])
        with pytest.raises(OldEpoch):
            log.producers.check(HEADER.read(batch_of(3, producer=(producer, 1, header.base_sequence + 3)), 0)[0])
        log.producers.check(HEADER.read(batch_of(3, producer=(producer, 2, header.base_sequence + 3)), 0)[0])


def marker(producer: int, commit: bool) -> bytearray:
    record = Record(key=bytes([0, 0, 0, commit]), value=bytes(6))
    return bytearray(write_batch([record], attributes=CONTROL | TRANSACTIONAL, base_timestamp=1, max_timestamp=1,
                                 producer_id=producer, producer_epoch=0))


@pytest.mark.parametrize('seed', range(8))
def test_transactions(tmp_path, seed):
    """Open, committed and aborted ones in any order, over segments and restarts: which offsets are decided, and which
    are aborted."""
    rng, log, opened, aborted, sequence = random.Random(seed), open_log(str(tmp_path/'foo-0'),
        SMALL._replace(segment_bytes=1500)), {}, [], defaultdict(int)
    for number in range(150):
        producer, what = rng.randrange(4), rng.random()
        if producer in opened and what < 0.3:
            commit = rng.random() < 0.5
            offset = put(log, marker(producer, commit))
            first = opened.pop(producer)
            if not commit: aborted.append((producer, first, offset))
        else:
            offset = put(log, batch_of(2, 40, producer=(producer, 0, sequence[producer]), attributes=TRANSACTIONAL,
                                       seed=number))
            sequence[producer] += 2
            opened.setdefault(producer, offset)
        if rng.random() < 0.1:
            clean = rng.random() < 0.5
            if clean: close_log(log)
            log = open_log(str(tmp_path/'foo-0'), log.config, clean=clean)
        assert log.stable_offset == min(opened.values(), default=log.end_offset)
        assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in log.producers.aborted] == aborted
        start = rng.randrange(log.end_offset)
        part = locate(log, start, rng.randrange(3000), limit=log.stable_offset)
        if part:
            end = whole_batches(read_slice(part))[-1].last_offset
            listed = {(txn.producer_id, txn.first_offset) for txn in aborted_for(log, start, part)}
            assert listed >= {(producer, first) for producer, first, last in aborted if last >= start and first <= end}
    assert aborted and len(log.segments) > 3


# --- Anything, in any order -------------------------------------------------------------------------------------------

class Stored:
    "A batch of the model."
    def __init__(self, data: bytes, base: int, epoch: int):
        self.data, self.base, self.epoch = data, base, epoch
        self.header = HEADER.read(data, 0)[0]
        self.last = base + self.header.last_offset_delta
        self.records = [(record.timestamp, record.offset) for record in read_records(Batch(data))]


class Model(RuleBasedStateMachine):
    "A log beside the list of its batches."
    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp() + '/foo-0'
        self.batches, self.start, self.end, self.epoch, self.now, self.sequence, self.number = [], 0, 0, 0, 1000, {}, 0

    def teardown(self):
        self.log = None
        shutil.rmtree(os.path.dirname(self.directory))

    @initialize(segment_bytes=st.sampled_from([300, 1000, 5000]), segment_ms=st.sampled_from([50, 1000, 10**9]),
                interval=st.sampled_from([0, 100, 1000]),
                retention_ms=st.sampled_from([-1, 100, 1000]), retention_bytes=st.sampled_from([-1, 0, 1000, 4000]))
    def begin(self, segment_bytes, segment_ms, interval, retention_ms, retention_bytes):
        self.config = LogConfig(segment_bytes=segment_bytes, segment_ms=segment_ms, index_interval_bytes=interval,
                                retention_ms=retention_ms, retention_bytes=retention_bytes)
        self.log = open_log(self.directory, self.config, self.now)

    # what the log should hold
    def first_batch(self, offset):
        return next((i for i, batch in enumerate(self.batches) if batch.last >= offset), len(self.batches))

    def groups(self):
        "The batches of each segment; where segments begin is the log's own business."
        bases, groups = [segment.base_offset for segment in self.log.segments], []
        for base, after in zip(bases, [*bases[1:], float('inf')]):
            groups.append([batch for batch in self.batches if base <= batch.base < after])
        return groups

    # what happens to it
    @rule(data=st.data(), count=st.integers(1, 4), size=st.sampled_from([0, 10, 100, 700]),
          producer=st.sampled_from([None, None, 1, 2]), new_leader=st.booleans(), passed=st.integers(0, 60))
    def append(self, data, count, size, producer, new_leader, passed):
        self.now += passed
        times = [self.now + data.draw(st.integers(-100, 20)) for _ in range(count)] if passed % 5 else [-1] * count
        self.epoch += new_leader and passed % 3 == 0
        self.number += 1
        sequence = self.sequence.get(producer, 0)
        batch = batch_of(count, size, times, producer and (producer, 0, sequence), seed=self.number)
        if producer: self.log.producers.check(HEADER.read(batch, 0)[0])
        assert put(self.log, batch, self.epoch, self.now) == self.end
        if producer: self.sequence[producer] = sequence + count
        self.batches.append(Stored(bytes(batch), self.end, self.epoch))
        self.end += count

    @rule(count=st.integers(2, 8), size=st.sampled_from([50, 400]))
    def append_several(self, count, size):
        for _ in range(count):
            self.number += 1
            batch = batch_of(1, size, (self.now,), seed=self.number)
            assert put(self.log, batch, self.epoch, self.now) == self.end
            self.batches.append(Stored(bytes(batch), self.end, self.epoch))
            self.end += 1

    @rule(part=st.floats(0, 1))
    def move_start(self, part):
        offset = int(self.start + part * (self.end - self.start))
        move_start(self.log, offset)
        self.start = max(self.start, offset)
        self.forget()

    @rule(passed=st.integers(0, 1000))
    def retain(self, passed):
        self.now += passed
        sizes, gone = [(sum(len(batch.data) for batch in group), max((batch.header.max_timestamp for batch in group),
                                                                     default=-1)) for group in self.groups()], 0
        left = sum(size for size, _ in sizes)
        for number, (size, latest) in enumerate(sizes):
            if latest < 0: latest = int(os.path.getmtime(self.log.segments[number].path) * 1000)
            too_old = 0 <= self.config.retention_ms < self.now - latest
            too_much = 0 <= self.config.retention_bytes <= left - size and number < len(sizes) - 1
            if not size or not (too_old or too_much): break
            gone, left = gone + 1, left - size
        bases = [segment.base_offset for segment in self.log.segments][gone:]
        assert retain(self.log, self.now) == gone
        if gone: self.start = max(self.start, bases[0] if bases else self.end)
        self.forget()

    def forget(self):
        "Batches in segments that are gone."
        self.batches = [batch for batch in self.batches if batch.base >= self.log.segments[0].base_offset]

    @rule()
    def flush(self):
        flush = begin_flush(self.log)
        sync_files(flush)
        end_flush(self.log, flush)
        assert self.log.recovery_point == self.end and self.log.unflushed == 0

    @rule()
    def roll(self):
        if self.log.active.size: roll(self.log, self.now)

    @rule()
    def restart(self):
        close_log(self.log)
        start = self.log.start_offset
        self.log = open_log(self.directory, self.config, self.now, start_offset=start, note=self.nothing_to_mend)

    def nothing_to_mend(self, text): raise AssertionError(text)

    @rule()
    def crash(self):
        "All that was written is there."
        point, start = self.log.recovery_point, self.log.start_offset
        self.log = None
        self.log = open_log(self.directory, self.config, self.now, clean=False, recovery_point=point,
                            start_offset=start, note=self.nothing_to_mend)
        self.check_indexes(point)

    @rule(part=st.floats(0, 1), behind=st.sampled_from([b'', bytes(100), b'\xff' * 30, b'garbage', 'half a batch',
                                                        'a flipped bit']), which=st.integers(0, 100))
    def power_failure(self, part, behind, which):
        """Of a segment that wasn't flushed, some bytes are missing, or others stand there. What lies before them stays;
        what comes after is gone."""
        unflushed = [number for number,
                     (segment, end) in enumerate(with_ends(self.log)) if end > self.log.recovery_point
                     or segment is self.log.active]
        number = unflushed[which % len(unflushed)]
        group, segment = self.groups()[number], self.log.segments[number]
        point, start, bases = self.log.recovery_point, self.log.start_offset, [segment.base_offset for segment
            in self.log.segments]
        safe = sum(len(batch.data) for batch in group if batch.last < point)
        cut = safe + int(part * (segment.size - safe))
        self.log = None
        with open(segment.path, 'r+b') as file:
            if behind == 'a flipped bit' and cut < segment.size:
                at = sum(len(batch.data) for batch in group if self.end_of(group, batch) <= cut)
                if cut - at in range(0, 8) or cut - at in range(12, 17): cut = at + 30   # what no checksum covers
                file.seek(cut)
                byte = file.read(1)[0]
                file.seek(cut)
                file.write(bytes([byte ^ 1]))
            else:
                file.truncate(cut)
                file.seek(cut)
                if behind == 'half a batch': file.write(batch_of(2, 100)[:100])
                elif behind != 'a flipped bit': file.write(behind)
        content, kept, at = Path(segment.path).read_bytes(), [], 0
        for batch in group:
            if content[at:at + len(batch.data)] != batch.data: break
            kept, at = [*kept, batch], at + len(batch.data)
        whole = at == len(content)   # nobody can see that something is missing
        later = [batch for batch in self.batches if batch.base > segment.base_offset and batch not
                 in group] if whole else []
        self.batches = [batch for batch in self.batches if batch.base < segment.base_offset] + kept + later
        notes = []
        self.log = open_log(self.directory, self.config, self.now, clean=False, recovery_point=point,
                            start_offset=start, note=notes.append)
        assert bool(notes) == (not whole)
        self.end = max([batch.last + 1 for batch in self.batches] + [base for base in bases if whole
                                                                     or base <= segment.base_offset])
        if start > self.end: self.batches, self.end = [], start   # nothing is left but the offset
        self.sequence = {}
        for batch in self.batches:
            if batch.header.producer_id >= 0:
                self.sequence[
                    batch.header.producer_id] = batch.header.base_sequence + batch.header.last_offset_delta + 1
        # of producers whose batches were deleted before, the log may know more
        for producer, known in self.log.producers.producers.items():
            if producer not in self.sequence and known.sent: self.sequence[producer] = known.sent[-1].last_sequence + 1
        self.check_indexes(point)

    def end_of(self, group, batch): return sum(len(other.data) for other in group if other.base <= batch.base)

    def check_indexes(self, recovery_point):
        for segment, end in with_ends(self.log):
            if end > recovery_point: assert_indexed_anew(self.log, segment)

    # what can be seen of it
    @rule(part=st.floats(0, 1), max_bytes=st.sampled_from([0, 1, 61, 100, 500, 1 << 20]), at_least_one=st.booleans())
    def read(self, part, max_bytes, at_least_one):
        offset = int(self.start + part * (self.end - self.start))
        found = locate(self.log, offset, max_bytes, at_least_one)
        first = self.first_batch(offset)
        if first == len(self.batches) or not at_least_one and len(self.batches[first].data) > max_bytes:
            assert found is None
        else:
            group = next(group for group in self.groups() if self.batches[first] in group)
            data = b''.join(batch.data for batch in group[group.index(self.batches[first]):])
            wanted = max(max_bytes, len(self.batches[first].data)) if at_least_one else max_bytes
            assert read_slice(found) == data[:wanted]

    @rule(max_bytes=st.sampled_from([1, 500, 1 << 20]))
    def read_all(self, max_bytes):
        expected = [batch.data for batch in self.batches if batch.last >= self.start]
        assert [batch.buf[batch.start:batch.end] for batch, _ in consume(self.log, self.start, max_bytes)] == expected

    @rule(outside=st.integers(1, 1000))
    def read_outside(self, outside):
        for offset in (self.start - outside, self.end + outside):
            with pytest.raises(OutOfRange): locate(self.log, offset, 1)

    @rule(ago=st.integers(-50, 500))
    def look_for_a_time(self, ago):
        time = self.now - ago
        expected = next((record for batch in self.batches for record in batch.records if record[0] >= time
                         and record[1] >= self.start), None)
        assert find_time(self.log, time) == expected

    @rule()
    def send_again(self):
        for producer in self.sequence:
            last = next((batch for batch in reversed(self.batches) if batch.header.producer_id == producer), None)
            if last: assert self.log.producers.find_duplicate(last.header).first_offset == last.base

    @rule()
    def look_for_epochs(self):
        for batch in self.batches:
            if batch.base >= self.start: assert self.log.epochs.at(batch.base) == batch.epoch
        for _, offset in self.log.epochs.entries: assert offset == self.start or self.start < offset < self.end

    @invariant()
    def nothing_strange(self):
        if not hasattr(self, 'log'): return
        log = self.log
        assert (log.start_offset, log.end_offset, log.high_watermark, log.stable_offset) == (self.start, self.end,
            self.end, self.end)
        assert sorted(name for name in os.listdir(self.directory)
                      if name.endswith('.log')) == [os.path.basename(segment.path) for segment in log.segments]
        for segment, group in zip(log.segments, self.groups()):
            size = sum(len(batch.data) for batch in group)
            assert size == segment.size == os.path.getsize(segment.path)
            assert size <= self.config.segment_bytes or len(group) == 1
        assert [batch.base for batch in self.batches] == sorted({batch.base for batch in self.batches})


TestModel = Model.TestCase
TestModel.settings = budget(150, stateful_step_count=30, suppress_health_check=list(HealthCheck))
