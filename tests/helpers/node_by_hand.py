"A node for a few APIs: an image with some topics, and the logs that a test puts there."
from kafka_scratch.apis.api import Node
from kafka_scratch.cluster.image import Image, partition_made, topic_made
from kafka_scratch.cluster.logs import Hosted
from kafka_scratch.cluster.records import PartitionRecord, TopicRecord


class GivenLogs:
    "Logs by topic and number, all of them led by this node."
    def __init__(self, held: dict, error: int = 0, leader_epoch: int = 0):
        self.held, self.error, self.leader_epoch = held, error, leader_epoch
    def find(self, topic, number: int) -> Hosted:
        return Hosted(self.held[topic.name, number], self.error, leader_epoch=self.leader_epoch)


def image_of(partitions) -> Image:
    "An image with these partitions, each a topic's name and a number."
    image = Image()
    for name, number in partitions:
        topic_id = name.encode().ljust(16)[:16]
        if name not in image.topics: topic_made(image, TopicRecord(name=name, topic_id=topic_id))
        partition_made(image, PartitionRecord(topic_id=topic_id, partition_id=number))
    return image


def node_with(held: dict, *apis, error: int = 0, leader_epoch: int = 0, **state) -> Node:
    "A node that has these logs, and topics for them."
    return Node(apis, image=image_of(held), logs=GivenLogs(held, error, leader_epoch), **state)
