"Starting, following the metadata log, stopping; and what is said when it can't be done: one sentence, and nothing is changed."
import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker_process import FIXTURES, META, ROOT, BrokerProcess, Client, environment, free_port, properties, run_to_end, running, tree, wait_until
from by_hand import (api_versions, batch, compact, describe, leader_change, metadata_log, partition_record, read_api_versions, read_describe, remove_topic,
                     topic_batch, topic_id_of, topic_record, write_log)

LONG_NAMES = [f'{number:032767}' for number in range(400)]   # an answer of 13 MB: more than fits between two sockets


def described(broker, *topics: str, client_id: str = 'tests') -> dict:
    "Topics by name. Another client id is another request: its answer can't be one that was kept."
    return {topic['name']: topic for topic in read_describe(broker.ask(describe(1, *topics, client_id=client_id)))['topics']}


def sizes(broker) -> dict[str, int]: return {name: len(topic['partitions']) for name, topic in described(broker).items()}


def is_served(broker) -> bool: return read_api_versions(broker.ask(api_versions(7)))['correlation_id'] == 7


# --- On which directories it starts -----------------------------------------------------------------------------------

@pytest.mark.parametrize('contents', ['nothing', 'meta.properties', 'topics without metadata', 'an empty metadata log', 'an empty segment', 'no directory', 'no directory above'])
def test_starts_without_topics(tmp_path, contents):
    logs = tmp_path/'above'/'logs'
    if not contents.startswith('no directory'): logs.mkdir(parents=True)
    elif contents == 'no directory': logs.parent.mkdir()
    if contents == 'meta.properties': (logs/'meta.properties').write_text(META.format(node_id=1))
    if contents == 'topics without metadata': (logs/'foo-0').mkdir()
    if contents == 'an empty metadata log': (logs/'__cluster_metadata-0').mkdir()
    if contents == 'an empty segment': write_log(logs, b'')
    before = tree(tmp_path/'above')
    with running(tmp_path, log_dirs=logs) as broker:
        assert is_served(broker) and sizes(broker) == {}
        assert described(broker, 'foo')['foo']['error_code'] == 3
    assert logs.is_dir()
    if not contents.startswith('no directory'): assert tree(tmp_path/'above') == before


def test_takes_its_node_id_from_the_directory(tmp_path):
    (tmp_path/'logs').mkdir()
    (tmp_path/'logs'/'meta.properties').write_text(META.format(node_id=42))
    write_log(tmp_path/'logs', metadata_log() + topic_batch(1, 'mine', replicas=[42], isr=[42], leader=-1))
    port = free_port()
    broker = BrokerProcess(tmp_path, properties(tmp_path/'p', listeners=f'PLAINTEXT://127.0.0.1:{port}', log_dirs=tmp_path/'logs'), port=port)
    try: assert described(broker.wait_ready())['mine']['partitions'][0]['leader_id'] == 42   # it was waiting for us
    finally: broker.stop()
    assert 'node 42' in broker.stdout
    broker.check_end()


def test_several_log_directories(tmp_path):
    "The metadata log is in the first, unless metadata.log.dir says otherwise."
    for name, topic in (('a', 'alpha'), ('b', 'beta'), ('m', 'mu')): write_log(tmp_path/name, metadata_log(**{topic: 1}))
    with running(tmp_path/'1', log_dirs=f'{tmp_path/"a"}, {tmp_path/"b"}') as broker: assert sizes(broker) == {'alpha': 1}
    with running(tmp_path/'2', log_dirs=f'{tmp_path/"a"},{tmp_path/"b"}', metadata_log_dir=tmp_path/'m') as broker: assert sizes(broker) == {'mu': 1}


def test_serves_several_listeners(tmp_path):
    second = free_port()
    with running(tmp_path, listeners=f'PLAINTEXT://127.0.0.1:{free_port()},INTERNAL://localhost:{second}', listener_security_protocol_map='PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT') \
            if False else contextlib.nullcontext(): pass
    port = free_port()
    file = properties(tmp_path/'p', listeners=f'PLAINTEXT://127.0.0.1:{port},INTERNAL://localhost:{second}', listener_security_protocol_map='PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT', log_dirs=tmp_path/'logs')
    broker = BrokerProcess(tmp_path, file, port=port).wait_ready()
    try:
        assert is_served(broker)
        with Client(second) as client: assert client.ask(api_versions(1)) is not None
    finally: broker.stop()
    broker.check_end()
