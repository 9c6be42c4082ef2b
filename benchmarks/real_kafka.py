"""Apache Kafka 4.1.1 on loopback: the yardstick for benchmarks, the oracle for tests.

    if reason := absent():
        print(reason)
    else:
        with RealKafka(directory) as kafka:
            kafka.create_topics({'orders': 3})
            ...  # kafka.port is ready

Needs Java 17 or newer, and Kafka's jars: in the directory that KAFKA_SCRATCH_KAFKA_LIBS names, or in
~/.cache/kafka_scratch/kafka-4.1.1/libs, which `python -m benchmarks.real_kafka --fetch` fills with Maven.
"""
import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from benchmarks import processes, wire

VERSION = '4.1.1'
LIBS_VARIABLE = 'KAFKA_SCRATCH_KAFKA_LIBS'
CACHE = Path.home() / '.cache' / 'kafka_scratch' / f'kafka-{VERSION}' / 'libs'
JARS = (('org.apache.kafka', 'kafka_2.13', VERSION), ('org.apache.kafka', 'kafka-tools', VERSION),
        ('org.slf4j', 'slf4j-simple', '1.7.36'))  # the last one lets Kafka say why it did not start
# What Kafka's own start scripts pass to java.
SERVER_OPTIONS = ('-server', '-XX:+UseG1GC', '-XX:MaxGCPauseMillis=20', '-XX:InitiatingHeapOccupancyPercent=35',
                  '-XX:+ExplicitGCInvokesConcurrent', '-Djava.awt.headless=true')
QUIET = '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn'


class KafkaAbsent(Exception):
    "Java or Kafka's jars are not on this machine; the message says which, and what to do."


def libs() -> Path:
    "The directory that holds Kafka's jars."
    directory = Path(os.environ.get(LIBS_VARIABLE) or CACHE)
    if not list(directory.glob(f'kafka-clients-{VERSION}.jar')):
        raise KafkaAbsent(f'No Apache Kafka {VERSION} jars in {directory}: set {LIBS_VARIABLE}, '
                          f'or run `python -m benchmarks.real_kafka --fetch` (needs mvn).')
    return directory


@functools.cache
def java() -> str:
    "The java command, version 17 or newer."
    command = shutil.which('java')
    if command is None:
        raise KafkaAbsent('No `java` on PATH: Apache Kafka needs Java 17 or newer.')
    said = subprocess.run([command, '-version'], capture_output=True, text=True, timeout=30).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        raise KafkaAbsent(f'Apache Kafka needs Java 17 or newer, `java -version` says: {said.splitlines()[:1]}')
    return command


def absent() -> str | None:
    "A sentence that says why real Kafka can't run here, or None when it can."
    try:
        java(), libs()
    except KafkaAbsent as reason:
        return str(reason)


def fetch_jars(directory: Path = CACHE, jars: tuple = JARS, alone: bool = False) -> None:
    """Fill `directory` with Kafka's jars (or others, `alone`: without what they need) from Maven's repository; all or
    nothing."""
    if shutil.which('mvn') is None:
        raise KafkaAbsent(f'No `mvn` on PATH to fetch {jars[0][1]} {jars[0][2]} with.')
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        Path(scratch, 'pom.xml').write_text(_pom(jars, alone))
        subprocess.run(['mvn', '-q', '-B', 'dependency:copy-dependencies', f'-DoutputDirectory={scratch}/libs'],
                       cwd=scratch, check=True, timeout=900)
        if directory.exists():
            shutil.rmtree(directory)
        os.rename(Path(scratch, 'libs'), directory)


def _pom(jars: tuple, alone: bool) -> str:
    others = '<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>' if alone else ''  # noqa: E501
    dependencies = ''.join(f'<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>'
                           f'<version>{version}</version>{others}</dependency>' for group, name, version in jars)
    return ('<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            '<groupId>kafka_scratch</groupId><artifactId>jars</artifactId><version>1</version>'
            f'<dependencies>{dependencies}</dependencies></project>')


def command(main_class: str, *arguments, heap: str = '256m', options: tuple = ()) -> list[str]:
    "The command line that runs one of Kafka's main classes."
    return [java(), f'-Xmx{heap}', *options, QUIET, '-cp', f'{libs()}/*', main_class, *map(str, arguments)]


def run_tool(main_class: str, *arguments, heap: str = '256m', timeout: float = 120) -> str:
    "Run one of Kafka's command line tools to its end; return what it printed."
    done = subprocess.run(command(main_class, *arguments, heap=heap), capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(
            f'{main_class} ended with code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}')
    return done.stdout


def dump_log(path, *options, timeout: float = 120) -> str:
    "What `kafka-dump-log` prints for a log file, e.g. `dump_log(path, '--cluster-metadata-decoder')`."
    return run_tool('kafka.tools.DumpLogSegments', *(options or ('--print-data-log',)), '--files', path,
                    timeout=timeout)


class RealKafka:
    "A combined broker and controller (node 1) on 127.0.0.1, for as long as the `with` block lasts."

    def __init__(self,
                 directory,                          # where log_dir, server.properties and kafka.out go
                 properties: dict | None = None,     # further or other broker properties
                 heap: str = '512m',
                 patience: float = 60):              # seconds it may take to start or to stop
        self.directory = Path(directory)
        self.log_dir = self.directory / 'logs'
        self.output = self.directory / 'kafka.out'
        self.port, self.controller_port = processes.free_port(), processes.free_port()
        self.properties = {**self._defaults(), **(properties or {})}
        self.heap, self.patience = heap, patience
        self.process: subprocess.Popen | None = None

    def _defaults(self) -> dict:
        return {'process.roles': 'broker,controller', 'node.id': 1, 'controller.listener.names': 'CONTROLLER',
                'controller.quorum.voters': f'1@127.0.0.1:{self.controller_port}',
                'listeners': f'PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}',
                'advertised.listeners': f'PLAINTEXT://127.0.0.1:{self.port}',
                'log.dirs': self.log_dir, 'offsets.topic.replication.factor': 1,
                'transaction.state.log.replication.factor': 1, 'transaction.state.log.min.isr': 1,
                'group.initial.rebalance.delay.ms': 0, 'auto.create.topics.enable': 'false'}

    @property
    def pid(self) -> int:
        return self.process.pid

    def format(self) -> None:
        "Prepare the log directory, as `kafka-storage format` does."
        self.directory.mkdir(parents=True, exist_ok=True)
        self._write_properties()
        cluster_id = run_tool('kafka.tools.StorageTool', 'random-uuid').strip()
        run_tool('kafka.tools.StorageTool', 'format', '-t', cluster_id, '-c', self._properties_file)

    def start(self, wait: bool = True) -> 'RealKafka':
        "Start the server on its directory, formatting that first when it is new; return when it answers."
        if not (self.log_dir / 'meta.properties').exists():
            self.format()
        self._write_properties()
        self.process = processes.start(command('kafka.Kafka', self._properties_file, heap=self.heap,
                                               options=SERVER_OPTIONS),
                                       self.output, cwd=self.directory)
        try:
            if wait:
                self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def _properties_file(self) -> Path:
        return self.directory / 'server.properties'

    def _write_properties(self) -> None:
        self._properties_file.write_text(''.join(f'{key}={value}\n' for key, value in self.properties.items()))

    def wait_until_ready(self) -> None:
        "Return when the broker answers ApiVersions and leads every partition."
        processes.wait_for_port(self.port, self.process, self.patience, self.output)
        wire.wait_for(self._all_led, self.patience, 'Kafka being ready')

    def _all_led(self) -> bool:
        wire.parse_api_versions(wire.exchange(self.port, wire.api_versions_request()))
        topics = wire.parse_describe(wire.exchange(self.port, wire.describe_request()))
        return self.leads({name: len(leaders) for name, (_, leaders) in topics.items()})

    def create_topics(self, topics: dict[str, int]) -> None:
        "Create topics, `{'name': partitions}`, and return when the broker leads each partition."
        answer = wire.exchange(self.port, wire.create_topics_request(topics))
        if refused := {name: error for name, error in wire.parse_create_topics(answer).items() if error}:
            raise RuntimeError(f'Kafka did not create {refused}')
        wire.wait_for(lambda: self.leads(topics), self.patience, 'leaders for the new topics')

    def leads(self, topics: dict[str, int]) -> bool:
        "Whether the broker knows these topics, `{'name': partitions}`, and leads each of their partitions."
        described = wire.parse_describe(wire.exchange(self.port, wire.describe_request(*sorted(topics))))
        known = all(len(described[name][1]) == count and min(described[name][1]) >= 0 for name, count in topics.items())
        return known and self._has_taken_over(topics)

    def _has_taken_over(self, topics: dict[str, int]) -> bool:
        "Kafka names itself as leader a moment before it acts as one; until then it answers `NOT_LEADER_OR_FOLLOWER`."
        return not any(wire.parse_list_offsets(wire.exchange(self.port, wire.list_offsets_request(topics))).values())

    def stop(self) -> None:
        "A clean shutdown (SIGTERM), forced when it takes longer than `patience`."
        if self.process:
            processes.stop(self.process, self.patience)
            self.process = None

    __enter__ = start

    def __exit__(self, *_) -> None:
        self.stop()


def main() -> None:
    "Say whether real Kafka can run here; with --fetch, get its jars first."
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--fetch', action='store_true', help=f'fill {CACHE} with Maven')
    if parser.parse_args().fetch:
        fetch_jars()
    print(absent() or f'Apache Kafka {VERSION} can run here.')


if __name__ == '__main__':
    main()
