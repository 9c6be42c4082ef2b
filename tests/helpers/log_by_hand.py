"""Records, batches, Fetch and Produce, made and taken apart with nothing but `struct`, as in `by_hand.py`.

Everything that a batch says of itself can be said otherwise: `record_batch(records, count=3)` lies about the count, and
has a checksum that fits the lie.
"""
import struct

from crc32c import crc32c

from by_hand import Reader, compact, compact_array, opened, request, uvarint, varint

PRODUCE, FETCH = 0, 1
TIME = 1_726_045_973_899
HEADER = struct.Struct('>qiibIhiqqqhii')


# --- Batches ----------------------------------------------------------------------------------------------------------

def sized(data: bytes | None) -> bytes: return varint(-1) if data is None else varint(len(data)) + data


def record(value: bytes | None, key: bytes | None = None, headers=(), offset_delta: int = 0, timestamp_delta: int = 0,
           attributes: int = 0,
           length: int | None = None, header_count: int | None = None) -> bytes:
    pairs = b''.join(sized(name) + sized(content) for name, content in headers)
    body = (bytes([attributes]) + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
            + varint(len(headers) if header_count is None else header_count) + pairs)
    return varint(len(body) if length is None else length) + body


def record_batch(records: list[bytes], base_offset: int = 0, leader_epoch: int = 0, attributes: int = 0,
                 base_timestamp: int = TIME,
                 max_timestamp: int | None = None, producer_id: int = -1, producer_epoch: int = -1,
                 base_sequence: int = -1,
                 count: int | None = None, last_offset_delta: int | None = None, length: int | None = None,
                 magic: int = 2,
                 crc: int | None = None, pack=bytes, rest: bytes = b'') -> bytes:
    "A batch of records that are bytes already; `pack` compresses them, `rest` comes after them."
    checked = struct.pack('>hiqqqhii', attributes, len(records) - 1 if last_offset_delta is None else last_offset_delta,
                          base_timestamp,
                          base_timestamp if max_timestamp is None else max_timestamp, producer_id, producer_epoch,
                          base_sequence,
                          len(records) if count is None else count) + pack(b''.join(records)) + rest
    return struct.pack('>qiibI', base_offset, len(checked) + 9 if length is None else length, leader_epoch, magic,
                       crc32c(checked) if crc is None else crc) + checked


def message_batch(*values: bytes | None, key: bytes | None = None, headers=(), **header) -> bytes:
    "A batch of records with these values."
    return record_batch([record(value, key, headers, delta) for delta, value in enumerate(values)], **header)


def placed(batch: bytes, base_offset: int, leader_epoch: int = 0) -> bytes:
    "A batch as a broker stores it: with the two fields that are its own."
    return struct.pack('>q', base_offset) + batch[8:12] + struct.pack('>i', leader_epoch) + batch[16:]


def split(data: bytes) -> list[bytes]:
    "The whole batches at the front; the last one may be cut off."
    found, at = [], 0
    while len(data) - at >= 12:
        end = at + 12 + struct.unpack_from('>i', data, at + 8)[0]
        if end > len(data): break
        found.append(data[at:end])
        at = end
    return found


def base_offset(batch: bytes) -> int: return struct.unpack_from('>q', batch)[0]
def next_offset(batch: bytes) -> int: return base_offset(batch) + struct.unpack_from('>i', batch, 23)[0] + 1


# --- Requests ---------------------------------------------------------------------------------------------------------

def array(items, flexible: bool) -> bytes:
    return compact_array(items) if flexible else struct.pack('>i', len(items)) + b''.join(items)
def string(text: str | None, flexible: bool) -> bytes:
    if text is None: return b'\0' if flexible else struct.pack('>h', -1)
    return compact(text) if flexible else struct.pack('>h', len(text)) + text.encode()


def named(topic, flexible: bool) -> bytes:
    "A topic by its name; by its id, if it is bytes."
    return topic if isinstance(topic, bytes) else string(topic, flexible)


def produce(correlation_id: int, topics: dict, version: int = 11, acks: int = -1, transactional_id: str | None = None,
            timeout_ms: int = 10_000,
            client_id: str | None = 'tests') -> bytes:
    "`topics`: name (from version 13 on: id) → partition → records."
    flexible = version >= 9
    tags = b'\0' * flexible

    def records(data: bytes) -> bytes:
        return uvarint(len(data) + 1) + data if flexible else struct.pack('>i', len(data)) + data

    each = [named(topic, flexible) + array([struct.pack('>i', index) + records(data) + tags for index,
                                            data in partitions.items()], flexible) + tags
            for topic, partitions in topics.items()]
    body = string(transactional_id, flexible) + struct.pack('>hi', acks, timeout_ms) + array(each, flexible) + tags
    return request(PRODUCE, version, correlation_id, body, client_id, flexible)


def fetch(correlation_id: int, topics: dict, version: int = 16, max_wait_ms: int = 500, min_bytes: int = 1,
          max_bytes: int = 52_428_800, isolation: int = 0,
          session_id: int = 0, session_epoch: int = -1, forgotten: dict | None = None,
          partition_max_bytes: int = 1_048_576, leader_epoch: int = -1,
          last_fetched_epoch: int = -1, client_id: str | None = 'tests') -> bytes:
    "`topics`: name (from version 13 on: id) → partition → offset."
    flexible = version >= 12
    tags = b'\0' * flexible

    def partition(index: int, offset: int) -> bytes:
        out = struct.pack('>i', index)
        if version >= 9: out += struct.pack('>i', leader_epoch)
        out += struct.pack('>q', offset)
        if version >= 12: out += struct.pack('>i', last_fetched_epoch)
        if version >= 5: out += struct.pack('>q', -1)
        return out + struct.pack('>i', partition_max_bytes) + tags

    each = [named(topic, flexible) + array([partition(*one) for one in partitions.items()], flexible) + tags for topic,
            partitions in topics.items()]
    body = b'' if version >= 15 else struct.pack('>i', -1)
    body += struct.pack('>iiib', max_wait_ms, min_bytes, max_bytes, isolation)
    if version >= 7: body += struct.pack('>ii', session_id, session_epoch)
    body += array(each, flexible)
    if version >= 7:
        body += array([named(topic, flexible) + array([struct.pack('>i', index) for index in indexes], flexible) + tags
                       for topic, indexes in (forgotten or {}).items()], flexible)
    if version >= 11: body += string('', flexible)
    return request(FETCH, version, correlation_id, body + tags, client_id, flexible)


# --- Answers ----------------------------------------------------------------------------------------------------------

class Answer(Reader):
    "Takes answers apart in both forms."
    def __init__(self, frame: bytes | None, flexible: bool):
        opened(frame)
        super().__init__(frame)
        self.flexible, self.length, self.correlation_id = flexible, self.int32(), self.int32()
        self.tags()

    def int64(self) -> int: return self.number('q')
    def items(self, element) -> list | None:
        n = self.count() if self.flexible else self.int32()
        return None if n < 0 else [element() for _ in range(n)]
    def text(self) -> str | None:
        n = self.count() if self.flexible else self.int16()
        return None if n < 0 else self.take(n).decode()
    def blob(self) -> bytes | None:
        n = self.count() if self.flexible else self.int32()
        return None if n < 0 else self.take(n)
    def tags(self) -> dict[int, bytes]:
        found = {}
        for _ in range(self.uvarint() if self.flexible else 0):
            tag = self.uvarint()
            found[tag] = self.take(self.uvarint())
        return found


def read_produce(frame: bytes | None, version: int = 11) -> dict:
    "A Produce answer to its last byte."
    r = Answer(frame, version >= 9)
    answer = {'correlation_id': r.correlation_id, 'topics': {}}

    def blame():
        found = r.int32(), r.text()
        r.tags()
        return found

    def partition():
        index = r.int32()
        found = {'error_code': r.int16(), 'base_offset': r.int64(), 'log_append_time_ms': r.int64()}
        if version >= 5: found['log_start_offset'] = r.int64()
        if version >= 8: found['record_errors'], found['error_message'] = r.items(blame), r.text()
        found['tags'] = r.tags()
        return index, found

    def topic():
        name = r.take(16) if version >= 13 else r.text()
        answer['topics'][name] = dict(r.items(partition))
        r.tags()

    r.items(topic)
    answer['throttle_time_ms'] = r.int32()
    answer['tags'] = r.tags()
    r.end()
    return answer


def read_fetch(frame: bytes | None, version: int = 16) -> dict:
    "A Fetch answer to its last byte."
    r = Answer(frame, version >= 12)
    answer = {'correlation_id': r.correlation_id, 'throttle_time_ms': r.int32(), 'topics': {}}
    if version >= 7: answer['error_code'], answer['session_id'] = r.int16(), r.int32()

    def aborted():
        found = r.int64(), r.int64()
        r.tags()
        return found

    def partition():
        index = r.int32()
        found = {'error_code': r.int16(), 'high_watermark': r.int64(), 'last_stable_offset': r.int64()}
        if version >= 5: found['log_start_offset'] = r.int64()
        found['aborted'] = r.items(aborted)
        if version >= 11: found['preferred_read_replica'] = r.int32()
        found['records'] = r.blob()
        found['tags'] = r.tags()
        return index, found

    def topic():
        name = r.take(16) if version >= 13 else r.text()
        answer['topics'][name] = dict(r.items(partition))
        r.tags()

    r.items(topic)
    answer['tags'] = r.tags()
    r.end()
    return answer
