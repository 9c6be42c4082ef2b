"""Clients that others wrote: their encoders make the requests, their decoders read our answers.

kafka-python comes with the tests; aiokafka is used if it happens to be installed. Both go as far as the APIs that we
have: a whole client needs Metadata first.
"""
import asyncio
import uuid

import pytest

from broker_process import running
from by_hand import metadata_log, topic_id_of, write_log

TOPICS = {'foo': 3, 'bar': 1, 'baz': 12}


@pytest.fixture(scope='module')
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp('clients')
    write_log(directory/'logs', metadata_log(**TOPICS))
    with running(directory) as broker: yield broker


@pytest.fixture(scope='module')
def kafka():
    "kafka-python's declarations, imported late: they take a while."
    pytest.importorskip('kafka.protocol.api_message', reason='needs kafka-python 3')
    from kafka.protocol import admin, metadata
    class Names: ApiVersionsRequest, ApiVersionsResponse = metadata.ApiVersionsRequest, metadata.ApiVersionsResponse
    Names.DescribeRequest, Names.DescribeResponse = admin.DescribeTopicPartitionsRequest, admin.DescribeTopicPartitionsResponse  # noqa: E501
    return Names


def exchange(broker, request, response_class, version: int, correlation_id: int):
    "Sends what kafka-python encodes; returns what it decodes, which encoded again gives the bytes that we sent."
    request.with_header(correlation_id=correlation_id, client_id='kafka-python')
    answer = broker.ask(request.encode(version=version, header=True, framed=True))
    assert answer is not None, 'the connection was closed'
    response = response_class.decode(answer, version=version, header=True, framed=True)
    assert response.header.correlation_id == correlation_id
    response.with_header(correlation_id=correlation_id)
    assert response.encode(header=True, framed=True) == answer
    return response.to_dict()


def describe_request(kafka, *names: str, limit: int = 2000, cursor=None):
    return kafka.DescribeRequest(topics=[kafka.DescribeRequest.TopicRequest(name=name) for name in names],
                                 response_partition_limit=limit,
                                 cursor=cursor and kafka.DescribeRequest.Cursor(topic_name=cursor['topic_name'],
                                     partition_index=cursor['partition_index']))


@pytest.mark.parametrize('version', range(5))
def test_kafka_python_asks_for_api_versions(broker, kafka, version):
    answer = exchange(broker, kafka.ApiVersionsRequest(version=version, client_software_name='kafka-python',
                                                       client_software_version='3.0.12'), kafka.ApiVersionsResponse,
                                                       version, 17 + version)
    assert answer['error_code'] == 0
    assert {api['api_key']: (api['min_version'], api['max_version']) for api in answer['api_keys']}.items() >= {18: (0,
        4), 75: (0, 0)}.items()
    if version >= 1: assert answer['throttle_time_ms'] == 0
    if version >= 3:
        assert [(feature['name'],
                 feature['max_version_level']) for feature in answer['finalized_features']] == [('metadata.version',
                     20)]


def test_kafka_python_describes_topics(broker, kafka):
    answer = exchange(broker, describe_request(kafka, 'foo', 'nope', 'bar'), kafka.DescribeResponse, 0, 75)
    assert [(topic['name'], topic['error_code'], len(topic['partitions'])) for topic in answer['topics']] == [('bar', 0,
        1), ('foo', 0, 3), ('nope', 3, 0)]
    assert answer['topics'][1]['topic_id'] == str(uuid.UUID(bytes=topic_id_of('foo')))
    assert answer['topics'][1]['partitions'][2] == {'error_code': 0, 'partition_index': 2, 'leader_id': 1,
                                                    'leader_epoch': 0, 'replica_nodes': [1], 'isr_nodes': [1],
                                                    'eligible_leader_replicas': [], 'last_known_elr': [],
                                                    'offline_replicas': []}


def test_kafka_python_follows_the_cursor(broker, kafka):
    found, cursor = [], None
    for number in range(20):
        answer = exchange(broker, describe_request(kafka, *TOPICS, limit=5, cursor=cursor), kafka.DescribeResponse, 0,
                          number)
        found += [(topic['name'],
                   partition['partition_index']) for topic in answer['topics'] for partition in topic['partitions']]
        cursor = answer['next_cursor']
        if cursor is None: break
    assert found == [(name, index) for name in sorted(TOPICS) for index in range(TOPICS[name])]


def test_kafka_python_connects(broker, kafka):
    "Its own connection: it finds out by itself what we speak, then asks."
    from kafka.net.connection import KafkaConnection
    from kafka.net.inet import create_connection
    from kafka.net.selector import NetworkSelector
    from kafka.net.transport import KafkaTCPTransport
    net = NetworkSelector()
    connection = KafkaConnection(net, request_timeout_ms=20_000)

    async def talk():
        connection.connection_made(KafkaTCPTransport(net, await create_connection(net, '127.0.0.1', broker.port),
                                                     host='127.0.0.1'))
        await connection.initialize()
        await connection
        return await connection.send_request(describe_request(kafka, 'baz'))

    try:
        answer = net.run(talk)
        assert connection.broker_version_data.api_versions.items() >= {18: (0, 4), 75: (0, 0)}.items()
        assert [len(topic.partitions) for topic in answer.topics] == [12]
    finally:
        connection.close()
        net.close()


def test_aiokafka_connects(broker):
    conn = pytest.importorskip('aiokafka.conn', reason='aiokafka is not installed')

    async def talk():
        # asks for ApiVersions
        connection = await conn.create_conn('127.0.0.1', broker.port, request_timeout_ms=20_000)
        try: return dict(connection._versions)
        finally: connection.close()

    assert asyncio.run(talk()).items() >= {18: (0, 4), 75: (0, 0)}.items()
