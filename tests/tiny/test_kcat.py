"""What a reader of *one evening* sees: kcat beside each step of the tiny broker, and the commands of the chapters."""
import json
import re
import shutil
import subprocess

import pytest

from broker_process import ROOT, Client
from kafka_scratch.tiny.program import program
from tiny_process import PASSED, tiny_broker

EVENING = list(PASSED)[:6]   # the steps of the first path
needs_kcat = pytest.mark.skipif(shutil.which('kcat') is None, reason='there is no kcat on PATH')


def chapter(step: str) -> str:
    "The prose of the chapter of a step."
    path, = (ROOT/'nbs').glob(f'*_tiny.{step}.ipynb')
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    return '\n\n'.join(''.join(cell['source']) for cell in cells if cell['cell_type'] == 'markdown')


# --- kcat -------------------------------------------------------------------------------------------------------------

def kcat(directory, text: str, *options) -> str:
    "What `kcat -L` prints about a program, its errors and what it says about itself."
    with tiny_broker(directory, text) as port:
        command = ['kcat', '-b', f'localhost:{port}', '-L', '-m', '1', *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1   # no step of the evening knows Metadata
    return done.stdout + done.stderr


def changed(step: str, *changes: tuple[str, str]) -> str:
    "The program after a step, with mistakes in it."
    text = program(step)
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def in_order(text: str, *wanted: str) -> bool:
    "Are these in the text, one behind the other?"
    at = 0
    for each in wanted:
        at = text.find(each, at)
        assert at >= 0, f'{each!r} is missing, or too early, in:\n{text}'
    return True


VERBOSE = '-d', 'broker,protocol,feature'
SECURITY = 'might be caused by incorrect security.protocol configuration (connecting to a SSL listener?)'


@needs_kcat
@pytest.mark.parametrize('sent, printed', [
    ('00000004 00000007', f'Disconnected while requesting ApiVersion: {SECURITY} or broker version is < 0.10'),
    ('00000000 00000007', 'Receive failed: Invalid response size 0 (0..100000000): increase receive.message.max.bytes'),
    ('00000004 00000001', 'ApiVersionRequest failed: Local: Read underflow: probably due to broker version < 0.10')])
def test_three_answers_that_kcat_misunderstands(tmp_path, sent, printed):
    assert printed in kcat(tmp_path, program('port').replace('00000004 00000007', sent))
    assert f'| `{sent}` | `{printed}` |' in chapter('port')


@needs_kcat
def test_kcat_understands_the_refusal(tmp_path):
    assert in_order(kcat(tmp_path, program('frames'), *VERBOSE), 'Sent ApiVersionRequest (v3, 40 bytes @ 0, CorrId 1)',
                    'Received ApiVersionResponse (v3, 12 bytes, CorrId 1', 'ApiArrayCnt -1 out of range',
                    'failed due to UNSUPPORTED_VERSION: retrying with v0',
                    f'Disconnected while requesting ApiVersion: {SECURITY}')


@needs_kcat
def test_kcat_comes_back_if_the_connection_stays_open(tmp_path):
    "The last exercise of *Framing*."
    kept = changed('frames', ('            frame = read_frame(connection)\n            if frame: ',
                              '            while frame := read_frame(connection): '))
    assert in_order(kcat(tmp_path, kept, *VERBOSE), 'retrying with v0',
                    'Received ApiVersionResponse (v0, 12 bytes, CorrId 2', 'ApiVersion (18) Versions 0..0',
                    'Broker changed state APIVERSION_QUERY -> UP')


@needs_kcat
def test_kcat_takes_us_for_a_broker_and_loses_us(tmp_path):
    assert in_order(kcat(tmp_path, program('api_versions'), *VERBOSE),
                    'Received ApiVersionResponse (v3, 15 bytes, CorrId 1', 'ApiKey ApiVersion (18) Versions 0..4',
                    'Broker changed state APIVERSION_QUERY -> UP',
                    'Disconnected: verify that security.protocol is correctly configured, broker might require SASL')


@needs_kcat
@pytest.mark.parametrize('old, new, printed', [
    ('len(message).to_bytes', '(len(message) + 4).to_bytes', f'Disconnected while requesting ApiVersion: {SECURITY}'),
    ('len(ranges) + 1', 'len(ranges)', 'in state UP'),   # no complaint, as without the mistake
    ('int32(correlation_id) + api', 'int32(correlation_id) + NO_TAGS + api',
     'Bad message format: probably due to broker version < 0.10'),
    ('each + NO_TAGS', 'each', 'Read underflow: probably due to broker version < 0.10'),
    ('throttle_time_ms + NO_TAGS', 'throttle_time_ms', 'Read underflow: probably due to broker version < 0.10')])
def test_one_byte_wrong_in_api_versions(tmp_path, old, new, printed):
    assert printed in kcat(tmp_path, changed('api_versions', (old, new)))


@needs_kcat
@pytest.mark.parametrize('step', EVENING[3:])
def test_kcat_stays(tmp_path, step):
    "It complains only that there is no Metadata; from the fifth step on, it sees an API of which it may know the name."
    said = kcat(tmp_path, program(step), *VERBOSE)
    assert in_order(said, 'ApiVersion (18) Versions 0..4', 'Broker changed state APIVERSION_QUERY -> UP',
                    'request not supported by broker', 'Required feature not supported by broker')
    assert 'Disconnected' not in said
    assert bool(re.search(r'ApiKey \S+ \(75\) Versions 0\.\.0', said)) == (step != 'connections')


# --- What the chapters show -------------------------------------------------------------------------------------------

SHOWN = re.compile(r'```sh\necho ([0-9a-f ]+?)(?: \|\n  | \| )xxd -r -p \| nc -w 1 localhost 9092 \| xxd\n```\n\n'
                   r'```\n(.+?)\n```', re.S)


def dumped(data: bytes) -> str:
    "As `xxd` prints it."
    rows = []
    for at in range(0, len(data), 16):
        row = data[at:at + 16]
        pairs = ' '.join(row[i:i + 2].hex() for i in range(0, len(row), 2))
        text = ''.join(chr(byte) if 32 <= byte < 127 else '.' for byte in row)
        rows.append(f'{at:08x}: {pairs:<39}  {text}')
    return '\n'.join(rows)


@pytest.mark.parametrize('step', [step for step in EVENING if step != 'compact'])   # which shows no such command
def test_the_command_of_a_chapter_prints_what_it_says(tmp_path, step):
    (asked, printed), = SHOWN.findall(chapter(step))
    with tiny_broker(tmp_path, program(step)) as port, Client(port) as client:
        client.send(bytes.fromhex(asked))
        client.half_close()
        answer = b''
        while byte := client.receive(1): answer += byte
    assert dumped(answer) == printed
    if shutil.which('xxd'):
        assert subprocess.run('xxd', input=answer, capture_output=True).stdout.decode().rstrip('\n') == printed


@pytest.mark.parametrize('step', EVENING)
def test_a_chapter_says_how_to_run_its_program(step):
    assert f'kafka-scratch tiny --after {step} > tiny_broker.py && python tiny_broker.py' in chapter(step)


def test_the_chapters_claim_the_stages_that_their_programs_pass():
    before = 0
    for step in EVENING:
        paragraph = re.search(r"Stages of CodeCrafters' tester that pass now: (.+)", chapter(step))[1]
        assert [int(number) for number in re.findall(r'(\d+) \*', paragraph)] == [*range(before + 1, PASSED[step] + 1)]
        before = PASSED[step]
