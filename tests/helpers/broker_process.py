"A broker as its users meet it: a process that is started by `your_program.sh`, and sockets to talk to it."
import contextlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parents[1]/'fixtures'
PATIENCE = 20   # seconds: never what a test measures, only when it gives up
SCREENFUL = 24  # lines

META = 'cluster.id=Q2x1c3RlcklkT2ZUaGVUZXN0\ndirectory.id=EAAAAAAAQACAAAAAAAAAAQ\nnode.id={node_id}\nversion=1\n'


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def environment(**changes) -> dict[str, str]:
    "Ours, with this Python first on the path; None takes a variable out."
    env = {**os.environ, 'PATH': os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH'], **changes}
    return {name: value for name, value in env.items() if value is not None}


def wait_until(condition, what: str, patience: float = PATIENCE):
    "Polls until the condition holds, and returns what it gave."
    deadline = time.monotonic() + patience
    while True:
        found = condition()
        if found: return found
        assert time.monotonic() < deadline, f'waited {patience} s in vain: {what}'
        time.sleep(0.01)


def properties(path: Path, **settings) -> Path:
    "Writes a properties file; `log_dirs=...` becomes `log.dirs=...`."
    path.write_text(''.join(f'{name.replace("_", ".")}={value}\n' for name, value in settings.items()))
    return path


class Client:
    "A socket with frames on it."
    def __init__(self, port: int, host: str = '127.0.0.1', patience: float = PATIENCE,
                 receive_buffer: int | None = None):
        self.socket, self.received = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET), bytearray()
        if receive_buffer: self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(patience)
        try: self.socket.connect((host, port))
        except BaseException:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self): return self
    def __exit__(self, *_): self.close()
    def close(self): self.socket.close()
    def half_close(self): self.socket.shutdown(socket.SHUT_WR)
    def send(self, data: bytes): self.socket.sendall(data)

    def receive(self, n: int) -> bytes | None:
        "So many bytes; None if the connection was closed before, whichever way."
        while len(self.received) < n:
            try: data = self.socket.recv(1 << 16)
            except (ConnectionResetError, BrokenPipeError): data = b''
            if not data: return None
            self.received += data
        data = bytes(self.received[:n])
        del self.received[:n]
        return data

    def frame(self) -> bytes | None:
        "The next frame, with its length; None if the connection was closed."
        head = self.receive(4)
        rest = None if head is None else self.receive(struct.unpack('>i', head)[0])
        return None if rest is None else head + rest

    def ask(self, request: bytes) -> bytes | None:
        self.send(request)
        return self.frame()

    def is_closed(self) -> bool:
        "Waits until the broker closes; anything that it says instead is a failure."
        rest = self.receive(1)
        assert rest is None, f'expected the end of the connection, not {(rest + self.received)[:100]}'
        return True

    def stays_open(self, seconds: float = 0.2) -> bool:
        "Silence, and no end of it."
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try: data = self.socket.recv(1)
        except TimeoutError: return True
        except ConnectionResetError: return False
        finally: self.socket.settimeout(before)
        assert data == b'', f'expected silence, not {data}'
        return False


class BrokerProcess:
    "The program, its output in two files, and its pid."
    def __init__(self, directory: Path, *arguments, port: int | None = None, program: Path = ROOT/'your_program.sh',
                 cwd=None, env: dict | None = None, limit=None):
        self.port, self.stdout_file, self.stderr_file = port, directory/f'stdout-{time.monotonic_ns()}', directory/f'stderr-{time.monotonic_ns()}'  # noqa: E501
        with open(self.stdout_file, 'wb') as out, open(self.stderr_file, 'wb') as err:
            self.process = subprocess.Popen([os.fspath(program), *map(os.fspath, arguments)], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=err,
                                            cwd=cwd, env=environment() if env is None else env, preexec_fn=limit)

    pid = property(lambda self: self.process.pid)
    stdout = property(lambda self: self.stdout_file.read_text())
    stderr = property(lambda self: self.stderr_file.read_text())

    def wait_ready(self, host: str = '127.0.0.1') -> 'BrokerProcess':
        "Until it says that it is ready, and the port accepts connections."
        def ready():
            assert self.process.poll() is None, f'the broker ended with {self.process.returncode}: {self.stderr}'
            return 'ready on' in self.stdout
        wait_until(ready, 'the broker to be ready')
        Client(self.port, host).close()
        return self

    def client(self, **options) -> Client: return Client(self.port, **options)

    def ask(self, request: bytes) -> bytes | None:
        "One request on a connection of its own."
        with self.client() as client: return client.ask(request)

    def proc(self, name: str) -> Path:
        "What Linux tells about processes and connections; elsewhere the test is left out."
        if not Path('/proc/self/status').exists(): pytest.skip('needs /proc')
        return Path('/proc')/name

    def memory(self) -> int:
        "Resident bytes."
        return next(int(line.split()[1]) << 10 for line in self.proc(f'{self.pid}/status').read_text().splitlines()
                    if line.startswith('VmRSS'))

    def open_files(self) -> int: return len(os.listdir(self.proc(f'{self.pid}/fd')))

    def holds(self, client: Client) -> bool:
        "Does the broker still have its end of this connection?"
        ends = f':{self.port:04X}', f':{client.socket.getsockname()[1]:04X}'
        rows = [line.split() for line in self.proc('net/tcp').read_text().splitlines()[1:]]
        # established, or only closed by the client
        return any(row[3] in ('01', '08') and row[1].endswith(ends[0]) and row[2].endswith(ends[1]) for row in rows)

    def wait(self) -> int: return self.process.wait(PATIENCE)

    def stop(self, number: int = signal.SIGTERM) -> int:
        "Asks it to stop, and waits until it has; returns its exit code."
        if self.process.poll() is None: self.process.send_signal(number)
        try: return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(PATIENCE)
            raise AssertionError(f'the broker did not stop on signal {number}: {self.stderr}') from None

    def check_end(self):
        "It stopped when asked, and nothing went wrong that it did not expect."
        assert self.stop() == 0, self.stderr
        assert 'Traceback' not in self.stderr and 'mistake of ours' not in self.stderr, self.stderr


@contextlib.contextmanager
def running(directory: Path, env: dict | None = None, program: Path = ROOT/'your_program.sh', cwd=None, limit=None,
            listeners: str = 'PLAINTEXT://127.0.0.1:{port}', **settings):
    """A broker with a log directory below the given one. When its block is left it is stopped, and must not have
    complained."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {'node_id': 1, 'listeners': listeners.format(port=port), 'log_dirs': directory/'logs', **settings}
    file = properties(directory/'server.properties', **{name: value for name,
                                                        value in settings.items() if value is not None})
    broker = BrokerProcess(directory, file, port=port, env=env, program=program, cwd=cwd, limit=limit)
    try: yield broker.wait_ready()
    except BaseException:
        with contextlib.suppress(AssertionError): broker.stop()
        raise
    broker.check_end()


def run_to_end(directory: Path, *arguments, **options) -> BrokerProcess:
    "The program where it should give up by itself."
    process = BrokerProcess(directory, *arguments, **options)
    try: process.wait()
    except subprocess.TimeoutExpired:
        process.stop()
        raise AssertionError(f'it should have given up, but it ran: {process.stdout}') from None
    return process


OURS = '.lock', '.kafka_cleanshutdown', 'recovery-point-offset-checkpoint', 'replication-offset-checkpoint', 'log-start-offset-checkpoint'  # noqa: E501


def tree(directory: Path) -> dict:
    "Everything below a directory, but for what any broker writes at its root: to see that nothing has changed."
    paths = [path for path in sorted(directory.rglob('*')) if path.name not in OURS]
    return {path.relative_to(directory): (path.stat().st_mtime_ns,
                                          path.read_bytes()) if path.is_file() else None for path in paths}


def assert_quiet(broker):
    "It has not written more than fits on a screen."
    lines = (broker.stdout + broker.stderr).splitlines()
    assert len(lines) <= SCREENFUL, f'{len(lines)} lines, the last of them: {lines[-1]}'


@contextlib.contextmanager
def many_clients(broker, n: int):
    "Many connections, for which this process may need to have more files open."
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < n + 200: pytest.skip(f'only {hard} files may be open here')
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 200), hard))
    with contextlib.ExitStack() as stack: yield [stack.enter_context(broker.client()) for _ in range(n)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
