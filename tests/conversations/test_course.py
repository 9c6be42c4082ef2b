"""The 25 stages of CodeCrafters' "Build your own Kafka", as its tester performed them.

For each stage `fixtures/course/` has the log directory and the properties file that the tester made, and all that was
said. Here the same program gets a copy of the same files, on a free port, and the same requests. Its answers must be
those that the tester accepted. `test_tester_stages.py` asks more of the same stages, on directories of its own.
"""
import contextlib
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from broker_process import ROOT, BrokerProcess, Client, free_port
from by_hand import API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS, correlation_id, read_api_versions
from course import COURSE, STAGES, Stage, conversation, files, folder, header, lay_out, sent_batches, stored_batches
from log_by_hand import FETCH, PRODUCE


def test_every_recording_has_its_stage():
    assert [folder(stage) for stage in STAGES] == sorted(path for path in COURSE.iterdir() if path.is_dir())
    assert [stage.number for stage in STAGES] == [*range(1, 26)]


# --- The program on a copy of it --------------------------------------------------------------------------------------

@contextlib.contextmanager
def started(stage: Stage, directory: Path):
    "The program as the tester starts it. Of its file only the port and the directory are others."
    port = free_port()
    properties, logs = lay_out(stage, directory, port)
    broker = BrokerProcess(directory, properties, port=port)
    broker.logs = logs
    try: yield broker.wait_ready()
    except BaseException:
        broker.stop()
        raise
    broker.check_end()
    assert broker.stderr == ''


def check(stage: Stage, request: bytes, answer: bytes, accepted: bytes):
    assert answer is not None, 'the connection was closed'
    asked = header(request)
    if asked.key == API_VERSIONS and asked.version <= 4:   # another list of APIs is right, too
        ours, theirs = read_api_versions(answer), read_api_versions(accepted)
        assert {**ours, 'api_keys': [], 'tags': {}} == {**theirs, 'api_keys': [], 'tags': {}}
        ranges = {key: range(first, last + 1) for key, first, last in ours['api_keys']}
        assert len(ranges) == len(ours['api_keys'])
        for key, version in stage.versions.items(): assert version in ranges[key]
        return
    if asked.key == FETCH:   # the number of a session is any but 0
        number = slice(15, 19)
        assert any(answer[number])
        answer = answer[:15] + accepted[number] + answer[19:]
    assert answer.hex() == accepted.hex()


@pytest.mark.parametrize('stage', STAGES, ids=[f'{stage.number}-{stage.name}' for stage in STAGES])
def test_stage(tmp_path, stage):
    frames = conversation(stage)
    with started(stage, tmp_path) as broker, contextlib.ExitStack() as stack:
        expected = files(folder(stage)/'logs')
        connections = {number: stack.enter_context(Client(broker.port,
                                                          'localhost')) for number
                                                          in sorted({frame['connection'] for frame in frames})}
        asked = {number: [] for number in connections}
        for frame in frames:
            number, data = frame['connection'], bytes.fromhex(frame['hex'])
            if frame['direction'] == 'request':
                connections[number].send(data)
                asked[number].append(data)
                continue
            request = asked[number].pop(0)
            check(stage, request, connections[number].frame(), data)
            if header(request).key == PRODUCE:
                for (topic, index), batch in stored_batches(request, data).items():
                    expected[f'{topic}-{index}/{0:020}.log'] += batch
                assert files(broker.logs) == expected
        assert not any(asked.values())
        for client in connections.values():
            client.half_close()
            assert client.is_closed()   # and not a byte more
    assert files(broker.logs) == expected   # also when the broker has stopped


def test_what_the_recordings_hold():
    "So that one that went missing, or a rule above that no longer applies to any of them, is noticed."
    sent = {stage.number: [bytes.fromhex(frame['hex']) for frame in conversation(stage)
                           if frame['direction'] == 'request'] for stage in STAGES}
    keys = {number: Counter(header(request).key for request in requests) for number, requests in sent.items()}
    assert all(keys[number] == Counter({API_VERSIONS: len(sent[number])}) for number in (*range(2, 9), 13,
        19)) and not sent[1]
    assert all(keys[number] == {DESCRIBE_TOPIC_PARTITIONS: 1} for number in range(9,
        13)) and all(keys[number] == {FETCH: 1} for number in range(14, 19))
    assert [len(sent[number]) for number in range(20, 26)] == [2, 1, 1, 1, 1, 1]
    batches = {number: [len(sent_batches(request)) for request in sent[number]] for number in range(20, 26)}
    assert batches == {20: [1, 1], 21: [1], 22: [1], 23: [1], 24: [batches[24][0]],
                       25: [batches[25][0]]} and batches[24][0] > 1 and batches[25][0] > 1
    assert len({frame['connection'] for frame in conversation(STAGES[6])}) > 1 and len(sent[6]) > 1
    assert all(b'==' in path.read_bytes() for stage in STAGES[8:12] for path
               in folder(stage).glob('logs/[a-z]*-0/partition.metadata'))
    assert len(correlations := [correlation_id(request) for request
                                in sent[3] + sent[4]]) == len(set(correlations)) == 2


# --- What the chapters say --------------------------------------------------------------------------------------------

CLAIM = "Stages of CodeCrafters' tester"   # so begins the paragraph in which a chapter names them: 13 *advertise fetch*


def claims() -> list[tuple[str, int, str]]:
    "Chapter, number and name of every stage that a chapter says is answered by now."
    found = []
    for path in sorted((ROOT/'nbs').glob('*.ipynb')):
        for cell in json.loads(path.read_text())['cells']:
            if cell['cell_type'] != 'markdown': continue
            for paragraph in ''.join(cell['source']).split('\n\n'):
                if not paragraph.startswith(CLAIM): continue
                named = re.findall(r'(\d+) \*([a-z -]+)\*', ' '.join(paragraph.split()))
                assert named, f'{path.name} names no stage: {paragraph}'
                found += [(path.stem, int(number), name) for number, name in named]
    return found


def test_the_chapters_claim_every_stage_once():
    "Each where it is answered; and `test_stage` is what holds them to it."
    assert sorted((number, name) for _, number, name in claims()) == [(stage.number,
        stage.name.replace('-', ' ')) for stage in STAGES]
