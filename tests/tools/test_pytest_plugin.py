"The fixtures of the plugin, in tests of tests: an inner pytest, as a process of its own, as its users run it."
import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest

from broker_process import ROOT, environment

HELPERS = '''
import os, pytest
from kafka_scratch.client.client import Client, find_topics, send_batch
from kafka_scratch.log.records import Record, write_batch

def write(broker, topic, partition=0):
    with Client(broker.bootstrap_servers) as client: return send_batch(client, topic, partition, write_batch([Record(value=b'one coffee')]))

def partitions(broker, topic):
    with Client(broker.bootstrap_servers) as client: return len(find_topics(client, [topic])[topic].partitions)
'''  # noqa: E501


def run(directory, text: str, *arguments, ini: str = '', plugin: bool = True, path=ROOT, env={}):
    "Exit code, how many passed and so on, and all that was said."
    (directory/'test_inner.py').write_text(HELPERS + text)
    (directory/'pytest.ini').write_text('[pytest]\n' + ini)
    command = [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider',
               *(['-p', 'kafka_scratch.tools.pytest_plugin'] if plugin else []), *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, env=environment(**{
        'PYTHONPATH': str(path), 'PYTEST_ADDOPTS': None, 'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1', **env}))
    said = done.stdout + done.stderr
    counts = {word.rstrip('s'): int(number) for number, word in re.findall(r'(\d+) (passed|failed|errors?|skipped)',
        said.splitlines()[-1] if said else '')}
    return done.returncode, counts, said


def test_a_fresh_broker_for_each_test(tmp_path):
    code, counts, said = run(tmp_path, '''
seen = []
@pytest.mark.kafka(topics=['orders'])
@pytest.mark.parametrize('n', range(3))
def test_it(kafka_broker, n):
    assert write(kafka_broker, 'orders') == 0
    assert not any(os.path.exists(directory) for directory in seen)
    assert kafka_broker.directory not in seen and os.path.isdir(kafka_broker.directory)
    seen.append(kafka_broker.directory)
''')
    assert (code, counts) == (0, {'passed': 3}), said


def test_a_broker_for_all(tmp_path):
    code, counts, said = run(tmp_path, '''
seen = set()
@pytest.mark.parametrize('n', range(3))
def test_it(kafka_broker_session, kafka_topic, n):
    seen.add((kafka_broker_session.port, kafka_topic))
    assert kafka_topic.startswith('test_it-') and write(kafka_broker_session, kafka_topic) == 0
def test_afterwards(kafka_broker_session):
    assert len(seen) == 3 and {port for port, _ in seen} == {kafka_broker_session.port}
''')
    assert (code, counts) == (0, {'passed': 4}), said


def test_both_at_once(tmp_path):
    code, counts, said = run(tmp_path, '''
def test_it(kafka_broker, kafka_broker_session): assert kafka_broker.port != kafka_broker_session.port
''')
    assert (code, counts) == (0, {'passed': 1}), said


def test_settings_from_far_and_near(tmp_path):
    "A mark goes before the command line, and that before the file."
    code, counts, said = run(tmp_path, '''
def test_file_and_line(kafka_broker):
    kafka_broker.create_topics(['a'])
    assert partitions(kafka_broker, 'a') == 3
    assert kafka_broker.server.config.max_idle_ms == 1234567
@pytest.mark.kafka(num_partitions=5, topics=['a'])
def test_mark(kafka_broker):
    assert partitions(kafka_broker, 'a') == 5 and kafka_broker.server.config.max_idle_ms == 1234567
def test_session(kafka_broker_session, kafka_topic): assert partitions(kafka_broker_session, kafka_topic) == 3
@pytest.mark.kafka(topics={'b': 2})
class TestClass:
    def test_class(self, kafka_broker): assert partitions(kafka_broker, 'b') == 2
''', '--kafka-set', 'num.partitions=3', '--strict-markers',
ini='kafka_settings =\n    num_partitions = 2\n    connections.max.idle.ms=1234567\n')
    assert (code, counts) == (0, {'passed': 4}), said


def test_a_fixture_of_ones_own(tmp_path):
    code, counts, said = run(tmp_path, '''
from kafka_scratch.tools.pytest_plugin import broker_fixture
orders = broker_fixture(scope='module', topics={'orders': 3})
payments = broker_fixture(topics=['payments'], auto_create_topics_enable=False)
ports = []
def test_one(orders, payments): ports.append(orders.port); assert partitions(orders, 'orders') == 3 and partitions(payments, 'payments') == 1
def test_two(orders): assert ports == [orders.port]
''')  # noqa: E501
    assert (code, counts) == (0, {'passed': 2}), said


def test_a_directory_stays(tmp_path):
    code, counts, said = run(tmp_path, f'''
@pytest.mark.kafka(directory={str(tmp_path/'logs')!r}, topics=['orders'])
def test_it(kafka_broker): write(kafka_broker, 'orders')
''')
    assert (code, counts) == (0, {'passed': 1}) and (tmp_path/'logs'/'orders-0').is_dir(), said


def test_a_test_that_fails_leaves_nothing(tmp_path):
    (tmp_path/'tmp').mkdir()
    code, counts, said = run(tmp_path, '''
def test_fails(kafka_broker): assert write(kafka_broker, 'orders') == 'never'
def test_next(kafka_broker):
    import threading
    assert sum(thread.name == 'kafka_scratch' for thread in threading.enumerate()) == 1
''', env={'TMPDIR': str(tmp_path/'tmp')})
    assert (code, counts) == (1,
                              {'passed': 1, 'failed': 1}) and list((tmp_path/'tmp').glob('kafka-scratch-*')) == [], said


def test_trace_is_shown_when_a_test_fails(tmp_path):
    text = "@pytest.mark.kafka(topics=['orders'])\ndef test_it(kafka_broker): assert write(kafka_broker, 'orders') == {}\n"  # noqa: E501
    for expected, shown in ((0, False), (1, True)):
        code, counts, said = run(tmp_path, text.format(expected), '--kafka-trace')
        assert code == expected and ('← Produce' in said) == shown, said
    assert 'Produce' not in run(tmp_path, text.format(1))[2]


def test_trace_goes_on_after_a_restart(tmp_path):
    code, _, said = run(tmp_path, """
@pytest.mark.kafka(topics=['orders'])
def test_it(kafka_broker):
    kafka_broker.restart()
    assert write(kafka_broker, 'orders') == 1
""", '--kafka-trace')
    assert code == 1 and '← Produce' in said, said


def test_mistakes_are_told(tmp_path):
    text = 'def test_it(kafka_broker): pass\n'
    assert 'NAME=VALUE, not \'nonsense\'' in run(tmp_path, text, '--kafka-set', 'nonsense')[2]
    assert 'log.retention.ms takes a whole number' in run(tmp_path, text, '--kafka-set', 'log.retention.ms=soon')[2]
    code, _, said = run(tmp_path, "@pytest.mark.kafka({'orders': 3})\n" + text)
    assert code == 1 and 'takes arguments by name' in said


def test_help_and_fixtures(tmp_path):
    code, _, said = run(tmp_path, '', '--help')
    assert code == 0 and '--kafka-set' in said and 'kafka_settings' in said
    _, _, said = run(tmp_path, '', '--fixtures')
    assert all(name in said for name in ('kafka_broker', 'kafka_broker_session',
                                         'kafka_topic')) and 'A Kafka broker of this test alone' in said


def test_it_costs_nothing_where_it_is_not_used():
    lean = 'import sys, json, pytest; before = set(sys.modules); import kafka_scratch.tools.pytest_plugin; print(json.dumps(sorted(set(sys.modules) - before)))'  # noqa: E501
    done = subprocess.run([sys.executable, '-c', lean], capture_output=True, text=True, timeout=60,
                          env=environment(PYTHONPATH=str(ROOT)), check=True)
    assert json.loads(done.stdout) == ['kafka_scratch', 'kafka_scratch.tools', 'kafka_scratch.tools.pytest_plugin']


@pytest.mark.skipif(importlib.util.find_spec('setuptools') is None, reason='setuptools is not installed')
def test_installed(tmp_path):
    """Whoever installs the package has the fixtures: pytest finds them by the entry point. And who names the plugin as
    well gets it once."""
    source, target = tmp_path/'source', tmp_path/'target'
    source.mkdir()
    for name in ('setup.py', 'pyproject.toml', 'settings.ini', 'LICENSE', 'README.md', 'MANIFEST.in'):
        shutil.copy(ROOT/name, source)
    shutil.copytree(ROOT/'kafka_scratch', source/'kafka_scratch', ignore=shutil.ignore_patterns('__pycache__'))
    command = [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-build-isolation', '--no-index',
               '--disable-pip-version-check', '--target', target, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                          env=environment(PIP_REQUIRE_VIRTUALENV=None))
    if done.returncode: pytest.skip(f'it could not be installed: {done.stderr[-300:]}')
    text = "@pytest.mark.kafka(topics=['orders'])\ndef test_it(kafka_broker): assert write(kafka_broker, 'orders') == 0\n"  # noqa: E501
    for plugin in (False, True):
        code, counts, said = run(tmp_path, text, plugin=plugin, path=target,
                                 env={'PYTEST_DISABLE_PLUGIN_AUTOLOAD': None})
        assert (code, counts) == (0, {'passed': 1}), said
