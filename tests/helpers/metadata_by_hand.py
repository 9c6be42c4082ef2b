"""Metadata logs: real ones with the image that Kafka made of them, and logs that nobody wrote with a second,
deliberately plain fold.

The package remembers states by their bytes, follows files, starts from checkpoints. The fold in this file does nothing
of the kind.
"""
import copy
import json
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import strategies as st

from kafka_scratch.wire.codes import METADATA
from kafka_scratch.cluster.records import *
from kafka_scratch.wire.primitives import UnsignedVarint
from kafka_scratch.log.records import CONTROL, Record, write_batch
from kafka_scratch.log.control_records import ControlKey, LeaderChangeMessage, SnapshotFooterRecord
from kafka_scratch.log.control_records import SnapshotHeaderRecord

FIXTURES = Path(__file__).parents[1]/'fixtures'
GZIP = 1


# --- What Kafka made of real logs -------------------------------------------------------------------------------------

def directory_of(path: Path) -> Path:
    "The log directory that an image was made of."
    first_node = path.parent/('node-100' if 'one-controller' in path.parent.name else 'node-1')
    known = {'image': '.', 'image-live': 'metadata-live', 'image-after-shutdown': 'logs'}
    return path.parent/known[path.stem] if path.stem in known else first_node


IMAGES = sorted(FIXTURES.glob('*/image*.json')) + sorted(FIXTURES.glob('*/node-*/image.json'))
each_image = pytest.mark.parametrize('path', IMAGES, ids=lambda path: str(path.relative_to(FIXTURES).with_suffix('')))


def comparable(image: dict) -> dict:
    "Without what names the maker, and in one order what Kafka lists in none."
    kept = {part: value for part, value in image.items() if part != 'generatedBy'}
    return kept | {part: sorted(kept[part], key=str) for part in ('clientQuotas', 'acls')}


def kafkas_image(path: Path) -> dict:
    """With the users that the running broker named: Kafka's replay can forget one, when another of the same mechanism
    is removed."""
    expected = json.loads(path.read_text())
    if path.parent.name == 'single-broker':
        users = json.loads((path.parent/'expected.json').read_text())['scramUsers']
        entries = [(entry['mechanism'].replace('-', '_'), name, entry['iterations']) for name,
                   found in users.items() for entry in found]
        expected['scram'] = {mechanism: {name: n for m, name, n in entries if m == mechanism} for mechanism,
                             *_ in entries}
    return comparable(expected)


# --- A second fold ----------------------------------------------------------------------------------------------------

LISTS = 'replicas', 'isr', 'removing_replicas', 'adding_replicas', 'eligible_leader_replicas', 'last_known_elr'
MIGRATING = bytes(16)

class Plain:
    """What is known of a cluster, in dictionaries: one rule per record, and nothing clever.

    Kafka 4.1.1's own MetadataDelta was given 1500 of the histories below: topics, partitions, brokers, settings and
    producer ids
    came out the same.
    """
    def __init__(self):
        self.topics, self.brokers, self.controllers, self.features, self.configs, self.quotas = {}, {}, {}, {}, {}, {}
        self.scram, self.acls, self.tokens, self.next_producer_id = {}, {}, {}, -1

    def apply(self, record): getattr(self, type(record).__name__, lambda record: None)(record)

    def TopicRecord(self, r): self.topics[r.topic_id] = {'name': r.name, 'partitions': {}}
    def RemoveTopicRecord(self, r):
        name = self.topics.pop(r.topic_id)['name']
        self.configs = {key: value for key, value in self.configs.items() if key[:2] != (2, name)}
    def PartitionRecord(self, r):
        state = {name: list(getattr(r,
                                    name) or []) for name in LISTS} | {'directories': r.directories
                                        or [MIGRATING] * len(r.replicas)}
        for name in ('leader', 'leader_epoch', 'partition_epoch', 'leader_recovery_state'):
            state[name] = getattr(r, name)
        self.topics[r.topic_id]['partitions'][r.partition_id] = state
    def PartitionChangeRecord(self, r):
        state = self.topics[r.topic_id]['partitions'][r.partition_id]
        state['partition_epoch'] += 1
        if r.leader != -2: state.update(leader=r.leader, leader_epoch=state['leader_epoch'] + 1)
        if r.leader_recovery_state != -1: state['leader_recovery_state'] = r.leader_recovery_state
        for name in (*LISTS, 'directories'):
            if getattr(r, name) is not None: state[name] = list(getattr(r, name))
        if set(state['directories']) <= {MIGRATING}: state['directories'] = [MIGRATING] * len(state['replicas'])
    def ClearElrRecord(self, r):
        for topic in self.topics.values():
            for state in topic['partitions'].values():
                if r.topic_name in ('',
                                    topic['name']) and (state['eligible_leader_replicas'] or state['last_known_elr']):
                    state.update(eligible_leader_replicas=[], last_known_elr=[],
                                 partition_epoch=state['partition_epoch'] + 1)
    def RegisterBrokerRecord(self, r):
        self.brokers[r.broker_id] = dict(epoch=r.broker_epoch, fenced=r.fenced, leaving=r.in_controlled_shutdown,
                                         rack=r.rack,
                                         log_dirs=list(r.log_dirs), end_points=[(e.name, e.host,
                                             e.port) for e in r.end_points])
    def BrokerRegistrationChangeRecord(self, r):
        broker = self.brokers[r.broker_id]
        if r.fenced: broker['fenced'] = r.fenced == 1
        if r.in_controlled_shutdown: broker['leaving'] = r.in_controlled_shutdown == 1
        if r.log_dirs: broker['log_dirs'] = list(r.log_dirs)
    def UnregisterBrokerRecord(self, r): del self.brokers[r.broker_id]
    def FenceBrokerRecord(self, r): self.brokers[r.id]['fenced'] = True
    def UnfenceBrokerRecord(self, r): self.brokers[r.id]['fenced'] = False
    def RegisterControllerRecord(self, r): self.controllers[r.controller_id] = r.incarnation_id
    def ConfigRecord(self, r):
        self.configs[r.resource_type, r.resource_name, r.name] = r.value
        if r.value is None: del self.configs[r.resource_type, r.resource_name, r.name]
    def ClientQuotaRecord(self, r):
        key = frozenset((e.entity_type, e.entity_name) for e in r.entity), r.key
        self.quotas[key] = r.value
        if r.remove: del self.quotas[key]
    def FeatureLevelRecord(self, r):
        self.features[r.name] = r.feature_level
        if r.feature_level == 0: del self.features[r.name]
    def ProducerIdsRecord(self, r): self.next_producer_id = r.next_producer_id
    def UserScramCredentialRecord(self, r): self.scram[r.mechanism, r.name] = r.iterations
    def RemoveUserScramCredentialRecord(self, r): del self.scram[r.mechanism, r.name]
    def AccessControlEntryRecord(self, r): self.acls[r.id] = r.principal
    def RemoveAccessControlEntryRecord(self, r): del self.acls[r.id]
    def DelegationTokenRecord(self, r): self.tokens[r.token_id] = r.owner
    def RemoveDelegationTokenRecord(self, r): del self.tokens[r.token_id]


def fold(entries) -> Plain:
    "All records in order; those of a transaction when it ends."
    plain, collected = Plain(), None
    for entry in entries:
        if entry.record is None: continue
        if isinstance(entry.record, BeginTransactionRecord): collected = []
        elif isinstance(entry.record, AbortTransactionRecord): collected = None
        elif isinstance(entry.record, EndTransactionRecord):
            for record in collected: plain.apply(record)
            collected = None
        elif collected is not None: collected.append(entry.record)
        else: plain.apply(entry.record)
    return plain


# --- Logs that nobody wrote -------------------------------------------------------------------------------------------

Entry = namedtuple('Entry', 'record name value')   # record: None if the package can't know it
Written = namedtuple('Written', 'base last raw entries')   # a batch, and what is in it

small = st.sampled_from
replica_lists, directory_ids = small([[1], [2], [1, 2], [2, 1], [1, 2, 3],
                                      [3, 4, 5]]), small([bytes([n]) * 16 for n in (10, 11, 12)])
tags = st.dictionaries(st.integers(20, 300), st.binary(max_size=3), min_size=1, max_size=2)
unknown_tags = st.one_of(st.none(), st.none(), st.none(), tags)   # mostly none
endpoint = st.builds(BrokerEndpoint, name=small(['PLAINTEXT', 'OTHER']), host=st.text(max_size=5),
                     port=st.integers(0, 65535))
endpoints, dirs = st.lists(endpoint, max_size=2), st.lists(directory_ids, max_size=2)
names, principals, ids = small(['a', 'b', 'ö', 'a.b']), small(['User:a',
                                                               'User:ö']), small([bytes([n]) * 16 for n in range(20,
                                                                   23)])
DIRECTORIES_FROM, ELR_FROM = 1, 2   # the versions of partition records from which on they speak of these

def changes(now, topic_id, partition_id, version):
    "Changes of a partition, with any of the tagged fields; directories whenever a controller would have written them."
    state = now.topics[topic_id]['partitions'][partition_id]
    placed = set(state['directories']) - {MIGRATING}
    def fields(replicas, says_directories, directories, rest):
        if placed and version < DIRECTORIES_FROM: replicas = None
        count = len(replicas or state['replicas'])
        told = version >= DIRECTORIES_FROM and (says_directories or placed and replicas is not None)
        return PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id, replicas=replicas,
                                     directories=directories[:count] if told else None, **rest)
    maybe = st.none() | st.just([]) | replica_lists
    rest = dict(isr=maybe, leader=st.integers(-2, 3), removing_replicas=maybe, adding_replicas=maybe,
                leader_recovery_state=st.integers(-1, 1), unknown_tags=unknown_tags)
    if version >= ELR_FROM: rest |= dict(eligible_leader_replicas=maybe, last_known_elr=maybe)
    return st.builds(fields, st.none() | replica_lists, st.booleans(), st.lists(directory_ids, min_size=3, max_size=3),
                     st.fixed_dictionaries({}, optional=rest))

def births(topic_id, version):
    def fields(replicas, directories, **rest):
        told = directories[:len(replicas)] if version >= DIRECTORIES_FROM else []
        return PartitionRecord(topic_id=topic_id, replicas=replicas, directories=told, **rest)
    # so that many records begin alike, and few have tags
    few, seldom = small([[1], [1, 2, 3]]), small([None] * 5 + [[1], [2, 3]])
    elr = dict(eligible_leader_replicas=seldom, last_known_elr=seldom) if version >= ELR_FROM else {}
    return st.builds(fields, few, small([[], [bytes([10]) * 16] * 3]), partition_id=st.integers(0, 2), isr=few,
                     leader=st.integers(-1, 2), leader_epoch=small([0, 7]), partition_epoch=small([0, 9]),
                     leader_recovery_state=small([0] * 5 + [1]), unknown_tags=unknown_tags, **elr)

def others(now):
    "Records about anything but topics and partitions: pairs of a strategy and a version."
    builds, just = st.builds, st.just
    entity = builds(EntityData, entity_type=small(['user', 'ip']), entity_name=st.none() | names)
    found = [
        (builds(RegisterBrokerRecord, broker_id=st.integers(1, 3), broker_epoch=st.integers(0, 99),
                end_points=endpoints,
                rack=small([None, 'r']), fenced=st.booleans(), in_controlled_shutdown=st.booleans(), log_dirs=dirs,
                unknown_tags=unknown_tags), 3),
        (builds(ConfigRecord, resource_type=small([2, 4, 32]), resource_name=names, name=small('xy'),
                value=small([None, '', '1'])), 0),
        (builds(FeatureLevelRecord, name=names, feature_level=st.integers(0, 3)), 0),
        (builds(ProducerIdsRecord, next_producer_id=st.integers(0, 2**63 - 1)), 0),
        (builds(ClientQuotaRecord, entity=st.lists(entity, min_size=1, max_size=2, unique_by=lambda e: e.entity_type),
                key=small('kl'),
                value=st.floats(allow_nan=False), remove=st.booleans()), 0),
        (builds(UserScramCredentialRecord, name=names, mechanism=st.integers(1, 2), salt=st.binary(max_size=3),
                iterations=st.integers(1, 9)), 0),
        (builds(AccessControlEntryRecord, id=ids, principal=names), 0),
        (builds(DelegationTokenRecord, owner=principals, requester=principals,
                renewers=st.lists(principals, max_size=2),
                token_id=names), 0),
        (builds(RegisterControllerRecord, controller_id=st.integers(1, 2), incarnation_id=ids, end_points=endpoints),
         0),
        (builds(NoOpRecord, unknown_tags=unknown_tags), 0),
        (builds(ZkMigrationStateRecord), 0)]
    found += [(just(RemoveUserScramCredentialRecord(mechanism=mechanism, name=name)), 0) for mechanism,
              name in now.scram]
    found += [(just(RemoveAccessControlEntryRecord(id=i)), 0) for i in now.acls]
    found += [(just(RemoveDelegationTokenRecord(token_id=i)), 0) for i in now.tokens]
    for i, epoch in [(i, broker['epoch']) for i, broker in now.brokers.items()]:
        found += [(builds(BrokerRegistrationChangeRecord, broker_id=just(i), broker_epoch=just(epoch),
                          fenced=st.integers(-1, 1),
                          in_controlled_shutdown=st.integers(0, 1), log_dirs=dirs, unknown_tags=unknown_tags), 2),
                  (just(UnregisterBrokerRecord(broker_id=i, broker_epoch=epoch)), 0),
                  (just(FenceBrokerRecord(id=i, epoch=epoch)), 0),
                  (just(UnfenceBrokerRecord(id=i, epoch=epoch)), 0)]
    return found

# Of a later Kafka, or of none: a type that we don't know, a version that we don't know, an envelope that we don't know.
known_types, rest = small([2, 3, 5]), st.binary(max_size=9)
strangers = st.one_of(st.tuples(st.just(1), st.integers(29, 400), st.integers(0, 300), rest),
                      st.tuples(st.just(1), known_types, st.integers(3, 9), rest),
                      st.tuples(st.integers(2, 3), known_types, st.just(0), rest))

def stranger_entry(frame, kind, version, rest) -> Entry:
    name = RECORD_TYPES[kind].__name__ if kind in RECORD_TYPES else f'unknown type {kind}'
    frame_name = f'frame version {frame} ' if frame != 1 else ''
    envelope = b''.join(map(UnsignedVarint.write, (frame, kind, version)))
    return Entry(None, f'{frame_name}{name} v{version}', envelope + rest)


@st.composite
def histories(draw, most=30):
    "Records as a controller could have written them, one after the other; the last transaction may be open."
    committed, shadow, entries, made = Plain(), None, [], 0
    for _ in range(draw(st.integers(0, most))):
        now = shadow or committed
        partitions = [(topic_id, n) for topic_id, topic in now.topics.items() for n in topic['partitions']]
        free = [name for name in ('a', 'b', 'c') if name not in [topic['name'] for topic in now.topics.values()]]
        kinds = ['other', 'other', 'stranger'] + (['end', 'end', 'abort'] if shadow else ['begin'])
        if free: kinds += ['topic']
        if now.topics: kinds += ['partition'] * 6 + ['clear', 'remove']
        if partitions: kinds += ['change'] * 8
        kind = draw(small(kinds))
        version = draw(st.integers(0, 2)) if kind in ('partition', 'change') else 0
        if kind == 'stranger':
            entries.append(stranger_entry(*draw(strangers)))
            continue
        if kind == 'topic':
            made += 1
            record = TopicRecord(name=draw(small(free)), topic_id=bytes([made]) * 16, unknown_tags=draw(unknown_tags))
        elif kind == 'remove': record = RemoveTopicRecord(topic_id=draw(small(sorted(now.topics))))
        elif kind == 'partition': record = draw(births(draw(small(sorted(now.topics))), version))
        elif kind == 'change': record = draw(changes(now, *draw(small(partitions)), version))
        elif kind == 'clear':
            record = ClearElrRecord(topic_name=draw(small(['', *(topic['name'] for topic in now.topics.values())])))
        elif kind == 'begin':
            record, shadow = BeginTransactionRecord(name=draw(small([None, 'x']))), copy.deepcopy(committed)
        elif kind == 'end': record, committed, shadow = EndTransactionRecord(), shadow, None
        elif kind == 'abort': record, shadow = AbortTransactionRecord(reason=draw(small([None, 'x']))), None
        else:
            strategy, version = draw(small(others(now)))
            record = draw(strategy)
        if kind not in ('begin', 'end', 'abort'): now.apply(record)
        entries.append(Entry(record, f'{type(record).__name__} v{version}', write_value(record, version)))
    return entries


def batch_of(entries, base: int, attributes: int = 0, epoch: int = 0, key=None) -> Written:
    records = [Record(offset_delta=i, timestamp_delta=i * 100, key=key, value=entry.value) for i,
               entry in enumerate(entries)]
    raw = write_batch(records, base_offset=base, attributes=attributes, partition_leader_epoch=epoch,
                      base_timestamp=1_700_000_000_000)
    return Written(base, base + len(entries) - 1, raw, entries)

def control_batch(kind: int, message, base: int) -> Written:
    record = Record(key=ControlKey(type=kind).encode(0), value=message.encode(0))
    return Written(base, base, write_batch([record], base_offset=base, attributes=CONTROL), [])


@st.composite
def logs(draw, most=30):
    """A history in batches of any size, some of them compressed, control batches between them, in segments of any size:
    lists of batches."""
    entries, base, segments = draw(histories(most)), 0, [[]]
    while entries:
        if draw(st.integers(0, 5)) == 0:
            segments[-1].append(control_batch(2, LeaderChangeMessage(leader_id=1), base))
            base += 1
        size = draw(st.integers(1, 8))
        codec, key = draw(small([0, 0, 0, GZIP])), draw(small([None, None, None, b'k' * 70]))
        segments[-1].append(batch_of(entries[:size], base, attributes=codec, epoch=draw(st.integers(0, 2)), key=key))
        entries, base = entries[size:], base + min(size, len(entries))
        if draw(st.integers(0, 3)) == 0: segments.append([])
    return segments

def entries_of(batches): return [entry for batch in batches for entry in batch.entries]
def flat(segments): return [batch for segment in segments for batch in segment]


class Directory:
    "A log directory that lasts as long as a `with`."
    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = Path(self.temporary.name)/METADATA
        self.path.mkdir()
        return self
    def __exit__(self, *_): self.temporary.cleanup()
    def write(self, segments, base: int = 0):
        "A file for each segment, named by the offset of its first batch, or by where one would go on."
        for segment in segments:
            (self.path/f'{segment[0].base if segment else base:020}.log').write_bytes(b''.join(batch.raw for batch
                in segment))
            base = segment[-1].last + 1 if segment else base


def snapshot(plain: Plain) -> list[Entry]:
    "The records of a checkpoint: everything that is, nothing that was."
    records = [(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in plain.features.items()]
    for topic_id, topic in plain.topics.items():
        records.append((TopicRecord(name=topic['name'], topic_id=topic_id), 0))
        records += [(PartitionRecord(topic_id=topic_id, partition_id=n, **state), 2) for n,
                    state in topic['partitions'].items()]
    for broker_id, b in plain.brokers.items():
        points = [BrokerEndpoint(name=name, host=host, port=port) for name, host, port in b['end_points']]
        records.append((RegisterBrokerRecord(broker_id=broker_id, broker_epoch=b['epoch'], fenced=b['fenced'],
                                             in_controlled_shutdown=b['leaving'], rack=b['rack'],
                                             log_dirs=b['log_dirs'], end_points=points), 3))
    for (kind, name, key), value in plain.configs.items():
        records.append((ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value), 0))
    for (entity, key), value in plain.quotas.items():
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        records.append((ClientQuotaRecord(entity=parts, key=key, value=value), 0))
    for (mechanism, name), n in plain.scram.items():
        records.append((UserScramCredentialRecord(mechanism=mechanism, name=name, iterations=n), 0))
    records += [(AccessControlEntryRecord(id=i, principal=principal), 0) for i, principal in plain.acls.items()]
    records += [(DelegationTokenRecord(token_id=i, owner=owner), 0) for i, owner in plain.tokens.items()]
    records += [(RegisterControllerRecord(controller_id=i, incarnation_id=incarnation), 0) for i,
                incarnation in plain.controllers.items()]
    records += [(ProducerIdsRecord(next_producer_id=plain.next_producer_id), 0)]
    return [Entry(record, '', write_value(record, version)) for record, version in records]

def checkpoint(plain: Plain) -> bytes:
    entries = snapshot(plain)
    first, last = control_batch(3, SnapshotHeaderRecord(), 0), control_batch(4, SnapshotFooterRecord(),
        1 + len(entries))
    return first.raw + batch_of(entries, 1).raw + last.raw

def in_transaction(entries) -> bool:
    marks = BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord
    return [type(entry.record) for entry in entries if isinstance(entry.record, marks)][-1:] == [BeginTransactionRecord]


# --- When logs are not as they should be ------------------------------------------------------------------------------

TOPIC, OTHER = bytes([1]) * 16, bytes([2]) * 16

def topic(name, topic_id): return write_value(TopicRecord(name=name, topic_id=topic_id), 0)
def removal(topic_id): return write_value(RemoveTopicRecord(topic_id=topic_id), 0)
def change(topic_id=TOPIC, partition_id=0, version=2, **fields):
    return write_value(PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id, **fields), version)

A_TOPIC, A_CHANGE = topic('a', TOPIC), change(leader=2)
A_PARTITION = write_value(PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=[1, 2, 3], isr=[1], leader=1,
                                          leader_epoch=5,
                                          partition_epoch=7, directories=[bytes([n]) * 16 for n in (10, 11, 12)]), 2)
KEY_ENDS = 23   # of a partition record or change: the envelope, partition_id and topic_id

def raw_batch(base, *values): return batch_of([Entry(None, '', value) for value in values], base)


NONSENSE = {
    'a topic that was never made is removed': removal(OTHER),
    'a partition of such a topic': write_value(PartitionRecord(topic_id=OTHER), 0),
    'a change in such a topic': change(OTHER),
    'a change of a partition that was never made': change(partition_id=9),
    'ELR of a topic that was never made': write_value(ClearElrRecord(topic_name='never made'), 0),
    'a broker that never registered is fenced': write_value(FenceBrokerRecord(id=9), 0),
    'and changed': write_value(BrokerRegistrationChangeRecord(broker_id=9), 0),
    'nothing': b'', 'half an envelope': b'\x01', 'most of an envelope': b'\x01\x02', 'an endless envelope': b'\xff' * 9,
    'a topic, cut off': A_TOPIC[:-1], 'a partition, cut off early': A_PARTITION[:10],
    'a partition, cut off late': A_PARTITION[:-1],
    'the envelope of a change': A_CHANGE[:3], 'a change, cut off early': A_CHANGE[:9],
    'a change, cut off late': A_CHANGE[:-1],
    'a leader in one byte': A_CHANGE[:KEY_ENDS] + bytes([1, 1, 1, 0]),
    'a recovery state in four bytes': A_CHANGE[:KEY_ENDS] + bytes([1, 5, 4, 0, 0, 0, 0]),
    'an empty list in five bytes': A_CHANGE[:KEY_ENDS] + bytes([1, 0, 5, 1, 0, 0, 0, 0]),
    'a list that is longer than the record': A_CHANGE[:KEY_ENDS] + bytes([1, 0, 9, 2, 0, 0, 0, 1]),
}


@st.composite
def damaged(draw, most=6):
    "The values of a history with a few bytes altered, left out or added."
    values = [bytearray(entry.value) for entry in draw(histories(most))] or [bytearray(b'\x01')]
    for _ in range(draw(st.integers(1, 3))):
        value = values[draw(st.integers(0, len(values) - 1))]
        at = draw(st.integers(0, len(value)))
        value[at:at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return [bytes(value) for value in values]


raw_fields = small([b'\x01', b'\x00', b'\x02\0\0\0\1', b'\0\0\0\1', b'\x02' + bytes(16), b'\x01\0'])
tails = st.lists(st.tuples(st.integers(0, 9), raw_fields), max_size=3)


BEGIN, END = write_value(BeginTransactionRecord(), 0), write_value(EndTransactionRecord(), 0)
