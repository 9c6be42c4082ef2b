#!/usr/bin/env python3
"""Write the package from the notebooks: nbdev_export, and then the headings of the notebooks as comments.

    tools/export.py

nbdev takes only code from a notebook. A module without its headings is a row of functions; with them, somebody who
opens the module alone sees its parts. So each exported cell that comes first below a heading gets that heading above
it.
"""
import json
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CELL = re.compile(r'^# %% (\S+\.ipynb) #(\w+)$')
HEADING = re.compile(r'^(##+) +(.+)$')


def headings(notebook: Path) -> dict[str, list[str]]:
    "The headings above each exported cell that is the first below them, by the id of the cell."
    found, waiting = {}, []
    for cell in json.loads(notebook.read_text(encoding='utf-8'))['cells']:
        text = ''.join(cell['source'])
        if cell['cell_type'] == 'markdown':
            for line in text.splitlines():
                if match := HEADING.match(line):
                    # a new section of the same rank, or of a higher one, replaces what had no code
                    waiting = [each for each in waiting if each.index(' ') < len(match[1])] + [line]
        elif re.match(r'#\|\s*exports?\b', text):
            if waiting: found[cell['id']] = waiting
            waiting = []
    return found


def with_headings(module: Path, known: dict) -> str:
    "The text of a module, with the headings in it."
    lines = []
    for line in module.read_text(encoding='utf-8').split('\n'):
        if match := CELL.match(line):
            notebook = (module.parent/match[1]).resolve()
            if notebook not in known: known[notebook] = headings(notebook)
            lines += [f'# {heading}' for heading in known[notebook].get(match[2], [])]
        lines.append(line)
    return '\n'.join(lines)


def main() -> int:
    os.chdir(ROOT)
    config = ConfigParser(delimiters=['='])
    config.read('settings.ini', encoding='utf-8')
    package, known = ROOT/config['DEFAULT']['lib_path'], {}
    env = {name: value for name, value in os.environ.items() if name != 'IN_TEST'}   # with it, nothing is written
    env['PATH'] = os.path.dirname(sys.executable) + os.pathsep + env.get('PATH', '')
    done = subprocess.run(['nbdev_export'], env=env)
    if done.returncode: return done.returncode
    for module in sorted(package.rglob('*.py')):
        if module.name == '_modidx.py': continue
        text = with_headings(module, known)
        if text != module.read_text(encoding='utf-8'): module.write_text(text, encoding='utf-8', newline='\n')
    return 0


if __name__ == '__main__': sys.exit(main())
