"""On a real cluster: a master and two workers in processes of their own, the package installed from a wheel, and a
worker that dies."""
import contextlib
import json
import subprocess
import threading
from pathlib import Path

import pytest

from size import long, spark_absent

from broker_process import FIXTURES, environment
from kafka_scratch.log.records import Record, write_batch
from spark_cluster import PATIENCE, Cluster, build_wheel, environment_with

if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)
from kafka_scratch.spark.session import NoJava, find_java, java_home

try: JAVA, no_java = find_java(), None
except NoJava as reason: no_java = str(reason)
pytestmark = [long, pytest.mark.skipif(bool(no_java), reason=str(no_java)),
              pytest.mark.skipif(not Path('/proc/self/stat').exists(), reason='needs /proc')]

LOGS = FIXTURES/'segments'/'logs'
BATCHES, RECORDS = 200, 500   # of the larger log: how many, and how many records in each


@pytest.fixture(scope='module')
def python(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp('installed')
    return environment_with(build_wheel(directory), directory/'venv')


@pytest.fixture(scope='module')
def one_cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp('spark')/'cluster', java_home(JAVA)) as running: yield running


@pytest.fixture
def cluster(one_cluster): return one_cluster.complete()


class Driver:
    """A program on the cluster, in the environment that has the wheel. It is told things on the command line, and
    answers with lines of JSON."""
    START = '''
import json, sys
from kafka_scratch.spark.session import get_session
master, directory = sys.argv[1:]
settings = {'spark.executor.memory': '512m', 'spark.sql.shuffle.partitions': 2, 'spark.cores.max': 2, 'spark.executor.cores': 1,
            'spark.scheduler.minRegisteredResourcesRatio': 1, 'spark.scheduler.maxRegisteredResourcesWaitingTime': '60s'}   # both are there, then it starts
spark = get_session(master, 'a test', **settings)
def say(**words): print(json.dumps(words), flush=True)
'''  # noqa: E501

    def __init__(self, python: Path, cluster: Cluster, directory: Path, code: str, scratch: Path):
        self.errors = scratch/'driver.err'
        env = environment(SPARK_LOCAL_IP='127.0.0.1', PYTHONPATH=None, PYSPARK_PYTHON=None, SPARK_HOME=None)
        with open(self.errors, 'wb') as errors:
            self.process = subprocess.Popen([python, '-c', self.START + code, cluster.master, directory],
                                            stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=scratch)

    def __enter__(self): return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def hear(self) -> dict:
        "The next thing that it says."
        line = self.process.stdout.readline()
        assert line, f'the driver ended: {self.errors.read_text()[-3000:]}'
        return json.loads(line)


@pytest.fixture
def driver(python, cluster, tmp_path):
    "Starts a driver; one that takes too long is ended by the clock."
    with contextlib.ExitStack() as stack:
        def start(directory: Path, code: str) -> Driver:
            started = stack.enter_context(Driver(python, cluster, directory, code, tmp_path))
            clock = threading.Timer(2 * PATIENCE, started.process.kill)
            stack.callback(clock.cancel)
            clock.start()
            return started
        yield start


WHO = '''
def who(_):
    import os, socket, kafka_scratch
    yield kafka_scratch.__file__, os.getppid()
import kafka_scratch
say(driver=kafka_scratch.__file__, workers=spark.sparkContext.parallelize(range(8), 8).mapPartitions(who).collect())
'''

ROWS = '''
frame = spark.read.format('kafka-log').option('table', 'records').load(directory)
say(rows=sorted(row[0] for row in frame.selectExpr('to_json(struct(*))').collect()))
'''


def test_from_an_installed_wheel(spark, driver, python):
    "Both ends import the wheel, not the checkout; and the rows are those of one machine."
    installed = str(python.parents[1])
    running = driver(LOGS, WHO + ROWS)
    who = running.hear()
    assert who['driver'].startswith(installed) and all(file.startswith(installed) for file, _ in who['workers'])
    assert len({parent for _, parent in who['workers']}) == 2, 'both executors had a part in it'
    local = spark.read.format('kafka-log').option('table', 'records').load(str(LOGS))
    rows = sorted(row[0] for row in local.selectExpr('to_json(struct(*))').collect())
    assert len(rows) > 300 and running.hear()['rows'] == rows


def write_log(directory: Path):
    "A log of one partition: the same batch again and again, but for its offset, which no checksum covers."
    records, time = [Record(offset_delta=i, key=b'%d' % i,
                            value=b'value %d ' % i * 5) for i in range(RECORDS)], 1_700_000_000_000
    batch = write_batch(records, base_timestamp=time, max_timestamp=time)
    (directory/'big-0').mkdir(parents=True)
    with open(directory/'big-0'/f'{0:020}.log', 'wb') as log:
        for number in range(BATCHES): log.write((number * RECORDS).to_bytes(8, 'big') + batch[8:])


SLOW = '''
import threading, time
frame = (spark.read.format('kafka-log').option('table', 'records').option('splitSize', '128k').load(directory)
         .selectExpr('offset', 'cast(key as string) as key', 'length(value) as size'))
tracker, done = spark.sparkContext.statusTracker(), threading.Event()
def watch():
    while not done.wait(0.05):
        stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
        if stages: say(tasks=stages[0].numTasks, completed=max(stage.numCompletedTasks for stage in stages))
watcher = threading.Thread(target=watch)
watcher.start()
row = frame.selectExpr('count(1)', 'count(distinct offset)', 'min(offset)', 'max(offset)', 'sum(offset)', 'sum(cast(key as int))', 'sum(size)').first()
done.set()
watcher.join()
say(row=list(row))
'''  # noqa: E501


def test_a_worker_is_lost_in_the_middle(driver, cluster, tmp_path):
    "What it had done and what it was doing is done again by the other; no row is lost, and none comes twice."
    write_log(tmp_path/'logs')
    running, killed_at = driver(tmp_path/'logs', SLOW), None
    while 'row' not in (heard := running.hear()):
        if killed_at is None and heard['tasks'] > 8 and heard['completed'] >= 6:
            killed_at, lost = heard, cluster.lose()
    n, sizes = BATCHES * RECORDS, sum(len(f'value {i} ') * 5 for i in range(RECORDS))
    assert heard['row'] == [n, n, 0, n - 1, n * (n - 1) // 2, BATCHES * RECORDS * (RECORDS - 1) // 2, BATCHES * sizes]
    assert killed_at and killed_at['completed'] < killed_at['tasks'] and cluster.workers[lost].poll() == -9
