"""What a person with an ordinary client notices: how soon a broker is there, how long a record is on its way, how long
a
group takes to share out its partitions. This broker and Apache Kafka, side by side.

    python -m benchmarks.clients                # some minutes
    python -m benchmarks.clients --quick        # one short round, to see whether it works

The client is confluent-kafka for both. Servers take turns within a round; ratios are taken within a round, and the
median of
the rounds is reported, with the extremes.
"""
import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from benchmarks import machine, processes, real_kafka, wire
from benchmarks.processes import note

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / 'benchmarks' / 'results'
OURS, KAFKA, FIXTURE, LIMIT = 'kafka_scratch', 'Apache Kafka', 'kafka_scratch, as a fixture', 'the limit'
PATIENCE = 60  # seconds: never what is measured, only when we give up
# The same for both. Heartbeats set the pace of a rebalance: members hear of it when they report the next time.
SETTINGS = {'group.initial.rebalance.delay.ms': 0, 'offsets.topic.num.partitions': 5,
            'offsets.topic.replication.factor': 1,
            'group.consumer.heartbeat.interval.ms': 500, 'group.consumer.min.heartbeat.interval.ms': 500,
            'group.coordinator.append.linger.ms': 0}
PARTITIONS, HEARTBEAT = 12, 500
PAUSE, STAMP = .002, 20  # seconds between two records; bytes of a record: the time it was sent
BIND_ONLY = ("import socket, sys, time; server = socket.socket(); server.bind(('127.0.0.1', int(sys.argv[1]))); "
             "server.listen(); time.sleep(60)")


# --- Start ------------------------------------------------------------------------------------------------------------

def until_open(port: int, process: subprocess.Popen) -> None:
    "Return when the port takes connections."
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(('127.0.0.1', port), .2).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError('the server did not start') from None
            time.sleep(.002)


def start_process(command: list, port: int, ask: bool = True) -> float:
    "Seconds from starting a server to its first answer (or, without `ask`, to an open port)."
    began = time.monotonic()
    with processes.running(command, cwd=ROOT) as process:
        until_open(port, process)
        if ask:
            wire.parse_api_versions(wire.exchange(port, wire.api_versions_request()))
        return time.monotonic() - began


def start_ours(scratch: Path) -> float:
    port = processes.free_port()
    return start_process([ROOT / 'your_program.sh', write_properties(scratch, port)], port)


def start_limit(scratch: Path) -> float:
    port = processes.free_port()
    return start_process([sys.executable, '-c', BIND_ONLY, port], port, ask=False)


def start_fixture(scratch: Path) -> float:
    "The context manager of the pytest fixture, in this process."
    from kafka_scratch.broker.running import running_broker
    began = time.monotonic()
    with running_broker() as broker:
        port = int(broker.bootstrap_servers.rpartition(':')[2])
        wire.parse_api_versions(wire.exchange(port, wire.api_versions_request()))
        return time.monotonic() - began


def start_kafka(scratch: Path) -> float:
    """On a new directory, which has to be formatted first: that is what a fixture would do. The formatting is not
    counted."""
    kafka = real_kafka.RealKafka(scratch / f'start-{time.monotonic_ns()}', heap='1g')
    kafka.format()
    began = time.monotonic()
    try:
        kafka.start(wait=False)
        until_open(kafka.port, kafka.process)
        wire.parse_api_versions(wire.exchange(kafka.port, wire.api_versions_request()))
        return time.monotonic() - began
    finally:
        kafka.stop()


def write_properties(scratch: Path, port: int, directory: Path | None = None) -> Path:
    path = scratch / f'{port}.properties'
    settings = {**SETTINGS, 'listeners': f'PLAINTEXT://127.0.0.1:{port}',
                'log.dirs': directory or scratch / f'logs-{port}', 'node.id': 1}
    path.write_text(''.join(f'{name}={value}\n' for name, value in settings.items()))
    return path


# --- On its way -------------------------------------------------------------------------------------------------------

class Lane:
    "A way from a sender to a receiver: here a topic with one partition. `found` has the seconds each record took."

    def __init__(self, bootstrap: str, topic: str):
        from confluent_kafka import Consumer, Producer, TopicPartition
        self.topic, self.found = topic, []
        self.consumer = Consumer({'bootstrap.servers': bootstrap, 'group.id': 'latency', 'enable.auto.commit': False})
        self.consumer.assign([TopicPartition(topic, 0, 0)])
        self.producer = Producer({'bootstrap.servers': bootstrap, 'linger.ms': 0, 'acks': 'all'})

    def send(self, stamp: bytes) -> None:
        self.producer.produce(self.topic, stamp, partition=0)
        self.producer.poll(0)

    def receive(self) -> bytes | None:
        record = self.consumer.poll(1)
        return None if record is None or record.error() else record.value()

    def receive_all(self, count: int, deadline: float) -> None:
        while len(self.found) < count and time.monotonic() < deadline:
            if stamp := self.receive():
                self.found.append((time.perf_counter_ns() - int(stamp)) / 1e9)

    def close(self) -> None:
        self.producer.flush(PATIENCE)
        self.consumer.close()


class Echo(Lane):
    "The limit: one socket, there and back, from thread to thread, without any broker."

    def __init__(self):
        self.found = []
        with socket.create_server(('127.0.0.1', 0)) as server:
            self.near = socket.create_connection(server.getsockname())
            self.far, _ = server.accept()
        for each in (self.near, self.far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.settimeout(PATIENCE)
        threading.Thread(target=self.reflect, daemon=True).start()

    def reflect(self) -> None:
        while data := self.far.recv(4096):
            self.far.sendall(data)

    def send(self, stamp: bytes) -> None:
        self.near.sendall(stamp)

    def receive(self) -> bytes:
        return self.near.recv(STAMP, socket.MSG_WAITALL)

    def close(self) -> None:
        self.near.close()


def latencies(lanes: dict[str, Lane], count: int, pause: float) -> dict[str, list[float]]:
    """Seconds from `produce` to the consumer's hands, record by record: one record to each lane in turn, one every
    `pause` seconds,
    so that all of them see the same minutes of this machine."""
    deadline = time.monotonic() + PATIENCE + count * len(lanes) * pause
    receivers = [threading.Thread(target=lane.receive_all, args=(count, deadline)) for lane in lanes.values()]
    for receiver in receivers:
        receiver.start()
    for _ in range(count):
        for lane in lanes.values():
            lane.send(b'%0*d' % (STAMP, time.perf_counter_ns()))
            time.sleep(pause)
    for receiver in receivers:
        receiver.join()
    for name, lane in lanes.items():
        lane.close()
        if len(lane.found) < count:
            raise RuntimeError(f'{name}: {len(lane.found)} of {count} records arrived')
    return {name: lane.found[count // 10:] for name, lane in lanes.items()}  # the first ones find everything cold


# --- Groups -----------------------------------------------------------------------------------------------------------

class Member:
    "A consumer of a group, polled by a thread of its own; knows what it owns."

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str):
        from confluent_kafka import Consumer
        classic = {'session.timeout.ms': 6000, 'heartbeat.interval.ms': HEARTBEAT,
                   'partition.assignment.strategy': 'cooperative-sticky'} if protocol == 'classic' else {}
        self.consumer = Consumer({'bootstrap.servers': bootstrap, 'group.id': group, 'group.protocol': protocol,
                                  'auto.offset.reset': 'earliest', **classic})
        self.ended, self.owned = threading.Event(), set()
        self.consumer.subscribe([topic], on_assign=self.take, on_revoke=self.give, on_lost=self.give)
        self.thread = threading.Thread(target=self.poll)
        self.thread.start()

    def poll(self) -> None:
        while not self.ended.is_set():
            self.consumer.poll(.01)

    def take(self, _, partitions: list) -> None:
        self.owned |= {each.partition for each in partitions}

    def give(self, _, partitions: list) -> None:
        self.owned -= {each.partition for each in partitions}

    def close(self) -> None:
        self.ended.set()
        self.thread.join()
        self.consumer.close()


def wait(condition, what: str) -> float:
    "Seconds until a condition holds."
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + PATIENCE:
            raise RuntimeError(f'waited in vain for {what}')
        time.sleep(.001)
    return time.monotonic() - began


def rebalance(bootstrap: str, topic: str, protocol: str) -> dict[str, float]:
    "Seconds until the partitions are shared out: with a first member, when a second one comes, and when it leaves."
    group = f'{topic}-{protocol}-{time.monotonic_ns()}'
    began = time.monotonic()
    members = [Member(bootstrap, group, topic, protocol)]
    try:
        wait(lambda: len(members[0].owned) == PARTITIONS, 'the first member')
        first, began = time.monotonic() - began, time.monotonic()
        members.append(Member(bootstrap, group, topic, protocol))
        wait(lambda: [len(member.owned) for member in members] == [PARTITIONS // 2] * 2, 'the second member')
        second, began = time.monotonic() - began, time.monotonic()
        members.pop().close()
        wait(lambda: len(members[0].owned) == PARTITIONS, 'the one that stays')
        return {'first': first, 'second': second, 'leave': time.monotonic() - began}
    finally:
        for member in members:
            member.close()


# --- The run ----------------------------------------------------------------------------------------------------------

def create_topics(bootstrap: str, topics: dict[str, int]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({'bootstrap.servers': bootstrap})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()])
    for future in made.values():
        future.result(PATIENCE)


def measure(rounds: int, count: int, scratch: Path) -> list[dict]:
    "All figures: dictionaries of round, what, server, seconds."
    cells = []
    reason = real_kafka.absent()
    if reason:
        note(reason)

    def add(number: int, what: str, server: str, seconds: float) -> None:
        note(f'round {number + 1}/{rounds}  {what}  {server}: {seconds * 1000:,.1f} ms')
        cells.append({'round': number, 'what': what, 'server': server, 'seconds': seconds})

    starters = {OURS: start_ours, FIXTURE: start_fixture, LIMIT: start_limit,
                **({} if reason else {KAFKA: start_kafka})}
    for number in range(rounds):
        for server, starter in starters.items():
            add(number, 'start', server, starter(scratch))

    with ExitStack() as stack:
        port = processes.free_port()
        process = stack.enter_context(processes.running([ROOT / 'your_program.sh', write_properties(scratch, port)],
                                                        scratch / 'ours.out', cwd=ROOT))
        processes.wait_for_port(port, process, output=scratch / 'ours.out')
        servers = {OURS: f'127.0.0.1:{port}'}
        if not reason:
            kafka = stack.enter_context(real_kafka.RealKafka(scratch / 'kafka', SETTINGS, heap='1g'))
            servers[KAFKA] = f'127.0.0.1:{kafka.port}'
        topics = {f'{what}-{number}': partitions for number in range(-1, rounds) for what,
                  partitions in (('latency', 1), ('shared', PARTITIONS))}
        for bootstrap in servers.values():
            create_topics(bootstrap, topics)
        for number in range(-1, rounds):  # the first round warms up
            turn = list(servers.items())[::1 if number % 2 else -1]
            lanes = {server: Lane(at, f'latency-{number}') for server, at in turn} | {LIMIT: Echo()}
            for name, found in latencies(lanes, count, PAUSE).items():
                if number >= 0:
                    for percent in (50, 99):
                        add(number, f'latency p{percent}', name, sorted(found)[len(found) * percent // 100])
            for protocol in ('classic', 'consumer'):
                for server, at in turn:
                    for what, seconds in rebalance(at, f'shared-{number}', protocol).items():
                        if number >= 0:
                            add(number, f'{protocol} {what}', server, seconds)
    return cells


# --- The report -------------------------------------------------------------------------------------------------------

ROWS = {'start': ('from start to the first answer', LIMIT + ' here is a Python that only binds a port'),
        'latency p50': ('a record from `produce` to the consumer, half of them within',
                        'one record to each in turn, every 2 ms, acks=all; the limit is one socket, there and back'),
        'latency p99': ('… 99 of 100 within', ''),
        'classic first': ('classic group: first member has all 12 partitions after',
                          f'heartbeats every {HEARTBEAT} ms'),
        'classic second': ('… a second one came, and each has 6 after',
                           'two rebalances, since the assignment is cooperative'),
        'classic leave': ('… it left, and the first has all after', ''),
        'consumer first': ('KIP-848 group: first member has all', f'heartbeats every {HEARTBEAT} ms'),
        'consumer second': ('… a second one came', ''), 'consumer leave': ('… it left', '')}


def table(cells: list[dict]) -> list[str]:
    lines = [f'| | {OURS} | as a fixture | {KAFKA} | the limit | Kafka takes … times as long | |',
             '|---|--:|--:|--:|--:|--:|---|']
    for what, (title, remark) in ROWS.items():
        found = {server: {cell['round']: cell['seconds'] for cell in cells if cell['what'] == what
                          and cell['server'] == server}
                 for server in (OURS, FIXTURE, KAFKA, LIMIT)}
        shown = [f'{statistics.median(values.values()) * 1000:,.1f} ms' if values else '–' for values in found.values()]
        ratios = sorted(found[KAFKA][number] / seconds for number,
                        seconds in found[OURS].items() if number in found[KAFKA])
        ratio = f'{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})' if ratios else '–'
        lines.append(f'| {title} | {" | ".join(shown)} | {ratio} | {remark} |')
    return lines


def write_report(run: dict, results: Path) -> str:
    text = '\n'.join(['# Clients', '', run['machine'], '',
                      f'Medians of {run["rounds"]} rounds; ratios within a round, with the extremes.', '',
                      *table(run['cells']), ''])
    (results / 'clients.md').write_text(text)
    return text


def main() -> None:
    "Measure start, latency and rebalance of this broker and of Apache Kafka with an ordinary client; write a table."
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--rounds', type=int, default=5, help='interleaved rounds; the median is reported')
    parser.add_argument('--records', type=int, default=2000, help='records for each figure of latency')
    parser.add_argument('--results', type=Path, default=RESULTS, help='where table and raw figures go')
    parser.add_argument('--quick', action='store_true', help='one short round, to see whether it works')
    parser.add_argument('--redraw', action='store_true', help='only write the table again, from the raw figures')
    options = parser.parse_args()
    machine.need('uvloop', 'crc32c', 'confluent-kafka')
    processes.end_cleanly_on_sigterm()
    if options.quick:
        options.rounds, options.records = 1, 300
    options.results.mkdir(parents=True, exist_ok=True)
    raw = options.results / 'clients.json'
    if not options.redraw:
        neighbours = machine.Neighbours()
        with tempfile.TemporaryDirectory() as scratch:
            cells = measure(options.rounds, options.records, Path(scratch))
        raw.write_text(json.dumps({'machine': f'{machine.describe()} {neighbours.describe()}', 'rounds': options.rounds,
                                   'cells': cells}, indent=1))
    print(write_report(json.loads(raw.read_text()), options.results))


if __name__ == '__main__':
    main()
