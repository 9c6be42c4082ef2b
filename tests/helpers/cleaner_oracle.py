"""Apache Kafka's own log and cleaner, one Java process for any number of partition directories
(`cleaner/java/CleanLog.java`).

    with Oracle() as kafka:
        kafka.write(directory, settings, steps)
        kafka.clean(directory, settings, now=..., first_dirty=..., memory=...)
        kafka.list(directory, settings, now=...)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT/'tests')]
from benchmarks import real_kafka
from clients.fetch import all_or_nothing, made_from, run

SOURCE = '../cleaner/java/CleanLog.java'    # as seen from tests/clients
MAIN = 'org.apache.kafka.storage.internals.log.CleanLog'
OPTIONS = '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xmx512m', '-Dorg.slf4j.simpleLogger.defaultLogLevel=off'


def absent() -> str | None:
    "Why Kafka's cleaner can't be asked here, if it can't."
    if reason := real_kafka.absent(): return reason
    if not made_from(SOURCE).exists() and shutil.which('javac') is None:
        return 'No `javac` on PATH: a small program asks Kafka, and has to be compiled.'


def classes() -> Path:
    "The program, compiled: once, as long as it stays as it is."
    directory = made_from(SOURCE)
    if not directory.exists():
        source = ROOT/'tests'/'clients'/SOURCE
        command = 'javac', '-nowarn', '-Xlint:-deprecation', '-cp', f'{real_kafka.libs()}/*', source, '-d'
        all_or_nothing(directory, lambda new: run(*command, new, stderr=subprocess.DEVNULL))
    return directory


class Refused(Exception):
    "Kafka raised an exception; the message is its trace."


class Oracle:
    "The process, for as long as the `with` block lasts."

    def __enter__(self) -> 'Oracle':
        self.complaints = tempfile.TemporaryFile()
        command = [real_kafka.java(), *OPTIONS, '-cp', f'{classes()}{os.pathsep}{real_kafka.libs()}/*', MAIN]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints,
                                        text=True, encoding='utf-8')
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try: self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.complaints.close()

    def ask(self, do: str, directory, settings: dict, **more) -> dict:
        what = {'do': do, 'directory': str(directory), 'settings': settings, **more}
        self.process.stdin.write(json.dumps(what) + '\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.complaints.seek(0)
            raise Refused(f'the process has ended: {self.complaints.read().decode()[-2000:]}')
        said = json.loads(line)
        if 'error' in said: raise Refused(said['trace'])
        return said

    def write(self, directory, settings: dict, steps: list, **more) -> dict:
        "Appends to a log, which may be new, as a leader does, or as a follower where a step says the offset."
        return self.ask('write', directory, settings, steps=steps, **more)

    def clean(self, directory, settings: dict, now: int, **more) -> dict:
        "Opens a log, lets the cleaner have its passes (one, unless said otherwise), and closes it."
        return self.ask('clean', directory, settings, now=now, **more)

    def list(self, directory, settings: dict, now: int, **more) -> dict:
        "Opens a log as a start of the broker does; all that is in it then."
        return self.ask('list', directory, settings, now=now, **more)
