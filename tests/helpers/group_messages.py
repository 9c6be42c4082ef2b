"""Requests of members and of transactions, as far as the tests of offsets need them.

Declared here, and not taken from the chapters that serve them: what plays the client should not come from the broker.
"""
from kafka_scratch.apis.api import Api
from kafka_scratch.wire.primitives import *
from kafka_scratch.wire.schema import *


@nested
class JoinGroupRequestProtocol:
    name: String
    metadata: Bytes

@message(api_key=11, versions='5')
class JoinGroupRequest:
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32
    member_id: String
    group_instance_id: String = field(nullable='5+', default=None)
    protocol_type: String
    protocols: Array[JoinGroupRequestProtocol]

@nested
class JoinGroupResponseMember:
    member_id: String
    group_instance_id: String = field(nullable='5+', default=None)
    metadata: Bytes

@message(api_key=11, versions='5')
class JoinGroupResponse:
    throttle_time_ms: Int32
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    protocol_name: String
    leader: String
    member_id: String
    members: Array[JoinGroupResponseMember]

@nested
class SyncGroupRequestAssignment:
    member_id: String
    assignment: Bytes

@message(api_key=14, versions='3')
class SyncGroupRequest:
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String = field(nullable='3+', default=None)
    assignments: Array[SyncGroupRequestAssignment]

@message(api_key=14, versions='3')
class SyncGroupResponse:
    throttle_time_ms: Int32
    error_code: Int16
    assignment: Bytes

@message(api_key=13, versions='2')
class LeaveGroupRequest:
    group_id: String
    member_id: String

@message(api_key=13, versions='2')
class LeaveGroupResponse:
    throttle_time_ms: Int32
    error_code: Int16

@message(api_key=10, versions='1')
class FindCoordinatorRequest:
    key: String
    key_type: Int8

@message(api_key=10, versions='1')
class FindCoordinatorResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String = field(nullable='1+', default=None)
    node_id: Int32
    host: String
    port: Int32

@nested
class HeartbeatTopicPartitions:
    topic_id: Uuid
    partitions: Array[Int32]

@nested
class HeartbeatAssignment:
    topic_partitions: Array[HeartbeatTopicPartitions]

@message(api_key=68, versions='1', flexible='0+')
class ConsumerGroupHeartbeatRequest:
    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String = field(nullable='0+', default=None)
    rack_id: String = field(nullable='0+', default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: Array[String] = field(nullable='0+', default=None)
    subscribed_topic_regex: String = field(nullable='1+', default=None)
    server_assignor: String = field(nullable='0+', default=None)
    topic_partitions: Array[HeartbeatTopicPartitions] = field(nullable='0+', default=None)

@message(api_key=68, versions='1', flexible='0+')
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String = field(nullable='0+', default=None)
    member_id: String = field(nullable='0+', default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: HeartbeatAssignment = field(nullable='0+', default=None)

@message(api_key=22, versions='1')
class InitProducerIdRequest:
    transactional_id: String = field(nullable='0+')
    transaction_timeout_ms: Int32

@message(api_key=22, versions='1')
class InitProducerIdResponse:
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64
    producer_epoch: Int16

@message(api_key=25, versions='1')
class AddOffsetsToTxnRequest:
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String

@message(api_key=25, versions='1')
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16

@nested
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field('2+', default=-1)
    committed_metadata: String = field(nullable='0+')

@nested
class TxnOffsetCommitRequestTopic:
    name: String
    partitions: Array[TxnOffsetCommitRequestPartition]

@message(api_key=28, versions='2')
class TxnOffsetCommitRequest:
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    topics: Array[TxnOffsetCommitRequestTopic]

@nested
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16

@nested
class TxnOffsetCommitResponseTopic:
    name: String
    partitions: Array[TxnOffsetCommitResponsePartition]

@message(api_key=28, versions='2')
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32
    topics: Array[TxnOffsetCommitResponseTopic]

@message(api_key=26, versions='1')
class EndTxnRequest:
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Boolean

@message(api_key=26, versions='1')
class EndTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16

find_coordinator = Api(FindCoordinatorRequest, FindCoordinatorResponse)
join_group, sync_group = Api(JoinGroupRequest, JoinGroupResponse), Api(SyncGroupRequest, SyncGroupResponse)
leave_group = Api(LeaveGroupRequest, LeaveGroupResponse)
consumer_group_heartbeat = Api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
init_producer_id, end_txn = Api(InitProducerIdRequest, InitProducerIdResponse), Api(EndTxnRequest, EndTxnResponse)
add_offsets_to_txn = Api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
txn_offset_commit = Api(TxnOffsetCommitRequest, TxnOffsetCommitResponse)
