"""Records `log-dirs.jsonl` and `log-dirs-rights.jsonl`: `python tests/record/log_dirs.py`.

A broker with two log directories: odd questions, odd moves, a move that is slowed down so that it can be seen, and one
that ends; then a start without the second directory. And a broker that allows nothing of it.
"""
import shutil
import tempfile
import time
from pathlib import Path

from recording import Recorder, answer_in, command_line, framed

from admin_by_hand import create, topic
from benchmarks import real_kafka
from broker_process import Client
from benchmarks.wire import wait_for
from log_dirs_by_hand import FIRST, PLACE, SECOND, TOPICS, alter, describe, forbidden, odd_moves, odd_questions
from log_ends_by_hand import put
from kafka_scratch.apis.alter_replica_log_dirs import alter_replica_log_dirs
from kafka_scratch.apis.create_topics import create_topics
from kafka_scratch.apis.configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from kafka_scratch.apis.configs import incremental_alter_configs
from kafka_scratch.apis.describe_log_dirs import describe_log_dirs
from kafka_scratch.security.acl_apis import AclCreation, CreateAclsRequest, create_acls
from kafka_scratch.wire.codes import Operation, Resource

RATE = 'replica.alter.log.dirs.io.max.bytes.per.second'


def where(answer) -> dict[str, tuple[str, bool]]:
    "The directory of each partition; whether it is a future one decides, if it has two."
    return {f'{each.name}-{part.partition_index}{"-future" if part.is_future_key else ""}': directory.log_dir
            for directory in answer.results for each in directory.topics for part in each.partitions}


class Book(Recorder):
    "Asks about directories, and for moves."
    def all(self, name): return self.ask(name, describe_log_dirs, 4, describe(None))
    def move(self, name, request, version=2): return self.ask(name, alter_replica_log_dirs, version, request)
    def quietly(self, ask, *arguments):
        "Asks, and keeps nothing of it."
        kept = len(self.cases)
        said = ask('', *arguments)
        del self.cases[kept:]
        return said
    def places(self): return where(self.quietly(self.all))


def rate(book, number):
    "Limits how fast replicas are moved; None takes the limit away."
    config = AlterableConfig(name=RATE, config_operation=1 if number is None else 0,
                             value=None if number is None else str(number))
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(resource_type=4, resource_name='1',
                                                                             configs=[config])])
    book.quietly(book.ask, incremental_alter_configs, 1, request)
    time.sleep(1)


def make(book, name, count=1, note=True):
    book.quietly(book.ask, create_topics, 7, create(topic(name, count)))
    time.sleep(1)
    if note: book.note('made', topic=name, partitions=count)


def record(to: Path):
    shutil.rmtree(PLACE, ignore_errors=True)
    kafka = real_kafka.RealKafka(PLACE, {'log.dirs': f'{FIRST},{SECOND}', 'offsets.topic.num.partitions': 1})
    kafka.log_dir = Path(FIRST)
    try:
        kafka.start()
        book = Book(kafka.port)
        for name, count in TOPICS.items(): make(book, name, count, note=False)
        put(kafka.port, 'moves', 5), put(kafka.port, 'moves', 2, 1), put(kafka.port, 'plain', 3)
        time.sleep(1)
        at = book.places()
        book.note('the broker', place=PLACE, topics=TOPICS, at=at, records={'moves-0': 5, 'moves-1': 2, 'plain-0': 3})
        for name, (version, request) in odd_questions().items(): book.ask(name, describe_log_dirs, version, request)
        for name, (version, request) in odd_moves(at).items(): book.move(name, request, version)
        here, there = at['moves-0'], SECOND if at['moves-0'] == FIRST else FIRST
        book.all('nothing has moved')
        for number in range(3):
            book.move(f'a topic that is to come, {number}', alter((SECOND, (f'later{number}', 0))))
            make(book, f'later{number}')
        book.ask('where it came', describe_log_dirs, 4, describe(*((f'later{number}', 0) for number in range(3))))
        put(kafka.port, 'moves', 5)
        book.note('more', topic='moves', records=5)
        rate(book, 1)
        put(kafka.port, 'moves', 3, size=700_000)
        book.note('much more', topic='moves', batches=3, size=700_000)
        book.move('slowly', alter((there, ('moves', 0))))
        time.sleep(3)
        book.all('under way')
        book.ask('under way, one', describe_log_dirs, 4, describe(('moves', 0)))
        book.move('the same again', alter((there, ('moves', 0))))
        book.move('and nowhere', alter((f'{PLACE}/third', ('moves', 0))))
        book.all('still under way')
        book.move('back', alter((here, ('moves', 0))))
        time.sleep(1)
        book.all('given up')
        rate(book, None)
        book.move('again', alter((there, ('moves', 0))))
        wait_for(lambda: (at := book.places())['moves-0'] == there and 'moves-0-future' not in at, 60, 'the move')
        book.all('moved')
        put(kafka.port, 'moves', 1)
        book.note('more', topic='moves', records=1)
        book.ask('and written to', describe_log_dirs, 4, describe(('moves', 0)))
        gone = book.places()
        kafka.stop()
        shutil.rmtree(SECOND)
        Path(SECOND).write_text('not a directory')
        book.note('the second directory is gone', at=gone)
        kafka.start(wait=False)
        wait_for(lambda: answers(book), 60, 'a start')
        time.sleep(2)
        book.all('without the second')
        book.ask('without the second, version 1', describe_log_dirs, 1, describe(None))
        stays = next(name for name, directory in gone.items() if directory == FIRST and not name.startswith('x'))
        lost = next(name for name, directory in gone.items() if directory == SECOND and not name.startswith('x'))
        def named(name): return name.rpartition('-')[0], int(name.rpartition('-')[2])
        book.move('into the one that is gone', alter((SECOND, named(stays))))
        book.move('out of the one that is gone', alter((FIRST, named(lost))))
        book.move('where it is', alter((FIRST, named(stays))))
        book.move('an unknown topic', alter((FIRST, ('nobody', 0)), (SECOND, ('nobody', 1))))
        book.save('log-dirs.jsonl', to)
    finally:
        kafka.stop()
        shutil.rmtree(PLACE, ignore_errors=True)


def record_rights(to: Path):
    "The same questions, to a broker that was told that nobody may ask them."
    settings = {'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
                'allow.everyone.if.no.acl.found': 'true', 'super.users': 'User:nobody'}
    rules = [AclCreation(resource_type=Resource.CLUSTER, resource_name='kafka-cluster', resource_pattern_type=3,
                         principal='User:*', host='*', operation=operation, permission_type=permission)
             for operation, permission in ((Operation.ALL, 3), (Operation.DESCRIBE, 2), (Operation.ALTER, 2))]
    with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, settings) as kafka:
        request = CreateAclsRequest(creations=rules)
        with Client(kafka.port) as client: said = answer_in(create_acls, 3, client.ask(framed(create_acls, 3, request)))
        assert not any(each.error_code for each in said.results), said
        time.sleep(1)
        book = Recorder(kafka.port)
        for name, (api, version, request) in forbidden().items(): book.ask(name, api, version, request)
        book.save('log-dirs-rights.jsonl', to)


def answers(book):
    try: return book.places()
    except OSError: return False


if __name__ == '__main__':
    to = command_line(__doc__).to
    record_rights(to)
    record(to)
