"""Records `fixtures/wire/recorded/transactions-tv*`: a long conversation about transactions with Apache Kafka 4.1.1,
and what it wrote.

    python tests/record/transactions.py 0 1 2 odd

The numbers are levels of `transaction.version`; `odd` is another conversation, about what no client asks. Needs Java
and Kafka's jars;
`test_transactions.py` holds the same conversations with us.
"""
import json
import tempfile
import time
from pathlib import Path

from recording import answer_in, command_line, framed

from benchmarks.real_kafka import RealKafka, run_tool
from broker_process import Client
from kafka_scratch.groups.find_coordinator import FindCoordinatorRequest
from kafka_scratch.apis.fetch_messages import FetchPartition, FetchTopic
from kafka_scratch.apis.fetch import FetchRequest
from kafka_scratch.wire.codes import API_NAMES
from kafka_scratch.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_scratch.broker.apis import APIS
from kafka_scratch.groups.offset_apis import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_scratch.transactions.producers import InitProducerIdRequest
from kafka_scratch.log.records import TRANSACTIONAL, Record, read_batches, read_records, write_batch
from kafka_scratch.apis.delete_topics import DeleteTopicsRequest
from kafka_scratch.transactions.admin import *
from kafka_scratch.transactions.apis import *

SETTINGS = {'transaction.state.log.num.partitions': 1, 'offsets.topic.num.partitions': 1, 'log.retention.ms': -1,
            'log.roll.ms': 10**15,
            'transaction.abort.timed.out.transaction.cleanup.interval.ms': 200}
SETTLED = 'settled'   # instead of a pause: as soon as no transaction is between prepared and complete


class Leveled(RealKafka):
    "A Kafka whose cluster has agreed on a level of `transaction.version`."
    def __init__(self, directory, level: int):
        super().__init__(directory, SETTINGS)
        self.level = level

    def format(self):
        self.directory.mkdir(parents=True, exist_ok=True)
        self._write_properties()
        cluster_id = run_tool('kafka.tools.StorageTool', 'random-uuid').strip()
        run_tool('kafka.tools.StorageTool', 'format', '-t', cluster_id, '-c', self._properties_file, '--feature',
                 f'transaction.version={self.level}')


class Talk:
    "A conversation on one connection, and the notes of it."
    def __init__(self, port: int): self.client, self.steps, self.count = Client(port, patience=30), [], 0

    def exchange(self, request, version: int) -> tuple[bytes, bytes]:
        self.count += 1
        asked = framed(APIS[request.API_KEY], version, request, self.count, 'txn')
        return asked, self.client.ask(asked)

    def ask(self, request, version: int):
        return answer_in(APIS[request.API_KEY], version, self.exchange(request, version)[1])

    def settle(self):
        "Kafka writes its markers a little later than it answers."
        while self.ask(list_(['PrepareCommit', 'PrepareAbort']), 0).transaction_states: time.sleep(0.02)
        time.sleep(0.05)

    def __call__(self, name: str, version: int, request, pause: float | str = 0, **context):
        if pause == SETTLED: self.settle()
        else: time.sleep(pause)
        asked, said = self.exchange(request, version)
        key = request.API_KEY
        self.steps.append(dict(name=name, api_key=key, api_version=version, api_name=API_NAMES[key],
                               request_hex=asked.hex(), response_hex=said.hex(), **context))
        return answer_in(APIS[key], version, said)


def talk_to(kafka: Leveled, topics: dict[str, int]) -> Talk:
    "A conversation with a Kafka that has these topics, and is ready for transactions."
    kafka.create_topics(topics)
    talk = Talk(kafka.port)
    for kind in (1, 0):
        while talk.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=['x']), 4).coordinators[0].error_code:
            time.sleep(0.1)
    time.sleep(1)
    return talk


def record_odd(to: Path):
    "What no client asks."
    with tempfile.TemporaryDirectory() as place, Leveled(Path(place), 2) as kafka:
        talk = talk_to(kafka, {'tx.a': 3, 'tx.b': 1, 'tx.gone': 1})
        odd(talk)
    (to/'transactions-odd.jsonl').write_text(''.join(json.dumps(step) + '\n' for step in talk.steps))


def record(level: int, to: Path):
    "One conversation, and the logs that it left."
    name = f'transactions-tv{level}'
    with tempfile.TemporaryDirectory() as place:
        with Leveled(Path(place), level) as kafka:
            talk = talk_to(kafka, {'tx.a': 3, 'tx.b': 1})
            conversation(talk, level)
            talk.settle()
        (to/f'{name}.jsonl').write_text(''.join(json.dumps(step) + '\n' for step in talk.steps))
        for directory in ('__transaction_state-0', 'tx.a-0', '__consumer_offsets-0'):
            raw = (kafka.log_dir/directory/f'{0:020}.log').read_bytes()
            kept = [raw[batch.start:batch.end] for batch in read_batches(raw) if directory != '__transaction_state-0'
                    or counts(batch)]
            (to/f'{name}.{directory}.log').write_bytes(b''.join(kept))


def counts(batch) -> bool:
    "Not one of the thousands of epochs that are only passed through."
    record = read_records(batch)[0]
    return record.key[4:] not in (b'x', b'y', b'z') or not record.value or not 0 < int.from_bytes(record.value[10:12],
        'big') < 32765


# --- Questions
# ----------------------------------------------------------------------------------------------------------

def batch(pid, epoch, seq, *values, attributes=TRANSACTIONAL):
    records = [Record(offset_delta=i, value=v) for i, v in enumerate(values or (b'v',))]
    return write_batch(records, attributes=attributes, base_timestamp=1794000000000, max_timestamp=1794000000000,
                       producer_id=pid, producer_epoch=epoch, base_sequence=seq, partition_leader_epoch=-1)


def init(name, pid=-1, epoch=-1, timeout=60000):
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout, producer_id=pid,
                                 producer_epoch=epoch)

def real(name): return name if name.startswith('__') else name.replace('_', '.')

def topics(**places): return [AddPartitionsToTxnTopic(name=real(n), partitions=p) for n, p in places.items()]

def add(name, pid, epoch, **places):
    return AddPartitionsToTxnRequest(v3_and_below_transactional_id=name, v3_and_below_producer_id=pid,
                                     v3_and_below_producer_epoch=epoch,
                                     v3_and_below_topics=topics(**places))

def add4(*txns):
    return AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(
        transactional_id=n, producer_id=p, producer_epoch=e, verify_only=v, topics=topics(**t)) for n, p, e, v,
        t in txns])

def end(name, pid, epoch, commit):
    return EndTxnRequest(transactional_id=name, producer_id=pid, producer_epoch=epoch, committed=commit)

def send(name, *data, acks=-1):
    by = {}
    for topic, index, records in data:
        by.setdefault(topic, []).append(PartitionProduceData(index=index, records=records))
    return ProduceRequest(transactional_id=name, acks=acks, timeout_ms=3000,
                          topic_data=[TopicProduceData(name=t, partition_data=d) for t, d in by.items()])

def fetch_(topic, index, offset=0, committed=1):
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=committed,
                        topics=[FetchTopic(topic=topic, partitions=[partition])])

def describe(*names): return DescribeTransactionsRequest(transactional_ids=list(names))

def producers(topic, *indexes):
    return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(indexes))])

def list_(states=(), ids=(), duration=-1, pattern=None):
    return ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(ids), duration_filter=duration,
                                   transactional_id_pattern=pattern)

def commit_offsets(name, group, pid, epoch, generation=-1, member='', offsets=(('tx.a', 0, 5),)):
    by = {}
    for t, i, o in offsets:
        by.setdefault(t, []).append(TxnOffsetCommitRequestPartition(partition_index=i, committed_offset=o,
                                                                    committed_metadata='m'))
    return TxnOffsetCommitRequest(transactional_id=name, group_id=group, producer_id=pid, producer_epoch=epoch,
                                  generation_id=generation, member_id=member,
                                  topics=[TxnOffsetCommitRequestTopic(name=t, partitions=p) for t, p in by.items()])

def offsets_of(group, stable=True):
    topics = [OffsetFetchRequestTopics(name='tx.a', partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable)

def latest(committed=1):
    topic = ListOffsetsTopic(name='tx.a', partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    return ListOffsetsRequest(replica_id=-1, isolation_level=committed, topics=[topic])

def marker(pid, epoch, commit, coordinator_epoch, **places):
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=pid, producer_epoch=epoch,
                                                             transaction_result=commit,
    topics=[WritableTxnMarkerTopic(name=real(n), partition_indexes=p) for n, p in places.items()],
    coordinator_epoch=coordinator_epoch)])


# --- The conversation
# ---------------------------------------------------------------------------------------------------

def first_id(t: Talk):
    "The first block of ids takes Kafka a moment."
    while True:
        t('init-first', 5, init(None))
        if t.steps[-1]['response_hex'][26:30] == '0000': break
        t.steps.pop()
        time.sleep(0.2)


def conversation(t: Talk, level: int):
    "All of it, in order: each answer depends on what was asked before."
    # names for nobody
    first_id(t)
    for v in range(6): t(f'init-null-v{v}', v, init(None))
    t('init-empty-name', 5, init(''))
    t('init-timeout-0', 5, init('a', timeout=0))
    t('init-timeout-negative', 5, init('a', timeout=-1))
    t('init-timeout-too-long', 5, init('a', timeout=900001))
    t('init-null-timeout-negative', 5, init(None, timeout=-1))
    t('init-id-without-epoch', 5, init('a', 3, -1))
    t('init-epoch-without-id', 5, init('a', -1, 3))
    t('init-null-id-without-epoch', 5, init(None, 3, -1))
    t('init-null-with-id', 5, init(None, 3, 0))
    # epochs
    a = t('init-a', 5, init('a', timeout=900000)).producer_id
    t('init-a-again', 0, init('a'))
    t('init-a-goes-on', 5, init('a', a, 1))
    t('init-a-goes-on-retry', 5, init('a', a, 1))
    t('init-a-too-old-v5', 5, init('a', a, 0))
    t('init-a-too-old-v3', 3, init('a', a, 0))
    t('init-a-future', 5, init('a', a, 9))
    t('init-a-other-id', 5, init('a', 12345, 2))
    t('init-a-other-id-v3', 3, init('a', 12345, 2))
    t('init-new-with-id', 5, init('fresh', 12345, 7))
    # the classic way
    c = t('init-c', 4, init('c')).producer_id
    t('end-empty-commit-v4', 4, end('c', c, 0, True))
    t('end-empty-abort-v4', 4, end('c', c, 0, False))
    t('add-unknown-topic', 3, add('c', c, 0, tx_a=[0, 9], tx_none=[0]))
    t('add-nothing', 3, add('c', c, 0))
    t('describe-c-after-nothing', 0, describe('c'))
    t('add-c', 3, add('c', c, 0, tx_a=[1, 0], tx_b=[0]), SETTLED)
    t('add-c-again', 3, add('c', c, 0, tx_a=[1]))
    t('add-other-id', 3, add('c', c + 900, 0, tx_a=[1]))
    t('add-other-epoch-v3', 3, add('c', c, 5, tx_a=[1]))
    t('add-other-epoch-v1', 1, add('c', c, 5, tx_a=[1]))
    t('add-unknown-name', 3, add('nobody', c, 0, tx_a=[1]))
    t('add-empty-name', 3, add('', c, 0, tx_a=[1]))
    t('add-internal', 3, add('c', c, 0, __consumer_offsets=[0]))
    for v in range(3): t(f'add-c-v{v}', v, add('c', c, 0, tx_a=[0]))
    t('produce-c', 11, send('c', ('tx.a', 0, batch(c, 0, 0, b'one', b'two'))))
    t('produce-c-duplicate', 11, send('c', ('tx.a', 0, batch(c, 0, 0, b'one', b'two'))))
    t('produce-not-added-v11', 11, send('c', ('tx.a', 2, batch(c, 0, 0))))
    t('produce-not-added-v10', 10, send('c', ('tx.a', 2, batch(c, 0, 0))))
    t('produce-not-added-v3', 3, send('c', ('tx.a', 2, batch(c, 0, 0))))
    t('produce-mixed-v11', 11, send('c', ('tx.a', 1, batch(c, 0, 0)), ('tx.a', 2, batch(c, 0, 0)),
                                    ('tx.none', 0, batch(c, 0, 0))))
    t('produce-two-producers', 11, send('c', ('tx.a', 1, batch(c, 0, 1)), ('tx.b', 0, batch(a, 2, 0))))
    t('produce-other-name', 11, send('a', ('tx.b', 0, batch(c, 0, 0))))
    t('produce-unknown-name', 11, send('nobody', ('tx.b', 0, batch(c, 0, 0))))
    t('produce-no-name', 11, send(None, ('tx.b', 0, batch(c, 0, 0))))
    t('produce-empty-name', 11, send('', ('tx.b', 0, batch(c, 0, 0))))
    t('produce-other-epoch', 11, send('c', ('tx.b', 0, batch(c, 4, 0))))
    t('produce-other-id', 11, send('c', ('tx.b', 0, batch(c + 900, 0, 0))))
    t('produce-other-epoch-v10', 10, send('c', ('tx.b', 0, batch(c, 4, 0))))
    t('produce-other-name-open', 11, send('a', ('tx.a', 0, batch(c, 0, 2))))
    t('produce-not-transactional-open', 11, send(None, ('tx.a', 0, batch(c, 0, 3, attributes=0))))
    t('produce-named-not-transactional', 11, send('c', ('tx.b', 0, batch(c, 0, 0, attributes=0))))
    t('produce-gap', 11, send('c', ('tx.a', 0, batch(c, 0, 7))))
    t('produce-acks-2', 11, send('c', ('tx.a', 2, batch(c, 0, 0)), acks=2))
    t('produce-acks-1', 11, send('c', ('tx.a', 0, batch(c, 0, 3)), acks=1))
    t('produce-internal', 11, send('c', ('__consumer_offsets', 0, batch(c, 0, 0))))
    t('describe-c', 0, describe('c', 'a', 'nobody', ''))
    t('producers-a-0', 0, producers('tx.a', 0, 1, 9))
    t('producers-unknown', 0, producers('tx.none', 0))
    t('list-all', 2, list_())
    t('list-ongoing', 1, list_(['Ongoing', 'Nonsense', 'Dead']))
    t('list-by-id', 0, list_(ids=[c, 77]))
    t('list-by-pattern', 2, list_(pattern='^[bc]$'))
    t('list-bad-pattern', 2, list_(pattern='(['))
    t('list-long', 1, list_(duration=100000))
    t('list-empty-pattern', 2, list_(['Ongoing'], pattern=''))
    t('list-part-of-name', 2, list_(pattern='re'))
    t('list-states-no-case', 0, list_(['ongoing']))
    t('fetch-open', 12, fetch_('tx.a', 0))
    t('latest-open', 7, latest())
    t('latest-open-uncommitted', 7, latest(0))
    t('end-other-id', 4, end('c', c + 900, 0, True))
    t('end-other-epoch-v4', 4, end('c', c, 5, True))
    t('end-other-epoch-v1', 1, end('c', c, 5, True))
    t('end-unknown', 4, end('nobody', c, 0, True))
    t('end-empty-name', 4, end('', c, 0, True))
    t('end-commit', 4, end('c', c, 0, True))
    t('end-commit-again', 4, end('c', c, 0, True), SETTLED)
    t('end-abort-after-commit', 4, end('c', c, 0, False))
    t('describe-c-done', 0, describe('c'))
    t('fetch-committed', 12, fetch_('tx.a', 0))
    t('latest-committed', 7, latest())
    t('producers-committed', 0, producers('tx.a', 0))
    t('produce-after-end', 11, send('c', ('tx.a', 0, batch(c, 0, 4))))
    t('produce-not-transactional-after', 11, send(None, ('tx.b', 0, batch(c, 0, 0, attributes=0))))
    t('add-c-2', 3, add('c', c, 0, tx_a=[0]))
    t('produce-c-2', 11, send('c', ('tx.a', 0, batch(c, 0, 4, b'three'))))
    t('end-abort', 4, end('c', c, 0, False))
    t('end-abort-again', 4, end('c', c, 0, False), SETTLED)
    t('end-commit-after-abort', 4, end('c', c, 0, True))
    t('fetch-aborted', 12, fetch_('tx.a', 0))
    t('fetch-aborted-from-end', 12, fetch_('tx.a', 0, 5))
    # a newer one takes over
    t.settle()
    t('add-c-3', 3, add('c', c, 0, tx_a=[0], tx_b=[0]))
    t('produce-c-3', 11, send('c', ('tx.a', 0, batch(c, 0, 5, b'four'))))
    t('init-c-takes-over', 5, init('c'), SETTLED)
    t('init-c-takes-over-retry', 5, init('c'), SETTLED)
    t('zombie-add', 3, add('c', c, 0, tx_a=[0]))
    t('zombie-end-v4', 4, end('c', c, 0, True))
    t('zombie-end-v0', 0, end('c', c, 0, True))
    t('zombie-end-v5', 5, end('c', c, 0, True))
    t('zombie-produce', 11, send('c', ('tx.a', 0, batch(c, 0, 6))))
    t('zombie-produce-v12', 12, send('c', ('tx.a', 0, batch(c, 0, 6))))
    t('zombie-produce-elsewhere', 11, send('c', ('tx.a', 2, batch(c, 0, 0))))
    t('zombie-init', 5, init('c', c, 0))
    t('zombie-init-fence-epoch', 5, init('c', c, 1))
    t('describe-c-fenced', 0, describe('c'))
    t('producers-fenced', 0, producers('tx.a', 0))
    # a producer that goes on after an error: init with its own id and epoch while its transaction is open
    e = t('init-e', 5, init('e')).producer_id
    t('add-e', 3, add('e', e, 0, tx_a=[2]))
    t('init-e-goes-on-open', 5, init('e', e, 0))
    t('init-e-goes-on-retry', 5, init('e', e, 0), SETTLED)
    t('init-e-goes-on-retry-2', 5, init('e', e, 1), SETTLED)
    t('describe-e', 0, describe('e'))
    # offsets
    o = t('init-o', 5, init('o')).producer_id
    t('offsets-not-added-v3', 3, commit_offsets('o', 'g', o, 0))
    t('offsets-not-added-v4', 4, commit_offsets('o', 'g', o, 0))
    t('offsets-not-added-v0', 0, commit_offsets('o', 'g', o, 0))
    t('add-offsets', 3, AddOffsetsToTxnRequest(transactional_id='o', producer_id=o, producer_epoch=0, group_id='g'))
    t('add-offsets-other-epoch-v3', 3, AddOffsetsToTxnRequest(transactional_id='o', producer_id=o, producer_epoch=3,
                                                              group_id='g'))
    t('add-offsets-other-epoch-v1', 1, AddOffsetsToTxnRequest(transactional_id='o', producer_id=o, producer_epoch=3,
                                                              group_id='g'))
    t('add-offsets-empty-group', 3, AddOffsetsToTxnRequest(transactional_id='o', producer_id=o, producer_epoch=0,
                                                           group_id=''))
    t('add-offsets-unknown', 4, AddOffsetsToTxnRequest(transactional_id='nobody', producer_id=o, producer_epoch=0,
                                                       group_id='g'))
    t('offsets-unknown-topic', 3, commit_offsets('o', 'g', o, 0, offsets=(('tx.a', 0, 5), ('tx.none', 0, 5),
        ('tx.a', 9, 5))))
    t('offsets-empty-group', 3, commit_offsets('o', '', o, 0))
    t('offsets-unknown-name', 3, commit_offsets('nobody', 'g', o, 0))
    t('offsets-other-epoch-v3', 3, commit_offsets('o', 'g', o, 7))
    t('offsets-other-epoch-v5', 5, commit_offsets('o', 'g', o, 7))
    t('offsets-other-id', 3, commit_offsets('o', 'g', o + 900, 0))
    t('offsets-generation', 3, commit_offsets('o', 'g', o, 0, generation=4, member='m'))
    t('offsets-member-only', 3, commit_offsets('o', 'g2', o, 0, member='m'))
    t('offsets-pending', 8, offsets_of('g'))
    t('offsets-pending-unstable', 8, offsets_of('g', False))
    t('describe-o', 0, describe('o'))
    t('offsets-commit', 4, end('o', o, 0, True))
    t('offsets-committed', 8, offsets_of('g'), SETTLED)
    t('add-offsets-2', 4, AddOffsetsToTxnRequest(transactional_id='o', producer_id=o, producer_epoch=0, group_id='g'))
    t('offsets-2', 4, commit_offsets('o', 'g', o, 0, offsets=(('tx.a', 0, 9),)))
    t('offsets-abort', 4, end('o', o, 0, False))
    t('offsets-aborted', 8, offsets_of('g'), SETTLED)
    if not level: return   # Kafka can't keep what follows in version 0 of its records, and gets stuck
    # the newer way: a transaction grows by being written to, and each has its own epoch
    n = t('init-n', 5, init('n')).producer_id
    t('new-produce', 12, send('n', ('tx.a', 0, batch(n, 0, 0, b'new')), ('tx.b', 0, batch(n, 0, 0, b'new')),
                              ('tx.none', 0, batch(n, 0, 0))))
    t('new-describe', 0, describe('n'))
    t('new-commit', 5, end('n', n, 0, True))
    t('new-commit-retry', 5, end('n', n, 0, True), SETTLED)
    t('new-abort-as-retry', 5, end('n', n, 0, False))
    t('new-commit-nothing', 5, end('n', n, 1, True))
    t('new-old-epoch-produce', 12, send('n', ('tx.a', 0, batch(n, 0, 1))))
    t('new-future-epoch-produce', 12, send('n', ('tx.a', 0, batch(n, 5, 0))))
    t('new-abort-nothing', 5, end('n', n, 1, False))
    t('new-abort-nothing-retry', 5, end('n', n, 1, False), SETTLED)
    t('new-abort-nothing-again', 5, end('n', n, 2, False))
    t('new-future-epoch', 5, end('n', n, 9, True), SETTLED)
    t('new-other-id', 5, end('n', n + 900, 3, True))
    t('new-wrong-sequence', 12, send('n', ('tx.a', 2, batch(n, 3, 5))))
    t('new-gap', 12, send('n', ('tx.a', 0, batch(n, 3, 5))))
    t('new-produce-2', 12, send('n', ('tx.a', 0, batch(n, 3, 0, b'n2'))))
    t('new-offsets', 5, commit_offsets('n', 'g', n, 3, offsets=(('tx.a', 0, 11),)))
    t('new-offsets-old-epoch', 5, commit_offsets('n', 'g', n, 1, offsets=(('tx.a', 0, 11),)))
    t('new-describe-2', 0, describe('n'))
    t('new-takes-over', 5, init('n'))
    t('new-takes-over-retry', 5, init('n'), SETTLED)
    t('new-describe-3', 0, describe('n'))
    t('new-zombie-end', 5, end('n', n, 3, True))
    t('new-zombie-end-next', 5, end('n', n, 4, True))
    t('new-zombie-produce', 12, send('n', ('tx.a', 0, batch(n, 3, 1))))
    t('new-mixed-add', 3, add('n', n, 5, tx_b=[0]))
    t('new-mixed-describe', 0, describe('n'))
    t('new-mixed-end', 4, end('n', n, 5, True))
    t('new-mixed-end-2', 4, end('n', n, 6, True), SETTLED)
    t('new-mixed-describe-2', 0, describe('n'), SETTLED)
    f = t('init-f', 5, init('f')).producer_id
    t('new-goes-on-produce', 12, send('f', ('tx.b', 0, batch(f, 0, 0))))
    t('new-goes-on', 5, init('f', f, 0))
    t('new-goes-on-retry', 5, init('f', f, 0), SETTLED)
    t('new-goes-on-retry-2', 5, init('f', f, 1))
    t('new-goes-on-describe', 0, describe('f'))
    # brokers among themselves
    k = t('init-k', 5, init('k')).producer_id
    t('batch-add', 4, add4(('k', k, 0, False, dict(tx_a=[0])), ('nobody', 5, 0, False, dict(tx_a=[0]))))
    there = dict(tx_a=[0])
    for v in (4, 5):
        t(f'verify-v{v}', v, add4(('k', k, 0, True, dict(tx_a=[0, 1])), ('c', c, 0, True, there),
                                  ('nobody', 5, 0, True, there), ('o', o, 0, True, there)))
    t('batch-other-epoch', 4, add4(('k', k, 4, False, dict(tx_a=[0]))))
    t('batch-unknown-topic', 4, add4(('k', k, 0, False, dict(tx_none=[0]))))
    t('batch-empty-name', 4, add4(('', k, 0, True, dict(tx_a=[0]))))
    t('end-k-v5', 5, end('k', k, 0, True))
    t.settle()
    t('marker-unknown-producer', 1, marker(7000, 3, True, 7, tx_b=[0], tx_none=[0]))
    t('marker-old-epoch', 1, marker(7000, 2, True, 7, tx_b=[0]))
    t('marker-old-coordinator', 1, marker(7000, 3, True, 6, tx_b=[0]))
    t('marker-same-again', 1, marker(7000, 3, False, 7, tx_b=[0]))
    t('marker-offsets', 1, marker(7000, 3, True, 0, __consumer_offsets=[0]))
    t('marker-nothing', 1, marker(7000, 3, True, 0))
    t('marker-two', 1, WriteTxnMarkersRequest(markers=marker(7001, 0, True, 0, tx_b=[0]).markers + marker(7002, 0,
        False, 0, tx_b=[0], tx_a=[1, 9]).markers))
    t('marker-producers', 0, producers('tx.b', 0))
    # slow ones
    s = t('init-slow', 5, init('slow', timeout=300)).producer_id
    t('slow-add', 3, add('slow', s, 0, tx_a=[0]))
    t('slow-produce', 11, send('slow', ('tx.a', 0, batch(s, 0, 0, b'slow'))))
    t('slow-describe', 0, describe('slow'), 1.5, later_ms=1500)
    t('slow-end', 4, end('slow', s, 0, True))
    t('slow-add-2', 3, add('slow', s, 0, tx_a=[0]))
    t('slow-produce-2', 11, send('slow', ('tx.a', 0, batch(s, 0, 1))))
    t('slow-goes-on', 5, init('slow', s, 0, timeout=300))
    t('slow-goes-on-v3', 3, init('slow', s, 0, timeout=300))
    u = t('init-slow-new', 5, init('slow2', timeout=300)).producer_id
    t('slow-new-produce', 12, send('slow2', ('tx.a', 0, batch(u, 0, 0, b'slow'))))
    t('slow-new-describe', 0, describe('slow2'), 1.5, later_ms=1500)
    t('slow-new-end', 5, end('slow2', u, 0, True))
    t('slow-new-abort', 5, end('slow2', u, 0, False))
    t('slow-new-produce-2', 12, send('slow2', ('tx.a', 0, batch(u, 0, 1))))
    t('slow-new-goes-on', 5, init('slow2', u, 0, timeout=300))
    t('slow-new-goes-on-2', 5, init('slow2', u, 1, timeout=300))
    t('slow-new-fresh', 5, init('slow2', timeout=300))
    # no epochs left
    if level < 2: return   # it takes half a minute
    x = t('init-x', 5, init('x')).producer_id
    far(t, 'x', x, 1, 32765)
    t('last-epoch', 5, init('x', x, 32765), epoch_before=('x', 32765))
    t('last-epoch-retry', 5, init('x', x, 32765), kafka_stumbles=True)
    t('next-id', 5, init('x', x, 32766)).producer_id
    t('next-id-retry', 5, init('x', x, 32766))
    t('next-id-describe', 0, describe('x'))
    t('next-id-again', 5, init('x'))
    y = t('init-y', 5, init('y')).producer_id
    far(t, 'y', y, 1, 32766)
    t('last-produce', 12, send('y', ('tx.a', 1, batch(y, 32766, 0))), epoch_before=('y', 32766))
    t('last-commit', 5, end('y', y, 32766, True))
    t('last-commit-retry', 5, end('y', y, 32766, True), SETTLED)
    t('last-describe', 0, describe('y'))
    t('last-produce-old', 12, send('y', ('tx.a', 1, batch(y, 32766, 1))))
    t('last-produce-new', 12, send('y', ('tx.a', 1, batch(y + 1, 0, 0))))
    z = t('init-z', 5, init('z')).producer_id
    far(t, 'z', z, 1, 32766)
    t('last-add', 3, add('z', z, 32766, tx_a=[1]), epoch_before=('z', 32766))
    t('last-takes-over', 5, init('z'))
    t('last-takes-over-retry', 5, init('z'), SETTLED)
    t('last-takes-over-describe', 0, describe('z'))
    t('list-in-the-end', 0, list_())

def far(t: Talk, name: str, pid: int, start: int, stop: int):
    "Brings a producer to a far epoch, by asking again and again, a few hundred questions at a time."
    frame, left = framed(APIS[22], 5, init(name)), stop - start + 1
    while left:
        count = min(left, 200)
        t.client.send(frame * count)
        for _ in range(count): last = t.client.frame()
        left -= count
    assert answer_in(APIS[22], 5, last).producer_epoch == stop


def odd(t: Talk):
    """Sequences around the wrap, numbers that can't be, batches that are nobody's, both ways in turn, and a topic that
    goes away."""
    first_id(t)
    def plain(pid, epoch, seq, *values): return batch(pid, epoch, seq, *values, attributes=0)
    def put(name, *data, v=11, who=None): return t(name, v, send(who, *data))
    # around the wrap, and more than five batches ago
    last = 2**31 - 1
    sent = [(last - 1, 4), (2, 1), (last - 1, 4), (last, 1), (3, 1), (4, 1), (5, 1), (6, 1), (2, 1), (last - 1, 4),
            (7, 2), (7, 1), (7, 2), (8, 1)]
    for n, (seq, count) in enumerate(sent):
        put(f'wrap-{n}', ('tx.a', 0, plain(5000, 0, seq, *[b'v'] * count)))
    # numbers that can't be
    for name, pid, epoch, seq in [('epoch-too-low', 5001, -5, 0), ('no-epoch', 5002, -1, 3),
                                  ('no-epoch-anywhere', 5002, -1, 9), ('no-epoch-again', 5002, -1, 3),
                                  ('an-epoch-now', 5002, 0, 7), ('no-epoch-after', 5002, -1, 7),
                                  ('id-too-low', -5, 0, 0), ('epoch-without-id', -1, 3, 4),
                                  ('no-sequence', 5003, 0, -1), ('sequence-too-low', 5003, 0, -2),
                                  ('largest-epoch', 5004, 32767, 0), ('largest-epoch-2', 5004, 32767, 1)]:
        put(name, ('tx.a', 1, plain(pid, epoch, seq)))
    t('numbers-producers', 0, producers('tx.a', 0, 1))
    a = t('init-a', 5, init('a')).producer_id
    for who in [('a', -5, 3), ('a', -5, 0), ('a', a, -5), ('a', -5, -5), (None, -5, 3), ('new', -5, 3)]:
        t(f'init-{who}', 5, init(*who))
    # whose are they?
    b = t('init-b', 5, init('b')).producer_id
    t('add-b', 3, add('b', b, 0, tx_a=[0, 1, 2], tx_b=[0]))
    put('two-and-plain', ('tx.a', 0, batch(b, 0, 0)), ('tx.a', 1, batch(b + 77, 0, 0)), ('tx.b', 0, plain(-1, -1, -1)),
        ('tx.none', 0, batch(b, 0, 0)), who='b')
    put('two-epochs', ('tx.a', 0, batch(b, 0, 0)), ('tx.a', 1, batch(b, 1, 0)), who='b')
    put('nobodys', ('tx.a', 0, batch(-1, -1, -1)), who='b')
    put('nobodys-no-name', ('tx.a', 0, batch(-1, -1, -1)))
    put('nobodys-v12', ('tx.a', 0, batch(-1, -1, -1)), who='b', v=12)
    put('and-plain', ('tx.a', 0, batch(b, 0, 0)), ('tx.b', 0, plain(-1, -1, -1)), who='b')
    put('starts-later', ('tx.a', 2, batch(b, 0, 5)), who='b')
    put('plain-elsewhere', ('tx.a', 1, plain(b, 0, 0)))
    for name, epoch, seq in [('again', 0, 0), ('next', 0, 1), ('next-epoch', 1, 0), ('gap', 0, 9)]:
        put(f'plain-{name}', ('tx.a', 0, plain(b, epoch, seq)))
    put('next-epoch', ('tx.a', 0, batch(b, 1, 0)), who='b')
    t('end-b', 4, end('b', b, 0, True))
    t.settle()
    put('plain-after', ('tx.a', 0, plain(b, 0, 1)))
    t('add-b-2', 3, add('b', b, 0, tx_a=[0]))
    t('add-b-none', 3, add('b', b, 0, tx_a=[0, 7, 7]))
    put('again-in-next', ('tx.a', 0, batch(b, 0, 0)), who='b')
    t('end-b-2', 4, end('b', b, 0, False))
    t('fetch-b', 12, fetch_('tx.a', 0), SETTLED)
    c = t('init-c', 5, init('c')).producer_id
    t('batch-no-topics', 4, add4(('c', c, 0, False, {})))
    t('batch-internal', 4, add4(('c', c, 0, False, dict(__transaction_state=[0]))))
    t('batch-verify-others', 4, add4(('c', c, 9, True, dict(tx_a=[0])), ('b', c, 0, True, dict(tx_a=[0]))))
    t('describe-c', 0, describe('c', 'c'))
    t('end-c', 5, end('c', c, 0, False))
    t('list-unknown', 1, list_(['Nonsense', 'Nonsense']), SETTLED)
    t('list-fence', 1, list_(['PrepareEpochFence']))
    for duration in (0, -2, 2**62): t(f'list-longer-{duration}', 1, list_(duration=duration))
    t('marker-no-id', 1, marker(-1, -1, True, 0, tx_b=[0]))
    t('marker-no-epoch', 1, marker(8002, -1, True, 0, tx_b=[0]))
    t('marker-no-coordinator', 1, marker(8003, 0, True, -1, tx_b=[0]))
    t('marker-internal', 1, marker(8003, 0, True, 0, __transaction_state=[0]))
    t('fetch-markers', 12, fetch_('tx.b', 0))
    t('producers-markers', 0, producers('tx.b', 0))
    # both ways in turn
    d = t('init-d', 5, init('d')).producer_id
    t('old-add', 3, add('d', d, 0, tx_a=[2]))
    put('old-put', ('tx.a', 2, batch(d, 0, 0)), who='d')
    t('new-end', 5, end('d', d, 0, True))
    t.settle()
    for place, seq, v in [(('tx.a', 2), 0, 12), (('tx.b', 0), 0, 12), (('tx.a', 2), 1, 11), (('tx.a', 1), 0, 11)]:
        put(f'put-{place}-{v}', (*place, batch(d, 1, seq)), who='d', v=v)
    t('old-end', 4, end('d', d, 1, True))
    t('describe-old', 0, describe('d'), SETTLED)
    for v, commit in [(4, True), (5, True), (5, False)]: t(f'end-{v}-{commit}', v, end('d', d, 1, commit))
    t('describe-new', 0, describe('d'), SETTLED)
    for seq in (1, 0): put(f'new-put-{seq}', ('tx.a', 2, batch(d, 2, seq)), who='d', v=12)
    t('old-add-2', 3, add('d', d, 2, tx_b=[0]))
    t('describe-both', 0, describe('d'))
    for epoch in (2, 2, 3): t(f'goes-on-{epoch}', 5, init('d', d, epoch), SETTLED)
    t('describe-goes-on', 0, describe('d'))
    # a topic that goes away
    g = t('init-g', 5, init('g')).producer_id
    put('gone-put', ('tx.gone', 0, batch(g, 0, 0)), ('tx.b', 0, batch(g, 0, 0)), who='g', v=12)
    t('gone-offsets', 5, commit_offsets('g', 'grp', g, 0, offsets=(('tx.gone', 0, 3), ('tx.a', 0, 4))))
    t('gone-offsets-again', 5, commit_offsets('g', 'grp', g, 0, offsets=(('tx.a', 0, 2),)))
    t('gone', 1, DeleteTopicsRequest(topic_names=['tx.gone'], timeout_ms=10_000))
    t('gone-describe', 0, describe('g'), 1)
    put('gone-put-2', ('tx.gone', 0, batch(g, 0, 1)), who='g', v=12)
    t('gone-end', 5, end('g', g, 0, True))
    t('gone-done', 0, describe('g'), SETTLED)
    t('gone-committed', 8, offsets_of('grp'))
    t('offsets-2', 5, commit_offsets('g', 'grp', g, 1, offsets=(('tx.a', 0, 9),)))
    t('offsets-none', 5, commit_offsets('g', 'grp', g, 1, offsets=(('tx.a', 1, -1),)))
    t('offsets-producers', 0, producers('__consumer_offsets', 0))
    for stable in (True, False): t(f'offsets-pending-{stable}', 8, offsets_of('grp', stable))
    t('offsets-end', 5, end('g', g, 1, False))
    t('offsets-aborted', 8, offsets_of('grp'), SETTLED)
    t('offsets-producers-2', 0, producers('__consumer_offsets', 0))
    for topic, number in [('tx.a', 0), ('tx.a', 1), ('tx.a', 2), ('tx.b', 0)]:
        t(f'fetch-{topic}-{number}', 12, fetch_(topic, number))


if __name__ == '__main__':
    asked = command_line(__doc__, 'which')
    for which in asked.which: record_odd(asked.to) if which == 'odd' else record(int(which), asked.to)
