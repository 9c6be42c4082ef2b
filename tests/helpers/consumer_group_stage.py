"A coordinator on a stage: its log is a list, its clock is turned by hand, and its topics are made with a word."
import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

from player import answer_in
from kafka_scratch.groups import heartbeat as heartbeats
from kafka_scratch.cluster.properties import read_properties
from kafka_scratch.groups.heartbeat import ConsumerGroupHeartbeatRequest, consumer_group_heartbeat
from kafka_scratch.groups.consumer import facts, replay
from kafka_scratch.groups.consumer_describe import consumer_group_describe
from kafka_scratch.groups.consumer_records import as_assignment, as_topic_partitions
from kafka_scratch.groups.coordinator import GroupCoordinator, Timers, read_key, read_state
from kafka_scratch.wire.codes import ErrorCode
from kafka_scratch.apis.api import Call, Caller, read_request
from kafka_scratch.cluster.image import Image, partition_made, topic_made, topic_removed
from kafka_scratch.cluster.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from kafka_scratch.log.live_records import Live
from kafka_scratch.log.partition import StorageError
from kafka_scratch.wire.primitives import uuid_bytes
from kafka_scratch.wire.schema import kafka_json

RECORDED = Path(__file__).parents[1]/'fixtures'/'wire'/'recorded'
APIS = {api.key: api for api in (consumer_group_heartbeat, consumer_group_describe)}
IMPATIENT = '''group.consumer.session.timeout.ms=3000
group.consumer.heartbeat.interval.ms=1000
group.consumer.max.size=2
group.consumer.migration.policy=disabled'''

LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND)   # drop everything, join again


class ListLog:
    "A state log that can be told to fail."
    topic, known, failing = '__consumer_offsets', True, False
    def __init__(self): self.records, self.batches = [], []
    def partition_for(self, name): return 0
    def hosted(self, partition): return SimpleNamespace(error=ErrorCode.NONE)
    def write(self, partition, pairs, **header):
        if self.failing: raise StorageError('the disk is full')
        self.records += pairs
        self.batches.append(len(pairs))
        return len(self.records) - len(pairs)
    def replay(self, apply):
        "The last record of each key, as a start finds them."
        last = {key: offset for offset, (key, _) in enumerate(self.records)}
        for offset in sorted(last.values()): apply(0, Live(offset, 0, *self.records[offset], -1))


class Stage:
    "A node that has nothing but groups."
    def __init__(self, text='', image=None, log=None, time=1_800_000_000_000):
        self.time, self.image, self.notes, self.forbidden = time, image or Image(), [], set()
        self.controller, self.caller, self.now = self, Caller(client_id='stage'), lambda: self.time
        self.log, self.text = log or ListLog(), text
        self.log.node = self
        properties = read_properties(text, 'the stage')
        self.groups = GroupCoordinator(self.log, Timers(), self.now, properties, self.notes.append)
        self.groups.load()
    def authorizer(self, caller, operation, resource, name): return (operation, resource, name) not in self.forbidden
    def ask(self, api, request, version=None):
        "The answer to a request, in the newest version unless said otherwise."
        version = api.versions[-1] if version is None else version
        return api.answer(request, Call(version, self, self.caller))
    def restart(self): return Stage(self.text, self.image, self.log, self.time)
    def restart_facts(self, group_id='g'):
        "What a coordinator that reads our log would know of a group."
        reader = SimpleNamespace(groups={})
        for key, value in self.log.records:
            known, key = read_key(key)
            replay(reader, key, read_state(known, value))
        return facts(reader.groups[group_id])
    def group(self, group_id='g'): return self.groups.groups[group_id]
    def pass_time(self, ms):
        "Time passes, and what was to happen happens when it should."
        end = self.time + ms
        while (due := self.groups.timers.next) is not None and due <= end:
            self.time = max(self.time, due)
            self.groups.timers.run(self.time)
        self.time = end
    def make(self, name, partitions, topic_id=None):
        "A topic, or more partitions for it."
        self.image.last_offset += 1
        topic_id = topic_id or f'{name}.{self.image.last_offset}'.encode().ljust(16, b'.')
        if name not in self.image.topics: topic_made(self.image, TopicRecord(name=name, topic_id=topic_id))
        topic = self.image.topics[name]
        more = dict(topic_id=topic.topic_id, replicas=[1], isr=[1], leader=1)
        for n in range(partitions):
            if n not in topic.states: partition_made(self.image, PartitionRecord(partition_id=n, **more))
    def drop(self, name):
        self.image.last_offset += 1
        topic_removed(self.image, RemoveTopicRecord(topic_id=self.image.topics[name].topic_id))


class Reader:
    "A consumer, as far as its group is concerned. A slow one doesn't let go until it is told to."
    def __init__(self, stage, member_id, *topics, slow=False, group='g', **more):
        self.stage, self.id, self.topics, self.slow = stage, member_id, list(topics), slow
        self.group, self.more = group, more
        self.epoch, self.has, self.should, self.unsure = 0, None, None, False
    def beat(self, epoch=None, **said):
        if self.unsure: self.has = self.has or frozenset()   # an answer was lost: it says and hears everything again
        everything = dict(rebalance_timeout_ms=60_000, subscribed_topic_names=self.topics) | self.more
        if self.epoch == 0: said = everything | dict(topic_partitions=[]) | said
        elif self.unsure: said = everything | dict(topic_partitions=as_topic_partitions(self.has)) | said
        else:
            owned = None if self.has is None else as_topic_partitions(self.has)
            said = dict(topic_partitions=owned, instance_id=self.more.get('instance_id')) | said
        epoch = self.epoch if epoch is None else epoch
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.id, member_epoch=epoch, **said)
        answer = self.stage.ask(consumer_group_heartbeat, request)
        self.unsure = False
        if answer.error_code in LOST or answer.member_epoch < 0: self.epoch, self.has, self.should = 0, None, None
        elif not answer.error_code: self.epoch = answer.member_epoch
        if answer.assignment: self.should = as_assignment(answer.assignment.topic_partitions)
        if not self.slow: self.obey()
        elif self.should is not None: self.has = (self.has or frozenset()) | self.should   # takes, but doesn't let go
        return answer
    def obey(self):
        "Lets go of what it shouldn't have, and takes what it should have."
        self.has = self.should


def set_scene(stage, step):
    "What happens before somebody asks, or while nobody does: topics come and go, and time passes."
    topic_id = bytes.fromhex(step.get('topic_id', '')) or None
    if step['step'] in ('topic', 'grow'): stage.make(step['name'], step['partitions'], topic_id)
    if step['step'] == 'drop': stage.drop(step['name'])
    if step['step'] == 'classic':
        empty = step['state'] == 'Empty'
        classic = SimpleNamespace(group_id=step['group'], kind='classic', is_empty=empty, tombstones=list)
        stage.groups.groups[step['group']] = classic
    stage.pass_time(step.get('ms', 1))


def act(stage, step):
    "One step of a recorded play. Returns the API, the version, our answer and Kafka's, if it was a question."
    set_scene(stage, step)
    if step['step'] != 'ask': return None
    api, version = APIS[step['api_key']], step['api_version']
    header, request = read_request(bytes.fromhex(step['request_hex'])[4:], api, version)
    theirs = answer_in(api, version, bytes.fromhex(step['response_hex']))
    stage.caller = Caller(client_id=header.client_id)
    with same_id(made_up_in(step)): return api, version, stage.ask(api, request, version), theirs


def made_up_in(step) -> bytes | None:
    "The id that a real broker made up for a new member without one."
    api, version = APIS[step['api_key']], step['api_version']
    request = read_request(bytes.fromhex(step['request_hex'])[4:], api, version)[1]
    theirs = answer_in(api, version, bytes.fromhex(step['response_hex']))
    return uuid_bytes(theirs.member_id) if api.key == 68 and not request.member_id and theirs.member_id else None


@contextlib.contextmanager
def same_id(made):
    "The coordinator makes up this id."
    old = heartbeats.new_id
    if made: heartbeats.new_id = lambda: made
    try: yield
    finally: heartbeats.new_id = old


def steps(name):
    "The steps of a file, each with the play that it belongs to."
    scene = None
    for step in map(json.loads, (RECORDED / name).open()):
        if step['step'] == 'scenario': scene = step['name']
        yield scene, step


def plain(answer, version):
    "An answer without what may differ: the order of hash maps."
    found = kafka_json(answer, version)
    found.get('groups', []).sort(key=lambda group: group['groupId'])
    members = [member for group in found.get('groups', ()) for member in group['members']]
    for side in (found.get('assignment'), *(m[side] for m in members for side in ('assignment', 'targetAssignment'))):
        if side: side['topicPartitions'].sort(key=lambda topic: topic['topicId'])
    for group in found.get('groups', ()): group['members'].sort(key=lambda member: member['memberId'])
    for member in members: member['subscribedTopicNames'].sort()
    return found


def spoken(key, value):
    "A record in words, without what differs from run to run: type, key, value."
    known, key = read_key(key)
    words = kafka_json(read_state(known, value), 0) if value is not None else None
    for name in ('topicPartitions', 'assignedPartitions', 'partitionsPendingRevocation'):
        if words and name in words: words[name].sort(key=lambda topic: topic['topicId'])
    if known.type == 16 and words: words = words['topics']
    return known.type, kafka_json(key, 0), words


def by_group(records):
    "The records of consumer groups, in words, by group."
    found = {}
    for key, value in records:
        known = read_key(key)
        if known and known[0].effect is replay: found.setdefault(known[1].group_id, []).append(spoken(key, value))
    return found


def recorded_records(name):
    written = json.loads((RECORDED / f'{name}-records.json').read_text())
    return [(bytes.fromhex(key), value and bytes.fromhex(value)) for key, value in written]
