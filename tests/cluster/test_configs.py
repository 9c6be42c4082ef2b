"""Settings: what a real broker says about them, what becomes of them, and who may see them.

`tests/record/configs.py` has the conversations with a real Kafka again; `tests/record/record_configs.py` records the
definitions of all settings, and
what a broker says about all of them.
"""
import importlib.util
import json
import re
import time

import pytest

from size import needs_kafka
from hypothesis import given, strategies as st

from admin_by_hand import *
from benchmarks import real_kafka
from player import recorded
from record_configs import DEFINITIONS, NUMBERS as NUMBER_TYPES, definitions
from kafka_scratch.cluster.properties import ConfigError
from kafka_scratch.cluster.config import read_log_config, setting_names, unknown_settings
from kafka_scratch.cluster.properties import Properties, read_properties
from kafka_scratch.wire.codes import ApiError, ErrorCode, Operation, Resource
from kafka_scratch.cluster.image import Image, config_set
from kafka_scratch.log.partition import LogConfig, StorageError

# --- What a real broker said ------------------------------------------------------------------------------------------

def test_every_setting_of_a_broker_that_we_show_is_one_of_kafkas():
    case = next(case for case in recorded('all-configs.jsonl') if case['name'] == 'every setting of the broker')
    theirs = {entry.name: entry for entry in answer_in(describe_configs, 4,
                                                       bytes.fromhex(case['response_hex'])).results[0].configs}
    assert len(theirs) == 316 and theirs.keys() == {name for name,
                                                    setting in BROKER_TABLE.items() if is_listed(setting)}
    for name, entry in theirs.items():
        assert (TYPES[entry.config_type], not entry.read_only) == (BROKER_TABLE[name].type,
                                                                   bool(BROKER_TABLE[name].changed)), name
        assert entry.is_sensitive == (BROKER_TABLE[name].type == 'PASSWORD'), name


def test_every_setting_is_explained():
    for setting in [*TOPIC_TABLE.values(), *BROKER_TABLE.values(), *GROUP_TABLE.values(),
                    *CLIENT_METRICS_TABLE.values()]:
        assert re.fullmatch('[A-Z].*[.?)]', setting.about) and '\n' not in setting.about, setting.name
    assert len(TOPIC_TABLE) == 33


# --- All settings -----------------------------------------------------------------------------------------------------

# What a broker with a file of six lines has in it, and what its machine is.
IN_ITS_FILE = {'process.roles', 'controller.listener.names', 'controller.quorum.voters', 'listeners', 'log.dirs'}
OUR_DEFAULTS = {'listeners': 'PLAINTEXT://localhost:9092', 'log.dirs': '/tmp/kraft-combined-logs',
                'group.initial.rebalance.delay.ms': '0'}
# Where Kafka's definition has no bounds: for some it has them elsewhere in its program, and for the others no number
# outside of ours means anything.
OUR_BOUNDS = {'broker.id': '0..', 'connections.max.idle.ms': '-1..', 'connections.max.reauth.ms': '0..',
              'default.replication.factor': '1..',
              'group.initial.rebalance.delay.ms': '0..', 'group.min.session.timeout.ms': '0..',
              'group.max.session.timeout.ms': '0..', 'log.flush.interval.ms': '0..',
              'log.retention.hours': '-1..', 'log.retention.minutes': '-1..', 'log.retention.ms': '-1..',
              'log.roll.jitter.ms': '0..', 'log.roll.ms': '1..',
              'offset.metadata.max.bytes': '0..', 'sasl.server.max.receive.size': '1..',
              'leader.replication.throttled.replicas': 'replicas',
              'follower.replication.throttled.replicas': 'replicas'}
# A change that passes by its type and bounds is tried out by a real broker: with its other settings, its threads, its
# classes, its listeners. We keep it.
TRIED_OUT = """listeners listener.security.protocol.map log.cleaner.dedupe.buffer.size log.cleaner.threads max.connection.creation.rate max.connections
    max.connections.per.ip max.connections.per.ip.overrides metric.reporters num.replica.fetchers principal.builder.class ssl.engine.factory.class""".split()  # noqa: E501
# These can be changed in Kafka for one listener only; we keep them for all, and say that they have no effect.
PER_LISTENER = [name for name in BROKER_TABLE if name.startswith(('ssl.keystore.',
                                                                  'ssl.truststore.')) or name == 'ssl.key.password']


def in_our_words(valid: str) -> str:
    "What Kafka allows, as our table writes it: `[1,...]` is `1..`"
    if valid in ('', 'non-null string', 'non-empty string', 'non-empty list'): return ''
    if valid.startswith('(case insensitive)'): return valid.partition(' [')[2][:-1] + ' (any case)'
    bounds = re.fullmatch(r'\[(-?[\d.]+),\.\.\.,?(-?[\d.]*)\]( or .+)?', valid)
    return f'{bounds[1]}..{bounds[2]}{bounds[3] or ""}' if bounds else valid[1:-1]


def test_the_table_is_what_kafkas_program_defines():
    kafka, ways = json.loads(DEFINITIONS.read_text()), {'cluster-wide': 'cluster', 'per-broker': 'broker', '': ''}
    # its authorizer's; a topic's
    assert BROKER_TABLE.keys() - kafka['broker'].keys() == {'super.users', 'allow.everyone.if.no.acl.found',
                                                            'internal.segment.bytes'}
    assert (not kafka['broker'].keys() - BROKER_TABLE.keys()
            and kafka['topic'].keys() - TOPIC_TABLE.keys() == {'internal.segment.bytes'})
    for table, definitions in ((BROKER_TABLE, kafka['broker']), (TOPIC_TABLE, kafka['topic'])):
        for name, ours in table.items():
            if name not in definitions: continue
            theirs = definitions[name]
            assert (ours.type, ours.default) == (theirs['type'], OUR_DEFAULTS.get(name, theirs['default'])), name
            assert ours.allowed == OUR_BOUNDS.get(name, in_our_words(theirs['valid'])), name
            assert ours.changed == (ways[theirs['update']] if table is BROKER_TABLE
                                    else 'topic') and ours.internal == theirs['internal'], name


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
            # all names in one sentence: theirs has them in the order of a hash map
            elif case['name'] == 'what is fixed':
                said = [answer.responses[0].error_message for answer in (ours, theirs)]
                assert all(text.startswith('Cannot update these configs dynamically: ') for text in said)
                names = [set(re.findall(r'[a-z0-9]+(?:\.[a-z0-9]+)+', text)) for text in said]
                assert names[0] == names[1] and len(names[0]) == 336 - 90
            elif ours != theirs: different.append(case['name'].split()[0])
    assert {*different} == {*TRIED_OUT, *PER_LISTENER, 'log.flush.interval.ms', 'log.retention.ms',
                            'log.roll.jitter.ms', 'log.roll.ms'}


def test_what_a_setting_without_effect_says_of_itself(tmp_path):
    with Played(tmp_path) as player:
        request = settings_of((BROKER, '1', ['num.io.threads', 'fetch.max.bytes', 'producer.id.expiration.ms']))
        request.include_documentation = True
        said = {entry.name: entry.documentation for entry in player.ask(request).results[0].configs}
        assert {name for name, text in said.items()
                if text.endswith('(This broker does not act on it.)')} == {'num.io.threads',
                    'producer.id.expiration.ms'}
        assert said['fetch.max.bytes'] == BROKER_TABLE['fetch.max.bytes'].about


def test_a_change_without_effect_is_stored_and_noted(tmp_path):
    """As Kafka would: a cluster's settings outlive one of its brokers. What can't be changed there can't be changed
    here."""
    with Played(tmp_path) as player:
        notes = []
        player.logs.note = notes.append
        said = [player.ask(alter((BROKER, who, [(name, SET, text)]))).responses[0] for who, name, text in (
            ('1', 'num.io.threads', '16'), ('', 'background.threads', '20'), ('1', 'num.io.threads', 'many'),
            ('1', 'broker.rack', 'b'), ('', 'num.network.threads', '0'))]
        assert [answer.error_code for answer in said] == [0, 0, 42, 42, 42]
        assert player.image.configs == {(BROKER, '1'): {'num.io.threads': '16'},
                                        (BROKER, ''): {'background.threads': '20'}}
        assert len(notes) == 2 and notes[0].endswith('num.io.threads') and notes[1].endswith('background.threads')
        entry, = player.ask(settings_of((BROKER, '1', ['num.io.threads']))).results[0].configs
        assert (entry.value, entry.config_source, [each.value for each in entry.synonyms]) == ('16', Source.BROKER,
            ['16', '8'])


def test_every_reader_is_there():
    "The column `reader` names modules that exist; and what they find in a file has a name in the table."
    readers = {setting.reader for table in (BROKER_TABLE, TOPIC_TABLE,
                                            GROUP_TABLE) for setting in table.values()} - {''}
    assert 'security.tls' in readers and not [name for name in readers
                                              if importlib.util.find_spec(f'kafka_scratch.{name}') is None]


@pytest.mark.parametrize('bytes_, fine', [(1_048_575, False), (1_048_576, True)])
def test_how_small_a_segment_may_be_is_the_same_everywhere(tmp_path, bytes_, fine):
    "In the file, for a broker, for a topic, and for a new topic: as in Kafka 4.1."
    try:
        assert read_log_config(read_properties(f'log.segment.bytes={bytes_}',
                                               'a file')).segment_bytes == bytes_ and fine
    except ConfigError as error:
        assert (not fine
                and str(
                    error) == "a file, line 1: log.segment.bytes takes a whole number from 1048576 to 2147483647, not "
                              "'1048575'")
    with Played(tmp_path) as player:
        made, = player.ask(create(topic('orders', settings={'segment.bytes': str(bytes_)}))).topics
        player.ask(create(topic('other')))
        said = [player.ask(alter((kind, name, [(key, SET, str(bytes_))]))).responses[0].error_code
                for kind, name, key in ((TOPIC, 'other', 'segment.bytes'), (BROKER, '1', 'log.segment.bytes'),
                                        (BROKER, '', 'log.segment.bytes'))]
        assert [made.error_code, *said] == ([0, 0, 0, 0] if fine else [40, 40, 42, 42])


def test_what_a_file_may_say_about_logs_is_what_a_client_may():
    "Names in a chain, lists with blanks, and no bounds where there are none."
    def read(text): return read_log_config(read_properties(text, 'a file'))
    assert read('') == LogConfig()
    assert (read('log.flush.scheduler.interval.ms=500').flush_ms == 500
            and read('log.flush.scheduler.interval.ms=500\nlog.flush.interval.ms=9').flush_ms == 9)
    assert read('log.roll.hours=2\nlog.retention.minutes=3\nlog.retention.hours=x') == LogConfig(segment_ms=7_200_000,
        retention_ms=180_000)
    assert (read('log.cleanup.policy=delete , compact').cleanup_policy == 'delete,compact'
            and read('log.retention.bytes=-5').retention_bytes == -5)
    assert read('internal.segment.bytes=14').segment_bytes == 14


@given(st.sampled_from([name for name, setting in OUR_TABLE.items() if setting.type in NUMBER_TYPES]),
       st.integers(-3, 3) | st.integers())
def test_a_number_in_a_file_is_read_within_its_bounds_or_refused_with_them(name, number):
    setting, properties = OUR_TABLE[name], Properties({name: (str(number), 7)}, 'a file')
    try: assert read_setting(properties, name) == number
    except ConfigError as error:
        least, most = map(
            int, re.fullmatch(rf'a file, line 7: {name} takes a (?:whole )?number from (-?\d+) to (\d+), not .*',
                              str(error)).groups())
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
        assert (config().retention_ms, config().max_message_bytes,
                config().cleanup_policy) == (LogConfig().retention_ms, 5000, 'delete')
        player.ask(alter((TOPIC, 'orders', [('retention.ms', SET, ' +60000 '), ('cleanup.policy', APPEND, 'compact')])))
        assert (config().retention_ms, config().cleanup_policy) == (60000, 'delete,compact')
        player.ask(alter((BROKER, '', [('message.max.bytes', SET, '6000')])))
        assert config().max_message_bytes == 6000
        player.ask(alter((BROKER, '1', [('message.max.bytes', SET, '7000')])))
        assert config().max_message_bytes == 7000
        player.ask(alter((TOPIC, 'orders', [('max.message.bytes', SET, '8000'), ('retention.ms', DELETE, None)])))
        assert (config().retention_ms, config().max_message_bytes) == (LogConfig().retention_ms, 8000)
    # and after a restart
    with Played(tmp_path, 'message.max.bytes=5000') as player: assert config().max_message_bytes == 8000


@pytest.mark.parametrize('name, text', [('log.cleanup.policy', 'compact, delete'), ('log.cleanup.policy', ''),
                                        ('log.cleanup.policy', 'delete,delete'), ('log.retention.bytes', '-5'),
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
    settings = {('', 'log.retention.ms'): '5000', ('1', 'log.retention.ms'): 'soon', ('1', 'compression.type'): 'zip',
                ('1', 'log.segment.bytes'): '13', ('1', 'message.max.bytes'): '7',
                ('2', 'message.max.bytes'): '8', ('', 'log.cleanup.policy'): 'shred'}
    image = Image()
    for (who, name), text in settings.items():
        config_set(image, ConfigRecord(resource_type=BROKER, resource_name=who, name=name, value=text))
    file = Properties({'log.segment.bytes': ('2000000', 1)}, 'a file')
    assert log_defaults(file, 1, image) == LogConfig(retention_ms=5000, max_message_bytes=7, segment_bytes=2_000_000)


def test_a_file_that_cannot_be_right_is_named(tmp_path):
    with pytest.raises(ConfigError, match='log.cleaner.max.compaction.lag.ms takes a whole number'):
        Played(tmp_path, 'log.cleaner.max.compaction.lag.ms=often')
    with Played(tmp_path, 'group.consumer.min.session.timeout.ms=long') as player:
        changed, = player.ask(alter((GROUP, 'g', [('consumer.session.timeout.ms', SET, '50000')]))).responses
        assert (changed.error_code == 40
                and 'long for configuration group.consumer.min.session.timeout.ms' in changed.error_message)


def test_topics_of_one_request_do_not_share_what_is_their_own(tmp_path):
    with Played(tmp_path) as player:
        first, second = player.ask(create(topic('a', settings={'retention.ms': '5'}), topic('b'))).topics
        of = [{each.name: (each.value, each.config_source) for each in made.configs}['retention.ms'] for made in (first,
            second)]
        seen = player.ask(settings_of((TOPIC, 'b', None), (TOPIC, 'a', None), (TOPIC, 'b', ['retention.ms']))).results
        values = [{each.name: each.value for each in result.configs}['retention.ms'] for result in seen]
        assert of == [('5', 1), ('604800000', 5)] and values == ['604800000', '5',
                                                                 '604800000'] and [len(result.configs) for result
                                                                     in seen] == [33, 33, 1]


def test_nothing_is_written_for_nothing(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders', settings={'retention.ms': '5'})))
        before = player.image.last_offset
        for changes in ([('retention.ms', SET, '5')], [('segment.ms', DELETE, None)], [('retention.ms', SET, 'x')], []):
            player.ask(alter((TOPIC, 'orders', changes)))
        player.ask(alter((TOPIC, 'orders', [('retention.ms', SET, '6')]), validate_only=True))
        assert player.image.last_offset == before


def test_if_the_disk_refuses_nothing_has_changed(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders')))
        def full(records): raise StorageError('no space left')
        player.controller.write = full
        answer, = player.ask(alter((TOPIC, 'orders', [('retention.ms', SET, '6')]))).responses
        assert (answer.error_code, answer.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR,
                                                             None) and not player.image.configs


def test_more_than_ten_thousand_records_are_refused(tmp_path):
    with Played(tmp_path) as player:
        answer, = player.ask(alter((BROKER, '1', [(f'my.{n}', SET, 'x') for n in range(10_001)]))).responses
        assert answer.error_code == ErrorCode.POLICY_VIOLATION and not player.image.configs


def test_what_has_no_effect_is_noted(tmp_path):
    "`ssl.keystore.location` is accepted, as Kafka does; but who changes it should know that nothing happens."
    with Played(tmp_path) as player:
        notes = []
        player.logs.note = notes.append
        for changes in ([('log.retention.ms', SET, '5')], [('ssl.keystore.location', SET, 'x'),
                                                           ('ssl.key.password', SET, 'open sesame')],
                                                           [('ssl.key.password', DELETE, None)]):
            answer, = player.ask(alter((BROKER, '1', changes))).responses
            assert answer.error_code == 0
        assert len(notes) == 1 and 'ssl.key.password, ssl.keystore.location' in notes[0] and 'sesame' not in notes[0]


@pytest.mark.parametrize('kind, name, key, value', [
    (TOPIC, 'orders', 'min.cleanable.dirty.ratio', '1e999'), (TOPIC, 'orders', 'min.cleanable.dirty.ratio', '-1e999'),
    (BROKER, '1' * 5000, 'log.retention.ms', '5'),
    (BROKER_LOGGER, '1' * 5000, 'root', 'INFO'), (CLIENT_METRICS, 'sub', 'match',
                                                  'client_id=' + '(' * 5000 + ')' * 5000),
                                                  (CLIENT_METRICS, 'sub', 'match',
                                                   'client_id=a{99999999999999999999}')])
def test_odd_values_are_refused(tmp_path, kind, name, key, value):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders')))
        answer, = player.ask(alter((kind, name, [(key, SET, value)]))).responses
        assert answer.error_code in (ErrorCode.INVALID_CONFIG,
                                     ErrorCode.INVALID_REQUEST) and answer.error_message and not player.image.configs


# --- Who may ----------------------------------------------------------------------------------------------------------

def test_who_may_not_look_or_change_is_told_so_and_nothing_else(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders')))
        asked = []
        player.node.authorizer = lambda caller, *what: asked.append(what)
        seen = player.ask(settings_of((TOPIC, 'orders', None), (TOPIC, 'nobody', None), (GROUP, 'g', None),
                                      (BROKER, '1', None), (BROKER_LOGGER, '1', None), (CLIENT_METRICS, 'x', None)))
        assert [each.error_code for each in seen.results] == [29, 29, 30, 31, 31,
                                                              31] and not any(each.configs for each in seen.results)
        changed = player.ask(alter((TOPIC, 'orders', [('retention.ms', SET, '1')]), (GROUP, 'g', []), (BROKER, '1', []),
                                   (BROKER_LOGGER, '1', []), (CLIENT_METRICS, 'x', [])))
        assert [each.error_code for each in changed.responses] == [29, 30, 31, 31, 31] and not player.image.configs
        assert [each.error_code for each in player.ask(replace((TOPIC, 'orders',
                                                                [('retention.ms', '1')]))).responses] == [29]
        assert player.ask(ListConfigResourcesRequest()).error_code == 31
        assert set(asked) == {(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, 'orders'),
                              (Operation.DESCRIBE_CONFIGS, Resource.TOPIC, 'nobody'),
                              (Operation.DESCRIBE_CONFIGS, Resource.GROUP, 'g'),
                              (Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, 'kafka-cluster'),
                              (Operation.ALTER_CONFIGS, Resource.TOPIC, 'orders'),
                              (Operation.ALTER_CONFIGS, Resource.GROUP, 'g'),
                              (Operation.ALTER_CONFIGS, Resource.CLUSTER, 'kafka-cluster')}


# --- Which names there are --------------------------------------------------------------------------------------------

# Kafka reads these as well, but its documentation doesn't have them. The last two are its authorizer's.
UNDOCUMENTED = """controller.performance.always.log.threshold.ms controller.performance.sample.period.ms group.consumer.regex.refresh.interval.ms
    group.share.enable group.share.persister.class.name internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
    internal.metadata.max.batch.size.in.bytes internal.metadata.max.fetch.size.in.bytes log.initial.task.delay.ms producer.id.expiration.check.interval.ms
    remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter server.max.startup.time.ms
    share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.state.topic.prune.interval.ms unclean.leader.election.interval.ms
    unstable.api.versions.enable unstable.feature.versions.enable super.users allow.everyone.if.no.acl.found""".split()  # noqa: E501


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
    wrong = data.draw(st.sampled_from([name[:at] + name[at + 1:], name[:at] + letter + name[at:],
                                       name[:at] + letter + name[at + 1:]]))
    if wrong in setting_names(): assert unknown_settings([wrong]) == {}
    else: assert unknown_settings([wrong])[wrong] is not None


def test_names_that_anybody_may_make_up():
    known = [f'listener.name.internal.{name}' for name in ('ssl.client.auth', 'scram-sha-512.sasl.jaas.config',
                                                           'plain.sasl.server.callback.handler.class',
                                                           'connections.max.reauth.ms', 'sasl.enabled.mechanisms',
                                                           'max.connections')]
    assert unknown_settings([*known, 'config.providers.env.class', 'config.providers.env.param.x', 'rsm.config.bucket',
                             'confluent.license']) == {}
    assert (unknown_settings(['listener.name.internal.ssl.client.atuh'])
            == {'listener.name.internal.ssl.client.atuh': 'listener.name.internal.ssl.client.auth'})
    assert unknown_settings(['client.quota.callback.static.produce', 'client.quota.callback.class']) == {}


# --- Whatever comes ---------------------------------------------------------------------------------------------------

TEXTS = st.one_of(st.text(max_size=8), st.integers().map(str), st.floats().map(str),
                  st.sampled_from(['true', 'delete', 'compact,delete', '*', '0:1']))

@given(st.sampled_from(list(TOPIC_TABLE.values())), TEXTS)
def test_a_value_is_refused_with_a_sentence_or_stays_what_it_is(setting, text):
    try: value = parse_value(setting, text); check_value(setting, value)
    except ApiError as fault: assert fault.code == ErrorCode.INVALID_CONFIG and setting.name in fault.message
    else: assert parse_value(setting, show_value(value)) == value


@pytest.mark.parametrize('text', ['1' * 32_000 + 'x', '1' * 32_000, '.' + '1' * 32_000 + 'x', 'a' + ' ' * 32_000 + 'b',
                                  ',' * 32_000, '1e' + '1' * 32_000], ids=lambda text: text[:2])
def test_no_value_takes_long_to_read(text):
    "While one is read, nobody else is served."
    started = time.process_time()
    for setting in TOPIC_TABLE.values():
        try: check_value(setting, parse_value(setting, text))
        except ApiError: pass
    assert time.process_time() - started < 2
