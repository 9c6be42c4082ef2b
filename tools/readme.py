#!/usr/bin/env python3
"""Write README.md from the notebook named by readme_nb in settings.ini.

    tools/readme.py             write README.md
    tools/readme.py --check     exit 1 with a diff if README.md is not what the notebook says

Hidden cells and `#|` lines are left out, outputs are shown as text, and links that are relative to the
notebook's folder become relative to the repository.
"""
import argparse
import difflib
import posixpath
import re
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIFF_LINES = 60
HEADER = '<!-- Written by tools/readme.py from {source}: edit that, not this. -->\n\n'
TEMPLATE = '''{%- extends 'markdown/index.md.j2' -%}
{% macro fenced(text) %}
```text
{{ text | strip_ansi | trim('\\n') }}
```
{% endmacro %}
{% block stream %}{{ fenced(output.text) }}{% endblock stream %}
{% block data_text scoped %}{{ fenced(output.data['text/plain']) }}{% endblock data_text %}
'''
DIRECTIVE = re.compile(r'\s*#\s*\|\s*([\w-]+)\s*(?::\s*(\S+))?')
LINK = re.compile(r'''(\]\(|\b(?:src|href)=["'])(?![a-z][a-z0-9+.-]*:|[#/])([^\s)"']+)''', re.I)
FENCE = re.compile(r'\s*(```|~~~)')


def split_directives(source: str) -> tuple:
    "Leading `#| name: value` lines as a dict, and the rest: ({'hide': ''}, 'code')."
    lines, directives = source.splitlines(), {}
    while lines and (match := DIRECTIVE.match(lines[0])):
        directives[match[1]] = (match[2] or '').lower()
        lines.pop(0)
    return directives, '\n'.join(lines).strip('\n')


def outside_fences(text: str, change) -> str:
    "Apply `change` to each line of Markdown that is not inside a fenced block."
    lines, inside = [], False
    for line in text.splitlines():
        if FENCE.match(line): inside = not inside
        lines.append(line if inside else change(line))
    return '\n'.join(lines)


def plain(output):
    "The output with only its text forms; None if nothing readable is left."
    if 'data' not in output: return output
    for kind in ('text/markdown', 'text/plain'):
        text = output.data.get(kind, '')
        if text and not re.fullmatch(r'<[^\n]*>', text.strip()):  # a bare <Figure ...> tells a reader nothing
            output.data = {kind: text}
            return output
    return None


def prepare(notebook, folder: str):
    "Drop what readers of the README should not see."
    def rebase(line):
        return LINK.sub(lambda match: match[1] + posixpath.normpath(posixpath.join(folder, match[2])), line)

    cells = []
    for cell in notebook.cells:
        if cell.cell_type == 'markdown':
            cell.source = outside_fences(cell.source, rebase)
        elif cell.cell_type == 'code':
            directives, cell.source = split_directives(cell.source)
            if 'hide' in directives or directives.get('include') == 'false': continue
            hide_output = 'hide_output' in directives or directives.get('output') == 'false'
            cell.outputs = [] if hide_output else [kept for output in cell.outputs if (kept := plain(output))]
            if 'hide_input' in directives or directives.get('echo') == 'false':
                cell.metadata['transient'] = {'remove_source': True}
            elif not cell.source: continue
        else: continue
        cells.append(cell)
    notebook.cells = cells
    notebook.metadata['language_info'] = {'name': notebook.metadata.get('kernelspec', {}).get('language', 'python')}
    return notebook


def single_blank_lines(text: str) -> str:
    "At most one blank line in a row outside fences, no trailing space there, one newline at the end."
    lines, inside = [], False
    for line in text.splitlines():
        if FENCE.match(line): inside = not inside
        if not inside:
            line = line.rstrip()
            if not line and lines and not lines[-1]: continue
        lines.append(line)
    return '\n'.join(lines).strip('\n') + '\n'


def render(notebook_path: Path) -> str:
    "The README's text."
    import nbformat
    from jinja2 import DictLoader
    from nbconvert.exporters import MarkdownExporter

    notebook = prepare(nbformat.read(notebook_path, as_version=4), notebook_path.parent.relative_to(ROOT).as_posix())
    exporter = MarkdownExporter(extra_loaders=[DictLoader({'readme.md.j2': TEMPLATE})], template_file='readme.md.j2')
    body, _ = exporter.from_notebook_node(notebook)
    return HEADER.format(source=notebook_path.relative_to(ROOT).as_posix()) + single_blank_lines(body)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='write nothing; exit 1 if README.md is out of date')
    options = parser.parse_args()
    config = ConfigParser(delimiters=['='])
    config.read(ROOT/'settings.ini', encoding='utf-8')
    source = ROOT/config['DEFAULT']['nbs_path']/config['DEFAULT']['readme_nb']
    readme = ROOT/'README.md'
    new = render(source)
    old = readme.read_text(encoding='utf-8') if readme.exists() else ''
    name = source.relative_to(ROOT).as_posix()
    if not options.check:
        if new != old: readme.write_text(new, encoding='utf-8', newline='\n')
        print(f'README.md {"is up to date with" if new == old else "written from"} {name}')
        return 0
    if new == old:
        print(f'README.md is what {name} says')
        return 0
    print(f'README.md is not what {name} says: run tools/readme.py')
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), 'README.md', name, lineterm=''))
    print('\n'.join(lines[:DIFF_LINES]))
    if len(lines) > DIFF_LINES: print(f'... {len(lines) - DIFF_LINES} more lines')
    return 1


if __name__ == '__main__': sys.exit(main())
