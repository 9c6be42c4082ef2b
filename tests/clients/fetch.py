"""What the drivers need beyond Python: is it here, and how to get it.

    python tests/clients/fetch.py            # says what is missing
    python tests/clients/fetch.py --fetch    # gets what can be had with Maven, npm and go (and, as root with apt,
    kcat and Chromium), once

Packages come from wherever those are set up to look, in the versions that the lock files name, and go into
~/.cache/kafka_scratch. Java's jars are those of benchmarks/real_kafka.py (Apache Kafka itself is among them) and
benchmarks/spark_connector.py.
"""
import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from benchmarks import real_kafka, spark_connector

CACHE = Path.home()/'.cache'/'kafka_scratch'/'clients'
TIMEOUT = 600
HOW = 'run `python tests/clients/fetch.py --fetch`'


def made_from(*files: str) -> Path:
    "A directory of the cache that belongs to these files, as they are now."
    content = b'\0'.join((HERE/file).read_bytes() for file in files)
    return CACHE/f'{(HERE/files[0]).resolve().parent.name}-{hashlib.sha256(content).hexdigest()[:12]}'


def run(*command, **options): subprocess.run(list(map(str, command)), check=True, timeout=TIMEOUT, **options)

def all_or_nothing(directory: Path, fill):
    "Fills a new directory, which appears when it is complete."
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        fill(Path(scratch)/'new')
        if not directory.exists(): os.rename(Path(scratch)/'new', directory)


# --- kafkajs: npm ---

def kafkajs_directory() -> Path: return made_from('kafkajs/package.json', 'kafkajs/package-lock.json')

def kafkajs_absent() -> str | None:
    if shutil.which('node') is None: return 'no `node` on PATH'
    if not (kafkajs_directory()/'node_modules').exists(): return f'kafkajs is not in {CACHE}: {HOW} (needs npm)'

def fetch_kafkajs():
    if shutil.which('node') is None or shutil.which('npm') is None: return print('kafkajs: no `npm` on PATH')
    def fill(directory):
        directory.mkdir()
        for name in 'package.json', 'package-lock.json': shutil.copy(HERE/'kafkajs'/name, directory)
        run('npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error', cwd=directory)
    all_or_nothing(kafkajs_directory(), fill)


# --- franz-go: go ---

def franz_go_program() -> Path: return made_from('franz_go/main.go', 'franz_go/go.mod', 'franz_go/go.sum')/'driver'

def franz_go_absent() -> str | None:
    if franz_go_program().exists(): return None
    if shutil.which('go') is None: return 'no `go` on PATH'
    try: build_franz_go(subprocess.DEVNULL, GOPROXY='off')
    except (subprocess.SubprocessError, OSError): return f"franz-go's modules are not in {CACHE}: {HOW} (needs go)"

def build_franz_go(complaints=None, **environment):
    "The driver, built; what it needs is downloaded, unless GOPROXY is off."
    environment = {**os.environ, 'GOMODCACHE': str(CACHE/'go'), 'GOFLAGS': '-mod=readonly -modcacherw -buildvcs=false',
                   'GOTOOLCHAIN': 'local', 'CGO_ENABLED': '0', **environment}
    all_or_nothing(franz_go_program().parent, lambda directory: run('go', 'build', '-o', directory/'driver', '.',
                                                                    cwd=HERE/'franz_go', env=environment,
                                                                    stderr=complaints))

def fetch_franz_go():
    if shutil.which('go') is None: return print('franz-go: no `go` on PATH')
    build_franz_go()


# --- kcat, and a browser for the site: packages of the system ---

def install_package(name: str):
    "Only where a machine is ours to change: in CI, as root, with apt."
    if not (os.environ.get('CI') and os.geteuid() == 0 and shutil.which('apt-get')):
        return print(f'{name}: install it with your package manager')
    quietly = dict(env={**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}, stdout=subprocess.DEVNULL)
    install = 'apt-get', 'install', '-y', '-q', '--no-install-recommends', name
    try: run(*install, **quietly)
    except subprocess.CalledProcessError:
        run('apt-get', 'update', '-q', **quietly)   # on a new machine it may not know yet what there is
        run(*install, **quietly)

def kcat_absent() -> str | None:
    if shutil.which('kcat') is None: return 'no `kcat` on PATH: install it with your package manager'

def fetch_kcat(): install_package('kcat')

def chromium_program() -> str | None:
    return next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)

def chromium_absent() -> str | None:
    if chromium_program() is None: return 'no `chromium` on PATH: install it with your package manager'

def fetch_chromium(): install_package('chromium')


# --- Java: jars by Maven, our own program by javac ---

def java_classes() -> Path: return made_from('java/Driver.java')

def java_absent() -> str | None:
    if reason := real_kafka.absent(): return reason
    if java_classes().exists(): return None
    if shutil.which('javac') is None: return 'no `javac` on PATH: the Java driver needs a JDK'
    all_or_nothing(java_classes(), lambda directory: run('javac', '-d', directory, '-cp', f'{real_kafka.libs()}/*',
                                                         HERE/'java'/'Driver.java'))

def fetch_java():
    "Apache Kafka, its clients and its tools."
    if shutil.which('java') is None or shutil.which('mvn') is None:
        return print('Apache Kafka: no `java` and `mvn` on PATH')
    real_kafka.fetch_jars()

def console_absent() -> str | None:
    if reason := real_kafka.absent(): return reason
    if not list(real_kafka.libs().glob('slf4j-simple-*.jar')):
        return f'no slf4j-simple in {real_kafka.libs()}: what the console tools log is part of what they say'

def spark_absent() -> str | None:
    if importlib.util.find_spec('pyspark') is None: return 'pyspark is not installed'
    return spark_connector.absent()

def fetch_spark():
    if shutil.which('mvn') is None: return print("Spark's connector: no `mvn` on PATH")
    spark_connector.fetch_jars()


def python_absent(module: str):
    def absent(): return None if importlib.util.find_spec(module) else f'{module} is not installed'
    return absent


ABSENT = {'confluent-kafka': python_absent('confluent_kafka'), 'kafka-python': python_absent('kafka'),
          'aiokafka': python_absent('aiokafka'), 'kcat': kcat_absent,
          'kafkajs': kafkajs_absent, 'franz-go': franz_go_absent, 'java': java_absent, 'console': console_absent,
          'spark': spark_absent, 'chromium': chromium_absent}
FETCH = {'kcat': fetch_kcat, 'chromium': fetch_chromium, 'kafkajs': fetch_kafkajs, 'franz-go': fetch_franz_go,
         'java': fetch_java, 'spark': fetch_spark}

# A Java that is started for a second or two: it shouldn't spend them on getting fast.
QUICK_JAVA = '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-Xmx256m'


def command(client: str) -> list:
    "How a client's driver is started."
    if client == 'franz-go': return [franz_go_program()]
    if client == 'kafkajs': return ['node', HERE/'kafkajs'/'driver.js', kafkajs_directory()/'node_modules']
    if client == 'java':
        return [real_kafka.java(), *QUICK_JAVA, real_kafka.QUIET, '-cp',
                f'{java_classes()}{os.pathsep}{real_kafka.libs()}/*', 'Driver']
    return [sys.executable, HERE/{'confluent-kafka': 'confluent_driver.py', 'kafka-python': 'kafka_python_driver.py',
                                  'aiokafka': 'aiokafka_driver.py',
                                  'kcat': 'kcat_driver.py', 'console': 'console_driver.py',
                                  'spark': 'spark_driver.py'}[client]]


def main():
    "Say which clients are here; with --fetch, get those that can be had."
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--fetch', action='store_true')
    wanted = parser.parse_args().fetch
    for client, absent in ABSENT.items():
        reason = absent()
        if reason and wanted and client in FETCH:
            print(f'Fetching {client} (once; up to a minute)', flush=True)
            try:
                FETCH[client]()
                reason = absent()
            except (subprocess.SubprocessError, OSError, real_kafka.KafkaAbsent) as error:
                reason = f'it could not be fetched: {error}'
        if reason or not wanted: print(f'{client}: {reason or "here"}')


if __name__ == '__main__': main()
