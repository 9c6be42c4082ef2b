"""Whatever happens to a consumer group, in whatever order: no partition has two owners, and nothing is forgotten.

Members join, leave, fall silent, are slow to let go, lose answers; topics appear, grow and vanish; the broker
restarts; the disk is full. In the end the group comes to rest.
"""
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from size import budget
from consumer_group_stage import Reader, Stage
from kafka_scratch.groups.consumer import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, UNREVOKED_PARTITIONS, facts
from kafka_scratch.wire.codes import ErrorCode

TOPICS = ['a', 'b', 'c', 'd.1']
WISHES = st.sampled_from([['a'], ['b'], ['a', 'b'], ['a', 'b', 'c'], [], ['nobody']])
EXPECTED = {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR}


class Groups(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.stage, self.readers, self.made, self.epochs = Stage(), [], 0, (0, 0)
        for name in TOPICS[:2]: self.stage.make(name, 2)

    @property
    def group(self): return self.stage.groups.groups.get('g')

    def beat(self, reader, **said):
        reader.stage = self.stage
        answer = reader.beat(**said)
        assert answer.error_code in EXPECTED, (answer.error_code, answer.error_message)
        if answer.error_code:
            assert (bool(answer.error_message) == (answer.error_code != ErrorCode.NOT_COORDINATOR)
                    and answer.assignment is None)
        return answer

    # what members do

    @rule(topics=WISHES, slow=st.booleans(), assignor=st.sampled_from([None, None, 'range', 'uniform']),
          pattern=st.sampled_from([None, None, None, 'd.*', '[ab]']), patience=st.sampled_from([5_000, 60_000]))
    def joins(self, topics, slow, assignor, pattern, patience):
        self.made += 1
        reader = Reader(self.stage, f'm{self.made % 10}-{self.made}', *topics, slow=slow, server_assignor=assignor,
                        subscribed_topic_regex=pattern, rebalance_timeout_ms=patience)
        self.readers.append(reader)
        self.beat(reader)

    @rule(name=st.sampled_from(['one', 'two']), topics=WISHES)
    def joins_with_a_name(self, name, topics):
        self.made += 1
        reader = Reader(self.stage, f's{self.made}', *topics, instance_id=name)
        if self.beat(reader).error_code == ErrorCode.NONE: self.readers.append(reader)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), times=st.integers(1, 3))
    def beats(self, data, times):
        reader = data.draw(st.sampled_from(self.readers))
        for _ in range(times): self.beat(reader)

    @rule()
    def all_beat(self):
        for reader in self.readers: self.beat(reader)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def lets_go(self, data):
        reader = data.draw(st.sampled_from(self.readers))
        reader.obey()

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def loses_an_answer(self, data):
        reader = data.draw(st.sampled_from(self.readers))
        before = reader.epoch, reader.has, reader.should
        if self.beat(reader).error_code == ErrorCode.NONE:
            (reader.epoch, reader.has, reader.should), reader.unsure = before, True

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), topics=WISHES)
    def wants_something_else(self, data, topics):
        reader = data.draw(st.sampled_from(self.readers))
        reader.topics = topics
        self.beat(reader, subscribed_topic_names=topics)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leaves(self, data):
        reader = data.draw(st.sampled_from(self.readers))
        if self.beat(reader, epoch=LEAVE_EPOCH).error_code != ErrorCode.NOT_COORDINATOR: self.readers.remove(reader)

    @precondition(lambda self: any('instance_id' in reader.more for reader in self.readers))
    @rule(data=st.data())
    def goes_for_a_moment(self, data):
        reader = data.draw(st.sampled_from([reader for reader in self.readers if 'instance_id' in reader.more]))
        answer = self.beat(reader, epoch=LEAVE_STATIC_EPOCH)
        if answer.error_code != ErrorCode.NOT_COORDINATOR: self.readers.remove(reader)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def dies(self, data): self.readers.remove(data.draw(st.sampled_from(self.readers)))

    # what happens around them

    @rule(ms=st.sampled_from([1, 100, 4_000, 20_000, 50_000]))
    def time_passes(self, ms): self.stage.pass_time(ms)

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def topic_grows(self, name, partitions): self.stage.make(name, partitions)

    @rule(name=st.sampled_from(TOPICS))
    def topic_vanishes(self, name):
        if name in self.stage.image.topics: self.stage.drop(name)

    @rule()
    def broker_restarts(self):
        before = {id: facts(group) for id, group in self.stage.groups.groups.items()}
        self.stage.log.failing = False
        self.stage = self.stage.restart()
        assert {id: facts(group) for id, group in self.stage.groups.groups.items()} == before

    @rule(failing=st.booleans())
    def disk_fails(self, failing): self.stage.log.failing = failing

    # what is always so

    @invariant()
    def no_partition_has_two_owners(self):
        if self.group is None: return
        members = self.group.members.items()
        owned = [partition for _, member in members for partition in member.owned_partitions]
        assert len(owned) == len(set(owned))
        assert self.group.owners == {partition: id for id, member in members for partition in member.owned_partitions}

    @invariant()
    def no_partition_is_read_twice(self):
        "Of those who still belong to the group: whoever was removed has been told, or will be."
        if self.group is None: return
        alive = [reader for reader in self.readers if reader.has and reader.id in self.group.members]
        def epochs(member): return member.member_epoch, member.previous_member_epoch
        alive = [reader for reader in alive if reader.epoch in epochs(self.group.members[reader.id])]
        read = [partition for reader in alive for partition in reader.has]
        assert len(read) == len(set(read))

    @invariant()
    def epochs_only_grow(self):
        if self.group is None: return
        epochs = group_epoch, target_epoch = self.group.group_epoch, self.group.target_assignment_epoch
        assert all(new >= old for new, old in zip(epochs, self.epochs))
        self.epochs = epochs
        assert target_epoch <= group_epoch
        assert all(member.member_epoch <= group_epoch for member in self.group.members.values())

    @invariant()
    def timers_run_for_members_alone(self):
        if self.group is None: return
        members = self.group.members
        def timed(kind): return {id for what, id in self.group.timers if what == kind}
        assert timed('session') == set(members)
        assert {id for id, each in members.items() if each.state == UNREVOKED_PARTITIONS} <= timed('rebalance')
        assert self.group.target_assignment.keys() <= members.keys()   # who wants nothing needs no target

    @invariant()
    def a_restart_changes_nothing(self):
        if self.group is not None: assert self.stage.restart_facts() == facts(self.group)

    def teardown(self):
        "Everybody is quick from now on, and the disk works: the group comes to rest, and all that is wanted is read."
        self.stage.log.failing = False
        for reader in self.readers: reader.slow = False
        for _ in range(17):
            for reader in self.readers: self.beat(reader)
            self.stage.pass_time(4_000)   # in a minute those who died are missed, and patterns are looked at
        for _ in range(3):
            for reader in self.readers: self.beat(reader)
        if self.group is None: return
        assert self.group.state == ('Stable' if self.readers else 'Empty')
        image, wanted, resolved = self.stage.image, set(), self.group.resolved_regular_expressions
        for member in self.group.members.values():
            regex = member.subscribed_topic_regex
            names = {*member.metadata.subscribed_topic_names, *(resolved[regex].topics if regex else ())}
            topics = [image.topics[name] for name in names if name in image.topics]
            wanted |= {(topic.topic_id, n) for topic in topics for n in topic.states}
        assert set(self.group.owners) == wanted
        members = self.group.members   # a name can be used once only, so not everybody got in
        inside = {reader.id: reader.has for reader in self.readers if reader.id in members}
        assert inside == {id: member.assigned_partitions for id, member in self.group.members.items()}
        for member in self.group.members.values():
            if member.subscribed_topic_regex != 'd.*': continue
            assert set(resolved['d.*'].topics) == {'d.1'} & image.topics.keys()


Groups.TestCase.settings = budget(40, stateful_step_count=40, deadline=None,
                                    report_multiple_bugs=False)
TestGroups = Groups.TestCase
