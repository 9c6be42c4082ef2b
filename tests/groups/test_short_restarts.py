"""A start reads the records that still count: whatever has happened, it comes to the same as every record in order, and
it makes no difference whether the cleaner was there."""
import random
from types import SimpleNamespace

import pytest

import kafka_scratch.groups.classic_log  # noqa: F401 (it registers how its records are replayed)
from kafka_scratch.groups.classic_messages import GroupMetadataValue, MemberMetadata
from kafka_scratch.groups.consumer import facts
from kafka_scratch.groups.consumer_records import (
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue, ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue, ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue, TopicPartitions)
from kafka_scratch.groups.coordinator import GroupCoordinator, Timers, load_live, load_record, write_key, write_state
from kafka_scratch.groups.offsets import (
    GroupMetadataKey, LegacyOffsetCommitKey, LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue)
from kafka_scratch.log.cleanable import cleanable
from kafka_scratch.log.clean_log import clean_log
from kafka_scratch.log.live_records import live_records
from kafka_scratch.log.offset_map import OffsetMap
from kafka_scratch.log.partition import LogConfig, append, roll
from kafka_scratch.log.records import CONTROL, TRANSACTIONAL, Batch, Record, read_records, write_batch
from kafka_scratch.log.control_records import ControlKey
from kafka_scratch.log.recovery import close_log, open_log

GROUPS, MEMBERS, PRODUCERS = ('a', 'b', 'c', 'd'), ('m0', 'm1', 'm2'), (7, 8, 9)
TOPIC_ID = bytes(15) + b'\1'


def coordinator() -> GroupCoordinator:
    return GroupCoordinator(SimpleNamespace(topic='__consumer_offsets'), Timers(), lambda: 0)


def state_of(found: GroupCoordinator) -> dict:
    """All that a coordinator knows. (A name under which nothing is left doesn't count: it is there after every record
    was replayed, and a cleaned log doesn't have it.)"""
    def classic(group):
        members = {id: (each.instance_id, each.client_id, each.assignment, each.protocols, each.session_timeout_ms)
                   for id, each in group.members.items()}
        return (group.state, group.generation, group.protocol_type, group.protocol_name, group.leader,
                group.current_state_timestamp, members)
    groups = {name: (*facts(group), group.has_subscription_metadata_record) if group.kind == 'consumer'
              else classic(group) for name, group in found.groups.items()}
    return dict(groups=groups, offsets={name: offsets for name, offsets in found.offsets.items() if offsets},
                pending={owner: waiting for owner, waiting in found.pending.items() if waiting})


class History:
    "A log of groups, written as a coordinator does it, and a coordinator that has seen every record of it."
    def __init__(self, directory, chance: random.Random):
        self.chance, self.number, self.seen = chance, 0, coordinator()
        self.config = LogConfig(cleanup_policy='compact', delete_retention_ms=chance.choice((0, 50, 10**9)))
        self.log, self.clean = open_log(str(directory/'__consumer_offsets-0'), self.config), None

    def write(self, pairs, producer_id=-1, attributes=0, epoch=0):
        self.number += 1
        transaction = dict(producer_id=producer_id, producer_epoch=epoch, attributes=TRANSACTIONAL | attributes)
        records = [Record(offset_delta=n, key=key if isinstance(key, bytes) else write_key(key),
                          value=value if isinstance(value, bytes) else write_state(value))
                   for n, (key, value) in enumerate(pairs)]
        batch = bytearray(write_batch(records, base_timestamp=self.number, max_timestamp=self.number,
                                      **transaction if producer_id >= 0 else {}))
        append(self.log, batch, Batch(batch).header, 0, self.number)
        batch = Batch(bytes(batch))
        for record in read_records(batch): load_record(self.seen, 0, batch, record)

    def some_offset(self, topics='xy') -> dict:
        topic = self.chance.choice(topics)
        return dict(group=self.chance.choice(GROUPS), topic=topic, partition=self.chance.randrange(2))
    def value(self): return OffsetCommitValue(offset=self.number, metadata='', commit_timestamp=self.number)

    def commit(self):
        count = self.chance.choice((1, 1, 3))
        self.write([(OffsetCommitKey(**self.some_offset()), self.value()) for _ in range(count)])
    def commit_as_long_ago(self):
        self.write([(LegacyOffsetCommitKey(**self.some_offset('z')),   # nobody writes both forms about one partition
                     LegacyOffsetCommitValue(offset=self.number, metadata='', commit_timestamp=self.number))])
    def forget(self):
        kinds = (OffsetCommitKey, 'xy'), (OffsetCommitKey, 'xy'), (LegacyOffsetCommitKey, 'z')
        kind, topics = self.chance.choice(kinds)
        self.write([(kind(**self.some_offset(topics)), None)])
    def commit_in_transaction(self):
        self.write([(OffsetCommitKey(**self.some_offset()), self.value())], self.chance.choice(PRODUCERS))
    def end_transaction(self):
        key = ControlKey(type=self.chance.randrange(2)).encode(0)
        self.write([(key, bytes(6))], self.chance.choice(PRODUCERS), CONTROL)

    def classic_value(self):
        members = [MemberMetadata(member_id=id, client_id='c', client_host='h', session_timeout=self.number,
                                  rebalance_timeout=1, subscription=b's', assignment=b'%d' % self.number)
                   for id in MEMBERS if self.chance.random() < 0.4]
        return write_state(GroupMetadataValue(protocol_type='consumer', generation=self.number, protocol='range',
                                              leader=members[0].member_id if members else None,
                                              current_state_timestamp=self.number, members=members), 3)
    def tombstones(self, name: str) -> list:
        return self.seen.groups[name].tombstones() if name in self.seen.groups else []
    def kind(self, name: str): return self.seen.groups[name].kind if name in self.seen.groups else None

    def change_classic(self):
        name = self.chance.choice(GROUPS)
        gone = self.tombstones(name) if self.kind(name) == 'consumer' else []   # it was converted
        self.write([*gone, (GroupMetadataKey(group=name), self.classic_value())])
    def delete(self):
        name = self.chance.choice(GROUPS)
        self.write(self.tombstones(name) or [(GroupMetadataKey(group=name), None)])

    def change_member(self):
        name, member, number = self.chance.choice(GROUPS), self.chance.randrange(len(MEMBERS)), self.number
        gone = self.tombstones(name) if self.kind(name) == 'classic' else []
        id, mine = dict(group_id=name, member_id=MEMBERS[member]), [p for p in range(9) if p % 3 == member]
        def some(): return [TopicPartitions(topic_id=TOPIC_ID, partitions=self.chance.sample(mine, 2))]
        written = [
            (ConsumerGroupMemberMetadataKey(**id), ConsumerGroupMemberMetadataValue(
                client_id='c', client_host='h', subscribed_topic_names=['x'], rebalance_timeout_ms=number,
                subscribed_topic_regex='x.*', classic_member_metadata=None)),
            (ConsumerGroupMetadataKey(group_id=name), ConsumerGroupMetadataValue(epoch=number, metadata_hash=number)),
            (ConsumerGroupTargetAssignmentMemberKey(**id),
             ConsumerGroupTargetAssignmentMemberValue(topic_partitions=some())),
            (ConsumerGroupTargetAssignmentMetadataKey(group_id=name),
             ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=number)),
            (ConsumerGroupCurrentMemberAssignmentKey(**id), ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=number, previous_member_epoch=number - 1, state=0, assigned_partitions=some(),
                partitions_pending_revocation=[]))]
        if self.kind(name) == 'consumer' and MEMBERS[member] in self.seen.groups[name].members:   # only a part of that
            written = sorted(self.chance.sample(written, self.chance.randrange(1, 5)), key=written.index)
        self.write([*gone, *written])
    def remove_member(self):
        name = self.chance.choice(GROUPS)
        known = list(self.seen.groups[name].members) if self.kind(name) == 'consumer' else []
        if not known: return
        id = dict(group_id=name, member_id=self.chance.choice(known))
        self.write([(key(**id), None) for key in (ConsumerGroupCurrentMemberAssignmentKey,
                    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupMemberMetadataKey)])
    def resolve(self):
        name = self.chance.choice(GROUPS)
        if self.kind(name) != 'consumer': return
        key = ConsumerGroupRegularExpressionKey(group_id=name, regular_expression='x.*')
        value = ConsumerGroupRegularExpressionValue(topics=['x'], version=self.number, timestamp=self.number)
        old = (ConsumerGroupPartitionMetadataKey(group_id=name), ConsumerGroupPartitionMetadataValue(topics=[]))
        self.write([self.chance.choice(((key, value), (key, None), old, (old[0], None)))])

    def keep_in_order(self):
        "The log rolls, or is cleaned."
        if self.log.active.size: roll(self.log, self.number)
        if self.chance.random() < 0.5 and cleanable(self.log, self.clean, self.number).dirty_bytes:
            self.clean = clean_log(self.log, self.clean, OffsetMap(1 << 14), self.number)

    def step(self):
        names = ('commit commit commit_as_long_ago forget commit_in_transaction commit_in_transaction end_transaction '
                 'end_transaction change_classic delete change_member change_member remove_member resolve').split()
        getattr(self, self.chance.choice(names))()


def loaded(log) -> dict:
    found = coordinator()
    for record in live_records(log): load_live(found, 0, record)
    return state_of(found)


@pytest.mark.parametrize('cleans', [False, True])
@pytest.mark.parametrize('seed', range(5))
def test_the_same_as_every_record_in_order(tmp_path, seed, cleans):
    history = History(tmp_path, random.Random(seed))
    for number in range(400):
        history.step()
        if cleans and number % 10 == 9: history.keep_in_order()
        if number % 5 == 0: assert loaded(history.log) == state_of(history.seen), number
    close_log(history.log)
    assert loaded(open_log(history.log.directory, history.config)) == state_of(history.seen)
    if cleans: assert history.clean
