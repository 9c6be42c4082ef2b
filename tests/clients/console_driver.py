"The driver of the console tools that come with Apache Kafka: commands themselves, this translates."
import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks import real_kafka
from contract import PATIENCE, key_of, main, numbers, say, value_of, when_stdin_ends
from fetch import QUICK_JAVA

TOPICS, CONFIGS, GROUPS = 'org.apache.kafka.tools.TopicCommand', 'kafka.admin.ConfigCommand', 'org.apache.kafka.tools.consumer.group.ConsumerGroupCommand'  # noqa: E501
PRODUCER, CONSUMER = 'org.apache.kafka.tools.ConsoleProducer', 'org.apache.kafka.tools.consumer.ConsoleConsumer'
OFFSETS, DELETE_RECORDS = 'org.apache.kafka.tools.GetOffsetShell', 'org.apache.kafka.tools.DeleteRecordsCommand'
LOG_DIRS = 'org.apache.kafka.tools.LogDirsCommand'
REASSIGN = 'org.apache.kafka.tools.reassign.ReassignPartitionsCommand'
ELECT, QUORUM = 'org.apache.kafka.tools.LeaderElectionCommand', 'org.apache.kafka.tools.MetadataQuorumCommand'
FEATURES = 'org.apache.kafka.tools.FeatureCommand'
PRINT = [word for name in ('partition', 'offset', 'key') for word in ('--property', f'print.{name}=true')]


def java(options, tool: str, *arguments, log: str = real_kafka.QUIET) -> list[str]:
    return [real_kafka.java(), *QUICK_JAVA, log, '-cp', f'{real_kafka.libs()}/*', tool, '--bootstrap-server',
            options.bootstrap, *map(str, arguments)]

def output(options, tool: str, *arguments, **settings) -> str:
    done = subprocess.run(java(options, tool, *arguments), stdout=subprocess.PIPE, text=True, timeout=2 * PATIENCE,
                          **settings)
    if done.returncode: raise SystemExit(f'{tool} ended with {done.returncode}: {done.stdout}')   # why, it says there
    return done.stdout


@contextlib.contextmanager
def json_file(content: dict):
    "The name of a file with this in it, for as long as it is needed."
    with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
        json.dump(content, file)
        file.flush()
        yield file.name


def create(options):
    output(options, TOPICS, '--create', '--topic', options.topic, '--partitions', options.partitions,
           '--replication-factor', 1)
    say(created=options.topic)


def list_topics(options): say(topics=output(options, TOPICS, '--list').split())


def describe(options):
    for partition, leader in re.findall(r'Partition: (\d+)\s+Leader: (\S+)',
                                        output(options, TOPICS, '--describe', '--topic', options.topic)):
        say(partition=int(partition), leader=int(leader))


def grow(options):
    output(options, TOPICS, '--alter', '--topic', options.topic, '--partitions', options.partitions)
    say(partitions=options.partitions)


def configure(options):
    name, _ = options.config.split('=')
    topic = '--entity-type', 'topics', '--entity-name', options.topic
    output(options, CONFIGS, '--alter', *topic, '--add-config', options.config)
    say(name=name, value=re.search(rf'^\s*{re.escape(name)}=(\S+)', output(options, CONFIGS, '--describe', *topic),
                                   re.M)[1])


def delete(options):
    output(options, TOPICS, '--delete', '--topic', options.topic)
    say(deleted=options.topic)


def produce(options):
    lines = ''.join(f'{key_of(number).decode()}|{value_of(number).decode()}\n' for number in numbers(options.first,
        options.count))
    idempotent = ['--producer-property', 'enable.idempotence=true'] if options.idempotent else []
    said = subprocess.run(java(options, PRODUCER, '--topic', options.topic, '--compression-codec', options.codec,
                               '--property', 'parse.key=true', '--property', 'key.separator=|',
                               *idempotent), input=lines, capture_output=True, text=True, timeout=2 * PATIENCE)
    print(said.stderr, file=sys.stderr)
    # it ends with 0 even if nothing was delivered
    if said.returncode or 'ERROR' in said.stderr: raise SystemExit('kafka-console-producer complained')
    say(produced=options.count)


def say_line(line: str):
    partition, offset, key, value = line.rstrip('\n').split('\t')
    say(partition=int(partition.removeprefix('Partition:')), offset=int(offset.removeprefix('Offset:')), key=key,
        value=value)


def consume(options):
    "Without a group of ours: it makes one up, of which it is the only member."
    for line in output(options, CONSUMER, '--topic', options.topic, '--from-beginning', '--max-messages', options.count,
                       '--isolation-level', options.isolation, *PRINT).splitlines():
        say_line(line)


def offsets(options):
    def ask(time: str) -> dict[int, int]:
        rows = [line.rsplit(':', 2) for line in output(options, OFFSETS, '--topic', options.topic, '--time',
                                                       time).split()]
        return {int(partition): int(offset) for _, partition, offset in rows}
    earliest, latest = ask('earliest'), ask('latest')
    for number in range(options.partitions): say(partition=number, earliest=earliest[number], latest=latest[number])


def member(options):
    leave = when_stdin_ends()
    # otherwise the broker says
    timeouts = ['session.timeout.ms=6000', 'heartbeat.interval.ms=500'] if options.protocol == 'classic' else []
    settings = f'group.protocol={options.protocol}', 'auto.commit.interval.ms=100', 'fetch.max.wait.ms=100', 'reconnect.backoff.max.ms=200', *timeouts  # noqa: E501
    command = java(options, CONSUMER, '--topic', options.topic, '--from-beginning', '--group', options.group, *PRINT,
                   *[word for setting in settings for word in ('--consumer-property', setting)],
                   log='-Dorg.slf4j.simpleLogger.defaultLogLevel=info')
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    threads = [threading.Thread(target=target) for target in (lambda: follow_records(process),
                                                              lambda: follow_groups(process, options.topic))]
    for thread in threads: thread.start()
    while process.poll() is None and not leave.wait(0.05): pass
    process.send_signal(signal.SIGTERM)
    for thread in threads: thread.join()
    if process.wait(PATIENCE) not in (0, 130, 143):
        raise SystemExit(f'kafka-console-consumer ended with {process.returncode}')
    say(left=True)


def follow_records(process):
    for line in process.stdout: say_line(line)


def follow_groups(process, topic: str):
    "It doesn't say what it was assigned, but its log does."
    for line in process.stderr:
        print(line, end='', file=sys.stderr, flush=True)
        if re.search(r'(Adding newly assigned partitions: |^\s*Assigned partitions:\s+\[)', line):
            say(assigned=sorted(map(int, re.findall(rf'\b{re.escape(topic)}-(\d+)\b',
                                                    line.partition('partitions:')[2]))))


def groups(options):
    if options.group in output(options, GROUPS, '--list').splitlines():
        row = output(options, GROUPS, '--describe', '--state', '--group',
                     options.group).strip().splitlines()[-1].removeprefix(options.group).split()
        say(group=options.group, state=row[-2], members=int(row[-1]))
    described = output(options, GROUPS, '--describe', '--offsets', '--group', options.group)
    for partition, committed in re.findall(rf'\s{re.escape(options.topic)}\s+(\d+)\s+(\d+)', described):
        say(partition=int(partition), committed=int(committed))


def forget(options):
    if 'was successful' not in (said := output(options, GROUPS, '--delete', '--group', options.group)):
        raise SystemExit(said)
    say(forgotten=options.group)


def log_dirs(options):
    said = json.loads(output(options, LOG_DIRS, '--describe', '--topic-list', options.topic).splitlines()[-1])
    for directory in said['brokers'][0]['logDirs']:
        for found in directory['partitions']:
            say(partition=int(found['partition'].rsplit('-', 1)[1]), dir=directory['logDir'], size=found['size'])


def reassigned(options, *arguments, replica: int, **more) -> str:
    "What kafka-reassign-partitions says of a plan in which every partition has this replica."
    plan = [{'topic': options.topic, 'partition': number, 'replicas': [replica], **more} for number
            in range(options.partitions)]
    with json_file({'partitions': plan, 'version': 1}) as path:
        return output(options, REASSIGN, '--reassignment-json-file', path, *arguments)


def move(options):
    reassigned(options, '--execute', replica=1, log_dirs=[options.to])
    say(moved=options.partitions)


def reassign(options):
    reassigned(options, '--execute', replica=int(options.to))
    said = output(options, REASSIGN, '--list')
    say(moving=[int(number) for number in re.findall(rf'{re.escape(options.topic)}-(\d+):', said)])


def elect(options):
    wanted = [{'topic': options.topic, 'partition': number} for number in range(options.partitions)]
    with json_file({'partitions': wanted}) as path:
        said = output(options, ELECT, '--election-type', 'preferred', '--path-to-json-file', path)
    valid = re.search('Valid replica already elected for partitions (.*)', said)[1]
    for number in range(options.partitions):
        say(partition=number, elected=f'{options.topic}-{number}' not in re.split(r'[,\s]+', valid))


def quorum(options):
    said = output(options, QUORUM, 'describe', '--replication')
    rows = [line.split() for line in said.splitlines()]
    say(leader=[int(row[0]) for row in rows if row[-1] == 'Leader'][0],
        voters=[int(row[0]) for row in rows if row[-1] in ('Leader', 'Follower')])


def features(options):
    name, _ = options.config.split('=')
    output(options, FEATURES, 'upgrade', '--feature', options.config)
    level = re.search(rf'Feature: {re.escape(name)}\s.*FinalizedVersionLevel: (\d+)', output(options, FEATURES,
                                                                                          'describe'))[1]
    say(name=name, level=int(level))


def quotas(options):
    client = '--entity-type', 'clients', '--entity-name', options.id
    if options.config:
        output(options, CONFIGS, '--alter', *client, '--add-config', options.config)
        return say(set=options.config.split('=')[0])
    for name, value in re.findall(r'(\w+)=([\d.]+)', output(options, CONFIGS, '--describe', *client)):
        say(name=name, value=float(value))


def truncate(options):
    wanted = [{'topic': options.topic, 'partition': number,
               'offset': options.before} for number in range(options.partitions)]
    with json_file({'partitions': wanted, 'version': 1}) as path:
        said = output(options, DELETE_RECORDS, '--offset-json-file', path)
    for partition, earliest in re.findall(r'-(\d+)\s+low_watermark: (\d+)', said):
        say(partition=int(partition), earliest=int(earliest))


if __name__ == '__main__':
    main(create=create, list=list_topics, describe=describe, grow=grow, configure=configure, delete=delete,
         produce=produce, consume=consume, offsets=offsets,
         member=member, groups=groups, forget=forget, truncate=truncate,
         log_dirs=log_dirs, move=move, elect=elect, reassign=reassign, quorum=quorum, features=features, quotas=quotas)
