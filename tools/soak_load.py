"""What writes to the broker while the soak test runs, and what is read back: records, transactions, files, schemas.

Each writer is a thread that knows exactly what was acknowledged. `Run` is what they share.
"""
import collections
import json
import random
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

KEYS, SCHEMAS = 5000, 1000            # how many keys there are in `events`, and in `_schemas`
EVENTS, IN_TRANSACTION = 400, 100     # records a second; records of a transaction
ITEMS, LINES, VERSIONS = 200, 200, 300     # records, lines and schemas a second
CHECK_EVERY = 20                      # seconds between two readings of `_schemas`
TOMBSTONES_STAY = 10                  # seconds: delete.retention.ms
PATIENCE = 180                        # seconds that an answer may take, a restart of the broker included

TOPICS = {'events': (4, {}), 'totals': (4, {'cleanup.policy': 'compact'}), 'lines': (1, {}), 'items': (2, {}),
          '_schemas': (1, {'cleanup.policy': 'compact'})}


@dataclass
class Run:
    "What is shared: the broker's address, when to stop, what was acknowledged, what went wrong."
    bootstrap: str
    directory: Path
    ending: threading.Event = field(default_factory=threading.Event)
    complaints: list[str] = field(default_factory=list)
    tally: collections.Counter = field(default_factory=collections.Counter)   # what the progress and the report say
    counts: collections.Counter = field(default_factory=collections.Counter)  # records of each key, acknowledged
    passes: collections.Counter = field(default_factory=collections.Counter)  # of the cleaner, for each topic
    lock: threading.Lock = field(default_factory=threading.Lock)

    def complain(self, text: str):
        with self.lock: self.complaints.append(text)


def begin(run: Run, *jobs) -> list[threading.Thread]:
    "A thread for each of them. One that fails is a complaint."
    def attempt(job):
        try: job(run)
        except Exception: run.complain(f'{job.__name__} failed:\n{traceback.format_exc()}')
    threads = [threading.Thread(target=attempt, args=(job,), daemon=True, name=job.__name__) for job in jobs]
    for thread in threads: thread.start()
    return threads


def turns(run: Run, each: float = 0.1):
    "Ten times a second, until the end. Turns that were missed are not made up for."
    while not run.ending.wait(each): yield


# --- writers ----------------------------------------------------------------------------------------------------------

def producer(run: Run, **settings) -> Producer:
    "One that tries again for as long as it takes, without doubling anything."
    return Producer({'bootstrap.servers': run.bootstrap, 'enable.idempotence': True, 'linger.ms': 20,
                     'message.timeout.ms': 0, 'reconnect.backoff.max.ms': 1000,
                     'log_level': 0, **settings})


def flush(run: Run, writer: Producer, what: str):
    if left := writer.flush(PATIENCE): run.complain(f'{left} records of {what} without an answer for {PATIENCE} s')


def send(writer: Producer, *record, **more):
    while True:
        try: return writer.produce(*record, **more)
        except BufferError: writer.poll(0.5)


def write_events(run: Run):
    "Records of random keys, by an idempotent producer."
    writer, chance = producer(run), random.Random(1)
    def acknowledged(error, message):
        if error: return run.complain(f'an event was not written: {error}')
        run.counts[message.key().decode()] += 1
        run.tally['events'] += 1
    for _ in turns(run):
        for _ in range(EVENTS // 10): send(writer, 'events', event(chance), new_key(chance), on_delivery=acknowledged)
        writer.poll(0)
    flush(run, writer, 'events')


def event(chance: random.Random) -> bytes: return chance.randbytes(100)
def new_key(chance: random.Random) -> str: return f'key-{chance.randrange(KEYS):05}'


def write_transactions(run: Run):
    "Records of random keys in transactions; each tenth is aborted, and what had to be aborted does not count either."
    writer, chance = producer(run, **{'transactional.id': 'soak', 'message.timeout.ms': 60_000}), random.Random(2)
    until_done(writer.init_transactions)
    for number, _ in enumerate(turns(run, 0.3)):
        writer.begin_transaction()
        keys = [new_key(chance) for _ in range(IN_TRANSACTION)]
        try:
            for key in keys: send(writer, 'events', event(chance), key)
            if number % 10 == 9: abort(run, writer)
            else:
                until_done(writer.commit_transaction)
                run.counts.update(keys)
                run.tally['transactions'] += 1
                run.tally['events'] += len(keys)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort(): raise
            run.tally['transactions that had to be aborted'] += 1
            abort(run, writer)


def abort(run: Run, writer: Producer):
    until_done(writer.abort_transaction)
    run.tally['aborted'] += 1


def until_done(step):
    "Calls it again while the answer is that it may be."
    deadline = time.monotonic() + PATIENCE
    while True:
        try: return step(10)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline: raise


def write_items(run: Run):
    "Numbered records for the sink connector."
    writer = producer(run)
    def acknowledged(error, message):
        if error: run.complain(f'an item was not written: {error}')
        else: run.tally['items'] += 1
    number = 0
    for _ in turns(run):
        for _ in range(ITEMS // 10):
            send(writer, 'items', item(number), on_delivery=acknowledged)
            number += 1
        writer.poll(0)
    flush(run, writer, 'items')


def item(number: int) -> str: return f'item-{number:08};'
def line(number: int) -> str: return f'line-{number:08}'


def write_lines(run: Run):
    "Numbered lines in the file that the source connector reads."
    with open(run.directory/'source.txt', 'a') as file:
        for _ in turns(run):
            for _ in range(LINES // 10):
                file.write(line(run.tally['lines']) + '\n')
                run.tally['lines'] += 1
            file.flush()


# --- `_schemas` -------------------------------------------------------------------------------------------------------

def write_schemas(run: Run):
    "Few keys, written again and again, some deleted; now and then all of it is read by somebody new."
    writer, chance, last, version = producer(run), random.Random(3), {}, 0
    def acknowledged(error, message):
        if error: return run.complain(f'a schema was not written: {error}')
        last[message.key()] = message.value()
        run.tally['schemas'] += 1
        if message.value() is None: run.tally['tombstones'] += 1
    next_check = time.monotonic() + CHECK_EVERY
    for _ in turns(run):
        for _ in range(VERSIONS // 10):
            version += 1
            send(writer, '_schemas', schema(version, chance), schema_key(chance.randrange(SCHEMAS)),
                 on_delivery=acknowledged)
        writer.poll(0)
        if time.monotonic() > next_check:
            flush(run, writer, '_schemas')
            check_schemas(run, last)
            next_check = time.monotonic() + CHECK_EVERY
    flush(run, writer, '_schemas')
    check_schemas(run, last)


def schema_key(number: int) -> str:
    return json.dumps({'keytype': 'SCHEMA', 'subject': f'orders-{number // 10}', 'version': number % 10, 'magic': 1})

def schema(version: int, chance: random.Random) -> str | None:
    if chance.random() < 0.1: return None
    fields = [{'name': f'field{number}', 'type': 'string'} for number in range(chance.randrange(3, 8))]
    return json.dumps({'id': version, 'deleted': False, 'schema': json.dumps({'type': 'record', 'fields': fields})})


def check_schemas(run: Run, last: dict):
    "What somebody new reads is what was acknowledged last. Who reads for longer than tombstones stay reads again."
    for _ in range(20):
        began, found = time.monotonic(), {}
        for message in read_all(run, '_schemas'): found[message.key()] = message.value()
        if time.monotonic() - began < TOMBSTONES_STAY: break
        run.tally['readings of _schemas that took too long'] += 1
    else: return run.complain('_schemas: every reading took too long')
    living, expected = ({key: value for key, value in each.items() if value is not None} for each in (found, last))
    run.tally['readings of _schemas'] += 1
    if living != expected:
        wrong = [key for key in living.keys() | expected.keys() if living.get(key) != expected.get(key)]
        run.complain(f'_schemas: {len(wrong)} of {len(expected)} keys are wrong, as {wrong[0]}: '
                     f'{living.get(wrong[0])} instead of {expected.get(wrong[0])}')


# --- reading ----------------------------------------------------------------------------------------------------------

def new_consumer(run: Run) -> Consumer:
    return Consumer({'bootstrap.servers': run.bootstrap, 'group.id': f'reader-{time.time_ns()}', 'log_level': 0,
                     'isolation.level': 'read_committed', 'enable.auto.commit': False, 'enable.partition.eof': True,
                     'reconnect.backoff.max.ms': 1000})


def read_all(run: Run, topic: str):
    "Every committed record of a topic, from the beginning to the end, by a consumer of its own."
    consumer, deadline = new_consumer(run), time.monotonic() + PATIENCE
    try:
        partitions = None
        while not partitions:
            partitions = ask(lambda: consumer.list_topics(topic, 10).topics[topic].partitions, deadline)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        left = set(partitions)
        while left:
            if time.monotonic() > deadline: raise TimeoutError(f'{topic} could not be read in {PATIENCE} s')
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if not error: yield message
                elif error.code() == KafkaError._PARTITION_EOF: left.discard(message.partition())
                elif error.fatal(): raise KafkaException(error)
    finally: consumer.close()


def ask(question, deadline: float):
    "The answer, also if the broker isn't there at first."
    while True:
        try: return question()
        except KafkaException:
            if time.monotonic() > deadline: raise
            time.sleep(0.2)


def end_offsets(run: Run) -> dict[str, int]:
    "How many offsets each topic has given out, all its partitions together."
    consumer, found = new_consumer(run), {}
    try:
        for name, topic in consumer.list_topics(timeout=30).topics.items():
            watermarks = (consumer.get_watermark_offsets(TopicPartition(name, number), 30)
                          for number in topic.partitions)
            found[name] = sum(end for _, end in watermarks)
        return found
    finally: consumer.close()


def create_topics(run: Run):
    admin = AdminClient({'bootstrap.servers': run.bootstrap})
    topics = [NewTopic(name, partitions, 1, config=config) for name, (partitions, config) in TOPICS.items()]
    for done in admin.create_topics(topics).values(): done.result(30)
