"""What was acknowledged is there, whatever happens: the broker is killed again and again, with the work of several
clients in its hands.

What holds after every restart, for every partition:
- the offsets go up from 0 without a gap, and every batch is one that was sent, byte for byte;
- a batch that was acknowledged stands at the offset of its acknowledgement;
- no batch is there twice, and the batches of a producer are in the order in which it sent them;
- an idempotent producer, which sends again what wasn't acknowledged, finds each of its batches once;
- what a reader has seen is there, where it was.

SIGKILL leaves to the kernel what was written, so that nothing of this needs an fsync. A write that was cut off halfway
is
made by hand, between the kill and the restart, after the end of the log.
"""
import collections
import itertools
import os
import random
import signal
import threading
import time

import pytest

from broker_process import BrokerProcess, Client, free_port, properties
from by_hand import metadata_log, topic_id_of, write_log
from size import ALL, long
from log_by_hand import base_offset, fetch, next_offset, placed, produce, read_fetch, read_produce, record
from log_by_hand import record_batch, split

SEED = int(os.environ.get('KAFKA_SCRATCH_SEED', 4711))
TOPICS = {'orders': 2, 'prices': 1}
PLACES = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
LIVES = 20 if ALL else 4   # how often the broker is killed in each directory

SETTINGS = {   # ten directories, each kept in its own way
    'small segments': dict(internal_segment_bytes=30_000),
    'tiny segments': dict(internal_segment_bytes=14_000),
    'dense indexes': dict(internal_segment_bytes=60_000, log_index_interval_bytes=0),
    'large segments': dict(log_segment_bytes=1 << 30),
    'a flush for every message': dict(internal_segment_bytes=50_000, log_flush_interval_messages=1),
    'a flush for every 50 messages': dict(internal_segment_bytes=50_000, log_flush_interval_messages=50),
    'late flushes': dict(internal_segment_bytes=50_000, log_flush_interval_ms=20),
    'a checkpoint of flushes': dict(internal_segment_bytes=14_000, log_flush_interval_ms=0),
    'asyncio': dict(internal_segment_bytes=50_000),
    'small segments, once more': dict(internal_segment_bytes=20_000),
}


class Sent:
    "A batch that was sent, and what became of it."
    def __init__(self, place, producer: int, number: int, batch: bytes):
        self.place, self.producer, self.number, self.batch, self.offset, self.there = place, producer, number, batch, None, False  # noqa: E501
    def __repr__(self):
        return f'batch {self.number} of producer {self.producer} to {self.place}, acknowledged at {self.offset}'


class World:
    "One log directory, everything that was sent to it, and what is known to be in it."
    def __init__(self, directory, seed: int, settings: dict, loop: str):
        self.directory, self.random, self.port, self.loop = directory, random.Random(seed), free_port(), loop
        self.logs, self.numbers, self.notes = directory/'logs', itertools.count(), []
        write_log(self.logs, metadata_log(**TOPICS))
        self.file = properties(directory/'server.properties', node_id=1, listeners=f'PLAINTEXT://127.0.0.1:{self.port}',
                               log_dirs=self.logs, **settings)
        self.sent, self.fresh = {}, []                         # the bytes under the checksum → Sent; those of this life
        self.found = {place: {} for place in PLACES}           # offset → the batch that starts there
        self.ends = dict.fromkeys(PLACES, 0)
        self.last = collections.defaultdict(lambda: -1)        # (place, producer) → the number of its last batch there
        self.problems = []                                     # what the threads found wrong

    def start(self) -> BrokerProcess:
        env = {**os.environ, 'KAFKA_SCRATCH_LOOP': self.loop}
        self.broker = BrokerProcess(self.directory, self.file, port=self.port, env=env)
        return self.broker.wait_ready()

    def new_batch(self, producer: int, number: int, place, chance: random.Random, **header) -> Sent:
        "A batch like no other: mostly small, sometimes not."
        count = chance.choice([1, 1, 1, 2, 5, 30])
        size = chance.choice([10, 10, 40, 100]) if count > 2 or chance.random() < 0.95 else 6_000
        mark = f'{place[0]}-{place[1]}/{producer}/{number}/'.encode()
        batch = record_batch([record(mark + bytes([97 + delta % 26]) * size, offset_delta=delta,
                                     timestamp_delta=delta) for delta in range(count)],
                             base_timestamp=(now := time.time_ns() // 1_000_000), max_timestamp=now + count - 1,
                             **header)
        sent = self.sent[batch[17:]] = Sent(place, producer, number, batch)
        self.fresh.append(sent)
        return sent

    # --- Is everything there? -----------------------------------------------------------------------------------------

    def take(self, place, offset: int, batch: bytes) -> Sent:
        "A batch that came from the log, where it should be."
        assert base_offset(batch) == offset, f'{place} goes on with {base_offset(batch)} instead of {offset}'
        sent = self.sent.get(batch[17:])
        assert sent and batch == placed(sent.batch,
                                        offset) and sent.place == place, f'{place} has a batch at {offset} that nobody sent: {batch[:80].hex()}'  # noqa: E501
        return sent

    def look(self):
        "Reads what has come since the last look, and compares it with what was sent."
        with self.broker.client() as client:
            for place in PLACES:
                for offset, batch in read_all(client, place, self.ends[place]):
                    sent = self.take(place, offset, batch)
                    assert sent.number > self.last[place,
                                                   sent.producer], f'{sent} is at {offset}, behind number {self.last[place, sent.producer]}'  # noqa: E501
                    self.last[place, sent.producer], sent.there = sent.number, True
                    self.found[place][offset], self.ends[place] = batch, next_offset(batch)
        for sent in self.fresh:
            if sent.offset is not None:
                assert self.found[sent.place].get(sent.offset) == placed(sent.batch, sent.offset), f'lost: {sent}'
        assert not self.problems, self.problems

    def look_again(self):
        "Reads everything from the beginning: it is what it was."
        with self.broker.client() as client:
            for place in PLACES: assert dict(read_all(client, place, 0)) == self.found[place]

    def begin_life(self, still_open: list[Sent]):
        "What was sent before and isn't there will never be, unless a producer sends it again."
        for sent in self.fresh:
            if not sent.there and sent not in still_open: del self.sent[sent.batch[17:]]
        self.fresh = list(still_open)


def read_all(client: Client, place, offset: int) -> list[tuple[int, bytes]]:
    "The batches from an offset to the end, with the offsets at which they were expected."
    found = []
    while True:
        partition = read_fetch(client.ask(fetch(1, {place[0]: {place[1]: offset}}, version=12, max_wait_ms=0)),
                               12)['topics'][place[0]][place[1]]
        assert partition['error_code'] == 0, f'{place} from {offset}: {partition}'
        if offset == partition['high_watermark']: return found
        for batch in split(partition['records']):
            found.append((offset, batch))
            offset = next_offset(batch)


# --- Clients ----------------------------------------------------------------------------------------------------------

class Worker(threading.Thread):
    "A client that goes on until the broker is gone. What it finds wrong is a problem of the world's."
    def __init__(self, world: World):
        super().__init__(daemon=True)
        self.world, self.random = world, random.Random(world.random.random())

    def run(self):
        try:
            with Client(self.world.port) as client: self.work(client)
        except (ConnectionError, TimeoutError) as error:
            if isinstance(error, TimeoutError): self.world.problems.append(error)
        except Exception as error: self.world.problems.append(f'{type(self).__name__}: {type(error).__name__}: {error}')


class Producer(Worker):
    """Sends ahead, up to `window` requests, each to one partition or several. What isn't acknowledged is never sent
    again."""
    def __init__(self, world: World, number: int, acks: int, window: int):
        super().__init__(world)
        self.number, self.acks, self.window = number, acks, window

    def work(self, client: Client):
        waiting = collections.deque()
        while True:
            while len(waiting) < self.window:
                places = self.random.sample(PLACES, self.random.choice([1, 1, 1, len(PLACES)]))
                batches = [self.world.new_batch(self.number, next(self.world.numbers), place,
                                                self.random) for place in places]
                topics = collections.defaultdict(dict)
                for sent in batches: topics[sent.place[0]][sent.place[1]] = sent.batch
                waiting.append(batches)
                client.send(produce(len(waiting), topics, acks=self.acks))
            frame = client.frame()
            if frame is None: return
            acknowledge(waiting.popleft(), read_produce(frame)['topics'])


def acknowledge(batches: list[Sent], topics: dict):
    for sent in batches:
        answer = topics[sent.place[0]][sent.place[1]]
        assert answer['error_code'] == 0 and answer['log_start_offset'] == 0, f'{sent}: {answer}'
        sent.offset = answer['base_offset']


class Idempotent(Worker):
    """One batch after the other to one partition, under a producer's id. What wasn't acknowledged is sent again, as it
    was."""
    def __init__(self, world: World, number: int, place):
        super().__init__(world)
        self.number, self.place, self.sequence, self.open = number, place, 0, None

    def again(self) -> 'Idempotent':
        "The same producer, after a restart."
        worker = Idempotent(self.world, self.number, self.place)
        worker.sequence, worker.open = self.sequence, self.open
        return worker

    def work(self, client: Client):
        while True:
            self.open = self.open or self.world.new_batch(self.number, next(self.world.numbers), self.place,
                                                          self.random, producer_id=self.number, producer_epoch=0,
                                                          base_sequence=self.sequence)
            frame = client.ask(produce(1, {self.place[0]: {self.place[1]: self.open.batch}}))
            if frame is None: return
            acknowledge([self.open], read_produce(frame)['topics'])
            self.sequence, self.open = self.sequence + next_offset(self.open.batch), None


class Consumer(Worker):
    "Reads everything as it comes, and goes on where it was after a restart."
    def __init__(self, world: World, by_id: bool):
        super().__init__(world)
        self.by_id, self.ends, self.read = by_id, dict.fromkeys(PLACES, 0), []

    def again(self) -> 'Consumer':
        worker = Consumer(self.world, self.by_id)
        worker.ends = self.ends
        return worker

    def work(self, client: Client):
        version, name = (16, topic_id_of) if self.by_id else (12, str)
        while True:
            topics = {name(topic): {index: self.ends[topic, index] for index in range(count)} for topic,
                      count in TOPICS.items()}
            frame = client.ask(fetch(1, topics, version=version, max_wait_ms=30, partition_max_bytes=40_000))
            if frame is None: return
            answer = read_fetch(frame, version)['topics']
            for place in PLACES:
                partition = answer[name(place[0])][place[1]]
                assert partition['error_code'] == 0, f'{place} from {self.ends[place]}: {partition}'
                for batch in split(partition['records'] or b''):
                    self.world.take(place, self.ends[place], batch)
                    self.read.append((place, self.ends[place], batch))
                    self.ends[place] = next_offset(batch)
                assert self.ends[place] <= partition['high_watermark']


# --- A write that was cut off, and other things that a crash may leave ------------------------------------------------

def leave_a_mess(world: World) -> str:
    "Something that stands after the end of a log, or beside it, and must not count."
    chance, place = world.random, world.random.choice(PLACES)
    directory = world.logs/f'{place[0]}-{place[1]}'
    segments = sorted(directory.glob('*.log'))
    if not segments: return 'nothing'
    half = record_batch([record(b'half a batch' * 50)] * 3, base_offset=1 << 20)
    tails = {'half a batch': lambda: half[:chance.randrange(1, len(half))],
             'zeros': lambda: bytes(chance.randrange(1, 5_000)),
             'noise': lambda: b'\xff' * 9 + chance.randbytes(chance.randrange(1, 300)),
             'a wrong checksum': lambda: half[:-1] + b'!'}
    indexes = {'cut': lambda data: data[:len(data) // 2], 'empty': lambda data: b'',
               'preallocated': lambda data: data + bytes(4_800),
               'noise': lambda data: data + chance.randbytes(24)}
    if chance.random() < 0.6:
        name = chance.choice(list(tails))
        with open(segments[-1], 'ab') as file: file.write(tails[name]())
    elif chance.random() < 0.7 and (found := sorted([*directory.glob('*.index'), *directory.glob('*.timeindex')])):
        path, name = chance.choice(found), chance.choice(list(indexes))
        path.write_bytes(indexes[name](path.read_bytes()))
        name = f'{path.name}: {name}'
    else:
        name = 'leftovers'
        (directory/f'{0:020}.index.tmp').write_bytes(b'half')
        (directory/'leader-epoch-checkpoint.tmp').write_bytes(b'0\n')
        (directory/f'{1 << 30:020}.timeindex').write_bytes(bytes(12))
        (world.logs/'recovery-point-offset-checkpoint.tmp').write_bytes(b'0')
    return f'{place}: {name}'


@pytest.mark.parametrize('name', [pytest.param(name, marks=long if number else ()) for number,
                                  name in enumerate(SETTINGS)])
def test_killed_again_and_again(tmp_path, name):
    world = World(tmp_path, SEED + len(name), SETTINGS[name], 'asyncio' if name == 'asyncio' else 'uvloop')
    idempotent, consumers = [Idempotent(world, 900 + i, place) for i, place in enumerate(PLACES[:2])], [Consumer(world,
        False), Consumer(world, True)]
    for life in range(LIVES):
        print(f'KAFKA_SCRATCH_SEED={SEED}, {name}, life {life}: {world.notes[-1:]}')
        broker = world.start()
        world.look()
        for consumer in consumers:
            for place, offset, batch in consumer.read:
                assert world.found[place].get(offset) == batch, f'{place} had a batch at {offset} that a reader saw'
        world.begin_life([worker.open for worker in idempotent if worker.open])
        idempotent, consumers = [worker.again() for worker in idempotent], [worker.again() for worker in consumers]
        producers = [Producer(world, life * 10 + i, acks, window) for i,
                     (acks, window) in enumerate([(1, 1), (-1, 20), (1, 50)])]
        workers = [*producers, *idempotent, *consumers]
        for worker in workers: worker.start()
        time.sleep(world.random.choice([0.005, 0.05, 0.1, 0.15]) * (0.5 + world.random.random()))
        broker.process.send_signal(signal.SIGKILL)
        broker.wait()
        for worker in workers: worker.join(20)
        assert not any(worker.is_alive() for worker in workers)
        assert 'Traceback' not in broker.stderr and 'mistake' not in broker.stderr, broker.stderr
        world.notes.append(leave_a_mess(world) if world.random.random() < 0.5 else 'nothing')
    world.start()
    world.look()
    world.broker.check_end()
    world.start()          # once more, after a stop in order
    world.look_again()
    world.broker.check_end()
    assert min(world.ends.values()) > 100, world.ends
