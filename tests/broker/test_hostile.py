"Clients that mean harm, or don't know better: they get nothing, they cost little, and the others don't notice."
import contextlib
import json
import random
import resource
import socket
import struct
import threading
import time

import pytest

from broker_process import FIXTURES, assert_quiet, many_clients, running, wait_until
from by_hand import (DESCRIBE_TOPIC_PARTITIONS, api_versions, compact, compact_array, correlation_id, describe, framed,
                     metadata_log, read_api_versions,
                     read_describe, request, write_log)

MB = 1 << 20
LIMIT = 104_857_600   # socket.request.max.bytes
HTTP = b'GET / HTTP/1.1\r\nHost: localhost:9092\r\n\r\n'
TLS_HELLO = bytes.fromhex('16030100c8010000c40303') + random.Random(1).randbytes(194)
# the answer repeats them: 13 MB, more than fits between two sockets
LONG_NAMES = [f'{number:032767}' for number in range(400)]


@pytest.fixture(scope='module')
def broker(tmp_path_factory, loop):
    "One for all the tests that leave it as it was."
    directory = tmp_path_factory.mktemp('hostile')
    write_log(directory/'logs', metadata_log(foo=3, big=2000))
    with running(directory, env=loop) as broker: yield broker


def assert_served(broker, number: int = 4711):
    "Another client, on a connection of its own, gets its answer."
    answer = read_describe(broker.ask(describe(number, 'foo')))
    assert answer['correlation_id'] == number and len(answer['topics'][0]['partitions']) == 3


# --- What isn't Kafka -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('data', [
    struct.pack('>i', -1), struct.pack('>i', 0), struct.pack('>i', -2**31), struct.pack('>i', LIMIT + 1),
    struct.pack('>i', 2**31 - 1),
    struct.pack('>i', -1) + api_versions(1), HTTP, TLS_HELLO, b'SSH-2.0-OpenSSH_9.6\r\n', b'\r\n\r\n',
    b'*1\r\n$4\r\nPING\r\n', b'{"a": 1}', b'\xff' * 100, bytes(100),
], ids=['-1', '0', 'smallest', 'above the limit', 'largest', '-1 and a request', 'HTTP', 'TLS', 'SSH', 'empty lines',
        'redis', 'json', 'all ones', 'zeros'])
def test_not_a_frame(broker, data):
    with broker.client() as client:
        client.send(data)
        assert client.is_closed()
    assert_served(broker)


@pytest.mark.parametrize('data', [
    framed(b'\1'), framed(b'abc'), framed(bytes(7)), framed(bytes(8)), framed(b'\xff' * 8), request(999, 0, 1),
    request(-1, 0, 1), request(3, 13, 1), request(4, 0, 1),
    request(DESCRIBE_TOPIC_PARTITIONS, 1, 1), request(DESCRIBE_TOPIC_PARTITIONS, -1, 1),
    request(DESCRIBE_TOPIC_PARTITIONS, 0, 1, b'\xff\xff\xff\xff\x0f'),
    request(DESCRIBE_TOPIC_PARTITIONS, 0, 1, b'\xff' * 20), framed(describe(1, 'foo')[4:-1]),
    framed(api_versions(1)[4:-1]),
], ids=['1 byte', '3 bytes', '7 bytes', '8 zeros', '8 ones', 'API 999', 'API -1', 'an API that is not served',
        'an API that is gone', 'version 1', 'version -1',
        'four billion topics', 'endless varint', 'a byte too few', 'a byte too few for ApiVersions'])
def test_not_a_request(broker, data):
    with broker.client() as client:
        client.send(data)
        assert client.is_closed()
    assert_served(broker)


def test_good_requests_before_a_bad_one_are_answered(broker):
    with broker.client() as client:
        client.send(b''.join(api_versions(number) for number in range(10)) + struct.pack('>i', -1))
        for number in range(10): assert read_api_versions(client.frame())['correlation_id'] == number
        assert client.is_closed()


def test_random_bytes(broker):
    rng = random.Random(2026)
    for _ in range(60):
        with broker.client() as client: client.send(rng.randbytes(rng.choice([1, 3, 4, 5, 50, 5000])))
    assert_served(broker)


def test_altered_requests(broker):
    "Recorded requests with a few bytes changed: answered, refused or waited for, but the broker goes on."
    rng = random.Random(75)
    recorded = [bytes.fromhex(json.loads(line)['request_hex'])[4:] for file in ('apiversions',
        'describe-topic-partitions')
                for line in (FIXTURES/'wire'/'edge'/f'{file}.jsonl').read_text().splitlines()]
    for _ in range(400):
        altered = bytearray(rng.choice(recorded))
        for _ in range(rng.randrange(1, 4)):
            altered[rng.randrange(len(altered))] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
        with broker.client() as client:
            answer = client.ask(framed(bytes(altered)))
            assert answer is None or answer[4:8] == altered[4:8]
    assert_served(broker)


def test_a_name_that_grows(tmp_path):
    """Bytes that aren't UTF-8 come back as three bytes each, and then the name is too long to be written: the client's
    mistake, not ours."""
    with running(tmp_path) as broker, broker.client() as client:
        client.send(request(DESCRIBE_TOPIC_PARTITIONS, 0, 1,
                            compact_array([compact(b'\xff' * 20_000) + b'\0']) + b'\0\0\0\1\xff\0'))
        assert client.is_closed()
        assert 'mistake of ours' not in broker.stderr, broker.stderr


# --- Pieces -----------------------------------------------------------------------------------------------------------

def test_a_byte_at_a_time(broker):
    with broker.client() as client:
        for byte in describe(1, 'foo') + api_versions(2): client.send(bytes([byte]))
        assert read_describe(client.frame())['correlation_id'] == 1
        assert read_api_versions(client.frame())['correlation_id'] == 2


@pytest.mark.parametrize('cut', [1, 3, 4, 5, 11, 12, 13, -1])
def test_cut_off_then_silence(broker, cut):
    with broker.client() as client:
        sent = describe(5, 'foo')
        client.send(sent[:cut])
        assert client.stays_open(0.05)
        assert_served(broker)
        client.send(sent[cut:])
        assert read_describe(client.frame())['correlation_id'] == 5


@pytest.mark.parametrize('cut', [0, 2, 4, 20])
def test_half_closed(broker, cut):
    "A client that won't say more: it gets what it asked for, then the end."
    with broker.client() as client:
        client.send(api_versions(1) + describe(2, 'foo') + describe(3, 'foo')[:cut])
        client.half_close()
        assert read_api_versions(client.frame())['correlation_id'] == 1
        assert read_describe(client.frame())['correlation_id'] == 2
        assert client.is_closed()


def test_gone_before_the_answer(broker):
    "Closed, or torn off with a reset, in the middle of things."
    for number in range(60):
        with broker.client() as client:
            if number % 2: client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            client.send(describe(number, 'big') * 20 + describe(number, 'big')[:number % 25])
    assert_served(broker)


def test_a_frame_of_50_mb_in_small_pieces(broker):
    "What is kept of a frame must not be copied with every piece."
    sent = memoryview(describe(1, 'foo', rest=bytes(50 * MB)))
    with broker.client(patience=120) as client:
        for at in range(0, len(sent), 4000): client.send(sent[at:at + 4000])
        assert len(read_describe(client.frame())['topics'][0]['partitions']) == 3
    assert_served(broker)


# --- Many -------------------------------------------------------------------------------------------------------------

def test_a_thousand_idle_connections(broker):
    with many_clients(broker, 1000) as clients:
        for number in range(20): assert_served(broker, number)
        for number, client in enumerate(clients[::100]):
            assert read_api_versions(client.ask(api_versions(number)))['correlation_id'] == number
    assert_served(broker)


def test_slow_loris(broker):
    "Hundreds of frames that never become whole, each some bytes longer than the one before."
    before = broker.memory()
    with many_clients(broker, 300) as clients:
        for round in range(3):
            for number, client in enumerate(clients):
                client.send((struct.pack('>i', LIMIT) + bytes(number))[round * 100:round * 100 + 100])
            assert_served(broker, round)
        assert broker.memory() - before < 30 * MB
    assert_served(broker)


def test_one_busy_client_does_not_starve_the_others(broker):
    "Requests that differ, so that each takes some work, and many of them at once: others are served in between."
    n, received = 50, []
    with broker.client(patience=120) as busy, broker.client(patience=120) as other:

        def read():
            for _ in range(n): received.append(correlation_id(busy.frame()))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        busy.send(b''.join(describe(number, 'big', client_id=f'client {number}') for number in range(n)))
        wait_until(lambda: received, 'the first answer', patience=120)
        assert read_api_versions(other.ask(api_versions(1)))['correlation_id'] == 1
        assert len(received) < n
        reader.join()
    assert received == [*range(n)]


def test_more_connections_than_files(tmp_path, loop):
    "When no more files may be opened the broker waits for better times. It doesn't fill the disk with complaints."
    with running(tmp_path, env=loop, limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))) as broker:
        with many_clients(broker, 150) as clients:
            assert read_api_versions(clients[0].ask(api_versions(1)))['correlation_id'] == 1
        wait_until(lambda: broker.open_files() < 30, 'the connections to be closed')
        assert read_api_versions(broker.ask(api_versions(2)))['correlation_id'] == 2
        assert_quiet(broker)


def test_complaints_stay_under_a_screenful(tmp_path, loop):
    with running(tmp_path, env=loop) as broker:
        for number in range(200):
            with broker.client() as client:
                client.send([b'\xff\xff\xff\xff', HTTP, request(999, 0, number), describe(number)[:20]][number % 4])
                if number % 4 < 3: assert client.is_closed()
        assert read_api_versions(broker.ask(api_versions(2)))['correlation_id'] == 2
        assert_quiet(broker)


# --- Clients that don't read ------------------------------------------------------------------------------------------

def test_thousands_of_requests_and_nobody_reads(broker):
    """Answers of 225 MB wait for a client that first doesn't read and then does: all are there, in order, and the
    broker stays small."""
    n = 4000
    expected = broker.ask(describe(0, 'big'))
    before = broker.memory()
    with broker.client(receive_buffer=65536) as client:
        sender = threading.Thread(target=client.send, args=(b''.join(describe(number, 'big') for number in range(n)),),
                                  daemon=True)
        sender.start()
        for number in range(20): assert_served(broker, number)
        assert broker.memory() - before < 40 * MB
        for number in range(n):
            answer = client.frame()
            assert correlation_id(answer) == number
            assert answer[:4] == expected[:4] and answer[8:] == expected[8:]
            if number % 500 == 0: assert broker.memory() - before < 40 * MB
        sender.join()
    assert n * len(expected) > 200 * MB


def test_nobody_reads_and_then_nobody_is_there(tmp_path, loop):
    "The client goes away while its answers are made: so does its connection, and nothing is said about it."
    write_log(tmp_path/'logs', metadata_log(foo=3, big=2000))
    sent = b''.join(describe(number, 'big') for number in range(2000))
    with running(tmp_path, env=loop) as broker:
        assert_served(broker)
        before = broker.open_files()
        for _ in range(10):
            with broker.client(receive_buffer=4096) as client:
                # closed with a reset
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
                client.send(sent)
        assert_served(broker)
        wait_until(lambda: broker.open_files() <= before, 'the connections to be closed')
        assert_quiet(broker)


def test_nonsense_behind_an_answer_that_nobody_reads(tmp_path, loop):
    "A bad length right after the request whose answer makes the broker wait: the answer, then the end."
    sent = describe(1, *LONG_NAMES) + struct.pack('>i', -1)
    with running(tmp_path, env=loop) as broker, broker.client(receive_buffer=4096) as client:
        client.send(sent[:-100])
        client.send(sent[-100:])   # the end of the request and the length arrive together
        assert read_api_versions(broker.ask(api_versions(2)))['correlation_id'] == 2
        assert len(read_describe(client.frame())['topics']) == len(LONG_NAMES)
        assert client.is_closed()
        assert 'Traceback' not in broker.stderr, broker.stderr


# --- Limits -----------------------------------------------------------------------------------------------------------

def test_a_lower_limit(tmp_path, loop):
    """A frame as long as socket.request.max.bytes is served; one that would be longer is refused before its bytes are
    kept."""
    write_log(tmp_path/'logs', metadata_log(foo=3))
    with running(tmp_path, env=loop, socket_request_max_bytes=MB) as broker:
        # trailing bytes are allowed
        def of_size(size): return describe(1, 'foo', rest=bytes(4 + size - len(describe(1, 'foo'))))
        with broker.client() as client:
            assert read_describe(client.ask(of_size(MB)))['correlation_id'] == 1
            before = broker.memory()
            with contextlib.suppress(ConnectionError):
                client.send(of_size(MB + 1))
                client.send(bytes(50 * MB))
            assert client.is_closed()
        assert broker.memory() - before < 8 * MB
        assert_served(broker)


def test_idle_connections_are_closed(tmp_path, loop):
    with running(tmp_path, env=loop,
                 connections_max_idle_ms=400) as broker, broker.client() as idle, broker.client() as half, broker.client() as busy:  # noqa: E501
        half.send(api_versions(1)[:7])
        stop = threading.Event()

        def talk():
            while not stop.wait(0.05): assert busy.ask(api_versions(1)) is not None

        talker = threading.Thread(target=talk)
        talker.start()
        try: assert idle.is_closed() and half.is_closed()
        finally:
            stop.set()
            talker.join()
        assert read_api_versions(busy.ask(api_versions(2)))['correlation_id'] == 2


def test_idle_is_also_who_does_not_read(tmp_path, loop):
    "A client that leaves its answers lying is idle, too; otherwise its connection would stay for ever."
    with running(tmp_path, env=loop,
                 connections_max_idle_ms=400) as broker, broker.client(receive_buffer=4096) as client:
        client.send(describe(1, *LONG_NAMES))
        wait_until(lambda: not broker.holds(client), 'the connection to be closed', patience=6)


def test_idle_is_not_who_reads_slowly(tmp_path, loop):
    "As long as answers go out, a connection is in use, although nothing comes in."
    n = 250
    write_log(tmp_path/'logs', metadata_log(big=2000))
    sent = b''.join(describe(number, 'big') for number in range(n))
    with running(tmp_path, env=loop,
                 connections_max_idle_ms=300) as broker, broker.client(receive_buffer=65536) as client:
        client.send(sent)
        for number in range(n):
            answer = client.frame()
            assert answer is not None, f'the connection was closed after {number} of {n} answers'
            assert correlation_id(answer) == number
            time.sleep(0.006)
