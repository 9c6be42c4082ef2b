"""Requests per second, side by side: this broker, the fastest server there could be, and Apache Kafka.

    python -m benchmarks.requests                 # about ten minutes; Kafka takes part when Java and its jars are here
    python -m benchmarks.requests --rounds 3      # a quick look

Every server runs at the same time, and the load goes from one to the next within each round, so that a slow minute of
the machine hits all of them. Ratios are taken inside a round, then the median of the rounds is reported.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from benchmarks import machine, metadata_log, processes, real_kafka, report, wire
from benchmarks.processes import note
from benchmarks.report import BARE, KAFKA, LIMIT, OURS, PLAIN, PROGRAM

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / 'benchmarks' / 'results'
TOPICS = {'three': 3, 'hundred': 100}
MODES = ((1, 1), (50, 1), (1, 64))  # (connections, in flight on each)
QUESTIONS = {'api-versions': wire.api_versions(), 'describe-3': wire.describe('three', 3),
             'describe-100': wire.describe('hundred', 100), 'distinct-3': wire.describe('three', 3, distinct=True)}
BIND_ONLY = ("import socket, sys, time; server = socket.socket(); server.bind(('127.0.0.1', int(sys.argv[1]))); "
             "server.listen(); time.sleep(60)")


@dataclass
class Server:
    "Something that answers: a port and a process for each question."
    name: str
    ports: dict[str, int]
    pids: dict[str, int]


@dataclass
class Stage:
    "The servers of a run, and where their files are."
    scratch: Path
    stack: ExitStack
    questions: dict[str, wire.Question]
    servers: list[Server] = field(default_factory=list)

    def start(self, command: list, name: str, port: int, **options) -> subprocess.Popen:
        "Start a server and wait for its port; it is stopped with the stage."
        output = self.scratch / f'{name}.out'
        process = self.stack.enter_context(processes.running(command, output, cwd=ROOT, **options))
        processes.wait_for_port(port, process, output=output)
        return process

    def add(self, name: str, port: int, pid: int) -> None:
        self.servers.append(Server(name, dict.fromkeys(self.questions, port), dict.fromkeys(self.questions, pid)))


def prepare_kafka(scratch: Path) -> real_kafka.RealKafka | None:
    "Kafka with the topics in place, stopped again; None when it is not here."
    if reason := real_kafka.absent():
        note(reason)
        return None
    kafka = real_kafka.RealKafka(scratch / 'kafka', heap='1g')
    with kafka:
        kafka.create_topics(TOPICS)
    return kafka


def prepare_log_dir(scratch: Path, kafka: real_kafka.RealKafka | None) -> Path:
    "The directory this broker starts on: a copy of what Kafka wrote, or one of the same content."
    log_dir = scratch / 'kafka_scratch-logs'
    if kafka:
        shutil.copytree(kafka.log_dir, log_dir, ignore=shutil.ignore_patterns('.lock'))
    else:
        metadata_log.write_topics(log_dir, TOPICS)
    return log_dir


def write_properties(path: Path, port: int, log_dir: Path) -> Path:
    "A server.properties for this broker."
    path.write_text(f'node.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={log_dir}\n')
    return path


def start_brokers(stage: Stage, log_dir: Path, names: tuple = (OURS, PLAIN)) -> None:
    "This broker, twice: with uvloop and with the standard library's event loop."
    for name in names:
        port, short = processes.free_port(), name.rpartition(' ')[2]
        # A directory each: they must not write into each other's logs.
        own_dir = stage.scratch / f'logs-{short}'
        shutil.copytree(log_dir, own_dir)
        properties = write_properties(stage.scratch / f'{short}.properties', port, own_dir)
        environment = {**os.environ, 'KAFKA_SCRATCH_LOOP': short}
        process = stage.start([sys.executable, '-m', 'kafka_scratch.broker.server', properties], short, port,
                              env=environment)
        stage.add(name, port, process.pid)


def start_canned(stage: Stage, source: Server) -> None:
    "A canned server per question, loaded with the answer that `source` gives."
    ports, pids = {}, {}
    for key, question in stage.questions.items():
        answer = wire.exchange(source.ports[key], question.request)
        question.check(answer)
        path = stage.scratch / f'{key}.answer'
        path.write_bytes(answer)
        ports[key] = processes.free_port()
        command = [sys.executable, '-m', 'benchmarks.canned', '--port', ports[key], '--answer', path]
        pids[key] = stage.start(command, f'canned-{key}', ports[key]).pid
    stage.servers.append(Server(LIMIT, ports, pids))


def run_load(server: Server, key: str, question: wire.Question, mode: tuple[int, int], seconds: float) -> dict:
    "One cell: the load generator in a process of its own."
    command = [sys.executable, '-m', 'benchmarks.load', '--json', '--port', server.ports[key], '--pid',
               server.pids[key],
               '--connections', mode[0], '--in-flight', mode[1], '--seconds', seconds, *question.arguments]
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True,
                          timeout=seconds + 60)
    if done.returncode:
        raise RuntimeError(f'{server.name}, {key}, {mode}: {done.stderr[-1000:]}')
    return json.loads(done.stdout)


def in_turn(servers: list[Server], number: int) -> list[Server]:
    "The servers in another order each round: another one first, and every other time backwards."
    turn = number // 2 % len(servers)
    order = servers[turn:] + servers[:turn]
    return order[::-1] if number % 2 else order


def measure(servers: list[Server], questions: dict[str, wire.Question], rounds: int, seconds: float) -> list[dict]:
    "All cells, `rounds` times; each round visits the servers in another order. The first, unrecorded round warms up."
    cells = []
    for number in range(-1, rounds):
        for key, question in questions.items():
            for mode in MODES:
                for server in in_turn(servers, number):
                    result = run_load(server, key, question, mode, seconds)
                    if number >= 0:
                        cells.append({'round': number, 'server': server.name, 'question': question.name,
                                      'connections': mode[0], 'in_flight': mode[1], **result})
                note(f'{f"round {number + 1}/{rounds}" if number >= 0 else "warm-up"}  {key}  '
                     f'{mode[0]} connections, {mode[1]} in flight')
    return cells


def interpreter() -> str:
    "The Python that your_program.sh picks when `sys.executable` comes first on PATH."
    own = ROOT / '.venv' / 'bin' / 'python'
    return str(own) if own.exists() else sys.executable


def time_start(command: list, port: int, answers: bool, patience: float = 60) -> dict:
    "Seconds from starting the command to its port accepting, and to its first ApiVersions answer."
    environment = {**os.environ, 'PATH': f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'}
    began = time.perf_counter()
    with processes.running(command, cwd=ROOT, env=environment) as process:
        processes.wait_for_port(port, process, patience)
        times = {'open': time.perf_counter() - began}
        if answers:
            wire.wait_for(lambda: wire.parse_api_versions(wire.exchange(port, wire.api_versions_request())), patience,
                          'an answer', pause=.001)
            times['answer'] = time.perf_counter() - began
        return times


def measure_start(scratch: Path, log_dir: Path, kafka: real_kafka.RealKafka | None, runs: int) -> dict[str, list[dict]]:
    "Start times: this broker through your_program.sh, a Python that only binds a port, and Kafka."
    properties = scratch / 'start.properties'
    times: dict[str, list[dict]] = {PROGRAM: [], BARE: []}
    ours, bare = times.values()
    for number in range(runs + 1):  # the first run fills caches, and is not counted
        port = processes.free_port()
        if (ROOT / 'your_program.sh').exists() and have_broker():
            command = [ROOT / 'your_program.sh', write_properties(properties, port, log_dir)]
            ours.append(time_start(command, port, answers=True))
        port = processes.free_port()
        bare.append(time_start([interpreter(), '-c', BIND_ONLY, port], port, answers=False))
    times = {name: found[1:] for name, found in times.items()}
    if kafka:
        kafka_command = real_kafka.command('kafka.Kafka', kafka.directory / 'server.properties', heap=kafka.heap,
                                           options=real_kafka.SERVER_OPTIONS)
        times[KAFKA] = [time_start(kafka_command, kafka.port, answers=True) for _ in range(min(runs, 3))]
    note('start times measured')
    return {name: found for name, found in times.items() if found}


def have_broker() -> bool:
    "Whether the package's broker has been exported."
    return (ROOT / 'kafka_scratch' / 'broker.py').exists()


def run(scratch: Path, rounds: int, seconds: float, starts: int) -> dict:
    "The whole benchmark; what it measured."
    neighbours = machine.Neighbours()
    kafka = prepare_kafka(scratch)
    log_dir = prepare_log_dir(scratch, kafka)
    start_log_dir = shutil.copytree(log_dir, scratch / 'logs-start')
    starting = measure_start(scratch, start_log_dir, kafka, starts)
    with ExitStack() as stack:
        stage = Stage(scratch, stack, QUESTIONS)
        if have_broker():
            start_brokers(stage, log_dir)
        if kafka:
            stack.enter_context(kafka)
            stage.add(KAFKA, kafka.port, kafka.pid)
        if not stage.servers:
            raise SystemExit('Nothing to measure: neither this broker nor Kafka is here.')
        start_canned(stage, stage.servers[0])
        note(f'running: {", ".join(server.name for server in stage.servers)}')
        cells = measure(stage.servers, QUESTIONS, rounds, seconds)
    return {'machine': f'{machine.describe()} {neighbours.describe()}', 'rounds': rounds, 'seconds': seconds,
            'starts': starting, 'cells': cells}


def main() -> None:
    "Measure requests per second of this broker beside a canned server and Apache Kafka; write table and plots."
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--rounds', type=int, default=15, help='interleaved rounds; the median is reported')
    parser.add_argument('--seconds', type=float, default=.5, help='per cell and round')
    parser.add_argument('--starts', type=int, default=11, help='how many starts to time')
    parser.add_argument('--results', type=Path, default=RESULTS, help='where table, plots and raw figures go')
    parser.add_argument('--redraw', action='store_true', help='only write table and plots again, from the raw figures')
    options = parser.parse_args()
    machine.need('uvloop', 'matplotlib')
    processes.end_cleanly_on_sigterm()
    options.results.mkdir(parents=True, exist_ok=True)
    raw = options.results / 'requests.json'
    if not options.redraw:
        with tempfile.TemporaryDirectory() as scratch:
            raw.write_text(json.dumps(run(Path(scratch), options.rounds, options.seconds, options.starts), indent=1))
    print(report.write(json.loads(raw.read_text()), options.results))


if __name__ == '__main__':
    main()
