"""How the tests run: hypothesis without a clock, in CI with the same examples every time, and with a line to paste when
one fails."""
import contextlib
import importlib.util
import os
import signal

import pytest
from hypothesis import Phase, settings

from broker_process import environment, running

# in the environment, for the processes that run tests, too; size.py and report.py go by it when they are imported
SIZE = 'KAFKA_SCRATCH_TESTS'

settings.register_profile('kafka_scratch', deadline=None, print_blob=True, max_examples=50,
                          derandomize=bool(os.environ.get('CI')),
                          # which takes minutes for the longest examples
                          phases=[phase for phase in Phase if phase != Phase.explain])
settings.register_profile('small', settings.get_profile('kafka_scratch'), max_examples=10)


def pytest_addoption(parser):
    parser.addoption('--all', action='store_true', dest='all_tests',
                     help='the whole run: beside Apache Kafka, with all clients, and all that takes long')
    parser.addoption('--save-durations', action='store_true',
                     help='remember how long each part took, for the order and the forecast of later runs')


def pytest_configure(config):
    # kafka-python's, at import
    config.addinivalue_line('filterwarnings', 'ignore:(read|open)_text is deprecated:DeprecationWarning')
    # whoever ends the tests, by the clock or by hand: what they have started ends with them
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if config.option.all_tests: os.environ[SIZE] = 'all'
    settings.load_profile('kafka_scratch' if os.environ.get(SIZE) == 'all' else 'small')
    if not hasattr(config, 'workerinput'):
        from report import Report
        config.pluginmanager.register(Report(config))


def pytest_collection_modifyitems(items):
    from report import turn
    from size import SMALL_ON_SPARK, on_spark
    for item in items:
        if 'spark' in item.fixturenames and item.path.stem not in SMALL_ON_SPARK: item.add_marker(on_spark)
    items.sort(key=turn())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from report import scheduler
    return scheduler(config, log)


@pytest.fixture
def start(tmp_path):
    "Starts brokers below the test's directory; each is stopped when the test is over, and must not have complained."
    with contextlib.ExitStack() as stack:
        yield lambda where='.', **settings: stack.enter_context(running(tmp_path/where, **settings))


@pytest.fixture(params=['uvloop', 'asyncio'], scope='session')
def loop(request):
    "An environment for a broker: with each of the two event loops that it can run on."
    if importlib.util.find_spec(request.param) is None: pytest.skip(f'{request.param} is not installed')
    return environment(KAFKA_SCRATCH_LOOP=request.param)


@pytest.fixture(scope='session')
def spark(tmp_path_factory):
    "One Spark session for all tests that need one: a process can't have two, and the first takes seconds."
    from size import spark_absent
    if reason := spark_absent(): pytest.skip(reason)
    from kafka_scratch.spark.session import NoJava, get_session
    settings = {'spark.sql.shuffle.partitions': 2, 'spark.sql.warehouse.dir': tmp_path_factory.mktemp('warehouse')}
    try: session = get_session('local[2]', 'tests', **settings)
    except NoJava as reason: pytest.skip(str(reason))
    yield session
    session.stop()
