"""The few Kafka messages a benchmark sends, written by hand.

Nothing here comes from `kafka_scratch`: a yardstick must not be cut from the cloth it measures.
"""
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS, CREATE_TOPICS, DESCRIBE_TOPIC_PARTITIONS = 0, 1, 2, 18, 19, 75
BY_ID = 13  # from this version on, Produce and Fetch say a topic's id instead of its name
LENGTH_AND_CORRELATION_ID = struct.Struct('>ii')


class WrongAnswer(Exception):
    "An answer came that is not what the request asked for."


def compact_string(text: str) -> bytes:
    "`'ab'` -> `03 61 62`: an unsigned varint of length + 1, then UTF-8."
    data = text.encode()
    return uvarint(len(data) + 1) + data


def compact_bytes(data: bytes) -> bytes:
    "An unsigned varint of length + 1, then the bytes."
    return uvarint(len(data) + 1) + data


def uvarint(value: int) -> bytes:
    "`300` -> `ac 02`: seven bits a byte, lowest first."
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def frame(api_key: int, api_version: int, body: bytes, correlation_id: int = 0) -> bytes:
    "A whole request with header v2 (client_id `bench`): length prefix, header, body."
    header = struct.pack('>hhi', api_key, api_version, correlation_id) + b'\x00\x05bench' + b'\x00'
    return struct.pack('>i', len(header) + len(body)) + header + body


def api_versions_request() -> bytes:
    "ApiVersions v4, as current clients send it."
    return frame(API_VERSIONS, 4, compact_string('bench') + compact_string('1.0') + b'\x00')


def describe_request(*topics: str) -> bytes:
    "DescribeTopicPartitions v0 for the named topics, up to 2000 partitions, no cursor."
    names = b''.join(compact_string(t) + b'\x00' for t in topics)
    return frame(DESCRIBE_TOPIC_PARTITIONS, 0, uvarint(len(topics) + 1) + names + struct.pack('>ib', 2000,
        -1) + b'\x00')


def create_topics_request(topics: dict[str, int]) -> bytes:
    "CreateTopics v7: `{'name': partitions}`, one replica each."
    each = b''.join(compact_string(name) + struct.pack('>ih', partitions, 1) + b'\x01\x01\x00'
                    for name, partitions in topics.items())
    return frame(CREATE_TOPICS, 7, uvarint(len(topics) + 1) + each + struct.pack('>i?', 30_000, False) + b'\x00')


def list_offsets_request(topics: dict[str, int]) -> bytes:
    "ListOffsets v6 for the ends of `{'name': partitions}`."
    def ends(count: int) -> bytes:
        return b''.join(struct.pack('>iiq', index, -1, -1) + b'\x00' for index in range(count))
    each = b''.join(compact_string(name) + uvarint(count + 1) + ends(count) + b'\x00' for name, count in topics.items())
    return frame(LIST_OFFSETS, 6, struct.pack('>ib', -1, 0) + uvarint(len(topics) + 1) + each + b'\x00')


def produce_request(topic: bytes | str, batches: dict[int, bytes], version: int = 13, acks: int = -1) -> bytes:
    """Produce v9 to v13: one batch for each partition, `{partition: batch}`. `topic` is an id from v13 on, a name
    before."""
    partitions = b''.join(struct.pack('>i', partition) + compact_bytes(batch) + b'\x00' for partition,
                          batch in batches.items())
    topic_data = topic_key(topic, version) + uvarint(len(batches) + 1) + partitions + b'\x00'
    return frame(PRODUCE, version, b'\x00' + struct.pack('>hi', acks, 30_000) + uvarint(2) + topic_data + b'\x00')


def fetch_request(topic: bytes | str, offsets: dict[int, int], max_bytes: int, version: int = 16) -> bytes:
    """Fetch v15 or v16, `{partition: offset}`, at most `max_bytes` of each, no session; waits up to 500 ms for one
    byte, as consumers do."""
    asked = b''.join(struct.pack('>iiqiqi', partition, -1, offset, -1, -1, max_bytes) + b'\x00' for partition,
                     offset in offsets.items())
    topics = uvarint(2) + topic_key(topic, version) + uvarint(len(offsets) + 1) + asked + b'\x00'
    forgotten, rack_id = uvarint(1), compact_string('')
    return frame(FETCH, version, struct.pack('>iiibii', 500, 1, 50 << 20, 0, 0,
                                             -1) + topics + forgotten + rack_id + b'\x00')


def topic_key(topic: bytes | str, version: int) -> bytes:
    return topic if version >= BY_ID else compact_string(topic)


class Reader:
    "A cursor over an answer's bytes; running off the end is a `WrongAnswer`."

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        "The next `count` bytes."
        if self.at + count > len(self.data):
            raise WrongAnswer(f'answer ends at byte {len(self.data)}, {count} more wanted at {self.at}')
        self.at += count
        return self.data[self.at - count:self.at]

    def int(self, size: int) -> int:
        "A signed big-endian integer of `size` bytes."
        return int.from_bytes(self.take(size), 'big', signed=True)

    def uvarint(self) -> int:
        "An unsigned varint."
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7f) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str | None:
        "A compact nullable string."
        length = self.uvarint()
        return None if length == 0 else self.take(length - 1).decode()

    def ints(self) -> list[int] | None:
        "A compact nullable array of int32."
        length = self.uvarint()
        return None if length == 0 else [self.int(4) for _ in range(length - 1)]

    def tags(self) -> None:
        "A tag buffer, skipped."
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())


def parse_api_versions(answer: bytes) -> dict[int, tuple[int, int]]:
    "ApiVersions v4 answer (whole frame) -> `{api_key: (min_version, max_version)}`."
    reader = Reader(answer)
    reader.take(8)  # length and correlation_id: this one answer keeps header v0, without a tag buffer
    if error := reader.int(2):
        raise WrongAnswer(f'ApiVersions answered error {error}')
    versions = {}
    for _ in range(reader.uvarint() - 1):
        api_key = reader.int(2)
        versions[api_key] = (reader.int(2), reader.int(2))
        reader.tags()
    return versions


def parse_describe(answer: bytes) -> dict[str, tuple[int, list[int]]]:
    "DescribeTopicPartitions v0 answer (whole frame) -> `{topic: (error_code, [leader_id of each partition])}`."
    reader = Reader(answer)
    reader.take(8)
    reader.tags()
    reader.take(4)  # throttle_time_ms
    topics = {}
    for _ in range(reader.uvarint() - 1):
        error, name = reader.int(2), reader.string()
        reader.take(17)  # topic_id, is_internal
        leaders = []
        for index in range(reader.uvarint() - 1):
            partition_error, partition, leader = reader.int(2), reader.int(4), reader.int(4)
            if partition != index or partition_error:
                raise WrongAnswer(
                    f'{name}: partition {partition}, error {partition_error} where partition {index} was due')
            leaders.append(leader)
            reader.take(4)  # leader_epoch
            for _ in range(5):  # replicas, isr, eligible leader replicas, last known ELR, offline replicas
                reader.ints()
            reader.tags()
        reader.take(4)  # topic_authorized_operations
        reader.tags()
        topics[name] = (error, leaders)
    if reader.int(1) != -1:
        raise WrongAnswer('a next cursor, though everything should fit')
    reader.tags()
    if reader.at != len(answer):
        raise WrongAnswer(f'{len(answer) - reader.at} bytes left over')
    return topics


def parse_list_offsets(answer: bytes) -> dict[tuple[str, int], int]:
    "ListOffsets v6 answer (whole frame) -> `{(topic, partition): error_code}`."
    reader = Reader(answer)
    reader.take(8)
    reader.tags()
    reader.take(4)  # throttle_time_ms
    errors = {}
    for _ in range(reader.uvarint() - 1):
        name = reader.string()
        for _ in range(reader.uvarint() - 1):
            errors[name, reader.int(4)] = reader.int(2)
            reader.take(20)  # timestamp, offset, leader_epoch
            reader.tags()
        reader.tags()
    return errors


def parse_create_topics(answer: bytes) -> dict[str, int]:
    "CreateTopics v7 answer (whole frame) -> `{topic: error_code}`."
    reader = Reader(answer)
    reader.take(8)
    reader.tags()
    reader.take(4)  # throttle_time_ms
    errors = {}
    for _ in range(reader.uvarint() - 1):
        name = reader.string()
        reader.take(16)  # topic_id
        errors[name] = reader.int(2)
        reader.string()  # error_message
        reader.take(6)  # num_partitions, replication_factor
        for _ in range(max(reader.uvarint() - 1, 0)):  # configs
            reader.string(), reader.string(), reader.take(3), reader.tags()
        reader.tags()
    return errors


def parse_topic_id(answer: bytes) -> bytes:
    "DescribeTopicPartitions v0 answer (whole frame) -> the id of its first topic."
    reader = Reader(answer)
    reader.take(8)
    reader.tags()
    reader.take(4)  # throttle_time_ms
    if reader.uvarint() < 2 or reader.int(2):
        raise WrongAnswer('no such topic')
    reader.string()
    return reader.take(16)


def parse_produce(answer: bytes, version: int) -> dict[int, tuple[int, int]]:
    "Produce v9 to v13 answer about one topic (whole frame) -> `{partition: (error_code, base_offset)}`."
    reader, found = Reader(answer), {}
    reader.take(8)
    reader.tags()
    for _ in range(reader.uvarint() - 1):
        reader.take(16) if version >= BY_ID else reader.string()
        for _ in range(reader.uvarint() - 1):
            partition = reader.int(4)
            found[partition] = reader.int(2), reader.int(8)
            reader.take(16)  # log_append_time_ms, log_start_offset
            if reader.uvarint() > 1:
                raise WrongAnswer(f'partition {partition}: some records were not taken')
            reader.string()  # error_message
            reader.tags()
        reader.tags()
    reader.take(4)  # throttle_time_ms
    reader.tags()
    if reader.at != len(answer):
        raise WrongAnswer(f'{len(answer) - reader.at} bytes left over')
    return found


def parse_fetch(answer: bytes, version: int) -> dict[int, tuple[int, bytes]]:
    "Fetch v12 to v16 answer about one topic (whole frame) -> `{partition: (error_code, records)}`."
    reader, found = Reader(answer), {}
    reader.take(8)
    reader.tags()
    reader.take(4)  # throttle_time_ms
    if error := reader.int(2):
        raise WrongAnswer(f'Fetch answered error {error}')
    reader.take(4)  # session_id
    for _ in range(reader.uvarint() - 1):
        reader.take(16) if version >= BY_ID else reader.string()
        for _ in range(reader.uvarint() - 1):
            partition, error = reader.int(4), reader.int(2)
            reader.take(24)  # high_watermark, last_stable_offset, log_start_offset
            for _ in range(reader.uvarint() - 1):  # aborted_transactions
                reader.take(16), reader.tags()
            reader.take(4)  # preferred_read_replica
            found[partition] = error, reader.take(max(reader.uvarint() - 1, 0))
            reader.tags()
        reader.tags()
    reader.tags()
    if reader.at != len(answer):
        raise WrongAnswer(f'{len(answer) - reader.at} bytes left over')
    return found


def batch_sizes(records: bytes) -> list[int]:
    "The sizes of the batches in `records`; the last one may be cut off, and is left out then."
    sizes, at = [], 0
    while len(records) - at >= 12:
        size = 12 + int.from_bytes(records[at + 8:at + 12], 'big')
        if at + size > len(records):
            break
        sizes.append(size)
        at += size
    return sizes


@dataclass(frozen=True)
class Question:
    "A request to measure with, and the check that its answer is right."
    name: str                        # what the tables call it
    request: bytes                   # the whole frame, correlation_id 0
    check: Callable[[bytes], None]   # raises WrongAnswer unless the answer (whole frame) is right
    # offset of an int32 that can count up from request to request without changing the answer
    varies_at: int | None = None
    pool: tuple[bytes, ...] = ()     # or: requests of one size, answers of one size, that are sent in turn instead
    arguments: tuple = ()            # what makes `benchmarks.load` ask this


def api_versions() -> Question:
    "ApiVersions v4; right when it lists ApiVersions and DescribeTopicPartitions."
    def check(answer: bytes) -> None:
        versions = parse_api_versions(answer)
        if not {API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS} <= versions.keys():
            raise WrongAnswer(f'ApiVersions lists only {sorted(versions)}')
    return Question('ApiVersions v4', api_versions_request(), check)


def describe(topic: str, partitions: int, distinct: bool = False) -> Question:
    """DescribeTopicPartitions v0 of one topic; right when every partition is there and has a leader.

    `distinct` asks with another response_partition_limit each time, so that a cache of answers doesn't help.
    """
    def check(answer: bytes) -> None:
        error, leaders = parse_describe(answer).get(topic, (None, []))
        if error != 0 or len(leaders) != partitions or min(leaders) < 0:
            raise WrongAnswer(
                f'{topic}: error {error}, leaders {leaders}; {partitions} partitions with a leader were due')
    request, name = describe_request(topic), f'DescribeTopicPartitions v0, {partitions} partitions'
    arguments = '--topic', topic, '--partitions', partitions
    if not distinct:
        return Question(name, request, check, arguments=arguments)
    # before cursor and tags
    return Question(f'{name}, no two requests alike', request, check, varies_at=len(request) - 6,
                    arguments=(*arguments, '--distinct'))


def write_pool(path: Path, requests: list[bytes], name: str) -> Question:
    "Put requests into a file from which the load generator takes them."
    path.write_bytes(b''.join(requests))
    return read_pool(path, name)


def read_pool(path: Path, name: str = 'requests from a file') -> Question:
    """Produce or Fetch requests that were written by `write_pool`. Right when every partition answers without error,
    and with records."""
    data = path.read_bytes()
    size, api_key, version = 4 + int.from_bytes(data[:4], 'big'), *struct.unpack_from('>hh', data, 4)
    pool = tuple(data[at:at + size] for at in range(0, len(data), size))
    if any(request[:8] != pool[0][:8] or len(request) != size for request in pool):
        raise ValueError(f'{path}: the requests have to be of one size, one API and one version')

    def check(answer: bytes) -> None:
        if api_key == PRODUCE:
            wrong = {place: error for place, (error, base_offset) in parse_produce(answer,
                version).items() if error or base_offset < 0}
        else:
            wrong = {place: error for place, (error, records) in parse_fetch(answer,
                version).items() if error or not batch_sizes(records)}
        if wrong:
            raise WrongAnswer(f'not answered as it should be: {wrong} (partition: error)')
    return Question(name, pool[0], check, pool=pool, arguments=('--requests', path))


def exchange(port: int, request: bytes, timeout: float = 30) -> bytes:
    "Send one request to 127.0.0.1:port on a connection of its own; return the whole answer frame."
    with socket.create_connection(('127.0.0.1', port), timeout) as connection:
        connection.sendall(request)
        length = int.from_bytes(prefix := receive(connection, 4), 'big', signed=True)
        return prefix + receive(connection, length)


def receive(connection: socket.socket, count: int) -> bytes:
    "Exactly `count` bytes."
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise WrongAnswer(f'connection closed after {len(data)} of {count} bytes')
        data += part
    return bytes(data)


def wait_for(condition: Callable[[], bool], seconds: float, what: str, pause: float = .05) -> None:
    "Call `condition` until it is true; a connection that fails counts as not yet."
    deadline, problem = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (OSError, WrongAnswer) as error:
            problem = error
        time.sleep(pause)
    raise TimeoutError(f'{what} did not happen within {seconds} s{f" ({problem})" if problem else ""}')
