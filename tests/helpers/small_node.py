"A whole node, without sockets and with a clock that is turned by hand."
from pathlib import Path

from kafka_scratch.apis.api import Caller, Node
from kafka_scratch.apis.fetch import Sessions
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


class SmallNode:
    "`SmallNode(directory)` starts on what is in a directory; `crash()` leaves it as a killed process would."
    def __init__(self, directory: Path, clock: list[int] | None = None, settings: str = ''):
        self.clock, self.notes = clock or [START], []
        self.node = make_node(read_config(f'log.dirs={directory}\nmetadata.log.dir={directory}\n{FEW}{settings}', 'the test'))
        self.node.note = self.node.controller.note = self.notes.append
        self.node.logs.note = lambda text: None
        self.node.now = self.node.clock = self.node.logs.now = self.node.controller.now = lambda: self.clock[0]
        start_node(self.node)
        complete_node(self.node)

    def __getattr__(self, name): return getattr(self.node, name)   # image, logs, controller, groups, transactions, …
    def answer(self, frame: bytes, caller: Caller = Caller()): return self.node.answer(frame, caller)

    def create(self, topics: dict[str, int], level: int | None = None):
        "Makes topics, and agrees on a level of `transaction.version`."
        settings = {'retention.ms': '-1', 'segment.ms': str(10**15)}
        records = [record for name, count in topics.items() for record in topic_records(name, [[1]] * count, settings)]
        if level is not None: records.append(FeatureLevelRecord(name='transaction.version', feature_level=level))
        self.node.controller.write(records)

    def turn_clock(self, ms: int):
        self.clock[0] += ms
        self.node.timers.run(self.clock[0])

    def partition(self, topic: str, number: int = 0): return self.node.logs.find(self.node.image.topics[topic], number).log

    def crash(self):
        "No farewell: what is in the files is all that is left."
        self.node.controller.pen = None
        for directory in self.node.logs.directories: directory.lock.close()
