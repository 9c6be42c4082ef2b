"""A classic group under random clients: they join, leave, fall silent, come back, and the broker crashes and loses its
disk now and then.

The clients behave as real ones do: they join again when they are told to, and whoever leads divides six partitions
among all members. What has to hold:
every partition has exactly one owner whenever the group is stable, generations only grow, every answer comes in time,
and the records written so far
make the same group again.
"""
import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test

from size import budget
from kafka_scratch.groups.coordinator import Pending
from kafka_scratch.wire.codes import ErrorCode
from kafka_scratch.apis.api import Caller
from kafka_scratch.groups import classic, classic_apis
from kafka_scratch.groups.classic import COMPLETING, EMPTY, PREPARING, STABLE, ClassicGroup, GroupConfig, next_due
from kafka_scratch.groups.classic import save, validate_member
from kafka_scratch.groups.classic_log import restore
from kafka_scratch.groups.classic_apis import classic_group_heartbeat, classic_group_join, classic_group_leave
from kafka_scratch.groups.classic_apis import classic_group_sync
from kafka_scratch.groups.classic_messages import HeartbeatRequest, JoinGroupRequest, JoinGroupRequestProtocol
from kafka_scratch.groups.classic_messages import MemberIdentity, SyncGroupRequest, SyncGroupRequestAssignment
from kafka_scratch.log.partition import StorageError

PARTITIONS = range(6)
SESSION_MS, REBALANCE_MS = (6_000, 10_000), (3_000, 8_000)
LATEST_ANSWER_MS = max(REBALANCE_MS)   # a round takes as long as its most patient member


def assignments_of(members: list[str]) -> dict[str, bytes]:
    "The partitions, dealt out like cards."
    return {member: bytes(PARTITIONS[place::len(members)]) for place, member in enumerate(members)}


class Client:
    "A consumer that does what a real one would."
    def __init__(self, name: str, version: int, instance_id: str | None, session_ms: int, rebalance_ms: int):
        self.name, self.version, self.instance_id, self.session_ms, self.rebalance_ms = name, version, instance_id, session_ms, rebalance_ms  # noqa: E501
        self.member_id, self.generation, self.holds, self.waits, self.since, self.wants = '', -1, None, None, 0, b''
        self.phase, self.assignments = 'outside', {}   # outside, joining, joined, syncing, member, fenced

    def act(self, group: ClassicGroup, now: int):
        "The next thing that this client does by itself."
        if self.waits:
            if self.waits.settled:
                dropped = self.waits.result.error_code == ErrorCode.UNKNOWN_MEMBER_ID
                # others can remove who has a name
                assert not dropped or self.instance_id, f'{self.name} waited for an answer, and was dropped'
                self.hear(self.waits.result, group, now)
        elif self.phase == 'outside': self.join(group, now)
        elif self.phase == 'joined': self.sync(group, now)
        elif self.phase == 'member': self.beat(group, now)

    def join(self, group: ClassicGroup, now: int):
        self.phase, self.holds = 'joining', None
        protocols = [JoinGroupRequestProtocol(name=name, metadata=self.wants) for name in ('range', 'sticky')]
        self.expect(classic_group_join(group, JoinGroupRequest(
            group_id='g', session_timeout_ms=self.session_ms, rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id, protocol_type='consumer', protocols=protocols), now, self.version,
            Caller(client_id=self.name)), group, now)

    def expect(self, answer, group: ClassicGroup, now: int):
        if isinstance(answer, Pending): self.waits, self.since = answer, now
        else: self.hear(answer, group, now)

    def hear(self, answer, group: ClassicGroup, now: int):
        self.waits, error = None, answer.error_code
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join(group, now)
        elif error: self.cope(error)
        elif self.phase == 'joining': self.joined(answer)
        else: self.phase, self.holds = 'member', answer.assignment

    def cope(self, error: int):
        self.phase, self.holds = 'outside', None
        if error == ErrorCode.FENCED_INSTANCE_ID: self.phase = 'fenced'
        elif error != ErrorCode.REBALANCE_IN_PROGRESS: self.member_id = ''

    def joined(self, answer):
        self.member_id, self.generation, self.phase = answer.member_id, answer.generation_id, 'joined'
        leads = answer.leader == answer.member_id and not answer.skip_assignment
        self.assignments = assignments_of([member.member_id for member in answer.members]) if leads else {}

    def sync(self, group: ClassicGroup, now: int):
        self.phase = 'syncing'
        given = [SyncGroupRequestAssignment(member_id=member, assignment=assignment) for member,
                 assignment in self.assignments.items()]
        self.expect(classic_group_sync(group, SyncGroupRequest(group_id='g', generation_id=self.generation,
                                                               member_id=self.member_id,
                                                               group_instance_id=self.instance_id, assignments=given),
                                                               now), group, now)

    def beat(self, group: ClassicGroup, now: int):
        error = classic_group_heartbeat(group, HeartbeatRequest(group_id='g', generation_id=self.generation,
                                                                member_id=self.member_id,
                                                                group_instance_id=self.instance_id), now)
        if error: self.cope(error)


WHICH = st.integers(0, 4)
people = precondition(lambda self: self.clients)

class GroupMachine(RuleBasedStateMachine):
    @initialize(delay=st.sampled_from([0, 500]), most=st.sampled_from([3, 100]),
                instances=st.lists(st.sampled_from([None, 'red', 'blue']), min_size=1, max_size=3))
    def begin(self, delay, most, instances):
        self.config, self.now, self.records, self.disk_is_full, self.stale = GroupConfig(6_000, 1_800_000, most,
            delay), 0, [], False, False
        # gone: clients that nobody runs any more, but whose answers are still due
        self.clients, self.count, self.gone = [], 0, []
        self.group = self.new_group()
        save(self.group)
        for instance in instances: self.start(9, instance, SESSION_MS[-1], REBALANCE_MS[0])
        for _ in range(3): self.everybody_acts()

    def any(self, which: int) -> Client: return self.clients[which % len(self.clients)]
    def part_with(self, client: Client):
        self.clients.remove(client)
        if client.waits: self.gone.append((client.waits, client.since))

    def new_group(self) -> ClassicGroup:
        group = ClassicGroup('g', self.now, self.config)
        group.store = self.store
        return group

    def store(self, value):
        self.stale = self.disk_is_full
        if self.disk_is_full: raise StorageError('full')
        self.records.append(value)

    @rule(version=st.sampled_from([3, 8, 9]), instance=st.sampled_from([None, None, 'red', 'blue']),
          session=st.sampled_from(SESSION_MS),
          rebalance=st.sampled_from(REBALANCE_MS))
    def start(self, version, instance, session, rebalance):
        if len(self.clients) >= 5: return
        self.count += 1
        self.clients.append(Client(f'c{self.count}', version, instance if version >= 5 else None, session, rebalance))
        self.clients[-1].act(self.group, self.now)

    @people
    @rule(which=WHICH)
    def act(self, which): self.any(which).act(self.group, self.now)

    @people
    @rule(which=WHICH)
    def most_act(self, which):
        "All but one."
        for client in self.clients:
            if client is not self.any(which): client.act(self.group, self.now)

    @rule()
    def everybody_acts(self):
        for client in self.clients: client.act(self.group, self.now)

    @people
    @rule(which=WHICH, wants=st.binary(max_size=1))
    def change_subscription(self, which, wants):
        if self.any(which).phase == 'member':
            self.any(which).wants = wants
            self.any(which).join(self.group, self.now)

    @people
    @rule(which=WHICH)
    def ask_again_on_another_connection(self, which):
        "The answer to a first request is late, and the client gives up on it."
        client = self.any(which)
        if not client.waits or client.waits.settled or not client.member_id: return
        self.gone.append((client.waits, client.since))
        client.waits = None
        client.join(self.group, self.now) if client.phase == 'joining' else client.sync(self.group, self.now)

    @people
    @rule(which=WHICH)
    def fall_silent(self, which):
        "The process is killed: nobody says goodbye."
        self.part_with(self.any(which))

    @people
    @rule(which=WHICH)
    def restart(self, which):
        "The process is killed, and started again: it doesn't know its id any more."
        client = self.any(which)
        self.part_with(client)
        self.start(client.version, client.instance_id, client.session_ms, client.rebalance_ms)

    @people
    @rule(which=WHICH, by_name=st.booleans())
    def leave(self, which, by_name):
        client = self.any(which)
        named = by_name and client.instance_id is not None
        classic_group_leave(self.group, [MemberIdentity(member_id='' if named else client.member_id,
                                                        group_instance_id=client.instance_id)], self.now)
        self.part_with(client)

    @people
    @rule(which=WHICH, age=st.integers(1, 3))
    def zombie(self, which, age):
        "Somebody from an earlier generation gets nothing and changes nothing."
        client, before = self.any(which), self.snapshot(self.group)
        if validate_member(self.group, client.member_id, client.instance_id): return
        old = dict(group_id='g', generation_id=self.group.generation - age, member_id=client.member_id,
                   group_instance_id=client.instance_id)
        assert classic_group_heartbeat(self.group, HeartbeatRequest(**old), self.now) == ErrorCode.ILLEGAL_GENERATION
        assert classic_group_sync(self.group, SyncGroupRequest(**old),
                                  self.now).error_code == ErrorCode.ILLEGAL_GENERATION
        assert self.group.check_commit(client.member_id,
                                       old['generation_id']) != 0 and self.snapshot(self.group) == before

    @rule(passed=st.sampled_from([1, 400, 1_000, 2_500, 3_000, 6_000, 8_001]))
    def time_passes(self, passed):
        generation = self.group.generation
        self.now += passed
        classic.tick(self.group, self.now)
        assert self.group.generation >= generation

    @rule()
    def broker_crashes(self):
        "Connections break, and the group is what was written."
        generation = self.group.generation
        self.group = self.new_group()
        restore(self.group, self.records[-1])
        self.group.loaded(self.now)
        assert self.group.generation <= generation
        self.gone, self.stale = [], False
        for client in self.clients:
            client.waits = None
            if client.phase in ('joining', 'syncing'): client.phase = 'outside'   # they try again, on a new connection

    @rule(full=st.booleans())
    def disk(self, full): self.disk_is_full = full

    @staticmethod
    def snapshot(group: ClassicGroup):
        "What should survive a crash."
        members = [(member.member_id, member.instance_id, member.client_id, member.client_host,
                    member.session_timeout_ms, member.rebalance_timeout_ms,
                    member.metadata(group.protocol_name), member.assignment) for member in group.members.values()]
        return group.state, group.generation, group.protocol_type, group.protocol_name, group.leader, members

    @invariant()
    def every_partition_has_one_owner(self):
        if not hasattr(self, 'group') or self.group.state != STABLE: return
        dealt = sorted(partition for member in self.group.members.values() for partition in member.assignment)
        assert dealt == list(PARTITIONS), (dealt, self.group.members.keys())
        held = [partition for client in self.clients if client.phase == 'member'
                and client.generation == self.group.generation
                and client.member_id in self.group.members for partition in client.holds]
        assert len(held) == len(set(held)), held

    @invariant()
    def members_hold_what_the_group_says(self):
        for client in getattr(self, 'clients', ()):
            member = self.group.members.get(client.member_id)
            if self.group.state == STABLE and member and client.phase == 'member' and client.generation == self.group.generation:  # noqa: E501
                assert client.holds == member.assignment

    @invariant()
    def states_make_sense(self):
        if not hasattr(self, 'group'): return
        group = self.group
        assert (group.join_by is not None) == (group.state == PREPARING)
        assert group.state != COMPLETING or group.sync_by is not None
        assert (group.leader in group.members) if group.members else group.leader is None
        if group.state == EMPTY: assert not group.members and group.sync_by is None
        if group.state in (STABLE, COMPLETING):
            assert group.members and group.protocol_name == 'range' and not any(m.awaiting_join for m
                in group.members.values())
        if group.state == STABLE: assert not any(member.awaiting_sync for member in group.members.values())
        assert (group.pending_sync_members <= group.members.keys()
                and not group.pending_join_members.keys() & group.members.keys())
        for member in group.members.values():
            assert member.deadline is not None or member.awaiting_join or member.awaiting_sync
        names = [member.instance_id for member in group.members.values() if member.instance_id]
        assert len(names) == len(set(names)) and len(group.members) <= 2 * self.config.max_size

    @invariant()
    def somebody_will_wake_us(self):
        if hasattr(self, 'group') and next_due(self.group) is not None:
            assert self.group.timer and self.group.timer.when <= next_due(self.group)

    @invariant()
    def no_answer_is_forgotten(self):
        if not hasattr(self, 'group'): return
        for waits, since in [*self.gone, *((client.waits, client.since) for client in self.clients if client.waits)]:
            assert waits.settled or self.now < since + LATEST_ANSWER_MS, f'asked at {since}, and it is {self.now}'

    @invariant()
    def generations_grow(self):
        written = [value.generation for value in getattr(self, 'records', ())]
        assert written == sorted(written)

    @invariant()
    def a_replay_gives_the_same_group(self):
        if not hasattr(self, 'group') or self.group.state not in (STABLE, EMPTY) or self.stale: return
        again = ClassicGroup('g', self.now, self.config)
        restore(again, self.records[-1])
        assert self.snapshot(again) == self.snapshot(self.group)

    def teardown(self):
        if hasattr(self, 'group'):
            self.settle_down()
            self.die_out()

    def settle_down(self):
        "Left in peace, whoever still runs gets its assignment."
        self.disk_is_full = False
        for _ in range(90):
            self.now += 500
            classic.tick(self.group, self.now)
            self.everybody_acts()
            self.no_answer_is_forgotten()
        running = [client for client in self.clients if client.phase != 'fenced']
        if not running or len(running) > self.config.max_size: return
        assert self.group.state == STABLE and {client.member_id for client
                                               in running} == self.group.members.keys(), (self.group.state,
                                                   self.group.members.keys())
        assert sorted(partition for client in running for partition in client.holds) == list(PARTITIONS)
        self.every_partition_has_one_owner()
        self.a_replay_gives_the_same_group()

    def die_out(self):
        "And when everybody is gone, the group is empty and waits for nothing."
        for _ in range(400):
            self.now += 1_000
            classic.tick(self.group, self.now)
        assert self.group.state == EMPTY and next_due(self.group) is None and not self.group.pending_join_members
        assert all(waits.settled for waits, _ in self.gone)


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = budget(150, stateful_step_count=50)


# Does it notice anything? Mistakes that are easily made, one at a time.

def forget_who_waits_for_an_assignment(group, assignments, now, error=ErrorCode.NONE):
    for member in group.members.values(): member.assignment = assignments.get(member.member_id, b'')
    if not error: propagate_assignment(group, assignments, now)

propagate_assignment = classic.propagate_assignment   # as it is, without mistakes

def without_saving(rule):
    def changed(group, *arguments):
        store, group.store = group.store, lambda value: None
        try: return rule(group, *arguments)
        finally: group.store = store
    return changed

MISTAKES = {
    'members that wait for an assignment are forgotten when a round begins': ('propagate_assignment',
        lambda rule: forget_who_waits_for_an_assignment),
    'a member that waits for us is taken for dead': ('expire_member_heartbeat', lambda rule: lambda group, member,
                                                     now: (
        classic.remove_member(group, member.member_id), classic.maybe_prepare_rebalance_or_complete_join(group, now))),
    'a static member that is back is not written down': ('update_static_member_then_rebalance', without_saving),
    'generations are not looked at': ('validate_sync_group', lambda rule: lambda group,
                                      request: validate_member(group, request.member_id, request.group_instance_id)),
    'who has waited for too long is not let go': ('expire_pending_sync', lambda rule: lambda group,
                                                  now: setattr(group, 'sync_by', None)),
    'nobody asks to be woken': ('tick', lambda rule: lambda group, now: None),
    'clocks stand still after a restart': ('on_loaded', lambda rule: lambda group, now: None),
}

@pytest.mark.parametrize('mistake', MISTAKES)
def test_mistakes_are_found(mistake, monkeypatch):
    name, change = MISTAKES[mistake]
    for module in (classic, classic_apis):
        if name in vars(module): monkeypatch.setattr(module, name, change(vars(module)[name]))
    quick = settings(stateful_step_count=50, max_examples=1000, phases=[Phase.generate], database=None,
                     derandomize=True)
    with pytest.raises(Exception): run_state_machine_as_test(GroupMachine, settings=quick)
