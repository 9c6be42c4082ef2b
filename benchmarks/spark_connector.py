"""Spark's own Kafka connector: the yardstick for benchmarks of the Spark part, the oracle for its tests.

    if reason := absent():
        print(reason)
    else:
        session = SparkSession.builder.config('spark.jars', ','.join(map(str, jars()))).getOrCreate()
        session.read.format('kafka')...

Its jars are in the directory that KAFKA_SCRATCH_SPARK_CONNECTOR names, or in
~/.cache/kafka_scratch/spark-connector-4.2.0, which `python -m benchmarks.spark_connector --fetch` fills with Maven.
`spark.jars` is read when a session's Java starts, so a process that has a session already can't add them.
"""
import argparse
import os
import sys
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from benchmarks import real_kafka

VERSION = '4.2.0'
JARS_VARIABLE = 'KAFKA_SCRATCH_SPARK_CONNECTOR'
CACHE = Path.home() / '.cache' / 'kafka_scratch' / f'spark-connector-{VERSION}'
# Versions that can be had and work together; whatever else they need (codecs, logging) comes with Spark.
JARS = (('org.apache.spark', 'spark-sql-kafka-0-10_2.13', VERSION),
        ('org.apache.spark', 'spark-token-provider-kafka-0-10_2.13', '4.0.0'),
        ('org.apache.kafka', 'kafka-clients', '3.9.1'), ('org.apache.commons', 'commons-pool2', '2.12.0'))


def jars() -> list[Path]:
    "The connector's jars, for `spark.jars`."
    directory = Path(os.environ.get(JARS_VARIABLE) or CACHE)
    found = [directory / f'{name}-{version}.jar' for _, name, version in JARS]
    if missing := [path.name for path in found if not path.is_file()]:
        raise real_kafka.KafkaAbsent(f'{missing[0]} is not in {directory}: set {JARS_VARIABLE}, '
                                     f'or run `python -m benchmarks.spark_connector --fetch` (needs mvn).')
    return found


def absent() -> str | None:
    "A sentence that says why the connector can't be used here, or None when it can."
    try:
        jars()
    except real_kafka.KafkaAbsent as reason:
        return str(reason)


def fetch_jars(directory: Path = CACHE) -> None:
    "Fill `directory` with the connector's jars from Maven's repository; all or nothing."
    real_kafka.fetch_jars(directory, JARS, alone=True)


def main() -> None:
    "Say whether Spark's Kafka connector is here; with --fetch, get its jars first."
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--fetch', action='store_true', help=f'fill {CACHE} with Maven')
    if parser.parse_args().fetch:
        fetch_jars()
    print(absent() or f"Spark's Kafka connector {VERSION} is here.")


if __name__ == '__main__':
    main()
