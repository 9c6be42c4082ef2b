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
import datetime
import json
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import soak_load as load
from soak_load import PATIENCE, Run
from soak_programs import (BROKER, WORKER, Program, absent, create_connectors, group_exists, half_done, java,
                           memory, restart_failed, sizes, start_broker, wait_for_pass, watch_cleaner, write_properties)
from benchmarks import machine, processes
from benchmarks.processes import note

TALLY = 30               # seconds between two lines that say how far it is


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
    if reason := absent():
        print(reason)
        return 2
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
