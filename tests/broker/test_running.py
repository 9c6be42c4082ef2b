"""Brokers for programs and tests: `running_broker` in a thread, `Broker` in an event loop. What is left when the block
is left: nothing."""
import asyncio
import contextlib
import os
import socket
import threading
import time

import pytest

from kafka_scratch.broker import running
from kafka_scratch.client.client import Unanswered, fetch_from, find_topics, send_batch
from kafka_scratch.cluster.properties import ConfigError
from kafka_scratch.log.records import Record, read_batches, read_records, write_batch
from kafka_scratch.broker.running import Broker, running_broker, setting_texts, wanted_topics


def write(client, topic, *values, partition=0):
    return send_batch(client, topic, partition, write_batch([Record(offset_delta=n, value=value) for n,
                                                             value in enumerate(values)]))


def read(client, topic, partition=0):
    return [record.value for batch in read_batches(fetch_from(client, topic, partition,
                                                              0).records) for record in read_records(batch)]


def answers(port: int) -> bool:
    with socket.socket() as probe: return probe.connect_ex(('127.0.0.1', port)) == 0


def threads() -> list: return [thread for thread in threading.enumerate() if thread.name == 'kafka_scratch']


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert threads() == []


# --- With a thread
# ------------------------------------------------------------------------------------------------------------

def test_is_ready_soon_and_gone_afterwards():
    with running_broker(): pass   # whatever has to be imported
    begin = time.monotonic()
    with running_broker(topics={'orders': 3}) as broker, broker.client() as client:
        assert time.monotonic() - begin < 1
        assert os.path.isdir(broker.directory) and broker.bootstrap_servers == f'127.0.0.1:{broker.port}'
        assert len(find_topics(client, ['orders'])['orders'].partitions) == 3
        directory, port = broker.directory, broker.port
    assert not os.path.exists(directory) and not answers(port) and repr(broker) == '<a broker that is not running>'


def test_restart_keeps_port_and_records():
    with running_broker(topics=['orders']) as broker, broker.client() as client:
        port, directory = broker.port, broker.directory
        write(client, 'orders', b'one', b'two')
        for _ in range(3): assert broker.restart() is broker
        assert (broker.port, broker.directory) == (port, directory) and read(client, 'orders') == [b'one', b'two']
        assert write(client, 'orders', b'three') == 2


def test_restart_with_other_settings():
    with running_broker(topics=['orders']) as broker, broker.client() as client:
        broker.restart(message_max_bytes=10)
        with pytest.raises(Unanswered, match='MESSAGE_TOO_LARGE'): write(client, 'orders', b'too much')


@pytest.mark.parametrize('how', ['restart', 'start'])
def test_a_restart_that_fails_keeps_the_records(how):
    with running_broker(topics=['orders']) as broker, broker.client() as client:
        directory, port = broker.directory, broker.port
        write(client, 'orders', b'one')
        with pytest.raises(ConfigError): broker.restart(log_retention_ms='soon')
        assert (os.path.isdir(directory) and broker.directory == directory and not answers(port)
                and 'log.retention.ms' not in broker.settings)
        getattr(broker, how)()
        assert broker.port == port and read(client, 'orders') == [b'one']
        with pytest.raises(RuntimeError): broker.start()
    assert not os.path.exists(directory)


def test_a_restart_that_fails_and_then_the_end():
    with running_broker() as broker:
        directory = broker.directory
        with pytest.raises(ConfigError): broker.restart(fetch_max_bytes=1)
    assert not os.path.exists(directory)


def test_nothing_is_left_after_an_exception():
    with pytest.raises(ZeroDivisionError), running_broker() as one, running_broker() as other:
        places = [(each.directory, each.port) for each in (one, other)]
        1 / 0
    assert not any(os.path.exists(directory) or answers(port) for directory, port in places)


def test_several_at_once_are_strangers():
    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(running_broker(topics=['orders'])) for _ in range(4)]
        for number, broker in enumerate(brokers):
            with broker.client() as client: write(client, 'orders', b'%d' % number)
        for number, broker in enumerate(brokers):
            with broker.client() as client: assert read(client, 'orders') == [b'%d' % number]
        assert len({broker.port for broker in brokers}) == 4 == len({broker.directory for broker in brokers})


@pytest.mark.parametrize('how', ['directory', 'log_dirs', 'log.dirs'])
def test_a_given_directory_stays(tmp_path, how):
    for values in ([b'one'], [b'one', b'two']):
        with running_broker(**{how: tmp_path/'logs'}, topics={'orders': 2}) as broker, broker.client() as client:
            write(client, 'orders', values[-1], partition=1)
            assert read(client, 'orders', 1) == values
    assert (tmp_path/'logs'/'orders-1').is_dir() and (tmp_path/'logs'/'meta.properties').exists()


def test_start_and_stop_by_hand():
    broker = running_broker()
    with pytest.raises(RuntimeError, match='before it is started'): broker.bootstrap_servers
    broker.stop()
    try:
        with broker.start() as same: assert same is broker and answers(broker.port)
        broker.stop()
        assert broker.start().restart() is broker
        with pytest.raises(RuntimeError, match='runs already'): broker.start()
    finally: broker.stop()


def test_more_topics_later():
    with running_broker(num_partitions=2) as broker, broker.client() as client:
        broker.create_topics(['a', 'b'])
        broker.create_topics({'b': 7, 'c': {'partitions': 1, 'cleanup_policy': 'compact'}})
        assert {name: len(topic.partitions) for name, topic in find_topics(client).items()} == {'a': 2, 'b': 2, 'c': 1}
        with pytest.raises(ConfigError, match='Unknown topic config name: speed'):
            broker.create_topics({'d': {'speed': 'high'}})
        assert 'd' not in find_topics(client)


def test_a_port_of_ones_own():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    with running_broker(port=port) as broker: assert broker.port == port and answers(port)


def test_several_listeners():
    with running_broker(listeners='PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0',
                        listener_security_protocol_map=['OTHER:PLAINTEXT', 'PLAINTEXT:PLAINTEXT']) as broker:
        before = broker.addresses
        assert list(before) == ['PLAINTEXT',
                                'OTHER'] and all(answers(int(address.split(':')[1])) for address in before.values())
        assert broker.restart().addresses == before


@pytest.mark.parametrize('mistake, problem', [
    (dict(log_retention_ms='soon'), 'the settings: log.retention.ms takes'),
    (dict(topics=['not a name']), 'not a name'), (dict(topics={'a': 0}), 'at least one'),
    (dict(topics={'a': 'many'}), 'at least one'), (dict(num_partitions='many'), 'the settings: num.partitions takes'),
    (dict(group_max_size=-1), 'the settings: group.max.size takes'),
    (dict(listeners='nonsense'), 'listeners'), (dict(topics={'a': {'cleanup.policy': 'perhaps'}}), 'cleanup.policy')])
def test_a_start_that_fails_leaves_nothing(mistake, problem, tmp_path, monkeypatch):
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    with pytest.raises(ConfigError, match=problem), running_broker(**mistake): pass
    assert list(tmp_path.iterdir()) == []


def test_what_belongs_to_another_broker():
    with running_broker(topics=['orders']) as broker, broker.client() as client:
        with pytest.raises(ConfigError, match="can't listen"), running_broker(port=broker.port): pass
        for path in (broker.directory, broker.directory + '/.'):
            with pytest.raises(ConfigError, match='the directory of another broker'), running_broker(path): pass
        write(client, 'orders', b'still here')


def test_directories_are_taken_before_the_start_and_released_if_it_fails(tmp_path):
    async def race():
        brokers = [Broker(tmp_path/'logs') for _ in range(2)]
        results = await asyncio.gather(*(broker.start() for broker in brokers), return_exceptions=True)
        for broker in brokers: await broker.stop()
        return results
    results = asyncio.run(race())
    assert sorted(type(result).__name__ for result in results) == ['Broker', 'ConfigError']
    with running_broker(tmp_path/'apart', metadata_log_dir=tmp_path/'metadata'):
        with pytest.raises(ConfigError, match='metadata is the directory of another'), running_broker(tmp_path/'others',
            metadata_log_dir=tmp_path/'metadata'):
            pass
    with running_broker(tmp_path/'apart', metadata_log_dir=tmp_path/'metadata'): pass
    assert not running.DIRECTORIES


def test_clients_of_a_start_that_fails_are_hung_up_on(tmp_path, monkeypatch):
    lines = []
    class Late(running.Server):
        async def start(self):
            await super().start()
            lines.append(socket.create_connection(('127.0.0.1', self.ports[0])))
            while not self.connections: await asyncio.sleep(0.01)
            raise ConfigError('not today')
    async def start():
        with pytest.raises(ConfigError, match='not today'): await Broker(tmp_path/'logs').start()
        await asyncio.sleep(0.05)
        with lines[0] as line:
            line.setblocking(False)
            try: assert line.recv(1) == b''
            except ConnectionError: pass
    monkeypatch.setattr(running, 'Server', Late)
    asyncio.run(start())


def test_a_start_that_fails_can_be_tried_again(tmp_path):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError), running_broker(tmp_path/'logs', port=port): pass
    with running_broker(tmp_path/'logs', port=port, topics=['orders']) as broker, broker.client() as client:
        write(client, 'orders', b'at last')


def test_clients_that_are_left_behind():
    "A connection that nobody closes doesn't keep the broker from ending."
    with running_broker(topics=['orders']) as broker:
        client = broker.client()
        find_topics(client)
    client.close()


def test_the_group_of_an_ordinary_client():
    kafka = pytest.importorskip('kafka')
    with running_broker(topics={'orders': 2}) as broker:
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        for number in range(10): producer.send('orders', b'%d' % number)
        producer.flush()
        producer.close()
        consumer = kafka.KafkaConsumer('orders', bootstrap_servers=broker.bootstrap_servers, group_id='readers',
                                       auto_offset_reset='earliest', consumer_timeout_ms=10_000)
        found = []
        for record in consumer:
            found.append(int(record.value))
            if len(found) == 10: break
        consumer.close()
        assert sorted(found) == list(range(10))


# --- In an event loop
# ---------------------------------------------------------------------------------------------------------

def test_async():
    async def go():
        loop = asyncio.get_running_loop()
        mine = lambda loop, context: None
        loop.set_exception_handler(mine)
        async with Broker(topics={'orders': 2}) as broker:
            assert loop.get_exception_handler() is mine
            reader, writer = await asyncio.open_connection('127.0.0.1', broker.port)
            writer.write(bytes.fromhex('0000000a 0012 0000 00000007 ffff'))
            assert (await reader.readexactly(8))[4:] == b'\0\0\0\7'
            writer.close()
            port, directory = broker.port, broker.directory
            assert (await broker.restart(num_partitions=5)).port == port
        assert not os.path.exists(directory) and not answers(port)
        return broker
    broker = asyncio.run(go())
    assert broker.server is None


def test_async_after_an_exception():
    async def go():
        async with Broker() as broker:
            places.append(broker.directory)
            raise ZeroDivisionError
    places = []
    with pytest.raises(ZeroDivisionError): asyncio.run(go())
    assert not os.path.exists(places[0])


# --- Settings
# -----------------------------------------------------------------------------------------------------------------

def test_settings_as_text():
    assert setting_texts({'num_partitions': 6, 'a.b_c': True, 'list': [1, 'x'],
                          'gone': None}) == {'num.partitions': '6', 'a.b_c': 'true', 'list': '1,x'}


def test_topics_as_people_write_them():
    assert wanted_topics('orders') == {'orders': (1, {})} == wanted_topics(['orders']) == wanted_topics({'orders': {}})
    assert wanted_topics({'a': {'retention_ms': 5, 'partitions': 3}}) == {'a': (3, {'retention.ms': '5'})}
