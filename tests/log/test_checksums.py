"CRC-32C: the taught versions, the accelerated one and Kafka's own sums agree."
import importlib.util
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from kafka_scratch.log import checksums
from kafka_scratch.log.checksums import crc32c, crc32c_fold
from kafka_scratch.log.crc import crc32c_table

SEGMENTS = Path(__file__).parents[1]/'fixtures'/'segments'
WAYS = crc32c, crc32c_fold, crc32c_table


def batches(path):
    data, pos = path.read_bytes(), 0
    while pos < len(data):
        end = pos + 12 + struct.unpack_from('>i', data, pos + 8)[0]
        yield data[pos:end]
        pos = end


def intact(batch, way=crc32c): return struct.unpack_from('>I', batch, 17)[0] == way(memoryview(batch)[21:])


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('data, crc', [
    (b'', 0), (b'a', 0xc1d04330), (b'123456789', 0xe3069283),
    (bytes(32), 0x8a9136aa), (b'\xff' * 32, 0x62a8ab43),                           # RFC 3720, appendix B.4
    (bytes(range(32)), 0x46dd794e), (bytes(range(31, -1, -1)), 0x113fdb5c)])
def test_published_vectors(way, data, crc): assert way(data) == crc


@pytest.mark.parametrize('way', WAYS)
def test_every_batch_that_kafka_wrote(way):
    # The table takes a tenth of a second for the one batch of 900 KB: once is enough.
    found = [intact(batch, way) for path in sorted(SEGMENTS.glob('logs/*/*.log')) for batch in batches(path)]
    assert len(found) > 300 and all(found)


def test_all_lengths():
    data = bytes(i * 89 + (i >> 3) & 0xff for i in range(300))
    for n in range(301): assert crc32c(data[:n]) == crc32c_fold(data[:n]) == crc32c_table(data[:n]), n


@pytest.mark.parametrize('size', [65_535, 65_536, 65_537, 65_536 + 63, 65_536 + 64, 200_001])
def test_large(size):
    data = (bytes(range(256)) * (size // 256 + 2))[3:size + 3]
    assert len(data) == size and crc32c(data) == crc32c_fold(data) == crc32c_table(data)


@given(st.binary(max_size=3000), st.integers(0, 2**32 - 1))
def test_equal_from_any_start(data, crc): assert crc32c(data, crc) == crc32c_fold(data, crc) == crc32c_table(data, crc)


@given(st.binary(max_size=600), st.integers(0, 600))
def test_in_pieces(data, cut):
    for way in WAYS: assert way(data[cut:], way(data[:cut])) == way(data)


@given(st.binary(min_size=1, max_size=600), st.data())
def test_one_flipped_bit_is_noticed(data, draw):
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    assert crc32c_fold(flipped) != crc32c_fold(data)


@pytest.mark.parametrize('kind', [bytes, bytearray, memoryview])
@pytest.mark.parametrize('way', WAYS)
def test_any_kind_of_buffer(way, kind): assert way(kind(b'123456789' * 40)) == way(b'123456789' * 40)


@pytest.mark.parametrize('name, expected', [('flipped-byte-in-value', [True, False, True]),
                                            ('flipped-byte-in-crc', [True, False, True]),
                                            ('flipped-byte-in-leader-epoch', [True] * 3)])
def test_damaged_files(name, expected):
    assert [intact(batch) for batch in batches(SEGMENTS/'damaged'/name/'00000000000000000000.log')] == expected


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, 'crc32c', None)   # importing it now fails
    spec = importlib.util.spec_from_file_location('kafka_scratch.log.checksums_alone', checksums.__file__)
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    assert alone.ACCELERATED == 'python' and alone.crc32c(b'123456789') == 0xe3069283
    assert checksums.ACCELERATED in ('python', 'crc32c')
