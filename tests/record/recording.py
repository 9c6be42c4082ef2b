"""Questions to a real broker, and what it answered: kept as lines of JSON, to be asked of ours.

`python tests/apis/test_log_ends.py` and `python tests/groups/test_offsets.py` record their fixtures anew; that takes Java and Kafka's jars.
"""
import json
import sys
from pathlib import Path

if __package__ in (None, ''): sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from broker_process import Client
from kafka_scratch.wire.frames import RequestHeader
from kafka_scratch.wire.codes import API_NAMES
from kafka_scratch.apis.api import Api
from kafka_scratch.wire.primitives import Int32

RECORDED = Path(__file__).parents[1]/'fixtures'/'wire'/'recorded'


def framed(api: Api, version: int, request, correlation_id: int = 7, client_id: str = 'recorded') -> bytes:
    "A request with its length and its header."
    header = RequestHeader(api_key=api.key, api_version=version, correlation_id=correlation_id, client_id=client_id)
    frame = header.encode(api.request_header_version(version)) + request.encode(version)
    return Int32.write(len(frame)) + frame


def answer_in(api: Api, version: int, raw: bytes):
    "The body of a response that came with its length and its header."
    return api.response.decode(raw, version, 8 + api.response_header_version(version))


class Recorder:
    "Asks, keeps what was asked and what was answered, and gives the answer."
    def __init__(self, port: int): self.port, self.cases = port, []

    def ask(self, name: str, api: Api, version: int, request, **context):
        asked = framed(api, version, request)
        with Client(self.port) as client: said = client.ask(asked)
        self.cases.append({'name': name, 'api_key': api.key, 'api_name': API_NAMES[api.key], 'api_version': version,
                           'outcome': 'closed' if said is None else 'response', 'request_hex': asked.hex(),
                           'response_hex': '' if said is None else said.hex(), **context})
        return None if said is None else answer_in(api, version, said)

    def note(self, name: str, **context):
        "Something that happened in between."
        self.cases.append({'name': name, **context})

    def save(self, file: str):
        RECORDED.mkdir(exist_ok=True)
        text = ''.join(json.dumps(case, separators=(',', ':')) + '\n' for case in self.cases)
        (RECORDED/file).write_text(text)


def recorded(file: str) -> list[dict]: return [json.loads(line) for line in (RECORDED/file).open()]
