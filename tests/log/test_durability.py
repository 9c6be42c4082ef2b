"""What is acknowledged is stored, as firmly as was asked for; what can't be stored is refused, and does no harm to what
is there.

A disk that is full, or that fails; acknowledgements that wait for an fsync, and share it; and a directory that belongs
to one broker at a time.
"""
import asyncio
import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from broker_process import ROOT, BrokerProcess, environment, free_port, properties, run_to_end, running, wait_until
from by_hand import api_versions, metadata_log, read_api_versions, write_log
from kafka_scratch.cluster import flusher as flusher_module
from kafka_scratch.cluster.log_dirs import CLEAN
from kafka_scratch.broker.node import make_node
from kafka_scratch.broker.server import Server
from kafka_scratch.cluster.config import read_config
from kafka_scratch.groups.offsets import OffsetCommitKey, OffsetCommitValue
from kafka_scratch.log.partition import LogConfig, StorageError, append
from kafka_scratch.log.slices import locate, read_slice
from kafka_scratch.log.recovery import close_log, open_log
from kafka_scratch.log.records import HEADER
from kafka_scratch.broker.running import running_broker
from log_by_hand import fetch, message_batch, next_offset, placed, produce, read_fetch, read_produce, split

MB = 1 << 20
VERSION = 12               # of Fetch: the last one that knows topics by name
KAFKA_STORAGE_ERROR = 56


# --- A full disk, simulated -------------------------------------------------------------------------------------------

class Disk:
    "As much room as is said; a write that doesn't fit is done in part."
    def __init__(self, monkeypatch):
        self.room, self.write, self.cut, self.stuck = 1 << 40, os.pwrite, os.ftruncate, False
        monkeypatch.setattr(os, 'pwrite', self.pwrite)
        monkeypatch.setattr(os, 'ftruncate', self.ftruncate)

    def pwrite(self, fd, data, position):
        if not self.room: raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.write(fd, memoryview(data)[:self.room], position)
        self.room -= written
        return written

    def ftruncate(self, fd, size):
        if self.stuck: raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.cut(fd, size)


@pytest.fixture
def disk(monkeypatch): return Disk(monkeypatch)


def put(log, data: bytes) -> int:
    batch = bytearray(data)
    return append(log, batch, HEADER.read(batch, 0)[0], 0, 0)


def stored(log) -> bytes: return b''.join(read_slice(part) for part in parts(log))


def parts(log):
    offset = log.start_offset
    while part := locate(log, offset, 1 << 30):
        yield part
        offset = next_offset(split(read_slice(part))[-1])


@pytest.mark.parametrize('room', [0, 1, 11, 12, 60, 61, 100])
@pytest.mark.parametrize('stuck', [False, True], ids=['', 'cutting back fails, too'])
def test_of_a_write_that_fails_nothing_stays(tmp_path, disk, room, stuck):
    log = open_log(str(tmp_path/'foo-0'))
    first, second, third = message_batch(b'one'), message_batch(b'two' * 50), message_batch(b'three')
    assert put(log, first) == 0
    disk.room, disk.stuck = room, stuck
    with pytest.raises(StorageError, match='No space left on device'): put(log, second)
    assert log.end_offset == log.high_watermark == 1 and stored(log) == placed(first, 0)
    disk.room = 1 << 40
    if stuck:
        with pytest.raises(StorageError, match='Input/output error'): put(log, second)
        assert log.end_offset == 1 and stored(log) == placed(first, 0)
    disk.stuck = False
    assert put(log, third) == 1   # shorter than what was written of the other one
    expected = placed(first, 0) + placed(third, 1)
    assert stored(log) == expected == Path(log.active.path).read_bytes()
    close_log(log)
    assert stored(open_log(str(tmp_path/'foo-0'))) == expected


def test_closed_while_it_is_full(tmp_path, disk):
    """What couldn't be cut back in time is, at the latest, when the log is closed; or else when it is opened the next
    time."""
    for number, clean in enumerate((True, False)):
        log = open_log(str(tmp_path/f'foo-{number}'))
        put(log, message_batch(b'one'))
        disk.room, disk.stuck = 100, True
        with pytest.raises(StorageError): put(log, message_batch(b'x' * 500))
        disk.room, disk.stuck = 1 << 40, False
        if clean: close_log(log)
        notes = []
        assert stored(open_log(str(tmp_path/f'foo-{number}'), clean=clean,
                               note=notes.append)) == placed(message_batch(b'one'), 0)
        assert len(notes) == (not clean)


@pytest.mark.parametrize('what', ['open', 'replace', 'fsync'])
def test_no_room_for_a_new_segment(tmp_path, monkeypatch, what):
    """To begin a segment takes an index, a snapshot and a new file. If one of them can't be made, the batch is refused,
    and the next one may succeed."""
    log = open_log(str(tmp_path/'foo-0'), LogConfig(segment_bytes=300))
    expected = b''
    for number in range(3): expected += placed(message_batch(b'x' * 30), put(log, message_batch(b'x' * 30)))
    def fail(*_, **__): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as full:
        full.setattr(os, what, fail)
        for _ in range(3):
            with pytest.raises(StorageError, match='No space left on device'): put(log, message_batch(b'x' * 30))
        assert log.end_offset == 3 and stored(log) == expected
    for number in range(3): expected += placed(message_batch(b'x' * 30), put(log, message_batch(b'x' * 30)))
    assert len(log.segments) == 2 and log.end_offset == 6 and stored(log) == expected
    close_log(log)
    assert stored(open_log(str(tmp_path/'foo-0'))) == expected


# --- A full disk, real ------------------------------------------------------------------------------------------------

@pytest.fixture
def small_disk(tmp_path):
    "A file system of 3 MB of its own, of which half is taken."
    if sys.platform != 'linux' or os.geteuid() != 0: pytest.skip('only root can mount a file system')
    place = tmp_path/'disk'
    place.mkdir()
    mounted = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', place], capture_output=True, text=True)
    if mounted.returncode: pytest.skip(f'mounting is not permitted here: {mounted.stderr.strip()}')
    try: yield place
    finally: subprocess.run(['umount', '-l', place], check=True)


def ask_to_store(client, value: bytes) -> dict:
    return read_produce(client.ask(produce(1, {'foo': {0: message_batch(value)}})))['topics']['foo'][0]


def fetched(client, end: int) -> list[bytes]:
    "The whole partition."
    found, offset = [], 0
    while offset < end:
        partition = read_fetch(client.ask(fetch(1, {'foo': {0: offset}}, version=VERSION, partition_max_bytes=MB)),
                               VERSION)['topics']['foo'][0]
        assert partition['error_code'] == 0 and partition['high_watermark'] == end
        found += split(partition['records'])
        offset = next_offset(found[-1])
    return found


def fill(client) -> list[bytes]:
    "Stores batches until the broker can't."
    sent = []
    while True:
        value = os.urandom(10_000)
        answer = ask_to_store(client, value)
        if answer['error_code']: break
        sent.append(placed(message_batch(value), len(sent)))
    assert (answer['error_code'], answer['base_offset']) == (KAFKA_STORAGE_ERROR,
                                                             -1) and 'No space left' in answer['error_message']
    assert len(sent) > 10
    return sent


def log_bytes(directory: Path) -> bytes:
    return b''.join(path.read_bytes() for path in sorted((directory/'foo-0').glob('*.log')))


@pytest.mark.parametrize('segment_bytes', [1 << 30, 400_000], ids=['one segment', 'many segments'])
def test_a_full_disk(tmp_path, small_disk, segment_bytes):
    logs, filler = small_disk/'logs', small_disk/'filler'
    write_log(logs, metadata_log(foo=1))
    filler.write_bytes(bytes(3 * MB // 2))
    settings = dict(log_dirs=logs, internal_segment_bytes=segment_bytes)
    with running(tmp_path, **settings) as broker, broker.client() as client:
        sent = fill(client)
        for _ in range(5):
            assert ask_to_store(client, os.urandom(100_000))['error_code'] == KAFKA_STORAGE_ERROR
            assert log_bytes(logs) == b''.join(sent)
        assert fetched(client, len(sent)) == sent
        filler.unlink()
        for _ in range(20):
            value = os.urandom(10_000)
            assert ask_to_store(client, value) == stored_at(len(sent))
            sent.append(placed(message_batch(value), len(sent)))
        assert fetched(client, len(sent)) == sent and log_bytes(logs) == b''.join(sent)
    with running(tmp_path, **settings) as broker, broker.client() as client: assert fetched(client, len(sent)) == sent


def stored_at(offset: int) -> dict:
    return {'error_code': 0, 'base_offset': offset, 'log_append_time_ms': -1, 'log_start_offset': 0,
            'record_errors': [], 'error_message': None, 'tags': {}}


def test_stopped_while_the_disk_is_full(tmp_path, small_disk):
    "It may not be able to leave everything in order. Then it says so, and the next start mends it."
    logs, filler = small_disk/'logs', small_disk/'filler'
    write_log(logs, metadata_log(foo=1))
    filler.write_bytes(bytes(3 * MB // 2))
    port = free_port()
    file = properties(tmp_path/'server.properties', node_id=1, listeners=f'PLAINTEXT://127.0.0.1:{port}', log_dirs=logs,
                      internal_segment_bytes=100_000)
    broker = BrokerProcess(tmp_path, file, port=port)
    try:
        broker.wait_ready()
        with broker.client() as client:
            sent = fill(client)
            filler.write_bytes(filler.read_bytes() + bytes(fill_up(small_disk)))
            assert ask_to_store(client, b'x' * 10_000)['error_code'] == KAFKA_STORAGE_ERROR
    finally: code = broker.stop()
    assert 'Traceback' not in broker.stderr, broker.stderr
    if code: assert 'No space left' in broker.stderr, broker.stderr
    assert log_bytes(logs) == b''.join(sent)
    filler.unlink()
    with running(tmp_path, log_dirs=logs) as broker, broker.client() as client:
        assert fetched(client, len(sent)) == sent
        assert ask_to_store(client, b'more') == stored_at(len(sent))


def fill_up(place: Path) -> int:
    room = os.statvfs(place)
    return room.f_bavail * room.f_frsize


def test_a_limit_on_files(tmp_path):
    "Where no file may be larger than so many bytes, a segment that reaches them is full."
    limit = 300_000
    def set_limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    write_log(tmp_path/'logs', metadata_log(foo=1))
    with running(tmp_path, limit=set_limit) as broker, broker.client() as client:
        sent = []
        while (answer := ask_to_store(client, value := os.urandom(10_000)))['error_code'] == 0:
            sent.append(placed(message_batch(value), len(sent)))
        assert answer['error_code'] == KAFKA_STORAGE_ERROR and 'File too large' in answer['error_message']
        assert log_bytes(tmp_path/'logs') == b''.join(sent) and limit - 10_200 < len(b''.join(sent)) <= limit
        assert fetched(client, len(sent)) == sent
    with running(tmp_path) as broker, broker.client() as client:
        assert fetched(client, len(sent)) == sent
        assert ask_to_store(client, b'more') == stored_at(len(sent))


# --- Acknowledged when it is on the disk ------------------------------------------------------------------------------

class Syncing:
    "An fsync that counts, and waits until it may return; for the files of logs only."
    def __init__(self, monkeypatch):
        self.fsync, self.calls, self.error, self.may_return = os.fsync, [], None, None
        monkeypatch.setattr(os, 'fsync', self.call)

    def hold(self): self.may_return = threading.Semaphore(0)

    def call(self, fd):
        name = os.readlink(f'/proc/self/fd/{fd}')
        if not name.endswith('.log'): return self.fsync(fd)
        self.calls.append(name)
        if self.may_return: assert self.may_return.acquire(timeout=20)
        if self.error: raise OSError(self.error, os.strerror(self.error))
        self.fsync(fd)


@pytest.fixture
def syncing(monkeypatch):
    if not os.path.isdir('/proc/self/fd'): pytest.skip('needs /proc')
    return Syncing(monkeypatch)


@contextlib.asynccontextmanager
async def serving(tmp_path, **settings):
    "A server in this process, with a topic `foo` that exists and was written to, so that its files are there."
    write_log(tmp_path/'logs', metadata_log(foo=2))
    lines = {'node.id': 1, 'listeners': 'PLAINTEXT://127.0.0.1:0', 'log.dirs': tmp_path/'logs',
             'log.flush.interval.messages': 1, **settings}
    server = Server(make_node(read_config(''.join(f'{name}={value}\n' for name, value in lines.items()))))
    await server.start()
    try: yield server
    finally: await server.stop()


class Connected:
    "A client in the server's own loop."
    def __init__(self, reader, writer): self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, server): return cls(*await asyncio.open_connection('127.0.0.1', server.ports[0], limit=1 << 24))

    def send(self, data: bytes): self.writer.write(data)

    async def frame(self, patience: float = 20) -> bytes:
        head = await asyncio.wait_for(self.reader.readexactly(4), patience)
        return head + await self.reader.readexactly(int.from_bytes(head, 'big'))

    async def ask(self, data: bytes) -> bytes:
        self.send(data)
        return await self.frame()

    async def silent(self, seconds: float = 0.2) -> bool:
        "Nothing comes. What was read so far isn't lost."
        try:
            self.reader._buffer or await asyncio.wait_for(
                asyncio.shield(waiting := asyncio.ensure_future(self.reader.read(1))), seconds)
        except TimeoutError:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError): await waiting
            return True
        return False


def storing(value: bytes, number: int = 1, partition: int = 0, **options) -> bytes:
    return produce(number, {'foo': {partition: message_batch(value)}}, **options)


def outcome(frame: bytes) -> tuple[int, int]:
    "Error and offset."
    found = next(iter(read_produce(frame)['topics']['foo'].values()))
    return found['error_code'], found['base_offset']


async def high_watermark(client) -> int:
    return read_fetch(await client.ask(fetch(1, {'foo': {0: 0}}, version=VERSION, max_wait_ms=0)),
                      VERSION)['topics']['foo'][0]['high_watermark']


async def until(condition, what: str):
    for _ in range(2000):
        if condition(): return
        await asyncio.sleep(0.01)
    raise AssertionError(f'waited in vain: {what}')


def test_those_that_come_together_share_a_flush(tmp_path, syncing):
    n = 100

    async def run():
        async with serving(tmp_path) as server:
            clients = [await Connected.to(server) for _ in range(n)]
            assert outcome(await clients[0].ask(storing(b'first'))) == (0, 0)
            before = len(syncing.calls)
            syncing.hold()
            for number, client in enumerate(clients): client.send(storing(b'%d' % number, number))
            await until(lambda: server.node.logs.opened()[0].end_offset == n + 1, 'all of them to be written')
            syncing.may_return.release(n)
            answers = [await client.frame() for client in clients]
            assert sorted(outcome(answer)[1] for answer in answers) == [*range(1,
                n + 1)] and {outcome(answer)[0] for answer in answers} == {0}
            return len(syncing.calls) - before

    assert asyncio.run(run()) <= 5


def test_no_answer_and_no_record_before_it_is_on_the_disk(tmp_path, syncing):
    async def run():
        async with serving(tmp_path) as server:
            producer, consumer, waiting = [await Connected.to(server) for _ in range(3)]
            assert outcome(await producer.ask(storing(b'first'))) == (0, 0)
            syncing.hold()
            waiting.send(fetch(7, {'foo': {0: 1}}, version=VERSION, max_wait_ms=20_000))
            producer.send(storing(b'second'))
            await until(lambda: len(syncing.calls) == 2, 'the fsync')
            assert await producer.silent() and await waiting.silent(0.05)
            assert await high_watermark(consumer) == 1
            syncing.may_return.release()
            assert outcome(await producer.frame()) == (0, 1)
            assert await high_watermark(consumer) == 2
            assert split(read_fetch(await waiting.frame(),
                                    VERSION)['topics']['foo'][0]['records']) == [placed(message_batch(b'second'), 1)]
            syncing.may_return.release(10)

    asyncio.run(run())


def test_what_came_during_a_flush_waits_for_the_next_one(tmp_path, syncing):
    "An fsync covers what was written when it began. The rest is neither acknowledged nor shown."
    async def run():
        async with serving(tmp_path) as server:
            one, two, consumer, waiting = [await Connected.to(server) for _ in range(4)]
            assert outcome(await one.ask(storing(b'first'))) == (0, 0)
            syncing.hold()
            size = len(message_batch(b'x' * 10))
            waiting.send(fetch(7, {'foo': {0: 1}}, version=VERSION, max_wait_ms=20_000, min_bytes=2 * size))
            one.send(storing(b'x' * 10))
            await until(lambda: len(syncing.calls) == 2, 'the first fsync')
            two.send(storing(b'y' * 10))
            await until(lambda: server.node.logs.opened()[0].end_offset == 3, 'the second to be written')
            syncing.may_return.release()
            assert outcome(await one.frame()) == (0, 1)
            await until(lambda: len(syncing.calls) == 3, 'the second fsync')
            assert await high_watermark(consumer) == 2
            assert await two.silent() and await waiting.silent(0.05)
            syncing.may_return.release()
            assert outcome(await two.frame()) == (0, 2)
            assert await high_watermark(consumer) == 3
            assert len(split(read_fetch(await waiting.frame(), VERSION)['topics']['foo'][0]['records'])) == 2
            syncing.may_return.release(10)

    asyncio.run(run())


def test_order_is_kept_behind_a_flush(tmp_path, syncing):
    "Requests of one connection are answered in order, and one that wants no answer gets none."
    async def run():
        async with serving(tmp_path) as server:
            client = await Connected.to(server)
            client.send(storing(b'one', 1) + api_versions(2) + storing(b'two', 3, acks=0) + storing(b'three', 4,
                partition=1) + api_versions(5))
            assert outcome(await client.frame()) == (0, 0)
            assert read_api_versions(await client.frame())['correlation_id'] == 2
            assert outcome(await client.frame()) == (0, 0)
            assert read_api_versions(await client.frame())['correlation_id'] == 5
            assert await high_watermark(client) == 2

    asyncio.run(run())


def test_an_fsync_that_fails(tmp_path, syncing):
    """An error, and no record that nobody can be sure of. What the disk has then only a restart can tell; until then
    nothing more is written."""
    async def run():
        async with serving(tmp_path) as server:
            client = await Connected.to(server)
            assert outcome(await client.ask(storing(b'first'))) == (0, 0)
            syncing.error = errno.EIO
            assert outcome(await client.ask(storing(b'second'))) == (KAFKA_STORAGE_ERROR, -1)
            assert await high_watermark(client) == 1
            syncing.error = None
            assert outcome(await client.ask(storing(b'third'))) == (KAFKA_STORAGE_ERROR, -1)
            assert await high_watermark(client) == 1
            syncing.calls.clear()
        assert not any('foo-0' in call for call in syncing.calls)   # a second sync would succeed, and prove nothing
        assert not (tmp_path/'logs'/CLEAN).exists()        # so the next start looks for itself
        async with serving(tmp_path) as server:
            assert not server.node.logs.directories[0].clean
            client = await Connected.to(server)
            error, offset = outcome(await client.ask(storing(b'fourth')))
            assert error == 0 and await high_watermark(client) == offset + 1

    asyncio.run(run())


def test_one_who_waits_and_fails_stops_nobody(tmp_path):
    "An exception in what follows a sync is told to the loop; the others are answered, and the next round begins."
    async def run():
        flusher, answered, told = flusher_module.Flusher(), [], []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context['exception']))
        log = open_log(str(tmp_path/'foo-0'), LogConfig(flush_messages=1))
        def fail(log, error): raise ValueError('a mistake')
        for _ in range(2):
            flusher.ask(log, fail)
            flusher.ask(log, lambda log, error: answered.append(error))
            await until(lambda: not flusher.at_work, 'a round')
        assert answered == [None, None] and [str(error) for error in told] == ['a mistake'] * 2

    asyncio.run(run())


@pytest.mark.parametrize('error', [RuntimeError('odd'), OSError(errno.EIO, 'bad')])
def test_whatever_a_sync_says(tmp_path, monkeypatch, error):
    async def run():
        flusher, answered = flusher_module.Flusher(), []
        log = open_log(str(tmp_path/'foo-0'), LogConfig(flush_messages=1))
        def fail(flush): raise error
        monkeypatch.setattr(flusher_module, 'sync_files', fail)
        flusher.ask(log, lambda log, error: answered.append(error))
        await until(lambda: not flusher.at_work, 'a round')
        assert answered == [error] and log.failed

    asyncio.run(run())


def test_a_flush_that_cannot_even_begin(tmp_path, syncing, monkeypatch):
    "No more files may be opened, say: an error for who waits for it, and the next one is tried."
    async def run():
        async with serving(tmp_path) as server:
            client, begin = await Connected.to(server), flusher_module.begin_flush
            assert outcome(await client.ask(storing(b'first'))) == (0, 0)
            def fail(log): raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            monkeypatch.setattr(flusher_module, 'begin_flush', fail)
            assert outcome(await client.ask(storing(b'second'))) == (KAFKA_STORAGE_ERROR, -1)
            monkeypatch.setattr(flusher_module, 'begin_flush', begin)
            assert outcome(await client.ask(storing(b'third'))) == (0, 2)

    asyncio.run(run())


def test_an_fsync_that_fails_covers_no_names(tmp_path, syncing):
    "The name of a new file has to be synced, too. If that failed, it is tried again."
    async def run():
        async with serving(tmp_path) as server:
            client = await Connected.to(server)
            syncing.error = errno.EIO
            assert outcome(await client.ask(storing(b'first'))) == (KAFKA_STORAGE_ERROR, -1)
            assert server.node.logs.opened()[0].new_files
            syncing.error = None
            flush = flusher_module.begin_flush(server.node.logs.opened()[0])
            assert str(tmp_path) in ' '.join(os.readlink(f'/proc/self/fd/{file.fd}') + '/' for file in flush.files
                                             if os.path.isdir(f'/proc/self/fd/{file.fd}'))

    asyncio.run(run())


def test_a_client_that_goes_away_during_a_flush(tmp_path, syncing):
    async def run():
        async with serving(tmp_path) as server:
            one, two = [await Connected.to(server) for _ in range(2)]
            assert outcome(await one.ask(storing(b'first'))) == (0, 0)
            syncing.hold()
            one.send(storing(b'second'))
            await until(lambda: len(syncing.calls) == 2, 'the fsync')
            one.writer.transport.abort()
            two.send(storing(b'third'))
            await until(lambda: server.node.logs.opened()[0].end_offset == 3 and len(server.connections) == 1,
                        'it to be gone')
            syncing.may_return.release(20)
            assert outcome(await two.frame()) == (0, 2)
            assert await high_watermark(two) == 3

    asyncio.run(run())


# --- One broker for a directory ---------------------------------------------------------------------------------------

def test_a_second_broker_is_refused(tmp_path):
    write_log(tmp_path/'logs', metadata_log(foo=1))
    with running(tmp_path) as broker, broker.client() as client:
        assert ask_to_store(client, b'one') == stored_at(0)
        file = properties(tmp_path/'second.properties', node_id=1, listeners=f'PLAINTEXT://127.0.0.1:{free_port()}',
                          log_dirs=tmp_path/'logs')
        second = run_to_end(tmp_path, file)
        assert second.process.returncode == 1 and second.stdout == ''
        assert (second.stderr.splitlines()
                == [f"kafka_scratch: another broker works in {tmp_path/'logs'}, it holds .lock there: stop it, or "
                    f"name another directory"])
        assert ask_to_store(client, b'two') == stored_at(1)
    assert (tmp_path/'logs'/'.kafka_cleanshutdown').exists()
    # it isn't held any more
    with running(tmp_path) as broker, broker.client() as client: assert len(fetched(client, 2)) == 2


@pytest.mark.parametrize('content', ['', '4711'])
def test_a_lock_that_nobody_holds(tmp_path, content):
    write_log(tmp_path/'logs', metadata_log(foo=1))
    (tmp_path/'logs'/'.lock').write_text(content)
    with running(tmp_path) as broker, broker.client() as client: assert ask_to_store(client, b'one') == stored_at(0)


def test_the_lock_of_a_broker_that_was_killed(tmp_path):
    write_log(tmp_path/'logs', metadata_log(foo=1))
    port = free_port()
    file = properties(tmp_path/'server.properties', node_id=1, listeners=f'PLAINTEXT://127.0.0.1:{port}',
                      log_dirs=tmp_path/'logs')
    broker = BrokerProcess(tmp_path, file, port=port)
    try:
        broker.wait_ready()
        with broker.client() as client: assert ask_to_store(client, b'one') == stored_at(0)
    finally: assert broker.stop(signal.SIGKILL) == -signal.SIGKILL
    assert (tmp_path/'logs'/'.lock').exists() and not (tmp_path/'logs'/'.kafka_cleanshutdown').exists()
    with running(tmp_path) as broker, broker.client() as client: assert len(fetched(client, 1)) == 1


def test_a_mark_of_a_clean_end_counts_once(tmp_path):
    """Even if a checkpoint beside it is nonsense: the mark is gone as soon as somebody works here, or a crash would
    look like a clean end."""
    write_log(tmp_path/'logs', metadata_log(foo=1))
    (tmp_path/'logs'/'.kafka_cleanshutdown').write_text('{"version":0,"brokerEpoch":1}')
    (tmp_path/'logs'/'recovery-point-offset-checkpoint').write_text('nonsense')
    with running(tmp_path) as broker:
        wait_until(lambda: not (tmp_path/'logs'/'.kafka_cleanshutdown').exists(), 'the mark to be gone', patience=2)
        assert 'recovery-point-offset-checkpoint' in broker.stderr
    assert (tmp_path/'logs'/'.kafka_cleanshutdown').exists()


# --- Two diaries: a topic is deleted, and its offsets are to be forgotten ---------------------------------------------

DELETE_AND_DIE = """
import os, signal, sys
from kafka_scratch.client.client import Connection
from kafka_scratch.groups.coordinator import GroupCoordinator
from kafka_scratch.groups.find_coordinator import FindCoordinatorRequest, find_coordinator
from kafka_scratch.groups.offset_apis import OffsetCommitRequest, OffsetCommitRequestPartition
from kafka_scratch.groups.offset_apis import OffsetCommitRequestTopic, offset_commit
from kafka_scratch.broker.running import running_broker
from kafka_scratch.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState, delete_topics

def killed(coordinator, names): os.kill(os.getpid(), signal.SIGKILL)
with running_broker(sys.argv[1], {'doomed': 1, 'kept': 1}) as broker:
    connection = Connection('127.0.0.1', broker.port)
    connection.ask(find_coordinator, FindCoordinatorRequest(coordinator_keys=['readers']))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata='')
    topics = [OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in ('doomed', 'kept')]
    connection.ask(offset_commit, OffsetCommitRequest(group_id='readers', generation_id_or_member_epoch=-1, topics=topics))
    GroupCoordinator.topics_deleted = killed
    connection.ask(delete_topics, DeleteTopicsRequest(topics=[DeleteTopicState(name='doomed')], timeout_ms=1000))
"""  # noqa: E501


def committed(broker) -> dict[str, set[str]]:
    "The topics for which groups have committed anything."
    return {group: {topic for topic, _ in offsets} for group, offsets in broker.server.node.groups.offsets.items()}


def test_killed_between_the_end_of_a_topic_and_that_of_its_offsets(tmp_path):
    """The topic is gone; the next start forgets what was committed for it, so that another one of this name starts from
    nothing."""
    done = subprocess.run([sys.executable, '-c', DELETE_AND_DIE, str(tmp_path/'logs')], timeout=60,
                          env=environment(PYTHONPATH=str(ROOT)))
    assert done.returncode == -signal.SIGKILL
    for _ in range(2):   # the second start has nothing left to do
        with running_broker(tmp_path/'logs') as broker:
            assert committed(broker) == {'readers': {'kept'}} and 'doomed' not in broker.server.node.image.topics
            end = {log.topic: log.end_offset for log in broker.server.node.logs.opened()}['__consumer_offsets']
            assert end == 3   # two offsets and a tombstone
    with running_broker(tmp_path/'logs', {'doomed': 1}) as broker: assert committed(broker) == {'readers': {'kept'}}
    # it is there again
    with running_broker(tmp_path/'logs') as broker: assert broker.server.node.image.deleted == set()


def test_offsets_of_a_topic_that_the_metadata_do_not_know_yet_are_kept(tmp_path):
    "Somebody has put an older metadata log back. That a topic isn't in it doesn't mean that it was deleted."
    segment = tmp_path/'logs/__cluster_metadata-0/00000000000000000000.log'
    with running_broker(tmp_path/'logs', {'first': 1}) as broker:
        broker.call(lambda: broker.server.node.groups.store.ensure())
        older = segment.read_bytes()
        broker.create_topics({'second': 1})
        broker.call(lambda: commit_offset(broker.server.node.groups, 'readers', 'second', 42))
    newer = segment.read_bytes()
    for content in (older, newer):
        segment.write_bytes(content)
        with running_broker(tmp_path/'logs') as broker:
            assert (('second' in broker.server.node.image.topics) == (content is newer)
                    and committed(broker) == {'readers': {'second'}})


def commit_offset(groups, group: str, topic: str, offset: int):
    groups.write(group, [(OffsetCommitKey(group=group, topic=topic, partition=0),
                          OffsetCommitValue(offset=offset, metadata='', commit_timestamp=groups.now()))])
