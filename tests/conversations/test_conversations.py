"""Conversations between real clients and a real Kafka, held again with this broker.

Every request of a recorded client is sent as it was, in the same order on as many connections, but for what the broker
itself gave
out: topic ids, member ids, producer ids, fetch sessions. The answers must have the same shape: the same errors, the
same partitions,
the same records; only times, addresses and such ids may be others.
"""
import json
import struct
import time
from pathlib import Path

import pytest

from broker_process import Client, running

from kafka_scratch.client.client import write_request
from kafka_scratch.log.checksums import crc32c
from kafka_scratch.apis.configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from kafka_scratch.apis.configs import incremental_alter_configs
from kafka_scratch.apis.api import read_request
from kafka_scratch.broker.apis import APIS
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_scratch.apis.produce import produce
from kafka_scratch.log.records import CRC_ENDS, CRC_STARTS, Record, read_batches, read_records, write_batch
from kafka_scratch.wire.schema import Message
from kafka_scratch.apis.create_topics import CreatableTopic, CreateTopicsRequest, create_topics

WIRE = Path(__file__).parents[1]/'fixtures'/'wire'/'clients'
API_VERSIONS, METADATA, FIND_COORDINATOR = 18, 3, 10

# What was there when the recording began, and in which order a client did its jobs.
BEFORE = {'w.alpha': 3, 'w.beta': 5, 'w.gamma': 1}   # and two records in the first partition of the first
JOBS = {
    'aiokafka': 'aiokafka.create aiokafka.list aiokafka.describe aiokafka.produce aiokafka.consume',
    'confluent': 'confluent.create confluent.list confluent.describe confluent.produce confluent.consume '
                 'confluent.consume848',
    'franz-go': 'franz-go.create franz-go.list franz-go.produce franz-go.consume',
    'java': '''java-admin.cluster java-admin.list java-admin.describe java-admin.describe-paged java-admin.describe-by-id java-admin.create
        java-admin.createPartitions java-admin.configs java-admin.listOffsets java-admin.delete
        java.produce java.consume-classic java.consume-848 java-admin.groups java.transactional''',  # noqa: E501
    'kafkajs': 'kafkajs.create kafkajs.admin kafkajs.produce kafkajs.consume',
    'kafkapython': 'kafkapython.create kafkapython.list kafkapython.describe kafkapython.produce kafkapython.consume',
    'kcat': 'kcat.list kcat.produce kcat.consume-simple kcat.consume'}

# what a broker gives out; the client says it again
GIVEN = {'member_id', 'leader', 'topic_id', 'producer_id', 'session_id', 'cluster_id'}
FREE = {'throttle_time_ms', 'host', 'port', 'error_message', 'log_append_time_ms', 'timestamp', 'commit_timestamp',
        'client_host', 'client_id', 'rack',
        'finalized_features_epoch', 'finalized_features', 'supported_features', 'directory_id', 'controller_id',
        'documentation'}
# COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, LEADER_NOT_AVAILABLE: a real broker needed a moment, and we
# didn't
OWN_PACE = {15, 14, 5}
DEPENDS = {('ApiVersionsResponse', 'api_keys'), ('MetadataResponse', 'topics'), ('MetadataResponse', 'brokers'),
           ('ListGroupsResponse', 'groups'),
           # lists that tell what else there is
           ('DescribeConfigsResult', 'configs'), ('CreatableTopicResult', 'configs')}


def lines(job: str) -> list[dict]:
    found = [json.loads(line) for line in (WIRE/f'{job}.jsonl').open()]
    inner = {line['conn'] for line in found if line['api_key'] in (24, 27)}   # the broker talked to itself
    return [line for line in found if line['conn'] not in inner]


class Conversation:
    "One recorded job, with a broker of ours in the place of the real one."
    def __init__(self, port: int, given: dict):
        self.port, self.given, self.connections = port, given, {}
        self.kafkas_versions = {}

    def line(self, number: int) -> Client:
        if number not in self.connections: self.connections[number] = Client(self.port)
        return self.connections[number]

    def close(self):
        for client in self.connections.values(): client.close()

    def say(self, line: dict):
        "Sends a request, with what this broker gave out in the place of what Kafka did."
        api, version = APIS[line['api_key']], line['api_version']
        if version not in api.request.VERSIONS: frame = bytes.fromhex(line['hex'])   # ApiVersions from the future
        else:
            header, request = read_request(bytes.fromhex(line['hex'])[4:], api, version)
            self.translate(request)
            frame = write_request(api, version, header.correlation_id, request, header.client_id)
        self.line(line['conn']).send(frame)

    def translate(self, value):
        for name in getattr(value, '__dict__', {}) or getattr(value, '__slots__', ()):
            found = getattr(value, name)
            if isinstance(found, Message): self.translate(found)
            elif isinstance(found, (list, tuple)):
                for each in found:
                    if isinstance(each, Message): self.translate(each)
            elif name == 'records' and found: setattr(value, name, self.rewritten(found))
            elif name in GIVEN: setattr(value, name, self.given.get((kind_of(name), found), found))

    def rewritten(self, records: bytes) -> bytes:
        "A batch of a producer whose id is another one here."
        batch = bytearray(records)
        producer_id, = struct.unpack_from('>q', batch, 43)
        struct.pack_into('>q', batch, 43, self.given.get(('producer_id', producer_id), producer_id))
        struct.pack_into('>I', batch, CRC_STARTS, crc32c(bytes(batch[CRC_ENDS:])))
        return bytes(batch)

    def hear(self, line: dict):
        "Reads an answer, and compares it with Kafka's."
        api, version = APIS[line['api_key']], line['api_version']
        raw = self.line(line['conn']).frame()
        if version not in api.request.VERSIONS: version = 0
        start = 8 + api.response_header_version(version)
        ours, kafkas = (api.response.codec(version).read(frame, start)[0] for frame in (raw,
            bytes.fromhex(line['hex'])))
        differences = list(self.compare(ours, kafkas, type(kafkas).__name__))
        assert not differences, f'{line["api_name"]} {version}, number {line["seq"]}: {differences}\nours:   {ours}\nKafka\'s: {kafkas}'  # noqa: E501

    def compare(self, ours, kafkas, path: str):
        "Yields what is different."
        if isinstance(kafkas, Message):
            if getattr(kafkas, 'error_code', 0) in OWN_PACE and not ours.error_code: return
            for name in getattr(kafkas, '__dict__', {}) or kafkas.__slots__:
                yield from self.compare_field(type(kafkas).__name__, name, getattr(ours, name), getattr(kafkas, name),
                                              f'{path}.{name}')
        elif ours != kafkas: yield f'{path}: {ours!r}, not {kafkas!r}'

    def compare_field(self, message: str, name: str, ours, kafkas, path: str):
        if name in FREE: return
        if name in GIVEN and type(ours) is type(kafkas):
            if kafkas or ours: self.given[kind_of(name), kafkas] = ours
            if bool(ours) != bool(kafkas) and name not in ('producer_id', 'session_id'):
                yield f'{path}: {ours!r}, not {kafkas!r}'
        elif name == 'records': yield from self.compare_records(ours, kafkas, path)
        elif isinstance(kafkas, (list, tuple)) and kafkas and isinstance(kafkas[0], Message):
            yield from self.compare_lists(message, name, ours, kafkas, path)
        elif isinstance(kafkas, (list, tuple)):
            if len(ours) != len(kafkas) and (message, name) not in DEPENDS:
                yield f'{path}: {len(ours)} of {len(kafkas)}'
        else: yield from self.compare(ours, kafkas, path)

    def compare_lists(self, message: str, name: str, ours, kafkas, path: str):
        depends = (message, name) in DEPENDS
        by_name = {key_of(each): each for each in ours}
        if not depends and len(ours) != len(kafkas): yield f'{path}: {len(ours)} of {len(kafkas)}'
        for number, each in enumerate(kafkas):
            key = key_of(each)
            if key in by_name: yield from self.compare(by_name[key], each, f'{path}[{key}]')
            elif not depends and key is None and number < len(ours):
                yield from self.compare(ours[number], each, f'{path}[{number}]')
            elif not depends and key is not None: yield f'{path}: no {key!r}'

    def compare_records(self, ours: bytes, kafkas: bytes, path: str):
        told = [[(record.offset, record.key, record.value,
                  record.headers) for batch in read_batches(data or b'') for record in read_records(batch)] for data
                  in (ours, kafkas)]
        if told[0] != told[1]: yield f'{path}: {told[0]}, not {told[1]}'


def kind_of(name: str) -> str: return 'member_id' if name == 'leader' else name


def key_of(message: Message):
    "What an element of a list is about, if it says."
    for name in ('name', 'topic', 'key', 'partition_index', 'partition', 'index', 'node_id', 'broker_id', 'api_key',
                 'group_id', 'resource_name'):
        found = getattr(message, name, None)
        if found is not None: return found


def now_ms() -> int: return time.time_ns() // 1_000_000


def make_topics(port: int):
    topics = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in BEFORE.items()]
    with Client(port) as client:
        answer = client.ask(write_request(create_topics, 7, 1, CreateTopicsRequest(topics=topics, timeout_ms=10_000)))
        assert answer is not None
        # Kafka set that itself, for all brokers
        setting = AlterableConfig(name='min.insync.replicas', config_operation=0, value='1')
        change = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(resource_type=4, resource_name='',
            configs=[setting])])
        assert client.ask(write_request(incremental_alter_configs, 1, 2, change)) is not None
        for number in range(2):
            batch = write_batch([Record(value=b'one of two')], base_timestamp=now_ms() + number,
                                max_timestamp=now_ms() + number)
            data = [TopicProduceData(name='w.alpha', partition_data=[PartitionProduceData(index=0, records=batch)])]
            assert client.ask(write_request(produce, 9, 1, ProduceRequest(acks=-1, timeout_ms=10_000,
                topic_data=data))) is not None


@pytest.mark.parametrize('client', JOBS)
def test_the_same_conversation(tmp_path, client):
    given = {}
    with running(tmp_path, offsets_topic_num_partitions=5, transaction_state_log_num_partitions=3,
                 log_index_size_max_bytes=65536) as broker:
        make_topics(broker.port)
        for job in JOBS[client].split():
            talk = Conversation(broker.port, given)
            try:
                for line in lines(job): (talk.say if line['direction'] == 'request' else talk.hear)(line)
            except AssertionError as error: raise AssertionError(f'{job}: {error}') from None
            finally: talk.close()
