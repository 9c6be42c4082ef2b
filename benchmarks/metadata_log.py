"""Writes a large `__cluster_metadata-0` log, byte for byte in the form a KRaft controller uses.

One LeaderChange control batch, the feature levels, the brokers, then one batch per topic (TopicRecord v0 and its
PartitionRecords v2), then batches of PartitionChangeRecords v2: ISR shrinks, ISR expansions and leader changes.
A topic's batch is a template into which the topic id is joined, so a million partitions take seconds where topics share
a way to lie on the brokers; where each topic has its own, a minute.
"""
import base64
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, Iterator

from benchmarks import machine
from benchmarks.wire import compact_string, uvarint

try:
    from crc32c import crc32c
except ImportError:  # said when a log is written, so that --help works without it
    pass

REGISTER_BROKER, TOPIC, PARTITION, PARTITION_CHANGE, FEATURE_LEVEL = 0, 2, 3, 5, 12
FEATURES = {'metadata.version': 27, 'eligible.leader.replicas.version': 1, 'group.version': 1, 'transaction.version': 2}
BROKER_FEATURES = (('group.version', 0, 1), ('kraft.version', 0, 1), ('metadata.version', 7, 27),
                   ('transaction.version', 0, 2), ('eligible.leader.replicas.version', 0, 1))
TIMESTAMP = 1_760_000_000_000
CONTROL = 0x20  # the attributes bit of a control batch


@dataclass
class Shape:
    "How large a log to write; the defaults give a million partitions."
    topics: int = 10_000
    partitions_per_topic: int = 100
    changes: int = 200_000
    brokers: int = 12
    replication_factor: int = 3
    placements: int = 64  # ways to lay a topic's replicas over the brokers; topics take them in turn
    seed: int = 20

    @property
    def partitions(self) -> int:
        return self.topics * self.partitions_per_topic


@dataclass
class Written:
    "What a log holds, for comparing with what a reader makes of it."
    path: Path
    shape: Shape
    bytes: int = 0
    batches: int = 0
    records: int = 0
    totals: dict = field(default_factory=dict)  # sums over all partitions, see `Writer.totals`


@dataclass
class State:
    "A partition, as far as changes move it."
    replicas: tuple
    isr: tuple
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0


def zigzag(value: int) -> bytes:
    "`-1` -> `01`, `1` -> `02`: a signed varint."
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def record(offset_delta: int, value: bytes, key: bytes | None = None) -> bytes:
    "One record of a batch: no timestamp delta, no headers."
    key_part = zigzag(-1) if key is None else zigzag(len(key)) + key
    body = b'\x00\x00' + zigzag(offset_delta) + key_part + zigzag(len(value)) + value + b'\x00'
    return zigzag(len(body)) + body


def batch(base_offset: int, count: int, records: bytes, attributes: int = 0, timestamp: int = TIMESTAMP) -> bytes:
    "A record batch v2 around ready-made records."
    covered = struct.pack('>hiqqqhii', attributes, count - 1, timestamp, timestamp, -1, -1, -1, count) + records
    return struct.pack('>qiibI', base_offset, len(covered) + 9, 1, 2, crc32c(covered)) + covered


def value(record_type: int, version: int, body: bytes) -> bytes:
    "A metadata record's value: frame version 1, type and version as unsigned varints, then the body."
    return uvarint(1) + uvarint(record_type) + uvarint(version) + body


def ints(numbers) -> bytes:
    "A compact array of int32."
    return uvarint(len(numbers) + 1) + struct.pack(f'>{len(numbers)}i', *numbers)


def leader_change(leader: int) -> bytes:
    "The control record that opens a log: key version 0, type 2; one voter."
    voter = uvarint(2) + struct.pack('>i', leader) + b'\x00'
    return record(0, struct.pack('>hi', 0, leader) + voter + voter + b'\x00', key=struct.pack('>hh', 0, 2))


def feature_level(name: str, level: int) -> bytes:
    return value(FEATURE_LEVEL, 0, compact_string(name) + struct.pack('>h', level) + b'\x00')


def register_broker(broker: int, incarnation: bytes, directory: bytes, epoch: int) -> bytes:
    "RegisterBrokerRecord v3, unfenced, one listener, one log directory (tagged field 0)."
    host = compact_string('PLAINTEXT') + compact_string(f'broker-{broker}.example') + struct.pack('>Hh', 9092,
        0) + b'\x00'
    features = b''.join(compact_string(name) + struct.pack('>hh', low, high) + b'\x00' for name, low,
                        high in BROKER_FEATURES)
    log_dirs = uvarint(2) + directory
    return value(REGISTER_BROKER, 3, struct.pack('>i?', broker, False) + incarnation + struct.pack('>q', epoch)
                 + uvarint(2) + host + uvarint(len(BROKER_FEATURES) + 1) + features + b'\x00' + b'\x00\x00'
                 + uvarint(1) + uvarint(0) + uvarint(len(log_dirs)) + log_dirs)


def partition_value(partition: int, topic_id: bytes, replicas: tuple, directories: dict) -> bytes:
    "PartitionRecord v2 of a new partition: all replicas in sync, the first one leads."
    return value(PARTITION, 2, struct.pack('>i', partition) + topic_id + ints(replicas) + ints(replicas) + b'\x01\x01'
                 + struct.pack('>iii', replicas[0], 0, 0)
                 + uvarint(len(replicas) + 1) + b''.join(directories[r] for r in replicas) + b'\x00')


def change_value(partition: int, topic_id: bytes, isr: tuple | None, leader: int | None) -> bytes:
    "PartitionChangeRecord v2 with the tagged fields isr (0) and leader (1), each only when it changes."
    tagged = []
    if isr is not None:
        data = ints(isr)
        tagged.append(uvarint(0) + uvarint(len(data)) + data)
    if leader is not None:
        tagged.append(uvarint(1) + uvarint(4) + struct.pack('>i', leader))
    return value(PARTITION_CHANGE, 2, struct.pack('>i', partition) + topic_id + uvarint(len(tagged)) + b''.join(tagged))


def random_id(chance: random.Random) -> bytes:
    "A random UUID (version 4) as 16 bytes."
    bits = bytearray(chance.randbytes(16))
    bits[6], bits[8] = bits[6] & 0x0f | 0x40, bits[8] & 0x3f | 0x80
    return bytes(bits)


class Writer:
    "Makes the batches of one log, in order."

    def __init__(self, shape: Shape):
        self.shape, self.chance = shape, random.Random(shape.seed)
        self.offset = 0
        self.brokers = list(range(1, shape.brokers + 1))
        self.directories = {broker: random_id(self.chance) for broker in self.brokers}
        self.placements = [self._placement() for _ in range(min(shape.placements, shape.topics))]
        self.templates: dict[int, list[bytes]] = {}
        self.topic_ids = [random_id(self.chance) for _ in range(shape.topics)]
        self.changed: dict[tuple[int, int], State] = {}  # only the partitions that a change has touched

    def _placement(self) -> list[tuple]:
        "Replicas of each partition of a topic: leaders take turns, followers are drawn."
        start = self.chance.randrange(len(self.brokers))
        replicas = []
        for partition in range(self.shape.partitions_per_topic):
            leader = self.brokers[(start + partition) % len(self.brokers)]
            replicas.append((leader, *self._followers(leader)))
        return replicas

    def _followers(self, leader: int) -> list[int]:
        chosen = self.chance.sample(self.brokers, self.shape.replication_factor)
        return [broker for broker in chosen if broker != leader][:self.shape.replication_factor - 1]

    def _template(self, topic: int) -> list[bytes]:
        "A topic's partition records, cut where the topic id belongs: `topic_id.join(pieces)` is all of them."
        index = topic % len(self.placements)
        if index not in self.templates:
            mark = bytes(range(240, 256))
            records = b''.join(record(partition + 1, partition_value(partition, mark, replicas, self.directories))
                               for partition, replicas in enumerate(self.placements[index]))
            if len(self.placements) == self.shape.topics:
                return records.split(mark)  # never wanted again
            self.templates[index] = records.split(mark)
        return self.templates[index]

    def _replicas(self, topic: int) -> list[tuple]:
        return self.placements[topic % len(self.placements)]

    def _batch(self, count: int, records: bytes, attributes: int = 0) -> bytes:
        made = batch(self.offset, count, records, attributes)
        self.offset += count
        return made

    def _batch_of(self, values: list[bytes]) -> bytes:
        return self._batch(len(values), b''.join(record(delta, each) for delta, each in enumerate(values)))

    def topic_name(self, topic: int) -> str:
        return f'team-{topic % 97:02d}.events.{topic:05d}'

    def preamble(self) -> Iterator[bytes]:
        "What stands before the topics."
        yield self._batch(1, leader_change(1), CONTROL)
        yield self._batch_of([feature_level(name, level) for name, level in FEATURES.items()])
        for broker in self.brokers:
            yield self._batch_of([register_broker(broker, random_id(self.chance), self.directories[broker],
                                                  self.offset)])

    def topics(self) -> Iterator[bytes]:
        "One batch a topic."
        for topic, topic_id in enumerate(self.topic_ids):
            head = record(0, value(TOPIC, 0, compact_string(self.topic_name(topic)) + topic_id + b'\x00'))
            yield self._batch(self.shape.partitions_per_topic + 1, head + topic_id.join(self._template(topic)))

    def changes(self) -> Iterator[bytes]:
        "Batches of 1 to 50 changes, until there are as many as asked for."
        left = self.shape.changes
        while left:
            count = min(left, self.chance.randint(1, 50))
            yield self._batch_of([self._change() for _ in range(count)])
            left -= count

    def _change(self) -> bytes:
        "The next change of a partition drawn at random: shrink a full ISR (and move the leader), or restore it."
        topic = self.chance.randrange(self.shape.topics)
        partition = self.chance.randrange(self.shape.partitions_per_topic)
        state = self.changed.get((topic, partition))
        if state is None:
            replicas = self._replicas(topic)[partition]
            state = self.changed[topic, partition] = State(replicas, replicas, replicas[0])
        isr, leader = self._next(state)
        state.partition_epoch += 1
        if isr is not None:
            state.isr = isr
        if leader is not None:
            state.leader, state.leader_epoch = leader, state.leader_epoch + 1
        return change_value(partition, self.topic_ids[topic], isr, leader)

    def _next(self, state: State) -> tuple[tuple | None, int | None]:
        "New ISR and new leader (None where it stays)."
        if len(state.isr) < len(state.replicas):
            return state.isr + tuple(r for r in state.replicas if r not in state.isr), None
        if state.leader != state.replicas[0]:
            return None, state.replicas[0]  # back to the preferred leader
        gone = self.chance.choice(state.replicas)
        isr = tuple(r for r in state.isr if r != gone)
        return isr, isr[0] if gone == state.leader and isr else None

    def totals(self) -> dict[str, int]:
        "Sums over all partitions as the log leaves them: a reader that folds the log right gets the same."
        found = totals_of((topic, State(replicas, replicas, replicas[0])) for topic in range(self.shape.topics)
                          for replicas in self._replicas(topic))
        for (topic, partition), state in self.changed.items():
            before = self._replicas(topic)[partition]
            found['leaders'] += state.leader - before[0]
            found['in_sync'] += len(state.isr) - len(before)
            found['leader_epochs'] += state.leader_epoch
            found['partition_epochs'] += state.partition_epoch
        return found


def totals_of(partitions: Iterable[tuple]) -> dict[str, int]:
    "Pairs of (topic, partition state) -> how many there are, and the sums of what changes move."
    topics, found = set(), dict(topics=0, partitions=0, leaders=0, in_sync=0, leader_epochs=0, partition_epochs=0)
    for topic, state in partitions:
        topics.add(topic)
        found['partitions'] += 1
        found['leaders'] += state.leader
        found['in_sync'] += len(state.isr)
        found['leader_epochs'] += state.leader_epoch
        found['partition_epochs'] += state.partition_epoch
    return {**found, 'topics': len(topics)}


def write_log(log_dir, shape: Shape = Shape()) -> Written:
    "Write `log_dir/__cluster_metadata-0/00000000000000000000.log`; return what it holds."
    machine.need('crc32c')
    writer = Writer(shape)
    path = Path(log_dir) / '__cluster_metadata-0' / f'{0:020d}.log'
    path.parent.mkdir(parents=True, exist_ok=True)
    written = Written(path, shape)
    with open(path, 'wb') as file:
        for part in (writer.preamble(), writer.topics(), writer.changes()):
            for made in part:
                written.bytes += file.write(made)
                written.batches += 1
    written.records, written.totals = writer.offset, writer.totals()
    return written


def write_topics(log_dir, topics: dict[str, int]) -> None:
    "Write a small log directory of one broker (node 1) that hosts `{'name': partitions}`."
    machine.need('crc32c')
    chance = random.Random(1)
    directory, cluster_id = random_id(chance), base64.urlsafe_b64encode(random_id(chance)).decode().rstrip('=')
    parts, offset = [batch(0, 1, leader_change(1), CONTROL)], 1
    batches = [[feature_level(name, level) for name, level in FEATURES.items()],
               [register_broker(1, random_id(chance), directory, 5)]]
    for name, partitions in topics.items():
        topic_id = random_id(chance)
        batches.append([value(TOPIC, 0, compact_string(name) + topic_id + b'\x00')]
                       + [partition_value(partition, topic_id, (1,),
                                          {1: directory}) for partition in range(partitions)])
    for values in batches:
        parts.append(batch(offset, len(values), b''.join(record(delta, each) for delta, each in enumerate(values))))
        offset += len(values)
    path = Path(log_dir) / '__cluster_metadata-0' / f'{0:020d}.log'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b''.join(parts))
    (Path(log_dir) / 'meta.properties').write_text(
        f'version=1\ncluster.id={cluster_id}\nnode.id=1\n'
        f'directory.id={base64.urlsafe_b64encode(directory).decode().rstrip("=")}\n')
