"""The tiny broker, step by step: after each of its chapters it passes the recorded stages that it should, and no more.

What is compared is what the tester compares. In its first stages that is less than the whole answer.
"""
import contextlib
from pathlib import Path

import pytest

from broker_process import Client
from by_hand import API_VERSIONS, read_api_versions
from course import STAGES, Stage, conversation, files, folder, header, lay_out, stored_batches
from kafka_scratch.tiny.program import CHAPTERS, program
from log_by_hand import FETCH, PRODUCE
from tiny_process import PASSED, tiny_broker

LOOKED_AT = {2: slice(4, 8), 3: slice(4, 8), 4: slice(4, 10)}   # stage → the only bytes of an answer that it looks at
FIRST_STORED = 22   # the stage from which on the tester looks into the files


# --- A stage ----------------------------------------------------------------------------------------------------------

def check(stage: Stage, request: bytes, answer: bytes | None, accepted: bytes):
    assert answer is not None, 'the connection was closed'
    if stage.number in LOOKED_AT:
        assert answer[LOOKED_AT[stage.number]] == accepted[LOOKED_AT[stage.number]]
        return
    asked = header(request)
    if asked.key == API_VERSIONS:   # another list of APIs is right, too
        ours, theirs = read_api_versions(answer), read_api_versions(accepted)
        assert {**ours, 'api_keys': [], 'tags': {}} == {**theirs, 'api_keys': [], 'tags': {}}
        ranges = {key: range(first, last + 1) for key, first, last in ours['api_keys']}
        for key, version in stage.versions.items(): assert key in ranges and version in ranges[key]
        return
    if asked.key == FETCH:   # the number of a session: any, and 0 for none
        number = slice(15, 19)
        answer = answer[:15] + accepted[number] + answer[19:]
    assert answer.hex() == accepted.hex()


def perform(stage: Stage, port: int, logs: Path):
    "Says what the tester said, and compares what comes back; the answers of several clients are read last one first."
    frames, expected = conversation(stage), files(folder(stage)/'logs')
    with contextlib.ExitStack() as stack:
        numbers = sorted({frame['connection'] for frame in frames})
        clients = {number: stack.enter_context(Client(port, 'localhost')) for number in numbers}
        asked = {number: [] for number in numbers}
        if len(numbers) > 1: frames.sort(key=lambda frame: (frame['direction'], -frame['connection']))
        for frame in frames:
            client, requests = clients[frame['connection']], asked[frame['connection']]
            data = bytes.fromhex(frame['hex'])
            if frame['direction'] == 'request':
                client.send(data)
                requests.append(data)
                continue
            request = requests.pop(0)
            check(stage, request, client.frame(), data)
            if header(request).key == PRODUCE:
                for (topic, index), batch in stored_batches(request, data).items():
                    expected[f'{topic}-{index}/{0:020}.log'] += batch
        for client in clients.values():
            client.half_close()
            assert client.is_closed()   # and not a byte more
    if stage.number >= FIRST_STORED: assert files(logs) == expected


def try_stage(stage: Stage, step: str, directory: Path):
    "A stage with a program of its own, as the tester does it."
    directory.mkdir()
    properties, logs = lay_out(stage, directory, 9092)   # of the file, only the directory counts
    with tiny_broker(directory, program(step), properties) as port: perform(stage, port, logs)


# --- The steps --------------------------------------------------------------------------------------------------------

def test_every_step_is_here():
    assert list(PASSED) == CHAPTERS and [*PASSED.values()] == sorted(PASSED.values()) and PASSED[CHAPTERS[-1]] == 25


@pytest.mark.parametrize('step', PASSED)
def test_a_step_passes_its_stages_and_no_more(tmp_path, step):
    for stage in STAGES[:PASSED[step]]: try_stage(stage, step, tmp_path/str(stage.number))
    for stage in STAGES[PASSED[step]:][:1]:
        with pytest.raises(AssertionError): try_stage(stage, step, tmp_path/str(stage.number))


def test_the_easy_repair_of_stage_6_breaks_stage_7(tmp_path):
    "As *Many requests, many clients* says: one client after the other, each until it leaves."
    in_turn = program('connections').replace('threading.Thread(target=converse, args=(connection, answer), '
                                             'daemon=True).start()', 'converse(connection, answer)')
    assert in_turn != program('connections')
    asked = bytes.fromhex(conversation(STAGES[5])[0]['hex'])
    with tiny_broker(tmp_path, in_turn) as port:
        with Client(port) as first, Client(port, patience=0.5) as second:
            assert first.ask(asked) and first.ask(asked)
            second.send(asked)
            with pytest.raises(TimeoutError): second.frame()
    with tiny_broker(tmp_path, program('api_versions')) as port:
        with Client(port) as first, Client(port) as second:
            for client in first, second: client.send(asked)
            assert second.frame() and first.frame() and first.receive(1) is None


def test_a_bad_request_ends_one_conversation_alone(tmp_path):
    "From the fourth step on: a frame that is too short for a header."
    asked = bytes.fromhex(conversation(STAGES[4])[0]['hex'])
    with tiny_broker(tmp_path, program('connections'), may_complain=True) as port:   # with a traceback
        with Client(port) as bad, Client(port) as good:
            assert bad.ask(b'\0\0\0\3abc') is None and good.ask(asked)
