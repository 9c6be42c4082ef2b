"""The Fetch and Produce requests of `fixtures/wire/edge`, sent to our broker: it should say what a real one said, byte
for byte.

The logs of the recorded broker are put together from what it answered. The requests are sent in the order of the
recording,
since Produce changes what there is.
"""
import struct

import pytest

from edge_cases import FETCH, PRODUCE, SESSION, recorded_broker, recorded_logs
from by_hand import api_versions, correlation_id
from kafka_scratch.apis.fetch_messages import FetchRequest
from kafka_scratch.apis.produce_messages import ProduceResponse


@pytest.fixture
def broker(tmp_path):
    with recorded_broker(tmp_path) as broker: yield broker


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
        request, kafkas = bytes.fromhex(case['request_hex']), case[
            'response_hex'] and bytes.fromhex(case['response_hex'])
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
        request, kafkas = bytes.fromhex(case['request_hex']), case[
            'response_hex'] and bytes.fromhex(case['response_hex'])
        with broker.client() as client:
            client.send(request)
            # Kafka never answers again, which is worse
            if case['name'] == 'v11-null-records': assert client.is_closed()
            elif case['outcome'].startswith('no response'): assert client.stays_open()
            elif kafkas is None: assert client.is_closed(), case['name']
            elif case['name'] == 'v11-future-timestamp': check_times(client.frame(), kafkas)
            else: assert client.frame() == kafkas, case['name']


def check_times(ours: bytes, kafkas: bytes):
    "The same answer, but for the two times that depend on the clock."
    ours, kafkas = (ProduceResponse.decode(response, 11, 9) for response in (ours, kafkas))
    texts = [p.record_errors[0].batch_index_error_message.rpartition('[') for response in (ours,
        kafkas) for p in response.responses[0].partition_responses]
    assert texts[0][0] == texts[1][0]
    for response in (ours, kafkas):
        response.responses[0].partition_responses[0].record_errors[0].batch_index_error_message = None
    assert ours == kafkas


def test_waits_as_long_as_kafka():
    "The recorded times of fetches that waited are about what they asked for: the recording is what we think it is."
    for name, wait in {'v16-min-bytes-wait-empty-800ms': 800, 'v16-min-bytes-too-large-waits-700ms': 700}.items():
        case = next(case for case in FETCH if case['name'] == name)
        assert FetchRequest.decode(bytes.fromhex(case['request_hex']), 16,
                                   4 + 8 + 2 + 4 + 1).max_wait_ms == wait <= case['elapsed_ms'] < wait + 50
