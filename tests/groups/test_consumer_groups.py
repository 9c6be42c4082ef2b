"""Consumer groups whose coordinator decides: what a real Kafka wrote, and what happens when things fail. What it
answered is in `conversations/test_recorded.py`."""
import subprocess
import sys
import time

import pytest

from size import needs_kafka
from broker_process import ROOT, Client
from consumer_group_stage import APIS, IMPATIENT, Reader, Stage, act, by_group, plain, recorded_records, steps
from kafka_scratch.groups.heartbeat import ConsumerGroupHeartbeatRequest
from kafka_scratch.groups.consumer import LEAVE_EPOCH, facts
from kafka_scratch.groups.consumer_describe import (
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, consumer_group_describe)
from kafka_scratch.groups.consumer_records import (
    ClassicMemberMetadata, ClassicProtocol, ConsumerGroupMemberMetadataValue, ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue, TopicMetadata, as_assignment)
from kafka_scratch.groups.coordinator import read_key, read_state, write_key, write_state
from kafka_scratch.wire.frames import RequestHeader
from kafka_scratch.wire.codes import ErrorCode, Operation, Resource
from kafka_scratch.groups.classic_messages import LeaveGroupRequest, MemberIdentity
from kafka_scratch.groups.classic_apis import leave_group
from kafka_scratch.groups.admin import DeleteGroupsRequest, ListGroupsRequest, delete_groups, list_groups
from kafka_scratch.groups.offsets import OffsetCommitKey, OffsetCommitValue
from kafka_scratch.wire.primitives import Int32

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

PLAYS = {'consumer-groups': '', 'consumer-groups-impatient': IMPATIENT}


@pytest.mark.parametrize('name', PLAYS)
def test_kafkas_records(name):
    stage = Stage(PLAYS[name])
    for _, step in steps(f'{name}.jsonl'): act(stage, step)
    ours, theirs = by_group(stage.log.records), by_group(recorded_records(name))
    assert ours.keys() == theirs.keys()
    for id in ours: assert ours[id] == theirs[id][:len(ours[id])], id   # Kafka's log goes on after the play


@pytest.mark.parametrize('name', PLAYS)
def test_a_restart_after_every_step(name):
    stage = Stage(PLAYS[name])
    for scene, step in steps(f'{name}.jsonl'):
        if scene == 'classic': break   # the stage has no classic groups to restart with
        found = act(stage, step)
        if found: assert plain(found[2], found[1]) == plain(found[3], found[1]), (scene, step['note'])
        before = {id: facts(group) for id, group in stage.groups.groups.items()}
        seen = {id: (group.checked, group.scanned) for id, group in stage.groups.groups.items()}
        due = stage.groups.timers.next
        if due and due <= stage.time: continue   # something is about to happen
        groups = stage.groups.groups.items()
        timers = {id: {what: timer.when for what, timer in group.timers.items()} for id, group in groups}
        stage = stage.restart()
        assert {id: facts(group) for id, group in stage.groups.groups.items()} == before
        groups = stage.groups.groups
        running = {id: set(group.timers) for id, group in groups.items()}
        assert running == {id: set(each) for id, each in timers.items()}
        for id, group in groups.items():   # what isn't remembered is made as it was, so that the play can go on
            group.checked, group.scanned = seen[id]
            for what, when in timers[id].items():
                call = group.timers[what].call
                group.timers[what].cancel()
                group.timers[what] = stage.groups.timers.at(when, call)


def test_kafkas_records_are_read():
    "What Kafka wrote, loaded: its last answers about the groups are ours."
    stage, said = Stage(), {}
    for scene, step in steps('consumer-groups.jsonl'):
        if step['step'] in ('topic', 'grow', 'drop'): act(stage, step)
        if step['step'] == 'ask' and step['api_key'] == 69:
            version = step['api_version']
            answer = ConsumerGroupDescribeResponse.decode(bytes.fromhex(step['response_hex']), version, 9)
            said |= {group.group_id: (group, version) for group in answer.groups}
    stage.log.records = recorded_records('consumer-groups')
    for key, value in stage.log.records:   # we read and write each of them, byte for byte
        known, found = read_key(key)
        assert write_key(found) == key and (value is None or write_state(read_state(known, value)) == value)
    stage = stage.restart()
    assert {'alone', 'two', 'static', 'topics', 'regex', 'range'} <= stage.groups.groups.keys()
    group, version = said['emptyregex']
    ours = stage.ask(consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=['emptyregex']), version)
    assert plain(ours, version) == plain(ConsumerGroupDescribeResponse(groups=[group]), version)


# when things fail

def two_members(**more):
    stage = Stage(**more)
    stage.make('a', 4)
    one, two = Reader(stage, 'one', 'a'), Reader(stage, 'two', 'a')
    for reader in (one, two, one, one, two): assert reader.beat().error_code == 0
    assert stage.group().state == 'Stable' and len(one.has) == len(two.has) == 2
    return stage, one, two


def test_a_full_disk_changes_nothing():
    stage, one, two = two_members()
    before, stage.log.failing = facts(stage.group()), True
    assert two.beat(epoch=LEAVE_EPOCH).error_code == ErrorCode.NOT_COORDINATOR
    assert Reader(stage, 'three', 'a').beat().error_code == ErrorCode.NOT_COORDINATOR
    assert Reader(stage, 'x', 'a', group='new').beat().error_code == ErrorCode.NOT_COORDINATOR
    assert 'new' not in stage.groups.groups
    two.epoch = one.epoch
    assert one.beat().error_code == 0, 'who changes nothing needs no disk'
    assert facts(stage.group()) == before
    stage.log.failing = False
    assert two.beat(epoch=LEAVE_EPOCH).error_code == 0 and one.beat().member_epoch == 3


def test_a_silent_member_is_removed_as_soon_as_the_disk_works():
    stage, one, two = two_members()
    stage.pass_time(44_000)
    one.beat()
    stage.log.failing = True
    stage.pass_time(3_000)
    assert 'two' in stage.group().members and any('two' in note for note in stage.notes)
    stage.log.failing = False
    stage.pass_time(2_000)
    assert list(stage.group().members) == ['one']


def test_one_batch_for_each_heartbeat():
    stage, one, two = two_members()
    assert stage.log.batches == [5, 6, 1, 1, 1]   # join; join and a new target; asked; let go; taken
    one.beat()
    assert stage.log.batches == [5, 6, 1, 1, 1]


def test_an_administrator_removes_members():
    """With the LeaveGroup of classic groups. A real Kafka 4.1.1 gave these answers, and wrote one batch with one new
    epoch."""
    stage = Stage()
    stage.make('a', 2)
    for id, name in (('m1', None), ('m2', None), ('m3', 'i3'), ('m4', 'i4'), ('m5', 'i5')):
        Reader(stage, id, 'a', instance_id=name).beat()
    def leave(*who):
        members = [MemberIdentity(member_id=id, group_instance_id=name) for id, name in who]
        answer = stage.ask(leave_group, LeaveGroupRequest(group_id='g', members=members))
        return answer.error_code, [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
    before, records = facts(stage.group()), len(stage.log.records)
    assert leave(('x', None), ('', None), ('', 'i9'), ('m1', 'i3')) == (0,
        [('x', None, 25), ('', None, 25), ('', 'i9', 25), ('m1', 'i3', 82)])
    assert leave() == (0, []) and facts(stage.group()) == before
    stage.log.failing = True
    assert leave(('m1', None)) == (ErrorCode.NOT_COORDINATOR, []) and facts(stage.group()) == before
    stage.log.failing = False
    twice = ('m1', None), ('', 'i3'), ('m4', 'i4'), ('m1', None), ('m3', 'i3')
    assert leave(*twice) == (0, [(id, name, 0) for id, name in twice])
    assert list(stage.group().members) == ['m2',
                                           'm5'] and stage.group().group_epoch == 6 and len(
                                               stage.log.records) == records + 10
    old = [stage.ask(leave_group, LeaveGroupRequest(group_id='g', member_id='m2'), 2) for _ in range(2)]
    assert [(each.error_code, each.members) for each in old] == [(0, []), (25, [])]
    assert leave(('m5', None)) == (0, [('m5', None, 0)]) and stage.group().is_empty and not stage.group().timers
    assert facts(stage.restart().group()) == facts(stage.group())


def test_settings_of_a_group():
    stage, one, two = two_members()
    stage.image.configs[32, 'g'] = {'consumer.session.timeout.ms': '10000', 'consumer.heartbeat.interval.ms': '700'}
    assert one.beat().heartbeat_interval_ms == two.beat().heartbeat_interval_ms == 700
    stage.pass_time(9_000)
    assert one.beat().error_code == 0
    stage.pass_time(2_000)
    assert list(stage.group().members) == ['one']


# what others ask of a group

def test_who_may_commit():
    stage, one, two = two_members()
    group = stage.group()
    who = ('one', 2), ('one', 1), ('one', 3), ('eve', 2), ('', -1), ('one', -1)
    assert [group.check_commit(*each) for each in who] == [0, 113, 113, 25, 25, 113]
    who = ('', -1), ('eve', 2), ('one', 1)
    assert [group.check_commit(*each, None, True) for each in who] == [0, 25, 113], 'in a transaction'
    assert [group.check_fetch(*who) for who in ((None, -1), ('one', 2), ('one', 1), ('eve', 2))] == [0, 0, 113, 25]
    for reader in (one, two): reader.beat(epoch=LEAVE_EPOCH)
    assert group.check_commit('', -1) == 0 and group.check_commit('one', 2) == 25


def test_subscribed_and_empty():
    stage, one, two = two_members()
    group = stage.group()
    assert group.subscribed('a') and not group.subscribed('b') and not group.is_empty
    assert group.kind == group.protocol_type == 'consumer'
    stage.make('b', 1)
    Reader(stage, 'three', subscribed_topic_regex='b').beat()
    stage.pass_time(1)
    assert group.subscribed('b')


def test_deleting_a_group_leaves_nothing():
    stage, one, two = two_members()
    Reader(stage, 'three', subscribed_topic_regex='a.*').beat()
    stage.pass_time(1)
    stage.groups.write('g', stage.group().tombstones())
    assert stage.groups.groups == {} and stage.restart().groups.groups == {}
    last = {key: value for key, value in stage.log.records}
    assert all(value is None for value in last.values()), 'compaction leaves nothing'
    stage.pass_time(100_000)
    assert stage.groups.groups == {} and not stage.notes
    assert Reader(stage, 'one', 'a').beat().member_epoch == 1


def test_a_deleted_group_with_offsets_is_gone_also_after_a_restart():
    stage, one, two = two_members()
    offset = OffsetCommitKey(group='g', topic='a', partition=0), OffsetCommitValue(offset=5)
    stage.groups.write('g', [offset])
    for reader in (one, two): reader.beat(epoch=LEAVE_EPOCH)
    assert stage.ask(delete_groups, DeleteGroupsRequest(groups_names=['g'])).results[0].error_code == 0
    for each in (stage, stage.restart()):
        assert each.ask(list_groups, ListGroupsRequest()).groups == [] and each.groups.offsets == {}


def test_records_of_older_and_other_kafkas():
    stage, one, two = two_members()
    old = ConsumerGroupPartitionMetadataValue(topics=[TopicMetadata(topic_name='a', num_partitions=4)])
    stage.groups.write('g', [(ConsumerGroupPartitionMetadataKey(group_id='g'), old)])
    stage = one.stage = two.stage = stage.restart()
    two.beat(epoch=LEAVE_EPOCH)
    assert dict(stage.log.records)[write_key(ConsumerGroupPartitionMetadataKey(group_id='g'))] is None
    assert not stage.group().has_subscription_metadata_record
    protocols = [ClassicProtocol(name='range', metadata=b'x')]
    metadata = ClassicMemberMetadata(session_timeout_ms=5, supported_protocols=protocols)
    classic = ConsumerGroupMemberMetadataValue(classic_member_metadata=metadata)
    assert ConsumerGroupMemberMetadataValue.decode(classic.encode(0), 0) == classic
    nothing = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert nothing.encode(0).endswith(bytes.fromhex('01 00 01 00'))


def test_a_member_of_which_half_is_known():
    "A log that was cut, or compacted, in an unlucky place must not keep the broker from starting."
    stage, one, two = two_members()
    for left_out in (5, 7, 8, 3, 6):
        other = Stage(image=stage.image)
        other.log.records = [(key, value) for key, value in stage.log.records if key[1] != left_out]
        other = other.restart()
        other.pass_time(50_000)
        newcomer = Reader(other, 'new', 'a')
        assert newcomer.beat().error_code == 0
        other.ask(consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=['g']))


def test_classic_members_have_generations():
    "What a real Kafka 4.1.1 answers; those of OffsetCommit and OffsetFetch are in the recorded scenes."
    stage, one, two = two_members()
    said = ClassicMemberMetadata(session_timeout_ms=5, supported_protocols=[ClassicProtocol(name='range')])
    group = stage.group()
    classic = ConsumerGroupMemberMetadataValue(classic_member_metadata=said)
    group.members['one'] = group.members['one']._replace(metadata=classic)
    assert [group.check_commit('one', epoch) for epoch in (2, 1, 3)] == [0, 22, 22]
    assert [group.check_commit('one', epoch, None, True) for epoch in (2, 1)] == [0, 22], 'in a transaction'
    assert [group.check_fetch('one', epoch) for epoch in (2, 1)] == [0, 22]
    assert not group.is_newer('one') and group.is_newer('two') and not group.is_newer('eve')


# authorization

def test_what_is_forbidden():
    stage, one, two = two_members()
    question = ConsumerGroupDescribeRequest(group_ids=['g'], include_authorized_operations=True)
    def describe(): return stage.ask(consumer_group_describe, question).groups[0]
    assert describe().authorized_operations == 3400
    stage.forbidden = {(Operation.READ, Resource.GROUP, 'g')}
    assert one.beat().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert describe().authorized_operations == 3400 - (1 << Operation.READ)
    stage.forbidden = {(Operation.DESCRIBE, Resource.TOPIC, 'a')}
    assert Reader(stage, 'three', 'a').beat().error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (describe().error_code, describe().members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    stage.forbidden = {(Operation.DESCRIBE, Resource.GROUP, 'g')}
    assert describe().error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED and describe().group_state == ''


def test_patterns_see_what_their_member_may_see():
    stage = Stage()
    stage.make('a.open', 1), stage.make('a.secret', 1)
    stage.forbidden = {(Operation.DESCRIBE, Resource.TOPIC, 'a.secret')}
    one = Reader(stage, 'one', subscribed_topic_regex='a.*')
    one.beat(), stage.pass_time(1), one.beat()
    assert one.has == {(stage.image.topics['a.open'].topic_id, 0)}


# beside classic groups

def test_beside_classic_groups():
    groups = pytest.importorskip('kafka_scratch.groups.classic_log')
    stage = Stage()
    stage.make('a', 1)
    group = groups.group_to_join(stage.groups, 'g', create=True)
    assert group.kind == 'classic' and group.is_empty
    one = Reader(stage, 'one', 'a')
    assert one.beat().member_epoch == 1 and stage.group().kind == 'consumer'
    assert facts(stage.restart().group()) == facts(stage.group())
    assert groups.group_to_join(stage.groups, 'g', create=True).kind == 'consumer', 'it has a member'
    one.beat(epoch=LEAVE_EPOCH)
    assert groups.group_to_join(stage.groups, 'g', create=True).kind == 'classic'
    assert stage.restart().group().kind == 'classic'


def test_a_simple_group_gives_way_and_keeps_its_offsets():
    "A real Kafka writes the same six records, a tombstone for the simple group first."
    stage = Stage()
    stage.make('a', 1)
    stage.groups.write('g', [(OffsetCommitKey(group='g', topic='a', partition=0), OffsetCommitValue(offset=5))])
    one = Reader(stage, 'one', 'a')
    one.epoch = 1
    assert 'is not a consumer group' in one.beat().error_message
    assert one.beat().member_epoch == 1 and [(key[1], value is None) for key, value in stage.log.records[1:]] == [
        (2, True), (5, False), (3, False), (7, False), (6, False), (8, False)]
    for each in (stage, stage.restart()):
        assert each.group().kind == 'consumer' and each.groups.offsets['g']['a', 0].offset == 5


# on sockets

def test_librdkafka(tmp_path):
    "Two consumers share a topic, one leaves; the broker restarts under the other, which goes on where it was."
    confluent = pytest.importorskip('confluent_kafka')
    from kafka_scratch.broker.running import running_broker
    settings = dict(group_consumer_heartbeat_interval_ms=200, group_consumer_session_timeout_ms=5000,
                    offsets_topic_num_partitions=1)
    with running_broker(tmp_path/'logs', topics={'orders': 4}, **settings) as broker:
        producer = confluent.Producer({'bootstrap.servers': broker.bootstrap_servers})
        def produce(first, last):
            for n in range(first, last): producer.produce('orders', str(n).encode(), partition=n % 4)
            assert producer.flush(10) == 0
        def consumer(): return confluent.Consumer({
            'bootstrap.servers': broker.bootstrap_servers, 'group.id': 'g', 'group.protocol': 'consumer',
            'auto.offset.reset': 'earliest', 'log_level': 0})
        got = []
        def poll_until(condition, *consumers):
            deadline = time.monotonic() + 30
            while not condition():
                assert time.monotonic() < deadline
                for each in consumers:
                    message = each.poll(0.05)
                    if message is not None and not message.error(): got.append(int(message.value()))
        def shares(*consumers): return sorted(len(each.assignment()) for each in consumers)
        produce(0, 20)
        one, two = consumer(), consumer()
        one.subscribe(['orders'])
        poll_until(lambda: len(got) == 20, one)
        two.subscribe(['orders'])
        poll_until(lambda: shares(one, two) == [2, 2], one, two)
        produce(20, 40)
        poll_until(lambda: len(got) == 40, one, two)
        one.close()
        poll_until(lambda: shares(two) == [4], two)
        two.commit(asynchronous=False)
        broker.restart()
        produce(40, 60)
        poll_until(lambda: len(got) >= 60, two)
        assert sorted(got) == list(range(60)) and shares(two) == [4]
        two.close()
        three = consumer()
        three.subscribe(['^ord.*'])
        produce(60, 64)
        poll_until(lambda: len(got) >= 64, three)
        three.close()
        assert sorted(got) == list(range(64))




@needs_kafka
def test_java(tmp_path):
    "Java's consumer reads in a group, Java's tool describes it, and Kafka itself goes on with what we wrote."
    from kafka_scratch.broker.running import running_broker
    kafka = real_kafka.RealKafka(tmp_path/'kafka')
    settings = dict(node_id=1, offsets_topic_num_partitions=1, group_consumer_heartbeat_interval_ms=500)
    with running_broker(tmp_path/'kafka/logs', topics={'orders': 3}, **settings) as broker:
        from kafka_scratch.client.client import send_batch
        from kafka_scratch.log.records import Record, write_batch
        with broker.client() as client:
            batch = write_batch([Record(offset_delta=n, value=b'%d' % n) for n in range(5)])
            for partition in range(3): send_batch(client, 'orders', partition, batch)
        command = real_kafka.command(
            'org.apache.kafka.tools.consumer.ConsoleConsumer', '--bootstrap-server', broker.bootstrap_servers,
            '--topic', 'orders', '--group', 'g', '--from-beginning', '--max-messages', '15',
            '--consumer-property', 'group.protocol=consumer')
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert sorted(done.stdout.split()) == sorted(str(n) for n in range(5) for _ in range(3)), done.stderr
        def describe(*options): return real_kafka.run_tool(
            'org.apache.kafka.tools.consumer.group.ConsumerGroupCommand',
            '--bootstrap-server', broker.bootstrap_servers, '--describe', '--group', 'g', *options)
        assert 'Empty' in describe('--state')
        joined = ask(broker.port, 68, join_request('m1'))
        assert joined.member_epoch == 3 and len(as_assignment(joined.assignment.topic_partitions)) == 3
        members = describe('--members', '--verbose')
        assert 'm1' in members and 'orders' in members
        ours = ask(broker.port, 69, ConsumerGroupDescribeRequest(group_ids=['g']))
    log = next((tmp_path/'kafka/logs').glob('__consumer_offsets-0/*.log'))
    dumped = real_kafka.dump_log(log, '--offsets-decoder', '--print-data-log')
    assert '"type":"5"' in dumped and 'Error' not in dumped
    with kafka:
        deadline = time.monotonic() + 60
        while True:   # until the coordinator has loaded its log
            theirs = ask(kafka.port, 69, ConsumerGroupDescribeRequest(group_ids=['g']))
            if theirs.groups[0].error_code not in (14, 15, 16) or time.monotonic() > deadline: break
            time.sleep(0.2)
    assert plain(theirs, 1) == plain(ours, 1) and theirs.groups[0].members[0].member_id == 'm1'


def join_request(member_id):
    return ConsumerGroupHeartbeatRequest(group_id='g', member_id=member_id, rebalance_timeout_ms=60_000,
                                         subscribed_topic_names=['orders'], topic_partitions=[])


def ask(port, key, request):
    body = RequestHeader(api_key=key, api_version=1, correlation_id=7, client_id='test').encode(2) + request.encode(1)
    with Client(port) as client: return APIS[key].response.decode(client.ask(Int32.write(len(body)) + body), 1, 9)
