"""Metadata as columns: every record as the taught reader reads it, every image as the taught fold makes it, and Kafka's
own answers."""
import gzip
import json
import re

import pytest
from hypothesis import given, strategies as st

from size import budget, spark_absent
if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)
import pyarrow as pa

from kafka_scratch.cluster.image_json import configs_json
from kafka_scratch.wire.codes import METADATA
from kafka_scratch.cluster.metadata_log import load_image
from kafka_scratch.cluster.records import *
from kafka_scratch.wire.primitives import *
from kafka_scratch.log.records import CONTROL, Record, read_batches, read_records, write_batch
from kafka_scratch.log.control_records import control_type
from kafka_scratch.wire.schema import Message, explain, kafka_json
from kafka_scratch.spark import cluster_tables, fold_files
from kafka_scratch.spark.headers import Damage, scan
from kafka_scratch.spark.cluster_tables import (BROKER_COLUMNS, CONFIG_COLUMNS, PARTITION_COLUMNS, TOPIC_COLUMNS,
                                                image_tables,
                                                tables_of)
from kafka_scratch.spark.metadata_records import metadata_batches
from kafka_scratch.spark.programs import FIELD_COLUMNS, METADATA_COLUMNS, arrow_type, column_name

from metadata_by_hand import (A_CHANGE, A_PARTITION, A_TOPIC, BEGIN, END, FIXTURES, KEY_ENDS, NONSENSE, OTHER, TOPIC,
                              Directory, Entry, batch_of,
                              change, checkpoint, damaged, directory_of, each_image, entries_of, flat, fold,
                              in_transaction,
                              kafkas_image, logs, raw_batch, raw_fields, removal, small, tails, topic, unknown_tags)

TABLES = 'topics', 'partitions', 'configs', 'brokers'
LOGS = sorted(FIXTURES.glob(f'**/{METADATA}/*.log')) + sorted(FIXTURES.glob('**/*.checkpoint'))
each_log = pytest.mark.parametrize('path', LOGS, ids=lambda path: str(path.relative_to(FIXTURES)))


def rows_of(table) -> list: return table.to_pylist()


# --- The image: as Kafka folds real logs ------------------------------------------------------------------------------

@each_image
def test_the_tables_say_what_kafkas_image_says(path):
    theirs = kafkas_image(path)
    tables = image_tables(directory_of(path), theirs['lastOffset'])
    partitions = {}
    for row in rows_of(tables.partitions): partitions.setdefault(row['topic'], []).append(row)
    assert rows_of(tables.topics) == [dict(name=t['name'], topic_id=t['topicId'],
                                           partition_count=len(t['partitions'])) for t in theirs['topics']]
    assert [t['name'] for t in theirs['topics'] if t['partitions']] == list(partitions)
    for t in theirs['topics']:
        assert [{'partition': p['partition'], 'leader': p['leader'], 'leaderEpoch': p['leader_epoch'],
                 'partitionEpoch': p['partition_epoch'],
                 'leaderRecoveryState': p['leader_recovery_state'], 'replicas': p['replicas'], 'isr': p['isr'],
                 'removingReplicas': p['removing_replicas'], 'addingReplicas': p['adding_replicas'],
                 'elr': p['eligible_leader_replicas'],
                 'lastKnownElr': p['last_known_elr'],
                 'directories': p['directories']} for p in partitions[t['name']]] == t['partitions']
        assert {p['topic_id'] for p in partitions[t['name']]} == {t['topicId']}
    assert [list(row.values()) for row in rows_of(tables.brokers)] == [list(broker.values()) for broker
        in theirs['brokers']]
    assert tables.last_offset == theirs['lastOffset']


@each_image
def test_the_settings_are_those_of_kafkas_image_without_its_ghosts(path):
    """What Kafka's own replay still shows of topics that are gone, the taught image remembers apart: see the chapter on
    its JSON."""
    theirs = kafkas_image(path)
    image, found = load_image(directory_of(path), theirs['lastOffset']), {}
    for row in rows_of(image_tables(directory_of(path), theirs['lastOffset']).configs):
        found.setdefault(f'{row["resource_type"]}:{row["resource_name"]}', {})[row['name']] = row['value']
    image.configs = {}   # so that only its ghosts are shown
    for shown in configs_json(image): found[shown['resource']] = shown['values'] | found.get(shown['resource'], {})
    assert [{'resource': name, 'values': dict(sorted(values.items()))} for name,
            values in sorted(found.items())] == theirs['configs']


# --- The image: as the taught fold makes it ---------------------------------------------------------------------------

def outcome(make):
    "What a call returns, or the words with which it refuses."
    try: return make()
    except DecodeError as error: return str(error)

def compare(directory, until=None, fast=True, threads=2):
    "The tables must be those of the taught image, and refused with the same words; made without its help, if `fast`."
    expected = outcome(lambda: tables_of(load_image(directory, until)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_files, 'THREADS', threads)
        if fast and not isinstance(expected, str): patch.setattr(cluster_tables, 'load_image', None)
        found = outcome(lambda: image_tables(directory, until))
    if isinstance(expected, str): assert found == expected
    else:
        for name in TABLES: assert getattr(found, name).equals(getattr(expected, name)), name
        assert found.last_offset == expected.last_offset
    return expected

def compare_values(*values, **options):
    "The same for records, one after the other."
    with Directory() as directory:
        directory.write([[raw_batch(0, *values)]])
        return compare(directory.path, **options)


def test_the_schemas_of_the_tables():
    with Directory() as directory: tables = image_tables(directory.path)
    for name, columns in zip(TABLES, (TOPIC_COLUMNS, PARTITION_COLUMNS, CONFIG_COLUMNS, BROKER_COLUMNS)):
        assert getattr(tables, name).schema == pa.schema(columns) and getattr(tables, name).num_rows == 0
    assert tables.last_offset == -1


def test_a_directory_without_a_metadata_log_is_said_to_be_none(tmp_path):
    with pytest.raises(FileNotFoundError, match='not the log directory of a KRaft node'): image_tables(tmp_path)


@budget(100, deadline=None)
@given(logs(), st.data())
def test_tables_are_those_of_the_taught_fold(segments, data):
    batches = flat(segments)
    until = data.draw(st.none() | st.integers(-1, batches[-1].last + 1 if batches else 0))
    with Directory() as directory:
        directory.write(segments)
        compare(directory.path, until, threads=data.draw(st.integers(1, 3)))


@budget(60, deadline=None)
@given(logs(), st.data())
def test_a_checkpoint_comes_first(segments, data):
    batches = flat(segments)
    cut = data.draw(small([n for n in range(len(batches) + 1) if not in_transaction(entries_of(batches[:n]))]))
    first, last = data.draw(st.integers(0, cut)), batches[-1].last if batches else 0
    start = batches[cut].base if cut < len(batches) else last + 1 if batches else 0
    with Directory() as directory:
        raw = checkpoint(fold(entries_of(batches[:cut])))
        raw = raw[:data.draw(small([len(raw)] * 3 + [len(raw) // 2, len(raw) - 1]))]
        (directory.path/f'{start:020}-0000000001.checkpoint').write_bytes(raw)
        (directory.path/f'{start // 2:020}-0000000000.checkpoint').write_bytes(b'an old one that nobody looks at')
        remaining = [[batch for batch in segment if batch in batches[first:]] for segment in segments]
        directory.write([segment for segment in remaining if segment])
        if start // 2 != start: compare(directory.path, data.draw(st.none() | st.integers(start - 1, last + 1)))


@budget(100, deadline=None)
@given(logs(), st.data())
def test_a_log_that_is_cut_or_damaged_anywhere_is_read_or_refused_alike(segments, data):
    "Torn segments, wrong checksums, nonsense in headers: also before and after the offset up to which it is read."
    with Directory() as directory:
        directory.write(segments)
        files = sorted(directory.path.iterdir())
        path = data.draw(small(files)) if files else None
        raw = bytearray(path.read_bytes()) if path else b''
        if raw:
            at = data.draw(st.integers(0, len(raw) - 1))
            if data.draw(st.booleans()): raw[at] ^= data.draw(st.integers(1, 255))
            else: raw = raw[:at]
            path.write_bytes(raw)
        compare(directory.path, data.draw(st.none() | st.integers(-1, 20)))


@budget(250, deadline=None)
@given(damaged(most=12))
def test_a_log_with_damaged_values_is_read_or_refused_alike(values): compare_values(*values)


@budget(120, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), tails), min_size=1, max_size=3), st.booleans())
def test_a_change_with_any_tagged_fields_is_read_or_refused_alike(changes, in_transaction):
    def raw(version, tags):
        fields = b''.join(bytes([tag, len(value)]) + value for tag, value in tags)
        return bytes([1, 5, version]) + A_CHANGE[3:KEY_ENDS] + bytes([len(tags)]) + fields
    values = [raw(*change) for change in changes]
    compare_values(A_TOPIC, A_PARTITION, *([BEGIN, *values, END] if in_transaction else values))


@budget(120, deadline=None)
@given(st.integers(0, 2), st.lists(raw_fields | small([bytes([3, 0, 0, 0, 1, 0, 0, 0, 2]), bytes(12),
                                                       bytes([1, 0, 1, 1])]), max_size=7))
def test_a_birth_of_any_parts_is_read_or_refused_alike(version, parts):
    compare_values(A_TOPIC, bytes([1, 3, version]) + A_CHANGE[3:KEY_ENDS] + b''.join(parts))


@pytest.mark.parametrize('value', NONSENSE.values(), ids=NONSENSE)
def test_what_makes_no_sense_is_refused_with_the_same_words(value):
    assert 'records 0 to 2: ' in compare_values(A_TOPIC, A_PARTITION, value)


THIRD = bytes([3]) * 16
def birth(topic_id=TOPIC, partition_id=0, version=2, **fields):
    return write_value(PartitionRecord(topic_id=topic_id, partition_id=partition_id, **fields), version)
def clear(name=''): return write_value(ClearElrRecord(topic_name=name), 0)
def setting(name, value, topic='a'):
    return write_value(ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value), 0)
ABORT = write_value(AbortTransactionRecord(), 0)
ELR = dict(eligible_leader_replicas=[2], last_known_elr=[3])

HISTORIES = {
    'a topic that is made again starts anew': [A_TOPIC, A_PARTITION, A_CHANGE, removal(TOPIC), topic('a', OTHER),
                                               birth(OTHER, 0, replicas=[9])],
    'a topic that is made again without partitions': [A_TOPIC, A_PARTITION, removal(TOPIC), topic('a', OTHER)],
    'both topics of one name, the second removed': [A_TOPIC, A_PARTITION, topic('a', OTHER), birth(OTHER),
                                                    removal(OTHER)],
    'both topics of one name, the first removed': [A_TOPIC, A_PARTITION, topic('a', OTHER), birth(OTHER),
                                                   removal(TOPIC)],
    'both topics of one name, both removed': [A_TOPIC, topic('a', OTHER), removal(OTHER), removal(TOPIC)],
    'both topics of one name, and a third': [A_TOPIC, A_PARTITION, topic('a', OTHER), removal(OTHER), topic('a', THIRD),
                                             birth(THIRD, 3)],
    'one id under two names': [A_TOPIC, A_PARTITION, topic('b', TOPIC), birth(TOPIC, 1), A_PARTITION, A_CHANGE],
    'one id under two names, removed': [A_TOPIC, A_PARTITION, topic('b', TOPIC), birth(TOPIC, 1), removal(TOPIC)],
    'one id twice under one name': [A_TOPIC, A_PARTITION, topic('a', TOPIC), birth(TOPIC, 1)],
    'an id that comes back': [A_TOPIC, A_PARTITION, removal(TOPIC), A_TOPIC, birth(TOPIC, 1)],
    'partitions in any order': [A_TOPIC, *(birth(TOPIC, n, leader=n) for n in (7, 3, 0, 1, 2, 9, -1, 2**31 - 1,
        -2**31)), change(TOPIC, 9), change(TOPIC, -1)],
    'partitions in order from seven on': [A_TOPIC, *(birth(TOPIC, n, leader=n) for n in range(7, 12)), change(TOPIC, 8),
                                          change(TOPIC, 7)],
    'partitions of two topics in turn': [A_TOPIC, topic('b', OTHER), *(birth(t, n,
        leader=n) for n in range(5) for t in (TOPIC, OTHER)),
                                         *(change(t, n, leader=n + 1) for n in range(5) for t in (OTHER, TOPIC))],
    'the topic id of nobody': [topic('zero', bytes(16)), birth(bytes(16), 0, leader=5), change(bytes(16), 0, leader=6)],
    'a partition that is born again': [A_TOPIC, A_PARTITION, A_CHANGE, birth(replicas=[5, 6], isr=[5]), A_CHANGE],
    'the same leader, named again': [A_TOPIC, A_PARTITION, change(leader=1), change(leader=1)],
    'epochs at their end': [A_TOPIC, birth(leader_epoch=2**31 - 1, partition_epoch=2**31 - 1), A_CHANGE],
    'eligible leaders are cleared': [A_TOPIC, birth(**ELR), birth(partition_id=1), topic('b', OTHER),
                                     birth(OTHER, **ELR), clear('a')],
    'eligible leaders of all topics are cleared': [A_TOPIC, birth(**ELR), birth(partition_id=1), topic('b', OTHER),
                                                   birth(OTHER, **ELR), clear()],
    'eligible leaders are cleared of the topic that has the name': [A_TOPIC, birth(**ELR), topic('a', OTHER),
                                                                    birth(OTHER, **ELR), clear('a'), clear()],
    'eligible leaders are cleared of one id under two names': [A_TOPIC, birth(**ELR), topic('b', TOPIC), birth(**ELR),
                                                               clear('a'), clear('b')],
    'nothing to clear': [clear()],
    'directories that are too few until something changes': [A_TOPIC, birth(replicas=[1, 2], directories=[OTHER]),
                                                             birth(partition_id=1, **ELR,
                                                             replicas=[1, 2], directories=[OTHER]), change(leader=3),
                                                             clear()],
    'directories that are empty, or null': [A_TOPIC, A_PARTITION, change(directories=[]), change(replicas=[4]),
                                            birth(partition_id=2, replicas=[1], version=0)],
    'unknown recovery states': [A_TOPIC, birth(leader_recovery_state=-7), birth(partition_id=1),
                                change(partition_id=1, leader_recovery_state=99)],
    'a transaction that is aborted': [A_TOPIC, BEGIN, A_PARTITION, setting('x', '1'), ABORT, birth(partition_id=4)],
    'a transaction that never ends': [A_TOPIC, A_PARTITION, BEGIN, A_CHANGE, removal(TOPIC)],
    'a transaction in a transaction': [BEGIN, A_TOPIC, BEGIN, topic('b', OTHER), END, birth(OTHER), END, ABORT],
    'a transaction that makes and removes': [BEGIN, A_TOPIC, A_PARTITION, removal(TOPIC), END],
    'settings go with their topic': [A_TOPIC, setting('x', '1'), setting('y', '2', 'b'), removal(TOPIC),
                                     topic('a', OTHER), setting('z', '3')],
    'settings that are taken back': [A_TOPIC, setting('x', '1'), setting('y', ''), setting('x', None)],
    'names that are not UTF-8': [bytes([1, 2, 0, 3, 0xff, 0xfe]) + TOPIC + b'\0', birth(),
                                 bytes([1, 2, 0, 3, 0xfd, 0xfe]) + OTHER + b'\0'],
    'no name at all': [topic('', TOPIC), birth(**ELR), clear()],
    'tagged fields in any order': [A_TOPIC, A_PARTITION, A_CHANGE[:KEY_ENDS] + bytes([3, 40, 0, 1, 4, 0, 0, 0, 7, 0, 5,
        2, 0, 0, 0, 7])],
    'bytes behind a record': [A_TOPIC + b'?', A_PARTITION + b'??', A_CHANGE + b'???', removal(TOPIC) + b'?'],
    'envelopes that take more bytes than they need': [b'\x81\x00\x82\x00\x80\x00' + A_TOPIC[3:],
                                                      b'\x81\x00\x83\x00\x82\x00' + A_PARTITION[3:]],
}

@pytest.mark.parametrize('values', HISTORIES.values(), ids=HISTORIES)
def test_a_history_gives_the_tables_of_the_taught_fold(values):
    for threads in (1, 2, 3): assert not isinstance(compare_values(*values, threads=threads), str)


@pytest.mark.parametrize('values', HISTORIES.values(), ids=HISTORIES)
def test_a_history_may_be_spread_over_files(values):
    with Directory() as directory:
        directory.write([[raw_batch(i, value)] for i, value in enumerate(values)])
        assert not isinstance(compare(directory.path), str)


REFUSED = {
    'a tag twice': A_CHANGE[:KEY_ENDS] + bytes([2, 1, 4, 0, 0, 0, 1, 1, 4, 0, 0, 0, 1]),
    'an unknown tag twice': A_CHANGE[:KEY_ENDS] + bytes([3, 40, 0, 1, 4, 0, 0, 0, 1, 40, 0]),
    'a name that is too long': bytes([1, 2, 0, 0x81, 0x80, 0x02]) + bytes(0x8000) + OTHER + b'\0',
    'endless numbers': A_CHANGE[:KEY_ENDS] + b'\xff' * 12,
    'a number of 35 bits': A_CHANGE[:KEY_ENDS] + b'\xff\xff\xff\xff\x7f',
    'more replicas than bytes': A_PARTITION[:KEY_ENDS] + b'\xff\xff\xff\xff\x0f' + A_PARTITION[KEY_ENDS + 1:],
    'replicas that are null': A_PARTITION[:KEY_ENDS] + b'\0' + A_PARTITION[KEY_ENDS + 13:],
}

@pytest.mark.parametrize('value', REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize('end', [END, ABORT], ids=['end', 'abort'])
def test_what_cannot_be_read_is_refused_even_if_it_would_not_count(value, end):
    assert 'metadata records' in compare_values(A_TOPIC, A_PARTITION, value)
    assert 'metadata records' in compare_values(A_TOPIC, A_PARTITION, BEGIN, value, end)


def test_compressed_batches_and_several_files_fold_like_one():
    entries = [Entry(None, '', value) for value in HISTORIES['partitions of two topics in turn']]
    with Directory() as directory:
        directory.write([[batch_of(entries[i:i + 2], i, attributes=i // 2 % 5) for i in range(first, first + 4,
            2)] for first in range(0, 20, 4)])
        compare(directory.path)


def test_control_batches_are_read_and_those_without_a_type_refused():
    good = write_batch([Record(key=b'\0\0\0\x63', value=b'')], base_offset=1, attributes=CONTROL)
    bad = write_batch([Record(key=b'\0', value=b'')], base_offset=1, attributes=CONTROL)
    with Directory() as directory:
        for raw in (good, bad):
            (directory.path/f'{0:020}.log').write_bytes(raw_batch(0, A_TOPIC).raw + raw + raw_batch(2, A_PARTITION).raw)
            assert isinstance(compare(directory.path), str) == (raw is bad)


def test_many_partitions_by_several_threads(monkeypatch):
    monkeypatch.setattr(cluster_tables, 'MOST_PARTITIONS', 100)
    values = [topic(f't{n % 7}-{n}', bytes([n]) * 16) for n in range(20)]
    values += [birth(bytes([n]) * 16, p, replicas=[n, p], isr=[n], leader=n,
                     directories=[OTHER] * (p % 3)) for p in range(30) for n in range(20)]
    values += [change(bytes([n]) * 16, p, isr=[p, n, p], leader=p) for p in range(29, 0, -3) for n in range(0, 20, 2)]
    assert compare_values(*values, threads=3).partitions.num_rows == 600


# --- Every record, as the taught reader reads it ----------------------------------------------------------------------

FIELDS = list(FIELD_COLUMNS)

def shown(value, declared):
    "A value as it should stand in a column."
    if isinstance(value, list): return [shown(each, declared.element) for each in value]
    if isinstance(value, Message): return {f.name: shown(getattr(value, f.name), f.type) for f in value.FIELDS}
    return uuid_text(value) if declared is Uuid else value

def expected_row(offset, key, value, control) -> dict:
    "What should stand in the row of a record; a DecodeError if it can't be read."
    row = dict.fromkeys(['offset', 'type', 'version', *FIELDS]) | {'offset': offset}
    if control: return row | {'type': control_type(key)}
    envelope = read_envelope(value or b'')
    row |= {'type': envelope_name(envelope).rpartition(' v')[0],
            'version': envelope.version if envelope.version < 2**31 else None}
    if not envelope.known: return row
    message, version = read_value(value)
    said = {span.path[0] for span in explain(message.codec(version), value, envelope.body_starts).spans}
    return row | {column_name(type(message), f): shown(getattr(message, f.name),
                                                       f.type) for f in message.FIELDS if f.name in said}

def expected_rows(raw, check=True) -> list:
    "The rows of a log, batch by batch; in the place of a batch that can't be read, the message of the taught reader."
    found = []
    for batch in read_batches(raw, check=False):
        try:
            if check: batch.check()
            records = read_records(batch)
        except DecodeError as error: found.append(error.message); continue
        try: found += [expected_row(r.offset, r.key, r.value, batch.control) for r in records]
        except DecodeError as error:
            found.append(f'metadata records {batch.base_offset} to {batch.last_offset}: ' + (f'{error.path}: '
                if error.path else '') + error.message)
    return found

def found_rows(raw, columns=('offset', 'type', 'version', *FIELDS), **options) -> list:
    "The rows of a log as columns, and the reasons of damage in their places."
    found = []
    for made in metadata_batches(raw, scan(raw)[0], columns, **options):
        if isinstance(made, Damage): found.append(made.reason)
        else:
            made.validate(full=True)
            assert made.schema == pa.schema([(name, METADATA_COLUMNS[name]) for name in columns])
            found += made.to_pylist()
    return found


@each_log
def test_every_record_of_every_real_log_is_the_one_of_the_taught_reader(path):
    raw = path.read_bytes()
    assert found_rows(raw) == expected_rows(raw)
    assert found_rows(raw, rows=3) == expected_rows(raw)


@each_log
def test_offsets_times_and_epochs_are_those_of_the_batches(path):
    raw = path.read_bytes()
    expected = [(r.offset, r.timestamp,
                 batch.header.partition_leader_epoch) for batch in read_batches(raw) for r in read_records(batch)]
    found = found_rows(raw, ['leader_epoch', 'timestamp', 'offset'])
    assert [(row['offset'], round(row['timestamp'].timestamp() * 1000),
             row['leader_epoch']) for row in found] == expected


@pytest.mark.parametrize('cluster, node', [('single-broker', 'logs'), ('three-brokers', 'node-1'),
                                           ('three-brokers-one-controller', 'node-100'),
                                           ('snapshot-only', 'logs')])
def test_data_is_the_json_that_kafkas_tool_prints_letter_for_letter(cluster, node):
    dump = gzip.open(FIXTURES/cluster/'metadata.dump.txt.gz', 'rt').read()
    theirs = [(kind, int(version), data) for kind, version, data in
              re.findall(r'payload: \{"type":"(\w+)","version":(\d+),"data":(.*)\}$', dump, re.MULTILINE)]
    files = sorted(path for path in (FIXTURES/cluster/node/METADATA).iterdir() if path.suffix in ('.log',
        '.checkpoint'))
    rows = [row for path in files for row in found_rows(path.read_bytes(), ['type', 'version', 'data'])]
    def kafka_name(name): return re.sub(r'(?<!^)(?=[A-Z])', '_', name).upper()
    assert [(kafka_name(row['type']), row['version'],
             row['data']) for row in rows if row['type'].endswith('Record')] == theirs
    control = re.findall(r'(?:LeaderChange|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters):? (\{.*\})$', dump,
                         re.MULTILINE)
    assert [row['data'] for row in rows if not row['type'].endswith('Record')] == control


# Any record that the declarations allow.

def of_type(declared, version):
    "Values of a declared type."
    if isinstance(declared, Array): return st.lists(of_type(declared.element, version), max_size=3)
    if isinstance(declared, type):
        return st.builds(declared, **{f.name: of_field(f, version) for f in declared.FIELDS if version in f.versions})
    bits = {Int8: 7, Int16: 15, Int32: 31, Int64: 63}
    if declared in bits: return st.integers(-2**bits[declared], 2**bits[declared] - 1)
    return {UInt16: st.integers(0, 65535), Float64: st.floats(allow_nan=False), Boolean: st.booleans(),
            Uuid: st.binary(min_size=16, max_size=16),
            String: st.text(max_size=9), Bytes: st.binary(max_size=9)}[declared]

def of_field(f, version):
    return st.none() | of_type(f.type, version) if version in f.nullable else of_type(f.type, version)

@st.composite
def any_value(draw):
    cls = draw(small(list(RECORD_TYPES.values())))
    version = draw(small(list(cls.VERSIONS)))
    fields = st.fixed_dictionaries({},
                                   optional={f.name: of_field(f, version) for f in cls.FIELDS if version in f.versions})
    return write_value(cls(**draw(fields), unknown_tags=draw(unknown_tags)), version)

altered = st.builds(lambda value, at, byte: value[:at % len(value)] + bytes([byte]) + value[at % len(value) + 1:],
                    any_value(), st.integers(0, 99), st.integers(0, 255))
any_log = st.lists(st.lists(st.one_of(any_value(), any_value(), any_value(), altered, st.just(b''), st.none()),
                            min_size=1, max_size=4), max_size=6)

def log_of(batches) -> bytes:
    raw, offset = b'', 0
    for i, values in enumerate(batches):
        raw += batch_of([Entry(None, '', value) for value in values], offset, attributes=i % 3 and i % 5).raw
        offset += len(values)
    return raw


@budget(150, deadline=None)
@given(any_log)
def test_any_record_that_can_be_declared_is_the_one_of_the_taught_reader(batches):
    raw = log_of(batches)
    assert found_rows(raw) == expected_rows(raw)


@budget(60, deadline=None)
@given(any_log, st.data())
def test_a_choice_of_columns_is_a_choice_of_the_same_columns(batches, data):
    raw, columns = log_of(batches), data.draw(st.lists(small(list(METADATA_COLUMNS)), unique=True, max_size=5))
    assert found_rows(raw, columns) == [row if isinstance(row,
                                                          str) else {name: row[name] for name in columns} for row
                                                          in found_rows(raw, METADATA_COLUMNS)]


@budget(100, deadline=None)
@given(any_log, st.data())
def test_any_byte_may_be_wrong(batches, data):
    "With the wrong checksum that follows, and with the checksum left unchecked."
    raw = bytearray(log_of(batches))
    if raw: raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    raw = bytes(raw)
    def all_of(check):
        try: return expected_rows(raw, check)
        except DecodeError: return None   # the framing is broken: that's for `scan` to say
    for check in (True, False):
        expected = all_of(check)
        found = found_rows(raw, check=check)
        if expected is not None: assert found == expected


@budget(120, deadline=None)
@given(st.lists(any_value(), max_size=9))
def test_data_of_any_record_is_the_json_of_the_taught_reader(values):
    raw = log_of([values]) if values else b''
    expected = [json.dumps(kafka_json(*read_value(value)), ensure_ascii=False,
                           separators=(',', ':')) for value in values]
    # there may be a topic of that name, too
    def bare(text): return text.replace('"Infinity"', 'Infinity').replace('"-Infinity"', '-Infinity')
    assert [bare(row['data']) for row in found_rows(raw, ['data'])] == [bare(text) for text in expected]


def test_data_of_text_that_json_must_escape():
    names = ['plain', 'with "quotes"', 'back\\slash', 'tab\t', 'line\n', 'null\0', 'Grüße', '\x7f', '😀', '']
    rows = found_rows(raw_batch(0, *(topic(name, TOPIC) for name in names)).raw, ['data'])
    assert [json.loads(row['data']) for row in rows] == [{'name': name, 'topicId': uuid_text(TOPIC)} for name in names]


def test_a_column_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="'leaders' in metadata_records"):
        list(metadata_batches(b'', scan(b'')[0], ['leaders']))


def test_no_columns_are_rows_all_the_same():
    raw = raw_batch(0, A_TOPIC, A_PARTITION).raw
    assert [made.num_rows for made in metadata_batches(raw, scan(raw)[0], [])] == [2]


def test_many_tags_in_order_are_read_and_in_no_order_refused():
    def value(tags):
        return A_CHANGE[:KEY_ENDS] + UnsignedVarint.write(len(tags)) + b''.join(UnsignedVarint.write(tag) + b'\0'
            for tag in tags)
    many = list(range(100, 10_000))
    for tags in (many, many[:3000][::-1]):
        assert [row['type'] for row in found_rows(raw_batch(0, value(tags)).raw)] == ['PartitionChangeRecord']
    assert found_rows(raw_batch(0,
                                value(many[::-1])).raw) == [
                                    'metadata records 0 to 0: more than 4096 tagged fields, in no order']
    compare_values(A_TOPIC, A_PARTITION, value(many[::-1]), fast=False)


def test_numbers_that_json_does_not_have_become_text():
    values = [write_value(ClientQuotaRecord(key='k', value=float(text)), 0) for text in ('nan', 'inf', '-inf', '1.5')]
    rows = found_rows(raw_batch(0, *values).raw, ['data', 'client_quota_value'])
    assert [json.loads(row['data'])['value'] for row in rows] == ['NaN', 'Infinity', '-Infinity', 1.5]
    assert [str(row['client_quota_value']) for row in rows] == ['nan', 'inf', '-inf', '1.5']


def test_the_columns_follow_from_the_declarations():
    for cls in RECORD_TYPES.values():
        for f in cls.FIELDS: assert METADATA_COLUMNS[column_name(cls, f)] == arrow_type(f.type)
    assert list(METADATA_COLUMNS)[:5] == ['offset', 'timestamp', 'leader_epoch', 'type',
                                          'version'] and list(METADATA_COLUMNS)[-1] == 'data'


def test_no_struct_inside_of_a_record_differs_from_version_to_version():
    "The columns of lists of structs count on it."
    for cls in RECORD_TYPES.values():
        for f in cls.FIELDS:
            if isinstance(f.type, Array) and isinstance(f.type.element, type):
                assert all(version in each.versions for each in f.type.element.FIELDS for version in cls.VERSIONS)
                assert not any(isinstance(each.type, Array) for each in f.type.element.FIELDS)
