"Topics: made, made larger, deleted, and made because somebody asked for them."
import os
import re
import time

import pytest
from hypothesis import given, strategies as st

from size import needs_kafka
from admin_by_hand import *
from benchmarks import real_kafka
from broker_process import running
from log_by_hand import fetch, message_batch, produce, read_fetch, read_produce
from kafka_scratch.wire.codes import ApiError, Operation, Resource
from kafka_scratch.cluster.image import Image, broker_registered
from kafka_scratch.cluster.logs import remove_deleted
from kafka_scratch.log.partition import StorageError, append
from kafka_scratch.log.records import HEADER, Record, write_batch
from kafka_scratch.log.checkpoints import read_partition_metadata
from kafka_scratch.apis.create_topics import placed_by_hand
from kafka_scratch.apis.topics import place


# --- On the disk ------------------------------------------------------------------------------------------------------

def test_directories_are_made_with_the_topic_and_after_its_growth(tmp_path):
    with Played(tmp_path) as player:
        made, = player.ask(create(topic('orders', 3))).topics
        player.ask(grow(('orders', 5)))
        assert player.names() == [f'orders-{n}' for n in range(5)]
        for n in range(5):
            assert (read_partition_metadata(str(tmp_path/f'orders-{n}')) == made.topic_id
                    and (tmp_path/f'orders-{n}'/('0' * 20 + '.log')).stat().st_size == 0)
            assert player.logs.find(player.image.topics['orders'], n).log.end_offset == 0
        player.ask(create(topic('checked', 3), validate_only=True))
        assert len(player.names()) == 5


def test_a_deleted_topic_leaves_directories_for_a_minute(tmp_path):
    now = [1_800_000_000_000]
    with Played(tmp_path, now=lambda: now[0]) as player:
        player.ask(create(topic('orders', 2), topic('kept'), topic('impatient',
                                                                   settings={'file.delete.delay.ms': '1000'})))
        player.logs.find(player.image.topics['impatient'], 0)
        player.ask(delete('orders', 'impatient'))
        assert len(player.names()) == 4 and all(re.fullmatch(r'kept-0|(orders|impatient)-[01]\.[0-9a-f]{32}-delete',
                                                             name) for name in player.names())
        now[0] += 1000
        assert remove_deleted(player.logs) == 1 and len(player.names()) == 3
        player.ask(create(topic('orders')))
        assert read_partition_metadata(str(tmp_path/'orders-0')) == player.image.topics['orders'].topic_id
    with Played(tmp_path, now=lambda: now[0]) as player:   # after a restart they have another minute
        now[0] += 59_999
        assert remove_deleted(player.logs) == 0 and len(player.names()) == 4
        now[0] += 1
        assert remove_deleted(player.logs) == 2 and player.names() == ['kept-0', 'orders-0']


def test_a_directory_that_cannot_be_renamed_is_tried_again(tmp_path, monkeypatch):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders', 2)))
        def fail(*names): raise OSError('busy')
        with monkeypatch.context() as patch:
            patch.setattr('os.rename', fail)
            player.ask(delete('orders'))
            assert remove_deleted(player.logs) == 0 and player.names() == ['orders-0', 'orders-1']
        assert remove_deleted(player.logs) == 0 and all(name.endswith('-delete') for name
                                                        in player.names()) and len(player.names()) == 2
        assert not player.logs.to_be_renamed and len(player.logs.to_be_deleted) == 2


def test_the_directories_of_another_topic_of_the_same_name_stay(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders', 2)))
        (tmp_path/'orders-1'/'partition.metadata').write_text('version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABg')
        player.ask(delete('orders'))
        assert 'orders-1' in player.names() and 'orders-0' not in player.names()


def test_an_empty_note_is_written_again(tmp_path):
    "A crash can leave a file that is there, and empty."
    with Played(tmp_path) as player:
        made, = player.ask(create(topic('orders', 2))).topics
        for n in (0, 1): (tmp_path/f'orders-{n}'/'partition.metadata').write_bytes(b'')
        assert player.logs.find(player.image.topics['orders'], 0).log.end_offset == 0
        assert read_partition_metadata(str(tmp_path/'orders-0')) == made.topic_id
        player.ask(delete('orders'))
        assert len(player.names()) == 2 and all(name.endswith('-delete') for name in player.names())


def test_a_restart_finds_what_was_made(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders', 3, settings={'retention.ms': '5'}), topic('gone')))
        player.ask(delete('gone'))
        before = player.image.topics['orders']
    with Played(tmp_path) as player:
        after = player.image.topics['orders']
        assert (after.topic_id, after.partitions) == (before.topic_id,
                                                      before.partitions) and player.image.configs == {(2,
                                                          'orders'): {'retention.ms': '5'}}
        assert (list(player.image.topics) == ['orders']
                and after.partition(0).leader_epoch == after.partition(0).partition_epoch == 0)


class Killed(BaseException): "Nothing more reaches the disk."

DISK = 'pwrite', 'fsync', 'mkdir', 'rename', 'replace', 'unlink', 'ftruncate', 'truncate'
CHANGES = {'made': lambda player: player.ask(create(topic('new', 2, settings={'flush.ms': '5'}))),
           'grown': lambda player: player.ask(grow(('orders', 4))),
           'deleted': lambda player: player.ask(delete('orders')),
           'made again': lambda player: (player.ask(delete('orders')), player.ask(create(topic('orders'))))}

def killed_at(monkeypatch, count: int, change) -> bool:
    "Makes a change, and dies before the disk is asked for anything the nth time. False: it is done before that."
    asked = [0]
    def mortal(function):
        def call(*arguments, **more):
            asked[0] += 1
            if asked[0] >= count: raise Killed
            return function(*arguments, **more)
        return call
    with monkeypatch.context() as patch:
        for name in DISK: patch.setattr(os, name, mortal(getattr(os, name)))
        try: change()
        except Killed: return True
    return False


def write_one(player, name: str, number: int) -> int:
    hosted, batch = player.logs.find(player.image.topics[name],
                                     number), bytearray(write_batch([Record(value=b'a record')]))
    return append(hosted.log, batch, HEADER.read(batch, 0)[0], hosted.leader_epoch, 1_800_000_000_000)


@pytest.mark.parametrize('what', CHANGES)
def test_a_crash_between_any_two_steps(tmp_path, monkeypatch, what):
    """What is half done is done, or hasn't begun; no record is lost, none appears in another topic, and the same change
    can be made again."""
    seen = set()
    for count in range(1, 100):
        (tmp_path/str(count)).mkdir()
        player = Played(tmp_path/str(count))
        player.ask(create(topic('orders', 2)))
        old = player.image.topics['orders'].topic_id
        for number in (0, 1): assert write_one(player, 'orders', number) == 0
        died = killed_at(monkeypatch, count, lambda: CHANGES[what](player))
        for directory in player.logs.directories: directory.lock.close()
        if not died: break
        with Played(tmp_path/str(count)) as player:
            seen.add(tuple(sorted((name, len(each.states), each.topic_id == old) for name,
                                  each in player.image.topics.items())))
            for name, each in list(player.image.topics.items()):
                for number in each.states:
                    assert write_one(player, name, number) == (1 if each.topic_id == old and number < 2 else 0)
            CHANGES[what](player)
        with Played(tmp_path/str(count)) as player:
            assert all(player.logs.find(each,
                                        number).log for each in player.image.topics.values() for number in each.states)
    before, after = ('orders', 2, True), ('orders', 1, False)
    assert seen == {'made': {(before,), (('new', 2, False), before)}, 'grown': {(before,), (('orders', 4, True),)},
                    'deleted': {(before,), ()}, 'made again': {(before,), (), (after,)}}[what]


def test_metadata_that_are_read_anew_delete_nothing(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders', 2)))
        player.logs.set_image(Image())
        assert player.names() == ['orders-0', 'orders-1'] and not player.logs.to_be_deleted


def test_if_the_disk_refuses_nothing_is_made_or_deleted(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('orders')))
        def full(records): raise StorageError('/a/secret/place: no space left')
        player.controller.write, notes = full, []
        player.logs.note = notes.append
        assert {each.error_message for each in (*player.ask(create(topic('new'))).topics,
                                                *player.ask(grow(('orders', 2))).results,
                                                *player.ask(delete('orders')).responses)} == {None}
        assert len(notes) == 3 and all('/a/secret/place' in note for note in notes)
        assert [each.error_code for each in player.ask(create(topic('new'), topic('bad name'))).topics] == [56, 56]
        assert [each.error_code for each in player.ask(grow(('orders', 2), ('nobody', 2))).results] == [56, 3]
        assert [each.error_code for each in player.ask(delete('orders')).responses] == [56]
        assert [each.error_code for each in player.ask(metadata_of('new')).topics] == [3]
        assert list(player.image.topics) == ['orders'] and player.names() == ['orders-0']


# --- Who may ----------------------------------------------------------------------------------------------------------

def may(*allowed): return lambda caller, operation, resource, name: (operation, resource, name) in allowed


def test_who_may_not_create_is_told_so(tmp_path):
    with Played(tmp_path) as player:
        player.node.authorizer = may((Operation.CREATE, Resource.TOPIC, 'mine'))
        mine, others = player.ask(create(topic('mine'), topic('others'))).topics
        assert (mine.error_code, mine.topic_config_error_code, mine.num_partitions, mine.configs) == (0, 29, -1, [])
        assert (others.error_code, others.error_message) == (29,
                                                             'Authorization failed.') and list(
                                                                 player.image.topics) == ['mine']
        player.node.authorizer = may((Operation.CREATE, Resource.CLUSTER, 'kafka-cluster'),
                                     (Operation.DESCRIBE_CONFIGS, Resource.TOPIC, 'x'))
        made, = player.ask(create(topic('x', 2))).topics
        assert (made.error_code, made.num_partitions, len(made.configs)) == (0, 2, 33)


def test_who_may_not_see_alter_or_delete_is_told_so(tmp_path):
    with Played(tmp_path) as player:
        player.ask(create(topic('mine'), topic('seen'), topic('hidden')))
        player.node.authorizer = may(*((operation, Resource.TOPIC, 'mine') for operation in (Operation.ALTER,
            Operation.DELETE, Operation.DESCRIBE)),
                                       (Operation.DESCRIBE, Resource.TOPIC, 'seen'))
        grown = {each.name: (each.error_code, each.error_message) for each in player.ask(grow(('mine', 2), ('seen', 2),
            ('nobody', 2))).results}
        assert grown == {'mine': (0, None), 'seen': (29, None), 'nobody': (29, None)}
        gone = {each.name: each.error_code for each in player.ask(delete('mine', 'seen', 'hidden', 'nobody')).responses}
        assert gone == {'mine': 0, 'seen': 29, 'hidden': 29, 'nobody': 29} and sorted(player.image.topics) == ['hidden',
            'seen']
        by_id, = player.ask(delete(player.image.topics['hidden'].topic_id)).responses
        assert (by_id.error_code, by_id.name) == (29, None)


def test_nobody_makes_a_topic_by_asking_who_may_not_create_it(tmp_path):
    with Played(tmp_path) as player:
        player.node.authorizer = may((Operation.DESCRIBE, Resource.TOPIC, 'new'))
        assert [each.error_code for each in player.ask(metadata_of('new')).topics] == [29] and not player.image.topics
        player.node.authorizer = may((Operation.DESCRIBE, Resource.TOPIC, 'new'),
                                     (Operation.CREATE, Resource.TOPIC, 'new'))
        assert [each.error_code for each
                in player.ask(metadata_of('new')).topics] == [3] and list(player.image.topics) == ['new']


def test_what_may_be_done_to_the_cluster_is_said_to_those_who_may_describe_it(tmp_path):
    with Played(tmp_path) as player:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        player.node.authorizer = may((Operation.CREATE, Resource.CLUSTER, 'kafka-cluster'))
        assert player.ask(request).cluster_authorized_operations == 0
        player.node.authorizer = may((Operation.DESCRIBE, Resource.CLUSTER, 'kafka-cluster'))
        assert player.ask(request).cluster_authorized_operations == 1 << Operation.DESCRIBE


def test_who_may_not_describe_the_cluster_is_not_told_by_metadata_either(tmp_path):
    with Played(tmp_path) as player:
        request = metadata_of()
        request.include_cluster_authorized_operations = True
        player.node.authorizer = may((Operation.CREATE, Resource.CLUSTER, 'kafka-cluster'))
        assert player.ask(request, 10).cluster_authorized_operations == 0
        player.node.authorizer = may((Operation.DESCRIBE, Resource.CLUSTER, 'kafka-cluster'))
        assert player.ask(request, 10).cluster_authorized_operations == 1 << Operation.DESCRIBE


def test_many_names_are_sorted_once(tmp_path, monkeypatch):
    "Each new name isn't compared with every topic."
    from kafka_scratch.apis import create_topics as module
    calls, sort = [], module.look_alikes
    monkeypatch.setattr(module, 'look_alikes', lambda names: calls.append(1) or sort(names))
    with Played(tmp_path) as player:
        player.ask(create(topic('a.b')))
        calls.clear()
        said = player.ask(create(*(topic(f'x.{n}') for n in range(50)), topic('a_b'), validate_only=True))
        assert [each.error_code for each in said.topics] == [0] * 50 + [17] and len(calls) == 1


def test_asking_makes_no_more_than_creating_would(tmp_path):
    with Played(tmp_path, 'num.partitions=5001') as player:
        assert [each.error_code for each in player.ask(metadata_of('one', 'two')).topics] == [3,
            3] and not player.image.topics


# --- Where replicas go ------------------------------------------------------------------------------------------------

@given(st.dictionaries(st.integers(0, 20), st.booleans(), max_size=6), st.integers(0, 12), st.integers(1, 7),
       st.integers(0, 9))
def test_replicas_are_on_different_brokers_and_leaders_are_alive_and_spread(brokers, count, replication_factor, first):
    image = Image()
    for id, fenced in brokers.items():
        broker_registered(image, RegisterBrokerRecord(broker_id=id, fenced=fenced, rack=None))
    alive = [id for id, fenced in brokers.items() if not fenced]
    if not alive or replication_factor > len(brokers):
        with pytest.raises(ApiError): place(image, count, replication_factor, first)
        return
    placed = place(image, count, replication_factor, first)
    assert len(placed) == count and all(len(set(replicas)) == replication_factor and replicas[0] in alive for replicas
                                        in placed)
    leaders = [sum(replicas[0] == id for replicas in placed) for id in alive]
    assert max(leaders) - min(leaders) <= 1
    by_hand = [CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(placed)]
    assert placed_by_hand(image, by_hand[::-1]) == placed


# --- Ordinary clients, over sockets -----------------------------------------------------------------------------------



@pytest.mark.filterwarnings('ignore')
def test_kafka_python_makes_grows_configures_and_deletes(tmp_path):
    from kafka import KafkaProducer
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
    from kafka.errors import MessageSizeTooLargeError
    with running(tmp_path, num_partitions=2) as broker:
        admin = KafkaAdminClient(bootstrap_servers=f'127.0.0.1:{broker.port}')
        admin.create_topics([NewTopic('orders', 3, 1, topic_configs={'max.message.bytes': '2000'})])
        admin.create_partitions({'orders': NewPartitions(5)})
        assert sorted(admin.list_topics()) == ['orders']
        def send(topic, value):
            producer = KafkaProducer(bootstrap_servers=f'127.0.0.1:{broker.port}')
            try: return producer.send(topic, value).get(20).offset
            finally: producer.close()
        assert send('wished', b'and made') == 0
        with pytest.raises(MessageSizeTooLargeError): send('orders', bytes(5000))
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, 'orders', configs={'max.message.bytes': '9000'})])
        assert send('orders', bytes(5000)) == 0
        assert sorted(name for name in admin.list_topics() if not name.startswith('__')) == ['orders', 'wished']
        admin.delete_topics(['orders'])
        admin.close()
        assert [path.name for path
                in (tmp_path/'logs').glob('wished-*')] and len(list((tmp_path/'logs').glob('orders-*-delete'))) == 5


def test_confluent_kafka_makes_grows_configures_and_deletes(tmp_path):
    admin_of = pytest.importorskip('confluent_kafka.admin')
    from confluent_kafka import KafkaException
    with running(tmp_path) as broker:
        admin = admin_of.AdminClient({'bootstrap.servers': f'127.0.0.1:{broker.port}'})
        def done(futures):
            return {each if isinstance(each, str) else each.name: future.result(20) for each, future in futures.items()}
        done(admin.create_topics([admin_of.NewTopic('orders', 3, 1, config={'retention.ms': '60000'})]))
        with pytest.raises(KafkaException, match='already exists'):
            done(admin.create_topics([admin_of.NewTopic('orders', 3, 1)]))
        done(admin.create_partitions([admin_of.NewPartitions('orders', 4)]))
        resource = admin_of.ConfigResource(admin_of.ConfigResource.Type.TOPIC, 'orders')
        found = done(admin.describe_configs([resource]))['orders']
        assert (found['retention.ms'].value, found['retention.ms'].source) == ('60000', 1) and len(found) == 33
        entry = admin_of.ConfigEntry('retention.ms', '70000', incremental_operation=admin_of.AlterConfigOpType.SET)
        done(admin.incremental_alter_configs([admin_of.ConfigResource(admin_of.ConfigResource.Type.TOPIC, 'orders',
                                                                      incremental_configs=[entry])]))
        assert done(admin.describe_configs([resource]))['orders']['retention.ms'].value == '70000'
        cluster = admin.describe_cluster().result(20)
        assert [node.port for node
                in cluster.nodes] == [broker.port] and len(
                    admin.list_topics(timeout=20).topics['orders'].partitions) == 4
        done(admin.delete_topics(['orders']))
        assert 'orders' not in admin.list_topics(timeout=20).topics


def test_a_topic_is_deleted_while_one_reads_it_and_another_writes(tmp_path):
    """Who waits for records hears of it at once; what was written is stored or refused, and nothing of it is in the
    next topic of that name."""
    with running(tmp_path) as broker, broker.client() as admin, broker.client() as reader, broker.client() as writer:
        def ask(api, request):
            return answer_in(api, request.VERSIONS[-1], admin.ask(framed(api, request.VERSIONS[-1], request)))
        def error_of(answer): return answer['topics']['orders'][0]['error_code']
        one, wait = {'orders': {0: message_batch(b'a record')}}, 30_000   # milliseconds
        for _ in range(3):
            ask(create_topics, create(topic('orders', settings={'flush.messages': '1'})))
            reader.send(fetch(1, {'orders': {0: 0}}, version=12, max_wait_ms=wait, min_bytes=1 << 20))
            writer.send(produce(1, one) * 3)
            assert ask(delete_topics, delete('orders')).responses[0].error_code == 0
            started = time.monotonic()
            assert error_of(read_fetch(reader.frame(), 12)) == 3 and time.monotonic() - started < wait / 2000
            assert {error_of(read_produce(writer.frame())) for _ in range(3)} <= {0, 3, 56}
            ask(create_topics, create(topic('orders')))
            stored = read_produce(writer.ask(produce(2, one)))['topics']['orders'][0]
            assert (stored['error_code'], stored['base_offset']) == (0, 0)
            ask(delete_topics, delete('orders'))


@needs_kafka
def test_kafkas_own_tools_and_then_kafka_itself(tmp_path):
    "Topics are made and changed with the tools; then Apache Kafka goes on in our directory, and says the same of them."
    def topics(port, *arguments):
        return real_kafka.run_tool('org.apache.kafka.tools.TopicCommand', '--bootstrap-server', f'127.0.0.1:{port}',
                                   *arguments)
    def configs(port, *arguments):
        return real_kafka.run_tool('kafka.admin.ConfigCommand', '--bootstrap-server', f'127.0.0.1:{port}', *arguments)
    def said(port):
        return topics(port, '--describe', '--topic', 'orders'), configs(port, '--describe', '--all', '--entity-type',
            'topics', '--entity-name', 'orders')
    with running(tmp_path) as broker:
        assert topics(broker.port, '--create', '--topic', 'orders', '--partitions', 3, '--config',
                      'retention.ms=60000') == 'Created topic orders.\n'
        topics(broker.port, '--create', '--topic', 'gone')
        topics(broker.port, '--alter', '--topic', 'orders', '--partitions', 4)
        configs(broker.port, '--alter', '--entity-type', 'topics', '--entity-name', 'orders', '--add-config',
                'cleanup.policy=[compact,delete],flush.ms=5')
        configs(broker.port, '--alter', '--entity-type', 'topics', '--entity-name', 'orders', '--delete-config',
                'flush.ms')
        configs(broker.port, '--alter', '--entity-type', 'brokers', '--entity-default', '--add-config',
                'log.retention.bytes=1234567')
        topics(broker.port, '--delete', '--topic', 'gone')
        ours = said(broker.port)
        assert 'PartitionCount: 4' in ours[0] and 'cleanup.policy=compact,delete' in ours[0] and '1234567' in ours[1]
    kafka = real_kafka.RealKafka(tmp_path/'kafka')
    kafka.properties['log.dirs'] = kafka.log_dir = tmp_path/'logs'
    kafka.directory.mkdir()
    with kafka: theirs = said(kafka.port)
    assert ours[0].split() == theirs[0].split() and sorted(ours[1].splitlines()) == sorted(theirs[1].splitlines())
    assert not list((tmp_path/'logs').glob('gone-[0-9]'))
