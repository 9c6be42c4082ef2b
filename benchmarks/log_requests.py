"""Small Produce and Fetch requests, side by side: this broker, the fastest server there could be, and Apache Kafka.

    python -m benchmarks.log_requests             # about a quarter of an hour; Kafka takes part when Java and its jars
    are here
    python -m benchmarks.log_requests --quick     # two minutes: does everything work?
    python -m benchmarks.log_requests --profile   # where this broker spends its time, function by function

Built as `requests` is: all servers run at the same time, and the load goes from one to the next within each round.
Kafka
creates the topics and fills the one that is read; this broker starts on a copy of that directory. No two neighbouring
requests are alike: a batch comes from a pool of a thousand, and a Fetch starts at a random offset of a random
partition.
"""
import argparse
import json
import os
import pstats
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

if __package__ in (None, ''):  # started as a file: make the repository's root importable instead of this folder
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from benchmarks import load, machine, metadata_log, processes, real_kafka, report, wire
from benchmarks.processes import note
from benchmarks.report import KAFKA, OURS
from benchmarks.requests import RESULTS, Server, Stage, measure, run_load, start_brokers, start_canned
from benchmarks.requests import write_properties

PARTITIONS = 4
WRITTEN, READ = 'written', 'read'  # one topic is written to, the other one is read from
TOPICS = {WRITTEN: PARTITIONS, READ: PARTITIONS}
VALUE_SIZE = 100
FETCH_BYTES = 1000                 # partition_max_bytes: five whole batches of one record, and the beginning of a sixth
# batches at the end of the log that no Fetch starts at, so that all answers are equally long
KEEP_OFF = 100
PROFILED = ('produce-1', 'produce-10', 'produce-150', 'produce-4x1', 'fetch', 'fetch-2')
TOP = 25                           # functions in a profile


def batches(count: int, records: int, chance: random.Random) -> list[bytes]:
    "Batches as a producer sends them, no two alike: `records` records of 100 bytes each, no key."
    now = time.time_ns() // 1_000_000
    return [metadata_log.batch(0, records, b''.join(metadata_log.record(delta,
        chance.randbytes(VALUE_SIZE)) for delta in range(records)),
                               timestamp=now) for _ in range(count)]


def produce_pool(topic: bytes | str, records: int, version: int, acks: int, partitions: int = 1,
                 count: int = load.RING) -> list[bytes]:
    "Produce requests that go to the partitions in turn: a batch for each of `partitions` neighbours."
    made = batches(count, records, random.Random(records))
    return [wire.produce_request(topic,
                                 {(number + more) % PARTITIONS: made[number - more] for more in range(partitions)},
                                 version, acks)
            for number in range(count)]


def fetch_pool(topic: bytes, filled: int, partitions: int = 1) -> list[bytes]:
    "Fetch requests for random places of a log with `filled` batches in each partition."
    chance = random.Random(3)
    return [wire.fetch_request(topic, {partition: chance.randrange(filled - KEEP_OFF)
                                       for partition in chance.sample(range(PARTITIONS), partitions)}, FETCH_BYTES)
            for _ in range(load.DISTINCT)]


def prepare_questions(scratch: Path, topics: dict[str, bytes], filled: int) -> dict[str, wire.Question]:
    "All questions of the benchmark; `topics` are the ids of the topics."
    written, read = topics[WRITTEN], topics[READ]
    pools = {
        'produce-1': ('Produce v13, acks=all, 1 record of 100 B', produce_pool(written, 1, 13, -1)),
        'produce-1-leader': ('Produce v13, acks=1, 1 record of 100 B', produce_pool(written, 1, 13, 1)),
        'produce-1-v11': ('Produce v11, acks=all, 1 record of 100 B', produce_pool(WRITTEN, 1, 11, -1)),
        'produce-10': ('Produce v13, acks=all, 10 records of 100 B', produce_pool(written, 10, 13, -1)),
        'produce-10-leader': ('Produce v13, acks=1, 10 records of 100 B', produce_pool(written, 10, 13, 1)),
        'produce-4x1': (f'Produce v13, acks=all, {PARTITIONS} partitions, 1 record of 100 B each',
                        produce_pool(written, 1, 13, -1, PARTITIONS)),
        'fetch': (f'Fetch v16, up to {FETCH_BYTES} B from a random offset', fetch_pool(read, filled)),
        'fetch-2': (f'Fetch v16, 2 partitions, up to {FETCH_BYTES} B from a random offset of each',
                    fetch_pool(read, filled, 2))}
    return {key: wire.write_pool(scratch / f'{key}.requests', pool, name) for key, (name, pool) in pools.items()}


def topic_ids(port: int) -> dict[str, bytes]:
    return {topic: wire.parse_topic_id(wire.exchange(port, wire.describe_request(topic))) for topic in TOPICS}


def wait_until_led(port: int, topic: bytes, batch: bytes) -> None:
    "A new partition has a leader in the metadata a little before that leader knows of it."
    request = wire.produce_request(topic, dict.fromkeys(range(PARTITIONS), batch))
    wire.wait_for(lambda: not any(error for error, _ in wire.parse_produce(wire.exchange(port, request), 13).values()),
                  30,
                  'every partition taking a batch')


def fill(port: int, scratch: Path, filled: int) -> None:
    "Put at least `filled` batches of one record into every partition of the topic that will be read."
    topic = topic_ids(port)[READ]
    made = batches(load.RING, 1, random.Random(2))
    pool = [wire.produce_request(topic, {partition: made[number - partition] for partition in range(PARTITIONS)})
            for number in range(load.RING)]
    question = wire.write_pool(scratch / 'fill.requests', pool, 'fill')
    wait_until_led(port, topic, made[0])
    load.measure(port, question, in_flight=16, seconds=300, count=filled)
    note(f'{filled:,} batches in each of {PARTITIONS} partitions')


def prepare(scratch: Path, log_dir: Path, filled: int) -> tuple[real_kafka.RealKafka | None, dict[str, bytes]]:
    "Kafka with its topics in place, stopped again, or None; and in `log_dir` the same content for this broker."
    if reason := real_kafka.absent():
        note(reason)
        return None, prepare_by_hand(scratch, log_dir, filled)
    kafka = real_kafka.RealKafka(scratch / 'kafka', heap='1g')
    with kafka:
        kafka.create_topics(TOPICS)
        fill(kafka.port, scratch, filled)
        topics = topic_ids(kafka.port)
    shutil.copytree(kafka.log_dir, log_dir, ignore=shutil.ignore_patterns('.lock'))
    return kafka, topics


def start_broker(stage: Stage, log_dir: Path, name: str, *module) -> tuple[int, int]:
    "This broker in `log_dir` itself, for as long as the stage lasts; its port and its process."
    port = processes.free_port()
    properties = write_properties(stage.scratch / f'{name}.properties', port, log_dir)
    process = stage.start([sys.executable, '-m', *(module or ('kafka_scratch.broker.server',)), properties], name, port)
    return port, process.pid


def prepare_by_hand(scratch: Path, log_dir: Path, filled: int) -> dict[str, bytes]:
    "The topics without Kafka: a directory written by hand, filled by this broker; the ids of the topics."
    metadata_log.write_topics(log_dir, TOPICS)
    with ExitStack() as stack:
        port, _ = start_broker(Stage(scratch, stack, {}), log_dir, 'filling')
        fill(port, scratch, filled)
        return topic_ids(port)


def compare(servers: list[Server], question: wire.Question, count: int = 100) -> None:
    "All servers read the same log: their answers have to be the same, byte for byte."
    for request in question.pool[:count]:
        answers = {server.name: wire.exchange(next(iter(server.ports.values())), request) for server in servers}
        if len(set(answers.values())) > 1:
            raise wire.WrongAnswer(
                f'different answers to {request.hex()}: { {name: each.hex() for name, each in answers.items()} }')
    if len(servers) > 1:
        note(f'{count} Fetch answers of {" and ".join(server.name for server in servers)} are the same, byte for byte')


def warm_up(server: Server, questions: dict[str, wire.Question], seconds: float) -> None:
    """Kafka's code is compiled while it runs: every question until its rate stays, in the mode that uses most of its
    threads."""
    for key, question in questions.items():
        rates = [run_load(server, key, question, (50, 1), seconds / 4)['rate'] for _ in range(4)]
        note(f'warming up {server.name}, {key}: {" → ".join(f"{rate:,.0f}" for rate in rates)} requests/s')


def run(scratch: Path, rounds: int, seconds: float, warming: float, filled: int) -> dict:
    "The whole benchmark; what it measured."
    neighbours = machine.Neighbours()
    log_dir = scratch / 'kafka_scratch-logs'
    kafka, topics = prepare(scratch, log_dir, filled)
    with ExitStack() as stack:
        stage = Stage(scratch, stack, prepare_questions(scratch, topics, filled))
        start_brokers(stage, log_dir, (OURS,))
        if kafka:
            stack.enter_context(kafka)
            stage.add(KAFKA, kafka.port, kafka.pid)
        for key in ('fetch', 'fetch-2'):
            compare(stage.servers, stage.questions[key])
        start_canned(stage, stage.servers[0])
        note(f'running: {", ".join(server.name for server in stage.servers)}')
        for server in stage.servers:
            if server.name == KAFKA:
                warm_up(server, stage.questions, warming)
        cells = measure(stage.servers, stage.questions, rounds, seconds)
    return {'machine': f'{machine.describe()} {neighbours.describe()}', 'rounds': rounds, 'seconds': seconds,
            'warm_up': warming, 'filled': filled, 'partitions': PARTITIONS, 'cells': cells}


def profile(scratch: Path, seconds: float, filled: int) -> dict:
    "This broker under cProfile, with 64 requests in flight so that it never waits; the functions that took longest."
    log_dir, found = scratch / 'kafka_scratch-logs', {}
    topics = prepare_by_hand(scratch, log_dir, filled)
    questions = prepare_questions(scratch, topics, filled)
    questions['produce-150'] = wire.write_pool(scratch / 'produce-150.requests',
                                               produce_pool(topics[WRITTEN], 150, 13, -1, count=64),
                                               'Produce v13, acks=all, 150 records of 100 B: as full as a producer '
                                               'makes a batch')
    for key in PROFILED:
        question, output = questions[key], scratch / f'{key}.prof'
        with ExitStack() as stack:
            own_dir = shutil.copytree(log_dir, scratch / f'profiled-{key}')
            port, pid = start_broker(Stage(scratch, stack, {}), own_dir, f'profiled-{key}', 'benchmarks.profiled',
                                     output)
            load.measure(port, question, seconds=.2)
            os.kill(pid, signal.SIGUSR1)
            done = load.measure(port, question, in_flight=64, seconds=seconds, warm_up=0)
        found[question.name] = {'requests': done.requests, 'rate': done.rate,
                                'functions': functions(output, done.requests)}
        note(f'profiled: {key}')
    return {'machine': machine.describe(), 'seconds': seconds, 'profiles': found}


def functions(path: Path, requests: int) -> list[dict]:
    "The functions with the most time of their own; times in seconds per request."
    stats = pstats.Stats(str(path)).stats
    rows = [{'function': function_name(*place), 'calls': calls / requests, 'own': own / requests,
             'with_callees': cumulative / requests}
            for place, (_, calls, own, cumulative, _) in stats.items()]
    # what runs once a second, or when the broker stops, isn't of interest
    served = [row for row in rows if row['calls'] > .01]
    return sorted(served, key=lambda row: -row['own'])[:TOP]


def function_name(file: str, line: int, name: str) -> str:
    "`produce.py:111 walk_records`; a function of C has neither file nor line; a codec was made by `exec`."
    return name.strip('<>') if file in ('~', '') else f'{Path(file).name.strip("<>")}:{line} {name}'


def main() -> None:
    """Measure small Produce and Fetch requests of this broker beside a canned server and Apache Kafka; write table and
    plots."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument('--rounds', type=int, default=9, help='interleaved rounds; the median is reported')
    parser.add_argument('--seconds', type=float, default=.7, help='per cell and round')
    parser.add_argument('--warm-up', type=float, default=8, help='seconds per question that Kafka is warmed up for')
    parser.add_argument('--batches', type=int, default=20_000,
                        help='how many batches each partition holds that is read')
    parser.add_argument('--results', type=Path, default=RESULTS, help='where table, plots and raw figures go')
    parser.add_argument('--quick', action='store_true', help='one short round, to see whether it works')
    parser.add_argument('--profile', action='store_true',
                        help='run this broker alone, under cProfile, and print where the time goes')
    parser.add_argument('--redraw', action='store_true', help='only write table and plots again, from the raw figures')
    options = parser.parse_args()
    machine.need('uvloop', 'matplotlib', 'crc32c')
    processes.end_cleanly_on_sigterm()
    if options.quick:
        options.rounds, options.seconds, options.warm_up, options.batches = 1, .3, 2, 2000
    options.results.mkdir(parents=True, exist_ok=True)
    raw = options.results / ('log_profile.json' if options.profile else 'log_requests.json')
    if not options.redraw:
        with tempfile.TemporaryDirectory() as scratch:
            found = (profile(Path(scratch), max(options.seconds * 4, 1), options.batches) if options.profile else
                     run(Path(scratch), options.rounds, options.seconds, options.warm_up, options.batches))
            raw.write_text(json.dumps(found, indent=1))
    print((report.write_profile if options.profile else report.write_log_requests)(json.loads(raw.read_text()),
        options.results))


if __name__ == '__main__':
    main()
