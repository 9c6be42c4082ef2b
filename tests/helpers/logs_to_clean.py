"""Logs that a cleaner has something to do with, by number: what is appended to them, and when they are cleaned.

A scenario has settings of a topic, and rounds. In each round some batches are appended (`steps`, in the words of
`cleaner/java/CleanLog.java`: Kafka writes them), and then the log is cleaned (`clean`), at a time and with a table of a
size that may be too small.
"""
import random
from collections import namedtuple

Scenario = namedtuple('Scenario', 'seed written settings rounds')    # written: the settings while it is written
Round = namedtuple('Round', 'steps clean')

START = 1_700_000_000_000   # milliseconds since 1970
DAY = 86_400_000            # after which Kafka forgets a producer
CODECS = 'none', 'gzip', 'snappy', 'lz4', 'zstd'


class World:
    "What the next step has to know of those before it."
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.now, self.end, self.epoch = START, 0, 0
        self.keys = [b'k%d' % n for n in range(self.random.choice([1, 3, 6, 15]))] + [b'']
        self.producers = {}     # id → [epoch, next sequence, has an open transaction?]
        self.codecs = self.random.choice([CODECS[:1], CODECS[:1], CODECS])
        self.nulls = self.random.random() < .2
        self.gaps = self.random.random() < .3

    def chance(self, share: float) -> bool: return self.random.random() < share


def hexed(data: bytes | None) -> str | None: return None if data is None else data.hex()


def a_value(world: World) -> bytes | None:
    kind = world.random.random()
    if kind < .25: return None
    if kind < .32: return b''
    return world.random.randbytes(world.random.choice([1, 5, 30])) * world.random.choice([1, 1, 4])


def a_record(world: World) -> dict:
    key = None if world.nulls and world.chance(.2) else world.random.choice(world.keys)
    jitter = world.random.choice([0, 0, 0, 1, 70, -500, 100_000])
    record = dict(key=hexed(key), value=hexed(a_value(world)), timestamp=world.now + jitter)
    if world.chance(.02): record['timestamp'] = -1
    if world.chance(.2): record['headers'] = [['h', None], ['trace', world.random.randbytes(3).hex()], ['h', '']]
    return record


def a_batch(world: World) -> dict:
    count = world.random.choice([1, 1, 2, 3, 8])
    step = dict(records=[a_record(world) for _ in range(count)], epoch=world.epoch)
    step['codec'] = world.random.choice(world.codecs)
    return step


def with_gaps(world: World, step: dict):
    "As a follower gets it from a leader that has cleaned already: some offsets are missing."
    offset = step['offset'] = world.end + world.random.choice([0, 0, 1, 7, 300])
    for record in step['records']:
        offset += world.random.choice([0, 0, 1, 4])
        record['offset'] = offset
        offset += 1
    step['last'] = offset - 1 + world.random.choice([0, 0, 2])
    if world.chance(.2): step['append_time'] = world.now
    world.end = step['last'] + 1


def produced(world: World, step: dict):
    "By a producer with a number: idempotent, or in a transaction."
    number = world.random.randint(1, 4)
    producer = world.producers.setdefault(number, [0, 0, False])
    if not producer[2] and world.chance(.1): producer[:2] = [producer[0] + 1, 0]
    step.update(producer=number, producer_epoch=producer[0], sequence=producer[1])
    if producer[2] or number > 2: step['transactional'] = producer[2] = True
    if 'offset' in step: step.pop('last')     # sequences are counted by offsets
    producer[1] += len(step['records'])


def ended(world: World, number: int) -> dict:
    "The marker at the end of a transaction; with every second coordinator, the epoch is a new one afterwards."
    producer = world.producers[number]
    producer[2] = False
    if world.chance(.3): producer[:2] = [producer[0] + 1, 0]
    world.end += 1
    kind = world.random.choice(['commit', 'abort'])
    return dict(marker=kind, producer=number, producer_epoch=producer[0], epoch=world.epoch)


def a_step(world: World) -> dict:
    world.now += world.random.choice([0, 1, 1000, 60_000])
    undecided = [number for number, producer in world.producers.items() if producer[2]]
    if undecided and world.chance(.25): step = ended(world, world.random.choice(undecided))
    elif world.chance(.2): step = dict(roll=True)
    else:
        step = a_batch(world)
        if world.chance(.5):
            produced(world, step)
            world.end += len(step['records'])
        elif world.gaps and world.chance(.3): with_gaps(world, step)
        else: world.end += len(step['records'])
    if world.chance(.03): world.epoch += 1
    return dict(step, now=world.now)


def a_round(world: World, first: bool, retention: int) -> Round:
    steps = [a_step(world) for _ in range(world.random.choice([3, 10, 30] if first else [0, 0, 4, 10]))]
    if world.chance(.8): steps.append(dict(roll=True, now=world.now))
    if world.chance(.2):      # after an unanswered transaction, only its end lets the cleaner go on
        steps += [dict(ended(world, n), now=world.now) for n, producer in world.producers.items() if producer[2]]
        steps.append(dict(roll=True, now=world.now))
    world.now += world.random.choice([0, 5000, retention, retention + 1, 2 * DAY if world.chance(.2) else 1])
    clean = dict(now=world.now, memory=24 * world.random.choice([3, 5, 10, 1000, 1000]),
                 io_buffer=world.random.choice([200, 1000, 1 << 16]), passes=world.random.choice([1, 1, 3]))
    return Round(steps, clean)


def scenario(seed: int) -> Scenario:
    "The log of this number: the same one every time."
    world = World(seed)
    pick = world.random.choice
    retention = pick([0, 5000, 100_000])
    settings = {'cleanup.policy': 'compact', 'internal.segment.bytes': pick([150, 400, 1000, 4000]),
                'index.interval.bytes': pick([0, 60, 300, 4096]), 'delete.retention.ms': retention}
    if world.chance(.15): settings['message.timestamp.type'] = 'LogAppendTime'
    if world.chance(.1): settings['min.compaction.lag.ms'] = pick([1000, 100_000])
    if world.chance(.1): settings['segment.index.bytes'] = pick([100, 200])
    rounds = [a_round(world, number == 0, retention) for number in range(pick([1, 2, 4]))]
    written = {**settings, 'cleanup.policy': 'delete', 'retention.ms': -1,    # which lets records without a key in
               'internal.segment.bytes': pick([1600, 4000]), 'max.message.bytes': 1600}
    return Scenario(seed, written, settings, rounds)
