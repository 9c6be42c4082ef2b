#!/usr/bin/env python3
"""Make the site: the chapters, a reference made from the package, and the pages that run in the browser.

    tools/site.py               into _site
    tools/site.py --check       and look whether all links lead somewhere and all words are spelt right
    tools/site.py --serve       and serve it on this machine: http://127.0.0.1:8000

Chapters are shown with the outputs that they have; nothing is executed. Only what has changed is made again.
"""
import argparse
import hashlib
import http.server
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0:0] = [str(ROOT), str(ROOT/'tools')]
from book import BOOK   # noqa: E402
import site_chapters   # noqa: E402
from site_chapters import book_parts, chapter, part_page, part_text, toctree   # noqa: E402
from site_contents import contents, sidebar   # noqa: E402

WORK = ROOT/'build'/'site'      # what Sphinx reads, and what it remembers
DOCS = ROOT/'docs'
HOSTED = 'inspector', 'lessons', 'pyodide'      # folders of the site that tools/pages.py writes


# --- the pages, before Sphinx ---

def docs_pages() -> dict[str, str]:
    "The pages of docs/, as they are; their links lead to pages of the site."
    def page(path): return site_chapters.relinked(path.read_text(encoding='utf-8'), path, path.relative_to(ROOT))
    return {path.relative_to(ROOT).as_posix(): page(path) for path in sorted(DOCS.glob('*.md'))}


def chapter_pages() -> dict[str, str]:
    "The map, the glossary, and the chapters, which name the APIs that they are about."
    from site_reference import apis_of
    pages = {'map.ipynb': chapter(BOOK/'map.ipynb'), 'glossary.ipynb': chapter(BOOK/'glossary.ipynb')}
    for part, files in book_parts():
        pages[f'{part_page(part)}.md'] = part_text(part, files)
        for path in files:
            links = ', '.join(f'[{name}](reference/apis/{name}.md)' for name in apis_of(path))
            pages[path.name] = chapter(path, f'---\n\nIn the reference: {links}.' if links else '')
    return pages


def all_pages() -> dict[str, str]:
    "Path → text, of all pages of the site."
    from site_reference import reference_pages
    order = '\n\n'.join(toctree([entry.page for entry in entries]) for _, entries in contents())
    return {'index.ipynb': chapter(BOOK/'index.ipynb', order), **chapter_pages(), **reference_pages(), **docs_pages()}


def write_changed(path: Path, content: bytes):
    if path.exists() and path.read_bytes() == content: return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_source(source: Path, pages: dict[str, str]):
    "What Sphinx reads: the pages, their pictures, and nothing else."
    files = {source/name: text.encode() for name, text in pages.items()}
    files |= {source/name: path.read_bytes() for name, path in site_chapters.pictures(pages).items()}
    for path in source.rglob('*'):
        if path.is_file() and path not in files: path.unlink()
    for path, content in files.items(): write_changed(path, content)


# --- Sphinx ---

def fingerprint() -> str:
    "What all pages depend on: when it changes, all of them are made again."
    files = [ROOT/'site'/'conf.py', ROOT/'requirements'/'site.lock', *sorted((ROOT/'site'/'templates').rglob('*')),
             *sorted((ROOT/'site'/'static').rglob('*'))]
    content = [path.read_bytes() for path in files if path.is_file()]
    return hashlib.sha256(b'\0'.join([*content, sidebar('').encode()])).hexdigest()


def run_sphinx(source: Path, out: Path, work: Path) -> bool:
    "Were the pages made, without a warning? If not, nothing is remembered: a warning comes once, when a page is read."
    stamp, now = work/'stamp', fingerprint()
    if not stamp.exists() or stamp.read_text() != now: shutil.rmtree(work/'doctrees', ignore_errors=True)
    stamp.unlink(missing_ok=True)
    command = [sys.executable, '-m', 'sphinx', '--jobs', 'auto', '--quiet', '--fail-on-warning',
               '--conf-dir', ROOT/'site', '--doctree-dir', work/'doctrees', source, out]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')]))
    done = subprocess.run(list(map(str, command)), env={**os.environ, 'PYTHONPATH': path, 'PYTHONUTF8': '1'})
    if done.returncode == 0: stamp.write_text(now)
    return done.returncode == 0


def publish(made: Path, out: Path, pages: dict[str, str]):
    "Puts the pages, and what belongs to them, where they are served; what was made from a chapter that is gone, goes."
    known = {Path(name).with_suffix('.html') for name in pages} | {Path('search.html')}
    wanted = {path.relative_to(made): path for path in made.rglob('*') if path.is_file()}
    wanted = {name: path for name, path in wanted.items()
              if name.name not in ('.buildinfo', 'objects.inv') and (name.suffix != '.html' or name in known)}
    wanted[Path('404.html')] = ROOT/'site'/'404.html'
    for path in out.rglob('*'):
        name = path.relative_to(out)
        if path.is_file() and name not in wanted and name.parts[0] not in HOSTED: path.unlink()
    for name, path in wanted.items():
        target = out/name
        if target.exists() and same_file(path, target): continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def same_file(one: Path, other: Path) -> bool:
    a, b = one.stat(), other.stat()
    return (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)


def fetch_programs():
    "Gets Pyodide, where npm is at hand; without it, the site has no pages that run Python."
    if not importlib.util.find_spec('pages'): return
    import pages
    if not pages.pyodide_absent() or not shutil.which('npm'): return
    print('Fetching Pyodide (once)', flush=True)
    try: pages.fetch_pyodide()
    except (subprocess.SubprocessError, OSError) as error: print(f'it could not be fetched: {error}')


def add_programs(out: Path):
    "The pages that run Python in the browser, where Pyodide is here."
    if not importlib.util.find_spec('pages'): return
    import pages
    if reason := pages.pyodide_absent(): return print(f'without the inspector and the lessons: {reason}')
    pages.write_pages(out)


def build(out: Path, work: Path = WORK) -> dict[str, str] | None:
    "Makes the site; its pages as Sphinx read them, or None if something was wrong with them."
    site_chapters.BROKEN.clear()
    pages = all_pages()
    for each in site_chapters.BROKEN: print(each)
    if site_chapters.BROKEN: return None
    write_source(work/'source', pages)
    if not run_sphinx(work/'source', work/'html', work): return None
    publish(work/'html', out, pages)
    add_programs(out)
    return pages


# --- afterwards ---

def check(out: Path, pages: dict[str, str]) -> bool:
    "Is everything in order? Says what is not."
    from site_check import check_links, check_spelling
    checked, wrong, outside = check_links(out)
    count, unknown = check_spelling(pages)
    for each in wrong: print(each)
    for word, places in unknown.items():
        print(f'{word}: in no dictionary ({places[0]}); if it is right, add it to site/words.txt')
    print(f'{checked:,} links inside the site, {len(wrong)} wrong; {len(outside)} addresses of other hosts')
    print(f'{count:,} words, {len(unknown)} unknown')
    return not wrong and not unknown


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, '.mjs': 'text/javascript',
                      '.js': 'text/javascript', '.wasm': 'application/wasm'}
    def log_message(self, *_): pass
    def send_error(self, code, *more):
        "For a page that isn't there, the one that says so."
        page = Path(self.directory)/'404.html'
        if code != 404 or not page.exists(): return super().send_error(code, *more)
        content = page.read_bytes()
        self.send_response(code)
        self.send_header('Content-Type', 'text/html; charset=utf-8')
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def server(out: Path, port: int) -> http.server.ThreadingHTTPServer:
    "A server for the site, on this machine only."
    return http.server.ThreadingHTTPServer(('127.0.0.1', port), lambda *args: Handler(*args, directory=str(out)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, default=ROOT/'_site', help='another place for it')
    parser.add_argument('--work', type=Path, default=WORK, help='where it remembers what it has read')
    parser.add_argument('--check', action='store_true', help='check links and spelling, too')
    parser.add_argument('--serve', nargs='?', type=int, const=8000, metavar='PORT', help='serve it, until Ctrl-C')
    options = parser.parse_args()
    fetch_programs()
    start = time.perf_counter()
    pages = build(options.out, options.work)
    if pages is None: return 1
    print(f'{len(pages)} pages in {time.perf_counter() - start:.0f} s: {options.out}/index.html')
    if options.check and not check(options.out, pages): return 1
    if options.serve is not None:
        with server(options.out, options.serve) as serving:
            print(f'http://127.0.0.1:{serving.server_port}/ (Ctrl-C ends it)', flush=True)
            try: serving.serve_forever()
            except KeyboardInterrupt: pass
    return 0


if __name__ == '__main__': sys.exit(main())
