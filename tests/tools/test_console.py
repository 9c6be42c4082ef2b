"""`kafka-scratch produce`, `consume`, `topics` and `groups`, run as their users run them: as processes.

Each test runs against our broker and, where there is one, against Apache Kafka 4.1.1.
"""
import contextlib
import io
import json
import os
import pty
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from size import kafka_absent
from broker_process import PATIENCE, ROOT, environment, free_port, wait_until

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

from kafka_scratch.client.client import Client, ask_any_broker, find_topics, send_batch
from kafka_scratch.apis.fetch_messages import PartitionData
from kafka_scratch.client.consumer import Consumer, fetched_records
from kafka_scratch.client.member import Member, assign_range, committed_offsets, join, leave
from kafka_scratch.log.records import LoggedRecord, write_batch
from kafka_scratch.client.producer import ProducerRecord, batch_of, murmur2, partition_of
from kafka_scratch.broker.running import running_broker
from kafka_scratch.tools.console import parse_time
from kafka_scratch.tools.lines import for_terminal, show_record, when
from kafka_scratch.tools.terminal import json_text, table, tell

COMMAND = [sys.executable, '-m', 'kafka_scratch']


@pytest.fixture(scope='module', params=['ours', 'kafka'])
def server(request, tmp_path_factory):
    "The address of a broker: HOST:PORT."
    if request.param == 'ours':
        with running_broker() as broker: yield broker.bootstrap_servers
    else:
        if reason := kafka_absent(): pytest.skip(str(reason))
        with real_kafka.RealKafka(tmp_path_factory.mktemp('kafka')) as kafka: yield f'127.0.0.1:{kafka.port}'


@pytest.fixture
def topic(server):
    "A new topic of three partitions. Some tests write old records, which shall stay."
    name = f'topic-{random.randrange(10**12)}'
    done(server, 'topics', 'create', name, '--partitions', '3', '--set', 'retention.ms=-1')
    return name


def run(server, *arguments, stdin: bytes | str = b'', **env) -> tuple[int, str, str]:
    "Exit code, output, complaints."
    stdin = stdin.encode() if isinstance(stdin, str) else stdin
    where = ['-b', server] if server else []
    done = subprocess.run([*COMMAND, *map(str, arguments), *where], input=stdin, capture_output=True, timeout=60,
                          env=environment(PYTHONPATH=str(ROOT), **env))
    assert b'Traceback' not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode('utf-8', 'surrogateescape'), done.stderr.decode()


def done(server, *arguments, **options) -> str:
    "The output of a command that should succeed, and has nothing to complain about."
    code, out, err = run(server, *arguments, **options)
    assert (code, err) == (0, ''), (code, err)
    return out


# --- produce and consume
# ------------------------------------------------------------------------------------------------------

def test_lines_in_lines_out(server, topic):
    done(server, 'produce', topic, stdin='one\ntwo\n\nfour ü')
    assert sorted(done(server, 'consume', topic).splitlines()) == ['', 'four ü', 'one', 'two']


def test_many_lines_and_every_compression(server, topic):
    lines = {f'{codec}-{number}' for codec in ('none', 'gzip', 'snappy', 'lz4', 'zstd') for number in range(2000)}
    for codec in ('none', 'gzip', 'snappy', 'lz4', 'zstd'):
        done(server, 'produce', topic, '--compression', codec,
             stdin='\n'.join(line for line in lines if line.startswith(codec)))
    assert set(done(server, 'consume', topic).splitlines()) == lines


def test_keys_go_where_java_puts_them(server, topic):
    keys = ['', 'a', 'anna', 'grüße', 'order-1', 'x' * 100]
    done(server, 'produce', topic, '--format', 'key-value', '--separator', ':',
         stdin=''.join(f'{key}:{n}\n' for n, key in enumerate(keys)))
    records = [json.loads(line) for line in done(server, 'consume', topic, '--format', 'json').splitlines()]
    assert {record['key']: record['partition'] for record in records} == {key: partition_of(key.encode(),
        3) for key in keys}
    assert {record['key']: record['value'] for record in records} == {key: str(n) for n, key in enumerate(keys)}


def test_an_ordinary_producer_agrees_about_keys(server, topic):
    kafka = pytest.importorskip('kafka')
    producer = kafka.KafkaProducer(bootstrap_servers=server)
    keys = [os.urandom(size) for size in range(1, 40)]
    theirs = [producer.send(topic, key=key, value=b'').get(10).partition for key in keys]
    producer.close()
    assert theirs == [partition_of(key, 3) for key in keys]


def test_all_of_a_record_survives_a_copy(server, topic):
    done(server, 'produce', topic, '--format', 'json', stdin='\n'.join(map(json.dumps, [
        dict(key='k', value='v', headers=[['a', '1'], ['a', {'hex': 'ff'}], ['none', None]], timestamp=1700000000123),
        dict(key={'hex': '00ff'}, value=None, timestamp=5), dict(value={'price': 3}), dict(key='', value='')])))
    copy = f'{topic}-copy'
    done(server, 'topics', 'create', copy, '-p', '1', '--set', 'retention.ms=-1')
    first = done(server, 'consume', topic, '--format', 'json')
    done(server, 'produce', copy, '--format', 'json', stdin=first)
    second = done(server, 'consume', copy, '--format', 'json')
    strip = lambda text: sorted(json.dumps({name: value for name, value in json.loads(line).items() if name in ('key',
        'value', 'headers', 'timestamp')}) for line in text.splitlines())
    assert strip(first) == strip(second) and len(second.splitlines()) == 4
    assert {(json.dumps(r['key']), json.dumps(r['value'])) for r in map(json.loads, first.splitlines())} == {
        ('"k"', '"v"'), ('{"hex": "00ff"}', 'null'), ('null', '"{\\"price\\":3}"'), ('""', '""')}


def test_keys_headers_partition_and_null_for_all(server, topic):
    done(server, 'produce', topic, '-k', 'me', '-H', 'a=1', '-H', 'b=x=y', '-p', '2', '--null', 'NULL',
         stdin='v\nNULL\n')
    records = [json.loads(line) for line in done(server, 'consume', topic, '--format', 'json', '-p', '2').splitlines()]
    assert [(r['partition'], r['offset'], r['key'], r['value'], r['headers']) for r in records] == [(2, n, 'me', value,
        [['a', '1'], ['b', 'x=y']]) for n, value in enumerate(['v', None])]
    assert done(server, 'consume', topic, '--format', 'key-value', '--separator', ' = ', '--null',
                '-') == 'me = v\nme = -\n'
    assert done(server, 'consume', topic) == 'v\nnull\n'


def test_bytes_stay_what_they_are(server, topic):
    raw = b'\xff\x80\x1b[2J\0x\r'
    done(server, 'produce', topic, '-p', '0', stdin=raw + b'\n')
    assert done(server, 'consume', topic).encode('utf-8', 'surrogateescape') == raw + b'\n'


def test_a_line_that_is_no_record(server, topic):
    "What came before is written; the complaint says which line it was."
    code, out, err = run(server, 'produce', topic, '--format', 'key-value', stdin='a\t1\nb\t2\nnonsense\nc\t3\n')
    assert (code, out) == (1, '') and "line 3 has no '\\t' between key and value" in err
    assert sorted(done(server, 'consume', topic).splitlines()) == ['1', '2']
    code, _, err = run(server, 'produce', topic, '--format', 'json', stdin='[1]\n')
    assert code == 1 and 'line 1 is no record in JSON' in err


def test_where_to_begin(server, topic):
    done(server, 'produce', topic, '-p', '0', '--format', 'json', stdin='\n'.join(json.dumps(dict(value=str(n),
        timestamp=1_700_000_000_000 + n * 1000)) for n in range(10)))
    begin = lambda *where: done(server, 'consume', topic, '-p', '0', *where).split()
    assert begin('--from', '7') == ['7', '8', '9'] == begin('--from', '-3') == begin('--since',
        '2023-11-14T22:13:27Z') == begin('--since', '1700000007000')
    assert begin('--from', 'beginning') == begin() == begin('--from', '-100') == begin('--since',
        '1970-01-01T00:00:00Z') == [str(n) for n in range(10)]
    assert begin('--from', '1000') == begin('--since', '1m') == [] and begin('--from', '2', '-n', '3') == ['2', '3',
        '4'] and begin('-n', '0') == []


def test_follow(server, topic):
    done(server, 'produce', topic, stdin='before\n')
    with subprocess.Popen([*COMMAND, 'consume', topic, '--follow', '-n', '4', '-b', server], stdout=subprocess.PIPE,
                          text=True, env=environment(PYTHONPATH=str(ROOT))) as process:
        assert process.stdout.readline() == 'before\n'
        for value in ('one', 'two'):   # one after the other, and each is there before the next is sent
            done(server, 'produce', topic, stdin=value)
            assert process.stdout.readline() == f'{value}\n'
        done(server, 'produce', topic, stdin='three')
        assert process.communicate(timeout=PATIENCE)[0] == 'three\n' and process.returncode == 0


def test_ctrl_c_is_quiet(server, topic):
    for arguments in (['consume', topic, '--from', 'end'], ['consume', topic, '--follow', '--group', f'{topic}-group'],
                      ['produce', topic]):
        with subprocess.Popen([*COMMAND, *arguments, '-b', server], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=environment(PYTHONPATH=str(ROOT))) as process:
            time.sleep(2)
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
            assert (process.returncode, process.stdout.read(), process.stderr.read()) == (130, b'', b''), arguments


def test_what_is_typed_is_sent_at_once(server, topic):
    "Lines that come slowly don't wait for more."
    with subprocess.Popen([*COMMAND, 'produce', topic, '-b', server], stdin=subprocess.PIPE,
                          env=environment(PYTHONPATH=str(ROOT))) as process:
        for count, value in enumerate((b'one\n', b'two\n'), 1):
            process.stdin.write(value)
            process.stdin.flush()
            with Client(server) as client: wait_until(lambda: ended(client, topic) == count, 'the record to be there')
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def ended(client, topic) -> int:
    from kafka_scratch.client.admin import topic_ends
    return sum(end for _, end in topic_ends(client, find_topics(client, [topic]).values()).values())


def test_a_reader_that_has_seen_enough(server, topic):
    done(server, 'produce', topic, stdin='x' * 100 + '\n' + ('y' * 100 + '\n') * 5000)
    command = ' '.join([*COMMAND, 'consume', topic, '-b', server]) + ' | head -1 > /dev/null; exit ${PIPESTATUS[0]}'
    finished = subprocess.run(['bash', '-c', command], capture_output=True, timeout=60,
                              env=environment(PYTHONPATH=str(ROOT)))
    assert (finished.returncode, finished.stderr) == (0, b'')


def test_transactions(server, topic):
    kafka = pytest.importorskip('kafka')
    producer = kafka.KafkaProducer(bootstrap_servers=server, transactional_id=topic)
    producer.init_transactions()
    for value, end in ((b'yes', producer.commit_transaction), (b'no', producer.abort_transaction),
                       (b'yes again', producer.commit_transaction)):
        producer.begin_transaction()
        producer.send(topic, value, partition=0).get(10)   # it is there, before we decide
        end()
    producer.close()
    assert done(server, 'consume', topic).splitlines() == ['yes', 'no', 'yes again']
    assert done(server, 'consume', topic, '--committed').splitlines() == ['yes', 'yes again']


# --- Groups
# -------------------------------------------------------------------------------------------------------------------

def test_a_group_goes_on_where_it_stopped(server, topic):
    group = f'{topic}-group'
    done(server, 'produce', topic, '-p', '1', stdin='\n'.join(map(str, range(10))))
    read = lambda *options: done(server, 'consume', topic, '--group', group, *options).split()
    assert read('-n', '3') == ['0', '1', '2'] and read('-n', '4') == ['3', '4', '5', '6'] and read() == ['7', '8',
        '9'] and read() == []
    done(server, 'produce', topic, '-p', '2', stdin='more\n')
    assert read() == ['more']
    with Client(server) as client: assert committed_offsets(client, group)[topic, 1] == 10


def test_the_life_of_a_group(server, topic):
    group = f'{topic}-group'
    done(server, 'produce', topic, '-p', '0', stdin='a\nb\nc\n')
    done(server, 'consume', topic, '--group', group, '-n', '2')
    assert group in done(server, 'groups', 'list', '-q').splitlines() and group in done(server, 'groups', 'list')
    listed = {each['group']: each for each in json.loads(done(server, 'groups', 'list', '--json'))}
    assert listed[group] == {'group': group, 'state': 'Empty', 'type': 'classic', 'protocol': 'consumer'}
    described, = json.loads(done(server, 'groups', 'describe', group, '--json'))
    assert described['state'] == 'Empty' and {'topic': topic, 'partition': 0, 'committed': 2, 'end': 3, 'lag': 1,
                                              'member': None, 'client': None} in described['partitions']
    assert '1 behind' in done(server, 'groups', 'describe', group)
    shown = done(server, 'groups', 'reset', group, '--to', 'beginning', '--dry-run')
    assert 'FROM' in shown and done(server, 'groups', 'reset', group, '--to', 'beginning', '--topic', topic) == shown
    assert done(server, 'consume', topic, '--group', group).split() == ['a', 'b', 'c']
    done(server, 'groups', 'reset', group, '--to', '-1')
    assert done(server, 'consume', topic, '--group', group).split() == ['c']
    assert done(server, 'groups', 'delete', group) == f'deleted {group}\n'
    assert group not in done(server, 'groups', 'list', '-q').splitlines()


def test_a_group_with_somebody_in_it(server, topic):
    group = f'{topic}-group'
    with Client(server) as client:
        member = Member(client, group, [topic])
        assert sorted(join(member)) == [(topic, 0), (topic, 1), (topic, 2)]
        described, = json.loads(done(server, 'groups', 'describe', group, '--json'))
        assert described['state'] == 'Stable' and described['assignor'] == 'range' and [row['member'] for row
            in described['partitions']] == [member.member_id] * 3
        assert '1 member,' in done(server, 'groups', 'describe', group) and 'kafka_scratch/' in done(server, 'groups',
            'describe', group)
        code, _, err = run(server, 'groups', 'delete', group)
        assert code == 1 and 'somebody is in it' in err
        code, _, err = run(server, 'groups', 'reset', group, '--topic', topic, '--to', 'end')
        assert code == 1 and 'while somebody is in it' in err
        leave(member)
    done(server, 'groups', 'reset', group, '--topic', topic, '--to', 'end')


def test_two_members_share_the_work(server, topic):
    "The second one comes while the first one reads; each record is read once, and none is lost, whoever reads it."
    group, found = f'{topic}-group', []
    command = [*COMMAND, 'consume', topic, '--group', group, '--follow', '--format', 'json', '-b', server]
    start = lambda: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     env=environment(PYTHONPATH=str(ROOT)))
    def members(): return json.loads(run(server, 'groups', 'describe', group, '--json')[1] or '[{}]')[0]
    with start() as one:
        wait_until(lambda: members().get('state') == 'Stable', 'the first member')
        with start() as other:
            try:
                wait_until(lambda: len(members().get('members', [])) == 2 and members()['state'] == 'Stable',
                           'the second member')
                readers = [threading.Thread(target=lambda stream=each.stdout: found.extend(map(json.loads,
                    stream))) for each in (one, other)]
                for reader in readers: reader.start()
                for partition in range(3):
                    done(server, 'produce', topic, '-p', partition,
                         stdin='\n'.join(f'{partition}-{n}' for n in range(50)))
                wait_until(lambda: len(found) >= 150, 'all records')
                assert len({row['member'] for row in members()['partitions']}) == 2
            finally:
                for each in (one, other): each.send_signal(signal.SIGINT)
                for each in (one, other): each.wait(PATIENCE)
            for reader in readers: reader.join()
            assert (one.stderr.read(), other.stderr.read()) == ('', '')
    assert sorted(record['value'] for record in found) == sorted(f'{p}-{n}' for p in range(3) for n in range(50))
    with Client(server) as client: assert committed_offsets(client, group) == {(topic, n): 50 for n in range(3)}


def test_a_group_of_the_new_kind(server, topic):
    "KIP-848: described by another question, in the same words."
    confluent = pytest.importorskip('confluent_kafka')
    group = f'{topic}-group'
    done(server, 'produce', topic, stdin='a\nb\n')
    consumer = confluent.Consumer({'bootstrap.servers': server, 'group.id': group, 'group.protocol': 'consumer',
                                   'auto.offset.reset': 'earliest'})
    try:
        consumer.subscribe([topic])
        deadline, found = time.monotonic() + PATIENCE, 0
        while found < 2 and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            found += message is not None and not message.error()
        consumer.commit(asynchronous=False)
        described, = json.loads(done(server, 'groups', 'describe', group, '--json'))
        assert (found == 2 and described['type'] == 'consumer' and described['state'] == 'Stable'
                and len(described['members']) == 1)
        assert {row['partition'] for row in described['partitions']} == {0, 1,
            2} and sum(row['committed'] or 0 for row in described['partitions']) == 2
    finally: consumer.close()


# --- Topics
# -------------------------------------------------------------------------------------------------------------------

def test_the_life_of_a_topic(server):
    name = f'life-{random.randrange(10**12)}'
    assert done(server, 'topics', 'create', name, '--partitions', '2', '--set', 'retention.ms=60000', '--set',
                'cleanup.policy=compact') == f'created {name}\n'
    done(server, 'produce', name, '-p', '1', '-k', 'k', stdin='v\n')
    listed = {each['topic']: each for each in json.loads(done(server, 'topics', 'list', '--json'))}
    assert listed[name] == {'topic': name, 'partitions': 2, 'replicas': 1, 'records': 1} and name in done(server,
        'topics', 'list', '-q').splitlines()
    described, = json.loads(done(server, 'topics', 'describe', name, '--json'))
    assert described['settings'] == {'retention.ms': '60000',
                                     'cleanup.policy': 'compact'} and len(described['id']) == 22
    assert described['partitions'] == [dict(partition=n, leader=1, replicas=[1], in_sync=[1], first_offset=0,
                                            next_offset=n, records=n) for n in (0, 1)]
    shown = done(server, 'topics', 'describe', name)
    assert (f'{name}: 2 partitions' in shown and 'retention.ms = 60000' in shown
            and shown.splitlines()[3].split() == 'PARTITION LEADER REPLICAS IN-SYNC FIRST NEXT RECORDS'.split())
    assert done(server, 'topics', 'delete', name) == f'deleted {name}\n'
    wait_until(lambda: name not in done(server, 'topics', 'list', '-q').splitlines(), 'the topic to be gone')


def test_internal_topics_only_if_asked_for(server, topic):
    done(server, 'consume', topic, '--group', f'{topic}-group')
    assert '__consumer_offsets' not in done(server, 'topics', 'list') and '__consumer_offsets' in done(server, 'topics',
        'list', '--all')
    assert '__consumer_offsets' in done(server, 'topics', 'describe', '__consumer_offsets')


# --- What goes wrong
# ----------------------------------------------------------------------------------------------------------

def test_answers_that_are_no(server, topic):
    code_1 = [(['consume', 'nobody'], "has no topic 'nobody'; `kafka-scratch topics create nobody`"),
              (['produce', 'nobody'], "has no topic 'nobody'"),
              (['consume', topic, '-p', '9'], 'has no partition 9, only 0 to 2'),
              (['produce', topic, '-p', '9'], 'has no partition 9'),
              (['topics', 'create', topic], 'TOPIC_ALREADY_EXISTS'), (['topics', 'create', 'not a name'],
                                                                      'INVALID_TOPIC_EXCEPTION'),
              (['topics', 'create', 'x', '--set', 'cleanup.policy=perhaps'], 'INVALID_CONFIG'),
              (['topics', 'create', 'x', '-r', '7'], 'INVALID_REPLICATION_FACTOR'),
              (['topics', 'delete', 'nobody'], "has no topic 'nobody'"),
              (['topics', 'describe', 'nobody'], "has no topic 'nobody'"),
              (['groups', 'describe', 'nobody'], "has no group 'nobody'"),
              (['groups', 'delete', 'nobody'], "has no group 'nobody'"),
              (['groups', 'reset', 'nobody', '--to', 'end'], 'has committed nothing')]
    for arguments, problem in code_1:
        code, out, err = run(server, *arguments)
        assert (code, out) == (1,
                               '') and problem in err and err.startswith(
                                   'kafka-scratch: ') and err.count('\n') == 1, (arguments, err)


def test_what_no_request_can_hold(server, topic):
    not_utf8 = os.fsdecode(b'\xff')
    for arguments in (['topics', 'create', not_utf8], ['topics', 'create', 'x', '-p', 10**12], ['consume', not_utf8],
                      ['consume', topic, '-g', not_utf8], ['groups', 'describe', not_utf8]):
        code, out, err = run(server, *arguments)
        assert (code, out) == (2,
                               '') and err.startswith(
                                   "kafka-scratch: this can't be sent: ") and err.count('\n') == 1, (arguments, err)
    code, out, err = run(server, 'consume', topic, '-g', '')
    assert (code, out) == (1, '') and 'INVALID_GROUP_ID' in err


def test_what_is_typed_is_stored_byte_by_byte(server, topic):
    key, value, between = (os.fsdecode(data) for data in (b'k\xff', b'v\xfe', b'\xf0'))
    done(server, 'produce', topic, '-k', key, '-H', f'h={value}', stdin=b'x')
    record = json.loads(done(server, 'consume', topic, '--format', 'json'))
    assert record['key'] == {'hex': '6bff'} and record['headers'] == [['h', {'hex': '76fe'}]]
    assert done(server, 'consume', topic, '--format', 'key-value', '--separator', between).encode('utf-8',
        'surrogateescape') == b'k\xff\xf0x\n'


@pytest.mark.parametrize('line', ['{"timestamp": 1e999}', '{"timestamp": 9223372036854775808}', '{"timestamp": -2}',
                                  '[' * 100_000, '{"value": "\\ud800"}'])
def test_json_that_is_no_record(server, topic, line):
    code, out, err = run(server, 'produce', topic, '--format', 'json', stdin='{"value": "before"}\n' + line)
    assert (code, out) == (1, '') and err.startswith('kafka-scratch: line 2 ') and err.count('\n') == 1
    assert done(server, 'consume', topic) == 'before\n'


def test_input_that_can_not_be_read(server, topic):
    with open('/proc/self/mem', 'rb') as broken, subprocess.Popen([*COMMAND, 'produce', topic, '-b', server],
                                                                  stdin=broken, stderr=subprocess.PIPE,
                                                                  env=environment(PYTHONPATH=str(ROOT))) as process:
        said = process.stderr.read().decode()
    assert (process.returncode == 1
            and said == 'kafka-scratch: line 0 is the last that could be read: Input/output error\n')


@pytest.mark.parametrize('command, closed', [(['produce'], '<&-'), (['consume'], '>&-'),
                                             (['consume', 'nobody'], '2>&-')])
def test_streams_that_are_closed(server, topic, command, closed):
    line = ' '.join([*COMMAND, *command, *([topic] if len(command) == 1 else []), '-b', server, closed])
    ended = subprocess.run(line, shell=True, capture_output=True, timeout=60, env=environment(PYTHONPATH=str(ROOT)))
    assert ended.returncode == (1 if 'nobody' in command else 0) and b'Traceback' not in ended.stderr


def test_ctrl_c_while_it_starts():
    for _ in range(3):
        with subprocess.Popen([sys.executable, '-X', 'importtime', '-m', 'kafka_scratch', 'topics', 'list', '-b',
                               f'127.0.0.1:{free_port()}'], stderr=subprocess.PIPE,
                               env=environment(PYTHONPATH=str(ROOT))) as process:
            for line in process.stderr:
                if b'kafka_scratch.wire.primitives' in line: break   # it is loading its chapters
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
        assert process.returncode == 130 and b'Traceback' not in said


def test_named_twice(server):
    names = [f'twice-{random.randrange(10**12)}' for _ in range(2)]
    assert done(server, 'topics', 'create', *names, names[0]).split() == ['created', names[0], 'created', names[1]]
    assert done(server, 'topics', 'delete', names[0], *names).split() == ['deleted', names[0], 'deleted', names[1]]


@pytest.mark.parametrize('number, code', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ended_while_it_waits_for_the_others(server, topic, number, code):
    "Somebody who isn't in the group yet leaves it all the same: or a part would be given to nobody."
    group = f'{topic}-group'
    with Client(server) as client:
        member = Member(client, group, [topic])
        join(member)
        with subprocess.Popen([*COMMAND, 'consume', topic, '-f', '-g', group, '-b', server],
                              env=environment(PYTHONPATH=str(ROOT))) as process:
            wait_until(lambda: json.loads(done(server, 'groups', 'describe', group,
                                               '--json'))[0]['state'] == 'PreparingRebalance', 'the second member')
            process.send_signal(number)
        assert process.returncode == code
        assert sorted(join(member)) == [(topic, 0), (topic, 1), (topic, 2)]
        leave(member)


@pytest.mark.parametrize('arguments', [['topics', 'list'], ['consume', 'orders'], ['produce', 'orders'],
                                       ['groups', 'list']])
def test_nobody_is_there(arguments):
    code, out, err = run(f'127.0.0.1:{free_port()}', *arguments)
    assert (code, out) == (1, '') and 'no broker answers' in err and 'refused' in err and err.count('\n') == 1


@pytest.mark.parametrize('arguments, problem', [
    (['consume', 'orders', '-b', 'nonsense'], 'HOST:PORT'), (['consume', 'orders', '--from', 'middle'],
                                                             'no place to begin'),
                                                             (['consume', 'orders', '--since', 'yesterday'], 'no time'),
    (['consume', 'orders', '--from', 'end', '--since', '1m'], 'only one place'),
    (['consume', 'orders', '-g', 'g', '-p', '0'], 'the group decides'), (['consume', 'orders', '-n', 'x'], 'no number'),
    (['consume'], 'topic'), (['produce', 'orders', '-H', 'nonsense'], 'NAME=VALUE'),
    (['produce', 'orders', '-z', 'rar'], 'rar'), (['topics'], 'ACTION'),
    (['topics', 'create', 'x', '--set', 'nonsense'], 'NAME=VALUE'), (['topics', 'create', 'x', '-p', '0'],
                                                                     'no number from 1 on'),
                                                                     (['groups', 'reset', 'g'], 'where to?'),
    (['consume', 'orders', '--timeout', '-1'], 'timeout'), (['produce', 'orders', '--format', 'key-value',
                                                             '--separator', ''], '--separator takes'),
    (['topics', 'create', 'x', '-p', '-1'], 'no number from 1 on')])
def test_questions_that_are_wrong(arguments, problem):
    code, out, err = run('', *arguments)
    assert (code, out) == (2, '') and problem in err


def test_a_broker_that_never_answers():
    with socket.create_server(('127.0.0.1', 0)) as silent:
        begin = time.monotonic()
        code, _, err = run(f'127.0.0.1:{silent.getsockname()[1]}', 'topics', 'list', '--timeout', '0.5')
        assert code == 1 and 'no answer in time' in err and time.monotonic() - begin < 15


def test_help_has_examples():
    for command in (['produce'], ['consume'], ['topics'], ['topics', 'create'], ['groups'], ['serve']):
        code, out, _ = run('', *command, '--help')
        assert code == 0 and 'examples:\n  ' in out and 'kafka-scratch ' in out, command


def test_records_that_are_gone():
    "Old records are deleted while one reads: it says so, and goes on with what there is."
    from kafka_scratch.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
    from kafka_scratch.apis.delete_records import delete_records
    with running_broker(topics=['orders']) as broker, broker.client() as client:
        find_topics(client, ['orders'])
        send_batch(client, 'orders', 0, batch_of([ProducerRecord(None, b'%d' % n, timestamp=0) for n in range(10)]))
        consumer, err = Consumer(client, tell=tell), io.StringIO()
        consumer.assign({('orders', 0): 2})
        ask_any_broker(client, delete_records, DeleteRecordsRequest(topics=[DeleteRecordsTopic(name='orders',
            partitions=[DeleteRecordsPartition(partition_index=0, offset=7)])], timeout_ms=5000))
        with contextlib.redirect_stderr(err): first = list(consumer.poll())
        values = [record.value for _, records, _ in (first or consumer.poll()) for record in records]
    assert values == [b'7', b'8', b'9'] and 'no offset 2 any more; going on with 7' in err.getvalue()


def test_a_broker_that_restarts_while_we_follow():
    with running_broker(topics=['orders']) as broker:
        with subprocess.Popen([*COMMAND, 'consume', 'orders', '--follow', '-n', '2', '-b', broker.bootstrap_servers],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment(PYTHONPATH=str(ROOT))) as process:
            done(broker.bootstrap_servers, 'produce', 'orders', stdin='before')
            assert process.stdout.readline() == 'before\n'
            broker.restart()
            done(broker.bootstrap_servers, 'produce', 'orders', stdin='after')
            out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, 'after\n', '')


# --- On a terminal
# ------------------------------------------------------------------------------------------------------------

def test_a_terminal_is_safe():
    "Bytes that would clear a screen are shown as what they are."
    with running_broker(topics=['orders']) as broker:
        done(broker.bootstrap_servers, 'produce', 'orders', stdin=b'\x1b[2J\xff ok\n')
        ours, theirs = pty.openpty()
        with subprocess.Popen([*COMMAND, 'consume', 'orders', '-b', broker.bootstrap_servers], stdout=theirs,
                              env=environment(PYTHONPATH=str(ROOT))) as process:
            process.wait(PATIENCE)
        os.close(theirs)
        assert os.read(ours, 1000) == b'\\x1b[2J\\xff ok\r\n'
        os.close(ours)


def test_progress_on_a_terminal():
    with running_broker(topics=['orders']) as broker:
        ours, theirs = pty.openpty()
        with subprocess.Popen([*COMMAND, 'produce', 'orders', '-b', broker.bootstrap_servers], stdin=subprocess.PIPE,
                              stderr=theirs, env=environment(PYTHONPATH=str(ROOT))) as process:
            process.communicate(b'one\ntwo\n', timeout=PATIENCE)
        os.close(theirs)
        said = b''
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 1000): said += piece
        os.close(ours)
    assert said.endswith(b'2 records written to orders\r\n') and process.returncode == 0


# --- The pieces
# ---------------------------------------------------------------------------------------------------------------

def test_murmur2_as_kafka_python_has_it():
    theirs = pytest.importorskip('kafka.partitioner.default').murmur2
    for size in range(70):
        data = os.urandom(size)
        assert murmur2(data) & 0xffffffff == theirs(data) & 0xffffffff


def test_range_assignment():
    assert assign_range({'b': ['t', 'u'], 'a': ['t'], 'c': []}, {'t': 5, 'u': 1}) == {
        'a': [('t', 0), ('t', 1), ('t', 2)], 'b': [('t', 3), ('t', 4), ('u', 0)], 'c': []}


def test_an_empty_marker():
    "What compaction may leave of a transaction's marker: a batch without a record."
    batch = write_batch([], attributes=0x30, producer_id=7, producer_epoch=0)
    records, after = fetched_records(PartitionData(records=batch, aborted_transactions=[]), 0, committed=True)
    assert records == [] and after >= 0


def test_times():
    # not -1, which would mean the end
    assert parse_time('1969-12-31T23:59:59.999Z') == 0 == parse_time('99999999999999999999d')
    assert parse_time('1h', 10_000_000) == 6_400_000 and parse_time('2024-05-01T12:00:00+02:00') == 1714557600000


def test_tables():
    assert table('NAME COUNT', [['a', 1], ['bb', 1000]]) == 'NAME  COUNT\na         1\nbb    1,000'


def test_what_clients_call_themselves_does_nothing_to_a_terminal():
    for odd in ('\x1b]0;mine\x07', '\x9b2J', 'a\rb', '\x7f', '\u202egnp.exe'):
        assert not any(c in table('MEMBER', [[odd]]).split('\n', 1)[1] for c in '\x1b\x07\x9b\r\x7f\u202e')
        assert json.loads(json_text(odd)) == odd and json_text(odd).isprintable()
    record = LoggedRecord(0, 2**63 - 1, None, '\x9b31m'.encode(), [])
    assert '\x9b' not in show_record(('t', 0), record,
                                     'json').decode() and b'9223372036854775807 ms' in show_record(('t', 0), record,
                                         'long')
    assert when(2**55) == f'{2**55} ms'


def test_terminal_text():
    assert (for_terminal(b'a\tb\n') == b'a\tb\\n' and for_terminal(b'\xff') == b'\\xff'
            and for_terminal('ü'.encode()) == 'ü'.encode())
