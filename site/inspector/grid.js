// Bytes in rows: offset, hexadecimal, text. It knows where fields are, and tells which byte is pointed at.
import { element } from './dom.js';

const MORE = 4096;    // so many bytes are shown at first, and so many more with each click
export const COLOURS = 8;
const printable = (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '·');
export const hex = (byte) => byte.toString(16).padStart(2, '0');

export class ByteGrid extends EventTarget {
  bytes = new Uint8Array(); focused = 0;
  #root; #title; #rows; #more; #cells = []; #texts = []; #owners = []; #perRow = 16; #limit = MORE; #pending = '';
  #editable; #marks = {}; #fields = [];

  constructor(root, { title, editable = true }) {
    super();
    this.#root = root;
    this.#editable = editable;
    root.classList.add('grid');
    this.#title = element('h2', { textContent: title });
    this.#rows = element('div', { className: 'rows', role: 'grid' });
    this.#rows.setAttribute('aria-label', `${title}, in hexadecimal`);
    this.#more = element('button', { type: 'button', className: 'more', hidden: true });
    root.append(this.#title, this.#rows, this.#more);
    this.#more.onclick = () => { this.#limit += MORE; this.show(this.bytes, this.#fields, this.#marks); };
    this.#rows.addEventListener('mouseover', (event) => this.#tell('hover', this.#at(event)));
    this.#rows.addEventListener('mouseleave', () => this.#tell('hover', null));
    this.#rows.addEventListener('click', (event) => {
      const at = this.#at(event);
      if (at !== null) { this.focus(at); this.#tell('choose', at); }
    });
    this.#rows.addEventListener('focusin', (event) => {
      const at = this.#at(event);
      if (at === null) return;
      this.#move(at);
      this.#tell('focus', at);
    });
    this.#rows.addEventListener('focusout', (event) => {
      this.#forget();
      if (!this.#rows.contains(event.relatedTarget)) this.#tell('blur', null);
    });
    this.#rows.addEventListener('keydown', (event) => this.#key(event));
    new ResizeObserver(() => this.#fit()).observe(root);
  }

  // fields: [{offset, length, …}]; marks: sets of offsets `changed` and `different`, and `broken`, where it stops.
  show(bytes, fields, marks = {}, { editable = this.#editable } = {}) {
    this.bytes = bytes;
    this.#editable = editable;
    this.#fields = fields;
    this.#marks = marks;
    this.#owners = new Array(Math.min(bytes.length, this.#limit)).fill(-1);
    fields.forEach((field, n) => {
      for (let at = field.offset; at < Math.min(field.offset + field.length, this.#owners.length); at++) this.#owners[at] = n;
    });
    this.focused = Math.min(this.focused, Math.max(bytes.length - 1, 0));
    this.#draw();
  }

  // Other bytes will be shown: from the beginning, and not all at once.
  begin() { this.focused = 0; this.#limit = MORE; this.#rows.scrollTop = 0; }

  fieldAt(at) {
    const owner = this.#owners[at] ?? this.#fields.findIndex(({ offset, length }) => offset <= at && at < offset + length);
    return owner ?? -1;
  }

  light(ranges, kind = 'lit') {
    for (const cell of this.#rows.querySelectorAll('.' + kind)) cell.classList.remove(kind);
    for (const { offset, length } of ranges) {
      for (let at = offset; at < Math.min(offset + length, this.#cells.length); at++) {
        this.#cells[at].classList.add(kind);
        this.#texts[at].classList.add(kind);
      }
    }
  }

  focus(at) {
    if (!this.bytes.length) return;
    at = Math.max(0, Math.min(at, this.bytes.length - 1));
    if (at >= this.#limit) { this.#limit = Math.ceil((at + 1) / MORE) * MORE; this.show(this.bytes, this.#fields, this.#marks); }
    this.#cells[at].focus({ preventScroll: true });
    this.reveal(at);
  }

  hasFocus() { return this.#rows.contains(document.activeElement); }

  // Scrolls the rows, and nothing else, until a byte can be seen.
  reveal(at) {
    const cell = this.#cells[at];
    if (!cell) return;
    const [rows, row] = [this.#rows.getBoundingClientRect(), cell.getBoundingClientRect()];
    if (row.top < rows.top) this.#rows.scrollTop -= rows.top - row.top + row.height;
    if (row.bottom > rows.bottom) this.#rows.scrollTop += row.bottom - rows.bottom + row.height;
    if (this.#rows.scrollHeight <= this.#rows.clientHeight) cell.scrollIntoView({ block: 'nearest' });
  }

  #tell(kind, detail) { this.dispatchEvent(new CustomEvent(kind, { detail })); }
  #at(event) {
    const at = event.target.dataset?.at;
    return at === undefined ? null : Number(at);
  }

  #fit() {
    const perRow = this.#root.clientWidth < 470 ? 8 : 16;
    if (perRow === this.#perRow) return;
    this.#perRow = perRow;
    this.#draw();
  }

  #move(at) {
    this.#cells[this.focused]?.setAttribute('tabindex', -1);
    this.focused = at;
    const cell = this.#cells[at];
    if (!cell) return;
    cell.setAttribute('tabindex', 0);
    const field = this.#fields[this.fieldAt(at)];
    cell.setAttribute('aria-label', `offset ${at}: ${hex(this.bytes[at])}, ${field ? field.path : 'not explained'}`);
  }

  #class(at) {
    const owner = this.#owners[at];
    const names = [owner >= 0 ? `c${owner % COLOURS}` : 'rest'];
    if (owner >= 0 && this.#fields[owner].offset === at) names.push('first');
    if (this.#marks.changed?.has(at)) names.push('changed');
    if (this.#marks.different?.has(at)) names.push('different');
    if (this.#marks.broken?.has(at)) names.push('broken');
    return names.join(' ');
  }

  #draw() {
    const hadFocus = this.hasFocus(), scroll = this.#rows.scrollTop;
    const shown = Math.min(this.bytes.length, this.#limit), perRow = this.#perRow;
    this.#cells = [];
    this.#texts = [];
    const rows = document.createDocumentFragment();
    const digits = Math.max(4, (shown - 1).toString(16).length);
    for (let start = 0; start < shown; start += perRow) {
      const row = element('div', { className: 'row', role: 'row' });
      const text = element('span', { className: 'text', ariaHidden: 'true' });
      row.append(element('span', { className: 'offset', role: 'rowheader', textContent: start.toString(16).padStart(digits, '0'),
                                   title: `offset ${start}` }));
      for (let at = start; at < Math.min(start + perRow, shown); at++) {
        const kind = this.#class(at), byte = this.bytes[at];
        const cell = element('span', { className: `b ${kind}`, role: 'gridcell', tabIndex: -1, textContent: hex(byte) });
        const char = element('span', { className: kind, textContent: printable(byte) });
        cell.dataset.at = char.dataset.at = at;
        this.#cells.push(cell);
        this.#texts.push(char);
        row.append(cell);
        text.append(char);
      }
      for (let at = shown; at < start + perRow; at++) row.append(element('span', { className: 'b none' }));
      row.append(text);
      rows.append(row);
    }
    this.#rows.style.setProperty('--per-row', perRow);
    this.#rows.replaceChildren(rows);
    this.#rows.scrollTop = scroll;
    const left = this.bytes.length - shown;
    this.#more.hidden = left <= 0;
    this.#more.textContent = `${Math.min(left, MORE)} more of ${left} bytes`;
    this.#move(Math.min(this.focused, shown - 1));
    if (hadFocus) this.#cells[this.focused]?.focus({ preventScroll: true });
  }

  #forget() {
    if (!this.#pending) return;
    this.#pending = '';
    const cell = this.#cells[this.focused];
    if (cell) cell.textContent = hex(this.bytes[this.focused]);
  }

  #key(event) {
    const { key, ctrlKey, metaKey, altKey } = event, at = this.focused, per = this.#perRow, last = this.bytes.length - 1;
    const command = ctrlKey || metaKey;
    if (altKey) return;
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - per, ArrowDown: at + per,
                    PageUp: at - 8 * per, PageDown: at + 8 * per,
                    Home: command ? 0 : at - at % per, End: command ? last : at - at % per + per - 1 };
    if (key in moves) {
      this.#forget();
      const to = moves[key];
      if ((key === 'ArrowUp' && to < 0) || (key === 'ArrowDown' && to > last)) { /* stay */ } else this.focus(to);
      return event.preventDefault();
    }
    if (key === 'Enter') { this.#tell('enter', at); return event.preventDefault(); }
    if (key === 'Escape') return this.#forget();
    if (!this.#editable) return;
    if (command) {
      const lower = key.toLowerCase();
      if (lower === 'z' || lower === 'y') {
        this.#tell(lower === 'y' || event.shiftKey ? 'redo' : 'undo');
        event.preventDefault();
      }
      return;
    }
    if (/^[0-9a-fA-F]$/.test(key)) {
      this.#pending += key.toLowerCase();
      if (this.#pending.length < 2) this.#cells[at].textContent = `${this.#pending}_`;
      else {
        const value = parseInt(this.#pending, 16);
        this.#pending = '';
        this.focused = Math.min(at + 1, last);
        this.#tell('edit', { at, value });
        this.focus(this.focused);
      }
      return event.preventDefault();
    }
    const change = { '+': () => this.#tell('edit', { at, value: this.bytes[at] + 1 & 255 }),
                     '-': () => this.#tell('edit', { at, value: this.bytes[at] - 1 & 255 }),
                     Insert: () => this.#tell('insert', at), Delete: () => this.#tell('remove', at) }[key];
    if (change) { change(); event.preventDefault(); }
  }
}
