"""Producers that are made to be killed: `python transaction_workers.py KIND PORT JOURNAL SEED NAME`.

Each writes down, line by line and before anything else happens, what it is about to do and what it was told. A worker
that can't go on ends;
whoever has started it starts it again. What is true in the end is for the test to find out.
"""
import faulthandler
import os
import random
import sys
import time

FAST = {'reconnect.backoff.ms': 20, 'reconnect.backoff.max.ms': 150, 'retry.backoff.ms': 20,
        'socket.connection.setup.timeout.ms': 3000,
        'topic.metadata.refresh.interval.ms': 2000, 'log_level': 0}
TIMEOUT_MS = 12_000   # of a transaction


class Journal:
    "Lines that outlive their writer."
    def __init__(self, path: str):
        self.lines = open(path).read().split('\n')[:-1] if os.path.exists(path) else []
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    def note(self, *words): os.write(self.fd, (' '.join(map(str, words)) + '\n').encode())
    def last(self) -> int:
        "The highest number that was begun."
        return max((int(line.split()[1]) for line in self.lines), default=-1)


def idempotent(port: int, journal: Journal, chance: random.Random, name: str):
    "Single records, as fast as they are acknowledged; at most a hundred at a time are on their way."
    from confluent_kafka import Producer
    producer = Producer({**FAST, 'bootstrap.servers': f'127.0.0.1:{port}', 'enable.idempotence': True, 'linger.ms': 2,
                         'message.timeout.ms': 30_000})
    number, waiting = journal.last() + 1, set()
    def delivered(error, message):
        waiting.discard(int(message.key()))
        if error is None: journal.note('stored', message.key().decode())
    while True:
        journal.note('begin', number)
        waiting.add(number)
        producer.produce('single', key=str(number), value=f'{name}/{number}', on_delivery=delivered,
                         partition=number % 2)
        number += 1
        while producer.poll(0.001) or len(waiting) > 100: pass
        time.sleep(0.002)


def transactional(port: int, journal: Journal, chance: random.Random, name: str):
    "Transactions over two topics, some of which are aborted, with librdkafka."
    from confluent_kafka import KafkaException, Producer
    producer = Producer({**FAST, 'bootstrap.servers': f'127.0.0.1:{port}', 'transactional.id': name,
                         'transaction.timeout.ms': TIMEOUT_MS, 'linger.ms': 1})
    insist(lambda: producer.init_transactions(5))
    number = journal.last() + 1
    while True:
        size, commit = chance.randint(1, 5), chance.random() < 0.7
        journal.note('begin', number, size)
        try:
            producer.begin_transaction()
            for part in range(size):
                for topic in ('left', 'right'):
                    producer.produce(topic, f'{name}/{number}/{part}/{size}', partition=chance.randrange(2))
            if chance.random() < 0.3: producer.flush(5)
            if commit: insist(lambda: producer.commit_transaction(5))
            else: insist(lambda: producer.abort_transaction(5))
            journal.note('committed' if commit else 'aborted', number)
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort(): raise
            insist(lambda: producer.abort_transaction(5))
            journal.note('aborted', number)
        number += 1


def transactional_python(port: int, journal: Journal, chance: random.Random, name: str):
    "The same with kafka-python."
    from kafka import KafkaProducer
    producer = KafkaProducer(bootstrap_servers=f'127.0.0.1:{port}', transactional_id=name,
                             transaction_timeout_ms=TIMEOUT_MS, retry_backoff_ms=20,
                             reconnect_backoff_ms=20, reconnect_backoff_max_ms=150, request_timeout_ms=5000,
                             max_block_ms=8000, delivery_timeout_ms=10_000)
    producer.init_transactions()
    number = journal.last() + 1
    while True:
        size, commit = chance.randint(1, 4), chance.random() < 0.7
        journal.note('begin', number, size)
        producer.begin_transaction()
        for part in range(size):
            for topic in ('left', 'right'):
                producer.send(topic, f'{name}/{number}/{part}/{size}'.encode(), partition=chance.randrange(2))
        if commit: producer.commit_transaction()
        else: producer.abort_transaction()
        journal.note('committed' if commit else 'aborted', number)
        number += 1


def passing_on(port: int, journal: Journal, chance: random.Random, name: str):
    "Reads `in`, writes `out`, and commits how far it has read in the same transaction."
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    server = {**FAST, 'bootstrap.servers': f'127.0.0.1:{port}'}
    producer = Producer({**server, 'transactional.id': name, 'transaction.timeout.ms': TIMEOUT_MS, 'linger.ms': 1})
    # first: what a predecessor left open is decided before we look how far it came
    insist(lambda: producer.init_transactions(5))
    consumer = Consumer({**server, 'group.id': name, 'isolation.level': 'read_committed',
                         'auto.offset.reset': 'earliest', 'enable.auto.commit': False})
    places = [TopicPartition('in', number) for number in range(2)]
    def start():
        found = insist(lambda: consumer.committed(places, 5))
        consumer.assign([TopicPartition(p.topic, p.partition, p.offset if p.offset >= 0 else 0) for p in found])
    start()
    while True:
        messages = [message for message in consumer.consume(chance.randint(1, 20), 0.2) if not message.error()]
        if not messages: continue
        try:
            producer.begin_transaction()
            for message in messages: producer.produce('out', message.value(), partition=message.partition())
            ends = {message.partition(): message.offset() + 1 for message in messages}
            offsets = [TopicPartition('in', number, offset) for number, offset in ends.items()]
            insist(lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 5))
            if chance.random() < 0.15: raise Whim
            insist(lambda: producer.commit_transaction(5))
            journal.note('committed', messages[-1].offset())
            time.sleep(0.03)
        except (KafkaException, Whim) as problem:
            if isinstance(problem, KafkaException) and not problem.args[0].txn_requires_abort(): raise
            insist(lambda: producer.abort_transaction(5))
            start()   # what was aborted is read again


class Whim(Exception): "Some transactions are aborted for no reason."


def insist(call):
    """Tries again as long as the error says that this may help. A call that doesn't return, though it was given 5 s, is
    the end."""
    from confluent_kafka import KafkaException
    while True:
        # librdkafka's send_offsets_to_transaction may hang when the broker restarts meanwhile
        faulthandler.dump_traceback_later(7, exit=True)
        try: return call()
        except KafkaException as problem:
            print(f'{time.time():.3f}', problem, file=sys.stderr, flush=True)
            error = problem.args[0]
            may_help = error.retriable() or error.name() in ('_TIMED_OUT', '_TRANSPORT', '_ALL_BROKERS_DOWN')
            if error.txn_requires_abort() or error.fatal() or not may_help: raise
            time.sleep(0.02)
        finally: faulthandler.cancel_dump_traceback_later()


KINDS = {kind.__name__: kind for kind in (idempotent, transactional, transactional_python, passing_on)}

if __name__ == '__main__':
    kind, port, path, seed, name = sys.argv[1:]
    try: KINDS[kind](int(port), Journal(path), random.Random(int(seed)), name)
    except BaseException as problem:
        print(f'{time.time():.3f} {type(problem).__name__}: {problem}', file=sys.stderr, flush=True)
        os._exit(1)   # at once: librdkafka can take for ever to say goodbye
