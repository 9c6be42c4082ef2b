"""The 25 stages of CodeCrafters' "Build your own Kafka", as its tester performed them: `fixtures/course/`.

For each stage there are the log directory and the properties file that the tester made, and all that was said.
"""
import json
import shutil
from collections import namedtuple
from pathlib import Path

from broker_process import FIXTURES
from by_hand import API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS, Reader, opened
from log_by_hand import FETCH, PRODUCE, placed

COURSE = FIXTURES/'course'

# The number of a stage, its name (that of its recording), and what the tester looks for in ApiVersions: key → version.
# Everything else is in the recording.
Stage = namedtuple('Stage', 'number name versions', defaults=[{}])
STAGES = [
    Stage(1, 'bind'),
    Stage(2, 'hard-coded-correlation-id'),
    Stage(3, 'correlation-id'),
    Stage(4, 'unsupported-version'),
    Stage(5, 'api-versions', {API_VERSIONS: 4}),
    Stage(6, 'sequential-requests', {API_VERSIONS: 4}),
    Stage(7, 'concurrent-clients', {API_VERSIONS: 4}),
    Stage(8, 'advertise-describe', {API_VERSIONS: 4, DESCRIBE_TOPIC_PARTITIONS: 0}),
    Stage(9, 'describe-unknown'),
    Stage(10, 'describe-one-partition'),
    Stage(11, 'describe-many-partitions'),
    Stage(12, 'describe-many-topics'),
    Stage(13, 'advertise-fetch', {API_VERSIONS: 4, FETCH: 16}),
    Stage(14, 'fetch-no-topics'),
    Stage(15, 'fetch-unknown-topic'),
    Stage(16, 'fetch-empty-topic'),
    Stage(17, 'fetch-one-message'),
    Stage(18, 'fetch-many-messages'),
    Stage(19, 'advertise-produce', {API_VERSIONS: 4, PRODUCE: 11}),
    Stage(20, 'produce-invalid'),
    Stage(21, 'produce-response'),
    Stage(22, 'produce-one-record'),
    Stage(23, 'produce-many-records'),
    Stage(24, 'produce-many-partitions'),
    Stage(25, 'produce-many-topics'),
]


def folder(stage: Stage) -> Path: return COURSE/f'{stage.number:02}-{stage.name}'


def conversation(stage: Stage) -> list[dict]:
    return [json.loads(line) for line in (folder(stage)/'conversation.jsonl').read_text().splitlines()]


def header(request: bytes) -> Reader:
    "The reader of a request behind its header, with `key` and `version`."
    reader = opened(request)
    reader.key, reader.version, _ = reader.int16(), reader.int16(), reader.int32()
    reader.take(reader.int16())   # the client's name
    reader.no_tags()
    return reader


def sent_batches(request: bytes) -> dict[tuple[str, int], bytes]:
    "What a Produce request of version 11 brings: the records of each partition."
    reader, sent = header(request), {}
    assert (reader.key, reader.version, reader.string(), reader.int16(), reader.int32()) == (PRODUCE, 11, None, -1,
        30_000)

    def partition(topic):
        index = reader.int32()
        sent[topic, index] = reader.take(reader.count())
        reader.no_tags()

    def topic():
        name = reader.string()
        reader.array(lambda: partition(name))
        reader.no_tags()

    reader.array(topic)
    reader.no_tags()
    reader.end()
    return sent


def stored_batches(request: bytes, response: bytes) -> dict[tuple[str, int], bytes]:
    "Those that the recorded answer says were stored, with the offsets that it gave them: what must be in the files."
    reader, sent, stored = opened(response), sent_batches(request), {}

    def partition(topic):
        index, error_code, base_offset = reader.int32(), reader.int16(), reader.number('q')
        reader.take(16)   # when it was appended, where the log starts
        assert (reader.count(), reader.string()) == (0, None)   # nothing wrong with its records
        reader.no_tags()
        if error_code == 0: stored[topic, index] = placed(sent[topic, index], base_offset)

    def topic():
        name = reader.string()
        reader.array(lambda: partition(name))
        reader.no_tags()

    reader.int32()
    reader.no_tags()
    reader.array(topic)
    assert reader.int32() == 0
    reader.no_tags()
    reader.end()
    return stored


def files(logs: Path) -> dict[str, bytes]:
    "What the tester made, and what it looks at afterwards."
    names = '*/*.log', '*/partition.metadata', 'meta.properties'
    return {path.relative_to(logs).as_posix(): path.read_bytes() for name in names for path in logs.glob(name)}


def lay_out(stage: Stage, directory: Path, port: int) -> tuple[Path, Path]:
    "A copy of what the tester made: the properties file, in which the port and the directory are others, and the logs."
    logs, text = directory/'kraft-combined-logs', (folder(stage)/'server.properties').read_text()
    shutil.copytree(folder(stage)/'logs', logs)
    assert text.count('PLAINTEXT://:9092,') == text.count('/tmp/kraft-combined-logs') == 1 and not text.endswith('\n')
    text = text.replace('PLAINTEXT://:9092,', f'PLAINTEXT://:{port},').replace('/tmp/kraft-combined-logs', str(logs))
    (directory/'server.properties').write_text(text)
    return directory/'server.properties', logs
