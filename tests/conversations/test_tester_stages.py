"""What the stages of CodeCrafters' "Build your own Kafka" are about, and more of it than their tester asks.

`test_course.py` performs the stages as they were recorded. Here the same kind of log directory is made by hand, and
asked about what the tester might do another time: other numbers, names, orders and sizes, and several things at once.
The ports are free ones and the directories temporary; nothing of the package is used.
"""
import base64
import contextlib
import random
import socket
from pathlib import Path

import pytest

from broker_process import BrokerProcess, Client, free_port
from by_hand import (API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS, ZERO, api_versions, batch, correlation_id, describe,
                     feature_level, partition_record,
                     read_api_versions, read_describe, request, topic_record, uvarint, write_log)
from log_by_hand import FETCH, PRODUCE, TIME, fetch, message_batch, produce, read_fetch, read_produce

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
        values = [topic_record(name, topic_id), *(partition_record(topic_id, index,
                                                                   directories=[DIRECTORY_ID]) for index
                                                                   in range(partitions))]
        log, offset = log + batch(values, offset), offset + len(values)
    return log


@contextlib.contextmanager
def as_the_tester_starts_it(directory: Path, with_topics: bool, prepare=lambda logs: None):
    port, controller, logs = free_port(), free_port(), directory/'kraft-combined-logs'
    logs.mkdir()
    (logs/'meta.properties').write_text(
        '#\n#Mon Nov 16 00:00:00 UTC '
        '2026\ncluster.id=IAAAAAAAQACAAAAAAAAAAQ\ndirectory.id=EAAAAAAAQACAAAAAAAAAAQ\nnode.id=1\nversion=1\n')
    (logs/'.kafka_cleanshutdown').write_text('{"version":0,"brokerEpoch":10}')
    if with_topics: write_log(logs, generated_log())
    prepare(logs)
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
    return {'error_code': 0, 'partition_index': index, 'leader_id': 1, 'leader_epoch': 0, 'replica_nodes': [1],
            'isr_nodes': [1],
            'eligible_leader_replicas': [], 'last_known_elr': [], 'offline_replicas': []}


def check_topic(topic: dict, name: str):
    topic_id, partitions = TOPICS[name]
    assert (topic['error_code'], topic['name'], topic['topic_id'], topic['is_internal']) == (0, name, topic_id, False)
    assert topic['partitions'] == [expected_partition(index) for index in range(partitions)]


def check_api_versions(frame: bytes, expected_correlation_id: int):
    answer = read_api_versions(frame)
    assert (answer['correlation_id'], answer['error_code'], answer['throttle_time_ms']) == (expected_correlation_id, 0,
        0)
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
        (tmp_path/'server.properties').write_text(PROPERTIES.format(port=port, controller=controller,
                                                                    logs=tmp_path/'logs'))
        broker = BrokerProcess(tmp_path, tmp_path/'server.properties', port=port)
        try: broker.wait_ready()
        finally: broker.stop()
    broker.check_end()


def remove_what_a_broker_leaves(logs: Path):
    "Its own files, and the directory if it is empty then: unless someone else has moved in."
    for path in [*logs.glob('*-checkpoint'), logs/'.lock', logs/'.kafka_cleanshutdown', logs/'meta.properties']:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError): logs.rmdir()


def test_stage_1_without_arguments(tmp_path):
    "Some stages pass no file: then it is port 9092, and the directory that the tester uses."
    logs = Path('/tmp/kraft-combined-logs')
    was_there = logs.exists()
    if was_there and any(logs.iterdir()): pytest.skip(f'– {logs} is in use')
    try:
        for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
            socket.create_server((host, 9092), family=family).close()
    except OSError as error: pytest.skip(f'– port 9092 is not free: {error}')
    broker = BrokerProcess(tmp_path, port=9092)
    try:
        broker.wait_ready()
        check_api_versions(broker.ask(api_versions(9092)), 9092)
    finally:
        broker.stop()
        if not was_there: remove_what_a_broker_leaves(logs)
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
        assert (body['correlation_id'], body['error_code'], body['api_keys']) == (CORRELATION_IDS[-1], 35,
            [(API_VERSIONS, 0, 4)])
        check_api_versions(client.ask(api_versions(8)), 8)   # and the client may try again


def test_stage_5_api_versions(early):
    check_api_versions(early.ask(api_versions(CORRELATION_IDS[-2], client_id=CLIENT)), CORRELATION_IDS[-2])


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
    answer = read_describe(request.getfixturevalue(program).ask(describe(CORRELATION_IDS[-4], name, limit=1,
        client_id=CLIENT)))
    assert (answer['correlation_id'], answer['throttle_time_ms'], answer['next_cursor']) == (CORRELATION_IDS[-4], 0,
        None)
    [topic] = answer['topics']
    assert (topic['error_code'], topic['name'], topic['topic_id'], topic['is_internal'], topic['partitions']) == (3,
        name, ZERO, False, [])


@pytest.mark.parametrize('limit', [1, 100, 2000])
def test_stage_10_one_partition(later, limit):
    answer = read_describe(later.ask(describe(CORRELATION_IDS[-5], 'foo', limit=limit, client_id=CLIENT)))
    assert (answer['correlation_id'], answer['throttle_time_ms'], answer['next_cursor']) == (CORRELATION_IDS[-5], 0,
        None)
    [topic] = answer['topics']
    check_topic(topic, 'foo')


@pytest.mark.parametrize('name, limit', [('bar', 2), ('bar', 100), ('baz', 3), ('qux-quux.1', 10),
                                         ('qux-quux.1', 2000)])
def test_stage_11_many_partitions(later, name, limit):
    "Also when the limit is just reached, there is nothing to go on with."
    answer = read_describe(later.ask(describe(-77, name, limit=limit, client_id=CLIENT)))
    assert (answer['correlation_id'], answer['throttle_time_ms'], answer['next_cursor']) == (-77, 0, None)
    [topic] = answer['topics']
    check_topic(topic, name)


@pytest.mark.parametrize('names', [['foo', 'bar'], ['bar', 'foo'], ['foo', 'bar', 'baz'],
                                   ['qux-quux.1', 'baz', 'foo', 'bar'], ['baz', 'bar', 'baz']])
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


# --- Consuming --------------------------------------------------------------------------------------------------------

MESSAGES = {'bar': [b'Hello World!'], 'baz': [b'Hello Earth!', b'Hello Reverse Engineering!', b'Hello Universe!', b'']}


def first_batch(*values: bytes, base_offset: int = 0) -> bytes:
    "As the tester makes them: every batch is the first one of producer 0."
    return message_batch(*values, base_offset=base_offset, producer_id=0, producer_epoch=0, base_sequence=0)


def stored_log(name: str) -> bytes:
    return b''.join(first_batch(value, base_offset=offset) for offset, value in enumerate(MESSAGES.get(name, [])))


def write_partitions(logs: Path):
    "The directories of partitions: a log without indexes, and the id of the topic."
    for name, (topic_id, partitions) in TOPICS.items():
        for index in range(partitions):
            directory = logs/f'{name}-{index}'
            directory.mkdir()
            (directory/f'{0:020}.log').write_bytes(stored_log(name) if index == 0 else b'')
            (directory/'partition.metadata').write_text(
                f'version: 0\ntopic_id: {base64.urlsafe_b64encode(topic_id).decode().rstrip("=")}')


@pytest.fixture(scope='module')
def consuming(tmp_path_factory):
    "The program as the stages about Fetch start it: there are logs to be read."
    with as_the_tester_starts_it(tmp_path_factory.mktemp('consuming'), with_topics=True,
                                 prepare=write_partitions) as broker:
        yield broker


def ask_for(broker, topics: dict, number: int = CORRELATION_IDS[-6]) -> dict:
    """Fetch 16 in the first request of a session, which is how the tester asks. What it compares in every stage is
    compared here."""
    answer = read_fetch(broker.ask(fetch(number, topics, session_epoch=0, client_id=CLIENT)))
    assert (answer['correlation_id'], answer['throttle_time_ms'], answer['error_code']) == (number, 0, 0)
    assert list(answer['topics']) == list(topics)
    return answer['topics']


@pytest.mark.parametrize('program', ['early', 'consuming'])
def test_stage_13_fetch_is_advertised(request, program):
    assert check_api_versions(request.getfixturevalue(program).ask(api_versions(13, client_id=CLIENT)), 13)[FETCH] >= 16


@pytest.mark.parametrize('program', ['later', 'consuming'])
def test_stage_14_fetch_with_no_topics(request, program): assert ask_for(request.getfixturevalue(program), {}) == {}


@pytest.mark.parametrize('program', ['early', 'later', 'consuming'])
def test_stage_15_an_unknown_topic_id(request, program):
    unknown = bytes.fromhex('00000000000000000000000000007641')
    [(index, partition)] = ask_for(request.getfixturevalue(program), {unknown: {0: 0}})[unknown].items()
    assert (index, partition['error_code']) == (0, 100)
    assert not partition['records']


@pytest.mark.parametrize('program', ['later', 'consuming'])
def test_stage_16_an_empty_topic(request, program):
    [(index, partition)] = ask_for(request.getfixturevalue(program), {FOO: {0: 0}})[FOO].items()
    assert (index, partition['error_code']) == (0, 0)
    assert not partition['records']
    assert (partition['high_watermark'], partition['last_stable_offset'], partition['log_start_offset'],
            partition['preferred_read_replica']) == (0, 0, 0, -1)


@pytest.mark.parametrize('stage, name, topic_id', [(17, 'bar', BAR), (18, 'baz', BAZ)])
def test_stages_17_and_18_messages_from_disk(consuming, stage, name, topic_id):
    "One message, several messages: byte for byte as they are in the file."
    [(index, partition)] = ask_for(consuming, {topic_id: {0: 0}})[topic_id].items()
    assert (index, partition['error_code']) == (0, 0)
    assert partition['records'] == stored_log(name)
    assert (partition['high_watermark'], partition['log_start_offset']) == (len(MESSAGES[name]), 0)


def test_stage_18_again_and_again(consuming):
    "On one connection, from every offset; there is nothing at the end."
    with consuming.client() as client:
        for offset in [*range(len(MESSAGES['baz']) + 1), 0]:
            answer = read_fetch(client.ask(fetch(offset, {BAZ: {0: offset}}, max_wait_ms=0, session_epoch=0,
                                                 client_id=CLIENT)))
            expected = b''.join(first_batch(value, base_offset=at) for at,
                                value in enumerate(MESSAGES['baz']) if at >= offset)
            assert (answer['topics'][BAZ][0]['records'] or b'') == expected


# --- Producing --------------------------------------------------------------------------------------------------------

NOT_STORED = {'error_code': 3, 'base_offset': -1, 'log_append_time_ms': -1, 'log_start_offset': -1, 'record_errors': [],
              'error_message': None, 'tags': {}}
STORED = {**NOT_STORED, 'error_code': 0, 'base_offset': 0, 'log_start_offset': 0}
WORDS = [b'raspberry', b'blueberry', b'pear', b'mango', b'pineapple']


@pytest.fixture(params=[False, True], ids=['empty logs', 'no logs'])
def producing(request, tmp_path):
    "The program as the stages about Produce start it: with the partitions' directories, or with the metadata alone."
    def prepare(logs):
        if not request.param:
            write_partitions(logs)
            for name in MESSAGES: (logs/f'{name}-0'/f'{0:020}.log').write_bytes(b'')
    with as_the_tester_starts_it(tmp_path, with_topics=True, prepare=prepare) as broker:
        broker.logs = tmp_path/'kraft-combined-logs'
        yield broker


def send(broker, topics: dict, number: int = CORRELATION_IDS[-7]) -> dict:
    answer = read_produce(broker.ask(produce(number, topics, client_id=CLIENT)))
    assert (answer['correlation_id'], answer['throttle_time_ms'], answer['tags']) == (number, 0, {})
    assert {topic: list(partitions) for topic,
            partitions in answer['topics'].items()} == {topic: list(partitions) for topic, partitions in topics.items()}
    return answer['topics']


def file_of(broker, topic: str, index: int) -> bytes:
    return (broker.logs/f'{topic}-{index}'/f'{0:020}.log').read_bytes()


@pytest.mark.parametrize('program', ['early', 'consuming'])
def test_stage_19_produce_is_advertised(request, program):
    assert check_api_versions(request.getfixturevalue(program).ask(api_versions(19, client_id=CLIENT)),
                              19)[PRODUCE] >= 11


@pytest.mark.parametrize('program, topic, index', [('early', 'foo', 0), ('later', 'unknown-topic-saz', 0),
                                                   ('later', 'UNKNOWN', 7), ('later', 'foo', 1),
                                                   ('later', 'foo', -1), ('later', 'bar', 2),
                                                   ('consuming', 'qux-quux.1', 10), ('consuming', 'baz', 2**31 - 1)])
def test_stage_20_an_unknown_topic_or_partition(request, program, topic, index):
    assert send(request.getfixturevalue(program),
                {topic: {index: first_batch(WORDS[0])}}) == {topic: {index: NOT_STORED}}


def test_stage_21_a_known_partition(producing):
    assert send(producing, {'foo': {0: first_batch(WORDS[0])}}) == {'foo': {0: STORED}}


@pytest.mark.parametrize('values', [WORDS[:1], WORDS[:3], WORDS])
def test_stages_22_and_23_one_record_and_several(producing, values):
    "The file is what was sent, to the last byte; and so is what Fetch gives."
    sent = first_batch(*values)
    assert send(producing, {'foo': {0: sent}}) == {'foo': {0: STORED}}
    assert file_of(producing, 'foo', 0) == sent
    assert ask_for(producing, {FOO: {0: 0}})[FOO][0]['records'] == sent


def test_stage_24_several_partitions(producing):
    sent = {index: first_batch(WORDS[index]) for index in range(3)}
    assert send(producing, {'baz': sent}) == {'baz': dict.fromkeys(range(3), STORED)}
    for index in sent:
        assert file_of(producing, 'baz', index) == sent[index]
        assert ask_for(producing, {BAZ: {index: 0}})[BAZ][index]['records'] == sent[index]


def test_stage_25_several_topics(producing):
    sent = {'foo': {0: first_batch(*WORDS[:2])}, 'bar': {0: first_batch(WORDS[2]), 1: first_batch(WORDS[3])},
            'baz': {2: first_batch(WORDS[4])}}
    assert send(producing, sent) == {topic: dict.fromkeys(partitions, STORED) for topic, partitions in sent.items()}
    for topic, partitions in sent.items():
        for index, batch in partitions.items():
            assert file_of(producing, topic, index) == batch
            assert ask_for(producing, {TOPICS[topic][0]: {index: 0}})[TOPICS[topic][0]][index]['records'] == batch


def test_stage_25_known_and_unknown_together(producing):
    "Each is answered for itself."
    sent = {'foo': {0: first_batch(WORDS[0]), 1: first_batch(WORDS[1])}, 'nobody': {0: first_batch(WORDS[2])}}
    assert send(producing, sent) == {'foo': {0: STORED, 1: NOT_STORED}, 'nobody': {0: NOT_STORED}}
    assert file_of(producing, 'foo', 0) == sent['foo'][0]


def test_successive_requests(producing):
    "One record after the other: each gets the next offset, and nothing else of it changes."
    with producing.client() as client:
        for offset, word in enumerate(WORDS):
            sent = message_batch(word, producer_id=7, producer_epoch=0, base_sequence=offset)
            answer = read_produce(client.ask(produce(offset, {'foo': {0: sent}}, client_id=CLIENT)))
            assert answer['topics'] == {'foo': {0: {**STORED, 'base_offset': offset}}}
    expected = [message_batch(word, base_offset=offset, producer_id=7, producer_epoch=0,
                              base_sequence=offset) for offset, word in enumerate(WORDS)]
    assert file_of(producing, 'foo', 0) == b''.join(expected)


def test_the_same_batch_twice(producing):
    "Every batch of the tester is the first one of producer 0: sent twice it is a repetition, and stored once."
    sent = first_batch(WORDS[0])
    assert send(producing, {'foo': {0: sent}}) == {'foo': {0: STORED}}
    # as a real broker says it
    assert send(producing, {'foo': {0: sent}}) == {'foo': {0: {**STORED, 'log_append_time_ms': TIME}}}
    assert file_of(producing, 'foo', 0) == sent
