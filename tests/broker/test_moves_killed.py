"A broker that moves a log to and fro is killed again and again: what it has acknowledged is there."
import os
import random
import time
import warnings
from pathlib import Path

import pytest

from admin_by_hand import create, topic
from broker_process import BrokerProcess, Client, free_port, properties, running, wait_until
from log_dirs_by_hand import alter, describe
from log_ends_by_hand import put
from player import answer_in, framed
from kafka_scratch.apis.alter_replica_log_dirs import alter_replica_log_dirs
from kafka_scratch.apis.create_topics import create_topics
from kafka_scratch.apis.describe_log_dirs import describe_log_dirs
from kafka_scratch.apis.fetch import fetch
from kafka_scratch.apis.fetch_messages import FetchPartition, FetchRequest, FetchTopic
from kafka_scratch.apis.produce import produce
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_scratch.log.records import Record, TornBatch, read_batches, read_records, write_batch


def ask(client: Client, api, request, version: int | None = None):
    version = api.versions[-1] if version is None else version
    return answer_in(api, version, client.ask(framed(api, version, request)))


def places(client: Client) -> list[tuple[str, bool]]:
    "The directories in which there is a log of orders-0, and whether it is a copy."
    said = ask(client, describe_log_dirs, describe(('orders', 0)))
    return [(each.log_dir, part.is_future_key) for each in said.results for topic in each.topics
            for part in topic.partitions]


def send(client: Client, value: bytes) -> int:
    data = PartitionProduceData(index=0, records=write_batch([Record(value=value)]))
    request = ProduceRequest(acks=-1, timeout_ms=9000,
                             topic_data=[TopicProduceData(name='orders', partition_data=[data])])
    stored, = ask(client, produce, request, 9).responses[0].partition_responses
    assert not stored.error_code, stored
    return stored.base_offset


def values(client: Client) -> dict[int, bytes]:
    "Everything that can be read, by offset."
    found, offset = {}, 0
    while True:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=[FetchTopic(topic='orders',
                                                                                    partitions=[part])])
        part = ask(client, fetch, request, 12).responses[0].partitions[0]
        assert not part.error_code
        if not part.records: return found
        try:
            for batch in read_batches(part.records):
                found |= {record.offset: record.value for record in read_records(batch)}
                offset = batch.last_offset + 1
        except TornBatch: pass


def started(place: Path) -> BrokerProcess:
    port = free_port()
    file = properties(place/'server.properties', node_id=1, listeners=f'PLAINTEXT://127.0.0.1:{port}',
                      log_dirs=f'{place}/first,{place}/second', log_segment_bytes=1 << 20)
    return BrokerProcess(place, file, port=port).wait_ready()


def test_killed_while_it_moves(tmp_path):
    chance, acknowledged = random.Random(7), {}
    broker, moved, seen = started(tmp_path), 0, set()
    with broker.client() as client:
        ask(client, create_topics, create(topic('orders')))
        for number in range(40): acknowledged[send(client, b'%d' % number + bytes(100_000))] = b'%d' % number
    for _ in range(6):
        with broker.client() as client:
            found = values(client)
            assert {offset: found.get(offset, b'')[:-100_000] for offset in acknowledged} == acknowledged
            before = [path for path, future in places(client) if not future]
            assert len(before) == 1
            target = str(tmp_path/('second' if before[0].endswith('first') else 'first'))
            said = ask(client, alter_replica_log_dirs, alter((target, ('orders', 0))))
            assert not said.results[0].partitions[0].error_code
            until = time.monotonic() + chance.random() * chance.choice([0.02, 0.3])
            while time.monotonic() < until:
                value = b'%d' % chance.randrange(10**9)
                acknowledged[send(client, value + bytes(100_000))] = value
            seen.add(len(places(client)))
            moved += places(client) == [(target, False)]
        broker.process.kill()
        broker.wait()
        assert 'Traceback' not in broker.stderr, broker.stderr
        broker = started(tmp_path)
    with broker.client() as client:
        wait_until(lambda: len(places(client)) == 1, 'the last move')
        found = values(client)
    assert {offset: found.get(offset, b'')[:-100_000] for offset in acknowledged} == acknowledged
    broker.check_end()
    left = [name for each in ('first', 'second') for name in os.listdir(tmp_path/each) if name.startswith('orders-0')]
    assert [name for name in left if not name.endswith('-delete')] == ['orders-0'], left
    assert seen == {1, 2} or moved, 'nothing was on its way when it was killed'


def test_a_client_moves_a_partition(tmp_path):
    "kafka-python: where it is, the move, and where it is then."
    warnings.simplefilter('ignore')
    admin = pytest.importorskip('kafka.admin')
    with running(tmp_path, log_dirs=f'{tmp_path}/first,{tmp_path}/second') as broker:
        with broker.client() as client: ask(client, create_topics, create(topic('orders')))
        put(broker.port, 'orders', 20)
        client = admin.KafkaAdminClient(bootstrap_servers=f'127.0.0.1:{broker.port}')
        def where():
            found, = client.describe_log_dirs()
            return [each['log_dir'] for each in found['log_dirs'] for topic in each['topics']
                    for part in topic['partitions'] if not part['is_future_key'] and part['partition_size'] == 20 * 79]
        old, = where()
        new = str(tmp_path/('second' if old.endswith('first') else 'first'))
        client.alter_replica_log_dirs({('orders', 0, 1): new})
        wait_until(lambda: where() == [new], 'the move')
        client.close()
        put(broker.port, 'orders', 1)
