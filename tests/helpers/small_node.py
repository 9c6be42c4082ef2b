"A broker with everything that a node has, but without sockets and with a clock that is turned by hand."
from pathlib import Path

from kafka_scratch.broker.server import Broker
from kafka_scratch.cluster.config import read_config, read_properties
from kafka_scratch.cluster.controller import Controller, topic_records
from kafka_scratch.groups.coordinator import GroupCoordinator, StateLog, Timers
from kafka_scratch.cluster.logs import Logs, begin_logs
from kafka_scratch.wire.codes import METADATA
from kafka_scratch.cluster.metadata_log import MetadataLog
from kafka_scratch.cluster.records import FeatureLevelRecord
from kafka_scratch.broker.node import APIS
from kafka_scratch.groups.offsets import commit_offsets  # noqa: F401: now we know what the records of groups mean
from kafka_scratch.transactions.coordinator import TransactionCoordinator, transaction_store

START = 1_794_845_000_000   # milliseconds since 1970


class SmallNode(Broker):
    "`SmallNode(directory)` starts on what is in a directory; `crash()` leaves it as a killed process would."
    def __init__(self, directory: Path, clock: list[int] | None = None, settings: str = ''):
        Path(directory).mkdir(parents=True, exist_ok=True)
        self.clock = clock or [START]
        self.logs_seen, self.notes = Logs([str(directory)], 1, note=lambda text: None), []
        super().__init__(logs=self.logs_seen)
        self.apis, self.now, self.timers = APIS, lambda: self.clock[0], Timers()
        self.logs.now = self.now
        self.log = MetadataLog(Path(directory)/METADATA)
        few = 'transaction.state.log.num.partitions=1\noffsets.topic.num.partitions=1\n'
        self.properties = read_properties(few + settings, 'the test')
        self.config = read_config(few + settings)
        self.controller = Controller(self.log, 1, self.learn, self.now, note=self.notes.append)
        self.learn()
        begin_logs(self.logs)
        self.groups = GroupCoordinator(StateLog(self, '__consumer_offsets', 1, {'cleanup.policy': 'compact'}), self.timers, self.now, self.properties, self.notes.append)
        self.transactions = TransactionCoordinator(transaction_store(self), self.groups, self.timers, self.now, self.properties, self.notes.append)
        self.groups.load()
        self.transactions.load()

    def learn(self):
        self.log.poll()
        self.logs.set_image(self.log.image)
        self.set_image(self.log.image)

    def create(self, topics: dict[str, int], level: int | None = None):
        "Makes topics, and agrees on a level of `transaction.version`."
        records = [record for name, count in topics.items() for record in topic_records(name, [[1]] * count, {'retention.ms': '-1', 'segment.ms': str(10**15)})]
        self.controller.write(records + ([FeatureLevelRecord(name='transaction.version', feature_level=level)] if level is not None else []))

    def turn_clock(self, ms: int):
        self.clock[0] += ms
        self.timers.run(self.clock[0])

    def partition(self, topic: str, number: int = 0): return self.logs.find(self.image.topics[topic], number).log

    def crash(self):
        "No farewell: what is in the files is all that is left."
        self.controller.opened = None
        for directory in self.logs.directories: directory.lock.close()
