"How the tests run: hypothesis without a clock, in CI with the same examples every time, and with a line to paste when one fails."
import contextlib
import importlib.util
import os
import signal
from collections import Counter

import pytest
from hypothesis import Phase, settings

from broker_process import environment, running

settings.register_profile('kafka_scratch', deadline=None, print_blob=True, max_examples=50, derandomize=bool(os.environ.get('CI')),
                          phases=[phase for phase in Phase if phase != Phase.explain])   # which takes minutes for the longest examples
settings.load_profile('kafka_scratch')


def pytest_configure(config):
    config.addinivalue_line('filterwarnings', 'ignore:(read|open)_text is deprecated:DeprecationWarning')   # kafka-python's, at import
    signal.signal(signal.SIGTERM, signal.default_int_handler)   # whoever ends the tests, by the clock or by hand: what they have started ends with them
    if os.environ.get('CI') and not hasattr(config, 'workerinput'): config.pluginmanager.register(NothingLeftOut())


class NothingLeftOut:
    "In CI everything is installed that tests need. One that is left out all the same is a failure, unless its reason starts with a dash: then there is nothing to test."
    def __init__(self): self.missing = Counter()

    def pytest_runtest_logreport(self, report):
        if not report.skipped or hasattr(report, 'wasxfail'): return
        reason = report.longrepr[2].removeprefix('Skipped: ')
        if not reason.startswith('– '): self.missing[reason] += 1

    def pytest_sessionfinish(self, session):
        if self.missing: session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for reason, count in self.missing.items(): terminalreporter.write_line(f'LEFT OUT, though this is CI: {count} for this reason: {reason}')


@pytest.fixture
def start(tmp_path):
    "Starts brokers below the test's directory; each is stopped when the test is over, and must not have complained."
    with contextlib.ExitStack() as stack: yield lambda where='.', **settings: stack.enter_context(running(tmp_path/where, **settings))


@pytest.fixture(params=['uvloop', 'asyncio'], scope='session')
def loop(request):
    "An environment for a broker: with each of the two event loops that it can run on."
    if importlib.util.find_spec(request.param) is None: pytest.skip(f'{request.param} is not installed')
    return environment(KAFKA_SCRATCH_LOOP=request.param)


@pytest.fixture(scope='session')
def spark(tmp_path_factory):
    "One Spark session for all tests that need one: a process can't have two, and the first takes seconds."
    if importlib.util.find_spec('pyspark') is None: pytest.skip("pyspark is not installed: pip install '.[spark]'")
    from kafka_scratch.spark.session import NoJava, get_session
    settings = {'spark.sql.shuffle.partitions': 2, 'spark.sql.warehouse.dir': tmp_path_factory.mktemp('warehouse')}
    try: session = get_session('local[2]', 'tests', **settings)
    except NoJava as reason: pytest.skip(str(reason))
    yield session
    session.stop()
