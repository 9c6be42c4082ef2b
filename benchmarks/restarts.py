"""How long a restart takes after ten million commits of a thousand groups: before, after, and beside Apache Kafka.

    python -m benchmarks.restarts                       # about half an hour → results/restarts.md
    python -m benchmarks.restarts --commits 100000      # a few minutes, to see that everything works

The commits are written into the log by this program, in the broker's own format (`fill`, checked against a batch that
the broker writes); through sockets they would take an hour. Each start is timed from the start of the process until
the coordinator has answered OffsetFetch for one group of each of the 50 partitions, with the offset that was committed
last. All of them start after a shutdown in order.
"""
import argparse
import json
import os
import shutil
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from crc32c import crc32c
from benchmarks import machine, processes, real_kafka
from benchmarks.processes import note
from kafka_scratch.client.client import Connection, write_request
from kafka_scratch.groups.coordinator import partition_of, write_key, write_state
from kafka_scratch.groups.find_coordinator import FindCoordinatorRequest, find_coordinator
from kafka_scratch.groups.offset_apis import (
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetFetchRequest,
    OffsetFetchRequestGroup, OffsetFetchRequestTopics, offset_commit, offset_fetch)
from kafka_scratch.groups.offsets import OffsetCommitKey, OffsetCommitValue
from kafka_scratch.log.log_segment import note_batch
from kafka_scratch.log.records import HEADER, Record, write_batch
from kafka_scratch.log.recovery import close_log, open_log

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / 'benchmarks' / 'results'
TOPIC, PARTITIONS, GROUPS = '__consumer_offsets', 50, 1000
LIMIT = 1800  # seconds any one start may take
CRC_AT, BASE_TIME_AT, MAX_TIME_AT, CRC_FROM = 17, 27, 35, 21
AGAIN = 350  # commits of each group after the cleaning: active segments are nearly a megabyte then, the worst case


def group_name(number: int) -> str:
    return f'group-{number:04}'


def commit_batch(group: str, offset: int, now: int) -> bytearray:
    "The batch that the broker writes for a commit."
    key = write_key(OffsetCommitKey(group=group, topic='orders', partition=0))
    value = write_state(OffsetCommitValue(offset=offset, leader_epoch=-1, metadata='', commit_timestamp=now))
    return bytearray(write_batch([Record(key=key, value=value)], base_timestamp=now, max_timestamp=now,
                                 base_sequence=0, partition_leader_epoch=0))


def fill(directory: Path, groups: list[str], commits: int, began: int) -> None:
    "Fill the log of a partition with commits, a round of all groups after the other. Each commits 0, 1, 2, …"
    log = open_log(str(directory))
    templates = []
    for group in groups:
        batch, other = commit_batch(group, 0, 0), commit_batch(group, -1, 0)
        offset_at = next(at for at in range(CRC_FROM, len(batch)) if batch[at] != other[at])
        other = commit_batch(group, 0, -1)
        time_at = max(at for at in range(len(batch)) if batch[at] != other[at]) - 7
        templates.append((batch, memoryview(batch)[CRC_FROM:], HEADER.read(batch, 0)[0], offset_at, time_at))
    number, piece = 0, bytearray()
    for round in range(commits // len(groups)):
        for batch, covered, header, offset_at, time_at in templates:
            now = header.max_timestamp = began + number // 100
            for at, value in ((0, number), (BASE_TIME_AT, now), (MAX_TIME_AT, now), (offset_at, round), (time_at, now)):
                struct.pack_into('>q', batch, at, value)
            struct.pack_into('>I', batch, CRC_AT, crc32c(covered))
            note_batch(log.active, header, number, len(batch))
            piece += batch
            number += 1
        if len(piece) > 1 << 20 or round + 1 == commits // len(groups):
            os.pwrite(log.active.held.fd, piece, log.active.size - len(piece))
            piece.clear()
    assert bytes(batch)[21:] == bytes(commit_batch(groups[-1], round, now))[21:], 'not what the broker writes'
    log.end_offset = log.high_watermark = log.stable_offset = number
    close_log(log)


# --- Servers ----------------------------------------------------------------------------------------------------------

def serve_the_old_way() -> None:
    "The broker of before: every record is decoded, and takes effect."
    from kafka_scratch.broker import server
    from kafka_scratch.groups import coordinator as module
    from kafka_scratch.log.records import read_records

    def replay_partition(store, partition, apply):
        hosted = store.node.logs.find(store.known, partition)
        for batch in module.batches_of(hosted.log):
            for record in read_records(batch):
                module.load_record(apply.args[0], partition, batch, record)
    module.replay_partition = replay_partition
    sys.argv = ['server', *sys.argv[2:]]
    server.main()


class Ours:
    "This broker on a directory."
    def __init__(self, directory: Path, old: bool = False):
        self.directory, self.old, self.port = directory, old, processes.free_port()

    def start(self):
        file = self.directory / 'ours.properties'
        file.write_text(f'node.id=1\nlisteners=PLAINTEXT://127.0.0.1:{self.port}\nlog.dirs={self.directory}/logs\n'
                        'log.cleaner.threads=2\n')
        way = ['-m', 'benchmarks.restarts', '--serve'] if self.old else ['-m', 'kafka_scratch.broker.server']
        self.process = processes.start([sys.executable, *way, file], self.directory / 'ours.out', cwd=ROOT)

    def stop(self): processes.stop(self.process, 120)


class Kafka(real_kafka.RealKafka):
    "Apache Kafka on a directory."
    def __init__(self, directory: Path):
        super().__init__(directory, heap='1g', patience=LIMIT)

    def start(self): return super().start(wait=False)


# --- Questions --------------------------------------------------------------------------------------------------------

def connect(server, deadline: float) -> Connection:
    "A connection, as soon as there is one."
    while True:
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f'no answer from {server}, see {server.directory}')
        try:
            return Connection('127.0.0.1', server.port)
        except OSError:
            time.sleep(.005)


def wait_for_offsets(server, expected: dict[str, int]) -> None:
    "Return when all these groups' offsets are what they should be."
    deadline = time.monotonic() + LIMIT
    connection, left = connect(server, deadline), list(expected)
    while left and time.monotonic() < deadline:
        wanted = [OffsetFetchRequestTopics(name='orders', partition_indexes=[0])]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=left[-1], topics=wanted)])
        answer = connection.ask(offset_fetch, asked, 8)[0].groups[0]
        if answer.error_code:
            time.sleep(.005)
            continue
        found = answer.topics[0].partitions[0].committed_offset
        if found != expected[left[-1]]:
            raise RuntimeError(f'{left[-1]} has committed {expected[left[-1]]}, not {found}')
        left.pop()
    connection.close()
    if left:
        raise RuntimeError(f'no offsets of {left[-1]} after {LIMIT} s')


def timed(name: str, server, expected: dict[str, int]) -> dict:
    "Start a server, wait until it has answered, stop it."
    size = sum(path.stat().st_size for path in server.directory.glob(f'logs/{TOPIC}-*/*.log'))
    began = time.monotonic()
    server.start()
    try:
        wait_for_offsets(server, expected)
        seconds, cpu = time.monotonic() - began, processes.cpu_seconds(server.process.pid)
    finally:
        server.stop()
    note(f'{name}: {seconds:.2f} s, {cpu:.2f} s of processor time, {size / 1e6:,.1f} MB of log')
    return dict(name=name, seconds=seconds, cpu=cpu, megabytes=size / 1e6)


def commit_all(server, offset: int, times: int) -> None:
    "Let every group commit an offset so many times, with 200 requests in flight."
    frames = []
    for number in range(GROUPS):
        wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata='')
        request = OffsetCommitRequest(group_id=group_name(number), member_id='',
                                      topics=[OffsetCommitRequestTopic(name='orders', partitions=[wanted])])
        frames.append(write_request(offset_commit, 7, number, request))
    with socket.create_connection(('127.0.0.1', server.port)) as target:
        source = target.makefile('rb')
        for _ in range(times):
            for start in range(0, GROUPS, 200):
                target.sendall(b''.join(frames[start:start + 200]))
                for _ in range(200):
                    answer = source.read(int.from_bytes(source.read(4), 'big'))
                    assert answer[-2:] == b'\0\0', answer


def log_bytes(directory: Path) -> int:
    def size(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0
    return sum(map(size, directory.glob(f'logs/{TOPIC}-*/*.log*')))


# --- All of it --------------------------------------------------------------------------------------------------------

def make_directory(directory: Path, commits: int) -> None:
    "A directory with the topics, made by Kafka, and commits in them."
    kafka = real_kafka.RealKafka(directory)
    with kafka:
        kafka.create_topics({'orders': 1})
        connection = connect(kafka, time.monotonic() + 60)
        while True:
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_name(0)])
            if not connection.ask(find_coordinator, asked)[0].coordinators[0].error_code:
                break
            time.sleep(.1)
        connection.close()
        real_kafka.wire.wait_for(lambda: kafka.leads({TOPIC: PARTITIONS}), 60, 'the topic of groups')
    began, groups = time.monotonic(), {number: [] for number in range(PARTITIONS)}
    for number in range(GROUPS):
        groups[partition_of(group_name(number), PARTITIONS)].append(group_name(number))
    for partition, names in groups.items():
        fill(directory / 'logs' / f'{TOPIC}-{partition}', names, commits // GROUPS * len(names),
             time.time_ns() // 1_000_000)
    note(f'{commits:,} commits written in {time.monotonic() - began:.0f} s')


def run(scratch: Path, commits: int) -> dict:
    "All starts, one after the other."
    first = {}
    for number in range(GROUPS):
        first.setdefault(partition_of(group_name(number), PARTITIONS), group_name(number))
    before, after = ({group: offset for group in first.values()} for offset in (commits // GROUPS - 1, 10**9))
    ours = scratch / 'ours'
    make_directory(ours, commits)
    shutil.copytree(ours, scratch / 'kafka')
    figures = [timed('Apache Kafka, never cleaned', Kafka(scratch / 'kafka'), before)]
    shutil.rmtree(scratch / 'kafka')
    figures.append(timed('this broker, as it was', Ours(ours, old=True), before))
    figures.append(timed('this broker, never cleaned', Ours(ours), before))
    server, began = Ours(ours), time.monotonic()
    server.start()
    wait_for_offsets(server, before)
    commit_all(server, 10**9, 1)   # now every log rolls
    while log_bytes(ours) > 2e6 and time.monotonic() - began < LIMIT:
        time.sleep(1)
    cleaning = time.monotonic() - began
    note(f'cleaned in {cleaning:.0f} s')
    commit_all(server, 10**9, AGAIN)
    server.stop()
    shutil.copytree(ours, scratch / 'kafka')
    figures.append(timed('this broker, cleaned', Ours(ours), after))
    figures.append(timed('Apache Kafka, the same directory', Kafka(scratch / 'kafka'), after))
    return dict(commits=commits, cleaning=cleaning, starts=figures)


def write_report(found: dict, when: str, who: str, others: str) -> str:
    "The table."
    old = found['starts'][1]['seconds']
    rows = ['| start | log | until all 50 partitions answer | processor time | of what it was |',
            '|---|--:|--:|--:|--:|']
    rows += [f'| {each["name"]} | {each["megabytes"]:,.0f} MB | {each["seconds"]:,.1f} s | {each["cpu"]:,.1f} s '
             f'| {each["seconds"] / old:.3f} |' for each in found['starts']]
    text = f'# A restart after {found["commits"]:,} commits of {GROUPS:,} groups\n\n{when}. {who} {others}\n\n'
    text += '\n'.join(rows) + f'\n\nTo clean what was never cleaned took {found["cleaning"]:.0f} s, by two processes '
    text += 'in the background, after one commit of each group. Then each group committed '
    text += f'{AGAIN} times more, so that the active segments were nearly as large as they get.\n'
    return text


def main() -> None:
    "Measure, and write the report."
    if sys.argv[1:2] == ['--serve']:
        return serve_the_old_way()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--commits', type=int, default=10_000_000)
    options = parser.parse_args()
    if reason := real_kafka.absent():
        raise SystemExit(f'{reason} (It makes the directory.)')
    neighbours = machine.Neighbours()
    with tempfile.TemporaryDirectory() as scratch:
        found = run(Path(scratch), options.commits)
    text = write_report(found, time.strftime('%Y-%m-%d'), machine.describe(), neighbours.describe())
    print(text)
    if options.commits == 10_000_000:
        (RESULTS / 'restarts.md').write_text(text)
        (RESULTS / 'restarts.json').write_text(json.dumps(found, indent=1) + '\n')


if __name__ == '__main__':
    main()
