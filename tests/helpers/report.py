"""What a run of the tests shows: how far it is and how long it will take, what was left out and why, what was slow.

durations.json has the seconds and the number of tests of each part from an earlier run (`--save-durations` of a whole
run writes it). A part is a file, or one chapter. Long parts have their turn first, so that no worker is left with one
at the end.
"""
import json
import os
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from size import ALL, LATER

DURATIONS = Path(__file__).parents[1]/'durations.json'
CHAPTERS = 'tests/book/test_chapters.py::'
NOTHING = '– '    # how the reason of a test begins that has nothing to test: no run makes it take part


def part_of(nodeid: str) -> str:
    "What runs in one piece, on one worker: the tests of a file share brokers; chapters share nothing."
    return nodeid if nodeid.startswith(CHAPTERS) else nodeid.split('::')[0]


WHOLE = 'the whole run'   # beside the parts: [seconds on the clock, tests]


def known(size: str = 'all' if ALL else 'small') -> dict[str, list]:
    "part → [seconds, tests], of an earlier run of this size."
    try: return json.loads(DURATIONS.read_text())[size]
    except (OSError, ValueError, KeyError): return {}


def turn():
    "The key by which tests are sorted: long parts first, the tests of a part as they were."
    seconds = {part: row[0] for part, row in known().items()}
    return lambda item: (-seconds.get(part_of(item.nodeid), 1), part_of(item.nodeid))


def scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling
    class Parts(LoadScopeScheduling):
        def _split_scope(self, nodeid): return part_of(nodeid)
    config.option.loadscopereorder = False   # they are in order
    return Parts(config, log)


def span(seconds: float) -> str:
    return f'{seconds:.0f} s' if seconds < 90 else f'{seconds / 60:.0f} min'


class Report:
    "Listens to the whole run, in the process that the others report to."
    def __init__(self, config):
        self.config, self.started, self.shown = config, time.monotonic(), 0
        self.rows, self.seconds, self.tests = known(), Counter(), Counter()
        # part → how many tests it has; the parts that have begun and aren't done
        self.expected, self.current = {}, {}
        self.reasons, self.modules, self.failed = Counter(), defaultdict(list), 0

    # --- While it runs ---

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        if not self.expected: self.expected = Counter(map(part_of, ids))

    def pytest_collection_finish(self, session):
        if session.items: self.expected = Counter(part_of(item.nodeid) for item in session.items)

    def pytest_report_teststatus(self, report, config):
        "No dots: thirteen thousand of them tell nobody anything."
        if report.when == 'call' and report.passed and not hasattr(report, 'wasxfail') and config.option.verbose < 1:
            return 'passed', '', 'PASSED'
        if report.skipped and not hasattr(report, 'wasxfail') and config.option.verbose < 1:
            return 'skipped', '', 'SKIPPED'

    def pytest_runtest_logreport(self, report):
        part = part_of(report.nodeid)
        self.seconds[part] += report.duration
        if report.skipped and not hasattr(report, 'wasxfail'):
            self.reasons[report.longrepr[2].removeprefix('Skipped: ')] += 1
        if report.failed: self.failed += 1
        if report.when != 'teardown': return
        self.tests[part] += 1
        self.current = {key: value for key,
                        value in {**self.current, part: None}.items() if self.tests[key] < self.expected.get(key, 0)}
        self.show()

    def pytest_collectreport(self, report):
        "A module that is left out as a whole: how many tests that is, the last run knows."
        if report.skipped: self.modules[report.longrepr[2].removeprefix('Skipped: ')].append(report.nodeid)

    def forecast(self) -> tuple[float, float]:
        "Which share of the work is done, and how many seconds the rest will take."
        weight = lambda part: max(self.rows.get(part, [1, 1])[0], 0.01)
        total = sum(map(weight, self.expected))
        done = sum(weight(part) * min(self.tests[part] / count, 1) for part, count in self.expected.items())
        share, gone = done / total if total else 0, time.monotonic() - self.started
        if share > 0.1: return share, gone * (1 - share) / share
        return share, max(self.rows.get(WHOLE, [300, 0])[0] - gone, 0)   # too early to judge by this run

    def show(self):
        terminal = sys.stdout.isatty()
        now = time.monotonic()
        if now - self.shown < (0.5 if terminal else 15) or self.config.option.verbose > 0: return
        share, rest = self.forecast()
        self.shown = now
        line = (
            f'{share:4.0%}  {sum(self.tests.values()):,} of {sum(self.expected.values()):,} tests{f", {self.failed} FAILED" if self.failed else ""}; '  # noqa: E501
                f'{span(now - self.started)} gone, about {span(rest)} to go  ({", ".join(Path(part).name.split("::")[-1] for part in list(self.current)[-3:])})')  # noqa: E501
        reporter = self.config.pluginmanager.get_plugin('terminalreporter')
        if terminal: reporter.write('\r' + line[:reporter._tw.fullwidth - 1].ljust(reporter._tw.fullwidth - 1))
        else: reporter.write_line(line)

    # --- At the end ---

    def left_out(self) -> dict[str, int]:
        "reason → how many tests were left out because of it; those that have nothing to test don't count."
        found = Counter({reason: count for reason, count in self.reasons.items() if not reason.startswith(NOTHING)})
        counts = {part: row[1] for size in ('small', 'all') for part, row in known(size).items()}
        for reason, modules in self.modules.items(): found[reason] += sum(counts.get(module, 1) for module in modules)
        return dict(found.most_common())

    def pytest_sessionfinish(self, session):
        if os.environ.get('CI') and ALL and self.left_out(): session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.config.option.save_durations: self.save()

    def save(self):
        "What later runs go by. A part that was left out keeps what was known of it."
        everything = {size: known(size) for size in ('small', 'all')}
        rows = known() | {part: [round(self.seconds[part], 1), self.tests[part]] for part in self.tests}
        rows[WHOLE] = [round(time.monotonic() - self.started), sum(self.tests.values())]
        everything['all' if ALL else 'small'] = dict(sorted(rows.items()))
        lines = json.dumps(everything, indent=1, ensure_ascii=False)
        DURATIONS.write_text(lines.replace('[\n   ', '[').replace(',\n   ', ', ').replace('\n  ]', ']') + '\n')

    def pytest_terminal_summary(self, terminalreporter):
        say, nothing = terminalreporter.write_line, sum(count for reason,
                                                        count in self.reasons.items() if reason.startswith(NOTHING))
        left_out = self.left_out()
        if not left_out and not nothing: return
        terminalreporter.section('left out')
        for reason, count in left_out.items():
            how = './test.sh --all' if reason.startswith(
                LATER) else './test.sh --all, if it can be had here' if not ALL else 'this is missing here'
            say(f'{count:7,}  {reason.removeprefix(LATER):<80}  {how}')
        if nothing: say(f'{nothing:7,}  for which there is nothing to test (a client that can\'t do a job, mostly)')
        if left_out and ALL and os.environ.get('CI'): say('In CI nothing may be missing: this run has failed.')
