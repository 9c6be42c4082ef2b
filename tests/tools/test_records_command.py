"""`kafka-scratch records`: what is in logs, as a Java consumer saw it; and `inspect` on the same segments.

The command is run as its users run it, as a process.
"""
import fcntl
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections import defaultdict
from pathlib import Path

import pytest

from broker_process import FIXTURES, ROOT, environment
from kafka_scratch.tools.records import records_in
from kafka_scratch.log.reader import chosen_sources, find_decided, is_committed, named_partition
from kafka_scratch.log.partition import LogConfig, append
from kafka_scratch.log.recovery import open_log
from kafka_scratch.log.producer_state import EndTxnMarker
from kafka_scratch.log.records import CONTROL, TRANSACTIONAL, Batch, ControlKey, Record, write_batch

SEGMENTS = FIXTURES/'segments'
LOGS, DAMAGED = SEGMENTS/'logs', SEGMENTS/'damaged'
EXPECTED = [line for line in (SEGMENTS/'records.jsonl').read_text('utf-8').splitlines()]
COMMITTED = json.loads((SEGMENTS/'records-read-committed.json').read_text())


def run(*arguments, cwd=None, **env) -> tuple[int, list[str], str]:
    "Exit code, lines of output, and complaints."
    done = subprocess.run([sys.executable, '-m', 'kafka_scratch', *map(os.fspath, arguments)], capture_output=True,
                          timeout=60, cwd=cwd,
                          env=environment(PYTHONPATH=str(ROOT), **env))
    assert b'Traceback' not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode('utf-8').splitlines(), done.stderr.decode('utf-8')


def records(*arguments) -> list[dict]:
    code, lines, complaint = run('records', *arguments)
    assert (code, complaint) == (0, '')
    return [json.loads(line) for line in lines]


def place(record: dict): return record['topic'], record['partition'], record['offset']


# --- What a Java consumer saw -----------------------------------------------------------------------------------------

def test_all_lines_of_the_log_directory():
    "Byte for byte, once the records for brokers are left out. The order of partitions is ours."
    code, lines, complaint = run('records', LOGS, '--max-bytes', '400')
    assert (code, complaint) == (0, '')
    ours = [line for line in lines if '"control":true' not in line]
    assert len(ours) == 381 and sorted(ours) == sorted(EXPECTED)
    places = [place(json.loads(line)) for line in lines]
    assert places == sorted(places)


def test_control_records_say_what_they_are():
    "Their types and offsets are those that kafka-dump-log prints."
    ours = defaultdict(list)
    for record in records(LOGS):
        assert set(record) - {'control', 'controlType'} == set(json.loads(EXPECTED[0]))
        if record.get('control'):
            ours[f'{record["topic"]}-{record["partition"]}'].append((record['offset'], record['controlType']))
    theirs, name = defaultdict(list), None
    for line in gzip.open(SEGMENTS/'data.dump.txt.gz', 'rt', encoding='utf-8'):
        if len(line) > 1000: continue   # values
        if found := re.search(r'^Dumping (\S+-\d+)/\d{20}\.log', line): name = found[1]
        if found := re.search(r'offset: (\d+) .*endTxnMarker: (\w+)', line):
            theirs[name].append((int(found[1]), found[2]))
    assert ours == {name: found for name, found in theirs.items() if not name.startswith('__')} and len(ours) == 3


def test_committed():
    code, lines, complaint = run('records', LOGS, '--committed', '--max-bytes', '400')
    assert (code, complaint) == (0, '')
    found = {name: [] for name in COMMITTED}
    for record in map(json.loads, lines): found[f'{record["topic"]}-{record["partition"]}'].append(record['offset'])
    assert found == {name: told['offsets'] for name, told in COMMITTED.items()}
    assert set(lines) <= set(EXPECTED)


@pytest.mark.parametrize('name', COMMITTED)
def test_one_partition_and_one_segment_at_a_time(name):
    "The directory of a partition, and its segments one by one, give the same lines as the whole."
    wanted = [line for line in EXPECTED if f'{json.loads(line)["topic"]}-{json.loads(line)["partition"]}' == name]
    by_offset = lambda line: json.loads(line)['offset']
    code, lines, _ = run('records', LOGS/name, '--max-bytes', '400')
    assert code == 0 and [line for line in lines if 'control' not in json.loads(line)] == sorted(wanted, key=by_offset)
    pieces = [run('records', path, '--max-bytes', '400') for path in sorted((LOGS/name).glob('*.log'))[:3]]
    assert all(code == 0 for code, _, _ in pieces)
    assert lines[:sum(len(piece) for _, piece, _ in pieces)] == [line for _, piece, _ in pieces for line in piece]


def test_committed_segment_by_segment():
    "Transactions are decided by the whole log, also if only a segment of it is printed."
    found = [record['offset'] for path in sorted((LOGS/'seg.compacted-tx-0').glob('*.log')) for record in records(path,
        '--committed')]
    assert found == COMMITTED['seg.compacted-tx-0']['offsets']


def test_long_values_are_whole_unless_asked_otherwise():
    big = records(LOGS/'seg.big-0')
    expected = [json.loads(line) for line in EXPECTED if '"seg.big"' in line]
    assert [len(record['value']['hex']) // 2 for record in big] == [r['value']['len'] if 'len' in r['value']
                                                                    else len(r['value']['hex']) // 2 for r in expected]
    short = records(LOGS/'seg_shapes-0', '--max-bytes', '0')
    assert short[1]['key'] == {'hex': ''} and set(short[2]['key']) == {'len', 'sha256'} and short[0]['key'] is None
    assert ['b', None] in short[10]['headers'] and ['c',
                                                    {'hex': ''}] in short[10]['headers'] and set(
                                                        short[10]['headers'][0][1]) == {'len', 'sha256'}


# --- Options ----------------------------------------------------------------------------------------------------------

def test_topic_and_partition():
    assert {place(record)[:2] for record in records(LOGS, '--topic', 'seg.tx')} == {('seg.tx', 0), ('seg.tx', 1)}
    assert {place(record)[:2] for record in records(LOGS, '--topic', 'seg.tx', '--partition', '1')} == {('seg.tx', 1)}
    assert {place(record)[1] for record in records(LOGS, '--partition', '1')} == {1}
    assert len(records(LOGS/'seg.tx-1', '--topic', 'seg.tx', '--partition', '1')) == 4


def test_internal_topics_only_by_name():
    assert not any(record['topic'].startswith('__') for record in records(LOGS))
    offsets, = records(LOGS, '--topic', '__consumer_offsets', '--from', '1')
    assert offsets['offset'] == 1 and records(LOGS/'__consumer_offsets-0', '--from', '1') == [offsets]
    assert len(records(LOGS, '--topic', '__transaction_state')) == 34
    leader, *_ = records(LOGS/'__cluster_metadata-0')
    assert leader['controlType'] == 'LEADER_CHANGE' and leader['topic'] == '__cluster_metadata'


@pytest.mark.parametrize('first', [0, 30, 31, 35, 36, 37, 59, 60, 10**18])
def test_from(first):
    "Deleted records stay away, wherever one begins."
    assert [record['offset'] for record in records(LOGS/'seg.trimmed-0', '--from',
                                                   str(first))] == [*range(max(first, 31), 60)]


def test_from_inside_a_batch():
    whole = records(LOGS/'seg.java-zstd-0')
    for first in range(11): assert records(LOGS/'seg.java-zstd-0', '--from', str(first)) == whole[first:]


def test_start_offset_counts_for_a_segment_too():
    segment = sorted((LOGS/'seg.trimmed-0').glob('*.log'))[0]
    assert [record['offset'] for record in records(segment)] == [*range(31, 36)]


def test_from_within_the_directory():
    assert run('records', '.', cwd=LOGS/'seg.trimmed-0')[:2] == run('records', LOGS/'seg.trimmed-0')[:2]
    assert run('records', '.', cwd=LOGS)[:2] == run('records', LOGS)[:2] == run('records', f'{LOGS}/')[:2]


# --- Nothing is touched -----------------------------------------------------------------------------------------------

def everything(directory: Path) -> dict:
    return {path: (path.stat().st_mtime_ns, path.stat().st_mode,
                   path.read_bytes() if path.is_file() else None) for path in sorted(directory.rglob('*'))}


def test_the_directory_stays_as_it_is(tmp_path):
    "Also where a broker would mend: a torn end, indexes without a segment, leftovers. And a broker may hold the lock."
    logs = tmp_path/'logs'
    shutil.copytree(LOGS, logs)
    shutil.copy(DAMAGED/'truncated-last-batch'/f'{0:020}.log', logs/'seg.java-none-0')
    for name in (f'{99:020}.index', f'{0:020}.log.deleted', 'x.tmp', f'{77:020}.snapshot'):
        (logs/'seg.multi-0'/name).write_bytes(b'\1\2\3')
    with open(logs/'.lock', 'a') as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        before = everything(logs)
        assert run('records', logs)[0] == 1 and run('records', logs, '--committed')[0] == 1
        assert everything(logs) == before


def test_a_directory_that_may_not_be_written(tmp_path):
    shutil.copytree(LOGS/'seg.tx-0', tmp_path/'logs'/'seg.tx-0')
    for path in (tmp_path/'logs').rglob('*'): path.chmod(0o555 if path.is_dir() else 0o444)
    try: assert len(records(tmp_path/'logs', '--committed')) == 7
    finally: (tmp_path/'logs'/'seg.tx-0').chmod(0o755)


# --- Damage -----------------------------------------------------------------------------------------------------------

# How many records come before the damage, and the byte of the batch in which it is. (That a leader epoch was changed
# nobody can tell: it isn't
# covered by the checksum.)
DAMAGE = {'truncated-last-batch': (9, 395), 'truncated-in-header': (9, 303), 'flipped-byte-in-crc': (8, 226),
          'flipped-byte-in-leader-epoch': (10, None),
          'trailing-zeros': (10, 498), 'flipped-byte-in-value': (8, 321), 'bad-length': (8, 321), 'bad-magic': (9, 395)}


def test_all_kinds_of_damage_are_tried():
    assert set(DAMAGE) == {path.name for path in DAMAGED.iterdir() if path.is_dir()}


@pytest.mark.parametrize('name', DAMAGE)
def test_damage(name):
    "What came before is printed; then a sentence with file and position."
    count, position = DAMAGE[name]
    path = DAMAGED/name/f'{0:020}.log'
    for given in (path, path.parent):
        code, lines, complaint = run('records', given)
        assert [json.loads(line)['offset'] for line in lines] == [*range(count)]
        if position is None: assert (code, complaint) == (0, '')
        else:
            assert (code == 1 and complaint.startswith(f'kafka-scratch: {path}, byte {position}: ')
                    and complaint.count('\n') == 1)
    assert {json.loads(line)['topic'] for line in lines} == {None}   # the directory's name says no topic


def test_other_partitions_are_printed_although_one_is_damaged(tmp_path):
    shutil.copytree(LOGS, tmp_path/'logs')
    broken = tmp_path/'logs'/'seg.java-none-0'/f'{0:020}.log'
    broken.write_bytes(b'nonsense' * 20)
    code, lines, complaint = run('records', tmp_path/'logs', '--max-bytes', '400')
    assert code == 1 and complaint.count('\n') == 1 and f'{broken}, byte 0' in complaint
    ours = [line for line in lines if '"control":true' not in line]
    assert sorted(ours) == sorted(line for line in EXPECTED if '"seg.java-none"' not in line)


def test_records_that_contradict_their_batch(tmp_path):
    "The checksum fits, but not the count: whoever wrote this made a mistake, or meant harm."
    batch = bytearray(write_batch([Record(value=b'v')], base_offset=3))
    batch[60] = 9
    (tmp_path/'odd-0').mkdir()
    good = write_batch([Record(value=b'v', offset_delta=i) for i in range(3)])
    from kafka_scratch.log.checksums import crc32c
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, 'big')
    (tmp_path/'odd-0'/f'{0:020}.log').write_bytes(good + batch)
    code, lines, complaint = run('records', tmp_path)
    assert code == 1 and len(lines) == 3 and f'byte {len(good)}: in this batch, ' in complaint


def test_a_compressed_batch_that_can_not_be_decompressed(tmp_path):
    source = (LOGS/'seg.java-zstd-0'/f'{0:020}.log').read_bytes()
    batch = bytearray(source[:Batch(source).end])
    batch[61:65] = b'\0\0\0\0'
    from kafka_scratch.log.checksums import crc32c
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, 'big')
    (tmp_path/'odd-0').mkdir()
    (tmp_path/'odd-0'/f'{0:020}.log').write_bytes(batch)
    code, lines, complaint = run('records', tmp_path)
    assert code == 1 and not lines and 'byte 0: in this batch, zstd' in complaint


def test_an_empty_segment_has_no_records():
    assert records(LOGS/'seg-empty-0') == records(LOGS/'seg-empty-0'/f'{0:020}.log') == []


# --- Mistakes ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('arguments, says', [
    (['/nowhere/at-all'], '/nowhere/at-all is neither a file nor a directory'),
    ([LOGS/'seg.tx-0'/f'{0:020}.index'], '.index is no segment'), ([LOGS/'meta.properties'],
                                                                   'meta.properties is no segment'),
    ([FIXTURES/'wire'], 'has no log of a topic'), ([LOGS, '--topic', 'nobody'], 'has no log of nobody'),
    ([LOGS, '--topic', 'seg.tx', '--partition', '9'], 'has no log of seg.tx, partition 9'),
    ([LOGS/'seg.tx-0', '--topic', 'seg.big'], 'has no log of seg.big'),
    ([LOGS, '--from', '-1'], "'-1' is no number from 0 on"), ([LOGS, '--max-bytes', 'x'], "'x' is no number"),
    ([], 'LOG_DIR_OR_SEGMENT')], ids=str)
def test_mistakes_have_their_sentence(arguments, says):
    code, lines, complaint = run('records', *arguments)
    assert code == 2 and not lines and says in complaint.splitlines()[-1]


def test_a_directory_with_nothing_but_a_metadata_log():
    code, _, complaint = run('records', FIXTURES/'three-brokers'/'node-1')
    assert code == 2 and complaint.count('\n') == 1


def test_a_checkpoint_that_makes_no_sense(tmp_path):
    shutil.copytree(LOGS/'seg.tx-0', tmp_path/'seg.tx-0')
    for content in (b'nonsense', b'0\n1\nseg.tx 0\n', b'0\n1\nseg.tx 0 x\n', b'\xff\xfe'):
        (tmp_path/'log-start-offset-checkpoint').write_bytes(content)
        code, _, complaint = run('records', tmp_path)
        assert code == 2 and 'log-start-offset-checkpoint' in complaint and complaint.count('\n') == 1
    (tmp_path/'log-start-offset-checkpoint').write_bytes(b'')   # as a broker leaves it in its first minute
    assert run('records', tmp_path)[0] == 0


def test_the_reader_may_go_away():
    "`| head` has seen enough."
    process = subprocess.Popen([sys.executable, '-m', 'kafka_scratch', 'records', LOGS/'seg.big-0'],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment(PYTHONPATH=str(ROOT)))
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(30) == 0 and process.stderr.read() == b''
    process.stderr.close()


def test_lines_are_json_in_any_encoding():
    code, lines, _ = run('records', LOGS/'seg_shapes-0', PYTHONIOENCODING='ascii')
    assert code == 0 and [json.loads(line) for line in lines] == records(LOGS/'seg_shapes-0') and all(map(str.isascii,
        lines))


# --- Made by hand -----------------------------------------------------------------------------------------------------

def test_names():
    assert named_partition('/data/a-b.c_d-12') == ('a-b.c_d', 12)
    assert (named_partition('orders-0.4f3f3ad1-delete')
            == named_partition('orders') == named_partition('orders-') == named_partition('-3') == (None, None))


def sent(log, producer: int, values: int, epoch: int = 0, attributes: int = TRANSACTIONAL):
    batch = bytearray(write_batch([Record(offset_delta=i, value=b'v') for i in range(values)], attributes=attributes,
                                  producer_id=producer, producer_epoch=epoch))
    append(log, batch, Batch(batch).header, 0, now=0)


def marked(log, producer: int, type: int):
    record = Record(key=ControlKey(version=0, type=type).encode(0), value=EndTxnMarker(version=0,
        coordinator_epoch=0).encode(0))
    batch = bytearray(write_batch([record], attributes=TRANSACTIONAL | CONTROL, producer_id=producer, producer_epoch=0))
    append(log, batch, Batch(batch).header, 0, now=0)


def test_transactions_over_many_segments(tmp_path):
    "Interleaved, over segments of one batch or two; the last one is open."
    log = open_log(str(tmp_path/'orders-0'), LogConfig(segment_bytes=150))
    sent(log, 1, 2)                   # 0, 1: aborted at 4
    sent(log, 2, 1)                   # 2: committed at 6
    sent(log, 9, 1, attributes=0)     # 3: no transaction
    marked(log, 1, 0)                 # 4
    sent(log, 1, 1)                   # 5: committed at 7
    marked(log, 2, 1)                 # 6
    marked(log, 1, 1)                 # 7
    sent(log, 2, 1)                   # 8: aborted at 9
    marked(log, 2, 0)                 # 9
    sent(log, 1, 1)                   # 10: undecided
    sent(log, 9, 1, attributes=0)     # 11: after something undecided
    assert len(log.segments) > 4 and log.stable_offset == 10
    source, = chosen_sources(str(tmp_path))
    assert [record['offset'] for batch in records_in(source, committed=True) for record in batch] == [2, 3, 5]
    assert [record['offset'] for batch in records_in(source) for record in batch] == [*range(12)]
    for path in source.paths:
        one, = chosen_sources(path)
        assert all(record['offset'] in (2, 3, 5) for batch in records_in(one, committed=True) for record in batch)
    copy = shutil.copy(source.paths[0], tmp_path/'copy.log')   # a segment by itself: what it doesn't say is undecided
    assert [record for batch in records_in(*chosen_sources(str(copy)), committed=True) for record in batch] == []


def test_what_compaction_emptied_is_decided(tmp_path):
    "An empty batch is kept for its sequence number, while the marker may be gone."
    empty = write_batch([], base_offset=0, attributes=TRANSACTIONAL, producer_id=4, producer_epoch=0, base_sequence=0)
    (tmp_path/'orders-0').mkdir()
    (tmp_path/'orders-0'/f'{0:020}.log').write_bytes(empty + write_batch([Record(value=b'v')], base_offset=1))
    source, = chosen_sources(str(tmp_path))
    assert find_decided(source.log).end == 2**63 and [r['offset'] for batch in records_in(source,
        committed=True) for r in batch] == [1]


def test_is_committed():
    source, = chosen_sources(str(LOGS/'seg.tx-0'))
    decided = find_decided(source.log)
    batches = {batch.base_offset: batch for path in source.paths for batch in all_batches(path)}
    seen = [base for base, batch in batches.items() if base < decided.end and is_committed(batch, decided)]
    assert decided.end == COMMITTED['seg.tx-0']['endOffset'] and set(seen) <= set(COMMITTED['seg.tx-0']['offsets'])


def all_batches(path):
    from kafka_scratch.log.records import read_batches
    return read_batches(Path(path).read_bytes())


def test_memory_stays_flat(tmp_path):
    "Six megabytes in six thousand batches, in two segments, with and without transactions."
    (tmp_path/'large-0').mkdir()
    value, base = b'x' * 950, 0
    for _ in range(2):
        with open(tmp_path/'large-0'/f'{base:020}.log', 'wb') as file:
            for _ in range(3_000):
                file.write(write_batch([Record(value=value)], base_offset=base, producer_id=7, producer_epoch=0,
                                       base_sequence=base))
                base += 1
    for committed in (False, True):
        tracemalloc.start()
        try:
            assert sum(len(batch) for batch in records_in(*chosen_sources(str(tmp_path)), committed=committed,
                                                          most=10)) == 6_000
            assert tracemalloc.get_traced_memory()[1] < 2 << 20
        finally: tracemalloc.stop()


# --- Byte by byte -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name',
                         sorted(path.name for path in LOGS.iterdir() if path.is_dir() and path.name not
                                in ('seg-empty-0', 'seg.big-0')))
def test_inspect_explains_every_byte(name):
    "Of the segment, and of the records in compressed batches."
    from kafka_scratch.tools.inspect import inspections
    for path in sorted((LOGS/name).glob('*.log')):
        found = list(inspections(path.read_bytes(), str(path)))
        assert all(inspection.problem == '' and inspection.end == inspection.stop for inspection in found)
        batches = [inspection for inspection in found if ' without ' not in inspection.title]
        assert len(batches) == len(list(all_batches(path)))
        assert len(found) == len(batches) + sum(batch.codec > 0 for batch in all_batches(path))
        assert [each.start for each in batches] + [path.stat().st_size] == [0, *(each.stop for each in batches)]
        for inspection in found:
            ends = [inspection.start, *(span.offset + span.length for span in inspection.spans)]
            assert [span.offset for span in inspection.spans] == ends[:-1] and ends[-1] == inspection.stop


def test_inspect_shows_what_is_compressed():
    for name in ('gzip', 'snappy', 'lz4', 'zstd'):
        segment = LOGS/f'seg.java-{name}-0'/f'{0:020}.log'
        code, lines, _ = run('inspect', segment)
        assert code == 0 and any(f'batch[1] without {name}' in line for line in lines) and any("b'single'" in line
            for line in lines)
        for form in ('svg', 'html', 'page'): assert run('inspect', '--as', form, segment)[0] == 0


@pytest.mark.parametrize('name', DAMAGE)
def test_inspect_damage(name):
    code, lines, _ = run('inspect', '--as', 'tree', DAMAGED/name/f'{0:020}.log')
    assert code == (1 if DAMAGE[name][1] else 0) and lines[0] == f'segment {name}/{0:020}.log'
