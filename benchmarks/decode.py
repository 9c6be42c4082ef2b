"""What `pipeline` starts in a Python of its own: one reader over log files, timed, its result as a line of JSON.

    python -m benchmarks.decode arrow DIRECTORY [--processes 2]   # records to Arrow, checksums checked, every default
    column
    python -m benchmarks.decode limit DIRECTORY                   # checksums and decompression of the same bytes,
    nothing else
    python -m benchmarks.decode taught DIRECTORY --records 100000 # the plain Python reader, on the first records
    python -m benchmarks.decode image DIRECTORY                   # a metadata log, folded into Arrow tables
"""
import argparse
import json
import mmap
import sys
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)


def segments_in(directory: Path) -> list[Path]:
    "The segments of the partitions in a log directory, or of one partition."
    return sorted([*directory.glob('*.log'), *directory.glob('*/*.log')])


def mapped(path: Path) -> mmap.mmap:
    with open(path, 'rb') as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def to_arrow(paths: list[Path]) -> dict:
    """All records of segments as Arrow batches; what they add up to. The batches are let go one by one, as a pipeline
    does."""
    from kafka_scratch.spark.columns import RECORD_COLUMNS, BufferPool, record_batches
    from kafka_scratch.spark.headers import Damage, scan
    wanted = [name for name in RECORD_COLUMNS if name not in ('key_size', 'value_size')]
    found, pool = {'records': 0, 'batches': 0, 'bytes': 0, 'value_bytes': 0}, BufferPool(wanted)
    for path in paths:
        buf = mapped(path)
        headers, damage = scan(buf)
        found['batches'] += len(headers)
        found['bytes'] += len(buf)
        for batch in record_batches(buf, headers, wanted, pool=pool):
            if damage or isinstance(batch, Damage):
                raise SystemExit(f'{path}: {damage or batch}')
            found['records'] += len(batch)
            found['value_bytes'] += batch.column('value').buffers()[2].size
    return found


def limit(paths: list[Path]) -> dict:
    "What nobody can spare: every byte looked at once for its checksum, and what is compressed, opened."
    from crc32c import crc32c
    from kafka_scratch.log.compression import decompress
    from kafka_scratch.log.records import CODEC_BITS, HEADER_SIZE
    from kafka_scratch.spark.headers import scan
    size, piece = 0, 1 << 20
    for path in paths:
        buf = mapped(path)
        view, size = memoryview(buf), size + len(buf)
        for start in range(0, len(buf), piece):
            crc32c(view[start:start + piece])
        headers, _ = scan(buf)
        for at, length, codec in zip(headers.position.tolist(), headers.size.tolist(),
                                     (headers.attributes & CODEC_BITS).tolist()):
            if codec:
                decompress(codec, view[at + HEADER_SIZE:at + length])
    return {'bytes': size}


def taught(paths: list[Path], most: int) -> dict:
    "The reader of the *Record batches* chapter, until it has seen `most` records."
    from kafka_scratch.log.records import read_batches, read_records
    count = 0
    for batch in read_batches(mapped(paths[0])):
        count += len(read_records(batch))
        if count >= most:
            break
    return {'records': count}


def add(parts: list[dict]) -> dict:
    return {key: sum(part[key] for part in parts) for key in parts[0]}


def measured(task: tuple) -> dict:
    "What a reader finds, how long it took, and how much of the processor."
    read, what = task
    began, spent = time.perf_counter(), time.process_time()
    found = read(what)
    return {'seconds': time.perf_counter() - began, 'cpu': time.process_time() - spent, **found}


def image(directory: Path) -> dict:
    from kafka_scratch.spark.cluster_tables import image_tables
    tables = image_tables(directory)
    return {'partitions': len(tables.partitions), 'topics': len(tables.topics),
            'leader_epochs': int(tables.partitions['leader_epoch'].to_numpy().sum()),
            'partition_epochs': int(tables.partitions['partition_epoch'].to_numpy().sum())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=['arrow', 'limit', 'taught', 'image'])
    parser.add_argument('directory', type=Path)
    parser.add_argument('--processes', type=int, default=1,
                        help='as many as share the segments, as the workers of Spark do')
    parser.add_argument('--records', type=int, default=100_000)
    parser.add_argument('--warm', type=Path, help='read this first, untimed, so that compiled code is loaded')
    options = parser.parse_args()
    paths = segments_in(options.directory)
    read = {'arrow': to_arrow, 'limit': limit, 'taught': partial(taught, most=options.records)}.get(options.what)
    if options.warm:
        image(options.warm) if read is None else read(segments_in(options.warm))
    if options.processes > 1:
        with get_context('fork').Pool(options.processes) as pool:   # forked when everything is warm
            shares = [paths[number::options.processes] for number in range(options.processes)]
            pool.map(measured, [(read, segments_in(options.warm or options.directory))] * options.processes,
                     chunksize=1)
            began = time.perf_counter()
            found = add(pool.map(measured, [(read, share) for share in shares], chunksize=1))
            found['seconds'] = time.perf_counter() - began
    else:
        found = measured((read or image, options.directory if read is None else paths))
    print(json.dumps(found))


if __name__ == '__main__':
    main()
