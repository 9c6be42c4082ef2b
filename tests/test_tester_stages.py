"""The first twelve stages of CodeCrafters' "Build your own Kafka", performed as their tester does.

It writes a properties file and a log directory, starts the program, talks to it over raw sockets and looks at every
byte that comes back. Here the ports are free ones and the directories temporary; nothing of the package is used.
"""
import contextlib
import random
import socket
from pathlib import Path

import pytest

from broker_process import BrokerProcess, Client, free_port
from by_hand import (API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS, ZERO, api_versions, batch, correlation_id, describe, feature_level, partition_record,
                     read_api_versions, read_describe, request, topic_record, uvarint, write_log)

CLIENT = 'kafka-tester'
DIRECTORY_ID = bytes.fromhex('10000000000040008000000000000001')
FOO, BAR, BAZ, QUX = (bytes.fromhex(f'00000000000040008000{number:012d}') for number in (91, 92, 93, 94))
TOPICS = {'foo': (FOO, 1), 'bar': (BAR, 2), 'baz': (BAZ, 3), 'qux-quux.1': (QUX, 10)}
CORRELATION_IDS = [7, 0, 1, -1, 2**31 - 1, -2**31, *(random.Random(12).randrange(-2**31, 2**31) for _ in range(10))]

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller}
listeners=PLAINTEXT://:{port},CONTROLLER://:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs={logs}
"""


def generated_log() -> bytes:
    "The metadata segment of the later stages: the offsets start at 1, and each topic has a batch of its own."
    log, offset = batch([feature_level('metadata.version', 20)], 1), 2
    for name, (topic_id, partitions) in TOPICS.items():
        values = [topic_record(name, topic_id), *(partition_record(topic_id, index, directories=[DIRECTORY_ID]) for index in range(partitions))]
        log, offset = log + batch(values, offset), offset + len(values)
    return log


@contextlib.contextmanager
def as_the_tester_starts_it(directory: Path, with_topics: bool):
    port, controller, logs = free_port(), free_port(), directory/'kraft-combined-logs'
    logs.mkdir()
    (logs/'meta.properties').write_text('#\n#Mon Nov 16 00:00:00 UTC 2026\ncluster.id=IAAAAAAAQACAAAAAAAAAAQ\ndirectory.id=EAAAAAAAQACAAAAAAAAAAQ\nnode.id=1\nversion=1\n')
    (logs/'.kafka_cleanshutdown').write_text('{"version":0,"brokerEpoch":10}')
    if with_topics: write_log(logs, generated_log())
    (directory/'server.properties').write_text(PROPERTIES.format(port=port, controller=controller, logs=logs))
    broker = BrokerProcess(directory, directory/'server.properties', port=port)
    try: yield broker.wait_ready()
    except BaseException:
        broker.stop()
        raise
    broker.check_end()


@pytest.fixture(scope='module')
def early(tmp_path_factory):
    "The program as the first eight stages start it: meta.properties, and no metadata log."
    with as_the_tester_starts_it(tmp_path_factory.mktemp('early'), with_topics=False) as broker: yield broker


@pytest.fixture(scope='module')
def later(tmp_path_factory):
    "The program as the last four stages start it."
    with as_the_tester_starts_it(tmp_path_factory.mktemp('later'), with_topics=True) as broker: yield broker


def expected_partition(index: int) -> dict:
    return {'error_code': 0, 'partition_index': index, 'leader_id': 1, 'leader_epoch': 0, 'replica_nodes': [1], 'isr_nodes': [1],
            'eligible_leader_replicas': [], 'last_known_elr': [], 'offline_replicas': []}


def check_topic(topic: dict, name: str):
    topic_id, partitions = TOPICS[name]
    assert (topic['error_code'], topic['name'], topic['topic_id'], topic['is_internal']) == (0, name, topic_id, False)
    assert topic['partitions'] == [expected_partition(index) for index in range(partitions)]


def check_api_versions(frame: bytes, expected_correlation_id: int):
    answer = read_api_versions(frame)
    assert (answer['correlation_id'], answer['error_code'], answer['throttle_time_ms']) == (expected_correlation_id, 0, 0)
    keys = [key for key, _, _ in answer['api_keys']]
    assert len(keys) == len(set(keys))
    assert all(0 <= least <= most for _, least, most in answer['api_keys'])
    versions = {key: most for key, _, most in answer['api_keys']}
    assert versions[API_VERSIONS] >= 4
    return versions


# --- The protocol, from the first byte --------------------------------------------------------------------------------

@pytest.mark.parametrize('host', ['127.0.0.1', '::1'])
def test_stage_1_bind_to_a_port(early, host):
    "`PLAINTEXT://:9092` is every address of the machine."
    if host == '::1':
        try: socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError: pytest.skip('no IPv6 here')
    Client(early.port, host).close()


def test_stage_1_the_controller_is_not_ours_to_serve(tmp_path):
    "The controller's port may be taken: the broker doesn't want it."
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port, controller = free_port(), taken.getsockname()[1]
        (tmp_path/'server.properties').write_text(PROPERTIES.format(port=port, controller=controller, logs=tmp_path/'logs'))
        broker = BrokerProcess(tmp_path, tmp_path/'server.properties', port=port)
        try: broker.wait_ready()
        finally: broker.stop()
    broker.check_end()


def test_stage_1_without_arguments(tmp_path):
    "Some stages pass no file: then it is port 9092, and the directory that the tester uses."
    logs = Path('/tmp/kraft-combined-logs')
    was_there = logs.exists()
    if was_there and any(logs.iterdir()): pytest.skip(f'{logs} is in use')
    try:
        for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')): socket.create_server((host, 9092), family=family).close()
    except OSError as error: pytest.skip(f'port 9092 is not free: {error}')
    broker = BrokerProcess(tmp_path, port=9092)
    try:
        broker.wait_ready()
        check_api_versions(broker.ask(api_versions(9092)), 9092)
    finally:
        broker.stop()
        if not was_there:
            with contextlib.suppress(OSError): logs.rmdir()   # empty, unless someone else has moved in
    broker.check_end()


@pytest.mark.parametrize('number', CORRELATION_IDS)
def test_stages_2_and_3_correlation_id(early, number):
    "Bytes 4 to 7 of the answer are bytes 8 to 11 of the request."
    sent = api_versions(number, client_id=CLIENT)
    answer = early.ask(sent)
    assert answer[4:8] == sent[8:12]
    assert correlation_id(answer) == number


@pytest.mark.parametrize('version', [5, 6, 42, 99, 32767, -1, -2, -32768])
def test_stage_4_error_35_for_versions_that_do_not_exist(early, version):
    with early.client() as client:
        answer = client.ask(api_versions(CORRELATION_IDS[-1], version=version, client_id=CLIENT))
        body = read_api_versions(answer, version=0)   # the form that every client can read
        assert (body['correlation_id'], body['error_code'], body['api_keys']) == (CORRELATION_IDS[-1], 35, [(API_VERSIONS, 0, 4)])
        check_api_versions(client.ask(api_versions(8)), 8)   # and the client may try again


def test_stage_5_api_versions(early): check_api_versions(early.ask(api_versions(CORRELATION_IDS[-2], client_id=CLIENT)), CORRELATION_IDS[-2])


@pytest.mark.parametrize('version', range(5))
def test_stage_5_every_version(early, version):
    answer = read_api_versions(early.ask(api_versions(5, version=version)), version)
    assert answer['error_code'] == 0
    assert (API_VERSIONS, 0, 4) in answer['api_keys'] and (DESCRIBE_TOPIC_PARTITIONS, 0, 0) in answer['api_keys']


# --- Several requests, several clients --------------------------------------------------------------------------------

def test_stage_6_several_requests_on_one_connection(early):
    with early.client() as client:
        for number in CORRELATION_IDS: check_api_versions(client.ask(api_versions(number, client_id=CLIENT)), number)


def test_stage_6_sent_before_the_first_answer_is_read(early):
    with early.client() as client:
        for number in CORRELATION_IDS: client.send(api_versions(number, client_id=CLIENT))
        for number in CORRELATION_IDS: check_api_versions(client.frame(), number)


def test_stage_7_several_clients_at_once(early):
    "All connect, all ask, and the answers are read from the last to the first."
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(early.client()) for _ in CORRELATION_IDS]
        for client, number in zip(clients, CORRELATION_IDS): client.send(api_versions(number, client_id=CLIENT))
        for client, number in reversed([*zip(clients, CORRELATION_IDS)]): check_api_versions(client.frame(), number)


def test_stage_7_a_silent_client_does_not_hold_up_the_others(early):
    with early.client(), early.client() as half, early.client() as third:
        half.send(api_versions(1)[:9])
        check_api_versions(third.ask(api_versions(2)), 2)
        half.send(api_versions(1)[9:])
        check_api_versions(half.frame(), 1)


# --- Partitions -------------------------------------------------------------------------------------------------------

def test_stage_8_describe_topic_partitions_is_advertised(early):
    versions = check_api_versions(early.ask(api_versions(CORRELATION_IDS[-3], client_id=CLIENT)), CORRELATION_IDS[-3])
    assert versions[DESCRIBE_TOPIC_PARTITIONS] >= 0


@pytest.mark.parametrize('program', ['early', 'later'])
@pytest.mark.parametrize('name', ['UNKNOWN_TOPIC_7', 'unknown-topic-saz', 'fo', 'foo2'])
def test_stage_9_an_unknown_topic(request, program, name):
    answer = read_describe(request.getfixturevalue(program).ask(describe(CORRELATION_IDS[-4], name, limit=1, client_id=CLIENT)))
    assert (answer['correlation_id'], answer['throttle_time_ms'], answer['next_cursor']) == (CORRELATION_IDS[-4], 0, None)
    [topic] = answer['topics']
    assert (topic['error_code'], topic['name'], topic['topic_id'], topic['is_internal'], topic['partitions']) == (3, name, ZERO, False, [])


@pytest.mark.parametrize('limit', [1, 100, 2000])
def test_stage_10_one_partition(later, limit):
    answer = read_describe(later.ask(describe(CORRELATION_IDS[-5], 'foo', limit=limit, client_id=CLIENT)))
    assert (answer['correlation_id'], answer['throttle_time_ms'], answer['next_cursor']) == (CORRELATION_IDS[-5], 0, None)
    [topic] = answer['topics']
    check_topic(topic, 'foo')


@pytest.mark.parametrize('name, limit', [('bar', 2), ('bar', 100), ('baz', 3), ('qux-quux.1', 10), ('qux-quux.1', 2000)])
def test_stage_11_many_partitions(later, name, limit):
    "Also when the limit is just reached, there is nothing to go on with."
    answer = read_describe(later.ask(describe(-77, name, limit=limit, client_id=CLIENT)))
    assert (answer['correlation_id'], answer['throttle_time_ms'], answer['next_cursor']) == (-77, 0, None)
    [topic] = answer['topics']
    check_topic(topic, name)


@pytest.mark.parametrize('names', [['foo', 'bar'], ['bar', 'foo'], ['foo', 'bar', 'baz'], ['qux-quux.1', 'baz', 'foo', 'bar'], ['baz', 'bar', 'baz']])
def test_stage_12_several_topics(later, names):
    "They come back in the order of their names, whatever the order of the request."
    partitions = sum(TOPICS[name][1] for name in set(names))
    answer = read_describe(later.ask(describe(12, *names, limit=partitions, client_id=CLIENT)))
    assert (answer['correlation_id'], answer['throttle_time_ms'], answer['next_cursor']) == (12, 0, None)
    assert [topic['name'] for topic in answer['topics']] == sorted(set(names))
    for topic in answer['topics']: check_topic(topic, topic['name'])


def test_stage_12_known_and_unknown_together(later):
    answer = read_describe(later.ask(describe(13, 'zzz', 'foo', 'aaa', client_id=CLIENT)))
    assert [(topic['name'], topic['error_code']) for topic in answer['topics']] == [('aaa', 3), ('foo', 0), ('zzz', 3)]


def test_tags_are_stepped_over(later):
    "Newer clients may put tagged fields into the header and the body."
    tagged = b'\1' + uvarint(77) + uvarint(3) + b'abc'
    body = b'\2\4foo' + tagged + b'\0\0\0\x64' + b'\xff' + tagged
    sent = request(DESCRIBE_TOPIC_PARTITIONS, 0, 14, tagged + body, CLIENT, flexible=False)
    [topic] = read_describe(later.ask(sent))['topics']
    check_topic(topic, 'foo')
