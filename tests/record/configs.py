"""Records `topic-configs.jsonl`, `other-configs.jsonl` and `file-configs.jsonl`: `python tests/record/configs.py`."""
import tempfile
from pathlib import Path

from recording import command_line, record

from admin_by_hand import *
from benchmarks import real_kafka
from recordings import FILE, OWN

NUMBERS = [name for name, setting in TOPIC_TABLE.items() if setting.type in ('INT', 'LONG', 'DOUBLE')]


def about_topics(ask):
    "Settings of topics, from first to last."
    def change(*changes, name='orders', **options): return alter((TOPIC, name, changes), **options)
    def see(*keys): return settings_of((TOPIC, 'orders', list(keys)))
    ask('two topics', create(topic('orders', 3, settings={'retention.ms': '1000'}), topic('a.b', 2)))
    for version in (1, 2, 3, 4):
        ask(f'all settings, version {version}', settings_of((TOPIC, 'orders', None), synonyms=version % 2 == 0),
            version)
    ask('some settings', settings_of((TOPIC, 'orders', ['retention.ms', 'nonsense']),
                                     (TOPIC, 'a.b', ['retention.ms', 'retention.ms', 'segment.ms']),
                                     (TOPIC, 'orders', []), (TOPIC, 'orders', ['flush.ms'])))
    ask('not there', settings_of((TOPIC, 'nobody', None), (TOPIC, 'bad name', None), (TOPIC, '', None),
                                 (TOPIC, 'x' * 250, None)))
    for kind in (-1, 0, 1, 3, 99): ask(f'kind {kind}', settings_of((TOPIC, 'orders', None), (kind, 'x', None)))
    ask('nothing', settings_of())
    ask('a number', change(('retention.ms', SET, '2000')))
    ask('a number, seen', see('retention.ms'))
    for name in NUMBERS:
        for text in ('-99999999999999999999', '-9999999', '-3', '-2', '-1', '0', '3', '0.7', '1e3', 'x', '',
                     '2147483648'):
            if name != 'min.cleanable.dirty.ratio' and text in ('0.7', '1e3') and name != 'retention.ms': continue
            ask(f'{name} {text}', change((name, SET, text), validate_only=True))
    for name, text in (('cleanup.policy', 'delet'), ('cleanup.policy', 'delete,x'), ('compression.type', 'zip'),
                       ('message.timestamp.type', 'x'),
                       ('preallocate', 'maybe'), ('unclean.leader.election.enable', ''),
                       ('remote.storage.enable', 'true'),
                       ('leader.replication.throttled.replicas', 'x'), ('follower.replication.throttled.replicas',
                           '0:1,1:x'), ('nonsense', 'x'),
                       ('compression.gzip.level', '10'), ('compression.lz4.level', '18'),
                       ('compression.zstd.level', '23'),
                       ('min.cleanable.dirty.ratio', '1.5'), ('min.compaction.lag.ms', '9223372036854775807')):
        ask(f'{name} {text}', change((name, SET, text), validate_only=True))
    ask('contradictions', change(('max.compaction.lag.ms', SET, '5'), ('min.compaction.lag.ms', SET, '9')))
    ask('several mistakes', change(('cleanup.policy', SET, 'x'), ('retention.ms', SET, 'y'),
                                   ('segment.bytes', SET, 'z')))
    ask('an unknown one among mistakes', change(('cleanup.policy', SET, 'x'), ('nonsense', SET, 'z')))
    for name, text in (('retention.ms', ' 778 '), ('retention.ms', '+779'), ('preallocate', 'TRUE'),
                       ('min.cleanable.dirty.ratio', '.25'),
                       ('min.cleanable.dirty.ratio', '1e-1'), ('cleanup.policy', 'delete, compact'),
                       ('cleanup.policy', 'delete,delete'), ('cleanup.policy', ''),
                       ('leader.replication.throttled.replicas', '0:1,1:1'),
                       ('leader.replication.throttled.replicas', '*')):
        ask(f'{name} {text!r}', change((name, SET, text)))
        ask(f'{name} {text!r}, seen', see(name))
    for n, (operation, value) in enumerate(((DELETE, None), (APPEND, 'compact'), (APPEND, 'compact'),
                                            (SUBTRACT, 'delete'), (SUBTRACT, 'compact'),
                                            (SUBTRACT, 'x'), (APPEND, 'x'), (APPEND, None), (SUBTRACT, None),
                                            (SET, None), (DELETE, 'x'), (SUBTRACT, 'delete'))):
        ask(f'list, step {n}', change(('cleanup.policy', operation, value)))
        ask(f'list, step {n}, seen', see('cleanup.policy'))
    for operation in (APPEND, SUBTRACT, 9, -1):
        ask(f'operation {operation} on a number', change(('retention.ms', operation, '1')))
    ask('a star and more', change(('leader.replication.throttled.replicas', APPEND, '0:1')))
    ask('deleting nothing', change(('segment.ms', DELETE, None), ('nonsense', DELETE, None)))
    ask('a key twice', change(('retention.ms', DELETE, None), ('retention.ms', SET, '5')))
    ask('a topic twice', alter((TOPIC, 'orders', []), (TOPIC, 'a.b', []),
                               (TOPIC, 'orders', [('retention.ms', SET, '6')])))
    ask('no changes', change())
    for name in ('nobody', 'bad name', ''): ask(f'a change of {name!r}', change(('retention.ms', SET, '1'), name=name))
    for kind in (-1, 0, 1, 3, 99):
        ask(f'a change of kind {kind}', alter((kind, 'x', [('a', SET, '1')]), (kind, 'y', [])))
    ask('one right, one wrong', alter((TOPIC, 'orders', [('retention.ms', SET, 'x')]),
                                      (TOPIC, 'a.b', [('retention.ms', SET, '5000')])))
    ask('version 0', change(('retention.ms', SET, '777')), 0)
    ask('one right, one wrong: seen', settings_of((TOPIC, 'orders', ['retention.ms']),
                                                  (TOPIC, 'a.b', ['retention.ms'])))
    for version in (0, 1, 2):
        ask(f'all at once, version {version}', replace((TOPIC, 'orders', [('retention.ms', str(version))]),
                                                       validate_only=version == 1), version)
    ask('all at once, seen', see())
    for name, pairs in (('null', [('retention.ms', None)]), ('unknown', [('x', '1')]),
                        ('twice', [('retention.ms', '1'), ('retention.ms', '2')])):
        ask(f'all at once, {name}', replace((TOPIC, 'orders', pairs)))
    ask('all at once, not there', replace((TOPIC, 'nobody', [('retention.ms', '1')]), (TOPIC, '', [])))
    ask('all at once, of other kinds', replace((BROKER_LOGGER, '1', [('root', 'INFO')]), (0, '1', [])))
    ask('nothing left', replace((TOPIC, 'orders', [])))
    ask('nothing left, seen', see())


def about_others(ask):
    "Settings of brokers, groups, subscriptions and loggers."
    def see_broker(*keys):
        return settings_of((BROKER, '1', list(keys)), (BROKER, '', None), (TOPIC, 'orders', ['retention.ms']))
    ask('a topic', create(topic('orders')))
    ask('a broker', settings_of((BROKER, '1', sorted(BROKER_TABLE.keys() - OWN))))
    for name in ('2', 'x', '+1', ''):
        ask(f'broker {name!r}', settings_of((BROKER, name, ['log.retention.ms', 'log.retention.hours',
                                                            'min.insync.replicas'])))
    ask('all brokers', alter((BROKER, '', [('log.retention.ms', SET, '5000')])))
    ask('all brokers, seen', see_broker('log.retention.ms', 'log.retention.hours', 'log.retention.minutes'))
    ask('one broker', alter((BROKER, '1', [('log.retention.ms', SET, '6000')])))
    ask('one broker, seen', see_broker('log.retention.ms', 'log.retention.hours'))
    for name, key, value in (('1', 'log.dirs', '/x'), ('', 'log.dirs', '/x'), ('', 'listeners', 'PLAINTEXT://:1'),
                             ('1', 'log.retention.ms', 'x'),
                             ('2', 'log.retention.ms', '1'), ('x', 'log.retention.ms', '1'),
                             ('1', 'log.roll.jitter.hours', '3'), ('1', 'log.segment.bytes', '100'),
                             ('1', 'log.retention.ms', None), ('1', 'min.insync.replicas', '2'),
                             ('', 'min.insync.replicas', '0')):
        ask(f'broker {name!r}, {key} {value}', alter((BROKER, name, [(key, SET, value)])))
    ask('the least in sync, for all', alter((BROKER, '', [('min.insync.replicas', SET, '2')])))
    ask('the least in sync, no more', alter((BROKER, '', [('min.insync.replicas', DELETE, None)])))
    ask('the least in sync, all at once', replace((BROKER, '', [('log.retention.ms', '1')]), validate_only=True))
    ask('appending', alter((BROKER, '', [('log.retention.ms', APPEND, '3')])))
    ask('something else', alter((BROKER, '1', [('nonsense', SET, '1')]), (BROKER, '', [('nonsense', SET, '2')])))
    ask('something else, seen', see_broker('nonsense'))
    ask('something else, no more', alter((BROKER, '1', [('nonsense', DELETE, None),
                                                        ('log.retention.ms', DELETE, None)]),
                                                        (BROKER, '', [('nonsense', DELETE, None)])))
    ask('of all brokers, still', see_broker('log.retention.ms', 'nonsense'))
    keys = sorted(GROUP_TABLE)
    ask('a group', settings_of((GROUP, 'readers', keys), (GROUP, '', None)))
    for key, value in (('consumer.session.timeout.ms', '50000'), ('consumer.session.timeout.ms', '5'),
                       ('consumer.session.timeout.ms', 'x'), ('nonsense', 'x'),
                       ('consumer.session.timeout.ms', '60001'), ('consumer.session.timeout.ms', '0'),
                       ('consumer.heartbeat.interval.ms', '1'),
                       ('consumer.heartbeat.interval.ms', '99999'), ('consumer.heartbeat.interval.ms', '15000')):
        ask(f'a group, {key} {value}', alter((GROUP, 'readers', [(key, SET, value)])))
    ask('a group, appending', alter((GROUP, 'readers', [('consumer.session.timeout.ms', APPEND, '1')])))
    ask('no group', alter((GROUP, '', [('consumer.session.timeout.ms', SET, '50000')])))
    ask('a group, changed', settings_of((GROUP, 'readers', keys)))
    ask('a subscription', settings_of((CLIENT_METRICS, 'sub', None), (CLIENT_METRICS, '', None)))
    for key, value in (('interval.ms', '1000'), ('interval.ms', '50'), ('interval.ms', '3600001'), ('interval.ms', 'x'),
                       ('metrics', 'org.apache.kafka.'),
                       ('match', 'client_id=a.*'), ('match', 'nonsense=a'), ('match', 'client_id=['), ('match', 'x'),
                       ('nonsense', 'x')):
        ask(f'a subscription, {key} {value}', alter((CLIENT_METRICS, 'sub', [(key, SET, value)])))
    ask('no subscription', alter((CLIENT_METRICS, '', [('interval.ms', SET, '1000')])))
    ask('a subscription, appending', alter((CLIENT_METRICS, 'sub', [('metrics', APPEND, 'b.')])))
    ask('a subscription, changed', settings_of((CLIENT_METRICS, 'sub', None)))
    for version, kinds in ((0, []), (1, []), (1, [TOPIC]), (1, [BROKER, BROKER_LOGGER]), (1, [GROUP, GROUP]), (1, [3]),
                           (1, [TOPIC, 99]), (1, [-1])):
        ask(f'what there is, version {version}, {kinds}', ListConfigResourcesRequest(resource_types=kinds), version)
    ask('a level', alter((BROKER_LOGGER, '1', [('root', SET, 'WARN')])))
    ask('a level, seen', settings_of((BROKER_LOGGER, '1', ['root']), (BROKER_LOGGER, '2', None),
                                     (BROKER_LOGGER, 'x', None), (BROKER_LOGGER, '', None)))
    for key, operation, value in (('root', SET, 'LOUD'), ('nobody', SET, 'INFO'), ('root', DELETE, None),
                                  ('root', APPEND, 'INFO'), ('root', SUBTRACT, 'INFO'), ('root', SET, None)):
        ask(f'a level, {key} {operation} {value}', alter((BROKER_LOGGER, '1', [(key, operation, value)])))
    for name in ('2', '', 'x'): ask(f'a level of {name!r}', alter((BROKER_LOGGER, name, [('root', SET, 'INFO')])))


def about_a_file(ask):
    "What stands in the broker's file."
    ask('a topic', create(topic('orders', settings={'flush.ms': '5'})))
    ask('the topic', settings_of((TOPIC, 'orders', None)))
    ask('the broker', settings_of((BROKER, '1', [*FILE, 'log.retention.ms', 'log.roll.hours'])))


def record_all(to: Path):
    for conversation, file, settings in ((about_topics, 'topic-configs.jsonl', {}),
                                         (about_others, 'other-configs.jsonl', {}),
                                         (about_a_file, 'file-configs.jsonl', FILE)):
        with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, settings) as kafka:
            record(kafka.port, conversation, file, to)


if __name__ == '__main__': record_all(command_line(__doc__).to)
