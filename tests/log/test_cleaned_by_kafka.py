"""Logs before and after a real Kafka's cleaner (`fixtures/cleaner`): ours leaves the same, batch for batch; and what an
interrupted Kafka has left, we open as it does itself."""
import json
import os
import shutil

import pytest

from broker_process import FIXTURES
from cleaned_logs import clean, comparable, differences, files, opened, tell
from kafka_scratch.log.checkpoints import read_checkpoint
from kafka_scratch.log.recovery import close_log

CLEANER = FIXTURES/'cleaner'
GIVEN = json.loads((CLEANER/'settings.json').read_text())
SETTINGS, CLEANED_AT = GIVEN['settings'], GIVEN['cleaned_at']
INTERRUPTED = json.loads((CLEANER/'interrupted.json').read_text())
STATES = sorted(path.relative_to(CLEANER).parent for path in CLEANER.glob('*/*-?/*-0'))
ROUNDS = [(topic, number) for topic in SETTINGS for number in (1, 2)]


def checkpoint(number: int) -> dict[str, int]:
    "Up to where Kafka's logs were clean after a round."
    if not number: return {}
    rows = read_checkpoint(str(CLEANER/f'cleaner-offset-checkpoint-{number}'))
    return {topic: int(offset) for topic, _, offset in rows}


def copied(log, to): return shutil.copytree(log, to/log.name)


@pytest.mark.parametrize('state', STATES, ids=str)
def test_what_kafka_finds_in_a_log_we_find(state):
    told = json.loads((CLEANER/state).with_suffix('.json').read_text())
    assert tell(CLEANER/state/f'{state.parent}-0') == told['segments']


@pytest.mark.parametrize('topic, number', ROUNDS)
def test_we_clean_as_kafka_did(topic, number, tmp_path):
    log = copied(CLEANER/topic/f'before-{number}'/f'{topic}-0', tmp_path)
    done, = clean(log, SETTINGS[topic], CLEANED_AT[topic][str(number)], checkpoint(number - 1).get(topic))
    after = CLEANER/topic/f'after-{number}'/log.name
    assert differences(comparable(tell(log)), comparable(tell(after))) == []
    assert files(log).keys() == files(after).keys()
    assert done['end'] == checkpoint(number)[topic]


def test_something_was_cleaned():
    "The recorded logs have in them what they are for."
    told = {str(state): json.loads((CLEANER/state).with_suffix('.json').read_text())['segments'] for state in STATES}
    batches = {state: [batch for segment in log for batch in segment['batches']] for state, log in told.items()}
    kept = {state: [batch for batch in found if not batch['count']] for state, found in batches.items()}
    gone = {state: {record['offset'] for batch in found for record in batch['records'] if record['value'] is None}
            for state, found in batches.items()}
    assert any(batch['base_sequence'] >= 0 for batch in kept['idempotent/after-1'])     # emptied, and kept
    assert gone['plain/after-1'] and not gone['plain/after-1'] & gone['plain/after-2']  # tombstones, until their time
    assert {batch['codec'] for batch in batches['codecs/after-1']} == {'none', 'gzip', 'snappy', 'lz4', 'zstd'}
    assert all(record['key'] is not None for batch in batches['null.keys/after-1'] for record in batch['records'][:-1])
    assert any(segment['aborted'] for segment in told['transactions/after-1'])
    assert batches['ongoing/before-2'] == batches['ongoing/after-2']


def test_a_table_that_is_too_small_takes_several_passes(tmp_path):
    case = json.loads((CLEANER/'small-table.json').read_text())
    topic, dirty = case['topic'], None
    log = copied(CLEANER/topic/'before-1'/f'{topic}-0', tmp_path)
    for theirs in case['passes']:
        done, = clean(log, SETTINGS[topic], case['now'], dirty, memory=case['memory'])
        assert done.items() <= {'overdue': False, **theirs['pass']}.items()
        assert differences(tell(log), theirs['segments']) == []
        dirty = done['end']
    assert len(case['passes']) == 5 and done['end'] == done['first_uncleanable']


@pytest.mark.parametrize('number', range(len(INTERRUPTED['states'])))
def test_we_finish_what_kafka_was_killed_in(number, tmp_path):
    state, topic = INTERRUPTED['states'][number], INTERRUPTED['topic']
    log = copied(CLEANER/'interrupted'/state['files']/f'{topic}-0', tmp_path)
    for old, new in state['renamed']: os.rename(log/old, log/new)
    point = INTERRUPTED['recovery_point']
    close_log(opened(log, SETTINGS[topic], INTERRUPTED['now'], clean=False, recovery_point=point))
    assert differences(tell(log), INTERRUPTED['listings'][state['opens_as']]) == []
    left = [name for name in files(log) if name.endswith(('.cleaned', '.swap', '.deleted'))]
    assert left == []
