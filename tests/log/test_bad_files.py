"""A partition whose files are bad is an error code in an answer. The others are served, the log says which file and
why,
and nothing is overwritten.

One broker has a topic with many partitions, each of them damaged in another way, and is asked for all of them at once.
What Apache Kafka 4.1.1 says in the same place is recorded beside it, and asked again where there is a Java.
"""
import shutil
import sys
from pathlib import Path

import pytest

from size import needs_kafka

from broker_process import ROOT, Client, running, wait_until

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.groups.coordinator import partition_of
from kafka_scratch.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka_scratch.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafka_scratch.apis.describe_topic_partitions import DescribeTopicPartitionsResponse, TopicRequest
from kafka_scratch.apis.fetch_messages import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafka_scratch.wire.frames import RequestHeader
from kafka_scratch.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse
from kafka_scratch.apis.list_offsets import ListOffsetsTopic
from kafka_scratch.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafka_scratch.apis.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from kafka_scratch.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse
from kafka_scratch.apis.delete_records import DeleteRecordsTopic
from kafka_scratch.apis.metadata_messages import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafka_scratch.groups.offset_apis import (OffsetCommitRequest, OffsetCommitRequestPartition,
                                              OffsetCommitRequestTopic, OffsetCommitResponse, OffsetFetchRequest,
                                   OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse)
from kafka_scratch.wire.primitives import Int32
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafka_scratch.log.records import Record, write_batch
from kafka_scratch.apis.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

NONE, UNKNOWN, CORRUPT, LEADER_NOT_AVAILABLE, NOT_LEADER, NOT_AVAILABLE, NOT_COORDINATOR, STORAGE = 0, -1, 2, 5, 6, 15, 16, 56  # noqa: E501
BATCH = write_batch([Record(value=b'hello')], base_timestamp=1_700_000_000_000, max_timestamp=1_700_000_000_000)
ID = b'caWaUYloT4uTfigl1CumZQ'


# --- Questions --------------------------------------------------------------------------------------------------------

def ask(client: Client, request, response, version: int):
    "A request, and the answer to it. A connection that is closed instead is a failure."
    flexible = version in request.FLEXIBLE
    frame = RequestHeader(api_key=request.API_KEY, api_version=version, correlation_id=7,
                          client_id='test').encode(2 if flexible else 1) + request.encode(version)
    answer = client.ask(Int32.write(len(frame)) + frame)
    assert answer is not None, f'the broker hung up on {type(request).__name__}'
    return response.decode(answer, version, 9 if flexible else 8)


def create(client, **topics):
    wanted = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics.items()]
    assert {topic.error_code for topic in ask(client, CreateTopicsRequest(topics=wanted), CreateTopicsResponse,
                                              5).topics} == {0}


def produce(client, places) -> dict:
    topics = [TopicProduceData(name=name, partition_data=[PartitionProduceData(index=number,
        records=BATCH) for number in numbers]) for name, numbers in places.items()]
    answer = ask(client, ProduceRequest(acks=-1, timeout_ms=3000, topic_data=topics), ProduceResponse, 9)
    return {(topic.name, each.index): each.error_code for topic in answer.responses for each
            in topic.partition_responses}


def fetch(client, places, offset: int = 0) -> dict:
    topics = [FetchTopic(topic=name, partitions=[FetchPartition(partition=number, fetch_offset=offset,
                                                                partition_max_bytes=1 << 20) for number in numbers])
                                                                for name, numbers in places.items()]
    answer = ask(client, FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), FetchResponse, 12)
    return {(topic.topic, each.partition_index): (each.error_code,
                                                  len(each.records or b'')) for topic in answer.responses for each
                                                  in topic.partitions}


def list_offsets(client, places, timestamp: int = -1) -> dict:
    topics = [ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=number,
        timestamp=timestamp) for number in numbers]) for name, numbers in places.items()]
    answer = ask(client, ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse, 7)
    return {(topic.name, each.partition_index): (each.error_code,
                                                 each.offset) for topic in answer.topics for each in topic.partitions}


def ends_of_epochs(client, places) -> dict:
    topics = [OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=number,
        leader_epoch=0) for number in numbers]) for name, numbers in places.items()]
    answer = ask(client, OffsetForLeaderEpochRequest(replica_id=-2, topics=topics), OffsetForLeaderEpochResponse, 4)
    return {(topic.topic, each.partition): each.error_code for topic in answer.topics for each in topic.partitions}


def delete_records(client, places) -> dict:
    topics = [DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=number,
        offset=0) for number in numbers]) for name, numbers in places.items()]
    answer = ask(client, DeleteRecordsRequest(timeout_ms=3000, topics=topics), DeleteRecordsResponse, 2)
    return {(topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions}


def metadata(client, places) -> dict:
    answer = ask(client, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in places],
                                         allow_auto_topic_creation=False), MetadataResponse, 12)
    return {(topic.name, each.partition_index): (each.error_code,
                                                 each.leader_id) for topic in answer.topics for each
                                                 in topic.partitions}


def describe(client, places) -> dict:
    answer = ask(client, DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in places],
                                                        response_partition_limit=2000), DescribeTopicPartitionsResponse,
                                                        0)
    return {(topic.name, each.partition_index): (each.error_code,
                                                 each.leader_id) for topic in answer.topics for each
                                                 in topic.partitions}


QUESTIONS = {'ListOffsets': list_offsets, 'Fetch': fetch, 'OffsetForLeaderEpoch': ends_of_epochs,
             'DeleteRecords': delete_records, 'Produce': produce}


def codes(client, places) -> dict:
    "The error code of each partition, question by question."
    found = {}
    for name, question in QUESTIONS.items():
        for place, answer in question(client, places).items():
            found.setdefault(place, {})[name] = answer[0] if isinstance(answer, tuple) else answer
    return found


# --- Damage -----------------------------------------------------------------------------------------------------------

def note(content: bytes): return lambda partition: (partition/'partition.metadata').write_bytes(content)
def segment(partition: Path) -> Path: return partition/f'{0:020}.log'


def own_note(change):
    "Writes the note anew, changed."
    return lambda partition: (partition/'partition.metadata').write_bytes(
        change((partition/'partition.metadata').read_bytes()))


def in_place_of(path: Path, make):
    path.unlink()
    make(path)


def file_for_directory(partition: Path):
    shutil.rmtree(partition)
    partition.write_bytes(b'a file')


def all_of(pattern: str, content: bytes | None):
    def damage(partition: Path):
        for path in partition.glob(pattern): path.unlink() if content is None else path.write_bytes(content)
    return damage


BAD = {   # what is done to a partition of which then nobody gets anything
    'nonsense for an owner': note(b'garbage'), 'zeros for an owner': note(bytes(40)),
    'half a note': note(b'version: 0\n'), 'an id that is none': note(b'version: 0\ntopic_id: short'),
    'a version below 0': note(b'version: -1\ntopic_id: ' + ID), 'no text': note(b'\xff\xfe'),
    'no topic': note(b'version: 0\ntopic_id: ' + b'A' * 22),
    'a directory for a note': lambda partition: in_place_of(partition/'partition.metadata', Path.mkdir),
    'a note that links to itself': lambda partition: in_place_of(partition/'partition.metadata',
                                                                 lambda path: path.symlink_to(path)),
    'a directory for a segment': lambda partition: in_place_of(segment(partition), Path.mkdir),
    'a directory for epochs': lambda partition: in_place_of(partition/'leader-epoch-checkpoint', Path.mkdir),
    'a segment of nonsense': lambda partition: segment(partition).write_bytes(b'\xff' * 300),
    'zeros behind the records': lambda partition: segment(partition).write_bytes(segment(partition).read_bytes()
        + bytes(100)),
    'a file for a directory': file_for_directory}
READ = {   # what does no harm
    'nothing': lambda partition: None, 'a padded id': own_note(lambda text: text + b'=='),
    'Windows': own_note(lambda text: text.replace(b'\n', b'\r\n') + b'\r\n'),
    'version 1': own_note(lambda text: text.replace(b'version: 0', b'version: 1') + b'\nmore: 1\n'),
    'a crash came too early': note(b''),
    'no note': all_of('partition.metadata', None), 'no indexes': all_of('*index', None),
    'bad indexes': all_of('*index', b'abc'), 'bad snapshots': all_of('*.snapshot', b'abc'),
    'nonsense for epochs': all_of('leader-epoch-checkpoint', b'garbage'),
    'an epoch that is none': all_of('leader-epoch-checkpoint', b'0\n1\n0 x\n'),
    'no epochs': all_of('leader-epoch-checkpoint', None),
    'half a batch at the end': lambda partition: segment(partition).write_bytes(segment(partition).read_bytes()
        + BATCH[:30])}
CASES = {**BAD, **READ}
PLACES = {'many': list(range(len(CASES))), 'good': [0]}
SETTINGS = dict(auto_create_topics_enable='false')


def contents(partition: Path) -> dict:
    "What is there, for comparison."
    if partition.is_file(): return {partition.name: partition.read_bytes()}
    return {path.name: path.read_bytes() if path.is_file() else 'no file' for path in partition.iterdir()}


@pytest.fixture(scope='module')
def damaged(tmp_path_factory) -> Path:
    "A log directory, left in order, with a partition for each kind of damage. Tests work on copies."
    directory = tmp_path_factory.mktemp('damaged')
    with running(directory, **SETTINGS) as broker, broker.client() as client:
        create(client, many=len(CASES), good=1)
        for _ in range(3): assert set(produce(client, PLACES).values()) == {0}
    for number, damage in enumerate(CASES.values()): damage(directory/'logs'/f'many-{number}')
    return directory/'logs'


@pytest.fixture
def directory(damaged, tmp_path) -> Path:
    shutil.copytree(damaged, tmp_path/'logs', symlinks=True)
    return tmp_path


def test_bad_files_are_error_codes(directory):
    "Every question about all partitions at once; twice, and again after a restart."
    before = {number: contents(directory/'logs'/f'many-{number}') for number in range(len(BAD))}
    for start in range(2):
        with running(directory, **SETTINGS) as broker, broker.client() as client:
            for _ in range(2):
                found = codes(client, PLACES)
                assert {name: found['many', number] for number,
                        name in enumerate(CASES)} == {name: dict.fromkeys(QUESTIONS,
                            STORAGE if name in BAD else NONE) for name in CASES}
                assert found['good', 0] == dict.fromkeys(QUESTIONS, NONE)
            assert set(metadata(client, PLACES).values()) == set(describe(client, PLACES).values()) == {(NONE, 1)}
            ends, sizes = list_offsets(client, PLACES), fetch(client, PLACES)
            assert {ends['many', number] for number in range(len(BAD), len(CASES))} == {ends['good', 0]} == {(NONE,
                5 + 2 * start)}
            assert {sizes['many', number] for number in range(len(BAD), len(CASES))} == {(NONE,
                len(BATCH) * (5 + 2 * start))}
            for number in range(len(BAD)):
                assert broker.stderr.count(f"the log of many-{number} can't be opened: ") == 1, broker.stderr
        assert {number: contents(directory/'logs'/f'many-{number}') for number in range(len(BAD))} == before


def test_a_damaged_checkpoint_is_kept(directory):
    epochs = 'leader-epoch-checkpoint'
    bad = {number: (directory/'logs'/f'many-{number}'/epochs).read_bytes() for number,
           name in enumerate(CASES) if name in ('nonsense for epochs', 'an epoch that is none')}
    (directory/'logs'/'log-start-offset-checkpoint').write_bytes(b'garbage')
    with running(directory, **SETTINGS) as broker, broker.client() as client: codes(client, PLACES)
    assert len(bad) == 2
    for number, content in bad.items():
        assert (directory/'logs'/f'many-{number}'/f'{epochs}.damaged').read_bytes() == content
        assert (directory/'logs'/f'many-{number}'/epochs).read_bytes() == b'0\n1\n0 0\n'
    assert (directory/'logs'/'log-start-offset-checkpoint.damaged').read_bytes() == b'garbage'
    assert (directory/'logs'/'log-start-offset-checkpoint').read_bytes() == b'0\n0\n'


def test_the_directory_of_another_topic_is_set_aside(directory):
    "As Kafka does: it is kept as a stray, and the partition begins anew."
    place = directory/'logs'/'good-0'
    note(b'version: 0\ntopic_id: ' + ID)(place)
    before = contents(place)
    with running(directory, **SETTINGS) as broker, broker.client() as client:
        assert list_offsets(client, {'good': [0]}) == {('good', 0): (NONE, 0)} and produce(client,
            {'good': [0]}) == {('good', 0): NONE}
    [stray] = (directory/'logs').glob('good-0.*-stray')
    assert contents(stray) == before


def test_mended_while_we_run(directory):
    "We look again after a while, without a restart. (The test doesn't wait: a new topic makes us look, too.)"
    place = directory/'logs'/'many-0'/'partition.metadata'
    good = (directory/'logs'/'good-0'/'partition.metadata').read_bytes()
    other = next(number for number, name in enumerate(CASES) if name == 'nothing')
    with running(directory, **SETTINGS) as broker, broker.client() as client:
        assert fetch(client, {'many': [0]}) == {('many', 0): (STORAGE, 0)} and good
        place.write_bytes((directory/'logs'/f'many-{other}'/'partition.metadata').read_bytes())
        create(client, news=1)
        wait_until(lambda: fetch(client, {'many': [0]}) == {('many', 0): (NONE, 3 * len(BATCH))},
                   'the mended partition')


def test_damage_while_we_run(directory):
    """A segment is spoilt under an open log. Kafka 4.1.1: corrupt message (2) for Fetch and for ListOffsets by time;
    the others are served."""
    number = next(number for number, name in enumerate(CASES) if name == 'nothing')
    places = {'many': [number], 'good': [0]}
    with running(directory, **SETTINGS) as broker, broker.client() as client:
        assert {code for each in codes(client, places).values() for code in each.values()} == {NONE}
        path = segment(directory/'logs'/f'many-{number}')
        path.write_bytes(b'\xff' * path.stat().st_size)
        for _ in range(3):
            assert fetch(client, places) == {('many', number): (CORRUPT, 0), ('good', 0): (NONE, 4 * len(BATCH))}
            assert list_offsets(client, places, timestamp=1) == {('many', number): (CORRUPT, -1),
                                                                 ('good', 0): (NONE, 0)}
            assert list_offsets(client, places) == {('many', number): (NONE, 4), ('good', 0): (NONE, 4)}
        assert broker.stderr.count("can't be read") == 1 and str(path) in broker.stderr


# --- Groups -----------------------------------------------------------------------------------------------------------

def commit(client, group: str) -> int:
    topics = [OffsetCommitRequestTopic(name='good', partitions=[OffsetCommitRequestPartition(partition_index=0,
        committed_offset=2, committed_metadata='')])]
    return ask(client, OffsetCommitRequest(group_id=group, member_id='', topics=topics), OffsetCommitResponse,
               8).topics[0].partitions[0].error_code


def committed(client, group: str) -> tuple[int, list]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group,
                                                                 topics=[OffsetFetchRequestTopics(name='good',
                                                                     partition_indexes=[0])])])
    found = ask(client, request, OffsetFetchResponse, 9).groups[0]
    return found.error_code, [each.committed_offset for topic in found.topics for each in topic.partitions]


def coordinator(client, group: str) -> int:
    return ask(client, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), FindCoordinatorResponse,
               4).coordinators[0].error_code


@pytest.mark.parametrize('damage', ['nonsense for an owner', 'a segment of nonsense', 'a file for a directory'])
def test_a_bad_state_topic(tmp_path, damage):
    "The groups whose state lies in a bad partition have no coordinator. The broker starts, and serves the others."
    settings = dict(offsets_topic_num_partitions=2, **SETTINGS)
    bad, good = (next(name for name in 'abcdefgh' if partition_of(name, 2) == number) for number in range(2))
    with running(tmp_path, **settings) as broker, broker.client() as client:
        create(client, good=1)
        assert coordinator(client, bad) == coordinator(client, good) == NONE   # that makes the topic
        assert commit(client, bad) == commit(client, good) == NONE
    place = tmp_path/'logs'/'__consumer_offsets-0'
    BAD[damage](place)
    before = contents(place)
    with running(tmp_path, **settings) as broker, broker.client() as client:
        assert committed(client, good) == (NONE, [2]) and commit(client, good) == NONE and coordinator(client,
            good) == NONE
        assert commit(client, bad) == NOT_COORDINATOR and committed(client, bad)[0] == NOT_COORDINATOR
        assert set(produce(client, {'good': [0]}).values()) == {NONE}
        assert broker.stderr.count("the log of __consumer_offsets-0 can't be opened: ") == 1
    assert contents(place) == before


# --- Kafka in the same place ------------------------------------------------------------------------------------------

class TwoDirectories(real_kafka.RealKafka):
    "Kafka with two log directories, and a third one for the metadata."
    def __init__(self, directory: Path):
        super().__init__(directory, {'log.cleaner.enable': 'false', 'offsets.topic.num.partitions': 1})
        self.log_dir = directory/'metadata'
        self.properties |= {'log.dirs': f'{directory}/one,{directory}/two', 'metadata.log.dir': str(self.log_dir)}
        self.output.unlink(missing_ok=True)


@needs_kafka
def test_kafka_in_the_same_place(tmp_path):
    """A damaged `partition.metadata` beside a good one. Kafka 4.1.1 with two directories gives up the one with the
    damage: its
    partitions have no leader (6, and 5 in Metadata), those in the other one are served. With one directory it stops."""
    kafka, places = TwoDirectories(tmp_path), {'bad': [0, 1]}
    with kafka:
        kafka.create_topics({'bad': 2})
        with Client(kafka.port) as client:
            wait_until(lambda: set(produce(client, places).values()) == {NONE}, 'both directories', 60)
    [place] = tmp_path.glob('*/bad-0')
    assert place.parent != next(tmp_path.glob('*/bad-1')).parent
    note(b'garbage')(place)
    kafka = TwoDirectories(tmp_path).start(wait=False)
    try:
        real_kafka.processes.wait_for_port(kafka.port, kafka.process, kafka.patience, kafka.output)
        with Client(kafka.port) as client:
            wait_until(lambda: list_offsets(client, places)['bad', 1][0] == NONE, 'the other partition', 60)
            assert codes(client, places) == {('bad', 0): dict.fromkeys(QUESTIONS, NOT_LEADER),
                                             ('bad', 1): dict.fromkeys(QUESTIONS, NONE)}
            assert metadata(client, places) == {('bad', 0): (LEADER_NOT_AVAILABLE, -1), ('bad', 1): (NONE, 1)}
            assert describe(client, places) == {('bad', 0): (NONE, -1), ('bad', 1): (NONE, 1)}
    finally: kafka.stop()
    assert ('Malformed line in checkpoint file' in kafka.output.read_text()
            and (place/'partition.metadata').read_bytes() == b'garbage')
