"""The programs of the soak test: the broker, two instances of a Streams application, a Connect worker; and the cleaner,
watched from outside."""
import collections
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import soak_load as load
from soak_load import PATIENCE, Run
from benchmarks import processes, real_kafka
from benchmarks.processes import note

ROOT = Path(__file__).resolve().parent.parent
VERSION = real_kafka.VERSION
CACHE = Path.home()/'.cache'/'kafka_scratch'/f'soak-{VERSION}'
JARS = (('org.apache.kafka', 'kafka-streams', VERSION), ('org.apache.kafka', 'connect-runtime', VERSION),
        ('org.apache.kafka', 'connect-file', VERSION), ('org.slf4j', 'slf4j-simple', '1.7.36'))
PROGRAM = ROOT/'tests'/'soak'/'java'/'Counts.java'
BROKER = {'process.roles': 'broker,controller', 'node.id': 1, 'auto.create.topics.enable': 'false',
          'offsets.topic.replication.factor': 1, 'transaction.state.log.replication.factor': 1,
          'transaction.state.log.min.isr': 1, 'group.initial.rebalance.delay.ms': 0,
          'log.segment.bytes': 1 << 20, 'offsets.topic.segment.bytes': 1 << 20,
          'transaction.state.log.segment.bytes': 1 << 20, 'log.roll.ms': 30_000,
          'log.cleaner.min.cleanable.ratio': 0.1, 'log.cleaner.backoff.ms': 200,
          'log.cleaner.delete.retention.ms': load.TOMBSTONES_STAY * 1000}
WORKER = {'group.id': 'connect', 'config.storage.topic': 'connect-configs', 'offset.storage.topic': 'connect-offsets',
          'status.storage.topic': 'connect-status', 'config.storage.replication.factor': 1,
          'offset.storage.replication.factor': 1, 'status.storage.replication.factor': 1,
          'offset.storage.partitions': 5, 'key.converter': 'org.apache.kafka.connect.storage.StringConverter',
          'value.converter': 'org.apache.kafka.connect.storage.StringConverter', 'offset.flush.interval.ms': 2000,
          'exactly.once.source.support': 'enabled', 'scheduled.rebalance.max.delay.ms': 0}


# --- programs ---------------------------------------------------------------------------------------------------------

def absent() -> str | None:
    "A sentence that says what is missing here, or None."
    try: real_kafka.java()
    except real_kafka.KafkaAbsent as reason: return str(reason)
    if shutil.which('javac') is None: return 'No `javac` on PATH: the soak test has a program in Java.'
    if not (CACHE/'libs').exists() and shutil.which('mvn') is None:
        return f'No `mvn` on PATH to fetch Kafka Streams and Connect {VERSION} with.'


def classes() -> Path:
    "Our own program, compiled; the jars that it needs are fetched first."
    if not (CACHE/'libs').exists():
        note('fetching Kafka Streams and Connect (once)')
        real_kafka.fetch_jars(CACHE/'libs', JARS)
    directory = CACHE/hashlib.sha256(PROGRAM.read_bytes()).hexdigest()[:12]
    if not directory.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            subprocess.run(['javac', '-d', f'{scratch}/new', '-cp', f'{CACHE}/libs/*', PROGRAM], check=True,
                           timeout=300)
            os.rename(f'{scratch}/new', directory)
    return directory


def java(main_class: str, *arguments) -> list:
    return [real_kafka.java(), '-Xmx256m', '-XX:+UseSerialGC', real_kafka.QUIET, '-cp',
            f'{classes()}{os.pathsep}{CACHE}/libs/*', main_class, *arguments]


def write_properties(path: Path, properties: dict) -> Path:
    path.write_text(''.join(f'{name}={value}\n' for name, value in properties.items()))
    return path


class Program:
    "A process that can be killed and started again; what it says is in two files."
    def __init__(self, name: str, directory: Path, command: list):
        self.command, self.process = [str(word) for word in command], None
        self.out, self.err = directory/f'{name}.out', directory/f'{name}.err'

    def start(self):
        with open(self.out, 'ab') as out, open(self.err, 'ab') as err:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            start_new_session=True)

    def kill(self):
        "This process alone, as a crash does it: what it has started has to notice by itself."
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def stop(self):
        if self.process: processes.stop(self.process, 60)

    def running(self) -> bool: return self.process is not None and self.process.poll() is None


def start_broker(broker: Program, port: int) -> float:
    "Seconds until it listens."
    began = time.monotonic()
    broker.start()
    processes.wait_for_port(port, broker.process, 60, broker.err)
    return time.monotonic() - began


# --- Connect ----------------------------------------------------------------------------------------------------------

CONNECTORS = {'source': {'connector.class': 'org.apache.kafka.connect.file.FileStreamSourceConnector',
                         'topic': 'lines', 'exactly.once.support': 'required', 'tasks.max': 1},
              'sink': {'connector.class': 'org.apache.kafka.connect.file.FileStreamSinkConnector',
                       'topics': 'items', 'tasks.max': 2}}


def rest(port: int, method: str, path: str, body: dict | None = None):
    request = urllib.request.Request(f'http://127.0.0.1:{port}{path}', method=method,
                                     data=json.dumps(body).encode() if body is not None else None,
                                     headers={'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=60) as answer: return json.loads(answer.read() or b'null')


def create_connectors(run: Run, port: int):
    "As soon as the worker answers."
    deadline = time.monotonic() + PATIENCE
    for name, config in CONNECTORS.items():
        config = {**config, 'file': str(run.directory/f'{name}.txt')}
        while True:
            try: rest(port, 'PUT', f'/connectors/{name}/config', config); break
            except (OSError, ValueError):
                if time.monotonic() > deadline: raise
                time.sleep(0.5)


def restart_failed(run: Run, port: int):
    "Connect leaves a task that failed for somebody to restart: that is us."
    for name in CONNECTORS:
        with contextlib.suppress(OSError, ValueError):
            status = rest(port, 'GET', f'/connectors/{name}/status')
            failed = [task for task in status['tasks'] if task['state'] == 'FAILED']
            if not failed: continue
            run.tally[f'restarted tasks of the {name}'] += len(failed)
            note(f'{name} failed: {failed[0].get("trace", "")[:600]}')
            rest(port, 'POST', f'/connectors/{name}/restart?includeTasks=true&onlyFailed=true')


# --- the cleaner, watched ---------------------------------------------------------------------------------------------

def read_checkpoint(path: Path) -> dict:
    "`cleaner-offset-checkpoint`: up to which offset each partition is clean."
    try: lines = path.read_text().splitlines()[2:]
    except OSError: return {}
    return {tuple(line.split()[:2]): int(line.split()[2]) for line in lines}


def watch_cleaner(run: Run):
    "Counts how often it has come further in a partition: at least so many passes."
    seen, path = {}, run.directory/'logs'/'cleaner-offset-checkpoint'
    for _ in load.turns(run, 0.5):
        now = read_checkpoint(path)
        for partition in now:
            if now[partition] != seen.get(partition): run.passes[partition[0]] += 1
        seen = now


def half_done(directory: Path) -> list[Path]:
    "The files of a pass that has not ended."
    return [path for ending in ('cleaned', 'swap') for path in directory.glob(f'*/*.{ending}')]


def wait_for_pass(directory: Path, seconds: float = 15):
    "Until the cleaner is in the middle of something, if that is soon."
    deadline = time.monotonic() + seconds
    while not half_done(directory) and time.monotonic() < deadline: time.sleep(0.001)


def sizes(directory: Path) -> collections.Counter:
    "Bytes of each topic's logs."
    found = collections.Counter()
    for path in directory.glob('*/*.log'):
        with contextlib.suppress(OSError): found[path.parent.name.rpartition('-')[0]] += path.stat().st_size
    return found


def group_exists(pid: int) -> bool:
    "Whether something that this process has started is still there."
    try: os.killpg(pid, 0)
    except ProcessLookupError: return False
    return True


def memory(pid: int) -> int:
    "The resident memory of a process, in MB."
    lines = Path(f'/proc/{pid}/status').read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith('VmRSS'))
