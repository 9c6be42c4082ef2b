"""The Metadata API: every captured frame, every recorded question, and what a running Kafka answers to some more.

A real broker takes topics and partitions out of hash maps. Where its order says nothing, its answers are put in order
before bytes are
compared: partitions always, topics when all of them were asked for.
"""
import copy
import json
import sys

import pytest

from size import needs_kafka
from broker_process import FIXTURES, ROOT, Client
from declarations import check, needs_jars, of_jars, of_kafka_python
from edge_cases import EDGE, STATE, state_log
from wire_frames import WIRE, frames_of, spans_touch

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.wire.frames import RequestHeader, ResponseHeader
from kafka_scratch.apis.api import PEEK, Call, Caller, Node, Refused, explain_request, explain_response, find_api
from kafka_scratch.apis.api import read_request
from kafka_scratch.cluster.image import Image, broker_registered, partition_made, topic_made
from kafka_scratch.apis.metadata_messages import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafka_scratch.apis.metadata import answer_metadata
from kafka_scratch.apis.metadata import asks_for_all, live_brokers, metadata
from kafka_scratch.wire.codes import METADATA
from kafka_scratch.cluster.metadata_log import load_image
from kafka_scratch.cluster.records import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord
from kafka_scratch.wire.primitives import DecodeError, Int32, uuid_bytes
from kafka_scratch.wire.schema import kafka_json

KEY = metadata.key
CASES = [json.loads(line) for line in (EDGE/'metadata.jsonl').open()]

# librdkafka writes the null of version 13 in four bytes instead of one. A real broker ignores the three that are left.
LEFT_OVER = {'confluent.list-2-3': '010000', 'confluent.list-3-3': '010000'}


# --- Every frame ------------------------------------------------------------------------------------------------------

def captured():
    """Direction, name, version, bytes and Kafka's own decoding of every frame of this API; None where Kafka couldn't or
    didn't read it."""
    for path in sorted(WIRE.glob('clients/*.jsonl')):
        for line in map(json.loads, path.open()):
            if line['api_key'] != KEY: continue
            raw, = frames_of(line['hex'])
            yield line['direction'], f'{path.stem}-{line["conn"]}-{line["correlation_id"]}', line[
                'api_version'], raw, line['decoded']
    for path in sorted(WIRE.glob('edge/*.jsonl')):
        for line in map(json.loads, path.open()):
            try: requests = frames_of(line['request_hex'])
            except DecodeError: continue   # a length that can't be
            responses = [frame for text in line.get('all_responses_hex') or [line['response_hex']] for frame
                         in frames_of(text)]
            for i, request in enumerate(requests):
                if len(request) < 4 + PEEK.size or PEEK.unpack_from(request,
                                                                    4)[0] != KEY or 'request_decoded_error' in line:
                    continue
                version, name = PEEK.unpack_from(request, 4)[1], f'{line["name"]}-{i}'
                yield 'request', name, version, request, line.get('request_decoded') if i == 0 else None
                if i < len(responses):
                    yield 'response', name, version, responses[i], line.get('response_decoded') if i == 0 else None


FRAMES = list(captured())

def each(direction):
    chosen = [frame[1:] for frame in FRAMES if frame[0] == direction]
    return pytest.mark.parametrize('name, version, raw, decoded', chosen, ids=[frame[0] for frame in chosen])


def test_that_many_frames_are_checked():
    "So that a fixture that went missing is noticed."
    assert [sum(frame[0] == direction for frame in FRAMES) for direction in ('request', 'response')] == [136, 134]
    assert {frame[2] for frame
            in FRAMES} == set(MetadataRequest.VERSIONS) == set(MetadataResponse.VERSIONS) == set(range(14))


@each('request')
def test_a_request_is_read_written_and_explained(name, version, raw, decoded):
    api, found = find_api(raw, {KEY: metadata}, 4)
    header, body = read_request(raw[4:], api, found)
    assert found == version and (decoded is None or kafka_json(body, version) == decoded)
    again = header.encode(api.request_header_version(version)) + body.encode(
        version) + bytes.fromhex(LEFT_OVER.get(name, ''))
    assert Int32.write(len(again)) + again == raw
    explanation = explain_request(raw, {KEY: metadata})
    assert (explanation.error is None and spans_touch(explanation)
            and explanation.end == len(raw) - len(LEFT_OVER.get(name, '')) // 2)


@each('response')
def test_a_response_is_read_written_and_explained(name, version, raw, decoded):
    header, pos = ResponseHeader.codec(metadata.response_header_version(version)).read(raw, 4)
    body, end = MetadataResponse.codec(version).read(raw, pos)
    assert end == len(raw) and (decoded is None or kafka_json(body, version) == decoded)
    again = header.encode(metadata.response_header_version(version)) + body.encode(version)
    assert Int32.write(len(again)) + again == raw
    explanation = explain_response(raw, metadata, version)
    assert explanation.error is None and spans_touch(explanation) and explanation.end == len(raw)


@pytest.mark.parametrize('cls', [MetadataRequest, MetadataResponse])
def test_the_declarations_are_kafka_pythons(cls): check(cls, of_kafka_python()[cls.__name__])


@needs_jars
@pytest.mark.parametrize('cls', [MetadataRequest, MetadataResponse])
def test_the_declarations_are_the_jars(cls): check(cls, of_jars()[cls.__name__])


# --- Recorded questions -----------------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def recorded_node(tmp_path_factory):
    "A node in the state in which the real one was asked. (The log that leads there has no brokers in it.)"
    log = tmp_path_factory.mktemp('recorded')/METADATA
    log.mkdir()
    (log/f'{0:020}.log').write_bytes(state_log())
    image = load_image(log)
    for broker in STATE['cluster']['brokers']: register(image, broker['id'], PLAINTEXT=(broker['host'], broker['port']))
    return Node([metadata], image=image, node_id=STATE['cluster']['controllerAsSeenByClient'],
                cluster_id=STATE['cluster']['clusterId'])


def register(image: Image, id: int, fenced: bool = False, rack: str | None = None, **ends: tuple[str, int]):
    end_points = [BrokerEndpoint(name=name, host=host, port=port) for name, (host, port) in ends.items()]
    broker_registered(image, RegisterBrokerRecord(broker_id=id, fenced=fenced, rack=rack, end_points=end_points))


def make_topic(image: Image, name: str, topic_id: bytes, partitions: list[dict]):
    topic_made(image, TopicRecord(name=name, topic_id=topic_id))
    for index, fields in enumerate(partitions):
        partition_made(image, PartitionRecord(topic_id=topic_id, partition_id=index, partition_epoch=0, **fields))


def ask(node: Node, frame: bytes) -> bytes | None:
    "The answer to a request, both with their lengths; None if it is refused."
    try: return node.answer(frame[4:])
    except (DecodeError, Refused): return None


def in_order(frame: bytes | None, answer: bytes | None) -> bytes | None:
    "The answer of a real broker, with everything in order that it takes from hash maps."
    if answer is None: return None
    version = PEEK.unpack_from(frame, 4)[1]
    start = 8 + metadata.response_header_version(version)
    body = MetadataResponse.decode(answer, version, start)
    if asks_for_all(read_request(frame[4:], metadata, version)[1], version):
        body.topics.sort(key=lambda topic: topic.name)
    for topic in body.topics: topic.partitions.sort(key=lambda partition: partition.partition_index)
    return answer[:start] + body.encode(version)


@pytest.mark.parametrize('case', CASES, ids=[case['name'] for case in CASES])
def test_recorded(recorded_node, case):
    node, frame = recorded_node, bytes.fromhex(case['request_hex'])
    if case['name'] == 'v13-auto-created-second-call':
        # The real broker had made the topic by now, because the request before allowed it. We make no topics yet: it is
        # put there by hand.
        created, = case['response_decoded']['topics']
        node = copy.copy(node)
        node.image = copy.copy(node.image)
        node.image.topics, node.image.topics_by_id = dict(node.image.topics), dict(node.image.topics_by_id)
        make_topic(node.image, created['name'], uuid_bytes(created['topicId']),
                   [dict(leader=1, leader_epoch=0, replicas=[1], isr=[1])])
    kafkas = bytes.fromhex(case['response_hex']) if case['response_hex'] else None
    assert (kafkas is None) == (case['outcome'] == 'connection closed by broker')
    assert ask(node, frame) == in_order(frame, kafkas)


def test_answers_can_be_kept(recorded_node):
    "The broker may keep them by the bytes of the request: the same question has the same answer."
    assert metadata.cacheable
    for case in CASES:
        frame = bytes.fromhex(case['request_hex'])
        assert ask(recorded_node, frame) == ask(recorded_node, frame)


# --- Brokers that are gone --------------------------------------------------------------------------------------------

MOMENTS = sorted(FIXTURES.glob('three-brokers*/expected-*.json'))

@pytest.mark.parametrize('path', MOMENTS, ids=lambda path: f'{path.parent.name}: {path.stem}')
def test_partitions_of_a_cluster_in_trouble(path):
    """The same facts as in the real DescribeTopicPartitions answer of that moment, and the addresses that Java's client
    saw."""
    state = json.loads(path.read_text())
    node = path.parent/('node-100' if 'one-controller' in path.parent.name else 'node-1')
    image = load_image(node, state['metadataHighWatermark']['afterDescribe'] - 1)
    ours = kafka_json(answer_metadata(MetadataRequest(topics=None), Call(13, Node(image=image, cluster_id='some'))), 13)
    kafkas = state['describeTopicPartitionsV0']['topics']
    assert [topic['name'] for topic in ours['topics']] == [topic['name'] for topic in kafkas]
    for our, their in zip(ours['topics'], kafkas):
        for p in their['partitions']:
            for name in ('eligibleLeaderReplicas', 'lastKnownElr'): del p[name]
            if p['leaderId'] < 0: p['errorCode'] = 5   # which is where the two APIs differ
        assert {**our, 'topicAuthorizedOperations': 3576} == their
    assert [{'id': b['nodeId'], 'host': b['host'],
             'port': b['port']} for b in ours['brokers']] == state['cluster']['brokers']


# What Kafka 4.1.1's own metadata cache says of the image below: by listener and version, for each partition its error,
# leader,
# replicas, ISR and offline replicas.
EVERY = [1, 2, 3, 4]
KAFKAS = {
    ('PLAINTEXT', 0): [(9, 1, [1], [1], [2, 3, 4]), (9, 2, [1], [1], [2, 3, 4]), (5, -1, [1], [1], [2, 3, 4]),
                       (5, -1, [1], [1], [2, 3, 4]), (5, -1, [1], [], [2, 3, 4]), (0, 1, [1], [1], [])],
    ('PLAINTEXT', 5): [(0, 1, EVERY, [1], [2, 3, 4]), (0, 2, EVERY, [1], [2, 3, 4]), (5, -1, EVERY, [1], [2, 3, 4]),
                       (5, -1, EVERY, [1], [2, 3, 4]), (5, -1, EVERY, [2], [2, 3, 4]), (0, 1, [1], [1], [])],
    ('PLAINTEXT', 6): [(0, 1, EVERY, [1], [2, 3, 4]), (0, 2, EVERY, [1], [2, 3, 4]), (72, -1, EVERY, [1], [2, 3, 4]),
                       (5, -1, EVERY, [1], [2, 3, 4]), (5, -1, EVERY, [2], [2, 3, 4]), (0, 1, [1], [1], [])],
    ('INTERNAL', 0): [(9, 1, [1, 3], [1], [2, 4]), (9, 2, [1, 3], [1], [2, 4]), (9, 3, [1, 3], [1], [2, 4]),
                      (5, -1, [1, 3], [1], [2, 4]), (5, -1, [1, 3], [], [2, 4]), (0, 1, [1], [1], [])],
    ('INTERNAL', 6): [(0, 1, EVERY, [1], [2, 4]), (0, 2, EVERY, [1], [2, 4]), (0, 3, EVERY, [1], [2, 4]),
                      (5, -1, EVERY, [1], [2, 4]), (5, -1, EVERY, [2], [2, 4]), (0, 1, [1], [1], [])],
}


@pytest.mark.parametrize('listener, version', KAFKAS)
def test_leaders_that_are_out_of_reach(listener, version):
    "Broker 2 is fenced, 3 has one listener only, 4 never registered; and one partition has no leader."
    image = Image()
    register(image, 1, PLAINTEXT=('outside', 9092), INTERNAL=('inside', 9093))
    register(image, 2, fenced=True, PLAINTEXT=('outside', 9094), INTERNAL=('inside', 9095))
    register(image, 3, rack='left', INTERNAL=('inside', 9096))
    partitions = [dict(leader=leader, leader_epoch=7, replicas=EVERY, isr=[1]) for leader in EVERY]
    partitions += [dict(leader=-1, leader_epoch=7, replicas=EVERY, isr=[2]),
                   dict(leader=1, leader_epoch=7, replicas=[1], isr=[1])]
    make_topic(image, 'orders', b'o' * 16, partitions)
    call = Call(version, Node(image=image), Caller(listener=listener))
    answer = answer_metadata(MetadataRequest(topics=[MetadataRequestTopic(name='orders')]), call)
    topic, = answer.topics
    assert [(p.error_code, p.leader_id, list(p.replica_nodes), list(p.isr_nodes),
             p.offline_replicas) for p in topic.partitions] == KAFKAS[listener, version]
    assert {p.leader_epoch for p in topic.partitions} == {7}
    addresses = {'PLAINTEXT': [(1, 'outside', 9092, None)], 'INTERNAL': [(1, 'inside', 9093, None),
        (3, 'inside', 9096, 'left')]}
    assert [(b.node_id, b.host, b.port, b.rack) for b in answer.brokers] == addresses[listener]
    assert MetadataResponse.decode(answer.encode(version), version).encode(version) == answer.encode(version)


def test_an_empty_cluster_has_an_answer_in_every_version():
    node = Node(image=Image())
    assert live_brokers(node.image, 'PLAINTEXT') == []
    for version in MetadataRequest.VERSIONS:
        for topics in ([], None):
            request = MetadataRequest(topics=topics)
            if version or topics is not None: assert answer_metadata(request, Call(version, node)).encode(version)


# --- Side by side -----------------------------------------------------------------------------------------------------

def named(*names): return [MetadataRequestTopic(name=name) for name in names]
def with_ids(*ids): return [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
def written(version: int, topics, **fields) -> bytes:
    header = RequestHeader(api_key=KEY, api_version=version, correlation_id=7,
                           client_id='test').encode(metadata.request_header_version(version))
    body = MetadataRequest(topics=topics, **fields).encode(version)
    return Int32.write(len(header) + len(body)) + header + body


def questions(ids: dict[str, bytes]) -> dict[str, bytes]:
    """Questions that the recordings don't have. At most four topics each: with more, the order in a real broker is
    anyone's guess."""
    a, orders, unknown = ids['edge.a'], ids['orders'], b'\x11' * 16
    asked = {
        'missing before known': named('nope', 'orders', 'bad name!', 'edge.a'),
        'ids, one unknown': with_ids(a, unknown, orders),
        'ids, twice': with_ids(a, unknown, unknown, a),
        'a name beside an id': named('orders') + with_ids(a),
        'an id with the name of another': [MetadataRequestTopic(name='orders', topic_id=a)],
        'an unknown id with a name': [MetadataRequestTopic(name='orders', topic_id=unknown)],
        'nothing beside an id': with_ids(bytes(16), a),
        'nothing between names': named('orders', None, 'orders'),
        'internal ones that are not there': named('__consumer_offsets', '__share_group_state', '__cluster_metadata'),
        'all': None, 'none': [],
    }
    found = {f'{name}, operations {wanted}': written(13, topics, allow_auto_topic_creation=False,
                                                     include_topic_authorized_operations=wanted)
             for name, topics in asked.items() for wanted in (True, False)}
    found |= {f'names, version {version}': written(version, named('nope', 'orders')) for version in range(14)}
    found |= {f'an id in version {version}': written(version, named('b') + [MetadataRequestTopic(name='orders',
        topic_id=a)] + named('b')) for version in (10, 11)}
    return found | {f'cluster operations, version {version}': written(version, [],
                                                                      include_cluster_authorized_operations=True)
                                                                      for version in (8, 9, 10)}


@needs_kafka
def test_side_by_side_with_a_running_kafka(tmp_path):
    "We answer from the metadata log that it writes, and say what it says."
    with real_kafka.RealKafka(tmp_path/'kafka') as kafka:
        kafka.create_topics({'orders': 1, 'edge.a': 3, 'b': 1})
        image = load_image(kafka.log_dir)
        properties = dict(line.split('=',
                                     1) for line in (kafka.log_dir/'meta.properties').read_text().splitlines() if '='
                                     in line)
        node = Node([metadata], image=image, cluster_id=properties['cluster.id'])
        for name, frame in questions({topic.name: topic.topic_id for topic in image.topics.values()}).items():
            with Client(kafka.port) as client: assert ask(node, frame) == in_order(frame, client.ask(frame)), name
