"""The reference, made from the package: a page for each API, all error codes, all settings, the command line."""
import argparse
import base64
import html
import re
import tomllib
from collections import namedtuple
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

from book import ROOT, chapters, name_of
from kafka_scratch.apis.api import Api, explain_request, explain_response
from kafka_scratch.broker.apis import APIS
from kafka_scratch.cluster.other_settings import BROKER_TABLE, CHANGED
from kafka_scratch.cluster.settings_table import TOPIC_TABLE
from kafka_scratch.tools.cli import parser
from kafka_scratch.wire.codes import API_NAMES, ERROR_NAMES, ErrorCode
from kafka_scratch.wire.inspector import Inspection
from kafka_scratch.wire.primitives import Array
from kafka_scratch.wire.schema import UNSET, Field, grammar
from site_captures import Capture, client_of, examples
from site_chapters import has_programs, number_and_title, toctree

if find_spec('kafka_scratch.wire.field_notes'): from kafka_scratch.wire.field_notes import field_note
else:
    def field_note(path: tuple) -> str: return ''

TEXTS = ROOT/'site'
COLUMNS = 88          # how wide the help of a command may be
FLEXIBLE = ('From version {} on the messages are *flexible*: strings, bytes and arrays are compact (their length is '
            'written as an unsigned varint, plus one), and every struct ends with a tag buffer.')


def read_toml(name: str) -> dict: return tomllib.loads((TEXTS/name).read_text(encoding='utf-8'))


def marked(text: str) -> str:
    "A sentence with `code` in it, as HTML."
    return re.sub('`([^`]*)`', r'<code>\1</code>', html.escape(text, quote=False))


def table(heads, rows, kind: str) -> str:
    "A table in HTML. A row is an id and its cells; in a narrow window, each cell has its heading before it."
    lines = [f'<div class="wide"><table class="{kind}"><thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr>'
             '</thead><tbody>']
    for name, *cells in rows:
        columns = '\n'.join(f'<td data-head="{head}">{cell}</td>' for head, cell in zip(heads, cells))
        lines.append(f'<tr id="{name}">{columns}</tr>')   # a line for each: to the search, words end where lines do
    return '\n'.join([*lines, '</tbody></table></div>'])


def chapter_of(module: str) -> Path:
    "The chapter that exports a module."
    name = module.removeprefix('kafka_scratch.')
    return next(path for path in chapters() if name_of(path) == name)


# --- versions and types ---

def versions_text(versions: range, all_of: range) -> str:
    "Which of an API's versions: `'all'`, `'3+'`, `'0–8'`, `'2'`."
    first, last = max(versions.start, all_of.start), min(versions.stop, all_of.stop) - 1
    if first > last: return ''
    if (first, last) == (all_of[0], all_of[-1]): return 'all'
    if last == all_of[-1]: return f'{first}+'
    return str(first) if first == last else f'{first}–{last}'


def type_text(declared) -> str:
    "A declared type in words: `array of String`."
    if isinstance(declared, Array): return f'array of {type_text(declared.element)}'
    return declared.__name__ if isinstance(declared, type) else declared.name


def default_text(f: Field) -> str:
    if f.default is UNSET: return ''
    if isinstance(f.default, bytes): return f'{len(f.default)} zero bytes' if not any(f.default) else f.default.hex(' ')
    return f'<code>{html.escape({None: "null", True: "true", False: "false"}.get(f.default, repr(f.default)))}</code>'


def null_text(f: Field, api: Api) -> str:
    "In which versions may it be null? `'nullable'`, if in all that have it."
    null = versions_text(f.nullable, api.versions)
    if not null: return ''
    always = null in ('all', versions_text(f.versions, api.versions))
    return 'nullable' if always else f'nullable in {null}'


def marks(f: Field, api: Api) -> str:
    "The versions of a field, and what is special about it."
    said = [versions_text(f.versions, api.versions), null_text(f, api), f'tag {f.tag}' if f.tag is not None else '',
            '' if f.flexible else 'never compact']
    return ', '.join(filter(None, said))


Row = namedtuple('Row', 'field path depth note')


def field_rows(cls: type, api: Api, path: tuple = (), depth: int = 0):
    "A row for each field of a message, and below it those of the struct that it holds."
    for f in cls.FIELDS:
        if not versions_text(f.versions, api.versions): continue
        here = inside = (*path, f.name)
        inner = f.type
        while isinstance(inner, Array): inner, inside = inner.element, (*inside, 0)
        yield Row(f, here, depth, field_note(here))
        if isinstance(inner, type): yield from field_rows(inner, api, inside, depth + 1)


def names_in(path: tuple) -> list[str]: return [step for step in path if isinstance(step, str)]


def fields_table(cls: type, api: Api) -> str:
    rows = list(field_rows(cls, api))
    if not rows: return 'No fields.'
    noted = any(row.note for row in rows)
    heads = ['Field', 'Type', 'Versions', 'Default', *['What it says'] * noted]
    kind, cells = 'request' if cls is api.request else 'response', []
    for row in rows:
        name = f'<span class="depth{row.depth}"><code>{row.field.name}</code></span>'
        cells.append(['.'.join([kind, *names_in(row.path)]), name, type_text(row.field.type),
                      marks(row.field, api), default_text(row.field), *[marked(row.note)] * noted])
    return table(heads, cells, 'fields')


def changed(cls: type, api: Api, version: int, other: int, what: str = 'versions') -> list[str]:
    "Fields that a version has and another hasn't; not those inside of one that is named already."
    found = {}
    for row in field_rows(cls, api):
        names, versions = tuple(names_in(row.path)), getattr(row.field, what)
        here = version in versions and other not in versions
        if what == 'nullable': here = here and other in row.field.versions
        if here and not any(names[:n] in found for n in range(1, len(names))): found[names] = f'`{".".join(names)}`'
    return list(found.values())


def history(api: Api) -> str:
    "What each version added and dropped, from the declarations."
    lines, flexible = [], api.request.FLEXIBLE
    for version in api.versions[1:]:
        before = version - 1
        said = ['flexible'] if version in flexible and before not in flexible else []
        for cls, where in ((api.request, 'request'), (api.response, 'response')):
            if new := changed(cls, api, version, before): said.append(f'new in the {where}: {", ".join(new)}')
            if null := changed(cls, api, version, before, 'nullable'): said.append(f'may be null: {", ".join(null)}')
            if gone := changed(cls, api, before, version): said.append(f'gone from the {where}: {", ".join(gone)}')
        lines.append(f'- **{version}**: {"; ".join(said) or "the same fields"}')
    return '\n'.join(lines)


# --- captures ---

def inspected(title: str, raw: bytes, explanation) -> str:
    "Bytes and fields, side by side; no blank line, which would end the HTML."
    page = Inspection(title, raw, *explanation[1:])._repr_html_()
    return f'<div class="example">\n{re.sub(chr(10) + "+", chr(10), page)}\n</div>'


def example_text(api: Api, capture: Capture) -> str:
    name, who = API_NAMES[api.key], client_of(capture.source)
    said = (f'{who} asked Apache Kafka 4.1.1, in version {capture.version}.' if who else
            f'A request of version {capture.version}, made for the purpose, and the answer of Apache Kafka 4.1.1.')
    source = capture.source.relative_to(ROOT).as_posix()
    asked, answered = (f'{name} {what} v{capture.version}, {len(raw)} bytes'
                       for what, raw in (('request', capture.request), ('response', capture.response)))
    links = (inspector_link('the request', capture.request, kind='request'),
             inspector_link('the response', capture.response, kind='response', api=name, version=capture.version))
    more = f' Or change it, in the inspector: {links[0]}, {links[1]}.' if has_programs() else ''
    return '\n\n'.join([
        f'{said[0].upper()}{said[1:]} (From `{source}`.) Point at a byte or at a field.{more}',
        '### The request, byte by byte', inspected(asked, capture.request, explain_request(capture.request, APIS)),
        '### The response, byte by byte',
        inspected(answered, capture.response, explain_response(capture.response, api, capture.version))])


def inspector_link(label: str, raw: bytes, **kind) -> str:
    "The inspector's page, with these bytes in it."
    packed = base64.urlsafe_b64encode(raw).decode().rstrip('=')
    return f'<a href="../../inspector/index.html#{html.escape(urlencode(dict(bytes=packed, **kind)))}">{label}</a>'


# --- a page for each API ---

def chapter_links(api: Api, tiny: str | None) -> str:
    "Where the book is about it."
    modules = dict.fromkeys(each.__module__ for each in (api.request, api.answer))
    link = lambda path: f'[{number_and_title(path)}](../../{path.name})'   # noqa: E731
    text = f'In the book: {" and ".join(link(chapter_of(module)) for module in modules)}'
    return f'{text}; in small, {link(chapter_of(tiny))}.' if tiny else f'{text}.'


def apis_of(path: Path) -> list[str]:
    "The APIs that a chapter declares or answers."
    module = f'kafka_scratch.{name_of(path)}'
    return [API_NAMES[key] for key, api in sorted(APIS.items())
            if module in (api.request.__module__, api.answer.__module__)]


def api_page(api: Api, about: dict) -> str:
    name, versions = API_NAMES[api.key], api.versions
    flexible = next((version for version in versions if version in api.request.FLEXIBLE), None)
    served = f'{versions[0]} to {versions[-1]}' if len(versions) > 1 else f'{versions[0]} only'
    newest = versions[-1]
    notes = [FLEXIBLE.format(flexible)] if flexible else ['No version is flexible.']
    if flexible == versions[0]: notes = [FLEXIBLE.replace('From version {} on the', 'All')]
    if name == 'ApiVersions': notes.append('The header of its response stays at version 0 all the same.')
    return '\n\n'.join([
        f'# {name}', about['about'],
        f'**API key {api.key}**, version{"s" * (len(versions) > 1)} {served}. {chapter_links(api, about.get("tiny"))}',
        ' '.join(notes),
        '## Request', f'*{api.request.__doc__}*', fields_table(api.request, api),
        '## Response', f'*{api.response.__doc__}*', fields_table(api.response, api),
        *(['## Versions', history(api)] if len(versions) > 1 else []),
        '## A real example', example_text(api, examples()[api.key]),
        '## In the notation of the protocol guide',
        f'```text\n{grammar(api.request, newest)}\n\n{grammar(api.response, newest)}\n```'])


def apis_index(about: dict) -> str:
    rows = [[f'key-{key}', str(key), f'<a href="{API_NAMES[key]}.html">{API_NAMES[key]}</a>',
             f'{api.versions[0]}–{api.versions[-1]}' if len(api.versions) > 1 else str(api.versions[0]),
             next((f'{version}+' for version in api.versions if version in api.request.FLEXIBLE), 'none'),
             marked(about[API_NAMES[key]]['about'])] for key, api in sorted(APIS.items())]
    missing = ', '.join(f'{name} ({key})' for key, name in enumerate(API_NAMES) if key not in APIS)
    return '\n\n'.join([
        '# APIs', f'The {len(APIS)} APIs that the broker of this book serves, with the versions of Apache Kafka 4.1. '
        'Their pages are made from the declarations that also read and write them.',
        table(['Key', 'API', 'Versions', 'Flexible', 'What it is for'], rows, 'apis'),
        'Kafka has more, mostly for brokers and controllers among themselves, and this broker does not serve them: '
        f'{missing}.',
        toctree(sorted(API_NAMES[key] for key in APIS))])


# --- error codes ---

@lru_cache
def sources() -> dict[str, str]:
    "The text of each module of the package."
    package = ROOT/'kafka_scratch'
    return {'.'.join(path.relative_to(package).with_suffix('').parts): path.read_text(encoding='utf-8')
            for path in package.rglob('*.py')}


def sent_in(name: str) -> list[Path]:
    "The chapters whose code uses an error code."
    used = re.compile(rf'\bErrorCode\.{name}\b')
    return [path for path in chapters() if used.search(sources().get(name_of(path), ''))]


def errors_page() -> str:
    known, rows = read_toml('errors.toml'), []
    for name in ERROR_NAMES:
        each = known[name]
        links = ', '.join(f'<a href="../{path.stem}.html">{int(path.name[:3])}</a>' for path in sent_in(name))
        used = f'<p class="less">In the code of chapter {links}.</p>' if links else ''
        rows.append([name, str(getattr(ErrorCode, name)), f'<code>{name.replace("_", "_<wbr>")}</code>',
                     'yes' if each.get('retriable') else 'no',
                     f'<p>{marked(each["meaning"])}</p>\n<p class="less">{marked(each["cause"])}</p>{used}'])
    heads = 'Code', 'Name', 'Retriable', 'What it means, and what usually leads to it'
    return '\n\n'.join([
        '# Error codes', f'All {len(rows)} error codes of Kafka 4.1. *Retriable* are those after which '
        "Kafka's own clients ask again by themselves,"
        ' often after a look at the metadata; the others are handed to the program.',
        table(heads, rows, 'errors')])


# --- settings ---

def reader_link(module: str) -> str:
    return f'<a href="../{chapter_of(module).stem}.html"><code>{module}</code></a>'


def settings_rows(settings, of: str):
    for each in sorted(settings, key=lambda each: each.name):
        default = 'null' if each.default is None else f'<code>{html.escape(each.default) or "(empty)"}</code>'
        allowed = f'<p class="less">allowed: {html.escape(each.allowed)}</p>' if each.allowed else ''
        acts = reader_link(each.reader) if each.reader else 'no'
        internal = ' (internal)' if each.internal else ''
        yield [f'{of}.{each.name}',
               f'<p><code>{each.name}</code>{internal}</p>\n<p class="less">{marked(each.about)}</p>',
               f'<p>{each.type.lower()}, {default}</p>{allowed}', CHANGED[each.changed], acts]


def settings_page() -> str:
    heads = 'Setting', 'Type and default', 'Changed while it runs', 'Acted on in'
    topic, broker = TOPIC_TABLE.values(), BROKER_TABLE.values()
    acted = sum(1 for each in (*topic, *broker) if each.reader)
    return '\n\n'.join([
        '# Settings', f'The {len(topic) + len(broker)} settings of Kafka 4.1 that this broker knows. It acts on '
        f'{acted} of them; the others are accepted, checked and shown as Kafka does, and change nothing.',
        '## Settings of a topic', 'Most have a setting of the broker as their default; what a topic says itself wins.',
        table(heads, settings_rows(topic, 'topic'), 'settings'),
        '## Settings of a broker', 'From `server.properties`, or with `kafka-scratch serve --set NAME=VALUE`.',
        table(heads, settings_rows(broker, 'broker'), 'settings')])


# --- the command line ---

def commands(of: argparse.ArgumentParser):
    "A parser and all below it."
    yield of
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in dict.fromkeys(action.choices.values()): yield from commands(each)


def help_text(of: argparse.ArgumentParser) -> str:
    "What `--help` prints, in the same width everywhere."
    form = of.formatter_class
    of.formatter_class = lambda prog: form(prog, width=COLUMNS)
    return of.format_help().rstrip()


def command_line_page() -> str:
    first, *more = commands(parser())
    sections = [f'{"#" * len(each.prog.split())} `{each.prog}`\n\n```text\n{help_text(each)}\n```' for each in more]
    return '\n\n'.join(['# The command line', 'Each command says the same with `--help`.',
                        f'```text\n{help_text(first)}\n```', *sections])


# --- all of it ---

def reference_pages() -> dict[str, str]:
    "Path → text, of all pages that are made from the package."
    about = read_toml('apis.toml')
    pages = {f'reference/apis/{API_NAMES[key]}.md': api_page(api, about[API_NAMES[key]]) for key, api in APIS.items()}
    return pages | {'reference/apis/index.md': apis_index(about), 'reference/errors.md': errors_page(),
                    'reference/settings.md': settings_page(), 'reference/command_line.md': command_line_page()}
