"`serve --trace` and `tracing(server)`: every question, every answer, no secret, and no cost when nobody listens."
import functools
import signal
import struct
import subprocess
import sys

import pytest

from broker_process import PATIENCE, ROOT, Client as Raw, environment, wait_until
from kafka_scratch.security.scram_apis import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from kafka_scratch.security.scram_apis import alter_user_scram_credentials
from kafka_scratch.client.client import Client, Connection, ask_any_broker, fetch_from, find_topics, refresh_metadata
from kafka_scratch.client.client import send_batch
from kafka_scratch.apis.configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from kafka_scratch.apis.configs import incremental_alter_configs
from kafka_scratch.cluster.settings import BROKER
from kafka_scratch.apis.metadata_messages import MetadataRequest
from kafka_scratch.apis.metadata import metadata
from kafka_scratch.cluster.records import UserScramCredentialRecord
from kafka_scratch.log.records import Record, write_batch
from kafka_scratch.broker.running import running_broker
from kafka_scratch.security.sasl import SaslAuthenticateRequest, SaslHandshakeRequest, sasl_authenticate, sasl_handshake
from kafka_scratch.client.secure import MODULES, NotAdmitted, SecureConnection, read_client_config
from kafka_scratch.tools.trace import plain, tracing

PASSWORD = 'open-sesame-42'


def traced(broker, full=False):
    lines = []
    trace = broker.call(lambda: tracing(broker.server, lines.append, full))
    return lines, trace


def hidden_in(text: str, secret: bytes):
    "Neither the secret nor its bytes, however they are cut into rows."
    assert secret.decode('latin-1') not in text and secret.hex() not in text.replace(' ', '')
    # a row of the long form has eight bytes
    for at in range(0, len(secret) - 7, 8): assert secret[at:at + 8].hex(' ') not in text


# --- What is told
# -------------------------------------------------------------------------------------------------------------

def test_each_question_and_each_answer():
    with running_broker(topics={'orders': 2}) as broker:
        lines, _ = traced(broker)
        with broker.client() as client:
            send_batch(client, 'orders', 1, write_batch([Record(value=b'one')]))
            fetch_from(client, 'orders', 1, 0)
            refresh_metadata(client, ['nobody'])
    text = '\n'.join(lines)
    names = [line.split(' → ')[1].split()[0] for line in lines if ' → ' in line]
    assert names == ['ApiVersions', 'Metadata', 'Produce', 'Fetch', 'Metadata'] and len(lines) == 10
    assert all(' ms)' in line for line in lines if ' ← ' in line) and '#1 kafka_scratch' in lines[0]
    assert ('topics=[orders{' in text and 'records=(1 in 1 batch' in text
            and lines[-1].count('UNKNOWN_TOPIC_OR_PARTITION') == 2)
    assert all('\n' not in line and len(line) <= 240 for line in lines)


def test_answers_from_memory_are_told_too():
    "Equal questions are answered from memory, past everybody; not on a connection that is traced."
    with running_broker(topics=['orders']) as broker, broker.client() as client:
        for _ in range(3): refresh_metadata(client, ['orders'])
        lines, trace = traced(broker)
        for _ in range(3): refresh_metadata(client, ['orders'])
        with broker.client() as another: refresh_metadata(another, ['orders'])
        assert sum('→ Metadata' in line for line in lines) == 4 == sum('← Metadata' in line for line in lines)
        count = len(lines)
        broker.call(trace.stop)
        for _ in range(3): refresh_metadata(client, ['orders'])
        with broker.client() as another:
            refresh_metadata(another, ['orders'])
            connections = list(broker.server.connections)
            assert connections and all(connection.handle == connection.answer for connection in connections)
            assert all(connection.recall == connection.acceptor.recall is not None for connection in connections)
        assert len(lines) == count


def test_shortcuts_are_told_too():
    "After some like it, a Produce goes a shorter way; it is told as before."
    with running_broker(topics=['orders']) as broker, broker.client() as client:
        lines, _ = traced(broker)
        for number in range(100):
            assert send_batch(client, 'orders', 0, write_batch([Record(value=b'%03d' % number)])) == number
    assert sum('→ Produce' in line for line in lines) == 100 == sum('← Produce' in line for line in lines)


def test_nothing_changes_for_a_server_that_is_not_traced():
    with running_broker(topics=['orders']) as broker, broker.client() as client:
        find_topics(client)
        acceptor, = broker.server.acceptors
        connection, = acceptor.connections
        before = acceptor.guard, acceptor.recall, connection.handle, connection.recall
        assert acceptor.guard is None and acceptor.recall is not None
        lines, trace = traced(broker)
        assert acceptor.guard is not None and acceptor.recall is None and connection.handle != connection.answer
        with trace: pass
        assert (acceptor.guard, acceptor.recall, connection.handle, connection.recall) == before
        assert lines == []


def test_an_answer_that_takes_a_while_and_one_that_nobody_waits_for():
    with running_broker(topics=['orders']) as broker, broker.client() as client:
        find_topics(client, ['orders'])
        lines, _ = traced(broker)
        fetch_from(client, 'orders', 0, 0, max_wait_ms=100)
        took = float(next(line for line in lines if '← Fetch' in line).split('bytes, ')[1].split(' ms')[0])
        assert 90 < took < 5000
        other = Connection('127.0.0.1', broker.port, patience=0.4)
        with pytest.raises(TimeoutError): other.exchange(*waiting_fetch())
        other.close()
        wait_until(lambda: any('gone' in line for line in lines), 'the end of the wait')


def waiting_fetch():
    from kafka_scratch.apis.fetch_messages import FetchPartition, FetchRequest, FetchTopic
    from kafka_scratch.apis.fetch import fetch
    topics = [FetchTopic(topic='orders', partitions=[FetchPartition(partition=0, fetch_offset=0,
                                                                    partition_max_bytes=100)])]
    return fetch, 12, FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=topics)


def test_what_is_no_request():
    with running_broker() as broker:
        broker.server.note = lambda text: None
        lines, _ = traced(broker)
        frames = [struct.pack('>ihhi', 8, 999, 0, 7), struct.pack('>ihhi', 9, 3, 12, 7) + b'\0', b'\0\0\0\1x',
                  struct.pack('>ihhi', 11, 18, 99, 7) + b'\xff\xff\0']
        for frame in frames:
            with Raw(broker.port) as raw: raw.ask(frame)
    assert sum('✗' in line and 'closed: ' in line for line in lines) == 3 and 'UNSUPPORTED_VERSION' in lines[-1]


def test_a_listener_that_fails_harms_nobody():
    def write(line): raise OSError('the disk is full')
    with running_broker(topics=['orders']) as broker:
        broker.call(lambda: tracing(broker.server, write))
        with broker.client() as client: assert 'orders' in find_topics(client)


def test_every_byte():
    with running_broker(topics=['orders']) as broker:
        lines, _ = traced(broker, full=True)
        with broker.client() as client: send_batch(client, 'orders', 0, write_batch([Record(value=b'x' * 1000)]))
    produced = next(line for line in lines if '→ Produce' in line)
    assert ("header.client_id" in produced and "'kafka_scratch'" in produced
            and 'body.topic_data[0].partition_data[0].records' in produced)
    assert len(produced.splitlines()) < 60   # of a long field, the beginning


def test_texts_that_could_harm_a_terminal():
    assert plain('a\x1b[2J') == "'a\\x1b[2J'" and '\n' not in plain('a\nb') and plain('ü') == 'ü'
    with running_broker() as broker:
        lines, _ = traced(broker)
        evil = '\x1b[31m\nevil'.encode()
        with Raw(broker.port) as raw: raw.ask(struct.pack('>ihhih', 10 + len(evil), 18, 0, 7, len(evil)) + evil)
    assert '\x1b' not in lines[0] and '\n' not in lines[0] and 'evil' in lines[0]


# --- What isn't
# ---------------------------------------------------------------------------------------------------------------

SASL = {'listeners': 'SASL_PLAINTEXT://127.0.0.1:0', 'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256',
        'listener.name.sasl_plaintext.plain.sasl.jaas.config':
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";'}
TOKEN = b'\0alice\0' + PASSWORD.encode()


@pytest.mark.parametrize('full', [False, True])
@pytest.mark.parametrize('password', [PASSWORD, 'wrong-' + PASSWORD])
def test_passwords_of_plain(full, password):
    with running_broker(**SASL, connection_failed_authentication_delay_ms=1) as broker:
        broker.server.note = lambda text: None
        lines, _ = traced(broker, full)
        connection = Connection('127.0.0.1', broker.port)
        connection.ask(sasl_handshake, SaslHandshakeRequest(mechanism='PLAIN'))
        said, _ = connection.ask(sasl_authenticate,
                                 SaslAuthenticateRequest(auth_bytes=b'\0alice\0' + password.encode()))
        if password == PASSWORD:
            connection.ask(metadata, MetadataRequest())
            connection.ask(metadata, MetadataRequest())
        connection.close()
        wait_until(lambda: not broker.server.connections, 'the end of the connection')
    text = '\n'.join(lines)
    assert text.count('→ SaslAuthenticate') == 1 and '(hidden)' in text
    if password == PASSWORD: assert text.count('→ Metadata') == 2 == text.count('← Metadata')
    else: assert 'SASL_AUTHENTICATION_FAILED' in text and '✗' in text
    hidden_in(text, password.encode())


@pytest.mark.parametrize('full', [False, True])
def test_a_client_of_ours_that_logs_in(full):
    "With PLAIN the password itself travels; with SCRAM, what others could guess it from."
    with running_broker(**SASL) as broker:
        broker.server.note = lambda text: None
        user = UserScramCredentialRecord(name='sam', mechanism=1, iterations=4096, salt=b'sea salt',
                                         stored_key=bytes(32), server_key=bytes(32))
        broker.call(broker.server.node.controller.write, [user])
        lines, _ = traced(broker, full)
        for mechanism, name in (('PLAIN', 'alice'), ('SCRAM-SHA-256', 'sam')):
            jaas = f'{MODULES[mechanism]} required username="{name}" password="{PASSWORD}";'
            config = read_client_config(
                f'security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}', 'a test')
            with Client(broker.bootstrap_servers, 5, functools.partial(SecureConnection, config=config)) as client:
                if name == 'alice': refresh_metadata(client)
                else:
                    with pytest.raises(NotAdmitted): refresh_metadata(client)   # no password fits these keys
    text = '\n'.join(lines)
    assert text.count('→ SaslAuthenticate') == 3 and '→ Metadata' in text and '(hidden)' in text
    hidden_in(text, PASSWORD.encode())
    assert 'n,,n=' not in text and b'n,,n='.hex(' ') not in text and b'p='.hex(' ') + ' ' not in text


@pytest.mark.parametrize('full', [False, True])
def test_bare_tokens(full):
    "After version 0 of the handshake, messages come without a header: nothing of them is shown."
    with running_broker(**SASL) as broker:
        lines, _ = traced(broker, full)
        with Raw(broker.port) as raw:
            handshake = SaslHandshakeRequest(mechanism='PLAIN').encode(0)
            raw.ask(struct.pack('>ihhih', 10 + len(handshake), 17, 0, 7, -1) + handshake)
            assert raw.ask(struct.pack('>i', len(TOKEN)) + TOKEN) == b'\0\0\0\0'
    text = '\n'.join(lines)
    assert 'SaslHandshake' in text and 'no request' in text
    hidden_in(text, PASSWORD.encode())


@pytest.mark.parametrize('full', [False, True])
def test_broken_messages_before_the_door(full):
    with running_broker(**SASL) as broker:
        broker.server.note = lambda text: None
        lines, _ = traced(broker, full)
        for api, version in ((36, 2), (36, 0), (3, 12), (0, 13), (999, 1)):
            with Raw(broker.port) as raw: raw.ask(struct.pack('>ihhih', 10 + len(TOKEN), api, version, 7, -1) + TOKEN)
    hidden_in('\n'.join(lines), PASSWORD.encode())
    assert sum('✗' in line for line in lines) == 5


@pytest.mark.parametrize('full', [False, True])
def test_credentials_and_settings(full):
    salt, salted = b'salt-of-the-earth', b'salted-' + PASSWORD.encode()
    with running_broker() as broker, broker.client() as client:
        lines, _ = traced(broker, full)
        ask_any_broker(client, alter_user_scram_credentials, AlterUserScramCredentialsRequest(
            deletions=[], upsertions=[ScramCredentialUpsertion(name='alice', mechanism=1, iterations=4096, salt=salt,
                                                               salted_password=salted)]))
        settings = [AlterableConfig(name='listener.name.external.ssl.keystore.password', config_operation=0,
                                    value=PASSWORD),
                    AlterableConfig(name='log.retention.ms', config_operation=0, value='60000')]
        ask_any_broker(client, incremental_alter_configs, IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=BROKER, resource_name='1', configs=settings)]))
    text = '\n'.join(lines)
    assert 'alice' in text and '(hidden)' in text and '60000' in text and 'keystore.password' in text
    for secret in (salt, salted, PASSWORD.encode()): hidden_in(text, secret)


# --- The command
# --------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('option', ['--trace', '--trace=full'])
def test_serve(tmp_path, option):
    command = [sys.executable, '-m', 'kafka_scratch', 'serve', '--port', '0', '--log-dir', str(tmp_path/'logs'),
               '--set', 'num.partitions=4', option]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment(PYTHONPATH=str(ROOT))) as process:
        try:
            ready = process.stdout.readline()
            address = ready.split('://')[1].split(';')[0]
            with Client(address) as client: ask_any_broker(client, metadata, MetadataRequest(topics=None))
        finally: process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and err == '' and 'node 1 is ready' in ready and str(tmp_path/'logs') in ready
    assert '→ Metadata' in out and '← Metadata' in out and out.endswith('kafka_scratch: stopped\n')
    assert ('message_size' in out) == (option == '--trace=full')


def test_serve_with_a_file(tmp_path):
    "`--trace server.properties` means the file, not a kind of trace; and what is typed goes before what is written."
    (tmp_path/'server.properties').write_text(
        f'listeners=PLAINTEXT://127.0.0.1:1\nadvertised.listeners=PLAINTEXT://nowhere:1\nlog.dirs={tmp_path}/logs\n')
    command = [sys.executable, '-m', 'kafka_scratch', 'serve', '--port', '0', '--trace',
               str(tmp_path/'server.properties')]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment(PYTHONPATH=str(ROOT))) as process:
        try:
            address = process.stdout.readline().split('://')[1].split(';')[0]
            with Client(address) as client: refresh_metadata(client)
            assert client.brokers == {1: ('localhost', int(address.split(':')[1]))}
        finally: process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and '→ Metadata' in out


def test_a_port_is_no_way_around_passwords(tmp_path):
    "`--port` stands in place of the file's listeners: not where they ask clients who they are."
    (tmp_path/'server.properties').write_text(
        f'listeners=PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2\nlog.dirs={tmp_path}/logs\n')
    done = subprocess.run([sys.executable, '-m', 'kafka_scratch', 'serve', str(tmp_path/'server.properties'), '--port',
                           '0'], capture_output=True, text=True,
                          timeout=PATIENCE, env=environment(PYTHONPATH=str(ROOT)))
    assert done.returncode == 2 and 'would replace the listener SSL' in done.stderr and not (tmp_path/'logs').exists()


@pytest.mark.parametrize('arguments, code, problem', [
    (['--set', 'nonsense'], 2, "a setting is NAME=VALUE, not 'nonsense'"), (['--port', '70000'], 1, 'no listener'),
    (['--set', 'log.retention.ms=soon'], 1, 'log.retention.ms takes'),
    (['--port', '0', '--set', 'listeners=SASL_SSL://127.0.0.1:0'], 2, 'SASL_SSL, by one for everybody'),
    (['--trace=loud', 'no-such-file'], 2, '--trace is short or full'), (['no-such-file'], 1, 'no-such-file'),
    (['--port', 'x'], 2, "'x' is no number")])
def test_mistakes(tmp_path, arguments, code, problem):
    done = subprocess.run([sys.executable, '-m', 'kafka_scratch', 'serve', '--log-dir', str(tmp_path/'logs'),
                           *arguments], capture_output=True, text=True,
                          timeout=PATIENCE, env=environment(PYTHONPATH=str(ROOT)))
    assert (done.returncode == code and problem in done.stderr and 'Traceback' not in done.stderr
            and not (tmp_path/'logs').exists())
