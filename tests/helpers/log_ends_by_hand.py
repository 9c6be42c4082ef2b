"What the tests of OffsetForLeaderEpoch and DeleteRecords share with the program that records them."
from pathlib import Path

from broker_process import Client
from node_by_hand import node_with
from player import answer_in, framed
from kafka_scratch.apis.api import EVERYONE, Node
from kafka_scratch.apis.offset_for_leader_epoch import *
from kafka_scratch.apis.delete_records import *
from kafka_scratch.apis.produce_messages import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_scratch.apis.produce import produce
from kafka_scratch.log.partition import LogConfig, append
from kafka_scratch.log.retention import move_start
from kafka_scratch.log.records import Batch, Record, write_batch
from kafka_scratch.log.recovery import open_log
from kafka_scratch.log.checkpoints import read_checkpoint


def put(port: int, topic: str, count: int, partition: int = 0, size: int | None = None) -> int:
    "Sends some records, a batch each; returns the offset of the last."
    for _ in range(count):
        value = b'some value' if size is None else b'v' * size
        data = PartitionProduceData(index=partition, records=write_batch([Record(key=b'k', value=value)]))
        request = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name=topic,
            partition_data=[data])])
        with Client(port) as client: said = answer_in(produce, 9, client.ask(framed(produce, 9, request)))
        stored, = said.responses[0].partition_responses
        assert not stored.error_code, stored
    return stored.base_offset


def ends(*topics, replica_id=-1) -> OffsetForLeaderEpochRequest:
    "`('orders', (partition, current epoch, epoch), …)`, …"
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=[OffsetForLeaderTopic(topic=name, partitions=[
        OffsetForLeaderPartition(partition=p, current_leader_epoch=c, leader_epoch=e) for p, c, e in asked]) for name,
        *asked in topics])


def deletes(*topics, timeout_ms=1000) -> DeleteRecordsRequest:
    "`('orders', (partition, offset), …)`, …"
    return DeleteRecordsRequest(timeout_ms=timeout_ms, topics=[DeleteRecordsTopic(name=name, partitions=[
        DeleteRecordsPartition(partition_index=p, offset=o) for p, o in asked]) for name, *asked in topics])


def filled(log, count: int, leader_epoch: int):
    for _ in range(count):
        batch = bytearray(write_batch([Record(value=b'some value')]))
        append(log, batch, Batch(batch).header, leader_epoch, now=0)


def like(directory: Path, state: dict):
    "A log in the state of one of the real broker's."
    log = open_log(str(directory), LogConfig(cleanup_policy=state['policy']))
    epochs = state['epochs'] or [[0, 0]]
    for offset in range(state['end']):
        filled(log, 1, max((e for e, start in epochs if start <= offset), default=epochs[0][0]))
    move_start(log, state['start'])
    log.epochs.entries = [tuple(entry) for entry in state['epochs']]
    return log


def node_of(directory: Path, case: dict, allowed=EVERYONE) -> Node:
    "A node that has the logs of a case, and nothing else."
    logs = [like(directory/name, state) for name, state in case['logs'].items()]
    held = {(log.topic, log.partition): log for log in logs}
    return node_with(held, offset_for_leader_epoch, delete_records, leader_epoch=case['leader_epoch'],
                     authorizer=allowed)


def check_logs(node: Node, case: dict):
    "After a deletion, the logs are those of the real broker."
    for (topic, partition), log in node.logs.held.items():
        name = f'{topic}-{partition}'
        left = {'epochs': [list(entry) for entry in log.epochs.entries], 'start': log.start_offset,
                'end': log.end_offset}
        assert left.items() <= case['after'][name].items(), name
        on_disk = [[int(x) for x in row] for row in read_checkpoint(log.path('leader-epoch-checkpoint'))]
        if case['after'][name] != case['logs'][name]: assert on_disk == left['epochs']
