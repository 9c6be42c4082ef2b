"""The short ways of `broker.fast` answer what the node itself answers, and leave the same files.

Two nodes start on the same directory. One is asked as it is, the other through `Fast`; every request is put to both,
often
enough that answers are remembered and shapes are learned. The requests are recorded ones, the same with bytes changed,
and
Produce and Fetch requests that are made up.
"""
import contextlib
import json
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from edge_cases import EDGE, STATE, config_log, frames, recorded_logs, state_log
from kafka_scratch.apis.api import Later, Refused
from kafka_scratch.broker.fast import KnownShapes, fast_for
from kafka_scratch.broker.node import open_node, stop_node
from kafka_scratch.cluster.config import read_config
from kafka_scratch.log.records import Record, write_batch
from kafka_scratch.wire.primitives import DecodeError, EncodeError
from log_by_hand import fetch, produce
from size import budget

FILES = 'apiversions', 'describe-topic-partitions', 'metadata', 'fetch', 'fetch-session-sequence', 'produce', 'other-apis'  # noqa: E501
RECORDED = [frame[4:] for file in FILES for line in (EDGE/f'{file}.jsonl').read_text().splitlines()
            for frame in frames(bytes.fromhex(json.loads(line)['request_hex']))]
SERVED = {0, 1, 2, 3, 18, 75}      # what makes up its own ids (groups, producers, new topics) can't be compared
NOW = 1_794_792_513_211


def produce_request(topic: str, partition: int, batch: bytes, version: int = 11) -> bytes:
    return produce(0, {topic: {partition: batch}}, version)
def fetch_request(topic: str, partition: int, offset: int, version: int = 12) -> bytes:
    return fetch(0, {topic: {partition: offset}}, version, max_wait_ms=0)


class Pair:
    "A node, and one like it behind its short ways."
    def __init__(self, place: Path, monkeypatch):
        self.place, self.nodes, self.random = place, [], [0, 0]
        for name in ('long', 'short'):
            shutil.copytree(place/'state', place/name/'logs')
            node = open_node(read_config(f'log.dirs={place/name}/logs\nauto.create.topics.enable=false'))
            node.now = node.logs.now = lambda: NOW
            self.nodes.append(node)
        self.fast, self.turn = fast_for(self.nodes[1]), 0
        monkeypatch.setattr('kafka_scratch.apis.fetch_sessions.os.urandom', self.urandom)

    def urandom(self, size: int) -> bytes:
        "Numbers of sessions: the same for both."
        self.random[self.turn] += 1
        return self.random[self.turn].to_bytes(size, 'big') if size <= 8 else bytes(size)

    def answer(self, which: int, frame: bytes):
        self.turn = which
        try: answer = (self.nodes[0], self.fast)[which].answer(frame)
        except (Refused, DecodeError, EncodeError) as error: return type(error).__name__, str(error)
        if not isinstance(answer, Later): return answer
        answer.begin(lambda: None)
        return answer.response()

    def check(self, frame: bytes):
        long, short = self.answer(0, frame), self.answer(1, frame)
        assert short == long, frame.hex()
        return long

    def files(self, name: str) -> dict[str, bytes]:
        return {str(path.relative_to(self.place/name)): path.read_bytes() for path
                in sorted((self.place/name).rglob('*.log'))
                if 'cluster_metadata' not in str(path)}   # which has the time in it

    def close(self):
        for node in self.nodes: stop_node(node)
        assert self.files('long') == self.files('short')


def make_state(place: Path):
    "The directory of the broker to which the recorded requests were sent."
    log = place/'state'/'__cluster_metadata-0'
    log.mkdir(parents=True)
    (log/f'{0:020}.log').write_bytes(state_log() + config_log(STATE['finalizedFeaturesEpoch'] + 1))
    for (topic, partition), records in recorded_logs().items():
        (place/'state'/f'{topic}-{partition}').mkdir()
        (place/'state'/f'{topic}-{partition}'/f'{0:020}.log').write_bytes(records)


@contextlib.contextmanager
def pair_in(place: Path):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(KnownShapes, 'every', 2)   # learn quickly
        make_state(place)
        pair = Pair(place, monkeypatch)
        yield pair
        pair.close()


@pytest.fixture
def pair(tmp_path):
    with pair_in(tmp_path) as pair: yield pair


def test_recorded_requests(pair):
    "Every request on record, four times each, with other correlation ids."
    for number in range(4):
        for frame in RECORDED:
            if int.from_bytes(frame[:2], 'big') in SERVED: pair.check(frame[:4] + struct.pack('>i', number) + frame[8:])
    assert len(pair.fast.answers.known) > 30 and pair.fast.shapes.known


def test_all_of_it_is_used(pair):
    "A test of shortcuts that are never taken would pass, too."
    topic, batch = 'edge-b', write_batch([Record(value=b'x')])
    taken = []
    real = pair.fast.shapes.answer
    pair.fast.shapes.answer = lambda frame: taken.append(real(frame)) or taken[-1]
    for _ in range(10): pair.check(produce_request(topic, 0, bytes(batch))[4:])
    for offset in (0, 1, 2, 3, 4, 0): pair.check(fetch_request(topic, 0, offset)[4:])
    assert sum(answer is not None for answer in taken) > 8


MADE_UP = some.one_of(
    some.builds(lambda topic, partition, values, broken: (produce_request(topic, partition,
        batch_of(values, broken))[4:]),
                some.sampled_from([topic['name'] for topic in STATE['topics']] + ['nobody']), some.integers(0, 2),
                some.lists(some.binary(max_size=20), min_size=1, max_size=4), some.integers(0, 9)),
    some.builds(lambda topic, partition, offset: fetch_request(topic, partition, offset)[4:],
                some.sampled_from([topic['name'] for topic in STATE['topics']] + ['nobody']), some.integers(0, 2),
                some.integers(-2, 30)))


def batch_of(values: list[bytes], broken: int) -> bytes:
    batch = bytearray(write_batch([Record(offset_delta=n, value=value) for n, value in enumerate(values)]))
    if broken == 9: batch[-1] ^= 0x40   # a checksum that is wrong
    return bytes(batch)


CHANGED = some.builds(lambda frame, at, value: frame[:at % len(frame)] + bytes([value]) + frame[at % len(frame) + 1:],
                      some.sampled_from([frame for frame in RECORDED if int.from_bytes(frame[:2],
                          'big') in SERVED and len(frame) > 12]),
                      some.integers(8, 400), some.integers(0, 255))


@budget(60)
@given(some.lists(some.tuples(some.one_of(MADE_UP, CHANGED), some.integers(1, 4)), min_size=5, max_size=25))
def test_made_up_requests(tmp_path_factory, requests):
    "Requests of all kinds, some of them hostile, each several times: answers and files are the same."
    with pair_in(tmp_path_factory.mktemp('pair')) as pair:
        for number, (frame, times) in enumerate(requests):
            for _ in range(times): pair.check(frame[:4] + struct.pack('>i', number) + frame[8:])


def test_a_change_of_the_image_is_heeded(pair):
    from kafka_scratch.cluster.controller import topic_records
    asked = next(frame for frame in RECORDED if frame[:2] == b'\0\x4b')
    before = [pair.check(asked) for _ in range(3)][-1]
    for node in pair.nodes:
        records = topic_records('brand-new', [[1]])
        records[0].topic_id = records[1].topic_id = b'n' * 16
        node.controller.write(records)
    everything = struct.pack('>hhih', 75, 0, 7, -1) + b'\0' + b'\1' + struct.pack('>i', 2000) + b'\xff\0'
    assert b'brand-new' in pair.check(everything) and pair.check(asked)[8:] == before[8:]


def test_a_shape_is_not_learned_from_a_refusal(pair):
    "A request without a single byte of records: there is nothing in it that could be cut out."
    for _ in range(6): pair.check(produce_request('edge-b', 0, b'')[4:])
    assert not pair.fast.shapes.known


def test_nothing_is_kept_where_there_are_rules(tmp_path):
    node = open_node(
        read_config(
            f'log.dirs={tmp_path}/logs\nauthorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n'
                                 'super.users=User:ANONYMOUS'))
    assert fast_for(node) is None
    stop_node(node)
