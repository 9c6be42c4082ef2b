"""Bytes from what people paste: hexadecimal, dumps, literals and lists of several languages, base64."""
import ast
import base64
import re

HEX = re.compile(r'[0-9a-fA-F]')
# offset, then bytes: `0000 | 00 00`, `00000000: 0000 0023`, `00000000  00 00`, `0x0000:  4500`
ROW = re.compile(r'(?:0x)?([0-9a-fA-F]{4,16})(?::| +\||  )[ |]*(.*)')
OD = re.compile(r'^([0-9a-f]{6,8})((?: [0-9a-f]{2}){1,16})$')   # od -A x -t x1: one space, and no text at the right
GROUP = re.compile(r'\s*((?:[0-9a-fA-F]{2})+)(?=\s|\||$)')


class NotBytes(ValueError):
    "The text means no bytes; the message says what is wrong with it."


def bytes_from(text: str) -> tuple[bytes, str]:
    "Bytes, and what kind of text they came from: `bytes_from('00 0a')` is `(b'\\0\\n', 'hexadecimal')`."
    text = text.strip().removeprefix('\ufeff')
    for form, read in FORMS.items():
        found = read(text)
        if found: return found, form
    raise NotBytes(complaint(text))


def from_dump(text: str) -> bytes | None:
    "The rows of a dump, such as xxd, hexdump -C and test programs print; each must begin where the one before ends."
    lines = text.splitlines()
    rows = [match for line in lines if (match := ROW.search(line)) and is_start(line[:match.start()])]
    if not rows: rows = [match for line in lines if (match := OD.match(line))]
    if not rows or len(rows) == 1 and not is_alone(rows[0], lines): return None
    found, starts = b'', [int(row[1], 16) for row in rows]
    if (dumps := starts.count(0)) > 1: raise NotBytes(f'There are {dumps} dumps here. Paste one of them.')
    most = max([after - start for start, after in zip(starts, starts[1:])], default=16)
    for start, after, row in zip(starts, [*starts[1:], None], rows):
        if start != starts[0] + len(found): return None
        size = after - start if after is not None else most
        if not 0 < size <= 64: return None
        piece = row_bytes(row[2], size, exact=after is not None)
        if piece is None: return None
        found += piece
    return found

def is_alone(row: re.Match, lines: list[str]) -> bool:
    "Is a single row that of a dump, and not just hexadecimal? Then there is text at its right, or an offset after it."
    return row[0].partition(row[1])[2][:1] == ':' or '|' in row[0] or lines[-1].strip() == f'{len(row[2]) // 3:06x}'

def is_start(before: str) -> bool:
    "May the row of a dump begin after this? After nothing, or after the name of the program that prints it."
    return not before.strip() or before.rstrip().endswith((']', ':', '|', '#', '//'))

def row_bytes(text: str, size: int, exact: bool) -> bytes | None:
    "So many bytes from a row; from the last row what there is, up to the text at its right."
    found, at = b'', 0
    while len(found) < size and (match := GROUP.match(text, at)):
        gap = text[at:match.start(1)]
        # two spaces divide bytes from text, or eight bytes from eight
        if not exact and len(gap) > 1 and len(found) not in (0, 8): break
        found, at = found + bytes.fromhex(match[1]), match.end()
    return found[:size] if len(found) >= size or not exact and found else None


def from_literal(text: str) -> bytes | None:
    "A literal of Python, or the inside of one: `b'\\x00\\x12'`."
    match = re.fullmatch(r'''[bB]?(["'])(.*)\1|((?:\\x[0-9a-fA-F]{2}|[^\s"'\\]|\\[0abtnvfr])*\\x.*)''', text, re.S)
    if match is None or '\\' not in text and text[0] not in 'bB': return None
    quote, inside = match[1] or "'", match[2] if match[2] is not None else match[3]
    try: return ast.literal_eval(f'b{quote}{inside}{quote}')
    except (SyntaxError, ValueError): return None

def from_list(text: str) -> bytes | None:
    "Numbers in brackets, as Go, Java, Rust and Python print them: `[0, 18]`, `[0 18]`, `[]byte{0x00, 0x12}`."
    match = re.fullmatch(r'[^\[{(]*(?:\[\d*\][\w\s=]*)?[\[{(]([^\])}]*)[\])}];?[^\[{(]*', text)
    if match is None: return None
    items = [item for item in re.split(r'[\s,;]+', match[1]) if item]
    if items and all(re.fullmatch(r'(0x)?[0-9a-fA-F]{2}', item) for item in items):
        return bytes(int(item, 16) for item in items)
    if items and all(re.fullmatch(r'-?\d{1,3}', item) for item in items):
        numbers = [int(item) for item in items]
        if all(-128 <= number <= 255 for number in numbers): return bytes(number & 0xff for number in numbers)

def from_hexadecimal(text: str) -> bytes | None:
    digits = re.sub(r'0x|[\s,:;_|-]', '', text, flags=re.I)
    return bytes.fromhex(digits) if re.fullmatch(r'([0-9a-fA-F]{2})+', digits) else None

def from_base64(text: str) -> bytes | None:
    digits = re.sub(r'\s*\n\s*', '', text).replace('-', '+').replace('_', '/')
    if len(digits) < 8: return None
    try: return base64.b64decode(digits + '=' * (-len(digits) % 4 if not digits.endswith('=') else 0), validate=True)
    except ValueError: return None

FORMS = {'a dump': from_dump, 'hexadecimal': from_hexadecimal, 'a literal': from_literal,
         'a list of numbers': from_list, 'base64': from_base64}


def complaint(text: str) -> str:
    "Why a text means no bytes."
    digits = re.sub(r'0x|[\s,:;_|-]', '', text, flags=re.I)
    if re.fullmatch(r'[0-9a-fA-F]+', digits):
        return f'{len(digits)} hexadecimal digits: two make a byte, so one is missing, or there is one too many.'
    strange = next((match for match in re.finditer(r'[^0-9a-fA-F\s,:;_|x-]', text)), None)
    where = f' Character {strange.start() + 1} is {strange[0]!r}.' if strange else ''
    return f'This is neither hexadecimal nor base64, and no dump either.{where}'
