"The segments of `fixtures/segments` with what a Java consumer saw in them, damaged copies, and logs of any content."
import hashlib
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

from broker_process import FIXTURES
from kafka_scratch.log.partition import LogConfig, append
from kafka_scratch.log.recovery import close_log, open_log
from kafka_scratch.log.control_records import ControlKey, EndTxnMarker
from kafka_scratch.log.records import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Batch, Record, write_batch

SEGMENTS = FIXTURES/'segments'
LOGS, DAMAGED = SEGMENTS/'logs', SEGMENTS/'damaged'
EXPECTED = [json.loads(line) for line in (SEGMENTS/'records.jsonl').read_text('utf-8').splitlines()]
COMMITTED = json.loads((SEGMENTS/'records-read-committed.json').read_text())
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def place(row) -> tuple: return row['topic'] or '', row['partition'] or 0, row['offset']


def as_json(data):
    if data is None: return None
    return {'hex': data.hex()} if len(data) <= 400 else {'len': len(data), 'sha256': hashlib.sha256(data).hexdigest()}


def as_consumer(row: dict) -> dict:
    return dict(topic=row['topic'], partition=row['partition'], offset=row['offset'], leaderEpoch=row['leader_epoch'],
                timestamp=round((row['timestamp'] - EPOCH) / timedelta(milliseconds=1)),
                timestampType=row['timestamp_type'],
                key=as_json(row['key']), value=as_json(row['value']), headers=[[h['key'],
                    as_json(h['value'])] for h in row['headers']])


MARKER = 'marker'   # in place of a batch: the end of a transaction


def write_log(directory: Path, batches, segment_bytes=400, interval=60, close=True):
    "A log as a broker writes it: segments, indexes, transactions."
    log = open_log(str(directory), LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval))
    for step in batches:
        if step[0] == MARKER:
            _, producer, kind = step
            made = [Record(key=ControlKey(version=0, type=kind).encode(0),
                           value=EndTxnMarker(version=0, coordinator_epoch=0).encode(0))]
            batch = write_batch(made, attributes=TRANSACTIONAL | CONTROL, producer_id=producer, producer_epoch=0)
        else:
            records, when, codec, append_time, producer = step
            made = [Record(offset_delta=i, key=key, value=value, timestamp_delta=delta) for i,
                    (key, value, delta) in enumerate(records)]
            latest = when + 7 if append_time else max(when + delta for _, _, delta in records)
            owner = dict(producer_id=producer, producer_epoch=0, base_sequence=0) if producer else {}
            batch = write_batch(made, attributes=codec | LOG_APPEND_TIME * append_time | TRANSACTIONAL * (producer > 0),
                                base_timestamp=when,
                                max_timestamp=latest, **owner)
        batch = bytearray(batch)
        append(log, batch, Batch(batch).header, 0, now=0)
    close_log(log)
    return log


# Which records can be had, where the damage is, and the offset of the batch, if it is known.
DAMAGE = {'truncated-last-batch': ([*range(9)], 395, 9), 'truncated-in-header': ([*range(9)], 303, 8),
          'flipped-byte-in-crc': ([*range(8), 9], 226, 8),
          'flipped-byte-in-leader-epoch': ([*range(10)], None, None), 'trailing-zeros': ([*range(10)], 498, None),
          'flipped-byte-in-value': ([*range(8), 9], 321, 8),
          'bad-length': ([*range(8)], 321, 8), 'bad-magic': ([*range(9)], 395, None)}
