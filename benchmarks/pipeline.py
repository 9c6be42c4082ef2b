"""Log directories to tables: this package's compiled reader and Spark source, beside `kafka-dump-log` and Spark's own
Kafka connector.

    python -m benchmarks.pipeline                # half an hour; needs Java, Kafka's jars and those of Spark's connector
    python -m benchmarks.pipeline --quick        # three minutes, small data: does everything work?
    python -m benchmarks.pipeline --only decode  # one of: decode, spark, image, growth; the others stay as the last run
    left them
    python -m benchmarks.pipeline --redraw       # only the table and the plot, from the raw figures

A real Kafka stores the records, its own producer writes them. Then everybody reads the same files (the connector: from
that
Kafka), one after the other, in rounds.
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from benchmarks import machine, metadata_log, pipeline_report, processes, real_kafka, spark_connector
from benchmarks.metadata_log import Shape
from benchmarks.pipeline_report import (AGAIN, AGGREGATE, CONNECTOR, DECODE, DUMP, EXPORT, IMAGE, IN_SPARK, LIMIT, OURS,
                                        OURS_2, ROWS, TAUGHT)
from benchmarks.processes import note

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / 'benchmarks' / 'results'
CODECS = ('none', 'lz4', 'zstd', 'snappy', 'gzip')
PARTITIONS, RECORD_SIZE = 4, 100
PATIENCE = 900  # seconds that any one reader may take
DUMP_HEAP = '512m'
PRODUCER_HEAP = '512m'


# --- The data ---------------------------------------------------------------------------------------------------------

def fill(kafka: real_kafka.RealKafka, topic: str, codec: str, records: int) -> None:
    "Kafka's own producer writes records of 100 random letters."
    kafka.create_topics({topic: PARTITIONS})
    real_kafka.run_tool('org.apache.kafka.tools.ProducerPerformance', '--topic', topic, '--num-records', records,
                        '--record-size', RECORD_SIZE,
                        '--throughput', -1, '--producer-props', f'bootstrap.servers=127.0.0.1:{kafka.port}',
                        f'compression.type={codec}',
                        heap=PRODUCER_HEAP, timeout=PATIENCE)


def topic_dir(scratch: Path, kafka: real_kafka.RealKafka, topic: str) -> Path:
    "A log directory that holds one topic: links to Kafka's partition directories."
    directory = scratch / 'one-topic' / topic
    directory.mkdir(parents=True)
    for partition in sorted(kafka.log_dir.glob(f'{topic}-*')):
        (directory / partition.name).symlink_to(partition)
    return directory


def grow(source: Path, target: Path, records: int) -> int:
    """A partition of at least `records` records: a segment's batches again and again, each copy with the offsets that
    follow.

    The base offset is the one field that a broker sets and no checksum covers, so the copies are what a broker would
    have stored.
    """
    import numpy as np
    from kafka_scratch.spark.headers import scan
    content = bytearray(source.read_bytes())
    headers, _ = scan(bytes(content))
    counts, at = np.cumsum(headers.record_count), headers.position
    first, step = int(headers.base_offset[0]), int(headers.last_offset[-1]) + 1 - int(headers.base_offset[0])
    target.mkdir(parents=True)
    written = base = 0
    while written < records:
        last = min(int(np.searchsorted(counts, records - written)), len(counts) - 1)   # the batch in which it is enough
        for position, offset in zip(at.tolist(), (headers.base_offset - first + base).tolist()):
            struct.pack_into('>q', content, position, offset)
        (target / f'{base:020}.log').write_bytes(memoryview(content)[:int(at[last] + headers.size[last])])
        written += int(counts[last])
        base += step
    return written


# --- Readers ----------------------------------------------------------------------------------------------------------

def child(*arguments) -> dict:
    "Run a reader in a fresh Python; what it says, and how long it took with all."
    began = time.perf_counter()
    done = subprocess.run([sys.executable, '-m', 'benchmarks.decode', *map(str, arguments)], cwd=ROOT,
                          capture_output=True, text=True,
                          timeout=PATIENCE)
    if done.returncode:
        raise RuntimeError(f'{arguments}: {done.stdout[-500:]}{done.stderr[-2000:]}')
    return {**json.loads(done.stdout), 'whole': time.perf_counter() - began}


def dump(paths: list[Path], *decoder: str) -> dict:
    "kafka-dump-log over segments, what it prints thrown away."
    with open(os.devnull, 'wb') as nowhere:
        began = time.perf_counter()
        files = ','.join(map(str, paths))
        process = subprocess.Popen(real_kafka.command('kafka.tools.DumpLogSegments', *decoder, '--files', files,
                                                      heap=DUMP_HEAP),
                                   stdout=nowhere, stderr=nowhere)
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f'kafka-dump-log ended with code {process.returncode}')
    return {'seconds': time.perf_counter() - began, 'cpu': used.ru_utime + used.ru_stime}


def timed(function) -> dict:
    "How long something took in this process and in Spark's; what it returned is kept as `result`."
    began = time.perf_counter()
    result = function()
    return {'seconds': time.perf_counter() - began, 'result': result}


# --- What is measured -------------------------------------------------------------------------------------------------

class Run:
    "The cells: who did what how fast, in which round."

    def __init__(self, rounds: int):
        self.rounds, self.cells = rounds, []

    def measure(self, what: str, data: str, readers: dict, records: int, size: int, same: bool = True) -> None:
        "Every reader, `rounds` times, in turn, each round from another start. `same`: all results must be equal."
        names, results = list(readers), {}
        for number in range(self.rounds):
            for name in names[number % len(names):] + names[:number % len(names)]:
                cell = readers[name]()
                results[name] = cell.pop('result', None)
                note(f'round {number + 1}/{self.rounds}  {what}, {data}: {name}: {cell["seconds"]:.3f} s')
                self.cells.append({'round': number, 'what': what, 'data': data, 'reader': name,
                                   'records_in_data': records, 'bytes_in_data': size,
                                   **cell})
        known = {name: result for name, result in results.items() if result is not None}
        if same and len(set(map(repr, known.values()))) > 1:
            raise SystemExit(f'{what}, {data}: the answers differ: {known}')


def decode(run: Run, scratch: Path, logs: dict[str, Path], records: int) -> None:
    "Records to Arrow, with checksums."
    for codec, directory in logs.items():
        paths = sorted(directory.glob('*/*.log'))
        size = sum(path.stat().st_size for path in paths)
        small = scratch / f'warm-{codec}'
        small.mkdir()
        small_part = paths[0].read_bytes()[:1 << 16]
        (small / '0.log').write_bytes(whole_batches(small_part))
        readers = {DUMP: lambda paths=paths: dump(paths, '--deep-iteration', '--print-data-log'),
                   OURS: lambda d=directory, w=small: child('arrow', d, '--warm', w),
                   OURS_2: lambda d=directory, w=small: child('arrow', d, '--warm', w, '--processes', 2),
                   LIMIT: lambda d=directory, w=small: child('limit', d, '--warm', w)}
        if codec == 'none':
            readers[TAUGHT] = lambda d=directory: scaled(child('taught', d, '--records', 100_000), records)
        run.measure(DECODE, codec, readers, records, size)


def whole_batches(data: bytes) -> bytes:
    "As many whole batches as there are."
    end = 0
    while end + 12 <= len(data):
        size = 12 + int.from_bytes(data[end + 8:end + 12], 'big')
        if end + size > len(data):
            break
        end += size
    return data[:end]


def scaled(cell: dict, records: int) -> dict:
    "A part was read; what the whole would have taken at that pace."
    factor = records / cell.pop('records')
    return {**cell, 'seconds': cell['seconds'] * factor, 'cpu': cell['cpu'] * factor, 'scaled': True}


def session(jars: list[Path]):
    from kafka_scratch.spark.session import get_session
    return get_session('local[2]', **{'spark.jars': ','.join(map(str, jars)), 'spark.driver.memory': '4g'})


def connector(spark, kafka: real_kafka.RealKafka, topic: str):
    return (spark.read.format('kafka').option('kafka.bootstrap.servers', f'127.0.0.1:{kafka.port}').option('subscribe',
        topic)
            .option('startingOffsets', 'earliest').option('includeHeaders', 'true').load())


def source(spark, directory: Path, columns: str = ''):
    reader = spark.read.format('kafka-log').option('table', 'records')
    return (reader.schema(columns) if columns else reader).load(str(directory))


def totals(rows) -> list:
    return sorted(tuple(row) for row in rows.collect())


def in_spark(run: Run, scratch: Path, kafka, logs: dict[str, Path], topics: dict[str, str], records: int,
             spark) -> None:
    "An aggregate over every record, the same with the rows shipped whole, and an export to Parquet."
    from pyspark.sql import functions as F
    from kafka_scratch.spark.export import export_tables

    def sums(rows, size):
        return totals(rows.groupBy('topic', 'partition').agg(F.count('*'), F.sum(size), F.min('timestamp'),
                                                             F.max('timestamp')))

    def exported(write):
        target = Path(tempfile.mkdtemp(dir=scratch)) / 'out'
        try:
            return timed(lambda: write(target))
        finally:
            shutil.rmtree(target.parent, ignore_errors=True)

    warm = False
    for codec, directory in logs.items():
        topic, size = topics[codec], sum(path.stat().st_size for path in directory.glob('*/*.log'))
        narrow = 'topic string, partition int, timestamp timestamp, value_size int'
        theirs = {CONNECTOR: lambda t=topic: timed(lambda: sums(connector(spark, kafka, t), F.length('value')))}
        ours = {OURS: lambda d=directory: timed(lambda: sums(source(spark, d, narrow), 'value_size'))}
        for reader in (*theirs.values(), *ours.values()) * (1 if warm else 3):
            reader()  # untimed: the JVM compiles what runs often, and the first queries of all take twice as long
        warm = True
        run.measure(AGGREGATE, codec, theirs | ours, records, size)
        run.measure(ROWS, codec, theirs | {OURS: lambda d=directory: timed(lambda: sums(source(spark, d),
            F.length('value')))}, records, size)
        run.measure(EXPORT, codec, {
            CONNECTOR: lambda t=topic: exported(lambda out: connector(spark, kafka,
                                                                      t).write.partitionBy('topic').parquet(str(out))),
            OURS: lambda d=directory: exported(lambda out: export_tables(spark, str(d), str(out), tables=['records']))},
            records, size, same=False)


def image(run: Run, scratch: Path, shape: Shape, spark) -> None:
    "A metadata log, read into the state it adds up to."
    log_dir, small = scratch / 'metadata', scratch / 'metadata-small'
    written = metadata_log.write_log(log_dir, shape)
    metadata_log.write_log(small, Shape(topics=2, partitions_per_topic=2, changes=10))
    readers = {DUMP: lambda: dump([written.path], '--cluster-metadata-decoder'),
               OURS: lambda: folded(child('image', log_dir, '--warm', small), written),
               AGAIN: lambda: folded(child('image', log_dir, '--warm', log_dir), written),
               LIMIT: lambda: child('limit', log_dir, '--warm', small)}
    if spark:
        def query():
            columns = 'leader_epoch int, partition_epoch int, isr array<int>'
            rows = spark.read.format('kafka-log').option('table', 'partitions').schema(columns).load(str(log_dir))
            return [tuple(row) for row in rows.selectExpr('count(*)', 'sum(leader_epoch)', 'sum(partition_epoch)',
                                                          'sum(size(isr))').collect()]
        query()
        readers[IN_SPARK] = lambda: timed(query)
    data = f'{shape.partitions:,} partitions, {shape.changes:,} changes'
    run.measure(IMAGE, data, readers, written.records, written.bytes, same=False)


def folded(cell: dict, written) -> dict:
    "The image must hold what was written."
    if (cell['partitions'], cell['topics']) != (written.shape.partitions, written.shape.topics):
        raise SystemExit(f'the image holds {cell}, the log {written.totals}')
    return cell


def growth(run: Run, scratch: Path, source_log: Path, sizes: list[int], spark) -> None:
    "How cost grows with the number of records."
    from pyspark.sql import functions as F
    from kafka_scratch.spark.export import export_tables
    narrow = 'topic string, partition int, timestamp timestamp, value_size int'
    for records in sizes:
        log_dir = scratch / f'grown-{records}'
        counts = [grow(source_log, log_dir / f'grown-{number}', records // PARTITIONS) for number in range(PARTITIONS)]
        count, size = sum(counts), sum(path.stat().st_size for path in log_dir.glob('*/*.log'))
        small, out = scratch / 'warm-none', scratch / 'grown-out'
        readers = {OURS_2: lambda: child('arrow', log_dir, '--warm', small, '--processes', 2)}
        if spark:
            def aggregate():
                return totals(source(spark, log_dir, narrow).groupBy('partition').agg(F.count('*'),
                    F.sum('value_size')))

            def export():
                shutil.rmtree(out, ignore_errors=True)
                export_tables(spark, str(log_dir), str(out), tables=['records'])
            readers |= {AGGREGATE: lambda: timed(aggregate), EXPORT: lambda: timed(export)}
        run.measure('growth', f'{count:,}', readers, count, size, same=False)
        shutil.rmtree(log_dir)
        shutil.rmtree(out, ignore_errors=True)


def measure(scratch: Path, options: argparse.Namespace) -> dict:
    neighbours, run = machine.Neighbours(), Run(options.rounds)
    wanted = lambda part: options.only in ('', part)
    spark = session(spark_connector.jars()) if wanted('spark') or wanted('image') or wanted('growth') else None
    with real_kafka.RealKafka(scratch / 'kafka', heap='1g') as kafka:
        topics = {codec: f'bench-{codec}' for codec in options.codecs}
        for codec, topic in topics.items():
            note(f'{options.records:,} records, {codec}')
            fill(kafka, topic, codec, options.records)
        logs = {codec: topic_dir(scratch, kafka, topic) for codec, topic in topics.items()}
        if wanted('decode') or wanted('growth'):
            decode(run, scratch, logs, options.records) if wanted('decode') else (scratch / 'warm-none').mkdir()
        if wanted('spark'):
            in_spark(run, scratch, kafka, logs, topics, options.records, spark)
        if wanted('growth'):
            first = sorted(logs[options.codecs[0]].glob('*/*.log'))[0]
            growth(run, scratch, first, options.growth, spark)
    if wanted('image'):
        image(run, scratch, options.shape, spark)
    return {'machine': f'{machine.describe()} {neighbours.withheld()}', 'rounds': options.rounds, 'cells': run.cells,
            'versions': {package: machine.version(package) for package in ('pyspark', 'pyarrow', 'numba', 'numpy',
                'cramjam', 'crc32c')}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--quick', action='store_true', help='small data, one round')
    parser.add_argument('--only', choices=['decode', 'spark', 'image', 'growth'], default='')
    parser.add_argument('--records', type=int, default=5_000_000)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--codecs', type=lambda text: text.split(','), default=list(CODECS))
    parser.add_argument('--growth', type=lambda text: [int(part) for part in text.split(',')],
                        default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument('--scratch', type=Path,
                        help='where the data goes for the time (default: a temporary directory)')
    parser.add_argument('--results', type=Path, default=RESULTS, help='where table, plot and raw figures go')
    parser.add_argument('--redraw', action='store_true', help='only write table and plot again, from the raw figures')
    options = parser.parse_args()
    options.shape = Shape()
    if options.quick:
        options.records, options.rounds, options.growth = 200_000, 1, [100_000, 400_000]
        options.shape = Shape(topics=100, changes=2_000)
    raw = options.results / 'pipeline.json'
    if not options.redraw:
        for reason in filter(None, (real_kafka.absent(), spark_connector.absent())):
            raise SystemExit(reason)
        processes.end_cleanly_on_sigterm()
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            found = measure(Path(scratch), options)
        if options.only and raw.exists():
            found['cells'] = merged(json.loads(raw.read_text())['cells'], found['cells'])
        options.results.mkdir(parents=True, exist_ok=True)
        raw.write_text(json.dumps(found, indent=1) + '\n')
    print(pipeline_report.write(json.loads(raw.read_text()), options.results))


def merged(old: list[dict], new: list[dict]) -> list[dict]:
    "The figures of an earlier run, with those in their place that were measured anew."
    key = lambda cell: (cell['what'], '' if cell['what'] == 'growth' else cell['data'])
    places = {place: number for number, place in enumerate(dict.fromkeys(map(key, old)))}
    asked = set(map(key, new))
    return sorted([cell for cell in old if key(cell) not in asked] + new,
                  key=lambda cell: places.get(key(cell), len(places)))


if __name__ == '__main__':
    main()
