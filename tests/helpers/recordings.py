"""The table of recorded conversations: on what each is played, and how its answers are compared."""
import base64
import contextlib
import re
from pathlib import Path
from unittest import mock

from admin_by_hand import Played, admin_answer_in_order, topic_ids
import consumer_group_stage
from consumer_group_stage import IMPATIENT, Stage, made_up_in, set_scene
from group_conversations import (
    check_records, conversion_answer, group_answer_in_order, group_of, made_up_ids, member_ids, spoken_batch)
from groups_by_hand import facts, group_node, image_with, not_coordinator
from log_ends_by_hand import check_logs, node_of
from player import Event, Heard, Recording, answer_in, connections, scenarios
from security_by_hand import acl_node, security_node, unordered, without_words
from small_node import START, Hands, small_node
from kafka_scratch.apis.api import EVERYONE, Node
from kafka_scratch.apis.configs import LOG_LEVELS
from kafka_scratch.cluster.records import ConfigRecord, FeatureLevelRecord, RegisterBrokerRecord
from kafka_scratch.cluster.settings import BROKER
from kafka_scratch.groups import classic_apis, classic_members, heartbeat, reconciliation
from kafka_scratch.groups.coordinator import java_hash
from kafka_scratch.log.records import read_batches, read_records
from kafka_scratch.transactions.coordinator import append_transaction_to_log
from kafka_scratch.wire.codes import Operation, Resource
from kafka_scratch.wire.primitives import uuid_bytes
from kafka_scratch.wire.schema import kafka_json


# --- Topics and settings ----------------------------------------------------------------------------------------------

AUTO = {'auto.create.topics.enable': 'true', 'num.partitions': 3, 'delete.topic.enable': 'false'}
FILE = {'log.retention.hours': 1, 'log.retention.bytes': 100000, 'log.roll.ms': 7200000, 'log.flush.interval.ms': 1000,
        'message.max.bytes': 2000000, 'log.cleanup.policy': 'compact,delete',
        'log.message.timestamp.type': 'LogAppendTime', 'my.custom': 1, 'ssl.keystore.password': 'secret'}
# What only a real broker has, or has differently: addresses, directories, and defaults that we have chosen otherwise.
OWN = {'listeners', 'advertised.listeners', 'controller.listener.names', 'log.dirs', 'log.dir', 'node.id',
       'group.initial.rebalance.delay.ms', 'offsets.topic.replication.factor',
       'transaction.state.log.replication.factor', 'transaction.state.log.min.isr', 'auto.create.topics.enable'}
ALL = set(range(3, 13))   # operations, from READ on
DENIED = {
    (Resource.CLUSTER, 'kafka-cluster'): {Operation.CREATE, Operation.DELETE, Operation.DESCRIBE_CONFIGS,
                                          Operation.ALTER_CONFIGS},
    (Resource.TOPIC, 'seen'): ALL - {Operation.READ, Operation.WRITE, Operation.DESCRIBE},
    (Resource.TOPIC, 'hidden'): ALL, (Resource.TOPIC, 'nobody'): ALL,
    (Resource.TOPIC, 'new'): {Operation.DESCRIBE_CONFIGS}, (Resource.TOPIC, 'asked'): {Operation.CREATE},
    (Resource.GROUP, 'g'): ALL}


def admin(compared: int, settings: dict, **more) -> Recording:
    "A conversation with a node that begins with no topics. The ids of topics are random."
    def node(directory: Path, lines: list[dict]) -> Node:
        text = ''.join(f'{name}={value}\n' for name, value in settings.items())
        remark = lines[0]   # about the real broker
        player = Played(directory, text, port=remark['port'], cluster_id=remark.get('cluster_id', 'cluster'), elr=True)
        player.node.close = player.close
        return player.node
    def seen(frame, heard): return admin_answer_in_order(answer_in(heard.api, heard.version, frame))
    return Recording(node, compared, seen=seen, made_up=topic_ids, at_end=lambda node, lines: node.close(), **more)


def forbid_some(node: Node, event):
    "After the first question, rules come into force."
    def allowed(caller, operation, resource, name): return operation not in DENIED.get((resource, name), ())
    if event.name == 'made': node.authorizer = allowed


@contextlib.contextmanager
def log_levels(node: Node, lines: list[dict]):
    "They belong to the program, not to a node."
    with mock.patch.dict(LOG_LEVELS, root='INFO'): yield


NOT_AUTO = {'auto.create.topics.enable': 'false'}
RECORDINGS = {
    'create-topics.jsonl': admin(62, NOT_AUTO),
    'delete-topics.jsonl': admin(54, NOT_AUTO),
    'auto-create.jsonl': admin(15, NOT_AUTO | AUTO),
    'topic-rights.jsonl': admin(14, {}, before=forbid_some),
    'topic-configs.jsonl': admin(342, {}, around=log_levels),
    'other-configs.jsonl': admin(75, {}, around=log_levels),
    'file-configs.jsonl': admin(3, FILE, around=log_levels)}


# --- Where epochs end, and what is deleted ----------------------------------------------------------------------------

def node_of_line(directory: Path, lines: list[dict]) -> Node: return node_of(directory, lines[0])


def deletions_in_order(frame: bytes, heard: Heard):
    "A real broker collects its answers in a hash map."
    answer = answer_in(heard.api, heard.version, frame)
    for topic in answer.topics: topic.partitions.sort(key=lambda each: each.partition_index)
    answer.topics.sort(key=lambda topic: topic.name)
    return answer


RECORDINGS |= {
    'offset-for-leader-epoch.jsonl': Recording(node_of_line, 1, alone=True),
    'delete-records.jsonl': Recording(node_of_line, 1, alone=True, seen=deletions_in_order,
                                      after=lambda node, event: check_logs(node, event.step))}


# --- Groups -----------------------------------------------------------------------------------------------------------

def node_with_groups(authorizer):
    def node(directory: Path, lines: list[dict]) -> Node:
        here = group_node(lines[0]['settings'])
        here.node.authorizer, here.node.here, here.node.scenario = authorizer, here, None
        return here.node
    return node


@contextlib.contextmanager
def same_member_ids(node: Node, lines: list[dict]):
    "New members get the ids that the real broker has made up for them."
    def generate(name): return node.ids[name].pop(0) if node.ids.get(name) else f'{name}-unheard-of'
    with mock.patch.object(classic_apis, 'generate_member_id', generate): yield


def scenario_goes_on(node: Node, event):
    if node.scenario is not event.step: node.scenario, node.ids = event.step, member_ids(event.step)
    node.here.at(event.at)


def groups(compared: int, with_records: int, authorizer=EVERYONE) -> Recording:
    "Scenarios with times, on one node; the last line has the records that they left."
    def at_end(node: Node, lines: list[dict]):
        assert len(lines[-1]['records']) == with_records
        check_records(node.here, lines[-1]['records'])
    return Recording(
        node_with_groups(authorizer), compared, scenarios, group_answer_in_order, before=scenario_goes_on,
        around=same_member_ids, at_end=at_end,
        known=lambda heard: 'ConsumerGroupHeartbeat: its own tests have more' if heard.api.key == 68 else '')


def no_coordinator(directory: Path, lines: list[dict]) -> Node:
    table = not_coordinator(lines[0]['name'].split(': ')[0])
    table.here.node.table, table.here.node.facts = table, facts(table)
    return table.here.node


def check_nothing_changed(node: Node, event): assert facts(node.table) == node.facts


RECORDINGS |= {
    'groups.jsonl': groups(524, 32),
    'groups-first-round.jsonl': groups(47, 3, lambda caller, operation, kind, name: name != 'denied'),
    'not-coordinator.jsonl': Recording(no_coordinator, 1, alone=True, seen=group_answer_in_order,
                                       after=check_nothing_changed)}


# --- Consumer groups, whose coordinator decides -----------------------------------------------------------------------

def plays(lines: list[dict]):
    "A line is a question with its answer, or something that happens: a topic is made, time passes."
    scene = None
    for line in lines:
        if line['step'] == 'scenario': scene = line['name']
        happens = Event(f'{scene}: {line.get("note")}', line)
        if line['step'] != 'ask': yield happens
        else: yield happens._replace(asks=bytes.fromhex(line['request_hex']), hears=bytes.fromhex(line['response_hex']))


def play_goes_on(node: Node, event):
    set_scene(node.stage, event.step)
    node.made_up = made_up_in(event.step) if event.asks else None


@contextlib.contextmanager
def same_ids(node: Node, lines: list[dict]):
    "New members without an id get that which the real broker has made up."
    with mock.patch.object(heartbeat, 'new_id', lambda real=heartbeat.new_id: node.made_up or real()): yield


def consumer_group_answer(frame: bytes, heard: Heard) -> tuple:
    "Without the order of hash maps. Heartbeats also byte for byte, unless they failed, or have several topics."
    answer, theirs = (answer_in(heard.api, heard.version, each) for each in (frame, heard.theirs))
    certain = heard.api.key == 68 and not theirs.error_code
    if certain and theirs.assignment: certain = len(theirs.assignment.topic_partitions) <= 1
    return consumer_group_stage.plain(answer, heard.version), frame if certain else None


def consumer_groups(compared: int, settings: str) -> Recording:
    def node(directory: Path, lines: list[dict]) -> Node:
        stage = Stage(settings)
        return Node(consumer_group_stage.APIS.values(), image=stage.image, groups=stage.groups, now=stage.now,
                    controller=stage, stage=stage)
    return Recording(node, compared, plays, consumer_group_answer, before=play_goes_on, around=same_ids)


RECORDINGS |= {
    'consumer-groups.jsonl': consumer_groups(187, ''),
    'consumer-groups-impatient.jsonl': consumer_groups(40, IMPATIENT)}


# --- Groups that change from one protocol to the other ----------------------------------------------------------------

def node_with_topics(directory: Path, lines: list[dict]) -> Node:
    here = group_node(lines[0]['settings'])
    here.node.here, here.node.scenario, here.node.made_up = here, None, None
    for name, (partitions, topic_id) in lines[0]['topics'].items():
        image_with(name, partitions, bytes.fromhex(topic_id), here.node.image)
    return here.node


def check_batches(node: Node, scene: dict):
    "What is in the log about the group of a scene is what a real broker had there, batch by batch."
    ours = [spoken_batch(batch) for batch in node.here.store.batches if group_of(batch[0][0]) == scene['name']]
    theirs = [spoken_batch([(bytes.fromhex(key), value and bytes.fromhex(value)) for key, value in batch])
              for batch in scene['records']]
    assert ours == theirs, scene['name']


def conversion_goes_on(node: Node, event):
    if node.scenario is not event.step:
        if node.scenario: check_batches(node, node.scenario)
        node.scenario, node.ids, node.uuids = event.step, member_ids(event.step), made_up_ids(event.step)
    node.here.at(event.at)
    if event.asks: node.made_up = node.uuids.get(event.asks)


def bucket(text: str) -> int:
    "Where Java's HashMap of up to 12 keys has a string. (No scene has two in one.)"
    hash = java_hash(text)
    return (hash ^ (hash & 0xffffffff) >> 16) & 15


@contextlib.contextmanager
def same_ids_in_both(node: Node, lines: list[dict]):
    "New members get the ids that the real broker made up; and the assignor sees them in the order of its hash map."
    def made_up(real=classic_members.new_id): return uuid_bytes(node.made_up) if node.made_up else real()
    def in_order(*asked, real=reconciliation.member_subscriptions):
        return dict(sorted(real(*asked).items(), key=lambda item: bucket(item[0])))
    with same_member_ids(node, lines), mock.patch.object(classic_members, 'new_id', made_up), \
         mock.patch.object(reconciliation, 'member_subscriptions', in_order): yield


def conversion(compared: int) -> Recording:
    return Recording(node_with_topics, compared, scenarios, conversion_answer, before=conversion_goes_on,
                     around=same_ids_in_both, at_end=lambda node, lines: check_batches(node, lines[-1]))


RECORDINGS |= {
    'group-conversion.jsonl': conversion(393),
    'group-conversion-disabled.jsonl': conversion(46),
    'group-conversion-upgrade.jsonl': conversion(24),
    'group-conversion-downgrade.jsonl': conversion(24),
    'group-conversion-small.jsonl': conversion(11)}


# --- Transactions -----------------------------------------------------------------------------------------------------

def batches(raw: bytes) -> list:
    "What is in batches, without what depends on the hour."
    def facts(header): return header.attributes, header.producer_id, header.producer_epoch, header.base_sequence
    return [(batch.base_offset, *facts(batch.header), [(record.key, record.value) for record in read_records(batch)])
            for batch in read_batches(raw)]


def plain(value, key=''):
    "An answer without times, and lists in an order of their own: Kafka keeps many things in hash tables."
    if isinstance(value, dict): return {name: plain(each, name) for name, each in value.items()}
    if isinstance(value, list): return sorted((plain(each) for each in value), key=repr)
    if key == 'records' and value: return batches(base64.b64decode(value))
    if key in ('transactionStartTimeMs', 'lastTimestamp') and value > 1_794_100_000_000: return 'some time'
    return value


def timeless(frame: bytes, heard: Heard) -> tuple:
    "The correlation id, and the answer."
    return frame[4:8], plain(kafka_json(answer_in(heard.api, heard.version, frame), heard.version))


def time_and_epochs_pass(node: Node, event):
    if 'later_ms' in event.step: node.turn_clock(event.step['later_ms'])
    if 'epoch_before' in event.step:   # where Kafka was asked thirty thousand times
        name, epoch = event.step['epoch_before']
        known = node.transactions.transactions[name]
        append_transaction_to_log(node.transactions, known._replace(producer_epoch=epoch))


def transactions(compared: int, level: int, odd: bool = False) -> Recording:
    "A conversation with a cluster that has agreed on a level of `transaction.version`."
    def node(directory: Path, lines: list[dict]) -> Node:
        node = small_node(directory)
        node.create({'tx.a': 3, 'tx.b': 1} | ({'tx.gone': 1} if odd else {}), level)
        if odd: node.transactions.store.ensure()
        node.groups.store.ensure()
        return node
    def after(node, event):
        if odd: node.turn_clock(1)
    def known(heard): return 'Kafka stumbles' if 'kafka_stumbles' in heard.event.step else ''
    return Recording(node, compared, seen=timeless, before=time_and_epochs_pass, after=after, known=known)


RECORDINGS |= {
    'transactions-tv0.jsonl': transactions(147, 0),
    'transactions-tv1.jsonl': transactions(218, 1),
    'transactions-tv2.jsonl': transactions(237, 2),
    'transactions-odd.jsonl': transactions(118, 2, odd=True)}


# --- Rules, users, quotas ---------------------------------------------------------------------------------------------

def secured_or_not(node: Node, event):
    "The listener OPEN is that of another broker, which has no authorizer and has heard nothing yet."
    node.authorizer, node.image = node.disabled if event.step['listener'] == 'OPEN' else node.secured
    node.controller.image = node.image


def security(compared: int, addresses: str = '') -> Recording:
    "`addresses`: where the texts of Kafka's refusals are full of addresses in its memory, and are not compared."
    def seen(frame: bytes, heard: Heard):
        answer = answer_in(heard.api, heard.version, frame)
        return unordered(without_words(answer) if heard.event.name == addresses else answer)
    def node(directory: Path, lines: list[dict]) -> Node: return acl_node()
    unasked = {17: 'who it is', 36: 'who it is'}
    return Recording(node, compared, connections, seen, before=secured_or_not, unasked=unasked)


RECORDINGS |= {
    'acls.jsonl': security(94, 'forbidden'),
    'scram-users.jsonl': security(44, 'forbidden-alter'),
    'quotas.jsonl': security(21),
    'alter-quotas.jsonl': Recording(lambda directory, lines: security_node(secured=False), 90,
                                    seen=lambda frame, heard: unordered(answer_in(heard.api, heard.version, frame)))}


# --- What is limited --------------------------------------------------------------------------------------------------

def metered(directory: Path, lines: list[dict]) -> Node:
    return small_node(directory, Hands([START]), 'auto.create.topics.enable=false')


def is_throttled(frame: bytes, heard: Heard):
    "Not for how long, since a real broker's clock goes on; but whether. Its settings are those of another file."
    answer = admin_answer_in_order(answer_in(heard.api, heard.version, frame))
    answer.throttle_time_ms = min(answer.throttle_time_ms, 1)
    for topic in getattr(answer, 'topics', ()): topic.configs = None
    return unordered(answer)


def session_ids(answer) -> dict[str, bytes]:
    number = getattr(answer, 'session_id', 0)
    return {'session': number.to_bytes(4, 'big')} if number else topic_ids(answer)


def few_sessions(directory: Path, lines: list[dict]) -> Node:
    return small_node(directory, settings='max.incremental.fetch.session.cache.slots=15')


RECORDINGS |= {
    'mutation-quota.jsonl': Recording(metered, 13, seen=is_throttled, made_up=topic_ids),
    'session-slots.jsonl': Recording(few_sessions, 14, seen=is_throttled, made_up=session_ids)}


# --- The cluster: elections, moves, the quorum, features --------------------------------------------------------------

def node_beside(broker: bool):
    "A node with a log of its own. The real broker had a second one beside it, which never came."
    def node(directory: Path, lines: list[dict]) -> Node:
        node = small_node(directory, settings='auto.create.topics.enable=false\n')
        node.controller.write([FeatureLevelRecord(name='eligible.leader.replicas.version', feature_level=1),
                               ConfigRecord(resource_type=BROKER, resource_name='', name='min.insync.replicas',
                                            value='1')])
        if broker: node.controller.write([registration(node, broker_id=2, fenced=True, log_dirs=[b'a directory id..'])])
        return node
    return node


def registration(node: Node, **facts) -> RegisterBrokerRecord:
    ours = node.image.brokers[1]
    return RegisterBrokerRecord(end_points=ours.end_points, features=ours.features, rack=None, **facts)


KAFKAS_ONLY = 'share.version', 'kraft.version'   # features that we don't have

def cluster_answer(frame: bytes, heard: Heard) -> dict:
    "Without ids, offsets, times and addresses; and what a real broker takes out of hash maps, in order."
    def plain(value, key=''):
        if key in ('topicId', 'finalizedFeaturesEpoch', 'apiKeys'): return None
        if key in ('highWatermark', 'logEndOffset', 'lastFetchTimestamp', 'lastCaughtUpTimestamp', 'leaderEpoch'):
            return value > 0 if heard.api.key == 55 else value
        if key == 'listeners': return None   # its controller has an address of its own
        if key == 'errorMessage' and value: return re.sub(r'^Request Request\(.*\) needs', 'The request needs', value)
        if isinstance(value, dict): return {name: plain(each, name) for name, each in value.items()}
        if not isinstance(value, list): return value
        if key == 'supportedFeatures': value = [each for each in value if each['name'] not in KAFKAS_ONLY]
        shuffled = key in ('supportedFeatures', 'finalizedFeatures') or heard.event.name.startswith(('all', 'listed'))
        return sorted(map(plain, value), key=repr) if shuffled else [plain(each) for each in value]
    return plain(kafka_json(answer_in(heard.api, heard.version, frame), heard.version))


def not_ours(heard: Heard) -> str:
    return 'a feature that we refuse' if heard.event.name.startswith(('shares', 'quorums')) else ''


def cluster(compared: int, beside: bool = False, **more) -> Recording:
    return Recording(node_beside(beside), compared, seen=cluster_answer, **more,
                     at_end=lambda node, lines: node.crash())


def may_nothing(node: Node, event): node.authorizer = lambda *asked: False


RECORDINGS |= {
    'elections.jsonl': cluster(36, beside=True),
    'reassignments.jsonl': cluster(53, beside=True),
    'quorum.jsonl': cluster(12),
    'features.jsonl': cluster(126, known=not_ours),
    'cluster-rights.jsonl': cluster(20, before=may_nothing)}
