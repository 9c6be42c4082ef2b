"""The few Kafka messages a benchmark sends, written by hand.

Nothing here comes from `kafka_scratch`: a yardstick must not be cut from the cloth it measures.
"""
import socket
import struct
import time
from dataclasses import dataclass
from typing import Callable

API_VERSIONS, CREATE_TOPICS, DESCRIBE_TOPIC_PARTITIONS = 18, 19, 75
LENGTH_AND_CORRELATION_ID = struct.Struct('>ii')


class WrongAnswer(Exception):
    "An answer came that is not what the request asked for."


def compact_string(text: str) -> bytes:
    "`'ab'` -> `03 61 62`: an unsigned varint of length + 1, then UTF-8."
    data = text.encode()
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
    return frame(DESCRIBE_TOPIC_PARTITIONS, 0, uvarint(len(topics) + 1) + names + struct.pack('>ib', 2000, -1) + b'\x00')


def create_topics_request(topics: dict[str, int]) -> bytes:
    "CreateTopics v7: `{'name': partitions}`, one replica each."
    each = b''.join(compact_string(name) + struct.pack('>ih', partitions, 1) + b'\x01\x01\x00'
                    for name, partitions in topics.items())
    return frame(CREATE_TOPICS, 7, uvarint(len(topics) + 1) + each + struct.pack('>i?', 30_000, False) + b'\x00')


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
                raise WrongAnswer(f'{name}: partition {partition}, error {partition_error} where partition {index} was due')
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


@dataclass(frozen=True)
class Question:
    "A request to measure with, and the check that its answer is right."
    name: str                        # what the tables call it
    request: bytes                   # the whole frame, correlation_id 0
    check: Callable[[bytes], None]   # raises WrongAnswer unless the answer (whole frame) is right
    varies_at: int | None = None     # offset of an int32 that can count up from request to request without changing the answer


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
            raise WrongAnswer(f'{topic}: error {error}, leaders {leaders}; {partitions} partitions with a leader were due')
    request, name = describe_request(topic), f'DescribeTopicPartitions v0, {partitions} partitions'
    if not distinct:
        return Question(name, request, check)
    return Question(f'{name}, no two requests alike', request, check, varies_at=len(request) - 6)  # before cursor and tags


def exchange(port: int, request: bytes, timeout: float = 30) -> bytes:
    "Send one request to 127.0.0.1:port on a connection of its own; return the whole answer frame."
    with socket.create_connection(('127.0.0.1', port), timeout) as connection:
        connection.sendall(request)
        length = int.from_bytes(prefix := _receive(connection, 4), 'big', signed=True)
        return prefix + _receive(connection, length)


def _receive(connection: socket.socket, count: int) -> bytes:
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
