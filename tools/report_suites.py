"""Other people's test suites: which package has each, how it gets here, and how it is pointed at a broker.

Packages are downloaded by name, with the tools that their users download them with, in the versions below, into
~/.cache/kafka_scratch/report_card. Nothing of them is in this repository.
"""
import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import report_outcomes as outcomes
from report_outcomes import FAILED, Outcome
from benchmarks import processes, real_kafka

CACHE = Path.home()/'.cache'/'kafka_scratch'/'report_card'
GO_CACHE = CACHE.parent/'clients'/'go'     # the one that tests/clients/fetch.py fills
FETCH_SECONDS = 900
AT_ONCE = 2                                # tests of one suite that run at the same time
ALONE = 180                                # seconds for a test that is run by itself

Seen = Callable[[str, str], None]          # told of each test that has ended: its name, and how


@dataclass(frozen=True)
class Server:
    "A broker that runs, as a suite needs to know it."
    port: int
    proxy: int | None = None               # what it tells clients to connect to, if that is another port


@dataclass(frozen=True)
class Suite:
    "One of them."
    name: str
    package: str                           # where it comes from, and the version
    needs: tuple[str, ...]                 # commands
    seconds: int                           # how long it may take on one broker
    prepare: Callable[[Path], Callable]    # fetches it and makes a copy in a directory; returns what runs tests there
    settings: dict = field(default_factory=dict)   # of both brokers
    host: str = '127.0.0.1'                # the name by which it expects the broker to call itself
    proxied: bool = False                  # its tests want a proxy, whose port the broker must advertise

    def absent(self) -> str | None:
        "Why it can't run here, if it can't."
        missing = [command for command in self.needs if shutil.which(command) is None]
        return f'no `{missing[0]}` on PATH' if missing else None


# --- processes ---

def run(*command, **options) -> str:
    "Runs a command to its end; returns what it printed."
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=FETCH_SECONDS, **options)
    if done.returncode:
        raise RuntimeError(f'{" ".join(map(str, command))[:200]}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}')
    return done.stdout


RUNNING = set()                            # for whoever is interrupted while other threads wait for theirs


def lines_of(command: list, seconds: float, **options):
    "The lines that a command prints, as they come; when its time is over, it and what it started are ended."
    process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors='replace', start_new_session=True, **options)
    clock = threading.Timer(seconds, processes.stop, (process, 5))
    clock.start()
    RUNNING.add(process)
    try: yield from process.stdout
    finally:
        RUNNING.discard(process)
        clock.cancel()
        processes.stop(process, 5)
        process.stdout.close()


def copied(source: Path, target: Path, edits: tuple = ()) -> Path:
    "A copy to work in; in the files of a pattern, one text is replaced by another."
    if target.exists(): shutil.rmtree(target)
    shutil.copytree(source, target, symlinks=True)
    for pattern, old, new in edits:
        for path in target.glob(pattern):
            text = path.read_text(encoding='utf-8')
            if old in text: path.write_text(text.replace(old, new), encoding='utf-8')
    return target


def made(directory: Path, fill: Callable[[Path], None]) -> Path:
    "A directory of the cache, which appears when it is complete."
    if not directory.exists():
        scratch = directory.with_name(f'{directory.name}.{os.getpid()}')
        scratch.mkdir(parents=True)
        try:
            fill(scratch)
            os.rename(scratch, directory)
        finally: shutil.rmtree(scratch, ignore_errors=True)
    return directory


# --- Go ---

def go_environment(**more) -> dict:
    return {**os.environ, 'GOMODCACHE': str(GO_CACHE), 'GOFLAGS': '-mod=mod -modcacherw -buildvcs=false',
            'GOTOOLCHAIN': 'local', 'GOWORK': 'off', **more}


def go_module(module: str, version: str) -> Path:
    "The directory of a module in Go's cache."
    CACHE.mkdir(parents=True, exist_ok=True)
    told = run('go', 'mod', 'download', '-json', f'{module}@{version}', cwd=CACHE, env=go_environment())
    return Path(json.loads(told)['Dir'])


def go_suite(directory: Path, module: str, version: str, package: str, address: str, edits=lambda server: (),
             environment=lambda server: {}, options: tuple = (), left_out: str = '(?!)', around=None,
             stand_in: str | None = None):
    """Tests of a Go package: those that can come to the place that knows the `address`, and not to what is `left_out`
    (a pattern, too). A `stand_in` of ours takes the place of the module's own files at its root."""
    source = go_module(module, version)
    texts = [path.read_text(encoding='utf-8') for path in sorted((source/package).glob('*_test.go'))]
    out = {*outcomes.go_tests(texts, left_out)}
    names = [name for name in outcomes.go_tests(texts, address) if name not in out and name != 'TestMain']

    def tests() -> list[str]: return names

    def on(server: Server, wanted: list[str], seconds: float, seen: Seen) -> dict[str, Outcome]:
        changes = edits(server)
        work = copied(source, directory/'module', changes) if changes or stand_in else source
        if stand_in:
            for path in work.glob('*.go'): path.unlink()
            shutil.copy(ROOT/'tools'/'stand_ins'/stand_in, work)
        deadline, found = time.monotonic() + seconds, {}
        with around(server) if around else contextlib.nullcontext({}) as more:
            env = go_environment(**environment(server), **more)
            tops = sorted({name.partition('/')[0] for name in wanted})
            while tops and time.monotonic() < deadline:     # again when a panic has ended them all
                events = outcomes.GoEvents()
                left = max(int(deadline - time.monotonic()), 10)
                for line in lines_of(['go', 'test', '-json', '-count=1', f'-parallel={AT_ONCE}', f'-timeout={left}s',
                                      *options, '-run', f'^({"|".join(tops)})$', f'./{package}'], left + 30,
                                     cwd=work, env=env):
                    if ended := events.take(line): seen(*ended)
                new = events.outcomes()
                if not new and not found: raise RuntimeError(f'{module}: no test has run:\n{events.loose}')
                if not new: break
                found |= new
                began = {name.partition('/')[0] for name in new}
                tops = [name for name in tops if name not in began]
        return found | {name: Outcome(FAILED, 'the time for the suite was over') for name in tops}
    return tests, on


# --- kafka-python: pytest ---

PYTEST = 'pytest==8.4.2', 'pytest-mock==3.15.1', 'pytest-timeout==2.4.0', 'py==1.11.0', 'setuptools==80.9.0', \
    'lz4==4.4.5', 'python-snappy==0.7.3', 'zstandard==0.25.0', 'crc32c==2.8'
# Its package for PyPI has the tests, but not the module that watches a broker that the tests start by themselves.
SERVICE = '''class ExternalService:
    def __init__(self, host, port): self.host, self.port = host, port
    def open(self): pass
    def close(self): pass

class SpawnedService: pass
'''


def kafka_python(directory: Path, version: str):
    def fill(home: Path):
        run(sys.executable, '-m', 'venv', home/'venv')
        pip = home/'venv'/'bin'/'python', '-m', 'pip', '-q', '--disable-pip-version-check'
        run(*pip, 'install', *PYTEST)
        run(*pip, 'download', '--no-deps', '--no-build-isolation', '--no-binary', ':all:', '-d', home,
            f'kafka-python=={version}')
        archive = next(home.glob('*.tar.gz'))
        shutil.unpack_archive(archive, home, filter='data')
        os.rename(home/f'kafka_python-{version}', home/'source')

    home = made(CACHE/f'kafka-python-{version}', fill)
    python = home/'venv'/'bin'/'python'
    work = copied(home/'source', directory/'source')
    (work/'test'/'service.py').write_text(SERVICE)
    (work/'test'/'__init__.py').touch()               # or Python's own package `test` is found
    files = [f'test/integration/test_{name}_integration.py' for name in ('admin', 'consumer', 'producer')]

    def pytest(arguments: list, seconds: float, port: int = 9):
        env = {**os.environ, 'KAFKA_URI': f'kafka://127.0.0.1:{port}', 'KAFKA_VERSION': '4.1.1',
               'KAFKA_ROOT': str(work), 'PYTHONPATH': str(work), 'COLUMNS': '200'}
        return lines_of([python, '-m', 'pytest', '-p', 'no:cacheprovider', '-o', 'log_level=WARNING',
                         f'--timeout={ALONE}', '--timeout-method=signal', *arguments], seconds, cwd=work, env=env)

    def tests() -> list[str]:
        found = [line.strip() for line in pytest(['-q', '--collect-only', *files], 60) if '::' in line]
        return [name_of(each) for each in found]

    def name_of(node: str) -> str:
        path, _, test = node.partition('::')
        return f'{Path(path).stem}::{test}'

    def on(server: Server, wanted: list[str], seconds: float, seen: Seen) -> dict[str, Outcome]:
        report = directory/'junit.xml'
        report.unlink(missing_ok=True)
        for line in pytest(['-v', f'--junitxml={report}', *(f'test/integration/{each.replace("::", ".py::", 1)}'
                                                          for each in wanted)], seconds, server.port):
            if match := re.match(r'(\S+::.+?) (PASSED|FAILED|SKIPPED|ERROR)', line):
                seen(name_of(match[1]), {'ERROR': FAILED}.get(match[2], match[2].lower()))
        if not report.exists(): return {each: Outcome(FAILED, 'the time for the suite was over') for each in wanted}
        return outcomes.junit(report.read_text(encoding='utf-8'))
    return tests, on


# --- librdkafka: C, in the sources of a package of npm that is built on it ---

# Some of its tests call Kafka's scripts.
SCRIPTS = {'kafka-topics.sh': 'org.apache.kafka.tools.TopicCommand',
           'kafka-acls.sh': 'org.apache.kafka.tools.AclCommand'}
# One node can't replicate anything three times.
ONE_REPLICA = 'NewTopic_new(topicname, partition_cnt, replication_factor,', 'NewTopic_new(topicname, partition_cnt, 1,'


def kafka_scripts(directory: Path) -> dict:
    "A directory with scripts as Kafka has them, for the environment; without Java, their tests fail."
    if real_kafka.absent(): return {}
    scripts = directory/'bin'
    scripts.mkdir()
    for name, main_class in SCRIPTS.items():
        (scripts/name).write_text(f'#!/bin/sh\nexec {shlex.join(real_kafka.command(main_class))} "$@"\n')
        (scripts/name).chmod(0o755)
    return {'KAFKA_PATH': str(directory)}


def librdkafka(directory: Path, package: str, version: str, protocol: str):
    def fill(home: Path):
        run('npm', 'pack', '--silent', f'{package}@{version}', cwd=home)
        shutil.unpack_archive(next(home.glob('*.tgz')), home/'package', filter='data')
        os.rename(next(home.glob('package/*/deps/librdkafka')), home/'librdkafka')
        shutil.rmtree(home/'package')
        build = home/'librdkafka'
        source = build/'tests'/'test.c'
        source.write_text(source.read_text(encoding='utf-8').replace(*ONE_REPLICA), encoding='utf-8')
        run('./configure', cwd=build)
        run('make', f'-j{AT_ONCE}', 'libs', cwd=build)
        run('make', f'-j{AT_ONCE}', 'build', cwd=build/'tests')

    home = made(CACHE/f'librdkafka-of-{package.rpartition("/")[2]}-{version}', fill)
    programs = home/'librdkafka'
    work = directory/'work'
    work.mkdir(exist_ok=True)
    scripts = kafka_scripts(directory)

    def tests() -> list[str]:
        return outcomes.rdkafka_tests((programs/'tests'/'test.c').read_text(encoding='utf-8'))

    def one(test: str, server: Server, seen: Seen, deadline: float) -> Outcome:
        report = work/f'{test}.json'
        report.unlink(missing_ok=True)
        env = {**os.environ, 'TESTS': test, 'TEST_KAFKA_VERSION': '4.1.1', 'TEST_REPORT': str(report),
               'TEST_CONSUMER_GROUP_PROTOCOL': protocol, 'RDKAFKA_TEST_CONF': str(work/'test.conf'),
               'LD_LIBRARY_PATH': f'{programs}/src:{programs}/src-cpp', 'BROKERS': f'127.0.0.1:{server.port}',
               **scripts}
        seconds = max(min(ALONE, deadline - time.monotonic()), 1)
        printed = ''.join(lines_of([programs/'tests'/'test-runner', '-L', '-p1', '-Q', '-K'], seconds,
                                   cwd=programs/'tests', env=env))
        outcome = outcomes.rdkafka_outcome(test, report.read_text() if report.exists() else '', printed)
        seen(test, outcome.state)
        return outcome

    def on(server: Server, wanted: list[str], seconds: float, seen: Seen) -> dict[str, Outcome]:
        (work/'test.conf').write_text(f'bootstrap.servers=127.0.0.1:{server.port}\ntest.topic.random=true\n'
                                       'test.timeout.multiplier=3\n')    # the scripts start a Java each
        deadline = time.monotonic() + seconds
        with ThreadPoolExecutor(AT_ONCE) as pool:   # a process for each: one that aborts takes no others with it
            try: return dict(zip(wanted, pool.map(lambda test: one(test, server, seen, deadline), wanted)))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in [*RUNNING]: processes.stop(process, 5)
                raise
    return tests, on


# --- sarama: its functional tests talk through a proxy that breaks connections when they ask it to ---

TOXIPROXY = 'github.com/Shopify/toxiproxy/v2', 'v2.5.0'


def toxiproxy() -> Path:
    "The proxy, built."
    def fill(home: Path):
        run('go', 'install', f'{TOXIPROXY[0]}/cmd/server@{TOXIPROXY[1]}', cwd=home, env=go_environment(GOBIN=str(home)))
    return made(CACHE/f'toxiproxy-{TOXIPROXY[1]}', fill)/'server'


def five_ports() -> int:
    "A number after which the next five are free ports."
    for base in range(29090, 60000, 10):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(base + 1, base + 6): stack.enter_context(socket.socket()).bind(('127.0.0.1', port))
            return base
    raise RuntimeError('no five free ports in a row')


@contextlib.contextmanager
def proxies(server: Server):
    "A proxy at each of the five addresses at which sarama's tests expect a broker; all of them lead to ours."
    port = processes.free_port()
    with processes.running([toxiproxy(), '-host', '127.0.0.1', '-port', port]) as process:
        processes.wait_for_port(port, process)
        for number in range(5):
            body = {'name': f'kafka{number + 1}', 'listen': f'127.0.0.1:{server.proxy + number}',
                    'upstream': f'127.0.0.1:{server.port}', 'enabled': True}
            urllib.request.urlopen(urllib.request.Request(f'http://127.0.0.1:{port}/proxies', json.dumps(body).encode(),
                                                          {'Content-Type': 'application/json'}), timeout=10).close()
        yield {'TOXIPROXY_ADDR': f'http://127.0.0.1:{port}'}


# --- the list ---

AUTHORIZED = {'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
              'allow.everyone.if.no.acl.found': 'true'}
CREATES = {'auto.create.topics.enable': 'true'}
RDKAFKA = '@confluentinc/kafka-javascript', '1.10.1'
RDKAFKA_PACKAGE = f'npm {RDKAFKA[0]} {RDKAFKA[1]}, which has the sources of librdkafka 2.15.1'
C_TOOLS = 'npm', 'make', 'gcc', 'g++'

# what it is tested with in its repository, where the modules are side by side; its go.mod names older ones
KFAKE_NEEDS = tuple(('go.mod', f'{name} v{old}', f'{name} v{new}') for name, old, new in (
    ('franz-go', '1.21.7', '1.22.2'), ('kadm', '1.18.0', '1.19.0'), ('kmsg', '1.14.0', '1.15.0')))

# a mistake of theirs, which ends all that run beside them: what they look up offsets with is nil
KAFKA_GO_PANICS = '^TestReaderConsumerGroup$/^(verify_offset_committed.*|consumer_group_commits_on_close)$'

SUITES = {suite.name: suite for suite in (
    Suite('franz-go', 'Go module github.com/twmb/franz-go v1.22.2, pkg/kgo', ('go',), 900,
          functools.partial(go_suite, module='github.com/twmb/franz-go', version='v1.22.2', package='pkg/kgo',
                            address='KGO_SEEDS',
                            environment=lambda server: {'KGO_SEEDS': f'127.0.0.1:{server.port}', 'KGO_TEST_RF': '1',
                                                        'KGO_TEST_RECORDS': '50000', 'KGO_LOG_LEVEL': 'none'})),
    Suite('kfake', "Go module github.com/twmb/franz-go/pkg/kfake of 2026-09-18, Kafka's own tests, ported",
          ('go',), 600,
          functools.partial(go_suite, module='github.com/twmb/franz-go/pkg/kfake',
                            version='v0.0.0-20260918054303-01f206a7e32c', package='kafka_tests', address='newCluster',
                            left_out=r'ControlKey|\.Fault\(|NumBrokers\(3|group\.max\.size|session\.timeout\.ms',
                            stand_in='kfake.go', edits=lambda server: KFAKE_NEEDS,
                            environment=lambda server: {'KAFKA_ADDRESS': f'127.0.0.1:{server.port}'}),
          {'group.consumer.min.heartbeat.interval.ms': 100, 'group.consumer.heartbeat.interval.ms': 100}),
    Suite('kafka-python', 'PyPI kafka-python 3.0.12, the tests in its sdist', (), 900,
          functools.partial(kafka_python, version='3.0.12'),
          {**AUTHORIZED, **CREATES, 'node.id': 0, 'num.partitions': 4, 'group.min.session.timeout.ms': 1000}),
    Suite('librdkafka', f'{RDKAFKA_PACKAGE}; classic groups', C_TOOLS, 2400,
          functools.partial(librdkafka, package=RDKAFKA[0], version=RDKAFKA[1], protocol='classic'),
          {**AUTHORIZED, **CREATES, 'num.partitions': 4}),
    Suite('librdkafka-848', f'{RDKAFKA_PACKAGE}; groups of KIP-848', C_TOOLS, 2400,
          functools.partial(librdkafka, package=RDKAFKA[0], version=RDKAFKA[1], protocol='consumer'),
          {**AUTHORIZED, **CREATES, 'num.partitions': 4}),
    Suite('sarama', 'Go module github.com/IBM/sarama v1.61.1, through toxiproxy v2.5.0', ('go',), 1200,
          functools.partial(go_suite, module='github.com/IBM/sarama', version='v1.61.1', package='.',
                            address='FunctionalTestEnv', options=('-tags=functional',), around=proxies,
                            left_out='DockerTestBroker|"docker"',
                            edits=lambda server: (('functional_test.go', 'Factor: 3,', 'Factor: 1,'),
                                                  ('functional_test.go', '29090+i', f'{server.proxy - 1}+i')),
                            environment=lambda server: {'KAFKA_VERSION': '4.1.1'}),
          {'auto.create.topics.enable': 'false'}, proxied=True),
    Suite('kafka-go', 'Go module github.com/segmentio/kafka-go v0.4.51', ('go',), 1200,
          functools.partial(go_suite, module='github.com/segmentio/kafka-go', version='v0.4.51', package='.',
                            options=('-parallel=16', f'-skip={KAFKA_GO_PANICS}'),
                            address=r':9092"|TCP\("localhost"\)', left_out=r'TCP\("127.0.0.1"\)',
                            edits=lambda server: (('*_test.go', 'TCP("localhost")', f'TCP("localhost:{server.port}")'),
                                                  ('*_test.go', '9092', str(server.port))),
                            environment=lambda server: {'KAFKA_VERSION': '4.1.1'}),
          # some of its tests make a topic while the first members of a group are being waited for
          {**AUTHORIZED, **CREATES, 'message.max.bytes': 200_000_000, 'group.initial.rebalance.delay.ms': 3000},
          host='localhost'),
)}
