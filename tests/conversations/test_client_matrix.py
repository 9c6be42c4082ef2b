"""The clients that people use, with the jobs that they are used for: one table, one set of assertions.

Each client is a driver in tests/clients with the same command line (contract.py says which); what a client can't do is
in matrix.py, with the reason. KAFKA_SCRATCH_MATRIX=apache runs all of it beside a real Apache Kafka instead: whatever
is
asked here of our broker, that one has to do as well.
"""
import contextlib
import os
import sys
import time

import pytest

from size import ALL, LATER, kafka_absent
from broker_process import ROOT, BrokerProcess, free_port, properties, wait_until

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka
from clients import fetch
from clients.contract import key_of, value_of
from clients.matrix import CLIENTS, CODECS, PROTOCOLS
from clients.programs import Driver, DriverFailed
from kafka_scratch.client.client import Client as Broker, UnknownTopic, ask_any_broker, find_offsets, find_topics
from kafka_scratch.client.client import send_batch
from kafka_scratch.apis.list_offsets import EARLIEST
from kafka_scratch.log.checkpoints import read_checkpoint
from kafka_scratch.log.reader import find_sources, partition_records
from kafka_scratch.log.records import Record, write_batch
from kafka_scratch.security.alter_quotas import AlterClientQuotasRequest, AlterEntryData, OpData, alter_client_quotas
from kafka_scratch.cluster.records import EntityData

APACHE = os.environ.get('KAFKA_SCRATCH_MATRIX') == 'apache'
# these come with the tests; the others are fetched for the whole run
IN_PYTHON = 'confluent-kafka', 'kafka-python', 'aiokafka'
SERVES = {'java': 60, 'spark': 240}     # drivers that start slowly: one process for all jobs, and seconds of patience
SETTINGS = {'offsets.topic.num.partitions': 4, 'transaction.state.log.num.partitions': 4,
            'auto.create.topics.enable': 'true', 'group.initial.rebalance.delay.ms': 0,
            'group.consumer.heartbeat.interval.ms': 500, 'group.consumer.min.heartbeat.interval.ms': 500,
            'group.consumer.session.timeout.ms': 6000, 'group.consumer.min.session.timeout.ms': 6000,
            'log.cleaner.backoff.ms': 500}


def two_dirs(directory) -> list: return [directory/'logs', directory/'more']

class Ours:
    "Our broker, as a process that can be stopped and started again where it was."
    def __init__(self, directory):
        self.directory, self.port, self.log_dirs = directory, free_port(), two_dirs(directory)
        settings = {'node.id': 1, 'listeners': f'PLAINTEXT://127.0.0.1:{self.port}',
                    'log.dirs': ','.join(map(str, self.log_dirs)),
                    'offsets.topic.replication.factor': 1,
                    'transaction.state.log.replication.factor': 1, 'transaction.state.log.min.isr': 1, **SETTINGS}
        self.file, self.process = properties(directory/'server.properties', **settings), None

    def start(self):
        self.process = BrokerProcess(self.directory, self.file, port=self.port).wait_ready()
        return self

    def stop(self): self.process.check_end()


class Apache(real_kafka.RealKafka):
    "The real one."
    def __init__(self, directory):
        self.log_dirs = two_dirs(directory)
        super().__init__(directory, {**SETTINGS, 'log.dirs': ','.join(map(str, self.log_dirs))})


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    if APACHE and (reason := kafka_absent()): pytest.skip(reason)
    broker = (Apache if APACHE else Ours)(tmp_path_factory.mktemp('broker')).start()
    try: yield broker
    except BaseException:
        with contextlib.suppress(AssertionError): broker.stop()
        raise
    broker.stop()


@pytest.fixture(scope='module')
def drivers(broker, tmp_path_factory):
    "The drivers of all clients, made when they are asked for."
    made, bootstrap = {}, f'127.0.0.1:{broker.port}'
    def driver_of(client: str) -> Driver:
        if client not in IN_PYTHON and not ALL: pytest.skip(f'{LATER}clients in other languages')
        if reason := fetch.ABSENT[client](): pytest.skip(reason)
        if client not in made:
            made[client] = Driver(fetch.command(client), tmp_path_factory.mktemp(client), bootstrap, client in SERVES,
                                  SERVES.get(client, 30))
        return made[client]
    yield driver_of
    for driver in made.values(): driver.close()


def table(function):
    "A test for every client, for those who can't with the reason why."
    return pytest.mark.parametrize('client', list(CLIENTS))(function)


@pytest.fixture
def driver(request, client, drivers):
    "The client's driver, if it can do what this test is about."
    variant = next((request.node.callspec.params[name] for name in ('codec',
                                                                    'protocol') if name in request.node.callspec.params), None)  # noqa: E501
    job = request.function.__name__.removeprefix('test_')
    if reason := CLIENTS[client].cannot.get(f'{job}[{variant}]' if variant else job): pytest.skip(f'– {reason}')
    driver = drivers(client)
    yield driver
    driver.end_all()


@pytest.fixture
def topic(request, new_topic):
    "A topic of three partitions."
    return new_topic(''.join(each if each.isalnum() or each in '._-' else '.' for each in request.node.name))


@pytest.fixture(scope='module')
def new_topic(broker):
    "Makes topics, when that isn't what is tested."
    def make(name: str, partitions: int = 3) -> str:
        answer = real_kafka.wire.exchange(broker.port, real_kafka.wire.create_topics_request({name: partitions}))
        assert real_kafka.wire.parse_create_topics(answer) == {name: 0}
        wait_until(lambda: leaders(broker, name) == [1] * partitions, f'leaders for {name}')
        return name
    return make


def leaders(broker, topic: str) -> list[int]:
    "Who leads the partitions of a topic, asked for by hand."
    described = real_kafka.wire.parse_describe(real_kafka.wire.exchange(broker.port,
        real_kafka.wire.describe_request(topic)))
    return described[topic][1]


def feed(broker, topic: str, first: int, count: int, partitions: int = 3):
    "Records from us, by turns to every partition."
    with Broker(f'127.0.0.1:{broker.port}') as client:
        for partition in range(partitions):
            numbers = [number for number in range(first, first + count) if number % partitions == partition]
            records = [Record(offset_delta=delta, key=key_of(number), value=value_of(number)) for delta,
                       number in enumerate(numbers)]
            now = int(time.time() * 1000)
            send_batch(client, topic, partition, write_batch(records, base_timestamp=now, max_timestamp=now))


def sources_of(broker, topic: str) -> list:
    "The logs of a topic, in both directories."
    return [source for path in broker.log_dirs for source in find_sources(str(path)) if source.topic == topic]


def stored(broker, topic: str, **options) -> list[tuple]:
    "What is in the files of a topic: a batch with its records' numbers each, markers left out."
    batches = [(batch, records) for source in sources_of(broker, topic) for batch,
               records in partition_records(source, **options)]
    for _, records in [each for each in batches if not each[0].control]:
        for record in records: assert bytes(record.value) == value_of(number_of(bytes(record.key)))
    return [(batch, [number_of(bytes(record.key)) for record in records]) for batch,
            records in batches if not batch.control]


def number_of(key: bytes | str) -> int:
    return int((key.decode() if isinstance(key, bytes) else key).removeprefix('key-'))

def numbers_in(batches: list[tuple]) -> list[int]: return sorted(number for _, numbers in batches for number in numbers)


def records_in(lines: list[dict]) -> list[int]:
    """The numbers of the records that a driver printed: each as it was written, those of a partition in order, and none
    twice."""
    records = [line for line in lines if 'offset' in line]
    for line in records: assert line['value'].encode() == value_of(number_of(line['key']))
    for partition in {line['partition'] for line in records}:
        offsets = [line['offset'] for line in records if line['partition'] == partition]
        assert offsets == sorted(set(offsets))
    return sorted(number_of(line['key']) for line in records)


NOT_YET = 14, 15, 16   # a coordinator that has just started: loading, not available, not there

def committed(broker, group: str, topic: str, partitions: int = 3) -> list[int]:
    "The offsets that a group has committed, as an onlooker sees them."
    from confluent_kafka import Consumer, KafkaException, TopicPartition
    consumer = Consumer({'bootstrap.servers': f'127.0.0.1:{broker.port}', 'group.id': group, 'log_level': 0})
    found = []
    def answered():
        try: found[:] = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], 20)
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET: raise
        return found
    try: return [place.offset for place in wait_until(answered, f'the offsets of {group}')]
    finally: consumer.close()


def protocol_of(broker, group: str) -> str:
    """Which protocol a group speaks, as the broker lists it: a client that can't have the one it asked for may take the
    other."""
    from confluent_kafka.admin import AdminClient
    admin = AdminClient({'bootstrap.servers': f'127.0.0.1:{broker.port}'})
    return next(each.type.name.lower() for each in admin.list_consumer_groups().result(20).valid
                if each.group_id == group)


# --- Topics ---

@table
def test_create(client, driver, broker):
    assert driver.run('create', topic=f'made-by-{client}', partitions=3) == [{'created': f'made-by-{client}'}]
    wait_until(lambda: leaders(broker, f'made-by-{client}') == [1, 1, 1], 'leaders')


@table
def test_list(client, driver, topic):
    (line,) = driver.run('list')
    assert topic in line['topics']


@table
def test_describe(client, driver, topic):
    assert sorted(driver.run('describe', topic=topic), key=lambda line: line['partition']) == [{'partition': number,
        'leader': 1} for number in range(3)]


@table
def test_grow(client, driver, topic, broker):
    assert driver.run('grow', topic=topic, partitions=5) == [{'partitions': 5}]
    wait_until(lambda: leaders(broker, topic) == [1] * 5, 'leaders of five partitions')


@table
def test_configure(client, driver, topic):
    assert driver.run('configure', topic=topic, config='retention.ms=123456789') == [{'name': 'retention.ms',
        'value': '123456789'}]


@table
def test_delete(client, driver, topic, broker):
    feed(broker, topic, 0, 30)
    assert driver.run('delete', topic=topic) == [{'deleted': topic}]
    def gone():
        with Broker(f'127.0.0.1:{broker.port}') as asking:
            try: find_topics(asking, [topic])
            except UnknownTopic: return True
    wait_until(gone, 'the topic to be gone')


# --- Producing ---

@pytest.fixture(scope='module')
def written(request, broker, drivers, new_topic):
    """For each codec a topic, in which every client that takes part has written thirty records: (client, codec) →
    numbers, or why not."""
    results, taking_part = {}, {item.callspec.params.get('client') for item in request.session.items
                                if item.module is request.module and hasattr(item, 'callspec')}
    for codec in CODECS: new_topic(f'written-{codec}')
    for index, client in enumerate(CLIENTS):
        if client not in taking_part or fetch.ABSENT[client](): continue
        for codec in CODECS:
            if f'produce[{codec}]' in CLIENTS[client].cannot: continue
            first = index * 100
            try:
                results[client, codec] = drivers(client).run('produce', topic=f'written-{codec}', first=first, count=30,
                                                             codec=codec), range(first, first + 30)
            except DriverFailed as error: results[client, codec] = error, range(0)
    return results


@pytest.mark.parametrize('codec', CODECS)
@table
def test_produce(client, codec, driver, broker, written):
    said, numbers = written[client, codec]
    if isinstance(said, DriverFailed): raise said
    assert said == [{'produced': 30}]
    batches = [(batch, found) for batch, found in stored(broker, f'written-{codec}') if set(found) & set(numbers)]
    assert numbers_in(batches) == list(numbers)
    assert {batch.header.attributes & 7 for batch, _ in batches} == {CODECS.index(codec)}
    assert all(found == sorted(found) for _, found in batches)


@table
def test_appear(client, driver, broker):
    "A topic that isn't there yet is made by writing to it."
    assert driver.run('produce', topic=f'appears-for-{client}', first=0, count=30) == [{'produced': 30}]
    assert leaders(broker, f'appears-for-{client}') == [1] and numbers_in(stored(broker,
        f'appears-for-{client}')) == list(range(30))


@table
def test_idempotent(client, driver, broker, topic):
    assert driver.run('produce', topic=topic, first=0, count=30, idempotent='true') == [{'produced': 30}]
    batches = stored(broker, topic)
    assert numbers_in(batches) == list(range(30))
    assert all(batch.header.producer_id >= 0 and batch.header.base_sequence >= 0 for batch, _ in batches)


def wait_decided(broker, topic: str, expected: list[int]):
    """A transaction is decided before its markers are in the logs: they follow, and then there is what was committed,
    and nothing else."""
    wait_until(lambda: len(numbers_in(stored(broker, topic, committed=True))) >= len(expected), 'the markers')
    assert numbers_in(stored(broker, topic, committed=True)) == expected


@table
def test_transact(client, driver, broker, topic):
    (line,) = driver.run('transact', topic=topic, id=f'transactions of {client}')
    batches = stored(broker, topic)
    assert numbers_in(batches) == sorted(line['committed'] + line['aborted']) == list(range(50))
    assert all(batch.transactional for batch, _ in batches)
    wait_decided(broker, topic, line['committed'])


@table
def test_copy(client, driver, broker, topic, new_topic):
    feed(broker, topic, 0, 30)
    to, group = new_topic(f'{topic}-to'), f'copies of {client}'
    assert driver.run('copy', topic=topic, to=to, group=group, id=f'copies of {client}', count=30) == [{'copied': 30}]
    assert numbers_in(stored(broker, to)) == sorted([*range(30)] * 2)
    wait_decided(broker, to, list(range(30)))
    wait_until(lambda: committed(broker, group, topic) == [10, 10, 10], 'the offsets to be committed')


# --- Consuming alone ---

@pytest.mark.parametrize('codec', CODECS)
@table
def test_consume(client, codec, driver, written, broker):
    expected = numbers_in(stored(broker, f'written-{codec}'))
    lines = driver.run('consume', topic=f'written-{codec}', partitions=3, count=len(expected))
    assert records_in(lines) == expected and expected


@pytest.fixture(scope='module')
def decided(drivers, new_topic):
    "A topic with transactions in it, of which some were aborted."
    topic = new_topic('decided')
    (line,) = drivers('confluent-kafka').run('transact', topic=topic, id='decided')
    return topic, line['committed'], line['aborted']


@table
def test_committed(client, driver, decided):
    topic, committed, aborted = decided
    assert records_in(driver.run('consume', topic=topic, partitions=3, count=50)) == sorted(committed + aborted)
    assert records_in(driver.run('consume', topic=topic, partitions=3, count=30,
                                 isolation='read_committed')) == committed


@table
def test_offsets(client, driver, topic, broker):
    feed(broker, topic, 0, 32)
    lines = driver.run('offsets', topic=topic, partitions=3)
    assert sorted(lines, key=lambda line: line['partition']) == [{'partition': number, 'earliest': 0,
                                                                  'latest': latest} for number,
                                                                  latest in enumerate([11, 11, 10])]


@table
def test_truncate(client, driver, topic, broker):
    feed(broker, topic, 0, 30)
    lines = driver.run('truncate', topic=topic, partitions=3, before=4)
    assert sorted(lines, key=lambda line: line['partition']) == [{'partition': number,
                                                                  'earliest': 4} for number in range(3)]
    with Broker(f'127.0.0.1:{broker.port}') as asking:
        assert find_offsets(asking, {(topic, number): EARLIEST for number in range(3)}) == {(topic,
            number): 4 for number in range(3)}


KEYS, ROUNDS = 30, 5

@pytest.fixture(scope='module')
def compacted(broker):
    "A topic with thirty keys, each written five times, after the cleaner was there: the offsets it left."
    from confluent_kafka.admin import AdminClient, NewTopic
    settings = {'cleanup.policy': 'compact', 'segment.ms': '4500', 'min.cleanable.dirty.ratio': '0.01'}
    admin = AdminClient({'bootstrap.servers': f'127.0.0.1:{broker.port}'})
    admin.create_topics([NewTopic('compacted', 1, 1, config=settings)])['compacted'].result(30)
    wait_until(lambda: leaders(broker, 'compacted') == [1], 'a leader for compacted')
    with Broker(f'127.0.0.1:{broker.port}') as client:
        before = int(time.time() * 1000) - KEYS * ROUNDS * 1000
        for number in range(KEYS * ROUNDS):   # a batch each, a second after the other: there are many segments
            record, at = Record(key=key_of(number % KEYS), value=value_of(number)), before + number * 1000
            send_batch(client, 'compacted', 0, write_batch([record], base_timestamp=at, max_timestamp=at))
    wait_until(lambda: cleaned_to(broker, 'compacted') == last_segment(broker, 'compacted'), 'the cleaner', 60)
    (source,) = sources_of(broker, 'compacted')
    return [batch.header.base_offset for batch, records in partition_records(source) if records]


def partition_dir(broker, topic: str, number: int = 0):
    "Where the log of a partition is."
    return next(path/f'{topic}-{number}' for path in broker.log_dirs if (path/f'{topic}-{number}').exists())

def cleaned_to(broker, topic: str) -> int | None:
    "How far the cleaner has got in partition 0 of a topic."
    rows = read_checkpoint(str(partition_dir(broker, topic).parent/'cleaner-offset-checkpoint'))
    return next((int(offset) for name, number, offset in rows if (name, number) == (topic, '0')), None)

def last_segment(broker, topic: str) -> int:
    return max(int(file.stem) for file in partition_dir(broker, topic).glob('*.log'))


@table
def test_compacted(client, driver, compacted):
    "Every key has its last value, and the offsets have gaps."
    lines = driver.run('consume', topic='compacted', partitions=1, count=len(compacted))
    assert [line['offset'] for line in lines] == compacted and len(compacted) < KEYS * ROUNDS
    last = {line['key']: line['value'] for line in lines}
    written = range(KEYS * (ROUNDS - 1), KEYS * ROUNDS)
    assert last == {key_of(number % KEYS).decode(): value_of(number).decode() for number in written}


# --- Consuming in groups ---

class Members:
    "The members of a group: what each has now, and what all of them have seen."
    def __init__(self, driver, **options): self.driver, self.options, self.programs = driver, options, []

    def join(self):
        program = self.driver.start('member', **self.options)
        self.programs.append(program)
        return program

    def lines(self) -> list[dict]: return [line for program in self.programs for line in program.lines]
    def seen(self) -> list[int]: return sorted(number_of(line['key']) for line in self.lines() if 'offset' in line)

    def wait_for(self, condition, what: str):
        alive, patience = [program for program in self.programs if program.process.poll() is None], max(60,
            self.driver.patience)
        def ready():
            for program in alive:
                if not program.reader.is_alive(): raise DriverFailed(f'a member ended before: {what}\n{program.said()}')
            return condition()
        try: wait_until(ready, what, patience)
        except AssertionError as error:
            if isinstance(error, DriverFailed): raise
            summary = '\n'.join(
                f'{program.lines[-1:]} {[line for line in program.lines if "assigned" in line]}\n{program.said()}'
                for program in self.programs)
            raise DriverFailed(f'{error}; seen {self.seen()}\n{summary}') from None

    def wait_shared(self, *programs, partitions: int = 4):
        "Until these members share all partitions, and each has at least one."
        def shared():
            parts = [assigned(program) for program in programs]
            return all(parts) and sorted(number for part in parts for number in part) == list(range(partitions))
        self.wait_for(shared, f'{len(programs)} members to share {partitions} partitions')

    def wait_seen(self, count: int): self.wait_for(lambda: len(self.seen()) >= count, f'{count} records seen')


def assigned(program) -> list[int]:
    return next((line['assigned'] for line in reversed(program.lines) if 'assigned' in line), [])

def last_word(program) -> dict: return program.end(60)[-1]


@pytest.mark.parametrize('protocol', PROTOCOLS)
@table
def test_group(client, protocol, driver, broker, new_topic):
    """One member, two members, one leaves, another comes, one crashes: whoever is there goes on, and no record is lost,
    nor seen twice."""
    group = f'group-{client}-{protocol}'
    topic = new_topic(group, 4)
    members = Members(driver, topic=topic, group=group, protocol=protocol)
    feed(broker, topic, 0, 40, 4)
    first = members.join()
    members.wait_shared(first)
    members.wait_seen(40)
    assert protocol_of(broker, group) == protocol
    second = members.join()
    members.wait_shared(first, second)
    feed(broker, topic, 40, 40, 4)
    members.wait_seen(80)
    assert {line['partition'] for line in second.lines if 'offset' in line} == set(assigned(second))
    assert last_word(first) == {'left': True}
    members.wait_shared(second)
    feed(broker, topic, 80, 40, 4)
    members.wait_seen(120)
    third = members.join()
    members.wait_shared(second, third)
    wait_until(lambda: committed(broker, group, topic, 4) == [30] * 4, 'everything committed')
    second.kill()
    feed(broker, topic, 120, 40, 4)
    members.wait_shared(third)
    members.wait_seen(160)
    assert members.seen() == list(range(160))
    assert last_word(third) == {'left': True}
    wait_until(lambda: committed(broker, group, topic, 4) == [40] * 4, 'everything committed')


@table
def test_shared(client, driver, drivers, broker, new_topic):
    "A member with the classic protocol, and then one of confluent-kafka with the new one, in the same group."
    group = f'shared-{client}'
    topic, peer = new_topic(group, 4), drivers('confluent-kafka')
    members = Members(driver, topic=topic, group=group, protocol='classic')
    feed(broker, topic, 0, 40, 4)
    first = members.join()
    members.wait_seen(40)
    wait_until(lambda: committed(broker, group, topic, 4) == [10] * 4, 'everything committed')
    second = peer.start('member', topic=topic, group=group, protocol='consumer')
    members.programs.append(second)
    try:
        members.wait_shared(first, second)
        feed(broker, topic, 40, 40, 4)
        members.wait_seen(80)
        assert protocol_of(broker, group) == 'consumer'
        assert last_word(first) == {'left': True}
        members.wait_shared(second)
        feed(broker, topic, 80, 40, 4)
        members.wait_seen(120)
        assert members.seen() == list(range(120)) and last_word(second) == {'left': True}
    finally: peer.end_all()


@pytest.mark.parametrize('protocol', PROTOCOLS)
@table
def test_resume(client, protocol, driver, broker, new_topic, tmp_path):
    """The broker stops and starts: a consumer that was there goes on, and one that comes later begins where that has
    stopped."""
    group = f'resume-{client}-{protocol}'
    topic = new_topic(group)
    in_group = client != 'spark'
    members = Members(driver, topic=topic, group=group, protocol=protocol, **({} if in_group else {'state': tmp_path}))
    feed(broker, topic, 0, 30)
    first = members.join()
    members.wait_seen(30)
    if in_group: wait_until(lambda: committed(broker, group, topic) == [10] * 3, 'everything committed')
    broker.stop()
    broker.start()
    if in_group: assert committed(broker, group, topic) == [10] * 3
    feed(broker, topic, 30, 30)
    members.wait_seen(60)
    assert last_word(first) == {'left': True}
    feed(broker, topic, 60, 30)
    second = members.join()
    members.wait_seen(90)
    assert last_word(second) == {'left': True}
    assert members.seen() == list(range(90)) and records_in(second.lines) == list(range(60, 90))
    if in_group: assert committed(broker, group, topic) == [30] * 3


@table
def test_groups(client, driver, broker, topic):
    "A group with a member in it, and without."
    feed(broker, topic, 0, 30)
    options = dict(topic=topic, partitions=3, group=f'described by {client}')
    members = Members(driver, topic=topic, group=options['group'])
    member = members.join()
    members.wait_seen(30)
    wait_until(lambda: committed(broker, options['group'], topic) == [10] * 3, 'everything committed')
    expected = [{'partition': number, 'committed': 10} for number in range(3)]
    line, *offsets = driver.run('groups', **options)
    assert line == {'group': options['group'], 'state': 'Stable', 'members': 1} and sorted(offsets,
        key=lambda each: each['partition']) == expected
    assert last_word(member) == {'left': True}
    line, *offsets = driver.run('groups', **options)
    assert line == {'group': options['group'], 'state': 'Empty', 'members': 0} and sorted(offsets,
        key=lambda each: each['partition']) == expected


@table
def test_forget(client, driver, broker, topic):
    feed(broker, topic, 0, 30)
    group = f'forgotten by {client}'
    members = Members(driver, topic=topic, group=group)
    member = members.join()
    members.wait_seen(30)
    assert last_word(member) == {'left': True}
    assert committed(broker, group, topic) == [10] * 3
    assert driver.run('forget', group=group) == [{'forgotten': group}]
    nothing = committed(broker, group, topic)
    assert nothing == [-1001] * 3   # librdkafka's word for: no offset


# --- The broker itself ---

# How the clients say that a broker isn't there, and that a level isn't supported.
NO_BROKER = r'(?i)invalid_?replica(tion)?_?assignment|replica assignment is invalid|unknown broker id'
NO_LEVEL = r'(?i)invalid_?update_?version|invalid update version'

@table
def test_log_dirs(client, driver, topic, broker):
    feed(broker, topic, 0, 30)
    directories = [partition_dir(broker, topic, number) for number in range(3)]
    lines = driver.run('log_dirs', topic=topic, partitions=3)
    assert sorted(lines, key=lambda line: line['partition']) == [
        {'partition': number, 'dir': str(directory.parent),
         'size': sum(file.stat().st_size for file in directory.glob('*.log'))}
        for number, directory in enumerate(directories)]


@table
def test_move(client, driver, broker, new_topic):
    topic = new_topic(f'moved-by-{client}', 1)
    feed(broker, topic, 0, 30, 1)
    before = partition_dir(broker, topic)
    (other,) = [path for path in broker.log_dirs if path != before.parent]
    assert driver.run('move', topic=topic, partitions=1, to=other) == [{'moved': 1}]
    wait_until(lambda: (other/before.name).exists() and not before.exists(), 'the log to be there')
    assert numbers_in(stored(broker, topic)) == list(range(30))
    feed(broker, topic, 30, 30, 1)
    assert numbers_in(stored(broker, topic)) == list(range(60))


@table
def test_elect(client, driver, topic):
    lines = driver.run('elect', topic=topic, partitions=3)
    assert sorted(lines, key=lambda line: line['partition']) == [{'partition': number,
                                                                  'elected': False} for number in range(3)]


@table
def test_reassign(client, driver, topic, broker):
    "To the only broker there is: nothing has to move. To one that isn't there: refused."
    assert driver.run('reassign', topic=topic, partitions=3, to=1) == [{'moving': []}]
    with pytest.raises(DriverFailed, match=NO_BROKER): driver.run('reassign', topic=topic, partitions=3, to=7)
    assert leaders(broker, topic) == [1] * 3


@table
def test_quorum(client, driver): assert driver.run('quorum') == [{'leader': 1, 'voters': [1]}]


@table
def test_features(client, driver):
    name = 'eligible.leader.replicas.version'
    assert driver.run('features', config=f'{name}=1') == [{'name': name, 'level': 1}]
    with pytest.raises(DriverFailed, match=NO_LEVEL): driver.run('features', config=f'{name}=9')


@table
def test_quotas(client, driver):
    id, name = f'limited-{client}', 'producer_byte_rate'
    assert driver.run('quotas', id=id, config=f'{name}=123456') == [{'set': name}]
    wait_until(lambda: driver.run('quotas', id=id) == [{'name': name, 'value': 123456}], 'the quota to be known')


@table
def test_throttle(client, driver, broker, new_topic):
    "Some thousand bytes at once, and no more than some hundred a second allowed."
    id = f'slow-{client}'
    entry = AlterEntryData(entity=[EntityData(entity_type='client-id', entity_name=id)],
                           ops=[OpData(key='producer_byte_rate', value=500.0, remove=False)])
    with Broker(f'127.0.0.1:{broker.port}') as asking:
        answer = ask_any_broker(asking, alter_client_quotas, AlterClientQuotasRequest(entries=[entry],
                                                                                      validate_only=False))
    assert [each.error_code for each in answer.entries] == [0]
    topic = new_topic(f'written-by-{id}', 1)
    assert driver.run('throttle', topic=topic, id=id, count=30) == [{'produced': 30, 'throttled': True}]
