"The house: rooms import one way, classes don't continue each other, modules have a size that one can read."
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from broker_process import ROOT

PACKAGE = ROOT/'kafka_scratch'
# each imports from those before it
ROOMS = 'tiny wire log cluster apis groups transactions security client broker spark tools'.split()
MODULES = sorted(path for path in PACKAGE.rglob('*.py') if path.name != '_modidx.py')
LARGEST = 400   # lines, about: more takes a reason
REASONS = {      # module → why it is larger
    'cluster.other_settings': 'a table: a line for each setting of Kafka that we do not act on',
    'cluster.settings_table': 'a table: a line for each setting that we act on, and what reads a line',
    'wire.field_notes': 'a table: a sentence for each field of each message'}
SINGLE = {       # class → why it has exactly one subclass, in its own module
    'spark.datasource.TableReader': 'Spark asks a reader for filters if it has a method for them: there is one with, '
                                    'and one without'}


def name_of(path: Path) -> str: return '.'.join(path.relative_to(PACKAGE).with_suffix('').parts)


def imports(path: Path) -> set[str]:
    "The modules of the package that a module imports, at the top or when it is needed."
    found, here = set(), path.relative_to(PACKAGE).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.ImportFrom):
            base = list(here[:len(here) - node.level + 1]) if node.level else []
            full = '.'.join([*base, *(node.module or '').split('.')] if node.level else (node.module or '').split('.'))
            full = full.strip('.') if node.level else full
            if not node.level and not full.startswith('kafka_scratch'): continue
            full = full.removeprefix('kafka_scratch').strip('.')
            found |= {f'{full}.{each.name}'.strip('.') for each in node.names} if full in ('', *ROOMS) else {full}
        elif isinstance(node, ast.Import):
            found |= {each.name.removeprefix('kafka_scratch.') for each in node.names
                      if each.name.startswith('kafka_scratch.')}
    return {each for each in found if each.split('.')[0] in ROOMS}


@pytest.mark.parametrize('path', [path for path in MODULES if path.parent != PACKAGE], ids=name_of)
def test_a_room_imports_only_from_those_before_it(path):
    room = path.parent.name
    assert [each for each in imports(path) if ROOMS.index(each.split('.')[0]) > ROOMS.index(room)] == []


def test_every_room_is_there():
    assert {path.parent.name for path in MODULES if path.parent != PACKAGE} == set(ROOMS)
    assert {path.name for path in MODULES if path.parent == PACKAGE} == {'__init__.py', '__main__.py'}


def test_the_imports_are_found():
    "A check that sees nothing would never fail."
    assert {'wire.frames', 'apis.api'} <= imports(PACKAGE/'broker'/'connection.py')
    assert 'security.tls' in imports(PACKAGE/'broker'/'server.py')   # inside a function


def test_notebooks_are_named_by_their_room():
    for path in sorted((ROOT/'nbs').glob('[0-9]*.ipynb')):
        exports = re.search(r'#\| default_exp ([\w.]+)', path.read_text(encoding='utf-8'))
        if exports and '.' in exports[1]: assert path.stem.partition('_')[2] == exports[1], path.name


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_no_class_only_continues_another(path):
    classes = [node for node in ast.parse(path.read_text(encoding='utf-8')).body if isinstance(node, ast.ClassDef)]
    here = {node.name for node in classes}
    children = Counter(base.id for node in classes for base in node.bases if isinstance(base,
        ast.Name) and base.id in here)
    assert {f'{name_of(path)}.{name}' for name, count in children.items() if count == 1} <= set(SINGLE)


@pytest.mark.parametrize('path', MODULES, ids=name_of)
def test_a_module_can_be_read_at_one_go(path):
    size = len(path.read_text(encoding='utf-8').splitlines())
    assert size <= LARGEST or name_of(path) in REASONS, f'{size} lines'


WIDEST = 120


def test_no_line_of_a_chapter_is_too_long():
    "Of code, that is: what people read beside it is wrapped by whatever shows it."
    for path in sorted((ROOT/'nbs').glob('*.ipynb')):
        for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
            if cell['cell_type'] != 'code': continue
            long = [line for line in ''.join(cell['source']).splitlines() if len(line) > WIDEST]
            assert not long, f'{path.name}, cell {cell["id"]}: {long[0]}'


def test_ruff_has_nothing_to_say():
    done = subprocess.run([sys.executable, '-m', 'ruff', 'check', '--no-cache', '--output-format=concise', '.'], cwd=ROOT,  # noqa: E501
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
