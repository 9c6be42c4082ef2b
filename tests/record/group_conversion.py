"""Records `group-conversion*.jsonl`: groups that change their protocol. `python tests/record/group_conversion.py`

The first line of a file has the topics and the settings; then there is one for each scene, with what was said and,
batch by batch, the records about the group that were in the log at its end.
"""
import json
import tempfile
from pathlib import Path

from recording import TESTS, command_line   # noqa: F401 (it makes the others importable)

from benchmarks import real_kafka
from broker_process import Client
from conversion_scenes import POLICIES, TOPICS, RealStage
from offset_conversations import wait_for_coordinator
from player import answer_in, framed
from kafka_scratch.apis.describe_topic_partitions import (
    DescribeTopicPartitionsRequest, TopicRequest, describe_topic_partitions)
from kafka_scratch.groups.coordinator import read_key
from kafka_scratch.log.records import read_batches, read_records


def topic_ids(port: int) -> dict[str, bytes]:
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in TOPICS])
    with Client(port) as client: said = client.ask(framed(describe_topic_partitions, 0, asked))
    return {topic.name: topic.topic_id for topic in answer_in(describe_topic_partitions, 0, said).topics}


def written(log_dir: Path, wanted: str) -> list:
    "The records about a group, batch by batch, as pairs of hex."
    found = []
    for file in sorted(log_dir.glob('__consumer_offsets-*/*.log')):
        for batch in read_batches(file.read_bytes()):
            records = list(read_records(batch))
            key = read_key(records[0].key)[1]
            group = getattr(key, 'group_id', None) or key.group
            if group == wanted: found.append([[r.key.hex(), r.value and r.value.hex()] for r in records])
    return found


def record(to: Path, only: list[str]):
    for name, (settings, scenes) in POLICIES.items():
        if only and name not in only: continue
        lines, own = [], {'offsets.topic.num.partitions': '1', 'group.coordinator.append.linger.ms': '0'}
        with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, own | settings) as kafka:
            kafka.create_topics(TOPICS)
            wait_for_coordinator(kafka.port)
            ids = topic_ids(kafka.port)
            for scene, play in scenes.items():
                stage = RealStage(kafka.port, ids, scene)
                play(stage)
                stage.close()
                lines.append({'name': scene, 'events': stage.events, 'records': written(kafka.log_dir, scene)})
        topics = {topic: [count, ids[topic].hex()] for topic, count in TOPICS.items()}
        lines = [{'name': 'topics', 'topics': topics, 'settings': settings}, *lines]
        text = ''.join(json.dumps(line, separators=(',', ':')) + '\n' for line in lines)
        (to/f'{name}.jsonl').write_text(text)


if __name__ == '__main__':
    import argparse
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--to', type=Path, default=TESTS/'fixtures/wire/recorded')
    parser.add_argument('only', nargs='*')
    asked = parser.parse_args()
    record(asked.to, asked.only)
