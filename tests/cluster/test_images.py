"""The image of a metadata log: as Kafka folds the real ones, and as a second, deliberately plain fold says of any
other.

The package remembers states by their bytes, follows files, starts from checkpoints. The fold in `metadata_by_hand.py`
does nothing of the kind.
"""
import copy
import json
import subprocess
import sys
import traceback
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from metadata_by_hand import (A_CHANGE, A_PARTITION, A_TOPIC, BEGIN, END, FIXTURES, IMAGES, KEY_ENDS, NONSENSE, OTHER,
                              TOPIC, Directory, Plain,
                              change, checkpoint, comparable, damaged, directory_of, each_image, entries_of,
                              flat, fold, in_transaction,
                              kafkas_image, logs, raw_batch, raw_fields, removal, small, tails, topic)
from size import budget
from kafka_scratch.cluster import metadata_log, partition_bytes
from kafka_scratch.cluster.image import Image, replay_batch
from kafka_scratch.cluster.image_json import image_json
from kafka_scratch.cluster.metadata_log import MetadataLog, SegmentReader, load_image, open_metadata
from kafka_scratch.cluster.records import *
from kafka_scratch.wire.primitives import DecodeError
from kafka_scratch.log.records import CONTROL, Batch, Record, write_batch


# --- What Kafka made of real logs -------------------------------------------------------------------------------------

def test_that_all_images_are_there(): assert len(IMAGES) == 18


@each_image
def test_the_image_is_that_of_kafka(path):
    expected = kafkas_image(path)
    mine = comparable(json.loads(''.join(image_json(open_metadata(directory_of(path), expected['lastOffset'])))))
    assert {part: mine.get(part) for part in expected} == expected


@each_image
def test_the_command_line_prints_the_image_of_kafka(path):
    expected = kafkas_image(path)
    command = [sys.executable, '-m', 'kafka_scratch', 'image', str(directory_of(path)), '--until',
               str(expected['lastOffset'])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=FIXTURES.parent.parent)
    assert done.returncode == 0, done.stderr
    mine = comparable(json.loads(done.stdout))
    assert {part: mine.get(part) for part in expected} == expected


# --- A second fold ----------------------------------------------------------------------------------------------------

def same(image: Image, plain: Plain):
    "Does an image say what the plain fold says?"
    def lists(state):
        return {name: list(value) if isinstance(value, tuple) else value for name, value in state._asdict().items()}
    assert {t.name: (t.topic_id, {n: lists(p) for n, p in t.partitions.items()}) for t in image.topics.values()} == \
           {t['name']: (topic_id, t['partitions']) for topic_id, t in plain.topics.items()}
    assert {topic_id: t.name for topic_id, t in image.topics_by_id.items()} == {topic_id: t['name'] for topic_id,
        t in plain.topics.items()}
    assert {b.broker_id: dict(epoch=b.broker_epoch, fenced=b.fenced, leaving=b.in_controlled_shutdown, rack=b.rack,
                              log_dirs=b.log_dirs,
                              end_points=[(e.name, e.host,
                                           e.port) for e in b.end_points]) for b
                                           in image.brokers.values()} == plain.brokers
    assert {(kind, name, key): value for (kind, name), found in image.configs.items() for key,
            value in found.items()} == plain.configs
    assert {(frozenset(entity), key): value for entity, found in image.quotas.items() for key,
            value in found.items()} == plain.quotas
    assert {i: c.incarnation_id for i, c in image.controllers.items()} == plain.controllers
    assert (image.features, image.next_producer_id) == (plain.features, plain.next_producer_id)
    assert {key: r.iterations for key, r in image.scram.items()} == plain.scram
    assert ({i: r.principal for i, r in image.acls.items()}, {i: r.owner for i,
                                                              r in image.tokens.items()}) == (plain.acls, plain.tokens)


# --- The promises -----------------------------------------------------------------------------------------------------

@budget(100)
@given(logs())
def test_an_image_is_the_plain_fold_of_its_log_however_it_is_cut(segments):
    with Directory() as directory:
        directory.write(segments)
        image, batches = load_image(directory.path), flat(segments)
    entries = entries_of(batches)
    same(image, fold(entries))
    assert (image.last_offset, image.replayed) == (batches[-1].last if batches else -1, len(entries))
    assert image.counts == Counter(entry.name for entry in entries)
    strangers = Counter(entry.name for entry in entries if entry.record is None)
    tags = sum(len(entry.record.unknown_tags or ()) for entry in entries if entry.record is not None)
    assert image.skipped == strangers + Counter({'unknown tagged fields': tags})


@budget(40)
@given(logs(), st.integers(1, 3))
def test_an_image_that_keeps_almost_nothing_unread_is_no_other(segments, most):
    with Directory() as directory, pytest.MonkeyPatch.context() as patch:
        for limit in ('MOST_BIRTHS', 'MOST_CHANGES'): patch.setattr(partition_bytes, limit, most)
        directory.write(segments)
        same(load_image(directory.path), fold(entries_of(flat(segments))))


@budget(40)
@given(logs(), st.integers(1, 400), st.data())
def test_reading_in_pieces_of_any_size_makes_no_difference(segments, piece, data):
    "Up to any offset, too: it is the fold of the batches that end by then."
    batches = flat(segments)
    until = data.draw(st.none() | st.integers(-1, batches[-1].last + 1 if batches else 0))
    with Directory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_log, 'SegmentReader', lambda path: SegmentReader(path, piece))
        directory.write(segments)
        image = load_image(directory.path, until)
    kept = [batch for batch in batches if until is None or batch.last <= until]
    same(image, fold(entries_of(kept)))
    assert image.last_offset == (kept[-1].last if kept else -1)


@budget(20)
@given(logs(most=10))
def test_following_a_log_byte_by_byte_ends_in_the_same_image(segments):
    "At every moment the image is that of the batches that are complete."
    with Directory() as directory:
        log, done, base = MetadataLog(directory.path), [], 0
        for segment in segments:
            with open(directory.path/f'{segment[0].base if segment else base:020}.log', 'wb', buffering=0) as file:
                for batch in segment:
                    for i in range(len(batch.raw)):
                        assert log.poll() is False
                        file.write(batch.raw[i:i + 1])
                    done.append(batch)
                    base = batch.last + 1
                    assert log.poll() is True and log.image.last_offset == batch.last
                    same(log.image, fold(entries_of(done)))
        same(log.image, load_and_compare(directory, segments))


def load_and_compare(directory, segments) -> Plain:
    plain = fold(entries_of(flat(segments)))
    same(load_image(directory.path), plain)
    return plain


@budget(40)
@given(logs(), st.data())
def test_a_checkpoint_and_what_follows_is_the_whole_log(segments, data):
    "Also when the segments go back to before the checkpoint, and when there are none after it."
    batches = flat(segments)
    cut = data.draw(small([n for n in range(len(batches) + 1) if not in_transaction(entries_of(batches[:n]))]),
                    'batches in the checkpoint')
    first = data.draw(st.integers(0, cut), 'the first batch that is still in a segment')
    start = batches[cut].base if cut < len(batches) else batches[-1].last + 1 if batches else 0
    with Directory() as directory:
        (directory.path/f'{start:020}-0000000001.checkpoint').write_bytes(checkpoint(fold(entries_of(batches[:cut]))))
        remaining = [[batch for batch in segment if batch in batches[first:]] for segment in segments]
        directory.write([segment for segment in remaining if segment])
        log = open_metadata(directory.path)
        same(log.image, fold(entries_of(batches)))
        assert log.image.last_offset == (batches[-1].last if batches else -1)
        again = copy.deepcopy((log.image.counts, log.image.replayed, log.files))
        # nothing new: nothing is read again
        assert log.poll() is False and (log.image.counts, log.image.replayed, log.files) == again


# --- When logs are not as they should be ------------------------------------------------------------------------------

def image_of(*values) -> Image:
    image = Image()
    replay_batch(image, Batch(raw_batch(0, *values).raw))
    return image


@pytest.mark.parametrize('says, directories', [
    (dict(replicas=[4, 5, 6]), (10, 11, 12)),
    (dict(replicas=[3, 2, 1]), (10, 11, 12)),
    (dict(directories=[]), (0, 0, 0)),
    (dict(replicas=[1, 2], directories=[]), (0, 0)),
    (dict(replicas=[1, 2], directories=[bytes([12]) * 16, bytes([11]) * 16]), (12, 11)),
    (dict(leader=2), (10, 11, 12))])
def test_directories_after_a_change_are_those_of_kafkas_replay(says, directories):
    """Seen with Kafka 4.1.1's PartitionRegistration.merge: only the record says where replicas are; an empty list says
    that nobody knows."""
    partition = image_of(A_TOPIC, A_PARTITION, change(**says)).topics['a'].partition(0)
    assert partition.directories == tuple(bytes([n]) * 16 for n in directories)


@pytest.mark.parametrize('value', NONSENSE.values(), ids=NONSENSE)
def test_a_record_that_makes_no_sense_is_an_error_that_says_so(value):
    "When the log is read, not later, when someone asks for the partition."
    with pytest.raises(DecodeError, match=r'records 0 to \d+'): image_of(A_TOPIC, A_PARTITION, value)


def test_removing_both_topics_of_one_name_is_no_error():
    """No controller writes this, and Kafka replays it: the second topic takes the name of a first that was never
    removed."""
    image = image_of(A_TOPIC, topic('a', OTHER), removal(OTHER), removal(TOPIC))
    assert (image.topics, image.topics_by_id) == ({}, {})


@budget(200)
@given(damaged())
def test_a_log_with_any_damaged_value_is_read_or_refused(values):
    "And if it is read, then all of it: every partition, and the whole as JSON."
    try: image = image_of(*values)
    except DecodeError as error: assert 'records 0 to ' in str(error)
    else:
        for found in image.topics.values(): found.partitions
        log = MetadataLog('/nowhere')
        log.image = image
        json.loads(''.join(image_json(log)))


def outcome(*values):
    "The partition and what was skipped on the way, or that there is none."
    try: image = image_of(*values)
    except DecodeError: return 'refused'
    return image.topics['a'].partition(0), dict(image.skipped)


@budget(200)
@given(st.lists(st.tuples(st.integers(0, 2), tails), min_size=1, max_size=3))
def test_a_change_means_the_same_on_the_fast_path_and_on_the_slow_one(changes):
    """Whatever stands in its tagged fields, in whatever version, order and size. (In a transaction no short cut is
    taken.)"""
    def raw(version, tags):
        fields = b''.join(bytes([tag, len(value)]) + value for tag, value in tags)
        return bytes([1, 5, version]) + A_CHANGE[3:KEY_ENDS] + bytes([len(tags)]) + fields
    values = [raw(*change) for change in changes]
    assert outcome(A_TOPIC, A_PARTITION, *values) == outcome(A_TOPIC, A_PARTITION, BEGIN, *values, END)


@budget(100)
@given(st.integers(0, 2), st.lists(raw_fields | small([bytes([3, 0, 0, 0, 1, 0, 0, 0, 2]), bytes(12),
                                                       bytes([1, 0, 1, 1])]), max_size=7))
def test_a_birth_means_the_same_on_the_fast_path_and_on_the_slow_one(version, parts):
    value = bytes([1, 3, version]) + A_CHANGE[3:KEY_ENDS] + b''.join(parts)
    assert outcome(A_TOPIC, value) == outcome(A_TOPIC, BEGIN, value, END)


def tries(log, times: int) -> int:
    "How many times a poll failed, each with an error whose traceback is that of one poll."
    failures = 0
    for _ in range(times):
        try: log.poll()
        except DecodeError as error: failures += len(traceback.extract_tb(error.__traceback__)) < 12
    return failures


def test_a_batch_that_cannot_be_replayed_is_tried_once_and_reported_until_the_log_is_repaired():
    good, bad = raw_batch(0, A_TOPIC, A_PARTITION), raw_batch(2, A_CHANGE, b'\x01\x02\x00')
    with Directory() as directory:
        directory.write([[good]])
        log = open_metadata(directory.path)
        directory.write([[good, bad]])
        with pytest.raises(DecodeError): log.poll()
        after_one = log.image.topics['a'].partition(0), log.image.replayed
        for _ in range(3):
            with pytest.raises(DecodeError): log.poll()
        assert (log.image.topics['a'].partition(0), log.image.replayed) == after_one
        assert tries(log, 5) == tries(log, 5) == 5   # and nothing grows, while it is tried ten times a second
        directory.write([[good, raw_batch(2, A_CHANGE)]])
        log.poll()
        assert (log.image.topics['a'].partition(0).leader_epoch, log.image.last_offset) == (6, 2)


def test_the_error_of_a_batch_names_the_file_and_the_place_in_it():
    good, bad = raw_batch(0, A_TOPIC), raw_batch(1, b'\x01\x02\x00')
    with Directory() as directory:
        directory.write([[good]])
        log = open_metadata(directory.path)
        directory.write([[good, bad]])
        for follower in (log, MetadataLog(directory.path)):
            with pytest.raises(DecodeError, match='00000000000000000000.log') as caught: follower.poll()
            assert caught.value.offset == len(good.raw)


def test_a_batch_that_is_written_just_before_the_next_segment_begins_is_not_lost(monkeypatch):
    """Between the moment a follower has read a segment to its end and the moment it looks for the next, both can have
    been written."""
    first, second, third = (raw_batch(base, value) for base, value in enumerate((A_TOPIC, A_PARTITION,
        topic('b', OTHER))))
    with Directory() as directory:
        directory.write([[first]])
        log, list_segments = open_metadata(directory.path), metadata_log.segments
        def segments_after_the_roll(path):
            directory.write([[first, second], [third]])
            return list_segments(path)
        monkeypatch.setattr(metadata_log, 'segments', segments_after_the_roll)
        log.poll()
        log.poll()
        assert set(log.image.topics) == {'a', 'b'} and set(log.image.topics['a'].partitions) == {0}


def test_a_log_that_is_written_anew_is_read_anew():
    with Directory() as directory:
        directory.write([[raw_batch(0, A_TOPIC, A_PARTITION, A_CHANGE)]])
        log = open_metadata(directory.path)
        directory.write([[raw_batch(0, topic('b', OTHER))]])
        assert log.poll() is True and set(log.image.topics) == {'b'}


@pytest.mark.parametrize('key', [None, b'', b'\x00', b'\x00\x00\x00\x63'])
def test_a_control_record_of_any_key_is_counted_or_refused(key):
    batch = Batch(write_batch([Record(key=key, value=b'')], attributes=CONTROL))
    try: replay_batch(image := Image(), batch)
    except DecodeError: return
    assert sum(image.control_counts.values()) == 1


def test_a_batch_cannot_have_fewer_records_than_none():
    batch = Batch(write_batch([], last_offset_delta=0))
    batch.header.record_count = -1
    with pytest.raises(DecodeError): replay_batch(Image(), batch)
