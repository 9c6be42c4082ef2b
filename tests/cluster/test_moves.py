"A log moves to another directory while it is written: nothing is lost, wherever the broker is killed."
import asyncio
import os
import random
import shutil
from pathlib import Path

import pytest

from moving import Fate, Killed, carried_out, content, directory_in, make, node_on, put, start_move
from kafka_scratch.broker.node import stop_node
from kafka_scratch.cluster.image import MIGRATING, UNASSIGNED
from kafka_scratch.cluster.log_dirs import future_names
from kafka_scratch.cluster.logs import remove_deleted
from kafka_scratch.cluster.moves import cancel_move, catch_up, move_logs
from kafka_scratch.cluster.records import ConfigRecord, FeatureLevelRecord, RemoveTopicRecord
from kafka_scratch.log.control_records import ControlKey, EndTxnMarker
from kafka_scratch.log.copies import copy_piece
from kafka_scratch.log.records import CONTROL, HEADER, TRANSACTIONAL, Record, write_batch
from kafka_scratch.log.partition import append
from kafka_scratch.log.retention import move_start

NAME = 'orders-0'


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    "Who is only killed needs no fsync."
    monkeypatch.setattr(os, 'fsync', lambda fd: None)


def filled(place: Path, count: int = 40, sent: list | None = None, level: int | None = None):
    "A node with a log of small segments."
    node = node_on(place)
    if level: node.controller.write([FeatureLevelRecord(name='metadata.version', feature_level=level)])
    make(node, {'orders': 1})
    node.controller.write([ConfigRecord(resource_type=2, resource_name='orders', name='segment.bytes', value='1000')])
    put(node.partition('orders'), count, sent=sent)
    return node


def named(node) -> bytes: return node.image.topics['orders'].partition(0).directories[0]


def check(node, expected: list[bytes]):
    "Everything is there, before what is left of a move is carried out, and after it."
    assert content(node, NAME) == expected
    carried_out(node)
    assert content(node, NAME) == expected and not node.logs.moves
    directory = directory_in(node, NAME)
    assert node.partition('orders').directory == directory.file(NAME)
    assert not any(future_names(each) for each in node.logs.directories)
    return directory


def test_a_log_moves_while_it_is_written(tmp_path):
    sent = []
    node = filled(tmp_path, sent=sent)
    log, source = node.partition('orders'), directory_in(node, NAME)
    start_move(node, NAME)
    carried_out(node, lambda: log.end_offset < 60 and put(log, sent=sent))
    target = directory_in(node, NAME)
    assert target is not source and node.partition('orders') is log and log.future is None
    assert content(node, NAME) == sent and named(node) == target.id
    put(log, 5, sent=sent)
    gone, = [name for name in os.listdir(source.path) if 'orders' in name]
    assert gone.endswith('-delete')
    stop_node(node)
    node = node_on(tmp_path)
    assert check(node, sent).path == target.path
    node.turn_clock(60_001)
    assert remove_deleted(node.logs) == 1 and not [name for name in os.listdir(source.path) if 'orders' in name]
    node.crash()


def test_a_log_that_never_stops_growing(tmp_path):
    "Whenever the event loop is free, there is one more record; and yet the copy catches up."
    sent = []
    node = filled(tmp_path, 200, sent)
    log, move = node.partition('orders'), start_move(node, NAME)
    carried_out(node, lambda: put(log, 2, sent=sent))
    assert directory_in(node, NAME) is move.target and content(node, NAME) == sent
    node.crash()


# --- Killed -----------------------------------------------------------------------------------------------------------

def killed(place: Path, monkeypatch, node, sent: list, at: int, start: bool = True) -> tuple[bool, list[str]]:
    "A node that is killed before the so-maniest change of a file. Was it done by then? And what did it do?"
    log = node.partition('orders')
    with monkeypatch.context() as patch:
        fate = Fate(patch, at)
        try:
            if start: start_move(node, NAME)
            carried_out(node, lambda: log.end_offset < 15 and put(log, sent=sent))
            done = True
        except Killed: done = False
    node.crash()
    return done, fate.names


@pytest.mark.parametrize('level', [None, 14], ids=['', 'of old metadata'])
def test_killed_at_every_step(tmp_path, monkeypatch, level):
    "Before each change of a file, one after the other, until it gets through; and then a start."
    at, done = 0, False
    while not done:
        at, place, sent = at + 1, tmp_path/str(at), []
        done, names = killed(place, monkeypatch, filled(place, 12, sent, level), sent, at)
        node = node_on(place)
        assert content(node, NAME) == sent, (at, names[-3:])
        put(node.partition('orders'), sent=sent)
        check(node, sent)
        node.crash()
        shutil.rmtree(place)
    assert at > 30 and names.count('rename') == 3, names


def test_killed_and_killed_again(tmp_path, monkeypatch):
    "A start that finds what the last one left, and is killed, too."
    chance = random.Random(5)
    for number in range(12):
        place, sent, node = tmp_path/str(number), [], None
        node = filled(place, 12, sent)
        killed(place, monkeypatch, node, sent, chance.randrange(20, 60))
        for _ in range(3):
            node = node_on(place)
            assert content(node, NAME) == sent, number
            killed(place, monkeypatch, node, sent, chance.randrange(1, 30), start=False)
        node = node_on(place)
        check(node, sent)
        node.crash()
        shutil.rmtree(place)


# --- What a start finds -----------------------------------------------------------------------------------------------

def half_moved(place: Path, sent: list):
    "A node that was killed when a copy had its first segments."
    node = filled(place, 40, sent)
    move = start_move(node, NAME)
    copy_piece(move.log, move.copy, 0)
    put(move.log, 3, sent=sent)
    return node, move


def test_a_move_is_continued(tmp_path):
    sent = []
    node, move = half_moved(tmp_path, sent)
    node.crash()
    node = node_on(tmp_path)
    move = node.logs.moves['orders', 0]
    assert move.lag == 31 and move.copy.size
    assert check(node, sent) is move.target
    node.crash()


def test_a_copy_of_something_else_is_not_continued(tmp_path):
    "The log was cut by a crash, and has other records since: its copy begins again."
    sent = []
    node, move = half_moved(tmp_path, sent)
    copy = move.copy.directory
    put(move.copy, 9, size=5)
    node.crash()
    node = node_on(tmp_path)
    assert not os.path.exists(copy) and node.logs.moves['orders', 0].lag == 43
    check(node, sent)
    node.crash()


def test_a_log_that_is_in_two_directories(tmp_path):
    "Kafka renames the copy first. Killed then, it would not start again; we take the longer one, and keep the other."
    sent = []
    node = filled(tmp_path, 40, sent)
    directory = directory_in(node, NAME)
    other = next(each for each in node.logs.directories if each is not directory)
    put(node.partition('orders'), 2, sent=sent)
    shutil.copytree(directory.file(NAME), other.file(NAME))
    node.partition('orders')
    put(node.partition('orders'), 1, sent=sent)
    node.crash()
    node = node_on(tmp_path)
    assert check(node, sent).path == directory.path
    assert [name for name in os.listdir(other.path) if name.endswith('-stray')]
    node.crash()


def test_a_copy_alone_takes_its_place(tmp_path):
    "The old directory was renamed, the copy not yet."
    sent = []
    node = filled(tmp_path, 40, sent)
    directory = directory_in(node, NAME)
    node.crash()
    os.rename(directory.file(NAME), directory.file(f'{NAME}.{"a" * 32}-future'))
    node = node_on(tmp_path)
    assert check(node, sent).path == directory.path
    node.crash()


def test_a_copy_of_an_unknown_topic_is_left_alone(tmp_path):
    node = filled(tmp_path)
    left = Path(node.logs.directories[0].file(f'nobody-0.{"a" * 32}-future'))
    other = Path(node.logs.directories[0].file(f'{NAME}.{"b" * 32}-future'))
    for each in (left, other): each.mkdir()
    (other/'partition.metadata').write_text('version: 0\ntopic_id: cHBwcHBwcHBwcHBwcHBwcA')
    node.crash()
    node = node_on(tmp_path)
    assert left.exists() and not other.exists()
    assert [name for name in os.listdir(node.logs.directories[0].path) if name.endswith('-stray')]
    node.crash()


# --- What may happen meanwhile ----------------------------------------------------------------------------------------

def test_a_log_loses_its_beginning(tmp_path):
    "Retention, or DeleteRecords: before the copy has it, and after."
    for number, (first, second) in enumerate([(20, 33), (40, 40), (7, 8), (0, 25)]):
        sent, place = [], tmp_path/str(number)
        node = filled(place, 40, sent)
        log, move = node.partition('orders'), start_move(node, NAME)
        move_start(log, first)
        copy_piece(log, move.copy, 0)
        move_start(log, second)
        put(log, 2, sent=sent)
        carried_out(node)
        assert content(node, NAME) == sent[second:] and log.start_offset == second
        stop_node(node)
        node = node_on(place)
        assert content(node, NAME) == sent[second:] and node.partition('orders').start_offset == second
        node.crash()


def test_a_log_that_begins_in_the_middle_of_a_batch(tmp_path):
    "DeleteRecords cuts where it was told to. The batch stays whole."
    node = filled(tmp_path, 4)
    log = node.partition('orders')
    for _ in range(5):
        batch = bytearray(write_batch([Record(offset_delta=n, value=b'some value') for n in range(7)]))
        append(log, batch, HEADER.read(batch, 0)[0], 0, now=0)
    for start, again in ((6, 6), (13, 20), (38, 39)):
        move_start(log, start)
        move = start_move(node, NAME)
        copy_piece(log, move.copy, 0)
        move_start(log, again)
        expected = content(node, NAME)
        carried_out(node)
        assert content(node, NAME) == expected and log.start_offset == again and len(expected) == (45 - again) // 7
    stop_node(node)
    node = node_on(tmp_path)
    assert content(node, NAME) == expected and node.partition('orders').start_offset == 39
    node.crash()


def test_offsets_that_compaction_has_left_out(tmp_path):
    "Batches that are gone, in the middle and at the end of what is cleaned: the others keep their offsets."
    node = filled(tmp_path)
    log = node.partition('orders')
    keep = {3, 4, 17, 25}
    def cleaned(segment):
        data, at, kept = segment.file.read(0, segment.size), 0, b''
        while at < len(data):
            header = HEADER.read(data, at)[0]
            if header.base_offset in keep: kept += data[at:at + 12 + header.batch_length]
            at += 12 + header.batch_length
        return kept
    from kafka_scratch.log.log_segment import scan_segment
    from kafka_scratch.log.partition import roll
    roll(log, 0)   # an empty segment at the end
    for segment in log.segments[:-1]:
        kept = cleaned(segment)
        Path(segment.path).write_bytes(kept)
        segment.seen, segment.held = lambda: None, None
        scan_segment(segment, len(kept), True)
    expected = content(node, NAME)
    assert [HEADER.read(each, 0)[0].base_offset for each in expected] == sorted(keep)
    start_move(node, NAME)
    carried_out(node)
    assert content(node, NAME) == expected and log.end_offset == 40
    put(log, sent=expected)
    node.crash()
    node = node_on(tmp_path)
    assert content(node, NAME) == expected and node.partition('orders').end_offset == 41
    node.crash()


def test_transactions_and_producers_go_with_it(tmp_path):
    node = filled(tmp_path, 5)
    log = node.partition('orders')
    def send(producer, sequence, attributes=TRANSACTIONAL, **record):
        batch = bytearray(write_batch([Record(**record)], attributes=attributes, producer_id=producer, producer_epoch=0,
                                      base_sequence=sequence))
        append(log, batch, HEADER.read(batch, 0)[0], 0, now=0)
    def decide(producer, committed):
        key, value = ControlKey(type=int(committed)).encode(0), EndTxnMarker(coordinator_epoch=0).encode(0)
        send(producer, -1, TRANSACTIONAL | CONTROL, key=key, value=value)
    send(7, 0, value=b'x'), send(8, 0, value=b'x'), decide(7, False), send(9, 0, value=b'x' * 900), decide(8, True)
    send(7, 1, value=b'y' * 900)
    move_start(log, 5)
    before = log.producers.open, log.producers.aborted, log.stable_offset
    start_move(node, NAME)
    carried_out(node)
    assert (log.producers.open, log.producers.aborted, log.stable_offset) == before and before[0] and before[1]
    for end in (stop_node, lambda node: node.crash()):
        end(node)
        node = node_on(tmp_path)
        log = node.partition('orders')
        assert (log.producers.open, log.producers.aborted, log.stable_offset) == before
        assert log.producers.producers[7].sent[-1].last_sequence == 1
    node.crash()


def test_a_topic_is_deleted(tmp_path):
    sent = []
    node, move = half_moved(tmp_path, sent)
    node.controller.write([RemoveTopicRecord(topic_id=move.topic_id)])
    carried_out(node)
    left = [name for each in node.logs.directories for name in os.listdir(each.path) if 'orders' in name]
    assert not node.logs.moves and len(left) == 2 and all(name.endswith('-delete') for name in left)
    node.crash()


def test_back_again(tmp_path):
    sent = []
    node, move = half_moved(tmp_path, sent)
    cancel_move(node.logs, move)
    assert check(node, sent) is move.source and move.log.future is None
    start_move(node, NAME)
    assert check(node, sent) is move.target
    start_move(node, NAME)
    assert check(node, sent) is move.source
    node.crash()


def in_background(node, until, rate=lambda: None):
    "What the broker does beside its clients, until a condition holds."
    async def run():
        chore = asyncio.ensure_future(move_logs(node.logs, node.controller, rate, pause=0.001))
        while not until(): await asyncio.sleep(0.001)
        chore.cancel()
    notes, node.logs.note = [], lambda text: notes.append(text)
    asyncio.run(asyncio.wait_for(run(), 20))
    return notes


def test_what_is_damaged_stays_where_it_is(tmp_path):
    sent = []
    node = filled(tmp_path, 40, sent)
    log, source = node.partition('orders'), directory_in(node, NAME)
    with open(log.segments[1].path, 'r+b') as file:
        file.seek(70)
        file.write(b'!')
    start_move(node, NAME)
    notes = in_background(node, lambda: not node.logs.moves)
    assert 'stays in' in notes[0] and 'checksum' in notes[0], notes
    assert directory_in(node, NAME) is source and log.future is None
    assert not any(future_names(each) for each in node.logs.directories)
    node.crash()


@pytest.mark.parametrize('what', ['pwrite', 'fsync', 'rename'])
def test_a_disk_that_fails_stops_it(tmp_path, monkeypatch, what):
    "The log stays where it is, is served as before, and the metadata say so."
    sent = []
    node = filled(tmp_path, 40, sent)
    log, source, move = node.partition('orders'), directory_in(node, NAME), start_move(node, NAME)
    real, target = getattr(os, what), move.target.path
    def fails(first, *more):
        path = os.readlink(f'/proc/self/fd/{first}') if isinstance(first, int) else first
        if path.startswith(target) and '-future' in path and 'delete' not in str(more): raise OSError(5, 'broken')
        return real(first, *more)
    monkeypatch.setattr(os, what, fails)
    notes = in_background(node, lambda: not node.logs.moves and not node.logs.unassigned)
    assert 'broken' in notes[0] and log.future is None and not log.failed
    put(log, sent=sent)
    assert content(node, NAME) == sent and directory_in(node, NAME) is source and named(node) == source.id
    node.crash()


def test_the_metadata_name_the_directories(tmp_path):
    "As Kafka does it: unassigned at first, if there are several; then the one in which the broker has made the log."
    node = filled(tmp_path)
    ids = [each.id for each in node.logs.directories]
    assert node.image.brokers[1].log_dirs == ids and None not in ids
    in_background(node, lambda: not node.logs.unassigned)
    assert named(node) == directory_in(node, NAME).id
    node.crash()
    node = node_on(tmp_path/'single', directories=['one'])
    make(node, {'orders': 1})
    assert named(node) == node.logs.directories[0].id not in (UNASSIGNED, MIGRATING)
    stop_node(node)
    node = node_on(tmp_path/'single', directories=['one', 'two'])   # one more
    start_move(node, NAME)
    carried_out(node)
    assert named(node) == node.logs.directories[1].id
    stop_node(node)
    node = node_on(tmp_path/'single', directories=['one', 'two'])
    assert node.controller.log_dirs == [each.id for each in node.logs.directories]
    node.crash()


def test_a_directory_that_is_gone_is_no_reason_for_an_empty_log(tmp_path):
    node = filled(tmp_path)
    directory = directory_in(node, NAME)
    node.logs.hosted.clear(), directory.logs.clear()
    shutil.move(directory.path, tmp_path/'unmounted')
    assert node.logs.find(node.image.topics['orders'], 0).error == 56
    node.crash()


def test_no_faster_than_allowed(tmp_path):
    "The limit can be taken away while it waits."
    node, limit = filled(tmp_path), [1]
    move = start_move(node, NAME)
    async def run():
        waiting = asyncio.ensure_future(catch_up(node.logs, move, lambda: limit[0]))
        while not move.copy.size: await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        limit[0] = None
        await asyncio.wait_for(waiting, 20)
    asyncio.run(run())
    assert not move.lag
    node.crash()
