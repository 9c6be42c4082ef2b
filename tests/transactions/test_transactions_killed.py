"""Producers and the broker are killed and started again, at random: nothing is there twice, and no transaction is lost
or half visible.

Four workers write at the same time (`transaction_workers.py`): an idempotent producer, transactional ones of librdkafka
and of kafka-python,
and one that reads a topic and writes another, with its offsets in the transaction. Any of them, and the broker, may get
a SIGKILL at any
moment. In the end all is calm, each name is taken over once more (so that what was left open is aborted), and consumers
of committed records
read everything:

- a record that was acknowledged to the idempotent producer is there once; one that wasn't, at most once; and in order;
- of a transaction, all records are there, once, or none: all if it was told that it is committed, none if it was
aborted;
- what went in came out, once.

KAFKA_SCRATCH_SEED changes the course of events, KAFKA_SCRATCH_SECONDS their length.
"""
import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from size import long
from broker_process import BrokerProcess, environment, free_port, properties, wait_until

confluent_kafka = pytest.importorskip('confluent_kafka')
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

SEED = int(os.environ.get('KAFKA_SCRATCH_SEED', 4711))
SECONDS = float(os.environ.get('KAFKA_SCRATCH_SECONDS', 12))
TOPICS = {'single': 2, 'left': 2, 'right': 2, 'in': 2, 'out': 2}
WORKERS = {'single': 'idempotent', 'pay-c': 'transactional', 'pay-k': 'transactional_python', 'passing': 'passing_on'}
FED = 1000   # records for the one who passes them on
SCRIPT = Path(__file__).parents[1]/'helpers'/'transaction_workers.py'


class World:
    "A broker, its workers, and what happens to them."
    def __init__(self, directory: Path, seed: int):
        self.directory, self.chance, self.port, self.started = directory, random.Random(seed), free_port(), 0
        self.file = properties(directory/'server.properties', node_id=1, listeners=f'PLAINTEXT://127.0.0.1:{self.port}',
                               log_dirs=directory/'logs',
                               internal_segment_bytes=60_000)
        self.workers, self.born, self.kills = {}, {}, collections.Counter()   # born: when, and how much was done before
        self.start_broker()

    def start_broker(self): self.broker = BrokerProcess(self.directory, self.file, port=self.port).wait_ready()

    def start_worker(self, name: str):
        self.started += 1
        arguments = [sys.executable, SCRIPT, WORKERS[name], self.port, self.journal(name), self.chance.randrange(10**6),
                     name]
        with open(self.directory/f'{name}-{self.started}.err', 'wb') as errors:
            self.workers[name] = subprocess.Popen(list(map(str, arguments)), stdout=errors, stderr=errors,
                                                  env=environment())
        self.born[name] = time.monotonic(), self.done(name)

    def done(self, name: str) -> int: return sum(line[0] != 'begin' for line in self.notes(name) if line)

    def has_lived(self, name: str) -> bool:
        "Has it done anything since it was started? On a busy machine, some would be killed before they begin."
        when, before = self.born[name]
        return self.done(name) > before or time.monotonic() > when + 5

    def journal(self, name: str) -> Path: return self.directory/f'{name}.journal'

    def notes(self, name: str) -> list[list[str]]:
        path = self.journal(name)
        return [line.split() for line in path.read_text().split('\n')[:-1]] if path.exists() else []

    def kill(self, name: str):
        "Ends a worker, or the broker, without a word."
        process = self.broker.process if name == 'broker' else self.workers[name]
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        self.kills[name] += 1

    def rage(self, seconds: float):
        "Kills now this one and now that one; whoever is gone is started again."
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(self.chance.choice([0.05, 0.2, 0.5, 0.9]))
            victim = self.chance.choice(['broker', 'broker', *WORKERS])
            if victim == 'broker' or self.has_lived(victim): self.kill(victim)
            if victim == 'broker':
                time.sleep(self.chance.choice([0, 0, 0.3]))
                self.start_broker()
            for name, worker in self.workers.items():
                if worker.poll() is not None: self.start_worker(name)

    def end(self):
        for worker in self.workers.values():
            with contextlib.suppress(ProcessLookupError): worker.kill()
            worker.wait(20)


def read(port: int, *topics: str) -> dict[str, list[tuple[int, str]]]:
    "Every committed record: (partition, value), in order, up to the end."
    consumer = confluent_kafka.Consumer({'bootstrap.servers': f'127.0.0.1:{port}', 'group.id': 'reader',
                                         'isolation.level': 'read_committed',
                                         'enable.partition.eof': True, 'enable.auto.commit': False})
    places = [confluent_kafka.TopicPartition(topic, number, 0) for topic in topics for number in range(TOPICS[topic])]
    consumer.assign(places)
    found, ended, deadline = collections.defaultdict(list), set(), time.monotonic() + 30
    while len(ended) < len(places):
        assert time.monotonic() < deadline, f'{len(places) - len(ended)} partitions have no end'
        for message in consumer.consume(500, 0.5):
            if message.error(): ended.add((message.topic(), message.partition()))
            else: found[message.topic()].append((message.partition(), message.value().decode()))
    consumer.close()
    return found


def read_with_python(port: int, topic: str) -> list[str]:
    "The same by kafka-python."
    from kafka import KafkaConsumer, TopicPartition
    consumer = KafkaConsumer(bootstrap_servers=f'127.0.0.1:{port}', isolation_level='read_committed',
                             consumer_timeout_ms=2000, auto_offset_reset='earliest')
    consumer.assign([TopicPartition(topic, number) for number in range(TOPICS[topic])])
    found = [message.value.decode() for message in consumer]
    consumer.close()
    return found


def check_single(notes: list[list[str]], records: list[tuple[int, str]]):
    "Each record at most once, each that was acknowledged, and in order as long as one process sent them."
    numbers = [int(value.split('/')[1]) for _, value in records]
    assert len(numbers) == len(
        set(numbers)), f'twice: {[number for number, count in collections.Counter(numbers).items() if count > 1][:10]}'
    told = {int(number) for word, number in notes if word == 'stored'}
    assert told <= set(numbers), f'acknowledged and lost: {sorted(told - set(numbers))[:10]}'
    for partition in range(2):
        of_it = [int(value.split('/')[1]) for number, value in records if number == partition]
        assert of_it == sorted(of_it), 'out of order'
    return len(told)


def check_transactions(name: str, notes: list[list[str]], records: dict[str, list]):
    "All or nothing, in both topics."
    seen = {topic: collections.defaultdict(list) for topic in ('left', 'right')}
    for topic, found in records.items():
        for value in (value for _, value in found if value.startswith(f'{name}/')):
            _, number, part, size = value.split('/')
            seen[topic][int(number), int(size)].append(int(part))
    for topic, found in seen.items():
        for (number, size), parts in found.items():
            assert sorted(parts) == list(range(size)), f'{topic}: of {number} there are {sorted(parts)} of {size}'
    assert seen['left'].keys() == seen['right'].keys(), f'half visible: {seen["left"].keys() ^ seen["right"].keys()}'
    visible = {number for number, _ in seen['left']}
    committed, aborted = ({int(line[1]) for line in notes if line[0] == word} for word in ('committed', 'aborted'))
    assert committed <= visible, f'committed and lost: {sorted(committed - visible)}'
    assert not aborted & visible, f'aborted and visible: {sorted(aborted & visible)}'
    return len(committed)


@long
def test_nothing_twice_nothing_half(tmp_path):
    world, start = World(tmp_path, SEED), time.monotonic()
    boot = f'127.0.0.1:{world.port}'
    try:
        admin = AdminClient({'bootstrap.servers': boot})
        for future in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
            future.result(10)
        feeder = confluent_kafka.Producer({'bootstrap.servers': boot, 'enable.idempotence': True})
        for number in range(FED): feeder.produce('in', f'item {number}', partition=number % 2)
        assert feeder.flush(10) == 0
        del feeder, admin
        for name in WORKERS: world.start_worker(name)
        time.sleep(1)
        world.rage(SECONDS)
        # all is calm; the one who passes on may finish
        for name in ('single', 'pay-c', 'pay-k'): world.kill(name)
        def passed():
            if world.workers['passing'].poll() is not None: world.start_worker('passing')
            time.sleep(0.1)
            return len(read(world.port, 'out')['out']) >= FED
        wait_until(passed, 'everything to be passed on', 30)
        world.kill('passing')
        for name in ('pay-c', 'pay-k', 'passing'):
            last = confluent_kafka.Producer({'bootstrap.servers': boot, 'transactional.id': name})
            last.init_transactions(10)   # what was left open is aborted by this
        records = read(world.port, *TOPICS)
        notes = {name: world.notes(name) for name in WORKERS}
        counts = {'single': check_single(notes['single'], records['single'])}
        for name in ('pay-c', 'pay-k'):
            counts[name] = check_transactions(name, notes[name], {topic: records[topic] for topic in ('left', 'right')})
        assert sorted(value for _, value in records['out']) == sorted(f'item {number}' for number in range(FED))
        for topic in ('left', 'out'):
            assert sorted(read_with_python(world.port, topic)) == sorted(value for _, value in records[topic])
        print(f'seed {SEED}: killed {dict(world.kills)}, acknowledged {counts}, {time.monotonic() - start:.0f} s')
        assert counts['single'] > 20 and counts['pay-c'] > 5 and counts['pay-k'] > 2 and world.kills['broker'] >= 2
        world.broker.check_end()
    except BaseException as problem:
        problem.add_note(
            f'KAFKA_SCRATCH_SEED={SEED} KAFKA_SCRATCH_SECONDS={SECONDS:g}, killed so far: {dict(world.kills)}')
        for path in sorted(tmp_path.glob('*.err')):
            if text := path.read_text(errors='replace').strip(): print(path.name, text[-600:])
        print('the broker says:', world.broker.stderr[-2000:])
        raise
    finally:
        world.end()
        if world.broker.process.poll() is None: world.broker.stop(signal.SIGKILL)
