"""The limit for bulk: what Kafka's performance tools reach when Produce and Fetch cost a Python server as little as
they can.

    python -m benchmarks.bulk_limit SINK server.properties

Produce: hops from partition to partition, writes the request as it is into the file SINK, and says that all is well.
Fetch: for every partition the same megabyte of batches, in which only the offsets are written anew. Nothing is checked,
nothing is found again. All other requests, of which there are few, are answered by this broker.
"""
import asyncio
import os
import struct
import sys

from benchmarks import metadata_log
from benchmarks.wire import FETCH, PRODUCE, Reader, uvarint
from kafka_scratch.apis.api import Caller
from kafka_scratch.broker import server

BATCH_BYTES, CHUNK_BYTES = 16_384, 1 << 20  # as the producer makes batches, and as the consumer asks for them
SINK_BYTES = 1 << 30                        # then the file is written from its beginning again
# partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, max_bytes
ASKED = struct.Struct('>iiqiqi')
# partition, error, high_watermark, last_stable_offset, log_start_offset, no aborted, replica
ANSWERED = struct.Struct('>ihqqqBi')
# partition, error, base_offset, log_append_time, log_start_offset, no errors, no message, tags
STORED = struct.Struct('>ihqqqBBB')
OFFSET = struct.Struct('>q')


class Chunk:
    "A megabyte of batches of records of one size; its offsets can be moved."

    def __init__(self, record_size: int):
        count = max(BATCH_BYTES // (record_size + 10), 1)
        batch = metadata_log.batch(0, count, b''.join(metadata_log.record(delta,
            os.urandom(record_size)) for delta in range(count)))
        number = max(CHUNK_BYTES // len(batch), 1)
        self.data = bytearray(batch * number)
        self.places = [(number * len(batch), number * count) for number in range(number)]

    def moved_to(self, offset: int) -> bytes:
        "The batches from an offset on."
        for place, delta in self.places:
            OFFSET.pack_into(self.data, place, offset + delta)
        return bytes(self.data)


class Limit(asyncio.Protocol):
    "One connection."
    chunks: dict[bytes, Chunk] = {}  # topic id → what it seems to hold
    sink, written, node = -1, 0, None

    def __init__(self, acceptor):
        self.acceptor, self.parts, self.held, self.needed = acceptor, [], 0, 4

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        self.parts.append(data)
        self.held += len(data)
        if self.held < self.needed:
            return
        data, at = b''.join(self.parts) if len(self.parts) > 1 else data, 0
        self.needed = 4
        while len(data) - at >= 4:
            size = 4 + int.from_bytes(data[at:at + 4], 'big')
            if len(data) - at < size:
                self.needed = size
                break
            self.answer(data[at:at + size])
            at += size
        self.parts, self.held = [data[at:]], len(data) - at

    def answer(self, frame: bytes) -> None:
        api_key, version = struct.unpack_from('>hh', frame, 4)
        if (api_key, version) not in ((PRODUCE, 13), (FETCH, 17), (FETCH, 18)):
            return self.write(self.acceptor.answer(frame[4:], Caller()))
        reader = Reader(frame)
        reader.take(12)
        reader.take(max(reader.int(2), 0))  # client_id
        reader.tags()
        body = self.produce(reader) if api_key == PRODUCE else self.fetch(reader)
        size = 4 + 1 + sum(map(len, body))
        self.write(b''.join([struct.pack('>i', size), frame[8:12], b'\x00', *body]))

    def produce(self, reader: Reader) -> list[bytes]:
        "Store the request; answer for every partition."
        written = os.pwrite(self.sink, reader.data, Limit.written)
        Limit.written = (Limit.written + written) % SINK_BYTES
        reader.string()  # transactional_id
        reader.take(6)   # acks, timeout_ms
        topics = reader.uvarint()
        body = [uvarint(topics)]
        for _ in range(topics - 1):
            topic_id, partitions = reader.take(16), reader.uvarint()
            body += topic_id, uvarint(partitions)
            for _ in range(partitions - 1):
                body.append(STORED.pack(reader.int(4), 0, 0, -1, 0, 1, 0, 0))
                size = reader.uvarint() - 1
                reader.at += size
                reader.tags()
            reader.tags()
            body.append(b'\x00')
        return [*body, b'\x00\x00\x00\x00', b'\x00']

    def fetch(self, reader: Reader) -> list[bytes]:
        "The chunk for every partition; no session, so that every request names what it wants."
        reader.take(21)  # max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch
        topics = reader.uvarint()
        body = [struct.pack('>ihi', 0, 0, 0), uvarint(topics)]
        for _ in range(topics - 1):
            topic_id, partitions = reader.take(16), reader.uvarint()
            chunk = self.chunk(topic_id)
            body += topic_id, uvarint(partitions)
            for _ in range(partitions - 1):
                partition, _, offset, *_ = ASKED.unpack(reader.take(ASKED.size))
                reader.tags()
                end = offset + (1 << 40)  # there is always more
                body += ANSWERED.pack(partition, 0, end, end, 0, 0,
                                      -1), uvarint(len(chunk.data) + 1), chunk.moved_to(offset), b'\x00'
            body.append(b'\x00')
        return [*body, b'\x00']

    def chunk(self, topic_id: bytes) -> Chunk:
        "What a topic holds: its name ends in the size of its records, and a number."
        if topic_id not in self.chunks:
            self.chunks[topic_id] = Chunk(int(self.node.image.topics_by_id[topic_id].name.split('-')[1]))
        return self.chunks[topic_id]


def main() -> int:
    Limit.sink = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    make_node = server.make_node

    def remember(*arguments):
        Limit.node = make_node(*arguments)
        return Limit.node

    server.make_node, server.Connection = remember, Limit
    return server.main(sys.argv[2:])


if __name__ == '__main__':
    sys.exit(main())
