"The requests of `fixtures/wire/edge`, and the state in which the real broker was when it was asked."
import contextlib
import json
import struct
from pathlib import Path

from broker_process import FIXTURES, running
from kafka_scratch.apis.fetch_messages import FetchResponse
from kafka_scratch.cluster.records import ConfigRecord, FeatureLevelRecord, PartitionRecord, TopicRecord, write_value
from kafka_scratch.wire.primitives import uuid_bytes
from kafka_scratch.log.records import Record, write_batch

EDGE = FIXTURES/'wire'/'edge'
STATE = json.loads((EDGE/'expected.json').read_text())


def state_log() -> bytes:
    "A metadata log that leads to the recorded state, and ends at the recorded offset."
    messages = [(FeatureLevelRecord(name=name, feature_level=level), 0) for name,
                level in STATE['finalizedFeatures'].items()]
    for topic in STATE['describeTopicPartitionsV0']['topics']:
        topic_id = uuid_bytes(topic['topicId'])
        messages.append((TopicRecord(name=topic['name'], topic_id=topic_id), 0))
        for p in topic['partitions']:
            messages.append((PartitionRecord(partition_id=p['partitionIndex'], topic_id=topic_id,
                                             replicas=p['replicaNodes'], isr=p['isrNodes'], leader=p['leaderId'],
                                             leader_epoch=p['leaderEpoch'], partition_epoch=0,
                                             directories=[bytes(16)] * len(p['replicaNodes'])), 1))
    records = [Record(offset_delta=i, value=write_value(message, version)) for i,
               (message, version) in enumerate(messages)]
    return write_batch(records, base_offset=STATE['finalizedFeaturesEpoch'] - len(records) + 1,
                       partition_leader_epoch=1)


def frames(data: bytes) -> list[bytes]:
    "The whole frames at the front of what a client sent."
    found = []
    while len(data) >= 4 and 0 < struct.unpack_from('>i', data)[0] <= len(data) - 4:
        size = 4 + struct.unpack_from('>i', data)[0]
        found.append(data[:size])
        data = data[size:]
    return found


# --- Its logs, put together from what it answered
# -----------------------------------------------------------------------

TOPIC = 2   # the kind of resource that a ConfigRecord of a topic is about


def read_cases(name: str) -> list[dict]:
    return [json.loads(line) for line in (EDGE/f'{name}.jsonl').read_text().splitlines()]


FETCH, SESSION, PRODUCE = map(read_cases, ('fetch', 'fetch-session-sequence', 'produce'))
NAMES = {topic['topicIdHex']: topic['name'] for topic in STATE['topics']}


def config_log(base_offset: int) -> bytes:
    settings = [(topic['name'], name, value) for topic in STATE['topics'] for name,
                value in topic['configOverrides'].items()]
    records = [Record(offset_delta=i, value=write_value(ConfigRecord(resource_type=TOPIC, resource_name=topic,
                                                                     name=name, value=value), 0))
               for i, (topic, name, value) in enumerate(settings)]
    return write_batch(records, base_offset=base_offset, partition_leader_epoch=1)


def recorded_logs() -> dict[tuple[str, int], bytes]:
    "The whole log of each partition that was fetched from its beginning."
    found = {}
    for case in FETCH:
        if not case['response_hex'] or '-from-0' not in case['name'] and 'two-topics' not in case[
            'name'] and 'uncommitted' not in case['name']:
            continue
        version = struct.unpack_from('>h', bytes.fromhex(case['request_hex']), 6)[0]
        response = FetchResponse.decode(bytes.fromhex(case['response_hex']), version, 9 if version >= 12 else 8)
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.records:
                    found[topic.topic or NAMES[topic.topic_id.hex()], partition.partition_index] = partition.records
    return found


@contextlib.contextmanager
def recorded_broker(directory: Path):
    "Our broker, in the state of the real one, with the same logs."
    log = directory/'logs'/'__cluster_metadata-0'
    log.mkdir(parents=True)
    (log/f'{0:020}.log').write_bytes(state_log() + config_log(STATE['finalizedFeaturesEpoch'] + 1))
    for (topic, partition), records in recorded_logs().items():
        (directory/'logs'/f'{topic}-{partition}').mkdir()
        (directory/'logs'/f'{topic}-{partition}'/f'{0:020}.log').write_bytes(records)
    with running(directory) as broker: yield broker
