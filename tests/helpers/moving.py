"A node with two log directories, and a log that moves: for the tests of moves."
import asyncio
import os
from pathlib import Path

from small_node import small_node
from kafka_scratch.cluster.logs import make_logs
from kafka_scratch.cluster.moves import begin_move, carry_out
from kafka_scratch.groups.coordinator import batches_of
from kafka_scratch.log.partition import append
from kafka_scratch.log.records import HEADER, Record, write_batch

SMALL = 'log.index.interval.bytes=200\n'


def node_on(place: Path, settings: str = '', directories=('first', 'second')):
    "A node with two log directories."
    for name in directories: (place/name).mkdir(parents=True, exist_ok=True)
    return small_node(','.join(str(place/name) for name in directories), settings=SMALL + settings)


def make(node, topics: dict[str, int]):
    node.create(topics)
    for name, count in topics.items(): make_logs(node.logs, node.image.topics[name], range(count))


def log_of(node, name: str):
    topic, _, number = name.rpartition('-')
    return node.partition(topic, int(number))


def put(log, count: int = 1, size: int | None = None, sent: list | None = None, **header):
    "Appends batches of one record each. What the log has taken comes into `sent`."
    value = b'some value' if size is None else b'v' * size
    for _ in range(count):
        batch = bytearray(write_batch([Record(key=b'k', value=value)], **header))
        append(log, batch, HEADER.read(batch, 0)[0], 0, now=0)
        if sent is not None: sent.append(bytes(batch))


def content(node, name: str) -> list[bytes]:
    "The batches of a log."
    return [bytes(each.buf[each.start:each.end]) for each in batches_of(log_of(node, name))]


def directory_in(node, name: str):
    "The log directory that has a partition: exactly one."
    found, = [each for each in node.logs.directories if os.path.isdir(each.file(name))]
    return found


def start_move(node, name: str):
    "Begins to move a partition into the other directory."
    source, log = directory_in(node, name), log_of(node, name)
    target = next(each for each in node.logs.directories if each is not source)
    return begin_move(node.logs, node.image.topics[log.topic].topic_id, log, source, target)


def carried_out(node, between=lambda: None):
    "All moves, to their end; `between` is called when the event loop is free."
    async def idle():
        while True:
            await asyncio.sleep(0)
            between()
    async def run():
        other = asyncio.ensure_future(idle())
        for move in list(node.logs.moves.values()): await carry_out(node.logs, move, node.controller)
        other.cancel()
    asyncio.run(run())


class Killed(BaseException): "As good as dead."


class Fate:
    "Kills at the n-th call of anything that changes a file."
    CALLS = 'rename', 'replace', 'mkdir', 'fsync', 'pwrite', 'unlink', 'ftruncate'
    def __init__(self, monkeypatch, at: int | None = None):
        self.at, self.count, self.names = at, 0, []
        for name in self.CALLS: monkeypatch.setattr(os, name, self.deadly(name, getattr(os, name)))

    def deadly(self, name, function):
        def call(*arguments, **options):
            self.count += 1
            if self.at and self.count >= self.at: raise Killed(name)   # who is dead does nothing more
            self.names.append(name)
            return function(*arguments, **options)
        return call
