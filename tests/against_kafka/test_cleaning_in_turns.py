"""One directory, two brokers, both with their cleaners on: Apache Kafka 4.1.1 and ours take turns, and are killed.

What one has cleaned, the other goes on with, from the offset in `cleaner-offset-checkpoint`. The last value of every
key is there, no older one comes back, and an offset never holds another record than before.
"""
import random
import time

from broker_process import Client, wait_until
from kafka_scratch.log.checkpoints import read_checkpoint
from kafka_scratch.log.records import Batch, read_records
from log_by_hand import produce, read_produce, record, record_batch
from size import needs_kafka
from test_interchange import check_dump, create_topics, kill, ours_on, read_log, settle

from benchmarks import real_kafka

pytestmark = needs_kafka

PLACE = TOPIC, PARTITION = 'state', 0
TOPICS = {TOPIC: (1, {'cleanup.policy': 'compact', 'min.cleanable.dirty.ratio': '0.01', 'segment.ms': '1000',
                      'delete.retention.ms': '100', 'message.timestamp.after.max.ms': str(2**62)})}
SETTINGS = {'broker.session.timeout.ms': 4000, 'broker.heartbeat.interval.ms': 500, 'log.cleaner.backoff.ms': 20,
            'log.cleaner.dedupe.buffer.size': 2 << 20, 'log.initial.task.delay.ms': 0}


class World:
    "What was written, and what was seen of it."
    def __init__(self, directory):
        self.logs, self.random, self.now = directory/'logs', random.Random(1), time.time_ns() // 1_000_000
        self.last, self.held, self.clean = {}, {}, 0    # key → value; offset → record; up to where Kafka or we cleaned

    def write(self, port: int, number: int):
        "Small batches, and now and then a new segment: the records' times go faster than the clock."
        with Client(port) as client:
            for _ in range(number):
                self.now += self.random.choice([1, 1, 1, 1500])
                values = {b'key %d' % self.random.randrange(40): self.random.choice([self.random.randbytes(20), None])
                          for _ in range(self.random.choice([1, 3, 8]))}
                records = [record(value, key, (), delta) for delta, (key, value) in enumerate(values.items())]
                answer = read_produce(client.ask(produce(1, {TOPIC: {PARTITION: record_batch(
                    records, base_timestamp=self.now)}})))
                assert answer['topics'][TOPIC][PARTITION]['error_code'] == 0
                self.last |= values

    def look(self, port: int):
        found = {}
        for batch in read_log(port, PLACE):
            for entry in read_records(Batch(batch)):
                same = self.held.setdefault(entry.offset, (entry.key, entry.value))
                assert same == (entry.key, entry.value), f'offset {entry.offset} was {same}'
                found[entry.key] = entry.value
        there = {key: value for key, value in found.items() if value is not None}
        assert there == {key: value for key, value in self.last.items() if value is not None}

    def wait_until_clean(self):
        "Until the cleaner has come further than the one before it."
        def checkpoint():
            rows = read_checkpoint(str(self.logs/'cleaner-offset-checkpoint')) if self.logs.exists() else []
            return next((int(offset) for topic, _, offset in rows if topic == TOPIC), 0)
        before = self.clean
        wait_until(lambda: checkpoint() > before, 'the cleaner', patience=60)
        self.clean = checkpoint()


def turn(world: World, port: int):
    "A broker's turn: all is there; more is written, while it cleans."
    world.look(port)
    for _ in range(2):
        world.write(port, 40)
        world.wait_until_clean()
    world.look(port)
    world.write(port, 40)


def test_taking_turns_in_cleaning(tmp_path):
    world = World(tmp_path)
    for number in range(3):
        kafka = real_kafka.RealKafka(tmp_path, SETTINGS)
        with kafka:
            if number == 0:
                with Client(kafka.port) as client: client.ask(create_topics(TOPICS))
            real_kafka.wire.wait_for(lambda: kafka.leads({TOPIC: 1}), 60, 'a leader')
            settle(kafka.port, [PLACE])
            if number == 2:
                world.look(kafka.port)
                break
            turn(world, kafka.port)
            if number: kill(kafka)
        with ours_on(tmp_path, killed=number == 0, log_cleaner_backoff_ms=20) as broker: turn(world, broker.port)
    check_dump(world.logs, places=[f'{TOPIC}-{PARTITION}'])
