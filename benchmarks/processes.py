"""Servers as child processes: started, watched and always stopped, by their own process group."""
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

CLOCK_TICKS = os.sysconf('SC_CLK_TCK')


def free_port() -> int:
    "A port of 127.0.0.1 that nothing listens on right now."
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def start(command: list, output: Path | None = None, **options) -> subprocess.Popen:
    "Start `command` in a process group of its own, with stdout and stderr in `output` (or nowhere)."
    sink = open(output, 'ab') if output else subprocess.DEVNULL
    try:
        return subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=sink,
                                stderr=subprocess.STDOUT, start_new_session=True, **options)
    finally:
        if output:
            sink.close()


def stop(process: subprocess.Popen, patience: float = 30) -> None:
    "Ask the process (and what it started) to end; insist after `patience` seconds."
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        _signal_group(process, number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    _signal_group(process, signal.SIGKILL)  # a child that outlived its parent


def _signal_group(process: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


@contextmanager
def running(command: list, output: Path | None = None, **options) -> Iterator[subprocess.Popen]:
    "The process, for as long as the block lasts."
    process = start(command, output, **options)
    try:
        yield process
    finally:
        stop(process, patience=5)


def wait_for_port(port: int, process: subprocess.Popen, seconds: float = 30, output: Path | None = None) -> None:
    "Return as soon as 127.0.0.1:port accepts a connection; fail at once when the process ends before."
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = output.read_text(errors='replace')[-2000:] if output and output.exists() else ''
            raise RuntimeError(f'{process.args[0]} ended with code {process.returncode} before it listened\n{said}')
        with socket.socket() as probe:
            if probe.connect_ex(('127.0.0.1', port)) == 0:
                return
        time.sleep(.001)
    raise TimeoutError(f'nothing listens on port {port} after {seconds} s')


def cpu_seconds(pid: int) -> float:
    "Processor time the process has used so far, all its threads together, in user and kernel mode."
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def end_cleanly_on_sigterm() -> None:
    "Turn SIGTERM into SystemExit, so that `finally` blocks stop the children."
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def note(*words) -> None:
    "Progress, on stderr."
    print(*words, file=sys.stderr, flush=True)
