"""Questions to a real broker, and what it answered: kept as lines of JSON, to be asked of ours.

Each of the other programs here records some fixtures anew; that takes Java and Kafka's jars.
`python tests/record/topics.py` writes over the fixtures; with `--to DIRECTORY` they are left alone.
"""
import argparse
import json
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS/'helpers')]

from broker_process import Client
from kafka_scratch.apis.api import Api
from kafka_scratch.broker.apis import APIS
from kafka_scratch.wire.codes import API_NAMES
from player import RECORDED, answer_in, framed, recorded   # noqa: F401


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

    def save(self, file: str, to: Path = RECORDED):
        text = ''.join(json.dumps(case, separators=(',', ':')) + '\n' for case in self.cases)
        (to/file).write_text(text)


def record(port: int, conversation, file: str, to: Path = RECORDED, **context):
    "Has a conversation with a real broker. It learns asynchronously, so that each question waits a moment."
    recorder = Recorder(port)
    recorder.note('the broker', port=port, **context)
    def ask(name, request, version=None):
        time.sleep(0.3)
        return recorder.ask(name, APIS[request.API_KEY], request.VERSIONS[-1] if version is None else version, request)
    conversation(ask)
    recorder.save(file, to)


def command_line(about: str, *arguments: str, to: Path = RECORDED) -> argparse.Namespace:
    "The command line of a program that records: `--to DIRECTORY`, and what else it takes."
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument('--to', type=Path, default=to, help='where the files go, if not over the fixtures')
    for name in arguments: parser.add_argument(name, nargs='+')
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    return asked
