"""Consumers of both protocols in one group, as their users run them: a group is taken from the classic protocol to the
newer one and back, consumer by consumer, under load, and the broker is killed while it has members of both kinds."""
import contextlib
import subprocess
import sys
import threading
import time

import pytest

from broker_process import ROOT, BrokerProcess, free_port, properties, wait_until
from size import long, needs_kafka
from conversion_scenes import A, B, Classic, Modern, RealStage, assignment
from offset_conversations import wait_for_coordinator
from kafka_scratch.broker.running import running_broker
from kafka_scratch.groups.admin import DescribeGroupsRequest
from kafka_scratch.groups.consumer_describe import ConsumerGroupDescribeRequest

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

PARTITIONS = 6


class Ledger:
    "Who owns which partition, and what was read: of all consumers of a group."
    def __init__(self): self.lock, self.owners, self.read, self.complaints = threading.Lock(), {}, set(), []
    def shares(self) -> dict[str, int]:
        with self.lock: owners = list(self.owners.values())
        return {name: owners.count(name) for name in set(owners)}


class Worker(threading.Thread):
    "A consumer on a thread of its own."
    def __init__(self, ledger: Ledger, name: str, servers: str, **settings):
        super().__init__(name=name, daemon=True)
        self.ledger, self.going = ledger, True
        self.settings = {'bootstrap.servers': servers, 'group.id': 'g', 'auto.offset.reset': 'earliest',
                         'enable.auto.commit': False, 'log_level': 0, 'reconnect.backoff.max.ms': 200} | settings
        self.start()

    def assigned(self, consumer, partitions):
        with self.ledger.lock:
            for each in partitions:
                before = self.ledger.owners.setdefault(each.partition, self.name)
                if before != self.name: self.ledger.complaints.append((each.partition, before, self.name))

    def revoked(self, consumer, partitions):
        try: consumer.commit(asynchronous=False)
        except Exception: pass   # there is nothing to commit, or the broker is down: then it is read again
        with self.ledger.lock:
            for each in partitions: self.ledger.owners.pop(each.partition, None)

    def lost(self, consumer, partitions):
        self.ledger.complaints.append(('lost', self.name))
        with self.ledger.lock:
            for each in partitions: self.ledger.owners.pop(each.partition, None)

    def run(self):
        from confluent_kafka import Consumer
        consumer = Consumer(self.settings)
        consumer.subscribe(['orders'], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)
        while self.going:
            message = consumer.poll(0.1)
            if message is not None and not message.error(): self.ledger.read.add(message.value())
        consumer.close()

    def stop(self):
        self.going = False
        self.join(30)
        assert not self.is_alive()


class Load(threading.Thread):
    "Produces, a few hundred records in a second, until it is told to stop; then all of them are acknowledged."
    def __init__(self, servers: str):
        super().__init__(daemon=True)
        self.servers, self.going, self.count = servers, True, 0
        self.start()
    def run(self):
        from confluent_kafka import Producer
        producer = Producer({'bootstrap.servers': self.servers, 'log_level': 0, 'enable.idempotence': True,
                             'reconnect.backoff.max.ms': 200})
        while self.going:
            producer.produce('orders', b'%d' % self.count, partition=self.count % PARTITIONS)
            self.count += 1
            producer.poll(0.003)
        self.left = producer.flush(30)


@long
def test_there_and_back_with_librdkafka(tmp_path):
    "(Not with its cooperative-sticky: it puts data of its own into assignments, and a real Kafka refuses, as we do.)"
    pytest.importorskip('confluent_kafka')
    port, ledger = free_port(), Ledger()
    servers = f'127.0.0.1:{port}'
    file = properties(tmp_path/'server.properties', node_id=1, listeners=f'PLAINTEXT://{servers}',
                      log_dirs=tmp_path/'logs', offsets_topic_num_partitions=1, num_partitions=PARTITIONS,
                      auto_create_topics_enable='true', group_initial_rebalance_delay_ms=0,
                      group_consumer_min_heartbeat_interval_ms=200, group_consumer_heartbeat_interval_ms=200)
    broker = BrokerProcess(tmp_path, file, port=port).wait_ready()
    load, workers = Load(servers), []
    classic = {'group.protocol': 'classic', 'partition.assignment.strategy': 'range', 'heartbeat.interval.ms': 200,
               'session.timeout.ms': 20_000}
    def come(name, **settings):
        workers.append(Worker(ledger, name, servers, **settings))
        settle()
    def settle():
        "Everybody has its share."
        names = {worker.name for worker in workers if worker.going}
        share = PARTITIONS // len(names)
        wait_until(lambda: ledger.shares() == dict.fromkeys(names, share), f'{names} to share', 60)
    def go(name):
        next(worker for worker in workers if worker.name == name).stop()
        settle()
    def progress():
        before = len(ledger.read)
        wait_until(lambda: len(ledger.read) > before + 100, 'more to be read', 60)
    try:
        come('c1', **classic), come('c2', **classic)
        come('n1', **{'group.protocol': 'consumer'})
        broker.process.kill()
        broker.wait()
        broker = BrokerProcess(tmp_path, file, port=port).wait_ready()
        progress(), settle()
        go('c1'), come('n2', **{'group.protocol': 'consumer'}), go('c2'), progress()
        come('c3', **classic), go('n1'), come('c4', **classic), go('n2'), progress()   # and back
        load.going = False
        load.join(60)
        assert load.left == 0
        wait_until(lambda: len(ledger.read) == load.count, 'everything to be read', 60)
        for worker in workers: worker.going = False
        for worker in workers: worker.join(30)
        assert ledger.complaints == [] and ledger.read == {b'%d' % n for n in range(load.count)}
    finally:
        load.going = False
        for worker in workers: worker.going = False
        broker.stop()
    assert 'mistake of ours' not in broker.stderr and 'Traceback' not in broker.stderr, broker.stderr


@needs_kafka
def test_there_and_back_with_java(tmp_path):
    "Java's consumers, one after the other; the broker restarts while one of each kind is there."
    from kafka_scratch.client.client import send_batch
    from kafka_scratch.log.records import Record, write_batch
    settings = dict(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0,
                    group_consumer_min_heartbeat_interval_ms=300, group_consumer_heartbeat_interval_ms=300)
    running, sent = {}, 0
    with running_broker(tmp_path/'logs', topics={'orders': 4}, **settings) as broker:
        def produce():
            nonlocal sent
            with broker.client() as client:
                for partition in range(4):
                    values = [b'%d' % n for n in range(sent, sent + 5)]
                    send_batch(client, 'orders', partition, write_batch([
                        Record(offset_delta=n, value=value) for n, value in enumerate(values)]))
                    sent += 5
        def come(name, protocol):
            more = ['heartbeat.interval.ms=300', 'session.timeout.ms=20000'] if protocol == 'classic' else []
            more = [word for each in (*more, f'group.protocol={protocol}') for word in ('--consumer-property', each)]
            command = real_kafka.command(
                'org.apache.kafka.tools.consumer.ConsoleConsumer', '--bootstrap-server', broker.bootstrap_servers,
                '--topic', 'orders', '--group', 'g', '--from-beginning', *more)
            running[name] = subprocess.Popen(command, stdout=(tmp_path/name).open('wb'),
                                             stderr=(tmp_path/f'{name}.err').open('wb'))
        def read(*names): return sorted(int(line) for name in names for line in (tmp_path/name).read_text().split())
        def reads(*names):
            "Each of these gets some of what is sent now, and all of it is read."
            deadline = time.monotonic() + 120
            while True:
                before = {name: len(read(name)) for name in names}
                produce()
                wait_until(lambda: set(read(*running)) == set(range(sent)), 'everything to be read', 120)
                if all(len(read(name)) > before[name] for name in names): return
                assert time.monotonic() < deadline, before
                time.sleep(0.3)
        def go(name): running[name].terminate(), running[name].wait(30)
        try:
            come('c1', 'classic'), reads('c1')
            come('n1', 'consumer'), reads('c1', 'n1')
            broker.restart()
            reads('c1', 'n1')
            go('c1'), reads('n1')
            come('c2', 'classic'), reads('n1', 'c2')
            go('n1'), reads('c2')
        finally:
            for process in running.values(): process.terminate()
            for process in running.values(): process.wait(30)
    for name in running: assert 'lost' not in (tmp_path/f'{name}.err').read_text().lower()


# --- One directory, two brokers ---------------------------------------------------------------------------------------

@contextlib.contextmanager
def ours(place, port):
    "Our broker on the directory; it is killed in the end."
    file = properties(place/'ours.properties', node_id=1, listeners=f'PLAINTEXT://127.0.0.1:{port}',
                      log_dirs=place/'logs', group_initial_rebalance_delay_ms=0)
    broker = BrokerProcess(place, file, port=port).wait_ready()
    try: yield port
    finally:
        broker.process.kill()
        broker.wait()


@needs_kafka
def test_a_group_goes_on_at_the_other_broker(tmp_path):
    "With members of both kinds, from Kafka to ours and back, changed by each in its turn."
    kafka = real_kafka.RealKafka(tmp_path, {'offsets.topic.num.partitions': 1})
    def theirs():
        kafka.start()
        wait_for_coordinator(kafka.port)
        return kafka.port
    one, new = Classic(None, 'c'), Modern(None, 'n')
    def at(port): one.stage = new.stage = RealStage(port, {}, 'g')
    def described():
        "What the coordinator says of the group, as a consumer group and as a classic one."
        time.sleep(0.1)
        first = one.stage.ask('admin', ConsumerGroupDescribeRequest(group_ids=['g'])).groups[0]
        second = one.stage.ask('admin', DescribeGroupsRequest(groups=['g'])).groups[0]
        first.members.sort(key=lambda member: member.member_id)
        return first, second
    def settle():
        "Both go on until they have their shares."
        for _ in range(3):
            if one.beat().error_code == 27: one.join(), one.sync()
            new.beat()
        assert one.beat().error_code == 0 and described()[0].group_state == 'Stable'

    at(theirs())
    kafka.create_topics({A: 4, B: 2})
    one.come(), one.sync({one: assignment(a=[0, 1, 2, 3])})
    assert new.beat().member_epoch == 2          # Kafka makes it a consumer group
    mixed = described()
    kafka.stop()
    with ours(tmp_path, free_port()) as port:
        at(port)
        assert described() == mixed
        settle()
        mixed = described()
    at(theirs())
    assert described() == mixed
    new.leave()                                  # Kafka makes it a classic group
    assert one.beat().error_code == 27 and one.join().leader == one.id
    one.sync({one: assignment(a=[0, 1, 2, 3])})
    classic = described()
    kafka.stop()
    with ours(tmp_path, free_port()) as port:
        at(port)
        assert described() == classic and one.beat().error_code == 0
        new.epoch, new.has = 0, None
        assert new.beat().error_code == 0        # we make it a consumer group
        settle()
        new.leave()                              # and a classic one again
        classic = described()[1].members[0]
    at(theirs())
    found = described()[1]
    assert found.group_state == 'Stable' and found.members[0].member_assignment == classic.member_assignment
    assert one.beat().error_code == 0
    kafka.stop()
