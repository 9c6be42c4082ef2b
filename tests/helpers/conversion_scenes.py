"""Scenes in which groups change from one protocol to the other, with a real broker: several connections, and waiting.

`record/group_conversion.py` plays them and keeps what was said; `conversations/test_recorded.py` says it again to ours.
A scene is a function of a `Stage`: `stage.ask(connection, request)` asks and waits, `send` asks, `hear` waits.
"""
import time

from broker_process import Client
from offset_conversations import commit as commit_request, fetch as fetch_request
from player import answer_in, framed
from kafka_scratch.broker.apis import APIS
from kafka_scratch.groups.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka_scratch.groups.classic_messages import *
from kafka_scratch.groups.consumer_describe import ConsumerGroupDescribeRequest
from kafka_scratch.groups.consumer_records import TopicPartitions
from kafka_scratch.groups.heartbeat import ConsumerGroupHeartbeatRequest
from kafka_scratch.wire.primitives import Int16

A, B = 'conversion.a', 'conversion.b'
TOPICS = {A: 4, B: 2}


class RealStage:
    "Connections to a real broker, and what was said on them: `[ms, connection, 'asks' or 'hears', hex]`."
    def __init__(self, port: int, topic_ids: dict[str, bytes], group: str):
        self.port, self.ids, self.group, self.events = port, topic_ids, group, []
        self.clients, self.calls, self.number = {}, {}, 0

    def note(self, connection: str, what: str, frame: bytes):
        self.events.append([time.time_ns() // 1_000_000, connection, what, frame.hex()])

    def send(self, connection: str, request, version: int | None = None):
        api, self.number = APIS[request.API_KEY], self.number + 1
        version = api.versions[-1] if version is None else version
        if connection not in self.clients: self.clients[connection] = Client(self.port, patience=60)
        frame = framed(api, version, request, self.number, f'client-{connection}')
        self.calls[connection] = api, version
        self.note(connection, 'asks', frame)
        self.clients[connection].send(frame)

    def hear(self, connection: str):
        frame = self.clients[connection].frame()
        self.note(connection, 'hears', frame)
        return answer_in(*self.calls.pop(connection), frame)

    def ask(self, connection: str, request, version: int | None = None):
        self.send(connection, request, version)
        return self.hear(connection)

    def wait(self, seconds: float): time.sleep(seconds)
    def close(self):
        for client in self.clients.values(): client.close()


# --- What is said -----------------------------------------------------------------------------------------------------

def subscription(*topics: str, owned: dict | None = None, version: int = 1, rack: str | None = None,
                 generation: int = -1) -> bytes:
    "The bytes in which a classic member says what it wants, and has: `owned={'a': [0, 1]}`."
    has = [ConsumerPartitions(topic=name, partitions=list(numbers)) for name, numbers in (owned or {}).items()]
    said = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=has, generation_id=generation,
                                        rack_id=rack)
    return Int16.write(version) + said.encode(version)


def assignment(version: int = 1, user_data: bytes | None = None, **topics) -> bytes:
    "The bytes in which a leader says what a member shall have: `a=[0, 1]`."
    given = [ConsumerPartitions(topic={'a': A, 'b': B}.get(name, name), partitions=numbers)
             for name, numbers in topics.items()]
    return Int16.write(version) + ConsumerProtocolAssignment(assigned_partitions=given,
                                                             user_data=user_data).encode(version)


class Classic:
    "A member that speaks the classic protocol, on a connection of its own."
    def __init__(self, stage, name: str, *topics: str, instance=None, protocols=('range',), session=10_000,
                 rebalance=10_000, kind='consumer', version=1, raw=None):
        self.stage, self.name, self.topics, self.instance, self.raw = stage, name, topics or (A,), instance, raw
        self.protocols, self.session, self.rebalance, self.kind = protocols, session, rebalance, kind
        self.version, self.id, self.generation = version, '', -1

    def request(self, member_id=None, owned=None, protocols=None, kind=None):
        data = subscription(*self.topics, owned=owned, version=self.version) if self.raw is None else self.raw
        names = self.protocols if protocols is None else protocols
        return JoinGroupRequest(
            group_id=self.stage.group, session_timeout_ms=self.session, rebalance_timeout_ms=self.rebalance,
            member_id=self.id if member_id is None else member_id, group_instance_id=self.instance,
            protocol_type=kind or self.kind, protocols=[JoinGroupRequestProtocol(name=each, metadata=data)
                                                        for each in names])

    def learn(self, answer):
        if answer.error_code in (0, 79): self.id = answer.member_id
        if answer.error_code == 0: self.generation = answer.generation_id
        return answer

    def join(self, version: int = 9, **said):
        return self.learn(self.stage.ask(self.name, self.request(**said), version))
    def send_join(self, version: int = 9, **said): self.stage.send(self.name, self.request(**said), version)
    def hear_join(self): return self.learn(self.stage.hear(self.name))

    def come(self, **said):
        "Joins; twice, if it has to."
        answer = self.join(**said)
        return self.join(**said) if answer.error_code == 79 else answer

    def sync_request(self, assignments=(), generation=None, protocol_type='consumer', protocol_name=None, id=None):
        return SyncGroupRequest(
            group_id=self.stage.group, generation_id=self.generation if generation is None else generation,
            member_id=self.id if id is None else id, group_instance_id=self.instance, protocol_type=protocol_type,
            protocol_name=protocol_name or self.protocols[0],
            assignments=[SyncGroupRequestAssignment(member_id=member.id, assignment=given)
                         for member, given in dict(assignments).items()])

    def sync(self, assignments=(), version: int = 5, **said):
        return self.stage.ask(self.name, self.sync_request(assignments, **said), version)

    def beat(self, generation=None, id=None, instance=None, version: int = 4):
        return self.stage.ask(self.name, HeartbeatRequest(
            group_id=self.stage.group, generation_id=self.generation if generation is None else generation,
            member_id=self.id if id is None else id, group_instance_id=instance or self.instance), version)

    def leave(self, version: int = 5):
        who = [MemberIdentity(member_id=self.id, group_instance_id=self.instance)]
        return self.stage.ask(self.name, LeaveGroupRequest(group_id=self.stage.group, members=who), version)

    def commit(self, offset: int, version: int = 8, generation=None, id=None):
        return self.stage.ask(self.name, commit_request(
            self.stage.group, (A, (0, offset)), epoch=self.generation if generation is None else generation,
            member_id=self.id if id is None else id), version)

    def fetch(self, epoch=None, id=None):
        asked = fetch_request(self.stage.group, (A, 0), member_id=self.id if id is None else id,
                              epoch=self.generation if epoch is None else epoch)
        return self.stage.ask(self.name, asked(9), 9)


class Modern:
    "A member that speaks the newer protocol. It obeys at once."
    def __init__(self, stage, name: str, *topics: str, instance=None, id=None, **more):
        self.stage, self.name, self.topics, self.instance = stage, name, list(topics or (A,)), instance
        self.id, self.epoch, self.has, self.more = id or f'member-{name}', 0, None, more

    def beat(self, epoch=None, **said):
        epoch = self.epoch if epoch is None else epoch
        if epoch == 0:
            said = dict(rebalance_timeout_ms=30_000, subscribed_topic_names=self.topics, topic_partitions=[]) \
                | self.more | said
        elif epoch > 0 and self.has is not None: said = dict(topic_partitions=self.has) | said
        answer = self.stage.ask(self.name, ConsumerGroupHeartbeatRequest(
            group_id=self.stage.group, member_id=self.id, member_epoch=epoch, instance_id=self.instance, **said))
        if not answer.error_code: self.epoch = answer.member_epoch
        if answer.assignment: self.has = [TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                                          for each in answer.assignment.topic_partitions]
        return answer

    def leave(self, epoch: int = -1): return self.beat(epoch=epoch)

    def commit(self, offset: int, version: int = 9, epoch=None):
        return self.stage.ask(self.name, commit_request(
            self.stage.group, (A, (0, offset)), epoch=self.epoch if epoch is None else epoch, member_id=self.id),
            version)


def look(stage):
    "What an administrator sees."
    stage.wait(0.05)   # reading sees what was written a moment ago
    stage.ask('admin', ConsumerGroupDescribeRequest(group_ids=[stage.group]))
    stage.ask('admin', DescribeGroupsRequest(groups=[stage.group]))


def classics(stage, count: int = 1, **more) -> list[Classic]:
    "A stable classic group; its members share the topic A."
    members = [Classic(stage, f'c{n}', **more) for n in range(count)]
    shares = {member: assignment(a=list(range(n * 4 // count, (n + 1) * 4 // count)))
              for n, member in enumerate(members)}
    first = members[0]
    assert first.come().error_code == 0 and first.sync({first: assignment(a=[0, 1, 2, 3])}).error_code == 0
    for n in range(1, count):
        assert members[n].join().error_code == 79
        members[n].send_join()
        for member in members[1:n]: member.send_join()
        first.join()
        for member in members[1:n + 1]: member.hear_join()
        here = {member: shares[member] for member in members[:n + 1]}
        first.sync(here)
        for member in members[1:n + 1]: member.sync()
    return members


# --- Scenes -----------------------------------------------------------------------------------------------------------

def there_and_back(stage):
    "One member, upgraded and downgraded, with all that it is told on the way."
    [one] = classics(stage)
    one.commit(5)
    new = Modern(stage, 'n')
    new.beat(), look(stage)
    one.beat(), one.beat(generation=7), one.beat(id='nobody'), one.sync(), look(stage)
    one.commit(6), one.commit(7, version=9), one.commit(8, generation=9), one.commit(9, id='nobody')
    new.commit(6), new.commit(7, version=8), new.commit(8, epoch=1)
    one.fetch(), one.fetch(epoch=9), new.beat()
    one.join(owned={A: [0, 1, 2, 3]}), look(stage)
    one.sync(), one.beat(), one.sync()
    one.join(owned={A: [0, 1]}), one.sync(), one.beat(), new.beat(), new.beat(), one.beat(), look(stage)
    one.beat(id=new.id, generation=new.epoch), one.sync(id=new.id, generation=new.epoch)
    new.leave(), look(stage)
    one.beat(), one.commit(10), one.join(), one.sync({one: assignment(a=[0, 1, 2, 3])}), one.beat(), look(stage)
    new.epoch, new.has = 0, None
    new.beat(), one.join(), one.sync(), new.beat(), one.leave(), look(stage), new.beat(), new.leave(), look(stage)


def several(stage):
    "Two classic members, then a newer one; more of the classic kind come; what they may not say."
    one, two = classics(stage, 2, protocols=('range', 'roundrobin'))
    new = Modern(stage, 'n')
    new.beat(), look(stage)
    one.beat(), two.beat()
    one.join(owned={A: [0, 1]}), one.sync(), two.join(), two.sync(), new.beat(), one.join(), one.sync(), new.beat()
    look(stage)
    three = Classic(stage, 'c3', A)
    three.join(protocols=('sticky',)), three.join(protocols=()), three.join(kind='connect')
    three.join(member_id='', version=4), three.join(), three.sync(), look(stage)
    three.sync(generation=1), three.sync(protocol_type='connect'), three.sync(protocol_name='roundrobin')
    three.sync(version=4), three.beat(version=3), three.sync(id=''), three.sync(id='nobody')
    four = Classic(stage, 'c4', A, protocols=('roundrobin', 'range'))
    four.join(version=3), four.sync(version=0, protocol_type=None), look(stage)
    Classic(stage, 'c5').join(member_id='a-name-of-my-own'), look(stage)
    for member in (one, two, three): member.join(), member.sync()
    new.beat(), look(stage)
    stage.ask('admin', LeaveGroupRequest(group_id=stage.group, members=[
        MemberIdentity(member_id='a-name-of-my-own'), MemberIdentity(member_id='nobody'),
        MemberIdentity(member_id=four.id)]))
    look(stage)
    stage.ask('admin', LeaveGroupRequest(group_id=stage.group, members=[
        MemberIdentity(member_id=new.id), MemberIdentity(member_id=one.id)]))
    look(stage)
    two.beat(), three.beat()


def between_rounds(stage):
    "A newer member comes while a round is on."
    [one] = classics(stage)
    two = Classic(stage, 'c2')
    two.join(), two.send_join(), look(stage)
    new = Modern(stage, 'n')
    new.beat(), two.hear_join(), look(stage)
    two.join(), two.sync(), one.beat(), one.join(owned={A: [0, 1, 2, 3]}), new.beat(), look(stage)


def before_the_assignment(stage):
    "A newer member comes while members wait for their assignments, of whom one never had any."
    [one] = classics(stage)
    two = Classic(stage, 'c2')
    two.join(), two.send_join(), one.join(), two.hear_join()
    stage.send('c2', two.sync_request(), 5)
    stage.wait(0.1)
    new = Modern(stage, 'n')
    new.beat(), stage.hear('c2'), look(stage)
    one.sync({one: assignment(a=[0, 1]), two: assignment(a=[2, 3])}), two.beat(), two.join(), two.sync(), look(stage)


def empty_both_ways(stage):
    "Groups without members change without ado."
    [one] = classics(stage)
    one.commit(3), one.leave(), look(stage)
    new = Modern(stage, 'n')
    new.beat(), new.leave(), look(stage)
    one.beat(), one.sync(), look(stage)
    one.id = ''
    one.come(), one.sync({one: assignment(a=[0])}), look(stage), one.fetch(id='', epoch=-1)
    stage.ask('admin', ListGroupsRequest())


def names(stage):
    "Static members, which are replaced across protocols."
    one, two = Classic(stage, 'c1', instance='i1'), Classic(stage, 'c2', instance='i2')
    one.come(), one.sync({one: assignment(a=[0, 1, 2, 3])})
    two.send_join(), stage.wait(0.2), one.join(), two.hear_join()
    one.sync({one: assignment(a=[0, 1]), two: assignment(a=[2, 3])}), two.sync()
    new = Modern(stage, 'n1', instance='i1')
    new.beat(), look(stage), one.beat(), one.sync(), one.join(), two.beat(), one.leave(), new.beat()
    other = Modern(stage, 'n2', instance='i2')
    other.beat(), look(stage), two.beat(), other.beat(), new.beat()
    Modern(stage, 'n3', instance='i2', id='third').beat()
    old, one.id = one.id, ''
    one.join(), look(stage), new.beat(), one.sync(), one.beat(), one.beat(id=old)
    two.id = ''
    two.join(), look(stage), two.sync(), two.beat(), other.beat(), one.beat(), look(stage)


def a_name_and_other_wishes(stage):
    "The last newer member is replaced by a classic one that wants something else."
    [one] = classics(stage)
    new = Modern(stage, 'n', instance='i')
    new.beat(), one.join(), one.sync(), new.beat()
    two = Classic(stage, 'c2', A, B, instance='i')
    two.join(), look(stage), two.sync(), two.beat(), one.beat()
    two.send_join(), stage.wait(0.1), one.join(), two.hear_join(), look(stage)


def a_name_that_left_for_a_moment(stage):
    "A newer member says that it will be back, and comes back with the classic protocol."
    [one] = classics(stage)
    new = Modern(stage, 'n', instance='i')
    new.beat(), one.join(), one.sync(), new.beat(), new.leave(-2), look(stage)
    two = Classic(stage, 'c2', instance='i')
    two.join(), look(stage), two.sync(), two.beat(), one.beat()


def not_for_consumers(stage):
    "A group that does something else than consume."
    one = Classic(stage, 'c', kind='connect')
    one.come(), one.sync({one: b'work'}, protocol_type='connect')
    Modern(stage, 'n').beat(), one.beat(), look(stage)


def malformed_wishes(stage):
    one = Classic(stage, 'c', raw=b'')
    one.come(), one.sync({one: assignment(a=[0])}), Modern(stage, 'n').beat(), one.beat(), look(stage)


def malformed_assignments(stage):
    one = Classic(stage, 'c')
    one.come(), one.sync({one: b'\0'}), Modern(stage, 'n').beat(), one.beat(), look(stage)


def assignments_with_something_else(stage):
    "An assignor of somebody's own, whose data would be lost."
    one = Classic(stage, 'c')
    one.come(), one.sync({one: assignment(a=[0], user_data=b'mine')}), Modern(stage, 'n').beat(), one.beat()
    one.join(), one.sync({one: assignment(a=[0], user_data=b'', gone=[1])}), Modern(stage, 'n').beat(), look(stage)


def two_for_one_partition(stage):
    "A leader that makes mistakes."
    one, two = classics(stage, 2)
    one.send_join(), stage.wait(0.1), two.join(), one.hear_join()
    one.sync({one: assignment(a=[0, 1]), two: assignment(a=[1, 2])}), two.sync()
    Modern(stage, 'n').beat(), one.beat(), look(stage)


def newest_and_oldest(stage):
    "Subscriptions of all versions, with racks; assignments come back in the same."
    members = [Classic(stage, f'c{n}', version=n) for n in range(4)]
    members[3].raw = subscription(A, version=3, rack='north', generation=5)
    members.append(Classic(stage, 'c9', raw=subscription(A, version=3).replace(b'\0\3', b'\0\x09', 1)))
    Modern(stage, 'n').beat()
    for member in members: member.come(), member.sync()
    Classic(stage, 'malformed', raw=b'').join(member_id='m'), Classic(stage, 'malformed', raw=b'\0').join(member_id='m')
    look(stage)


def patterns(stage):
    "A newer member that has only a pattern."
    [one] = classics(stage)
    new = Modern(stage, 'n', subscribed_topic_regex='conversion[.].*', subscribed_topic_names=None)
    new.beat(), stage.wait(0.5), new.beat(), look(stage), one.beat(), one.join(), one.sync(), new.beat(), look(stage)
    new.leave(), look(stage)


def silence(stage):
    "Sessions end: of the newer member, and that is a downgrade."
    [one] = classics(stage, session=30_000)
    new = Modern(stage, 'n')
    new.beat(), one.join(), one.sync(), new.beat(), stage.wait(3.5), look(stage), one.beat(), one.join(), look(stage)


def silent_classics(stage):
    "A classic member of a consumer group has its own session."
    [one] = classics(stage, session=1_000)
    two = Classic(stage, 'c2', session=1_000)
    new = Modern(stage, 'n')
    new.beat(), two.come(), stage.wait(0.7), two.sync(), new.beat(), stage.wait(0.7), two.beat(), new.beat()
    look(stage), one.beat(), stage.wait(1.5), new.beat(), look(stage)


def late_to_join(stage):
    "A classic member hears that it has to join, and doesn't."
    [one] = classics(stage, session=30_000, rebalance=1_000)
    new = Modern(stage, 'n')
    new.beat(), one.beat(), stage.wait(0.7), one.beat(), stage.wait(0.7), new.beat(), look(stage), one.beat()


def late_to_sync(stage):
    "A classic member has joined, and doesn't ask for its assignment."
    [one] = classics(stage, session=30_000, rebalance=1_000)
    new = Modern(stage, 'n')
    new.beat(), one.join(), stage.wait(0.5), one.beat(), new.beat(), stage.wait(0.9), new.beat(), look(stage)


def classic_then_new(stage):
    "A member keeps its id, and changes its protocol."
    [one] = classics(stage)
    new = Modern(stage, 'n')
    new.beat(), one.join(), one.sync()
    same = Modern(stage, 'm', id=one.id)
    same.beat(), look(stage), same.beat(epoch=one.generation, topic_partitions=[]), look(stage), one.beat()


SCENES = {scene.__name__.replace('_', '-'): scene for scene in (
    there_and_back, several, between_rounds, before_the_assignment, empty_both_ways, names, a_name_and_other_wishes,
    a_name_that_left_for_a_moment, not_for_consumers, malformed_wishes, malformed_assignments,
    assignments_with_something_else, two_for_one_partition, newest_and_oldest, patterns, silence, silent_classics,
    late_to_join, late_to_sync, classic_then_new)}


def refused_upgrade(stage):
    "The policy, or the size of the group, forbids it."
    classics(stage, 2)
    Modern(stage, 'n').beat(), look(stage)


def upgrade_once(stage):
    "Upgraded, but the group doesn't change back."
    [one] = classics(stage)
    new = Modern(stage, 'n')
    new.beat(), one.join(), one.sync(), new.beat(), new.leave(), look(stage), one.beat(), one.join(), one.sync()
    two = Classic(stage, 'c2')
    two.come(), two.sync(), look(stage), Classic(stage, 'c3').come()


def downgrade_once(stage):
    "There was never a classic group; the last newer member goes."
    new, one, two = Modern(stage, 'n'), Classic(stage, 'c1'), Classic(stage, 'c2')
    new.beat(), one.come(), one.sync(), two.come(), two.sync(), look(stage), new.leave(), look(stage), one.beat()


def first_round(stage):
    "Nobody has agreed on a protocol yet."
    one = Classic(stage, 'c1')
    one.join(), one.send_join(), stage.wait(0.2), Modern(stage, 'n').beat(), one.hear_join(), look(stage)


POLICIES = {   # file → settings, scenes
    'group-conversion': ({'group.consumer.session.timeout.ms': '3000', 'group.min.session.timeout.ms': '500',
                          'group.consumer.min.session.timeout.ms': '3000',
                          'group.consumer.min.heartbeat.interval.ms': '1000',
                          'group.consumer.heartbeat.interval.ms': '1000'}, SCENES),
    'group-conversion-disabled': ({'group.consumer.migration.policy': 'Disabled'}, {
        'refused': refused_upgrade, 'downgrade': downgrade_once, 'empty': empty_both_ways}),
    'group-conversion-upgrade': ({'group.consumer.migration.policy': 'upgrade', 'group.consumer.max.size': '2',
                                  'group.initial.rebalance.delay.ms': '1000'}, {
        'once': upgrade_once, 'first-round': first_round}),
    'group-conversion-downgrade': ({'group.consumer.migration.policy': 'DOWNGRADE'}, {
        'refused': refused_upgrade, 'once': downgrade_once}),
    'group-conversion-small': ({'group.consumer.max.size': '1', 'group.max.size': '2'}, {'too-large': refused_upgrade})}
