"""Kafka's bytes, made and taken apart with nothing but `struct`.

The package has its own encoder and decoder; tests that used those would only show that the two agree. These know
just what the tests need, and refuse a byte too few or too many.
"""
import struct

from crc32c import crc32c

API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS = 18, 75
ZERO = bytes(16)


def uvarint(number: int) -> bytes:
    out = b''
    while number > 127: out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def varint(number: int) -> bytes: return uvarint(2 * number if number >= 0 else -2 * number - 1)


def compact(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return uvarint(len(raw) + 1) + raw


def compact_array(items) -> bytes: return uvarint(len(items) + 1) + b''.join(items)
def int32s(numbers) -> bytes: return compact_array([struct.pack('>i', number) for number in numbers])


# --- Requests ---------------------------------------------------------------------------------------------------------

def framed(data: bytes) -> bytes: return struct.pack('>i', len(data)) + data


def request(api_key: int, version: int, correlation_id: int, body: bytes = b'', client_id: str | None = 'tests',
            flexible: bool = True) -> bytes:
    client = struct.pack('>h', -1) if client_id is None else struct.pack('>h', len(client_id)) + client_id.encode()
    return framed(struct.pack('>hhi', api_key, version, correlation_id) + client + b'\0' * flexible + body)


def api_versions(correlation_id: int, version: int = 4, client_id: str | None = 'tests',
                 software: str = 'kafka-cli') -> bytes:
    flexible = version >= 3
    return request(API_VERSIONS, version, correlation_id,
                   compact(software) + compact('0.1') + b'\0' if flexible else b'', client_id, flexible)


def describe(correlation_id: int, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None,
             client_id: str | None = 'tests', rest: bytes = b'') -> bytes:
    asked_from = b'\xff' if cursor is None else b'\1' + compact(cursor[0]) + struct.pack('>i', cursor[1]) + b'\0'
    body = compact_array([compact(topic) + b'\0' for topic in topics]) + struct.pack('>i', limit) + asked_from + b'\0'
    return request(DESCRIBE_TOPIC_PARTITIONS, 0, correlation_id, body + rest, client_id)


# --- Answers ----------------------------------------------------------------------------------------------------------

class Reader:
    "Takes bytes apart from the front."
    def __init__(self, data: bytes): self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        assert n >= 0 and self.at + n <= len(
            self.data), f'{n} bytes wanted at {self.at}, but there are only {len(self.data)}: {self.data.hex()}'
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, format: str) -> int: return struct.unpack('>' + format, self.take(struct.calcsize(format)))[0]
    def int16(self) -> int: return self.number('h')
    def int32(self) -> int: return self.number('i')

    def uvarint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128: return number

    def count(self) -> int: return self.uvarint() - 1
    def array(self, element) -> list: return [element() for _ in range(self.count())]
    def string(self) -> str | None:
        n = self.count()
        return None if n < 0 else self.take(n).decode()
    def boolean(self) -> bool: return {b'\0': False, b'\1': True}[self.take(1)]
    def no_tags(self): assert self.take(1) == b'\0', f'no tagged fields expected before {self.at}: {self.data.hex()}'
    def end(self): assert self.at == len(self.data), f'{len(self.data) - self.at} bytes too many: {self.data.hex()}'


def opened(frame: bytes | None) -> Reader:
    "The reader of a frame whose length is right."
    assert frame is not None, 'an answer was expected, but the connection was closed'
    reader = Reader(frame)
    assert reader.int32() == len(frame) - 4
    return reader


def correlation_id(frame: bytes) -> int: return struct.unpack_from('>i', frame, 4)[0]


def read_api_versions(frame: bytes | None, version: int = 4) -> dict:
    "An ApiVersions answer to its last byte; the header has no tags in any version."
    r = opened(frame)
    answer = {'correlation_id': r.int32(), 'error_code': r.int16()}
    flexible = version >= 3

    def api():
        entry = r.int16(), r.int16(), r.int16()
        if flexible: r.no_tags()
        return entry

    answer['api_keys'] = r.array(api) if flexible else [api() for _ in range(r.int32())]
    if version >= 1: answer['throttle_time_ms'] = r.int32()
    if flexible:
        answer['tags'] = {}
        for _ in range(r.uvarint()):
            tag = r.uvarint()
            answer['tags'][tag] = r.take(r.uvarint())
    r.end()
    return answer


def read_features(tag: bytes) -> dict[str, tuple[int, int]]:
    "The finalized features: name, highest and lowest level."
    r = Reader(tag)
    features = {}
    for _ in range(r.count()):
        name = r.string()
        features[name] = r.int16(), r.int16()
        r.no_tags()
    r.end()
    return features


def read_describe(frame: bytes | None) -> dict:
    "A DescribeTopicPartitions answer to its last byte; the header ends with tags."
    r = opened(frame)

    def partition():
        found = {'error_code': r.int16(), 'partition_index': r.int32(), 'leader_id': r.int32(),
                 'leader_epoch': r.int32()}
        for name in 'replica_nodes', 'isr_nodes', 'eligible_leader_replicas', 'last_known_elr', 'offline_replicas':
            found[name] = r.array(r.int32)
        r.no_tags()
        return found

    def topic():
        found = {'error_code': r.int16(), 'name': r.string(), 'topic_id': r.take(16), 'is_internal': r.boolean(),
                 'partitions': r.array(partition),
                 'topic_authorized_operations': r.int32()}
        r.no_tags()
        return found

    answer = {'correlation_id': r.int32()}
    r.no_tags()
    answer |= {'throttle_time_ms': r.int32(), 'topics': r.array(topic)}
    marker = r.number('b')
    answer['next_cursor'] = None if marker == -1 else (r.string(), r.int32(), r.no_tags())[:2]
    r.no_tags()
    r.end()
    return answer


# --- A metadata log ---------------------------------------------------------------------------------------------------

def batch(values: list[bytes], base_offset: int, leader_epoch: int = 1, attributes: int = 0,
          timestamp: int = 1_730_000_000_000) -> bytes:
    "Values as the records of a batch, which has no keys, no headers and one timestamp."
    records = b''
    for delta, value in enumerate(values):
        record = b'\0' + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(record)) + record
    checked = struct.pack('>hiqqqhii', attributes, len(values) - 1, timestamp, timestamp, -1, -1, -1,
                          len(values)) + records
    return struct.pack('>qiibI', base_offset, len(checked) + 9, leader_epoch, 2, crc32c(checked)) + checked


def feature_level(name: str, level: int) -> bytes:
    return bytes([1, 12, 0]) + compact(name) + struct.pack('>h', level) + b'\0'
def topic_record(name: str, topic_id: bytes) -> bytes: return bytes([1, 2, 0]) + compact(name) + topic_id + b'\0'
def remove_topic(topic_id: bytes) -> bytes: return bytes([1, 9, 0]) + topic_id + b'\0'


def partition_record(topic_id: bytes, index: int, replicas=(1,), isr=(1,), leader: int = 1, leader_epoch: int = 0,
                     partition_epoch: int = 0,
                     directories=(bytes.fromhex('10000000000040008000000000000001'),)) -> bytes:
    return (bytes([1, 3, 1]) + struct.pack('>i',
                                           index) + topic_id + int32s(replicas) + int32s(isr) + int32s(()) + int32s(())
            + struct.pack('>iii', leader, leader_epoch, partition_epoch) + compact_array(list(directories)) + b'\0')


def leader_change(topic_id: bytes, index: int, leader: int) -> bytes:
    "A PartitionChangeRecord with one tagged field, the leader."
    return bytes([1, 5, 0]) + struct.pack('>i', index) + topic_id + bytes([1, 1, 4]) + struct.pack('>i', leader)


def topic_id_of(name: str) -> bytes:
    "Some id, always the same for a name."
    return b'topic' + crc32c(name.encode()).to_bytes(4, 'big') + crc32c(name[::-1].encode()).to_bytes(4,
        'big') + b'\0\0\1'


def topic_batch(base_offset: int, name: str, partitions: int = 1, **fields) -> bytes:
    "A topic and its partitions in one batch."
    topic_id = topic_id_of(name)
    return batch([topic_record(name, topic_id), *(partition_record(topic_id, index,
                                                                   **fields) for index in range(partitions))],
                                                                   base_offset)


def metadata_log(**topics: int) -> bytes:
    "A whole log: the level of metadata.version, then a batch for each topic with so many partitions."
    log, offset = batch([feature_level('metadata.version', 20)], 0), 1
    for name, partitions in topics.items():
        log, offset = log + topic_batch(offset, name, partitions), offset + 1 + partitions
    return log


def write_log(log_dir, data: bytes, base_offset: int = 0):
    "Puts a segment where a broker looks for it."
    directory = log_dir/'__cluster_metadata-0'
    directory.mkdir(parents=True, exist_ok=True)
    path = directory/f'{base_offset:020}.log'
    path.write_bytes(data)
    return path
