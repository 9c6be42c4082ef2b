"""`kafka-scratch inspect`: it prints as it goes, knows files by their names, compares, and never fails on a page.

Where it matters the command is run as its users run it, as a process.
"""
import base64
import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from broker_process import FIXTURES, ROOT, environment
from kafka_scratch.log.producer_state import ABORTED_SIZE, read_snapshot, read_txn_index
from kafka_scratch.log.records import Record, read_batches, write_batch
from kafka_scratch.log.segments import BadFile, read_checkpoint, read_offset_index, read_partition_metadata
from kafka_scratch.log.segments import read_time_index
from kafka_scratch.tools import inspect
from kafka_scratch.tools.inspect_files import EXPLAINED, INDEXES, PART, inspect_file, kind_of_file
from kafka_scratch.tools.inspect_segments import inspect_batches
from kafka_scratch.tools.inspect_sources import from_text, read_source
from kafka_scratch.tools.terminal import BadArgument
from kafka_scratch.wire.primitives import DecodeError

LOGS = FIXTURES/'segments'/'logs'
MULTI = LOGS/'seg.multi-0'
EDGE = FIXTURES/'wire'/'edge'/'describe-topic-partitions.jsonl'
CASES = {case['name']: case for case in map(json.loads, EDGE.open())}
REQUEST, ANSWER = (CASES['one-topic'][name] for name in ('request_hex', 'response_hex'))
WHOLE = [sys.executable, '-m', 'kafka_scratch', 'inspect']


def run(*arguments, **more) -> tuple[int, str, str]:
    done = subprocess.run([*WHOLE, *map(str, arguments)], capture_output=True, timeout=60,
                          env=environment(PYTHONPATH=str(ROOT)), **more)
    assert b'Traceback' not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode('utf-8'), done.stderr.decode('utf-8')


@pytest.fixture(scope='module')
def long_log(tmp_path_factory) -> Path:
    "A megabyte and a half in eight hundred batches, with no index beside them."
    path = tmp_path_factory.mktemp('long')/f'{0:020}.log'
    with path.open('wb') as file:
        for number in range(800):
            records = [Record(value=b'x' * 900, offset_delta=i) for i in range(2)]
            file.write(write_batch(records, base_offset=2 * number))
    return path


# --- As it goes -------------------------------------------------------------------------------------------------------

def test_the_first_line_comes_before_the_last_batch_is_read(long_log):
    class Counted(bytes):   # notices how far it has been read
        def __getitem__(self, at):
            self.furthest = max(getattr(self, 'furthest', 0), at.stop if isinstance(at, slice) else at)
            return bytes.__getitem__(self, at)
    buf = Counted(long_log.read_bytes())
    lines = inspect.as_text('a log', inspect.inspections(buf, segment=True))
    assert next(lines) == 'a log' and next(lines).startswith('batch[0]: offsets 0 to 1, 2 records')
    assert next(lines).count('\n') > 200 and buf.furthest < 8_000


@pytest.mark.parametrize('form', ['text', 'tree', 'page', 'svg'])
def test_memory_stays_flat(long_log, form):
    options = SimpleNamespace(source=str(long_log), form=form, request=False, response=None, segment=False,
                              metadata=False, offset=None, limit=None, beside=None)
    found, size = inspect.found_in(str(long_log), options), 0
    tracemalloc.start()
    try:
        for text in inspect.FORMS[form]('a log', found): size += len(text)
        assert tracemalloc.get_traced_memory()[1] < (1 << 20 if form in ('text', 'tree') else 12 << 20) < 100 * size
    finally: tracemalloc.stop()


def test_somebody_who_has_seen_enough(long_log):
    "`| head`: no complaint, and not a second more than it takes."
    process = subprocess.Popen([*WHOLE, long_log], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment(PYTHONPATH=str(ROOT)))
    assert process.stdout.readline().startswith(b'segment ')
    process.stdout.close()
    assert process.wait(30) == 0 and process.stderr.read() == b''
    process.stderr.close()


def test_a_request_is_shown_when_it_has_come():
    "From a pipe that stays open."
    process = subprocess.Popen(WHOLE, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env=environment(PYTHONPATH=str(ROOT)))
    for number in (1, 2):
        process.stdin.write(bytes.fromhex(REQUEST))
        process.stdin.flush()
        line = b''
        while not line.startswith(b'request'): line = process.stdout.readline()   # waits: but not for the end
        assert line == b'request %d: DescribeTopicPartitions version 0\n' % number
    process.stdin.close()
    assert process.stdout.read().count(b'message_size') == 1 and process.wait(30) == 0
    process.stdout.close()


def test_columns_do_not_jump(long_log):
    lines = '\n'.join(inspect.as_text('', inspect_batches(long_log.read_bytes(), most=12))).splitlines()
    assert {line.index('Int64 ') for line in lines if 'base_offset' in line} == {
        line.index('Int64 ') for line in lines if 'base_timestamp' in line}


# --- A part of it -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('path', sorted(MULTI.glob('*.log')), ids=lambda path: path.name)
@pytest.mark.parametrize('index', ['as it is', 'missing', 'damaged', 'wrong'])
def test_an_offset_is_found(path, index, tmp_path):
    "With any index beside the segment, or with none."
    copy = tmp_path/path.name
    copy.write_bytes(path.read_bytes())
    beside = path.with_suffix('.index').read_bytes()
    if index == 'damaged': beside = beside[:-3]
    if index == 'wrong': beside = b'\0\0\0\1\0\0\0\x07\0\0\0\2\0\0\xff\xff'
    if index != 'missing': copy.with_suffix('.index').write_bytes(beside)
    for batch in read_batches(path.read_bytes()):
        for offset in (batch.base_offset, batch.last_offset):
            found = list(inspect.inspections(read_source(str(copy)), str(copy), offset=offset, limit=1))
            assert [each.start for each in found] == [batch.start] and found[0].problem == ''


def test_an_offset_that_is_not_there():
    code, _, complaint = run(MULTI/f'{16:020}.log', '--offset', 99)
    assert code == 2 and complaint.endswith('which ends with 31\n')
    assert run(REQUEST, '--offset', 1)[::2] == (2, 'kafka-scratch: --offset is for segments and their indexes\n')
    assert run(MULTI/'leader-epoch-checkpoint', '--offset', 1)[0] == 2


def test_a_limit_counts_batches_frames_and_entries(tmp_path):
    zipped = LOGS/'seg.java-zstd-0'/f'{0:020}.log'
    found = list(inspect.inspections(read_source(str(zipped)), str(zipped), limit=2))
    assert [each.title[:8] for each in found] == ['batch[0]', 'batch[0]', 'batch[1]', 'batch[1]']   # and insides
    assert run(3 * REQUEST, '--limit', 2)[1].count('request ') == 2
    index = MULTI/f'{16:020}.index'
    assert run(index, '--limit', 1)[1].count('position') == 1 and run(index)[1].count('position') == 3
    code, lines, _ = run(index, '--offset', 27)
    assert code == 0 and 'entry[1].position' in lines and 'entry[0]' not in lines


def test_batches_after_a_gap_are_found():
    "In a compacted log an offset may be gone; the next batch that is there is what is meant."
    path = LOGS/'seg.compacted-0'/f'{0:020}.log'
    first = next(read_batches(path.read_bytes()))
    found = next(inspect.inspections(read_source(str(path)), str(path), offset=1))
    assert found.start == (first.start if first.last_offset >= 1 else first.end)


# --- Files by their names ---------------------------------------------------------------------------------------------

def files(*kinds) -> list[Path]:
    everything = [path for path in sorted(FIXTURES.rglob('*')) if path.is_file() and path.stat().st_size]
    return [path for path in everything if kind_of_file(str(path)) in kinds and 'wire' not in path.parts]


KINDS = sorted({*EXPLAINED, *INDEXES})


@pytest.mark.parametrize('kind', KINDS)
def test_every_byte_of_every_file_of_kafka_is_explained(kind):
    found = files(kind)
    assert found
    for path in found:
        buf, at = path.read_bytes(), 0
        for inspection in inspect_file(buf, str(path)):
            assert inspection.problem == '' and inspection.start == at
            for span in inspection.spans:
                assert span.offset == at
                at += span.length
        assert at == len(buf), path


@pytest.mark.parametrize('name, kind', [
    ('00000000000000000000.log', '.log'), ('00000000000000000007-0000000001.checkpoint', '.log'),
    ('00000000000000000000.index.deleted', '.index'), ('00000000000000000000.timeindex.swap', '.timeindex'),
    ('00000000000000000000.log.cleaned', '.log'), ('orders-0/00000000000000000000.txnindex', '.txnindex'),
    ('leader-epoch-checkpoint', 'leader-epoch-checkpoint'), ('bootstrap.checkpoint', '.log'),
    ('notes.txt', None), ('-', None), ('', None), ('index', None), ('0012', None)])
def test_a_name_says_what_a_file_is(name, kind): assert kind_of_file(name) == kind


def test_zeros_in_advance_are_named():
    for path in FIXTURES.glob('single-broker/logs/phoenix-0.*-delete/*.*index'):
        code, lines, _ = run(path)
        assert code == 0 and len(lines.splitlines()) == 2 and 'preallocated  zeros  655' in lines


def test_entries_before_zeros(tmp_path):
    raw = (MULTI/f'{16:020}.index').read_bytes()
    *_, found = inspect_file(raw + bytes(8 * 1000), f'{16:020}.index')
    assert [span.path[0] for span in found.spans] == ['entry'] * 6 + ['preallocated'] and found.spans[-1].length == 8000


def test_a_long_index_is_shown_in_parts():
    raw = b''.join(int.to_bytes(number, 4, 'big') * 2 for number in range(1, 1001))
    found = list(inspect_file(raw, 'x.index'))
    assert len(found) == -(-1000 // PART) and not any(part.problem for part in found) and found[-1].end == len(raw)
    assert sum(len(part.spans) for part in found) == 2000
    lines = '\n'.join(inspect.as_text('', iter(found))).splitlines()
    assert sum(line.startswith('x.index') for line in lines) == 1   # the title is said once


def refuses(read, path: Path) -> bool:
    try: read(str(path))
    except (DecodeError, BadFile): return True
    return False


def mutations(raw: bytes):
    "Cut off everywhere, and every byte changed."
    for at in range(len(raw)):
        yield raw[:at]
        yield raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1:]
        yield raw[:at] + b'\xff' + raw[at + 1:]


READERS = {'.index': lambda path: read_offset_index(path, 16), '.timeindex': lambda path: read_time_index(path, 16),
           '.snapshot': read_snapshot, '.txnindex': read_txn_index, 'partition.metadata': lambda path:
           read_partition_metadata(os.path.dirname(path)), 'leader-epoch-checkpoint': read_checkpoint,
           'log-start-offset-checkpoint': read_checkpoint}


@pytest.mark.parametrize('kind', READERS)
def test_what_the_broker_refuses_is_a_problem_here_too(kind, tmp_path):
    "And what it reads is none, but for text that it reads and nobody would write."
    source = min((path for path in files(kind) if path.stat().st_size < 300), key=lambda path: -path.stat().st_size)
    copy, stricter = tmp_path/source.name, 0
    for raw in mutations(source.read_bytes()):
        copy.write_bytes(raw)
        if not raw: continue
        *_, last = inspect_file(raw, str(copy))
        refused = refuses(READERS[kind], copy)
        assert last.problem or not refused, raw
        stricter += bool(last.problem) and not refused
        if last.problem: assert 0 <= last.end <= len(raw)
    assert not stricter or kind in ('partition.metadata', 'leader-epoch-checkpoint', 'log-start-offset-checkpoint')


@given(st.sampled_from(KINDS), st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_under_any_name(kind, raw):
    name = kind if kind in EXPLAINED and not kind.startswith('.s') and not kind.startswith('.t') else f'{7:020}{kind}'
    for inspection in inspect_file(raw, name):
        assert str(inspection) and inspection.tree() is not None and inspection._repr_html_()


@pytest.mark.parametrize('name, content, says', [
    ('quorum-state', b'{"leaderId":1', 'this is no object in JSON'), ('quorum-state', b'[1]', 'no object'),
    ('meta.properties', b'a=\\u12', 'meta.properties'), ('recovery-point-offset-checkpoint', b'1\n0\n', 'version 0'),
    ('recovery-point-offset-checkpoint', b'0\n1\na 0\n', 'entry[0].partition'),
    ('recovery-point-offset-checkpoint', b'0\n1\na 0 1\nb 0 1\n', 'more follow'),
    (f'{0:020}.txnindex', bytes(ABORTED_SIZE + 1), 'only 1 left')])
def test_how_far_it_got_and_why(name, content, says, tmp_path):
    (tmp_path/name).write_bytes(content)
    code, lines, _ = run(tmp_path/name)
    assert code == 1 and f'{tmp_path.name}/{name}' in lines and says in lines and '✗ Understood up to' in lines


def test_a_flag_is_stronger_than_a_name(tmp_path):
    path = tmp_path/'leader-epoch-checkpoint'
    path.write_text(REQUEST)
    assert run('--request', path)[0] == 0 and run(path)[0] == 1


def test_names_in_a_file_do_nothing_to_a_terminal(tmp_path):
    (tmp_path/'quorum-state').write_bytes(b'{"\\u001b[2J":1}')
    assert '\x1b' not in run(tmp_path/'quorum-state')[1]


# --- Forms of bytes ---------------------------------------------------------------------------------------------------

def test_base64_is_taken_where_there_is_no_doubt(tmp_path):
    text = base64.b64encode(bytes.fromhex(REQUEST)).decode()
    wrapped = '\n'.join(re.findall('.{1,20}', text)) + '\n'
    (tmp_path/'pasted.txt').write_text(wrapped)
    expected = run(REQUEST)
    assert run(text) == run(f'base64:{text}') == run(tmp_path/'pasted.txt') == run(input=wrapped.encode()) == expected
    assert run(base64.urlsafe_b64encode(bytes.fromhex(REQUEST)).decode()) == expected


WORDS = 'Nonsense', 'AAAAGwBL', 'APIVersions1', 'hello world', 'readme', 'AAAAGw=', 'ABCDEFGH!'


@pytest.mark.parametrize('text', WORDS)
def test_a_word_is_no_base64(text):
    assert from_text(text) is None
    code, _, complaint = run(text)
    assert code == 2 and 'nor base64' in complaint


@pytest.mark.parametrize('text, says', [
    ('000', '3 hexadecimal digits'), ('base64:A', 'no base64'), ('base64:', 'no base64')])
def test_what_is_wrong_with_a_text(text, says): assert says in run(text)[2]


def test_hexadecimal_comes_first():
    "All its digits are letters of base64, too."
    assert from_text('00' * 8) == bytes(8) and from_text('AAAAAAAA') == b'\xaa' * 4


# --- Beside each other ------------------------------------------------------------------------------------------------

def test_beside(tmp_path):
    other = REQUEST[:-4] + 'beff'
    assert run(REQUEST, '--beside', REQUEST)[0] == 0
    code, lines, _ = run(REQUEST, '--beside', other)
    assert code == 1 and re.search(r'(?m)^≠  body\.', lines) and lines.count('≠') >= 1
    assert lines.splitlines()[-1].startswith('1 of ') or ' fields differ' in lines.splitlines()[-1]
    code, page, _ = run(REQUEST, '--beside', other, '--as', 'page')
    assert code == 1 and page.startswith('<!DOCTYPE html>') and page.rstrip().endswith('</html>') and '&#8800;' in page
    assert run(REQUEST, '--beside', other, '--as', 'svg')[0] == 2


def test_beside_responses_and_more_frames_than_the_other_has():
    code, lines, _ = run(2 * ANSWER, '--response', 'DescribeTopicPartitions:0', '--beside', ANSWER)
    assert code == 1 and lines.count('All ') == 1 and 'beside nothing' in lines


def test_beside_of_segments():
    path = MULTI/f'{0:020}.log'
    assert run(path, '--beside', path, '--limit', 1)[0] == 0
    assert run(path, '--beside', MULTI/f'{16:020}.log', '--limit', 1)[0] == 1


# --- Pages ------------------------------------------------------------------------------------------------------------

def test_a_page_is_complete_and_needs_nobody():
    code, page, _ = run('--as', 'page', REQUEST)
    assert code == 0 and page.isascii() and page.count('<html') == page.count('</html>') == 1
    assert not re.search(r'<script|<link|src=|href=|url\(|@import|https?:', page)
    assert 'prefers-color-scheme:dark' in page and 'width=device-width' in page and '@container' in page
    assert '<th>what it is</th>' in page and 'A number that the client chooses' in page
    assert run('--as', 'html', REQUEST)[1] == page


def test_a_page_says_what_is_wrong():
    code, page, _ = run('--as', 'page', CASES['truncated-body']['request_hex'])
    assert code == 1 and 'Understood up to offset 28.' in page and 'class="rest"' in page


def test_a_page_ends(long_log):
    code, page, _ = run('--as', 'page', long_log)
    assert code == 0 and len(page) < 3_000_000 and 'More follows after byte' in page
    assert 'More follows' not in run('--as', 'page', '--limit', '3', long_log)[1]


# --- For a page that runs the package ---------------------------------------------------------------------------------

NAMES = 'auto', 'request', 'response', 'segment', 'metadata', 'x.index', 'quorum-state', 'nonsense', ''
kinds = st.sampled_from(NAMES)
pasted = st.binary(max_size=120) | st.text(max_size=60) | st.binary(max_size=60).map(bytes.hex)


@given(pasted, kinds, st.sampled_from(['', 'Fetch', '18', 'nobody']), st.none() | st.integers(-2, 20))
@settings(max_examples=300, deadline=None)
def test_nothing_that_is_pasted_fails(text, kind, api, version):
    found = inspect.inspect_pasted(text, kind, api, version)
    assert json.loads(json.dumps(found)) == found
    for each in found:
        raw = bytes.fromhex(each['hex'])
        assert 0 <= each['end'] <= len(raw) and isinstance(each['problem'], str)
        for span in each['spans']: assert 0 <= span['offset'] <= span['offset'] + span['length'] <= len(raw)
    rows = inspect.compare_pasted(text, REQUEST, kind, api, version)
    assert json.loads(json.dumps(rows)) == rows


def test_what_is_pasted():
    request, = inspect.inspect_pasted(REQUEST)
    assert request['title'] == 'request 1: DescribeTopicPartitions version 0' and request['problem'] == ''
    assert all(span['sentence'] for span in request['spans'])
    answer, = inspect.inspect_pasted(bytes.fromhex(ANSWER), 'response', 'DescribeTopicPartitions', 0)
    assert answer['problem'] == '' and answer['end'] == len(ANSWER) // 2
    second = inspect.inspect_pasted((MULTI/f'{16:020}.log').read_bytes())[1]
    assert second['title'].startswith('batch[1]') and second['start'] > 0 and second['spans'][0]['offset'] == 0
    assert 'nor base64' in inspect.inspect_pasted('what is this?')[0]['problem']
    index, = inspect.inspect_pasted((MULTI/f'{16:020}.index').read_bytes(), f'{16:020}.index')
    assert [span['path'] for span in index['spans'][:2]] == ['entry[0].relative_offset', 'entry[0].position']


def test_every_request_of_a_real_client_is_taken_for_one():
    for path in sorted((FIXTURES/'wire'/'clients').glob('*.jsonl')):
        for message in map(json.loads, path.open()):
            if message['direction'] == 'request' and len(message['hex']) < 4000:
                assert inspect.guess_kind(bytes.fromhex(message['hex'])) == 'request', message


@pytest.mark.parametrize('node', ['single-broker/logs', 'three-brokers/node-1'])
def test_a_metadata_log_is_known_by_its_bytes(node):
    assert inspect.guess_kind((FIXTURES/node/'__cluster_metadata-0'/f'{0:020}.log').read_bytes()) == 'metadata'
    assert inspect.guess_kind((MULTI/f'{16:020}.log').read_bytes()) == 'segment'


def test_apis_can_be_chosen():
    choices = {choice['name']: choice for choice in inspect.api_choices()}
    assert choices['ApiVersions'] == {'key': 18, 'name': 'ApiVersions', 'versions': [0, 1, 2, 3, 4]}


def test_bad_arguments_are_sentences():
    for arguments in (['--response', 'Nonsense', '00'], ['--response', '75:9', '00'], ['..'], [MULTI]):
        code, lines, complaint = run(*arguments)
        assert code == 2 and lines == '' and complaint.startswith('kafka-scratch: ') and complaint.count('\n') == 1
    with pytest.raises(BadArgument): read_source('/nowhere')
