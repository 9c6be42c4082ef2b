"DescribeLogDirs and AlterReplicaLogDirs: odd requests beside a real broker's answers, and who may ask."
import asyncio
import shutil
from pathlib import Path

import pytest

from log_dirs_by_hand import PLACE, alter, describe
from player import answer_in, recorded
from small_node import small_node
from kafka_scratch.apis.api import Call
from kafka_scratch.apis.alter_replica_log_dirs import alter_replica_log_dirs
from kafka_scratch.apis.describe_log_dirs import describe_log_dirs
from kafka_scratch.apis.requests import find_api, read_request
from kafka_scratch.broker.apis import APIS
from kafka_scratch.broker.node import stop_node
from kafka_scratch.cluster.logs import make_logs
from kafka_scratch.cluster.moves import carry_out
from kafka_scratch.log.partition import append
from kafka_scratch.log.records import HEADER, Record, write_batch
from kafka_scratch.wire.codes import Operation, Resource

EXPECTED = {'out of the one that is gone': 'Kafka has forgotten the replica, ours knows that it can\'t be read'}


def node_on(place: Path, settings: str = '', directories=('first', 'second')):
    "A node with two log directories."
    for name in directories: (place/name).mkdir(parents=True, exist_ok=True)
    return small_node(','.join(str(place/name) for name in directories), settings=settings)


def make(node, topics: dict[str, int]):
    node.create(topics)
    for name, count in topics.items(): make_logs(node.logs, node.image.topics[name], range(count))


def put(node, name: str, count: int, size: int | None = None):
    topic, _, number = name.rpartition('-')
    value = b'some value' if size is None else b'v' * size
    for _ in range(count):
        batch = bytearray(write_batch([Record(key=b'k', value=value)]))
        append(node.partition(topic, int(number)), batch, HEADER.read(batch, 0)[0], 0, node.now())


def carried_out(node):
    "All moves, to their end."
    async def run():
        for move in list(node.logs.moves.values()): await carry_out(node.logs, move, node.controller)
    asyncio.run(run())


# --- Beside a real broker ---------------------------------------------------------------------------------------------

def seen(answer, place: str) -> list:
    "An answer without what may differ: the order of topics, the size of the disk, and how far a copy has come."
    def part(each):
        future = getattr(each, 'is_future_key', None)
        grows = () if future is None else (None, None) if future else (each.partition_size, each.offset_lag)
        return each.partition_index, getattr(each, 'error_code', None), future, *grows
    def topics(found, name): return sorted((getattr(each, name), sorted(map(part, each.partitions))) for each in found)
    if not hasattr(answer, 'error_code'): return topics(answer.results, 'topic_name')
    return [answer.error_code, *((each.log_dir.replace(place, PLACE), each.error_code, each.total_bytes > 0,
            0 < each.usable_bytes <= each.total_bytes, topics(each.topics, 'name')) for each in answer.results)]


def asked(case: dict, place: Path):
    frame = bytes.fromhex(case['request_hex'])[4:]
    api, version = find_api(frame, APIS)
    _, request = read_request(frame, api, version)
    for each in getattr(request, 'dirs', ()): each.path = each.path.replace(PLACE, str(place))
    return api, version, request


def test_odd_requests_get_the_answers_of_a_real_broker(tmp_path):
    node, compared = node_on(tmp_path), 0
    def happen(case):
        if 'records' in case and 'at' in case:
            for name, path in case['at'].items():
                where = next(each for each in node.logs.directories if each.path == path.replace(PLACE, str(tmp_path)))
                node.logs.preferred[name.rpartition('-')[0], int(name.rpartition('-')[2])] = where
            make(node, case['topics'])
            for name, count in case['records'].items(): put(node, name, count)
        elif case['name'] == 'made': make(node, {case['topic']: case['partitions']})
        elif case['name'] == 'more': put(node, f'{case["topic"]}-0', case['records'])
        elif case['name'] == 'much more': put(node, f'{case["topic"]}-0', case['batches'], case['size'])
        elif 'gone' in case['name']:
            shutil.rmtree(tmp_path/'second')
            (tmp_path/'second').write_text('not a directory')
    for case in recorded('log-dirs.jsonl'):
        if 'request_hex' not in case: happen(case); continue
        api, version, request = asked(case, tmp_path)
        ours = api.response.decode(api.answer(request, Call(version, node)).encode(version), version)
        theirs = answer_in(api, version, bytes.fromhex(case['response_hex']))
        compared += 1
        if case['name'] in EXPECTED: assert seen(ours, str(tmp_path)) != seen(theirs, PLACE)
        else: assert seen(ours, str(tmp_path)) == seen(theirs, PLACE), case['name']
        if case['name'] == 'again': carried_out(node)
    assert compared == 61
    node.crash()
