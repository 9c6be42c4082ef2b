"""What the tests of topics and settings share: requests in few words, and a node without sockets on a directory of its
own."""
from pathlib import Path

from player import answer_in, exchanges, framed, play
from kafka_scratch.cluster.config import read_config
from kafka_scratch.cluster.settings_table import *
from kafka_scratch.cluster.other_settings import *
from kafka_scratch.cluster.settings import *
from kafka_scratch.apis.describe_configs import *
from kafka_scratch.apis.configs import *
from kafka_scratch.cluster.controller import Controller, become_leader
from kafka_scratch.apis.api import Node
from kafka_scratch.cluster.logs import Logs, begin_logs, end_logs
from kafka_scratch.apis.metadata_messages import MetadataRequest, MetadataRequestTopic
from kafka_scratch.wire.codes import METADATA
from kafka_scratch.cluster.metadata_log import MetadataLog
from kafka_scratch.cluster.records import BrokerEndpoint, ConfigRecord, FeatureLevelRecord, RegisterBrokerRecord
from kafka_scratch.apis.auto_topic_creation import metadata_creating
from kafka_scratch.apis.create_partitions import *
from kafka_scratch.apis.create_topics import *
from kafka_scratch.apis.delete_topics import *
from kafka_scratch.apis.describe_cluster import *

APIS = {api.key: api for api in (create_topics, delete_topics, create_partitions, describe_cluster, metadata_creating,
                                 describe_configs,
                                 incremental_alter_configs, alter_configs, list_config_resources)}
NOTHING = bytes(16)


# --- Requests in few words --------------------------------------------------------------------------------------------

def topic(name, partitions=1, replicas=1, by_hand=(), settings=()) -> CreatableTopic:
    "`by_hand`: pairs of partition and brokers; `settings`: pairs of name and value, perhaps the same twice."
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas,
                          assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=list(ids)) for i,
                                       ids in by_hand],
                          configs=[CreatableTopicConfig(name=key, value=value) for key,
                                   value in dict(settings).items()])


def create(*topics, timeout_ms=30_000, validate_only=False):
    return CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)


def delete(*entries, version=6, timeout_ms=30_000):
    "Names, ids, or both in a pair."
    if version < 6: return DeleteTopicsRequest(topic_names=list(entries), timeout_ms=timeout_ms)
    def state(entry):
        if isinstance(entry, str): return DeleteTopicState(name=entry)
        return DeleteTopicState(topic_id=entry) if isinstance(entry, bytes) else DeleteTopicState(name=entry[0],
            topic_id=entry[1])
    return DeleteTopicsRequest(topics=[state(entry) for entry in entries], timeout_ms=timeout_ms)


def grow(*topics, timeout_ms=30_000, validate_only=False):
    "Pairs of name and count, perhaps with a list of brokers for each new partition."
    return CreatePartitionsRequest(timeout_ms=timeout_ms, validate_only=validate_only, topics=[
        CreatePartitionsTopic(name=name, count=count,
                              assignments=[CreatePartitionsAssignment(broker_ids=ids) for ids in by_hand[0]] if by_hand
                              else None)
        for name, count, *by_hand in topics])


def settings_of(*resources, synonyms=True):
    "Triples of kind, name, and keys or None."
    return DescribeConfigsRequest(include_synonyms=synonyms, resources=[
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for kind, name,
        keys in resources])


def alter(*resources, validate_only=False):
    "Triples of kind, name, and changes: (key, operation, value)."
    return IncrementalAlterConfigsRequest(validate_only=validate_only, resources=[
        AlterConfigsResource(resource_type=kind, resource_name=name, configs=[
            AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes])
        for kind, name, changes in resources])


def replace(*resources, validate_only=False):
    "Triples of kind, name, and pairs of key and value."
    return AlterConfigsRequest(validate_only=validate_only, resources=[
        ReplaceConfigsResource(resource_type=kind, resource_name=name, configs=[ReplacingConfig(name=key,
            value=value) for key, value in pairs])
        for kind, name, pairs in resources])


def metadata_of(*names, create=True):
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create)


# --- A node without sockets -------------------------------------------------------------------------------------------

class NoGroups:
    "What is told to groups when topics go."
    def topics_deleted(self, names: set[str]): pass


class Played:
    "Node, controller and logs in one directory; `ask` is a call."
    def __init__(self, directory: Path, text: str = '', port: int = 9092, cluster_id: str = 'cluster',
                 elr: bool = False, now=None):
        self.directory, self.properties = Path(directory), read_config(text).properties
        self.log = MetadataLog(str(self.directory/METADATA))
        self.logs = Logs([str(self.directory)], 1, read_config(text).logs, note=lambda text: None)
        if now: self.logs.now = now
        self.logs.defaults_of = lambda image: log_defaults(self.properties, 1, image)
        self.node = Node(APIS.values(), image=self.log.image, logs=self.logs, cluster_id=cluster_id,
                         properties=self.properties, groups=NoGroups())
        us = RegisterBrokerRecord(broker_id=1, fenced=False, rack=None,
                                  end_points=[BrokerEndpoint(name='PLAINTEXT', host='127.0.0.1', port=port)])
        first = [FeatureLevelRecord(name='eligible.leader.replicas.version', feature_level=1),
                 ConfigRecord(resource_type=BROKER, resource_name='', name='min.insync.replicas',
                              value='1')] if elr else []
        self.node.controller = self.controller = Controller(self.log, 1, self.load, self.logs.now, lambda: [us, *first],
                                                            note=lambda text: None)
        self.load()
        begin_logs(self.logs)
        if 1 not in self.image.brokers: become_leader(self.controller)

    def load(self):
        self.log.poll()
        self.node.image = self.log.image
        self.logs.set_image(self.log.image)

    @property
    def image(self): return self.log.image
    def __enter__(self): return self
    def __exit__(self, *_): self.close()

    def close(self):
        end_logs(self.logs)
        self.controller.close()

    def ask(self, request, version: int | None = None):
        api = APIS[request.API_KEY]
        return answer_in(api, version or request.VERSIONS[-1], self.raw(framed(api, version or request.VERSIONS[-1],
            request)))

    def raw(self, frame: bytes) -> bytes: return self.node.answer(frame[4:])

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir() if path.is_dir() and path.name != METADATA)


# --- Recorded conversations -------------------------------------------------------------------------------------------

def topic_ids(answer) -> dict[str, bytes]:
    "The ids in an answer of CreateTopics, by name. They are random."
    return {each.name: each.topic_id for each in answer.topics if each.topic_id != NOTHING} if isinstance(answer,
        CreateTopicsResponse) else {}


def admin_answer_in_order(answer):
    "An answer, with what a real broker takes out of hash maps (or shuffles) put in order, and without what is its own."
    if isinstance(answer, DeleteTopicsResponse):
        answer.responses.sort(key=lambda each: (each.name or '', each.topic_id))
    if isinstance(answer, CreatePartitionsResponse): answer.results.sort(key=lambda each: each.name)
    if isinstance(answer, ListConfigResourcesResponse):
        answer.config_resources.sort(key=lambda each: (each.resource_type, each.resource_name))
    if isinstance(answer, CreateTopicsResponse): answer.topics.sort(key=lambda each: each.name)
    if isinstance(answer, DescribeConfigsResponse):
        for result in answer.results: result.configs.sort(key=lambda each: each.name)
        answer.results.sort(key=lambda each: each.error_code in (29, 30, 31))   # it puts those last, and so may we
    if hasattr(answer, 'brokers') and hasattr(answer, 'topics'):   # Metadata: who is told what
        return sorted((each.name, each.error_code, len(each.partitions)) for each in answer.topics)
    return answer


def played(cases: list[dict], player: Played):
    "Each case with our answer and the real one, in order."
    for heard in play(player.node, exchanges(cases), made_up=topic_ids):
        yield heard.event.step, *(admin_answer_in_order(answer_in(heard.api, heard.version,
                                                                  frame)) for frame in (heard.ours, heard.theirs))
