"""Two brokers of ours that know each other: there is no controller, so each has a copy of the metadata log that says
who leads what."""
from contextlib import contextmanager
from types import SimpleNamespace

from broker_process import BrokerProcess, free_port, properties
from by_hand import batch, feature_level, leader_change, partition_record, topic_id_of, topic_record, write_log
from log_by_hand import message_batch

from kafka_scratch.cluster.records import BrokerEndpoint, RegisterBrokerRecord, write_value


def registration(node: int, port: int) -> bytes:
    end_point = BrokerEndpoint(name='PLAINTEXT', host='127.0.0.1', port=port)
    return write_value(RegisterBrokerRecord(broker_id=node, end_points=[end_point], rack=None, fenced=False), 0)


@contextmanager
def two_brokers(directory, leaders: dict[int, int], count: int = 6):
    """Nodes 1 and 2, with a topic `orders` of which both have all records; `leaders`: partition → node.

    `move(partition, node)` makes another node its leader.
    """
    topic_id, ports, brokers = topic_id_of('orders'), {node: free_port() for node in (1, 2)}, {}
    led = [partition_record(topic_id, number, (1, 2), (1, 2), leader, directories=(bytes(16), bytes(16))) for number,
           leader in leaders.items()]
    records = [feature_level('metadata.version', 20), *(registration(node, port) for node, port in ports.items()),
               topic_record('orders', topic_id), *led]
    paths = {node: write_log(directory/str(node)/'logs', batch(records, 0)) for node in ports}
    for node in ports:
        for number in leaders:
            home = directory/str(node)/'logs'/f'orders-{number}'
            home.mkdir()
            (home/f'{0:020}.log').write_bytes(b''.join(message_batch(b'%d-%d' % (number, offset),
                                                                     base_offset=offset) for offset in range(count)))

    def move(number: int, leader: int):
        records.append(leader_change(topic_id, number, leader))
        for path in paths.values():
            with open(path, 'ab') as file: file.write(batch(records[-1:], len(records) - 1))

    try:
        for node, port in ports.items():
            file = properties(directory/f'{node}.properties', node_id=node, listeners=f'PLAINTEXT://127.0.0.1:{port}',
                              log_dirs=directory/str(node)/'logs', log_retention_ms=-1)
            brokers[node] = BrokerProcess(directory, file, port=port)
        for broker in brokers.values(): broker.wait_ready()
        yield SimpleNamespace(ports=ports, brokers=brokers, move=move)
        for broker in brokers.values(): broker.check_end()
    finally:
        for broker in brokers.values(): broker.stop()
