"""The Fetch and Produce requests of `fixtures/wire/edge`, sent to our broker: it should say what a real one said, byte for byte.

The logs of the recorded broker are put together from what it answered. The requests are sent in the order of the recording,
since Produce changes what there is.
"""
import json
import struct

import pytest

from broker_process import FIXTURES, running
from by_hand import api_versions, correlation_id
from kafka_scratch.apis.fetch import FetchRequest, FetchResponse
from kafka_scratch.cluster.records import ConfigRecord, write_value
from kafka_scratch.apis.produce import ProduceResponse
from kafka_scratch.log.records import Record, write_batch
from test_edge_cases import STATE, frames, state_log

EDGE = FIXTURES/'wire'/'edge'
TOPIC = 2   # the kind of resource that a ConfigRecord of a topic is about


def read_cases(name: str) -> list[dict]: return [json.loads(line) for line in (EDGE/f'{name}.jsonl').read_text().splitlines()]


FETCH, SESSION, PRODUCE = map(read_cases, ('fetch', 'fetch-session-sequence', 'produce'))
NAMES = {topic['topicIdHex']: topic['name'] for topic in STATE['topics']}


def config_log(base_offset: int) -> bytes:
    settings = [(topic['name'], name, value) for topic in STATE['topics'] for name, value in topic['configOverrides'].items()]
    records = [Record(offset_delta=i, value=write_value(ConfigRecord(resource_type=TOPIC, resource_name=topic, name=name, value=value), 0))
               for i, (topic, name, value) in enumerate(settings)]
    return write_batch(records, base_offset=base_offset, partition_leader_epoch=1)


def recorded_logs() -> dict[tuple[str, int], bytes]:
    "The whole log of each partition that was fetched from its beginning."
    found = {}
    for case in FETCH:
        if not case['response_hex'] or '-from-0' not in case['name'] and 'two-topics' not in case['name'] and 'uncommitted' not in case['name']: continue
        version = struct.unpack_from('>h', bytes.fromhex(case['request_hex']), 6)[0]
        response = FetchResponse.decode(bytes.fromhex(case['response_hex']), version, 9 if version >= 12 else 8)
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.records: found[topic.topic or NAMES[topic.topic_id.hex()], partition.partition_index] = partition.records
    return found


@pytest.fixture
def broker(tmp_path):
    log = tmp_path/'logs'/'__cluster_metadata-0'
    log.mkdir(parents=True)
    state = state_log()
    (log/f'{0:020}.log').write_bytes(state + config_log(STATE['finalizedFeaturesEpoch'] + 1))
    for (topic, partition), records in recorded_logs().items():
        (tmp_path/'logs'/f'{topic}-{partition}').mkdir()
        (tmp_path/'logs'/f'{topic}-{partition}'/f'{0:020}.log').write_bytes(records)
    with running(tmp_path) as broker: yield broker


def test_logs_can_be_put_together():
    sizes = {place: len(records) for place, records in recorded_logs().items()}
    assert sizes[('edge.a', 0)] == 328 and sizes[('edge.a', 1)] == 172 and len(sizes) == 3


def without_session(request: bytes, response: bytes | None) -> bytes | None:
    "A session's id is chosen at random: it is taken out, where there is one."
    version = struct.unpack_from('>h', request, 6)[0]
    at = 4 + (5 if version >= 12 else 4) + 4 + 2
    return response if version < 7 or response is None else response[:at] + bytes(4) + response[at + 4:]


def test_fetch(broker):
    "Every recorded case, on one broker."
    for case in FETCH:
        request, kafkas = bytes.fromhex(case['request_hex']), case['response_hex'] and bytes.fromhex(case['response_hex'])
        with broker.client() as client:
            client.send(request)
            if kafkas is None: assert client.is_closed(), case['name']
            else:
                assert without_session(request, client.frame()) == without_session(request, kafkas), case['name']
                assert correlation_id(client.ask(api_versions(4711))) == 4711


def test_fetch_session(broker):
    "One session from its beginning to its end. Its id is ours; apart from that, the answers are Kafka's."
    theirs, ours = bytes.fromhex(SESSION[0]['response_hex'])[15:19], None
    with broker.client() as client:
        for case in SESSION:
            request = bytes.fromhex(case['request_hex'])
            response = client.ask(request.replace(theirs, ours) if ours else request)
            ours = ours or response[15:19]
            assert response == bytes.fromhex(case['response_hex']).replace(theirs, ours), case['name']
    assert any(ours)


def test_produce(broker):
    "Every recorded case in order. One message names the time at which it was written; two fail in ways of their own."
    for case in PRODUCE:
        request, kafkas = bytes.fromhex(case['request_hex']), case['response_hex'] and bytes.fromhex(case['response_hex'])
        with broker.client() as client:
            client.send(request)
            if case['name'] == 'v11-null-records': assert client.is_closed()   # Kafka never answers again, which is worse
            elif case['outcome'].startswith('no response'): assert client.stays_open()
            elif kafkas is None: assert client.is_closed(), case['name']
            elif case['name'] == 'v11-future-timestamp': check_times(client.frame(), kafkas)
            else: assert client.frame() == kafkas, case['name']


def check_times(ours: bytes, kafkas: bytes):
    "The same answer, but for the two times that depend on the clock."
    ours, kafkas = (ProduceResponse.decode(response, 11, 9) for response in (ours, kafkas))
    texts = [p.record_errors[0].batch_index_error_message.rpartition('[') for response in (ours, kafkas) for p in response.responses[0].partition_responses]
    assert texts[0][0] == texts[1][0]
    for response in (ours, kafkas): response.responses[0].partition_responses[0].record_errors[0].batch_index_error_message = None
    assert ours == kafkas


def test_waits_as_long_as_kafka():
    "The recorded times of fetches that waited are about what they asked for: the recording is what we think it is."
    for name, wait in {'v16-min-bytes-wait-empty-800ms': 800, 'v16-min-bytes-too-large-waits-700ms': 700}.items():
        case = next(case for case in FETCH if case['name'] == name)
        assert FetchRequest.decode(bytes.fromhex(case['request_hex']), 16, 4 + 8 + 2 + 4 + 1).max_wait_ms == wait <= case['elapsed_ms'] < wait + 50
