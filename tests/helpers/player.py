"""Says recorded conversations again to a node, and gives its answers beside those of a real broker.

`recordings.py` has the table of what is played and how, and `conversations/test_recorded.py` plays it.
"""
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kafka_scratch.apis.api import Api, Caller, Later, Node, Refused, find_api
from kafka_scratch.wire.frames import RequestHeader
from kafka_scratch.wire.primitives import DecodeError, Int32

RECORDED = Path(__file__).parents[1]/'fixtures'/'wire'/'recorded'
CLOSED, SILENT = b'', None   # in place of an answer: the connection was closed; there is none yet


def recorded(file: str) -> list[dict]: return [json.loads(line) for line in (RECORDED/file).open(encoding='utf-8')]


def framed(api: Api, version: int, request, correlation_id: int = 7, client_id: str = 'recorded') -> bytes:
    "A request with its length and its header."
    header = RequestHeader(api_key=api.key, api_version=version, correlation_id=correlation_id, client_id=client_id)
    frame = header.encode(api.request_header_version(version)) + request.encode(version)
    return Int32.write(len(frame)) + frame


def answer_in(api: Api, version: int, raw: bytes):
    "The body of a response that came with its length and its header."
    return api.response.decode(raw, version, 8 + api.response_header_version(version))


# --- What happened ----------------------------------------------------------------------------------------------------

class Event(NamedTuple):
    "Somebody asks, or hears the answer, or both at once."
    name: str
    step: dict                 # as it is in the file
    asks: bytes | None = None
    hears: bytes | None = None # CLOSED, if the real broker closed the connection
    connection: str = ''
    at: int | None = None      # milliseconds, if the recording has times
    caller: Caller = Caller()


def exchanges(lines: list[dict]) -> Iterator[Event]:
    "Files of which each line is a question with its answer, or a remark."
    for line in lines:
        if 'request_hex' not in line: continue
        yield Event(line['name'], line, bytes.fromhex(line['request_hex']), bytes.fromhex(line['response_hex']))


CALLERS = {'SASL_PLAINTEXT': Caller('User:alice')}   # by listener; on all others, it is nobody

def connections(lines: list[dict]) -> Iterator[Event]:
    "Files of which each line is a connection, with all its questions and answers."
    for line in lines:
        caller = CALLERS.get(line['listener'], Caller())
        for step in line['steps']:
            asks, hears = bytes.fromhex(step['request_hex']), bytes.fromhex(step['response_hex'] or '')
            yield Event(line['name'], line, asks, hears, caller=caller)


def scenarios(lines: list[dict]) -> Iterator[Event]:
    "Files of which each line is a scenario on several connections, with times: an answer may come late."
    for line in lines:
        for at, connection, what, text in line.get('events', ()):
            yield Event(line['name'], line, **{what: bytes.fromhex(text)}, connection=connection, at=at)


# --- To play ----------------------------------------------------------------------------------------------------------

class Heard(NamedTuple):
    "What somebody heard from us, and from the real broker: whole frames, CLOSED, or SILENT."
    event: Event
    api: Api
    version: int
    ours: bytes | None
    theirs: bytes


def ask(node: Node, frame: bytes, caller: Caller) -> bytes | Later:
    try: answer = node.answer(frame, caller)
    except (Refused, DecodeError): return CLOSED
    if isinstance(answer, Later): answer.begin(lambda: None)
    return answer


def arrived(answer: bytes | Later) -> bytes | None:
    if not isinstance(answer, Later): return answer
    return answer.response() if answer.settled else SILENT


def renamed(frame: bytes, names: Iterable[tuple[bytes, bytes]]) -> bytes:
    for old, new in names: frame = frame.replace(old, new)
    return frame


def nothing(*_): pass
def no_names(answer) -> dict: return {}


def play(node: Node, events: Iterable[Event],
         before: Callable = nothing,   # called with node and event; may turn the clock
         made_up: Callable = no_names, # bytes in an answer that are random, by name
         unasked: Iterable[int] = (),  # keys of APIs that are left out
        ) -> Iterator[Heard]:
    "Says everything again, in the same order. What they made up becomes ours in requests, and ours theirs in answers."
    calls, ids = {}, {}   # by connection: what was asked last; their ids and ours
    for event in events:
        before(node, event)
        if event.asks is not None:
            frame = renamed(event.asks, ids.items())[4:]
            known = int.from_bytes(frame[:2], 'big') not in unasked
            calls[event.connection] = (*find_api(frame, node.apis), ask(node, frame, event.caller)) if known else None
        if event.hears is None or not (call := calls.pop(event.connection)): continue
        api, version, ours = *call[:2], arrived(call[2])
        if ours and event.hears:
            new, old = made_up(answer_in(api, version, ours)), made_up(answer_in(api, version, event.hears))
            ids |= {old[name]: new[name] for name in old if name in new}
            ours = renamed(ours, ((new, old) for old, new in ids.items()))
        yield Heard(event, api, version, ours, event.hears)


# --- How a file is played ---------------------------------------------------------------------------------------------

def whole(frame: bytes, heard: Heard) -> bytes:
    "Byte for byte."
    return frame


def as_it_is(*_): return contextlib.nullcontext()


class Recording(NamedTuple):
    "A line of the table."
    node: Callable[[Path, list[dict]], Node]   # on which it is played: gets a directory, and the lines of the file
    compared: int                              # how many answers are compared
    events: Callable[[list[dict]], Iterable[Event]] = exchanges
    seen: Callable[[bytes, Heard], object] = whole       # an answer without what may differ
    known: Callable[[Heard], str] = lambda heard: ''     # why an answer isn't compared, if there is a reason
    before: Callable = nothing                 # called with node and event
    after: Callable = nothing                  # the same, after the answer
    made_up: Callable = no_names               # as for `play`
    unasked: dict[int, str] = {}               # keys of APIs that are left out, and why
    around: Callable = as_it_is                # a context while it is played; gets node and lines
    at_end: Callable = nothing                 # called with node and lines
    alone: bool = False                        # each line has a node of its own


def differences(recording: Recording, node: Node, lines: list[dict]) -> tuple[int, list[str]]:
    "Plays a recording: how many answers were compared, and which are not those of the real broker."
    count, different = 0, []
    with recording.around(node, lines):
        for heard in play(node, recording.events(lines), recording.before, recording.made_up, recording.unasked):
            if not recording.known(heard):
                both = heard.ours, heard.theirs
                ours, theirs = (recording.seen(frame, heard) if frame else frame for frame in both)
                what = f'{heard.event.name}, {heard.api.response.__name__} {heard.version}'
                if ours != theirs: different.append(f'{what}\n  ours   {ours}\n  Kafka  {theirs}')
                count += 1
            recording.after(node, heard.event)
    return count, different
