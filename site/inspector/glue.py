"""What the inspector's page asks of the package: bytes in, JSON out."""
import json
from itertools import islice

import hints
from hints import number_at
from pasted import NotBytes, bytes_from

from kafka_scratch.apis.api import explain_response
from kafka_scratch.broker.apis import APIS
from kafka_scratch.tools.inspect import api_choices, guess_kind, inspections
from kafka_scratch.tools.inspect_files import kind_of_file
from kafka_scratch.tools.terminal import BadArgument
from kafka_scratch.wire.codes import API_NAMES
from kafka_scratch.wire.compare import aligned
from kafka_scratch.wire.inspector import as_json

FRAMES, BATCHES = ('request', 'response'), ('segment', 'metadata')


def apis() -> str:
    "The APIs that are known, with their versions, by name."
    return json.dumps(sorted(api_choices(), key=lambda choice: choice['name']))

def pasted(text: str) -> str:
    "The bytes that a text means."
    try: found, form = bytes_from(text)
    except NotBytes as error: return json.dumps({'problem': str(error)})
    return json.dumps({'hex': found.hex(), 'form': form})


# --- what is it? ---

def guess(raw: bytes, name: str = '') -> dict:
    "What bytes are, as far as they tell: kind, for a response API and version, and why."
    if kind_of_file(name) not in (None, '.log'): return {'kind': 'file', 'why': 'of its name'}
    kind = guess_kind(raw)
    if kind in BATCHES: return {'kind': kind, 'why': 'byte 16 is 2, the magic of a record batch'}
    key, version = number_at(raw, 4, 2), number_at(raw, 6, 2)
    known = f'its length is followed by {key}, {API_NAMES[key]}, and version {version}' if key in APIS else ''
    request = {'kind': 'request', 'why': known or 'nothing else fits either'}
    if not next(inspections(raw)).problem: return request
    if fitting := responses_that_fit(raw):
        names = ', '.join(f'{name} {number}' for name, number in fitting[:4])
        return {'kind': 'response', 'api': fitting[0][0], 'version': fitting[0][1],
                'why': f'every byte fits a response of {names}' + (' and others' if len(fitting) > 4 else '')}
    return request

def responses_that_fit(raw: bytes) -> list[tuple[str, int]]:
    "APIs and versions whose response takes up exactly these bytes: newest version first."
    if number_at(raw, 0, 4) + 4 != len(raw): return []
    return [(API_NAMES[key], version) for key, api in APIS.items() for version in reversed(api.request.VERSIONS)
            if hints.fits(explain_response(raw, api, version), raw)]


# --- what do they say? ---

def found_in(raw: bytes, kind: str, api: str, version: int | None, name: str):
    response = (f'{api}:{version}' if version is not None else api) if kind == 'response' else None
    return inspections(raw, name if kind == 'file' else '-', response, kind == 'segment', kind == 'metadata')

def notes(part: dict, raw: bytes, start: int) -> list[str]:
    "What is odd about a frame, though each of its fields may be right."
    said, there, found = number_at(raw, start, 4), len(raw) - start - 4, []
    if there < 0: return []
    if said > there: found.append(f'message_size says {said}, but only {there} bytes follow.')
    if said < 0: found.append(f'message_size is negative: {said}.')
    if part['problem'] and 0 <= said < there:
        found.append(f'message_size says {said}, but {there} bytes follow: the rest is taken for another message.')
    rest = len(part['hex']) // 2 - part['end']
    if rest and not part['problem']:
        found.append(f'{rest} byte{"s" * (rest > 1)} after the last field: a field too many, or another version.')
    return found


def look(raw: bytes, kind: str, api: str, version: int | None, name: str, most: int) -> str:
    "What bytes say: a list of parts, each with its fields, until there are more than so many."
    raw, said = bytes(raw), {'why': ''}
    if kind == 'guess':
        said = guess(raw, name)
        kind, api, version = said['kind'], said.get('api', api), said.get('version', version)
    parts, start, fields = [], 0, 0
    found = iter(())
    try:
        found = found_in(raw, kind, api, version, name)
        for inspection in found:
            parts.append(part := as_json(inspection))
            size = len(part['hex']) // 2
            own = bool(size) and raw[start:start + size].hex() == part['hex']   # not out of a compressed batch
            part |= {'at': start if own else None, 'size': size, 'notes': []}
            if own and kind in FRAMES: part['notes'] = notes(part, raw, start)
            if own: start += len(part.pop('hex')) // 2
            fields += len(part['spans'])
            del part['spans'][most:]
            if fields >= most: break
        more = fields > most or next(found, None) is not None
    except BadArgument as error:
        return json.dumps({**said, 'kind': kind, 'problem': str(error), 'parts': parts})
    return json.dumps({**said, 'kind': kind, 'api': api, 'version': version, 'parts': parts, 'more': more})


def text(raw: bytes, kind: str, api: str, version: int | None, name: str) -> str:
    "The same as text, as the command line prints it."
    return json.dumps('\n\n'.join(str(each) for each in islice(found_in(bytes(raw), kind, api, version, name), 50)))


# --- what is wrong? ---

def repairs(raw: bytes, kind: str, api: str, version: int | None) -> str:
    "Small changes that would make broken bytes readable."
    return json.dumps(hints.repairs(bytes(raw), kind, api, version))

def compare(mine: bytes, other: bytes, kind: str, api: str, version: int | None, name: str, most: int) -> str:
    """Two messages, field by field: for each part pairs of numbers of fields, null where one has none; and in which
    one place they differ, if it is one."""
    mine, other, pairs, change = bytes(mine), bytes(other), [], ''
    both = [list(islice(found_in(raw, kind, api, version, name), 50)) for raw in (mine, other)]
    for ours, theirs in zip(*both):
        numbers = [{id(span): n for n, span in enumerate(each.spans)} for each in (ours, theirs)]
        pairs.append([[numbers[0].get(id(a)), numbers[1].get(id(b))]
                      for a, b in aligned(ours.spans[:most], theirs.spans[:most])])
    if len(both[1]) == 1 and kind in FRAMES: change = hints.one_change(mine, other, both[1][0].spans)
    return json.dumps({'pairs': pairs, 'change': change})
