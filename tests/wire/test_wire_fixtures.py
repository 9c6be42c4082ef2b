"""Every frame that real clients and a real broker exchanged, for the APIs that we serve.

Read, it says what Kafka's own classes read. Written again, it is the same bytes. Explained, every byte has its place.
What the real broker
refused, we refuse. APIs that are added to the broker are covered from then on.
"""
import base64
import hashlib
import json
from collections import Counter, namedtuple
from itertools import zip_longest
from pathlib import Path

import pytest

from wire_frames import WIRE, frames_of, spans_touch
from kafka_scratch.apis.api_versions import ApiVersionsResponse
from small_node import bare_node
from kafka_scratch.broker.apis import APIS
from kafka_scratch.wire.frames import ResponseHeader
from kafka_scratch.wire.codes import API_VERSIONS
from kafka_scratch.apis.api import PEEK, Refused, explain_request, explain_response, find_api, read_request
from kafka_scratch.wire.primitives import DecodeError, Int32
from kafka_scratch.wire.schema import kafka_json


# A request and its response have the same name. `raw` starts with the length.
Frame = namedtuple('Frame', 'name key version raw decoded error client_id', defaults=(None,))

# Requests that Kafka understands though they are not as anyone would write them, and what becomes of the odd part.
ODD = {'v4-trailing-bytes': 'dropped', 'v0-with-v3-body': 'dropped', 'trailing-bytes': 'dropped',
       'client-id-length--2': 'read as null',
       'non-utf8-name': 'read as U+FFFD', 'confluent.list-2-3': 'dropped', 'confluent.list-3-3': 'dropped'}


def with_sizes(value):
    "A message as Kafka's tools print it for people: of records, only the size."
    if isinstance(value, list): return [with_sizes(item) for item in value]
    if not isinstance(value, dict): return value
    value = {name: with_sizes(item) for name, item in value.items()}
    if value.get('records') is not None: value['recordsSizeInBytes'] = len(base64.b64decode(value.pop('records')))
    return value


def client_frames():
    "What clients sent and got: a request or a response per line."
    for path in sorted(WIRE.glob('clients/*.jsonl')):
        for line in map(json.loads, path.open()):
            if line['api_key'] not in APIS: continue
            raw, = frames_of(line['hex'])
            name = f'{path.stem}-{line["conn"]}-{line["correlation_id"]}'
            yield line['direction'], Frame(name, line['api_key'], line['api_version'], raw,
                                           *map(line.get, ('decoded', 'decoded_error', 'client_id')))


def edge_frames():
    "What was made by hand to try the broker, and its answers. Only the first of several frames is decoded."
    for path in sorted(WIRE.glob('edge/*.jsonl')):
        for line in map(json.loads, path.open()):
            try: requests = frames_of(line['request_hex'])
            except DecodeError: continue   # lengths that can't be: see the tests of FrameReader
            responses = [frame for text in line.get('all_responses_hex') or [line['response_hex']] for frame
                         in frames_of(text)]
            for i, (request, response) in enumerate(zip_longest(requests, responses)):
                if len(request) < 4 + PEEK.size or PEEK.unpack_from(request, 4)[0] not in APIS: continue
                key, version, _ = PEEK.unpack_from(request, 4)
                name = line['name'] + f'-{i + 1}' * (i > 0)
                known = line.get if i == 0 else lambda key: None
                yield 'request', Frame(name, key, version, request, *map(known,
                    ('request_decoded', 'request_decoded_error', 'client_id')))
                if response: yield 'response', Frame(name, key, version, response, known('response_decoded'), None)


ALL = [*client_frames(), *edge_frames()]
REQUESTS = [frame for direction, frame in ALL if direction == 'request' and frame.error is None]
REFUSED = [frame for direction, frame in ALL if direction == 'request' and frame.error is not None]
RESPONSES = [frame for direction, frame in ALL if direction == 'response']
ANSWERS = {frame.name: frame for frame in RESPONSES}
# refused, but with an answer
UNSUPPORTED = [frame for frame in REFUSED if frame.key == API_VERSIONS and frame.name in ANSWERS]

def each(frames): return pytest.mark.parametrize('frame', frames, ids=lambda frame: frame.name)


def read_response(frame: Frame):
    """Header and body of a response, the version of the body, and where it ends. An unsupported version is answered in
    version 0."""
    api = APIS[frame.key]
    version = frame.version if frame.version in api.response.VERSIONS else 0
    header, pos = ResponseHeader.codec(api.response_header_version(version)).read(frame.raw, 4)
    body, end = api.response.codec(version).read(frame.raw, pos)
    return header, body, version, end


# --- The promises -----------------------------------------------------------------------------------------------------

def test_every_fixture_is_what_it_was_and_is_listed():
    "`SHA256SUMS` has them all; `README.md` says how it is made anew after a recording."
    fixtures = Path(__file__).parents[1]/'fixtures'
    listed = dict(reversed(line.split('  ', 1)) for line in (fixtures/'SHA256SUMS').read_text().splitlines())
    there = {path.relative_to(fixtures).as_posix(): path for path in fixtures.rglob('*') if path.is_file()}
    there.pop('SHA256SUMS')
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()} == listed


def test_that_many_frames_are_checked():
    "So that a fixture that went missing is noticed."
    assert len(ANSWERS) == len(RESPONSES) and len({(frame.name,
                                                    frame.key) for frame
                                                    in REQUESTS + REFUSED}) == len(REQUESTS + REFUSED)
    requests, refused, responses = (Counter(frame.key for frame in frames) for frames in (REQUESTS, REFUSED, RESPONSES))
    assert (requests[18], refused[18], responses[18], len(UNSUPPORTED)) == (106, 14, 116, 10)
    assert (requests[75], refused[75], responses[75]) == (39, 5, 39)
    counts = {0: (85, 2, 81), 1: (78, 2, 73), 2: (44, 0, 44), 3: (136, 2, 134)}
    for key, expected in counts.items(): assert (requests[key], refused[key], responses[key]) == expected, key
    assert set(requests) == set(responses) and sum(requests.values()) == 717
    # of which the recorded clients had no need
    assert set(APIS) - set(requests) == {25, 28, 30, 31, 33, 34, 35, 36, 43, 45, 46, 47, 48, 49, 50, 51, 57, 61, 65, 74}


@each(REQUESTS)
def test_a_request_says_what_kafka_reads(frame):
    header, body = read_request(frame.raw[4:], *find_api(frame.raw, APIS, 4))
    assert (header.api_key, header.api_version) == (frame.key, frame.version)
    if frame.decoded is not None:
        assert with_sizes(kafka_json(body, frame.version)) == frame.decoded
        assert (header.client_id or '') == frame.client_id   # Kafka's class turns null into ""


@each(REQUESTS)
def test_a_request_is_written_as_it_was(frame):
    api, version = find_api(frame.raw, APIS, 4)
    header, body = read_request(frame.raw[4:], api, version)
    again = header.encode(api.request_header_version(version)) + body.encode(version)
    if ODD.get(frame.name) == 'dropped': assert len(again) < len(frame.raw) - 4 and frame.raw[4:].startswith(again)
    elif frame.name in ODD: assert again != frame.raw[4:] and read_request(again, api, version) == (header, body)
    else: assert Int32.write(len(again)) + again == frame.raw


@each(REQUESTS)
def test_every_byte_of_a_request_is_explained(frame):
    explanation = explain_request(frame.raw, APIS)
    assert explanation.error is None and spans_touch(explanation)
    if ODD.get(frame.name) != 'dropped': assert explanation.end == len(frame.raw)


@each(REFUSED)
def test_a_request_that_kafka_refuses_is_refused(frame):
    with pytest.raises((DecodeError, Refused)): read_request(frame.raw[4:], *find_api(frame.raw, APIS, 4))
    explanation = explain_request(frame.raw, APIS)
    assert isinstance(explanation.error,
                      (DecodeError, Refused)) and spans_touch(explanation) and explanation.end <= len(frame.raw)
    if frame not in UNSUPPORTED:
        with pytest.raises((DecodeError, Refused)): bare_node().answer(frame.raw[4:])   # and the connection is closed


@each(UNSUPPORTED)
def test_an_unsupported_version_of_api_versions_is_answered_byte_for_byte_as_kafka_does(frame):
    assert bare_node().answer(frame.raw[4:]) == ANSWERS[frame.name].raw


@each(RESPONSES)
def test_a_response_says_what_kafka_reads(frame):
    header, body, version, end = read_response(frame)
    assert end == len(frame.raw)
    if frame.decoded is None: return
    if version == frame.version: assert with_sizes(kafka_json(body, version)) == frame.decoded
    else:   # Kafka shows fields of later versions too
        assert isinstance(body, ApiVersionsResponse) and kafka_json(body, version).items() <= frame.decoded.items()


@each(RESPONSES)
def test_a_response_is_written_as_it_was(frame):
    header, body, version, _ = read_response(frame)
    again = header.encode(APIS[frame.key].response_header_version(version)) + body.encode(version)
    assert Int32.write(len(again)) + again == frame.raw


@each(RESPONSES)
def test_every_byte_of_a_response_is_explained(frame):
    version = frame.version if frame.version in APIS[frame.key].response.VERSIONS else 0
    explanation = explain_response(frame.raw, APIS[frame.key], version)
    assert explanation.error is None and spans_touch(explanation) and explanation.end == len(frame.raw)
