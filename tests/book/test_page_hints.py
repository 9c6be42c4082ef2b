"What the inspector's page adds to the package: it reads what people paste, and guesses what it is and what is wrong."
import base64
import json
import sys

import pytest

from broker_process import ROOT

sys.path[0:0] = [str(ROOT/'tools'), str(ROOT/'site'/'inspector')]
import glue
import hints
import pages
from pasted import NotBytes, bytes_from

EXAMPLES = {each['name']: each | {'raw': bytes.fromhex(each['hex'])} for each in pages.examples()}
UNKNOWN = EXAMPLES['Unknown topic, response']['raw']
RAW = bytes(range(41)) + b'kafka abcd ef 12'


# --- pasted ---

def rows_of_tester(raw: bytes) -> str:
    "As the tester of the course prints bytes."
    text = lambda piece: ''.join(chr(byte) if 32 <= byte < 127 else '.' for byte in piece)
    rows = [f'{at:04x} | {raw[at:at + 16].hex(" "):<47} | {text(raw[at:at + 16])}' for at in range(0, len(raw), 16)]
    above = 'Hexdump of sent "ApiVersions" request: ', 'Idx  | Hex                    | ASCII', '-----+-------+-----'
    return '\n'.join(f'[tester::#KF8] {row}' for row in (*above, *rows))

def xxd_rows(raw: bytes) -> str:
    pairs = lambda piece: ' '.join(piece[at:at + 2].hex() for at in range(0, len(piece), 2))
    return '\n'.join(f'{at:08x}: {pairs(raw[at:at + 16]):<39}  ................' for at in range(0, len(raw), 16))

def hexdump_rows(raw: bytes) -> str:
    rows = [f'{at:08x}  {raw[at:at + 8].hex(" "):<23}  {raw[at + 8:at + 16].hex(" "):<23}  |abcd ef 12......|'
            for at in range(0, len(raw), 16)]
    return '\n'.join([*rows, f'{len(raw):08x}'])

WRITTEN = {
    'hexadecimal': bytes.hex, 'pairs': lambda raw: raw.hex(' ').upper(), 'colons': lambda raw: raw.hex(':'),
    'groups': lambda raw: raw.hex(' ', 4), '0x': lambda raw: ', '.join(f'0x{byte:02x}' for byte in raw),
    'Python': repr, 'Java': lambda raw: str([byte - 256 if byte > 127 else byte for byte in raw]),
    'Go': lambda raw: '[' + ' '.join(map(str, raw)) + ']',
    'Go, as written': lambda raw: '[]byte{%s}' % WRITTEN['0x'](raw),
    'Rust': lambda raw: '[' + ', '.join(f'{byte:02x}' for byte in raw) + ']',
    'C': lambda raw: 'char x[] = {\n%s\n};' % WRITTEN['0x'](raw),
    'tester': rows_of_tester, 'xxd': xxd_rows, 'hexdump': hexdump_rows,
    'base64': lambda raw: base64.b64encode(raw).decode(),
    'base64 for addresses': lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip('=')}


@pytest.mark.parametrize('size', [57, 16, 21, 40, 9])
@pytest.mark.parametrize('form', WRITTEN)
def test_what_people_paste_is_read(form, size): assert bytes_from(WRITTEN[form](RAW[:size]))[0] == RAW[:size]


@pytest.mark.parametrize(('text', 'why'), [
    ('00 00 0', '5 hexadecimal digits'), ('00 zz', "Character 4 is 'z'"), ('hello world', 'neither'),
    (rows_of_tester(RAW) + '\n' + rows_of_tester(RAW), '2 dumps')])
def test_what_is_no_bytes_is_refused(text, why):
    with pytest.raises(NotBytes, match=why): bytes_from(text)


def test_hexadecimal_is_not_taken_for_the_offset_of_a_dump():
    for text in '00000023 0012 0004', '0000  0012', '00000000 00000007': assert bytes_from(text)[1] == 'hexadecimal'


# --- guessed ---

def look(raw: bytes, kind='guess', api='', version=None, name='', most=1500) -> dict:
    return json.loads(glue.look(raw, kind, api, version, name, most))


@pytest.mark.parametrize('name', [name for name in EXAMPLES if 'broken' not in name])
def test_what_an_example_is_is_found_out(name):
    example = EXAMPLES[name]
    said = look(example['raw'])
    assert said['kind'] == example['kind'] and said['api'] == example.get('api', '')
    assert all(part['problem'] == '' and part['notes'] == [] for part in said['parts']) and not said['more']


@pytest.mark.parametrize('name', EXAMPLES)
def test_every_byte_has_its_place(name):
    "The fields of a part are in the bytes where it says, one after the other."
    example = EXAMPLES[name]
    for part in look(example['raw'], example['kind'], example.get('api', ''), example.get('version'))['parts']:
        reached = 0
        for span in part['spans']:
            assert span['offset'] == reached and span['sentence'], span
            reached += span['length']
        assert reached == part['end']
        if part['at'] is None: assert len(bytes.fromhex(part['hex'])) == part['size']


def test_a_file_is_known_by_its_name():
    index = bytes.fromhex('0000000500000100')
    said = look(index, name='00000000000000000000.index')
    assert said['kind'] == 'file' and '.index' in said['parts'][0]['title']


def test_much_is_cut():
    said = look(EXAMPLES['ApiVersions response']['raw'], most=50)
    assert said['more'] and len(said['parts'][0]['spans']) == 50
    many = EXAMPLES['Record batches']['raw'] * 40
    said = look(many, 'segment', most=100)
    assert said['more'] and 100 <= sum(len(part['spans']) for part in said['parts']) < 200


@pytest.mark.parametrize('raw', [b'\0', b'\0\0\0\1', bytes(8), bytes(100), b'\xff' * 70])
def test_nothing_is_too_odd_to_look_at(raw):
    for kind in 'guess', 'request', 'response', 'segment', 'metadata': assert 'parts' in look(raw, kind, 'Fetch', 4)


# --- what is wrong ---

def repaired(raw: bytes, kind='response', api='DescribeTopicPartitions', version=0) -> list[str]:
    found = hints.repairs(raw, kind, api, version)
    for each in found:   # what is promised is kept
        if 'hex' in each: assert not look(bytes.fromhex(each['hex']), kind, api, version)['parts'][0]['problem']
    return [each['text'] for each in found]

def changed(raw: bytes, at: int, value: int) -> bytes: return raw[:at] + bytes([value]) + raw[at + 1:]


def test_the_mistakes_that_everyone_makes_are_named():
    without = lambda at: hints.sized(UNKNOWN[:at] + UNKNOWN[at + 1:])
    assert repaired(without(8)) == ['a byte 00 at 8: header.tagged_fields']
    assert repaired(without(50)) == ['a byte 00 at 50: body.tagged_fields']
    assert repaired(changed(UNKNOWN, 13, 1)) == ['02 instead of 01 at 13: body.topics.count']
    assert repaired(changed(UNKNOWN, 16, 9))[0] == '0a instead of 09 at 16: body.topics[0].name.length'
    assert repaired(changed(UNKNOWN, 3, 41)) == ['message_size 47, which is what follows, and not 41']
    assert 'no byte 00 at 8' in repaired(hints.sized(UNKNOWN[:8] + b'\0' + UNKNOWN[8:]))
    assert repaired(EXAMPLES['ApiVersions response']['raw'], api='ApiVersions', version=2) == ['version 4', 'version 3']
    assert repaired(UNKNOWN) == [] == repaired(bytes(3))


def test_a_checksum_is_named():
    batches = EXAMPLES['Record batches']['raw']
    damaged = changed(batches, 73, batches[73] ^ 1)
    assert 'checksum' in look(damaged, 'segment')['parts'][0]['problem']
    assert repaired(damaged, 'segment')[0].startswith('the checksum ')
    assert repaired(batches, 'segment') == []


@pytest.mark.parametrize(('mine', 'said'), [
    (EXAMPLES['A broken answer']['raw'], '00 is missing: Kafka’s header.tagged_fields, at 8; all else is the same.'),
    (changed(UNKNOWN, 15, 5), 'Kafka has 03 instead of 05 at 15; all else is the same.'),
    (UNKNOWN[:20] + b'x' + UNKNOWN[20:], '78 is too much, at 20; all else is the same.'),
    (changed(UNKNOWN, 3, 41), '')])
def test_the_one_place_where_two_differ(mine, said):
    found = json.loads(glue.compare(mine, UNKNOWN, 'response', 'DescribeTopicPartitions', 0, '', 1500))
    assert found['change'] == said


def test_fields_are_paired():
    broken = EXAMPLES['A broken answer']
    [pairs] = json.loads(glue.compare(broken['raw'], UNKNOWN, 'response', broken['api'], 0, '', 1500))['pairs']
    assert pairs[:4] == [[0, 0], [1, 1], [2, 2], [3, 3]] and pairs[4:] == [[None, n] for n in range(4, 15)]
