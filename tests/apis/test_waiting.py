"""Clients that wait for records, and clients that let records wait for them.

A fetch that finds too little waits, for as long as it likes; it costs nothing meanwhile, and nothing is left of it when
its client goes away. A client
that asks for much and reads little gets what it asked for in the end, but the broker doesn't keep it in memory until
then.
"""
import contextlib
import os
import shutil
import socket
import struct
import threading
import time

import pytest
from crc32c import crc32c

from broker_process import FIXTURES, assert_quiet, many_clients, running, wait_until
from by_hand import api_versions, batch, correlation_id, metadata_log, read_api_versions, topic_batch, write_log
from kafka_scratch.cluster.records import ConfigRecord, write_value
from log_by_hand import base_offset, fetch, message_batch, next_offset, placed, produce, read_fetch, read_produce
from log_by_hand import record, record_batch, split

MB = 1 << 20
VERSION = 12          # the last one that knows topics by name
LONG = 30_000         # milliseconds: longer than any test waits
QUICK = 10            # seconds: an answer that came by itself, and not because the time was up
OFFSET_OUT_OF_RANGE = 1
LISTENING = '0A'      # in /proc/net/tcp
TOPIC = 2             # the kind of resource that a ConfigRecord of a topic is about

TOPICS = dict(one=1, late=1, few=1, several=3, order=1, quiet=1, pair=2, gone=1, many=1, committed=1, seg_tx=1, slow=1,
              changed=1)


@pytest.fixture(scope='module')
def broker(tmp_path_factory, loop):
    directory = tmp_path_factory.mktemp('waiting')
    write_log(directory/'logs', metadata_log(**TOPICS))
    # it ends with a transaction that is still open
    shutil.copytree(FIXTURES/'segments'/'logs'/'seg.tx-0', directory/'logs'/'seg_tx-0')
    (directory/'logs'/'seg_tx-0'/'partition.metadata').unlink()
    with running(directory, env=loop) as broker: yield broker


def asking(number: int, topic: str, *offsets: int, **options) -> bytes:
    "A fetch of the first partitions of a topic, from these offsets on."
    return fetch(number, {topic: dict(enumerate(offsets))}, version=VERSION, **{'max_wait_ms': LONG, **options})


def answered(frame: bytes, topic: str) -> list[bytes]:
    "The batches in an answer, of all the partitions."
    answer = read_fetch(frame, VERSION)
    assert answer['error_code'] == 0 and all(partition['error_code'] == 0 for partition
                                             in answer['topics'][topic].values())
    return [batch for _, partition in sorted(answer['topics'][topic].items()) for batch
            in split(partition['records'] or b'')]


def send(broker, topic: str, *values: bytes, partition: int = 0) -> bytes:
    "Stores a batch, by a connection of its own, and returns it as it is stored."
    data = message_batch(*values)
    found = read_produce(broker.ask(produce(1, {topic: {partition: data}})))['topics'][topic][partition]
    assert found['error_code'] == 0
    return placed(data, found['base_offset'])


def end_of(broker, topic: str) -> int:
    return read_fetch(broker.ask(asking(1, topic, 0, max_wait_ms=0)), VERSION)['topics'][topic][0]['high_watermark']


# --- When an answer comes ---------------------------------------------------------------------------------------------

def test_as_soon_as_there_is_something(broker):
    with broker.client() as client:
        client.send(asking(1, 'one', 0))
        assert client.stays_open(0.2)
        started = time.monotonic()
        data = send(broker, 'one', b'hello')
        assert answered(client.frame(), 'one') == [data]
        assert time.monotonic() - started < QUICK


def test_when_the_time_is_up(broker):
    with broker.client() as client:
        started = time.monotonic()
        assert answered(client.ask(asking(1, 'late', 0, max_wait_ms=500)), 'late') == []
        assert 0.45 < time.monotonic() - started < QUICK


def test_what_there_is_when_the_time_is_up(broker):
    "Too little is better than nothing, but it isn't enough to be told before."
    data = send(broker, 'few', b'one')
    with broker.client() as client:
        started = time.monotonic()
        client.send(asking(1, 'few', 0, max_wait_ms=700, min_bytes=10_000))
        data += send(broker, 'few', b'two')
        assert b''.join(answered(client.frame(), 'few')) == data
        assert 0.65 < time.monotonic() - started < QUICK


def test_enough_from_several_partitions(broker):
    size = len(message_batch(b'x' * 100))
    with broker.client() as client:
        client.send(asking(1, 'several', 0, 0, 0, min_bytes=3 * size))
        expected = []
        for partition in (2, 0, 1):
            assert client.stays_open(0.15), f'answered before partition {partition} had anything'
            expected.append((partition, send(broker, 'several', b'x' * 100, partition=partition)))
        assert answered(client.frame(), 'several') == [data for _, data in sorted(expected)]


def test_new_metadata_is_no_reason_to_answer(tmp_path):
    "Somebody makes another topic: who waits for this one goes on waiting, and is told of records as before."
    path = write_log(tmp_path/'logs', metadata_log(foo=1))
    with running(tmp_path) as broker, broker.client() as client:
        client.send(asking(1, 'foo', 0))
        assert client.stays_open(0.2)
        with open(path, 'ab') as log: log.write(topic_batch(3, 'bar'))
        wait_until(lambda: read_fetch(broker.ask(asking(2, 'bar', 0, max_wait_ms=0)),
                                      VERSION)['topics']['bar'][0]['error_code'] == 0, 'the new topic')
        client.socket.settimeout(0.3)
        early = None
        with contextlib.suppress(TimeoutError): early = client.frame()
        client.socket.settimeout(20)
        assert not early, 'new metadata made all that wait answer early'
        data = send(broker, 'foo', b'hello')
        assert answered(client.frame(), 'foo') == [data]


# --- Order ------------------------------------------------------------------------------------------------------------

def test_nothing_overtakes_a_fetch_that_waits(broker):
    with broker.client() as client:
        client.send(asking(1, 'order', 0) + api_versions(2) + asking(3, 'order', 0) + asking(4, 'order',
            1) + api_versions(5))
        assert client.stays_open(0.2)
        first = send(broker, 'order', b'one')
        assert answered(client.frame(), 'order') == [first]
        assert read_api_versions(client.frame())['correlation_id'] == 2
        assert answered(client.frame(), 'order') == [first]
        assert client.stays_open(0.2)
        second = send(broker, 'order', b'two')
        assert answered(client.frame(), 'order') == [second]
        assert read_api_versions(client.frame())['correlation_id'] == 5


def test_woken_twice(broker):
    """Two partitions get something at the same time, and either would have been enough. The next fetch on the
    connection waits all the same."""
    with broker.client() as client, broker.client() as producer:
        started = time.monotonic()
        client.send(asking(1, 'pair', 0, 0) + asking(2, 'quiet', 0, max_wait_ms=1000))
        assert client.stays_open(0.1)
        producer.ask(produce(1, {'pair': {0: message_batch(b'one'), 1: message_batch(b'two')}}))
        assert len(answered(client.frame(), 'pair')) == 2
        woken = time.monotonic()
        assert answered(client.frame(), 'quiet') == []
        assert time.monotonic() - woken > 0.9 and woken - started < QUICK


def test_many_requests_behind_a_fetch_that_waits(broker):
    "More than the broker likes to keep: it stops reading, and goes on when it can."
    n = 40_000
    sent = asking(0, 'changed', 0, max_wait_ms=700) + b''.join(api_versions(number) for number in range(1, n))
    assert len(sent) > MB
    with broker.client() as client:
        sender = threading.Thread(target=client.send, args=(sent,), daemon=True)
        sender.start()
        for number in range(n): assert correlation_id(client.frame()) == number
        sender.join()


def test_fetches_behind_fetches_that_wait(broker):
    "A client that asks faster than its time is up: the broker reads no more of it than it can put aside."
    sent = asking(0, 'quiet', 0, max_wait_ms=1) * 400_000
    assert len(sent) > 30 * MB
    before = broker.memory()
    with broker.client() as client:
        client.socket.settimeout(0.2)
        at, deadline = 0, time.monotonic() + 4
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError): at += client.socket.send(sent[at:at + MB])
            with contextlib.suppress(BlockingIOError): client.socket.recv(MB, socket.MSG_DONTWAIT)
        assert broker.memory() - before < 12 * MB
    assert read_api_versions(broker.ask(api_versions(1)))


# --- Clients that go away ---------------------------------------------------------------------------------------------

def connections(broker) -> int:
    "How many connections the broker has."
    ours = {name[8:-1] for name in open_files(broker) if name.startswith('socket:')}
    rows = [line.split() for line in broker.proc('net/tcp').read_text().splitlines()[1:]]
    return sum(row[9] in ours and row[1].endswith(f':{broker.port:04X}') and row[3] != LISTENING for row in rows)


def open_files(broker) -> list[str]:
    "What the broker has open, as Linux calls it."
    names = []
    for link in broker.proc(f'{broker.pid}/fd').iterdir():
        with contextlib.suppress(FileNotFoundError): names.append(os.readlink(link))   # it was closed meanwhile
    return names


@pytest.mark.parametrize('how', ['closed', 'reset', 'half closed'])
def test_nothing_is_left_of_who_went_away(broker, how):
    end = end_of(broker, 'gone')
    wait_until(lambda: connections(broker) == 0, 'older connections to be closed')
    with many_clients(broker, 100) as clients:
        for number, client in enumerate(clients): client.send(asking(number, 'gone', end))
        wait_until(lambda: connections(broker) == 100, 'the connections')
        for client in clients:
            if how == 'reset': client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            if how == 'half closed': client.half_close()
            else: client.close()
        wait_until(lambda: connections(broker) == 0, 'the connections to be closed')
    data = send(broker, 'gone', b'is anybody there?')
    assert answered(broker.ask(asking(1, 'gone', end)), 'gone') == [data]
    assert_quiet(broker)


# --- Many of them -----------------------------------------------------------------------------------------------------

def ticks(broker) -> int:
    "How much of the processor the broker has used, in units of 10 ms."
    fields = broker.proc(f'{broker.pid}/stat').read_text().rpartition(')')[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_thousand_that_wait(broker):
    "They cost no time while they wait, and all of them are told."
    end = end_of(broker, 'many')
    with many_clients(broker, 1000) as clients:
        for number, client in enumerate(clients): client.send(asking(number, 'many', end, isolation=number % 2))
        assert read_api_versions(broker.ask(api_versions(1)))['correlation_id'] == 1
        wait_until(lambda: settled(broker), 'the broker to be idle')
        before = ticks(broker)
        time.sleep(2)
        assert ticks(broker) - before <= 10
        started = time.monotonic()
        data = send(broker, 'many', b'to all of you')
        for number, client in enumerate(clients):
            frame = client.frame()
            assert correlation_id(frame) == number and answered(frame, 'many') == [data]
        assert time.monotonic() - started < QUICK


def settled(broker) -> bool:
    before = ticks(broker)
    time.sleep(0.3)
    return ticks(broker) - before <= 2


# --- Decided records --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('isolation', [0, 1])
def test_who_reads_decided_records_is_told_as_well(broker, isolation):
    end = end_of(broker, 'committed')
    size = len(message_batch(b'x' * 100))
    with broker.client() as client:
        client.send(asking(1, 'committed', end, isolation=isolation, min_bytes=2 * size))
        assert client.stays_open(0.1)
        first = send(broker, 'committed', b'x' * 100)
        assert client.stays_open(0.1)
        second = send(broker, 'committed', b'x' * 100)
        assert answered(client.frame(), 'committed') == [first, second]


def test_an_open_transaction_holds_up_who_reads_decided_records(broker):
    "What comes after its beginning isn't decided, whoever sent it."
    stable = 17
    with broker.client() as client, broker.client() as other:
        started = time.monotonic()
        client.send(asking(1, 'seg_tx', stable, isolation=1, max_wait_ms=800))
        assert len(answered(other.ask(asking(2, 'seg_tx', stable)), 'seg_tx')) > 0
        send(broker, 'seg_tx', b'no transaction')
        answer = read_fetch(client.frame(), VERSION)['topics']['seg_tx'][0]
        assert 0.75 < time.monotonic() - started < QUICK
        assert (answer['records'], answer['last_stable_offset'], answer['aborted']) == (b'', stable, [])
        assert answer['high_watermark'] > stable
        found = read_fetch(client.ask(asking(3, 'seg_tx', 0, isolation=1)), VERSION)['topics']['seg_tx'][0]
        assert next_offset(split(found['records'])[-1]) == stable and len(found['aborted']) > 0


# --- Much, and slowly -------------------------------------------------------------------------------------------------

BATCH = record_batch([record(bytes(MB - 200))])
PER_SEGMENT = 200


def write_partition(directory, batches: int):
    """A gigabyte that takes little time and less disk: the batches differ in their offsets only, and the zeros in them
    are holes in the files."""
    directory.mkdir()
    end = len(BATCH.rstrip(b'\0'))
    for first in range(0, batches, PER_SEGMENT):
        with open(directory/f'{first:020}.log', 'wb') as file:
            for number in range(min(PER_SEGMENT, batches - first)):
                file.seek(number * len(BATCH))
                file.write(placed(BATCH, first + number)[:end])
            file.truncate((number + 1) * len(BATCH))
    (directory.parent/'.kafka_cleanshutdown').write_text('{"version":0,"brokerEpoch":1}')


def peak(broker) -> int:
    "The most memory that the broker ever had."
    return next(int(line.split()[1]) << 10 for line in broker.proc(f'{broker.pid}/status').read_text().splitlines()
                if line.startswith('VmHWM'))


def read_on(client, records: list, batches: int, pause: float = 0):
    "Fetches a partition to its end; keeps of it the offsets, and what is wrong."
    offset = 0
    while offset < batches:
        partition = read_fetch(client.ask(asking(1, 'slow', offset, max_bytes=50 * MB, partition_max_bytes=50 * MB)),
                               VERSION)['topics']['slow'][0]
        if partition['error_code']: return records.append(f'error {partition["error_code"]}')
        for data in split(partition['records']):
            records.append(base_offset(data))
            if data[8:] != BATCH[8:]: return records.append('other bytes')
            offset += 1
        time.sleep(pause)


def test_a_gigabyte_for_slow_clients(tmp_path, loop):
    """Served completely, in answers of up to 50 MB, while others ask for as much and don't read.

    All that is on its way to clients may take 16 MB, and one batch for each of them; an answer that is being made is
    there up to four times:
    as it was read, as a message, in its frame, and in the socket's buffer. That is 64 MB, and 16 for the clients; the
    rest is for the allocator.
    """
    batches = 1000
    write_log(tmp_path/'logs', metadata_log(slow=1))
    write_partition(tmp_path/'logs'/'slow-0', batches)
    with running(tmp_path, env=loop, log_retention_ms=-1) as broker, contextlib.ExitStack() as stack:
        assert read_api_versions(broker.ask(api_versions(1)))['correlation_id'] == 1
        before = broker.memory()
        silent = [stack.enter_context(broker.client(receive_buffer=65536)) for _ in range(12)]
        for number, client in enumerate(silent):
            client.send(asking(1, 'slow', number * 50, max_bytes=50 * MB, partition_max_bytes=50 * MB) * 3)
        slow, quick = [], []
        reader = threading.Thread(target=read_on, args=(stack.enter_context(broker.client(receive_buffer=65536)), slow,
                                                        40, 0.05), daemon=True)
        reader.start()
        read_on(stack.enter_context(broker.client(patience=60)), quick, batches)
        reader.join(60)
        assert quick == [*range(batches)] and slow[:40] == [*range(40)] and not {*map(type, slow)} - {int}
        assert peak(broker) - before < 150 * MB
        for number, client in enumerate(silent[:3]):   # they read after all
            for _ in range(3): assert base_offset(answered(client.frame(), 'slow')[0]) == number * 50


def test_records_that_are_deleted_while_somebody_reads_them(tmp_path, loop):
    "An answer that is on its way arrives whole; who asks again is told that the records are gone."
    settings = {'retention.bytes': str(5 * MB), 'retention.ms': '-1'}
    values = [write_value(ConfigRecord(resource_type=TOPIC, resource_name='slow', name=name, value=value), 0) for name,
              value in settings.items()]
    write_log(tmp_path/'logs', metadata_log(slow=1) + batch(values, 3))
    write_partition(tmp_path/'logs'/'slow-0', 2 * PER_SEGMENT + 10)
    first, last = (tmp_path/'logs'/'slow-0'/f'{base:020}.log' for base in (0, 2 * PER_SEGMENT))
    with running(tmp_path, env=loop,
                 log_retention_check_interval_ms=500) as broker, broker.client(receive_buffer=65536) as client:
        client.send(asking(1, 'slow', 0, max_bytes=50 * MB, partition_max_bytes=50 * MB))
        head = client.receive(100_000)
        wait_until(lambda: not first.exists(), 'the first segment to be removed')
        client.received[:0] = head
        found = answered(client.frame(), 'slow')
        assert len(found) >= 10 and [base_offset(data) for data
                                     in found] == [*range(len(found))] and all(data[8:] == BATCH[8:] for data in found)
        gone = read_fetch(client.ask(asking(2, 'slow', len(found))), VERSION)['topics']['slow'][0]
        assert gone['error_code'] == OFFSET_OUT_OF_RANGE
        assert last.exists() and base_offset(answered(client.ask(asking(3, 'slow', 2 * PER_SEGMENT)),
                                                      'slow')[0]) == 2 * PER_SEGMENT
        assert not [link for link in open_files(broker)
                    if link.endswith('(deleted)')], 'nobody needs those that are gone'


def test_the_batch_is_a_batch():
    assert crc32c(BATCH[21:]) == int.from_bytes(BATCH[17:21], 'big') and abs(len(BATCH) - MB) < 200
