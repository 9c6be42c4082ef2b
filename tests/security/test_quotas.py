"""Clients that use more than they may: what they are told, and that nothing is lost by it.

How long a client waits is compared with Kafka's own classes in the chapters (security.rates, security.limits); what is
said about quotas, in conversations/test_recorded.py. Here a whole node measures, on a clock that is turned by hand.
"""
import itertools
import json
import socket

import pytest

from admin_by_hand import create, create_topics, topic
from benchmarks import real_kafka
from broker_process import Client
from player import RECORDED, answer_in, framed
from quotas_by_hand import alteration
from size import needs_kafka
from small_node import START, Hands, small_node
from kafka_scratch.apis.api import Later, Throttled
from kafka_scratch.apis.api_versions import ApiVersionsRequest, api_versions
from kafka_scratch.apis.fetch import fetch
from kafka_scratch.apis.fetch_messages import FetchPartition, FetchRequest, FetchTopic
from kafka_scratch.apis.produce import produce
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_scratch.broker.fast import fast_for
from kafka_scratch.broker.running import running_broker
from kafka_scratch.log.records import Record, TornBatch, read_batches, read_records, write_batch
from kafka_scratch.security.alter_quotas import AlterClientQuotasRequest, alter_client_quotas
from kafka_scratch.security.quotas import DescribeClientQuotasRequest, describe_client_quotas

EVERYBODY = {'user': None}


def limits(**values) -> AlterClientQuotasRequest:
    "For every user; None lifts a limit."
    return AlterClientQuotasRequest(entries=[alteration(EVERYBODY, values)])


def set_limit(port: int, bytes_per_second: float):
    change = limits(producer_byte_rate=bytes_per_second)
    with Client(port) as client: client.ask(framed(alter_client_quotas, 1, change))


def written(value: bytes, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=write_batch([Record(value=value)]))]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name='t', partition_data=data)])


def wanted(offset: int, **options) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100_000)
    topics = options.pop('topics', [FetchTopic(topic='t', partitions=[partition])])
    return FetchRequest(**{'min_bytes': 1, 'max_bytes': 100_000, 'session_epoch': -1, 'topics': topics, **options})


def whole_records(data: bytes) -> list[Record]:
    "Those of all batches but the last one, which may be cut off."
    found = []
    try:
        for batch in read_batches(data): found += read_records(batch)
    except TornBatch: pass
    return found


class Asking:
    "A client of a node without sockets, that waits as long as its connection would be muted."
    def __init__(self, node): self.node, self.muted = node, 0

    def __call__(self, api, version: int, request):
        said = self.node.answer(framed(api, version, request, client_id='c')[4:])
        if isinstance(said, Later):
            said.begin(lambda: None)
            said = said.response()
        self.muted = said.mute_ms if isinstance(said, Throttled) else 0
        self.node.clock[0] += self.muted
        answer = answer_in(api, version, said) if said else None
        assert answer is None or answer.throttle_time_ms == self.muted
        return answer


@pytest.fixture
def node(tmp_path):
    node = small_node(tmp_path, Hands([START]))
    node.create({'t': 1})
    yield node
    node.crash()


def test_a_producer_gets_what_it_may_in_the_long_run(node):
    "Bytes by the node's clock: the limit, and once what fits into the windows with which everybody begins."
    ask = Asking(node)
    ask(alter_client_quotas, 1, limits(producer_byte_rate=10_000.0))
    request, minutes = written(b'x' * 3000), 10
    size = len(framed(produce, 9, request, client_id='c')) - 4
    sent = 0
    while node.clock[0] < START + minutes * 60_000:
        ask(produce, 9, request)
        sent += size
    assert 0.9 * 10_000 * minutes * 60 < sent < 10_000 * (minutes * 60 + 11)
    assert node.partition('t').end_offset == sent // size


def test_a_producer_that_wants_no_answer_is_muted_all_the_same(node):
    ask = Asking(node)
    ask(alter_client_quotas, 1, limits(producer_byte_rate=1000.0))
    assert ask(produce, 9, written(b'x' * 50_000, acks=0)) is None and ask.muted > 30_000


@pytest.mark.parametrize('in_session', [False, True])
def test_a_consumer_gets_everything_and_not_too_fast(node, in_session):
    "Empty answers in between; no record is left out, none comes twice; a session outlives them."
    ask = Asking(node)
    for number in range(60): ask(produce, 9, written(b'%03d' % number + b'x' * 1000))
    ask(alter_client_quotas, 1, limits(consumer_byte_rate=1000.0))
    seen, empty, session, epoch, offset, before = [], 0, 0, 0, 0, node.clock[0]
    while len(seen) < 60:
        named = dict(session_id=session, session_epoch=epoch) if in_session else {}
        answer = ask(fetch, 12, wanted(offset, max_bytes=4000, **named))
        assert not answer.error_code
        if in_session and answer.session_id: session, epoch = answer.session_id, epoch + 1
        if in_session and not ask.muted: assert answer.session_id
        if ask.muted: empty += 1
        assert bool(ask.muted) == (not answer.responses)
        for topic in answer.responses:
            seen += [int(record.value[:3]) for record in whole_records(topic.partitions[0].records)]
            offset = len(seen)
    assert seen == list(range(60)) and empty
    assert 40 < (node.clock[0] - before) / 1000 < 240   # about 64 kB, in pieces of 4; the first ten are free


def test_a_consumer_of_large_batches_gets_them_too(node):
    "More than fits into the windows would never be answered, so less is read."
    ask = Asking(node)
    for _ in range(20): ask(produce, 9, written(b'x' * 1000))
    ask(alter_client_quotas, 1, limits(consumer_byte_rate=500.0))
    answer = ask(fetch, 12, wanted(0))
    if ask.muted: answer = ask(fetch, 12, wanted(0))   # what is around the records was a little too much
    assert not ask.muted and 3000 < len(answer.responses[0].partitions[0].records) <= 5000


def test_who_works_too_long_waits_for_one_window(node):
    ask, time = Asking(node), itertools.count(0, 400_000_000)   # each look at the timer finds 0.4 s more
    ask(alter_client_quotas, 1, limits(request_percentage=1.0))
    node.meter.timer = lambda: next(time)
    waits = []
    for _ in range(3):
        ask(api_versions, 2, ApiVersionsRequest())
        waits.append(ask.muted)
    assert waits[0] == 1000 and max(waits) == 1000


def test_limits_that_are_hardly_any(node):
    "A time that doesn't fit into the field is the longest that does; a limit that is no number limits nothing."
    ask = Asking(node)
    ask(alter_client_quotas, 1, limits(controller_mutation_rate=1e-12, consumer_byte_rate=float('nan')))
    assert ask(create_topics, 5, create(topic('u'))).throttle_time_ms == 2**31 - 1
    assert not ask(fetch, 12, wanted(0, max_wait_ms=0)).throttle_time_ms


def test_without_quotas_nobody_is_measured(node):
    "The short ways are there, go when a quota comes, and are back when it is gone."
    fast, ask = fast_for(node), Asking(node)
    frame = framed(api_versions, 2, ApiVersionsRequest())
    def is_remembered():
        fast.answer(frame[4:])
        return fast.recall(frame) is not None
    found = [(node.meter is not None, is_remembered())]
    for value in (5.0, None):
        ask(alter_client_quotas, 1, limits(producer_byte_rate=value))
        found.append((node.meter is not None, is_remembered()))
    assert found == [(False, True), (True, False), (False, True)]


def test_a_quota_for_an_address_measures_no_requests(node):
    change = AlterClientQuotasRequest(entries=[alteration({'ip': None}, {'connection_creation_rate': 5.0})])
    Asking(node)(alter_client_quotas, 1, change)
    assert node.image.quotas and node.meter is None


def test_quotas_are_there_after_a_restart(node, tmp_path):
    Asking(node)(alter_client_quotas, 1, limits(producer_byte_rate=5.0, consumer_byte_rate=6.0))
    node.crash()
    again = small_node(tmp_path, Hands([START]))
    answer = Asking(again)(describe_client_quotas, 1, DescribeClientQuotasRequest())
    assert [(each.key, each.value) for each in answer.entries[0].values] == [('consumer_byte_rate', 6.0),
                                                                           ('producer_byte_rate', 5.0)]
    assert again.meter
    again.crash()


def test_made_up_client_ids_are_forgotten(node):
    node.controller.write([])
    change = AlterClientQuotasRequest(entries=[alteration({'client-id': None}, {'producer_byte_rate': 1e6})])
    Asking(node)(alter_client_quotas, 1, change)
    for number in range(3000):
        node.clock[0] += 50
        node.answer(framed(produce, 9, written(b''), client_id=f'c{number}')[4:])
    assert len(node.meter.used) < 1200 and len(node.meter.known) < 1200


def test_requests_behind_a_muted_one_wait_and_keep_their_order():
    "All are sent at once; the connection is muted several times; each is answered, in order."
    with running_broker(topics={'t': 1}, **{'quota.window.num': 2}) as broker:
        set_limit(broker.port, 20_000.0)
        asked = [framed(produce, 9, written(b'x' * 6000), number, 'c') for number in range(6)]
        with socket.create_connection(('127.0.0.1', broker.port), timeout=30) as sock:
            sock.sendall(b''.join(asked))
            stream, answers = sock.makefile('rb'), []
            for _ in asked:
                size = stream.read(4)
                answers.append(size + stream.read(int.from_bytes(size, 'big')))
        numbers = [int.from_bytes(answer[4:8], 'big') for answer in answers]
        said = [answer_in(produce, 9, answer) for answer in answers]
        offsets = [each.responses[0].partition_responses[0].base_offset for each in said]
        assert numbers == offsets == list(range(6))
        waits = [each.throttle_time_ms for each in said]
        assert waits[:3] == [0, 0, 0] and any(waits[3:])


def test_a_real_client_is_told_to_wait():
    from confluent_kafka import Producer
    told, done = [], []
    with running_broker(topics={'t': 1}, **{'quota.window.num': 2}) as broker:
        set_limit(broker.port, 50_000.0)
        producer = Producer({'bootstrap.servers': broker.bootstrap_servers, 'linger.ms': 0, 'batch.size': 10_000,
                             'throttle_cb': lambda event: told.append(event.throttle_time)})
        for _ in range(20): producer.produce('t', b'x' * 8000, on_delivery=lambda error, _: done.append(error))
        assert producer.flush(60) == 0
    assert done == [None] * 20 and max(told) > 0


def test_what_sarama_asks():
    "The requests of its own tests: a default and a name, one of them removed, and filters of each kind."
    with running_broker() as broker, Client(broker.port) as client:
        def ask(api, request): return answer_in(api, 0, client.ask(framed(api, 0, request, client_id='sarama')))
        for entity in ({'user': None}, {'user': 'sarama', 'client-id': 'sarama-consumer'}):
            said = ask(alter_client_quotas, AlterClientQuotasRequest(entries=[alteration(entity,
                {'producer_byte_rate': 1_024_000.0})]))
            assert [each.error_code for each in said.entries] == [0]
        found = ask(describe_client_quotas, DescribeClientQuotasRequest())
        assert len(found.entries) == 2 and not found.error_code


@needs_kafka
def test_kafka_configs_sets_and_shows_them():
    "Kafka's own tool, with Kafka's own client."
    with running_broker() as broker:
        def configs(*arguments):
            return real_kafka.run_tool('kafka.admin.ConfigCommand', '--bootstrap-server', broker.bootstrap_servers,
                                       *arguments)
        alice = '--entity-type', 'users', '--entity-name', 'alice'
        configs('--alter', '--add-config', 'producer_byte_rate=1024,request_percentage=50.5', *alice)
        shown = configs('--describe', *alice)
        assert "user-principal 'alice'" in shown and 'producer_byte_rate=1024.0' in shown and '50.5' in shown
        configs('--alter', '--delete-config', 'producer_byte_rate', *alice)
        assert 'producer_byte_rate' not in configs('--describe', *alice)
        configs('--alter', '--add-config', 'connection_creation_rate=7', '--entity-type', 'ips', '--entity-default')
        assert 'connection_creation_rate=7' in configs('--describe', '--entity-type', 'ips')


def test_the_recorded_broker_muted_its_client():
    "What the chapters build on: the request after an answer with a throttle time took about that long."
    lines = [json.loads(line) for line in (RECORDED/'throttled.jsonl').open()]
    pairs = [(one['throttle_time_ms'], two['took']) for one, two in itertools.pairwise(lines)
             if one['api_key'] == two['api_key']]
    assert sum(wait > 0 for wait, _ in pairs) == 9 and all(abs(wait - took) < 20 for wait, took in pairs if wait)
