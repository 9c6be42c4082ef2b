"""Records `alter-quotas.jsonl`: quotas that are set, and many that aren't; `mutation-quota.jsonl`: topics made and
deleted faster than is allowed; and `session-slots.jsonl`: more fetch sessions than there is room for. `python
tests/record/quotas.py`"""
import tempfile

from recording import command_line, record

from admin_by_hand import create, delete, grow, topic
from benchmarks import real_kafka
from quotas_by_hand import alteration, components, fetch_of
from kafka_scratch.security.alter_quotas import AlterClientQuotasRequest
from kafka_scratch.security.quotas import DescribeClientQuotasRequest

BYTES, READ, TIME, TOPICS, CONNECTIONS = ('producer_byte_rate', 'consumer_byte_rate', 'request_percentage',
                                          'controller_mutation_rate', 'connection_creation_rate')


def conversation(ask):
    "What people ask for, and what nobody should."
    def alter(name, *entries, version=1, validate_only=False):
        ask(name, AlterClientQuotasRequest(entries=[alteration(*each) for each in entries],
                                           validate_only=validate_only), version)
    def described(name, *parts, strict=False, version=1):
        ask(name, DescribeClientQuotasRequest(components=components(*parts), strict=strict), version)
    alter('one', ({'user': 'u1'}, {BYTES: 1024.0}))
    alter('several', ({'user': 'u1', 'client-id': 'c1'}, {READ: 2048.0, TIME: 12.5}), ({'user': None}, {BYTES: 10.0}),
          ({'client-id': None}, {TOPICS: 0.5}), ({'ip': '10.0.0.1'}, {CONNECTIONS: 7.0}),
          ({'ip': None}, {CONNECTIONS: 9.0}))
    described('all of them')
    alter('the same again', ({'user': 'u1'}, {BYTES: 1024.0}))
    alter('another value', ({'user': 'u1'}, {BYTES: 512.0}), version=0)
    alter('only a question', ({'user': 'u2'}, {BYTES: 1.0}), ({'user': 'u3'}, {BYTES: 0.0}), validate_only=True)
    described('nothing came of it', ('user', 2, None))
    for n, entity in enumerate(({}, {'planet': 'x'}, {'user': ''}, {'client-id': ''}, {'ip': ''},
                                {'ip': '10.0.0.1', 'user': 'u'},
                                {'ip': None, 'client-id': None}, {'ip': 'no such host.invalid'}, {'ip': '::1'},
                                {'ip': 'localhost'}, {'User': 'u'}, {'user': 'ä,b=c'}, {'user': '<default>'},
                                {'user': None, 'client-id': None}, {'user': None, 'client-id': 'c'})):
        alter(f'entity {n}', (entity, {CONNECTIONS if set(entity) == {'ip'} else BYTES: 5.0}))
    for n, value in enumerate((0.0, -1.0, 0.5, 1e-7, 1.0000001, 1.00001, 9.3e18, 9223372036854775807.0, float('inf'),
                               2147483648.0)):
        for key in (BYTES, READ, TIME, TOPICS): alter(f'{key} {n}', ({'user': 'values'}, {key: value}))
        alter(f'{CONNECTIONS} {n}', ({'ip': '10.0.0.2'}, {CONNECTIONS: value}))
    alter('a key of others', ({'user': 'u1'}, {CONNECTIONS: 5.0}))
    alter('a key of others, too', ({'ip': '10.0.0.1'}, {BYTES: 5.0}))
    alter('no such key', ({'user': 'u1'}, {'nonsense': 5.0}))
    alter('no such key to remove', ({'user': 'u1'}, {'nonsense': None}))
    alter('not there to remove', ({'user': 'nobody'}, {BYTES: None}))
    alter('nothing to do', ({'user': 'u1'}, {}), ({'planet': 'x'}, {}))
    alter('nothing')
    alter('one right, one wrong', ({'user': 'right'}, {BYTES: 5.0}), ({'user': 'wrong'}, {BYTES: -5.0}))
    alter('twice', ({'user': 'twice'}, {BYTES: 5.0}), ({'user': 'twice'}, {READ: 6.0}))
    described('what came of that', ('user', 0, 'twice'))
    alter('thrice', ({'user': 'thrice'}, {BYTES: -5.0}), ({'user': 'thrice'}, {READ: 6.0}),
          ({'user': 'thrice'}, {READ: 7.0}))
    described('and of that', ('user', 0, 'thrice'))
    alter('a key twice', ({'user': 'keys', 'client-id': None}, [(BYTES, 5.0), (BYTES, 6.0)]))
    described('no key', ('user', 0, 'keys'))
    alter('a part twice', ([('user', 'p1'), ('user', 'p2')], {BYTES: 5.0}))
    described('the last part', ('user', 2, None), strict=True)
    alter('removed', ({'user': 'u1'}, {BYTES: None}), ({'user': 'u1', 'client-id': 'c1'}, {READ: None}))
    described('what is left', version=0)


def changing(ask):
    "One partition a second; what comes in bursts, and who is refused."
    ask('the limit', AlterClientQuotasRequest(entries=[alteration({'user': 'ANONYMOUS'}, {TOPICS: 1.0})]))
    ask('only asked', create(topic('asked', 2), validate_only=True))
    ask('a burst', create(topic('a', 60), topic('b', 5)))
    ask('too much', create(topic('c', 1), topic('bad name', 1)))
    ask('too much to ask', create(topic('c', 1), validate_only=True))
    ask('too much, version 5', create(topic('d', 1)), 5)
    ask('too much to grow', grow(('a', 61), ('nobody', 2)))
    ask('too much to grow, version 2', grow(('a', 61)), 2)
    ask('too much to delete', delete('a', 'nobody'))
    ask('too much to delete, version 4', delete('a', version=4), 4)
    ask('nothing to pay for', create(topic('b', 1)))
    ask('no limit', AlterClientQuotasRequest(entries=[alteration({'user': 'ANONYMOUS'}, {TOPICS: None})]))
    ask('free again', create(topic('e', 1)))


def opening(ask):
    "Room for eight sessions."
    ask('a topic', create(topic('t', 4)))
    opened = [ask(f'session {n}', fetch_of('t', [n % 4], session_epoch=0), 12) for n in range(10)]
    ask('go on', fetch_of('t', [], session_id=opened[0].session_id, session_epoch=1), 12)
    ask('nothing left', fetch_of('t', [], session_id=opened[0].session_id, session_epoch=2, forgotten=[0]), 12)
    ask('it is gone', fetch_of('t', [], session_id=opened[0].session_id, session_epoch=3), 12)


def record_all(to):
    for told, file, settings in ((conversation, 'alter-quotas.jsonl', {}), (changing, 'mutation-quota.jsonl', {}),
                                 (opening, 'session-slots.jsonl', {'max.incremental.fetch.session.cache.slots': 15})):
        with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, settings) as kafka:
            record(kafka.port, told, file, to)


if __name__ == '__main__': record_all(command_line(__doc__).to)
