"Requests about the cluster in few words: elections, moves, the quorum, features."
from kafka_scratch.apis.describe_quorum import *
from kafka_scratch.apis.elect_leaders import *
from kafka_scratch.apis.reassignments import *
from kafka_scratch.apis.update_features import *


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
