"The driver of Spark's own Kafka connector: the batch source, the sink, and structured streaming."
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks import spark_connector
from contract import main, say, say_record, when_stdin_ends


def session():
    "Spark with the connector; started by the first job, and kept."
    from kafka_scratch.spark.session import get_session
    # it doesn't live long enough to profit from more
    quick = {'spark.ui.enabled': 'false', 'spark.driver.extraJavaOptions': '-XX:TieredStopAtLevel=1'}
    return get_session('local[2]', **{'spark.jars': ','.join(map(str, spark_connector.jars())), **quick})


def produce(options):
    rows = session().range(options.first, options.first + options.count, numPartitions=1)
    rows = rows.selectExpr("concat('key-', id) as key", "concat('value-', id, ' ', repeat('abcdefghij', 20)) as value")
    settings = {'kafka.compression.type': options.codec,
                'kafka.enable.idempotence': 'true' if options.idempotent else 'false', 'kafka.linger.ms': '20'}
    rows.write.format('kafka').option('kafka.bootstrap.servers', options.bootstrap).option('topic',
        options.topic).options(**settings).save()
    say(produced=options.count)


def source(reader, options):
    reader = reader.format('kafka').option('kafka.bootstrap.servers', options.bootstrap).option('subscribe',
        options.topic).option('startingOffsets', 'earliest')
    return reader.option('kafka.isolation.level', options.isolation).option('kafka.reconnect.backoff.max.ms',
        '200').load()


def say_rows(rows):
    for partition, offset, key, value in sorted(rows.select('partition', 'offset', 'key', 'value').collect()):
        say_record(partition, offset, bytes(key), bytes(value))


def consume(options): say_rows(source(session().read, options))


def member(options):
    "A stream. What it has seen is in its checkpoint, below `--state`."
    leave = when_stdin_ends()
    stream = source(session().readStream, options).writeStream.foreachBatch(lambda rows, _: say_rows(rows))
    query = stream.option('checkpointLocation', options.state).trigger(processingTime='100 milliseconds').start()
    while query.isActive and not leave.wait(0.05): pass
    if error := query.exception(): raise error
    query.processAllAvailable()   # so that the checkpoint knows of all that was printed
    query.stop()
    say(left=True)


if __name__ == '__main__': main(produce=produce, consume=consume, member=member)
