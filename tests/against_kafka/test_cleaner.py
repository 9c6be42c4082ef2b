"""The same logs cleaned by Kafka and by us are the same afterwards, batch for batch; and each opens what the other was
killed in the middle of.

Kafka writes the logs (`logs_to_clean.py` says what is in them), and cleans a copy, in one Java process; see
`cleaner_oracle.py`. A failing log is made again by its number: `scenario(17)`.
"""
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from cleaned_logs import clean, comparable, config, differences, files, opened, tell, tell_ends
from cleaner_oracle import Oracle, Refused, absent
from kafka_scratch.log import swap
from kafka_scratch.log.recovery import close_log, open_log
from logs_to_clean import scenario
from size import kafka_absent

ABSENT = kafka_absent() or absent()
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=str(ABSENT))

CLEANED, INTERRUPTED = range(240), range(1000, 1060)     # numbers of logs
PART = 40
# A producer that was forgotten can't go on; and with very small indexes, the cleaner stumbles over one that is full.
KAFKA_CANNOT = 'OutOfOrderSequenceException', 'Attempt to append to a full'


@pytest.fixture(scope='module')
def kafka():
    with Oracle() as oracle: yield oracle


@pytest.fixture
def directory():
    "In memory where that is possible: thousands of files are synced."
    memory = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as made: yield Path(made)


def parts(numbers: range) -> list[range]: return [numbers[at:at + PART] for at in range(0, len(numbers), PART)]


def copied(log, name: str): return shutil.copytree(log, log.parent.parent/name/log.name)


def told(passes: list[dict]) -> list[dict]:
    "What is the same of each pass. Of sizes, only the first can tell: after that, two libraries have compressed."
    names = ['first_dirty', 'first_uncleanable', 'end', 'overdue']
    sizes = [passes[0][name] for name in ('cleanable_bytes', 'total_bytes')]
    return [*sizes, *({name: done[name] for name in names} for done in passes)]


# --- Cleaned ----------------------------------------------------------------------------------------------------------

def clean_both(kafka, number: int, directory):
    "A log, cleaned round by round: by Kafka, and a copy of it by us."
    case, log, dirty = scenario(number), directory/f'{number}'/'kafka'/'orders-0', {}
    for number, (steps, how) in enumerate(case.rounds):
        try:
            kafka.write(log, case.written, steps)
            copy = copied(log, f'ours-{number}')
            theirs = kafka.clean(log, case.settings, **dirty | how)['passes']
        except Refused as why:
            if any(reason in str(why) for reason in KAFKA_CANNOT): return
            raise
        ours = clean(copy, case.settings, **dirty | how)
        dirty = dict(first_dirty=theirs[-1]['end'])
        yield case, log, copy, told(theirs), told(ours)


@pytest.mark.parametrize('numbers', parts(CLEANED), ids=str)
def test_we_clean_as_kafka_does(kafka, numbers, directory):
    for number in numbers:
        for case, log, copy, theirs, ours in clean_both(kafka, number, directory):
            found = tell(copy)
            assert ours == theirs, f'scenario({number})'
            assert differences(comparable(found), comparable(tell(log))) == [], f'scenario({number})'
            assert files(copy) == files(log), f'scenario({number})'
            as_kafka_sees_it = kafka.list(copy, case.settings, now=case.rounds[-1].clean['now'])
            assert differences(found, as_kafka_sees_it['segments']) == [], f'scenario({number})'
        same_without_snapshots(kafka, copy, case.settings)
        shutil.rmtree(directory/f'{number}')


def same_without_snapshots(kafka, log, settings: dict):
    "What is left of a log still says all about its producers, and is understood alike."
    for path in log.glob('*.snapshot'): path.unlink()
    copy = copied(log, 'without-snapshots')
    theirs = kafka.list(log, settings, now=0, clean=False)
    theirs['producers'] = [producer for producer in theirs['producers'] if producer['epoch'] >= 0]  # nothing is known
    ours = tell_ends(open_log(str(copy), config(settings), clean=False))
    assert differences(ours, {key: theirs[key] for key in ours}) == [], log


# --- Interrupted ------------------------------------------------------------------------------------------------------

class Killed(BaseException): "Nothing that the process would have done comes to pass."


def clean_and_die(log, settings: dict, after: int, patch, **how):
    "We clean a log, and are gone after so many files were renamed."
    left = [after]

    def replace(old, new, do=os.replace):
        if os.path.exists(old) and (old.endswith('.swap') or new.endswith(('.swap', '.deleted'))):
            if not left[0]: raise Killed
            left[0] -= 1
        do(old, new)

    with patch.context() as patched:
        patched.setattr(swap.os, 'replace', replace)
        try: clean(log, settings, **how)
        except Killed: return True
    return False


def prepared(kafka, number: int, directory):
    "A log before its last cleaning, and how that is to be done."
    case, log, dirty = scenario(number), directory/f'{number}'/'log'/'orders-0', {}
    settings = {**case.settings, 'segment.index.bytes': 600}    # a killed Kafka leaves two files of that size
    for number, (steps, how) in enumerate(case.rounds, 1):
        kafka.write(log, case.written, steps)
        how = dirty | how | dict(passes=1, start=0)
        if number < len(case.rounds): dirty = dict(first_dirty=kafka.clean(log, settings, **how)['passes'][-1]['end'])
    return log, settings, how


def names(log) -> set:
    "The files of a log. What is to be removed, we remove at once, and Kafka a minute later."
    return {path.name for path in log.iterdir() if '.snapshot' not in path.name and path.suffix != '.deleted'}


def both_open(kafka, log, settings: dict, now: int, active: int):
    "What Kafka finds in what was left, and what we find."
    theirs, ours = copied(log, f'{log.parent.name}-opened-by-kafka'), copied(log, f'{log.parent.name}-opened-by-us')
    kafka.list(theirs, settings, now=now, clean=False, recovery_point=active)
    close_log(opened(ours, settings, now, clean=False, recovery_point=active))
    return tell(theirs), tell(ours), files(theirs).keys(), files(ours).keys()


@pytest.mark.parametrize('numbers', parts(INTERRUPTED), ids=str)
def test_each_finishes_what_the_other_was_killed_in(kafka, numbers, directory, monkeypatch):
    for number in numbers:
        log, settings, how = prepared(kafka, number, directory)
        active = tell(log)[-1]['base_offset']
        renamed = kafka.clean(copied(log, 'all'), settings, stop_after=10_000, **how)['renamed']
        files_of_segments = ['.snapshot' not in old for old, _ in renamed]      # which we don't rename: they just go
        moments = [after for after, counts in enumerate([*files_of_segments, True]) if counts]
        for after in random.Random(number).sample(moments, min(3, len(moments))):
            theirs, ours = copied(log, f'kafka-{after}'), copied(log, f'ours-{after}')
            kafka.clean(theirs, settings, stop_after=after, **how)
            clean_and_die(ours, settings, sum(files_of_segments[:after]), monkeypatch, **how)
            where = f'scenario({number}), killed after {after} renames'
            assert names(theirs) == names(ours), where
            for left in theirs, ours:
                as_kafka, as_we, their_files, our_files = both_open(kafka, left, settings, how['now'], active)
                assert differences(as_we, as_kafka) == [], where
                assert our_files == their_files, where
        shutil.rmtree(directory/f'{number}')
