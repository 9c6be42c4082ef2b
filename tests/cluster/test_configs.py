"""Settings: what a real broker says about them, what becomes of them, and who may see them.

`python tests/cluster/test_configs.py` has the conversations with a real Kafka again and writes the fixtures anew; `tests/record/record_configs.py`
does so for the definitions of all settings, and for what a broker says about all of them.
"""
import importlib.util
import json
import re
import sys
import tempfile
import time
from pathlib import Path

if __name__ == '__main__': sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pytest

from size import needs_kafka
from hypothesis import given, strategies as st

from admin_by_hand import *
from benchmarks import real_kafka
from recording import recorded
from record_configs import DEFINITIONS, NUMBERS as NUMBER_TYPES, definitions
from kafka_scratch.cluster.config import ConfigError, read_config, read_log_config, setting_names, unknown_settings
from kafka_scratch.cluster.properties import read_properties
from kafka_scratch.wire.codes import ApiError, ErrorCode, Operation, Resource
from kafka_scratch.cluster.image import Image, config_set
from kafka_scratch.log.partition import LogConfig, StorageError

NUMBERS = [name for name, setting in TOPIC_TABLE.items() if setting.type in ('INT', 'LONG', 'DOUBLE')]
FILE = {'log.retention.hours': 1, 'log.retention.bytes': 100000, 'log.roll.ms': 7200000, 'log.flush.interval.ms': 1000, 'message.max.bytes': 2000000,
        'log.cleanup.policy': 'compact,delete', 'log.message.timestamp.type': 'LogAppendTime', 'my.custom': 1, 'ssl.keystore.password': 'secret'}
# What only a real broker has, or has differently: its own addresses and directories, and defaults that we have chosen otherwise.
OWN = {'listeners', 'advertised.listeners', 'controller.listener.names', 'log.dirs', 'log.dir', 'node.id', 'group.initial.rebalance.delay.ms',
       'offsets.topic.replication.factor', 'transaction.state.log.replication.factor', 'transaction.state.log.min.isr', 'auto.create.topics.enable'}


def text_of(settings: dict) -> str: return ''.join(f'{name}={value}\n' for name, value in settings.items())


# --- The conversations ------------------------------------------------------------------------------------------------

def about_topics(ask):
    "Settings of topics, from first to last."
    def change(*changes, name='orders', **options): return alter((TOPIC, name, changes), **options)
    def see(*keys): return settings_of((TOPIC, 'orders', list(keys)))
    ask('two topics', create(topic('orders', 3, settings={'retention.ms': '1000'}), topic('a.b', 2)))
    for version in (1, 2, 3, 4): ask(f'all settings, version {version}', settings_of((TOPIC, 'orders', None), synonyms=version % 2 == 0), version)
    ask('some settings', settings_of((TOPIC, 'orders', ['retention.ms', 'nonsense']), (TOPIC, 'a.b', ['retention.ms', 'retention.ms', 'segment.ms']),
                                     (TOPIC, 'orders', []), (TOPIC, 'orders', ['flush.ms'])))
    ask('not there', settings_of((TOPIC, 'nobody', None), (TOPIC, 'bad name', None), (TOPIC, '', None), (TOPIC, 'x' * 250, None)))
    for kind in (-1, 0, 1, 3, 99): ask(f'kind {kind}', settings_of((TOPIC, 'orders', None), (kind, 'x', None)))
    ask('nothing', settings_of())
    ask('a number', change(('retention.ms', SET, '2000')))
    ask('a number, seen', see('retention.ms'))
    for name in NUMBERS:
        for text in ('-99999999999999999999', '-9999999', '-3', '-2', '-1', '0', '3', '0.7', '1e3', 'x', '', '2147483648'):
            if name != 'min.cleanable.dirty.ratio' and text in ('0.7', '1e3') and name != 'retention.ms': continue
            ask(f'{name} {text}', change((name, SET, text), validate_only=True))
    for name, text in (('cleanup.policy', 'delet'), ('cleanup.policy', 'delete,x'), ('compression.type', 'zip'), ('message.timestamp.type', 'x'),
                       ('preallocate', 'maybe'), ('unclean.leader.election.enable', ''), ('remote.storage.enable', 'true'),
                       ('leader.replication.throttled.replicas', 'x'), ('follower.replication.throttled.replicas', '0:1,1:x'), ('nonsense', 'x'),
                       ('compression.gzip.level', '10'), ('compression.lz4.level', '18'), ('compression.zstd.level', '23'),
                       ('min.cleanable.dirty.ratio', '1.5'), ('min.compaction.lag.ms', '9223372036854775807')):
        ask(f'{name} {text}', change((name, SET, text), validate_only=True))
    ask('contradictions', change(('max.compaction.lag.ms', SET, '5'), ('min.compaction.lag.ms', SET, '9')))
    ask('several mistakes', change(('cleanup.policy', SET, 'x'), ('retention.ms', SET, 'y'), ('segment.bytes', SET, 'z')))
    ask('an unknown one among mistakes', change(('cleanup.policy', SET, 'x'), ('nonsense', SET, 'z')))
    for name, text in (('retention.ms', ' 778 '), ('retention.ms', '+779'), ('preallocate', 'TRUE'), ('min.cleanable.dirty.ratio', '.25'),
                       ('min.cleanable.dirty.ratio', '1e-1'), ('cleanup.policy', 'delete, compact'), ('cleanup.policy', 'delete,delete'), ('cleanup.policy', ''),
                       ('leader.replication.throttled.replicas', '0:1,1:1'), ('leader.replication.throttled.replicas', '*')):
        ask(f'{name} {text!r}', change((name, SET, text)))
        ask(f'{name} {text!r}, seen', see(name))
    for n, (operation, value) in enumerate(((DELETE, None), (APPEND, 'compact'), (APPEND, 'compact'), (SUBTRACT, 'delete'), (SUBTRACT, 'compact'),
                                            (SUBTRACT, 'x'), (APPEND, 'x'), (APPEND, None), (SUBTRACT, None), (SET, None), (DELETE, 'x'), (SUBTRACT, 'delete'))):
        ask(f'list, step {n}', change(('cleanup.policy', operation, value)))
        ask(f'list, step {n}, seen', see('cleanup.policy'))
    for operation in (APPEND, SUBTRACT, 9, -1): ask(f'operation {operation} on a number', change(('retention.ms', operation, '1')))
    ask('a star and more', change(('leader.replication.throttled.replicas', APPEND, '0:1')))
    ask('deleting nothing', change(('segment.ms', DELETE, None), ('nonsense', DELETE, None)))
    ask('a key twice', change(('retention.ms', DELETE, None), ('retention.ms', SET, '5')))
    ask('a topic twice', alter((TOPIC, 'orders', []), (TOPIC, 'a.b', []), (TOPIC, 'orders', [('retention.ms', SET, '6')])))
    ask('no changes', change())
    for name in ('nobody', 'bad name', ''): ask(f'a change of {name!r}', change(('retention.ms', SET, '1'), name=name))
    for kind in (-1, 0, 1, 3, 99): ask(f'a change of kind {kind}', alter((kind, 'x', [('a', SET, '1')]), (kind, 'y', [])))
    ask('one right, one wrong', alter((TOPIC, 'orders', [('retention.ms', SET, 'x')]), (TOPIC, 'a.b', [('retention.ms', SET, '5000')])))
    ask('version 0', change(('retention.ms', SET, '777')), 0)
    ask('one right, one wrong: seen', settings_of((TOPIC, 'orders', ['retention.ms']), (TOPIC, 'a.b', ['retention.ms'])))
    for version in (0, 1, 2): ask(f'all at once, version {version}', replace((TOPIC, 'orders', [('retention.ms', str(version))]), validate_only=version == 1), version)
    ask('all at once, seen', see())
    for name, pairs in (('null', [('retention.ms', None)]), ('unknown', [('x', '1')]), ('twice', [('retention.ms', '1'), ('retention.ms', '2')])):
        ask(f'all at once, {name}', replace((TOPIC, 'orders', pairs)))
    ask('all at once, not there', replace((TOPIC, 'nobody', [('retention.ms', '1')]), (TOPIC, '', [])))
    ask('all at once, of other kinds', replace((BROKER_LOGGER, '1', [('root', 'INFO')]), (0, '1', [])))
    ask('nothing left', replace((TOPIC, 'orders', [])))
    ask('nothing left, seen', see())


def about_others(ask):
    "Settings of brokers, groups, subscriptions and loggers."
    def see_broker(*keys): return settings_of((BROKER, '1', list(keys)), (BROKER, '', None), (TOPIC, 'orders', ['retention.ms']))
    ask('a topic', create(topic('orders')))
    ask('a broker', settings_of((BROKER, '1', sorted(BROKER_TABLE.keys() - OWN))))
    for name in ('2', 'x', '+1', ''): ask(f'broker {name!r}', settings_of((BROKER, name, ['log.retention.ms', 'log.retention.hours', 'min.insync.replicas'])))
    ask('all brokers', alter((BROKER, '', [('log.retention.ms', SET, '5000')])))
    ask('all brokers, seen', see_broker('log.retention.ms', 'log.retention.hours', 'log.retention.minutes'))
    ask('one broker', alter((BROKER, '1', [('log.retention.ms', SET, '6000')])))
    ask('one broker, seen', see_broker('log.retention.ms', 'log.retention.hours'))
    for name, key, value in (('1', 'log.dirs', '/x'), ('', 'log.dirs', '/x'), ('', 'listeners', 'PLAINTEXT://:1'), ('1', 'log.retention.ms', 'x'),
                             ('2', 'log.retention.ms', '1'), ('x', 'log.retention.ms', '1'), ('1', 'log.roll.jitter.hours', '3'), ('1', 'log.segment.bytes', '100'),
                             ('1', 'log.retention.ms', None), ('1', 'min.insync.replicas', '2'), ('', 'min.insync.replicas', '0')):
        ask(f'broker {name!r}, {key} {value}', alter((BROKER, name, [(key, SET, value)])))
    ask('the least in sync, for all', alter((BROKER, '', [('min.insync.replicas', SET, '2')])))
    ask('the least in sync, no more', alter((BROKER, '', [('min.insync.replicas', DELETE, None)])))
    ask('the least in sync, all at once', replace((BROKER, '', [('log.retention.ms', '1')]), validate_only=True))
    ask('appending', alter((BROKER, '', [('log.retention.ms', APPEND, '3')])))
    ask('something else', alter((BROKER, '1', [('nonsense', SET, '1')]), (BROKER, '', [('nonsense', SET, '2')])))
    ask('something else, seen', see_broker('nonsense'))
    ask('something else, no more', alter((BROKER, '1', [('nonsense', DELETE, None), ('log.retention.ms', DELETE, None)]), (BROKER, '', [('nonsense', DELETE, None)])))
    ask('of all brokers, still', see_broker('log.retention.ms', 'nonsense'))
    keys = sorted(GROUP_TABLE)
    ask('a group', settings_of((GROUP, 'readers', keys), (GROUP, '', None)))
    for key, value in (('consumer.session.timeout.ms', '50000'), ('consumer.session.timeout.ms', '5'), ('consumer.session.timeout.ms', 'x'), ('nonsense', 'x'),
                       ('consumer.session.timeout.ms', '60001'), ('consumer.session.timeout.ms', '0'), ('consumer.heartbeat.interval.ms', '1'),
                       ('consumer.heartbeat.interval.ms', '99999'), ('consumer.heartbeat.interval.ms', '15000')):
        ask(f'a group, {key} {value}', alter((GROUP, 'readers', [(key, SET, value)])))
    ask('a group, appending', alter((GROUP, 'readers', [('consumer.session.timeout.ms', APPEND, '1')])))
    ask('no group', alter((GROUP, '', [('consumer.session.timeout.ms', SET, '50000')])))
    ask('a group, changed', settings_of((GROUP, 'readers', keys)))
    ask('a subscription', settings_of((CLIENT_METRICS, 'sub', None), (CLIENT_METRICS, '', None)))
    for key, value in (('interval.ms', '1000'), ('interval.ms', '50'), ('interval.ms', '3600001'), ('interval.ms', 'x'), ('metrics', 'org.apache.kafka.'),
                       ('match', 'client_id=a.*'), ('match', 'nonsense=a'), ('match', 'client_id=['), ('match', 'x'), ('nonsense', 'x')):
        ask(f'a subscription, {key} {value}', alter((CLIENT_METRICS, 'sub', [(key, SET, value)])))
    ask('no subscription', alter((CLIENT_METRICS, '', [('interval.ms', SET, '1000')])))
    ask('a subscription, appending', alter((CLIENT_METRICS, 'sub', [('metrics', APPEND, 'b.')])))
    ask('a subscription, changed', settings_of((CLIENT_METRICS, 'sub', None)))
    for version, kinds in ((0, []), (1, []), (1, [TOPIC]), (1, [BROKER, BROKER_LOGGER]), (1, [GROUP, GROUP]), (1, [3]), (1, [TOPIC, 99]), (1, [-1])):
        ask(f'what there is, version {version}, {kinds}', ListConfigResourcesRequest(resource_types=kinds), version)
    ask('a level', alter((BROKER_LOGGER, '1', [('root', SET, 'WARN')])))
    ask('a level, seen', settings_of((BROKER_LOGGER, '1', ['root']), (BROKER_LOGGER, '2', None), (BROKER_LOGGER, 'x', None), (BROKER_LOGGER, '', None)))
    for key, operation, value in (('root', SET, 'LOUD'), ('nobody', SET, 'INFO'), ('root', DELETE, None), ('root', APPEND, 'INFO'), ('root', SUBTRACT, 'INFO'), ('root', SET, None)):
        ask(f'a level, {key} {operation} {value}', alter((BROKER_LOGGER, '1', [(key, operation, value)])))
    for name in ('2', '', 'x'): ask(f'a level of {name!r}', alter((BROKER_LOGGER, name, [('root', SET, 'INFO')])))


def about_a_file(ask):
    "What stands in the broker's file."
    ask('a topic', create(topic('orders', settings={'flush.ms': '5'})))
    ask('the topic', settings_of((TOPIC, 'orders', None)))
    ask('the broker', settings_of((BROKER, '1', [*FILE, 'log.retention.ms', 'log.roll.hours'])))


def record_all():
    for conversation, file, settings in ((about_topics, 'topic-configs.jsonl', {}), (about_others, 'other-configs.jsonl', {}), (about_a_file, 'file-configs.jsonl', FILE)):
        with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, settings) as kafka: record(kafka.port, conversation, file)


# --- What a real broker said ------------------------------------------------------------------------------------------

@pytest.mark.parametrize('file, settings, least', [('topic-configs.jsonl', {}, 250), ('other-configs.jsonl', {}, 75), ('file-configs.jsonl', FILE, 3)])
def test_the_answers_are_those_of_a_real_broker(tmp_path, file, settings, least):
    cases = recorded(file)
    assert len(cases) >= least
    with Played(tmp_path, text_of(settings), elr=True) as player:
        LOG_LEVELS['root'] = 'INFO'
        for case, ours, theirs in played(cases, player): assert ours == theirs, case['name']
    LOG_LEVELS['root'] = 'INFO'


def test_every_setting_of_a_broker_that_we_show_is_one_of_kafkas():
    case = next(case for case in recorded('all-configs.jsonl') if case['name'] == 'every setting of the broker')
    theirs = {entry.name: entry for entry in answer_in(describe_configs, 4, bytes.fromhex(case['response_hex'])).results[0].configs}
    assert len(theirs) == 316 and theirs.keys() == {name for name, setting in BROKER_TABLE.items() if is_listed(setting)}
    for name, entry in theirs.items():
        assert (TYPES[entry.config_type], not entry.read_only) == (BROKER_TABLE[name].type, bool(BROKER_TABLE[name].changed)), name
        assert entry.is_sensitive == (BROKER_TABLE[name].type == 'PASSWORD'), name


def test_every_setting_is_explained():
    for setting in [*TOPIC_TABLE.values(), *BROKER_TABLE.values(), *GROUP_TABLE.values(), *CLIENT_METRICS_TABLE.values()]:
        assert re.fullmatch('[A-Z].*[.?)]', setting.about) and '\n' not in setting.about, setting.name
    assert len(TOPIC_TABLE) == 33


# --- All settings -----------------------------------------------------------------------------------------------------

# What a broker with a file of six lines has in it, and what its machine is.
IN_ITS_FILE = {'process.roles', 'controller.listener.names', 'controller.quorum.voters', 'listeners', 'log.dirs'}
OUR_DEFAULTS = {'listeners': 'PLAINTEXT://localhost:9092', 'log.dirs': '/tmp/kraft-combined-logs', 'group.initial.rebalance.delay.ms': '0'}
# Where Kafka's definition has no bounds: for some it has them elsewhere in its program, and for the others no number outside of ours means anything.
OUR_BOUNDS = {'broker.id': '0..', 'connections.max.idle.ms': '-1..', 'connections.max.reauth.ms': '0..', 'default.replication.factor': '1..',
              'group.initial.rebalance.delay.ms': '0..', 'group.min.session.timeout.ms': '0..', 'group.max.session.timeout.ms': '0..', 'log.flush.interval.ms': '0..',
              'log.retention.hours': '-1..', 'log.retention.minutes': '-1..', 'log.retention.ms': '-1..', 'log.roll.jitter.ms': '0..', 'log.roll.ms': '1..',
              'offset.metadata.max.bytes': '0..', 'sasl.server.max.receive.size': '1..', 'leader.replication.throttled.replicas': 'replicas',
              'follower.replication.throttled.replicas': 'replicas'}
# A change that passes by its type and bounds is tried out by a real broker: with its other settings, its threads, its classes, its listeners. We keep it.
TRIED_OUT = """listeners listener.security.protocol.map log.cleaner.dedupe.buffer.size log.cleaner.threads max.connection.creation.rate max.connections
    max.connections.per.ip max.connections.per.ip.overrides metric.reporters num.replica.fetchers principal.builder.class ssl.engine.factory.class""".split()
# These can be changed in Kafka for one listener only; we keep them for all, and say that they have no effect.
PER_LISTENER = [name for name in BROKER_TABLE if name.startswith(('ssl.keystore.', 'ssl.truststore.')) or name == 'ssl.key.password']


def in_our_words(valid: str) -> str:
    "What Kafka allows, as our table writes it: `[1,...]` is `1..`"
    if valid in ('', 'non-null string', 'non-empty string', 'non-empty list'): return ''
    if valid.startswith('(case insensitive)'): return valid.partition(' [')[2][:-1] + ' (any case)'
    bounds = re.fullmatch(r'\[(-?[\d.]+),\.\.\.,?(-?[\d.]*)\]( or .+)?', valid)
    return f'{bounds[1]}..{bounds[2]}{bounds[3] or ""}' if bounds else valid[1:-1]


def test_the_table_is_what_kafkas_program_defines():
    kafka, ways = json.loads(DEFINITIONS.read_text()), {'cluster-wide': 'cluster', 'per-broker': 'broker', '': ''}
    assert BROKER_TABLE.keys() - kafka['broker'].keys() == {'super.users', 'allow.everyone.if.no.acl.found', 'internal.segment.bytes'}   # its authorizer's; a topic's
    assert not kafka['broker'].keys() - BROKER_TABLE.keys() and kafka['topic'].keys() - TOPIC_TABLE.keys() == {'internal.segment.bytes'}
    for table, definitions in ((BROKER_TABLE, kafka['broker']), (TOPIC_TABLE, kafka['topic'])):
        for name, ours in table.items():
            if name not in definitions: continue
            theirs = definitions[name]
            assert (ours.type, ours.default) == (theirs['type'], OUR_DEFAULTS.get(name, theirs['default'])), name
            assert ours.allowed == OUR_BOUNDS.get(name, in_our_words(theirs['valid'])), name
            assert ours.changed == (ways[theirs['update']] if table is BROKER_TABLE else 'topic') and ours.internal == theirs['internal'], name


@needs_kafka
def test_what_kafkas_program_defines_is_what_was_recorded():
    assert definitions() == json.loads(DEFINITIONS.read_text())


@needs_kafka
def test_the_sentences_are_our_own():
    "Facts may be carried over, words may not."
    kafkas = re.sub(r'\s+', ' ', re.sub('<[^>]*>', ' ', real_kafka.run_tool('kafka.server.KafkaConfig')))
    assert not [setting.about for setting in [*BROKER_TABLE.values(), *TOPIC_TABLE.values()] if setting.about in kafkas]


def test_all_settings_are_described_and_changed_as_by_a_real_broker(tmp_path):
    "316 of a broker, 33 of a topic; and for each that can be changed, what is said to values that it can't have."
    different = []
    with Played(tmp_path, elr=True) as player:
        for case, ours, theirs in played(recorded('all-configs.jsonl'), player):
            if case['name'] == 'every setting of the broker':
                assert len(ours.results[0].configs) == len(theirs.results[0].configs) == 316
                wrong = {a.name for a, b in zip(ours.results[0].configs, theirs.results[0].configs) if a != b}
                assert wrong == IN_ITS_FILE | OUR_DEFAULTS.keys()
            elif case['name'] == 'what is fixed':   # all names in one sentence: theirs has them in the order of a hash map
                said = [answer.responses[0].error_message for answer in (ours, theirs)]
                assert all(text.startswith('Cannot update these configs dynamically: ') for text in said)
                names = [set(re.findall(r'[a-z0-9]+(?:\.[a-z0-9]+)+', text)) for text in said]
                assert names[0] == names[1] and len(names[0]) == 336 - 90
            elif ours != theirs: different.append(case['name'].split()[0])
    assert {*different} == {*TRIED_OUT, *PER_LISTENER, 'log.flush.interval.ms', 'log.retention.ms', 'log.roll.jitter.ms', 'log.roll.ms'}


def test_what_a_setting_without_effect_says_of_itself(tmp_path):
    with Played(tmp_path) as player:
        request = settings_of((BROKER, '1', ['num.io.threads', 'fetch.max.bytes', 'producer.id.expiration.ms']))
        request.include_documentation = True
        said = {entry.name: entry.documentation for entry in player.ask(request).results[0].configs}
        assert {name for name, text in said.items() if text.endswith('(This broker does not act on it.)')} == {'num.io.threads', 'producer.id.expiration.ms'}
        assert said['fetch.max.bytes'] == BROKER_TABLE['fetch.max.bytes'].about


def test_a_change_without_effect_is_stored_and_noted(tmp_path):
    "As Kafka would: a cluster's settings outlive one of its brokers. What can't be changed there can't be changed here."
    with Played(tmp_path) as player:
        notes = []
        player.logs.note = notes.append
        said = [player.ask(alter((BROKER, who, [(name, SET, text)]))).responses[0] for who, name, text in (
            ('1', 'num.io.threads', '16'), ('', 'max.connections', '10'), ('1', 'num.io.threads', 'many'), ('1', 'broker.rack', 'b'), ('', 'num.network.threads', '0'))]
        assert [answer.error_code for answer in said] == [0, 0, 42, 42, 42]
        assert player.image.configs == {(BROKER, '1'): {'num.io.threads': '16'}, (BROKER, ''): {'max.connections': '10'}}
        assert len(notes) == 2 and notes[0].endswith('num.io.threads') and notes[1].endswith('max.connections')
        entry, = player.ask(settings_of((BROKER, '1', ['num.io.threads']))).results[0].configs
        assert (entry.value, entry.config_source, [each.value for each in entry.synonyms]) == ('16', Source.BROKER, ['16', '8'])


def test_every_reader_is_there():
    "The column `reader` names modules that exist; and what they find in a file has a name in the table."
    readers = {setting.reader for table in (BROKER_TABLE, TOPIC_TABLE, GROUP_TABLE) for setting in table.values()} - {''}
    assert 'security.tls' in readers and not [name for name in readers if importlib.util.find_spec(f'kafka_scratch.{name}') is None]


@pytest.mark.parametrize('bytes_, fine', [(1_048_575, False), (1_048_576, True)])
def test_how_small_a_segment_may_be_is_the_same_everywhere(tmp_path, bytes_, fine):
    "In the file, for a broker, for a topic, and for a new topic: as in Kafka 4.1."
    try: assert read_log_config(read_properties(f'log.segment.bytes={bytes_}', 'a file')).segment_bytes == bytes_ and fine
    except ConfigError as error: assert not fine and str(error) == "a file, line 1: log.segment.bytes takes a whole number from 1048576 to 2147483647, not '1048575'"
    with Played(tmp_path) as player:
        made, = player.ask(create(topic('orders', settings={'segment.bytes': str(bytes_)}))).topics
        player.ask(create(topic('other')))
        said = [player.ask(alter((kind, name, [(key, SET, str(bytes_))]))).responses[0].error_code
                for kind, name, key in ((TOPIC, 'other', 'segment.bytes'), (BROKER, '1', 'log.segment.bytes'), (BROKER, '', 'log.segment.bytes'))]
        assert [made.error_code, *said] == ([0, 0, 0, 0] if fine else [40, 40, 42, 42])


def test_what_a_file_may_say_about_logs_is_what_a_client_may():
    "Names in a chain, lists with blanks, and no bounds where there are none."
    def read(text): return read_log_config(read_properties(text, 'a file'))
    assert read('') == LogConfig()
    assert read('log.flush.scheduler.interval.ms=500').flush_ms == 500 and read('log.flush.scheduler.interval.ms=500\nlog.flush.interval.ms=9').flush_ms == 9
    assert read('log.roll.hours=2\nlog.retention.minutes=3\nlog.retention.hours=x') == LogConfig(segment_ms=7_200_000, retention_ms=180_000)
    assert read('log.cleanup.policy=delete , compact').cleanup_policy == 'delete,compact' and read('log.retention.bytes=-5').retention_bytes == -5
    assert read('internal.segment.bytes=14').segment_bytes == 14


@given(st.sampled_from([name for name, setting in OUR_TABLE.items() if setting.type in NUMBER_TYPES]), st.integers(-3, 3) | st.integers())
def test_a_number_in_a_file_is_read_within_its_bounds_or_refused_with_them(name, number):
    setting, properties = OUR_TABLE[name], Properties({name: (str(number), 7)}, 'a file')
    try: assert read_setting(properties, name) == number
    except ConfigError as error:
        least, most = map(int, re.fullmatch(rf'a file, line 7: {name} takes a whole number from (-?\d+) to (\d+), not .*', str(error)).groups())
        assert not least <= number <= most
    else: check_value(setting, number)


def test_documentation_comes_if_it_is_wanted(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders')))
        request = settings_of((TOPIC, 'orders', ['retention.ms']))
        request.include_documentation = True
        entry, = player.ask(request).results[0].configs
        assert entry.documentation == TOPIC_TABLE['retention.ms'].about


# --- They take effect -------------------------------------------------------------------------------------------------

def test_a_changed_setting_reaches_the_log(tmp_path):
    with Played(tmp_path, 'message.max.bytes=5000') as player:
        player.ask(create(topic('orders')))
        def config(): return player.logs.find(player.image.topics['orders'], 0).log.config
        assert (config().retention_ms, config().max_message_bytes, config().cleanup_policy) == (LogConfig().retention_ms, 5000, 'delete')
        player.ask(alter((TOPIC, 'orders', [('retention.ms', SET, ' +60000 '), ('cleanup.policy', APPEND, 'compact')])))
        assert (config().retention_ms, config().cleanup_policy) == (60000, 'delete,compact')
        player.ask(alter((BROKER, '', [('message.max.bytes', SET, '6000')])))
        assert config().max_message_bytes == 6000
        player.ask(alter((BROKER, '1', [('message.max.bytes', SET, '7000')])))
        assert config().max_message_bytes == 7000
        player.ask(alter((TOPIC, 'orders', [('max.message.bytes', SET, '8000'), ('retention.ms', DELETE, None)])))
        assert (config().retention_ms, config().max_message_bytes) == (LogConfig().retention_ms, 8000)
    with Played(tmp_path, 'message.max.bytes=5000') as player: assert config().max_message_bytes == 8000   # and after a restart


@pytest.mark.parametrize('name, text', [('log.cleanup.policy', 'compact, delete'), ('log.cleanup.policy', ''), ('log.cleanup.policy', 'delete,delete'), ('log.retention.bytes', '-5'),
                                        ('compression.type', ' gzip ')])
def test_what_is_set_for_brokers_takes_effect_whatever_else_is_set(tmp_path, name, text):
    with Played(tmp_path, 'message.max.bytes=1000') as player:
        player.ask(alter((BROKER, '', [('log.retention.ms', SET, '5000')])))
        assert player.ask(alter((BROKER, '', [(name, SET, text)]))).responses[0].error_code == 0
        field = {setting.broker: key.replace('.', '_') for key, setting in TOPIC_TABLE.items()}[name]
        found = getattr(player.logs.defaults, field)
        assert found == (int(text) if isinstance(found, int) else text.strip())
        assert (player.logs.defaults.retention_ms, player.logs.defaults.max_message_bytes) == (5000, 1000)


def test_of_what_somebody_else_set_for_brokers_only_what_can_be_counts():
    settings = {('', 'log.retention.ms'): '5000', ('1', 'log.retention.ms'): 'soon', ('1', 'compression.type'): 'zip', ('1', 'log.segment.bytes'): '13', ('1', 'message.max.bytes'): '7',
                ('2', 'message.max.bytes'): '8', ('', 'log.cleanup.policy'): 'shred'}
    image = Image()
    for (who, name), text in settings.items(): config_set(image, ConfigRecord(resource_type=BROKER, resource_name=who, name=name, value=text))
    file = Properties({'log.segment.bytes': ('2000000', 1)}, 'a file')
    assert log_defaults(file, 1, image) == LogConfig(retention_ms=5000, max_message_bytes=7, segment_bytes=2_000_000)


def test_a_file_that_cannot_be_right_is_named_to_whoever_meets_it(tmp_path):
    with Played(tmp_path, 'log.cleaner.max.compaction.lag.ms=often\ngroup.consumer.min.session.timeout.ms=long') as player:
        made, = player.ask(create(topic('orders'))).topics
        assert made.error_code == 40 and 'often for configuration log.cleaner.max.compaction.lag.ms' in made.error_message
        changed, = player.ask(alter((GROUP, 'g', [('consumer.session.timeout.ms', SET, '50000')]))).responses
        assert changed.error_code == 40 and 'long for configuration group.consumer.min.session.timeout.ms' in changed.error_message


def test_topics_of_one_request_do_not_share_what_is_their_own(tmp_path):
    with Played(tmp_path) as player:
        first, second = player.ask(create(topic('a', settings={'retention.ms': '5'}), topic('b'))).topics
        of = [{each.name: (each.value, each.config_source) for each in made.configs}['retention.ms'] for made in (first, second)]
        seen = player.ask(settings_of((TOPIC, 'b', None), (TOPIC, 'a', None), (TOPIC, 'b', ['retention.ms']))).results
        values = [{each.name: each.value for each in result.configs}['retention.ms'] for result in seen]
        assert of == [('5', 1), ('604800000', 5)] and values == ['604800000', '5', '604800000'] and [len(result.configs) for result in seen] == [33, 33, 1]


def test_nothing_is_written_for_nothing(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders', settings={'retention.ms': '5'})))
        before = player.image.last_offset
        for changes in ([('retention.ms', SET, '5')], [('segment.ms', DELETE, None)], [('retention.ms', SET, 'x')], []): player.ask(alter((TOPIC, 'orders', changes)))
        player.ask(alter((TOPIC, 'orders', [('retention.ms', SET, '6')]), validate_only=True))
        assert player.image.last_offset == before


def test_if_the_disk_refuses_nothing_has_changed(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders')))
        def full(records): raise StorageError('no space left')
        player.controller.write = full
        answer, = player.ask(alter((TOPIC, 'orders', [('retention.ms', SET, '6')]))).responses
        assert (answer.error_code, answer.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, None) and not player.image.configs


def test_more_than_ten_thousand_records_are_refused(tmp_path):
    with Played(tmp_path) as player:
        answer, = player.ask(alter((BROKER, '1', [(f'my.{n}', SET, 'x') for n in range(10_001)]))).responses
        assert answer.error_code == ErrorCode.POLICY_VIOLATION and not player.image.configs


def test_what_has_no_effect_is_noted(tmp_path):
    "`ssl.keystore.location` is accepted, as Kafka does; but who changes it should know that nothing happens."
    with Played(tmp_path) as player:
        notes = []
        player.logs.note = notes.append
        for changes in ([('log.retention.ms', SET, '5')], [('ssl.keystore.location', SET, 'x'), ('ssl.key.password', SET, 'open sesame')], [('ssl.key.password', DELETE, None)]):
            answer, = player.ask(alter((BROKER, '1', changes))).responses
            assert answer.error_code == 0
        assert len(notes) == 1 and 'ssl.key.password, ssl.keystore.location' in notes[0] and 'sesame' not in notes[0]


@pytest.mark.parametrize('kind, name, key, value', [
    (TOPIC, 'orders', 'min.cleanable.dirty.ratio', '1e999'), (TOPIC, 'orders', 'min.cleanable.dirty.ratio', '-1e999'), (BROKER, '1' * 5000, 'log.retention.ms', '5'),
    (BROKER_LOGGER, '1' * 5000, 'root', 'INFO'), (CLIENT_METRICS, 'sub', 'match', 'client_id=' + '(' * 5000 + ')' * 5000), (CLIENT_METRICS, 'sub', 'match', 'client_id=a{99999999999999999999}')])
def test_odd_values_are_refused(tmp_path, kind, name, key, value):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders')))
        answer, = player.ask(alter((kind, name, [(key, SET, value)]))).responses
        assert answer.error_code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST) and answer.error_message and not player.image.configs


# --- Who may ----------------------------------------------------------------------------------------------------------

def test_who_may_not_look_or_change_is_told_so_and_nothing_else(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders')))
        asked = []
        player.node.authorizer = lambda caller, *what: asked.append(what)
        seen = player.ask(settings_of((TOPIC, 'orders', None), (TOPIC, 'nobody', None), (GROUP, 'g', None), (BROKER, '1', None), (BROKER_LOGGER, '1', None), (CLIENT_METRICS, 'x', None)))
        assert [each.error_code for each in seen.results] == [29, 29, 30, 31, 31, 31] and not any(each.configs for each in seen.results)
        changed = player.ask(alter((TOPIC, 'orders', [('retention.ms', SET, '1')]), (GROUP, 'g', []), (BROKER, '1', []), (BROKER_LOGGER, '1', []), (CLIENT_METRICS, 'x', [])))
        assert [each.error_code for each in changed.responses] == [29, 30, 31, 31, 31] and not player.image.configs
        assert [each.error_code for each in player.ask(replace((TOPIC, 'orders', [('retention.ms', '1')]))).responses] == [29]
        assert player.ask(ListConfigResourcesRequest()).error_code == 31
        assert set(asked) == {(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, 'orders'), (Operation.DESCRIBE_CONFIGS, Resource.TOPIC, 'nobody'),
                              (Operation.DESCRIBE_CONFIGS, Resource.GROUP, 'g'), (Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, 'kafka-cluster'),
                              (Operation.ALTER_CONFIGS, Resource.TOPIC, 'orders'), (Operation.ALTER_CONFIGS, Resource.GROUP, 'g'),
                              (Operation.ALTER_CONFIGS, Resource.CLUSTER, 'kafka-cluster')}


# --- Which names there are --------------------------------------------------------------------------------------------

# Kafka reads these as well, but its documentation doesn't have them. The last two are its authorizer's.
UNDOCUMENTED = """controller.performance.always.log.threshold.ms controller.performance.sample.period.ms group.consumer.regex.refresh.interval.ms
    group.share.enable group.share.persister.class.name internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
    internal.metadata.max.batch.size.in.bytes internal.metadata.max.fetch.size.in.bytes log.initial.task.delay.ms producer.id.expiration.check.interval.ms
    remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter server.max.startup.time.ms
    share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.state.topic.prune.interval.ms unclean.leader.election.interval.ms
    unstable.api.versions.enable unstable.feature.versions.enable super.users allow.everyone.if.no.acl.found""".split()


def test_every_setting_with_a_meaning_has_a_name():
    assert {*BROKER_TABLE, *OUR_TABLE} == setting_names() and len(setting_names() - {'internal.segment.bytes'}) == 338


@needs_kafka
def test_the_names_are_those_of_kafka():
    "Its documentation is made by a program of its own, from the definitions that it runs with."
    documented = set(re.findall('id="brokerconfigs_([a-z0-9._]+)"', real_kafka.run_tool('kafka.server.KafkaConfig')))
    assert len(documented) > 300 and setting_names() - {'internal.segment.bytes'} == {*documented, *UNDOCUMENTED}


@given(st.sampled_from(sorted(setting_names())), st.data())
def test_one_wrong_letter_is_recognized(name, data):
    "Left out, put in or changed: what was meant is named, unless the mistake is itself the name of a setting."
    at, letter = data.draw(st.integers(0, len(name) - 1)), data.draw(st.sampled_from('aeinorst.'))
    wrong = data.draw(st.sampled_from([name[:at] + name[at + 1:], name[:at] + letter + name[at:], name[:at] + letter + name[at + 1:]]))
    if wrong in setting_names(): assert unknown_settings([wrong]) == {}
    else: assert unknown_settings([wrong])[wrong] is not None


def test_names_that_anybody_may_make_up():
    known = [f'listener.name.internal.{name}' for name in ('ssl.client.auth', 'scram-sha-512.sasl.jaas.config', 'plain.sasl.server.callback.handler.class',
                                                           'connections.max.reauth.ms', 'sasl.enabled.mechanisms', 'max.connections')]
    assert unknown_settings([*known, 'config.providers.env.class', 'config.providers.env.param.x', 'rsm.config.bucket', 'confluent.license']) == {}
    assert unknown_settings(['listener.name.internal.ssl.client.atuh']) == {'listener.name.internal.ssl.client.atuh': 'listener.name.internal.ssl.client.auth'}
    assert unknown_settings(['client.quota.callback.static.produce', 'client.quota.callback.class']) == {}


# --- Whatever comes ---------------------------------------------------------------------------------------------------

TEXTS = st.one_of(st.text(max_size=8), st.integers().map(str), st.floats().map(str), st.sampled_from(['true', 'delete', 'compact,delete', '*', '0:1']))

@given(st.sampled_from(list(TOPIC_TABLE.values())), TEXTS)
def test_a_value_is_refused_with_a_sentence_or_stays_what_it_is(setting, text):
    try: value = parse_value(setting, text); check_value(setting, value)
    except ApiError as fault: assert fault.code == ErrorCode.INVALID_CONFIG and setting.name in fault.message
    else: assert parse_value(setting, show_value(value)) == value


@pytest.mark.parametrize('text', ['1' * 32_000 + 'x', '1' * 32_000, '.' + '1' * 32_000 + 'x', 'a' + ' ' * 32_000 + 'b', ',' * 32_000, '1e' + '1' * 32_000], ids=lambda text: text[:2])
def test_no_value_takes_long_to_read(text):
    "While one is read, nobody else is served."
    started = time.process_time()
    for setting in TOPIC_TABLE.values():
        try: check_value(setting, parse_value(setting, text))
        except ApiError: pass
    assert time.process_time() - started < 2


if __name__ == '__main__': record_all()
