"""The small text files of a log directory, and ids as text: what Apache Kafka 4.1.1 reads, we read, and we find the
same in it.

Each file is here with what Kafka's own classes found in it, or None where they refused it. Where there are a Java and
Kafka's jars, they are asked again (`clients/java/ReadFiles.java`, one process for all files).
"""
import shutil
import subprocess
import sys

import pytest

from size import kafka_absent

from broker_process import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.cluster.directories import find_node_id, owner_in, read_meta
from kafka_scratch.cluster.controller import quorum_epoch
from kafka_scratch.wire.primitives import uuid_bytes, uuid_text
from kafka_scratch.log.checkpoints import read_checkpoint, read_partition_metadata

FOUND = {   # kind of file → content, and what Kafka 4.1.1 found in it
    'id': [
        (b'caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'caWaUYloT4uTfigl1CumZQ==', 'caWaUYloT4uTfigl1CumZQ'),
        (b'caWaUYloT4uTfigl1CumZQ=', None),
        (b'caWaUYloT4uTfigl1CumZQ===', None),
        (b'caWaUYloT4uTfigl1CumZ', None),
        (b'caWaUYloT4uTfigl1CumZQA', None),
        (b'caWaUYloT4uTfigl1CumZQAA', None),
        (b'caWaUYloT4uTfigl1CumZR', 'caWaUYloT4uTfigl1CumZQ'),
        (b'caWaUYloT4uTfigl1CumZZ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'caWaUYloT4uTfigl1CumZf', 'caWaUYloT4uTfigl1CumZQ'),
        (b'-_WaUYloT4uTfigl1CumZQ', '-_WaUYloT4uTfigl1CumZQ'),
        (b'+/WaUYloT4uTfigl1CumZQ', None),
        (b'', None),
        (b'==', None),
        (b' caWaUYloT4uTfigl1CumZQ', None),
        (b'caWaUYloT4uTfigl1CumZQ ', None),
        (b'caWaUYloT4uTfigl1CumZQ\n', None),
        (b'caWaUYloT4\nuTfigl1CumZQ', None),
        (b'caWaUYloT4=Tfigl1CumZQ', None),
        (b'caWaUYloT4uTfigl1CumZ===', None),
        (b'AAAAAAAAAAAAAAAAAAAAAA', 'AAAAAAAAAAAAAAAAAAAAAA'),
        (b'AAAAAAAAAAAAAAAAAAAAAAAAA', None),
        (b'AAAAAAAAAAAAAAAAAAAAAAA', None),
        (b'\xc3\xa9aWaUYloT4uTfigl1CumZQ', None),
        (b'caWaUYloT4uTfigl1Cum==', None),
        (b'\xd9\xa3aWaUYloT4uTfigl1CumZQ', None),
    ],
    'partition.metadata': [
        (b'version: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ\n', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 0\r\ntopic_id: caWaUYloT4uTfigl1CumZQ\r\n', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 0\rtopic_id: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ==', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 1\ntopic_id: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 7\ntopic_id: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: -1\ntopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'version: +0\ntopic_id: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 00\ntopic_id: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: x\ntopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'version: 2147483648\ntopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'version: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ\n\nmore: 1\n', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 0\n\ntopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'\nversion: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'# a comment\nversion: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'version: 0\n# a comment\ntopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'version: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ ', None),
        (b'version: 0 \ntopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'version:0\ntopic_id:caWaUYloT4uTfigl1CumZQ', None),
        (b'version:   0\ntopic_id:\tcaWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 0\nunknown: 5\ntopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'a: 0\nb: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b' version: 0\n topic_id: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'topic_id: caWaUYloT4uTfigl1CumZQ\nversion: 0', None),
        (b'version: 0\n', None),
        (b'version: 0', None),
        (b'', None),
        (b'\n', None),
        (b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00', None),  # noqa: E501
        (b'version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA', None),
        (b'version: 0\ntopic_id: ', None),
        (b'version: 0\ntopic_id: short', None),
        (b'version: 0\ntopic_id: +/WaUYloT4uTfigl1CumZQ', None),
        (b'version: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ\nversion: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ',
         'caWaUYloT4uTfigl1CumZQ'),
        (b'\xff\xfe', None),
        (b'version: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ\n\xff', None),
        (b'\xef\xbb\xbfversion: 0\ntopic_id: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 0\ntopic_id: a: caWaUYloT4uTfigl1CumZQ', None),
        (b'version: 0: \ntopic_id: caWaUYloT4uTfigl1CumZQ: ', 'caWaUYloT4uTfigl1CumZQ'),
        (b': 0\n: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 0\x0btopic_id: caWaUYloT4uTfigl1CumZQ', None),
        (b'version: \xd9\xa0\ntopic_id: caWaUYloT4uTfigl1CumZQ', 'caWaUYloT4uTfigl1CumZQ'),
        (b'version: 0\ntopic_id: \xc2\xa0caWaUYloT4uTfigl1CumZQ', None),
    ],
    'replication-offset-checkpoint': [
        (b'0\n1\norders 0 5\n', 'orders 0 5'),
        (b'0\n1\norders 0 5', 'orders 0 5'),
        (b'0\r\n1\r\norders 0 5\r\n', 'orders 0 5'),
        (b'0\r1\rorders 0 5', 'orders 0 5'),
        (b'', ''),
        (b'0', ''),
        (b'0\n', ''),
        (b'\n', None),
        (b'0\n0\n', ''),
        (b'0\n0', ''),
        (b'1\n0\n', None),
        (b'1\n1\norders 0 5\n', None),
        (b'-1\n0\n', None),
        (b'+0\n+1\norders +0 +5\n', 'orders 0 5'),
        (b'00\n01\norders 00 05\n', 'orders 0 5'),
        (b' 0\n1\norders 0 5\n', None),
        (b'0 \n1\norders 0 5\n', None),
        (b'0\n1 \norders 0 5\n', None),
        (b'0\n1\norders 0 5\n\n', None),
        (b'0\n\n1\norders 0 5\n', None),
        (b'0\n1\n\norders 0 5\n', None),
        (b'0\n1\n# a comment\norders 0 5\n', None),
        (b'0\n1\n  orders 0 5\n', None),
        (b'0\n1\norders 0 5  \n', 'orders 0 5'),
        (b'0\n1\norders\t0   5\n', 'orders 0 5'),
        (b'0\n1\norders 0 5 6\n', None),
        (b'0\n1\norders 0\n', None),
        (b'0\n1\norders x 5\n', None),
        (b'0\n1\norders 0 x\n', None),
        (b'0\n1\norders 0 5_0\n', None),
        (b'0\n2\norders 0 5\n', None),
        (b'0\n0\norders 0 5\n', None),
        (b'0\n-1\n', None),
        (b'0\n-1\norders 0 5\n', None),
        (b'0\n2\norders 0 5\norders 0 6\n', 'orders 0 6'),
        (b'0\n1\norders 0 -5\n', 'orders 0 -5'),
        (b'0\n1\norders -1 5\n', 'orders -1 5'),
        (b'0\n1\norders 2147483648 5\n', None),
        (b'0\n1\norders 0 9223372036854775807\n', 'orders 0 9223372036854775807'),
        (b'0\n1\norders 0 9223372036854775808\n', None),
        (b'x\n', None),
        (b'\x00\x00\x00\x00', None),
        (b'\xff', None),
        (b'0\n1\n\xff 0 5\n', None),
        (b'\xef\xbb\xbf0\n1\norders 0 5\n', None),
        (b'0\n1\norders\x0b0\x0c5\n', 'orders 0 5'),
        (b'0\n1\norders\xc2\xa00\xc2\xa05\n', None),
        (b'0\n1\norders 0 5\x1cmore\n', None),
        (b'0\n1\none\xe2\x80\xa8two 0 5\n', 'one\u2028two 0 5'),
        (b'0\n1\norders \xd9\xa3 \xd9\xa5\n', 'orders 3 5'),
        (b'0\n2147483648\norders 0 5\n', None),
    ],
    'leader-epoch-checkpoint': [
        (b'0\n1\n0 0\n', '0 0'),
        (b'0\n1\n0 0', '0 0'),
        (b'0\r\n2\r\n0 0\r\n3 7\r\n', '0 0; 3 7'),
        (b'', ''),
        (b'0\n', ''),
        (b'0\n0\n', ''),
        (b'1\n1\n0 0\n', None),
        (b'0\n1\n 0 0\n', None),
        (b'0\n1\n0 0 \n', '0 0'),
        (b'0\n1\n0\t0\n', '0 0'),
        (b'0\n1\n0 0\n\n', None),
        (b'0\n\n1\n0 0\n', None),
        (b'0\n1\n0 0 0\n', None),
        (b'0\n1\n0 x\n', None),
        (b'0\n1\nx 0\n', None),
        (b'0\n2\n0 0\n', None),
        (b'0\n2\n3 7\n0 0\n', '3 7; 0 0'),
        (b'0\n2\n0 7\n3 0\n', '0 7; 3 0'),
        (b'0\n1\n-1 0\n', '-1 0'),
        (b'0\n1\n+1 +0\n', '1 0'),
        (b'0\n1\n2147483648 0\n', None),
        (b'garbage', None),
        (b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00', None),
        (b'\xff', None),
        (b'0\n1\n0 -1\n', '0 -1'),
        (b'# c\n0\n1\n0 0\n', None),
        (b'0\n2\n0 0\n0 0\n', '0 0; 0 0'),
        (b'0\n2\n0 0\n0 5\n', '0 0; 0 5'),
    ],
    'quorum-state': [
        (b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
         '7'),
        (b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}', '7'),  # noqa: E501
        (b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}\r\n', '7'),  # noqa: E501
        (b'\n{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}', None),  # noqa: E501
        (b'', None),
        (b'garbage', None),
        (b'{}', None),
        (b'{"leaderEpoch":7}', None),
        (b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":2}',
         None),
        (b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","unknown":5,"data_version":1}', '7'),  # noqa: E501
        (b'{"leaderId":1,"leaderEpoch":"7","votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
         None),
        (b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}\ngarbage', '7'),  # noqa: E501
    ],
    'meta.properties': [
        (b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=caWaUYloT4uTfigl1CumZQ\n',
         'abc 1 caWaUYloT4uTfigl1CumZQ'),
        (b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=caWaUYloT4uTfigl1CumZQ', 'abc 1 caWaUYloT4uTfigl1CumZQ'),
        (b'version=1\r\ncluster.id=abc\r\nnode.id=1\r\ndirectory.id=caWaUYloT4uTfigl1CumZQ\r\n',
         'abc 1 caWaUYloT4uTfigl1CumZQ'),
        (b'#\n#Thu\n\nversion=1\n! c\ncluster.id=abc\n\nnode.id=1\n', 'abc 1 -'),
        (b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=caWaUYloT4uTfigl1CumZQ==\n',
         'abc 1 caWaUYloT4uTfigl1CumZQ'),
        (b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=short\n', None),
        (b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=\n', None),
        (b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n', None),
        (b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n', None),
        (b'version=1\ncluster.id=caWaUYloT4uTfigl1CumZQ==\nnode.id=1\n', 'caWaUYloT4uTfigl1CumZQ== 1 -'),
        (b'version=1\ncluster.id=abc\nnode.id=1\nunknown=5\n', 'abc 1 -'),
        (b'version=0\ncluster.id=abc\nbroker.id=1\n', 'abc 1 -'),
        (b'version=0\nbroker.id=1\n', None),
        (b'version=0\ncluster.id=abc\nnode.id=1\n', 'abc -1 -'),
        (b'version=0\ncluster.id=abc\n', 'abc -1 -'),
        (b'version=0\nbroker.id=2\n', None),
        (b'version=0\ncluster.id=abc\nbroker.id=2\nnode.id=1\n', None),
        (b'version=1\ncluster.id=abc\nbroker.id=1\n', None),
        (b'version=1\ncluster.id=abc\nbroker.id=2\nnode.id=1\n', 'abc 1 -'),
        (b'version=2\ncluster.id=abc\nnode.id=1\n', None),
        (b'cluster.id=abc\nnode.id=1\n', 'abc -1 -'),
        (b'version=x\ncluster.id=abc\nnode.id=1\n', None),
        (b'version=1\nnode.id=1\n', None),
        (b'version=1\ncluster.id=abc\n', None),
        (b'version=1\ncluster.id=abc\nnode.id=2\n', None),
        (b'version=1\ncluster.id=abc\nnode.id=x\n', None),
        (b'version=1\ncluster.id=\nnode.id=1\n', ' 1 -'),
        (b'version=1 \ncluster.id=abc \nnode.id=1 \n', None),
        (b'version=1\ncluster.id=abc\nnode.id=+1\n', 'abc 1 -'),
        (b'version=01\ncluster.id=abc\nnode.id=1\n', 'abc 1 -'),
        (b'version = 1\ncluster.id: abc\nnode.id 1\n', 'abc 1 -'),
        (b'', None),
        (b'\n', None),
        (b'garbage', None),
        (b'\xff\xfe\x00', None),
        (b'version=1\ncluster.id=caf\xe9\nnode.id=1\n', 'café 1 -'),
        (b'version=1\ncluster.id=caf\xc3\xa9\nnode.id=1\n', 'cafÃ© 1 -'),
        (b'version=1\ncluster.id=a\\u0062c\nnode.id=1\n', 'abc 1 -'),
        (b'version=1\ncluster.id=a\\u00zz\nnode.id=1\n', None),
        (b'version=1\ncluster.id=abc\nnode.id=-1\n', None),
        (b'version=1\ncluster.id=abc\nnode.id=2\nnode.id=1\n', 'abc 1 -'),
        (b'\xef\xbb\xbfversion=1\ncluster.id=abc\nnode.id=1\n', 'abc -1 -'),
        (b'version=1\ncluster.id=abc\\\n  def\nnode.id=1\n', 'abcdef 1 -'),
    ],
}
CASES = [(kind, content) for kind, files in FOUND.items() for content, _ in files]
THEIRS = {(kind, content): found for kind, files in FOUND.items() for content, found in files}

# Where we differ, and why. Nothing is here that Kafka reads and we refuse.
DIFFERENT = {
    # An epoch is an epoch: we only want to know which was the last, and go on without one.
    ('quorum-state', b'{"leaderEpoch":7}'): '7',
    ('quorum-state', b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":2}'): '7',  # noqa: E501
    ('quorum-state', b'{"leaderId":1,"leaderEpoch":"7","votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'): '7',  # noqa: E501
    # The broker doesn't need the id of a directory.
    ('meta.properties', b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=short\n'): 'abc 1 short',
    ('meta.properties', b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=\n'): 'abc 1 -',
    ('meta.properties', b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n'): 'abc 1 AAAAAAAAAAAAAAAAAAAAAA',  # noqa: E501
    ('meta.properties', b'version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n'): 'abc 1 AAAAAAAAAAAAAAAAAAAAAQ',  # noqa: E501
    # What the file doesn't say, the configuration may; and blanks at the end of a line are only blanks.
    ('meta.properties', b'version=0\nbroker.id=1\n'): 'None 1 -',
    ('meta.properties', b'version=1\nnode.id=1\n'): 'None 1 -',
    ('meta.properties', b'version=1\ncluster.id=abc\n'): 'abc -1 -',
    ('meta.properties', b'version=1\ncluster.id=abc\nbroker.id=1\n'): 'abc -1 -',
    ('meta.properties', b'version=1 \ncluster.id=abc \nnode.id=1 \n'): 'abc 1 -',
    ('meta.properties', b''): 'None -1 -',
    ('meta.properties', b'\n'): 'None -1 -',
    # Kafka doesn't see the node.id in a file without `version=1`. We do: the directory may be another node's.
    ('meta.properties', b'version=0\ncluster.id=abc\nnode.id=1\n'): 'abc 1 -',
    ('meta.properties', b'cluster.id=abc\nnode.id=1\n'): 'abc 1 -',
    ('meta.properties', b'\xef\xbb\xbfversion=1\ncluster.id=abc\nnode.id=1\n'): 'abc 1 -',
}


def names(case) -> str: return f'{case[0]}: {case[1][:60]!r}'


# --- Our readers ------------------------------------------------------------------------------------------------------

def read_id(content: bytes, directory) -> str: return uuid_text(uuid_bytes(content.decode()))
def read_owner(content: bytes, directory) -> str: return uuid_text(read_partition_metadata(str(directory)))


def read_offsets(content: bytes, directory) -> str:
    rows = read_checkpoint(str(directory/'replication-offset-checkpoint'))
    found = {(topic, int(number)): int(offset) for topic, number, offset in rows}
    return '; '.join(sorted(f'{topic} {number} {offset}' for (topic, number), offset in found.items()))


def read_epochs(content: bytes, directory) -> str:
    rows = read_checkpoint(str(directory/'leader-epoch-checkpoint'))
    return '; '.join(f'{int(epoch)} {int(offset)}' for epoch, offset in rows)


def read_quorum_state(content: bytes, directory) -> str | None:
    "A file that can't be read is one without an election, for us."
    return str(quorum_epoch(str(directory)) or '') or None


def read_name(content: bytes, directory) -> str:
    "As a broker that is node 1 reads it."
    meta = read_meta(str(directory))
    find_node_id({str(directory): meta}, 1)
    owner, directory_id = owner_in(meta), (meta.get('directory.id') or '-').removesuffix('==')
    return f'{meta.get("cluster.id")} {-1 if owner is None else owner} {directory_id}'


READERS = {'id': read_id, 'partition.metadata': read_owner, 'replication-offset-checkpoint': read_offsets,
           'leader-epoch-checkpoint': read_epochs, 'quorum-state': read_quorum_state, 'meta.properties': read_name}


@pytest.mark.parametrize('case', CASES, ids=names)
def test_we_find_what_kafka_finds(case, tmp_path):
    kind, content = case
    if kind != 'id': (tmp_path/kind).write_bytes(content)
    try: ours = READERS[kind](content, tmp_path)
    except ValueError: ours = None   # DecodeError, EncodeError, ConfigError: all of them are one
    assert ours == DIFFERENT.get(case, THEIRS[case])


def test_we_refuse_nothing_that_kafka_reads(): assert all(DIFFERENT.values()) and DIFFERENT.keys() < THEIRS.keys()


ABSENT = kafka_absent() or ('' if shutil.which('javac')
                            else 'No `javac` on PATH: a small program asks Kafka, and has to be compiled.')


@pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
def test_kafka_finds_what_is_recorded():
    "Kafka's own classes, on every file of the table."
    options = '-XX:TieredStopAtLevel=1', '-Dfile.encoding=UTF-8', '-Dorg.slf4j.simpleLogger.defaultLogLevel=off'
    command = [real_kafka.java(), *options, '-cp', f'{real_kafka.libs()}/*',
               ROOT/'tests'/'clients'/'java'/'ReadFiles.java']
    files = ''.join(f'{kind}\t{content.hex()}\n' for kind, content in CASES)
    done = subprocess.run(command, input=files, capture_output=True, text=True, encoding='utf-8', timeout=120)
    said = [None if line.startswith('refused') else line for line in done.stdout.split('\n')[:-1]]
    assert dict(zip(CASES, said, strict=True)) == THEIRS, done.stderr
