"""What the chapters show where nobody trusts them: without styles, scripts, classes and ids, and as plain text.

A code host and a JupyterLab that has just opened a notebook take all of these out.
"""
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from broker_process import ROOT

CHAPTERS = sorted((ROOT/'nbs').glob('*.ipynb'))
MEANINGLESS = re.compile(r'^<(IPython\.core\.display\.\w+ object|Figure size .*|[\w.]+ object at 0x\w+)>$')
BYTES = re.compile(r'([0-9a-f]{2}( [0-9a-f]{2})*( … \d+ bytes)?)?')


def outputs(path: Path):
    "Each saved output that has data, with the id of its cell."
    for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
        for output in cell.get('outputs', []):
            if 'data' in output: yield cell['id'], {kind: ''.join(text) for kind, text in output['data'].items()}


class Bare(HTMLParser):
    "A page as it is read without styles: the lines of its `<pre>`s, the cells of its tables, and all other text."
    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.inside, self.pre, self.rows, self.text = [], '', [], ''
        self.feed(page)
        self.close()
    def handle_starttag(self, tag, attributes):
        self.inside.append(tag)
        if tag == 'tr': self.rows.append([])
        if tag in ('td', 'th') and self.rows: self.rows[-1].append('')
    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag: pass
        if tag == 'pre': self.pre += '\n'
        if tag in ('td', 'th', 'tr', 'p', 'div', 'pre', 'b'): self.text += ' '
    def handle_data(self, data):
        if 'style' in self.inside or 'script' in self.inside: return
        self.text += data
        if 'pre' in self.inside: self.pre += data
        elif {'td', 'th'} & set(self.inside) and self.rows and self.rows[-1]: self.rows[-1][-1] += data


@pytest.mark.parametrize('path', CHAPTERS, ids=lambda path: path.stem)
def test_whatever_is_shown_can_be_read_as_text(path):
    for cell, data in outputs(path):
        text = data.get('text/plain', '')
        assert not MEANINGLESS.match(text), f'cell {cell}: {text}'
        if set(data) - {'text/plain'}: assert len(text) > 10, f'cell {cell} has no text'


@pytest.mark.parametrize('path', CHAPTERS, ids=lambda path: path.stem)
def test_bytes_stay_apart_without_styles(path):
    for cell, data in outputs(path):
        if 'kafka-bytes' not in data.get('text/html', ''): continue
        bare = Bare(data['text/html'])
        for line in filter(str.strip, bare.pre.splitlines()):
            if '…' in line: continue
            found = re.match(r' *\d+  ((?:[0-9a-f]{2} ?)+)', line)
            assert found and BYTES.fullmatch(found[1].strip()), f'cell {cell}: {line}'
        heads, *rows = bare.rows
        assert heads[:5] == ['offset', 'bytes', 'field', 'type', 'value'], f'cell {cell}: {heads}'
        for row in rows: assert BYTES.fullmatch(row[1]), f'cell {cell}: {row}'
        shown = sum(1 for row in rows if row[1])
        assert shown == data['text/html'].count('<tr class='), f'cell {cell}: a field without bytes'


@pytest.mark.parametrize('path', CHAPTERS, ids=lambda path: path.stem)
def test_no_page_is_a_run_of_hexadecimal(path):
    "Sixteen digits and more, with letters among them, that no name or id explains."
    for cell, data in outputs(path):
        run = re.search(r'(?<!\w)(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{16,}(?!\w)', Bare(data.get('text/html', '')).text)
        assert not run, f'cell {cell}: {run[0]}'


@pytest.mark.parametrize('path', CHAPTERS, ids=lambda path: path.stem)
def test_colour_is_never_alone(path):
    "Every box of a drawing has a text in it or a title."
    for cell, data in outputs(path):
        drawing = data.get('image/svg+xml', '')
        if drawing: assert drawing.count('<text') >= drawing.count('<rect'), f'cell {cell}'


def test_the_check_sees_what_it_should():
    bad = '<div class="kafka-bytes"><div><span>00</span><span>1b</span></div><table><tr><td>0</td></tr></table></div>'
    assert Bare(bad).text.split()[0] == '001b' and Bare(bad).pre == '' and Bare(bad).rows == [['0']]
    assert MEANINGLESS.match('<IPython.core.display.SVG object>') and MEANINGLESS.match('<Figure size 800x450 with 1 Axes>')
    assert not MEANINGLESS.match('<RunningBroker: localhost>')
