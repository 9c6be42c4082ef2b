"Pages, pictures and comparisons of real messages: nothing is lost when styles are, and fields find their partners."
import json
import re
from html import unescape

import pytest

from broker_process import FIXTURES
from kafka_scratch.apis.api import explain_request, explain_response
from kafka_scratch.broker.apis import APIS
from kafka_scratch.wire.codes import API_NAMES
from kafka_scratch.wire.compare import aligned, compare, comparison_json
from kafka_scratch.wire.field_notes import field_note
from kafka_scratch.wire.inspector import Inspection, as_json
from kafka_scratch.wire.pages import LONGEST, Picture, page, strip, text_bars
from kafka_scratch.wire.schema import Span, path_text

EDGE = FIXTURES/'wire'/'edge'


def messages(name: str):
    "Requests and responses of a recording, as inspections."
    for case in map(json.loads, (EDGE/f'{name}.jsonl').open()):
        raw = bytes.fromhex(case['request_hex'])
        yield Inspection(case['name'], raw, *explain_request(raw, APIS)[1:])
        key, version = int.from_bytes(raw[4:6], 'big'), int.from_bytes(raw[6:8], 'big')
        if case['response_hex'] and key in APIS and version in APIS[key].request.VERSIONS:
            raw = bytes.fromhex(case['response_hex'])
            yield Inspection(case['name'], raw, *explain_response(raw, APIS[key], version)[1:])


RECORDINGS = 'describe-topic-partitions', 'apiversions', 'fetch', 'produce', 'metadata'


def bare(text: str) -> str:
    "A page without styles and attributes, as text."
    return unescape(re.sub(r'<[^>]+>', '', re.sub(r'<style>.*?</style>', '', text, flags=re.S)))


@pytest.mark.parametrize('name', RECORDINGS)
def test_a_page_has_every_byte_without_its_styles(name):
    for inspection in messages(name):
        if any(span.length > LONGEST for span in inspection.spans): continue
        lines = bare(re.search(r'<pre>(.*?)</pre>', page(inspection), re.S)[1]).split('\n')
        rows = [line for line in lines if line and '…' not in line]   # of what nobody explains, the beginning
        found = bytes.fromhex(''.join(row[8:8 + 48] for row in rows))
        assert found == bytes(inspection.buf)[:len(found)] and len(found) >= min(len(inspection.buf), inspection.end)
        assert [int(row[:6]) for row in rows] == list(range(0, len(found), 16))


@pytest.mark.parametrize('name', RECORDINGS)
def test_a_table_has_the_bytes_of_every_field(name):
    for inspection in messages(name):
        cells = re.findall(r'<tr class="s\d+ c\d" title="[^"]*"><td>(\d+)</td><td>([^<]*)</td>', page(inspection))
        assert [int(offset) for offset, _ in cells] == [span.offset for span in inspection.spans]
        for (_, shown), span in zip(cells, inspection.spans):
            raw = bytes(inspection.buf[span.offset:span.offset + span.length])
            assert shown == (raw.hex(' ') if len(raw) <= 8 else f'{raw[:8].hex(" ")} … {len(raw)} bytes')


@pytest.mark.parametrize('name', RECORDINGS)
def test_every_field_of_a_real_message_has_a_sentence(name):
    for inspection in messages(name):
        assert all(field_note(span.path) for span in inspection.spans)
        assert all(span['sentence'] for span in as_json(inspection)['spans'])


@pytest.mark.parametrize('name', RECORDINGS)
def test_a_picture_has_its_bytes_in_letters(name):
    for inspection in messages(name):
        text = repr(inspection.picture())
        above = [line for line in text.split('\n')[::2] if line]
        found = bytes.fromhex(re.sub(r'[| ]', '', ''.join(above)))
        assert found == bytes(inspection.buf)[:len(found)]
        assert len(found) == sum(span.length for span in inspection.spans)


def test_a_message_beside_itself_is_the_same():
    for inspection in messages('describe-topic-partitions'):
        comparison = compare(inspection, inspection)
        assert all(row.same for row in comparison.rows if row.path != 'not explained')
        if not inspection.problem and inspection.end == len(inspection.buf): assert 'are the same' in comparison.verdict


def span(path, at, length=1): return Span(path, at, length, 'Int8', 0)


def test_fields_find_their_partners_by_their_paths():
    ours = [span(('a',), 0), span(('tag',), 1), span(('x',), 2), span(('tag',), 3), span(('y',), 4)]
    theirs = [span(('a',), 0), span(('b',), 1), span(('tag',), 2), span(('x',), 3)]
    pairs = [(path_text((a or b).path), a is not None, b is not None) for a, b in aligned(ours, theirs)]
    assert pairs == [('a', True, True), ('b', False, True), ('tag', True, True), ('x', True, True),
                     ('tag', True, False), ('y', True, False)]


def test_the_first_difference_is_named():
    first, second = [inspection for inspection in messages('describe-topic-partitions')][:2]
    changed = bytearray(second.buf)
    changed[-1] ^= 1
    raw = bytes(changed)
    ours = Inspection('ours', raw, *explain_response(raw, APIS[API_NAMES.index('DescribeTopicPartitions')], 0)[1:])
    comparison = compare(ours, second)
    assert f'the first at offset {len(raw) - 1}: body.tagged_fields' in comparison.verdict
    assert [row.path for row in comparison.different] == ['body.tagged_fields']
    assert comparison_json(comparison)['rows'][-1]['same'] is False and '≠' in str(comparison)
    assert compare(first, second).different


def test_a_picture_shows_itself_in_any_form():
    picture = Picture('words', svg='<svg/>')
    assert repr(picture) == 'words' and picture._repr_svg_() == '<svg/>'
    assert picture._repr_png_() is picture._repr_html_() is None
    assert strip(b'', []).svg.startswith('<svg') and repr(strip(b'', [])) == ''
    assert text_bars(['a', 'bb'], [1, 2], 4).split('\n') == ['a              1  ██', 'bb             2  ████']


def test_a_part_of_the_bytes_keeps_its_offsets():
    buf = bytes(range(64))
    part = Inspection('part', buf, [span(('a',), 20, 4)], None, 24, 20, 24)
    assert str(part) == 'part\n    20  14 15 16 17              a  Int8  0' and as_json(part)['spans'][0]['offset'] == 0
    assert as_json(part)['hex'] == '14151617' and as_json(part)['start'] == 20 and '14 15 16 17' in repr(part.picture())
    assert bare(re.search(r'<pre>(.*?)</pre>', page(part))[1]).startswith('    20  14 15 16 17 ')
