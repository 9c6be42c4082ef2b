"""Starting, following the metadata log, stopping; and what is said when it can't be done: one sentence, and nothing is
changed."""
import base64
import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker_process import FIXTURES, META, PATIENCE, ROOT, BrokerProcess, Client, environment, free_port, properties
from broker_process import run_to_end, running, tree, wait_until
from by_hand import (api_versions, batch, compact, describe, leader_change, metadata_log, partition_record,
                     read_api_versions, read_describe, remove_topic,
                     topic_batch, topic_id_of, write_log)

# the answer repeats them: 13 MB, more than fits between two sockets
LONG_NAMES = [f'{number:032767}' for number in range(400)]


def described(broker, *topics: str, client_id: str = 'tests') -> dict:
    "Topics by name. Another client id makes another request: its answer can't be one that was kept."
    return {topic['name']: topic for topic in read_describe(broker.ask(describe(1, *topics,
        client_id=client_id)))['topics']}


def sizes(broker, **options) -> dict[str, int]:
    return {name: len(topic['partitions']) for name, topic in described(broker, **options).items()}


def is_served(broker) -> bool: return read_api_versions(broker.ask(api_versions(7)))['correlation_id'] == 7


# --- On which directories it starts -----------------------------------------------------------------------------------

@pytest.mark.parametrize('contents', ['nothing', 'meta.properties', 'topics without metadata', 'an empty metadata log',
                                      'an empty segment', 'no directory', 'no directory above'])
def test_starts_without_topics(tmp_path, contents):
    logs = tmp_path/'above'/'logs'
    if not contents.startswith('no directory'): logs.mkdir(parents=True)
    elif contents == 'no directory': logs.parent.mkdir()
    if contents == 'meta.properties': (logs/'meta.properties').write_text(META.format(node_id=1))
    if contents == 'topics without metadata': (logs/'foo-0').mkdir()
    if contents == 'an empty metadata log': (logs/'__cluster_metadata-0').mkdir()
    if contents == 'an empty segment': write_log(logs, b'')
    before = tree(tmp_path/'above')
    with running(tmp_path, log_dirs=logs) as broker:
        assert is_served(broker) and sizes(broker) == {}
        assert described(broker, 'foo')['foo']['error_code'] == 3
    assert logs.is_dir()
    # it has a name now
    if contents == 'nothing':
        before[Path('logs/meta.properties')] = tree(tmp_path/'above')[Path('logs/meta.properties')]
    if not contents.startswith('no directory'): assert tree(tmp_path/'above') == before


def test_takes_its_node_id_from_the_directory(tmp_path):
    write_log(tmp_path/'logs', topic_batch(0, 'mine', replicas=[42], isr=[42], leader=-1))
    (tmp_path/'logs'/'meta.properties').write_text(META.format(node_id=42))
    with running(tmp_path, node_id=None) as broker:
        assert 'node 42' in broker.stdout
        assert described(broker)['mine']['partitions'][0]['leader_id'] == 42   # it was waiting for us


def test_several_log_directories(tmp_path):
    "The metadata log is in the first one, unless metadata.log.dir says otherwise."
    for name, topic in (('a', 'alpha'), ('b', 'beta'), ('m', 'mu')):
        write_log(tmp_path/name, metadata_log(**{topic: 1}))
    both = f'{tmp_path/"a"}, {tmp_path/"b"}'
    with running(tmp_path/'1', log_dirs=both) as broker: assert sizes(broker) == {'alpha': 1}
    with running(tmp_path/'2', log_dirs=both, metadata_log_dir=tmp_path/'m') as broker:
        assert sizes(broker) == {'mu': 1}


def test_several_listeners(tmp_path):
    second = free_port()
    with running(tmp_path, listeners=f'PLAINTEXT://127.0.0.1:{{port}}, INTERNAL://localhost:{second}',
                 listener_security_protocol_map='INTERNAL:PLAINTEXT') as broker:
        assert is_served(broker)
        with Client(second) as client: assert client.ask(api_versions(1)) is not None


def test_a_torn_batch_at_the_end(tmp_path):
    "The machine went down while a batch was written: what stands before it counts."
    write_log(tmp_path/'logs', metadata_log(foo=2) + topic_batch(4, 'bar')[:-5])
    before = tree(tmp_path/'logs')
    with running(tmp_path) as broker: assert sizes(broker) == {'foo': 2}
    assert tree(tmp_path/'logs') == before


def test_records_from_the_future(tmp_path):
    "Types and versions of records that we don't know are stepped over."
    write_log(tmp_path/'logs', metadata_log(foo=1) + batch([bytes([1, 99, 0]) + b'abc', bytes([1, 2, 9]) + b'abc'],
                                                           3) + topic_batch(5, 'bar'))
    with running(tmp_path) as broker: assert sizes(broker) == {'foo': 1, 'bar': 1}


# --- Directories of real clusters -------------------------------------------------------------------------------------

def in_kafkas_words(topics) -> list[dict]:
    "Our answer as the JSON of the fixtures has it."
    def camel(name): return name.split('_')[0] + ''.join(map(str.title, name.split('_')[1:]))
    return [{camel(name): base64.urlsafe_b64encode(value).decode().rstrip('=') if name == 'topic_id' else
             [{camel(key): what for key,
               what in partition.items()} for partition in value] if name == 'partitions' else value
             for name, value in topic.items()} for topic in topics]


def recorded(family: str) -> list[dict]:
    return json.loads((FIXTURES/family/'expected.json').read_text())['describeTopicPartitionsV0']['topics']


@contextlib.contextmanager
def running_copy(tmp_path, source: Path, node_id: int):
    shutil.copytree(source, tmp_path/'logs')
    before = tree(tmp_path/'logs')
    with running(tmp_path, node_id=node_id) as broker: yield broker
    assert without_times(tree(tmp_path/'logs')) == without_times(before)


def without_times(tree: dict) -> dict:
    """Logs of groups and transactions are opened in any case, and closed as every log is: the files may be written
    anew, but say the same."""
    return {path: found[1] if found and path.parts[0].startswith(('__consumer_offsets-',
                                                                  '__transaction_state-')) else found for path,
                                                                  found in tree.items()}


@pytest.mark.parametrize('family, node_id', [('three-brokers', 1), ('three-brokers', 2), ('three-brokers', 3),
                                             ('three-brokers-one-controller', 2),
                                             ('three-brokers-one-controller', 100)])
def test_serves_what_a_node_of_three_knew(tmp_path, family, node_id):
    with running_copy(tmp_path, FIXTURES/family/f'node-{node_id}', node_id) as broker:
        assert in_kafkas_words(described(broker).values()) == recorded(family)


@pytest.mark.parametrize('family, node_id', [('single-broker', 1), ('snapshot-only', 5)])
def test_serves_what_a_live_broker_knew(tmp_path, family, node_id):
    with running_copy(tmp_path, FIXTURES/family/'metadata-live', node_id) as broker:
        assert in_kafkas_words(described(broker).values()) == recorded(family)


@pytest.mark.parametrize('family, node_id', [('single-broker', 1), ('snapshot-only', 5)])
def test_takes_back_what_it_led_before_a_clean_shutdown(tmp_path, family, node_id):
    "Without leader at the shutdown, led again after it: two leader epochs later, and otherwise as before."
    def two_epochs_later(partition): return {**partition, 'leaderEpoch': partition['leaderEpoch'] + 2}
    with running_copy(tmp_path, FIXTURES/family/'logs', node_id) as broker:
        found = in_kafkas_words(described(broker).values())
    assert {partition['leaderId'] for topic in found for partition in topic['partitions']} == {node_id}
    assert found == [{**topic, 'partitions': [*map(two_epochs_later,
                                                   topic['partitions'])]} for topic in recorded(family)]


def test_a_checkpoint_without_segments(tmp_path):
    "It is loaded once. Loading it again would undo that the partitions were taken back."
    shutil.copytree(FIXTURES/'snapshot-only'/'logs', tmp_path/'logs', ignore=shutil.ignore_patterns('*.log'))
    with running(tmp_path, node_id=5) as broker:
        first = described(broker)
        assert {partition['leader_id'] for topic in first.values() for partition in topic['partitions']} == {5}
        for number in range(4):
            time.sleep(0.12)   # the log is looked at ten times a second
            assert described(broker, client_id=f'client {number}') == first


# --- What happens to the log while it runs ----------------------------------------------------------------------------

@pytest.fixture
def followed(tmp_path):
    "A running broker and its metadata log with one topic."
    path = write_log(tmp_path/'logs', metadata_log(foo=1))   # offsets 0 to 2
    with running(tmp_path) as broker:
        assert sizes(broker) == {'foo': 1}
        yield broker, path


def append(path: Path, data: bytes):
    with open(path, 'ab') as file: file.write(data)


def soon(broker, expected: dict[str, int], patience: float = PATIENCE):
    wait_until(lambda: sizes(broker) == expected, f'{expected} to be served', patience)


def test_follows_appended_batches(followed):
    broker, path = followed
    append(path, topic_batch(3, 'bar', 3))
    soon(broker, {'foo': 1, 'bar': 3})
    append(path, batch([partition_record(topic_id_of('foo'), 1)], 7))
    soon(broker, {'foo': 2, 'bar': 3})
    append(path, batch([remove_topic(topic_id_of('bar'))], 8))
    soon(broker, {'foo': 2})
    assert described(broker, 'bar')['bar']['error_code'] == 3


def test_follows_a_change_of_leader(followed):
    broker, path = followed
    def leader():
        return [described(broker, 'foo')['foo']['partitions'][0][name] for name in ('leader_id', 'leader_epoch')]
    assert leader() == [1, 0]
    append(path, batch([leader_change(topic_id_of('foo'), 0, -1)], 3))
    wait_until(lambda: leader() == [-1, 1], 'no leader')
    append(path, batch([leader_change(topic_id_of('foo'), 0, 1)], 4))
    wait_until(lambda: leader() == [1, 2], 'a leader')


def test_follows_batches_that_come_in_two_halves(followed):
    broker, path = followed
    expected = {'foo': 1}
    for number, cut in enumerate([1, 8, 12, 16, 17, 40, 61, 100, -1]):
        name, new = f'half-{number}', topic_batch(3 + 3 * number, f'half-{number}', 2)
        append(path, new[:cut])
        time.sleep(0.12)   # the log is looked at ten times a second
        assert sizes(broker) == expected
        append(path, new[cut:])
        expected[name] = 2
        soon(broker, expected)
    assert broker.stderr == ''


def test_follows_into_new_segments(followed, tmp_path):
    broker, path = followed
    append(path, topic_batch(3, 'bar'))
    write_log(tmp_path/'logs', topic_batch(5, 'baz', 2), base_offset=5)
    soon(broker, {'foo': 1, 'bar': 1, 'baz': 2})
    second = write_log(tmp_path/'logs', b'', base_offset=8)
    append(second, topic_batch(8, 'qux'))
    soon(broker, {'foo': 1, 'bar': 1, 'baz': 2, 'qux': 1})


@pytest.mark.parametrize('topics', [{'a': 1}, {'bar': 1}, {'bar': 1, 'baz': 2}], ids=['shorter', 'as long', 'longer'])
@pytest.mark.parametrize('way', ['in place', 'by another file', 'after a deletion'])
def test_follows_a_log_that_was_written_anew(followed, topics, way):
    broker, path = followed
    if way == 'after a deletion':
        path.unlink()
        soon(broker, {})
    if way == 'by another file':
        path.with_suffix('.new').write_bytes(metadata_log(**topics))
        os.replace(path.with_suffix('.new'), path)
    else: path.write_bytes(metadata_log(**topics))
    soon(broker, topics, patience=5)


def test_follows_a_log_that_was_not_there(tmp_path):
    with running(tmp_path) as broker:
        assert sizes(broker) == {}
        write_log(tmp_path/'logs', metadata_log(foo=2))
        soon(broker, {'foo': 2})


def test_a_damaged_batch_is_complained_about_once(followed):
    broker, path = followed
    good, bad = topic_batch(3, 'bar'), bytearray(topic_batch(5, 'baz'))
    bad[-1] ^= 1
    append(path, good)
    soon(broker, {'foo': 1, 'bar': 1})
    append(path, bad)
    wait_until(lambda: broker.stderr, 'a remark')
    time.sleep(0.3)
    assert len(broker.stderr.splitlines()) == 1 and str(path) in broker.stderr
    assert sizes(broker, client_id='another') == {'foo': 1, 'bar': 1}
    path.write_bytes(metadata_log(foo=1)[:-1])   # someone repairs it: shorter first, then whole
    path.write_bytes(metadata_log(foo=1) + good)
    soon(broker, {'foo': 1, 'bar': 1})


def test_what_stands_before_a_damaged_batch_is_applied_once(followed):
    "Each change of leader raises the epoch by one, however often the broker looks at the damage behind it."
    broker, path = followed
    bad = bytearray(topic_batch(4, 'bar'))
    bad[-1] ^= 1
    append(path, batch([leader_change(topic_id_of('foo'), 0, 1)], 3) + bad)
    wait_until(lambda: broker.stderr, 'a remark')
    epochs = []
    for number in range(5):
        time.sleep(0.12)
        epochs.append(described(broker, 'foo', client_id=f'client {number}')['foo']['partitions'][0]['leader_epoch'])
    assert epochs == [1] * 5


IMPOSSIBLE = {
    'the eligible leaders of a topic that is not there': batch([bytes([1, 28, 0]) + compact('nowhere') + b'\0'], 3),
    'a partition of a topic that is not there': batch([partition_record(bytes(16), 0)], 3),
    'an empty value': batch([b''], 3),
    'a control record without key': batch([b'\0\0'], 3, attributes=32),
    'compressed, but not': batch([b'abc'], 3, attributes=1),
    'an unknown codec': batch([b'abc'], 3, attributes=7),
}


@pytest.mark.parametrize('problem', IMPOSSIBLE)
def test_impossible_records_are_complained_about(followed, problem):
    "The checksum is right, the contents aren't. The broker says so, serves what it had, and follows again when it can."
    broker, path = followed
    append(path, IMPOSSIBLE[problem])
    wait_until(lambda: broker.stderr, 'a remark', patience=5)
    assert len(broker.stderr.splitlines()) == 1 and str(path) in broker.stderr
    assert sizes(broker, client_id='another') == {'foo': 1}
    path.write_bytes(metadata_log(a=1))
    soon(broker, {'a': 1}, patience=5)


# --- How it stops -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('clients, number', [('no', signal.SIGTERM), ('idle', signal.SIGTERM), ('idle', signal.SIGINT),
                                             ('half', signal.SIGTERM), ('unread', signal.SIGTERM)],
                         ids=lambda value: getattr(value, 'name', value))
def test_stops_on_a_signal(tmp_path, loop, clients, number):
    "Whoever is connected: at rest, in the middle of a request, or with answers that it doesn't read."
    with running(tmp_path, env=loop) as broker, contextlib.ExitStack() as stack:
        for _ in range({'no': 0, 'unread': 1}.get(clients, 5)):
            client = stack.enter_context(broker.client(receive_buffer=4096))
            if clients == 'half': client.send(api_versions(1)[:10])
            if clients == 'unread': client.send(describe(1, *LONG_NAMES))
        assert is_served(broker)
        assert broker.stop(number) == 0
        assert broker.stdout.splitlines()[-1] == 'kafka_scratch: stopped' and broker.stderr == ''
        with pytest.raises(ConnectionRefusedError): Client(broker.port)


def test_stops_once_on_many_signals(start):
    broker = start()
    with broker.client(receive_buffer=4096) as client:
        client.send(describe(1, *LONG_NAMES))
        assert is_served(broker)
        for number in [signal.SIGTERM, signal.SIGINT, signal.SIGTERM]: broker.process.send_signal(number)
        assert broker.stop() == 0 and broker.stderr == ''


def test_starts_again_at_once_on_the_same_port(tmp_path, loop):
    with running(tmp_path, env=loop) as broker, broker.client() as client:
        assert client.ask(api_versions(1)) is not None
        assert broker.stop() == 0
        again = BrokerProcess(tmp_path, tmp_path/'server.properties', port=broker.port, env=loop)
        try: assert is_served(again.wait_ready())
        finally: again.stop()


@pytest.mark.parametrize('streams', ['>&-', '2>&-', '<&- >&- 2>&-'], ids=['stdout', 'stderr', 'all'])
def test_without_streams(tmp_path, loop, streams):
    "Started in the background with its streams closed: nobody listens, but that is all."
    port = free_port()
    file = properties(tmp_path/'server.properties', listeners=f'PLAINTEXT://127.0.0.1:{port}', log_dirs=tmp_path/'logs')
    process = subprocess.Popen(['/bin/sh', '-c', f'exec "$0" "$1" {streams}', ROOT/'your_program.sh', file], env=loop)

    def answered():
        assert process.poll() is None
        with contextlib.suppress(ConnectionRefusedError), Client(port) as client: return client.ask(api_versions(1))

    try:
        wait_until(answered, 'an answer')
        with Client(port) as client:
            client.send(struct.pack('>i', -1))   # it would say something about this
            assert client.is_closed()
        assert answered()
    finally: process.terminate()
    assert process.wait(PATIENCE) == 0


# --- What it refuses --------------------------------------------------------------------------------------------------

def refused(tmp_path: Path, *arguments, **options) -> str:
    "The one sentence with which it gives up; nothing below the directory has changed."
    kept = tmp_path/'logs'
    tmp_path.mkdir(exist_ok=True)
    before = tree(kept) if kept.is_dir() else kept.read_bytes() if kept.exists() else None
    process = run_to_end(tmp_path, *arguments, **options)
    assert process.process.returncode == 1 and process.stdout == ''
    assert 'Traceback' not in process.stderr, process.stderr
    assert len(process.stderr.splitlines()) == 1 and process.stderr.startswith('kafka_scratch: '), process.stderr
    assert (tree(kept) if kept.is_dir() else kept.read_bytes() if kept.exists() else None) == before
    return process.stderr


def without_privileges():
    "From here on root may read, write and enter only what its permissions say, as everybody else."
    if os.geteuid() == 0 and sys.platform == 'linux':
        # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH; 24 is PR_CAPBSET_DROP
        for capability in (1, 2): ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)


def settings_file(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path/'server.properties'
    path.write_text('\n'.join([f'listeners=PLAINTEXT://127.0.0.1:{free_port()}', f'log.dirs={tmp_path/"logs"}', *lines,
                               '']))
    return path


def test_refuses_a_port_in_use(tmp_path):
    (tmp_path/'logs').mkdir()
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        listener = f'PLAINTEXT://127.0.0.1:{port}'
        said = refused(tmp_path, settings_file(tmp_path, f'listeners={listener}'))
    assert (f'{listener}: port {port} is in use by another program' in said
            and f'in {tmp_path}/server.properties' in said)


def test_says_that_a_broker_is_on_the_port(tmp_path, loop):
    "The second start of the same broker, which is the usual reason."
    with running(tmp_path, env=loop) as broker:
        said = refused(tmp_path/'second', properties(tmp_path/'second.properties',
                                                     listeners=f'PLAINTEXT://127.0.0.1:{broker.port}',
                                                     log_dirs=tmp_path/'other'), env=loop)
        assert f'port {broker.port} is in use by a Kafka broker; stop that one, or choose another port, such as listeners=PLAINTEXT://127.0.0.1:' in said  # noqa: E501
        assert not (tmp_path/'other').exists() or not any((tmp_path/'other').iterdir())
        assert is_served(broker)


@pytest.mark.parametrize('host', ['192.0.2.1', 'no-such-host.invalid', 'a..b'])
def test_refuses_a_host_that_is_not_here(tmp_path, host):
    (tmp_path/'logs').mkdir()
    assert f'PLAINTEXT://{host}:9' in refused(tmp_path, settings_file(tmp_path, f'listeners=PLAINTEXT://{host}:9'))


@pytest.mark.parametrize('problem, words', [('not there', 'there is no such file'),
                                            ('a directory', 'it is a directory; name the file in it'),
                                            ('not readable', 'Permission denied')],
                                            ids=['not there', 'a directory', 'not readable'])
def test_refuses_a_file_that_can_not_be_read(tmp_path, problem, words):
    file = tmp_path/'server.properties'
    if problem == 'a directory': file.mkdir()
    if problem == 'not readable': file.touch(mode=0)
    said = refused(tmp_path, file, limit=without_privileges)
    assert f"{file} can't be read: {words}" in said


@pytest.mark.parametrize('line, words', [
    ('node.id=one', "node.id takes a whole number from 0 to 2147483647, not 'one'"),
    ('node.id=-1', 'node.id'), ('broker.id=2147483648', 'broker.id'),
    ('listeners=127.0.0.1:9092', "'127.0.0.1:9092' is no listener"), ('listeners=PLAINTEXT://127.0.0.1:65536', 'port'),
    ('listeners=', 'listeners'),
    ('listeners=SSL://127.0.0.1:9092', 'SSL'),
    ('advertised.listeners=nonsense', 'advertised.listeners'), ('log.dirs=', 'log.dirs'), ('log.dirs=\\u12', '\\u'),
    ('log.dirs=/\\u0000', ''), ('log.dirs=/\\ud800', ''),
    ('log.dirs=/proc/nowhere', '/proc/nowhere'), ('socket.request.max.bytes=0', 'socket.request.max.bytes'),
    ('connections.max.idle.ms=soon', 'connections.max.idle.ms'),
    ('listeners=PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0', 'two listeners called PLAINTEXT'),
    ('num.partitions=0', 'num.partitions'), ('num.partitions=many', 'num.partitions'),
    ('auto.create.topics.enable=perhaps', 'auto.create.topics.enable'), ('group.max.size=x', 'group.max.size'),
    ('group.consumer.assignors=mine', 'group.consumer.assignors'),
    ('offsets.retention.minutes=0', 'offsets.retention.minutes'), ('offsets.topic.num.partitions=0',
                                                                   'offsets.topic.num.partitions'),
                                                                   ('transactional.id.expiration.ms=0',
                                                                    'transactional.id.expiration.ms')])
def test_refuses_bad_values(tmp_path, line, words):
    (tmp_path/'logs').mkdir()
    file = settings_file(tmp_path, '# the third line', line)
    said = refused(tmp_path, file)
    assert words in said
    if not line.startswith('log.dirs=/'): assert f'{file}, line 4: ' in said


@pytest.mark.parametrize('contents, words', [
    (b'node.id=2\n', ['belongs to node 2', 'node 1']), (b'node.id=two\n', ['meta.properties', "'two'"]),
    ('node.id=²\n'.encode(), ['meta.properties']),
    (b'node.id=1\ncluster.id=\\u12\n', ['meta.properties', 'line 2']), (b'\xff\xfe',
        ['meta.properties', 'says neither a cluster.id nor a node.id'])],
    ids=['another node', 'not a number', 'not quite a number', 'a bad escape', 'not text'])
def test_refuses_a_directory_of_someone_else(tmp_path, contents, words):
    (tmp_path/'logs').mkdir()
    (tmp_path/'logs'/'meta.properties').write_bytes(contents)
    said = refused(tmp_path, settings_file(tmp_path, 'node.id=1'))
    assert all(word in said for word in [str(tmp_path/'logs'), *words])


def test_refuses_a_file_as_log_directory(tmp_path):
    (tmp_path/'logs').write_text('not a directory')
    file = settings_file(tmp_path)
    assert f'{file}, line 2: log.dirs has {tmp_path}/logs, which is a file: name a directory' in refused(tmp_path, file)


@pytest.mark.parametrize('mode', [0o555, 0o333, 0o666], ids=['read-only', 'not to be listed', 'not to be entered'])
def test_refuses_a_log_directory_without_the_right_to_use_it(tmp_path, mode):
    file, logs = settings_file(tmp_path), tmp_path/'logs'
    logs.mkdir()
    logs.chmod(mode)
    process = run_to_end(tmp_path, file, limit=without_privileges)
    logs.chmod(0o755)
    assert process.process.returncode == 1 and not any(logs.iterdir())
    [said] = process.stderr.splitlines()
    assert (f'{file}, line 2: log.dirs has {logs}, which belongs to ' in said
            and said.endswith('where we may not write: name one of your own'))


def test_refuses_a_log_directory_of_another_user(tmp_path):
    if os.geteuid(): pytest.skip('– only root can give a directory away')
    file, logs = settings_file(tmp_path), tmp_path/'logs'
    logs.mkdir(mode=0o700)
    (logs/'meta.properties').write_text(META.format(node_id=1))
    os.chown(logs, 1, 1)
    process = run_to_end(tmp_path, file, limit=without_privileges)
    assert process.process.returncode == 1 and [path.name for path in logs.iterdir()] == ['meta.properties']
    assert (process.stderr
            == f'kafka_scratch: {file}, line 2: log.dirs has {logs}, which belongs to {pwd.getpwuid(1).pw_name} and '
               f'where we may not write: name one of your own\n')


def test_refuses_files_of_another_user_in_its_directory(tmp_path):
    "As they are after somebody has run it as root."
    file, lock = settings_file(tmp_path), tmp_path/'logs'/'.lock'
    lock.parent.mkdir()
    lock.touch(mode=0)
    process = run_to_end(tmp_path, file, limit=without_privileges)
    assert process.process.returncode == 1 and [path.name for path in lock.parent.iterdir()] == ['.lock']
    assert (process.stderr
            == f'kafka_scratch: {lock} belongs to {pwd.getpwuid(os.geteuid()).pw_name}, and we may not use it: '
               f'log.dirs can name another directory\n')


def test_refuses_to_make_a_directory_where_it_may_not(tmp_path):
    file, above = settings_file(tmp_path, f'log.dirs={tmp_path}/above/logs'), tmp_path/'above'
    above.mkdir(mode=0o555)
    process = run_to_end(tmp_path, file, limit=without_privileges)
    assert process.process.returncode == 1 and process.stderr.splitlines() == [
        f"kafka_scratch: the log directory {above}/logs can't be made: Permission denied; name one that can, as "
        f"log.dirs"]


@pytest.mark.parametrize('setting', ['log.dirs', 'log.dir', 'metadata.log.dir'])
def test_refuses_a_directory_with_other_things_in_it(tmp_path, setting):
    "Without `meta.properties` it is nobody's; Kafka says `No readable meta.properties files found.`"
    (tmp_path/'logs'/'summer-2024').mkdir(parents=True)
    for path in 'letter.txt', 'photo.jpg', 'zebra', 'summer-2024/plan.txt', 'orders-0':
        (tmp_path/'logs'/path).write_text('mine')
    file = properties(tmp_path/'server.properties', listeners=f'PLAINTEXT://127.0.0.1:{free_port()}',
                      **{setting: tmp_path/'logs'},
                      **{'log.dirs': tmp_path/'fresh'} if setting == 'metadata.log.dir' else {})
    said = refused(tmp_path, file)
    assert f'{file}, line 2: {setting} has {tmp_path}/logs, which has no meta.properties, but letter.txt, orders-0, photo.jpg and 2 more in it' in said  # noqa: E501
    assert 'name an empty or a new directory' in said and not (tmp_path/'fresh').exists()


@pytest.mark.parametrize('named', [True, False], ids=['with a name', 'without'])
def test_takes_a_directory_that_a_broker_left(tmp_path, named):
    "Also a partition that was deleted, and what file systems and desktops put into every directory."
    logs = tmp_path/'logs'
    write_log(logs, metadata_log(foo=1))
    for name in 'foo-0', 'bar-1.0123456789abcdef0123456789abcdef-delete', 'lost+found': (logs/name).mkdir()
    for name in '.lock', '.DS_Store', 'cleaner-offset-checkpoint', 'recovery-point-offset-checkpoint.tmp', 'bootstrap.checkpoint':  # noqa: E501
        (logs/name).touch()
    if named:
        (logs/'meta.properties').write_text(META.format(node_id=1))
        (logs/'letter.txt').write_text('mine')   # as Kafka: a file is no obstacle in a directory with a name
    with running(tmp_path) as broker: assert sizes(broker) == {'foo': 1}


# --- What it remarks upon, and starts ---------------------------------------------------------------------------------

def test_reads_bytes_as_java_does(tmp_path):
    "As ISO-8859-1, in which every byte is a letter: an é of one byte is an é, in a comment or in a path."
    port, file = free_port(), tmp_path/'server.properties'
    file.write_bytes(
        f'# caf\xe9 \xff\xfe\0\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path}/caf\xe9\n'.encode('iso-8859-1'))
    broker = BrokerProcess(tmp_path, file, port=port)
    try: assert is_served(broker.wait_ready())
    finally: broker.stop()
    broker.check_end()
    assert (tmp_path/'café').is_dir() and broker.stderr == ''


def test_says_how_to_write_other_letters(tmp_path):
    "An é of two bytes is two letters, as in Kafka; whoever wrote it hears of it."
    with running(tmp_path, **{'super.users': 'User:café'}) as broker:
        assert (broker.stderr
                == f'kafka_scratch: {tmp_path}/server.properties is read as ISO-8859-1, as in Kafka: write é as '
                   f'\\u00e9 for super.users in line 4\n')


def test_names_settings_that_do_not_exist(tmp_path):
    with running(tmp_path, listners='x', **{'retention.ms': 5, 'confluent.license': 'x', 'num.network.threads': 3,
                                            'my.own': 1, 'colour': 'red'}) as broker:
        assert is_served(broker)
        assert broker.stderr == (
            f"kafka_scratch: {tmp_path}/server.properties has settings that don't exist, and are ignored, as in Kafka: "
                                 'listners in line 4 (did you mean listeners?), retention.ms in line 5 (did you mean '
                                 'log.retention.ms?), colour in line 9\n')


def test_makes_no_directory_when_another_is_not_ours(tmp_path):
    "It looks at all of them before it touches one."
    (tmp_path/'logs').mkdir()
    (tmp_path/'other').mkdir()
    (tmp_path/'other'/'meta.properties').write_text(META.format(node_id=2))
    refused(tmp_path, settings_file(tmp_path, f'log.dirs={tmp_path}/logs/new,{tmp_path}/other', 'node.id=1'))


@pytest.mark.parametrize('position', [16, 17, 22, 61, -1], ids=lambda position: f'byte {position}')
def test_refuses_a_damaged_log(tmp_path, position):
    log = bytearray(metadata_log(foo=1, bar=2))
    log[position] ^= 0x40
    path = write_log(tmp_path/'logs', log)
    said = refused(tmp_path, settings_file(tmp_path))
    assert str(path) in said and 'offset' in said


@pytest.mark.parametrize('position', [8, 10], ids=lambda position: f'byte {position}')
def test_does_not_overlook_a_damaged_length(tmp_path, position):
    """A batch that seems to go on after the end of the file, with whole batches inside it: refused, or at least
    mentioned."""
    log = bytearray(metadata_log(foo=1, bar=2))
    log[position] ^= 0x40
    path = write_log(tmp_path/'logs', log)
    process = BrokerProcess(tmp_path, settings_file(tmp_path))
    try: wait_until(lambda: process.process.poll() is not None or 'ready on' in process.stdout, 'a decision')
    finally: process.stop()
    assert str(path) in process.stderr, process.stdout


@pytest.mark.parametrize('problem', IMPOSSIBLE)
def test_refuses_impossible_records(tmp_path, problem):
    log = metadata_log(foo=1)
    path = write_log(tmp_path/'logs', log + IMPOSSIBLE[problem])
    said = refused(tmp_path, settings_file(tmp_path))
    assert str(path) in said and f'at offset {len(log)}' in said


@pytest.mark.parametrize('damage', ['altered', 'cut off'])
def test_refuses_a_damaged_checkpoint(tmp_path, damage):
    shutil.copytree(FIXTURES/'snapshot-only'/'logs', tmp_path/'logs')
    path = sorted((tmp_path/'logs'/'__cluster_metadata-0').glob('*.checkpoint'))[-1]
    data = bytearray(path.read_bytes())
    if damage == 'altered': data[1000] ^= 1
    path.write_bytes(data if damage == 'altered' else data[:-10])
    assert path.name in refused(tmp_path, settings_file(tmp_path))


@pytest.mark.parametrize('arguments', [['--help'], ['-h']])
def test_help(tmp_path, arguments):
    process = run_to_end(tmp_path, *arguments)
    assert process.process.returncode == 0 and process.stdout.startswith('usage: ') and process.stderr == ''


@pytest.mark.parametrize('arguments, words', [
    (['--port'], 'but no option --port: settings such as listeners=PLAINTEXT://localhost:19092 and log.dirs=/data are '
                 'in the file (see --help)'),
    (['--port=9092', 'one'], 'but no option --port=9092: '), (['server.properties', '--override', 'a=b'],
                                                              'but no option --override: '),
    (['one', 'two'], 'and not 2 of them: one, two (see --help)')], ids=['arguments0', 'with a value', 'after the file',
        'arguments1'])
def test_usage(tmp_path, arguments, words):
    process = run_to_end(tmp_path, *arguments)
    assert process.process.returncode == 2 and process.stdout == '' and len(process.stderr.splitlines()) == 1
    assert process.stderr.startswith(
        'kafka_scratch: your_program.sh takes the path of a properties file, or nothing, ') and words in process.stderr


# --- From where, and with which Python --------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def checkout(tmp_path_factory):
    "The program and the package alone, as after a fresh clone; in a place whose name has spaces and quotes."
    place = tmp_path_factory.mktemp('a clone')/"it's here"
    shutil.copytree(ROOT/'kafka_scratch', place/'kafka_scratch', ignore=shutil.ignore_patterns('__pycache__'))
    shutil.copy(ROOT/'your_program.sh', place)
    return place/'your_program.sh'


def installed_pythons() -> dict[tuple, Path]:
    "The Pythons of pyenv, if it is there: version → directory of its programs."
    found = {}
    for directory in (Path.home()/'.pyenv'/'versions').glob('*.*/bin'):
        with contextlib.suppress(ValueError): found[tuple(map(int, directory.parent.name.split('.')[:2]))] = directory
    return dict(sorted(found.items()))


PYTHONS = installed_pythons()
OLD, NEW = ([pytest.param(version, id='.'.join(map(str, version))) for version in PYTHONS if (version < (3,
    11)) == old] or
            [pytest.param(None, marks=pytest.mark.skip(reason='no such Python is installed'))] for old in (True, False))


@pytest.mark.parametrize('version', OLD)
def test_an_older_python_is_told_so(tmp_path, checkout, version):
    process = run_to_end(tmp_path, '--help', program=checkout, env=environment(PATH=str(PYTHONS[version])))
    assert process.process.returncode == 1 and process.stdout == ''
    assert process.stderr == f'kafka_scratch needs Python 3.11 or newer, and this is {version[0]}.{version[1]}.\n'


@pytest.mark.parametrize('version', NEW)
def test_a_newer_python_serves(tmp_path, checkout, version):
    write_log(tmp_path/'logs', metadata_log(foo=1))
    with running(tmp_path, program=checkout, env=environment(PATH=str(PYTHONS[version]))) as broker:
        assert sizes(broker) == {'foo': 1}


def test_no_python_at_all(tmp_path, checkout):
    process = run_to_end(tmp_path, program=checkout, env=environment(PATH=str(tmp_path)))
    assert (process.process.returncode == 1
            and process.stderr == 'kafka_scratch needs Python 3.11 or newer, and no python3 was found.\n')


def test_needs_only_the_standard_library(tmp_path, checkout):
    "A Python that finds no installed packages serves the same answers."
    (tmp_path/'bin').mkdir()
    python = tmp_path/'bin'/'python3'
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    shutil.copytree(FIXTURES/'single-broker'/'metadata-live', tmp_path/'logs')
    with running(tmp_path, program=checkout, env=environment(PATH=str(tmp_path/'bin'))) as broker:
        assert in_kafkas_words(described(broker).values()) == recorded('single-broker')
        assert '(asyncio, CRC-32C by python)' in broker.stdout


def test_runs_from_another_directory(tmp_path):
    "Paths are relative to where the user is; modules that happen to lie there are not ours to import."
    here = tmp_path/'here'
    here.mkdir()
    for module in 'asyncio', 'signal', 'struct', 'runpy', 'uvloop', 'crc32c', 'json', 'kafka_scratch':
        (here/f'{module}.py').write_text(f'raise SystemExit("the wrong {module}")')
    write_log(here/'data', metadata_log(foo=1))
    port = free_port()
    properties(here/'my.properties', listeners=f'PLAINTEXT://127.0.0.1:{port}', log_dirs='data')
    broker = BrokerProcess(tmp_path, 'my.properties', port=port, cwd=here)
    try: assert sizes(broker.wait_ready()) == {'foo': 1}
    finally: broker.stop()
    broker.check_end()


def test_runs_through_a_symbolic_link(tmp_path, checkout):
    "Also through a link to a link, one of them relative."
    (tmp_path/'bin').mkdir()
    (tmp_path/'first').symlink_to(checkout)
    (tmp_path/'bin'/'second').symlink_to('../first')
    with running(tmp_path, program=tmp_path/'bin'/'second') as broker: assert is_served(broker)


def test_runs_with_a_python_path_of_the_user(tmp_path):
    with running(tmp_path, env=environment(PYTHONPATH='/nowhere:', PYTHONDONTWRITEBYTECODE='1',
                                           PYTHONUNBUFFERED=None)) as broker:
        assert is_served(broker)
