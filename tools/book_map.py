"The map of the book: a picture of the three paths, and the list of chapters. `tools/book.py write` puts them in place."
import html
import math
import re
import textwrap
from typing import NamedTuple

WORDS_A_MINUTE, CELLS_A_MINUTE = 180, 2.5   # a page of prose; a cell of code with its output
PATHS = 'One evening', 'The course'         # the parts that are paths of their own; all others are for *everything*


class Chapter(NamedTuple):
    number: int
    file: str
    title: str
    about: str     # the line below the title
    minutes: int   # to read it


class Part(NamedTuple):
    title: str
    about: str
    chapters: list[Chapter]

    @property
    def minutes(self) -> int: return sum(chapter.minutes for chapter in self.chapters)


def reading_minutes(notebook: dict) -> int:
    "How long a chapter takes, to the next five minutes: its prose, and its code with what comes out."
    words = cells = 0
    for cell in notebook['cells']:
        text = ''.join(cell['source'])
        if cell.get('id') == 'navigate': continue
        if cell['cell_type'] == 'markdown': words += len(re.sub(r'<[^>]+>|\]\([^)]*\)', '', text).split())
        elif not re.match(r'#\|\s*hide\b', text): cells += 1
    return max(5, 5 * math.ceil((words / WORDS_A_MINUTE + cells / CELLS_A_MINUTE) / 5))


def duration(minutes: int) -> str:
    "`25 min`, and from two hours on in hours."
    return f'{minutes} min' if minutes < 120 else f'{round(minutes / 60)} h'


def span(part: Part) -> str: return f'chapters {part.chapters[0].number} to {part.chapters[-1].number}'


# --- As a list --------------------------------------------------------------------------------------------------------

def chapter_list(parts: list[Part]) -> str:
    "Every chapter with a link, by part."
    text = []
    for part in parts:
        text += [f'## {part.title}', '', f'{part.about} *{duration(part.minutes)}*', '',
                 '| | chapter | |', '|--:|---|--:|']
        text += [f'| {each.number} | [{each.title}]({each.file}): {each.about} | {duration(each.minutes)} |'
                 for each in part.chapters]
        text.append('')
    return '\n'.join(text).rstrip()


# --- As a picture -----------------------------------------------------------------------------------------------------

WIDTH, COLOURS = 1000, ('#d9480f', '#1864ab', '#2b8a3e')


def text_at(x: float, y: float, text: str, size: int = 13, weight: str = 'normal', anchor: str = 'middle') -> str:
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
            f'fill="#212529">{html.escape(text)}</text>')


def stations(part: Part, y: int, colour: str, ends: str) -> str:
    "A path as a line with a station for each chapter, and what one has at its end."
    step = (WIDTH - 170) / (len(part.chapters) - 1)
    drawn = [text_at(20, y - 34, part.title, 18, 'bold', 'start'),
             text_at(40 + 11.5 * len(part.title), y - 34, f'{duration(part.minutes)} · {ends}', 13, anchor='start'),
             f'<path d="M85 {y}H{WIDTH - 85}" stroke="{colour}" stroke-width="6"/>']
    for n, chapter in enumerate(part.chapters):
        x = 85 + n * step
        drawn.append(f'<circle cx="{x:g}" cy="{y}" r="13" fill="#fff" stroke="{colour}" stroke-width="4"/>')
        drawn.append(text_at(x, y + 5, str(chapter.number), 12, 'bold'))
        lines = textwrap.wrap(chapter.title, max(10, int(step / 7.2)))
        drawn += [text_at(x, y + 34 + 15 * k, line, 12) for k, line in enumerate(lines)]
    return ''.join(drawn)


def boxes(parts: list[Part], y: int, colour: str) -> str:
    "The parts that remain, a box each, in rows of six."
    drawn, width = [], (WIDTH - 40) / 6
    for n, part in enumerate(parts):
        x, top = 20 + n % 6 * width, y + n // 6 * 92
        drawn.append(f'<rect x="{x + 3:g}" y="{top}" width="{width - 6:g}" height="82" rx="8" fill="#fff" '
                     f'stroke="{colour}" stroke-width="3"/>')
        lines = textwrap.wrap(part.title, 18)
        drawn += [text_at(x + width / 2, top + 22 + 16 * k, line, 13, 'bold') for k, line in enumerate(lines)]
        first, last = part.chapters[0].number, part.chapters[-1].number
        drawn.append(text_at(x + width / 2, top + 70, f'{first}–{last} · {duration(part.minutes)}', 12))
    return ''.join(drawn)


def picture(parts: list[Part]) -> str:
    "The three paths as an SVG: two lines with stations, and boxes for all that comes after."
    evening, course, rest = parts[0], parts[1], parts[2:]
    total = duration(sum(part.minutes for part in rest))
    height = 360 + 92 * math.ceil(len(rest) / 6) + 20
    return ('<svg xmlns="http://www.w3.org/2000/svg" role="img" font-family="sans-serif" '
            f'viewBox="0 0 {WIDTH} {height}">'
            '<title>Three paths through the book: one evening, the course, everything</title>'
            f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#f8f9fa"/>'
            + stations(evening, 70, COLOURS[0], 'a server that answers real clients')
            + stations(course, 210, COLOURS[1], 'all 25 stages of the course, in one plain file')
            + text_at(20, 336, 'Everything', 18, 'bold', 'start')
            + text_at(155, 336, f'{total} · the real broker, part by part; from here on, read what you need', 13,
                      anchor='start')
            + boxes(rest, 352, COLOURS[2]) + '</svg>\n')
