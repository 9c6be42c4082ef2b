#!/usr/bin/env python3
"""The report card: what test suites that others wrote say of this broker, and of Apache Kafka 4.1.1 beside it.

    tools/report_card.py                              every suite that can be had here, on both brokers
    tools/report_card.py --suite franz-go             one of them
    tools/report_card.py --only ours --run TestTxn    the tests whose names match, on this broker
    tools/report_card.py --list                       the suites, and what they need
    tools/report_card.py --show                       the card of the last runs, without running anything

Prints how many tests passed and failed on each, and every difference with its reason (report_card.toml). Exit code 1
says that a difference has none. A test that fails is run a second time, alone: the second time counts.
"""
import argparse
import contextlib
import datetime
import json
import re
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import report_suites
from report_outcomes import (FAILED, KAFKA, OURS, PASSED, Outcome, differences, explained, outlived, read_known, row,
                             table)
from report_suites import SUITES, Server, Suite
from benchmarks import processes, real_kafka
from benchmarks.processes import note

KNOWN = Path(__file__).with_suffix('.toml')
KEPT = report_suites.CACHE/'outcomes.json'
TITLES = {OURS: 'this broker', KAFKA: f'Apache Kafka {real_kafka.VERSION}'}
TALLY = 30              # seconds between two lines that say how far it is
AGAIN = 25              # more failures than this are not by chance, and not tried again


# --- the two brokers, with the same settings ---

def settings(suite: Suite) -> dict:
    return {'offsets.topic.replication.factor': 1, 'transaction.state.log.replication.factor': 1,
            'transaction.state.log.min.isr': 1, 'group.initial.rebalance.delay.ms': 0, **suite.settings}


@contextlib.contextmanager
def ours(directory: Path, suite: Suite, proxy: int | None):
    port = processes.free_port()
    properties = {'process.roles': 'broker,controller', 'node.id': 1, 'listeners': f'PLAINTEXT://127.0.0.1:{port}',
                  'advertised.listeners': f'PLAINTEXT://{suite.host}:{proxy or port}', 'log.dirs': directory/'logs',
                  **settings(suite)}
    file, output = directory/'server.properties', directory/'broker.out'
    file.write_text(''.join(f'{name}={value}\n' for name, value in properties.items()))
    with processes.running([ROOT/'your_program.sh', file], output) as process:
        processes.wait_for_port(port, process, 30, output)
        yield Server(port, proxy)
        if process.poll() is not None: raise RuntimeError(f'the broker ended:\n{output.read_text()[-2000:]}')
    if 'Traceback' in (said := output.read_text(errors='replace')): note(f'The broker complained:\n{said[-4000:]}')


@contextlib.contextmanager
def kafka(directory: Path, suite: Suite, proxy: int | None):
    server = real_kafka.RealKafka(directory, settings(suite), heap='1g')
    server.properties['controller.quorum.voters'] = f'{server.properties["node.id"]}@127.0.0.1:{server.controller_port}'
    server.properties['advertised.listeners'] = f'PLAINTEXT://{suite.host}:{proxy or server.port}'
    with server: yield Server(server.port, proxy)


BROKERS = {OURS: ours, KAFKA: kafka}


# --- a suite on a broker ---

class Progress:
    "Says on standard error what failed, and now and then how many have ended."

    def __init__(self, title: str, total: int):
        self.title, self.total, self.ended, self.next = title, total, {}, time.monotonic() + TALLY

    def __call__(self, test: str, state: str) -> None:
        self.ended[test] = state
        if state == FAILED: note(f'{self.title}: {test} failed')
        if time.monotonic() < self.next: return
        self.next = time.monotonic() + TALLY
        tops = {name for name in self.ended if '/' not in name}
        note(f'{self.title}: {len(tops)} of {self.total} have ended')


def take(suite: Suite, broker: str, pattern: str | None) -> dict[str, Outcome]:
    "The outcomes of a suite's tests on a broker that is started for it."
    title = f'{suite.name} on {TITLES[broker]}'
    with tempfile.TemporaryDirectory(prefix='report_card-') as scratch:
        for name in 'suite', 'broker': Path(scratch, name).mkdir()
        note(f'{title}: {suite.package}')
        tests, run = suite.prepare(Path(scratch, 'suite'))
        wanted = [test for test in tests() if not pattern or re.search(pattern, test)]
        if not wanted: return {}
        began, proxy = time.monotonic(), report_suites.five_ports() + 1 if suite.proxied else None
        with BROKERS[broker](Path(scratch, 'broker'), suite, proxy) as server:
            found = run(server, wanted, suite.seconds, Progress(title, len(wanted)))
            found |= again(title, found, lambda test: run(server, [test], report_suites.ALONE, lambda *_: None))
    passed = sum(each.state == PASSED for each in found.values())
    note(f'{title}: {passed} of {len(found)} passed, {time.monotonic() - began:.0f} s')
    return found


def again(title: str, found: dict[str, Outcome], alone) -> dict[str, Outcome]:
    "The tests that failed, each by itself: those that pass now."
    failed = [test for test, outcome in found.items() if outcome.state == FAILED]
    second = {}
    for test in failed if len(failed) <= AGAIN else ():
        if test not in second: second = alone(test) | second      # a subtest brings those beside it
    def states(test): return {each.state for name, each in second.items() if f'{name}/'.startswith(f'{test}/')}
    better = [test for test in failed if states(test) and FAILED not in states(test)]
    for test in better: note(f'{title}: {test} passed when it was run alone')
    return {test: Outcome(PASSED, tries=2) for test in better}


# --- what is kept between runs ---

def read_kept() -> dict:
    "suite → broker → {'date', 'outcomes'}"
    return json.loads(KEPT.read_text(encoding='utf-8')) if KEPT.exists() else {}


def keep(suite: str, broker: str, found: dict[str, Outcome], some: bool) -> None:
    "If only some tests have run, what is known of the others stays."
    kept = read_kept()
    before = outcomes_of(kept, suite, broker) if some else {}
    kept.setdefault(suite, {})[broker] = {'date': datetime.date.today().isoformat(),
                                          'outcomes': {test: asdict(each) for test, each in (before | found).items()}}
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(kept, indent=1), encoding='utf-8')


def outcomes_of(kept: dict, suite: str, broker: str) -> dict[str, Outcome]:
    return {test: Outcome(**each) for test, each in kept.get(suite, {}).get(broker, {}).get('outcomes', {}).items()}


# --- the card ---

def card(results: dict[str, dict[str, dict[str, Outcome]]], known: list) -> tuple[str, int]:
    "suite → broker → outcomes, as text; and how many differences nobody has explained."
    rows, found, old = [], [], []
    for suite, brokers in results.items():
        here, there = brokers.get(OURS, {}), brokers.get(KAFKA, {})
        rows.append(row(suite, here, there))
        found += differences(suite, here, there, known)
        old += outlived(suite, here, there, known)
    unexplained = [each for each in found if each.unexplained]
    text = '\n\n'.join(filter(None, [table(rows), explained(found), '\n'.join(old)]))
    return text, len(unexplained)


def words(results: dict, known: list) -> str:
    "What the tests themselves said that failed without a reason."
    return '\n'.join(f'--- {suite}, {test}, on {TITLES[broker]} ---\n{outcome.said.strip()}\n'
                     for suite, brokers in results.items()
                     for each in differences(suite, brokers.get(OURS, {}), brokers.get(KAFKA, {}), known)
                     if each.reason is None
                     for test, broker, outcome in ((each.test, OURS, each.ours), (each.test, KAFKA, each.kafka))
                     if outcome and outcome.state == FAILED)


def parse(arguments=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--suite', action='append', choices=[*SUITES], help='only this one; several times for several')
    parser.add_argument('--only', choices=[OURS, KAFKA], help='on one of the two brokers')
    parser.add_argument('--run', metavar='PATTERN', help='only the tests whose names match')
    parser.add_argument('--list', action='store_true', help='the suites, and what is missing to run them')
    parser.add_argument('--show', action='store_true', help='the card of the last runs, without running anything')
    parser.add_argument('--words', action='store_true', help='what tests said that failed without a known reason')
    return parser.parse_args(arguments)


def main() -> int:
    options = parse()
    suites = [SUITES[name] for name in options.suite or SUITES]
    brokers = [options.only] if options.only else [OURS, KAFKA]
    if options.list:
        for suite in suites: print(f'{suite.name}: {suite.package}' + (f' ({why})' if (why := suite.absent()) else ''))
        return 0
    kept, results = read_kept(), {}
    if options.show:
        results = {suite.name: {broker: outcomes_of(kept, suite.name, broker) for broker in brokers}
                   for suite in suites if suite.name in kept}
        for name in results:
            print(f'{name}:', ', '.join(f'{TITLES[broker]} {each["date"]}' for broker, each in kept[name].items()))
        print()
    else:
        processes.end_cleanly_on_sigterm()
        if KAFKA in brokers and (reason := real_kafka.absent()):
            note(f'Without Apache Kafka beside it: {reason}')
            brokers.remove(KAFKA)
        for suite in suites:
            if reason := suite.absent():
                note(f'{suite.name} is left out: {reason}')
                continue
            for broker in brokers:
                try: found = take(suite, broker, options.run)
                except (OSError, RuntimeError, TimeoutError) as error:
                    note(f'{suite.name} on {TITLES[broker]} could not run: {error}')
                    return 2
                results.setdefault(suite.name, {})[broker] = found
                keep(suite.name, broker, found, bool(options.run))
    known = read_known(KNOWN)
    text, unexplained = card(results, known)
    print(text)
    if options.words: print('\n' + words(results, known))
    if unexplained: note(f'{unexplained} unexplained')
    return 1 if unexplained else 0


if __name__ == '__main__': sys.exit(main())
