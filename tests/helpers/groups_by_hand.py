"""Classic groups with few words: a node that has nothing but groups, a table at which members sit, and questions to a
broker that isn't the coordinator."""
from types import SimpleNamespace

from group_conversations import GroupNode
from kafka_scratch.apis.api import Caller
from kafka_scratch.broker.apis import APIS
from kafka_scratch.cluster.image import Image, partition_made, topic_made
from kafka_scratch.cluster.records import PartitionRecord, TopicRecord
from kafka_scratch.groups.admin import (DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, delete_groups,
                                        describe_groups,
                                       list_groups)
from kafka_scratch.groups.classic import *
from kafka_scratch.groups.classic_log import *
from kafka_scratch.groups.classic_apis import *
from kafka_scratch.groups.classic_messages import *
from kafka_scratch.groups.consumer_describe import ConsumerGroupDescribeRequest, consumer_group_describe
from kafka_scratch.groups.heartbeat import ConsumerGroupHeartbeatRequest, consumer_group_heartbeat
from kafka_scratch.groups.offsets import GroupMetadataKey
from kafka_scratch.wire.codes import ErrorCode

GROUP_APIS = {key: APIS[key] for key in (8, 9, 11, 12, 13, 14, 15, 16, 42, 68, 69)}


def image_with(topic: str, partitions: int, topic_id: bytes = b'1' * 16, image: Image | None = None) -> Image:
    image = image or Image()
    topic_made(image, TopicRecord(name=topic, topic_id=topic_id))
    for number in range(partitions):
        partition_made(image, PartitionRecord(topic_id=topic_id, partition_id=number, leader=1, leader_epoch=0,
                                              replicas=[1], isr=[1]))
    return image


def group_node(settings: dict | None = None, written: list = (), now: int = 0) -> GroupNode:
    found = GroupNode(GROUP_APIS, settings, written, now)
    found.node.image = image_with('t', 2)
    found.store.node.controller = SimpleNamespace(image=found.node.image)
    return found


NOW = 1_000_000


class Table:
    "One group, with short words for what clients say."
    def __init__(self, group_id: str = 'g', settings: dict | None = None, here: GroupNode | None = None):
        self.here, self.group_id = here or group_node(settings, now=NOW), group_id

    def restart(self, settings: dict | None = None) -> 'Table':
        "The broker is killed, and started again at once."
        return Table(self.group_id, here=group_node(settings, self.here.store.pairs, self.here.clock))

    @property
    def group(self) -> ClassicGroup: return self.here.coordinator.groups[self.group_id]
    def pass_time(self, ms: int): self.here.at(self.here.clock + ms)

    def join(self, member_id: str = '', instance=None, protocols=(('range', b''),), version=9, session=10_000,
             rebalance=10_000, kind='consumer', client='c'):
        request = JoinGroupRequest(
            group_id=self.group_id, session_timeout_ms=session, rebalance_timeout_ms=rebalance, member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind, protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name,
                                           metadata in protocols])
        return self.here.answer(request, version, Caller(client_id=client))

    def come(self, **how):
        "Joins twice, as a new member has to."
        return self.join(self.join(**how).member_id, **how)

    def sync(self, member_id, assignments=None, instance=None, generation=None):
        given = [SyncGroupRequestAssignment(member_id=key, assignment=assignment) for key,
                 assignment in (assignments or {}).items()]
        return self.here.answer(SyncGroupRequest(group_id=self.group_id,
                                                 generation_id=self.group.generation if generation is None
                                                 else generation, member_id=member_id,
                                                 group_instance_id=instance, protocol_type=self.group.protocol_type,
                                                 protocol_name=self.group.protocol_name or '', assignments=given))

    def beat(self, member_id, generation=None, instance=None) -> int:
        generation = self.group.generation if generation is None else generation
        return self.here.answer(HeartbeatRequest(group_id=self.group_id, generation_id=generation, member_id=member_id,
                                                 group_instance_id=instance)).error_code

    def leave(self, *members: tuple) -> list[int]:
        identities = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id,
                      instance in members]
        return [each.error_code for each in self.here.answer(LeaveGroupRequest(group_id=self.group_id,
            members=identities)).members]

    def pair(self, **how) -> tuple[str, str]:
        "A stable group of two: the leader and a follower."
        leader = self.come(**how)
        self.sync(leader.member_id)
        follower = self.come(**how)
        self.join(leader.member_id, **how)
        follower = follower.result.member_id
        self.sync(leader.member_id, {leader.member_id: b'L', follower: b'F'})
        self.sync(follower)
        assert self.group.state == STABLE and self.group.leader == leader.member_id
        return leader.member_id, follower


class Other:
    "A group of another kind."
    kind, protocol_type, group_id, members = 'consumer', 'consumer', 'other', {}
    def __init__(self, is_empty): self.is_empty, self.state = is_empty, 'Empty' if is_empty else 'Stable'
    def tombstones(self): return [(GroupMetadataKey(group='other'), None)]
    def leave(self, members, now):
        return [MemberResponse(member_id=each.member_id, error_code=ErrorCode.UNKNOWN_MEMBER_ID) for each in members]


def join_request(group_id: str = 'g', member_id: str = '', session: int = 10_000, **more) -> JoinGroupRequest:
    return JoinGroupRequest(group_id=group_id, session_timeout_ms=session, rebalance_timeout_ms=10_000,
                            member_id=member_id, protocol_type='consumer',
                            protocols=[JoinGroupRequestProtocol(name='range', metadata=b'')], **more)


def questions():
    "What a broker was asked that isn't the coordinator: a name, the API, its version, the request."
    chosen = dict(protocol_type='consumer', protocol_name='range')
    two = [MemberIdentity(member_id='m'), MemberIdentity(member_id='', group_instance_id='i')]
    def sync(group_id='g', **more): return SyncGroupRequest(group_id=group_id, generation_id=1, member_id='m', **more)
    def beat(group_id='g'): return HeartbeatRequest(group_id=group_id, generation_id=1, member_id='m')
    for version in (0, 3, 5, 7, 9): yield 'somebody new joins', join_group, version, join_request()
    yield 'a member joins', join_group, 9, join_request(member_id='m')
    yield 'a static member joins', join_group, 9, join_request(group_instance_id='i')
    yield 'joins a group without a name', join_group, 9, join_request('')
    yield 'joins with too short a session', join_group, 9, join_request(session=1)
    for version in (0, 5): yield 'a member syncs', sync_group, version, sync(**chosen if version == 5 else {})
    yield 'syncs without a protocol', sync_group, 5, sync()
    yield 'syncs in a group without a name', sync_group, 3, sync('')
    for version in (0, 4): yield 'a heartbeat', heartbeat, version, beat()
    yield 'a heartbeat without a group', heartbeat, 4, beat('')
    for version in (0, 2): yield 'a member leaves', leave_group, version, LeaveGroupRequest(group_id='g', member_id='m')
    for version in (3, 5): yield 'two members leave', leave_group, version, LeaveGroupRequest(group_id='g', members=two)
    yield 'leaves a group without a name', leave_group, 5, LeaveGroupRequest(group_id='', members=two[:1])
    yield 'groups are listed', list_groups, 5, ListGroupsRequest()
    for version in (0, 5, 6):
        yield 'groups are described', describe_groups, version, DescribeGroupsRequest(groups=['g', ''],
            include_authorized_operations=version == 6)
    for version in (0, 1):
        yield 'a member of the other kind joins', consumer_group_heartbeat, version, ConsumerGroupHeartbeatRequest(
            group_id='g', member_id='AAAAAAAAAAAAAAAAAAAAAA', rebalance_timeout_ms=1000, subscribed_topic_names=['t'],
            topic_partitions=[])
        yield 'it leaves', consumer_group_heartbeat, version, ConsumerGroupHeartbeatRequest(group_id='g', member_id='m',
            member_epoch=-1)
        yield 'it makes no sense', consumer_group_heartbeat, version, ConsumerGroupHeartbeatRequest(group_id='',
            member_id='m', member_epoch=1)
        yield 'its group is described', consumer_group_describe, version, ConsumerGroupDescribeRequest(group_ids=['g',
            ''])
    for version in (0, 2):
        yield 'groups are deleted', delete_groups, version, DeleteGroupsRequest(groups_names=['g', '', 'h'])


NO_TOPIC, NOT_LOADED = 'no topic', "can't be loaded"   # why a real broker wasn't the coordinator


def not_coordinator(reason: str) -> Table:
    "A node where a group is known, but the partition with its records is gone."
    table = Table()
    table.pair()
    store = table.here.store
    if reason == NO_TOPIC: store.known = None
    else: store.hosted = lambda partition: SimpleNamespace(error=ErrorCode.KAFKA_STORAGE_ERROR)
    return table


def facts(table: Table) -> tuple:
    "What a question that is refused must not change."
    return len(table.here.store.pairs), table.group.state, list(table.group.members), next_due(table.group)
