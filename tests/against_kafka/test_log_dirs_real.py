"""Several log directories, two brokers: Apache Kafka 4.1.1 finds its partitions where we have moved them, ends what we
were killed in the middle of, and we end what it was killed in the middle of."""
import os
import sys
import time
from pathlib import Path


from size import needs_kafka
from broker_process import ROOT, Client
from log_dirs_by_hand import alter, describe
from log_ends_by_hand import put as put_to
from moving import Killed, carried_out, content, log_of, make, node_on, put, start_move
from player import answer_in, framed

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.apis.alter_replica_log_dirs import alter_replica_log_dirs
from kafka_scratch.apis.configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from kafka_scratch.apis.configs import incremental_alter_configs
from kafka_scratch.apis.describe_log_dirs import describe_log_dirs
from kafka_scratch.apis.fetch import fetch
from kafka_scratch.apis.fetch_messages import FetchPartition, FetchRequest, FetchTopic
from kafka_scratch.broker.node import stop_node
from kafka_scratch.cluster import moves
from kafka_scratch.log.copies import copy_piece
from kafka_scratch.log.records import read_batches

pytestmark = needs_kafka
RATE = 'replica.alter.log.dirs.io.max.bytes.per.second'


def kafka_on(place: Path) -> real_kafka.RealKafka:
    kafka = real_kafka.RealKafka(place, {'log.dirs': f'{place}/first,{place}/second', 'log.cleaner.enable': 'false',
                                         'broker.session.timeout.ms': 4000, 'broker.heartbeat.interval.ms': 500})
    kafka.log_dir = place/'first'
    kafka.output.unlink(missing_ok=True)
    return kafka


def kill(kafka):
    kafka.process.kill()
    kafka.process.wait(20)
    kafka.process = None


def ask(port: int, api, request, version: int | None = None):
    version = api.versions[-1] if version is None else version
    with Client(port) as client: return answer_in(api, version, client.ask(framed(api, version, request)))


def places(port: int) -> dict[str, str]:
    "In which directory each partition is; those that are on their way have two."
    found = {}
    for each in ask(port, describe_log_dirs, describe(None)).results:
        assert not each.error_code, each
        for topic in each.topics:
            for part in topic.partitions:
                name = f'{topic.name}-{part.partition_index}{"-future" if part.is_future_key else ""}'
                found[name] = os.path.basename(each.log_dir)
    return found


def fetched(port: int, topic: str, number: int = 0) -> list[bytes]:
    "All batches of a partition, from a broker."
    found, offset = [], 0
    while True:
        part = FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 24)
        said = ask(port, fetch, FetchRequest(max_bytes=1 << 24, max_wait_ms=0, session_epoch=-1, topics=[
            FetchTopic(topic=topic, partitions=[part])]), 12)
        part = said.responses[0].partitions[0]
        assert not part.error_code, part.error_code
        if not part.records: return found
        for batch in read_batches(part.records):
            found.append(bytes(part.records[batch.start:batch.end]))
            offset = batch.last_offset + 1


def rate(port: int, number: int):
    config = AlterableConfig(name=RATE, config_operation=0, value=str(number))
    resource = AlterConfigsResource(resource_type=4, resource_name='1', configs=[config])
    ask(port, incremental_alter_configs, IncrementalAlterConfigsRequest(resources=[resource]))


def wait(condition, what: str): real_kafka.wire.wait_for(condition, 60, what)


def test_kafka_ends_what_we_were_killed_in_the_middle_of(tmp_path, monkeypatch):
    "Five topics, each left after another step; and one that has arrived."
    node, sent = node_on(tmp_path), {}
    names = 'begun', 'half', 'named', 'aside', 'arrived', 'still'
    make(node, dict.fromkeys(names, 1))
    for name in names:
        sent[name] = []
        put(log_of(node, f'{name}-0'), 30, sent=sent[name])
    def dies(*_): raise Killed
    node.logs.unassigned |= {(node.image.topics[name].topic_id, 0) for name in names}
    moves.assign_directories(node.logs, node.controller)
    start = {name: os.path.basename(os.path.dirname(log_of(node, f'{name}-0').directory)) for name in names}
    for name in names[:-1]:
        move = start_move(node, f'{name}-0')
        if name == 'half': copy_piece(move.log, move.copy, 0)
        rename = os.rename
        def second(old, new): dies() if old.endswith('-future') else rename(old, new)
        with monkeypatch.context() as patch:
            if name == 'named': patch.setattr(moves, 'change_places', dies)
            if name == 'aside': patch.setattr(os, 'rename', second)
            try: moves.finish_move(node.logs, move, node.controller) if name in names[2:] else None
            except Killed: node.logs.moves.pop(move.place)
    put(log_of(node, 'half-0'), 3, sent=sent['half'])
    node.crash()
    with kafka_on(tmp_path) as kafka:
        wait(lambda: not any('future' in name for name in places(kafka.port)), 'the moves')
        for name in names: assert fetched(kafka.port, name) == sent[name], name
        now = places(kafka.port)
        assert {name: now[f'{name}-0'] != start[name] for name in names} == {name: name != 'still' for name in names}
        for name in names: put_to(kafka.port, name, 1)
        after = {name: fetched(kafka.port, name) for name in names}
    node = node_on(tmp_path)   # and back to ours
    for name in names: assert content(node, f'{name}-0') == after[name]
    for name in names:
        directory = os.path.dirname(log_of(node, f'{name}-0').directory)
        assert os.path.basename(directory) == now[f'{name}-0'] and not node.logs.unassigned
    stop_node(node)


def test_we_end_what_kafka_was_killed_in_the_middle_of(tmp_path):
    "A copy that has come halfway. Kafka then reads what we have moved, and moves it back."
    kafka = kafka_on(tmp_path).start()
    kafka.create_topics({'moves': 1, 'other': 1})
    put_to(kafka.port, 'moves', 3, size=700_000), put_to(kafka.port, 'other', 5)
    rate(kafka.port, 1)
    time.sleep(1)
    at = places(kafka.port)
    target = next(name for name in ('first', 'second') if name != at['moves-0'])
    said = ask(kafka.port, alter_replica_log_dirs, alter((str(tmp_path/target), ('moves', 0))))
    assert not said.results[0].partitions[0].error_code
    wait(lambda: 'moves-0-future' in places(kafka.port), 'a copy')
    put_to(kafka.port, 'moves', 2)
    expected = fetched(kafka.port, 'moves')
    kill(kafka)
    node = node_on(tmp_path)
    assert node.logs.moves['moves', 0].lag > 0
    assert content(node, 'moves-0') == expected
    carried_out(node)
    assert content(node, 'moves-0') == expected and len(content(node, 'other-0')) == 5
    put(log_of(node, 'moves-0'), 4)
    expected = content(node, 'moves-0')
    stop_node(node)
    with kafka_on(tmp_path) as kafka:
        assert fetched(kafka.port, 'moves') == expected and places(kafka.port)['moves-0'] == target
        rate(kafka.port, 2**31)
        ask(kafka.port, alter_replica_log_dirs, alter((str(tmp_path/at['moves-0']), ('moves', 0))))
        wait(lambda: places(kafka.port) == at, 'the way back')
        assert fetched(kafka.port, 'moves') == expected
    node = node_on(tmp_path)
    assert content(node, 'moves-0') == expected
    named = node.image.topics['moves'].partition(0).directories[0]
    assert log_of(node, 'moves-0').directory.startswith(next(each.path for each in node.logs.directories
                                                             if each.id == named))
    node.crash()
