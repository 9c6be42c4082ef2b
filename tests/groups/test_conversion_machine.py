"""Whatever happens to a group with members of both protocols, in whatever order: no partition is read by two, a group
is of the kind that its members need, and a restart finds it as it was. In the end the group comes to rest."""
import itertools
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from size import budget
from classic_reader import ClassicReader
from consumer_group_stage import Reader, Stage
from kafka_scratch.groups import classic_apis, classic_members
from kafka_scratch.groups.classic import STABLE
from kafka_scratch.groups.consumer import LEAVE_EPOCH, facts
from kafka_scratch.wire.codes import ErrorCode

WISHES = st.sampled_from([['a'], ['a'], ['b'], ['a', 'b']])
SETTINGS = 'group.initial.rebalance.delay.ms=0'
EXPECTED = {-2, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.MEMBER_ID_REQUIRED,
            ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNRELEASED_INSTANCE_ID}


class Groups(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.stage, self.readers, self.made = Stage(SETTINGS), [], 0
        ids = itertools.count(1)   # not random, so that a failure can be played again
        def new_id(): return next(ids).to_bytes(16, 'big')
        self.patches = [mock.patch.object(classic_members, 'new_id', new_id),
                        mock.patch.object(classic_apis, 'generate_member_id', lambda name: f'{name}-{next(ids)}')]
        for patch in self.patches: patch.start()
        for name in 'ab': self.stage.make(name, 3)

    @property
    def group(self): return self.stage.groups.groups.get('g')

    def step(self, reader):
        reader.stage = self.stage
        error = reader.step() if isinstance(reader, ClassicReader) else reader.beat().error_code
        assert error in EXPECTED, error
        return error

    def come(self, reader, name, times=1):
        "A name belongs to one process at a time: the one that had it is dead."
        def named(each): return each.instance_id if isinstance(each, ClassicReader) else each.more.get('instance_id')
        self.readers = [each for each in self.readers if name is None or named(each) != name] + [reader]
        for _ in range(times): self.step(reader)

    # what members do

    @rule(topics=WISHES, slow=st.booleans(), name=st.sampled_from([None, None, 'i']))
    def a_newer_one_joins(self, topics, slow, name):
        self.made += 1
        reader = Reader(self.stage, f'm{self.made}', *topics, slow=slow, **{'instance_id': name} if name else {})
        self.come(reader, name)

    @rule(topics=WISHES, cooperative=st.booleans(), name=st.sampled_from([None, None, 'i']), times=st.integers(1, 4))
    def a_classic_one_joins(self, topics, cooperative, name, times):
        self.made += 1
        reader = ClassicReader(self.stage, f'c{self.made}', *topics, cooperative=cooperative, instance_id=name)
        self.come(reader, name, times)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), times=st.integers(1, 4))
    def one_goes_on(self, data, times):
        reader = data.draw(st.sampled_from(self.readers))
        for _ in range(times): self.step(reader)

    @rule(times=st.integers(1, 3))
    def all_go_on(self, times):
        for reader in self.readers * times: self.step(reader)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def lets_go(self, data):
        reader = data.draw(st.sampled_from(self.readers))
        if isinstance(reader, Reader): reader.obey()

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leaves(self, data):
        reader = data.draw(st.sampled_from(self.readers))
        reader.stage = self.stage
        if isinstance(reader, Reader): error = reader.beat(epoch=LEAVE_EPOCH).error_code
        else: error = reader.leave().error_code
        if error != ErrorCode.NOT_COORDINATOR: self.readers.remove(reader)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def dies(self, data): self.readers.remove(data.draw(st.sampled_from(self.readers)))

    # what happens around them

    @rule(ms=st.sampled_from([1, 100, 4_000, 12_000, 50_000]))
    def time_passes(self, ms): self.stage.pass_time(ms)

    @rule(name=st.sampled_from('ab'), partitions=st.integers(3, 5))
    def topic_grows(self, name, partitions): self.stage.make(name, partitions)

    @rule(failing=st.booleans())
    def disk_fails(self, failing): self.stage.log.failing = failing

    @rule()
    def broker_restarts(self):
        before = self.group
        self.stage.log.failing = False
        self.stage = self.stage.restart()
        if before is not None: assert self.group.kind == before.kind
        for reader in self.readers: reader.waiting = None   # its connection is gone

    # what is always so

    def names(self, reader) -> set:
        "What a reader reads, by the names of topics."
        by_id = {topic.topic_id: name for name, topic in self.stage.image.topics.items()}
        return {(by_id.get(topic, topic), n) for topic, n in reader.has or ()}

    @invariant()
    def no_partition_is_read_twice(self):
        """Of those who still belong to the group: who was removed has been told, or will be. (A classic one that was
        removed, doesn't know, and joins a consumer group with its old id, hears of it when it syncs.)"""
        if self.group is None: return
        inside = [reader for reader in self.readers if reader.id in self.group.members
                  and not (isinstance(reader, ClassicReader) and reader.next == 'sync')]
        if self.group.kind == 'consumer':
            def epochs(member): return member.member_epoch, member.previous_member_epoch
            inside = [reader for reader in inside if reader.epoch in epochs(self.group.members[reader.id])]
        else: inside = [reader for reader in inside if reader.epoch == self.group.generation]
        read = [partition for reader in inside for partition in self.names(reader)]
        assert len(read) == len(set(read)), [(reader.id, reader.epoch, self.names(reader)) for reader in inside]

    @invariant()
    def a_group_is_of_the_kind_that_its_members_need(self):
        if self.group is None or self.group.kind == 'classic' or not self.group.members: return
        assert not all(member.use_classic_protocol for member in self.group.members.values())
        assert {id for what, id in self.group.timers if what == 'session'} == set(self.group.members)
        owned = [partition for member in self.group.members.values() for partition in member.owned_partitions]
        assert len(owned) == len(set(owned)) == len(self.group.owners)

    @invariant()
    def a_restart_changes_nothing(self):
        if self.group is None: return
        found = self.stage.restart().groups.groups.get('g')
        assert found is not None and found.kind == self.group.kind
        if found.kind == 'consumer': assert facts(found) == facts(self.group)
        elif self.group.state == STABLE:
            assert list(found.members) == list(self.group.members) and found.generation == self.group.generation

    def teardown(self):
        for patch in self.patches: patch.stop()
        self.comes_to_rest()

    def comes_to_rest(self):
        "The disk works, all are quick, and somebody comes and goes: all that is wanted is read."
        self.stage.log.failing = False
        for reader in self.readers: reader.slow = False
        guest = Reader(self.stage, 'guest', 'a')
        self.step(guest), self.stage.pass_time(1)
        guest.beat(epoch=LEAVE_EPOCH)
        for _ in range(40):
            for reader in self.readers: self.step(reader)
            self.stage.pass_time(1_500)   # in a minute those who died are missed
        for reader in self.readers * 4: self.step(reader)
        inside = [reader for reader in self.readers if self.group and reader.id in self.group.members]
        if not inside: return
        newer = any(isinstance(reader, Reader) for reader in inside)
        assert (self.group.kind, self.group.state) == ('consumer' if newer else 'classic', 'Stable')
        read = [partition for reader in inside for partition in self.names(reader)]
        topics = {name for reader in inside for name in reader.topics}
        wanted = {(name, n) for name in topics for n in self.stage.image.topics[name].states}
        assert sorted(read) == sorted(wanted)


Groups.TestCase.settings = budget(40, stateful_step_count=40, deadline=None, report_multiple_bugs=False)
TestGroups = Groups.TestCase
