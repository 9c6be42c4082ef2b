"""A Spark cluster as its users have it: a master and workers, each a process of its own, and the package installed from
a wheel."""
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from broker_process import ROOT, environment, wait_until

sys.path.insert(0, str(ROOT))
from benchmarks import processes

PATIENCE = 300   # seconds: never what a test measures, only when it gives up


def build_wheel(directory: Path) -> Path:
    """The project as a wheel, built from a copy: nothing is left behind in the checkout, and nothing old is taken from
    it."""
    source = directory/'source'
    shutil.copytree(ROOT/'kafka_scratch', source/'kafka_scratch', ignore=shutil.ignore_patterns('__pycache__'))
    for name in 'setup.py', 'pyproject.toml', 'settings.ini', 'MANIFEST.in', 'README.md', 'LICENSE':
        shutil.copy(ROOT/name, source)
    run(sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps', '--no-build-isolation', '--no-index',
        '--wheel-dir', directory, source)
    return next(directory.glob('kafka_scratch-*.whl'))


def environment_with(wheel: Path, directory: Path) -> Path:
    """The Python of a new virtual environment with the wheel in it. Everything else is that of this environment, by a
    line that names its place."""
    import pyspark
    run(sys.executable, '-m', 'venv', '--without-pip', directory)
    python = directory/'bin'/'python'
    run(sys.executable, '-m', 'pip', '--python', python, 'install', '--quiet', '--no-deps', '--no-index', wheel)
    site = next(directory.glob('lib/python*/site-packages'))
    # after this directory, and its own .pth files don't count
    (site/'everything_else.pth').write_text(f'{Path(pyspark.__file__).parents[1]}\n')
    return python


def run(*command):
    done = subprocess.run([os.fspath(word) for word in command], capture_output=True, text=True, timeout=PATIENCE,
                          env=environment())
    assert done.returncode == 0, f'{command}\n{done.stdout}{done.stderr}'


def descendants(pid: int) -> list[int]:
    "The processes that this one has started, and theirs."
    parents = {}
    for path in Path('/proc').glob('[0-9]*/stat'):
        with suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(')')[2].split()[1]), []).append(int(path.parent.name))
    found = list(parents.get(pid, ()))
    for child in found: found += parents.get(child, ())
    return found


def is_alive(pid: int) -> bool:
    "Running, not only waiting for its parent to take notice."
    with suppress(OSError): return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] not in 'ZX'
    return False


def kill(*pids: int):
    for pid in pids:
        with suppress(ProcessLookupError): os.kill(pid, signal.SIGKILL)


class Cluster:
    "A standalone master and its workers on loopback, for as long as the `with` block lasts."

    def __init__(self, directory: Path, java_home: Path, workers: int = 2):
        import pyspark
        self.directory, self.number = directory, workers
        self.spark_class = Path(pyspark.__file__).parent/'bin'/'spark-class'
        self.env = environment(JAVA_HOME=str(java_home), SPARK_LOCAL_IP='127.0.0.1', SPARK_DAEMON_MEMORY='256m',
                               SPARK_CONF_DIR=str(directory),
                               SPARK_PUBLIC_DNS='127.0.0.1', PYTHONPATH=None, SPARK_HOME=None, PYSPARK_PYTHON=None)
        self.workers: list[subprocess.Popen] = []
        self.seen: set[int] = set()   # all processes that were ever below a worker

    def start(self, name: str, *arguments) -> subprocess.Popen:
        command = [self.spark_class, f'org.apache.spark.deploy.{name.split("-")[0]}', '--host', '127.0.0.1',
                   '--webui-port', '0', *arguments]
        return processes.start(command, self.directory/f'{name}.out', cwd=self.directory, env=self.env)

    def __enter__(self) -> 'Cluster':
        self.directory.mkdir(parents=True)
        port = processes.free_port()
        self.master = f'spark://127.0.0.1:{port}'
        self.master_process = self.start('master.Master', '--port', port)
        try:
            processes.wait_for_port(port, self.master_process, PATIENCE, self.log)
            self.complete()
        except BaseException:
            self.__exit__()
            raise
        return self

    def complete(self) -> 'Cluster':
        "Starts the workers that are missing."
        while sum(worker.poll() is None for worker in self.workers) < self.number:
            number = len(self.workers)
            arguments = '--cores', '1', '--memory', '1g', '--work-dir', self.directory/f'work-{number}', self.master
            self.workers.append(self.start(f'worker.Worker-{number}', *arguments))
        wait_until(lambda: self.log.read_text().count('Registering worker') == len(self.workers),
                   'the workers to come to the master', PATIENCE)
        return self

    @property
    def log(self) -> Path: return self.directory/'master.Master.out'

    def look(self):
        "Remembers every process that is there now, to see in the end that all have gone."
        for worker in self.workers: self.seen.update(descendants(worker.pid))

    def lose(self) -> int:
        "A machine goes away: a worker, its executor and that one's Pythons, all at once. Returns which."
        number, worker = next((number, worker) for number, worker in enumerate(self.workers) if worker.poll() is None)
        self.look()
        below = descendants(worker.pid)
        assert below, 'the worker has no executor'
        kill(worker.pid, *below)
        worker.wait(PATIENCE)
        return number

    def __exit__(self, *_):
        "Executors end when their worker does, and their Pythons with them; what doesn't is ended, and is a failure."
        self.look()
        for process in [*self.workers, self.master_process]: processes.stop(process, 30)
        try: wait_until(lambda: not any(map(is_alive, self.seen)), 'executors and their Pythons to end', 30)
        finally: kill(*filter(is_alive, self.seen))
