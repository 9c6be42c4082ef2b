"""What clients and a real broker said to each other about groups, said again to ours, with a clock that is turned by
hand.

A line of a fixture is a scenario: what was sent and heard on several connections, and when (in milliseconds). Another
line has the
records that the broker then had in `__consumer_offsets`, by group. The random part of member ids is taken from the
recording, so that
answers can be compared byte for byte.
"""
import base64
import itertools
import re
from types import SimpleNamespace

from player import Heard, answer_in
from kafka_scratch.groups import classic_apis
from kafka_scratch.cluster.image import Image
from kafka_scratch.apis.api import Node, Call, Caller, find_api
from kafka_scratch.cluster.properties import Properties
from kafka_scratch.groups.coordinator import GroupCoordinator, Timers, read_key, read_state, replay
from kafka_scratch.groups.classic_messages import ConsumerProtocolAssignment, GroupMetadataValue, unwrap
from kafka_scratch.log.partition import StorageError
from kafka_scratch.wire.schema import Message, kafka_json

MEMBER_ID = re.compile(r'^(.*)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')


class Store:
    "A log of state that is a list. `refuses`: the disk is full."
    def __init__(self, now):
        self.pairs, self.refuses, self.topic, self.known = [], False, '__consumer_offsets', True
        self.batches = []
        self.node = SimpleNamespace(now=now)
    def hosted(self, partition: int): return SimpleNamespace(error=0)
    def partition_for(self, name: str) -> int: return 0
    def write(self, partition: int, pairs: list, **header) -> int:
        if self.refuses: raise StorageError('the disk is full')
        self.pairs += pairs
        self.batches.append(pairs)
        return len(self.pairs) - len(pairs)


class GroupNode:
    "A node with a coordinator, without sockets or disks. `clock` is the time."
    def __init__(self, apis: dict, settings: dict[str, str] | None = None, written: list = (), now: int = 0):
        self.clock, self.timers = now, Timers()
        self.store = Store(lambda: self.clock)
        self.coordinator = GroupCoordinator(self.store, self.timers, lambda: self.clock,
                                            Properties({name: (value, 0) for name, value in (settings or {}).items()},
                                                       'test'))
        for offset, (key, value) in enumerate(written):
            replay(self.coordinator, SimpleNamespace(producer_id=-1, partition=0, timestamp=0), key, value, offset)
        self.store.pairs += written
        self.node = Node(apis.values(), image=Image())
        self.node.groups, self.node.now = self.coordinator, lambda: self.clock
        for group in list(self.coordinator.groups.values()): group.loaded(self.clock)

    def at(self, now: int):
        "Time passes; what is due happens when it is due."
        while self.timers.next is not None and self.timers.next <= now:
            self.clock = max(self.clock, self.timers.next)
            self.timers.run(self.clock)
        self.clock = max(self.clock, now)

    def answer(self, request: Message, version: int | None = None, caller: Caller = Caller(client_id='client')):
        "Asks by the message itself: the answer, or a Pending."
        version = request.VERSIONS[-1] if version is None else version
        return self.node.apis[request.API_KEY].answer(request, Call(version, self.node, caller))

    def records(self, group_id: str) -> list[Message | None]:
        "What was written about a classic group."
        found = [(read_key(key), value) for key, value in self.store.pairs if key[:2] == b'\0\2']
        return [read_state(known, value) for (known, key), value in found if key.group == group_id]


def strings_in(value) -> list[str]:
    "All text in a message."
    if isinstance(value, str): return [value]
    if isinstance(value, list): return [text for item in value for text in strings_in(item)]
    return [text for field in value.FIELDS for text in strings_in(getattr(value, field.name))] if isinstance(value,
        Message) else []


def group_answer_in_order(raw: bytes, heard: Heard) -> bytes:
    "A response with its lists of members, groups and results in order: a real broker keeps them in hash maps."
    start = 8 + heard.api.response_header_version(heard.version)
    answer = answer_in(heard.api, heard.version, raw)
    for listed in (answer, *getattr(answer, 'groups', ())):
        for name, key in (('members', 'member_id'), ('groups', 'group_id'), ('results', 'group_id')):
            if isinstance(getattr(listed, name, None), list):
                getattr(listed, name).sort(key=lambda each: getattr(each, key))
    return raw[:start] + answer.encode(heard.version)


def member_ids(scenario: dict) -> dict[str, list[str]]:
    "The ids that were given out, by the name in front of the random part, in order."
    found, calls = {}, {}
    for _, connection, what, text in scenario['events']:
        raw = bytes.fromhex(text)
        if what == 'asks': calls[connection] = raw[4:]
        elif int.from_bytes(calls[connection][:2], 'big') == 11:
            api, version = find_api(calls[connection], {11: classic_apis.join_group})
            for text in strings_in(answer_in(api, version, raw)):
                match = MEMBER_ID.match(text)
                if match and text not in found.setdefault(match[1], []): found[match[1]].append(text)
    return found


def without_time(value: GroupMetadataValue | None) -> GroupMetadataValue | None:
    if value is None: return None
    value.current_state_timestamp = 0
    value.members.sort(key=lambda member: member.member_id)
    return value


def check_records(here: GroupNode, theirs: dict[str, list[str | None]]):
    "The same records, but for their times. (All of them in version 3.)"
    for group_id, values in theirs.items():
        assert {value[:4] for value in values if value} <= {'0003'}
        expected = [without_time(value and GroupMetadataValue.decode(bytes.fromhex(value), 3, 2)) for value in values]
        assert [without_time(value) for value in here.records(group_id)] == expected, group_id


# --- Groups of both kinds ---------------------------------------------------------------------------------------------

TIMES = ('currentStateTimestamp', 'commitTimestamp')
PARTITIONS = ('topicPartitions', 'assignedPartitions', 'partitionsPendingRevocation')


def spoken(key: bytes, value: bytes | None) -> list:
    "A record in words, without times, and without the order of Kafka's hash maps: type, key, value."
    known, key = read_key(key)
    words = None if value is None else kafka_json(read_state(known, value), int.from_bytes(value[:2], 'big'))
    if known.type == 16 and words: words = words['topics']
    elif words:
        for name in TIMES: words.pop(name, None)
        for name in PARTITIONS: words.get(name, []).sort(key=lambda topic: topic['topicId'])
        words.get('members', []).sort(key=lambda member: member['memberId'])
        if len(words.get('members', ())) > 1: words['leader'] = 'the first in a hash map'
    return [known.type, kafka_json(key, 0), words]


def spoken_batch(pairs: list) -> list:
    "A batch in words. Records of one type that follow each other come in the order of a hash map."
    runs = itertools.groupby((spoken(*pair) for pair in pairs), key=lambda each: (each[0], each[2] is None))
    return [each for _, run in runs for each in sorted(run, key=lambda each: str(each[1]))]


def group_of(key: bytes) -> str:
    found = read_key(key)[1]
    return found.group_id if hasattr(found, 'group_id') else found.group


def made_up_ids(scenario: dict) -> dict[bytes, str]:
    "The ids that were made up for members of consumer groups, by the JoinGroup to which they were the answer."
    found, calls = {}, {}
    for _, connection, what, text in scenario.get('events', ()):
        raw = bytes.fromhex(text)
        if what == 'asks': calls[connection] = raw
        elif int.from_bytes(calls[connection][4:6], 'big') == 11:
            api, version = find_api(calls[connection][4:], {11: classic_apis.join_group})
            member_id = answer_in(api, version, raw).member_id
            if member_id and not MEMBER_ID.match(member_id): found[calls[connection]] = member_id
    return found


def conversion_answer(raw: bytes, heard: Heard):
    "An answer in words: without the order of hash maps, assignments read."
    found = kafka_json(answer_in(heard.api, heard.version, raw), heard.version)
    if heard.api.key == 14 and len(found['assignment'] or '') > 8:
        assignment = unwrap(ConsumerProtocolAssignment, base64.b64decode(found['assignment']))
        assignment.assigned_partitions.sort(key=lambda each: each.topic)
        found['assignment'] = [base64.b64decode(found['assignment'])[:2], kafka_json(assignment, 0)]
    found.get('groups', []).sort(key=lambda group: group['groupId'])
    for group in found.get('groups', ()):
        for member in group.get('members', ()):
            member.get('subscribedTopicNames', []).sort()
            for side in ('assignment', 'targetAssignment'):
                if side in member: member[side]['topicPartitions'].sort(key=lambda topic: topic['topicId'])
        group.get('members', []).sort(key=lambda member: member['memberId'])
    if heard.api.key == 11: found['members'].sort(key=lambda member: member['memberId'])
    if found.get('assignment') and heard.api.key == 68:
        found['assignment']['topicPartitions'].sort(key=lambda topic: topic['topicId'])
    return found
