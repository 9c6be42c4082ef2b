"""Many records, with Kafka's own tools: `ProducerPerformance` and `ConsumerPerformance` against this broker, the limit
and Apache Kafka.

    python -m benchmarks.bulk                     # a quarter of an hour; needs Java and Kafka's jars
    python -m benchmarks.bulk --quick             # two minutes: does everything work?

All servers run at the same time and on directories of the same content, and the tools go from one to the next within
each
round: first they write a topic of every server, then they read it back.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from benchmarks import machine, processes, real_kafka, report
from benchmarks.processes import note
from benchmarks.report import KAFKA, LIMIT, OURS
from benchmarks.requests import RESULTS, Server, Stage, in_turn, write_properties

RECORDS = {100: 4_000_000, 1000: 600_000}  # record size → how many; ten to twenty seconds each
PARTITIONS = 3
# the default, said aloud; all else is the default, too: idempotent, batch.size 16384, ...
PRODUCER = {'acks': 'all'}
CONSUMER = {'group.protocol': 'consumer'}  # KIP-848's, for all servers
TOOL_HEAP = '512m'
PRODUCED = re.compile(
    r'(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency, '
                      r'(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th')
CONSUMED = ('start', 'end', 'megabytes', 'megabytes_per_second', 'records', 'records_per_second', 'rebalance_ms',
            'fetch_ms',
            'fetch_megabytes_per_second', 'fetch_records_per_second')


class Stuck(Exception):
    "A tool that did not do what it was asked to."


def run_tool(server: Server, main_class: str, *arguments, patience: float) -> tuple[str, float]:
    "Run one of the tools; what it printed, and the processor time the server spent meanwhile."
    os.sync()  # what others wrote should not be written out on this one's time
    before = processes.cpu_seconds(server.pids['all'])
    command = real_kafka.command(main_class, *arguments, heap=TOOL_HEAP)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired as late:
        raise Stuck(f'{server.name}: {main_class} took longer than {patience} s: {str(late.stdout)[-500:]}') from None
    if done.returncode or 'Exception' in done.stdout + done.stderr:
        raise Stuck(
            f'{server.name}: {main_class} ended with code '
            f'{done.returncode}:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}')
    return done.stdout, processes.cpu_seconds(server.pids['all']) - before


def produce(server: Server, topic: str, size: int, count: int, patience: float) -> dict:
    "Write `count` records of `size` bytes; what the tool says of it."
    settings = [f'{key}={value}' for key, value in {'bootstrap.servers': f'127.0.0.1:{server.ports["all"]}',
                                                    **PRODUCER}.items()]
    said, cpu = run_tool(server, 'org.apache.kafka.tools.ProducerPerformance', '--topic', topic, '--num-records', count,
                         '--record-size', size, '--throughput', -1, '--producer-props', *settings, patience=patience)
    sent, rate, megabytes, average, slowest, *_, p99 = map(float, PRODUCED.findall(said)[-1])
    if sent != count:
        raise Stuck(f'{server.name}: {sent:,.0f} of {count:,} records were written')
    return {'megabytes_per_second': megabytes, 'records_per_second': rate, 'average_ms': average, 'p99_ms': p99,
            'slowest_ms': slowest,
            'server_cpu_seconds': cpu, 'megabytes_per_cpu_second': count * size / (1 << 20) / cpu if cpu else None}


def consume(server: Server, topic: str, size: int, count: int, patience: float, config: Path) -> dict:
    "Read `count` records from the beginning on; what the tool says of it."
    said, cpu = run_tool(server, 'org.apache.kafka.tools.ConsumerPerformance', '--bootstrap-server',
                         f'127.0.0.1:{server.ports["all"]}',
                         '--topic', topic, '--messages', count, '--consumer.config', config, '--hide-header',
                         '--timeout', 20_000, patience=patience)
    found = dict(zip(CONSUMED, [part.strip() for part in said.strip().splitlines()[-1].split(',')]))
    if float(found['records']) < count:
        raise Stuck(f'{server.name}: {found["records"]} of {count:,} records were read')
    # Without the time in which the consumer joins its group, which is none of the log's.
    return {'megabytes_per_second': float(found['fetch_megabytes_per_second']),
            'records_per_second': float(found['fetch_records_per_second']),
            'whole_megabytes_per_second': float(found['megabytes_per_second']),
            'rebalance_ms': float(found['rebalance_ms']),
            'server_cpu_seconds': cpu, 'megabytes_per_cpu_second': float(found['megabytes']) / cpu if cpu else None}


def start_servers(stage: Stage, log_dir: Path, kafka: real_kafka.RealKafka) -> list[Server]:
    "This broker and the limit, on a directory each, and Kafka."
    servers = []
    for name, short, *module in ((OURS, 'ours', 'kafka_scratch.broker.server'),
                                 (LIMIT, 'limit', 'benchmarks.bulk_limit', stage.scratch / 'sink')):
        port, own_dir = processes.free_port(), shutil.copytree(log_dir, stage.scratch / f'logs-{short}')
        properties = write_properties(stage.scratch / f'{short}.properties', port, own_dir)
        process = stage.start([sys.executable, '-m', *module, properties], short, port)
        servers.append(Server(name, {'all': port}, {'all': process.pid}))
    stage.stack.enter_context(kafka)
    return [*servers, Server(KAFKA, {'all': kafka.port}, {'all': kafka.pid})]


def measure(servers: list[Server], rounds: int, records: dict[int, int], patience: float, config: Path) -> list[dict]:
    "All cells, `rounds` times. The first, unrecorded round is shorter, and warms up."
    cells = []
    for number in range(-1, rounds):
        for size, count in records.items():
            topic = topic_name(size, number)
            many = count if number >= 0 else count // 4
            for what, run in (('write', produce), ('read', consume)):
                for server in in_turn(servers, number):
                    more = (config,) if run is consume else ()
                    result = run(server, topic, size, many, patience, *more)
                    note(
                        f'{f"round {number + 1}/{rounds}" if number >= 0 else "warm-up"}  {what} {many:,} × {size} B  '
                        f'{server.name}: '
                         f'{result["megabytes_per_second"]:.1f} MB/s, {result["records_per_second"]:,.0f} records/s')
                    if number >= 0:
                        cells.append({'round': number, 'server': server.name, 'what': what, 'record_size': size,
                                      'records': many, **result})
    return cells


def topic_name(size: int, number: int) -> str:
    return f'bulk-{size}-{number + 1}'


def run(scratch: Path, rounds: int, records: dict[int, int], patience: float) -> dict:
    "The whole benchmark; what it measured."
    neighbours = machine.Neighbours()
    kafka, log_dir = real_kafka.RealKafka(scratch / 'kafka', heap='1g'), scratch / 'kafka_scratch-logs'
    with kafka:
        kafka.create_topics({topic_name(size, number): PARTITIONS for size in records for number in range(-1, rounds)})
    shutil.copytree(kafka.log_dir, log_dir, ignore=shutil.ignore_patterns('.lock'))
    config = scratch / 'consumer.properties'
    config.write_text(''.join(f'{key}={value}\n' for key, value in CONSUMER.items()))
    with ExitStack() as stack:
        cells = measure(start_servers(Stage(scratch, stack, {}), log_dir, kafka), rounds, records, patience, config)
    return {'machine': f'{machine.describe()} {neighbours.describe()}', 'rounds': rounds, 'partitions': PARTITIONS,
            'producer': PRODUCER, 'consumer': CONSUMER, 'cells': cells}


def main() -> None:
    """Measure bulk writing and reading with Kafka's own tools: this broker, the limit and Apache Kafka; write table and
    plot."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--rounds', type=int, default=3, help='interleaved rounds; the median is reported')
    parser.add_argument('--scale', type=float, default=1,
                        help=f'a multiple of the records, which are {RECORDS} (size: how many)')
    parser.add_argument('--patience', type=float, default=180, help='seconds that one run of a tool may take')
    parser.add_argument('--results', type=Path, default=RESULTS, help='where table, plot and raw figures go')
    parser.add_argument('--quick', action='store_true', help='one short round, to see whether it works')
    parser.add_argument('--redraw', action='store_true', help='only write table and plot again, from the raw figures')
    options = parser.parse_args()
    machine.need('uvloop', 'matplotlib', 'crc32c')
    processes.end_cleanly_on_sigterm()
    if options.quick:
        options.rounds, options.scale = 1, .05
    options.results.mkdir(parents=True, exist_ok=True)
    raw = options.results / 'bulk.json'
    if not options.redraw:
        if reason := real_kafka.absent():
            raise SystemExit(f'{reason} The tools are in those jars.')
        with tempfile.TemporaryDirectory() as scratch:
            records = {size: int(count * options.scale) for size, count in RECORDS.items()}
            raw.write_text(json.dumps(run(Path(scratch), options.rounds, records, options.patience), indent=1))
    print(report.write_bulk(json.loads(raw.read_text()), options.results))


if __name__ == '__main__':
    main()
