"""Real conversations with Kafka, for the pages about its APIs: one of each, from the captures in tests/fixtures."""
import json
from collections import namedtuple
from functools import lru_cache
from pathlib import Path

from book import ROOT
from kafka_scratch.apis.api import explain_request, explain_response
from kafka_scratch.broker.apis import APIS

WIRE = ROOT/'tests'/'fixtures'/'wire'
LARGEST = 1250    # bytes of an example, if there is one as small as that
CLIENTS = {'aiokafka': 'aiokafka', 'confluent': 'confluent-kafka (librdkafka)', 'franz-go': 'franz-go',
           'java-admin': "Java's admin client", 'java': "Java's clients", 'kafkajs': 'kafkajs',
           'kafkapython': 'kafka-python', 'kcat': 'kcat (librdkafka)'}
Capture = namedtuple('Capture', 'key version request response source')


def pairs(line: dict, waiting: dict):
    "The requests in a line of a recording, each with its answer; what is answered later waits."
    if 'direction' in line:                                       # between a client and a broker, frame by frame
        name = line['conn'], line['correlation_id']
        if line['direction'] == 'request': waiting[name] = line['hex']
        elif name in waiting: yield waiting.pop(name), line['hex']
    elif isinstance(line.get('request_hex'), str): yield line['request_hex'], line.get('response_hex')
    for step in line.get('steps', ()): yield step['request_hex'], step.get('response_hex')
    for _, who, what, *frame in line.get('events', ()):           # several clients, in turn
        if what == 'asks': waiting[who] = frame[0]
        elif what == 'hears' and who in waiting: yield waiting.pop(who), frame[0]


def client_of(path: Path) -> str:
    "Who asked, in words."
    return CLIENTS[path.stem.partition('.')[0]] if path.parent.name == 'clients' else ''


def captures():
    "All requests with answers whose API and version we have."
    for path in sorted(WIRE.glob('*/*.jsonl')):
        waiting = {}
        for line in path.read_text(encoding='utf-8').splitlines():
            for request, response in pairs(json.loads(line), waiting):
                if not request or not response: continue
                asked, said = bytes.fromhex(request), bytes.fromhex(response)
                key, version = int.from_bytes(asked[4:6], 'big'), int.from_bytes(asked[6:8], 'big')
                if key in APIS and version in APIS[key].versions and len(said) > 8:
                    yield Capture(key, version, asked, said, path)


def merit(capture: Capture) -> tuple:
    "The larger, the better an example: readable, new, small, without an error, from a real client, and rich."
    api = APIS[capture.key]
    asked, said = explain_request(capture.request, APIS), explain_response(capture.response, api, capture.version)
    whole = not asked.error and not said.error and said.end == len(capture.response)
    errors = sum(1 for span in said.spans if span.path[-1] == 'error_code' and span.value)
    fields = {tuple(step for step in span.path if isinstance(step, str)) for span in (*asked.spans, *said.spans)}
    size = len(capture.request) + len(capture.response)
    return whole, capture.version, size <= LARGEST, not errors, bool(client_of(capture.source)), len(fields), -size


@lru_cache
def examples() -> dict[int, Capture]:
    "The best example of each API, by its key."
    found = {}
    for capture in captures(): found.setdefault(capture.key, {})[capture.request, capture.response] = capture
    return {key: max(some.values(), key=merit) for key, some in found.items()}
