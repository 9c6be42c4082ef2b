"""The client: who it asks, how long it waits, and what it makes of answers that are none.

What other people's clients sent and got is compared in the chapter itself; tables and streams on it are in
test_broker_source.py.
"""
import random
import socket
import struct
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from broker_process import free_port, running, wait_until
from by_hand import metadata_log, write_log
from cluster_by_hand import two_brokers
from log_by_hand import base_offset, message_batch, split

from kafka_scratch.broker.running import running_broker
from kafka_scratch.client.client import (Client, Connection, NoBroker, Unanswered, UnknownTopic, fetch_from,
                                         find_offsets, find_topics, parse_servers,
                                         refresh_metadata, send_batch)
from kafka_scratch.wire.codes import ErrorCode
from kafka_scratch.apis.list_offsets import EARLIEST, LATEST
from kafka_scratch.apis.metadata import metadata
from kafka_scratch.wire.primitives import DecodeError


@contextmanager
def pretender(behave):
    "Something on a port that isn't a broker: `behave(socket)` for each who calls."
    with socket.create_server(('127.0.0.1', 0)) as server:
        def serve():
            while True:
                try: client, _ = server.accept()
                except OSError: return
                with client:
                    try: behave(client)
                    except OSError: pass
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def quick(port: int, patience: float = 0.3) -> Client: return Client(f'127.0.0.1:{port}', patience)


@contextmanager
def within(seconds: float):
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


# --- Those who are no brokers -----------------------------------------------------------------------------------------

def test_nobody():
    port = free_port()
    with pytest.raises(NoBroker, match=f'^no broker answers: 127.0.0.1:{port}: Connection refused$'):
        refresh_metadata(quick(port))


def test_silence():
    with pretender(lambda client: time.sleep(2)) as port, within(2), pytest.raises(NoBroker, match='no answer in time'):
        refresh_metadata(quick(port))


def test_a_byte_now_and_then():
    "One deadline for a whole answer."
    def drip(client):
        for byte in b'\0\0\3\0' + bytes(100): client.sendall(bytes([byte])), time.sleep(0.1)
    with pretender(drip) as port, within(3), pytest.raises(NoBroker, match='no answer in time'):
        refresh_metadata(quick(port, 0.5))


@pytest.mark.parametrize('answer', [b'', b'HTTP/1.1 400 Bad Request\r\n\r\n', b'\0\0\0\4\0\0\0\1', b'\xff\xff\xff\xff',
                                    b'\0\0\0\0', struct.pack('>iiih', 10, 1, 0, 0)])
def test_nonsense(answer):
    def behave(client):
        client.recv(1000)
        client.sendall(answer)
    with pretender(behave) as port, within(3), pytest.raises(NoBroker): refresh_metadata(quick(port, 1))


def test_random_nonsense():
    "Whatever somebody says who isn't a broker: an error that we know, in time."
    chance = random.Random(7)
    def behave(client):
        client.recv(1000)
        body = struct.pack('>ih', 1, chance.choice([0, 0, 35])) + chance.randbytes(chance.randrange(60))
        client.sendall(struct.pack('>i', len(body)) + body)
    with pretender(behave) as port:
        for _ in range(50):
            with pytest.raises((OSError, DecodeError, Unanswered)), within(3):
                Connection('127.0.0.1', port, 0.3).ask(None, None)


def test_the_answer_to_another_question():
    def behave(client):
        client.recv(1000)
        client.sendall(struct.pack('>iih', 10, 99, 0) + bytes(4))
    with pretender(behave) as port, pytest.raises(DecodeError, match='this answers request 99, but 1 was asked'):
        Connection('127.0.0.1', port, 1)


# --- Brokers ----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp('client')
    write_log(directory/'logs', metadata_log(orders=2))
    with running(directory, log_retention_ms=-1) as broker: yield broker


def test_the_second_address_will_do(broker):
    with Client(f'127.0.0.1:{free_port()},127.0.0.1:{broker.port}', 5) as client:
        assert list(find_topics(client)) == ['orders']


def test_a_topic_that_is_not_there(broker):
    with quick(broker.port, 5) as client:
        for ask in (lambda: find_topics(client, ['nobody']), lambda: find_offsets(client, {('nobody', 0): LATEST}),
                    lambda: fetch_from(client, 'nobody', 0, 0),
                    lambda: send_batch(client, 'nobody', 0, message_batch(b'a'))):
            with pytest.raises(UnknownTopic,
                               match=f"^the cluster at 127.0.0.1:{broker.port} has no topic 'nobody'$"), within(2):
                ask()
        assert 'nobody' not in find_topics(client), 'asking has created it'


def test_a_partition_that_is_not_there(broker):
    with quick(broker.port, 0.3) as client, pytest.raises(Unanswered,
                                                          match='no answer about partition 7 of orders within 0.3 '
                                                                'seconds: it has no leader'):
        find_offsets(client, {('orders', 7): LATEST})


def test_send_and_fetch(broker):
    with quick(broker.port, 5) as client:
        first = send_batch(client, 'orders', 0, message_batch(b'a', b'b'))
        assert send_batch(client, 'orders', 0, message_batch(b'c'), acks=1) == first + 2
        assert find_offsets(client, {('orders', 0): LATEST, ('orders', 1): EARLIEST}) == {('orders', 0): first + 3,
            ('orders', 1): 0}
        data = fetch_from(client, 'orders', 0, first + 1)
        assert [base_offset(batch) for batch in split(data.records)] == [first, first + 2]
        with within(2): assert not fetch_from(client, 'orders', 0, first + 3, max_wait_ms=100).records
        assert fetch_from(client, 'orders', 0, first + 9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_that_is_refused(broker):
    with quick(broker.port, 5) as client, pytest.raises(Unanswered,
                                                        match='partition 0 of orders: the broker says CORRUPT_MESSAGE'):
        send_batch(client, 'orders', 0, message_batch(b'a', crc=1))


def test_a_connection_that_was_closed_meanwhile(tmp_path):
    "Brokers close connections on which nobody asks anything; the next question makes another one."
    write_log(tmp_path/'logs', metadata_log(orders=1))
    with running(tmp_path, connections_max_idle_ms=200) as broker, quick(broker.port, 5) as client:
        for _ in range(2):
            assert find_offsets(client, {('orders', 0): LATEST}) == {('orders', 0): 0}
            time.sleep(1)


def test_a_broker_that_comes_back(tmp_path):
    "Patience: it is restarted while we ask, on the same port."
    write_log(tmp_path/'logs', metadata_log(orders=1))
    port = free_port()
    broker = running_broker(tmp_path/'logs', port=port).start()
    with quick(port, 20) as client:
        assert find_offsets(client, {('orders', 0): LATEST}) == {('orders', 0): 0}
        broker.stop()
        waking = threading.Timer(0.5, broker.start)
        waking.start()
        try:
            with within(15): assert find_offsets(client, {('orders', 0): LATEST}) == {('orders', 0): 0}
        finally:
            waking.join()
            broker.stop()


class Scripted(Client):
    """A client whose one leader answers with these error codes, one after the other; each answer about metadata has the
    next id of the topic."""
    def __init__(self, codes, ids=(b'a' * 16,)):
        super().__init__('nowhere:1', patience=1)
        self.codes, self.ids, self.asked = list(codes), list(ids), 0
        refresh_metadata(self)

    def connection(self, address): return None

    def answer_metadata(self):
        topic_id = self.ids.pop(0) if len(self.ids) > 1 else self.ids[0]
        topic = SimpleNamespace(name='orders', error_code=0, topic_id=topic_id,
                                partitions=[SimpleNamespace(partition_index=0, leader_id=1)])
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1, host='nowhere', port=1)], topics=[topic])

    def ask(self, address, api, request, most=None, again=True):
        if api is metadata: return self.answer_metadata(), 13
        self.asked += 1
        partition = SimpleNamespace(error_code=self.codes.pop(0), base_offset=7, records=b'')
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partition_responses=[partition],
            partitions=[partition])]), 13


def test_a_batch_is_sent_again_only_if_it_was_not_stored():
    client = Scripted([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, 0])
    assert send_batch(client, 'orders', 0, message_batch(b'a')) == 7 and client.asked == 3
    client = Scripted([ErrorCode.REQUEST_TIMED_OUT, 0])
    with pytest.raises(Unanswered, match='the broker says REQUEST_TIMED_OUT'):
        send_batch(client, 'orders', 0, message_batch(b'a'))
    assert client.asked == 1


def test_another_topic_of_the_same_name_is_not_read():
    client = Scripted([ErrorCode.UNKNOWN_TOPIC_ID, 0, 0], ids=[b'a' * 16, b'b' * 16])
    with pytest.raises(UnknownTopic, match="the topic 'orders' was deleted, and there is another one of this name"):
        fetch_from(client, 'orders', 0, 3)
    assert client.asked == 1
    assert fetch_from(client, 'orders', 0, 0).error_code == 0   # now we know of it, and mean it
    same = Scripted([ErrorCode.UNKNOWN_TOPIC_ID, 0])            # the broker hadn't heard of it yet
    assert fetch_from(same, 'orders', 0, 3).error_code == 0 and same.asked == 2


# --- Several brokers --------------------------------------------------------------------------------------------------

def test_leaders_on_both(tmp_path):
    with two_brokers(tmp_path, {0: 1, 1: 2}) as cluster, quick(cluster.ports[1], 5) as client:
        assert find_offsets(client, {('orders', 0): LATEST, ('orders', 1): LATEST}) == {('orders', 0): 6,
            ('orders', 1): 6}
        for number in (0, 1): assert len(split(fetch_from(client, 'orders', number, 2).records)) == 4
        assert set(client.connections) == {('127.0.0.1', port) for port in cluster.ports.values()}


def test_a_leader_moves(tmp_path):
    "NOT_LEADER_OR_FOLLOWER: fresh metadata, and on to the next."
    with two_brokers(tmp_path, {0: 1}) as cluster, quick(cluster.ports[1], 10) as client:
        assert len(split(fetch_from(client, 'orders', 0, 0, max_bytes=1).records)) == 1
        for leader in (2, 1):
            cluster.move(0, leader)
            def moved():
                data = fetch_from(client, 'orders', 0, 3)
                return client.topics['orders'].partitions[0].leader_id == leader and data
            assert [base_offset(batch) for batch in split(wait_until(moved, 'the new leader').records)] == [3, 4, 5]
        assert find_offsets(client, {('orders', 0): EARLIEST}) == {('orders', 0): 0}


def test_a_leader_that_is_gone(tmp_path):
    "What others lead is still answered; for the rest, one sentence, in time."
    with two_brokers(tmp_path, {0: 1, 1: 2}) as cluster:
        cluster.brokers[2].check_end()
        with Client([('127.0.0.1', cluster.ports[2]), ('127.0.0.1', cluster.ports[1])], 0.7) as client, within(10):
            assert find_offsets(client, {('orders', 0): LATEST}) == {('orders', 0): 6}
            with pytest.raises(Unanswered,
                               match='no answer about partition 1 of orders within 0.7 seconds: '
                                     '127.0.0.1:.*Connection refused'):
                find_offsets(client, {('orders', 1): LATEST})


@pytest.mark.parametrize('wrong', ['', 'localhost', 'host:port', 'host:0', 'host:70000', 'a:1;b:2', '::1:9092'])
def test_addresses_that_are_none(wrong):
    with pytest.raises(ValueError): parse_servers(wrong)
