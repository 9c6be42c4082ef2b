"""This broker with the few more APIs that Kafka's performance tools need. A stand-in until this project has groups and producer ids.

    python -m benchmarks.group_of_one server.properties

An idempotent producer, which every Java producer is unless told otherwise, asks for a producer id: it gets the next
number. A consumer of the group protocol of KIP-848 (`group.protocol=consumer`) gets all partitions of all topics that it
names, at once and for ever; a second member of its group would get the same. Committed offsets are kept in memory. That is
no coordinator, but none of it is on the way of a record: Produce and Fetch, which are measured, are the broker's own.
"""
import sys
import time
from itertools import count

from kafka_scratch import broker
from kafka_scratch.frames import Api
from kafka_scratch.metadata import live_brokers
from kafka_scratch.primitives import *
from kafka_scratch.schema import field, message, nested

HEARTBEAT_MS = 5000
producer_ids = count(int(time.time()))  # no producer of an earlier start gets the same
committed: dict[tuple, int] = {}        # (group, topic, partition) → offset


# --- FindCoordinator: we are ------------------------------------------------------------------------------------------

@message(api_key=10, versions='4-6', flexible='3+')
class FindCoordinatorRequest:
    key_type: Int8
    coordinator_keys: Array[String]


@nested
class Coordinator:
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: String = field(nullable='4+', default=None)


@message(api_key=10, versions='4-6', flexible='3+')
class FindCoordinatorResponse:
    throttle_time_ms: Int32
    coordinators: Array[Coordinator]


def find_coordinator(request, version: int, broker) -> FindCoordinatorResponse:
    we = next(each for each in live_brokers(broker.image, broker.listener_name) if each.node_id == broker.node_id)
    return FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=we.node_id, host=we.host, port=we.port)
                                                 for key in request.coordinator_keys])


# --- InitProducerId: the next number ----------------------------------------------------------------------------------

@message(api_key=22, versions='2-5', flexible='2+')
class InitProducerIdRequest:
    transactional_id: String = field(nullable='0+', default=None)
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(versions='3+', default=-1)
    producer_epoch: Int16 = field(versions='3+', default=-1)


@message(api_key=22, versions='2-5', flexible='2+')
class InitProducerIdResponse:
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16


def init_producer_id(request, version: int, broker) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=next(producer_ids))


# --- ConsumerGroupHeartbeat: everything for whoever asks --------------------------------------------------------------

@nested
class TopicPartitions:
    topic_id: Uuid
    partitions: Array[Int32]


@message(api_key=68, versions='1', flexible='0+')
class ConsumerGroupHeartbeatRequest:
    group_id: String
    member_id: String
    member_epoch: Int32  # 0: joins; -1: leaves
    instance_id: String = field(nullable='0+', default=None)
    rack_id: String = field(nullable='0+', default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: Array[String] = field(nullable='0+', default=None)
    subscribed_topic_regex: String = field(nullable='1+', default=None)
    server_assignor: String = field(nullable='0+', default=None)
    topic_partitions: Array[TopicPartitions] = field(nullable='0+', default=None)


@nested
class Assignment:
    topic_partitions: Array[TopicPartitions]


@message(api_key=68, versions='1', flexible='0+')
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String = field(nullable='0+', default=None)
    member_id: String = field(nullable='0+', default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment = field(nullable='0+', default=None)


def consumer_group_heartbeat(request, version: int, broker) -> ConsumerGroupHeartbeatResponse:
    answer = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch or 1,
                                            heartbeat_interval_ms=HEARTBEAT_MS)
    if request.member_epoch == 0:
        topics = filter(None, map(broker.image.topics.get, request.subscribed_topic_names or []))
        answer.assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=topic.topic_id, partitions=sorted(topic.states))
                                                         for topic in topics])
    return answer


# --- OffsetFetch and OffsetCommit: kept in memory ---------------------------------------------------------------------

@nested
class OffsetFetchTopic:
    name: String
    partition_indexes: Array[Int32]


@nested
class OffsetFetchGroup:
    group_id: String
    member_id: String = field(versions='9+', nullable='9+', default=None)
    member_epoch: Int32 = field(versions='9+', default=-1)
    topics: Array[OffsetFetchTopic] = field(nullable='8+')


@message(api_key=9, versions='8-9', flexible='6+')
class OffsetFetchRequest:
    groups: Array[OffsetFetchGroup]
    require_stable: Boolean


@nested
class FetchedOffset:
    partition_index: Int32
    committed_offset: Int64 = field(default=-1)
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: String = field(nullable='8+', default='')
    error_code: Int16


@nested
class FetchedTopic:
    name: String
    partitions: Array[FetchedOffset]


@nested
class FetchedGroup:
    group_id: String
    topics: Array[FetchedTopic]
    error_code: Int16


@message(api_key=9, versions='8-9', flexible='6+')
class OffsetFetchResponse:
    throttle_time_ms: Int32
    groups: Array[FetchedGroup]


def offset_fetch(request, version: int, broker) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=[FetchedGroup(group_id=group.group_id, topics=[
        FetchedTopic(name=topic.name, partitions=[
            FetchedOffset(partition_index=index, committed_offset=committed.get((group.group_id, topic.name, index), -1))
            for index in topic.partition_indexes]) for topic in group.topics or []]) for group in request.groups])


@nested
class OffsetCommitPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1)
    committed_metadata: String = field(nullable='0+', default=None)


@nested
class OffsetCommitTopic:
    name: String
    partitions: Array[OffsetCommitPartition]


@message(api_key=8, versions='8-9', flexible='8+')
class OffsetCommitRequest:
    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String
    group_instance_id: String = field(nullable='7+', default=None)
    topics: Array[OffsetCommitTopic]


@nested
class CommittedPartition:
    partition_index: Int32
    error_code: Int16


@nested
class CommittedTopic:
    name: String
    partitions: Array[CommittedPartition]


@message(api_key=8, versions='8-9', flexible='8+')
class OffsetCommitResponse:
    throttle_time_ms: Int32
    topics: Array[CommittedTopic]


def offset_commit(request, version: int, broker) -> OffsetCommitResponse:
    committed.update({(request.group_id, topic.name, partition.partition_index): partition.committed_offset
                      for topic in request.topics for partition in topic.partitions})
    return OffsetCommitResponse(topics=[CommittedTopic(name=topic.name, partitions=[
        CommittedPartition(partition_index=partition.partition_index) for partition in topic.partitions]) for topic in request.topics])


# --- The broker, with all of them -------------------------------------------------------------------------------------

EXTRA = (Api(FindCoordinatorRequest, FindCoordinatorResponse, find_coordinator),
         Api(InitProducerIdRequest, InitProducerIdResponse, init_producer_id),
         Api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, consumer_group_heartbeat),
         Api(OffsetFetchRequest, OffsetFetchResponse, offset_fetch),
         Api(OffsetCommitRequest, OffsetCommitResponse, offset_commit))


def add_apis() -> None:
    "What the broker has itself stays: as soon as a chapter declares one of these APIs, the stand-in is out of use."
    broker.APIS = {api.key: api for api in EXTRA} | broker.APIS


if __name__ == '__main__':
    add_apis()
    sys.exit(broker.main())
