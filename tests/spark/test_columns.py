"""The compiled reader gives what the taught one gives: the same records, the same batches refused, in the same words.

The taught reader stops at the first error, the compiled one reports it and goes on: so they are compared batch by
batch.
"""
import functools
import mmap
import os
import struct
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from size import budget, spark_absent
if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from kafka_scratch.log.gzip import MAX_SIZE
from kafka_scratch.log.compression import compress
from kafka_scratch.wire.primitives import DecodeError
from kafka_scratch.log.records import CODEC_BITS, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Batch, codec_name
from kafka_scratch.log.records import read_records
from kafka_scratch.spark.columns import RECORD_COLUMNS, record_batches
from kafka_scratch.spark.headers import BATCH_COLUMNS, Damage, Headers, batch_table, scan
from kafka_scratch.spark.kernel import compiled
from by_hand import varint
from log_by_hand import record, record_batch

FIXTURES = Path(__file__).parents[1]/'fixtures'
SEGMENTS = sorted([*FIXTURES.rglob('*.log'), *FIXTURES.rglob('*.checkpoint')])
SMALL = [path for path in SEGMENTS if path.stat().st_size < 20_000 and 'damaged' not in path.parts]
EVERY, PLAIN = list(RECORD_COLUMNS), ['key', 'value', 'headers', 'offset']
LONGEST, FURTHEST = 2**63 - 1, (2**63 - 1)//1000


# --- The taught reader, batch by batch --------------------------------------------------------------------------------

def taught_headers(buf) -> tuple[list[Batch], Damage | None]:
    "All batches as far as they are framed, and why that ended."
    batches, pos = [], 0
    while pos < len(buf):
        try: batches.append(Batch(buf, pos))
        except DecodeError as error:
            # length and magic were sound, so the offset is one, too
            known = error.message.startswith('the batch takes')
            return batches, Damage(pos, struct.unpack_from('>q', buf, pos)[0] if known else None, error.message)
        pos = batches[-1].end
    return batches, None


def row(batch: Batch, r) -> dict:
    "A record of the taught reader as a row."
    h = batch.header
    fits = -FURTHEST <= r.timestamp <= FURTHEST
    sequence = (h.base_sequence + r.offset - h.base_offset) % 2**31 if h.base_sequence >= 0 else -1
    return dict(offset=r.offset, timestamp=r.timestamp*1000 if fits else None,
                timestamp_type='LOG_APPEND_TIME' if batch.log_append_time else 'CREATE_TIME', key=r.key, value=r.value,
                headers=[dict(key=key, value=value) for key, value in r.headers], leader_epoch=h.partition_leader_epoch,
                producer_id=h.producer_id, producer_epoch=h.producer_epoch, sequence=sequence,
                transactional=batch.transactional,
                control=batch.control, key_size=-1 if r.key is None else len(r.key),
                value_size=-1 if r.value is None else len(r.value))


def taught(batches: list[Batch], check=True):
    "What the compiled reader should give: rows, and damages between them."
    for batch in batches:
        try:
            if check: batch.check()
            rows = [row(batch, r) for r in read_records(batch)]
        except DecodeError as error: yield Damage(batch.start, batch.base_offset, error.message)
        else:
            high = [r['offset'] for r in rows if not -LONGEST - 1 <= r['offset'] <= LONGEST]
            if high: yield Damage(batch.start, batch.base_offset, f"offset {high[0]} doesn't fit in 64 bits")
            else: yield from rows


def rows_of(made) -> list[dict]:
    "The rows of a table; times as numbers, since Python's calendar ends early."
    made.validate(full=True)
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in made.columns]
    return pa.RecordBatch.from_arrays(columns, names=made.schema.names).to_pylist()


def ours(buf, headers, columns=EVERY, **options):
    "What the compiled reader gives, in the same form."
    for made in record_batches(buf, headers, columns, **options):
        if isinstance(made, Damage): yield made
        else:
            assert made.num_rows and made.schema == pa.schema([(name, RECORD_COLUMNS[name]) for name in columns])
            yield from rows_of(made)


def same(buf: bytes, columns=EVERY, check=True, **options):
    "Both readers on these bytes, and that they agree."
    batches, damage = taught_headers(buf)
    headers, found = scan(buf)
    assert found == damage
    assert headers.position.tolist() == [batch.start for batch in batches]
    expected, got = list(taught(batches, check)), list(ours(buf, headers, columns, check=check, **options))
    expected = [r if isinstance(r, Damage) else {name: r[name] for name in columns} for r in expected]
    assert len(got) == len(expected) and all(map(agree, got, expected)), (got, expected)
    return got


def agree(a, b) -> bool:
    """Whether both say the same. A batch with two faults may be refused for one of them by the one, and for the other
    by the other."""
    return a == b or isinstance(a, Damage) and isinstance(b, Damage) and a[:2] == b[:2] and 'in 64 bits' in a.reason


# --- Logs that Kafka wrote --------------------------------------------------------------------------------------------

@pytest.mark.parametrize('path', SEGMENTS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_every_fixture(path): same(path.read_bytes())


def test_the_fixtures_hold_what_they_should():
    from_kafka = [path for path in SEGMENTS if 'course' not in path.parts]
    rows = [r for path in from_kafka for r in same(path.read_bytes(), PLAIN + ['control', 'transactional',
        'timestamp_type', 'producer_id'])]
    damages = [r for r in rows if isinstance(r, Damage)]
    rows = [r for r in rows if not isinstance(r, Damage)]
    assert len(rows) > 4000 and len(damages) == 2 and all('checksum' in damage.reason for damage in damages)
    for name in ('key', 'value'): assert {None, b''} < {r[name] for r in rows}
    assert any(header['value'] is None for r in rows for header in r['headers'])
    assert {r['timestamp_type'] for r in rows} == {'CREATE_TIME', 'LOG_APPEND_TIME'}
    assert {(r['control'], r['transactional']) for r in rows} == {(False, False), (False, True), (True, False),
                                                                  (True, True)}


def test_the_records_of_the_course_have_a_count_of_headers_that_kafka_refuses():
    """Its tester writes -1. Brokers hand such records out as they are; Java's consumer gives up on them, and so do our
    readers."""
    for path in FIXTURES.glob('course/*/logs/*/*.log'):
        damages = [r for r in same(path.read_bytes()) if isinstance(r, Damage)]
        assert all("can't be null" in damage.reason for damage
                   in damages) and bool(damages) == ('__cluster_metadata-0' not in path.parts
                                                     and path.stat().st_size > 0)


@pytest.mark.parametrize('path', SMALL[::7], ids=lambda path: str(path.relative_to(FIXTURES)))
def test_cut_off_anywhere(path):
    whole = path.read_bytes()
    for size in range(0, len(whole), max(1, len(whole)//150)): same(whole[:size], ['offset', 'value'])


def test_a_mapped_file_a_view_and_an_array():
    path = FIXTURES/'segments/logs/seg.java-zstd-0/00000000000000000000.log'
    log = path.read_bytes()
    expected = list(ours(log, scan(log)[0]))
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert list(ours(mapped, scan(mapped)[0])) == expected
    for buf in (bytearray(log), memoryview(log), np.frombuffer(bytearray(log), np.uint8)):
        assert list(ours(buf, scan(buf)[0])) == expected


def test_the_buffer_is_left_alone():
    log = bytearray((FIXTURES/'segments/logs/seg.java-none-0/00000000000000000000.log').read_bytes())
    array = np.frombuffer(log, np.uint8)
    before = bytes(log)
    list(record_batches(array, scan(array)[0], EVERY))
    assert bytes(log) == before and array.flags.writeable


# --- Logs of any kind -------------------------------------------------------------------------------------------------

def numbers(bits): return st.integers(-2**(bits - 1), 2**(bits - 1) - 1)
def near(*centres): return st.one_of(*(st.integers(centre - 2, centre + 2) for centre in centres))

some_bytes = st.one_of(st.none(), st.binary(max_size=30), st.sampled_from([0, 63, 64, 8191, 8192]).map(bytes))
names = st.one_of(st.text(max_size=8).map(str.encode), st.sampled_from([b'', 'ключ'.encode(), '鍵'.encode(), b'\xff\xfe',  # noqa: E501
    b'a\x80', b'\xed\xa0\x80']))
deltas = st.one_of(st.integers(0, 100), numbers(32))
times = st.one_of(st.integers(0, 5000), numbers(64), near(0, -64, 2**31, FURTHEST, -FURTHEST, 2**63 - 3, 3 - 2**63))
made_records = st.builds(record, some_bytes, some_bytes, st.lists(st.tuples(names, some_bytes), max_size=3), deltas,
                         times,
                         st.sampled_from([0, 0, 0, 255]))
codecs = st.integers(0, 4)


@st.composite
def batches(draw, records=st.lists(made_records, max_size=8)):
    codec, flags = draw(codecs), draw(st.sampled_from([0, 0, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL | TRANSACTIONAL,
                                                       1 << 6, -32768]))
    small = draw(st.booleans())   # ordinary numbers, or any
    return record_batch(draw(records), base_offset=draw(st.integers(0, 1000) if small else st.one_of(numbers(64),
        near(2**63 - 3))),
                        attributes=flags | codec, leader_epoch=draw(numbers(32)), base_timestamp=draw(times),
                        max_timestamp=draw(times),
                        producer_id=draw(numbers(64)), producer_epoch=draw(numbers(16)),
                        base_sequence=draw(st.one_of(numbers(32), near(2**31 - 3))),
                        last_offset_delta=draw(numbers(32)), pack=functools.partial(compress, codec))


logs = st.lists(batches(), max_size=5).map(b''.join)


@budget(150)
@given(logs, st.sampled_from([1, 2, 5, 1 << 16]), st.sampled_from([1, 300, 1 << 24]))
def test_logs_of_any_kind(log, rows, size): same(log, rows=rows, size=size)


@given(logs, st.lists(st.sampled_from(EVERY), unique=True, min_size=1))
def test_any_columns_in_any_order(log, columns): same(log, columns)


@given(logs)
def test_without_columns_there_are_still_rows(log):
    headers, _ = scan(log)
    def counted(columns):
        return [made if isinstance(made, Damage) else made.num_rows for made in record_batches(log, headers, columns)]
    assert counted([]) == counted(['offset'])


@given(logs, st.data())
def test_headers_can_be_chosen(log, data):
    "A reader of some of the batches gives what those batches hold."
    headers, _ = scan(log)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(headers), max_size=len(headers))), bool)
    chosen = [Batch(log, position) for position in headers[mask].position.tolist()]
    assert list(ours(log, headers[mask])) == list(taught(chosen))
    assert len(headers[1:]) == max(len(headers) - 1, 0) and isinstance(headers[1:], Headers)


@given(logs, st.data())
def test_a_scan_may_start_and_end_at_any_batch(log, data):
    every = scan(log)[0].position.tolist() + [len(log)]
    start, end = sorted(data.draw(st.tuples(*[st.sampled_from(every)]*2)))
    headers, damage = scan(log, start, end)
    assert damage is None and headers.position.tolist() == [position for position in every[:-1]
                                                            if start <= position < end]


@given(logs)
def test_headers_say_what_the_taught_reader_says(log):
    headers, _ = scan(log)
    made = batch_table(headers)
    assert made.schema == pa.schema(BATCH_COLUMNS) and made.num_rows == len(headers)
    for batch, i, r in zip(taught_headers(log)[0], range(len(headers)), rows_of(made)):
        h, attributes = batch.header, batch.header.attributes
        for name in ('base_offset', 'partition_leader_epoch', 'magic', 'crc', 'attributes', 'base_timestamp',
                     'max_timestamp', 'producer_id',
                     'producer_epoch', 'base_sequence', 'record_count'):
            assert getattr(headers, name)[i] == getattr(h, name)
        last = max(min(batch.last_offset, LONGEST), -LONGEST - 1)
        assert (headers.position[i], headers.size[i], headers.last_offset[i]) == (batch.start, batch.end - batch.start,
            last)
        for name in ('base_offset', 'record_count', 'producer_id', 'producer_epoch', 'base_sequence', 'magic', 'crc',
                     'attributes'):
            assert r[name] == getattr(h, name)
        assert (r['position'], r['size'], r['last_offset']) == (batch.start, batch.end - batch.start, last)
        assert r['leader_epoch'] == h.partition_leader_epoch
        assert (r['codec'], r['control'], r['transactional']) == (codec_name(attributes & CODEC_BITS), batch.control,
                                                                  batch.transactional)
        assert (r['delete_horizon'] == bool(attributes & 64)
                and (r['timestamp_type'] == 'LOG_APPEND_TIME') == batch.log_append_time)
        for name in ('base_timestamp', 'max_timestamp'):
            time = getattr(h, name)
            assert r[name] == (time*1000 if abs(time) <= FURTHEST else None)


def test_nothing_at_all():
    headers, damage = scan(b'')
    assert len(headers) == 0 and damage is None and list(record_batches(b'', headers, EVERY)) == []
    assert batch_table(headers).num_rows == 0


def test_an_unknown_column_is_refused():
    with pytest.raises(ValueError, match="'colour'"): list(record_batches(b'', scan(b'')[0], ['colour']))


# --- Tables of a bounded size -----------------------------------------------------------------------------------------

def test_tables_hold_whole_batches_up_to_the_limits():
    log = b''.join(record_batch([record(bytes(100), offset_delta=n) for n in range(10)],
                                base_offset=10*i) for i in range(50))
    headers, _ = scan(log)
    assert [made.num_rows for made in record_batches(log, headers, EVERY)] == [500]
    assert [made.num_rows for made in record_batches(log, headers, EVERY, rows=35)] == [30]*16 + [20]
    assert [made.num_rows for made in record_batches(log, headers, EVERY, size=2500)] == [20]*25
    assert [made.num_rows for made in record_batches(log, headers, EVERY, rows=1)] == [10]*50


def test_what_comes_out_of_compressed_batches_counts():
    packed = record_batch([record(bytes(100_000))], attributes=4, pack=functools.partial(compress, 4))
    log = packed*20
    sizes = [made.num_rows for made in record_batches(log, scan(log)[0], EVERY, size=250_000)]
    assert sizes == [2]*10


# --- Damage -----------------------------------------------------------------------------------------------------------

def test_headers_of_another_log_are_refused():
    headers, _ = scan(record_batch([record(b'value')])*3)
    with pytest.raises(ValueError, match='no batch at 73 of 100 bytes'):
        list(record_batches(bytes(100), headers, EVERY))
    headers.position[0] = -100
    with pytest.raises(ValueError, match='no batch at -100'): list(record_batches(bytes(1000), headers, EVERY))
    with pytest.raises(ValueError, match='not at -1'): scan(bytes(1000), -1)


def with_checksum(batch: bytes) -> bytes:
    "A batch whose length and checksum fit what it holds, whatever that is."
    if len(batch) < 61: return batch
    return batch[:8] + struct.pack('>i', len(batch) - 12) + batch[12:17] + struct.pack('>I',
        crc32c(batch[21:])) + batch[21:]


@st.composite
def changed(draw, data: bytes):
    "The bytes with a few of them changed, left out or put in."
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at, kind = draw(st.integers(0, max(len(data) - 1, 0))), draw(st.integers(0, 3))
        if kind == 0 and data: data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == 1 and data: data[at] = draw(st.sampled_from([0, 1, 2, 0x7f, 0x80, 0xfe, 0xff]))
        elif kind == 2: del data[at:at + draw(st.integers(1, 4))]
        else: data[at:at] = draw(st.binary(min_size=1, max_size=6))
    return bytes(data)


@st.composite
def damaged_batches(draw):
    "A batch whose records were changed, before they were compressed or after; its checksum fits them as they are."
    payload = b''.join(draw(st.lists(made_records, min_size=1, max_size=5)))
    codec = draw(st.one_of(st.just(0), codecs))
    before, count = draw(st.booleans()), draw(st.one_of(st.none(), near(0, 5, len(payload)), numbers(32)))
    if before: payload = draw(changed(payload))
    batch = record_batch([payload], attributes=codec, count=draw(st.integers(1, 5)) if count is None else max(min(count,
        2**31 - 1), -2**31),
                         pack=functools.partial(compress, codec))
    return batch if before else with_checksum(batch[:61] + draw(changed(batch[61:])))


@budget(250)
@given(st.lists(st.one_of(damaged_batches(), batches()), min_size=1, max_size=4).map(b''.join))
def test_damage_below_a_good_checksum(log): same(log)


@budget(120)
@given(logs, st.data())
def test_damage_anywhere(log, data): same(data.draw(changed(log)))


@budget(120)
@given(logs, st.data())
def test_damage_anywhere_and_nobody_checks(log, data): same(data.draw(changed(log)), check=False)


@budget(120)
@given(st.binary(max_size=200), st.integers(0, 20))
@example(b'', 0)
def test_any_bytes_as_records(payload, count): same(record_batch([payload], count=count))


@given(st.binary(max_size=300))
def test_any_bytes_as_a_log(log): same(log)


@pytest.mark.parametrize('attributes', range(8))
def test_every_codec_and_those_that_are_none(attributes): same(record_batch([record(b'value')], attributes=attributes))


ENDLESS, TOO_WIDE = b'\xff'*5, b'\xff'*4 + b'\x1f'
ODD = {
    'a length of 33 bits': TOO_WIDE, 'a length without end': ENDLESS + b'\x00', 'a length cut off': b'\x80',
    'nothing but a length': b'\x0c',
    'the longest record': varint(2**31 - 1), 'a negative length': varint(-1) + record(b'a')[1:],
    'the shortest length': varint(-2**31),
    'a timestamp of 65 bits': varint(20) + b'\0' + b'\xff'*9 + b'\x02\0\1\1\0',
    'a timestamp of 64 bits': b'\x1e\0' + b'\xff'*9 + b'\x01\0\1\1\0',
    'a timestamp without end': varint(20) + b'\0' + b'\xff'*10 + b'\0\1\1\0',
    'a long zero': b'\x80\x80\x80\x80\x00' + record(b'a')[1:],
    'a key beyond the end': b'\x0c\0\0\0' + varint(2**31 - 1) + b'\1\0',
    'a value beyond the end': b'\x14\0\0\0\1' + varint(2**31 - 1) + b'\0',
    'nulls of another kind': b'\x0c\0\0\0\7\5\0', 'headers that are null': b'\x0c\0\0\0\1\1\1',
    'many headers': b'\x14\0\0\0\1\1' + varint(2**31 - 1),
    'a header without a name': b'\x10\0\0\0\1\1\2\1\1', 'a header without a value': b'\x10\0\0\0\1\1\2\0\1',
    'half a header': b'\x0e\0\0\0\1\1\2\0',
    'more headers than bytes': b'\x10\0\0\0\1\1\x04\0\1', 'a name cut off': b'\x10\0\0\0\1\1\2\x7e\1',
    'short by one': b'\x0e\0\0\0\1\1\0',
    'long by one': b'\x0a\0\0\0\1\1\0', 'as many headers as can be': record(None, headers=[(b'', None)]*40),
    'one byte more': record(b'a') + b'\0', 'a record more': record(b'a')*2, 'no record': b''}


@pytest.mark.parametrize('payload', ODD.values(), ids=ODD)
@pytest.mark.parametrize('codec', [0, 1])
def test_odd_records(payload, codec):
    "Alone, as the end of the buffer, and between batches that are sound."
    odd, sound = record_batch([payload], attributes=codec, pack=functools.partial(compress,
        codec)), record_batch([record(b'sound')])
    same(odd)
    same(sound + odd + odd + sound)
    same(record_batch([record(b'first'), payload]))


@pytest.mark.parametrize('count', [-2**31, -1, 0, 1, 2, 3, 4, 20, 10**6, 2**31 - 1])
def test_a_count_that_lies(count):
    same(record_batch([record(b'a'), record(b'b'), record(b'c')], count=count) + record_batch([record(b'd')]))


def test_all_batches_damaged():
    got = same((record_batch([record(b'value')], crc=7) + record_batch([b'\xff']))*30)
    assert len(got) == 60


def test_offsets_that_no_column_can_hold():
    high = record_batch([record(b'a'), record(b'b', offset_delta=1)], base_offset=LONGEST)
    low = record_batch([record(b'a', offset_delta=-1)], base_offset=-LONGEST - 1)
    first, second = same(high + low)
    assert (first.reason == f"offset {2**63} doesn't fit in 64 bits"
            and second.reason == f"offset {-2**63 - 1} doesn't fit in 64 bits")


def peak(function) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally: tracemalloc.stop()


def test_lies_cost_no_memory():
    "Counts and lengths of two thousand million in batches of a few bytes."
    lies = [record_batch([record(b'a')], count=2**31 - 1), record_batch([varint(2**31 - 1)]),
            record_batch([b'\x14\0\0\0\1\1' + varint(2**31 - 1)])]
    log = b''.join(lies)*100
    headers, _ = scan(log)
    list(record_batches(log, headers, EVERY))   # compiled by now
    assert peak(lambda: list(record_batches(log, headers, EVERY))) < 10_000_000


def test_a_bomb_is_refused():
    bomb = record_batch([record(bytes(MAX_SIZE))], attributes=4, pack=functools.partial(compress, 4))
    damage, sound = ours(bomb + record_batch([record(b'sound')]), scan(bomb + record_batch([record(b'sound')]))[0],
                         ['value'])
    assert (damage.reason == f'zstd: more than max_size, {MAX_SIZE} bytes, would come out'
            and sound == {'value': b'sound'})


# --- Machine code -----------------------------------------------------------------------------------------------------

CORPUS = '''
import random, sys
sys.path[:0] = sys.argv[1:]
import numba, test_columns as t
assert numba.config.BOUNDSCHECK == 1
rnd = random.Random(7)
for path in t.SMALL:
    log = path.read_bytes()
    t.same(log)
    for position in t.scan(log)[0].position.tolist()[:6]:
        batch = t.Batch(log, position)
        for _ in range(6):
            data = bytearray(log[position:batch.end])
            for _ in range(rnd.randrange(1, 4)): data[rnd.randrange(21, len(data))] = rnd.choice([0, 1, 127, 128, 255, rnd.randrange(256)])
            t.same(t.with_checksum(bytes(data[:rnd.choice([len(data), rnd.randrange(61, len(data) + 1)])])))
for payload in t.ODD.values(): t.same(t.record_batch([payload]))
print('all within bounds')
'''  # noqa: E501


def test_no_index_is_out_of_bounds(tmp_path):
    "Compiled anew with a check at every index, over fixtures and damaged copies of them."
    environment = {**os.environ, 'NUMBA_BOUNDSCHECK': '1', 'NUMBA_CACHE_DIR': str(tmp_path),
                   'PYTHONPATH': str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, '-c', CORPUS, str(Path(__file__).parent),
                           str(Path(__file__).parents[1]/'helpers')], env=environment, capture_output=True, text=True,
                           timeout=600)
    assert done.stdout == 'all within bounds\n', done.stderr


def test_threads_may_read_at_the_same_time():
    log = (FIXTURES/'segments/logs/seg.java-none-0/00000000000000000000.log').read_bytes()*50
    headers, _ = scan(log)
    expected, found = list(ours(log, headers)), []
    threads = [threading.Thread(target=lambda: found.append(list(ours(log, headers)))) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert found == [expected]*4


def test_what_was_compiled_is_kept_on_disk_if_it_came_from_a_file():
    assert compiled(lambda: 1)() == 1
    names = {}
    exec(compile('def function(): return 2', '<a cell>', 'exec'), names)
    assert compiled(names['function'])() == 2


def test_no_place_to_keep_it(monkeypatch):
    from numba.core import caching
    monkeypatch.setattr(caching.CompileResultCacheImpl, '_locator_classes', [])
    assert compiled(lambda: 3)() == 3


def test_it_is_python_after_all():
    "Without the compiler the walk is slow, but the same: for those who follow it with a debugger."
    code = "import sys; sys.path[:0] = sys.argv[1:]; import test_columns as t; [t.same(path.read_bytes()) for path in t.SMALL[::10]]"  # noqa: E501
    environment = {**os.environ, 'NUMBA_DISABLE_JIT': '1', 'PYTHONPATH': str(Path(__file__).parents[2])}
    command = [sys.executable, '-W', 'ignore', '-c', code, str(Path(__file__).parent),
               str(Path(__file__).parents[1]/'helpers')]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_the_broker_needs_none_of_it():
    code = "import sys, kafka_scratch.broker.server, kafka_scratch.tools.cli; print({'numba', 'pyarrow', 'numpy', 'pyspark'} & set(sys.modules))"  # noqa: E501
    assert subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout == 'set()\n'
