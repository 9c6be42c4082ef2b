#!/usr/bin/env python3
"""What of the site runs Python in the reader's browser: the inspector, and the chapters whose cells can be run.

    tools/pages.py --fetch      get Pyodide with npm, once (into ~/.cache/kafka_scratch)
    tools/pages.py SITE         write these files into a built site:

    SITE/pyodide/       Pyodide's core, and the package, as kafka_scratch.zip
    SITE/inspector/     the page, and its examples, which are captures of a real Kafka
    SITE/lessons/       for each chapter its code cells in order; and the fixtures that they read, as fixtures.zip

Nothing else is needed: no page asks another host for anything.
"""
import argparse
import io
import json
import shutil
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0:0] = [str(ROOT), str(ROOT/'tools')]
from readme import split_directives   # noqa: E402
from tests.clients.fetch import all_or_nothing, made_from, run   # noqa: E402

FIXTURES = ROOT/'tests'/'fixtures'
PACKAGE = ROOT/'kafka_scratch'
CORE = 'pyodide.mjs', 'pyodide.asm.mjs', 'pyodide.asm.wasm', 'python_stdlib.zip'   # and a list of packages, empty
LEFT_OUT = 'spark', '_modidx.py'              # what the browser has no use for
LAST_LESSON = 15                              # the paths "one evening" and "the course" end with this chapter
HOW = 'run `python tools/pages.py --fetch`'


# --- Pyodide, from npm ---

def pyodide_directory() -> Path:
    return made_from('../../site/package.json', '../../site/package-lock.json')/'node_modules'/'pyodide'

def pyodide_absent() -> str | None:
    "Why no page can run Python, if none can."
    if not pyodide_directory().exists(): return f'Pyodide is not in {pyodide_directory().parents[2]}: {HOW} (needs npm)'

def fetch_pyodide():
    if not pyodide_absent(): return
    if shutil.which('npm') is None: sys.exit('Pyodide comes with npm, and there is no `npm` on PATH')
    def fill(directory):
        directory.mkdir()
        for name in 'package.json', 'package-lock.json': shutil.copy(ROOT/'site'/name, directory)
        run('npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error', cwd=directory)
    all_or_nothing(pyodide_directory().parents[1], fill)


def write_pyodide(to: Path):
    "Copies the core. The list of packages that could be loaded becomes empty: there are none here."
    to.mkdir(parents=True, exist_ok=True)
    for name in CORE: shutil.copyfile(pyodide_directory()/name, to/name)
    lock = json.loads((pyodide_directory()/'pyodide-lock.json').read_text())
    (to/'pyodide-lock.json').write_text(json.dumps({**lock, 'packages': {}}))


# --- files, packed ---

def packed(files: dict[str, bytes]) -> bytes:
    "A zip file, the same for the same content."
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()): archive.writestr(zipfile.ZipInfo(name), content,
                                                                     zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()

def package_files() -> dict[str, bytes]:
    "The package as it is, without what the browser has no use for."
    return {str(path.relative_to(ROOT)): path.read_bytes() for path in PACKAGE.rglob('*.py')
            if path.relative_to(PACKAGE).parts[0] not in LEFT_OUT}


# --- lessons ---

def lessons() -> list[Path]:
    "The chapters whose cells run in the page."
    numbered = sorted((ROOT/'nbs').glob('[0-9]*.ipynb'))
    return [path for path in numbered if int(path.name[:3]) <= LAST_LESSON]

def lesson(notebook: dict) -> list[dict]:
    "The code cells of a chapter, in order. Hidden ones are part of it: others may need what they define."
    cells = []
    for cell in notebook['cells']:
        if cell['cell_type'] != 'code': continue
        directives, source = split_directives(''.join(cell['source']))
        if not source: continue
        runnable = 'false' not in (directives.get('browser'), directives.get('eval'))
        cells.append({'id': cell['id'], 'source': source, 'runnable': runnable, 'hidden': 'hide' in directives})
    return cells

def fixtures() -> dict[str, bytes]:
    "What lessons may read, by its path in the repository: all that was captured, which is less than a picture."
    return {str(path.relative_to(ROOT)): path.read_bytes()
            for path in FIXTURES.rglob('*') if path.is_file() and path.name != 'SHA256SUMS'}

def write_lessons(to: Path):
    to.mkdir(parents=True, exist_ok=True)
    for path in lessons():
        cells = lesson(json.loads(path.read_text(encoding='utf-8')))
        (to/f'{path.stem}.json').write_text(json.dumps(cells, ensure_ascii=False), encoding='utf-8')
    (to/'fixtures.zip').write_bytes(packed(fixtures()))


# --- the inspector ---

def line_of(path: str, **wanted) -> dict:
    "The first line of a recording with these values."
    lines = map(json.loads, (FIXTURES/path).read_text(encoding='utf-8').splitlines())
    return next(line for line in lines if wanted.items() <= line.items())

def without(text: str, at: int) -> str:
    "Hexadecimal without the byte at an offset; the length in front says so, too."
    raw = bytes.fromhex(text)
    raw = raw[:at] + raw[at + 1:]
    return ((len(raw) - 4).to_bytes(4, 'big') + raw[4:]).hex()

def examples() -> list[dict]:
    "Real captures, and one that is broken as people break it."
    asked = line_of('wire/clients/kcat.list.jsonl', direction='request', api_key=18)
    said = line_of('wire/clients/kcat.list.jsonl', direction='response', api_key=18)
    unknown = line_of('wire/edge/describe-topic-partitions.jsonl', name='unknown-topic')
    batch = next((FIXTURES/'single-broker'/'logs'/'orders-0').glob('*.log')).read_bytes()
    log = (FIXTURES/'course'/'10-describe-one-partition'/'logs'/'__cluster_metadata-0'/f'{0:020}.log').read_bytes()
    api_versions = {'api': 'ApiVersions', 'version': 3}
    describe = {'api': 'DescribeTopicPartitions', 'version': 0}
    return [
        {'name': 'ApiVersions request', 'kind': 'request', 'hex': asked['hex'],
         'about': 'The first thing that every client says; this one is kcat.'},
        {'name': 'ApiVersions response', 'kind': 'response', **api_versions, 'hex': said['hex'],
         'about': 'What Kafka 4.1 answers to it.'},
        {'name': 'Unknown topic, request', 'kind': 'request', 'hex': unknown['request_hex'],
         'about': 'DescribeTopicPartitions, about a topic that does not exist.'},
        {'name': 'Unknown topic, response', 'kind': 'response', **describe, 'hex': unknown['response_hex'],
         'about': 'What Kafka 4.1 answers to it.'},
        {'name': 'Record batches', 'kind': 'segment', 'hex': batch.hex(),
         'about': 'The beginning of a log file.'},
        {'name': 'Metadata log', 'kind': 'metadata', 'hex': log.hex(),
         'about': 'What the course lays out for the stage with one topic and one partition.'},
        {'name': 'A broken answer', 'kind': 'response', **describe, 'hex': without(unknown['response_hex'], 8),
         'beside': unknown['response_hex'],
         'about': "The header's tag buffer is missing: one byte, and everything after it is read one byte early. "
                  "Kafka's own answer is in the second box."}]

def write_inspector(to: Path):
    shutil.copytree(ROOT/'site'/'inspector', to, dirs_exist_ok=True, ignore=shutil.ignore_patterns('__pycache__'))
    (to/'examples.json').write_text(json.dumps(examples(), ensure_ascii=False), encoding='utf-8')


def write_pages(site: Path):
    "All of it, into a built site."
    write_pyodide(site/'pyodide')
    (site/'pyodide'/'kafka_scratch.zip').write_bytes(packed(package_files()))
    write_inspector(site/'inspector')
    write_lessons(site/'lessons')

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('site', nargs='?', type=Path)
    parser.add_argument('--fetch', action='store_true')
    options = parser.parse_args()
    if options.fetch: fetch_pyodide()
    if reason := pyodide_absent(): sys.exit(reason)
    if options.site: write_pages(options.site)


if __name__ == '__main__': main()
