"""Four conversations about committed offsets, and one before there is a coordinator: held with a real broker by
`record/offsets.py`, and with ours
by `groups/test_offsets.py`. What a member says depends on the ids that it was given, so that they are held, not
played."""
import time
import uuid
from pathlib import Path

import group_messages as other
from benchmarks import wire
from broker_process import Client
from player import answer_in, framed
from recording import Recorder
from kafka_scratch.apis.api import read_request
from kafka_scratch.groups.offset_apis import *
from kafka_scratch.groups.offset_expiry import *
from kafka_scratch.groups.offsets import *
from kafka_scratch.log.records import read_batches, read_records
from kafka_scratch.wire.primitives import Int16

A, B, NONE = 'offsets.a', 'offsets.b', 'offsets.none'
TOPICS = {A: 3, B: 1}


# --- What is said -----------------------------------------------------------------------------------------------------

def commit(group_id, *topics, epoch=-1, member_id='', instance_id=None, **fields) -> OffsetCommitRequest:
    "`('orders', (partition, offset[, leader epoch[, metadata]]), …)`, …"
    def partition(index, offset, leader_epoch=-1, metadata=''):
        return OffsetCommitRequestPartition(partition_index=index, committed_offset=offset,
                                            committed_leader_epoch=leader_epoch, committed_metadata=metadata)
    return OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=epoch, member_id=member_id,
                               group_instance_id=instance_id,
                               topics=[OffsetCommitRequestTopic(name=name,
                                                                partitions=[partition(*each) for each in wanted])
                                                                for name, *wanted in topics], **fields)


def fetch(group_id, *topics, stable=False, member_id=None, epoch=-1, everything=False):
    "One group, for every version: a function of the version."
    def request(version):
        if version < 8:
            asked = None if everything else [OffsetFetchRequestTopic(name=name,
                                                                     partition_indexes=list(indexes)) for name,
                                                                     *indexes in topics]
            return OffsetFetchRequest(group_id=group_id, topics=asked, require_stable=stable)
        asked = None if everything else [OffsetFetchRequestTopics(name=name, partition_indexes=list(indexes)) for name,
                                         *indexes in topics]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, member_id=member_id,
                                                                  member_epoch=epoch, topics=asked)],
                                                                  require_stable=stable)
    return request


def delete(group_id, *topics) -> OffsetDeleteRequest:
    "`('orders', partition, …)`, …"
    return OffsetDeleteRequest(group_id=group_id, topics=[OffsetDeleteRequestTopic(name=name, partitions=[
        OffsetDeleteRequestPartition(partition_index=index) for index in indexes]) for name, *indexes in topics])


class Talk:
    "The three APIs, by name; every name is used once."
    def __init__(self, ask): self.ask, self.names = ask, set()
    def said(self, name, api, version, request):
        assert name not in self.names, name
        self.names.add(name)
        return self.ask(name, api, version, request)
    def commit(self, name, request, version=9): return self.said(name, offset_commit, version, request)
    def fetch(self, name, request, version=9):
        return self.said(name, offset_fetch, version, request(version) if callable(request) else request)
    def delete(self, name, request): return self.said(name, offset_delete, 0, request)


def before(talk: Talk):
    "Nobody has asked for a coordinator yet."
    talk.commit('before: commit', commit('g', (A, (0, 1)))), talk.fetch('before: fetch',
        fetch('g', (A, 0))), talk.fetch('before: fetch, v1', fetch('g', (A, 0)), 1)
    talk.fetch('before: fetch, v5', fetch('g', (A, 0)), 5)
    talk.fetch('before: fetch everything', fetch('g', everything=True)), talk.delete('before: delete',
        delete('g', (A, 0)))
    talk.commit('before: unknown topic', commit('g', (NONE, (0, 1)))), talk.delete('before: delete of an unknown topic',
        delete('g', (NONE, 0)))


def simple(talk: Talk):
    "Consumers that aren't members of anything, and tools."
    for v in range(2, 10):
        talk.commit(f'commit v{v}', commit(f'g-v{v}', (A, (0, 10 + v, 5, 'a note'), (1, 20, -1, None), (9, 1)),
                                           (NONE, (0, 1)), (B, (0, 7))), v)
    for v in range(1, 10):
        talk.fetch(f'fetch v{v}', fetch(f'g-v{max(v, 2)}', (A, 0, 1, 2, 9), (NONE, 0, 5), (B, 0)), v)
        talk.fetch(f'fetch v{v}, unknown group', fetch('g-nobody', (A, 0), (NONE, 0)), v)
        talk.fetch(f'fetch v{v}, nothing', fetch('g-v9'), v)
        if v >= 2:
            talk.fetch(f'fetch v{v}, everything', fetch('g-v9', everything=True),
                       v), talk.fetch(f'fetch v{v}, everything of nobody', fetch('g-nobody', everything=True), v)
        if v >= 7: talk.fetch(f'fetch v{v}, stable', fetch('g-v9', (A, 0, 1, 2), stable=True), v)
    # who commits
    for v in (2, 8, 9):
        talk.commit(f'unknown group, generation 3, v{v}', commit('g-nobody', (A, (0, 1)), epoch=3, member_id='me'), v)
        talk.commit(f'unknown group, generation 0, no member, v{v}', commit('g-nobody', (A, (0, 1)), epoch=0), v)
        talk.commit(f'simple group, generation 3, v{v}', commit('g-v9', (A, (0, 1)), epoch=3, member_id='me'), v)
        talk.commit(f'simple group, generation 0, no member, v{v}', commit('g-v9', (A, (0, 1)), epoch=0), v)
        talk.commit(f'simple group, member without generation, v{v}', commit('g-v9', (A, (0, 1)), member_id='me'), v)
        talk.commit(f'unknown group, member without generation, v{v}', commit(f'g-me-{v}', (A, (0, 1)), member_id='me'),
                    v)
    talk.commit('instance without member', commit('g-i1', (A, (0, 1)), instance_id='i'))
    talk.commit('instance without member, known group', commit('g-v9', (A, (0, 1)), instance_id='i'))
    talk.commit('instance and generation, known group', commit('g-v9', (A, (0, 1)), instance_id='i', epoch=0,
                                                               member_id='me'))
    talk.commit('epoch -2', commit('g-m2', (A, (0, 1)), epoch=-2))
    talk.commit('unknown group and topic', commit('g-nobody', (NONE, (0, 1)), epoch=3))
    talk.commit('unknown group, one topic unknown', commit('g-nobody', (NONE, (0, 1)), (A, (0, 1), (9, 1)), epoch=3))
    # what is committed
    for length, text in (('20', 'x' * 20), ('21', 'x' * 21), ('10 rare', '🦕' * 10), ('11 rare', '🦕' * 11),
                         ('20 of two bytes', 'Δ' * 20)):
        talk.commit(f'metadata {length}', commit('g-long', (A, (0, 1, -1, text), (1, 2))))
    talk.fetch('metadata, fetched', fetch('g-long', (A, 0, 1)))
    talk.commit('odd offsets', commit('g-odd', (A, (0, -1), (1, -5), (2, 2**63 - 1)),
                                      (B, (0, 0, -7)))), talk.fetch('odd offsets, fetched',
                                                                    fetch('g-odd', (A, 0, 1, 2), (B, 0)))
    talk.commit('a partition twice', commit('g-twice', (A, (0, 5), (0, 3)))), talk.fetch('a partition twice, fetched',
        fetch('g-twice', (A, 0, 0)))
    talk.commit('a topic twice', commit('g-twice', (A, (0, 6)), (B, (0, 1)),
                                        (A, (0, 8), (1, 1)))), talk.fetch('a topic twice, fetched',
                                            fetch('g-twice', (A, 0), (B, 0), (A, 0, 1)))
    talk.commit('mixed', commit('g-mixed', (A, (9, 1), (0, 1)), ('zz', (0, 1)), (B, (0, 1)), (A, (1, 1), (8, 1)),
                                ('zz', (1, 1))))
    talk.commit('no topics', commit('g-none')), talk.commit('no partitions',
                                                            commit('g-none', (A,))), talk.commit(
                                                                'no partitions, unknown topic',
                                                                commit('g-none', (NONE,)))
    talk.commit('no partitions and others', commit('g-none', (A,), (NONE,),
                                                   (B, (0, 1)))), talk.commit('no topics, generation 3',
                                                       commit('g-none', epoch=3))
    talk.commit('topics with odd names', commit('g-none', ('', (0, 1)), ('a b!', (0, 1))))
    talk.commit('group without a name', commit('', (A, (0, 44)))), talk.fetch('group without a name, fetched',
        fetch('', (A, 0))), talk.fetch('group without a name, everything', fetch('', everything=True), 7)
    for ms in (-2, 0, 60_000, 2**40):
        talk.commit(f'retention {ms}', commit('g-retention', (A, (0, 1, 5, 'n')), retention_time_ms=ms), 4)
    talk.fetch('retention, fetched', fetch('g-retention', (A, 0)))
    talk.commit('an internal topic', commit('g-internal', ('__consumer_offsets', (0, 1)))), talk.commit('the metadata',
        commit('g-internal', ('__cluster_metadata', (0, 1))))
    # several groups
    def groups(*requests, stable=False):
        return OffsetFetchRequest(groups=[each(9).groups[0] for each in requests], require_stable=stable)
    for v in (8, 9):
        talk.fetch(f'no groups v{v}', groups(), v)
        talk.fetch(f'groups v{v}', groups(fetch('g-v9', (A, 0)), fetch('g-nobody', (A, 0)),
                                          fetch('g-v8', everything=True), fetch('g-v9', (B, 0)), fetch('')), v)
    talk.fetch('simple group, member', fetch('g-v9', (A, 0), member_id='me',
                                             epoch=3)), talk.fetch('unknown group, member',
                                                                   fetch('g-nobody', (A, 0), member_id='me', epoch=3))
    # delete
    talk.delete('delete: unknown group', delete('g-nobody', (A, 0))), talk.delete('delete: no name',
        delete('', (A, 0))), talk.delete('delete: no name, no topics', delete(''))
    talk.delete('delete: unknown group, no topics',
                delete('g-nobody')), talk.delete('delete: unknown group, unknown topic', delete('g-nobody', (NONE, 0)))
    talk.delete('delete: unknown group, one topic unknown', delete('g-nobody', (NONE, 0), (A, 0)))
    talk.delete('delete: mixed', delete('g-v9', (A, 0, 9, 2), (NONE, 0), (B,),
                                        ('zz',))), talk.fetch('delete: mixed, fetched', fetch('g-v9', everything=True))
    talk.delete('delete: twice', delete('g-v9', (A, 1, 1), (B, 0), (A, 1))), talk.fetch('delete: twice, fetched',
        fetch('g-v9', (A, 0, 1), (B, 0)))
    talk.delete('delete: nothing left', delete('g-v9', (A, 0))), talk.fetch('delete: nothing left, fetched',
        fetch('g-v9', everything=True))
    talk.commit('delete: nothing left, generation 3', commit('g-v9', (A, (0, 1)), epoch=3, member_id='me'))


# version 0, topics, no data
SUBSCRIPTION = b'\0\0' + (1).to_bytes(4, 'big') + Int16.write(len(A)) + A.encode() + b'\xff\xff\xff\xff'


def join(talk: Talk, group_id: str, protocol_type: str = 'consumer', metadata: bytes = SUBSCRIPTION):
    "The first and only member of a classic group: member id and generation."
    def request(member_id): return other.JoinGroupRequest(
        group_id=group_id, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member_id,
        protocol_type=protocol_type,
        protocols=[other.JoinGroupRequestProtocol(name='range', metadata=metadata)])
    first = talk.ask(None, other.join_group, 5, request(''))
    assert first.error_code == 79, first
    joined = talk.ask(None, other.join_group, 5, request(first.member_id))
    assert joined.error_code == 0, joined
    return joined.member_id, joined.generation_id


def sync(talk: Talk, group_id: str, member_id: str, generation: int):
    assignment = other.SyncGroupRequestAssignment(member_id=member_id, assignment=b'\0\0' + (0).to_bytes(4,
        'big') + b'\xff\xff\xff\xff')
    said = talk.ask(None, other.sync_group, 3, other.SyncGroupRequest(group_id=group_id, generation_id=generation,
                                                                      member_id=member_id, assignments=[assignment]))
    assert said.error_code == 0, said


def leave(talk: Talk, group_id: str, member_id: str):
    assert talk.ask(None, other.leave_group, 2, other.LeaveGroupRequest(group_id=group_id,
        member_id=member_id)).error_code == 0


def classic(talk: Talk):
    "A group with one member that reads A."
    group = 'g-classic'
    me, generation = join(talk, group)
    talk.commit('classic: before it is synced', commit(group, (A, (0, 1)), epoch=generation, member_id=me))
    talk.commit('classic: a tool, before it is synced', commit(group, (A, (0, 1))))
    sync(talk, group, me, generation)
    for v in (2, 8, 9):
        talk.commit(f'classic: the member v{v}', commit(group, (A, (0, 10 + v), (9, 1)), (B, (0, 5)), epoch=generation,
                                                        member_id=me), v)
        talk.commit(f'classic: another generation v{v}', commit(group, (A, (0, 1), (1, 1)), epoch=generation + 1,
                                                                member_id=me), v)
        talk.commit(f'classic: generation 0 v{v}', commit(group, (A, (0, 1)), epoch=0, member_id=me), v)
        talk.commit(f'classic: another member v{v}', commit(group, (A, (0, 1)), epoch=generation, member_id='somebody'),
                    v)
        talk.commit(f'classic: a tool v{v}', commit(group, (A, (0, 1))), v)
        talk.commit(f'classic: the member without generation v{v}', commit(group, (A, (0, 1)), member_id=me), v)
    talk.commit('classic: no member', commit(group, (A, (0, 1)), epoch=generation))
    talk.commit('classic: an instance', commit(group, (A, (0, 1)), epoch=generation, member_id=me, instance_id='i'))
    talk.commit('classic: only an instance', commit(group, (A, (0, 1)), instance_id='i'))
    talk.commit('classic: unknown topic', commit(group, (NONE, (0, 1)), epoch=77))
    talk.fetch('classic: fetched', fetch(group, (A, 0, 1), (B, 0))), talk.fetch('classic: fetched by somebody',
        fetch(group, (A, 0), member_id='somebody', epoch=7, stable=True))
    talk.delete('classic: delete', delete(group, (A, 0, 9), (B, 0), (NONE, 0))), talk.fetch('classic: delete, fetched',
        fetch(group, everything=True))
    leave(talk, group, me)
    talk.commit('classic: left, the member', commit(group, (A, (0, 1)), epoch=generation, member_id=me))
    talk.commit('classic: left, the member without generation', commit(group, (A, (0, 2)), member_id=me))
    talk.commit('classic: left, a tool', commit(group, (A, (1, 33)))), talk.fetch('classic: left, fetched',
        fetch(group, (A, 0, 1)))
    talk.delete('classic: left, delete', delete(group, (A, 0))), talk.fetch('classic: left, delete, fetched',
        fetch(group, everything=True))
    worker, generation = join(talk, 'g-connect', 'connect', b'anything')
    sync(talk, 'g-connect', worker, generation)
    talk.commit('connect: the member', commit('g-connect', (A, (0, 4)), epoch=generation, member_id=worker))
    talk.delete('connect: delete', delete('g-connect', (A, 0))), talk.delete('connect: delete of an unknown topic',
        delete('g-connect', (NONE, 0)))
    leave(talk, 'g-connect', worker)
    talk.delete('connect: left, delete', delete('g-connect', (A, 0)))


def heartbeat(talk: Talk, group_id: str, member_id: str, epoch: int, **fields):
    said = talk.ask(None, other.consumer_group_heartbeat, 1, other.ConsumerGroupHeartbeatRequest(group_id=group_id,
        member_id=member_id, member_epoch=epoch, **fields))
    assert said.error_code == 0, said
    return said.member_epoch


def new_group(talk: Talk):
    "A group of the new protocol (KIP-848) with one member that reads A."
    group, me = 'g-848', str(uuid.uuid4())
    epoch = heartbeat(talk, group, me, 0, rebalance_timeout_ms=30_000, subscribed_topic_names=[A], topic_partitions=[])
    talk.commit('new: the member', commit(group, (A, (0, 10), (9, 1)), (B, (0, 5)), epoch=epoch, member_id=me))
    for v in (2, 8):
        talk.commit(f'new: the member v{v}', commit(group, (A, (0, 11), (9, 1)), epoch=epoch, member_id=me), v)
    for v in (8, 9):
        talk.commit(f'new: an old epoch v{v}', commit(group, (A, (0, 1)), epoch=epoch - 1, member_id=me), v)
        talk.commit(f'new: a later epoch v{v}', commit(group, (A, (0, 1)), epoch=epoch + 1, member_id=me), v)
        talk.commit(f'new: another member v{v}', commit(group, (A, (0, 1)), epoch=epoch, member_id='somebody'), v)
        talk.commit(f'new: a tool v{v}', commit(group, (A, (0, 1))), v)
        talk.commit(f'new: the member without epoch v{v}', commit(group, (A, (0, 1)), member_id=me), v)
        talk.fetch(f'new: fetched by a tool v{v}', fetch(group, (A, 0), (B, 0)), v)
    asked = (A, 0)
    talk.fetch('new: fetched by the member', fetch(group, asked, member_id=me, epoch=epoch, stable=True))
    talk.fetch('new: fetched in an old epoch', fetch(group, asked, member_id=me,
                                                     epoch=epoch - 1)), talk.fetch('new: fetched in a later epoch',
                                                         fetch(group, asked, member_id=me, epoch=epoch + 1))
    talk.fetch('new: fetched by another', fetch(group, asked, member_id='somebody',
                                                epoch=epoch)), talk.fetch('new: fetched by no member, with epoch',
                                                    fetch(group, asked, epoch=epoch))
    talk.fetch('new: fetched by the member without epoch', fetch(group, asked,
                                                                 member_id=me)), talk.fetch(
                                                                     'new: fetched by an empty name',
                                                                     fetch(group, asked, member_id=''))
    talk.fetch('new: everything, in an old epoch', fetch(group, member_id=me, epoch=epoch - 1, everything=True))
    talk.fetch('new: everything', fetch(group, member_id=me, epoch=epoch, everything=True))
    talk.delete('new: delete', delete(group, (A, 0), (B, 0))), talk.fetch('new: delete, fetched',
        fetch(group, everything=True))
    heartbeat(talk, group, me, -1)
    talk.commit('new: left, the member', commit(group, (A, (0, 1)), epoch=epoch,
                                                member_id=me)), talk.commit('new: left, the member v8',
                                                    commit(group, (A, (0, 1)), epoch=epoch, member_id=me), 8)
    talk.commit('new: left, a tool', commit(group, (A, (1, 33)))), talk.commit('new: left, a tool v8',
        commit(group, (A, (2, 34))), 8)
    talk.fetch('new: left, fetched', fetch(group, (A, 0, 1, 2))), talk.fetch('new: left, fetched by the member',
        fetch(group, (A, 0), member_id=me, epoch=epoch))
    talk.delete('new: left, delete', delete(group, (A, 0, 1))), talk.fetch('new: left, delete, fetched',
        fetch(group, everything=True))


class Transaction:
    "A transaction that commits offsets."
    def __init__(self, talk: Talk, name: str, group_id: str):
        self.talk, self.name, self.group_id = talk, name, group_id
        self.patiently(lambda: talk.ask(None, other.find_coordinator, 1,
                                        other.FindCoordinatorRequest(key=name, key_type=1)))
        found = self.patiently(lambda: talk.ask(None, other.init_producer_id, 1,
                                                other.InitProducerIdRequest(transactional_id=name,
                                                    transaction_timeout_ms=60_000)))
        self.who = dict(transactional_id=name, producer_id=found.producer_id, producer_epoch=found.producer_epoch)
        self.patiently(lambda: talk.ask(None, other.add_offsets_to_txn, 1,
                                        other.AddOffsetsToTxnRequest(**self.who, group_id=group_id)))

    def patiently(self, ask):
        "A coordinator that isn't ready says so: 14, 15, 16, 51."
        deadline = time.monotonic() + 30
        while (said := ask()).error_code in (14, 15, 16, 51) and time.monotonic() < deadline: time.sleep(0.05)
        assert said.error_code == 0, said
        return said

    def commit(self, *topics):
        def partition(index, offset):
            return other.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset,
                                                         committed_metadata='in a transaction')
        said = self.talk.ask(None, other.txn_offset_commit, 2, other.TxnOffsetCommitRequest(**self.who,
            group_id=self.group_id, topics=[
            other.TxnOffsetCommitRequestTopic(name=name, partitions=[partition(*each) for each in wanted]) for name,
            *wanted in topics]))
        assert not any(p.error_code for t in said.topics for p in t.partitions), said

    def end(self, committed: bool):
        self.patiently(lambda: self.talk.ask(None, other.end_txn, 1, other.EndTxnRequest(**self.who,
            committed=committed)))
        asked = fetch(self.group_id, (A, 0, 1, 2), (B, 0), stable=True)(9)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            said = self.talk.ask(None, offset_fetch, 9, asked)
            if not any(p.error_code for t in said.groups[0].topics for p in t.partitions): return
            time.sleep(0.05)


def transactional(talk: Talk):
    "Offsets that are committed in transactions, seen from outside."
    everywhere = (A, 0, 1, 2), (B, 0)
    def look(when, group):
        for stable in (True, False):
            talk.fetch(f'{when}, stable={stable}', fetch(group, *everywhere,
                                                         stable=stable)), talk.fetch(
                                                             f'{when}, everything, stable={stable}',
                                                             fetch(group, everything=True, stable=stable))
    txn = Transaction(talk, 'txn-1', 'g-txn')
    look('txn: begun', 'g-txn')
    txn.commit((A, (0, 100), (1, 101)))
    look('txn: open, nothing else', 'g-txn')
    talk.commit('txn: a tool, for another partition', commit('g-txn', (A,
        (2, 7)))), talk.commit('txn: a tool, for the same partition', commit('g-txn', (A, (1, 8))))
    look('txn: open', 'g-txn')
    txn.commit((B, (0, 102)))
    txn.end(True)
    look('txn: committed', 'g-txn')
    txn = Transaction(talk, 'txn-1', 'g-txn')
    txn.commit((A, (0, 200), (1, 201)))
    look('txn: open again', 'g-txn')
    txn.end(False)
    look('txn: aborted', 'g-txn')
    txn = Transaction(talk, 'txn-2', 'g-txn-deleted')
    txn.commit((A, (0, 300), (1, 301)), (B, (0, 302)))
    talk.commit('txn: before the deletion', commit('g-txn-deleted', (A, (2, 5))))
    talk.delete('txn: deleted while open', delete('g-txn-deleted', (A, 0, 2)))
    look('txn: deleted while open', 'g-txn-deleted')
    txn.end(True)
    look('txn: deleted, committed', 'g-txn-deleted')


CONVERSATIONS = {'simple': simple, 'classic': classic, 'new': new_group, 'transactional': transactional}


# --- To hold them -----------------------------------------------------------------------------------------------------

def in_order(case: dict, raw: bytes) -> bytes:
    """An answer with everything that a group has comes in any order from a real broker: sorted, if everything was asked
    for."""
    if case['api_key'] != 9: return raw
    version, start = case['api_version'], 8 + offset_fetch.response_header_version(case['api_version'])
    request = answer_request(case)
    answer = offset_fetch.response.decode(raw, version, start)
    groups = [(request, answer)] if version < 8 else list(zip(request.groups, answer.groups))
    for asked, said in groups:
        if asked.topics is not None: continue
        said.topics.sort(key=lambda topic: topic.name)
        for topic in said.topics: topic.partitions.sort(key=lambda partition: partition.partition_index)
    return raw[:start] + answer.encode(version)


def answer_request(case: dict):
    return read_request(bytes.fromhex(case['request_hex'])[4:], offset_fetch, case['api_version'])[1]


def hold(port: int, conversation) -> list[dict]:
    "Has a conversation with the broker at a port; what has a name is kept."
    recorder = Recorder(port)
    def ask(name, api, version, request):
        said = recorder.ask(name, api, version, request)
        if name is None: recorder.cases.pop()
        assert said is not None, f'{name}: the connection was closed'
        return said
    conversation(Talk(ask))
    return recorder.cases


def wait_for_coordinator(port: int):
    "Until the topic of offsets is there, and has been read."
    def ready():
        with Client(port) as client:
            client.ask(framed(other.find_coordinator, 1, other.FindCoordinatorRequest(key='g', key_type=0)))
            groups = [f'g-{i}' for i in range(60)]
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[]) for group in groups])
            said = answer_in(offset_fetch, 9, client.ask(framed(offset_fetch, 9, asked)))
            return not any(group.error_code for group in said.groups)
    wire.wait_for(ready, 60, 'a coordinator for every group')


SETTINGS = {'offset.metadata.max.bytes': 20, 'offsets.topic.num.partitions': 3,
            'transaction.state.log.num.partitions': 2}


def written(log_dir: Path) -> dict[str, list]:
    "What is in the log about offsets: batch by batch, with times taken out."
    found = {}
    for path in sorted(log_dir.glob('__consumer_offsets-*')):
        for batch in read_batches(b''.join(file.read_bytes() for file in sorted(path.glob('*.log')))):
            records = [[r.key.hex(),
                        None if r.value is None or batch.control else timeless(r.value)] for r in read_records(batch)
                       if batch.control or r.key.startswith(b'\0\1')]
            facts = [batch.header.attributes, batch.header.base_sequence, batch.header.producer_id >= 0]
            if records: found.setdefault(path.name, []).append([*facts, records])
    return found


def timeless(value: bytes) -> str:
    "The bytes of a value, its times zero."
    version, _ = Int16.read(value, 0)
    found = OffsetCommitValue.decode(value, version, 2)
    assert Int16.write(version) + found.encode(version) == value
    found.commit_timestamp, found.expire_timestamp = 0, 0 if version == 1 else -1
    return (Int16.write(version) + found.encode(version)).hex()
