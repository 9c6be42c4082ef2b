"""Is the site whole? Every link inside it leads somewhere, nothing comes from elsewhere, words are spelt right."""
import html
import json
import re
from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote, urlsplit

from book import ROOT

TAG = re.compile(r'<([a-zA-Z][\w-]*)((?:\s[^<>]*)?)>')
ATTRIBUTE = re.compile(r'\s(id|name|href|src)\s*=\s*(?:"([^"]*)"|\'([^\']*)\')')
NOT_TEXT = re.compile(r'<!--.*?-->|(<(?:script|style)\b[^>]*>).*?</(?:script|style)>', re.S)
LOADED = {'script', 'img', 'link', 'iframe', 'source', 'video', 'audio', 'embed', 'object'}
IN_STYLES = re.compile(r'(?:@import\s+|url\()\s*["\']?((?:https?:)?//[^"\')\s]+)')


# --- links ---

def references(text: str) -> tuple[set[str], list[tuple[str, str]]]:
    "The ids in a page, and its links: the kind of element, and where it leads."
    ids, links = set(), []
    for element, attributes in TAG.findall(NOT_TEXT.sub(r'\1', text)):
        for name, double, single in ATTRIBUTE.findall(attributes):
            value = html.unescape(double or single)
            if name in ('href', 'src'): links.append((element.lower(), value))
            elif name == 'id' or element == 'a': ids.add(value)
    return ids, links


def check_links(site: Path) -> tuple[int, list[str], list[str]]:
    "How many links lead to something in the site; what is wrong with others; and the addresses of other hosts."
    pages = {path: references(path.read_text(encoding='utf-8')) for path in sorted(site.rglob('*.html'))}
    checked, wrong, outside = 0, [], set()
    for path, (_, links) in pages.items():
        here = path.relative_to(site).as_posix()
        for element, link in dict.fromkeys(links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if parts.scheme in ('data', 'mailto'): continue
                outside.add(link)
                if element in LOADED: wrong.append(f'{here}: loads {link}')
                continue
            file = unquote(parts.path)
            target = path if not file else site/file.lstrip('/') if file.startswith('/') else path.parent/file
            target = (target/'index.html' if target.is_dir() else target).resolve()
            checked += 1
            if not target.is_relative_to(site.resolve()) or not target.exists(): wrong.append(f'{here}: no {link}')
            elif parts.fragment and '=' not in parts.fragment and target in pages:   # #bytes=… is for a program
                if unquote(parts.fragment) not in pages[target][0]: wrong.append(f'{here}: no place {link}')
    for path in site.rglob('*.css'):
        wrong += [f'{path.relative_to(site)}: loads {found}'
                  for found in IN_STYLES.findall(path.read_text(encoding='utf-8'))]
    return checked, wrong, sorted(outside)


# --- spelling ---

WORDS = ROOT/'site'/'words.txt'
LEFT_OUT = [re.compile(pattern, re.S | re.M) for pattern in (
    r'^ *(```+|~~~+).*?^ *\1', r'<div class="example">.*?^</div>', r'<(pre|style|code)\b.*?</\1>', r'``.+?``|`[^`]*`',
    r'\]\([^)\s]*\)', r'https?://\S+', r'<[^>]*>', r'&\w+;', r'\[\^?[\w-]+\]:.*')]
TOKEN = re.compile(r"[\w'’.@/\\]+")


def prose(text: str) -> str:
    "Markdown without code, addresses and tags."
    for pattern in LEFT_OUT: text = pattern.sub(' ', text)
    return text


def words_in(text: str):
    "The words of a text; names (such as ApiVersions, SASL, x_y, log.dirs, v4) are none."
    for token in TOKEN.findall(prose(text)):
        token = token.strip("'’.@/\\_").replace('’', "'")
        if re.search(r"[_@/\\.]|.[A-Z]", token) or any(map(str.isnumeric, token)): continue
        word = token.lower().removesuffix("'s")
        if len(word) > 1: yield word


def texts(name: str, content: str):
    "The places of a page where people write: a name for each, and its text."
    if not name.endswith('.ipynb'): yield name, content
    else:
        for cell in json.loads(content)['cells']:
            if cell['cell_type'] == 'markdown': yield f'{name}, cell {cell["id"]}', ''.join(cell['source'])


def our_words() -> set[str]:
    lines = WORDS.read_text(encoding='utf-8').splitlines()
    return {line.lower() for line in lines if line and not line.startswith('#')}


def check_spelling(pages: dict[str, str]) -> tuple[int, dict[str, list[str]]]:
    "How many words were looked up; and those that are in no dictionary, with where they are."
    from spellchecker import SpellChecker
    places, count = defaultdict(list), 0
    for name, content in pages.items():
        for place, text in texts(name, content):
            for word in words_in(text):
                count += 1
                if place not in places[word]: places[word].append(place)
    unknown = SpellChecker(language='en').unknown(places) - our_words()
    return count, {word: places[word] for word in sorted(unknown)}
