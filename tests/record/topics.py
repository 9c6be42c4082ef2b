"""Records `create-topics.jsonl`, `delete-topics.jsonl`, `auto-create.jsonl` and `topic-rights.jsonl`: `python
tests/record/topics.py`."""
import tempfile
import time
from pathlib import Path

from recording import answer_in, command_line, framed, record

from admin_by_hand import *
from benchmarks import real_kafka
from broker_process import Client
from recordings import AUTO, DENIED
from kafka_scratch.security.acl_apis import AclCreation, CreateAclsRequest, create_acls


def making(ask):
    "Topics that are made, and many that aren't."
    def check(name, *topics, **options): ask(name, create(*topics, validate_only=True, **options))
    ask('two', create(topic('a.b', 2), topic('orders', 3, settings={'retention.ms': '1000',
                                                                    'cleanup.policy': 'compact, delete'})))
    ask('exists', create(topic('a.b', 2)))
    ask('collides', create(topic('a_b')))
    ask('both at once', create(topic('c.d'), topic('c_d')))
    ask('exists and collides', create(topic('c.d')))
    ask('collides with two', create(topic('c-d'), topic('c__d')))
    check('names', *(topic(name) for name in ('bad name', '', '.', '..', 'x' * 250, 'x' * 249, 'ä', '-', '_', '...')))
    check('numbers', *(topic(f'n{n}', *numbers) for n, numbers in enumerate(((0, 1), (-2, 1), (-1, -1), (1, 0), (1, 2),
        (1, -2), (0, 0), (-1, 1), (1, -1), (2, 32767)))))
    by_hand = ([(0, [1]), (1, [1])], [(0, [1]), (0, [1])], [(0, [])], [(0, [7])], [(0, [1, 1])],
               [(0, [1]), (1, [1, 1])], [(1, [1])], [(0, [1]), (2, [1])], [(-1, [1])],
               [(1, [1]), (0, [1])], [(0, [7, 1])], [(0, [1, 7, 7])], [(0, [-1])])
    check('by hand', *(topic(f'h{n}', -1, -1, each) for n, each in enumerate(by_hand)))
    check('by hand and in numbers', topic('h1', 1, -1, [(0, [1])]), topic('h2', -1, 1, [(0, [1])]),
          topic('h3', 2, 3, [(-1, [1])]), topic('h4', 0, 0, [(0, [1])]))
    check('twice', topic('dup'), topic('other'), topic('dup'))
    check('internal', *(topic(name) for name in ('__consumer_offsets', '__cluster_metadata', '__transaction_state',
                                                 '__share_group_state')))
    check('many', topic('big', 9_999))
    check('many, and one', topic('big', 10_000))
    check('too many', topic('big', 10_001))
    check('too many together', topic('big', 5_001), topic('larger', 5_000))
    check('too many records together', topic('big', 5_000), topic('larger', 4_999))
    check('many, and twice', topic('big', 5_000), topic('dup', 5_000), topic('dup', 5_000))
    check('many, and a mistake', topic('none', 0), topic('big', 9_999))
    for n, settings in enumerate(({'retention.ms': 'abc'}, {'nonsense': '1'}, {'retention.ms': None},
                                  {'cleanup.policy': 'delet'}, {'segment.bytes': '13'}, {'retention.ms': '-2'},
                                  {'min.insync.replicas': '0'}, {'max.message.bytes': '3000000000'},
                                  {'cleanup.policy': ''}, {'compression.type': 'zip'}, {'retention.ms': ''},
                                  {'cleanup.policy': 'x', 'segment.bytes': 'y', 'nonsense': 'z'},
                                  {'cleanup.policy': 'x', 'retention.ms': 'y', 'segment.bytes': 'z'},
                                  {'min.compaction.lag.ms': '9', 'max.compaction.lag.ms': '5'},
                                  {'remote.storage.enable': 'true'}, {'retention.ms': None, 'segment.ms': None})):
        check(f'settings {n}', topic('s', settings=settings))
    check('settings and numbers', topic('s', 0, 1, settings={'retention.ms': 'x'}))
    check('settings and a name', topic('bad name', 0, 1, settings={'retention.ms': 'x'}))
    check('settings and an old name', topic('a.b', 0, 1, settings={'retention.ms': None}))
    check('numbers and by hand', topic('s', 0, 0, [(0, [1])]))
    for timeout_ms in (0, -1):
        ask(f'no time, {timeout_ms}', create(topic('t'), topic('bad name'), topic('dup'), topic('dup'),
                                             timeout_ms=timeout_ms))
    ask('nothing', create())
    for version in range(2, 8):
        ask(f'version {version}', create(topic('v', -1, -1), topic('a.b'), validate_only=True), version)
    for version in range(2, 8):
        ask(f'version {version}, made', create(topic(f'v{version}', -1, -1, settings={'flush.ms': '5'})), version)
    for version in range(3): ask(f'the cluster, version {version}', DescribeClusterRequest(), version)
    for options in (dict(include_cluster_authorized_operations=True), dict(endpoint_type=2), dict(endpoint_type=3),
                    dict(endpoint_type=0), dict(include_fenced_brokers=True)):
        ask(f'the cluster, {options}', DescribeClusterRequest(**options))


def changing(ask):
    "Topics that grow, and topics that are deleted."
    made = {each.name: each.topic_id for each in ask('four', create(topic('a.b', 2), topic('orders', 3), topic('c.d'),
                                                                    topic('c_d'), topic('last'))).topics}
    ask('numbers', grow(('orders', 3), ('nobody', 3), ('bad name', 2), ('a.b', 1), ('', 2), ('c.d', 0), ('c_d', -1),
                        ('__cluster_metadata', 2)))
    ask('twice', grow(('orders', 3), ('orders', 5), ('a.b', 3), validate_only=True))
    for n, (count, by_hand) in enumerate(((5, [[1]]), (4, [[1], [1]]), (4, [[7]]), (4, [[]]), (4, [[1, 1]]),
                                          (4, [[1, 2]]), (4, []), (3, [[1]]), (4, [[1]]), (2, [[7]]))):
        ask(f'by hand {n}', grow(('orders', count, by_hand), validate_only=True))
    for count in (10_003, 10_004, 20_000): ask(f'{count}', grow(('orders', count), validate_only=True))
    for timeout_ms in (0, -1): ask(f'no time, {timeout_ms}', grow(('orders', 4), timeout_ms=timeout_ms))
    ask('nothing', grow())
    for version in range(4): ask(f'grown, version {version}', grow(('orders', 4 + version)), version)
    ask('grown by hand', grow(('orders', 9, [[1], [1]]), ('a.b', 3)))
    ask('how many', metadata_of('orders', 'a.b', 'nobody'))
    for version in range(1, 7):
        ask(f'not there, version {version}', delete('nobody', 'bad name', '', version=version), version)
    ask('a name twice', delete('c.d', 'c.d', 'last'))
    ask('odd ones', delete(NOTHING, b'1' * 16, ('nobody', b'1' * 16), b'2' * 16, b'2' * 16, (None, b'3' * 16)))
    ask('both ways', delete(made['c_d'], 'c_d'))
    ask('both in one', delete(('c_d', made['c_d'])))
    for timeout_ms in (0, -5): ask(f'deleted in no time, {timeout_ms}', delete('c_d', b'1' * 16, timeout_ms=timeout_ms))
    ask('by id', delete(made['c_d']))
    ask('by id again', delete(made['c_d']))
    ask('internal', delete('__consumer_offsets', '__cluster_metadata'))
    ask('nothing deleted', delete())
    for n, version in enumerate(range(1, 7)):
        ask(f'again {n}', create(topic('again', 2)))
        ask(f'deleted, version {version}', delete('again', 'nobody', version=version), version)
    ask('what is left', metadata_of('again', 'orders', 'c_d', 'c.d', 'last'))


def wishing(ask):
    "Topics that are made because somebody asks; and a broker that doesn't delete any."
    ask('wished', metadata_of('auto1', 'bad name', '', 'auto_2'))
    time.sleep(1)
    ask('there', metadata_of('auto1', 'bad name', '', 'auto_2'))
    ask('collides', metadata_of('auto.2'))
    time.sleep(0.5)
    ask('collides still', metadata_of('auto.2'))
    ask('not wished', metadata_of('never', create=False))
    time.sleep(0.5)
    ask('not there', metadata_of('never', create=False))
    ask('an old version', metadata_of('old'), 1)
    time.sleep(0.5)
    ask('an old version, there', metadata_of('old'), 1)
    ask('as many as the broker likes', create(topic('likes', -1, -1), topic('likes-not', 2, -1), validate_only=True))
    for version in range(1, 7): ask(f'deleted, version {version}', delete('auto1', 'nobody', version=version), version)


def forbid(port: int):
    "Tells a real broker what nobody may do. Whoever has rules at all has to be allowed the rest."
    rules = [(resource, name, 2, 3) for resource, name in DENIED]
    rules += [(resource, name, operation, 2) for (resource, name),
              operations in DENIED.items() for operation in sorted(operations)]
    creations = [AclCreation(resource_type=resource, resource_name=name, resource_pattern_type=3, principal='User:*',
                             host='*', operation=operation,
                             permission_type=permission) for resource, name, operation, permission in rules]
    with Client(port) as client:
        said = answer_in(create_acls, 3, client.ask(framed(create_acls, 3, CreateAclsRequest(creations=creations))))
    assert not any(each.error_code for each in said.results), said


def without_rights(ask, forbid=lambda: time.sleep(1)):
    "What is said to those who may not."
    made = {each.name: each.topic_id for each in ask('three', create(topic('mine'), topic('seen'),
                                                                     topic('hidden'))).topics}
    forbid()
    ask('made', create(topic('new', 2), topic('seen2'), topic('nobody'), topic('hidden'), topic('asked')))
    ask('made, seen and twice', create(topic('seen'), topic('hidden'), topic('hidden'), validate_only=True))
    ask('grown', grow(('mine', 2), ('seen', 2), ('hidden', 2), ('nobody', 2)))
    ask('described', settings_of((2, 'mine', ['retention.ms']), (2, 'seen', None), (2, 'hidden', None),
                                 (2, 'nobody', None), (2, 'bad name', None), (4, '1', None), (8, '1', None),
                                 (16, 'x', None), (32, 'g', None), (32, 'h', ['consumer.session.timeout.ms'])))
    change = [('retention.ms', 0, '5')]
    ask('changed', alter((2, 'mine', change), (2, 'seen', change), (2, 'hidden', change), (2, 'nobody', change),
                         (4, '1', []), (4, '', []), (8, '1', []), (16, 'x', []), (32, 'g', [])))
    ask('replaced', replace((2, 'mine', []), (2, 'seen', []), (2, 'hidden', []), (2, 'nobody', []), (4, '1', []),
                            (32, 'g', [])))
    ask('listed', ListConfigResourcesRequest(), 1)
    ask('the cluster', DescribeClusterRequest(include_cluster_authorized_operations=True))
    ask('asked for', metadata_of('asked', 'hidden', 'nobody', 'seen'))
    for version in (5, 6):
        ask(f'deleted, version {version}', delete('seen', 'hidden', 'nobody', 'bad name', version=version), version)
    ask('deleted by id', delete(made['seen'], made['hidden'], made['mine'], b'1' * 16))
    ask('deleted both ways', delete(made['hidden'], 'hidden', ('seen', made['seen'])))


def record_rights(to: Path):
    settings = {'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
                'allow.everyone.if.no.acl.found': 'true',
                'auto.create.topics.enable': 'true'}
    with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, settings) as kafka:
        with Client(kafka.port) as client: raw = client.ask(framed(describe_cluster, 2, DescribeClusterRequest()))
        def conversation(ask): without_rights(ask, lambda: (forbid(kafka.port), time.sleep(1)))
        record(kafka.port, conversation, 'topic-rights.jsonl', to, cluster_id=answer_in(describe_cluster, 2,
            raw).cluster_id)


def record_all(to: Path):
    record_rights(to)
    for conversation, file, settings in ((making, 'create-topics.jsonl', {}), (changing, 'delete-topics.jsonl', {}),
                                         (wishing, 'auto-create.jsonl', AUTO)):
        with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, settings) as kafka:
            with Client(kafka.port) as client: raw = client.ask(framed(describe_cluster, 2, DescribeClusterRequest()))
            record(kafka.port, conversation, file, to, cluster_id=answer_in(describe_cluster, 2, raw).cluster_id)


if __name__ == '__main__': record_all(command_line(__doc__).to)
