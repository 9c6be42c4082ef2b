"Requests about the cluster in few words: elections, moves, the quorum, features; and a broker that never comes."
import time
import uuid

from broker_process import Client
from player import answer_in, framed
from kafka_scratch.apis.api import Api
from kafka_scratch.apis.describe_cluster import DescribeClusterRequest, describe_cluster
from kafka_scratch.apis.describe_quorum import *
from kafka_scratch.apis.elect_leaders import *
from kafka_scratch.apis.reassignments import *
from kafka_scratch.apis.update_features import *
from kafka_scratch.wire.primitives import *
from kafka_scratch.wire.schema import *


def elect(*topics, everything=False, kind=0, timeout_ms=30_000):
    "Topics with their partitions: `('orders', 0, 2)`."
    named = [TopicPartitions(topic=name, partitions=list(numbers)) for name, *numbers in topics]
    return ElectLeadersRequest(election_type=kind, timeout_ms=timeout_ms,
                               topic_partitions=None if everything else named)


def reassign(*topics, may_change=True, timeout_ms=30_000):
    "Topics, each with the replicas of its partitions: `('orders', {0: [1], 1: None})`."
    def partitions(wanted):
        pairs = wanted.items() if isinstance(wanted, dict) else wanted
        return [ReassignablePartition(partition_index=number, replicas=replicas) for number, replicas in pairs]
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, allow_replication_factor_change=may_change,
        topics=[ReassignableTopic(name=name, partitions=partitions(wanted)) for name, wanted in topics])


def ongoing(*topics, everything=False, timeout_ms=30_000):
    named = [ListPartitionReassignmentsTopics(name=name, partition_indexes=list(numbers)) for name, *numbers in topics]
    return ListPartitionReassignmentsRequest(topics=None if everything else named, timeout_ms=timeout_ms)


def quorum(*topics):
    return DescribeQuorumRequest(topics=[
        QuorumTopic(topic_name=name, partitions=[QuorumPartition(partition_index=number) for number in numbers])
        for name, *numbers in topics])


def update(levels, kind=1, check=False, allow=False, timeout_ms=30_000):
    "Features and their levels: `{'group.version': 1}`; or triples with the type of each change."
    each = [(name, level, kind) for name, level in levels.items()] if isinstance(levels, dict) else levels
    return UpdateFeaturesRequest(timeout_ms=timeout_ms, validate_only=check, feature_updates=[
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=allow)
        for name, level, kind in each])


# --- A broker that is registered and never comes ----------------------------------------------------------------------

@nested
class Listener:
    name: String
    host: String
    port: UInt16
    security_protocol: Int16

@nested
class Feature:
    name: String
    min_supported_version: Int16
    max_supported_version: Int16

@message(api_key=62, versions='0-4', flexible='0+')
class BrokerRegistrationRequest:
    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: Array[Listener]
    features: Array[Feature]
    rack: String = field(nullable='0+', default=None)
    is_migrating_zk_broker: Boolean = field('1+')
    log_dirs: Array[Uuid] = field('2+')
    previous_broker_epoch: Int64 = field('3+', default=-1)

@message(api_key=62, versions='0-4', flexible='0+')
class BrokerRegistrationResponse:
    throttle_time_ms: Int32
    error_code: Int16
    broker_epoch: Int64 = field(default=-1)

registration = Api(BrokerRegistrationRequest, BrokerRegistrationResponse)


def register(kafka, broker_id: int, **features):
    "Registers a broker with the controller. It is fenced, until it would send a heartbeat."
    with Client(kafka.port) as client: raw = client.ask(framed(describe_cluster, 2, DescribeClusterRequest()))
    ranges = {'metadata.version': (7, 27), 'group.version': (0, 1), 'transaction.version': (0, 2),
              'eligible.leader.replicas.version': (0, 1), 'kraft.version': (0, 1)} | features
    asked = BrokerRegistrationRequest(
        broker_id=broker_id, cluster_id=answer_in(describe_cluster, 2, raw).cluster_id,
        incarnation_id=uuid.uuid4().bytes,
        listeners=[Listener(name='PLAINTEXT', host='127.0.0.1', port=1, security_protocol=0)],
        features=[Feature(name=name, min_supported_version=least, max_supported_version=most)
                  for name, (least, most) in ranges.items()], log_dirs=[b'a directory id..'])
    with Client(kafka.controller_port) as client: said = client.ask(framed(registration, 4, asked))
    assert not answer_in(registration, 4, said).error_code, said
    time.sleep(1)
