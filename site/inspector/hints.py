"""What is wrong with bytes, probably: the small change after which everything fits."""
from kafka_scratch.apis.api import explain_request, explain_response
from kafka_scratch.broker.apis import APIS
from kafka_scratch.log.checksums import crc32c
from kafka_scratch.tools.inspect import find_named_api
from kafka_scratch.wire.inspector import is_prefix
from kafka_scratch.wire.schema import path_text

LONGEST = 5000    # a message of more bytes isn't tried: each change is one more reading of it
BACK = 64         # so far before the place where it stops, a mistake is looked for
MOST = 3          # so many changes are named


def number_at(raw: bytes, at: int, size: int) -> int: return int.from_bytes(raw[at:at + size], 'big', signed=True)

def sized(raw: bytes) -> bytes:
    "A frame with the length that it has."
    return (len(raw) - 4).to_bytes(4, 'big') + raw[4:]

def explained(raw: bytes, kind: str, api: str, version: int | None):
    if kind == 'request': return explain_request(raw, APIS)
    found, newest = find_named_api(api, APIS)
    return explain_response(raw, found, newest if version is None else version)

def fits(explanation, raw: bytes) -> bool: return explanation.error is None and explanation.end == len(raw)


# --- a broken message ---

def repairs(raw: bytes, kind: str, api: str, version: int | None) -> list[dict]:
    """Small changes after which a message can be read to its last byte: {'text', 'hex', 'at'}, or another version,
    {'text', 'version'}."""
    if kind in ('segment', 'metadata'): return right_checksum(raw)
    if kind not in ('request', 'response') or not 8 < len(raw) <= LONGEST: return []
    if found := other_size(raw, kind, api, version): return found
    if kind == 'response': found = other_versions(raw, api, version)
    reached = explained(raw, kind, api, version).end
    places = range(max(8, reached - BACK), min(reached + 8, len(raw)))
    found += missing_byte(raw, kind, api, version, places) + wrong_count(raw, kind, api, version, places)
    return (found or extra_byte(raw, kind, api, version, places))[:MOST]

def other_size(raw, kind, api, version) -> list[dict]:
    "All fits but the length in front."
    right = sized(raw)
    if right == raw or not fits(explained(right, kind, api, version), right): return []
    return [{'text': f'message_size {len(raw) - 4}, which is what follows, and not {number_at(raw, 0, 4)}', 'at': 0,
             'hex': right.hex()}]

def other_versions(raw, api, version) -> list[dict]:
    found, _ = find_named_api(api, APIS)
    return [{'text': f'version {other}', 'version': other} for other in reversed(found.request.VERSIONS)
            if other != version and fits(explain_response(sized(raw), found, other), raw)]

def missing_byte(raw, kind, api, version, places: range) -> list[dict]:
    "A zero byte was left out: an empty tag buffer, mostly."
    found = {}
    for at in (*places, places.stop):
        longer = sized(raw[:at] + b'\0' + raw[at:])
        if longer in found: continue     # one more zero among zeros
        explanation = explained(longer, kind, api, version)
        if fits(explanation, longer): found[longer] = at, owner(explanation.spans, at, zeros_from(longer, at))
    return [{'text': f'a byte 00 at {at}: {path}', 'at': at, 'hex': longer.hex()}
            for longer, (at, path) in found.items()]

def zeros_from(raw: bytes, at: int) -> int:
    "Where the run of zeros ends that begins here."
    while at < len(raw) and raw[at] == 0: at += 1
    return at

def owner(spans, at: int, end: int) -> str:
    "The field that a missing zero belongs to: a whole one among those that the run of zeros touches, if there is one."
    touched = [span for span in spans if span.offset < end and at < span.offset + span.length]
    whole = [span for span in touched if span.length == 1 and at <= span.offset]
    return path_text((whole or touched)[0].path) if touched else 'somewhere'

def wrong_count(raw, kind, api, version, places: range) -> list[dict]:
    "A length or count is one too small or too large: the N+1 of compact types."
    found = []
    for at in places:
        for value in raw[at] + 1, raw[at] - 1:
            if not 0 <= value < 128: continue
            changed = sized(raw[:at] + bytes([value]) + raw[at + 1:])
            explanation = explained(changed, kind, api, version)
            if not fits(explanation, changed): continue
            span = next(span for span in explanation.spans if span.offset <= at < span.offset + span.length)
            if not is_prefix(span): continue
            found.append({'text': f'{value:02x} instead of {raw[at]:02x} at {at}: {path_text(span.path)}', 'at': at,
                          'hex': changed.hex()})
    return found

def extra_byte(raw, kind, api, version, places: range) -> list[dict]:
    "There is a byte too many."
    found = {}
    for at in places:
        shorter = sized(raw[:at] + raw[at + 1:])
        if shorter not in found and fits(explained(shorter, kind, api, version), shorter): found[shorter] = at
    return [{'text': f'no byte {raw[at]:02x} at {at}', 'at': at, 'hex': shorter.hex()} for shorter, at in found.items()]

def right_checksum(raw: bytes) -> list[dict]:
    "The checksum of the first batch whose bytes give another one."
    at = 0
    while len(raw) - at >= 61:
        end = at + 12 + number_at(raw, at + 8, 4)
        if not at + 61 <= end <= len(raw): return []
        crc = crc32c(raw[at + 21:end]).to_bytes(4, 'big')
        if raw[at + 17:at + 21] != crc:
            return [{'text': f'the checksum {crc.hex()} at {at + 17}', 'at': at + 17,
                     'hex': (raw[:at + 17] + crc + raw[at + 21:]).hex()}]
        at = end
    return []


# --- two messages ---

def one_change(mine: bytes, other: bytes, other_spans: list) -> str:
    "How Kafka's bytes differ from ours, if it is in one place only; the lengths in front don't count."
    if mine[4:] == other[4:]: return ''
    shorter = min(len(mine), len(other))
    start = next((at for at in range(4, shorter) if mine[at] != other[at]), shorter)
    same = 0
    while same < shorter - start and mine[-1 - same] == other[-1 - same]: same += 1
    ours, theirs = mine[start:len(mine) - same], other[start:len(other) - same]
    if len(ours) > 8 or len(theirs) > 8: return ''
    if not ours: return f'{what(theirs)} missing{among(mine, start, theirs, other_spans)}; all else is the same.'
    if not theirs: return f'{what(ours)} too much, at {start}; all else is the same.'
    return f'Kafka has {theirs.hex(" ")} instead of {ours.hex(" ")} at {start}; all else is the same.'

def what(raw: bytes) -> str: return f'{raw.hex(" ")} {"is" if len(raw) == 1 else "are"}'

def among(mine: bytes, start: int, missing: bytes, other_spans: list) -> str:
    "Where bytes are missing; among equal ones it can't be known, so a whole field of Kafka's is named if one fits."
    first = start
    while first > 4 and len(set(missing)) == 1 and mine[first - 1] == missing[0]: first -= 1
    whole = [span for span in other_spans if first <= span.offset <= start and span.length == len(missing)]
    return f': Kafka’s {path_text(whole[0].path)}, at {whole[0].offset}' if whole else f' at {start}'
