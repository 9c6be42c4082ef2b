"DescribeLogDirs and AlterReplicaLogDirs: odd requests beside a real broker's answers, and who may ask."
import shutil
from pathlib import Path

import pytest


from log_dirs_by_hand import PLACE, alter, describe
from moving import carried_out, log_of, make, node_on, put
from player import answer_in, recorded
from kafka_scratch.apis.api import Call
from kafka_scratch.apis.alter_replica_log_dirs import alter_replica_log_dirs
from kafka_scratch.apis.describe_log_dirs import absolute_path, describe_log_dirs
from kafka_scratch.apis.requests import find_api, read_request
from kafka_scratch.broker.apis import APIS
from kafka_scratch.broker.node import stop_node
from kafka_scratch.wire.codes import Operation, Resource

EXPECTED = {'out of the one that is gone': 'Kafka has forgotten the replica, ours knows that it can\'t be read'}


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
            for name, count in case['records'].items(): put(log_of(node, name), count)
        elif case['name'] == 'made': make(node, {case['topic']: case['partitions']})
        elif case['name'] == 'more': put(log_of(node, f'{case["topic"]}-0'), case['records'])
        elif case['name'] == 'much more': put(log_of(node, f'{case["topic"]}-0'), case['batches'], case['size'])
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


def test_who_may_not_ask_gets_the_answers_of_a_real_broker(tmp_path):
    node = node_on(tmp_path)
    make(node, {'moves': 2, 'plain': 1})
    node.authorizer = lambda caller, operation, resource, name: False
    cases = recorded('log-dirs-rights.jsonl')
    for case in cases:
        frame = bytes.fromhex(case['request_hex'])[4:]
        assert node.answer(frame).hex() == case['response_hex'], case['name']
    assert len(cases) == 7 and not node.logs.moves and not node.logs.preferred
    node.crash()


def test_the_rights_that_it_takes(tmp_path):
    node = node_on(tmp_path)
    make(node, {'moves': 1})
    for api, request, operation in ((describe_log_dirs, describe(None), Operation.DESCRIBE),
                                    (alter_replica_log_dirs, alter((str(tmp_path), ('moves', 0))), Operation.ALTER)):
        asked = []
        def allowed(*what):
            asked.append(what[1:])
            return True
        node.authorizer = allowed
        api.answer(request, Call(api.versions[-1], node))
        assert asked == [(operation, Resource.CLUSTER, 'kafka-cluster')]
    node.crash()


def test_a_log_that_cannot_be_opened_has_no_lag(tmp_path):
    "And a log that isn't open has a size, all the same."
    node = node_on(tmp_path)
    make(node, {'moves': 2})
    put(log_of(node, 'moves-0'), 3), put(log_of(node, 'moves-1'), 3)
    broken = log_of(node, 'moves-1').directory
    stop_node(node)
    (Path(broken)/'partition.metadata').write_text('nonsense')
    node = node_on(tmp_path)
    assert not node.logs.opened() and node.logs.find(node.image.topics['moves'], 1).error == 56
    said = describe_log_dirs.answer(describe(None), Call(4, node))
    found = {part.partition_index: (part.partition_size, part.offset_lag)
             for each in said.results for topic in each.topics for part in topic.partitions}
    assert found == {0: (237, 0), 1: (237, -1)}
    node.crash()


def test_a_directory_in_which_a_sync_failed_is_offline(tmp_path):
    node = node_on(tmp_path)
    make(node, {'moves': 2})
    log = log_of(node, 'moves-0')
    log.failed = 'a sync failed'
    bad = {directory.path: any(each is log for each in directory.logs.values()) for directory in node.logs.directories}
    said = describe_log_dirs.answer(describe(None), Call(4, node))
    assert {each.log_dir: each.error_code == 56 for each in said.results} == bad and True in bad.values()
    log.failed = None
    node.crash()


@pytest.mark.parametrize('path, java', [('/data', '/data'), ('/data/', '/data'), ('//data//x', '/data/x'), ('/', '/'),
                                        ('/a/../b/.', '/a/../b/.')])
def test_paths_are_made_absolute_as_java_does_it(path, java): assert absolute_path(path) == java


def test_many_partitions_have_sizes(tmp_path):
    node = node_on(tmp_path)
    make(node, {'many': 1000})
    said = describe_log_dirs.answer(describe(None), Call(4, node))
    counts = [len(part.partitions) for each in said.results for part in each.topics]
    assert counts == [500, 500]
    node.crash()
