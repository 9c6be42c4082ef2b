"""The broker is killed again and again, under load, while it cleans its logs.

What holds after every restart, for every partition of a compacted topic:
- the last acknowledged value of every key is there, unless a later one is, or it was a deletion whose time is past;
- nothing older comes back: a key never shows an older value than it once has, and no deleted key its old one;
- an offset never holds another record than it has held before;
- the log can be written to and read from its beginning to its end.

Segments are small, every record may be compacted at once, and the table of keys is too small for one pass, so that the
cleaner is at work nearly all the time.
"""
import os
import random
import signal
import threading
import time

import pytest

from broker_process import BrokerProcess, Client, free_port, properties, wait_until
from by_hand import metadata_log, write_log
from log_by_hand import base_offset, fetch, next_offset, produce, read_fetch, read_produce, record, record_batch, split
from size import ALL
from kafka_scratch.log.records import Batch, read_records

SEED = int(os.environ.get('KAFKA_SCRATCH_SEED', 4711))
KILLS = int(os.environ.get('KAFKA_SCRATCH_KILLS', 0)) or (10 if ALL else 2)   # in each of the directories
PARTITIONS = 2
SETTINGS = {
    'one pass': dict(internal_segment_bytes=6_000),
    'several passes': dict(internal_segment_bytes=14_000, log_cleaner_dedupe_buffer_size=2_400),
    'two cleaners, and retention': dict(internal_segment_bytes=9_000, log_cleaner_threads=2,
                                        log_cleanup_policy='compact,delete', log_retention_bytes=400_000,
                                        log_retention_check_interval_ms=100),
}


class Key:
    "What is known of a key: the last number that was acknowledged, those sent after it, and the latest ever seen."
    def __init__(self): self.acknowledged, self.deleted, self.open, self.seen = -1, False, [], -1


class Producer(threading.Thread):
    "Writes its own keys, one request at a time, until the broker is gone."
    def __init__(self, world: 'World', number: int):
        super().__init__(daemon=True)
        self.world, self.number, self.random = world, number, random.Random(world.random.random())

    def run(self):
        try:
            with Client(self.world.port) as client:
                while self.send(client): time.sleep(0.002)   # or the cleaner would never come to an end
        except ConnectionError: pass
        except Exception as error: self.world.problems.append(f'{type(error).__name__}: {error}')

    def send(self, client: Client) -> bool:
        world, partition = self.world, self.random.randrange(PARTITIONS)
        names = [f'{self.number}/{self.random.randrange(60)}' for _ in range(self.random.choice([1, 3, 20]))]
        written = {}
        for name in names:
            key = world.keys.setdefault((partition, name), Key())
            number = next(world.numbers)
            deleted = self.random.random() < 0.1
            key.open.append((number, deleted))
            written[name] = number, deleted
        records = [record(None if deleted else b'%d ' % number + b'.' * 60, key=name.encode(), offset_delta=delta)
                   for delta, (name, (number, deleted)) in enumerate(written.items())]
        now = time.time_ns() // 1_000_000
        batch = record_batch(records, base_timestamp=now, last_offset_delta=len(records) - 1)
        frame = client.ask(produce(1, {'state': {partition: batch}}))
        if frame is None: return False
        answer = read_produce(frame)['topics']['state'][partition]
        assert answer['error_code'] == 0, answer
        for name, (number, deleted) in written.items():
            key = world.keys[partition, name]
            key.acknowledged, key.deleted, key.open = number, deleted, []
        return True


class World:
    "A log directory, and what was written to it."
    def __init__(self, directory, seed: int, settings: dict):
        self.directory, self.random, self.port = directory, random.Random(seed), free_port()
        self.numbers, self.keys, self.problems = iter(range(1 << 40)), {}, []
        self.held = [{} for _ in range(PARTITIONS)]   # offset → the record that was there
        write_log(directory/'logs', metadata_log(state=PARTITIONS))
        rest = dict(log_cleanup_policy='compact', log_cleaner_min_cleanable_ratio=0.01, log_cleaner_backoff_ms=5,
                    log_cleaner_delete_retention_ms=200) | settings
        self.file = properties(directory/'server.properties', node_id=1, log_dirs=directory/'logs',
                               listeners=f'PLAINTEXT://127.0.0.1:{self.port}', **rest)

    def start(self):
        self.broker = BrokerProcess(self.directory, self.file, port=self.port).wait_ready()

    @property
    def checkpoint(self): return self.directory/'logs'/'cleaner-offset-checkpoint'

    def wait_for_a_pass(self):
        "Until the cleaner has written down how far it is."
        def text(): return self.checkpoint.read_text() if self.checkpoint.exists() else ''
        before = text()
        wait_until(lambda: text() != before, 'the cleaner to be done with a log', patience=60)

    def kill(self):
        self.broker.process.send_signal(signal.SIGKILL)
        self.broker.process.wait(20)

    def look(self):
        "Reads both partitions from their beginning, and compares."
        for partition in range(PARTITIONS):
            last = {}
            for entry in read_all(self.broker, partition):
                name = entry.key.decode()
                before = self.held[partition].setdefault(entry.offset, (entry.key, entry.value))
                assert before == (entry.key, entry.value), f'offset {entry.offset} was {before}, and is {entry}'
                last[name] = entry
            for (where, name), key in self.keys.items():
                if where == partition: self.look_at(key, name, last.get(name))
        assert not self.problems, self.problems

    def look_at(self, key: Key, name: str, entry):
        "Is what is there of a key what may be there?"
        if entry is None:
            gone = key.deleted or key.acknowledged < 0 or any(deleted for _, deleted in key.open)
            assert gone or self.trimmed(), f'{name} is lost: {key.acknowledged} was acknowledged'
            return
        if entry.value is None:
            allowed = key.deleted or any(deleted for _, deleted in key.open)
            assert allowed, f'{name} is deleted, but {key.acknowledged} was written after that'
            return
        number = int(entry.value.split()[0])
        values = [key.acknowledged] * (not key.deleted) + [number for number, deleted in key.open if not deleted]
        assert number in values, f'{name} is {number}, and should be one of {values}'
        assert number >= key.seen, f'{name} was {key.seen}, and is {number} now'
        key.seen = number

    def trimmed(self) -> bool: return 'delete' in self.file.read_text().split('policy=')[1].split('\n')[0]


def read_all(broker, partition: int) -> list:
    "The records of a partition, from the first offset to the last."
    found, offset, version = [], 0, 12
    with broker.client() as client:
        while True:
            frame = client.ask(fetch(1, {'state': {partition: offset}}, version=version, max_wait_ms=0))
            answer = read_fetch(frame, version)['topics']['state'][partition]
            if answer['error_code'] == 1:   # retention has been here: it begins later
                offset += 1
                continue
            assert answer['error_code'] == 0, answer
            if offset >= answer['high_watermark']: return found
            batches = split(answer['records'])
            assert batches, f'nothing is handed out at {offset} of {answer["high_watermark"]}'
            for batch in batches:
                assert next_offset(batch) > offset, f'{base_offset(batch)} after {offset}'
                found += [entry for entry in read_records(Batch(batch).check()) if entry.offset >= offset]
                offset = next_offset(batch)


@pytest.mark.parametrize('name', SETTINGS)
def test_the_last_value_of_every_key_survives(name, tmp_path):
    world = World(tmp_path, SEED, SETTINGS[name])
    try: kill_again_and_again(world, tmp_path)
    finally: world.broker.process.kill()


def kill_again_and_again(world: World, tmp_path):
    cleaned = 0
    for life in range(KILLS + 1):
        world.start()
        world.look()
        if life == KILLS: break
        producers = [Producer(world, number) for number in range(3)]
        for producer in producers: producer.start()
        if world.random.random() < 0.7: world.wait_for_a_pass()
        time.sleep(world.random.uniform(0, 0.5))
        world.kill()
        for producer in producers: producer.join(20)
        left = [path.name for path in (tmp_path/'logs').rglob('*') if path.suffix in ('.cleaned', '.swap', '.deleted')]
        cleaned += world.checkpoint.exists()
        print(f'life {life}: {len(world.keys)} keys, left behind: {sorted(left)}')
    assert cleaned, 'nothing was ever cleaned'
    assert world.broker.stop() == 0 and world.broker.stderr == '', world.broker.stderr
    assert not [path for path in (tmp_path/'logs').rglob('*') if path.suffix in ('.cleaned', '.swap', '.deleted')]
