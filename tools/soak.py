#!/usr/bin/env python3
"""A soak test: Kafka Streams, Connect and a topic like `_schemas` on this broker, while it cleans and is killed.

    tools/soak.py                            half an hour, three kills
    tools/soak.py --minutes 2 --kills 1      does everything work?
    tools/soak.py --keep DIRECTORY           leaves the logs and what everybody said in a new directory

Everything at once: records and transactions of 5000 keys, counted by two instances of a Streams application (exactly
once, stores with changelogs); a file that a Connect worker reads into a topic (exactly once), and a topic that it
writes to a file (at least once); keys that are written again and again, read from the beginning every 20 seconds.
Segments are small, so that the cleaner has work all the time. The broker is killed (-9) at random times, while it
cleans; one of the instances once (and loses its stores), the worker once. At the end the counts are exact, or the exit
code is 1.

Needs confluent-kafka, Java 17 with javac, and Maven, which fetches the jars once.
"""
import argparse
import collections
import contextlib
import datetime
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import soak_load as load
from soak_load import PATIENCE, Run
from benchmarks import machine, processes, real_kafka
from benchmarks.processes import note

VERSION = real_kafka.VERSION
CACHE = Path.home()/'.cache'/'kafka_scratch'/f'soak-{VERSION}'
JARS = (('org.apache.kafka', 'kafka-streams', VERSION), ('org.apache.kafka', 'connect-runtime', VERSION),
        ('org.apache.kafka', 'connect-file', VERSION), ('org.slf4j', 'slf4j-simple', '1.7.36'))
PROGRAM = ROOT/'tests'/'soak'/'java'/'Counts.java'
TALLY = 30               # seconds between two lines that say how far it is
BROKER = {'process.roles': 'broker,controller', 'node.id': 1, 'auto.create.topics.enable': 'false',
          'offsets.topic.replication.factor': 1, 'transaction.state.log.replication.factor': 1,
          'transaction.state.log.min.isr': 1, 'group.initial.rebalance.delay.ms': 0,
          'log.segment.bytes': 1 << 20, 'offsets.topic.segment.bytes': 1 << 20,
          'transaction.state.log.segment.bytes': 1 << 20, 'log.roll.ms': 30_000,
          'log.cleaner.min.cleanable.ratio': 0.1, 'log.cleaner.backoff.ms': 200,
          'log.cleaner.delete.retention.ms': load.TOMBSTONES_STAY * 1000}
WORKER = {'group.id': 'connect', 'config.storage.topic': 'connect-configs', 'offset.storage.topic': 'connect-offsets',
          'status.storage.topic': 'connect-status', 'config.storage.replication.factor': 1,
          'offset.storage.replication.factor': 1, 'status.storage.replication.factor': 1,
          'offset.storage.partitions': 5, 'key.converter': 'org.apache.kafka.connect.storage.StringConverter',
          'value.converter': 'org.apache.kafka.connect.storage.StringConverter', 'offset.flush.interval.ms': 2000,
          'exactly.once.source.support': 'enabled', 'scheduled.rebalance.max.delay.ms': 0}


# --- programs ---------------------------------------------------------------------------------------------------------

def classes() -> Path:
    "Our own program, compiled; the jars that it needs are fetched first."
    if not (CACHE/'libs').exists():
        note('fetching Kafka Streams and Connect (once)')
        real_kafka.fetch_jars(CACHE/'libs', JARS)
    directory = CACHE/hashlib.sha256(PROGRAM.read_bytes()).hexdigest()[:12]
    if not directory.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            subprocess.run(['javac', '-d', f'{scratch}/new', '-cp', f'{CACHE}/libs/*', PROGRAM], check=True,
                           timeout=300)
            os.rename(f'{scratch}/new', directory)
    return directory


def java(main_class: str, *arguments) -> list:
    return [real_kafka.java(), '-Xmx256m', '-XX:+UseSerialGC', real_kafka.QUIET, '-cp',
            f'{classes()}{os.pathsep}{CACHE}/libs/*', main_class, *arguments]


def write_properties(path: Path, properties: dict) -> Path:
    path.write_text(''.join(f'{name}={value}\n' for name, value in properties.items()))
    return path


class Program:
    "A process that can be killed and started again; what it says is in two files."
    def __init__(self, name: str, directory: Path, command: list):
        self.command, self.process = [str(word) for word in command], None
        self.out, self.err = directory/f'{name}.out', directory/f'{name}.err'

    def start(self):
        with open(self.out, 'ab') as out, open(self.err, 'ab') as err:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            start_new_session=True)

    def kill(self):
        "This process alone, as a crash does it: what it has started has to notice by itself."
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def stop(self):
        if self.process: processes.stop(self.process, 60)

    def running(self) -> bool: return self.process is not None and self.process.poll() is None


def start_broker(broker: Program, port: int) -> float:
    "Seconds until it listens."
    began = time.monotonic()
    broker.start()
    processes.wait_for_port(port, broker.process, 60, broker.err)
    return time.monotonic() - began


# --- Connect ----------------------------------------------------------------------------------------------------------

CONNECTORS = {'source': {'connector.class': 'org.apache.kafka.connect.file.FileStreamSourceConnector',
                         'topic': 'lines', 'exactly.once.support': 'required', 'tasks.max': 1},
              'sink': {'connector.class': 'org.apache.kafka.connect.file.FileStreamSinkConnector',
                       'topics': 'items', 'tasks.max': 2}}


def rest(port: int, method: str, path: str, body: dict | None = None):
    request = urllib.request.Request(f'http://127.0.0.1:{port}{path}', method=method,
                                     data=json.dumps(body).encode() if body is not None else None,
                                     headers={'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=60) as answer: return json.loads(answer.read() or b'null')


def create_connectors(run: Run, port: int):
    "As soon as the worker answers."
    deadline = time.monotonic() + PATIENCE
    for name, config in CONNECTORS.items():
        config = {**config, 'file': str(run.directory/f'{name}.txt')}
        while True:
            try: rest(port, 'PUT', f'/connectors/{name}/config', config); break
            except (OSError, ValueError):
                if time.monotonic() > deadline: raise
                time.sleep(0.5)


def restart_failed(run: Run, port: int):
    "Connect leaves a task that failed for somebody to restart: that is us."
    for name in CONNECTORS:
        with contextlib.suppress(OSError, ValueError):
            status = rest(port, 'GET', f'/connectors/{name}/status')
            failed = [task for task in status['tasks'] if task['state'] == 'FAILED']
            if not failed: continue
            run.tally[f'restarted tasks of the {name}'] += len(failed)
            note(f'{name} failed: {failed[0].get("trace", "")[:600]}')
            rest(port, 'POST', f'/connectors/{name}/restart?includeTasks=true&onlyFailed=true')


# --- the cleaner, watched ---------------------------------------------------------------------------------------------

def read_checkpoint(path: Path) -> dict:
    "`cleaner-offset-checkpoint`: up to which offset each partition is clean."
    try: lines = path.read_text().splitlines()[2:]
    except OSError: return {}
    return {tuple(line.split()[:2]): int(line.split()[2]) for line in lines}


def watch_cleaner(run: Run):
    "Counts how often it has come further in a partition: at least so many passes."
    seen, path = {}, run.directory/'logs'/'cleaner-offset-checkpoint'
    for _ in load.turns(run, 0.5):
        now = read_checkpoint(path)
        for partition in now:
            if now[partition] != seen.get(partition): run.passes[partition[0]] += 1
        seen = now


def half_done(directory: Path) -> list[Path]:
    "The files of a pass that has not ended."
    return [path for ending in ('cleaned', 'swap') for path in directory.glob(f'*/*.{ending}')]


def wait_for_pass(directory: Path, seconds: float = 15):
    "Until the cleaner is in the middle of something, if that is soon."
    deadline = time.monotonic() + seconds
    while not half_done(directory) and time.monotonic() < deadline: time.sleep(0.001)


def sizes(directory: Path) -> collections.Counter:
    "Bytes of each topic's logs."
    found = collections.Counter()
    for path in directory.glob('*/*.log'):
        with contextlib.suppress(OSError): found[path.parent.name.rpartition('-')[0]] += path.stat().st_size
    return found


def group_exists(pid: int) -> bool:
    "Whether something that this process has started is still there."
    try: os.killpg(pid, 0)
    except ProcessLookupError: return False
    return True


def memory(pid: int) -> int:
    "The resident memory of a process, in MB."
    lines = Path(f'/proc/{pid}/status').read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith('VmRSS'))


# --- the half hour ----------------------------------------------------------------------------------------------------

def plan(seconds: float, kills: int, chance: random.Random) -> list[tuple[float, str]]:
    "When who is killed: the broker once in each part of the time, an instance and the worker once."
    parts = [(seconds * (number + chance.uniform(0.2, 0.8)) / kills, 'broker') for number in range(kills)]
    return sorted([*parts, (seconds * chance.uniform(0.35, 0.45), 'streams'),
                   (seconds * chance.uniform(0.55, 0.65), 'connect')])


class Soak:
    "Everything that runs."
    def __init__(self, directory: Path):
        self.port, self.rest = processes.free_port(), processes.free_port()
        self.run = Run(f'127.0.0.1:{self.port}', directory)
        listener = {'listeners': f'PLAINTEXT://127.0.0.1:{self.port}', 'log.dirs': directory/'logs'}
        broker = write_properties(directory/'server.properties', {**BROKER, **listener})
        worker = write_properties(directory/'worker.properties', {
            **WORKER, 'bootstrap.servers': self.run.bootstrap, 'listeners': f'http://127.0.0.1:{self.rest}'})
        self.broker = Program('broker', directory, [ROOT/'your_program.sh', broker])
        self.streams = [Program(f'streams-{number}', directory,
                                java('Counts', self.run.bootstrap, 'soak', 'events', 'totals',
                                     directory/f'state-{number}')) for number in range(2)]
        self.connect = Program('connect', directory,
                               java('org.apache.kafka.connect.cli.ConnectDistributed', worker))
        self.starts, self.memory, self.killed = [], [], []

    def programs(self) -> list[Program]: return [*self.streams, self.connect, self.broker]

    def begin(self):
        self.starts.append(start_broker(self.broker, self.port))
        load.create_topics(self.run)
        (self.run.directory/'source.txt').touch()
        for program in (*self.streams, self.connect): program.start()
        create_connectors(self.run, self.rest)
        self.threads = load.begin(self.run, load.write_events, load.write_transactions, load.write_items,
                                  load.write_lines, load.write_schemas, watch_cleaner)

    def strike(self, who: str):
        "kill -9, and a new start."
        if who == 'broker':
            self.memory.append(memory(self.broker.process.pid))
            wait_for_pass(self.run.directory/'logs')
            self.broker.kill()
            self.killed.append(self.broker.process.pid)
            if half_done(self.run.directory/'logs'): self.run.tally['kills in the middle of a pass'] += 1
            time.sleep(1)
            self.starts.append(start_broker(self.broker, self.port))
        elif who == 'connect':
            self.connect.kill()
            self.connect.start()
        else:
            self.streams[0].kill()
            shutil.rmtree(self.run.directory/'state-0')
            self.streams[0].start()

    def last(self, seconds: float, kills: int, chance: random.Random):
        "The time under load."
        began, strikes, next_note = time.monotonic(), plan(seconds, kills, chance), 0
        while (elapsed := time.monotonic() - began) < seconds and not self.run.complaints:
            if strikes and elapsed >= strikes[0][0]:
                who = strikes.pop(0)[1]
                self.strike(who)
                note(f'{elapsed:5.0f} s  {who} killed and started again'
                     + (f', listening after {self.starts[-1]:.2f} s' if who == 'broker' else ''))
            if elapsed >= next_note:
                note(f'{elapsed:5.0f} s  {self.progress()}')
                next_note = elapsed + TALLY
            restart_failed(self.run, self.rest)
            self.look()
            time.sleep(1)

    def look(self):
        "Everybody is still there."
        for program in self.programs():
            if not program.running():
                self.run.complain(f'{program.out.stem} ended with {program.process.returncode}:\n'
                                  f'{program.err.read_text(errors="replace")[-2000:]}')

    def progress(self) -> str:
        tally, on_disk = self.run.tally, sum(sizes(self.run.directory/'logs').values())
        return (f'{tally["events"]:,} events ({tally["transactions"]:,} transactions), {tally["lines"]:,} lines, '
                f'{tally["items"]:,} items, {tally["schemas"]:,} schemas read {tally["readings of _schemas"]} times; '
                f'{sum(self.run.passes.values()):,} times cleaned, {on_disk / 1e6:.0f} MB, '
                f'broker {memory(self.broker.process.pid)} MB')

    def finish_writing(self):
        self.run.ending.set()
        deadline = time.monotonic() + 2 * PATIENCE
        for thread in self.threads:
            thread.join(max(deadline - time.monotonic(), 0))
            if thread.is_alive(): self.run.complain(f'{thread.name} has not ended')

    def stop(self):
        for program in self.programs(): program.stop()


# --- counts -----------------------------------------------------------------------------------------------------------

def until_equal(soak: Soak, look, expected: int) -> None:
    "Until `look` finds so many, or more; others may need a while to come so far."
    deadline = time.monotonic() + PATIENCE
    while look() < expected and time.monotonic() < deadline and not soak.run.complaints:
        restart_failed(soak.run, soak.rest)
        time.sleep(2)


def check_totals(soak: Soak) -> str:
    "The table, and the changelog under it, are the counts of what was acknowledged. No total ever went back."
    run, expected = soak.run, dict(soak.run.counts)
    def table(topic: str) -> dict:
        found = {}
        for message in load.read_all(run, topic):
            total = struct.unpack('>q', message.value())[0]
            if total <= found.get(message.key().decode(), 0): run.complain(f'{topic}: {message.key()} went back')
            found[message.key().decode()] = total
        return found
    until_equal(soak, lambda: sum(table('totals').values()), sum(expected.values()))
    time.sleep(3)      # what is counted twice may come late
    for topic in ('totals', 'soak-counts-changelog'):
        found = table(topic)
        if wrong := [key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]:
            run.complain(f'{topic}: {len(wrong)} of {len(expected)} keys are wrong, as {wrong[0]}: '
                         f'{found.get(wrong[0])} instead of {expected.get(wrong[0])}')
    return f'{sum(found.values()):,} events of {len(found):,} keys counted, {sum(expected.values()):,} acknowledged'


def check_source(soak: Soak) -> str:
    "Each line once, in the order of the file; and the connector's own offset is the end of the file."
    run, lines = soak.run, soak.run.tally['lines']
    def read() -> list: return [message.value().decode() for message in load.read_all(run, 'lines')]
    until_equal(soak, lambda: len(read()), lines)
    time.sleep(3)
    found = read()
    if found != [load.line(number) for number in range(lines)]:
        run.complain(f'lines: {len(found):,} records, {len(set(found)):,} different, of {lines:,} lines of the file')
    offsets = {message.key(): json.loads(message.value()) for message in load.read_all(run, 'connect-offsets')}
    size = (run.directory/'source.txt').stat().st_size
    if [offset['position'] for offset in offsets.values()] != [size]:
        run.complain(f'connect-offsets: {offsets}, and the file has {size} bytes')
    return f'{len(found):,} records of {lines:,} lines, {len(found) - len(set(found))} twice'


def check_sink(soak: Soak) -> str:
    "Each record at least once. A line that the kill cut short has no end of its own."
    run, items = soak.run, soak.run.tally['items']
    def read() -> list: return re.findall(r'item-\d{8};', (run.directory/'sink.txt').read_text())
    until_equal(soak, lambda: len(set(read())), items)
    found = read()
    if set(found) != {load.item(number) for number in range(items)}:
        run.complain(f'items: {len(set(found)):,} different lines in the file, of {items:,} records')
    return f'{len(set(found)):,} of {items:,} records in the file, {len(found) - len(set(found)):,} again'


def check_broker(soak: Soak) -> list[str]:
    """A clean stop, and a clean start after it: the same offsets, a directory that the doctor finds in order, and
    nothing on stderr in all that time."""
    run = soak.run
    before = load.end_offsets(run)
    on_disk = sizes(run.directory/'logs')
    soak.memory.append(memory(soak.broker.process.pid))
    soak.broker.stop()
    if soak.broker.process.returncode: run.complain(f'the broker ended with {soak.broker.process.returncode}')
    soak.starts.append(start_broker(soak.broker, soak.port))
    if (after := load.end_offsets(run)) != before: run.complain(f'end offsets {after} after the start, {before} before')
    soak.broker.stop()
    if said := soak.broker.err.read_text(errors='replace'): run.complain(f'the broker said on stderr:\n{said[-4000:]}')
    doctor = subprocess.run([sys.executable, '-m', 'kafka_scratch', 'doctor', run.directory/'server.properties'],
                            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    if doctor.returncode: run.complain(f'the doctor said:\n{doctor.stdout[-4000:]}{doctor.stderr[-2000:]}')
    if left := half_done(run.directory/'logs'): run.complain(f'left behind: {left}')
    if orphans := [pid for pid in soak.killed if group_exists(pid)]: run.complain(f'processes left behind: {orphans}')
    rows = ['| topic | offsets given out | bytes now | times cleaned |', '|---|--:|--:|--:|']
    return rows + [f'| {name} | {before[name]:,} | {on_disk[name]:,} | {run.passes[name]:,} |'
                   for name in sorted(before)]


def restored(soak: Soak) -> str:
    said = '\n'.join(program.out.read_text() for program in soak.streams)
    counts = [int(number) for number in re.findall(r'^restored (\d+)', said, re.M)]
    return (f'{sum(counts):,} records of the changelog restored in {sum(map(bool, counts))} tasks, '
            f'{said.count("replaced a thread")} threads replaced')


def report(soak: Soak) -> list[str]:
    "Everything is checked, and said."
    found = {'Streams': check_totals(soak), 'restoring': restored(soak), 'source': check_source(soak),
             'sink': check_sink(soak)}
    tally = soak.run.tally
    found['_schemas'] = (f'{tally["schemas"]:,} written, {tally["tombstones"]:,} of them tombstones; '
                         f'{tally["readings of _schemas"]} times read from the beginning')
    for program in (*soak.streams, soak.connect): program.stop()
    table = check_broker(soak)
    found['broker'] = (f'listening after {", ".join(f"{each:.2f}" for each in soak.starts)} s; '
                       f'{", ".join(map(str, soak.memory))} MB before it was ended; {len(broker_lines(soak))} remarks '
                       'on stdout')
    shown = {name: count for name, count in sorted(tally.items()) if name not in ('schemas', 'tombstones')}
    return [*(f'{name}: {text}' for name, text in found.items()), f'tally: {shown}', '', *table]


def broker_lines(soak: Soak) -> list[str]: return soak.broker.out.read_text(errors='replace').splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=float, default=30)
    parser.add_argument('--kills', type=int, default=3, help='how often the broker is killed')
    parser.add_argument('--seed', type=int, help='for the times of the kills')
    parser.add_argument('--keep', type=Path, help='a new directory for all files')
    options = parser.parse_args()
    processes.end_cleanly_on_sigterm()
    seed = random.randrange(10_000) if options.seed is None else options.seed
    if options.keep: options.keep.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        soak = Soak(options.keep.resolve() if options.keep else Path(scratch))
        try:
            soak.begin()
            soak.last(options.minutes * 60, options.kills, random.Random(seed))
            soak.finish_writing()
            lines = report(soak)
        except Exception:
            soak.run.complain(traceback.format_exc())
            lines = []
        finally:
            soak.run.ending.set()
            soak.stop()
        print(f'{datetime.date.today()}: {options.minutes:g} minutes, {options.kills} kills of the broker, one of a '
              f'Streams instance and one of the Connect worker (seed {seed})')
        print('\n'.join(lines), machine.describe(), sep='\n')
        for complaint in soak.run.complaints: print(f'WRONG: {complaint}')
        print('Something is wrong.' if soak.run.complaints else 'All counts are exact.')
        return 1 if soak.run.complaints else 0


if __name__ == '__main__': sys.exit(main())
