"The driver of confluent-kafka, which is librdkafka."
import functools

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, ElectionType, KafkaError, KafkaException
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from confluent_kafka.admin import OffsetSpec

from contract import PATIENCE, TURNS, key_of, main, numbers, say, say_record, say_turns, value_of, when_stdin_ends

QUICK = {'reconnect.backoff.ms': 20, 'reconnect.backoff.max.ms': 200}


@functools.cache
# kept: it must outlive its futures
def admin_of(bootstrap: str): return AdminClient({'bootstrap.servers': bootstrap, **QUICK})

def admin(options): return admin_of(options.bootstrap)
def each(options): return [TopicPartition(options.topic, number) for number in range(options.partitions)]

def done(futures: dict) -> dict:
    "What was asked for; raises what went wrong."
    return {name: future.result(PATIENCE) for name, future in futures.items()}


def create(options):
    done(admin(options).create_topics([NewTopic(options.topic, options.partitions, 1)]))
    say(created=options.topic)


def list_topics(options): say(topics=sorted(admin(options).list_topics(timeout=PATIENCE).topics))


def describe(options):
    found = admin(options).list_topics(options.topic, timeout=PATIENCE).topics[options.topic]
    if found.error: raise KafkaException(found.error)
    for number, partition in sorted(found.partitions.items()): say(partition=number, leader=partition.leader)


def grow(options):
    done(admin(options).create_partitions([NewPartitions(options.topic, options.partitions)]))
    say(partitions=options.partitions)


def configure(options):
    name, value = options.config.split('=')
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    done(admin(options).incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, options.topic,
                                                                  incremental_configs=[change])]))
    asked = ConfigResource(ConfigResource.Type.TOPIC, options.topic)
    say(name=name, value=done(admin(options).describe_configs([asked]))[asked][name].value)


def delete(options):
    done(admin(options).delete_topics([options.topic]))
    say(deleted=options.topic)


def send(producer, topic: str, wanted):
    "Produces records, and raises if one of them didn't arrive."
    failed = []
    for number in wanted:
        producer.produce(topic, value_of(number), key_of(number), on_delivery=lambda error,
                         _: error and failed.append(error))
    if producer.flush(PATIENCE): raise TimeoutError('not everything was delivered')
    if failed: raise KafkaException(failed[0])


def produce(options):
    producer = Producer({'bootstrap.servers': options.bootstrap, 'compression.type': options.codec,
                         'enable.idempotence': bool(options.idempotent), 'linger.ms': 20})
    send(producer, options.topic, numbers(options.first, options.count))
    say(produced=options.count)


def transact(options):
    producer = Producer({'bootstrap.servers': options.bootstrap, 'transactional.id': options.id})
    producer.init_transactions(PATIENCE)
    for end, first in TURNS:
        producer.begin_transaction()
        send(producer, options.topic, numbers(first, 10))
        (producer.commit_transaction if end == 'commit' else producer.abort_transaction)(PATIENCE)
    say_turns()


def consumer(options, **settings):
    return Consumer({'bootstrap.servers': options.bootstrap, 'group.id': options.group or 'nobody',
                     'enable.auto.commit': False, 'auto.offset.reset': 'earliest',
                     'fetch.wait.max.ms': 100, 'isolation.level': options.isolation, **QUICK, **settings})


def polled(consumer) -> list:
    "What one poll gives; raises what is not just a pause."
    messages = consumer.consume(500, 0.1)
    for message in messages:
        if message.error() and not message.error().retriable() and message.error().code() not in BROKER_AWAY:
            raise KafkaException(message.error())
    return [message for message in messages if not message.error()]

# connections that broke, all of them broke, no answer in time: it tries again by itself
BROKER_AWAY = -195, -187, -185


def copy(options):
    reader = consumer(options, **{'isolation.level': 'read_committed'})
    producer = Producer({'bootstrap.servers': options.bootstrap, 'transactional.id': options.id})
    producer.init_transactions(PATIENCE)
    reader.subscribe([options.topic])
    messages = []
    while len(messages) < options.count: messages += polled(reader)
    for end in producer.abort_transaction, producer.commit_transaction:
        producer.begin_transaction()
        for message in messages: producer.produce(options.to, message.value(), message.key())
        producer.flush(PATIENCE)
        producer.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(),
                                             PATIENCE)
        end(PATIENCE)
    reader.close()
    say(copied=len(messages))


def consume(options):
    reader, seen = consumer(options), 0
    reader.assign([TopicPartition(options.topic, number, OFFSET_BEGINNING) for number in range(options.partitions)])
    while seen < options.count:
        for message in polled(reader):
            say_record(message.partition(), message.offset(), message.key(), message.value())
            seen += 1
    reader.close()


def offsets(options):
    def ask(spec):
        return {place.partition: answer.offset for place,
                answer in done(admin(options).list_offsets({place: spec for place in each(options)})).items()}
    earliest, latest = ask(OffsetSpec.earliest()), ask(OffsetSpec.latest())
    for number in range(options.partitions): say(partition=number, earliest=earliest[number], latest=latest[number])


def member(options):
    leave, assigned = when_stdin_ends(), None
    # otherwise the broker says
    timeouts = {'session.timeout.ms': 6000, 'heartbeat.interval.ms': 500} if options.protocol == 'classic' else {}
    reader = consumer(options, **{'group.protocol': options.protocol}, **timeouts)
    reader.subscribe([options.topic])
    while not leave.is_set():
        messages = polled(reader)
        now = sorted(place.partition for place in reader.assignment())
        if now != assigned: say(assigned=now)
        assigned = now
        for message in messages: say_record(message.partition(), message.offset(), message.key(), message.value())
        if messages:
            reader.commit(offsets=[TopicPartition(options.topic, message.partition(),
                                                  message.offset() + 1) for message in messages], asynchronous=False)
    reader.close()
    say(left=True)


def groups(options):
    client = admin(options)
    if options.group in [group.group_id for group in client.list_consumer_groups().result(PATIENCE).valid]:
        group = done(client.describe_consumer_groups([options.group]))[options.group]
        say(group=group.group_id, state=group.state.name.title().replace('_', ''), members=len(group.members))
    found = done(client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(options.group,
        each(options))]))[options.group]
    for place in found.topic_partitions: say(partition=place.partition, committed=place.offset)


def forget(options):
    done(admin(options).delete_consumer_groups([options.group]))
    say(forgotten=options.group)


def truncate(options):
    wanted = [TopicPartition(options.topic, number, options.before) for number in range(options.partitions)]
    for place, answer in done(admin(options).delete_records(wanted)).items():
        say(partition=place.partition, earliest=answer.low_watermark)


def elect(options):
    answers = admin(options).elect_leaders(ElectionType.PREFERRED, each(options)).result(PATIENCE)
    for place, error in answers.items():
        if error and error.code() != KafkaError.ELECTION_NOT_NEEDED: raise KafkaException(error)
        say(partition=place.partition, elected=not error)


def throttle(options):
    waits = []
    producer = Producer({'bootstrap.servers': options.bootstrap, 'client.id': options.id, 'linger.ms': 20,
                         'throttle_cb': waits.append})
    send(producer, options.topic, numbers(0, options.count))
    producer.poll(0)
    say(produced=options.count, throttled=any(event.throttle_time > 0 for event in waits))


if __name__ == '__main__':
    main(create=create, list=list_topics, describe=describe, grow=grow, configure=configure, delete=delete,
         produce=produce, transact=transact, copy=copy,
         consume=consume, offsets=offsets, member=member, groups=groups, forget=forget, truncate=truncate,
         elect=elect, throttle=throttle)
