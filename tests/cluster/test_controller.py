"""The controller: what it writes can be read by everybody who reads metadata logs, Apache Kafka included."""
import os
import sys
from pathlib import Path

import pytest

from size import needs_kafka
from broker_process import FIXTURES, ROOT

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka, wire

from kafka_scratch.cluster import controller as controller_module
from kafka_scratch.cluster.controller import Controller, become_leader, found_cluster, metadata_batch, record_version
from kafka_scratch.cluster.controller import topic_records
from kafka_scratch.wire.codes import METADATA
from kafka_scratch.cluster.metadata_log import MetadataLog, load_image
from kafka_scratch.cluster.records import (BeginTransactionRecord, ConfigRecord, EndTransactionRecord,
                                           FeatureLevelRecord, PartitionRecord,
                                           ProducerIdsRecord,
                                            RegisterBrokerRecord, RemoveTopicRecord, TopicRecord,
                                            UserScramCredentialRecord, read_value)
from kafka_scratch.log.partition import StorageError
from kafka_scratch.log.records import read_batches, read_records
from kafka_scratch.log.segments import file_name

NOW = 1_800_000_000_000


def controller_on(directory: Path, **more) -> Controller:
    log = MetadataLog(directory/METADATA)
    controller = Controller(log, 1, log.poll, lambda: NOW, **more)
    log.poll()
    return controller


def segment(directory: Path) -> Path: return directory/METADATA/file_name(0)


def kinds(directory: Path) -> list[tuple[int, list[str]]]:
    "Epoch and record types of each batch."
    found = []
    for batch in read_batches(segment(directory).read_bytes()):
        names = ['control' if batch.control else type(read_value(record.value)[0]).__name__ for record
                 in read_records(batch)]
        found.append((batch.header.partition_leader_epoch, names))
    return found


def test_a_topic_is_one_batch(tmp_path):
    controller = controller_on(tmp_path)
    controller.write(topic_records('orders', [[1], [1]], {'retention.ms': '1000'}))
    assert kinds(tmp_path)[-1] == (1, ['TopicRecord', 'ConfigRecord', 'PartitionRecord', 'PartitionRecord'])
    assert [epoch for epoch, _ in kinds(tmp_path)] == [1, 1, 1] and kinds(tmp_path)[0][1] == ['control']
    partition = controller.image.topics['orders'].partition(1)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch, partition.isr) == (1, 0, 0, (1,))
    assert controller.image.configs[2, 'orders'] == {'retention.ms': '1000'}


def test_nothing_is_written_for_nothing(tmp_path):
    controller_on(tmp_path).write([])
    assert not (tmp_path/METADATA).exists()


def test_every_controller_has_an_epoch_of_its_own(tmp_path):
    for number in range(1, 5):
        controller = controller_on(tmp_path)
        controller.write(topic_records(f'topic-{number}', [[1]]))
        assert controller.epoch == controller.image.last_epoch == number
        controller.close()
    assert len(load_image(tmp_path).topics) == 4
    assert [line.split() for line
            in (tmp_path/METADATA/'leader-epoch-checkpoint').read_text().splitlines()[2:]][-1][0] == '4'


def test_the_vote_of_a_real_controller_counts(tmp_path):
    (tmp_path/METADATA).mkdir()
    (tmp_path/METADATA/'quorum-state').write_text('{"leaderId":1,"leaderEpoch":41,"votedId":-1,"data_version":0}')
    controller = controller_on(tmp_path)
    controller.write(topic_records('orders', [[1]]))
    assert controller.epoch == 42


@pytest.mark.parametrize('junk', ['', '{', '[]', '{"leaderEpoch": "x"}'])
def test_a_quorum_state_that_says_nothing(tmp_path, junk):
    (tmp_path/METADATA).mkdir()
    (tmp_path/METADATA/'quorum-state').write_text(junk)
    controller = controller_on(tmp_path)
    controller.write(topic_records('orders', [[1]]))
    assert controller.epoch == 1


@pytest.mark.parametrize('cut', [1, 12, 60, 61, 70])
def test_half_a_batch_of_somebody_who_died(tmp_path, cut):
    first = controller_on(tmp_path)
    first.write(topic_records('orders', [[1]]))
    first.close()
    whole = segment(tmp_path).read_bytes()
    other = next(read_batches((FIXTURES/'single-broker/metadata-live'/METADATA/file_name(0)).read_bytes(), 174))
    segment(tmp_path).write_bytes(whole + bytes(other.buf[other.start:other.start + cut]))
    said = []
    second = controller_on(tmp_path, note=said.append)
    second.write(topic_records('payments', [[1]]))
    assert sorted(load_image(tmp_path).topics) == ['orders',
                                                   'payments'] and segment(tmp_path).read_bytes().startswith(whole)
    assert any('is cut from' in line for line in said)


def test_a_damaged_log_is_not_written(tmp_path):
    first = controller_on(tmp_path)
    first.write(topic_records('orders', [[1]]))
    first.close()
    damaged = bytearray(segment(tmp_path).read_bytes())
    damaged[-1] ^= 1
    segment(tmp_path).write_bytes(damaged)
    log = MetadataLog(tmp_path/METADATA)
    def learn():
        try: log.poll()
        except Exception: pass
    second = Controller(log, 1, learn, lambda: NOW)
    with pytest.raises(StorageError, match='damaged'): second.write(topic_records('payments', [[1]]))
    assert segment(tmp_path).read_bytes() == bytes(damaged)


def test_a_disk_that_refuses(tmp_path, monkeypatch):
    controller = controller_on(tmp_path)
    controller.write(topic_records('orders', [[1]]))
    before = segment(tmp_path).read_bytes()
    def full(*_): raise OSError(28, 'No space left on device')
    monkeypatch.setattr(os, 'pwrite', full)
    with pytest.raises(StorageError, match='No space left'): controller.write(topic_records('payments', [[1]]))
    monkeypatch.undo()
    assert segment(tmp_path).read_bytes() == before and sorted(controller.image.topics) == ['orders']
    controller.write(topic_records('payments', [[1]]))
    assert sorted(controller.image.topics) == ['orders', 'payments']


def test_a_disk_that_refuses_at_the_beginning(tmp_path, monkeypatch):
    "Then nothing has begun, and the next one who writes begins again."
    controller = controller_on(tmp_path)
    real, calls = os.pwrite, []
    def first_only(*arguments):
        calls.append(arguments)
        if len(calls) > 1: raise OSError(28, 'No space left on device')
        return real(*arguments)
    monkeypatch.setattr(os, 'pwrite', first_only)
    with pytest.raises(StorageError, match='No space left'): controller.write(topic_records('orders', [[1]]))
    monkeypatch.undo()
    controller.write(topic_records('payments', [[1]]))
    assert (sorted(load_image(tmp_path).topics) == ['payments']
            and load_image(tmp_path).features['metadata.version'] == 27)
    assert [names[0] for _, names in kinds(tmp_path)] == ['control', 'control', 'FeatureLevelRecord', 'TopicRecord']


def test_a_transaction_of_somebody_who_died_never_happened(tmp_path):
    first = controller_on(tmp_path)
    first.write(topic_records('orders', [[1]]))
    first.write([BeginTransactionRecord(name='large'), *topic_records('half', [[1]])])
    first.close()
    second = controller_on(tmp_path)
    second.write(topic_records('payments', [[1]]))
    assert sorted(second.image.topics) == sorted(load_image(tmp_path).topics) == ['orders', 'payments']
    second.close()
    third = controller_on(tmp_path)
    third.write([BeginTransactionRecord(name='large'), *topic_records('whole', [[1]]), EndTransactionRecord()])
    assert sorted(load_image(tmp_path).topics) == ['orders', 'payments', 'whole']
    assert [names for _, names in kinds(tmp_path)].count(['AbortTransactionRecord']) == 1


def test_the_first_transaction_of_a_cluster_may_be_the_one_that_was_never_finished(tmp_path):
    first = controller_on(tmp_path)
    become_leader(first)
    first.close()
    begun = metadata_batch([BeginTransactionRecord(name='Bootstrap records'),
                            FeatureLevelRecord(name='metadata.version', feature_level=20)], 20, NOW)
    leader = next(read_batches(segment(tmp_path).read_bytes()))
    begun[:8], begun[12:16] = (1).to_bytes(8, 'big'), (1).to_bytes(4, 'big')   # its offset, and its epoch
    segment(tmp_path).write_bytes(bytes(leader.buf[:leader.end]) + begun)
    second = controller_on(tmp_path)
    second.write(topic_records('orders', [[1]]))
    assert second.image.features['metadata.version'] == 27 and list(load_image(tmp_path).topics) == ['orders']


def test_a_beginning_that_cannot_be_read(tmp_path):
    "Nothing is written before that is mended, and whoever runs the broker can see which file it is."
    (tmp_path/'bootstrap.checkpoint').write_bytes(b'not a batch, but long enough to look like one' * 3)
    controller = controller_on(tmp_path)
    for _ in range(3):
        with pytest.raises(StorageError, match='bootstrap.checkpoint'): controller.write(topic_records('orders', [[1]]))
    assert not segment(tmp_path).stat().st_size
    (tmp_path/'bootstrap.checkpoint').unlink()
    controller.write(topic_records('orders', [[1]]))
    assert list(load_image(tmp_path).topics) == ['orders'] and controller.epoch == 1


def test_users_may_be_there_from_the_beginning(tmp_path):
    "`kafka-storage format --add-scram` writes them beside the features."
    user = UserScramCredentialRecord(name='metadata.version', mechanism=1, salt=b's', stored_key=b'k', server_key=b'k',
                                     iterations=4096)
    (tmp_path/'bootstrap.checkpoint').write_bytes(metadata_batch([user,
                                                                  FeatureLevelRecord(name='metadata.version',
                                                                      feature_level=20)], 20, NOW))
    controller = controller_on(tmp_path)
    controller.write(topic_records('orders', [[1]]))
    assert controller.image.features == {'metadata.version': 20} and list(controller.image.scram) == [(1,
        'metadata.version')]


def test_a_new_log_is_synced_by_name(tmp_path, monkeypatch):
    synced, sync = [], controller_module.sync_directory
    monkeypatch.setattr(controller_module, 'sync_directory', lambda path: synced.append(path) or sync(path))
    for name in ('a', 'b'):
        controller = controller_on(tmp_path)
        controller.write(topic_records(name, [[1]]))
        controller.close()
    assert synced == [str(tmp_path)]


def test_a_cluster_of_an_older_level_gets_older_records(tmp_path):
    snapshot = metadata_batch([FeatureLevelRecord(name='metadata.version', feature_level=14)], 14, NOW)
    (tmp_path/'bootstrap.checkpoint').write_bytes(snapshot)
    controller = controller_on(tmp_path, introduce=lambda: [RegisterBrokerRecord(broker_id=1, end_points=[],
        features=[], rack=None)])
    controller.write(topic_records('orders', [[1]]))
    versions = {type(read_value(record.value)[0]).__name__: read_value(record.value)[1]
                for batch in read_batches(segment(tmp_path).read_bytes()) if not batch.control for record
                in read_records(batch)}
    assert controller.image.features == {'metadata.version': 14} and set(versions.values()) == {0}


def test_behind_a_checkpoint(tmp_path):
    "Only a checkpoint is there: the log goes on behind it."
    source = FIXTURES/'snapshot-only/metadata-live'/METADATA
    (tmp_path/METADATA).mkdir()
    newest = sorted(source.glob('*.checkpoint'))[-1]
    (tmp_path/METADATA/newest.name).write_bytes(newest.read_bytes())
    before = set(load_image(tmp_path).topics)
    controller = controller_on(tmp_path)
    controller.write(topic_records('one.more', [[1]]))
    assert set(load_image(tmp_path).topics) == before | {'one.more'}
    assert (tmp_path/METADATA/file_name(int(newest.name[:20]))).exists()


@pytest.mark.parametrize('fixture', ['single-broker/logs', 'single-broker/metadata-live', 'snapshot-only/logs',
                                     'three-brokers/node-1'])
def test_going_on_with_a_real_log(tmp_path, fixture):
    (tmp_path/METADATA).mkdir()
    for path in (FIXTURES/fixture/METADATA).iterdir(): (tmp_path/METADATA/path.name).write_bytes(path.read_bytes())
    before = load_image(tmp_path)
    topics, epoch, features = set(before.topics), before.last_epoch, dict(before.features)
    controller = controller_on(tmp_path)
    controller.write(topic_records('one.more', [[1], [1]]))
    controller.write([RemoveTopicRecord(topic_id=controller.image.topics['one.more'].topic_id)])
    controller.write(topic_records('another', [[1]]))
    controller.close()
    after = load_image(tmp_path)
    assert set(after.topics) == topics | {'another'} and after.last_epoch > epoch and after.features == features


def test_producer_ids_are_given_once(tmp_path):
    given = []
    for _ in range(3):
        controller = controller_on(tmp_path)
        given += [*controller.next_producer_ids(10), *controller.next_producer_ids(10)]
        controller.close()
    assert given == list(range(60))


@pytest.mark.parametrize('level, partition, broker', [(1, 0, 0), (16, 0, 0), (17, 1, 3), (27, 1, 3)])
def test_versions_follow_the_level(level, partition, broker):
    assert record_version(PartitionRecord(), level) == partition and record_version(RegisterBrokerRecord(),
        level) == broker
    assert all(record_version(record, level) == 0 for record in (TopicRecord(), ConfigRecord(), ProducerIdsRecord()))


def test_the_directory_of_a_stranger_gets_no_name(tmp_path):
    (tmp_path/'thesis.tex').write_text('...')
    assert found_cluster([str(tmp_path)], 1) is None and [path.name for path in tmp_path.iterdir()] == ['thesis.tex']


@pytest.mark.parametrize('step', ['fsync', 'replace'])
def test_who_dies_while_a_directory_is_named_names_it_the_next_time(tmp_path, monkeypatch, step):
    class Killed(BaseException): pass
    def die(*_): raise Killed
    for name in 'ab': (tmp_path/name).mkdir()
    cluster_id = found_cluster([str(tmp_path/'a')], 1)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, step, die)
        found_cluster([str(tmp_path/'a'), str(tmp_path/'b')], 1, cluster_id)
    assert not (tmp_path/'b'/'meta.properties').exists()
    assert found_cluster([str(tmp_path/'a'), str(tmp_path/'b')], 1, cluster_id) == cluster_id
    assert (f'cluster.id={cluster_id}\n' in (tmp_path/'b'/'meta.properties').read_text()
            and len(list((tmp_path/'b').iterdir())) == 1)


def test_several_directories_have_one_cluster(tmp_path):
    paths = [tmp_path/name for name in 'abc']
    for path in paths: path.mkdir()
    cluster_id = found_cluster([str(path) for path in paths], 7)
    texts = [(path/'meta.properties').read_text() for path in paths]
    assert all(f'cluster.id={cluster_id}\n' in text and 'node.id=7\n' in text for text
               in texts) and len(set(texts)) == 3


@needs_kafka
def test_kafka_goes_on_where_we_stopped_and_we_where_kafka_did(tmp_path):
    """An empty directory is ours first; then Apache Kafka starts on it, makes a topic, and stops; then it is ours
    again; then Kafka's."""
    logs = tmp_path/'logs'
    logs.mkdir()
    found_cluster([str(logs)], 1)
    controller = controller_on(logs)
    controller.write(topic_records('ours', [[1], [1]], {'retention.ms': '123456'}))
    assert controller.next_producer_ids() == range(0, 1000)
    controller.close()
    dump = real_kafka.dump_log(segment(logs), '--cluster-metadata-decoder')
    assert dump.count('isvalid: true') == 4 and '"type":"TOPIC_RECORD","version":0,"data":{"name":"ours"' in dump

    with real_kafka.RealKafka(tmp_path) as kafka:
        described = wire.parse_describe(wire.exchange(kafka.port, wire.describe_request()))
        assert [len(described[name][1]) for name in ('ours',)] == [2]
        kafka.create_topics({'theirs': 3})
    between = load_image(logs)
    assert set(between.topics) == {'ours', 'theirs'} and between.last_epoch > 1

    controller = controller_on(logs)
    controller.write(topic_records('ours.again', [[1]]))
    controller.write([RemoveTopicRecord(topic_id=controller.image.topics['theirs'].topic_id)])
    assert controller.epoch == between.last_epoch + 1
    controller.close()
    kafka = real_kafka.RealKafka(tmp_path)
    kafka.output.unlink()
    with kafka:
        described = wire.parse_describe(wire.exchange(kafka.port, wire.describe_request()))
        assert set(described) == {'ours', 'ours.again'}
    assert load_image(logs).configs[2, 'ours'] == {'retention.ms': '123456'}
