"""Logs cleaned by us, and held against the same ones cleaned by Kafka.

A log is told as `cleaner/java/CleanLog.java` tells it (`list`): its segments with their batches, records and indexes.
Kafka tells it of any directory; `tell` does it without Java.
"""
from functools import partial
from pathlib import Path
from unittest.mock import patch

from kafka_scratch.log import cleaner
from kafka_scratch.log.clean_log import clean_log
from kafka_scratch.log.cleanable import cleanable
from kafka_scratch.log.compression import CODECS
from kafka_scratch.log.indexes import read_offset_index, read_time_index
from kafka_scratch.log.offset_map import OffsetMap
from kafka_scratch.log.partition import LogConfig
from kafka_scratch.log.records import DELETE_HORIZON, read_batches, read_records
from kafka_scratch.log.recovery import close_log, open_log
from kafka_scratch.log.segments import segments
from kafka_scratch.log.transaction_index import read_txn_index

EXPIRATION = 86_400_000    # milliseconds until a producer is forgotten


# --- Cleaned by us ----------------------------------------------------------------------------------------------------

def config(settings: dict) -> LogConfig:
    "A topic's settings, in Kafka's words."
    named = {name.removeprefix('internal.').replace('.', '_'): value for name, value in settings.items()}
    return LogConfig(**{name: value for name, value in named.items() if name in LogConfig._fields})


def opened(directory, settings: dict, now: int, **more):
    "A log as a broker has it at this time: producers that were silent for long are forgotten."
    log = open_log(str(directory), config(settings), now, **more)
    log.producers.expire(now - EXPIRATION + 1)
    return log


def clean(directory, settings: dict, now: int, first_dirty: int | None = None, memory: int = 1 << 20, passes: int = 1,
          io_buffer: int = 1 << 20, start: int = 0) -> list[dict]:
    "Opens a log, cleans it, and closes it. Returns from where to where each pass went."
    log, done = opened(directory, settings, now, start_offset=start), []
    in_pieces = partial(cleaner.batches_from, piece=io_buffer)
    for _ in range(passes):
        found = cleanable(log, first_dirty, now)
        with patch.object(cleaner, 'batches_from', in_pieces):
            end = clean_log(log, first_dirty, OffsetMap(memory), now) if found.dirty_bytes else found.first_dirty
        done.append(dict(first_dirty=found.first_dirty, first_uncleanable=found.first_uncleanable, end=end,
                         overdue=found.overdue, cleanable_bytes=found.dirty_bytes,
                         total_bytes=found.clean_bytes + found.dirty_bytes))
        if not found.dirty_bytes: break
        first_dirty = end
    close_log(log)
    return done


def tell_producer(log, number: int) -> dict:
    producer = log.producers.producers[number]
    sequence, offset = (producer.sent[-1].last_sequence, producer.sent[-1].last_offset) if producer.sent else (-1, -1)
    return dict(id=number, epoch=producer.epoch, last_sequence=sequence, last_offset=offset,
                open_since=log.producers.open.get(number, -1))


def tell_ends(log) -> dict:
    "Where an open log begins and ends, and what it knows of its producers."
    return dict(start=log.start_offset, end=log.end_offset, stable=log.stable_offset,
                producers=[tell_producer(log, number) for number in sorted(log.producers.producers)])


# --- Told -------------------------------------------------------------------------------------------------------------

def hexed(data: bytes | None) -> str | None: return None if data is None else data.hex()


def tell_record(record) -> dict:
    return dict(offset=record.offset, timestamp=record.timestamp, key=hexed(record.key), value=hexed(record.value),
                headers=[[key, hexed(value)] for key, value in record.headers])


def tell_batch(batch) -> dict:
    header = batch.header
    horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
    return dict(position=batch.start, size=batch.end - batch.start, base_offset=batch.base_offset,
                last_offset=batch.last_offset, leader_epoch=header.partition_leader_epoch, crc=header.crc,
                attributes=header.attributes, codec=CODECS[batch.codec], base_timestamp=header.base_timestamp,
                max_timestamp=header.max_timestamp, delete_horizon=horizon, producer_id=header.producer_id,
                producer_epoch=header.producer_epoch, base_sequence=header.base_sequence, count=header.record_count,
                records=[tell_record(record) for record in read_records(batch)])


def tell_segment(path: str, base: int) -> dict:
    content, stem = Path(path).read_bytes(), path.removesuffix('log')
    index, times = read_offset_index(stem + 'index', base), read_time_index(stem + 'timeindex', base)
    aborted = [[txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset]
               for txn in read_txn_index(stem + 'txnindex')]
    return dict(base_offset=base, size=len(content), batches=[tell_batch(batch) for batch in read_batches(content)],
                index=[list(entry) for entry in zip(index.offsets, index.positions)],
                times=[list(entry) for entry in zip(times.timestamps, times.offsets)], aborted=aborted)


def tell(directory) -> list[dict]:
    "The segments of a log that is closed."
    return [tell_segment(path, base) for base, path in segments(str(directory))]


# --- Held against each other ------------------------------------------------------------------------------------------

def comparable(segments: list[dict]) -> list[dict]:
    """All that has to be equal in two cleaned logs. Two libraries may compress the same records to different bytes:
    where a segment has compressed batches, that is the checksum, the size, and the place of what comes after."""
    told = []
    for segment in segments:
        own = any(batch['codec'] != 'none' for batch in segment['batches'])
        left_out = {'position', 'size', 'crc'} if own else set()
        batches = [{key: value for key, value in batch.items() if key not in left_out} for batch in segment['batches']]
        kept = {key: value for key, value in segment.items() if not own or key not in ('size', 'index', 'times')}
        told.append({**kept, 'batches': batches})
    return told


def files(directory) -> dict[str, int]:
    "The files of a log, with the times at which the segments were last written; snapshots are another matter."
    return {path.name: path.stat().st_mtime_ns // 1_000_000 if path.suffix == '.log' else 0
            for path in sorted(Path(directory).iterdir()) if path.suffix != '.snapshot'}


def differences(ours: list[dict], theirs: list[dict], where: str = '') -> list[str]:
    "In words, where two told logs differ; the first of them is enough for a message."
    if type(ours) is not type(theirs): return [f'{where}: {ours!r} is not {theirs!r}']
    if isinstance(ours, dict):
        return [said for key in ours.keys() | theirs.keys()
                for said in differences(ours.get(key), theirs.get(key), f'{where}.{key}')]
    if isinstance(ours, list):
        if len(ours) != len(theirs): return [f'{where}: {len(ours)} of them, not {len(theirs)}']
        return [said for n, pair in enumerate(zip(ours, theirs)) for said in differences(*pair, f'{where}[{n}]')]
    return [] if ours == theirs else [f'{where}: {ours!r} is not {theirs!r}']
