"""`kafka-scratch doctor`: what it finds in directories that were made for it, and that it leaves no trace.

The command is run as its users run it, as a process; what it finds in detail is asked of its functions.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from broker_process import FIXTURES, ROOT, environment, properties, running
from kafka_scratch.broker.node import open_node, stop_node
from kafka_scratch.broker.running import running_broker
from kafka_scratch.cluster.config import read_config
from kafka_scratch.cluster.log_dirs import CLEAN
from kafka_scratch.log.control_records import ControlKey, EndTxnMarker
from kafka_scratch.log.partition import LogConfig, append
from kafka_scratch.log.records import CONTROL, HEADER, TRANSACTIONAL, Record, write_batch
from kafka_scratch.log.recovery import close_log, open_log
from kafka_scratch.log.segments import file_name
from kafka_scratch.tools.doctor import as_data, report
from kafka_scratch.tools.doctor_directory import Diagnosis, examine
from kafka_scratch.tools.doctor_growth import why_not_cleaned, why_not_removed
from kafka_scratch.tools.doctor_lock import asked_holder, in_use
from kafka_scratch.wire.primitives import DecodeError

LOGS, SINGLE = FIXTURES/'segments'/'logs', FIXTURES/'single-broker'/'logs'
NOW, DAY = 1_795_000_000_000, 86_400_000


def run(*arguments) -> tuple[int, str, str]:
    "Exit code, output, and complaints."
    done = subprocess.run([sys.executable, '-m', 'kafka_scratch', 'doctor', *map(os.fspath, arguments)], timeout=60,
                          capture_output=True, text=True, env=environment(PYTHONPATH=str(ROOT)))
    assert 'Traceback' not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def everything(directory: Path) -> dict:
    "Every file below a directory, with its times and its content."
    found = {}
    for path in sorted(directory.rglob('*')):
        stat = path.stat()
        found[path] = stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, path.read_bytes() if path.is_file() else None
    return found


def diagnosis(*log_dirs, **options) -> Diagnosis: return examine(Diagnosis(list(log_dirs), now=NOW, **options))


def copied(tmp_path: Path, source: Path = LOGS) -> Path: return Path(shutil.copytree(source, tmp_path/'logs'))


def altered(path: Path, at: int = -1):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


# --- Kafka's own ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('log_dir', [LOGS, SINGLE], ids=['segments', 'single-broker'])
@pytest.mark.parametrize('quick', [False, True], ids=['all of it', 'quick'])
def test_what_kafka_left_in_order(log_dir, quick):
    before = everything(log_dir)
    found = diagnosis(log_dir, quick=quick)
    assert found.bad == [] and everything(log_dir) == before
    assert list(report(found))[-1] == 'All is well.'


METADATA_ONLY = sorted({path.parent for path in FIXTURES.rglob('__cluster_metadata-0')} - {LOGS, SINGLE})


@pytest.mark.parametrize('log_dir', METADATA_ONLY, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_directories_with_little_but_metadata(log_dir):
    "Their logs were not kept: that is all there is to say."
    before = everything(log_dir)
    found = diagnosis(log_dir)
    assert everything(log_dir) == before
    assert found.bad == []


def test_the_command(tmp_path):
    code, text, _ = run(LOGS)
    assert code == 0 and text.endswith('All is well.\n')
    code, text, _ = run(LOGS, '--json')
    found = json.loads(text)
    assert code == 0 and found['well'] and len(found['partitions']) == 27
    assert {each['topic'] for each in found['partitions'] if each['open_transactions']} == {'seg.tx'}
    log_dir = copied(tmp_path)
    altered(log_dir/'seg.big-0'/file_name(0))
    code, text, _ = run(log_dir, '--json')
    finding = next(each for each in json.loads(text)['findings'] if each['bad'])
    assert code == 1 and finding['where'].endswith(file_name(0)) and finding['position'] is not None
    assert run(log_dir, '--json')[1] == text   # twice the same


@pytest.mark.parametrize('arguments, complaint', [
    (['/nowhere'], 'neither a log directory nor'), ([FIXTURES], 'no log directory'),
    ([LOGS/'seg.tx-0'], 'one partition'), ([LOGS/'meta.properties', LOGS], 'or one server.properties')], ids=str)
def test_wrong_use(arguments, complaint):
    code, text, said = run(*arguments)
    assert code == 2 and not text and complaint in said


def test_a_properties_file_and_several_directories(tmp_path):
    first, second = copied(tmp_path), tmp_path/'second'
    second.mkdir()
    shutil.move(first/'seg.multi-0', second)
    for name in 'meta.properties', CLEAN: shutil.copy(first/name, second)
    file = properties(tmp_path/'server.properties', log_dirs=f'{first},{second}', listeners='PLAINTEXT://127.0.0.1:0')
    code, text, _ = run(file)
    assert code == 0 and f'{second}\n  node 1' in text and '27 partitions' in text
    other = tmp_path/'other'
    other.mkdir()
    (other/'meta.properties').write_text('version=1\nnode.id=1\ncluster.id=another\n')
    assert 'two clusters' in run(first, other)[1]
    properties(tmp_path/'server.properties', log_dirs=first, node_id=7, listeners='PLAINTEXT://127.0.0.1:0')
    assert 'belongs to node 1, but we are node 7' in run(tmp_path/'server.properties')[1]


# --- Each kind of finding ---------------------------------------------------------------------------------------------

def unclean(log_dir: Path): (log_dir/CLEAN).unlink()


def torn_end(log_dir):
    unclean(log_dir)
    path = log_dir/'seg.multi-0'/file_name(132)
    os.truncate(path, path.stat().st_size - 1)


def wrong_byte(log_dir): altered(log_dir/'seg.multi-0'/file_name(32), 100)


def wrong_byte_after_crash(log_dir):
    unclean(log_dir)
    (log_dir/'recovery-point-offset-checkpoint').unlink()   # or it wouldn't look
    wrong_byte(log_dir)


def wrong_end_after_clean_shutdown(log_dir):
    "With what looks like a batch, so that it isn't taken for half a one."
    path = log_dir/'seg.java-none-0'/file_name(0)
    path.write_bytes(path.read_bytes() + bytes(61))


def wrong_index(log_dir):
    path = log_dir/'seg.multi-0'/file_name(112, 'index')
    altered(path, -1)


def cut_index(log_dir): os.truncate(log_dir/'seg.multi-0'/file_name(112, 'index'), 3)


def wrong_time_index(log_dir):
    path = log_dir/'seg.multi-0'/file_name(112, 'timeindex')
    path.write_bytes(bytes(7) + b'\1' + path.read_bytes()[8:])


def wrong_snapshot(log_dir): altered(max((log_dir/'seg.tx-0').glob('*.snapshot')))
def wrong_txn_index(log_dir): os.truncate(log_dir/'seg.tx-0'/file_name(0, 'txnindex'), 5)
def wrong_epochs(log_dir): (log_dir/'seg.tx-0'/'leader-epoch-checkpoint').write_text('0\n9\n')
def wrong_checkpoint(log_dir): (log_dir/'recovery-point-offset-checkpoint').write_text('nonsense')
def wrong_owner(log_dir): shutil.copy(log_dir/'seg.tx-0'/'partition.metadata', log_dir/'seg.big-0')
def bad_owner(log_dir): (log_dir/'seg.big-0'/'partition.metadata').write_text('version: x')
def wrong_meta(log_dir): (log_dir/'meta.properties').write_text('nonsense=1\n')
def no_directory(log_dir): shutil.rmtree(log_dir/'seg.big-0')
def stray(log_dir): (log_dir/'seg.big-0').rename(log_dir/'nobodys-0')
def strayed(log_dir): shutil.copytree(log_dir/'seg.big-0', log_dir/f'gone-0.{"0" * 32}-stray')
def deleted(log_dir): shutil.copytree(log_dir/'seg.big-0', log_dir/f'gone-0.{"0" * 32}-delete')
def future(log_dir): shutil.copytree(log_dir/'seg.big-0', log_dir/f'seg.big-0.{"0" * 32}-future')
def foreign(log_dir): (log_dir/'notes.txt').touch()
def foreign_inside(log_dir): (log_dir/'seg.big-0'/'notes.txt').touch()
def cleaned(log_dir): (log_dir/'seg.big-0'/file_name(0, 'log.cleaned')).touch()
def swapped(log_dir): shutil.copy(log_dir/'seg.big-0'/file_name(0), log_dir/'seg.big-0'/file_name(0, 'log.swap'))
def orphan(log_dir): (log_dir/'seg.big-0'/file_name(77, 'index')).touch()
def metadata_byte(log_dir): altered(log_dir/'__cluster_metadata-0'/file_name(0), 200)


def metadata_end(log_dir):
    path = log_dir/'__cluster_metadata-0'/file_name(0)
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize('damage, bad, about, where, what', [
    (torn_end, True, 'start', file_name(132), r'is cut from 711 to 356 bytes: no whole record is lost'),
    (torn_end, True, 'readable', file_name(132), r'takes 356 bytes, but only 355 left; a start cuts the log off'),
    (wrong_byte, True, 'readable', file_name(32), r'checksum.*consumers that come to it get an error'),
    (wrong_byte_after_crash, True, 'start', file_name(32), r'1,424 to 0 bytes: 108 records from offset 32'),
    (wrong_byte_after_crash, True, 'start', file_name(48), r'is removed, and 5 more: the log ends before'),
    (wrong_end_after_clean_shutdown, True, 'start', 'seg.java-none-0', r"can't be opened: .*damaged now"),
    (wrong_index, True, 'readable', file_name(112, 'index'), r'byte 1425 is not in the segment; a start would trust'),
    (cut_index, True, 'readable', file_name(112, 'index'), r'no whole number of entries.*; a start makes it anew'),
    (wrong_time_index, True, 'readable', file_name(112, 'timeindex'), r'is later than entry 0|do not|ascend'),
    (wrong_snapshot, True, 'readable', '.snapshot', r'checksum is'),
    (wrong_txn_index, True, 'readable', '.txnindex', r'no whole number of entries'),
    (wrong_epochs, True, 'start', 'seg.tx-0', r'is no checkpoint.*The epochs are read from the batches'),
    (wrong_checkpoint, True, 'readable', 'logs', r'recovery-point-offset-checkpoint can\'t be read'),
    (wrong_owner, True, 'start', 'seg.big-0', r'has the topic id .*, but seg.big has .*: a start puts it aside'),
    (bad_owner, True, 'readable', 'seg.big-0', r'the partition is not served'),
    (wrong_meta, True, 'start', 'meta.properties', r'neither a cluster.id nor a node.id'),
    (no_directory, True, 'start', 'seg.big', r'no directory for partition 0, where records were'),
    (metadata_byte, True, 'readable', file_name(0), r'checksum'),
    (metadata_byte, True, 'start', '__cluster_metadata-0', r'a broker would not start'),
    (metadata_end, True, 'start', file_name(0), r'a start waits for the rest'),
    (stray, False, 'here', 'nobodys-0', r'the metadata have no such partition: a stray, 9\d\d\.\d kB'),
    (strayed, False, 'here', '-stray', r'belongs to another topic'),
    (deleted, False, 'here', '-delete', r'the topic was deleted, 9'),
    (future, False, 'here', '-future', r'a copy on its way'),
    (foreign, False, 'here', 'notes.txt', r"is no broker's"),
    (foreign_inside, False, 'here', 'notes.txt', r'is no file of a log'),
    (cleaned, False, 'start', 'seg.big-0', r'interrupted while it wrote: the old segments count; 1 files'),
    (swapped, False, 'start', 'seg.big-0', r'interrupted at the beginning of a swap: the new segments count'),
    (orphan, False, 'start', file_name(77, 'index'), r'belongs to no segment: a start removes it'),
], ids=lambda value: value.__name__ if callable(value) else None)
def test_a_finding(tmp_path, damage, bad, about, where, what):
    log_dir = copied(tmp_path)
    damage(log_dir)
    before = everything(log_dir)
    found = diagnosis(log_dir)
    assert everything(log_dir) == before
    matching = [each for each in found.all_findings if (each.bad, each.about) == (bad, about)
                and each.where.endswith(where) and re.search(what, each.what)]
    assert matching, [(*each[:4],) for each in found.all_findings if each.about != 'growth']
    assert matching[0].todo or not bad   # it says what to do
    assert bool(found.bad) == (bad or damage is stray) and json.dumps(as_data(found))
    assert any(matching[0].what[:60] in line for line in report(found))


# --- What grows -------------------------------------------------------------------------------------------------------

def written(tmp_path: Path, times, producer: int = -1, key: bytes | None = b'k', **config):
    "A log with a segment for each batch."
    log = open_log(str(tmp_path/'orders-0'), LogConfig(segment_bytes=1, **config))
    for number, time in enumerate(times):
        flags = dict(attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0,
                     base_sequence=number) if producer >= 0 else {}
        batch = write_batch([Record(key=key, value=b'x' * 50)], base_timestamp=time, max_timestamp=time, **flags)
        batch = bytearray(batch)
        append(log, batch, HEADER.read(batch, 0)[0], 0, time)
    return log


def test_why_a_compacted_log_is_not_cleaned(tmp_path):
    log = written(tmp_path, [NOW] * 4, cleanup_policy='compact')
    assert 'it is cleaned when a broker runs' in why_not_cleaned(log, None, NOW)[0]
    assert 'log.cleaner.enable is false' in why_not_cleaned(log, None, NOW, enabled=False)[0]
    assert why_not_cleaned(log, 2, NOW) == ['33% of it are dirty, and that is not more than '
                                            'min.cleanable.dirty.ratio, 50%']
    assert 'in the active segment' in why_not_cleaned(log, 3, NOW)[0]


def test_what_is_too_young_to_be_cleaned(tmp_path):
    log = written(tmp_path, [NOW - DAY, NOW, NOW, NOW], cleanup_policy='compact', min_compaction_lag_ms=3600_000)
    assert any('not older than min.compaction.lag.ms, 1 hour' in each for each in why_not_cleaned(log, None, NOW))


def test_what_an_open_transaction_holds_back(tmp_path):
    log = written(tmp_path, [NOW] * 4, producer=7, cleanup_policy='compact')
    [held] = why_not_cleaned(log, None, NOW)
    assert re.fullmatch(r'\d+ bytes can not be cleaned: a transaction of producer 7 is open since .* offset 0 on', held)
    marker = ControlKey(type=1).encode(0), EndTxnMarker(coordinator_epoch=0).encode(0)
    batch = bytearray(write_batch([Record(key=marker[0], value=marker[1])], attributes=TRANSACTIONAL | CONTROL,
                                  producer_id=7, producer_epoch=0, base_timestamp=NOW, max_timestamp=NOW))
    append(log, batch, HEADER.read(batch, 0)[0], 0, NOW)
    assert 'it is cleaned when a broker runs' in why_not_cleaned(log, None, NOW)[0]


def test_why_nothing_is_removed(tmp_path):
    log = written(tmp_path, [NOW + 400 * DAY, NOW], retention_ms=DAY)
    assert 'stay until' in why_not_removed(log, NOW)[0] and 'in the future' in why_not_removed(log, NOW)[0]
    log.config = log.config._replace(retention_ms=-1)
    assert why_not_removed(log, NOW) == ['nothing is ever removed: retention.ms and retention.bytes are -1']
    log.config = log.config._replace(retention_bytes=10**9)
    assert why_not_removed(log, NOW) == []


def test_records_without_keys_in_a_compacted_log(tmp_path):
    log = written(tmp_path, [NOW] * 3, key=None, cleanup_policy='compact')
    close_log(log)
    (tmp_path/'server.properties').write_text(f'log.cleanup.policy=compact\nlog.dirs={tmp_path}\n')
    shutil.move(tmp_path/'server.properties', tmp_path.parent/f'{tmp_path.name}.properties')
    code, text, _ = run(tmp_path.parent/f'{tmp_path.name}.properties')
    assert code == 0 and '3 records have no key: the cleaner removes them' in text


# --- A running broker -------------------------------------------------------------------------------------------------

def typed(broker, *words) -> str:
    "A command for a broker, with three lines to read, and what it prints."
    command = [sys.executable, '-m', 'kafka_scratch', *words, '-b', f'127.0.0.1:{broker.port}']
    return subprocess.run(command, input='a\nb\nc\n', text=True, check=True, capture_output=True, timeout=60,
                          env=environment(PYTHONPATH=str(ROOT))).stdout


def test_a_running_broker_is_not_disturbed(tmp_path):
    "It is at work; the doctor looks, twice; nothing has changed, it still has its lock, and it still answers."
    with running(tmp_path) as broker:
        typed(broker, 'topics', 'create', 'orders')
        typed(broker, 'produce', 'orders')
        log_dir = tmp_path/'logs'
        before = everything(log_dir)
        for _ in range(2):
            code, text, _ = run(log_dir)
            assert code == 0 and f'process {broker.pid} uses it now' in text and '3 records' in text
        assert everything(log_dir) == before
        assert in_use(str(log_dir)) == f'process {broker.pid}' and asked_holder(str(log_dir/'.lock')) == broker.pid
        assert typed(broker, 'consume', 'orders') == 'a\nb\nc\n'
    assert run(log_dir)[0] == 0 and in_use(str(log_dir)) is None


def test_a_broker_that_was_killed(tmp_path):
    "What is said before the next start is what the next start finds."
    with running(tmp_path) as broker:
        typed(broker, 'topics', 'create', 'orders')
        typed(broker, 'produce', 'orders')
        broker.process.kill()
        broker.process.wait()
        broker.check_end = lambda: None   # it did what it was told
        with open(tmp_path/'logs'/'orders-0'/file_name(0), 'ab') as file: file.write(b'half a batch')
        broker.stop = lambda *_: 0
        assert broker.process.returncode == -signal.SIGKILL
    code, text, _ = run(tmp_path/'logs', '--json')
    [orders] = [each for each in json.loads(text)['partitions'] if each['topic'] == 'orders']
    assert code == 1 and 'is cut from' in text and 'no whole record is lost' in text
    with running_broker(tmp_path/'logs', node_id=1) as again:
        again.create_topics(['other'])
        node = again.server.node
        log = again.call(lambda: node.logs.find(node.image.topics['orders'], 0)).log
        assert (log.start_offset, log.end_offset) == (orders['start_offset'], orders['end_offset']) == (0, 3)
    assert run(tmp_path/'logs')[0] == 0


def start(log_dir: Path):
    "A node on a directory, as a start makes it, without sockets."
    return open_node(read_config('', 'the test', {'log.dirs': str(log_dir), 'listeners': 'PLAINTEXT://127.0.0.1:0'}))


def test_what_a_node_makes_of_its_directory(tmp_path, capsys):
    "Put aside, made empty, not started: each is what was said."
    log_dir = copied(tmp_path)
    shutil.copy(log_dir/'seg.tx-0'/'partition.metadata', log_dir/'seg.big-0')
    shutil.rmtree(log_dir/'seg.multi-0')
    said = {Path(each.where).name: each.what for each in diagnosis(log_dir).bad}
    assert 'a start puts it aside' in said['seg.big-0'] and 'a start makes empty logs' in said['seg.multi']
    node = start(log_dir)
    for topic in 'seg.big', 'seg.multi':
        assert node.logs.find(node.image.topics[topic], 0).log.end_offset == 0
    assert list(log_dir.glob('seg.big-0.*-stray'))
    stop_node(node)
    assert diagnosis(log_dir).bad == []
    altered(log_dir/'__cluster_metadata-0'/file_name(0), 200)
    [refused] = [each for each in diagnosis(log_dir).bad if each.about == 'start']
    with pytest.raises(DecodeError) as error: start(log_dir)
    assert refused.what == f'{error.value}; a broker would not start'


def test_a_partition_of_another_node(tmp_path):
    log_dir = copied(tmp_path)
    (log_dir/'meta.properties').write_text('version=1\nnode.id=5\n')
    found = diagnosis(log_dir)
    assert {each.what.split(':')[0] for each in found.findings} >= {'node 5 has no replica of it'} and not found.bad


def test_damage_keeps_a_log_from_being_cleaned(tmp_path):
    log_dir = copied(tmp_path)
    altered(min((log_dir/'seg.compacted-0').glob('*.log')))
    assert any('a cleaner stops where it is damaged' in each.what for each in diagnosis(log_dir).all_findings)


def test_memory_is_flat(tmp_path):
    "A log of 40 MB takes no more memory than one of 4."
    peaks = []
    for number in (4, 40):
        log = open_log(str(tmp_path/f'{number}'/'orders-0'), LogConfig(segment_bytes=8 << 20))
        for _ in range(number):
            batch = bytearray(write_batch([Record(value=bytes(1 << 20))]))
            append(log, batch, HEADER.read(batch, 0)[0], 0, NOW)
        close_log(log)
        tracemalloc.start()
        assert diagnosis(tmp_path/f'{number}').bad == []
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + (4 << 20), peaks
