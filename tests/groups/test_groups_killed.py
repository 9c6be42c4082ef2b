"""The broker is killed while its own logs roll and are cleaned: no offset and no transaction that was acknowledged is
lost, and none that was aborted comes back.

Metadata of 4,000 characters, and a name of a producer that is as long, make the logs grow: they roll every few hundred
commits, and the cleaner comes right after.
"""
import itertools
import os
import random
import signal
import threading

from broker_process import BrokerProcess, free_port, properties
from by_hand import metadata_log, write_log
from size import ALL
from kafka_scratch.client.client import Connection, Unanswered
from kafka_scratch.groups.find_coordinator import FindCoordinatorRequest, find_coordinator
from kafka_scratch.groups.offset_apis import (
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetFetchRequest,
    OffsetFetchRequestGroup, OffsetFetchRequestTopics, offset_commit, offset_fetch)
from kafka_scratch.transactions.apis import (
    AddOffsetsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic, add_offsets_to_txn, end_txn, txn_offset_commit)
from kafka_scratch.transactions.producers import InitProducerIdRequest, init_producer_id

SEED = int(os.environ.get('KAFKA_SCRATCH_SEED', 4711))
LIVES = 20 if ALL else 4
LONG = 4000
GROUPS = [f'group-{number}' for number in range(20)]


class World:
    "A directory, and what was sent and acknowledged."
    def __init__(self, directory):
        self.directory, self.port, self.numbers = directory, free_port(), itertools.count(1)
        write_log(directory/'logs', metadata_log(orders=1))
        self.file = properties(
            directory/'server.properties', node_id=1, listeners=f'PLAINTEXT://127.0.0.1:{self.port}',
            log_dirs=directory/'logs', offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1,
            log_cleaner_backoff_ms=20)
        self.sent, self.acked = {}, dict.fromkeys([*GROUPS, 'paid'], -1)
        self.maybe = set()            # offsets of transactions that may be committed, or not
        self.producer = -1, -1        # id and epoch
        self.count = 0

    def start(self):
        self.broker = BrokerProcess(self.directory, self.file, port=self.port).wait_ready()

    def commit(self, connection: Connection, group: str):
        number = self.sent[group] = next(self.numbers)
        wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=number,
                                              committed_metadata=f'{number:0{LONG}}')
        topics = [OffsetCommitRequestTopic(name='orders', partitions=[wanted])]
        answer = connection.ask(offset_commit, OffsetCommitRequest(group_id=group, member_id='', topics=topics), 8)[0]
        assert answer.topics[0].partitions[0].error_code == 0
        self.acked[group] = number
        self.count += 1

    def begin(self, connection: Connection):
        "Take over the name of the producer: what it left open is aborted."
        asked = InitProducerIdRequest(transactional_id='p' * LONG, transaction_timeout_ms=60_000)
        answer = connection.ask(init_producer_id, asked, 4)[0]
        assert answer.error_code == 0
        now = answer.producer_id, answer.producer_epoch
        assert now > self.producer, (now, self.producer)   # an epoch that was given out isn't given out again
        self.producer = now

    def pay(self, connection: Connection, commits: bool):
        "A transaction with an offset in it."
        number = next(self.numbers)
        who = dict(transactional_id='p' * LONG, producer_id=self.producer[0], producer_epoch=self.producer[1])
        assert connection.ask(add_offsets_to_txn, AddOffsetsToTxnRequest(**who, group_id='paid'), 3)[0].error_code == 0
        wanted = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number,
                                                 committed_metadata=f'{number:0{LONG}}')
        topics = [TxnOffsetCommitRequestTopic(name='orders', partitions=[wanted])]
        answer = connection.ask(txn_offset_commit, TxnOffsetCommitRequest(**who, group_id='paid', member_id='',
                                                                          topics=topics), 3)[0]
        assert answer.topics[0].partitions[0].error_code == 0
        if commits: self.maybe.add(number)
        assert connection.ask(end_txn, EndTxnRequest(**who, committed=commits), 3)[0].error_code == 0
        if commits: self.acked['paid'], self.maybe = number, set()
        self.count += 1

    def look(self):
        "Everything that was acknowledged is there, and nothing that is older, or was aborted."
        connection = Connection('127.0.0.1', self.port)
        connection.ask(find_coordinator, FindCoordinatorRequest(coordinator_keys=GROUPS[:1]))   # makes the topic
        self.begin(connection)
        for group in self.acked:
            wanted = [OffsetFetchRequestTopics(name='orders', partition_indexes=[0])]
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)],
                                       require_stable=True)
            answer = connection.ask(offset_fetch, asked, 8)[0].groups[0]
            found = answer.topics[0].partitions[0]
            assert (answer.error_code, found.error_code) == (0, 0)
            possible = {self.acked[group]} | (self.maybe if group == 'paid' else {self.sent.get(group, -1)})
            assert found.committed_offset in possible, (group, found.committed_offset, possible)
            if found.committed_offset >= 0: assert int(found.metadata) == found.committed_offset
            self.acked[group] = found.committed_offset
        self.maybe = set()
        return connection

    def live(self, connection: Connection, chance: random.Random, commits: int):
        "Work, until the broker is killed in the middle of it."
        enough, problems = self.count + commits, []
        def kill():
            while self.count < enough and not problems: threading.Event().wait(0.001)
            self.broker.process.send_signal(signal.SIGKILL)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for n in itertools.count():
                if n % 4: self.commit(connection, chance.choice(GROUPS))
                else: self.pay(connection, commits=chance.random() < 0.7)
        except (OSError, Unanswered): pass
        except BaseException as error:
            problems.append(error)
            raise
        finally: killer.join()
        self.broker.wait()


def test_killed_while_its_own_logs_are_cleaned(tmp_path):
    world, chance = World(tmp_path), random.Random(SEED)
    for _ in range(LIVES):
        world.start()
        world.live(world.look(), chance, chance.randrange(100, 400))
        assert 'Traceback' not in world.broker.stderr and "can't be" not in world.broker.stderr, world.broker.stderr
    world.start()
    world.look().close()
    world.broker.check_end()
    first = [min(tmp_path.glob(f'logs/{name}/*.log')) for name in ('__consumer_offsets-0', '__transaction_state-0')]
    cleaned = (tmp_path/'logs'/'cleaner-offset-checkpoint').read_text()
    assert '__consumer_offsets' in cleaned and '__transaction_state' in cleaned
    assert all(path.stat().st_size < 500_000 for path in first), 'what was cleaned is small'
