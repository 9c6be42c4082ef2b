"The chapters: every cell runs, every saved output is what the code prints, and package and README are what they say."
import filecmp
import json
import os
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from broker_process import ROOT
from size import ALL, LATER, spark_absent

sys.path.insert(0, str(ROOT/'tools'))
import notebooks

PATIENCE = 600
CHAPTERS = notebooks.every_notebook()
SPARK_LATER = f'{LATER}chapters: the cells that start Spark'


def java_absent() -> str | None:
    "Why Spark can't run, if its packages are there and it can't all the same."
    from kafka_scratch.spark.session import NoJava, find_java
    try: find_java()
    except NoJava as reason: return str(reason)


def starts_spark(path: Path) -> bool:
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    return any(line.strip() == '#| spark' for cell in cells for line in cell['source'][:3])


@pytest.mark.parametrize('path', CHAPTERS, ids=lambda path: path.stem)
def test_chapter(path):
    "Executed once: whether its cells pass, and whether they print what is saved."
    reason = starts_spark(path) and (spark_absent() or java_absent() or (None if ALL else SPARK_LATER))
    executed, trouble, _ = notebooks.in_subprocess(path, [] if reason else ['spark'], PATIENCE)
    assert executed is not None, trouble
    saved = path.read_text(encoding='utf-8')
    if executed != saved:
        pytest.fail(
            f'{notebooks.difference(saved, executed, path.name)}\nIf that is meant: tools/notebooks.py run '
            f'{path.relative_to(ROOT)}', pytrace=False)
    if reason: pytest.skip(f'{reason}')   # the cells that start Spark were left out, the others passed


def run(*command, cwd=ROOT) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if name != 'IN_TEST'} | {'PIP_REQUIRE_VIRTUALENV': 'true',
        'PYTHONUTF8': '1'}
    env['PATH'] = os.path.dirname(sys.executable) + os.pathsep + env['PATH']
    return subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture(scope='module')
def exported(tmp_path_factory) -> Path:
    "The package, exported anew from the notebooks, elsewhere."
    place = tmp_path_factory.mktemp('export')
    for name in ('settings.ini', 'setup.py', 'pyproject.toml', 'README.md'): shutil.copy(ROOT/name, place)
    shutil.copytree(ROOT/'nbs', place/'nbs', ignore=shutil.ignore_patterns('.*'))
    shutil.copytree(ROOT/'kafka_scratch', place/'kafka_scratch', ignore=shutil.ignore_patterns('__pycache__', '.*'))
    shutil.copytree(ROOT/'tools', place/'tools', ignore=shutil.ignore_patterns('__pycache__'))
    done = run(sys.executable, place/'tools'/'export.py', cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place/'kafka_scratch'


def modules(package: Path) -> list[str]: return sorted(str(path.relative_to(package)) for path in package.rglob('*.py'))


def test_the_package_is_what_the_notebooks_say(exported):
    assert modules(exported) == modules(ROOT/'kafka_scratch')
    _, different, errors = filecmp.cmpfiles(exported, ROOT/'kafka_scratch', modules(exported), shallow=False)
    assert (different, errors) == ([], []), 'tools/export.py writes what the notebooks say'


def test_every_module_comes_from_a_notebook():
    "One that doesn't was left behind by a notebook that is gone, or written by hand."
    for name in modules(ROOT/'kafka_scratch'):
        if Path(name).name in ('__init__.py', '_modidx.py'): continue
        head = (ROOT/'kafka_scratch'/name).read_text(encoding='utf-8').partition('File to edit: ')[
            2].split()[0].rstrip('.')
        assert (ROOT/'kafka_scratch'/name).parent.joinpath(head).is_file(), name


def test_readme_is_what_its_notebook_says():
    done = run(sys.executable, ROOT/'tools'/'readme.py', '--check')
    assert done.returncode == 0, done.stdout + done.stderr


def test_nbdev_test_passes_too():
    """nbdev's own command runs the same cells in the same way: tried with one chapter, since all of them are executed
    above."""
    done = run('nbdev_test', '--path', ROOT/'nbs'/'030_wire.frames.ipynb', '--n_workers', '1')
    assert done.returncode == 0 and 'Success' in done.stdout + done.stderr, done.stdout + done.stderr


def test_the_settings_are_those_that_nbdev_reads():
    "Cells are left out by these flags alone; another one would silently run nowhere."
    parser = ConfigParser(delimiters=['='])
    parser.read(ROOT/'settings.ini', encoding='utf-8')
    assert parser['DEFAULT']['tst_flags'].split() == ['slow', 'spark']
