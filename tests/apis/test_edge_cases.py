"""The requests of `fixtures/wire/edge`, sent to our broker: it should say what a real one said.

The broker is given a metadata log with the state in which the real one was asked. Answers to DescribeTopicPartitions
are then compared byte for byte. Kafka has more APIs than we do, so of ApiVersions the rest is compared.
"""
import json
import struct

import pytest

from edge_cases import EDGE, STATE, frames, state_log
from broker_process import running
from by_hand import API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS, api_versions, correlation_id, describe, read_api_versions
from by_hand import read_describe, read_features
from kafka_scratch.broker.apis import APIS

FILES = 'apiversions', 'describe-topic-partitions', 'framing'
CASES = [pytest.param(json.loads(line),
                      id=f'{file}: {json.loads(line)["name"]}') for file in FILES for line
                      in (EDGE/f'{file}.jsonl').read_text().splitlines()]


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp('edge')
    log = directory/'logs'/'__cluster_metadata-0'
    log.mkdir(parents=True)
    (log/f'{0:020}.log').write_bytes(state_log())
    with running(directory) as broker: yield broker


def api_of(request: bytes) -> tuple[int, int]: return struct.unpack_from('>hh', request, 4)


def check_like_kafkas(request: bytes, ours: bytes | None, kafkas: bytes):
    "Our answer to a request, beside Kafka's."
    key, version = api_of(request)
    if key == DESCRIBE_TOPIC_PARTITIONS or key == API_VERSIONS and struct.unpack_from('>h', kafkas, 8)[0]:
        assert ours == kafkas
    elif key == API_VERSIONS:
        check_api_versions(version, read_api_versions(ours, version), read_api_versions(kafkas, version))
    else: assert correlation_id(ours) == correlation_id(kafkas)


def check_api_versions(version: int, ours: dict, kafkas: dict):
    assert {name: value for name, value in ours.items() if name not in ('api_keys', 'tags')} == {name: value for name,
        value in kafkas.items() if name not in ('api_keys', 'tags')}
    assert ours['api_keys'] == [(key, APIS[key].request.VERSIONS[0] if key else 0,
                                 APIS[key].request.VERSIONS[-1]) for key in sorted(APIS)]
    theirs = {key: (least, most) for key, least, most in kafkas['api_keys']}
    for key, least, most in ours['api_keys']:
        assert theirs[key] == (least, most), f'key {key}: Kafka has other versions'
    if version >= 3:
        # Kafka's went on: its log gets a record every 500 ms
        assert ours['tags'][1] == struct.pack('>q', STATE['finalizedFeaturesEpoch']) <= kafkas['tags'][1]
        assert read_features(ours['tags'][2]) == read_features(kafkas['tags'][2])
        assert set(ours['tags']) == set(kafkas['tags'])
        assert read_features(ours['tags'][0]).items() <= read_features(kafkas['tags'][0]).items()   # it has two more


@pytest.mark.parametrize('case', CASES)
def test_recorded(broker, case):
    sent = bytes.fromhex(case['request_hex'])
    answers = [bytes.fromhex(text) for text in case.get('all_responses_hex') or [case['response_hex']] if text]
    requests = frames(sent)
    with broker.client() as client:
        client.send(sent)
        if 'half-close' in case['name']: client.half_close()
        if case['outcome'].startswith('no response'):
            assert client.stays_open()
            return
        assert case['outcome'] in ('response', 'connection closed by broker')
        for request, kafkas in zip(requests, answers):
            # a difference that is expected, as long as it is there: Kafka answers, we close
            if api_of(request)[0] not in APIS:
                assert client.is_closed()
                return
            check_like_kafkas(request, client.frame(), kafkas)
        if case['connection_usable_afterwards']: assert correlation_id(client.ask(api_versions(4711))) == 4711
        else: assert client.is_closed()


def test_expected_differences():
    "Which of the cases we can't serve yet: when an API is added, this list should become shorter."
    missing = {case.values[0]['name']: api_of(request)[0] for case in CASES if case.values[0]['outcome'] == 'response'
               for request in frames(bytes.fromhex(case.values[0]['request_hex'])) if api_of(request)[0] not in APIS}
    names = {3: 'three-pipelined-requests', 1: 'slow-fetch-then-apiversions-pipelined',
             17: 'sasl-handshake-on-plaintext'}
    assert missing == {name: key for key, name in names.items() if key not in APIS}


def test_all_requests_on_one_connection(broker):
    "Every request that leaves the connection usable, in one go: the answers come in order."
    cases = [case.values[0] for case in CASES if case.values[0]['connection_usable_afterwards']]
    cases = [case for case in cases if all(api_of(request)[0] in APIS for request
                                           in frames(bytes.fromhex(case['request_hex'])))]
    assert len(cases) > 30
    with broker.client() as client:
        client.send(b''.join(bytes.fromhex(case['request_hex']) for case in cases))
        for case in cases:
            answers = case.get('all_responses_hex') or [case['response_hex']]
            for request, kafkas in zip(frames(bytes.fromhex(case['request_hex'])), answers):
                check_like_kafkas(request, client.frame(), bytes.fromhex(kafkas))


def test_pages_add_up(broker):
    "Whatever the limit, the pages together are the whole."
    everything = read_describe(broker.ask(describe(1)))
    assert everything['next_cursor'] is None
    whole = [(topic['name'], partition) for topic in everything['topics'] for partition in topic['partitions']]
    for limit in 1, 2, 3, 5, 7, 13, 100:
        pages, cursor, asked = [], None, 0
        while asked == 0 or cursor:
            page = read_describe(broker.ask(describe(2, limit=limit, cursor=cursor)))
            found = [(topic['name'], partition) for topic in page['topics'] for partition in topic['partitions']]
            assert len(found) <= limit
            pages, cursor, asked = pages + found, page['next_cursor'], asked + 1
            assert asked <= len(whole) + 1
        assert pages == whole
