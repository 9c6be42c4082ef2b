"""What the doctor says a start would do, and what a start does: the same, for directories damaged in hundreds of ways.

Kafka's own logs are cut, altered, robbed of files, and left in the middle of swaps. For each the prediction is asked
for, which changes nothing; then the logs are opened for real.
"""
import hashlib
import os
import random
import shutil
from itertools import count
from pathlib import Path

import pytest

from size import ALL
from broker_process import FIXTURES
from kafka_scratch.cluster.log_dirs import CLEAN, RECOVERY, LogDir, begin_directory, open_partition, partition_names
from kafka_scratch.log import swap
from kafka_scratch.log.partition import LogConfig
from kafka_scratch.log.segments import file_name, segments
from kafka_scratch.log.swap import finish_swap, swap_files
from kafka_scratch.tools.doctor_start import count_records, rehearsal, rehearse

LOGS = FIXTURES/'segments'/'logs'
NAMES = 'seg.multi-0', 'seg.trimmed-0', 'seg.tx-0', 'seg.compacted-0', 'seg.compacted-tx-0', 'seg-idempotent-0'
CONFIG = LogConfig()


def everything(directory: Path) -> dict:
    "Every file, with its time and content; every directory with its time."
    found = {}
    for path in sorted(directory.rglob('*')):
        stat = path.stat()
        found[path.relative_to(directory)] = (stat.st_mtime_ns, stat.st_ino, stat.st_size,
                                              hashlib.md5(path.read_bytes()).digest() if path.is_file() else None)
    return found


def state_of(log) -> dict:
    "What is known of an opened log."
    return dict(start=log.start_offset, end=log.end_offset, stable=log.stable_offset, epochs=log.epochs.entries,
                recovery_point=log.recovery_point, open=log.producers.open, producers=sorted(log.producers.producers),
                aborted=[entry.encode(0) for entry in log.producers.aborted],
                segments=[(each.base_offset, each.size, each.largest_timestamp) for each in log.segments],
                indexes=(log.active.index.pack(), log.active.time_index.pack()))


def files_after(path: Path, changes) -> dict[str, int | None]:
    "The files of a partition as they will be, with their sizes; None for those that are made."
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(path)}
    moved = {change.to: sizes[change.name] for change in changes if change.what == 'renamed'}
    for change in changes:
        if change.what in ('removed', 'renamed'): sizes.pop(change.name)
    sizes |= moved
    for change in changes:
        if change.what == 'cut': sizes[change.name] = change.to
        if change.what == 'made': sizes[change.name] = None
    return sizes


def records_in(path: Path, first: int = 0) -> int:
    return sum(count_records(place, 0, first) for _, place in segments(path))


def predicted(log_dir: Path) -> dict:
    "What a start would do, for each partition."
    found = {}
    with rehearsal(log_dir) as directory:
        begun = list(directory.said)
        for name in partition_names(LogDir(str(log_dir), None)):
            with rehearse(directory, name, CONFIG, 0) as opening:
                found[name] = dict(error=opening.error, said=opening.said, lost=opening.lost,
                                   state=state_of(opening.log) if opening.log else None,
                                   files=files_after(log_dir/name, opening.changes))
    return {'said': begun, 'partitions': found}


def started(log_dir: Path) -> dict:
    "What a start does."
    said, found = [], {}
    directory = LogDir(str(log_dir), said.append)
    begin_directory(directory)
    begun = list(said)
    for name in partition_names(directory):
        said.clear()
        try: log, error = open_partition(directory, name, CONFIG, 0), None
        except (OSError, ValueError) as problem: log, error = None, str(problem)
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(log_dir/name)}
        found[name] = dict(error=error, said=list(said), state=state_of(log) if log else None, files=sizes)
        directory.logs.pop(name, None)
    directory.lock.close()
    return {'said': begun, 'partitions': found}


def assert_foretold(log_dir: Path):
    "The prediction changes nothing, and then everything is as it says."
    before = everything(log_dir)
    told = predicted(log_dir)
    starts = {name: each['state']['start'] for name, each in told['partitions'].items() if each['state']}
    records = {name: records_in(log_dir/name, first) for name, first in starts.items()}
    assert everything(log_dir) == before
    came = started(log_dir)
    assert told['said'] == came['said']
    for name, real in came['partitions'].items():
        mine = told['partitions'][name]
        made = {file for file, size in mine['files'].items() if size is None}
        mine['files'] |= {file: real['files'].get(file) for file in made}
        lost = mine.pop('lost')
        assert mine == real, name
        if not real['error'] and not any('.swap' in str(path) for path in before):
            assert records[name] - records_in(log_dir/name, starts[name]) == lost, name


# --- Damage -----------------------------------------------------------------------------------------------------------

def cut(path: Path, dice: random.Random): os.truncate(path, dice.randrange(path.stat().st_size + 1))


def flip(path: Path, dice: random.Random):
    data = bytearray(path.read_bytes())
    if data: data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def remove(path: Path, dice: random.Random): path.unlink()


def zeros(path: Path, dice: random.Random):
    with open(path, 'ab') as file: file.write(bytes(dice.choice([1, 60, 4096])))


def leftover(path: Path, dice: random.Random):
    ending = dice.choice(['.cleaned', '.swap', '.deleted', '.tmp'])
    shutil.copy(path, f'{path}{ending}')


def moved_away(path: Path, dice: random.Random): path.rename(f'{path}{dice.choice([".deleted", ".swap", ".cleaned"])}')


def make(tmp_path: Path, names=NAMES, clean: bool = False) -> Path:
    "A log directory with some of Kafka's logs."
    log_dir = tmp_path/'logs'
    log_dir.mkdir()
    for name in names: shutil.copytree(LOGS/name, log_dir/name)
    for each in LOGS.glob('*checkpoint'): shutil.copy(each, log_dir)
    if clean: (log_dir/CLEAN).touch()
    else: (log_dir/RECOVERY).unlink(missing_ok=True)
    return log_dir


DAMAGES = cut, flip, flip, remove, zeros, leftover, moved_away


@pytest.mark.parametrize('seed', range(400 if ALL else 60))
def test_damaged_in_many_ways(tmp_path, seed):
    dice = random.Random(seed)
    log_dir = make(tmp_path, clean=dice.random() < 0.4)
    if dice.random() < 0.3: shutil.copy(LOGS/RECOVERY, log_dir)
    files = sorted(path for path in log_dir.rglob('*') if path.is_file() and path.name != CLEAN)
    for path in dice.sample(files, dice.choice([1, 3, 10, 30])): dice.choice(DAMAGES)(path, dice)
    half = sorted(path for path in log_dir.rglob('*') if path.suffix in ('.swap', '.cleaned', '.damaged'))
    for path in dice.sample(half, len(half) // 2): dice.choice([cut, flip])(path, dice)
    assert_foretold(log_dir)


@pytest.mark.parametrize('clean', [True, False], ids=['clean', 'unclean'])
def test_nothing_is_wrong(tmp_path, clean):
    log_dir = make(tmp_path, clean=clean)
    found = predicted(log_dir)['partitions']
    assert not any(each['said'] or each['error'] or each['lost'] for each in found.values())
    assert_foretold(log_dir)


class Stopped(Exception): "The plug was pulled."


@pytest.mark.parametrize('at', range(40))
def test_a_swap_that_was_interrupted_anywhere(tmp_path, at, monkeypatch):
    "Two segments were cleaned into one. We stop in front of each rename, and in front of each removal."
    log_dir = make(tmp_path, ['seg.multi-0'])
    log, left = log_dir/'seg.multi-0', count(at, -1)
    for kind in 'log', 'index', 'timeindex':
        both = [(log/file_name(base, kind)).read_bytes() for base in (0, 16)]
        (log/file_name(0, kind + '.cleaned')).write_bytes(b''.join(both) if kind == 'log' else both[0])
    replace, unlink = os.replace, os.unlink

    def counted(function):
        def do(*arguments):
            if not next(left): raise Stopped
            function(*arguments)
        return do

    with monkeypatch.context() as patch:
        patch.setattr(swap.os, 'replace', counted(replace))
        try:
            gone = swap_files(str(log), [0, 16])
            for path in gone: counted(unlink)(path)
        except Stopped: pass
    assert_foretold(log_dir)


@pytest.mark.parametrize('at', range(0, 30, 3))
def test_a_start_that_was_interrupted(tmp_path, at, monkeypatch):
    "A start that finishes a swap is itself stopped, and the next one goes on."
    log_dir = make(tmp_path, ['seg.multi-0'])
    log, left = log_dir/'seg.multi-0', count(at, -1)
    for kind in 'log', 'index', 'timeindex': shutil.copy(log/file_name(0, kind), log/file_name(0, kind + '.swap'))
    for base in (0, 16): (log/file_name(base)).rename(log/file_name(base, 'log.deleted'))
    unlink = os.unlink

    def counted(path):
        if not next(left): raise Stopped
        unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr(swap.os, 'unlink', counted)
        try: finish_swap(str(log))
        except Stopped: pass
    assert_foretold(log_dir)


def test_a_link_is_never_written_through(tmp_path):
    "The files of which a start writes new ones: a `.tmp` beside each, as a crash leaves it."
    log_dir = make(tmp_path, ['seg.tx-0'])
    for name in 'leader-epoch-checkpoint.tmp', file_name(21, 'snapshot.tmp'):
        (log_dir/'seg.tx-0'/name).write_text('half of it')
    (log_dir/'seg.tx-0'/'leader-epoch-checkpoint').write_text('nonsense')
    (log_dir/f'{RECOVERY}.tmp').write_text('half of it')
    assert_foretold(log_dir)


def test_where_the_log_starts_after_its_end(tmp_path):
    "A start offset behind the end of all segments: the log is made empty, from there on."
    log_dir = make(tmp_path, ['seg.multi-0'])
    (log_dir/'log-start-offset-checkpoint').write_text('0\n1\nseg.multi 0 1000\n')
    assert predicted(log_dir)['partitions']['seg.multi-0']['state']['end'] == 1000
    before = everything(log_dir)
    predicted(log_dir)
    assert everything(log_dir) == before
    assert started(log_dir)['partitions']['seg.multi-0']['state']['start'] == 1000
