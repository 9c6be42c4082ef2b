"Side by side with a running Apache Kafka 4.1.1: the same directory, the same questions, the same bytes."
import json
import re
import shutil
import sys


from size import needs_kafka
from broker_process import ROOT, Client, running

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.apis.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kafka_scratch.wire.frames import RequestHeader
from kafka_scratch.cluster.records import RECORD_TYPES, write_value
from kafka_scratch.wire.primitives import Int32
from kafka_scratch.log.records import Record, write_batch
from kafka_scratch.wire.schema import kafka_json

pytestmark = needs_kafka

TOPICS = {'orders': 1, 'edge.a': 3, 'edge-b': 12, 'Edge_C': 5}


def describe(*names, limit=2000, cursor=None) -> bytes:
    header = RequestHeader(api_key=75, api_version=0, correlation_id=7, client_id='test').encode(2)
    body = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names],
                                          response_partition_limit=limit, cursor=cursor).encode(0)
    return Int32.write(len(header) + len(body)) + header + body


QUESTIONS = {
    'everything': describe(),
    'by name, unsorted, twice': describe('orders', 'edge-b', 'edge.a', 'orders'),
    'a page': describe('orders', 'edge-b', 'edge.a', limit=5),
    'the next page': describe('orders', 'edge-b', 'edge.a', limit=5, cursor=Cursor(topic_name='edge-b',
        partition_index=5)),
    'all, a page': describe(limit=7),
    'unknown and invalid': describe('nobody', 'bad name!', 'Edge_C'),
    'an empty name': describe('', 'orders'),
    'a cursor to nowhere': describe('orders', cursor=Cursor(topic_name='edge.a', partition_index=0)),
    'ApiVersions 99': bytes.fromhex('0000000b 0012 0063 00000007 ffff 00'),
    'a bad software name': bytes.fromhex('00000013 0012 0004 00000007 ffff 00 05 6e6f2065 02 31 00'),
}


def answers(port: int) -> dict[str, str]:
    found = {}
    for name, question in QUESTIONS.items():
        with Client(port) as client: found[name] = client.ask(question).hex()
    return found


def test_the_same_answers_on_the_same_directory(tmp_path):
    "Kafka makes the topics and shuts down; then both start on what it left behind, and take its partitions back."
    kafka = real_kafka.RealKafka(tmp_path/'kafka')
    with kafka: kafka.create_topics(TOPICS)
    shutil.copytree(kafka.log_dir, tmp_path/'ours'/'logs')
    with kafka: theirs = answers(kafka.port)
    with running(tmp_path/'ours') as broker: ours = answers(broker.port)
    assert ours == theirs


def messages():
    "One message of every type in every version, with something in every field."
    for cls in RECORD_TYPES.values():
        for version in cls.VERSIONS:
            values = {f.name: sample(f.type) for f in cls.FIELDS if version in f.versions}
            yield cls(**values), version


def sample(declared):
    if isinstance(declared, type): return declared(**{f.name: sample(f.type) for f in declared.FIELDS})
    if hasattr(declared, 'element'): return [sample(declared.element)]
    return {'String': 'text', 'Bytes': b'raw', 'Uuid': bytes(range(16)), 'Boolean': True,
            'Float64': 1.5}.get(declared.name, 1)


def test_kafka_reads_what_we_write(tmp_path):
    "Every metadata record, written by us, printed by Kafka's own tool."
    written = list(messages())
    records = [Record(offset_delta=i, value=write_value(message, version)) for i,
               (message, version) in enumerate(written)]
    log = tmp_path/'00000000000000000000.log'
    log.write_bytes(write_batch(records, partition_leader_epoch=1, base_timestamp=1, max_timestamp=1))
    printed = real_kafka.dump_log(log, '--cluster-metadata-decoder')
    payloads = [json.loads(found) for found in re.findall(r'payload: (\{.*\})', printed)]
    name = lambda message: re.sub(r'(?<!^)(?=[A-Z])', '_', type(message).__name__).upper()
    assert 'isvalid: true' in printed and len(written) > 30
    assert payloads == [{'type': name(m), 'version': version, 'data': kafka_json(m, version)} for m, version in written]
