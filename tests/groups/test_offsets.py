"""Committed offsets: what a real broker says in four conversations, and whether ours says the same; what is in the log,
and who can read it."""
import json
import zipfile
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from size import needs_kafka
from benchmarks import real_kafka, wire
from broker_process import Client, running, wait_until
import declarations
from offset_conversations import *
from player import RECORDED, answer_in, framed, recorded
from kafka_scratch.cluster.settings_table import NO_FILE
from kafka_scratch.cluster.properties import ConfigError, Properties
from kafka_scratch.groups.coordinator import GroupCoordinator, Timers, replay
from kafka_scratch.wire.codes import Operation, Resource
from kafka_scratch.apis.api import Call, Node, read_request
from kafka_scratch.groups.offset_expiry import *
from kafka_scratch.groups.offsets import *
from kafka_scratch.groups.offset_apis import *
from kafka_scratch.log.partition import StorageError
from kafka_scratch.log.records import read_batches, read_records
from kafka_scratch.wire.schema import kafka_json, version_range

# --- The same conversations with ours ---------------------------------------------------------------------------------

SAID = recorded('offsets.jsonl')
OURS = {name.replace('.', '_'): value for name, value in SETTINGS.items()}


def made(port: int, topics: dict[str, int]):
    with Client(port) as client: said = wire.parse_create_topics(client.ask(wire.create_topics_request(topics)))
    assert not any(said.values()), said


def compare(name: str, cases: list[dict]):
    theirs = {case['name']: case for case in SAID if case['conversation'] == name}
    assert [case['name'] for case in cases] == list(theirs)
    different = {case['name']: (case['response_hex'], theirs[case['name']]['response_hex']) for case in cases
                 if in_order(case, bytes.fromhex(case['response_hex'])) != in_order(case,
                     bytes.fromhex(theirs[case['name']]['response_hex']))}
    assert not different


def everything(port: int) -> dict:
    "What all groups of the conversations have committed."
    names = sorted({group for case in SAID for group in groups_of(case)})
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
    with Client(port) as client: said = answer_in(offset_fetch, 9, client.ask(framed(offset_fetch, 9, asked)))
    assert not any(group.error_code for group in said.groups)
    return {group.group_id: {(t.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch,
                                                           p.metadata) for t in group.topics for p in t.partitions}
            for group in said.groups if group.topics}


def groups_of(case: dict) -> list[str]:
    api = {8: offset_commit, 9: offset_fetch, 47: offset_delete}[case['api_key']]
    request = read_request(bytes.fromhex(case['request_hex'])[4:], api, case['api_version'])[1]
    return [group.group_id for group
            in request.groups] if case['api_key'] == 9 and case['api_version'] >= 8 else [request.group_id]


@pytest.fixture(scope='module')
def talked(tmp_path_factory):
    """A broker with which every conversation was held, and that was started again since; what it knew before, and what
    it has written."""
    where = tmp_path_factory.mktemp('talked')
    with running(where, **OURS) as broker:
        made(broker.port, TOPICS)
        cases = {'before': hold(broker.port, before)}
        wait_for_coordinator(broker.port)
        for name, conversation in CONVERSATIONS.items():
            try: cases[name] = hold(broker.port, conversation)
            except Exception as error: cases[name] = error
        known = everything(broker.port)
    with running(where, **OURS) as broker:
        wait_for_coordinator(broker.port)
        yield SimpleNamespace(cases=cases, known=known, log_dir=where/'logs', port=broker.port)


@pytest.mark.parametrize('name', ['before', *CONVERSATIONS])
def test_a_conversation_goes_as_with_a_real_broker(talked, name):
    if isinstance(talked.cases[name], Exception): raise talked.cases[name]
    compare(name, talked.cases[name])


def test_after_a_restart_everything_is_as_it_was(talked):
    assert len(talked.known) > 15 and everything(talked.port) == talked.known


def test_the_log_has_what_a_real_one_has_batch_by_batch(talked):
    assert written(talked.log_dir) == json.loads((RECORDED/'offsets-log.json').read_text())




@needs_kafka
def test_kafka_dump_log_reads_our_offsets(talked):
    for path in sorted(talked.log_dir.glob('__consumer_offsets-*/*.log')):
        said = real_kafka.dump_log(path, '--offsets-decoder')
        ours = [record for batch in read_batches(path.read_bytes()) for record in read_records(batch)
                if not batch.control]
        lines = [line for line in said.splitlines() if line.startswith('|') and ' key: {' in line]
        for record, line in zip([record for record in ours if record.key[:2] == b'\0\1'],
                                [line for line in lines if '"type":"1"' in line], strict=True):
            key, payload = line.split(' key: ')[1].split(' payload: ')
            about = OffsetCommitKey.decode(record.key, 0, 2)
            assert json.loads(key) == {'type': '1', 'data': {'group': about.group, 'topic': about.topic,
                                                             'partition': about.partition}}
            if record.value is None: assert payload == '<DELETE>'
            else:
                version = int.from_bytes(record.value[:2], 'big')
                assert json.loads(payload) == {'version': str(version),
                                               'data': kafka_json(OffsetCommitValue.decode(record.value, version, 2),
                                                                  version)}
        assert 'isvalid: false' not in said and lines


@needs_kafka
def test_a_real_kafka_takes_over_our_offsets_and_we_take_over_its(tmp_path):
    "Ours, then Kafka on the same directory, then ours again: nothing that was committed is lost on the way."
    with running(tmp_path/'ours', **OURS) as broker:
        made(broker.port, TOPICS)
        wait_for_coordinator(broker.port)
        cases = hold(broker.port, simple)
        known = everything(broker.port)
    assert len(cases) > 100 and len(known) > 10
    kafka = real_kafka.RealKafka(tmp_path/'kafka', SETTINGS | {'log.dirs': tmp_path/'ours'/'logs'})
    kafka.log_dir = tmp_path/'ours'/'logs'
    kafka.directory.mkdir()
    with kafka:
        wait_for_coordinator(kafka.port)
        assert everything(kafka.port) == known
        with Client(kafka.port) as client:
            client.ask(framed(offset_commit, 9, commit('g-of-kafka', (A, (1, 77, 0, 'theirs')))))
        known = everything(kafka.port)
    with running(tmp_path/'ours', **OURS) as broker:
        wait_for_coordinator(broker.port)
        assert everything(broker.port) == known
        with Client(broker.port) as client:
            said = answer_in(offset_fetch, 9, client.ask(framed(offset_fetch, 9, fetch('g-of-kafka', (A, 1))(9))))
        assert said.groups[0].topics[0].partitions[0].committed_offset == 77


# --- Who may ----------------------------------------------------------------------------------------------------------

class Guarded(Node):
    "A node that allows what it was told to, with a list in place of a log."
    def __init__(self, *allowed):
        store = SimpleNamespace(topic='__consumer_offsets', known=True, partition_for=lambda name: 0,
                                hosted=lambda partition: SimpleNamespace(error=0), write=self.write)
        self.allowed, self.groups, self.batches = set(allowed), GroupCoordinator(store, Timers(), lambda: 1000), []
        super().__init__(image=SimpleNamespace(topics={name: SimpleNamespace(states=range(count)) for name,
                                                       count in TOPICS.items()}))
    def authorizer(self, caller, operation, resource, name): return (operation, resource, name) in self.allowed
    def write(self, partition, pairs, **header):
        self.batches.append(pairs)
        return sum(map(len, self.batches[:-1]))


READ_G, DESCRIBE_G, DELETE_G = ((operation, Resource.GROUP, 'g') for operation in (Operation.READ, Operation.DESCRIBE,
    Operation.DELETE))
READ_A, DESCRIBE_A = ((operation, Resource.TOPIC, A) for operation in (Operation.READ, Operation.DESCRIBE))


def codes(topics): return [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in topics]


def test_to_commit_takes_the_right_to_read_the_group_and_the_topic():
    asked = commit('g', (A, (0, 5), (9, 1)), (B, (0, 6)), (NONE, (0, 7)))
    nothing = Guarded(READ_A)
    assert codes(offset_commit.answer(asked, Call(9, nothing)).topics) == [(A, [(0, 30), (9, 30)]), (B, [(0, 30)]),
        (NONE, [(0, 30)])] and not nothing.batches
    some = Guarded(READ_G, READ_A)   # what may not be seen looks the same whether it exists or not
    assert codes(offset_commit.answer(asked, Call(9, some)).topics) == [(A, [(9, 3), (0, 0)]), (B, [(0, 29)]),
        (NONE, [(0, 29)])]
    assert list(some.groups.offsets['g']) == [(A, 0)]


def test_to_fetch_takes_the_right_to_describe_both():
    broker = Guarded(READ_G, READ_A, (Operation.READ, Resource.TOPIC, B))
    offset_commit.answer(commit('g', (A, (0, 5)), (B, (0, 6))), Call(9, broker))
    broker.allowed = {DESCRIBE_A}
    for version in range(1, 10):
        said = offset_fetch.answer(fetch('g', (A, 0), (B, 0))(version), Call(version, broker))
        if version == 1: assert codes(said.topics) == [(A, [(0, 30)]), (B, [(0, 30)])]
        elif version < 8: assert (said.error_code, said.topics) == (30, [])
        else: assert [(g.error_code, g.topics) for g in said.groups] == [(30, [])]
    broker.allowed |= {DESCRIBE_G}
    said = offset_fetch.answer(fetch('g', (B, 0), (A, 0), (NONE, 1))(9), Call(9, broker)).groups[0]
    # what is refused comes last
    assert (said.error_code, codes(said.topics)) == (0, [(A, [(0, 0)]), (B, [(0, 29)]), (NONE, [(1, 29)])])
    assert [p.committed_offset for t in said.topics for p in t.partitions] == [5, -1, -1]
    assert codes(offset_fetch.answer(fetch('g', everything=True)(9), Call(9, broker)).groups[0].topics) == [(A,
        [(0, 0)])]


def test_to_delete_takes_the_right_to_delete_the_group_and_to_read_the_topic():
    broker = Guarded(READ_G, READ_A)
    offset_commit.answer(commit('g', (A, (0, 5))), Call(9, broker))
    assert offset_delete.answer(delete('g', (A, 0)), Call(0, broker)).error_code == 30 and broker.groups.offsets['g']
    broker.allowed |= {DELETE_G}
    said = offset_delete.answer(delete('g', (B, 0), (A, 0)), Call(0, broker))
    assert (said.error_code, codes(said.topics)) == (0, [(B, [(0, 29)]),
                                                         (A, [(0, 0)])]) and not broker.groups.offsets['g']


# --- When it goes wrong -----------------------------------------------------------------------------------------------

def test_a_log_that_cannot_be_written_is_no_coordinator_and_nothing_has_changed():
    broker = Guarded(READ_G, READ_A, DELETE_G, DESCRIBE_G, DESCRIBE_A)
    offset_commit.answer(commit('g', (A, (0, 5))), Call(9, broker))
    before = dict(broker.groups.offsets['g'])
    def fails(*_, **__): raise StorageError('no space left on device')
    broker.groups.store.write = fails
    assert codes(offset_commit.answer(commit('g', (A, (0, 6), (1, 6))), Call(9, broker)).topics) == [(A,
        [(0, 16), (1, 16)])]
    assert offset_delete.answer(delete('g', (A, 0)), Call(0, broker)).error_code == 16
    notes = []
    broker.groups.note, broker.groups.now = notes.append, lambda: 1 << 50
    assert expire_offsets(broker.groups) == forget_topics(broker.groups, {A}) == 0 and len(notes) == 2
    assert broker.groups.offsets['g'] == before


def test_a_partition_of_somebody_else_is_refused():
    broker = Guarded(READ_G, READ_A, DELETE_G, DESCRIBE_G, DESCRIBE_A)
    broker.groups.store.hosted = lambda partition: SimpleNamespace(error=6)
    assert codes(offset_commit.answer(commit('g', (A, (0, 6))), Call(9, broker)).topics) == [(A, [(0, 16)])]
    assert offset_fetch.answer(fetch('g', (A, 0))(9),
                               Call(9, broker)).groups[0].error_code == 16 and offset_delete.answer(delete('g', (A, 0)),
                                   Call(0, broker)).error_code == 16


def test_settings_are_checked():
    def read(**settings):
        return read_offsets_config(Properties({name.replace('_', '.'): (value, 1) for name, value in settings.items()},
                                              'here'))
    assert read() == (4096, 604_800_000, 600_000)
    assert read(offset_metadata_max_bytes='0', offsets_retention_minutes='1',
                offsets_retention_check_interval_ms='5') == (0, 60_000, 5)
    for wrong in (dict(offsets_retention_minutes='0'), dict(offsets_retention_check_interval_ms='0'),
                  dict(offset_metadata_max_bytes='many')):
        with pytest.raises(ConfigError): read(**wrong)


# --- The map is what the log adds up to -------------------------------------------------------------------------------

GROUPS, TOPIC_PARTITIONS = ('g', 'h'), ((A, 0), (A, 1), (B, 0))
steps = st.one_of(
    st.tuples(st.just('commit'), st.sampled_from(GROUPS), st.sampled_from(TOPIC_PARTITIONS), st.integers(0, 99),
              st.sampled_from([-1, 7, 8])),
    st.tuples(st.just('forget'), st.sampled_from(GROUPS), st.sampled_from(TOPIC_PARTITIONS)),
    st.tuples(st.just('decide'), st.sampled_from([7, 8]), st.booleans()))


def take_step(coordinator, offset: int, step):
    kind, *rest = step
    if kind == 'decide': return complete(coordinator, 0, *rest)
    group, (topic, partition), *value = rest
    key, batch = OffsetCommitKey(group=group, topic=topic,
                                 partition=partition), SimpleNamespace(producer_id=value[1] if value else -1,
                                     partition=0)
    offset_committed(coordinator, key, OffsetCommitValue(offset=value[0]) if value else None, batch,
                     SimpleNamespace(offset=offset))


@given(st.lists(steps, max_size=30))
def test_what_counts_is_the_last_record_whose_transaction_was_committed(taken):
    """Against the definition: of all commits of a place since it was last forgotten, the one with the highest offset
    that is decided, or never needed to be."""
    coordinator = SimpleNamespace(offsets={}, pending={})
    for offset, step in enumerate(taken): take_step(coordinator, offset, step)
    expected, waiting = {}, {}
    for group in GROUPS:
        for place in TOPIC_PARTITIONS:
            since = max((i for i, step in enumerate(taken) if step[0] == 'forget' and step[1:] == (group, place)),
                        default=-1)
            for i, step in enumerate(taken):
                if step[0] != 'commit' or step[1:3] != (group, place) or i < since: continue
                decision = next((d[2] for d in taken[i:] if d[0] == 'decide' and d[1] == step[4]),
                                None) if step[4] >= 0 else True
                if decision: expected[group, place] = step[3]
                if decision is None: waiting[group, place] = True
    assert {(g, p): c.offset for g, found in coordinator.offsets.items() for p, c in found.items()} == expected
    assert {(g, p) for g in GROUPS for p in TOPIC_PARTITIONS if is_pending(coordinator, g, *p)} == set(waiting)


def test_a_marker_decides_about_its_own_partition_only():
    coordinator = SimpleNamespace(offsets={}, pending={})
    for partition, group in enumerate(GROUPS):
        add_pending(coordinator, partition, 7, OffsetCommitKey(group=group, topic=A), Committed(5, record_offset=3))
    complete(coordinator, 1, 7, True)
    assert not coordinator.offsets['g'] and coordinator.offsets['h'][A, 0].offset == 5 and is_pending(coordinator, 'g',
        A, 0)


def test_old_and_unknown_versions_of_records_are_read():
    broker = Guarded()
    def take(key, value):
        replay(broker.groups, SimpleNamespace(producer_id=-1, partition=0, timestamp=0), bytes.fromhex(key),
               value and bytes.fromhex(value), 5)
    key = '0001' '0001' '67' '0001' '74' '00000000'
    for version, value in {0: '0000000000000007' '0001' '6d' '0000000000000001',
                           1: '0000000000000008' '0000' '0000000000000001' '0000000000000002',
                           2: '0000000000000009' '0000' '0000000000000001',
                           3: '000000000000000a' '00000004' '0000' '0000000000000001',
                           4: '000000000000000b' '00000004' '01' '0000000000000001' '01' '00' '10' + '11' * 16,
                           5: '000000000000000c' '00000004' '01' '0000000000000001' '01' '63' '01' '7a'}.items():
        take(key, f'{version:04x}' + value)
        found = broker.groups.offsets['g']['t', 0]
        assert found.offset == 7 + version and found.commit_timestamp == 1 and found.expire_timestamp == (2
            if version == 1 else -1)
        assert found.leader_epoch == (4 if version >= 3 else -1) and found.topic_id == (b'\x11' * 16 if version == 4
            else bytes(16)), version
    take('0000' + key[4:], '0000' '0000000000000063' '0001' '6d' '0000000000000002')   # a key of the oldest type
    assert broker.groups.offsets['g']['t', 0][:4] == (99, -1, 'm', 2)
    take('0000' + key[4:], None)
    assert broker.groups.offsets == {'g': {}}


@declarations.needs_jars
@pytest.mark.parametrize('cls', [OffsetCommitKey, OffsetCommitValue, LegacyOffsetCommitKey, LegacyOffsetCommitValue],
                         ids=lambda cls: cls.__name__)
def test_the_records_are_declared_as_in_the_jars(cls):
    jars = real_kafka.libs().glob('kafka-group-coordinator-4*.jar')
    with zipfile.ZipFile(next(jars)) as archive:
        schema = declarations.schema(archive.read(f'common/message/{cls.__name__}.json').decode())
    assert cls.VERSIONS == version_range(schema['validVersions'])
    for version in cls.VERSIONS:
        assert declarations.our_fields(cls, version) == declarations.their_fields(schema, schema['fields'], version)


# --- Time -------------------------------------------------------------------------------------------------------------

def small_group(**facts):
    group = SimpleNamespace(kind='classic', protocol_type='consumer', is_empty=False, state='Stable',
                            current_state_timestamp=-1, subscribed=lambda topic: False)
    vars(group).update(facts)
    group.tombstones = lambda: []
    return group


def test_offsets_expire_as_kafka_lets_them():
    broker, day = Guarded(READ_G, READ_A), 24 * 3600_000
    groups = broker.groups
    week, groups.now = 7 * day, lambda: 0
    def noted(group_id, **fields):
        groups.offsets.setdefault(group_id, {})[A, 0] = Committed(5, commit_timestamp=0, **fields)
    for group_id in ('simple', 'reading', 'stopped reading', 'rebalancing', 'left', 'left, unknown when', 'new',
                     'connect', 'waits'):
        noted(group_id)
    noted('in a hurry', expire_timestamp=day), noted('patient', expire_timestamp=20 * day)
    groups.groups |= {'reading': small_group(subscribed=lambda topic: True), 'stopped reading': small_group(),
                      'rebalancing': small_group(state='PreparingRebalance'),
                      'left': small_group(is_empty=True, state='Empty', current_state_timestamp=2 * day),
                      'left, unknown when': small_group(is_empty=True, state='Empty'),
                      'new': small_group(kind='consumer'), 'connect': small_group(protocol_type='connect')}
    add_pending(groups, 0, 7, OffsetCommitKey(group='waits', topic=A), Committed(6))
    def at(now):
        groups.now = lambda: now
        expire_offsets(groups)
        return {group_id for group_id, found in groups.offsets.items() if found}
    everyone = set(groups.offsets)
    assert at(day - 1) == everyone and at(day) == everyone - {'in a hurry'} and 'in a hurry' not in groups.offsets
    everyone -= {'in a hurry'}
    assert at(week - 1) == everyone
    assert at(week) == everyone - {'simple', 'stopped reading', 'left, unknown when', 'new'}
    assert at(week + 2 * day) == {'reading', 'rebalancing', 'connect', 'waits',
                                  'patient'} and at(20 * day) == {'reading', 'rebalancing', 'connect', 'waits'}
    complete(groups, 0, 7, False)
    assert at(20 * day) == {'reading', 'rebalancing', 'connect'} and 'waits' not in groups.offsets
    assert all(value is None for pairs in broker.batches for key, value in pairs)   # to forget is to write


def test_a_group_goes_together_with_its_last_offset_and_does_not_come_back():
    """A real Kafka writes the same: tombstones for the offsets and one for the group in a batch, also for a group that
    nobody ever joined."""
    broker = Guarded()
    groups, value = broker.groups, OffsetCommitValue(offset=5, commit_timestamp=0)
    groups.settings, groups.now = lambda read: read(NO_FILE)._replace(retention_ms=1000), lambda: 1000
    for group_id in ('simple', 'waits'):
        groups.write(group_id, [(OffsetCommitKey(group=group_id, topic=A, partition=number), value) for number in (0,
            1)])
    add_pending(groups, 0, 7, OffsetCommitKey(group='waits', topic=A, partition=1), Committed(6))
    assert expire_offsets(groups) == 3 and {group_id: list(found) for group_id,
                                            found in groups.offsets.items()} == {'waits': [(A, 1)]}
    assert [[(key[:2], value) for key, value in pairs] for pairs in broker.batches[2:]] == [[(b'\0\1', None),
        (b'\0\1', None), (b'\0\2', None)], [(b'\0\1', None)]]
    again = Guarded().groups
    for offset, (key, value) in enumerate(pair for pairs in broker.batches for pair in pairs):
        replay(again, SimpleNamespace(producer_id=-1, partition=0, timestamp=0), key, value, offset)
    assert list(again.offsets) == ['waits'] and not again.groups


def test_rounds_go_on_also_after_one_that_failed():
    broker = Guarded()
    now, groups = [0], broker.groups
    groups.now, groups.settings = lambda: now[0], lambda read: read(NO_FILE)._replace(check_interval_ms=100,
        retention_ms=50)
    put(groups, 'g', A, 0, Committed(5, commit_timestamp=0))
    keep_offsets(groups)
    assert groups.timers.next == 100
    now[0], working, groups.store.write = 100, groups.store.write, lambda *_, **__: 1 / 0
    with pytest.raises(ZeroDivisionError): groups.timers.run(100)
    assert groups.timers.next == 200 and groups.offsets['g']
    now[0], groups.store.write = 200, working
    groups.timers.run(200)
    assert groups.offsets == {} and groups.timers.next == 300


def test_a_topic_that_is_gone_takes_its_offsets_along_also_those_that_wait():
    broker = Guarded()
    for group_id in ('g', 'h'): [put(broker.groups, group_id, topic, 0, Committed(5)) for topic in (A, B)]
    add_pending(broker.groups, 0, 7, OffsetCommitKey(group='g', topic=A, partition=2), Committed(9))
    broker.groups.topics_deleted({A})
    assert broker.groups.offsets == {group: {(B, 0): Committed(5)} for group in ('g',
        'h')} and not is_pending(broker.groups, 'g', A, 2)
    complete(broker.groups, 0, 7, True)
    assert (A, 2) not in broker.groups.offsets['g'] and sum(map(len, broker.batches)) == 3


def committed_by(port: int, group_id: str) -> dict:
    with Client(port) as client:
        said = answer_in(offset_fetch, 9, client.ask(framed(offset_fetch, 9, fetch(group_id, everything=True)(9))))
    return {(t.name, p.partition_index): p.committed_offset for t in said.groups[0].topics for p in t.partitions}


def test_a_broker_forgets_what_is_too_old_and_does_not_remember_it_after_a_restart(tmp_path):
    settings = OURS | {'offsets_retention_check_interval_ms': 50}
    with running(tmp_path, **settings) as broker:
        made(broker.port, TOPICS)
        wait_for_coordinator(broker.port)
        with broker.client() as client:
            client.ask(framed(offset_commit, 4, commit('g', (A, (0, 1), (1, 2)), retention_time_ms=1)))
            client.ask(framed(offset_commit, 9, commit('g', (B, (0, 3)))))
        wait_until(lambda: committed_by(broker.port, 'g') == {(B, 0): 3}, 'offsets to expire')
    with running(tmp_path, **OURS) as broker: assert committed_by(broker.port, 'g') == {(B, 0): 3}


def test_a_topic_that_is_made_again_has_not_been_read_by_anybody(tmp_path):
    from kafka.admin import KafkaAdminClient
    with running(tmp_path, **OURS) as broker:
        made(broker.port, TOPICS)
        wait_for_coordinator(broker.port)
        with broker.client() as client: client.ask(framed(offset_commit, 9, commit('g', (A, (0, 1)), (B, (0, 3)))))
        admin = KafkaAdminClient(bootstrap_servers=f'127.0.0.1:{broker.port}')
        try: admin.delete_topics([A])
        finally: admin.close()
        wait_until(lambda: committed_by(broker.port, 'g') == {(B, 0): 3}, 'offsets of a deleted topic to go')
        made(broker.port, {A: 3})
    with running(tmp_path, **OURS) as broker: assert committed_by(broker.port, 'g') == {(B, 0): 3}


# --- Clients ----------------------------------------------------------------------------------------------------------

@pytest.fixture
def with_topics(start):
    broker = start(**OURS)
    made(broker.port, TOPICS)
    return broker


def test_a_kafka_python_consumer_that_assigns_itself_partitions_commits_and_comes_back(with_topics):
    from kafka import KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata
    here, at = TopicPartition(A, 0), f'127.0.0.1:{with_topics.port}'
    for offset, note in ((5, 'first'), (6, 'second')):
        consumer = KafkaConsumer(bootstrap_servers=at, group_id='py', enable_auto_commit=False)
        try:
            consumer.assign([here])
            assert consumer.committed(here) == (None if offset == 5 else 5)
            consumer.commit({here: OffsetAndMetadata(offset, note, -1)})
            assert consumer.committed(here, metadata=True).metadata == note
        finally: consumer.close()


def test_librdkafka_commits_alters_and_deletes(with_topics):
    confluent = pytest.importorskip('confluent_kafka')
    from confluent_kafka import TopicPartition, admin
    at = {'bootstrap.servers': f'127.0.0.1:{with_topics.port}'}
    consumer = confluent.Consumer(at | {'group.id': 'rd', 'enable.auto.commit': False})
    try:
        consumer.assign([TopicPartition(A, 0), TopicPartition(A, 1)])
        consumer.commit(offsets=[TopicPartition(A, 0, 7, 'a note')], asynchronous=False)
        found = consumer.committed([TopicPartition(A, 0), TopicPartition(A, 1)], timeout=20)
        assert [(p.offset, p.metadata, p.error) for p in found] == [(7, 'a note', None),
                                                                    (confluent.OFFSET_INVALID, None, None)]
    finally: consumer.close()
    tool = admin.AdminClient(at)
    asked = confluent.ConsumerGroupTopicPartitions
    tool.alter_consumer_group_offsets([asked('rd', [TopicPartition(A, 2, 44)])])['rd'].result(20)
    found = tool.list_consumer_group_offsets([asked('rd')])['rd'].result(20)
    assert {(p.topic, p.partition): p.offset for p in found.topic_partitions} == {(A, 0): 7, (A, 2): 44}


def test_kafka_python_deletes_the_offsets_of_a_group(with_topics):
    from kafka import KafkaConsumer, TopicPartition
    from kafka.admin import KafkaAdminClient
    from kafka.structs import OffsetAndMetadata
    at = f'127.0.0.1:{with_topics.port}'
    admin = KafkaAdminClient(bootstrap_servers=at)
    consumer = KafkaConsumer(bootstrap_servers=at, group_id='py', enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition(A, 0)])
        consumer.commit({TopicPartition(A, number): OffsetAndMetadata(number, '', -1) for number in range(3)})
        def listed():
            return {place.partition: found.offset for place,
                    found in offsets_in(admin.list_group_offsets('py')).items()}
        assert listed() == {0: 0, 1: 1, 2: 2}
        admin.delete_group_offsets('py', [TopicPartition(A, 1)])
        assert listed() == {0: 0, 2: 2}
    finally: consumer.close(), admin.close()


def offsets_in(said: dict) -> dict: return said.get('py', said)
