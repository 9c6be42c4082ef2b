"""What test suites print, as outcomes; and two sets of outcomes, compared. All of it plain functions of text."""
import json
import re
import tomllib
import xml.etree.ElementTree
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Iterable

PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped'
OURS, KAFKA = 'ours', 'kafka'                                # the two brokers
SAID = 4000                                                  # characters of a failed test's own words that are kept


@dataclass(frozen=True)
class Outcome:
    "How one test ended."
    state: str                # passed, failed, skipped
    said: str = ''            # the end of what it printed, if it failed
    tries: int = 1            # 2: it failed beside the others, and was run again alone


# --- go test -json ---

GO_STATES = {'pass': PASSED, 'fail': FAILED, 'skip': SKIPPED}


class GoEvents:
    "Takes the lines of `go test -json` one by one. A test that has subtests is represented by them."

    def __init__(self):
        self.ended, self.words, self.loose = {}, {}, ''

    def take(self, line: str) -> tuple[str, str] | None:
        "A test that has ended by this line, and how."
        try: event = json.loads(line)
        except json.JSONDecodeError:
            self.loose = (self.loose + line)[-SAID:]         # the compiler's words, say
            return None
        test, action = event.get('Test'), event['Action']
        if action in ('output', 'build-output'):
            if test: self.words[test] = (self.words.get(test, '') + event['Output'])[-SAID:]
            else: self.loose = (self.loose + event['Output'])[-SAID:]
        elif test and action == 'run': self.words.setdefault(test, '')
        elif test and action in GO_STATES:
            self.ended[test] = GO_STATES[action]
            return test, self.ended[test]
        return None

    def outcomes(self) -> dict[str, Outcome]:
        "By test. One that began and never ended (a panic, the clock) has failed."
        states = {test: self.ended.get(test, FAILED) for test in self.words}
        parents = {test.rpartition('/')[0] for test in states} - {''}
        def by_itself(test):   # a parent whose subtests are all well, and that failed nevertheless
            return states[test] == FAILED and all(state != FAILED for name, state in states.items()
                                                  if name.startswith(test + '/'))
        return {test: Outcome(state, self.words[test] or self.loose if state == FAILED else '')
                for test, state in sorted(states.items()) if test not in parents or by_itself(test)}


# written in one line, or down to the brace below its first letter
GO_FUNCTION = re.compile(r'^func (\([^)]*\) )?(\w+)([^\n]*\}$|.*?^\})', re.M | re.S)


def go_tests(sources: Iterable[str], address: str) -> list[str]:
    """The tests that can come to the place that knows the broker's address (a pattern), by the functions they call.

    `func TestA(t *testing.T) { dial() }` and `func dial() { os.Getenv("SEEDS") }` → ['TestA'] for 'SEEDS'.
    """
    bodies, functions = {}, set()
    for text in sources:
        for method, name, body in GO_FUNCTION.findall(text):
            bodies[name] = bodies.get(name, '') + body
            if not method: functions.add(name)
    asks = re.compile(address)
    reaching, new = set(), {name for name, body in bodies.items() if asks.search(body)}
    while new:
        reaching |= new
        calls = re.compile(r'\b(?:' + '|'.join(map(re.escape, sorted(new))) + r')\b')
        new = {name for name, body in bodies.items() if name not in reaching and calls.search(body)}
    return sorted(name for name in reaching & functions if re.match('Test[A-Z0-9_]', name))


# --- pytest's junit file ---

def junit(text: str) -> dict[str, Outcome]:
    "By `file::test[parameters]`."
    outcomes = {}
    for case in xml.etree.ElementTree.fromstring(text).iter('testcase'):
        name = f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}"
        bad = [*case.findall('failure'), *case.findall('error')]
        if bad: outcomes[name] = Outcome(FAILED, (bad[0].get('message', '') + '\n' + (bad[0].text or ''))[-SAID:])
        elif case.find('skipped') is not None: outcomes[name] = Outcome(SKIPPED)
        else: outcomes[name] = Outcome(PASSED)
    return outcomes


# --- librdkafka ---

RDKAFKA_TEST = re.compile(r'^\s*_TEST\((\d{4}_\w+),([^(]*?)[,)]', re.M)
RDKAFKA_LEFT_OUT = re.compile('TEST_F_(LOCAL|KNOWN_ISSUE|MANUAL)')
COLOURS = re.compile(r'\x1b\[\d*m')


def rdkafka_tests(source: str) -> list[str]:
    "The tests that its table (in test.c) has for a broker, but for those that are known to fail or made for hands."
    return sorted({name for name, flags in RDKAFKA_TEST.findall(source) if not RDKAFKA_LEFT_OUT.search(flags)})


def rdkafka_outcome(test: str, report: str, printed: str) -> Outcome:
    "Of one test: by the report that the runner writes, if it came to that."
    printed = COLOURS.sub('', printed)
    try: state = json.loads(report)['tests'][test]['state']
    except (json.JSONDecodeError, KeyError): return Outcome(FAILED, printed[-SAID:])
    if state == 'PASSED': return Outcome(PASSED)
    if state == 'SKIPPED': return Outcome(SKIPPED)
    failure = printed.find('TEST FAILURE')
    return Outcome(FAILED, printed[max(failure, 0):][:SAID] if failure >= 0 else printed[-SAID:])


# --- known reasons ---

@dataclass(frozen=True)
class Known:
    "Why some tests of a suite end as they do."
    suite: str
    tests: tuple[str, ...]    # names, `*` for anything
    fails: str                # 'ours', 'kafka', 'both'; or 'either', when it depends on the moment
    reason: str

    def speaks_of(self, suite: str, test: str) -> bool:
        return fnmatchcase(suite, self.suite) and any(fnmatchcase(test, each) for each in self.tests)


def read_known(path: Path) -> list[Known]:
    known = [Known(each['suite'], tuple(each['tests']), each['fails'], ' '.join(each['reason'].split()))
             for each in tomllib.loads(path.read_text(encoding='utf-8')).get('known', [])]
    for each in known:
        if each.fails not in (OURS, KAFKA, 'both', 'either'): raise ValueError(f'{path}: fails = {each.fails!r}')
    return known


# --- the comparison ---

@dataclass(frozen=True)
class Difference:
    "A test that doesn't pass on both brokers."
    suite: str
    test: str
    ours: Outcome | None
    kafka: Outcome | None
    reason: str | None        # None: nobody has explained it

    @property
    def fails(self) -> str:
        "On which of the two it fails; 'neither', when it is skipped on one of them only."
        both = (OURS, self.ours), (KAFKA, self.kafka)
        bad = [name for name, outcome in both if outcome and outcome.state == FAILED]
        return 'both' if len(bad) == 2 else bad[0] if bad else 'neither'

    @property
    def unexplained(self) -> bool: return self.reason is None and self.fails != 'both'


def differences(suite: str, ours: dict[str, Outcome], kafka: dict[str, Outcome],
                known: list[Known]) -> list[Difference]:
    "What doesn't end well on both, or not in the same way. An outcome that one of them hasn't got is no difference."
    found = []
    for test in sorted({*ours, *kafka}):
        here, there = ours.get(test), kafka.get(test)
        states = {outcome.state for outcome in (here, there) if outcome}
        if FAILED not in states and len(states) < 2: continue
        new = Difference(suite, test, here, there, None)
        fits = {new.fails, 'either'} | ({'both'} if here is None or there is None else set())
        reason = next((each.reason for each in known if each.speaks_of(suite, test) and each.fails in fits), None)
        found.append(Difference(suite, test, here, there, reason))
    return found


def outlived(suite: str, ours: dict, kafka: dict, known: list[Known]) -> list[str]:
    "Entries among the known reasons that nothing needs any more: all of their tests passed on both."
    lines = []
    for each in known:
        names = [test for test in ours if test in kafka and each.speaks_of(suite, test)]
        if names and each.fails != 'either' and all(ours[test].state == kafka[test].state == PASSED for test in names):
            lines.append(f'{suite}: {", ".join(each.tests)} pass on both now; the reason can go: {each.reason}')
    return lines


# --- the card ---

HEAD = ('suite', 'tests', 'passed here', 'passed on Kafka', 'failed here only', 'failed on Kafka only',
        'failed on both', 'skipped')


def row(title: str, ours: dict[str, Outcome], kafka: dict[str, Outcome]) -> list:
    "A line of the table."
    def count(*wanted): return sum((state(ours, test), state(kafka, test)) in wanted for test in tests)
    def state(outcomes, test): return outcomes[test].state if test in outcomes else None
    def number(outcomes): return sum(each.state == PASSED for each in outcomes.values()) if outcomes else '–'
    tests = {*ours, *kafka}
    return [title, len(tests), number(ours), number(kafka),
            count(*((FAILED, other) for other in (PASSED, SKIPPED, None))),
            count(*((other, FAILED) for other in (PASSED, SKIPPED, None))),
            count((FAILED, FAILED)), count((SKIPPED, SKIPPED), (SKIPPED, None), (None, SKIPPED))]


def table(rows: list[list]) -> str:
    "As Markdown."
    lines = [' | '.join(HEAD), ' | '.join(['---', *['--:'] * (len(HEAD) - 1)])]
    return '\n'.join(f'| {line} |' for line in [*lines, *(' | '.join(map(str, each)) for each in rows)])


WHERE = {OURS: 'Failed here, not on Kafka', KAFKA: 'Failed on Kafka, not here', 'both': 'Failed on both',
         'neither': 'Skipped on one of them'}


def explained(found: list[Difference]) -> str:
    "The differences, gathered by where they are and by their reason."
    lines = []
    for where, title in WHERE.items():
        here = [each for each in found if each.fails == where]
        if not here: continue
        lines += ['', f'{title}:', '']
        for reason in dict.fromkeys((each.suite, each.reason) for each in here):
            tests = [each.test for each in here if (each.suite, each.reason) == reason]
            unknown = 'unexplained' if where != 'both' else 'no reason given yet'
            lines.append(f'- {reason[0]}: {", ".join(tests)}. {reason[1] or f"**{unknown}**"}')
    return '\n'.join(lines).lstrip('\n')
