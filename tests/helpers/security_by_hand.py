"""Clients that show who they are, made by hand: SASL messages, proofs, certificates; and brokers that want to see them."""  # noqa: E501
import base64
import contextlib
import hashlib
import hmac
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from broker_process import PATIENCE, BrokerProcess, Client, free_port
from kafka_scratch.apis.api import Node
from kafka_scratch.cluster.image import Image, apply_record
from kafka_scratch.cluster.records import ClientQuotaRecord, EntityData
from kafka_scratch.log.partition import StorageError
from kafka_scratch.security.acl_apis import create_acls, delete_acls, describe_acls
from kafka_scratch.security.acls import AclConfig, Authorizer
from kafka_scratch.security.alter_quotas import alter_client_quotas
from kafka_scratch.security.quotas import describe_client_quotas
from kafka_scratch.security.scram_apis import alter_user_scram_credentials, describe_user_scram_credentials
from kafka_scratch.wire.frames import RequestHeader
from kafka_scratch.wire.primitives import Int32
from kafka_scratch.security.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest
from kafka_scratch.security.sasl import SaslHandshakeResponse
from kafka_scratch.wire.schema import Message

USERS = {'admin': 'admin-secret', 'alice': 'alice-secret', 'bob': 'bob-secret'}
PLAIN_MODULE = 'org.apache.kafka.common.security.plain.PlainLoginModule'
JAAS = f'{PLAIN_MODULE} required ' + ' '.join(f'user_{name}="{password}"' for name, password in USERS.items()) + ';'
AUTHORIZER = 'org.apache.kafka.metadata.authorizer.StandardAuthorizer'
needs_openssl = pytest.mark.skipif(shutil.which('openssl') is None,
                                   reason='no openssl command to make certificates with')


def framed(request, version: int, flexible: bool, correlation_id: int = 1) -> bytes:
    "A request with its length and its header."
    header = RequestHeader(api_key=request.API_KEY, api_version=version, correlation_id=correlation_id,
                           client_id='by hand')
    frame = header.encode(2 if flexible else 1) + request.encode(version)
    return Int32.write(len(frame)) + frame


def plain(name: str, password: str, behalf: str = '') -> bytes: return f'{behalf}\0{name}\0{password}'.encode()


class Prover:
    "The client's side of SCRAM, written from RFC 5802 alone."
    def __init__(self, name: str, password: str, mechanism: str = 'SCRAM-SHA-256',
                 nonce: str = 'fyko+d2lbbFgONRv9qkxdawL'):
        self.password, self.hash = password.encode(), {'SCRAM-SHA-256': 'sha256', 'SCRAM-SHA-512': 'sha512'}[mechanism]
        self.bare = f'n={name.replace("=", "=3D").replace(",", "=2C")},r={nonce}'
        self.nonce = nonce

    def first(self) -> bytes: return b'n,,' + self.bare.encode()

    def final(self, server_first: bytes) -> bytes:
        said = server_first.decode()
        parts = dict(part.split('=', 1) for part in said.split(','))
        assert parts['r'].startswith(self.nonce) and len(parts['r']) > len(self.nonce) + 15
        salted = hashlib.pbkdf2_hmac(self.hash, self.password, base64.b64decode(parts['s']), int(parts['i']))
        client_key = hmac.digest(salted, b'Client Key', self.hash)
        without = f'c=biws,r={parts["r"]}'
        everything = f'{self.bare},{said},{without}'.encode()
        signature = hmac.digest(hashlib.new(self.hash, client_key).digest(), everything, self.hash)
        self.expected = b'v=' + base64.b64encode(hmac.digest(hmac.digest(salted, b'Server Key', self.hash), everything,
                                                             self.hash))
        proof = bytes(a ^ b for a, b in zip(client_key, signature))
        return f'{without},p={base64.b64encode(proof).decode()}'.encode()


class Person(Client):
    "A socket on which somebody shows who it is. With a context, over TLS."
    def __init__(self, port: int, tls: ssl.SSLContext | None = None, patience: float = PATIENCE):
        super().__init__(port, patience=patience)
        if tls: self.socket = tls.wrap_socket(self.socket, server_hostname='localhost')

    def receive(self, n: int) -> bytes | None:
        try: return super().receive(n)
        except (ssl.SSLEOFError, ssl.SSLError): return None   # the end, in the words of TLS

    def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse | None:
        said = self.ask(framed(SaslHandshakeRequest(mechanism=mechanism), version, False))
        return said and SaslHandshakeResponse.decode(said, version, 8)

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse | None:
        said = self.ask(framed(SaslAuthenticateRequest(auth_bytes=token), version, version >= 2))
        return said and SaslAuthenticateResponse.decode(said, version, 9 if version >= 2 else 8)

    def log_in(self, name: str, password: str, mechanism: str = 'PLAIN') -> SaslAuthenticateResponse:
        "The answer to the last message."
        assert self.handshake(mechanism).error_code == 0
        if mechanism == 'PLAIN': return self.authenticate(plain(name, password))
        prover = Prover(name, password, mechanism)
        first = self.authenticate(prover.first())
        if first.error_code: return first
        last = self.authenticate(prover.final(first.auth_bytes))
        if not last.error_code: assert last.auth_bytes == prover.expected
        return last


# --- Certificates -----------------------------------------------------------------------------------------------------

class Certificates:
    "An authority and what it signs, made now, with the openssl command."
    def __init__(self, place: Path):
        self.place = place
        for name in ('us', 'others'):
            self.openssl('req', '-x509', *NEW_KEY, '-keyout', f'{name}.key', '-out', f'{name}.crt', '-days', '2',
                         '-subj', f'/CN={name}')
        self.make('broker', '/CN=localhost')
        self.make('alice', '/O=Sample, Inc./CN=alice')
        self.make('mallory', '/O=Sample, Inc./CN=alice', signer='others')
        self.make('late', '/O=Sample, Inc./CN=alice', days='0')
        self.openssl('ec', '-aes128', '-passout', 'pass:key-secret', '-in', 'broker.key', '-out', 'locked.key')
        (place/'locked.pem').write_text((place/'locked.key').read_text() + (place/'broker.crt').read_text())

    def openssl(self, *arguments):
        subprocess.run(['openssl', *arguments], cwd=self.place, check=True, capture_output=True, timeout=PATIENCE)

    def make(self, name: str, subject: str, signer: str = 'us', days: str = '2',
             extension: str = 'subjectAltName=DNS:localhost,IP:127.0.0.1'):
        (self.place/'names').write_text(extension)
        self.openssl('req', *NEW_KEY, '-keyout', f'{name}.key', '-out', f'{name}.csr', '-subj', subject)
        self.openssl('x509', '-req', '-in', f'{name}.csr', '-CA', f'{signer}.crt', '-CAkey', f'{signer}.key',
                     '-CAcreateserial', '-days', days,
                     '-out', f'{name}.crt', '-extfile', 'names')
        (self.place/f'{name}.pem').write_text((self.place/f'{name}.key').read_text()
                                              + (self.place/f'{name}.crt').read_text())

    def client(self, name: str | None = None, trusts: str = 'us') -> ssl.SSLContext:
        "What a client needs for TLS."
        context = ssl.create_default_context(cafile=self.place/f'{trusts}.crt')
        if name: context.load_cert_chain(self.place/f'{name}.pem')
        return context

    def settings(self) -> dict[str, str]:
        "What the broker needs."
        return {'ssl.keystore.type': 'PEM', 'ssl.keystore.location': self.place/'broker.pem',
                'ssl.truststore.type': 'PEM',
                'ssl.truststore.location': self.place/'us.crt'}

NEW_KEY = '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'


# --- Brokers ----------------------------------------------------------------------------------------------------------

class Doors:
    "A broker with a listener of every kind: `doors.ports['SASL_SSL']`."
    def __init__(self, process: BrokerProcess, ports: dict[str, int]): self.process, self.ports = process, ports
    def __getitem__(self, name: str) -> int: return self.ports[name]


@contextlib.contextmanager
def doors(place: Path, certificates: Certificates | None, *, env=None, **settings):
    """Starts a broker with PLAINTEXT (which is for super users), SASL_PLAINTEXT, SHORT (sessions of two seconds), and
    with certificates SSL, REQUIRED and SASL_SSL."""
    protocols = {'PLAINTEXT': 'PLAINTEXT', 'SASL_PLAINTEXT': 'SASL_PLAINTEXT', 'SHORT': 'SASL_PLAINTEXT'}
    if certificates: protocols |= {'SSL': 'SSL', 'REQUIRED': 'SSL', 'SASL_SSL': 'SASL_SSL'}
    ports = {name: free_port() for name in protocols}
    lines = {
        'node.id': 1, 'process.roles': 'broker,controller', 'log.dirs': place/'logs',
        'auto.create.topics.enable': 'false',
        'listeners': ','.join(f'{name}://localhost:{port}' for name, port in ports.items()),
        'listener.security.protocol.map': ','.join(f'{name}:{protocol}' for name, protocol in protocols.items()),
        'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512',
        'authorizer.class.name': AUTHORIZER, 'super.users': 'User:ANONYMOUS;User:admin',
        'listener.name.ssl.ssl.client.auth': 'requested', 'listener.name.required.ssl.client.auth': 'required',
        'listener.name.short.connections.max.reauth.ms': 2000, 'offsets.topic.replication.factor': 1,
        'offsets.topic.num.partitions': 2,
        'transaction.state.log.num.partitions': 2, 'group.initial.rebalance.delay.ms': 0}
    lines |= {f'listener.name.{name.lower()}.plain.sasl.jaas.config': JAAS for name in protocols if 'SASL'
              in protocols[name]}
    if certificates: lines |= certificates.settings()
    lines |= settings
    place.mkdir(parents=True, exist_ok=True)
    (place/'server.properties').write_text(''.join(f'{name}={value}\n' for name, value in lines.items()))
    process = BrokerProcess(place, place/'server.properties', port=ports['PLAINTEXT'], env=env)
    try: yield Doors(process.wait_ready(), ports)
    except BaseException:
        with contextlib.suppress(AssertionError): process.stop()
        raise
    process.check_end()
    for secret in (*USERS.values(), 'pencil', 'PRIVATE'):
        assert secret not in process.stdout + process.stderr, 'a secret, for everybody to read'


# --- Nodes without sockets --------------------------------------------------------------------------------------------

class Disk:
    "A controller that writes into an image, until it is full."
    def __init__(self, image: Image): self.image, self.full = image, False

    def write(self, records):
        if self.full and records: raise StorageError('no space left')
        for record in records: apply_record(self.image, record)
        self.image.last_offset += len(records)


def security_node(secured: bool = True) -> Node:
    "A node with an authorizer, and a controller without a disk."
    apis, image = (describe_acls, create_acls, delete_acls, describe_client_quotas, alter_client_quotas,
                   describe_user_scram_credentials, alter_user_scram_credentials), Image()
    node = Node(apis, image=image, controller=Disk(image))
    if secured: node.authorizer = Authorizer(AclConfig(frozenset({'User:ANONYMOUS'}), False), lambda: image)
    return node


def unordered(value):
    if isinstance(value, list): return sorted(map(unordered, value))
    return str([unordered(getattr(value, f.name)) for f in value.FIELDS]) if isinstance(value, Message) else repr(value)


def without_words(value):
    "A message without the texts of refusals: Kafka's are full of addresses in its memory."
    if isinstance(value, list): return [without_words(each) for each in value]
    if not isinstance(value, Message): return value
    return type(value)(**{f.name: None if f.name == 'error_message' else without_words(getattr(value,
        f.name)) for f in value.FIELDS})


QUOTAS = [({'user': 'u1'}, 'producer_byte_rate', 1024.), ({'user': 'u1'}, 'consumer_byte_rate', 2048.),
          ({'user': None}, 'request_percentage', 50.),
          ({'user': 'u1', 'client-id': 'c1'}, 'producer_byte_rate', 7.),
          ({'client-id': None}, 'producer_byte_rate', 8.), ({'ip': '10.0.0.1'}, 'connection_creation_rate', 9.)]


def acl_node() -> Node:
    """A node with an authorizer and some quotas. `secured` and `disabled`: authorizer and image of it, and of another
    one that has neither."""
    node, other = security_node(), security_node(secured=False)
    node.controller.write([ClientQuotaRecord(entity=[EntityData(entity_type=kind, entity_name=name) for kind,
                                                     name in entity.items()], key=key, value=value)
                           for entity, key, value in QUOTAS])
    node.secured, node.disabled = (node.authorizer, node.image), (other.authorizer, other.image)
    return node
