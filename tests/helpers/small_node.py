"A whole node, without sockets and with a clock that is turned by hand."
from functools import partial
from pathlib import Path

from kafka_scratch.apis.api import Node
from kafka_scratch.apis.fetch_sessions import Sessions
from kafka_scratch.broker.node import complete_node, first_apis, make_node, start_node
from kafka_scratch.cluster.config import read_config
from kafka_scratch.cluster.controller import topic_records
from kafka_scratch.cluster.image import Image
from kafka_scratch.cluster.logs import Logs
from kafka_scratch.cluster.records import FeatureLevelRecord

START = 1_794_845_000_000   # milliseconds since 1970


def bare_node() -> Node:
    "The APIs that a node has at first, and nothing to answer from."
    return Node(first_apis(), image=Image(), logs=Logs([], 1), sessions=Sessions())


FEW = 'transaction.state.log.num.partitions=1\noffsets.topic.num.partitions=1\n'


class Hands(list):
    "A clock of a node that measures what clients use."
    def __call__(self) -> int: return self[0]


def small_node(directory: Path, clock: list[int] | None = None, settings: str = '') -> Node:
    """A node on what is in a directory. It answers as any other; and besides, it has

    `clock`, a list with the time in it, and `turn_clock(ms)`; `notes`, its remarks; `create({topic: partitions})`;
    `partition(topic)`, a log; and `crash()`, which leaves the directory as a killed process would."""
    clock, notes = clock or [START], []
    node = make_node(read_config(f'log.dirs={directory}\n{FEW}{settings}', 'the test'))
    node.note = node.controller.note = notes.append
    node.logs.note = lambda text: None
    node.now = node.clock = node.logs.now = node.controller.now = lambda: clock[0]
    start_node(node)
    complete_node(node)
    node.clock, node.notes, node.log = clock, notes, node.metadata_log
    for function in (create, turn_clock, partition, crash): setattr(node, function.__name__, partial(function, node))
    return node


def create(node: Node, topics: dict[str, int], level: int | None = None):
    "Makes topics, and agrees on a level of `transaction.version`."
    settings = {'retention.ms': '-1', 'segment.ms': str(10**15)}
    records = [record for name, count in topics.items() for record in topic_records(name, [[1]] * count, settings)]
    if level is not None: records.append(FeatureLevelRecord(name='transaction.version', feature_level=level))
    node.controller.write(records)


def turn_clock(node: Node, ms: int):
    node.clock[0] += ms
    node.timers.run(node.clock[0])


def partition(node: Node, topic: str, number: int = 0): return node.logs.find(node.image.topics[topic], number).log


def crash(node: Node):
    "No farewell: what is in the files is all that is left."
    node.controller.opened = None
    for directory in node.logs.directories: directory.lock.close()
