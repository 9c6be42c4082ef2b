"""Runs the cells of a chapter, one after the other, in the page; shows what a notebook would show."""
import builtins
import json
import linecache
import re
import sys
import traceback
import types

import page   # the worker's side: page.show(kind, text)
from pyodide.code import eval_code_async

NAMES = {}


# --- what is shown ---

class Printed:
    "Standard output, handed to the page line by line."
    encoding, errors = 'utf-8', 'strict'
    def __init__(self, kind): self.kind, self.held = kind, ''
    def write(self, text):
        self.held += text
        if '\n' in text: self.flush()
        return len(text)
    def flush(self):
        if self.held: page.show(self.kind, self.held)
        self.held = ''
    def isatty(self): return False
    def writable(self): return True


class Rich:
    "HTML, as `IPython.display.HTML` and `SVG` have it."
    def __init__(self, data): self.data = data
    def _repr_html_(self): return self.data
    def __repr__(self): return f'<{type(self).__name__} object>'

class HTML(Rich): pass
class SVG(Rich): pass
class Markdown(Rich):
    def _repr_html_(self): return None
    def __repr__(self): return self.data


def html_of(value) -> str | None:
    "The rich form of a value, if it has one."
    if isinstance(value, type): return None
    for method in '_repr_html_', '_repr_svg_':
        if callable(getattr(value, method, None)) and (text := getattr(value, method)()): return text

def display(*values, **_):
    "Shows values as the last line of a cell does."
    for value in values:
        sys.stdout.flush()
        html = html_of(value)
        page.show('html' if html else 'text', html or repr(value))


def pretend(name: str, **names):
    "A module that notebooks have and browsers don't."
    module = types.ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module

pretend('IPython')
pretend('IPython.display', display=display, HTML=HTML, SVG=SVG, Markdown=Markdown)


# --- how it fails ---

HERE = 'cell '   # how the file names of cells begin
PLACE = re.compile(r'File "(cell [^"]*)", (line \d+)(?:, in <module>)?')

def told(error: BaseException) -> str:
    "A traceback of the reader's own lines; what lies between them and the error is ours."
    lines = traceback.format_exception_only(error)
    if not (isinstance(error, SyntaxError) and str(error.filename).startswith(HERE)):
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(HERE)]
        lines = [*traceback.StackSummary.from_list(frames).format(), *lines]
    return PLACE.sub(r'In \1, \2', ''.join(lines))

def hint(error: BaseException) -> str:
    "What an error means here that it doesn't mean elsewhere."
    if isinstance(error, ModuleNotFoundError):
        return "This page has Python's standard library and kafka_scratch, and nothing else."
    no_thread = isinstance(error, RuntimeError) and 'thread' in str(error)
    no_socket = isinstance(error, OSError) and error.filename is None
    if no_thread or no_socket:
        return 'A page has neither sockets nor threads: run this on your machine.'
    return ''


# --- to run a cell ---

def start_again() -> str:
    "Forgets all that cells have defined."
    NAMES.clear()
    NAMES.update(__name__='__main__', __builtins__=builtins, display=display)
    return 'null'

start_again()


async def run(label: str, source: str) -> str:
    "Runs a cell. What it shows goes to the page as it comes; what is returned is what went wrong, or null."
    name = HERE + label
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Printed('stdout'), Printed('stderr')
    try:
        value = await eval_code_async(source, NAMES, filename=name)
        if value is not None: display(value)
        return 'null'
    except BaseException as error:
        if error.__traceback__: error.__traceback__ = error.__traceback__.tb_next
        return json.dumps({'error': told(error), 'hint': hint(error)})
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = streams
