"Fingerprints of topics as in Kafka's logs, with the package xxhash and without it."
import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from size import budget
from kafka_scratch.cluster.image import Image, broker_registered, partition_made, topic_made
from kafka_scratch.cluster.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from kafka_scratch.groups import xxh3 as hashes
from kafka_scratch.groups.fingerprints import compute_group_hash, compute_topic_hash
from kafka_scratch.groups.xxh3 import xxh3, xxh3_python

RECORDED = Path(__file__).parents[1]/'fixtures'/'wire'/'recorded'


@pytest.mark.parametrize('way', [xxh3, xxh3_python])
def test_the_hash_is_xxh3(way):
    expected = json.loads((RECORDED / 'xxh3.json').read_text())
    for n, number in expected.items(): assert way(bytes((7 * i + int(n)) & 255 for i in range(int(n)))) == number


@pytest.mark.skipif(importlib.util.find_spec('xxhash') is None, reason='xxhash is not installed')
@budget(500, deadline=None)
@given(st.binary(max_size=300) | st.integers(0, 5000).flatmap(lambda size: st.binary(min_size=size, max_size=size)))
@example(b'')
@example(bytes(1024))
@example(bytes(1025))
@example(bytes(100_000))
def test_with_the_package_and_without(data):
    import xxhash
    assert xxh3(data) == xxhash.xxh3_64_intdigest(data) == xxh3_python(data)


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(hashes, 'xxh3_64_intdigest', None)
    assert xxh3(b'') == 0x2d06800538d394c2


def image_with(partitions=2, racks=(None, None), name='orders', id=b'\1' * 16):
    image = Image()
    for number, rack in enumerate(racks): broker_registered(image, RegisterBrokerRecord(broker_id=number, rack=rack))
    topic_made(image, TopicRecord(name=name, topic_id=id))
    for n in range(partitions):
        record = PartitionRecord(topic_id=id, partition_id=n, replicas=[0, 1], isr=[0, 1], leader=0)
        partition_made(image, record)
    return image


def test_the_fingerprint_sees_what_matters():
    images = [image_with(), image_with(3), image_with(racks=('r1', 'r2')), image_with(racks=('r1', None)),
              image_with(name='order'), image_with(id=b'\2' * 16)]
    prints = {compute_topic_hash(next(iter(image.topics.values())), image) for image in images}
    assert len(prints) == len(images)
    turned = image_with(racks=('r2', 'r1'))
    assert compute_group_hash(['orders'], images[2]) == compute_group_hash(['orders'], turned), 'racks are sorted'
    assert compute_group_hash({'orders', 'nobody'}, images[0]) == compute_group_hash(['orders'], images[0]) != 0
    assert compute_group_hash([], images[0]) == 0
