"""Records `fixtures/cleaner`: `python tests/record/cleaner.py`.

A real broker whose cleaner is off gets records from librdkafka; its logs are copied. Started again with the cleaner on,
it cleans them, and they are copied again; and so a second time, when what was a tombstone then may go. The states in
the middle of a swap, and the passes with a table that is too small, are made by Kafka's own classes
(`cleaner/java/CleanLog.java`), on copies of these logs.
"""
import json
import shutil
import tempfile
import time
from pathlib import Path

from recording import TESTS, command_line

from benchmarks import real_kafka
from cleaner_oracle import Oracle
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

CLEANER = TESTS/'fixtures'/'cleaner'
RETENTION = 2_000           # delete.retention.ms, less than passes between two rounds
SEGMENT = 60_000            # a record that is so much later begins a segment
CODECS = 'gzip', 'snappy', 'lz4', 'zstd'
TOPICS = {'plain': {}, 'codecs': {}, 'transactions': {}, 'idempotent': {}, 'ongoing': {},
          'append.time': {'message.timestamp.type': 'LogAppendTime', 'segment.ms': 400},
          'null.keys': {'cleanup.policy': 'delete', 'retention.ms': -1}}
SETTINGS = {'cleanup.policy': 'compact', 'delete.retention.ms': RETENTION, 'segment.ms': SEGMENT - 1,
            'index.interval.bytes': 200, 'message.timestamp.after.max.ms': 2**62}
SETTINGS_FILE = {name: {**SETTINGS, **more, 'cleanup.policy': 'compact'} for name, more in TOPICS.items()}


class Writers:
    "Producers of one broker. Time goes on when they say so."
    def __init__(self, port: int, now: int): self.address, self.now = f'127.0.0.1:{port}', now

    def producer(self, **settings) -> Producer:
        return Producer({'bootstrap.servers': self.address, 'linger.ms': 1000, 'transaction.timeout.ms': 900_000,
                         **settings})

    def put(self, producer: Producer, topic: str, *records):
        "One batch."
        for key, value, *headers in records:
            producer.produce(topic, key=key, value=value, timestamp=self.now, headers=headers, partition=0)
            self.now += 3
        if left := producer.flush(30): raise RuntimeError(f'{left} records of {topic} were not sent')

    def next_segment(self): self.now += SEGMENT


def later(writers: Writers, topic: str):
    "The last segment is cleaned as well, when there is one after it."
    writers.next_segment()
    writers.put(writers.producer(), topic, ('last', b'%d' % writers.now))


def plain(writers: Writers, round: int):
    topic, producer = 'plain', writers.producer()
    if round == 1:
        writers.put(producer, topic, ('a', b'first'), ('b', b'first'), ('a', b'second'), ('gone', b'1'))
        writers.put(producer, topic, ('c', b'twice, in one batch'), ('gone', None), ('c', b'twice, in one batch'))
        writers.next_segment()
        writers.put(producer, topic, ('b', b'second', ('h', b'1'), ('h', None), ('empty', b'')))
        writers.put(producer, topic, ('a', b'third'), ('d', b''), ('e', b'5'), ('', b'an empty key'))
        writers.next_segment()
        writers.put(producer, topic, ('b', None), ('f', b'6'), ('d', b'fourth'))
    else:
        writers.next_segment()
        writers.put(producer, topic, ('e', None), ('a', b'fourth'))
    later(writers, topic)


def codecs(writers: Writers, round: int):
    "Each codec's batches: one that loses some records, one that loses none, one that loses all."
    topic, producers = 'codecs', [writers.producer(**{'compression.codec': codec}) for codec in CODECS]
    for number, producer in enumerate(producers):
        key = CODECS[number]
        if round == 1:
            writers.put(producer, topic, (key, b'first ' * 20), ('kept ' + key, b'kept ' * 20), ('gone', b'here ' * 20))
            writers.put(producer, topic, ('alone ' + key, b'alone ' * 20, ('h', b'header ' * 20)))
        writers.put(producer, topic, ('all ' * 20, b'nothing stays' * 9), ('gone', None))
    writers.next_segment()
    for number, producer in enumerate(producers): writers.put(producer, topic, (CODECS[number], b'%d ' % number * 50))
    writers.put(producers[0], topic, ('all ' * 20, b'later'))
    later(writers, topic)


def transactions(writers: Writers, round: int):
    topic = 'transactions'
    one = writers.producer(**{'transactional.id': f'one-{round}'})
    two = writers.producer(**{'transactional.id': f'two-{round}'})
    for producer in one, two: producer.init_transactions(30)
    def put(producer, *records):
        producer.begin_transaction()
        writers.put(producer, topic, *records)
    put(one, ('a', b'committed'), ('b', b'committed')), one.commit_transaction(30)
    put(two, ('a', b'called off'), ('c', b'called off')), two.abort_transaction(30)
    put(one, ('gone', None)), put(two, ('d', b'between the two'))
    writers.put(one, topic, ('b', b'called off'))
    writers.next_segment()
    one.abort_transaction(30), two.commit_transaction(30)
    put(one, ('a', b'again'), ('b', b'again'))
    writers.next_segment()
    writers.put(one, topic, ('e', b'a transaction in two segments')), one.commit_transaction(30)
    later(writers, topic)


def idempotent(writers: Writers, round: int):
    topic = 'idempotent'
    first, second = (writers.producer(**{'enable.idempotence': True}) for _ in range(2))
    writers.put(first, topic, ('a', b'1'), ('b', b'1'))
    writers.put(first, topic, ('a', b'2'), ('b', b'2'))
    writers.next_segment()
    writers.put(second, topic, ('a', b'3'))
    writers.put(second, topic, ('b', b'3'), ('c', b'3'), ('gone', None))
    later(writers, topic)


def ongoing(writers: Writers, round: int):
    "A transaction that is never decided: the cleaner doesn't go beyond the segment in which it begins."
    topic, plain = 'ongoing', writers.producer()
    if round == 1:
        for value in b'1', b'2', b'3':
            writers.put(plain, topic, ('a', value), ('b', value))
            writers.next_segment()
        writers.open = writers.producer(**{'transactional.id': 'never'})
        writers.open.init_transactions(30)
        writers.open.begin_transaction()
        writers.put(plain, topic, ('a', b'4'))
        writers.put(writers.open, topic, ('b', b'undecided'))
    writers.next_segment()
    writers.put(plain, topic, ('a', b'5'), ('b', b'5'))
    later(writers, topic)


def append_time(writers: Writers, round: int):
    topic, producer = 'append.time', writers.producer(**{'compression.codec': 'gzip' if round == 1 else 'none'})
    for value in b'1', b'2', b'3':
        writers.put(producer, topic, ('a', value), ('b', value), ('gone', None), (value, b'one of a kind'))
        time.sleep(.6)
    writers.put(producer, topic, ('last', b''))


def null_keys(writers: Writers, round: int):
    if round > 1: return later(writers, 'null.keys')
    topic, producer = 'null.keys', writers.producer()
    writers.put(producer, topic, (None, b'no key'), ('a', b'1'), (None, b'no key'))
    writers.put(producer, topic, (None, b'alone'))
    writers.next_segment()
    writers.put(producer, topic, (None, None), ('a', b'2'))
    later(writers, topic)


WRITERS = plain, codecs, transactions, idempotent, ongoing, append_time, null_keys


def started(directory: Path, cleaning: bool) -> real_kafka.RealKafka:
    "On the same directory: with a cleaner that finds everything worth its time, or without one."
    return real_kafka.RealKafka(directory, {
        'log.cleaner.enable': str(cleaning).lower(), 'log.cleaner.backoff.ms': 100,
        'log.cleaner.min.cleanable.ratio': 0.0,
        'log.segment.delete.delay.ms': 0, 'log.initial.task.delay.ms': 0, 'transaction.state.log.num.partitions': 1,
        'log.cleaner.dedupe.buffer.size': 2 << 20})


def create(port: int):
    admin = AdminClient({'bootstrap.servers': f'127.0.0.1:{port}'})
    topics = [NewTopic(name, 1, 1, config={key: str(value) for key, value in {**SETTINGS, **more}.items()})
              for name, more in TOPICS.items()]
    for done in admin.create_topics(topics).values(): done.result(30)
    time.sleep(1)


def compact(port: int, topic: str):
    admin = AdminClient({'bootstrap.servers': f'127.0.0.1:{port}'})
    change = ConfigEntry('cleanup.policy', 'compact', incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    for done in admin.incremental_alter_configs([asked]).values(): done.result(30)
    time.sleep(1)


def checkpoint(logs: Path) -> dict[str, int]:
    path = logs/'cleaner-offset-checkpoint'
    rows = [line.rsplit(' ', 2) for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return {topic: int(offset) for topic, _, offset in rows if topic in TOPICS}


def wait_until_cleaned(logs: Path, before: dict):
    "Every log has been cleaned; nothing changes any more."
    deadline, seen, since = time.monotonic() + 60, None, 0.
    while time.monotonic() < deadline:
        found = checkpoint(logs)
        if found != seen: seen, since = found, time.monotonic()
        dirty = {topic for topic in TOPICS if topic != 'ongoing' and found.get(topic, 0) <= before.get(topic, 0)}
        if not dirty and time.monotonic() > since + 3: return
        time.sleep(.1)
    raise TimeoutError(f'not cleaned: {sorted(dirty)}')


def copy(logs: Path, to: Path, state: str):
    for topic in TOPICS:
        left_out = shutil.ignore_patterns('partition.metadata')
        shutil.copytree(logs/f'{topic}-0', to/topic/state/f'{topic}-0', ignore=left_out)


def rounds(to: Path, directory: Path):
    now = int(time.time() * 1000)     # and then faster than the broker's clock, whose markers would begin a segment
    for number in 1, 2:
        kafka = started(directory, cleaning=False)
        with kafka:
            if number == 1: create(kafka.port)
            writers = Writers(kafka.port, now)
            for write in WRITERS: write(writers, number)
            if number == 1: compact(kafka.port, 'null.keys')
            now = writers.now
        copy(kafka.log_dir, to, f'before-{number}')
        before = checkpoint(kafka.log_dir)
        with started(directory, cleaning=True) as cleaning: wait_until_cleaned(cleaning.log_dir, before)
        copy(kafka.log_dir, to, f'after-{number}')
        shutil.copy(kafka.log_dir/'cleaner-offset-checkpoint', to/f'cleaner-offset-checkpoint-{number}')
        time.sleep(RETENTION / 1000)


def list_copy(kafka: Oracle, log: Path, **more) -> dict:
    "What Kafka finds in a log; the log stays as it is."
    with tempfile.TemporaryDirectory() as scratch:
        copied = shutil.copytree(log, Path(scratch)/log.name)
        return kafka.list(copied, SETTINGS_FILE[log.name[:-2]], now=int(time.time() * 1000), **more)


def in_json(content) -> str: return json.dumps(content, separators=(',', ':')) + '\n'


def listings(to: Path, kafka: Oracle):
    "What Kafka finds in each log, as JSON beside it."
    for log in sorted(to.glob('*/*-?/*-0')): log.parent.with_suffix('.json').write_text(in_json(list_copy(kafka, log)))


def times(to: Path) -> dict:
    "When each log was cleaned: its new delete horizons say so; for others, about then."
    found = {}
    for after in sorted(to.glob('*/after-?.json')):
        round = after.stem[-1]
        horizons = {}
        for state in 'before', 'after':
            told = json.loads(after.with_name(f'{state}-{round}.json').read_text())
            horizons[state] = {b['delete_horizon'] for segment in told['segments'] for b in segment['batches']}
        about = int((to/f'cleaner-offset-checkpoint-{round}').stat().st_mtime * 1000)
        new = {horizon - RETENTION for horizon in horizons['after'] - horizons['before']} or {about}
        found.setdefault(after.parent.name, {})[round], = new
    return found


def small_table(to: Path, kafka: Oracle, now: int):
    "The same log with a table for three keys: so many passes, and after each, what there was."
    topic = 'plain'
    with tempfile.TemporaryDirectory() as scratch:
        log, passes, settings = Path(scratch)/f'{topic}-0', [], SETTINGS_FILE[topic]
        shutil.copytree(to/topic/'before-1'/log.name, log)
        done = {'end': 0, 'first_uncleanable': 1}
        while done['end'] < done['first_uncleanable']:
            done, = kafka.clean(log, settings, now, first_dirty=done['end'], memory=96)['passes']
            passes.append({'pass': done, 'segments': list_copy(kafka, log)['segments']})
    (to/'small-table.json').write_text(in_json({'topic': topic, 'now': now, 'memory': 96, 'passes': passes}))


def interrupted(to: Path, kafka: Oracle, now: int):
    """Killed before each file that is renamed. Each time that the cleaner has written new files, they are kept in a
    directory; the states after that differ in their names only. What Kafka finds in them is one of a few logs."""
    topic, states, listings, made = 'transactions', [], [], 0
    recovery_point = json.loads((to/topic/'before-2.json').read_text())['segments'][-1]['base_offset']
    settings = {**SETTINGS_FILE[topic], 'internal.segment.bytes': 1000, 'segment.index.bytes': 600}
    with tempfile.TemporaryDirectory() as scratch:
        def killed(after: int) -> tuple[list, Path]:
            log = Path(scratch)/str(after)/f'{topic}-0'
            shutil.copytree(to/topic/'before-2'/log.name, log)
            return kafka.clean(log, settings, now, first_dirty=0, stop_after=after)['renamed'], log
        renamed = killed(1000)[0]
        for after in range(len(renamed) + 1):
            log = killed(after)[1]
            new = any(path.suffix == '.cleaned' for path in log.iterdir())
            if not after or new and not renamed[after - 1][0].endswith('.cleaned'):
                made = after
                shutil.copytree(log, to/'interrupted'/str(made)/log.name)
            found = list_copy(kafka, log, clean=False, recovery_point=recovery_point)['segments']
            if found not in listings: listings.append(found)
            states.append({'files': str(made), 'renamed': renamed[made:after], 'opens_as': listings.index(found)})
    content = {'topic': topic, 'now': now, 'recovery_point': recovery_point, 'listings': listings, 'states': states}
    (to/'interrupted.json').write_text(in_json(content))


def record(to: Path):
    with tempfile.TemporaryDirectory() as scratch, Oracle() as kafka:
        made = Path(scratch)/'fixtures'
        rounds(made, Path(scratch)/'kafka')
        listings(made, kafka)
        cleaned_at = times(made)
        small_table(made, kafka, cleaned_at['plain']['1'])
        interrupted(made, kafka, cleaned_at['transactions']['2'])
        given = {'settings': SETTINGS_FILE, 'cleaned_at': cleaned_at}
        (made/'settings.json').write_text(json.dumps(given, indent=1) + '\n')
        readme = (to/'README.md').read_bytes() if (to/'README.md').exists() else None
        shutil.rmtree(to)
        shutil.copytree(made, to)
        if readme: (to/'README.md').write_bytes(readme)


if __name__ == '__main__': record(command_line(__doc__, to=CLEANER).to)
