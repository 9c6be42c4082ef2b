"The driver of kafka-python."
import logging
import warnings
warnings.filterwarnings('ignore', category=DeprecationWarning)   # its own, at import

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition, TopicPartitionReplica
from kafka.admin import ConfigResource
from kafka.errors import KafkaError, NoError
from kafka.structs import OffsetAndMetadata

from contract import PATIENCE, TURNS, key_of, main, numbers, say, say_record, say_turns, value_of, when_stdin_ends


def admin(options): return KafkaAdminClient(bootstrap_servers=options.bootstrap)
def each(options): return [TopicPartition(options.topic, number) for number in range(options.partitions)]


def create(options):
    admin(options).create_topics({options.topic: {'num_partitions': options.partitions, 'replication_factor': 1}})
    say(created=options.topic)


def list_topics(options): say(topics=sorted(admin(options).list_topics()))


def describe(options):
    topic, = admin(options).describe_topics([options.topic])
    for partition in topic['partitions']: say(partition=partition['partition_index'], leader=partition['leader_id'])


def grow(options):
    admin(options).create_partitions({options.topic: options.partitions})
    say(partitions=options.partitions)


def configure(options):
    name, value = options.config.split('=')
    admin(options).alter_configs([ConfigResource('topic', options.topic, {name: value})])
    found = admin(options).describe_configs([ConfigResource('topic', options.topic)])
    say(name=name, value=found['topic'][options.topic][name]['value'])


def delete(options):
    admin(options).delete_topics([options.topic])
    say(deleted=options.topic)


def send(producer, topic: str, wanted):
    "Produces records, and raises if one of them didn't arrive."
    for future in [producer.send(topic, value_of(number), key_of(number)) for number in wanted]: future.get(PATIENCE)


def produce(options):
    codec = None if options.codec == 'none' else options.codec
    producer = KafkaProducer(bootstrap_servers=options.bootstrap, compression_type=codec,
                             enable_idempotence=bool(options.idempotent), linger_ms=20)
    send(producer, options.topic, numbers(options.first, options.count))
    producer.close()
    say(produced=options.count)


def transact(options):
    producer = KafkaProducer(bootstrap_servers=options.bootstrap, transactional_id=options.id)
    producer.init_transactions()
    for end, first in TURNS:
        producer.begin_transaction()
        send(producer, options.topic, numbers(first, 10))
        getattr(producer, f'{end}_transaction')()
    producer.close()
    say_turns()


def consumer(options, **settings):
    return KafkaConsumer(bootstrap_servers=options.bootstrap, group_id=options.group, enable_auto_commit=False,
                         auto_offset_reset='earliest',
                         fetch_max_wait_ms=100, isolation_level=options.isolation, **settings)


def subscribe(consumer, topic: str):
    """With the topic's partitions known before: kafka-python 3.0.12 can get stuck if it hears of them in the middle of
    a rebalance."""
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic])


def polled(consumer) -> list: return [record for records in consumer.poll(100).values() for record in records]


def copy(options):
    reader, records = consumer(options), []
    producer = KafkaProducer(bootstrap_servers=options.bootstrap, transactional_id=options.id)
    producer.init_transactions()
    subscribe(reader, options.topic)
    while len(records) < options.count: records += polled(reader)
    for end in producer.abort_transaction, producer.commit_transaction:
        producer.begin_transaction()
        for future in [producer.send(options.to, record.value, record.key) for record in records]: future.get(PATIENCE)
        positions = {place: OffsetAndMetadata(reader.position(place), '', -1) for place in reader.assignment()}
        producer.send_offsets_to_transaction(positions, reader.group_metadata())
        end()
    producer.close()
    reader.close()
    say(copied=len(records))


def consume(options):
    reader, seen = consumer(options), 0
    reader.assign(each(options))
    reader.seek_to_beginning()
    while seen < options.count:
        for record in polled(reader):
            say_record(record.partition, record.offset, record.key, record.value)
            seen += 1
    reader.close()


def offsets(options):
    client = admin(options)
    earliest, latest = (client.list_partition_offsets(dict.fromkeys(each(options),
                                                                    spec)) for spec in (OffsetSpec.EARLIEST,
                                                                        OffsetSpec.LATEST))
    for place in each(options):
        say(partition=place.partition, earliest=earliest[place].offset, latest=latest[place].offset)


def member(options):
    logging.basicConfig(level=logging.INFO)   # on stderr, for whoever has to find out why
    leave, assigned = when_stdin_ends(), None
    reader = consumer(options, session_timeout_ms=6000, heartbeat_interval_ms=500, reconnect_backoff_max_ms=200)
    subscribe(reader, options.topic)
    while not leave.is_set():
        records = polled(reader)
        now = sorted(place.partition for place in reader.assignment())
        if now != assigned: say(assigned=now)
        assigned = now
        for record in records: say_record(record.partition, record.offset, record.key, record.value)
        if records: reader.commit()
    reader.close()
    say(left=True)


def groups(options):
    client = admin(options)
    if options.group in [group['group_id'] for group in client.list_groups()]:
        group = client.describe_groups([options.group])[options.group]
        say(group=options.group, state=group['group_state'], members=len(group['members']))
    for place, found in client.list_group_offsets({options.group: each(options)})[options.group].items():
        say(partition=place.partition, committed=found.offset)


def forget(options):
    found = admin(options).delete_groups([options.group])
    if found[options.group] != 'OK': raise KafkaError(found)
    say(forgotten=options.group)


def truncate(options):
    for place, answer in admin(options).delete_records(dict.fromkeys(each(options), options.before)).items():
        say(partition=place.partition, earliest=answer['low_watermark'])


def log_dirs(options):
    for broker in admin(options).describe_log_dirs([options.topic]):
        for directory in broker['log_dirs']:
            for partition in [each for topic in directory['topics'] for each in topic['partitions']]:
                say(partition=partition['partition_index'], dir=directory['log_dir'], size=partition['partition_size'])


def move(options):
    client = admin(options)
    wanted = {TopicPartitionReplica(options.topic, place.partition, 1): options.to for place in each(options)}
    for error in client.alter_replica_log_dirs(wanted).values():
        if error is not NoError: raise error()
    say(moved=options.partitions)


def elect(options):
    answer = admin(options).elect_leaders(0, {options.topic: list(range(options.partitions))})
    for partition in answer.replica_election_results[0].partition_result:
        say(partition=partition.partition_id, elected=partition.error_code == 0)


def reassign(options):
    client = admin(options)
    for error in client.alter_partition_reassignments(dict.fromkeys(each(options), [int(options.to)])).values():
        if error: raise error()
    say(moving=[place.partition for place in client.list_partition_reassignments()])


def quorum(options):
    found = admin(options).describe_metadata_quorum()['topics'][0]['partitions'][0]
    say(leader=found['leader_id'], voters=[voter['replica_id'] for voter in found['current_voters']])


def features(options):
    client, (name, level) = admin(options), options.config.split('=')
    answer = client.update_features({name: int(level)})
    if set(answer.values()) - {'OK'}: raise KafkaError(answer)
    say(name=name, level=client.describe_features()[name]['finalized'][1])


def throttle(options):
    producer = KafkaProducer(bootstrap_servers=options.bootstrap, client_id=options.id, linger_ms=20)
    send(producer, options.topic, numbers(0, options.count))
    waits = [group['throttle-time-max'] for group in producer.metrics().values() if 'throttle-time-max' in group]
    say(produced=options.count, throttled=max(waits) > 0)
    producer.close()


if __name__ == '__main__':
    main(create=create, list=list_topics, describe=describe, grow=grow, configure=configure, delete=delete,
         produce=produce, transact=transact, copy=copy,
         consume=consume, offsets=offsets, member=member, groups=groups, forget=forget, truncate=truncate,
         log_dirs=log_dirs, move=move, elect=elect, reassign=reassign, quorum=quorum, features=features,
         throttle=throttle)
