#!/usr/bin/env python3
"""Keep the book in order: numbers without holes, titles that carry them, a way to the next chapter, links that fit.

    tools/book.py check     exit 1, with what is wrong
    tools/book.py write     put it right; and write the map: its list of chapters, and its picture

The order of the chapters is that of their file names. `016b_log.recovery.ipynb` is a chapter that somebody put between
16 and 17; `write` gives it a number of its own and moves all that follow. A link whose text ends in a number, such as
`[chapter 16](016_log.partition.ipynb)`, gets the number of the chapter that it leads to.
"""
import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import book_map as drawn

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT/'nbs'
NAME = re.compile(r'(\d+)([a-z]?)_(.+)')
TITLE = re.compile(r'# (?:\d+\. )?(.+)')
LINK = re.compile(r'\[([^\]\n]*(?:\n[^\]\n]*)?)\]\((\d+[a-z]?_[\w.]+?\.ipynb)(#[^)]*)?\)')
NUMBERED = re.compile(r'(?:(?<=chapter )|(?<=chapters )|(?<=chapter\n)|^)\d+[a-z]?(?=$|\. )', re.I)
NAVIGATION = 'navigate'   # the id of the last cell
CHAPTERS = 'chapters'     # the id of the cell of the map that lists them
TEXTS = '*.py', '*.md', '*.sh', '*.json', '*.toml', '*.ini', '*.css', '*.js'   # what else may name a chapter


def chapters() -> list[Path]:
    "The numbered chapters, in their order."
    return sorted(BOOK.glob('[0-9]*.ipynb'))


def parts() -> list[dict]:
    "The parts of the book: title, what it is about, and the name of the first chapter of each."
    return tomllib.loads((BOOK/'parts.toml').read_text(encoding='utf-8'))['part']


def read(path: Path) -> dict: return json.loads(path.read_text(encoding='utf-8'))
def written(notebook: dict) -> str: return json.dumps(notebook, indent=1, ensure_ascii=False) + '\n'
def name_of(path: Path) -> str: return NAME.fullmatch(path.stem)[3]


def lines(text: str) -> list[str]: return text.splitlines(keepends=True)


def title_of(notebook: dict) -> str:
    "The title, without its number."
    return TITLE.match(notebook['cells'][0]['source'][0].rstrip('\n'))[1]


def numbers() -> dict[Path, int]: return {path: number for number, path in enumerate(chapters(), 1)}


def new_name(path: Path, number: int) -> str: return f'{number:03}_{name_of(path)}.ipynb'


def relinked(text: str, by_name: dict[str, tuple[int, str]]) -> str:
    "The text with its links to chapters as they should be. One that leads nowhere is left for the link checker."
    def link(match):
        label, file, anchor = match[1], match[2], match[3] or ''
        found = by_name.get(NAME.fullmatch(file.removesuffix('.ipynb'))[3])
        if not found: return match[0]
        return f'[{NUMBERED.sub(str(found[0]), label)}]({found[1]}{anchor})'
    return LINK.sub(link, text)


def navigation(titled: list[tuple[str, str]], at: int) -> str:
    "The last line of a chapter: back, the map, on."
    steps = ['[The map](map.ipynb)']
    if at > 0: steps.insert(0, f'[← {titled[at - 1][0]}]({titled[at - 1][1]})')
    if at + 1 < len(titled): steps.append(f'[{titled[at + 1][0]} →]({titled[at + 1][1]})')
    return '---\n\n' + ' · '.join(steps)


def book(order: dict[Path, int], by_name: dict) -> list[drawn.Part]:
    "The parts with their chapters, as the map shows them."
    starts, found = {part['first']: part for part in parts()}, []
    for path, number in order.items():
        notebook = read(path)
        if part := starts.pop(name_of(path), None): found.append(drawn.Part(part['title'], part['about'], []))
        about = ' '.join(line.strip('> \n') for line in notebook['cells'][0]['source'][1:] if line.startswith('>'))
        found[-1].chapters.append(drawn.Chapter(number, new_name(path, number), title_of(notebook),
                                                relinked(about, by_name), drawn.reading_minutes(notebook)))
    if starts: raise SystemExit(f'nbs/parts.toml: no chapter is called {", ".join(starts)}')
    return found


def put_right(write: bool) -> list[str]:
    "What is not as it should be; with `write`, it is put right."
    order, wrong = numbers(), []
    by_name = {name_of(path): (number, new_name(path, number)) for path, number in order.items()}
    parts_of_book = book(order, by_name)
    if not (BOOK/'map.svg').exists() or (BOOK/'map.svg').read_text(encoding='utf-8') != drawn.picture(parts_of_book):
        wrong.append('map.svg')
        if write: (BOOK/'map.svg').write_text(drawn.picture(parts_of_book), encoding='utf-8', newline='\n')
    titled = [(f'{number}. {title_of(read(path))}', new_name(path, number)) for path, number in order.items()]
    for path in sorted(BOOK.glob('*.ipynb')):
        if path.name[0] in '._': continue
        notebook = read(path)
        old = written(notebook)
        for cell in notebook['cells']:
            if cell.get('id') == CHAPTERS: cell['source'] = lines(drawn.chapter_list(parts_of_book))
            elif cell['cell_type'] == 'markdown': cell['source'] = lines(relinked(''.join(cell['source']), by_name))
        if path in order:
            number = order[path]
            first = notebook['cells'][0]['source']
            first[0] = f'# {number}. {title_of(notebook)}' + ('\n' if first[0].endswith('\n') else '')
            cells = [cell for cell in notebook['cells'] if cell.get('id') != NAVIGATION]
            way = {'cell_type': 'markdown', 'id': NAVIGATION, 'metadata': {},
                   'source': lines(navigation(titled, number - 1))}
            notebook['cells'] = [*cells, way]
            if path.name != new_name(path, number): wrong.append(f'{path.name} should be {new_name(path, number)}')
        if (new := written(notebook)) != old:
            wrong.append(f'{path.name}: title, links or navigation')
            if write: path.write_text(new, encoding='utf-8', newline='\n')
    renamed = {path.stem: new_name(path, number).removesuffix('.ipynb') for path, number in order.items()
               if path.name != new_name(path, number)}
    if write and renamed: rename(renamed)
    return wrong


def rename(renamed: dict[str, str]):
    "Chapters under their new names, and the other files that name them."
    for old, new in sorted(renamed.items(), reverse=True):   # by way of a name that no chapter has
        (BOOK/f'{old}.ipynb').rename(BOOK/f'.{new}.moving')
    for new in renamed.values(): (BOOK/f'.{new}.moving').rename(BOOK/f'{new}.ipynb')
    old_name = re.compile('|'.join(rf'\b{re.escape(old)}\b' for old in sorted(renamed, reverse=True)))
    listed = subprocess.run(['git', 'ls-files', '-z', *TEXTS], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split('\0')):
        path = ROOT/name
        if name.startswith(('kafka_scratch/', 'tests/fixtures/')) or not path.is_file(): continue
        text = path.read_text(encoding='utf-8')
        new = old_name.sub(lambda match: renamed[match[0]], text)
        if new != text: path.write_text(new, encoding='utf-8', newline='\n')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('command', choices=('check', 'write'))
    write = parser.parse_args().command == 'write'
    wrong = put_right(write)
    for each in wrong: print(each)
    if not wrong: print(f'{len(chapters())} chapters, in order')
    elif write: print('put right; tools/export.py writes the package with the new names')
    else: print('tools/book.py write puts that right')
    return 1 if wrong and not write else 0


if __name__ == '__main__': sys.exit(main())
