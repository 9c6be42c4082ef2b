"""Processor time per request, in process: from the bytes of a request to those of its answer, without a network.

    python benchmarks/in_process.py              with the short ways of broker/fast, and without them
    python benchmarks/in_process.py --rounds 9

What arrives at a connection is what a client would send; what it writes goes nowhere. The time is that of this process
alone, the best of several rounds: other programs on the machine don't count, but a cold cache does.
"""
import argparse
import asyncio
import struct
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ''): sys.path[0] = str(Path(__file__).resolve().parent.parent)
from kafka_scratch.apis.api_versions import ApiVersionsRequest
from kafka_scratch.apis.fetch_messages import FetchPartition, FetchRequest, FetchTopic
from kafka_scratch.apis.metadata_messages import MetadataRequest, MetadataRequestTopic
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_scratch.broker.apis import APIS
from kafka_scratch.broker.connection import Connection
from kafka_scratch.broker.node import make_node
from kafka_scratch.broker.server import Server
from kafka_scratch.cluster.config import read_config
from kafka_scratch.cluster.controller import topic_records
from kafka_scratch.log.records import Record, write_batch
from kafka_scratch.wire.frames import RequestHeader

REQUESTS, NOON = 1500, 1_790_000_000_000


class Nowhere:
    "A transport that keeps the last thing that was written."
    last = b''
    def write(self, data): self.last = data
    def is_closing(self): return False
    def get_write_buffer_size(self): return 0
    def setsockopt(self, *_): pass
    def pause_reading(self): pass
    def resume_reading(self): pass
    def close(self): raise RuntimeError('the connection was closed')
    def get_extra_info(self, name): return {'peername': ('127.0.0.1', 1), 'socket': self}.get(name)


def framed(version: int, request) -> bytes:
    api = APIS[request.API_KEY]
    header = RequestHeader(api_key=api.key, api_version=version, correlation_id=7, client_id='bench')
    frame = header.encode(api.request_header_version(version)) + request.encode(version)
    return struct.pack('>i', len(frame)) + frame


def produce(topic_id: bytes, partitions: range, records: int) -> bytes:
    batch = write_batch([Record(offset_delta=n, value=b'x' * 100) for n in range(records)], base_timestamp=NOON,
                        max_timestamp=NOON)
    data = [PartitionProduceData(index=index, records=bytes(batch)) for index in partitions]
    return framed(13, ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id,
        partition_data=data)]))


def fetch(topic_id: bytes, partitions: int) -> bytes:
    wanted = [FetchPartition(partition=index, fetch_offset=3, partition_max_bytes=200) for index in range(partitions)]
    return framed(16, FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=topic_id,
        partitions=wanted)]))


def metadata(*names: str) -> bytes:
    return framed(12, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names],
                                      allow_auto_topic_creation=False))


async def member_of(connection: Connection) -> str:
    "Joins a group; the id of its only member."
    module = sys.modules[APIS[10].request.__module__]
    connection.data_received(framed(4, module.FindCoordinatorRequest(coordinator_keys=['group'])))
    connection.data_received(join(''))
    while connection.later: await asyncio.sleep(0.01)
    return APIS[11].response.decode(connection.transport.last, 3, 8).member_id


def join(member_id: str) -> bytes:
    module = sys.modules[APIS[11].request.__module__]
    protocols = [module.JoinGroupRequestProtocol(name='range', metadata=bytes(6))]
    return framed(3, module.JoinGroupRequest(group_id='group', session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
                                             member_id=member_id,
                                             protocol_type='consumer', protocols=protocols))


async def cases(connection: Connection, topics: dict) -> dict[str, list[bytes]]:
    written, read = topics['written'].topic_id, topics['read'].topic_id
    for index in range(4):
        for _ in range(8): connection.data_received(produce(read, range(index, index + 1), 1))
    member_id = await member_of(connection)
    heartbeat = sys.modules[APIS[12].request.__module__].HeartbeatRequest(group_id='group', generation_id=0,
        member_id=member_id)
    return {
        'ApiVersions': [framed(4, ApiVersionsRequest(client_software_name='bench', client_software_version='1'))],
        'Metadata': [metadata('read')],
        'Metadata, no two alike': [metadata(f'topic-{number}', 'read') for number in range(20 * REQUESTS)],
        'Produce, 1 partition': [produce(written, range(1), 1)],
        'Produce, 4 partitions': [produce(written, range(4), 1)],
        'Produce, 1 partition, 10 records': [produce(written, range(1), 10)],
        'Produce, 4 partitions, 10 records': [produce(written, range(4), 10)],
        'Fetch, 1 partition': [fetch(read, 1)],
        'Fetch, 3 partitions': [fetch(read, 3)],
        'JoinGroup': [join(member_id)],
        'Heartbeat': [framed(3, heartbeat)]}


def measure(connection: Connection, frames: list[bytes], rounds: int) -> float:
    "Microseconds of processor time for a request, in the best round."
    best, count = float('inf'), len(frames)
    for number in range(rounds + 1):   # the first one warms up
        some = [frames[(n + number * REQUESTS) % count] for n in range(REQUESTS)]
        began = time.process_time_ns()
        for frame in some: connection.data_received(frame)
        if number: best = min(best, (time.process_time_ns() - began) / REQUESTS / 1000)
    return best


async def run(fast: bool, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place:
        config = read_config(
            f'listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={place}/logs\noffsets.topic.num.partitions=1')
        server = await Server(make_node(config), fast=fast).start()
        server.node.controller.write([record for name in ('written', 'read') for record in topic_records(name,
            [[1]] * 4)])
        connection = Connection(server.acceptors[0])
        connection.connection_made(Nowhere())
        found = {name: measure(connection, frames, rounds) for name, frames in (await cases(connection,
            server.node.image.topics)).items()}
        connection.connection_lost(None)
        await server.stop()
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=7, help='rounds of 1500 requests each (default: 7)')
    options = parser.parse_args()
    with_short, without = (asyncio.run(run(fast, options.rounds)) for fast in (True, False))
    print(f'{"processor time per request, in microseconds":<46}{"short ways":>12}{"without":>10}')
    for name, micros in with_short.items(): print(f'{name:<46}{micros:>12.1f}{without[name]:>10.1f}')
    return 0


if __name__ == '__main__': sys.exit(main())
