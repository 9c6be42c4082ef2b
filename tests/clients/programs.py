"The drivers as processes: started, listened to, ended."
import json
import os
import shlex
import subprocess
import threading
import time
from pathlib import Path

from clients.contract import PATIENCE


class DriverFailed(AssertionError):
    "The client couldn't do it; the message is what it said."


class Program:
    "A driver that runs: what it has printed so far, and how to end it."
    def __init__(self, command: list, errors: Path, cwd=None):
        self.command, self.errors, self.lines, self.news = [str(part) for part
                                                            in command], errors, [], threading.Condition()
        with open(errors, 'wb') as sink:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink,
                                            cwd=cwd, start_new_session=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.news:
                try: self.lines.append(json.loads(line))
                except ValueError: self.lines.append({'unexpected': line.decode(errors='replace')})
                self.news.notify_all()
        with self.news: self.news.notify_all()

    def said(self) -> str:
        return f'{shlex.join(self.command)}\n{self.lines[-3:]}\n' + self.errors.read_text(errors='replace')[-3000:]

    def wait_for(self, found, what: str, patience: float = PATIENCE):
        "Until `found(lines)` is true; returns that. Fails when the program ends before."
        deadline = time.monotonic() + patience
        with self.news:
            while not (result := found(self.lines)):
                if not self.reader.is_alive(): raise DriverFailed(f'it ended before: {what}\n{self.said()}')
                if not self.news.wait(min(deadline - time.monotonic(), 0.2)) and time.monotonic() > deadline:
                    raise DriverFailed(f'waited {patience} s in vain: {what}\n{self.said()}')
            return result

    def tell(self, line: str):
        self.process.stdin.write(line.encode() + b'\n')
        self.process.stdin.flush()

    def end(self, patience: float = PATIENCE) -> list[dict]:
        "Closes its stdin, and waits for its end, which must be a good one."
        self.process.stdin.close()
        try: code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DriverFailed(f'it did not end within {patience} s\n{self.said()}') from None
        self.reader.join(patience)
        if code: raise DriverFailed(f'it ended with {code}\n{self.said()}')
        return self.lines

    def kill(self):
        "Ends it, and what it has started, without a word of goodbye."
        try: os.killpg(self.process.pid, 9)
        except ProcessLookupError: pass
        self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)


def words(job: str, options: dict) -> list[str]:
    return [job, *(str(word) for name, value in options.items() for word in (f'--{name}', value))]


class Driver:
    "A client's driver: does jobs, each in a process of its own, or all in one where starting takes long."
    def __init__(self, command: list, scratch: Path, bootstrap: str, serves: bool = False, patience: float = PATIENCE):
        self.command, self.scratch, self.bootstrap, self.serves, self.patience = command, scratch, bootstrap, serves, patience  # noqa: E501
        self.server, self.members = None, []

    def start(self, job: str, **options) -> Program:
        "A job that goes on until it is ended."
        program = Program([*self.command, *words(job, {'bootstrap': self.bootstrap, **options})],
                          self.scratch/f'{job}-{time.monotonic_ns()}.err')
        self.members.append(program)
        return program

    def run(self, job: str, **options) -> list[dict]:
        "A job from beginning to end: the lines that it printed."
        return self._ask(words(job, {'bootstrap': self.bootstrap, **options})) if self.serves else self.start(job,
            **options).end(self.patience)

    def _ask(self, command: list[str]) -> list[dict]:
        if self.server is None:
            self.server = Program([*self.command, 'serve'], self.scratch/f'serve-{time.monotonic_ns()}.err')
        before = len(self.server.lines)
        self.server.tell(json.dumps(command))
        try:
            self.server.wait_for(lambda lines: len(lines) > before and lines[-1].keys() & {'done', 'failed'},
                                 f'{command} done', self.patience)
        except DriverFailed:
            self.server.kill()
            self.server = None
            raise
        *lines, last = self.server.lines[before:]
        if 'failed' in last: raise DriverFailed(f'{command}: {last["failed"]}')
        return lines

    def end_all(self):
        "Whatever still runs when a test is over."
        for program in self.members:
            if program.process.poll() is None: program.kill()
        self.members.clear()

    def close(self):
        self.end_all()
        if self.server: self.server.kill()
