"Compression: what Kafka and its clients wrote can be opened; nothing that strangers write does harm."
import importlib.util
import json
import re
import shlex
import struct
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import kafka_scratch
from size import budget
from kafka_scratch import log
from kafka_scratch.log import compression, zstd as zstd_module
from kafka_scratch.log.compression import CODECS, compress, decompress
from kafka_scratch.log.zstd import MissingCodec, decompress_zstd, how_to_install, zstd_most
from kafka_scratch.log.gzip import decompress_gzip
from kafka_scratch.log.lz4 import decompress_lz4, lz4_block
from kafka_scratch.log.snappy import XERIAL, decompress_snappy
from kafka_scratch.wire.primitives import DecodeError, EncodeError, UnsignedVarint

ROOT = Path(__file__).parents[2]
SEGMENTS = ROOT/'tests'/'fixtures'/'segments'
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
zstd_installed = zstd_module.cramjam is not None or zstd_module._zstd is not None
needs_zstd = pytest.mark.skipif(not zstd_installed, reason='needs Python 3.14 or cramjam')
TAUGHT = {GZIP: decompress_gzip, SNAPPY: decompress_snappy, LZ4: decompress_lz4}
every_codec = pytest.mark.parametrize('codec', [GZIP, SNAPPY, LZ4, pytest.param(ZSTD, marks=needs_zstd)])


def compressed_batches():
    "Every compressed batch of the fixtures: (topic, partition, base offset, last offset, codec, records)."
    for path in sorted(SEGMENTS.glob('logs/*/*.log')):
        topic, _, partition = path.parent.name.rpartition('-')
        data, pos = path.read_bytes(), 0
        while pos < len(data):
            base, length = struct.unpack_from('>qi', data, pos)
            attributes, last = struct.unpack_from('>hi', data, pos + 21)
            end = pos + 12 + length
            if attributes & 7: yield topic, int(partition), base, base + last, attributes & 7, data[pos + 61:end]
            pos = end


BATCHES = list(compressed_batches())
PLAIN = (SEGMENTS/'logs/seg.java-none-0/00000000000000000000.log').read_bytes()[395 + 61:]   # the third batch
# the last of each
SQUEEZED = {codec: data for topic, _, _, _, codec, data in BATCHES if topic.startswith('seg.java-')}

# Texts with much, some and no repetition.
texts = st.one_of(st.binary(max_size=300), st.builds(bytes.__mul__, st.binary(min_size=1, max_size=40),
                                                     st.integers(1, 400)),
                  st.lists(st.sampled_from([b'offset', b'leader', b'\x00\x00', b'kafka ', b'x']),
                           max_size=200).map(b''.join))


def opened(function, *args):
    "What a decoder gives, or None where it refuses. Any other error is a failure."
    try: return bytes(function(*args))
    except DecodeError as error:
        assert str(error) and error.offset >= 0
        return None


def without_cramjam(monkeypatch):
    for module in (compression, zstd_module): monkeypatch.setattr(module, 'cramjam', None)
    monkeypatch.setattr(zstd_module, '_zstd', None)


# --- What Kafka wrote -------------------------------------------------------------------------------------------------

def test_there_are_batches_of_every_codec_and_writer():
    assert {codec for *_, codec, _ in BATCHES} == {1, 2, 3, 4}
    topics = {topic for topic, *_ in BATCHES}
    assert {'seg.python-clients', 'seg-broker-recompress'} <= topics
    assert {f'seg.{who}-{name}' for who in ('java', 'rdkafka') for name in ('gzip', 'snappy', 'lz4', 'zstd')} <= topics


@every_codec
def test_same_record_in_every_codec(codec): assert decompress(codec, SQUEEZED[codec]) == PLAIN and len(PLAIN) == 736


@needs_zstd
def test_what_a_java_consumer_read_is_inside():
    values = {}
    for line in open(SEGMENTS/'records.jsonl', encoding='utf-8'):
        record = json.loads(line)
        values[record['topic'], record['partition'], record['offset']] = record['value'] or {}
    seen = 0
    for topic, partition, base, last, codec, data in BATCHES:
        text = decompress(codec, data)
        for offset in range(base, last + 1):
            value = values.get((topic, partition, offset), {})
            if 'hex' in value: assert bytes.fromhex(value['hex']) in text; seen += 1
    assert seen > 80


def test_taught_and_accelerated_agree_on_every_batch(monkeypatch):
    fast = [decompress(codec, data) for *_, codec, data in BATCHES if codec != ZSTD]
    assert fast == [TAUGHT[codec](data) for *_, codec, data in BATCHES if codec != ZSTD]
    without_cramjam(monkeypatch)
    assert fast == [decompress(codec, data) for *_, codec, data in BATCHES if codec != ZSTD]


def test_every_batch_as_cramjam_reads_it():
    cramjam = pytest.importorskip('cramjam')
    whole = {GZIP: cramjam.gzip.decompress, LZ4: cramjam.lz4.decompress, ZSTD: cramjam.zstd.decompress}
    for *_, codec, data in BATCHES:
        if codec in whole: assert decompress(codec, data) == bytes(whole[codec](data))
        elif not data.startswith(XERIAL):
            assert decompress(codec, data) == bytes(cramjam.snappy.decompress_raw(data))


@pytest.mark.parametrize('kind', [bytes, bytearray, memoryview])
@every_codec
def test_any_kind_of_buffer(codec, kind):
    result = decompress(codec, kind(SQUEEZED[codec]))
    assert type(result) is bytes and result == PLAIN and decompress(codec, compress(codec, kind(PLAIN))) == PLAIN
    assert type(decompress(0, kind(b'abc'))) is bytes and type(compress(0, kind(b'abc'))) is bytes


# --- Round trips ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('codec', [0, GZIP, SNAPPY, LZ4, pytest.param(ZSTD, marks=needs_zstd)])
@given(texts)
def test_round_trip(codec, text): assert decompress(codec, compress(codec, text)) == text


@given(texts)
def test_taught_decoders_read_what_compress_writes(text):
    for codec, taught in TAUGHT.items(): assert taught(compress(codec, text)) == text


@pytest.mark.parametrize('size', [0, 1, 4, 59, 60, 61, 62, 256, 257, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537,
                                  200_000])
@pytest.mark.parametrize('codec', [SNAPPY, LZ4])
def test_sizes_around_the_edges_with_and_without_cramjam(codec, size, monkeypatch):
    text = bytes(i * i >> 5 & 0xff for i in range(size))
    accelerated = compress(codec, text)
    without_cramjam(monkeypatch)
    plain = compress(codec, text)
    for squeezed in (accelerated, plain): assert decompress(codec, squeezed) == text
    monkeypatch.undo()
    for squeezed in (accelerated, plain): assert decompress(codec, squeezed) == text


@budget(30)
@given(texts, st.integers(1, 60))
def test_frames_as_others_write_them(text, times):
    # cramjam's LZ4 frames have linked blocks and a content checksum, which Kafka's own never have.
    cramjam = pytest.importorskip('cramjam')
    text *= times
    assert decompress_lz4(bytes(cramjam.lz4.compress(text))) == text
    assert decompress(LZ4, bytes(cramjam.lz4.compress(text))) == text
    assert decompress_snappy(bytes(cramjam.snappy.compress_raw(text))) == text
    assert decompress_gzip(bytes(cramjam.gzip.compress(text))) == text


def test_compress_gives_the_headers_that_kafka_writes():
    assert compress(LZ4, PLAIN)[:7] == SQUEEZED[LZ4][:7] and compress(SNAPPY, PLAIN)[:16] == SQUEEZED[SNAPPY][:16]
    assert compress(GZIP, PLAIN)[:3] == SQUEEZED[GZIP][:3]


# --- Strangers --------------------------------------------------------------------------------------------------------

starts = st.sampled_from([b'', XERIAL + bytes([0, 0, 0, 1] * 2), bytes.fromhex('04224d18604082'),
                          bytes.fromhex('04224d18'),
                          bytes.fromhex('28b52ffd'), bytes.fromhex('28b52ffd0058'),
                          bytes.fromhex('1f8b08000000000000ff')])


@every_codec
@given(starts, st.binary(max_size=200), st.integers(0, 5000))
def test_arbitrary_bytes(codec, start, data, max_size):
    result = opened(decompress, codec, start + data, max_size)
    assert result is None or len(result) <= max_size


@every_codec
@given(texts, st.data())
def test_damaged_streams(codec, text, draw):
    data = bytearray(compress(codec, text))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(data[:draw.draw(st.integers(0, len(data)))] if draw.draw(st.booleans()) else data)
    result = opened(decompress, codec, data, 20_000)
    assert result is None or len(result) <= 20_000
    taught = opened(TAUGHT[codec], data, 20_000) if codec in TAUGHT else None
    if taught is not None: assert result == taught
    if codec == SNAPPY: assert result == taught


@given(st.binary(max_size=60), st.integers(0, 20_000))
def test_lz4_blocks(data, limit):
    "Whatever the block: an answer within the limit, or a DecodeError, and nothing before `first` is touched or seen."
    out = bytearray(b'before')
    try: lz4_block(data, 0, len(data), out, 6, 6 + limit)
    except DecodeError: pass
    assert out.startswith(b'before') and len(out) <= 6 + limit


@every_codec
def test_cut_off_anywhere(codec):
    for n in range(len(SQUEEZED[codec])):
        if codec == SNAPPY and n == 16: continue   # the header of a xerial stream, with no block: empty, as for Kafka
        with pytest.raises(DecodeError, match=CODECS[codec]): decompress(codec, SQUEEZED[codec][:n])


@every_codec
def test_the_limit_is_exact_and_named(codec):
    text = b'lorem ipsum dolor ' * 20_000
    squeezed = compress(codec, text)
    assert decompress(codec, squeezed, len(text)) == text
    for max_size in (0, 1, 1000, len(text) - 1):
        with pytest.raises(DecodeError, match=f'{CODECS[codec]}: .*max_size, {max_size} bytes'):
            decompress(codec, squeezed, max_size)


def peak_memory(function, *args):
    import tracemalloc
    tracemalloc.start()
    try: return opened(function, *args), tracemalloc.get_traced_memory()[1]
    finally: tracemalloc.stop()


@every_codec
def test_bombs_stay_small(codec):
    bomb = compress(codec, bytes(30_000_000))
    result, peak = peak_memory(decompress, codec, bomb, 100_000)
    assert result is None and peak < 1_000_000 + 2 * len(bomb)


def test_a_lie_about_the_size_reserves_nothing():
    result, peak = peak_memory(decompress, SNAPPY, UnsignedVarint.write(90_000_000) + b'\x00a')
    assert result is None and peak < 1_000_000
    # blocks of 4 MB
    result, peak = peak_memory(decompress, LZ4, bytes.fromhex('04224d18 607000 03000000 1061 00 00000000'))
    assert result is None and peak < 100_000


def test_many_tiny_gzip_members_take_no_time():
    members = 20_000
    assert decompress_gzip(zlib.compress(b'x', wbits=31) * members) == b'x' * members


@needs_zstd
def test_zstd_frames():
    def raw(text): return bytes.fromhex('28b52ffd 00 58') + (len(text) << 3 | 1).to_bytes(3, 'little') + text
    assert decompress_zstd(raw(b'abc')) == b'abc' and decompress_zstd(raw(b'abc') + raw(b'') + raw(b'def')) == b'abcdef'
    single_segment = bytes.fromhex('28b52ffd 20 03 190000') + b'abc'
    checksum = bytes.fromhex('28b52ffd 04 58 190000') + b'abc' + bytes(4)
    assert decompress_zstd(single_segment) == b'abc' and zstd_most(single_segment) == zstd_most(checksum) == 3
    # the sum is wrong, and the library says so
    with pytest.raises(DecodeError, match='zstd'): decompress_zstd(checksum)
    with pytest.raises(DecodeError, match='28b52ffd'): decompress_zstd(raw(b'abc') + b'junk')


# --- What is missing --------------------------------------------------------------------------------------------------

def test_unknown_codecs():
    for codec in (5, 6, 7, -1):
        with pytest.raises(DecodeError, match=f'unknown codec {codec}'): decompress(codec, b'')
        with pytest.raises(EncodeError, match=f'unknown codec {codec}'): compress(codec, b'')


def test_missing_codec_says_what_to_install(monkeypatch):
    without_cramjam(monkeypatch)
    for function, data in ((decompress, SQUEEZED[ZSTD]), (compress, b'abc')):
        with pytest.raises(MissingCodec,
                           match=r"zstd needs Python 3.14 or the package cramjam: pip install '\S*\[fast\]'$"):
            function(ZSTD, data)


def test_what_to_install_from_wherever_one_is(monkeypatch, tmp_path):
    "In the checkout, below it, elsewhere; and for a package that was installed, by the names of what is missing."
    monkeypatch.chdir(ROOT)
    assert how_to_install('fast') == "pip install '.[fast]'"
    monkeypatch.chdir(ROOT/'nbs')
    assert how_to_install('spark') == "pip install '..[spark]'"
    monkeypatch.chdir(tmp_path)
    assert how_to_install('spark') == f"pip install {shlex.quote(f'{ROOT}[spark]')}"
    monkeypatch.setattr(kafka_scratch, '__path__', [f'{tmp_path}/site-packages/kafka_scratch'])
    assert re.fullmatch(r"pip install '?crc32c\S* '?cramjam\S* '?google-re2\S* '?uvloop\S* '?xxhash\S*",
                        how_to_install('fast'))
    assert how_to_install('nothing') == "pip install '.[nothing]'"


def test_nothing_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cramjam', None)   # importing it now fails
    monkeypatch.setattr(log, 'zstd', zstd_module)       # imported anew below, and put back at the end
    monkeypatch.delitem(sys.modules, 'kafka_scratch.log.zstd')
    spec = importlib.util.spec_from_file_location('kafka_scratch.log.compression_alone', compression.__file__)
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    assert alone.ACCELERATED == 'python' and alone.cramjam is None
    for codec in (0, GZIP, SNAPPY, LZ4): assert alone.decompress(codec, alone.compress(codec, PLAIN)) == PLAIN


def test_zstd_of_python_3_14(monkeypatch):
    "The same interface comes as the package backports.zstd for older Pythons."
    zstd = zstd_module._zstd or pytest.importorskip('backports.zstd')
    monkeypatch.setattr(zstd_module, 'cramjam', None)
    monkeypatch.setattr(zstd_module, '_zstd', zstd)
    for *_, codec, data in BATCHES:
        if codec == ZSTD: assert decompress(ZSTD, data)
    assert decompress(ZSTD, SQUEEZED[ZSTD], 736) == PLAIN == decompress(ZSTD, compress(ZSTD, PLAIN))
    assert decompress(ZSTD, SQUEEZED[ZSTD] * 2) == PLAIN * 2
    with pytest.raises(DecodeError, match='max_size, 735 bytes'): decompress(ZSTD, SQUEEZED[ZSTD], 735)
    # a kind of block that doesn't exist
    with pytest.raises(DecodeError, match='zstd'): decompress(ZSTD, bytes.fromhex('28b52ffd 0058 070000'))
