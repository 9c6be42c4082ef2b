"""Transactions between a running Apache Kafka 4.1.1 and us: its tools read what we write, each goes on where the other
one stopped, and Java's producer is content."""
import contextlib
import json
import re
import subprocess
import sys
import time

import pytest
from size import needs_kafka
from broker_process import ROOT, BrokerProcess, Client, environment, free_port, properties
from player import differences, recorded
from recordings import RECORDINGS
from small_node import small_node
from transactions import Leveled

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.wire.frames import RequestHeader
from kafka_scratch.cluster.logs import end_logs
from kafka_scratch.wire.primitives import Int32
from kafka_scratch.log.segments import file_name
from kafka_scratch.transactions.admin import ListTransactionsRequest, ListTransactionsResponse
from kafka_scratch.transactions.state import STATES

pytestmark = needs_kafka
confluent_kafka = pytest.importorskip('confluent_kafka')
import confluent_kafka.admin  # noqa: E402


# --- Its tools
# ----------------------------------------------------------------------------------------------------------

def test_dump_log_reads_our_files(tmp_path):
    "The diary, aborted transactions, and what a log knows of its producers, after a long conversation."
    recording, lines = RECORDINGS['transactions-tv2.jsonl'], recorded('transactions-tv2.jsonl')
    node = recording.node(tmp_path, lines)
    differences(recording, node, lines)
    log, diary = node.partition('tx.a'), node.partition('__transaction_state')
    end_logs(node.logs)
    text = real_kafka.dump_log(diary.active.path, '--transaction-log-decoder')
    told = [json.loads(line.split('payload: ')[1]) for line in text.splitlines() if 'payload: ' in line]
    assert len(told) == diary.end_offset and {value['version'] for value in told} == {'1'}
    last = next(value['data'] for value in reversed(told) if value['data']['producerId'] == 14)   # of 'n'
    txn = node.transactions.transactions['n']
    assert (last['producerEpoch'], last['transactionStatus']) == (txn.producer_epoch, txn.state)
    files = log.segments[0].path_of('txnindex'), log.path(file_name(log.end_offset, 'snapshot'))
    text = real_kafka.dump_log(','.join(files), '--deep-iteration')
    aborted = re.findall(r'producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)', text)
    assert [tuple(map(int, row)) for row in aborted] == [(a.producer_id, a.first_offset, a.last_offset,
                                                          a.last_stable_offset) for a in log.producers.aborted]
    known = re.findall(r'producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+)',
                       text)
    assert {int(row[0]): int(row[1]) for row in known} == {producer_id: producer.epoch for producer_id,
                                                           producer in log.producers.producers.items()}


# --- Its directory and ours
# ---------------------------------------------------------------------------------------------

class Ours:
    "Our broker on a directory that a RealKafka may have had."
    def __init__(self, kafka: real_kafka.RealKafka): self.kafka, self.port = kafka, free_port()

    def __enter__(self):
        file = properties(self.kafka.directory/'ours.properties', node_id=1,
                          listeners=f'PLAINTEXT://127.0.0.1:{self.port}', log_dirs=self.kafka.log_dir)
        self.process = BrokerProcess(self.kafka.directory, file, port=self.port).wait_ready()
        return self

    def __exit__(self, *_): self.process.check_end()


OPEN = """
import sys, time
from confluent_kafka import Producer
producer = Producer({'bootstrap.servers': '127.0.0.1:' + sys.argv[1], 'transactional.id': 'pay', 'transaction.timeout.ms': 600000})
producer.init_transactions(20)
for value, decision in zip(sys.argv[2:], ['commit', 'abort', 'open']):
    producer.begin_transaction()
    for topic in ('left', 'right'): producer.produce(topic, value)
    producer.flush(10)
    if decision == 'commit': producer.commit_transaction(10)
    elif decision == 'abort': producer.abort_transaction(10)
print('open', flush=True)
time.sleep(60)
"""  # noqa: E501


@contextlib.contextmanager
def three_transactions(port: int, *values: str):
    "A producer that commits one, aborts one, and is killed in the middle of the third."
    process = subprocess.Popen([sys.executable, '-c', OPEN, str(port), *values], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=environment())
    try:
        line = process.stdout.readline()
        assert line == 'open\n', process.stderr.read()
        yield
    finally:
        process.kill()
        process.communicate()


def committed(port: int) -> dict[str, list[str]]:
    consumer = confluent_kafka.Consumer({'bootstrap.servers': f'127.0.0.1:{port}', 'group.id': 'reader',
                                         'isolation.level': 'read_committed', 'enable.partition.eof': True})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0) for topic in ('left', 'right')])
    found, ended, deadline = {'left': [], 'right': []}, set(), time.monotonic() + 30
    while len(ended) < 2 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None: continue
        if message.error(): ended.add(message.topic())
        else: found[message.topic()].append(message.value().decode())
    consumer.close()
    return found


def test_each_goes_on_where_the_other_stopped(tmp_path):
    """Kafka, then we, then Kafka, then we: each finds an open transaction of the other's, and aborts it when its
    producer comes back."""
    kafka, expected = real_kafka.RealKafka(tmp_path/'kafka'), []
    with kafka: kafka.create_topics({'left': 1, 'right': 1})
    for turn, broker in enumerate([kafka, Ours(kafka), kafka, Ours(kafka)]):
        with broker:
            with three_transactions(broker.port, *(f'{turn} {what}' for what in ('committed', 'aborted', 'open'))): pass
            expected.append(f'{turn} committed')
            assert committed(broker.port) == {'left': expected, 'right': expected}, f'turn {turn}'
            assert states(broker.port) == {'pay': 'Ongoing'}, f'turn {turn}'


def states(port: int) -> dict[str, str]:
    "The transactions that a broker knows, and their states."
    frame = RequestHeader(api_key=66, api_version=0, correlation_id=1,
                          client_id='me').encode(2) + ListTransactionsRequest().encode(0)
    with Client(port) as client: answer = client.ask(Int32.write(len(frame)) + frame)
    return {txn.transactional_id: txn.transaction_state for txn in ListTransactionsResponse.decode(answer, 0,
        9).transaction_states}


@pytest.mark.parametrize('level', [0, 2])
def test_javas_producer(tmp_path, level):
    "Many short transactions, in the old way and in the new one; which, the cluster's level decides."
    kafka = Leveled(tmp_path, level)
    kafka.format()
    with Ours(kafka) as broker:
        admin = confluent_kafka.admin.AdminClient({'bootstrap.servers': f'127.0.0.1:{broker.port}'})
        for future in admin.create_topics([confluent_kafka.admin.NewTopic('perf', 2, 1)]).values(): future.result(10)
        said = real_kafka.run_tool('org.apache.kafka.tools.ProducerPerformance', '--topic', 'perf', '--num-records',
                                   2000, '--record-size', 100, '--throughput', 2000,
                                   '--transactional-id', 'perf', '--transaction-duration-ms', 40, '--producer-props',
                                   f'bootstrap.servers=127.0.0.1:{broker.port}')
        assert said.startswith('2000 records sent'), said
    node = small_node(kafka.log_dir)
    txn = node.transactions.transactions['perf']
    assert STATES[txn.state] == 'CompleteCommit' and node.transactions.transaction_version == level
    assert txn.producer_epoch > 3 if level else txn.producer_epoch == 0   # an epoch for each, or one for all
    assert sum(node.partition('perf', number).end_offset for number in range(2)) > 2000
    node.crash()
