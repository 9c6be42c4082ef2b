"The driver of aiokafka."
import asyncio
import contextlib

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from contract import TURNS, key_of, main, numbers, say, say_record, say_turns, value_of, when_stdin_ends


@contextlib.asynccontextmanager
async def running(client):
    await client.start()
    try: yield client
    finally: await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


def admin(options): return running(AIOKafkaAdminClient(bootstrap_servers=options.bootstrap))
def each(options): return [TopicPartition(options.topic, number) for number in range(options.partitions)]

def check(error_code: int):
    if error_code: raise for_code(error_code)


async def create(options):
    async with admin(options) as client:
        answer = await client.create_topics([NewTopic(options.topic, options.partitions, 1)])
    for _, error, *_ in answer.topic_errors: check(error)
    say(created=options.topic)


async def list_topics(options):
    async with admin(options) as client: say(topics=sorted(await client.list_topics()))


async def describe(options):
    async with admin(options) as client: topic, = await client.describe_topics([options.topic])
    check(topic['error_code'])
    for partition in topic['partitions']: say(partition=partition['partition'], leader=partition['leader'])


async def grow(options):
    async with admin(options) as client:
        answer = await client.create_partitions({options.topic: NewPartitions(options.partitions)})
    for _, error, *_ in answer.topic_errors: check(error)
    say(partitions=options.partitions)


async def configure(options):
    "It knows only the old request, which sets everything that it doesn't name back to the default."
    name, value = options.config.split('=')
    async with admin(options) as client:
        for answer in await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, options.topic,
                                                                 {name: value})]):
            for error, *_ in answer.resources: check(error)
        answer, = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, options.topic)])
    for error, _, _, _, entries in answer.resources:
        check(error)
        for entry in entries:
            if entry[0] == name: say(name=name, value=entry[1])


async def delete(options):
    async with admin(options) as client: answer = await client.delete_topics([options.topic])
    for _, error in answer.topic_error_codes: check(error)
    say(deleted=options.topic)


async def send(producer, topic: str, wanted):
    "Produces records, and raises if one of them didn't arrive."
    await asyncio.gather(*[await producer.send(topic, value_of(number), key_of(number)) for number in wanted])


async def produce(options):
    codec = None if options.codec == 'none' else options.codec
    settings = dict(compression_type=codec, enable_idempotence=bool(options.idempotent), linger_ms=20)
    async with running(AIOKafkaProducer(bootstrap_servers=options.bootstrap, **settings)) as producer:
        await send(producer, options.topic, numbers(options.first, options.count))
    say(produced=options.count)


async def transact(options):
    async with running(AIOKafkaProducer(bootstrap_servers=options.bootstrap, transactional_id=options.id)) as producer:
        for end, first in TURNS:
            await producer.begin_transaction()
            await send(producer, options.topic, numbers(first, 10))
            await getattr(producer, f'{end}_transaction')()
    say_turns()


def consumer(options, **settings):
    return AIOKafkaConsumer(bootstrap_servers=options.bootstrap, group_id=options.group, enable_auto_commit=False,
                            auto_offset_reset='earliest',
                            fetch_max_wait_ms=100, isolation_level=options.isolation, **settings)


async def polled(consumer) -> list:
    return [record for records in (await consumer.getmany(timeout_ms=100)).values() for record in records]


async def copy(options):
    reader, records = consumer(options), []
    reader.subscribe([options.topic])
    async with running(reader), running(AIOKafkaProducer(bootstrap_servers=options.bootstrap,
                                                         transactional_id=options.id)) as producer:
        while len(records) < options.count: records += await polled(reader)
        for end in producer.abort_transaction, producer.commit_transaction:
            await producer.begin_transaction()
            await asyncio.gather(*[await producer.send(options.to, record.value, record.key) for record in records])
            await producer.send_offsets_to_transaction({place: await reader.position(place) for place
                                                        in reader.assignment()}, options.group)
            await end()
    say(copied=len(records))


async def consume(options):
    seen = 0
    async with running(consumer(options)) as reader:
        reader.assign(each(options))
        await reader.seek_to_beginning()
        while seen < options.count:
            for record in await polled(reader):
                say_record(record.partition, record.offset, record.key, record.value)
                seen += 1


async def offsets(options):
    async with running(consumer(options)) as reader:
        earliest, latest = await reader.beginning_offsets(each(options)), await reader.end_offsets(each(options))
    for place in each(options): say(partition=place.partition, earliest=earliest[place], latest=latest[place])


class Told(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked): pass
    # all of them, every time
    async def on_partitions_assigned(self, assigned): say(assigned=sorted(place.partition for place in assigned))


async def member(options):
    leave = when_stdin_ends()
    reader = consumer(options, session_timeout_ms=6000, heartbeat_interval_ms=500)
    reader.subscribe([options.topic], listener=Told())
    async with running(reader):
        while not leave.is_set():
            records = await polled(reader)
            for record in records: say_record(record.partition, record.offset, record.key, record.value)
            if records: await reader.commit()
    say(left=True)


async def groups(options):
    async with admin(options) as client:
        if options.group in [name for name, _ in await client.list_consumer_groups()]:
            answer, = await client.describe_consumer_groups([options.group])
            for error, name, state, _, _, members, *_ in answer.groups:
                check(error)
                say(group=name, state=state, members=len(members))
        found = await client.list_consumer_group_offsets(options.group, partitions=each(options))
    for place, committed in found.items(): say(partition=place.partition, committed=committed.offset)


async def truncate(options):
    async with admin(options) as client:
        for place, earliest in (await client.delete_records({place: RecordsToDelete(options.before) for place
                                                             in each(options)})).items():
            say(partition=place.partition, earliest=earliest)


def run(job): return lambda options: asyncio.run(job(options))

if __name__ == '__main__':
    jobs = dict(create=create, list=list_topics, describe=describe, grow=grow, configure=configure, delete=delete,
                produce=produce, transact=transact, copy=copy,
                consume=consume, offsets=offsets, member=member, groups=groups, truncate=truncate)
    main(**{name: run(job) for name, job in jobs.items()})
