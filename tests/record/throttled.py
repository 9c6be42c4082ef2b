"""Records `throttled.jsonl`: a user who may write and read 1000 bytes a second, and does more. `python
tests/record/throttled.py`

Each line has the milliseconds at which an answer came (since the first one), how long it took, what is measured (the
size of a Produce request, or of a Fetch answer), and the answer, if it is short.
"""
import json
import tempfile
import time
from pathlib import Path

from recording import answer_in, command_line, framed

from benchmarks import real_kafka
from broker_process import Client
from quotas_by_hand import alteration
from kafka_scratch.apis.fetch import fetch
from kafka_scratch.apis.fetch_messages import FetchPartition, FetchRequest, FetchTopic
from kafka_scratch.apis.produce import produce
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_scratch.log.records import Record, write_batch
from kafka_scratch.security.alter_quotas import AlterClientQuotasRequest, alter_client_quotas

LIMITS = {'producer_byte_rate': 1000.0, 'consumer_byte_rate': 1000.0}


def written(size: int, acks: int = 1) -> ProduceRequest:
    now = time.time_ns() // 1_000_000   # or they would be deleted: they are from 1970
    batch = write_batch([Record(value=b'x' * size)], base_timestamp=now, max_timestamp=now)
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name='t', partition_data=data)])


def wanted(offset: int = 0, **options) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=7000)
    return FetchRequest(**{'max_wait_ms': 100, 'min_bytes': 1, 'max_bytes': 7000, 'session_epoch': -1,
                           'topics': [FetchTopic(topic='t', partitions=[partition])], **options})


def conversation(port: int):
    began = None
    def ask(client, api, version, request):
        nonlocal began
        asked, sent = framed(api, version, request, client_id='c'), time.monotonic()
        raw = client.ask(asked)
        came = time.monotonic()
        began = came if began is None else began
        answer = answer_in(api, version, raw)
        size = len(asked) - 4 if api is produce else len(raw) - 4 - api.response_header_version(version)
        line = {'at': round((came - began) * 1000), 'took': round((came - sent) * 1000), 'api_key': api.key,
                'api_name': api.request.__name__.removesuffix('Request'), 'api_version': version, 'size': size,
                'throttle_time_ms': answer.throttle_time_ms}
        if api is fetch:
            line |= {'session_epoch': request.session_epoch, 'session_id': answer.session_id,
                     'partitions': sum(len(topic.partitions) for topic in answer.responses)}
        if len(raw) < 200: line |= {'response_hex': raw.hex()}
        lines.append(line)
        return answer
    lines = []
    with Client(port) as client:
        for size in (3000, 3000, 3000, 2000, 3000, 500): ask(client, produce, 9, written(size))
    with Client(port) as client:
        for _ in range(5): ask(client, fetch, 12, wanted())
        session = ask(client, fetch, 12, wanted(session_epoch=0)).session_id
        while not session: session = ask(client, fetch, 12, wanted(session_epoch=0)).session_id
        for epoch in (1, 2): ask(client, fetch, 12, wanted(session_id=session, session_epoch=epoch))
    return lines


def record_all(to: Path):
    with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place) as kafka:
        kafka.create_topics({'t': 1})
        with Client(kafka.port) as client:   # a Java that has just started takes its time
            for _ in range(50):
                client.ask(framed(produce, 9, written(10)))
                client.ask(framed(fetch, 12, wanted()))
        change = AlterClientQuotasRequest(entries=[alteration({'user': 'ANONYMOUS'}, LIMITS)])
        with Client(kafka.port) as client: client.ask(framed(alter_client_quotas, 1, change))
        time.sleep(2)
        lines = conversation(kafka.port)
    (to/'throttled.jsonl').write_text(''.join(json.dumps(line, separators=(',', ':')) + '\n' for line in lines))


if __name__ == '__main__': record_all(command_line(__doc__).to)
