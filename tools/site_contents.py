"""All pages of the site in their order: the table of contents, and the sidebar that shows it on each page.

Sphinx could make the sidebar, too, and takes half of the whole time for it: for each page it copies all headings.
"""
import html
import tomllib
from collections import namedtuple
from functools import lru_cache

from book import ROOT
from site_chapters import book_parts, has_programs, number_and_title, part_page

Entry = namedtuple('Entry', 'page title below', defaults=((),))   # below: the entries of its own
REFERENCE = {'reference/errors': 'Error codes', 'reference/settings': 'Settings',
             'reference/command_line': 'The command line'}
ITEM = ('<li class="toctree-l{depth}{classes}"><a class="reference internal" href="{root}{page}.html">{title}</a>'
        '{below}</li>')
SWITCH = ('<input aria-label="Toggle navigation of {title}" class="toctree-checkbox" id="{id}" name="{id}" '
          'role="switch" type="checkbox"{checked}>'
          '<label for="{id}"><span class="icon"><svg><use href="#svg-arrow-right"></use></svg></span></label>')


def api_names() -> list[str]: return sorted(tomllib.loads((ROOT/'site'/'apis.toml').read_text(encoding='utf-8')))


def docs_entries() -> list[Entry]:
    "The pages of docs/, by their titles."
    found = {path: path.read_text(encoding='utf-8').partition('\n')[0] for path in sorted((ROOT/'docs').glob('*.md'))}
    return [Entry(f'docs/{path.stem}', first.removeprefix('# ')) for path, first in found.items()]


@lru_cache
def contents() -> list[tuple[str, list[Entry]]]:
    "Captions, each with its pages."
    chapters = [Entry(part_page(part), part['title'], [Entry(path.stem, number_and_title(path)) for path in files])
                for part, files in book_parts()]
    apis = Entry('reference/apis/index', 'APIs', [Entry(f'reference/apis/{name}', name) for name in api_names()])
    reference = [apis, *(Entry(*each) for each in REFERENCE.items()), *docs_entries()]
    return [('', [Entry('map', 'The map'), Entry('glossary', 'Glossary')]), ('Chapters', chapters),
            ('Reference', reference)]


def item(entry: Entry, here: str, root: str, depth: int = 1) -> str:
    "An entry of the sidebar of the page `here`; those below it are shown on their own pages, and on demand."
    inside = entry.page == here or any(each.page == here for each in entry.below)
    classes = ' has-children' * bool(entry.below) + ' current' * inside + ' current-page' * (entry.page == here)
    title, below = html.escape(entry.title), ''
    if entry.below:
        name = 'below-' + entry.page.replace('/', '-')
        items = ''.join(item(each, here, root, depth + 1) for each in entry.below)
        below = SWITCH.format(title=title, id=name, checked=' checked' * inside) + f'<ul>{items}</ul>'
    return ITEM.format(depth=depth, classes=classes, root=root, page=entry.page, title=title, below=below)


def sidebar(here: str) -> str:
    "The sidebar of a page, as the theme's styles expect it."
    root, lines = '../' * here.count('/'), []
    for caption, entries in contents():
        if caption: lines.append(f'<p class="caption" role="heading"><span class="caption-text">{caption}</span></p>')
        elif has_programs(): entries = [*entries, Entry('inspector/index', 'The inspector')]
        lines.append(f'<ul>{"".join(item(entry, here, root) for entry in entries)}</ul>')
    return '\n'.join(lines)
