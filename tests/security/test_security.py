"""A broker with guarded doors, and everybody who comes to them: clients as people use them, and those who should not
get in.

Wrong passwords, certificates that are over or of somebody else, things that are not allowed, messages that are too
long: each is refused with
Kafka's error, nothing is given away, and others are served meanwhile.
"""
import asyncio
import importlib.util
import ssl
import struct
import subprocess
import time

import pytest

from size import needs_kafka
from benchmarks import real_kafka
from broker_process import PATIENCE, Client, environment, free_port, run_to_end, wait_until
from kafka_scratch.broker.apis import APIS
from kafka_scratch.wire.codes import API_NAMES
from kafka_scratch.apis.api import find_api
from kafka_scratch.apis.metadata_messages import MetadataRequest, MetadataResponse
from kafka_scratch.apis.api_versions import ApiVersionsRequest
from player import recorded
from security_by_hand import AUTHORIZER, JAAS, USERS, Certificates, Person, Prover, doors, framed, needs_openssl, plain

AS_ALICE = dict(security_protocol='SASL_PLAINTEXT', sasl_mechanism='PLAIN', sasl_plain_username='alice',
                sasl_plain_password='alice-secret')


@pytest.fixture(scope='module')
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp('certificates'))


@pytest.fixture(scope='module', params=['uvloop', 'asyncio'])
def broker(request, tmp_path_factory, certificates):
    "One broker for many tests: they shouldn't disturb each other."
    if importlib.util.find_spec(request.param) is None: pytest.skip(f'{request.param} is not installed')
    with doors(tmp_path_factory.mktemp('doors'), certificates,
               env=environment(KAFKA_SCRATCH_LOOP=request.param)) as found:
        prepare(found)
        yield found

pytestmark = needs_openssl


def admin(found, **settings):
    from confluent_kafka.admin import AdminClient
    return AdminClient({'bootstrap.servers': f'localhost:{found["PLAINTEXT"]}', **settings})


def done(found, ask):
    "What comes of something that the super user asks for: `done(found, lambda boss: boss.create_topics(...))`."
    boss = admin(found)   # whose answers are lost if it is
    asked = ask(boss)
    return [future.result(PATIENCE) for future in asked.values()] if isinstance(asked, dict) else asked.result(PATIENCE)


def prepare(found):
    """Topics, users with a SCRAM password, and rules: alice and her friends may read and write `orders`, and use groups
    named after her."""
    from confluent_kafka.admin import (AclBinding, AclOperation, AclPermissionType, NewTopic, ResourcePatternType,
                                       ResourceType, ScramCredentialInfo,
                                       ScramMechanism, UserScramCredentialUpsertion)
    done(found, lambda boss: boss.create_topics([NewTopic('orders', 2, 1), NewTopic('secret', 1, 1)]))
    mechanisms = {ScramMechanism.SCRAM_SHA_256: ['sam', 'a,b=c'], ScramMechanism.SCRAM_SHA_512: ['sue']}
    users = [UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), b'pencil') for mechanism,
             names in mechanisms.items() for name in names]
    done(found, lambda boss: boss.alter_user_scram_credentials(users))
    def rule(principal, operation, kind, name, pattern=ResourcePatternType.LITERAL, permission=AclPermissionType.ALLOW):
        return AclBinding(kind, name, pattern, principal, '*', operation, permission)
    friends = 'alice', 'sam', 'sue', 'a,b=c', r'CN=alice,O=Sample\, Inc.'
    rules = [rule(f'User:{who}', AclOperation.ALL, ResourceType.TOPIC, 'ord',
                  ResourcePatternType.PREFIXED) for who in friends]
    rules += [rule(f'User:{who}', AclOperation.READ, ResourceType.GROUP, 'alices',
                   ResourcePatternType.PREFIXED) for who in friends]
    rules += [rule('User:alice', AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, 'hers'),
              rule('User:bob', AclOperation.ALL, ResourceType.TOPIC, '*'),
              rule('User:bob', AclOperation.ALL, ResourceType.TOPIC, 'secret', permission=AclPermissionType.DENY)]
    done(found, lambda boss: boss.create_acls(rules))


def topics_seen(person: Person) -> list[str]:
    "What somebody who is in sees when it asks for all topics."
    said = person.ask(framed(MetadataRequest(topics=None), 12, True))
    return None if said is None else sorted(topic.name for topic in MetadataResponse.decode(said, 12,
        9).topics if not topic.name.startswith('__'))


def others_are_served(found):
    "Somebody else, at the same time."
    with Person(found['SASL_PLAINTEXT']) as person:
        assert person.log_in('alice', 'alice-secret').error_code == 0 and topics_seen(person) == ['orders']


# --- By hand ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name, password, mechanism', [
    ('alice', 'alice-secret', 'PLAIN'), ('sam', 'pencil', 'SCRAM-SHA-256'), ('sue', 'pencil', 'SCRAM-SHA-512'),
    ('a,b=c', 'pencil', 'SCRAM-SHA-256')])
@pytest.mark.parametrize('door', ['SASL_PLAINTEXT', 'SASL_SSL'])
def test_who_shows_who_it_is_gets_in(broker, certificates, door, name, password, mechanism):
    with Person(broker[door], certificates.client() if door == 'SASL_SSL' else None) as person:
        assert person.log_in(name, password, mechanism).error_code == 0
        assert topics_seen(person) == ['orders']


@pytest.mark.parametrize('name, password, mechanism', [
    ('alice', 'wrong', 'PLAIN'), ('nobody', 'alice-secret', 'PLAIN'), ('sam', 'wrong', 'SCRAM-SHA-256'),
    ('nobody', 'pencil', 'SCRAM-SHA-256'),
    ('sam', 'pencil', 'SCRAM-SHA-512'), ('sue', 'pencil', 'SCRAM-SHA-256'), ('alice', 'alice-secret', 'SCRAM-SHA-256'),
    ('sam', 'pencil', 'PLAIN')])
def test_who_does_not_stays_out(broker, name, password, mechanism):
    with Person(broker['SASL_PLAINTEXT']) as person:
        begun = time.monotonic()
        said = person.log_in(name, password, mechanism)
        assert said.error_code == 58 and person.is_closed() and time.monotonic() - begun > 0.09
        assert name not in said.error_message and password not in said.error_message
    others_are_served(broker)


def test_unknown_users_and_wrong_passwords_look_the_same(broker):
    "In what is said, in how many messages, and in the form of each."
    def attempt(name):
        with Person(broker['SASL_PLAINTEXT']) as person:
            person.handshake('SCRAM-SHA-256')
            prover = Prover(name, 'wrong')
            first = person.authenticate(prover.first())
            salt = dict(part.split('=', 1) for part in first.auth_bytes.decode().split(','))['s']
            return first.error_code, salt, person.authenticate(prover.final(first.auth_bytes)).error_message
    known, unknown = attempt('sam'), attempt('nobody')
    assert (known[0] == unknown[0] == 0 and known[2] == unknown[2]
            and attempt('nobody')[1] == unknown[1] != attempt('nobody2')[1])


def test_nothing_of_a_stranger_reaches_a_handler(broker):
    "Every API, in every state of the conversation: an answer only to what belongs to it."
    for prologue in ((), ('PLAIN', 1), ('PLAIN', 0)):
        for key in range(len(API_NAMES)):
            if key in (17, 18, 36): continue
            with Person(broker['SASL_PLAINTEXT']) as person:
                if prologue: person.handshake(*prologue)
                frame = struct.pack('>hhih', key, 0, 1, -1) + bytes(50)
                assert person.ask(struct.pack('>i', len(frame)) + frame) is None, API_NAMES[key]
            if prologue and key > 3: break   # each of these takes a tenth of a second: the first few will do
    others_are_served(broker)


def test_handshake_of_old_clients(broker):
    with Person(broker['SASL_PLAINTEXT']) as person:
        assert person.handshake('PLAIN', 0).error_code == 0
        token = plain('alice', 'alice-secret')
        assert person.ask(struct.pack('>i', len(token)) + token) == bytes(4) and topics_seen(person) == ['orders']
    with Person(broker['SASL_PLAINTEXT']) as person:
        person.handshake('PLAIN', 0)
        assert person.ask(struct.pack('>i', 12) + b'\0alice\0wrong') is None


def test_messages_that_are_too_long(broker):
    before = broker.process.memory()
    with Person(broker['SASL_PLAINTEXT']) as person:
        person.send(struct.pack('>i', 524_289))
        assert person.is_closed()
    with Person(broker['SASL_PLAINTEXT']) as person:
        person.handshake('SCRAM-SHA-256')
        # as for any name that nobody has
        assert person.authenticate(b'n,,n=' + b'u' * 500_000 + b',r=abc').error_code == 0
        assert person.authenticate(b'c=biws,r=' + b'a' * 500_000 + b',p=YQ==').error_code == 58
    with Person(broker['SASL_PLAINTEXT']) as person:
        person.log_in('alice', 'alice-secret')
        request = framed(MetadataRequest(topics=None), 12, True)[4:]
        assert person.ask(struct.pack('>i', 600_000) + request.ljust(600_000,
                                                                     b'\0')) is not None, 'whoever is in may send more'
    assert broker.process.memory() - before < 100 << 20
    others_are_served(broker)


def test_sessions_end(broker):
    with Person(broker['SHORT']) as person:
        assert person.log_in('alice', 'alice-secret').session_lifetime_ms == 2000
        assert topics_seen(person) == ['orders']
        time.sleep(1.2)
        assert person.log_in('alice', 'alice-secret').session_lifetime_ms == 2000
        time.sleep(1.2)
        assert topics_seen(person) == ['orders'], 'it has shown again who it is'
        time.sleep(1.2)
        assert topics_seen(person) is None and person.is_closed()
    with Person(broker['SHORT']) as person:
        person.log_in('alice', 'alice-secret')
        said = person.log_in('bob', 'bob-secret')
        assert (said.error_code, said.error_message) == (58,
                                                         'Cannot change principals during re-authentication from '
                                                         'User.alice: User.bob')
    with Person(broker['SASL_PLAINTEXT']) as person:
        assert person.log_in('alice', 'alice-secret').session_lifetime_ms == 0
        assert person.handshake('PLAIN').error_code == 34 and topics_seen(person) == ['orders'], 'no session, no need'


def test_many_who_are_refused_at_once(broker):
    "Each of them waits for its refusal, and nobody else for them."
    people = [Person(broker['SASL_PLAINTEXT']) for _ in range(100)]
    for person in people:
        person.handshake('PLAIN')
        token = struct.pack('>hhih', 36, 0, 1, -1) + struct.pack('>i', 8) + b'\0alice\0x'
        person.send(struct.pack('>i', len(token)) + token)
    begun = time.monotonic()
    others_are_served(broker)
    assert time.monotonic() - begun < 5
    for person in people: assert person.frame() is not None and person.is_closed()
    for person in people: person.close()


# --- What may be done, as a real broker sees it
# ------------------------------------------------------------------------

def gist(api, version: int, said: bytes):
    "An answer without what differs between two clusters: errors, names and bits, in no order."
    answer = api.response.decode(said, version, 8 + api.response_header_version(version))
    if api.key == 3:
        return sorted((t.error_code, t.name or '', t.topic_id, len(t.partitions),
                       t.topic_authorized_operations) for t in answer.topics), answer.cluster_authorized_operations
    if api.key == 75:
        return sorted((t.error_code, t.name, t.topic_id, len(t.partitions),
                       t.topic_authorized_operations) for t in answer.topics)
    if api.key == 2: return sorted((t.name, p.error_code, p.offset) for t in answer.topics for p in t.partitions)
    if api.key == 1:
        return sorted((t.topic, t.topic_id, p.error_code, p.high_watermark, p.aborted_transactions or [],
                       p.records) for t in answer.responses for p in t.partitions)
    return sorted((t.name, t.topic_id, p.error_code, p.base_offset,
                   p.error_message or '') for t in answer.responses for p in t.partition_responses)


def test_recorded_refusals(tmp_path):
    """Metadata, ListOffsets, Fetch and Produce by somebody who may do some of it, and by somebody who may do nothing;
    ids of topics are ours instead of theirs."""
    from confluent_kafka.admin import NewTopic
    first, *cases = recorded('authorization.jsonl')
    with doors(tmp_path, None) as found:
        done(found, lambda boss: boss.create_topics([NewTopic('orders', 2, 1), NewTopic('secret', 1, 1),
                                                     NewTopic('out', 1, 1)]))
        with Person(found['PLAINTEXT']) as boss:
            known = MetadataResponse.decode(boss.ask(framed(MetadataRequest(topics=None), 12, True)), 12, 9)
        ids = {theirs: next(topic.topic_id.hex() for topic in known.topics if topic.name == name) for name,
               theirs in first['topic_ids'].items()}
        def as_ours(text):
            for theirs, ours in ids.items(): text = text.replace(theirs, ours)
            return bytes.fromhex(text)
        compared = 0
        for case in cases:
            with Person(found['PLAINTEXT' if case['name'] == 'acls' else 'SASL_PLAINTEXT']) as person:
                for step in case['steps']:
                    asked, theirs, said = as_ours(step['request_hex']), as_ours(step['response_hex']
                        or ''), person.ask(as_ours(step['request_hex']))
                    if not theirs: assert said is None
                    elif asked[5] not in (17, 30, 36):
                        api, version = find_api(asked, APIS, 4)
                        assert gist(api, version, said) == gist(api, version, theirs), (case['name'],
                            API_NAMES[api.key], version)
                        compared += 1
        assert compared == 40


# --- TLS --------------------------------------------------------------------------------------------------------------

def test_certificates_are_names(broker, certificates):
    for door in ('SSL', 'REQUIRED'):
        with Person(broker[door], certificates.client('alice')) as person: assert topics_seen(person) == ['orders']
    with Person(broker['SSL'], certificates.client()) as person:
        assert topics_seen(person) == ['orders', 'secret'], 'ANONYMOUS is a super user here'


@pytest.mark.parametrize('door, certificate', [('REQUIRED', None), ('REQUIRED', 'mallory'), ('SSL', 'mallory'),
                                               ('REQUIRED', 'late'), ('SSL', 'late')])
@pytest.mark.parametrize('version', ['TLSv1_2', 'TLSv1_3'])
def test_certificates_that_are_no_good(broker, certificates, door, certificate, version):
    time.sleep(1.1 if certificate == 'late' else 0)
    context = certificates.client(certificate)
    context.maximum_version = ssl.TLSVersion[version]
    try:
        with Person(broker[door], context) as person: assert topics_seen(person) is None
    except ssl.SSLError: pass   # which of the two depends on who finishes first
    others_are_served(broker)


def test_an_authority_that_another_one_has_signed(tmp_path, certificates):
    "Kafka trusts whoever is in its list, also if who has signed them isn't: one office, and not all of the company."
    certificates.make('office', '/CN=office', extension='basicConstraints=critical,CA:TRUE')
    certificates.make('carol', '/CN=carol', signer='office')
    with doors(tmp_path, certificates, **{'ssl.truststore.location': certificates.place/'office.crt',
                                          'super.users': 'User:ANONYMOUS;User:CN=carol'}) as found:
        with Person(found['REQUIRED'], certificates.client('carol')) as person: assert topics_seen(person) == []
        with Person(found['REQUIRED'], certificates.client('alice')) as person: assert topics_seen(person) is None


def test_a_client_that_does_not_trust_us(broker, certificates):
    with pytest.raises(ssl.SSLCertVerificationError): Person(broker['SSL'], certificates.client(trusts='others'))
    others_are_served(broker)


def test_the_wrong_language_at_a_door(broker, certificates):
    for door in ('PLAINTEXT', 'SASL_PLAINTEXT'):
        with pytest.raises((ssl.SSLError, ConnectionError)): Person(broker[door], certificates.client())
    for door, words in (('SSL', b'GET / HTTP/1.1\r\n\r\n'), ('SSL', framed(ApiVersionsRequest(), 0, False)),
                        ('SASL_SSL', framed(ApiVersionsRequest(), 0, False))):
        with Client(broker[door]) as client:
            client.send(words)
            while client.receive(1) is not None: pass   # an alert, perhaps; and then the end
    others_are_served(broker)


def test_silence_at_a_door(tmp_path, certificates):
    "Whoever says nothing, or half of a hello, is sent away after a while; and those after it don't wait for that."
    with doors(tmp_path, certificates, **{'connections.max.idle.ms': 1000}) as found:
        with Client(found['SSL']) as silent, Client(found['SSL']) as half, Client(found['SASL_PLAINTEXT']) as mute:
            half.send(b'\x16\x03\x01\x02\x00\x01')
            with Person(found['SSL'], certificates.client()) as person: assert topics_seen(person) == []
            begun = time.monotonic()
            for client in (silent, half, mute):
                while client.receive(1) is not None: pass
            assert time.monotonic() - begun < 10


def test_locked_keys_and_certificates_in_the_settings(tmp_path, certificates):
    with doors(tmp_path/'locked', certificates, **{'ssl.keystore.location': certificates.place/'locked.pem',
                                                   'ssl.key.password': 'key-secret'}) as found:
        with Person(found['SSL'], certificates.client()) as person: assert topics_seen(person) == []
    def text(name): return (certificates.place/name).read_text().replace('\n', '\\n')
    inline = {'ssl.keystore.location': '', 'ssl.keystore.key': text('broker.key'),
              'ssl.keystore.certificate.chain': text('broker.crt'),
              'ssl.truststore.location': '', 'ssl.truststore.certificates': text('us.crt')}
    with doors(tmp_path/'inline', certificates, **inline) as found:
        with Person(found['REQUIRED'], certificates.client('alice')) as person: assert topics_seen(person) == []


@pytest.mark.parametrize('settings, words', [
    ({'ssl.keystore.location': 'nothing.pem'}, 'not there'), ({'ssl.keystore.type': 'JKS'}, 'has to be PEM'),
    ({'ssl.client.auth': 'maybe'}, 'ssl.client.auth'),
    ({'sasl.enabled.mechanisms': 'GSSAPI'}, 'GSSAPI'), ({'authorizer.class.name': 'x.Y'}, 'authorizer.class.name'),
    ({'super.users': 'admin'}, 'super.users'),
    ({'listener.name.sasl_ssl.plain.sasl.jaas.config': JAAS.replace(';', '')}, 'jaas'),
    ({'ssl.keystore.location': 'locked.pem'}, 'ssl.key.password')])
def test_what_is_wrong_is_said_before_anybody_is_served(tmp_path, certificates, settings, words):
    lines = {'listeners': 'SSL://localhost:0,SASL_SSL://localhost:0', 'log.dirs': tmp_path/'logs',
             'sasl.enabled.mechanisms': 'PLAIN',
             'listener.name.sasl_ssl.plain.sasl.jaas.config': JAAS, **certificates.settings(), 'authorizer.class.name':
             'org.apache.kafka.metadata.authorizer.StandardAuthorizer', **settings}
    file = tmp_path/'server.properties'
    file.write_text(''.join(f'{name}={value}\n' for name, value in lines.items()))
    process = run_to_end(tmp_path, file, cwd=certificates.place)
    assert process.process.returncode == 1 and words in process.stderr and 'Traceback' not in process.stderr, process.stderr  # noqa: E501
    for secret in (*USERS.values(), 'PRIVATE'): assert secret not in process.stdout + process.stderr


# --- Clients, as people use them --------------------------------------------------------------------------------------

def settings_for(certificates: Certificates, found, door: str, name: str = 'alice', password: str = 'alice-secret',
                 mechanism: str = 'PLAIN') -> dict:
    "For librdkafka."
    protocol = {'SHORT': 'SASL_PLAINTEXT', 'REQUIRED': 'SSL'}.get(door, door)
    settings = {'bootstrap.servers': f'localhost:{found[door]}', 'security.protocol': protocol,
                'ssl.ca.location': str(certificates.place/'us.crt')}
    if protocol.startswith('SASL'):
        return settings | {'sasl.mechanism': mechanism, 'sasl.username': name, 'sasl.password': password}
    return settings | {'ssl.key.location': str(certificates.place/'alice.key'),
                       'ssl.certificate.location': str(certificates.place/'alice.crt')}


@pytest.mark.parametrize('door, name, password, mechanism', [
    ('SASL_PLAINTEXT', 'alice', 'alice-secret', 'PLAIN'), ('SASL_SSL', 'sam', 'pencil', 'SCRAM-SHA-256'),
    ('SASL_SSL', 'sue', 'pencil', 'SCRAM-SHA-512'),
    ('REQUIRED', None, None, None)])
def test_confluent_kafka(broker, certificates, door, name, password, mechanism):
    from confluent_kafka import Consumer, Producer
    settings = settings_for(certificates, broker, door, name, password, mechanism)
    heard = []
    producer = Producer(settings)
    value = f'{door} {mechanism} {time.monotonic_ns()}'.encode()
    producer.produce('orders', value, on_delivery=lambda error, message: heard.append(error))
    assert producer.flush(PATIENCE) == 0 and heard == [None]
    consumer = Consumer(settings | {'group.id': f'alices-{mechanism}', 'auto.offset.reset': 'earliest'})
    consumer.subscribe(['orders'])
    wait_until(lambda: (message := consumer.poll(0.2)) and message.value() == value, 'the record to come back')
    consumer.close()


def test_confluent_kafka_is_told_no(broker, certificates):
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    failures = []
    wrong = settings_for(certificates, broker, 'SASL_SSL', 'alice',
                         'wrong') | {'error_cb': lambda error: failures.append(error.code())}
    producer = Producer(wrong)
    wait_until(lambda: producer.poll(0.1) or KafkaError._AUTHENTICATION in failures,
               'the client to hear that it may not come in')
    heard = []
    producer = Producer(settings_for(certificates, broker, 'SASL_SSL'))
    for topic in ('secret', 'nowhere'):
        producer.produce(topic, b'x', on_delivery=lambda error, message: heard.append(error.code()))
    producer.flush(PATIENCE)
    assert heard == [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2, 'what may not be seen looks like what is not there'
    consumer = Consumer(settings_for(certificates, broker, 'SASL_SSL') | {'group.id': 'of others'})
    consumer.subscribe(['orders'])
    with pytest.raises(KafkaException) as refused:
        wait_until(lambda: (message := consumer.poll(0.2)) and message.error()
                   and (_ for _ in ()).throw(KafkaException(message.error())), 'an error')
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


def test_confluent_kafka_admin_is_told_no(broker, certificates):
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, AdminClient, NewTopic
    from confluent_kafka.admin import ResourcePatternType, ResourceType
    alice = AdminClient(settings_for(certificates, broker, 'SASL_SSL'))
    def code(future):
        with pytest.raises(KafkaException) as refused: future.result(PATIENCE)
        return refused.value.args[0].code()
    anything = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
                                AclPermissionType.ANY)
    assert alice.describe_acls(anything).result(
        PATIENCE) == [], 'confluent-kafka makes nothing of the error; with a real broker, too'
    assert code(alice.delete_acls([anything])[anything]) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert code(alice.create_topics([NewTopic('hers', 1, 1)])['hers']) in (KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert code(alice.delete_topics(['secret'])['secret']) in (KafkaError.TOPIC_AUTHORIZATION_FAILED,
                                                               KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert set(alice.list_topics(timeout=PATIENCE).topics) == {'orders'}
    assert set(admin(broker).list_topics(timeout=PATIENCE).topics) >= {'orders', 'secret'}


@pytest.mark.parametrize('mechanism, name, password', [('PLAIN', 'alice', 'alice-secret'),
                                                       ('SCRAM-SHA-256', 'sam', 'pencil'),
                                                       ('SCRAM-SHA-512', 'sue', 'pencil')])
def test_kafka_python(broker, certificates, mechanism, name, password):
    kafka = pytest.importorskip('kafka')
    settings = dict(bootstrap_servers=f'localhost:{broker["SASL_SSL"]}', security_protocol='SASL_SSL',
                    ssl_cafile=str(certificates.place/'us.crt'),
                    sasl_mechanism=mechanism, sasl_plain_username=name, sasl_plain_password=password)
    value = f'kafka-python {mechanism} {time.monotonic_ns()}'.encode()
    producer = kafka.KafkaProducer(**settings)
    assert producer.send('orders', value).get(PATIENCE).topic == 'orders'
    producer.close()
    consumer = kafka.KafkaConsumer(**settings, consumer_timeout_ms=PATIENCE * 1000)
    consumer.assign([kafka.TopicPartition('orders', number) for number in (0, 1)])
    consumer.seek_to_beginning()
    assert any(record.value == value for record in consumer)
    consumer.close()


@pytest.mark.parametrize('mechanism, name, password', [('PLAIN', 'alice', 'alice-secret'),
                                                       ('SCRAM-SHA-256', 'sam', 'pencil'),
                                                       ('SCRAM-SHA-512', 'sue', 'pencil')])
def test_aiokafka(broker, certificates, mechanism, name, password):
    aiokafka = pytest.importorskip('aiokafka')
    settings = dict(bootstrap_servers=f'localhost:{broker["SASL_SSL"]}', security_protocol='SASL_SSL',
                    ssl_context=certificates.client(),
                    sasl_mechanism=mechanism, sasl_plain_username=name, sasl_plain_password=password)
    value = f'aiokafka {mechanism} {time.monotonic_ns()}'.encode()
    async def talk():
        async with aiokafka.AIOKafkaProducer(**settings) as producer: await producer.send_and_wait('orders', value)
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition('orders', number) for number in (0, 1)])
        await consumer.seek_to_beginning()
        async for record in consumer:
            if record.value == value: break
        await consumer.stop()
        with pytest.raises(Exception) as refused:
            async with aiokafka.AIOKafkaProducer(**settings | dict(sasl_plain_password='wrong')): pass
        return str(refused.value)
    assert 'wrong' not in asyncio.run(asyncio.wait_for(talk(), 2 * PATIENCE))


def test_kafka_python_is_told_no(broker, certificates):
    kafka = pytest.importorskip('kafka')
    settings = dict(bootstrap_servers=f'localhost:{broker["SASL_PLAINTEXT"]}', max_block_ms=3000,
                    bootstrap_timeout_ms=3000, **AS_ALICE)
    from kafka.errors import KafkaError
    for topic, password in (('orders', 'wrong'), ('secret', 'alice-secret')):
        with pytest.raises(KafkaError):
            producer = kafka.KafkaProducer(**settings | dict(sasl_plain_password=password))
            try: producer.send(topic, b'x').get(PATIENCE)
            finally: producer.close(timeout=1)


def test_a_user_who_is_removed_cannot_come_back(tmp_path, certificates):
    from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion
    with doors(tmp_path, None) as found:
        prepare(found)
        with Person(found['SASL_PLAINTEXT']) as before:
            assert before.log_in('sam', 'pencil', 'SCRAM-SHA-256').error_code == 0
            done(found, lambda boss: boss.alter_user_scram_credentials([UserScramCredentialDeletion('sam',
                ScramMechanism.SCRAM_SHA_256)]))
            with Person(found['SASL_PLAINTEXT']) as after:
                assert after.log_in('sam', 'pencil', 'SCRAM-SHA-256').error_code == 58
            assert topics_seen(before) == ['orders'], 'who is in stays in'


def test_rules_and_users_outlive_a_restart(tmp_path):
    from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType
    from confluent_kafka.admin import ResourceType
    everything = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
                                  AclPermissionType.ANY)
    with doors(tmp_path, None) as found:
        prepare(found)
        rules = set(map(str, done(found, lambda boss: boss.describe_acls(everything))))
    with doors(tmp_path, None) as found:
        assert set(map(str, done(found, lambda boss: boss.describe_acls(everything)))) == rules and len(rules) > 5
        with Person(found['SASL_PLAINTEXT']) as person:
            assert person.log_in('sue', 'pencil', 'SCRAM-SHA-512').error_code == 0 and topics_seen(person) == ['orders']


# --- Kafka's own tools ------------------------------------------------------------------------------------------------

@needs_kafka
def test_a_real_broker_goes_on_with_our_rules_and_users(tmp_path):
    "What we wrote into the metadata log means the same to Kafka: who may come in, and what they may do."
    with doors(tmp_path, None) as found: prepare(found)
    port = free_port()
    module = 'org.apache.kafka.common.security.scram.ScramLoginModule'
    kafka = real_kafka.RealKafka(tmp_path, {'authorizer.class.name': AUTHORIZER, 'super.users': 'User:ANONYMOUS',
                                            'sasl.enabled.mechanisms': 'SCRAM-SHA-256,SCRAM-SHA-512',
                                            'listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config': f'{module} required;',  # noqa: E501
                                            'listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config': f'{module} required;'})  # noqa: E501
    kafka.properties['listeners'] += f',SASL_PLAINTEXT://127.0.0.1:{port}'
    kafka.properties['advertised.listeners'] += f',SASL_PLAINTEXT://127.0.0.1:{port}'
    kafka.properties[
        'listener.security.protocol.map'] = 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT'
    with kafka:
        for name, mechanism in (('sam', 'SCRAM-SHA-256'), ('a,b=c', 'SCRAM-SHA-256'), ('sue', 'SCRAM-SHA-512')):
            with Person(port) as person:
                assert person.log_in(name, 'pencil', mechanism).error_code == 0 and topics_seen(person) == ['orders']


@needs_kafka
def test_javas_tools(tmp_path, certificates):
    with doors(tmp_path/'broker', certificates) as found:
        prepare(found)
        trust = f'ssl.truststore.type=PEM\nssl.truststore.location={certificates.place}/us.crt\n'
        module = 'org.apache.kafka.common.security.scram.ScramLoginModule'
        def client(name, text): (tmp_path/name).write_text(text + trust); return tmp_path/name
        jaas = 'sasl.jaas.config={} required username="{}" password="{}";\n'
        alice = client('alice', 'security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n'
                       + jaas.format('org.apache.kafka.common.security.plain.PlainLoginModule', 'alice',
                                     'alice-secret'))
        boss = client('boss', 'security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n'
                      + jaas.format('org.apache.kafka.common.security.plain.PlainLoginModule', 'admin', 'admin-secret'))
        tina = client('tina', 'security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n' + jaas.format(module, 'tina',
            'tinas-word'))
        card = client(
            'card', f'security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location={tmp_path}/alice.pem\n')
        pkcs8 = subprocess.run(['openssl', 'pkcs8', '-topk8', '-nocrypt', '-in', certificates.place/'alice.key'],
                               capture_output=True, text=True, check=True)
        (tmp_path/'alice.pem').write_text(pkcs8.stdout + (certificates.place/'alice.crt').read_text())
        sasl, tls = f'localhost:{found["SASL_SSL"]}', f'localhost:{found["REQUIRED"]}'
        def tool(name, *arguments): return real_kafka.run_tool(name, *arguments)
        tool('kafka.admin.ConfigCommand', '--bootstrap-server', sasl, '--command-config', boss, '--alter',
             '--entity-type', 'users',
             '--entity-name', 'tina', '--add-config', 'SCRAM-SHA-512=[iterations=8192,password=tinas-word]')
        assert 'SCRAM-SHA-512' in tool('kafka.admin.ConfigCommand', '--bootstrap-server', sasl, '--command-config',
                                       boss, '--describe',
                                       '--entity-type', 'users', '--entity-name', 'tina')
        tool('org.apache.kafka.tools.AclCommand', '--bootstrap-server', sasl, '--command-config', boss, '--add',
             '--allow-principal', 'User:tina',
             '--operation', 'Describe', '--topic', 'sec', '--resource-pattern-type', 'prefixed')
        listed = tool('org.apache.kafka.tools.AclCommand', '--bootstrap-server', sasl, '--command-config', boss,
                      '--list', '--topic', 'secret', '--resource-pattern-type', 'match')
        assert 'User:tina' in listed and 'User:bob' in listed and 'User:alice' not in listed
        def topics(server, config):
            return set(tool('org.apache.kafka.tools.TopicCommand', '--bootstrap-server', server, '--command-config',
                            config, '--list').split()) - {'__consumer_offsets'}
        assert topics(sasl, tina) == {'secret'} and topics(sasl, alice) == {'orders'} == topics(tls,
            card) and topics(sasl, boss) >= {'orders', 'secret'}
        wrong = client('wrong', tina.read_text().replace('tinas-word', 'wrong'))
        with pytest.raises(RuntimeError) as refused: topics(sasl, wrong)
        assert 'Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512' in str(refused.value)  # noqa: E501
        with pytest.raises(RuntimeError) as refused:
            tool('org.apache.kafka.tools.AclCommand', '--bootstrap-server', sasl, '--command-config', alice, '--list')
        assert 'ClusterAuthorizationException' in str(refused.value)


def test_a_certificate_whose_name_fits_no_rule(tmp_path, certificates):
    rules = r'RULE:^CN=(.*?),O=Sample.*$/$1/U'
    with doors(tmp_path/'fits', certificates, **{'ssl.principal.mapping.rules': rules,
                                                 'super.users': 'User:ALICE;User:ANONYMOUS'}) as found:
        with Person(found['REQUIRED'], certificates.client('alice')) as person: assert topics_seen(person) == []
    with doors(tmp_path/'none', certificates, **{'ssl.principal.mapping.rules': 'RULE:CN=nobody/x/'}) as found:
        with Person(found['REQUIRED'], certificates.client('alice')) as person: assert topics_seen(person) is None
        others_are_in = Person(found['SASL_PLAINTEXT'])
        assert others_are_in.log_in('alice', 'alice-secret').error_code == 0
        others_are_in.close()
