"""How long a million partitions take to read back: this package's replay beside `kafka-dump-log`.

    python -m benchmarks.metadata_replay            # a million partitions, several minutes
    python -m benchmarks.metadata_replay --check    # only: does Kafka itself read what the generator writes?

The logs are written by `metadata_log` and lie in a temporary directory unless --directory names one.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from benchmarks import machine, metadata_log, processes, real_kafka
from benchmarks.metadata_log import Shape, Written
from benchmarks.processes import note

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / 'benchmarks' / 'results'
LIMIT = 600  # seconds any one run may take
DECODE = ('kafka.tools.DumpLogSegments', '--cluster-metadata-decoder', '--files')


@dataclass
class Case:
    "One reader of the log, and what its runs took."
    name: str
    run: object                                   # () -> dict with seconds, cpu, peak (bytes) and perhaps growth
    runs: list[dict] = field(default_factory=list)

    def median(self, key: str) -> float | None:
        values = [run[key] for run in self.runs if run.get(key) is not None]
        return statistics.median(values) if values else None


def check(directory: Path) -> str:
    "Write a small log, let Kafka dump it, fold what it printed, and compare; return a sentence."
    written = metadata_log.write_log(directory, Shape(topics=10, partitions_per_topic=20, changes=500))
    text = real_kafka.dump_log(written.path, '--cluster-metadata-decoder')
    valid, payloads = text.count('isvalid: true'), re.findall(r' payload: (\{.*\})', text)
    found = fold(map(json.loads, payloads))
    if (valid, len(payloads)) != (written.batches, written.records - 1) or found != written.totals:
        raise SystemExit(f'kafka-dump-log sees {valid} valid batches, {len(payloads)} payloads, {found}; '
                         f'the generator wrote {written.batches}, {written.records - 1}, {written.totals}')
    return (f'kafka-dump-log reads all {valid} batches of a small log as valid, and its {len(payloads)} payloads '
            f'fold to the state the generator meant.')


def fold(payloads) -> dict[str, int]:
    "Kafka's decoded records -> the totals that `metadata_log` keeps."
    partitions = {}
    for payload in payloads:
        kind, data = payload['type'], payload['data']
        if kind == 'PARTITION_RECORD':
            partitions[data['topicId'], data['partitionId']] = SimpleNamespace(
                isr=data['isr'], leader=data['leader'], leader_epoch=data['leaderEpoch'],
                partition_epoch=data['partitionEpoch'])
        elif kind == 'PARTITION_CHANGE_RECORD':
            state = partitions[data['topicId'], data['partitionId']]
            state.partition_epoch += 1
            state.isr = data.get('isr', state.isr)
            if 'leader' in data:
                state.leader, state.leader_epoch = data['leader'], state.leader_epoch + 1
    return metadata_log.totals_of((topic, state) for (topic, _), state in partitions.items())


def run_dump_log(path: Path, output: str, heap: str) -> dict:
    "Run kafka-dump-log once, its text going to `output`."
    with open(output, 'wb') as sink, open(os.devnull, 'wb') as nowhere:
        began = time.perf_counter()
        process = subprocess.Popen(real_kafka.command(*DECODE, path, heap=heap), stdout=sink, stderr=nowhere)
        return {**_wait(process), 'seconds': time.perf_counter() - began}


def _wait(process: subprocess.Popen) -> dict:
    "Wait for the end, with a time limit; return processor time and peak memory."
    deadline = time.monotonic() + LIMIT
    try:
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f'{process.args[0]} took more than {LIMIT} s')
            time.sleep(.01)
    except BaseException:
        process.kill()
        process.wait()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f'{process.args[0]} ended with code {process.returncode}')
    return {'cpu': used.ru_utime + used.ru_stime, 'peak': used.ru_maxrss * 1024}


def run_replay(log_dir: Path, totals: dict, accelerated: bool) -> dict:
    "Replay in a fresh Python; compare the image it built with what the log holds."
    command = [sys.executable, '-m', 'benchmarks.metadata_replay', '--replay', str(log_dir)]
    done = subprocess.run(command + ([] if accelerated else ['--no-crc32c']), cwd=ROOT, capture_output=True, text=True,
                          timeout=LIMIT)
    if done.returncode:
        raise RuntimeError(f'replay ended with code {done.returncode}:\n{done.stderr[-2000:]}')
    result = json.loads(done.stdout)
    if result['totals'] != totals:
        raise RuntimeError(f'the image holds {result["totals"]}, the log {totals}')
    return result


def replay(log_dir: Path, accelerated: bool) -> dict:
    "In the fresh Python: load the image, and measure time and memory."
    if not accelerated:
        sys.modules['crc32c'] = None  # any import of it now fails, as where it is not installed
    from kafka_scratch.cluster.metadata_log import load_image
    before, began, spent = memory('VmRSS'), time.perf_counter(), time.process_time()
    image = load_image(log_dir)
    seconds, cpu = time.perf_counter() - began, time.process_time() - spent
    after, peak = memory('VmRSS'), memory('VmHWM')
    began = time.perf_counter()
    for topic in image.topics.values():  # the image keeps bytes, and decodes a partition when it is asked for
        topic.partitions
    return {'seconds': seconds, 'cpu': cpu, 'peak': peak, 'growth': after - before,
            'look': time.perf_counter() - began, 'totals': totals_of_image(image)}


def memory(field_name: str) -> int:
    "This process' VmRSS or VmHWM (peak), in bytes."
    return int(re.search(rf'{field_name}:\s+(\d+) kB', Path('/proc/self/status').read_text())[1]) * 1024


def totals_of_image(image) -> dict[str, int]:
    "The package's image -> the totals that `metadata_log` keeps."
    return metadata_log.totals_of((name, partition) for name, topic in image.topics.items()
                                  for partition in topic.partitions.values())


def cases(written: Written, log_dir: Path, scratch: Path) -> list[Case]:
    "Everything that can be measured here."
    found = []
    if reason := real_kafka.absent():
        note(reason)
    else:
        # 256 MB is what Kafka's own script gives it.
        for name, output, heap in (('discarded', os.devnull, '256m'), ('discarded', os.devnull, '1g'),
                                   ('to a file', str(scratch / 'dump.txt'), '256m')):
            found.append(Case(f'kafka-dump-log, output {name}, heap {heap}',
                              lambda output=output, heap=heap: run_dump_log(written.path, output, heap)))
    if (ROOT / 'kafka_scratch' / 'metadata_log.py').exists():
        found.append(Case('kafka_scratch, crc32c', lambda: run_replay(log_dir, written.totals, True)))
        found.append(Case('kafka_scratch, standard library only', lambda: run_replay(log_dir, written.totals, False)))
    return found


def measure(found: list[Case], rounds: int) -> None:
    "Run every case `rounds` times, interleaved, each round from another start."
    for number in range(rounds):
        for case in found[number % len(found):] + found[:number % len(found)]:
            case.runs.append(case.run())
            note(f'round {number + 1}/{rounds}  {case.name}: {case.runs[-1]["seconds"]:.2f} s')


def introduction(sentence: str, rounds: int, neighbours: machine.Neighbours) -> str:
    "What stands above the tables."
    return '\n'.join(['# Replaying the metadata log', '', f'{machine.describe()} {neighbours.describe()}', '', sentence,
                      '',
                      f'Medians of {rounds} interleaved runs. "Times faster" and "times less CPU" compare with the '
                      f'best of the '
                      'ways to run kafka-dump-log; the second holds still on a busy machine. That tool prints every '
                      'record and '
                      'keeps nothing; the replay prints nothing, and ends with the whole image in memory. Growth is '
                      'what the '
                      'resident memory gained while the image was built. The image keeps most partitions as bytes; '
                      '"every '
                      'partition read" is the time to decode them all afterwards, which a broker never has to do at '
                      'once. '
                      'After every replay the image\'s topics, partitions, leaders, ISRs and epochs were added up and '
                      'compared with what the log was written from.', ''])


def table(written: Written, found: list[Case], title: str) -> str:
    "One log's results as markdown."
    tools = [case for case in found if case.name.startswith('kafka-dump-log')]
    kafka, kafka_cpu = (min((case.median(key) for case in tools), default=None) for key in ('seconds', 'cpu'))
    shape = written.shape
    lines = [f'## {title}', '',
             f'{shape.topics:,} topics of {shape.partitions_per_topic} partitions, replication factor '
             f'{shape.replication_factor} over {shape.brokers} brokers, then {shape.changes:,} PartitionChangeRecords: '
             f'{written.records:,} records in {written.batches:,} batches, {written.bytes / 1e6:,.1f} MB.', '',
             '| reader | seconds | fastest, slowest | records/s | CPU seconds | peak memory | growth per partition '
             '| every partition read | times faster | times less CPU |',
             '|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|']
    for case in found:
        seconds, cpu, growth, look = (case.median(key) for key in ('seconds', 'cpu', 'growth', 'look'))
        each = sorted(run['seconds'] for run in case.runs)
        lines.append('| ' + ' | '.join([
            case.name, f'{seconds:.2f}', f'{each[0]:.2f}, {each[-1]:.2f}', f'{written.records / seconds:,.0f}',
            f'{cpu:.2f}',
            f'{case.median("peak") / 1e6:,.0f} MB', f'{growth / shape.partitions:,.0f} bytes' if growth else '–',
            f'{look:.2f} s' if look else '–', f'{kafka / seconds:.2f}' if kafka else '–',
            f'{kafka_cpu / cpu:.2f}' if kafka else '–']) + ' |')
    return '\n'.join(lines) + '\n'


def measure_log(title: str, shape: Shape, log_dir: Path, scratch: Path, options: argparse.Namespace) -> str:
    "Write one log, measure its readers; return the table."
    written = metadata_log.write_log(log_dir, shape)
    note(f'{title}: wrote {written.records:,} records, {written.bytes:,} bytes')
    found = [case for case in cases(written, log_dir, scratch) if options.only in case.name]
    if not found:
        raise SystemExit('Nothing to measure: neither Kafka nor kafka_scratch is here.')
    measure(found, options.rounds)
    return table(written, found, title)


def shapes(options: argparse.Namespace) -> dict[str, Shape]:
    "The logs to measure. How often placements repeat matters to a reader that shares equal states, so there are two."
    size = dict(topics=options.topics, partitions_per_topic=options.partitions_per_topic, changes=options.changes)
    return {'few-brokers': Shape(**size, brokers=12),
            'many-brokers': Shape(**size, brokers=300, placements=options.topics)}


TITLES = {'few-brokers': 'Few brokers: many partitions lie on the same replicas',
          'many-brokers': 'Many brokers: nearly every partition lies somewhere else'}


def main() -> None:
    "Time the replay of a large metadata log, side by side with kafka-dump-log."
    parser = argparse.ArgumentParser(description=main.__doc__)
    shape = Shape()
    parser.add_argument('--topics', type=int, default=shape.topics)
    parser.add_argument('--partitions-per-topic', type=int, default=shape.partitions_per_topic)
    parser.add_argument('--changes', type=int, default=shape.changes)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--log', choices=['few-brokers', 'many-brokers', 'both'], default='both')
    parser.add_argument('--directory', type=Path, help='write the logs here, and keep them')
    parser.add_argument('--check', action='store_true', help='only let Kafka read a small log of the same form')
    parser.add_argument('--only', default='', help='measure only readers whose name contains this')
    parser.add_argument('--results', type=Path, default=RESULTS, help='where the table goes')
    parser.add_argument('--replay', type=Path, help=argparse.SUPPRESS)
    parser.add_argument('--no-crc32c', action='store_true', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        print(json.dumps(replay(options.replay, not options.no_crc32c)))
        return
    processes.end_cleanly_on_sigterm()
    with tempfile.TemporaryDirectory() as scratch:
        sentence = real_kafka.absent() or check(Path(scratch, 'small'))
        note(sentence)
        if options.check:
            return
        neighbours, tables = machine.Neighbours(), []
        for name, shape in shapes(options).items():
            if options.log in (name, 'both'):
                log_dir = (options.directory or Path(scratch)) / name
                tables.append(measure_log(TITLES[name], shape, log_dir, Path(scratch), options))
    text = '\n'.join([introduction(sentence, options.rounds, neighbours), *tables])
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / 'metadata_replay.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
