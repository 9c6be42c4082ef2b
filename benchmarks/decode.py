"""What `pipeline` starts in a Python of its own: one reader over log files, timed, its result as a line of JSON.

    python -m benchmarks.decode arrow DIRECTORY [--threads 2]     # records to Arrow, checksums checked, every default column
    python -m benchmarks.decode limit DIRECTORY                   # only read and checksum the same bytes: nobody can be faster
    python -m benchmarks.decode taught DIRECTORY --records 100000 # the plain Python reader, on the first records
    python -m benchmarks.decode image DIRECTORY                   # a metadata log, folded into Arrow tables
"""
import argparse
import json
import mmap
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)


def segments_in(directory: Path) -> list[Path]:
    "The segments of the partitions in a log directory, or of one partition."
    return sorted([*directory.glob('*.log'), *directory.glob('*/*.log')])


def mapped(path: Path) -> mmap.mmap:
    with open(path, 'rb') as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def to_arrow(path: Path) -> dict:
    "All records of a segment as Arrow batches; what they add up to. The batches are let go one by one, as a pipeline does."
    from kafka_scratch.spark.columns import RECORD_COLUMNS, Damage, record_batches, scan
    wanted = [name for name in RECORD_COLUMNS if name not in ('key_size', 'value_size')]
    buf = mapped(path)
    headers, damage = scan(buf)
    found = {'records': 0, 'batches': len(headers), 'bytes': len(buf), 'value_bytes': 0}
    for batch in record_batches(buf, headers, wanted):
        if damage or isinstance(batch, Damage):
            raise SystemExit(f'{path}: {damage or batch}')
        found['records'] += len(batch)
        found['value_bytes'] += batch.column('value').buffers()[2].size
    return found


def checksums(path: Path) -> dict:
    "Every byte that a reader has to look at, looked at once, by the fastest thing that looks at all of them."
    from crc32c import crc32c
    buf = mapped(path)
    view, piece = memoryview(buf), 1 << 20
    for start in range(0, len(buf), piece):
        crc32c(view[start:start + piece])
    return {'bytes': len(buf)}


def taught(path: Path, most: int) -> dict:
    "The reader of the *Record batches* chapter, until it has seen `most` records."
    from kafka_scratch.records import read_batches, read_records
    count = 0
    for batch in read_batches(mapped(path)):
        count += len(read_records(batch))
        if count >= most:
            break
    return {'records': count}


def add(parts: list[dict]) -> dict:
    return {key: sum(part[key] for part in parts) for key in parts[0]}


def image(directory: Path) -> dict:
    from kafka_scratch.spark.metadata_columns import image_tables
    tables = image_tables(directory)
    return {'partitions': len(tables.partitions), 'topics': len(tables.topics),
            'leader_epochs': sum(tables.partitions['leader_epoch'].to_numpy().tolist()),
            'partition_epochs': sum(tables.partitions['partition_epoch'].to_numpy().tolist())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=['arrow', 'limit', 'taught', 'image'])
    parser.add_argument('directory', type=Path)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--records', type=int, default=100_000)
    parser.add_argument('--warm', type=Path, help='read this first, untimed, so that compiled code is loaded')
    options = parser.parse_args()
    paths = segments_in(options.directory)
    read = {'arrow': to_arrow, 'limit': checksums, 'taught': lambda path: taught(path, options.records)}.get(options.what)
    if options.warm:
        image(options.warm) if read is None else [read(path) for path in segments_in(options.warm)]
    began, spent = time.perf_counter(), time.process_time()
    if read is None:
        found = image(options.directory)
    elif options.threads > 1:
        with ThreadPoolExecutor(options.threads) as pool:
            found = add(list(pool.map(read, paths)))
    else:
        found = add([read(path) for path in (paths[:1] if options.what == 'taught' else paths)])
    print(json.dumps({'seconds': time.perf_counter() - began, 'cpu': time.process_time() - spent, **found}))


if __name__ == '__main__':
    main()
