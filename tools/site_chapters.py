"""The chapters as the site shows them: what a reader doesn't need is left out, and links lead to pages of the site."""
import json
import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from book import NAVIGATION, ROOT, BOOK, chapters, name_of, parts, read, title_of
from readme import outside_fences, split_directives

PAGES, PICTURES = {'.ipynb', '.md'}, {'.svg', '.png'}
LINK = re.compile(r'(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)')
ANCHOR = re.compile(r'[^\w-]+')
BROKEN = []            # links that lead nowhere, found on the way
PICTURE = '<div class="picture">{}</div>'


def has_programs() -> bool:
    "Are the pages here that run Python in the browser, and Pyodide, which they need?"
    if not find_spec('pages'): return False
    import pages
    return not pages.pyodide_absent()


def lessons() -> list[Path]:
    "The chapters whose cells can be run in the page."
    if not has_programs(): return []
    import pages
    return pages.lessons()


def book_parts() -> list[tuple[dict, list[Path]]]:
    "Each part with its chapters."
    found, files = parts(), chapters()
    names = [name_of(path) for path in files]
    starts = [names.index(part['first']) for part in found]
    return [(part, files[start:end]) for part, start, end in zip(found, starts, [*starts[1:], len(files)])]


def part_page(part: dict) -> str:
    "Where the page of a part is: `'parts/one-evening'`."
    return 'parts/' + re.sub(r'\W+', '-', part['title'].lower())


def tagline(path: Path, page: Path) -> str:
    "What a chapter says of itself, below its title; for another page."
    text = relinked(''.join(read(path)['cells'][0]['source']), path, page)
    return ' '.join(line.removeprefix('>').strip() for line in text.splitlines() if line.startswith('>'))


@lru_cache
def number_and_title(path: Path) -> str: return f'{int(path.name[:3])}. {title_of(read(path))}'


# --- links ---

def page_of(file: Path) -> Path | None:
    "Where a file of the repository is in the source of the site, if it is part of it."
    if file.suffix in PAGES and file.parent == BOOK: return Path(file.name)
    if file.suffix in PAGES and file.parent == ROOT/'docs': return file.relative_to(ROOT)
    if file.suffix in PICTURES: return Path('pictures')/file.relative_to(ROOT)
    return None


def pictures(pages: dict[str, str]) -> dict[Path, Path]:
    "The pictures that pages show: where each is in the source of the site, and where it comes from."
    found = {name for text in pages.values() for name in re.findall(r'\]\((?:\.\./)*pictures/([^()\s]+)\)', text)}
    return {Path('pictures')/name: ROOT/name for name in sorted(found)}


def relinked(text: str, here: Path, page: Path) -> str:
    "The links of a file `here`, which becomes `page`: to pages of the site, or the name of what isn't on it."
    def link(match):
        picture, label, target = match.groups()
        if re.match(r'[a-z][a-z0-9+.-]*:|//', target): return match[0]
        file, _, anchor = target.partition('#')
        anchor = '#' + ANCHOR.sub('-', anchor.lower()).strip('-') if anchor else ''
        if not file: return f'{picture}[{label}]({anchor})'
        found = (here.parent/file).resolve()
        if not found.exists(): BROKEN.append(f'{here.relative_to(ROOT)}: [{label}]({target}) leads nowhere')
        there = page_of(found)
        if there is None: return f'{label} (`{found.relative_to(ROOT).as_posix()}`)'
        up = '../' * len(page.parent.parts)
        return f'{picture}[{label}]({up}{there.as_posix()}{anchor})'
    return outside_fences(text, lambda line: LINK.sub(link, line))


# --- notebooks ---

def shown(output: dict) -> dict:
    "An output; pictures are part of the page, not files beside it."
    data = output.get('data', {})
    if 'image/svg+xml' in data:
        picture = ''.join(data['image/svg+xml'])
        picture = re.sub(r'^<\?xml[^>]*\?>\s*|<!DOCTYPE[^>]*>\s*', '', picture).strip()
        data = {'text/html': PICTURE.format(re.sub(r'\n\s*\n', '\n', picture)), 'text/plain': data['text/plain']}
        return output | {'data': data}
    return output


def code_cell(cell: dict) -> dict | None:
    "A code cell for readers; None, if it is hidden or nothing but directives."
    directives, source = split_directives(''.join(cell['source']))
    if 'hide' in directives or not source: return None
    return cell | {'source': source, 'metadata': cell['metadata'] | {'cell_id': cell['id']},
                   'outputs': [shown(output) for output in cell['outputs']]}


def chapter(path: Path, more: str = '') -> str:
    "A notebook of the site, from one of the book; `more` is Markdown at its end."
    notebook, cells = read(path), []
    for cell in notebook['cells']:
        if cell.get('id') == NAVIGATION: continue   # the theme has a way to the next page
        if cell['cell_type'] == 'markdown':
            cells.append(cell | {'source': relinked(''.join(cell['source']), path, Path(path.name))})
        elif cell['cell_type'] == 'code' and (kept := code_cell(cell)): cells.append(kept)
    if more: cells.append({'cell_type': 'markdown', 'id': 'more', 'metadata': {}, 'source': more})
    notebook['metadata']['language_info'] = {'name': 'python', 'pygments_lexer': 'ipython3'}
    return json.dumps(notebook | {'cells': cells}, ensure_ascii=False)


# --- parts, and the way through all pages ---

def toctree(pages) -> str:
    "What comes next, in this order, says a page to Sphinx; readers have the sidebar."
    return '\n'.join(['```{toctree}', ':hidden:', ':titlesonly:', '', *pages, '```'])


def part_text(part: dict, files: list[Path]) -> str:
    "The page of a part: what it is about, and its chapters."
    rows = [f'[{number_and_title(path)}](../{path.name})\n: {tagline(path, Path(part_page(part)))}\n' for path in files]
    return '\n'.join([f'# {part["title"]}', '', part['about'], '', *rows,
                      toctree([f'/{path.stem}' for path in files])])


