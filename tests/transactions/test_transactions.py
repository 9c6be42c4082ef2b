"""Transactions: what Apache Kafka 4.1.1 wrote into its logs in long conversations, and what is left of ours after a
crash.

The conversations are in `fixtures/wire/recorded/transactions-tv*.jsonl`: three times nearly the same one, with a Kafka
whose cluster has agreed
on level 0, 1 or 2 of `transaction.version`. They are held again here; `conversations/test_recorded.py` compares the
answers.
"""
from pathlib import Path

import pytest
from player import RECORDED, differences, recorded
from recordings import RECORDINGS, batches
from small_node import START, small_node

from kafka_scratch.apis.api import Node
from kafka_scratch.wire.codes import ApiError, ErrorCode, Operation
from kafka_scratch.cluster.logs import Logs, end_logs
from kafka_scratch.broker.apis import APIS
from kafka_scratch.groups.offsets import OffsetCommitKey, OffsetCommitValue
from kafka_scratch.log.partition import StorageError
from kafka_scratch.wire.primitives import Int16
from kafka_scratch.log.records import TRANSACTIONAL, Record, read_batches, read_records, write_batch
from kafka_scratch.apis.api import Call
from kafka_scratch.transactions.coordinator import add_partitions_to_transaction, append_transaction_to_log
from kafka_scratch.transactions.coordinator import end_transaction
from kafka_scratch.transactions.state import COMPLETE_ABORT, COMPLETE_COMMIT, LAST_EPOCH, ONGOING, STATES
from kafka_scratch.transactions.state import TransactionLogKey
from kafka_scratch.transactions.state import TransactionLogValue, from_value

LEVELS = 0, 1, 2
TOPICS = {'tx.a': 3, 'tx.b': 1}


# --- The same conversations
# ---------------------------------------------------------------------------------------------

@pytest.fixture(params=LEVELS)
def talked(request, tmp_path):
    "A node with which a recorded conversation was held, and the level."
    file = f'transactions-tv{request.param}.jsonl'
    recording, lines = RECORDINGS[file], recorded(file)
    node = recording.node(tmp_path, lines)
    assert not differences(recording, node, lines)[1]
    return node, request.param


def transaction_log(raw: bytes) -> list:
    """The records of a transaction log, without times; the epochs between 1 and the last ones of x, y and z are left
    out."""
    found = []
    for record in (record for batch in read_batches(raw) for record in read_records(batch)):
        name, version = TransactionLogKey.decode(record.key, 0, 2).transactional_id, Int16.read(record.value, 0)[0]
        txn = from_value(name, TransactionLogValue.decode(record.value, version, 2))
        if name not in 'xyz' or not 0 < txn.producer_epoch <= LAST_EPOCH or txn.state:
            found.append((version, txn._replace(
                txn_last_update_timestamp=0, txn_start_timestamp=txn.txn_start_timestamp > 0,
                previous_producer_id=-1, next_producer_id=-1)))   # two tags that Kafka doesn't fill
    return found


def test_transaction_log_is_kafkas(talked):
    node, level = talked
    ours = transaction_log(Path(node.partition('__transaction_state').active.path).read_bytes())
    kafkas = transaction_log((RECORDED/f'transactions-tv{level}.__transaction_state-0.log').read_bytes())
    assert ours == kafkas
    assert len(ours) >= 29


@pytest.mark.parametrize('name', ['tx.a', '__consumer_offsets'])
def test_logs_are_kafkas(talked, name):
    "Batches, offsets and markers, in the order in which Kafka has them."
    node, level = talked
    ours = batches(Path(node.partition(name).active.path).read_bytes())
    kafkas = batches((RECORDED/f'transactions-tv{level}.{name}-0.log').read_bytes())
    # values hold times
    if name == '__consumer_offsets': ours, kafkas = ([b[:5] for b in each] for each in (ours, kafkas))
    assert ours == kafkas


# --- Whoever crashes in between
# -----------------------------------------------------------------------------------------

BOTH = {('left', 0), ('right', 0)}


class Unplugged(BaseException): "The machine stops here."


class Plug:
    "Lets so many appends to any log through, and then pulls the plug; or lets the disk refuse, once."
    def __init__(self, monkeypatch, appends: int, error=Unplugged):
        self.left = appends
        def limited(*arguments, append_own=Logs.append_own):
            self.left -= 1
            if self.left == -1 or self.left < 0 and error is Unplugged: raise error('now')
            return append_own(*arguments)
        monkeypatch.setattr(Logs, 'append_own', limited)


def send(node: Node, topic: str, txn, sequence: int = 0, value: bytes = b'x'):
    from kafka_scratch.apis.produce_store import store
    from kafka_scratch.log.batch_checks import header_of
    batch = write_batch([Record(value=value)], attributes=TRANSACTIONAL, producer_id=txn.producer_id,
                        producer_epoch=txn.producer_epoch,
                        base_sequence=sequence, base_timestamp=node.now(), max_timestamp=node.now())
    store(node.logs.find(node.image.topics[topic], 0), batch, header_of(batch), node.now())


def commit_offset(node: Node, txn, offset: int, version: int = 3) -> int:
    from kafka_scratch.transactions.apis import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition
    from kafka_scratch.transactions.apis import TxnOffsetCommitRequestTopic
    from kafka_scratch.transactions.apis import answer_txn_offset_commit
    topic = TxnOffsetCommitRequestTopic(name='left', partitions=[TxnOffsetCommitRequestPartition(partition_index=0,
        committed_offset=offset, committed_metadata='')])
    request = TxnOffsetCommitRequest(transactional_id=txn.transactional_id, producer_id=txn.producer_id,
                                     producer_epoch=txn.producer_epoch,
                                     group_id='g', topics=[topic])
    return answer_txn_offset_commit(request, Call(version, node)).topics[0].partitions[0].error_code


def visible(node: Node, topic: str) -> list[bytes]:
    "What a consumer of committed records gets, by way of Fetch."
    from kafka_scratch.apis.fetch_messages import FetchPartition, FetchRequest, FetchTopic
    from kafka_scratch.apis.fetch import answer_fetch
    wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    got = answer_fetch(FetchRequest(topics=[wanted], isolation_level=1), Call(12, node)).responses[0].partitions[0]
    aborted, dropping, values = sorted(got.aborted_transactions or [], key=lambda txn: txn.first_offset), set(), []
    for batch in read_batches(got.records):
        while aborted and aborted[0].first_offset <= batch.last_offset: dropping.add(aborted.pop(0).producer_id)
        if batch.control: dropping.discard(batch.header.producer_id)
        elif not (batch.transactional and batch.header.producer_id in dropping):
            values += [record.value for record in read_records(batch)]
    return values


def committed_offset(node: Node) -> int:
    found = node.groups.offsets.get('g', {}).get(('left', 0))
    return found.offset if found else -1


def begin(node: Node, value: bytes, offset: int):
    "A transaction with a record in each of two topics, and an offset."
    txn = node.transactions.init_producer_id('pay', 60_000)
    store = node.groups.store
    add_partitions_to_transaction(node.transactions, *txn[:3], BOTH | {(store.topic, store.partition_for('g'))})
    for topic in ('left', 'right'): send(node, topic, txn, value=value)
    assert commit_offset(node, txn, offset) == 0
    return txn


@pytest.mark.parametrize('client_transaction_version', [0, 2])
@pytest.mark.parametrize('committed', [True, False])
@pytest.mark.parametrize('level', [0, 2])
def test_a_crash_at_every_write(tmp_path, monkeypatch, committed, client_transaction_version, level):
    """To end a transaction takes five appends here. Whichever is the last: both topics and the offsets agree in the
    end, and so do readers."""
    for appends in range(6):
        node = small_node(tmp_path/str(appends))
        node.create({'left': 1, 'right': 1}, level)
        end_transaction(node.transactions, *begin(node, b'before', 1)[:3], True, 0)
        txn = begin(node, b'now', 2)
        with monkeypatch.context() as patch:
            Plug(patch, appends)
            try: end_transaction(node.transactions, *txn[:3], committed, client_transaction_version)
            except Unplugged: assert appends < 5
            else: assert appends == 5
        node.crash()
        node = small_node(tmp_path/str(appends), node.clock)
        known = node.transactions.transactions['pay']
        if not appends:
            assert STATES[known.state] == 'Ongoing' and node.partition('left').stable_offset == 2 and not visible(node,
                'left')[1:]
            node.turn_clock(60_000)
            known = node.transactions.transactions['pay']
        counts = committed and appends > 0
        assert known.state == (COMPLETE_COMMIT if counts else COMPLETE_ABORT) and not node.transactions.ending
        assert visible(node, 'left') == visible(node, 'right') == [b'before', *[b'now'] * counts]
        assert committed_offset(node) == 1 + counts and not node.groups.pending
        for topic in ('left', 'right'): assert node.partition(topic).stable_offset == node.partition(topic).end_offset
        end_transaction(node.transactions, *begin(node, b'after', 3)[:3], True, 0)   # and it goes on
        assert visible(node, 'left')[-1] == b'after' and committed_offset(node) == 3
        node.crash()


@pytest.mark.parametrize('appends', range(6))
def test_a_crash_while_the_broker_aborts(tmp_path, monkeypatch, appends):
    "The same when a newer producer takes over."
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1}, 2)
    old = begin(node, b'old', 1)
    with monkeypatch.context() as patch:
        Plug(patch, appends)
        try: node.transactions.init_producer_id('pay', 60_000)
        except (Unplugged, ApiError): pass
    node.crash()
    node = small_node(tmp_path, node.clock)
    for _ in range(2):   # it is told to ask again, once
        try: new = node.transactions.init_producer_id('pay', 60_000)
        except ApiError as problem: assert problem.code == ErrorCode.CONCURRENT_TRANSACTIONS and not appends
    assert new.producer_id == old.producer_id and new.producer_epoch > old.producer_epoch
    assert visible(node, 'left') == visible(node, 'right') == [] and committed_offset(node) == -1
    assert refusal(end_transaction, node.transactions, *old[:3], True, 0) == ErrorCode.PRODUCER_FENCED


def refusal(call, *arguments) -> int:
    try: call(*arguments)
    except ApiError as problem: return problem.code
    return 0


@pytest.mark.parametrize('appends', range(5))
def test_a_disk_that_refuses_once(tmp_path, monkeypatch, appends):
    "Before the decision: nothing happened, and the producer may try again. After it: the rest is done a second later."
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1})
    txn = begin(node, b'x', 1)
    with monkeypatch.context() as patch:
        Plug(patch, appends, StorageError)
        if not appends:
            with pytest.raises(StorageError): end_transaction(node.transactions, *txn[:3], True, 0)
            assert node.transactions.transactions['pay'].state == ONGOING
        end_transaction(node.transactions, *txn[:3], True, 0)
        if appends:
            assert node.transactions.is_ending(txn.producer_id) and node.notes
            assert refusal(add_partitions_to_transaction, node.transactions, *txn[:3],
                           {('left', 0)}) == ErrorCode.CONCURRENT_TRANSACTIONS
            assert refusal(node.transactions.init_producer_id, 'pay', 60_000) == ErrorCode.CONCURRENT_TRANSACTIONS
            assert commit_offset(node, txn, 7) == ErrorCode.CONCURRENT_TRANSACTIONS
            node.turn_clock(1000)
    assert node.transactions.transactions['pay'].state == COMPLETE_COMMIT and not node.transactions.ending
    assert visible(node, 'left') == visible(node, 'right') == [b'x'] and committed_offset(node) == 1


@pytest.mark.parametrize('messages, safe', [(1, True), (2**63 - 1, False)])
def test_every_step_is_on_the_disk_before_the_next(tmp_path, monkeypatch, messages, safe):
    """If that is what `flush.messages` asks for: the decision, the markers, that they are written; and what groups
    commit."""
    node, steps = small_node(tmp_path, settings=f'log.flush.interval.messages={messages}\n'), []
    node.create({'left': 1, 'right': 1})
    txn = begin(node, b'x', 1)
    def watched(logs, hosted, *arguments, append_own=Logs.append_own):
        offset = append_own(logs, hosted, *arguments)
        steps.append((hosted.log.topic, hosted.log.recovery_point == hosted.log.end_offset))
        return offset
    monkeypatch.setattr(Logs, 'append_own', watched)
    end_transaction(node.transactions, *txn[:3], True, 0)
    node.groups.write('g', [(OffsetCommitKey(group='g', topic='left', partition=0), OffsetCommitValue(offset=1))])
    assert steps == [(topic, safe) for topic in ('__transaction_state', '__consumer_offsets', 'left', 'right',
                                                 '__transaction_state', '__consumer_offsets')]


@pytest.mark.parametrize('good', range(4))
def test_a_disk_that_refuses_for_a_while(tmp_path, monkeypatch, good):
    """Every second another try: where a marker is already, there is no second one, and only the first try is worth a
    note."""
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1})
    txn, appends = begin(node, b'x', 1), []
    def refuses(logs, *arguments, append_own=Logs.append_own):
        if len(appends) > good: raise StorageError('no room')
        appends.append(arguments)
        return append_own(logs, *arguments)
    with monkeypatch.context() as patch:
        patch.setattr(Logs, 'append_own', refuses)
        end_transaction(node.transactions, *txn[:3], True, 0)
        for _ in range(5): node.turn_clock(1000)
        assert len(appends) == good + 1 and len(node.notes) == 1 and node.transactions.is_ending(txn.producer_id)
    node.turn_clock(1000)
    assert node.transactions.transactions['pay'].state == COMPLETE_COMMIT and not node.transactions.marked
    for topic in ('left', 'right'):
        assert [batch.control for batch
                in read_batches(Path(node.partition(topic).active.path).read_bytes())] == [False, True]
    end_transaction(node.transactions, *begin(node, b'y', 2)[:3], True, 0)   # and the next one has its own markers
    assert visible(node, 'left') == visible(node, 'right') == [b'x', b'y'] and committed_offset(node) == 2


def test_offsets_when_the_disk_refuses(tmp_path, monkeypatch):
    "The topic for them can't be made: that is an answer, and no reason to close the connection."
    node = small_node(tmp_path)
    node.create({'left': 1})
    txn = node.transactions.init_producer_id('pay', 60_000)
    def refuse(): raise StorageError('no room')
    monkeypatch.setattr(node.groups.store, 'ensure', refuse)
    assert commit_offset(node, txn, 1) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize('spoil', [lambda value: value[:-3], lambda value: value[:16] + b'\x07' + value[17:]])
def test_a_record_that_cannot_be_read(tmp_path, spoil):
    "It is the last of its key, so it alone counts: nobody knows what is true, and the broker says so."
    from kafka_scratch.groups.coordinator import write_key, write_state
    from kafka_scratch.transactions.state import to_value
    node = small_node(tmp_path)
    known = node.transactions.init_producer_id('pay', 60_000)
    value = write_state(to_value(known._replace(producer_epoch=9)), 0)
    node.transactions.store.write(0, [(write_key(TransactionLogKey(transactional_id='pay')), spoil(value))])
    node.crash()
    node = small_node(tmp_path, node.clock)
    assert 'pay' not in node.transactions.transactions and "can't be read" in node.notes[0]


def test_a_transaction_log_that_cannot_be_read_to_its_end(tmp_path):
    """A transaction is complete, and the next one of its producer is open. The record that says so is damaged: the
    markers are not written again."""
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1}, 0)
    txn = node.transactions.init_producer_id('pay', 60_000)
    for sequence, value in enumerate([b'old', b'open']):
        add_partitions_to_transaction(node.transactions, *txn[:3], {('left', 0)})
        send(node, 'left', txn, sequence, value)
        if not sequence: end_transaction(node.transactions, *txn[:3], True, 0)
    path = Path(node.partition('__transaction_state').active.path)
    end_logs(node.logs)   # in order: nothing will be checked at the start
    node.crash()
    raw = bytearray(path.read_bytes())
    complete = list(read_batches(bytes(raw)))[3]
    assert read_records(complete)[0].value[16] == COMPLETE_COMMIT
    raw[complete.end - 1] ^= 1
    path.write_bytes(raw)
    node = small_node(tmp_path, node.clock)
    node.turn_clock(60_000)
    assert visible(node, 'left') == [b'old'] and node.partition('left').stable_offset == 2
    assert node.transactions.transactions == {} and not node.transactions.is_ending(txn.producer_id)
    with pytest.raises(StorageError): end_transaction(node.transactions, *txn[:3], True, 0)
    with pytest.raises(StorageError): add_partitions_to_transaction(node.transactions, *txn[:3], {('left', 0)})
    with pytest.raises(StorageError): node.transactions.init_producer_id('pay', 60_000)
    assert node.transactions.admit(*txn[:3], [('right', 0)], True, True) == {('right',
        0): ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_patterns_of_names(tmp_path):
    "A pattern comes from a client, and must not keep the broker busy for ever."
    from kafka_scratch.transactions.admin import ListTransactionsRequest, answer_list_transactions
    node = small_node(tmp_path)
    for name in ('pay.one', 'pay.two', 'a' * 200): node.transactions.init_producer_id(name, 60_000)
    def listed(pattern):
        response = answer_list_transactions(ListTransactionsRequest(transactional_id_pattern=pattern), Call(2, node))
        return response.error_code, sorted(each.transactional_id for each in response.transaction_states)
    assert listed('pay[.].*') == (0, ['pay.one', 'pay.two']) and listed('pay') == listed('(a+)+b') == (0, [])
    assert len(listed(None)[1]) == len(listed('')[1]) == 3 and listed('(')[0] == ErrorCode.INVALID_REGULAR_EXPRESSION


# --- Time
# ---------------------------------------------------------------------------------------------------------------

def test_a_transaction_that_takes_too_long(tmp_path):
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1})
    txn = begin(node, b'x', 1)
    node.turn_clock(59_999)
    assert node.transactions.transactions['pay'].state == ONGOING
    node.turn_clock(1)
    assert node.transactions.transactions['pay'].state == COMPLETE_ABORT
    assert visible(node, 'left') == [] and committed_offset(node) == -1
    assert refusal(end_transaction, node.transactions, *txn[:3], True, 0) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize('level', LEVELS)
def test_time_runs_out_in_the_last_epoch(tmp_path, level):
    """The epoch that fences is nobody's. (Kafka 4.1.1 gives it to a producer that aborts late, and can't end that
    producer's next transaction.)"""
    node = small_node(tmp_path)
    node.create(TOPICS, level)
    txn = node.transactions.init_producer_id('pay', 10_000)
    append_transaction_to_log(node.transactions, txn._replace(producer_epoch=LAST_EPOCH))
    who = 'pay', txn.producer_id, LAST_EPOCH
    add_partitions_to_transaction(node.transactions, *who, {('tx.a', 0)}, 2)
    node.turn_clock(10_000)
    assert node.transactions.transactions['pay'][1:3] == (txn.producer_id, LAST_EPOCH + 1)
    assert refusal(end_transaction, node.transactions, *who, False, 2) == ErrorCode.PRODUCER_FENCED
    # a Kafka was here, and has given it away: then that ends, too
    add_partitions_to_transaction(node.transactions, 'pay', txn.producer_id, LAST_EPOCH + 1, {('tx.a', 0)}, 2)
    node.crash()
    node = small_node(tmp_path, [node.clock[0] + 10_000])
    assert STATES[node.transactions.transactions['pay'].state] == 'CompleteAbort'
    add_partitions_to_transaction(node.transactions, 'pay', txn.producer_id, LAST_EPOCH + 1, {('tx.a', 0)}, 2)
    ended = end_transaction(node.transactions, 'pay', txn.producer_id, LAST_EPOCH + 1, True, 2)
    assert ended.producer_id != txn.producer_id and ended.producer_epoch == 0


def test_time_goes_on_while_the_broker_is_down(tmp_path):
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1})
    begin(node, b'x', 1)
    node.crash()
    node = small_node(tmp_path, [START + 60_000])
    assert node.transactions.transactions['pay'].state == COMPLETE_ABORT


def test_many_transactions_leave_few_timers(tmp_path):
    "A busy producer must not fill the memory with clocks."
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1})
    txn = node.transactions.init_producer_id('pay', 60_000)
    for _ in range(200):
        add_partitions_to_transaction(node.transactions, *txn[:3], BOTH)
        end_transaction(node.transactions, *txn[:3], True, 0)
        node.turn_clock(1000)
    assert len(node.timers.heap) < 10
    add_partitions_to_transaction(node.transactions, *txn[:3], BOTH)
    node.turn_clock(60_000)
    assert node.transactions.transactions['pay'].state == COMPLETE_ABORT   # and the one that counts was there


def test_names_expire(tmp_path):
    "A week after the last word; but not in the middle of something."
    node = small_node(tmp_path,
                      settings='transactional.id.expiration.ms=10000\ntransaction.remove.expired.transaction.cleanup.interval.ms=1000\n')
    node.create({'left': 1})
    for name in ('idle', 'open'): node.transactions.init_producer_id(name, 60_000)
    open_ = node.transactions.transactions['open']
    add_partitions_to_transaction(node.transactions, *open_[:3], {('left', 0)})
    node.turn_clock(11_000)
    assert list(node.transactions.transactions) == ['open']
    # as if it had never been
    assert node.transactions.init_producer_id('idle', 60_000).producer_id > open_.producer_id
    node.crash()
    node = small_node(tmp_path, node.clock)
    assert {name: txn.state for name, txn in node.transactions.transactions.items()} == {'open': ONGOING, 'idle': 0}


def test_settings(tmp_path):
    node = small_node(tmp_path, settings='transaction.max.timeout.ms=1000\n')
    assert refusal(node.transactions.init_producer_id, 'pay', 1001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not refusal(node.transactions.init_producer_id, 'pay', 1000)


# --- Odds and ends
# ------------------------------------------------------------------------------------------------------

def test_a_topic_that_is_gone(tmp_path):
    "Nobody will read there, so nobody needs a marker."
    from kafka_scratch.cluster.records import RemoveTopicRecord
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1})
    txn = begin(node, b'x', 1)
    node.controller.write([RemoveTopicRecord(topic_id=node.image.topics['right'].topic_id)])
    end_transaction(node.transactions, *txn[:3], True, 0)
    assert node.transactions.transactions['pay'].state == COMPLETE_COMMIT and visible(node, 'left') == [b'x']


def test_markers_of_an_earlier_coordinator(tmp_path):
    """A log that has seen a higher epoch of the coordinator (when Kafka led the transaction log, perhaps) still takes
    our markers: there is no other coordinator."""
    from kafka_scratch.transactions.markers import TxnMarkerEntry, write_marker
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1})
    txn = node.transactions.init_producer_id('pay', 60_000)
    assert write_marker(node, node.groups, 'left', 0, TxnMarkerEntry(txn.producer_id, 0, True, 7), node.now()) == 0
    assert write_marker(node, node.groups, 'left', 0, TxnMarkerEntry(txn.producer_id, 0, True, 6),
                        node.now()) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end_transaction(node.transactions, *begin(node, b'x', 1)[:3], True, 0)
    assert visible(node, 'left') == visible(node,
                                            'right') == [b'x'] and node.partition(
                                                'left').producers.producers[txn.producer_id].coordinator_epoch == 7


def test_the_shortcut_asks_too(tmp_path):
    "A busy producer of transactions takes the shortcut, within a transaction; nobody gets past the coordinator by it."
    from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, TopicProduceData
    from kafka_scratch.broker.fast import fast_for
    from kafka_scratch.wire.frames import RequestHeader
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1}, 2)
    txn, fast = node.transactions.init_producer_id('pay', 60_000), fast_for(node)
    def produce(sequence, epoch=0, name='pay', attributes=TRANSACTIONAL, version=11):
        batch = write_batch([Record(value=b'x')], attributes=attributes, producer_id=txn.producer_id,
                            producer_epoch=epoch, base_sequence=sequence,
                            base_timestamp=node.now(), max_timestamp=node.now())
        data = TopicProduceData(name='left', partition_data=[PartitionProduceData(index=0, records=batch)])
        frame = RequestHeader(api_key=0, api_version=version, correlation_id=1, client_id='me').encode(2)
        frame += ProduceRequest(transactional_id=name, acks=-1, topic_data=[data]).encode(version)
        answer = APIS[0].response.decode(fast.answer(frame), version, 9).responses[0].partition_responses[0]
        return answer.error_code or answer.base_offset
    for sequence in range(64):
        add_partitions_to_transaction(node.transactions, *txn[:3], {('left', 0)})
        assert produce(sequence) == sequence
    assert fast.shapes.known and produce(64) == 64
    assert produce(65, name=None) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    end_transaction(node.transactions, *txn[:3], True, 0)
    assert produce(65) == ErrorCode.TRANSACTION_ABORTABLE   # late: the transaction is over
    add_partitions_to_transaction(node.transactions, *txn[:3], {('left', 0)})
    assert produce(65) == 66 and produce(66, attributes=0) == ErrorCode.INVALID_TXN_STATE
    for sequence in range(66, 100): assert produce(sequence, version=12) == sequence + 1
    end_transaction(node.transactions, *txn[:3], True, 2)
    assert produce(100, version=12) == ErrorCode.INVALID_PRODUCER_EPOCH and produce(0, epoch=1, version=12) == 102


def test_a_marker_that_waits_for_the_disk(tmp_path):
    "In a topic that is flushed with each message, a marker is readable when it is on the disk."
    from kafka_scratch.cluster.records import ConfigRecord
    node = small_node(tmp_path)
    node.create({'left': 1, 'right': 1})
    node.controller.write([ConfigRecord(resource_type=2, resource_name='left', name='flush.messages', value='1')])
    txn, left, right = begin(node, b'x', 1), node.partition('left'), node.partition('right')
    assert (left.high_watermark, left.end_offset) == (0, 1)   # the record alone waits for whoever sent it
    end_transaction(node.transactions, *txn[:3], True, 0)
    assert left.recovery_point == left.high_watermark == left.stable_offset == left.end_offset == 2
    assert (right.recovery_point, right.high_watermark, right.end_offset) == (0, 2, 2)


def test_who_may(tmp_path):
    "Every question of this chapter, asked by somebody who may do nothing."
    from kafka_scratch.transactions import admin, apis as t
    node = small_node(tmp_path)
    node.create({'left': 1})
    node.transactions.init_producer_id('pay', 60_000)
    node.authorizer = lambda *_: False
    place = t.AddPartitionsToTxnTopic(name='left', partitions=[0])
    def error_of(answer, path): return eval('answer.' + path)
    add = t.AddPartitionsToTxnRequest(v3_and_below_transactional_id='pay', v3_and_below_topics=[place])
    assert error_of(t.answer_add_partitions_to_txn(add, Call(3, node)),
                    'results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code') == 53
    assert t.answer_add_partitions_to_txn(t.AddPartitionsToTxnRequest(), Call(4, node)).error_code == 31
    # a broker asks for its clients
    node.authorizer = lambda caller, operation, *_: operation == Operation.CLUSTER_ACTION
    txn = t.AddPartitionsToTxnTransaction(transactional_id='pay', producer_epoch=0, topics=[place])
    answer = t.answer_add_partitions_to_txn(t.AddPartitionsToTxnRequest(transactions=[txn]), Call(4, node))
    assert error_of(
        answer, 'results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code') == 0
    node.authorizer = lambda *_: False
    assert t.answer_add_offsets_to_txn(t.AddOffsetsToTxnRequest(transactional_id='pay', group_id='g'),
                                       Call(3, node)).error_code == 53
    assert t.answer_end_txn(t.EndTxnRequest(transactional_id='pay'), Call(4, node)).error_code == 53
    marker = admin.WritableTxnMarker(topics=[admin.WritableTxnMarkerTopic(name='left', partition_indexes=[0])])
    assert error_of(admin.answer_write_txn_markers(admin.WriteTxnMarkersRequest(markers=[marker]), Call(1, node)),
                    'markers[0].topics[0].partitions[0].error_code') == 31
    assert admin.answer_list_transactions(admin.ListTransactionsRequest(), Call(0, node)).transaction_states == []
    assert admin.answer_describe_transactions(admin.DescribeTransactionsRequest(transactional_ids=['pay']),
                                              Call(0, node)).transaction_states[0].error_code == 53
    asked = admin.DescribeProducersRequest(topics=[admin.TopicRequest(name='left', partition_indexes=[0])])
    assert error_of(admin.answer_describe_producers(asked, Call(0, node)), 'topics[0].partitions[0].error_code') == 29
    txn = node.transactions.transactions['pay']
    assert commit_offset(node, txn, 1) == 53
