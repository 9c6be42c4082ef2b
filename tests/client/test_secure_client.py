"""`--command-config`: the console at guarded doors, as its users run it; and the client's side of TLS and SASL, piece
by piece.

The doors are those of our broker and, where there is one, of Apache Kafka 4.1.1.
"""
import contextlib
import hashlib
import random
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from size import kafka_absent
from broker_process import ROOT, environment, free_port
from security_by_hand import AUTHORIZER, JAAS, USERS, Certificates, doors, needs_openssl

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.security.scram_apis import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from kafka_scratch.security.scram_apis import alter_user_scram_credentials
from kafka_scratch.apis.api_versions import ApiVersion, ApiVersionsResponse, api_versions
from kafka_scratch.client.client import Client, Connection, NoBroker, ask_any_broker, find_topics
from kafka_scratch.cluster.properties import ConfigError
from kafka_scratch.apis.api import find_api, read_request, write_response
from kafka_scratch.apis.metadata_messages import MetadataRequest
from kafka_scratch.apis.metadata import metadata
from kafka_scratch.security.sasl import SaslAuthenticateResponse, SaslHandshakeResponse, sasl_authenticate
from kafka_scratch.security.sasl import sasl_handshake
from kafka_scratch.client.secure import MODULES, NotAdmitted, SecureConnection, connect_with, read_client_config

pytestmark = needs_openssl
COMMAND = [sys.executable, '-m', 'kafka_scratch']
SECRETS = *USERS.values(), 'pencil', 'not-the-password', 'PRIVATE'


@pytest.fixture(scope='module')
def certificates(tmp_path_factory):
    made = Certificates(tmp_path_factory.mktemp('certificates'))
    for name in ('broker', 'alice'):   # Java reads keys in this form only
        made.openssl('pkcs8', '-topk8', '-nocrypt', '-in', f'{name}.key', '-out', f'{name}.p8')
        (made.place/f'{name}.java.pem').write_text((made.place/f'{name}.p8').read_text()
                                                   + (made.place/f'{name}.crt').read_text())
    return made


@pytest.fixture(scope='module', params=['ours', 'kafka'])
def ports(request, tmp_path_factory, certificates):
    "The ports of a guarded broker, by the names of its listeners."
    place = tmp_path_factory.mktemp(request.param)
    if request.param == 'kafka' and (reason := kafka_absent()): pytest.skip(reason)
    with (doors if request.param == 'ours' else kafka_doors)(place, certificates, **{'super.users': SUPER}) as found:
        add_users(found['PLAINTEXT'])
        yield found

SUPER = 'User:ANONYMOUS;User:alice;User:sam;User:sue;User:a,b=c;User:CN=alice,O=Sample\\\\, Inc.'


@contextlib.contextmanager
def kafka_doors(place, certificates, **settings):
    "Apache Kafka, with the same doors as ours."
    protocols = {'SASL_PLAINTEXT': 'SASL_PLAINTEXT', 'SHORT': 'SASL_PLAINTEXT', 'REQUIRED': 'SSL',
                 'SASL_SSL': 'SASL_SSL'}
    found = {name: free_port() for name in protocols}
    kafka = real_kafka.RealKafka(place, certificates.settings() | settings | {
        'ssl.keystore.location': certificates.place/'broker.java.pem',
        'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512',
        'authorizer.class.name': AUTHORIZER, 'listener.name.required.ssl.client.auth': 'required',
        'listener.name.short.connections.max.reauth.ms': 2000})
    for name in ('listeners', 'advertised.listeners'):
        kafka.properties[name] += ''.join(f',{door}://localhost:{port}' for door, port in found.items())
    pairs = {'PLAINTEXT': 'PLAINTEXT', 'CONTROLLER': 'PLAINTEXT'} | protocols
    kafka.properties['listener.security.protocol.map'] = ','.join(map(':'.join, pairs.items()))
    for door in ('sasl_plaintext', 'short', 'sasl_ssl'):
        kafka.properties[f'listener.name.{door}.plain.sasl.jaas.config'] = JAAS
        for mechanism in ('scram-sha-256', 'scram-sha-512'):
            kafka.properties[
                f'listener.name.{door}.{mechanism}.sasl.jaas.config'] = f'{MODULES[mechanism.upper()]} required;'
    with kafka: yield found | {'PLAINTEXT': kafka.port}


def add_users(port: int):
    "sam and a,b=c (SCRAM-SHA-256) and sue (SCRAM-SHA-512), whose password is pencil."
    users = []
    for number, hash, names in ((1, 'sha256', ['sam', 'a,b=c']), (2, 'sha512', ['sue'])):
        salted = hashlib.pbkdf2_hmac(hash, b'pencil', b'sea salt', 4096)
        users += [ScramCredentialUpsertion(name=name, mechanism=number, iterations=4096, salt=b'sea salt',
                                           salted_password=salted) for name in names]
    with Client(f'127.0.0.1:{port}', 10) as boss:
        answer = ask_any_broker(boss, alter_user_scram_credentials, AlterUserScramCredentialsRequest(deletions=[],
            upsertions=users))
    assert [each.error_code for each in answer.results] == [0, 0, 0]


def settings(protocol, mechanism=None, name=None, password=None, trusts=None, certificates=None, **more) -> str:
    "The text of a client's properties file."
    lines = {'security.protocol': protocol}
    if mechanism:
        account = f'username="{name}" password="{password}"'
        lines |= {'sasl.mechanism': mechanism, 'sasl.jaas.config': f'{MODULES[mechanism]} required {account};'}
    if trusts: lines |= {'ssl.truststore.type': 'PEM', 'ssl.truststore.location': certificates.place/f'{trusts}.crt'}
    lines |= {name.replace('_', '.'): value for name, value in more.items()}
    return ''.join(f'{name}={value}\n' for name, value in lines.items())


def run(tmp_path, port: int, text: str | None, *arguments, stdin: str = '', host='localhost') -> tuple[int, str, str]:
    "Exit code, output, complaints; whatever happens, no secret is in them, and no traceback."
    (tmp_path/'client.properties').write_text(text or '')
    how = ['--command-config', str(tmp_path/'client.properties')] if text is not None else []
    done = subprocess.run([*COMMAND, *map(str, arguments), '-b', f'{host}:{port}', '--timeout', '20', *how],
                          input=stdin, capture_output=True, text=True,
                          timeout=60, env=environment(PYTHONPATH=str(ROOT)))
    assert 'Traceback' not in done.stderr and not any(secret in done.stdout + done.stderr for secret
                                                      in SECRETS), done.stderr
    return done.returncode, done.stdout, done.stderr


def refused(tmp_path, port, text, *arguments, **options) -> str:
    "The one sentence of a command that isn't let in."
    code, out, err = run(tmp_path, port, text, *(arguments or ('topics', 'list')), **options)
    assert (code, out) == (1, '') and err.startswith('kafka-scratch: ') and err.count('\n') == 1, (code, out, err)
    return err


# --- Those who get in
# ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('door, account', [
    ('SASL_SSL', ('SCRAM-SHA-256', 'sam', 'pencil')), ('SASL_SSL', ('SCRAM-SHA-512', 'sue', 'pencil')),
    ('SASL_SSL', ('PLAIN', 'alice', 'alice-secret')),
    ('SASL_PLAINTEXT', ('PLAIN', 'alice', 'alice-secret')), ('SASL_PLAINTEXT', ('SCRAM-SHA-256', 'a,b=c', 'pencil')),
    ('REQUIRED', ())])
def test_everything_the_console_does(tmp_path, ports, certificates, door, account):
    tls = dict(trusts='us', certificates=certificates) if door != 'SASL_PLAINTEXT' else {}
    own = dict(ssl_keystore_type='PEM',
               ssl_keystore_location=certificates.place/'alice.pem') if door == 'REQUIRED' else {}
    text = settings('SSL' if door == 'REQUIRED' else door, *account, **tls, **own)
    def done(*arguments, **options):
        code, out, err = run(tmp_path, ports[door], text, *arguments, **options)
        assert (code, err) == (0, ''), err
        return out
    name = f'topic-{random.randrange(10**12)}'
    assert done('topics', 'create', name, '--partitions', 2) == f'created {name}\n' and name in done('topics', 'list',
        '-q').split()
    done('produce', name, '-p', 1, stdin='one coffee\na tea\n')
    assert done('consume', name) == 'one coffee\na tea\n' == done('consume', name, '--group', f'{name}-group')
    assert '0 behind' in done('groups', 'describe', f'{name}-group') and f'{name}-group' in done('groups', 'list')
    done('groups', 'delete', f'{name}-group'), done('topics', 'delete', name)


def test_certificates_in_the_file_itself_and_a_locked_key(tmp_path, ports, certificates):
    def text(name): return (certificates.place/name).read_text().replace('\n', '\\n')
    certificates.openssl('ec', '-aes128', '-passout', 'pass:not-the-password', '-in', 'alice.key', '-out',
                         'alice.locked')
    file = settings('SSL', ssl_truststore_type='PEM', ssl_truststore_certificates=text('us.crt'),
                    ssl_keystore_type='PEM',
                    ssl_keystore_key=text('alice.locked'), ssl_keystore_certificate_chain=text('alice.crt'),
                    ssl_key_password='not-the-password')
    assert run(tmp_path, ports['REQUIRED'], file, 'topics', 'list')[0] == 0


def test_a_session_that_is_renewed(ports, certificates):
    "The same connection, for longer than the broker believes us at once."
    config = read_client_config(settings('SASL_PLAINTEXT', 'PLAIN', 'alice', 'alice-secret'), 'a test')
    connection = SecureConnection('localhost', ports['SHORT'], config=config)
    first, end = connection.renew_at, time.monotonic() + 5
    while time.monotonic() < end:
        assert connection.ask(metadata, MetadataRequest(topics=[]))[0].brokers
        time.sleep(0.3)
    assert connection.renew_at > first
    connection.close()


# --- Those who don't
# ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('account, arguments', [
    (('PLAIN', 'alice', 'not-the-password'), ('topics', 'list')), (('PLAIN', 'nobody', 'not-the-password'),
                                                                   ('groups', 'list')),
    (('SCRAM-SHA-256', 'sam', 'not-the-password'), ('consume', 'orders', '--group', 'g')),
    (('SCRAM-SHA-512', 'sam', 'pencil'), ('produce', 'orders')),
    (('SCRAM-SHA-256', 'nobody', 'pencil'), ('topics', 'list'))])
def test_wrong_passwords(tmp_path, ports, certificates, account, arguments):
    err = refused(tmp_path, ports['SASL_SSL'], settings('SASL_SSL', *account, trusts='us', certificates=certificates),
                  *arguments)
    assert f'does not let us in by {account[0]}: Authentication failed' in err


def test_brokers_whom_we_do_not_trust(tmp_path, ports, certificates):
    for text in (settings('SASL_SSL', 'PLAIN', 'alice', 'alice-secret', 'others', certificates),
                 settings('SASL_SSL', 'PLAIN', 'alice', 'alice-secret')):
        err = refused(tmp_path, ports['SASL_SSL'], text)
        assert "we don't trust localhost" in err and 'ssl.truststore.location' in err


def test_certificates_that_are_no_good(tmp_path, ports, certificates):
    for name in (None, 'mallory'):
        own = dict(ssl_keystore_type='PEM', ssl_keystore_location=certificates.place/f'{name}.pem') if name else {}
        err = refused(tmp_path, ports['REQUIRED'], settings('SSL', trusts='us', certificates=certificates, **own))
        assert 'wants a certificate' in err


def test_the_wrong_door(tmp_path, ports, certificates):
    trusting = dict(trusts='us', certificates=certificates)
    alice = 'PLAIN', 'alice', 'alice-secret'
    for door in ('REQUIRED', 'SASL_SSL'):
        for text in (None, '', settings('PLAINTEXT'), settings('SASL_PLAINTEXT', *alice)):
            assert 'perhaps it expects TLS' in refused(tmp_path, ports[door], text)
    for door in ('PLAINTEXT', 'SASL_PLAINTEXT'):
        host = '127.0.0.1' if door == 'PLAINTEXT' else 'localhost'
        for text in (settings('SSL', **trusting), settings('SASL_SSL', *alice, **trusting)):
            assert 'another language than TLS' in refused(tmp_path, ports[door], text, host=host)
    for text in (None, settings('PLAINTEXT')):
        assert 'perhaps it wants to know who we are' in refused(tmp_path, ports['SASL_PLAINTEXT'], text)
    assert 'perhaps it wants to know who we are' in refused(tmp_path, ports['SASL_SSL'], settings('SSL', **trusting))
    assert 'asks nobody for a password' in refused(tmp_path, ports['PLAINTEXT'], settings('SASL_PLAINTEXT', *alice),
                                                   host='127.0.0.1')


def test_a_mechanism_that_is_not_enabled(tmp_path):
    with doors(tmp_path/'broker', None, **{'sasl.enabled.mechanisms': 'PLAIN'}) as found:
        err = refused(tmp_path, found['SASL_PLAINTEXT'], settings('SASL_PLAINTEXT', 'SCRAM-SHA-256', 'sam', 'pencil'))
    assert 'does not let us in by SCRAM-SHA-256: it has PLAIN' in err


# --- Those who only pretend
# ---------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def impostor(answer_token):
    """Looks like a broker, and answers SaslAuthenticate as it likes: `answer_token(number, token)`. Whatever else it is
    asked is in `heard`."""
    apis, heard = {api.key: api for api in (api_versions, sasl_handshake, sasl_authenticate, metadata)}, []
    keys = [ApiVersion(api_key=key, min_version=api.request.VERSIONS[0], max_version=api.request.VERSIONS[-1]) for key,
            api in apis.items()]
    def serve(client):
        stream, count = client.makefile('rb'), 0
        while head := stream.read(4):
            frame = stream.read(int.from_bytes(head, 'big'))
            api, version = find_api(frame, apis)
            header, request = read_request(frame, api, version)
            if api is api_versions: said = ApiVersionsResponse(api_keys=keys)
            elif api is sasl_handshake: said = SaslHandshakeResponse(mechanisms=[request.mechanism])
            elif api is sasl_authenticate: said, count = answer_token(count, request.auth_bytes), count + 1
            else: return heard.append(api.key)
            client.sendall(write_response(api, version, header.correlation_id, said))
    with socket.create_server(('127.0.0.1', 0)) as server:
        def accept():
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as client: serve(client)
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], heard


@pytest.mark.parametrize('signature', [b'', b'v=AAAA', b'e=invalid-proof', b'\xff\xfe'])
def test_a_broker_that_does_not_know_our_password(tmp_path, signature):
    "It hears our proof and says that all is well: it would like to have our records. It gets nothing."
    def answer(count, token):
        if count: return SaslAuthenticateResponse(auth_bytes=signature)
        return SaslAuthenticateResponse(auth_bytes=b'r=' + token.rpartition(b'r=')[2] + b'more,s=YQ==,i=4096')
    with impostor(answer) as (port, heard):
        err = refused(tmp_path, port, settings('SASL_PLAINTEXT', 'SCRAM-SHA-256', 'sam', 'pencil'), host='127.0.0.1')
    assert 'may be an impostor' in err and heard == []


@pytest.mark.parametrize('challenge', [b'', b'\xff', b'r=x,s=YQ==,i=4096', b'i=1', b'{own}more,s=YQ==,i=1',
                                       b'{own},s=YQ==,i=4096', b'{own}more,s=YQ==,i=999999999',
                                       b'{own}more,s=Y,i=4096'])
def test_challenges_that_are_none(challenge):
    def answer(count, token):
        return SaslAuthenticateResponse(auth_bytes=challenge.replace(b'{own}', b'r=' + token.rpartition(b'r=')[2]))
    config = read_client_config(settings('SASL_PLAINTEXT', 'SCRAM-SHA-256', 'sam', 'pencil'), 'a test')
    with impostor(answer) as (port, heard), pytest.raises(NotAdmitted): SecureConnection('127.0.0.1', port, 5, config)
    assert heard == []


def test_a_broker_that_repeats_our_password(tmp_path):
    "In what it says for people to read."
    def answer(count, token): return SaslAuthenticateResponse(error_code=58, error_message=f'not {token.decode()}!')
    with impostor(answer) as (port, _):
        err = refused(tmp_path, port, settings('SASL_PLAINTEXT', 'PLAIN', 'alice', 'alice-secret'), host='127.0.0.1')
    assert '(hidden)' in err


def test_certificates_of_another_host(certificates):
    "Signed by somebody whom we trust; but not for the machine that we called."
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.place/'broker.pem')
    with socket.create_server(('127.0.0.2', 0)) as server:
        def serve():
            for _ in range(2):
                with contextlib.suppress(OSError), server.accept()[0] as client, context.wrap_socket(client,
                    server_side=True) as tls:
                    tls.recv(1000)
        threading.Thread(target=serve, daemon=True).start()
        def call(**more):
            config = read_client_config(settings('SSL', trusts='us', certificates=certificates, **more), 'a test')
            SecureConnection('127.0.0.2', server.getsockname()[1], 5, config)
        with pytest.raises(NotAdmitted, match='IP address mismatch'): call()
        # it got as far as Kafka
        with pytest.raises(ConnectionError, match='closed the connection'):
            call(ssl_endpoint_identification_algorithm='')


# --- Files that are no good
# ---------------------------------------------------------------------------------------------------

PLAIN = settings('SASL_PLAINTEXT', 'PLAIN', 'alice', 'alice-secret')

@pytest.mark.parametrize('text, problem', [
    ('security.protocol=TLS', "line 1: security.protocol is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not "
                              "'TLS'"),
    ('\nsecurity.protocl=SSL', 'line 2: security.protocl is not known here; did you mean security.protocol?'),
    ('acks=all', "line 1: acks can't be used here"),
    (PLAIN.replace('=PLAIN', '=GSSAPI'), "line 2: sasl.mechanism is one of"),
    (PLAIN.replace('PlainLogin', 'ScramLogin'), 'line 3: sasl.jaas.config takes the class'),
    (PLAIN.replace('";', ';'), 'line 3: sasl.jaas.config'), (PLAIN.replace(';', ''), 'line 3: sasl.jaas.config'),
    (PLAIN.replace('alice-secret', ''), 'line 3: sasl.jaas.config takes a name'),
    ('security.protocol=SASL_SSL', 'sasl.mechanism is missing'), ('security.protocol=SASL_SSL\nsasl.mechanism=PLAIN',
                                                                  'sasl.jaas.config is missing'),
    (PLAIN.replace('SASL_PLAINTEXT', 'PLAINTEXT'), 'line 2: sasl.mechanism is no use'),
    (settings('PLAINTEXT', ssl_truststore_type='PEM'), 'line 2: ssl.truststore.type is no use'),
    (settings('SSL', ssl_truststore_location='us.jks'), 'ssl.truststore.type has to be PEM'),
    (settings('SSL', ssl_truststore_type='PEM', ssl_truststore_location='nowhere.pem'),
     'line 3: ssl.truststore.location'),
    (settings('SSL', ssl_keystore_type='PEM', ssl_keystore_location='nowhere.pem'), 'line 3: ssl.keystore.location'),
    (settings('SSL', ssl_keystore_type='PEM', ssl_keystore_key='x'), 'go together'),
    (settings('SSL', ssl_keystore_password='x'), 'line 2: ssl.keystore.password is for stores of another kind'),
    (settings('SSL', ssl_endpoint_identification_algorithm='maybe'), 'line 2: ssl.endpoint'),
    ('x=\\u12', 'line 1')])
def test_what_is_wrong_in_a_file(tmp_path, text, problem):
    "Said at once, with file and line; nobody is called."
    code, out, err = run(tmp_path, 1, text, 'topics', 'list')
    assert (code, out) == (
        2, '') and problem in err and f'{tmp_path}/client.properties' in err and err.count('\n') == 1, err


def test_no_file(tmp_path):
    with pytest.raises(ConfigError, match="nowhere can't be read"): connect_with(f'{tmp_path}/nowhere')
    assert 'alice-secret' not in repr(read_client_config(PLAIN, 'a test')) and connect_with(None) is Connection


def test_nobody_is_there(tmp_path):
    assert 'refused' in refused(tmp_path, free_port(), PLAIN)
    connect = connect_with(tmp_path/'client.properties')
    with pytest.raises(NoBroker): find_topics(Client(f'localhost:{free_port()}', 1, connect))
