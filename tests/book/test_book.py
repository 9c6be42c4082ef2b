"The book: numbers, titles, the way from chapter to chapter, links, glossary and map."
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker_process import ROOT

BOOK = ROOT/'nbs'
CHAPTERS = sorted(BOOK.glob('[0-9]*.ipynb'))
PAGES = sorted([*BOOK.glob('*.ipynb'), *(ROOT/'docs').glob('*.md'), *ROOT.glob('*.md')])
LINK = re.compile(r'\]\(([^)\s]+)\)')


def markdown(path: Path) -> list[str]:
    "The prose of a page, without code in it."
    if path.suffix == '.md': texts = [path.read_text(encoding='utf-8')]
    else: texts = [''.join(cell['source']) for cell in json.loads(path.read_text(encoding='utf-8'))['cells']
                   if cell['cell_type'] == 'markdown']
    return [re.sub(r'```.*?```|`[^`\n]*`', '', text, flags=re.S) for text in texts]


def check(place: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, place/'tools'/'book.py', 'check']
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_book_is_in_order():
    done = check(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path) -> Path:
    shutil.copytree(BOOK, tmp_path/'nbs', ignore=shutil.ignore_patterns('.*'))
    shutil.copytree(ROOT/'tools', tmp_path/'tools', ignore=shutil.ignore_patterns('__pycache__'))
    subprocess.run(['git', 'init', '--quiet', tmp_path], check=True)
    return tmp_path


def test_a_new_chapter_moves_those_that_follow(copy):
    "And every link to them changes."
    before = [path.name for path in sorted((copy/'nbs').glob('[0-9]*.ipynb'))]
    new = json.loads((copy/'nbs'/before[2]).read_text(encoding='utf-8'))
    new['cells'] = [new['cells'][0], {'cell_type': 'markdown', 'id': 'a', 'metadata': {},
                                      'source': [f'See [chapter 99]({before[5]}) and [that one]({before[1]}).']}]
    (copy/'nbs'/f'{before[2][:3]}b_new.one.ipynb').write_text(json.dumps(new), encoding='utf-8')
    assert check(copy).returncode == 1
    subprocess.run([sys.executable, copy/'tools'/'book.py', 'write'], check=True, capture_output=True, timeout=60)
    assert check(copy).returncode == 0
    after = [path.name for path in sorted((copy/'nbs').glob('[0-9]*.ipynb'))]
    assert after[3] == '004_new.one.ipynb' and after[:3] == before[:3]
    assert [name[4:] for name in after[4:]] == [name[4:] for name in before[3:]]
    said = ''.join(json.loads((copy/'nbs'/after[3]).read_text(encoding='utf-8'))['cells'][1]['source'])
    assert said == f'See [chapter 7]({after[6]}) and [that one]({before[1]}).'
    assert after[3] in (copy/'nbs'/'map.ipynb').read_text(encoding='utf-8')


@pytest.mark.parametrize('path', PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for text in markdown(path):
        for target in LINK.findall(text):
            if re.match(r'[a-z]+:', target): continue
            file, _, anchor = target.partition('#')
            place = path.parent/file if file else path
            assert place.exists(), f'{path.name}: {target}'
            if anchor and place.suffix in ('.ipynb', '.md'): assert anchor in anchors(place), f'{path.name}: {target}'


def anchors(path: Path) -> set[str]:
    "The anchors of a page's headings: a code host's, which are lower case, and JupyterLab's."
    headings = [heading for text in markdown_with_code(path) for heading in re.findall(r'^#+ +(.+)$', text, re.M)]
    plain = [re.sub(r'[`*]', '', heading) for heading in headings]
    return {heading.replace(' ', '-') for heading in plain} | {
        re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-') for heading in plain}


def markdown_with_code(path: Path) -> list[str]:
    if path.suffix == '.md': return [path.read_text(encoding='utf-8')]
    return [''.join(cell['source']) for cell in json.loads(path.read_text(encoding='utf-8'))['cells']
            if cell['cell_type'] == 'markdown']


@pytest.mark.parametrize('path', CHAPTERS, ids=lambda path: path.stem)
def test_chapters_are_named_by_links_alone(path):
    "A bare number would be wrong as soon as a chapter is put in before it; and code doesn't know of chapters."
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        text = ''.join(cell['source'])
        if cell['cell_type'] == 'markdown': text = re.sub(r'\[[^\]]*\]\([^)]*\)|```.*?```', '', text, flags=re.S)
        assert not re.search(r'\bchapters? \d', text, re.I), text


def test_the_glossary_is_sorted_and_each_word_has_a_chapter():
    entries = [text for text in markdown_with_code(BOOK/'glossary.ipynb') if text.startswith('### ')]
    words = [re.match(r'### (.+)', entry)[1] for entry in entries]
    assert words == sorted(words, key=str.lower) and len(words) > 50
    assert all(re.search(r'→ \[.+\]\(\d{3}_[\w.]+\.ipynb\)$', entry) for entry in entries)
