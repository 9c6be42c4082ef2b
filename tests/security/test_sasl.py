"""Who are you? The recorded conversations with a real broker, any bytes at all, and a client that was written from the
RFC alone."""
import base64
import hashlib
import re
from types import SimpleNamespace

import pytest
from hypothesis import example, given, strategies as st

from size import budget
from kafka_scratch.apis.api_versions import api_versions
from kafka_scratch.apis.api import Later, Node
from kafka_scratch.cluster.properties import ConfigError, read_properties
from kafka_scratch.cluster.config import Listener
from kafka_scratch.apis.api import PEEK, Caller, Refused
from kafka_scratch.cluster.image import Image
from kafka_scratch.apis.metadata import metadata
from kafka_scratch.cluster.records import UserScramCredentialRecord
from kafka_scratch.wire.primitives import DecodeError, Int32
from kafka_scratch.security.sasl import (MECHANISMS, SCRAM, Denied, SaslAuthenticateRequest, SaslAuthenticateResponse,
                                         SaslConfig, SaslGuard, SaslHandshakeRequest, Scram,
                                check_plain, complete, nobody, parse_jaas, read_sasl_config, sasl_authenticate,
                                sasl_handshake, scram_keys)
from player import recorded
from security_by_hand import JAAS, PLAIN_MODULE, USERS, Prover, framed


def user(name: str, password: str, mechanism: str = 'SCRAM-SHA-256', salt: bytes = b'saltsaltsalt',
         iterations: int = 4096) -> UserScramCredentialRecord:
    hash = SCRAM[mechanism]
    stored_key, server_key = scram_keys(hashlib.pbkdf2_hmac(hash.name, password.encode(), salt, iterations), hash)
    return UserScramCredentialRecord(name=name, mechanism=hash.number, salt=salt, stored_key=stored_key,
                                     server_key=server_key, iterations=iterations)

KNOWN = {(each.mechanism, each.name): each for each in (user('user', 'pencil'), user('a,b=c', 'pencil'))}


class Talk:
    "A connection without a socket."
    def __init__(self, lifetime: int = 0, nonce: str | None = None, mechanisms=MECHANISMS):
        self.now, self.caller, self.closed, self.served = 0.0, Caller(host='10.1.2.3'), False, []
        self.reader = SimpleNamespace(max_size=104_857_600)
        self.broker = Node([metadata, sasl_handshake, api_versions, sasl_authenticate], image=Image())
        self.guard = SaslGuard(self, self.answer, SaslConfig(list(mechanisms), USERS, 524_288, lifetime, 100),
                               lambda *key: KNOWN.get(key), lambda: self.now)
        if nonce is not None: self.guard.begin = lambda mechanism: Scram(mechanism, self.guard.find, nonce)

    def answer(self, frame: bytes):
        self.served.append(PEEK.unpack_from(frame)[0])
        return self.broker.answer(frame, self.caller)

    def ask(self, data: bytes) -> bytes | None:
        if self.closed: return None
        try:
            if not 0 < len(data) - 4 <= self.reader.max_size or int.from_bytes(data[:4], 'big') != len(data) - 4:
                raise Refused('of no use')
            said = self.guard.answer(data[4:])
            if not isinstance(said, Later): return said
            assert said.timeout == 0.1
            return said.response()
        except (Refused, DecodeError) as error:
            self.closed = True
            for secret in (*USERS.values(), 'pencil'): assert secret not in str(error)
            return getattr(error, 'last_words', b'') or None


# --- The record -------------------------------------------------------------------------------------------------------

CASES = recorded('sasl.jsonl')
# What we do otherwise, on purpose: Kafka stops at the first message of a user that it doesn't know, and answers
# requests in between in their own form.
STRANGERS = {'scram-512', 'scram-unknown', 'scram-unknown-512', 'scram-only-other-mechanism', 'scram-nonascii'}
IN_BETWEEN = {'metadata-after-handshake', 'again-metadata-between-with-lifetime'}


def nonce_of(case: dict) -> str | None:
    "The part of the nonce that the real broker made up."
    for step in case['steps']:
        said = re.search(rb'r=([!-+\--~]+),s=', bytes.fromhex(step['response_hex'] or ''))
        asked = re.search(rb',r=([!-+\--~]+)', bytes.fromhex(step['request_hex']))
        if said and asked:
            return next(said[1][n:] for n in range(len(asked[1]), 0, -1) if said[1].startswith(asked[1][:n])).decode()


@pytest.mark.parametrize('case', [case for case in CASES if case['name'] not in STRANGERS | IN_BETWEEN],
                         ids=lambda case: case['name'])
def test_recorded(case):
    talk = Talk(3000 if case['listener'] == 'SHORT' else 0, nonce_of(case))
    if case['listener'] == 'PLAINTEXT': complete(talk.guard, 'User:ANONYMOUS')
    for step in case['steps']:
        talk.now += step.get('after_seconds', 0)
        said, theirs = talk.ask(bytes.fromhex(step['request_hex'])), step['response_hex']
        if int(step['request_hex'][8:12] or '0', 16) in (3, 18) and said and theirs:
            assert said[4:10].hex() == theirs[8:20] or theirs[8:] == said[4:8].hex()
        else: assert (said.hex() if said else None) == theirs
    assert talk.closed == case['closed']


@pytest.mark.parametrize('name', sorted(STRANGERS))
def test_strangers_have_to_do_all_the_work(name):
    "And then hear what anybody hears whose password is wrong."
    case = next(case for case in CASES if case['name'] == name)
    talk = Talk()
    first, final = [talk.ask(bytes.fromhex(step['request_hex'])) for step
                    in case['steps']], b'c=biws,r=x,p=' + base64.b64encode(bytes(32))
    assert SaslAuthenticateResponse.decode(first[1], 2, 9).auth_bytes.startswith(b'r=fyko') and not talk.closed
    last = SaslAuthenticateResponse.decode(talk.ask(framed(SaslAuthenticateRequest(auth_bytes=final), 2, True)), 2, 9)
    theirs = SaslAuthenticateResponse.decode(bytes.fromhex(case['steps'][1]['response_hex']), 2, 9)
    assert last == theirs and talk.closed


@pytest.mark.parametrize('name', sorted(IN_BETWEEN))
def test_what_comes_in_between_is_not_looked_at(name):
    case = next(case for case in CASES if case['name'] == name)
    talk = Talk(3000 if case['listener'] == 'SHORT' else 0)
    said = [talk.ask(bytes.fromhex(step['request_hex'])) for step in case['steps']]
    assert said[-1] is None and talk.closed and 3 not in talk.served


# --- Any bytes at all -------------------------------------------------------------------------------------------------

def handshake(mechanism: str, version: int = 1) -> bytes:
    return framed(SaslHandshakeRequest(mechanism=mechanism), version, False)
def token(data: bytes) -> bytes: return framed(SaslAuthenticateRequest(auth_bytes=data), 2, True)

pieces = st.one_of(
    st.binary(max_size=60).map(lambda data: Int32.write(len(data)) + data),
    st.sampled_from([handshake(name, version) for name in (*MECHANISMS, 'NONE') for version in (0, 1)]),
    st.builds(lambda key, version, rest: Int32.write(10 + len(rest)) + PEEK.pack(key, version, 1) + b'\xff\xff' + rest,
              st.integers(0, 95), st.integers(-1, 14),
              st.binary(max_size=30)),
    st.one_of(st.binary(max_size=40), st.sampled_from([b'n,,n=user,r=abc', b'c=biws,r=abc,p=YQ==', b'\0alice\0x',
                                                       b'\0\0\0'])).map(token))


@budget(300)
@given(st.lists(pieces, max_size=6), st.sampled_from([0, 1000]))
def test_nothing_gets_in_without_a_proof(frames, lifetime):
    talk = Talk(lifetime)
    for frame in frames: talk.ask(frame)
    assert set(talk.served) <= {18} and talk.caller.principal == 'User:ANONYMOUS'
    assert talk.served.count(18) <= len(frames) and talk.reader.max_size == 524_288


@budget(100)
@given(st.binary(max_size=100))
@example(b'\0alice\0alice-secre')
@example(b'\0alice\0alice-secrett')
@example(b'\0Alice\0alice-secret')
def test_no_password_but_the_right_one(data):
    try: name = check_plain(data, USERS)
    except Denied as denial: assert not any(secret in str(denial) for secret in USERS.values())
    else: assert data.split(b'\0')[1:] == [name.encode(), USERS[name].encode()]


names = st.text(st.characters(exclude_characters='\0', exclude_categories=['Cs']), min_size=1, max_size=20)


@budget(40)
@given(names, st.text(max_size=20), st.binary(min_size=0, max_size=30), st.sampled_from(sorted(SCRAM)))
@example('a=2Cb', 'x', b'', 'SCRAM-SHA-256')
@example('=3D2C,', 'x', b'salt', 'SCRAM-SHA-512')
def test_a_client_by_the_rfc(name, password, salt, mechanism):
    known = user(name, password, mechanism, salt)
    prover, exchange = Prover(name, password, mechanism), Scram(mechanism, lambda number,
                                                                who: known if (number, who) == (known.mechanism,
                                                                    known.name) else None)
    assert exchange.step(prover.final(exchange.step(prover.first()))) == prover.expected and exchange.user == name
    liar, exchange = Prover(name, password + '!', mechanism), Scram(mechanism, lambda *_: known)
    with pytest.raises(Denied): exchange.step(liar.final(exchange.step(liar.first())))
    assert exchange.user is None


@budget(200)
@given(st.binary(max_size=80), st.binary(max_size=80))
@example(b'n,,n=user,r=abc', b'c=biws,r=abc,p=')
@example(b'n,,n=user,r=abc', b'c=biws,r=abcN,p=====')
@example(b'n,,n=user,r=abc', b'c=biws,r=abcN,p=' + base64.b64encode(bytes(31)))
@example(b'n,,n=user,r=abc', b'c=biws,r=abcN,p=' + base64.b64encode(bytes(33)))
@example('n,,n=ü,r=abc'.encode(), b'')
def test_odd_messages_are_denied(first, final):
    exchange = Scram('SCRAM-SHA-256', lambda *key: KNOWN.get(key), 'N')
    with pytest.raises(Denied):
        exchange.step(first)
        exchange.step(final)
    assert exchange.user is None


def test_a_conversation_cannot_be_replayed():
    prover = Prover('user', 'pencil')
    exchange = Scram('SCRAM-SHA-256', lambda *key: KNOWN.get(key))
    final = prover.final(exchange.step(prover.first()))
    exchange.step(final)
    again = Scram('SCRAM-SHA-256', lambda *key: KNOWN.get(key))
    again.step(prover.first())
    with pytest.raises(Denied): again.step(final)


def test_weak_credentials_are_as_good_as_none():
    "Records with too few iterations can only come from somewhere else; a real broker doesn't accept them either."
    weak = user('weak', 'pencil', iterations=100)
    prover, exchange = Prover('weak', 'pencil'), Scram('SCRAM-SHA-256', lambda *_: weak)
    with pytest.raises(Denied): exchange.step(prover.final(exchange.step(prover.first())))


def test_nobody_can_be_told_apart_by_its_salt():
    made_up = nobody('x', SCRAM['SCRAM-SHA-512'])
    assert made_up.salt == nobody('x', SCRAM['SCRAM-SHA-512']).salt != nobody('y', SCRAM['SCRAM-SHA-512']).salt
    assert made_up.iterations == 4096 and len(made_up.stored_key) == 64


# --- Settings ---------------------------------------------------------------------------------------------------------

DOOR = Listener('OUTSIDE', '', 9092, 'SASL_SSL')


def read(text: str): return read_sasl_config(read_properties(text, 'server.properties'), DOOR)


def test_passwords_are_not_in_its_repr():
    config = SaslConfig(['PLAIN'], {'alice': 'open sesame'}, 1, 0, 0)
    assert repr(config) == 'SaslConfig(PLAIN)' and 'sesame' not in f'{config}{[config]}{config._replace(delay_ms=5)!r}'


def test_settings_of_a_listener_win():
    config = read(
        'sasl.enabled.mechanisms=PLAIN\nlistener.name.outside.sasl.enabled.mechanisms=SCRAM-SHA-512\nconnections.max.reauth.ms=1\n'
                  'listener.name.outside.connections.max.reauth.ms=5000\nsasl.server.max.receive.size=1000\nconnection.failed.authentication.delay.ms=0')
    assert config == (['SCRAM-SHA-512'], {}, 1000, 5000, 0)


@pytest.mark.parametrize('text, words', [
    ('', 'sasl.enabled.mechanisms'), ('sasl.enabled.mechanisms=', 'sasl.enabled.mechanisms'),
    ('sasl.enabled.mechanisms=PLAIN,OAUTHBEARER', 'OAUTHBEARER'),
    ('sasl.enabled.mechanisms=PLAIN', 'is missing'),
    ('sasl.enabled.mechanisms=PLAIN\nlistener.name.other.plain.sasl.jaas.config=x', 'is missing'),
    ('sasl.enabled.mechanisms=PLAIN\nlistener.name.outside.plain.sasl.jaas.config=a.B required user_x="pass-word";',
     'PlainLoginModule'),
    (f'sasl.enabled.mechanisms=PLAIN\nlistener.name.outside.plain.sasl.jaas.config={PLAIN_MODULE} required '
     f'user_x="pass-word', 'line 2'),
    (f'sasl.enabled.mechanisms=PLAIN\nlistener.name.outside.plain.sasl.jaas.config={PLAIN_MODULE} required '
     f'user_x=pass-word user_y="pass-word', 'line 2')])
def test_settings_that_are_wrong(text, words):
    with pytest.raises(ConfigError) as wrong: read(text)
    assert words in str(wrong.value) and 'pass-word' not in str(wrong.value)


@budget(200)
@given(st.text(st.sampled_from('ab.=";\'\\ \n_required'), max_size=60).map(lambda text: 'a.B required ' + text))
def test_any_text_is_a_jaas_line_or_a_config_error(text):
    try: module, options = parse_jaas(text)
    except ConfigError: pass
    else: assert module == 'a.B' and all(isinstance(value, str) for value in options.values())


@budget(100)
@given(st.dictionaries(st.from_regex(r'[a-z_.@-]{1,10}', fullmatch=True), st.text(max_size=20)))
def test_jaas_lines_are_read_as_they_were_written(options):
    def quoted(value): return '"' + value.replace('\\', '\\\\').replace('"', '\\"') + '"'
    line = ' '.join(['a.B', 'required', *(f'{name}={quoted(value)}' for name, value in options.items())]) + ';'
    assert parse_jaas(line) == ('a.B', options)


def test_every_setting_is_read_from_a_real_line():
    config = read(f'sasl.enabled.mechanisms=PLAIN\nlistener.name.outside.plain.sasl.jaas.config={JAAS}')
    assert config.users == USERS and config.max_receive == 524_288 and config.delay_ms == 100
