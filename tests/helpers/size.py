"""The two sizes of the test run, and what decides whether a test takes part.

`./test.sh` is for everybody: what runs in minutes with Python alone, and with Spark where a Java is found.
`./test.sh --all` is what CI runs: beside Apache Kafka, with clients in other languages, with long and many tries.
What is left out has a reason, and the closing lines count it (report.py).
"""
import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks import real_kafka

ALL = os.environ.get('KAFKA_SCRATCH_TESTS') == 'all'    # conftest.py sees to that, for --all
LATER = 'for --all: '               # how the reason of a test begins that only waits for the other size


def later(what: str):
    """A mark for tests that only the whole run has time for; `what` is the line of the closing table in which they are
    counted."""
    return pytest.mark.skipif(not ALL, reason=LATER + what)


long = later('kills, crashes, long sequences, large files')
on_spark = later('on Spark, beyond the reading of tables')
# of the tests that share a Spark session, the small run has those of these files
SMALL_ON_SPARK = 'test_source', 'test_session'


def kafka_absent() -> str | None:
    "Why no Apache Kafka takes part, if none does."
    return real_kafka.absent() if ALL else f'{LATER}beside Apache Kafka'


def jars_absent() -> str | None:
    "Why Kafka's jars can't be looked into, if they can't: for that, no Java is needed."
    if not ALL: return f'{LATER}beside Apache Kafka'
    try:
        return (None
                if list(real_kafka.libs().glob('kafka-metadata-*.jar'))
                else f"no jar of Kafka's metadata in {real_kafka.libs()}")
    except real_kafka.KafkaAbsent as reason: return str(reason)


needs_kafka = pytest.mark.skipif(bool(kafka_absent()), reason=str(kafka_absent()))


def spark_absent() -> str | None:
    """Why tests that read logs with Spark, or with what comes with it, can't run, if they can't.

    A module in which nothing runs then skips itself, there and not here: pytest-xdist counts what comes from one line
    once.
    """
    missing = [name for name in ('pyspark', 'numba', 'pyarrow', 'pandas',
                                 'crc32c') if importlib.util.find_spec(name) is None]
    return f'no {missing[0]}: the packages for Spark are not installed' if missing else None


def budget(examples: int, **more) -> settings:
    "How many examples a property test tries: so many in the whole run, a fifth of them (but ten) in the small one."
    return settings(max_examples=examples if ALL else min(examples, max(examples // 5, 10)), **more)
