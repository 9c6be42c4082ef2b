"""Compaction: how fast a log is cleaned, in how much memory, and what clients notice of it.

    python -m benchmarks.cleaner                          # a large log, cleaned by the limit, us and Kafka's cleaner
    python -m benchmarks.cleaner --gigabytes 0.2          # a small one: does everything work?
    python -m benchmarks.cleaner --latency                # Produce and Fetch beside a cleaner at work, and without one

The log is made once: segments of 512 MB, batches of 100 records, every key written about ten times. Each cleaner gets
the same files (hard links: nobody writes into them) and leaves the same records, or the run fails. The limit reads and
writes as many bytes, and nothing else. Kafka's cleaner is its own class in a Java process
(`tests/cleaner/java/CleanLog.java`); ours is the process that the broker starts.
"""
import argparse
import json
import os
import random
import select
import shutil
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'tests' / 'helpers'))
from benchmarks import log_requests, machine, processes, real_kafka, wire
from benchmarks.processes import note
from benchmarks.requests import write_properties

RESULTS = Path(__file__).parent / 'results'
SEGMENT = 512 << 20
RECORDS = 100               # in a batch
SETTINGS = {'cleanup.policy': 'compact', 'segment.bytes': SEGMENT, 'min.cleanable.dirty.ratio': 0.01}
RATE, CONNECTIONS = 500, 8  # requests a second, on so many connections, half of them Produce and half Fetch


# --- The log ----------------------------------------------------------------------------------------------------------

def write_log(directory: Path, size: int, value_size: int) -> tuple[int, int]:
    "A partition's directory with so many bytes, and an active segment after them. Its end offset, and how many keys."
    from kafka_scratch.log.records import Record, write_batch
    from kafka_scratch.log.segments import file_name
    directory.mkdir(parents=True)
    keys = max(size // value_size // 10, 1000)
    chance, value, offset, written = random.Random(1), random.Random(2).randbytes(value_size), 0, 0
    def batch(count: int) -> bytes:
        records = [Record(offset_delta=delta, key=b'key-%010d' % chance.randrange(keys), value=value)
                   for delta in range(count)]
        now = time.time_ns() // 1_000_000
        return write_batch(records, offset, base_timestamp=now, max_timestamp=now)
    while written < size:
        with open(directory / file_name(offset), 'wb') as file:
            while file.tell() < SEGMENT - (1 << 20) and written < size:
                made = batch(RECORDS)
                file.write(made)
                written, offset = written + len(made), offset + RECORDS
        note(f'{written / 1e9:.1f} of {size / 1e9:.1f} GB written')
    (directory / file_name(offset)).write_bytes(batch(1))
    return offset + 1, keys


def linked(directory: Path, to: Path) -> Path:
    "The same log once more, without its bytes."
    shutil.copytree(directory, to, copy_function=os.link)
    return to


def peak_memory(pid: int) -> int:
    "The most memory that a process has had."
    lines = Path(f'/proc/{pid}/status').read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith('VmHWM'))


# --- Who cleans it ----------------------------------------------------------------------------------------------------

def clean_with_ours(directory: Path, memory: int) -> dict:
    "The process that the broker starts; what it makes is taken over, as the broker does it."
    from kafka_scratch.cluster.cleaner_process import Worker, pass_to_json
    from kafka_scratch.log.clean_log import begin_pass, load_cleaned, remove_all, take_over
    from kafka_scratch.log.cleanable import cleanable
    from kafka_scratch.log.cleaner import Cleaned
    from kafka_scratch.log.partition import LogConfig
    from kafka_scratch.log.recovery import close_log, open_log
    log = open_log(str(directory), LogConfig(cleanup_policy='compact', segment_bytes=SEGMENT))
    worker, first, passes = Worker(memory, 0.9, 1e18), None, 0
    began, before = time.monotonic(), log.size
    try:
        while (found := cleanable(log, first, 0)).dirty_bytes:
            line, news = pass_to_json(begin_pass(log, found, time.time_ns() // 1_000_000)), []
            worker.do(line, news.append)
            for answer in news:
                if 'error' in answer: raise RuntimeError(answer['error'])
                if 'made' not in answer: continue
                made = Cleaned(*answer['made'])
                remove_all(take_over(log, made, *load_cleaned(log, made)))
            first, passes = news[-1]['end'], passes + 1
        return figures(worker.process.pid, began, before, log.size, passes)
    finally:
        worker.stop()
        close_log(log)


def clean_with_kafka(directory: Path, memory: int) -> dict:
    "Kafka's own cleaner, with the options of a server."
    import cleaner_oracle
    cleaner_oracle.OPTIONS = (*real_kafka.SERVER_OPTIONS, '-Xmx1g', '-Dorg.slf4j.simpleLogger.defaultLogLevel=off')
    before = size_of(directory)
    with cleaner_oracle.Oracle() as kafka:
        began = time.monotonic()
        said = kafka.clean(directory, SETTINGS, now=time.time_ns() // 1_000_000, memory=memory, passes=100)
        return figures(kafka.process.pid, began, before, size_of(directory), len(said.get('passes', [1])))


def copy_only(directory: Path) -> dict:
    "The limit: every byte is read twice, and a tenth of them written and synced."
    began, cpu, before = time.monotonic(), time.process_time(), size_of(directory)
    with open(directory / 'copy', 'wb') as copy:
        for path in sorted(directory.glob('*.log')):
            for turn in range(2):
                with open(path, 'rb') as file:
                    while data := file.read(1 << 20):
                        if turn: copy.write(data[:len(data) // 10])
        copy.flush()
        os.fsync(copy.fileno())
    after = (directory / 'copy').stat().st_size
    found = figures(os.getpid(), began, before, after, 1)
    return {**found, 'cpu': time.process_time() - cpu}


def size_of(directory: Path) -> int: return sum(path.stat().st_size for path in directory.glob('*.log'))


def figures(pid: int, began: float, before: int, after: int, passes: int) -> dict:
    seconds = time.monotonic() - began
    return {'seconds': seconds, 'cpu': processes.cpu_seconds(pid), 'memory': peak_memory(pid), 'before': before,
            'after': after, 'passes': passes, 'rate': before / 1e6 / seconds}


def offsets_in(directory: Path) -> list[int]:
    "The offsets that are left, a batch at a time: first, last, how many."
    from kafka_scratch.log.segments import File, placed_batches, segments
    found = []
    for _, path in segments(directory):
        file = File(path)
        found += [(placed.header.base_offset, placed.header.last_offset_delta, placed.header.record_count)
                  for placed in placed_batches(file, 0, file.size())]
    return found


def throughput(scratch: Path, gigabytes: float, value_size: int, memory: int) -> dict:
    "One log, cleaned by each."
    _, keys = write_log(scratch / 'made' / 'big-0', int(gigabytes * 1e9), value_size)
    cleaners = {'the limit': lambda directory: copy_only(directory),
                'kafka_scratch': lambda directory: clean_with_ours(directory, memory)}
    if reason := real_kafka.absent(): note(reason)
    else: cleaners['Apache Kafka'] = lambda directory: clean_with_kafka(directory, memory)
    results, left = {}, {}
    for name, clean in cleaners.items():
        directory = linked(scratch / 'made' / 'big-0', scratch / name.replace(' ', '-') / 'big-0')
        results[name] = clean(directory)
        note(name, {key: round(value, 2) for key, value in results[name].items()})
        if name != 'the limit': left[name] = offsets_in(directory)
        shutil.rmtree(directory)
    if len(left) == 2: assert left['kafka_scratch'] == left['Apache Kafka'], 'they have not left the same records'
    return {'gigabytes': gigabytes, 'value_size': value_size, 'keys': keys, 'dedupe_buffer': memory,
            'cleaners': results}


# --- What clients notice ----------------------------------------------------------------------------------------------

class Probe:
    "A connection, with requests that are sent at their time, whatever became of those before."
    def __init__(self, port: int, requests: list[bytes]):
        self.socket = socket.create_connection(('127.0.0.1', port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests, self.number, self.waiting, self.received, self.took = requests, 0, [], bytearray(), []

    def send(self, when: float):
        self.waiting.append(when)
        self.socket.sendall(self.requests[self.number % len(self.requests)])
        self.number += 1

    def receive(self):
        self.received += self.socket.recv(1 << 18)
        while len(self.received) >= 4:
            size = 4 + struct.unpack_from('>i', self.received)[0]
            if len(self.received) < size: break
            del self.received[:size]
            self.took.append(time.monotonic() - self.waiting.pop(0))


def probe(port: int, seconds: float, topic: bytes) -> dict:
    "Latencies of Produce and of Fetch at a fixed rate, in seconds."
    chance = random.Random(3)
    writes = [wire.produce_request(topic, {0: batch}) for batch in log_requests.batches(64, 1, chance)]
    reads = [wire.fetch_request(topic, {0: number}, 1000) for number in range(64)]
    probes = [Probe(port, reads if number % 2 else writes) for number in range(CONNECTIONS)]
    began, number, count = time.monotonic(), 0, int(seconds * RATE)
    by_socket = {each.socket: each for each in probes}
    while number < count or any(each.waiting for each in probes):
        due = began + number / RATE
        if number < count and time.monotonic() >= due:
            probes[number % CONNECTIONS].send(due)
            number += 1
            continue
        wait = max(due - time.monotonic(), 0) if number < count else 5
        ready = select.select(list(by_socket), [], [], wait)[0]
        if not ready and number >= count: raise TimeoutError('no answer for five seconds')
        for each in ready: by_socket[each].receive()
    for each in probes: each.socket.close()
    found = {}
    for name, part in (('produce', probes[::2]), ('fetch', probes[1::2])):
        took = sorted(value for each in part for value in each.took)
        found |= {f'{name} p50': took[len(took) // 2], f'{name} p99': took[int(len(took) * 0.99)],
                  f'{name} max': took[-1]}
    return found


def latency(scratch: Path, gigabytes: float, value_size: int, seconds: float) -> dict:
    "Each server twice on the same directory: with its cleaner off, and at work on a large log."
    from kafka_scratch.broker.running import running_broker
    home = scratch / 'logs'
    with running_broker(home, topics={'big': {'partitions': 1, **SETTINGS}, 'small': 1}) as broker:
        topic = broker.server.node.image.topics['small'].topic_id
    shutil.rmtree(home / 'big-0', ignore_errors=True)
    write_log(home / 'big-0', int(gigabytes * 1e9), value_size)
    results = {}
    for cleaner in False, True:
        settings = {'log.cleaner.enable': str(cleaner).lower(), 'log.cleaner.backoff.ms': 100}
        for name, start in (('kafka_scratch', start_ours), ('Apache Kafka', start_kafka)):
            if name == 'Apache Kafka' and real_kafka.absent(): continue
            directory = scratch / f'{name}-{cleaner}'.replace(' ', '-')
            shutil.copytree(home, directory / 'logs', copy_function=os.link,
                            ignore=shutil.ignore_patterns('.lock', '.kafka_cleanshutdown'))
            for path in (directory / 'logs').rglob('*'):   # what is written to has to be a file of its own
                if path.is_file() and (path.stat().st_size < 1 << 20): path.write_bytes(replaced(path))
            with start(directory, settings) as (port, pid):
                probe(port, seconds / 2, topic)   # warm
                cpu, began = processes.cpu_seconds(pid), time.monotonic()
                results[name, cleaner] = probe(port, seconds, topic)
                results[name, cleaner]['cpu'] = (processes.cpu_seconds(pid) - cpu) / (time.monotonic() - began)
                at_work = any((directory / 'logs' / 'big-0').glob('*.cleaned'))
            note(name, 'cleaning' if cleaner else 'not cleaning', 'at work to the end' if at_work else '',
                 {key: round(value * 1e3, 2) for key, value in results[name, cleaner].items()})
            results[name, cleaner]['at_work'] = at_work
            shutil.rmtree(directory)
    return {'seconds': seconds, 'rate': RATE, 'servers': {f'{name}, {"cleaning" if on else "not cleaning"}': found
                                                          for (name, on), found in results.items()}}


def replaced(path: Path) -> bytes:
    data = path.read_bytes()
    path.unlink()
    return data


class start_ours:
    "This broker on a directory: its port and its process."
    def __init__(self, directory: Path, settings: dict):
        self.port = processes.free_port()
        self.file, self.output = directory / 'server.properties', directory / 'out'
        write_properties(self.file, self.port, directory / 'logs')
        with open(self.file, 'a') as file: file.writelines(f'{key}={value}\n' for key, value in settings.items())
    def __enter__(self):
        self.process = processes.start([sys.executable, '-m', 'kafka_scratch.broker.server', self.file], self.output)
        processes.wait_for_port(self.port, self.process, 60, self.output)
        return self.port, self.process.pid
    def __exit__(self, *_): processes.stop(self.process)


class start_kafka:
    "Apache Kafka on a directory that this broker wrote: its port and its process."
    def __init__(self, directory: Path, settings: dict):
        self.kafka = real_kafka.RealKafka(directory, settings, heap='1g', patience=120)
    def __enter__(self):
        self.kafka.start()
        return self.kafka.port, self.kafka.pid
    def __exit__(self, *_): self.kafka.stop()


# --- Tables -----------------------------------------------------------------------------------------------------------

def throughput_table(found: dict) -> str:
    kafka = found['cleaners'].get('Apache Kafka')
    rows = ['| | MB/s | of Kafka | processor time, s | of Kafka | memory, MB | log before, MB | after | passes |',
            '|---|--:|--:|--:|--:|--:|--:|--:|--:|']
    for name, each in found['cleaners'].items():
        rate, cpu = (f'{each["rate"] / kafka["rate"]:.2f}', f'{each["cpu"] / kafka["cpu"]:.2f}') if kafka else ('', '')
        rows.append(f'| {name} | {each["rate"]:.0f} | {rate} | {each["cpu"]:.1f} | {cpu} | {each["memory"] / 1e6:.0f} '
                    f'| {each["before"] / 1e6:,.0f} | {each["after"] / 1e6:,.0f} | {each["passes"]} |')
    return '\n'.join(rows)


def latency_table(found: dict) -> str:
    columns = 'produce p50', 'produce p99', 'produce max', 'fetch p50', 'fetch p99', 'fetch max'
    rows = [f'| ms | {" | ".join(columns)} | processor |', '|---|' + '--:|' * 7]
    for name, each in found['servers'].items():
        times = ' | '.join(f'{each[column] * 1e3:.2f}' for column in columns)
        rows.append(f'| {name} | {times} | {each["cpu"]:.0%} |')
    return '\n'.join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--gigabytes', type=float, default=10, help='how large the log is')
    parser.add_argument('--value-size', type=int, default=1000, help='bytes of a value')
    parser.add_argument('--memory', type=int, default=128 << 20, help="bytes for the table of keys, as Kafka's default")
    parser.add_argument('--latency', action='store_true', help='measure what clients notice instead')
    parser.add_argument('--seconds', type=float, default=20)
    parser.add_argument('--scratch', type=Path, help='a directory with much room')
    options = parser.parse_args()
    processes.end_cleanly_on_sigterm()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        if options.latency: found = latency(Path(scratch), options.gigabytes, options.value_size, options.seconds)
        else: found = throughput(Path(scratch), options.gigabytes, options.value_size, options.memory)
    name, table = ('cleaner_latency', latency_table) if options.latency else ('cleaner', throughput_table)
    text = f'{table(found)}\n\n{machine.describe()}'
    print(text)
    (RESULTS / f'{name}.json').write_text(json.dumps(found, indent=1) + '\n')
    (RESULTS / f'{name}.md').write_text(f'{text}\n')


if __name__ == '__main__': main()
