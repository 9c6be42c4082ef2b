// The byte at the cursor: the field that it belongs to, and ways to change it.
import { element, marked } from './dom.js';
import { hex } from './grid.js';

export class Detail extends EventTarget {
  #root; #field; #editor; #offset; #value; #bits = []; #at = 0;

  constructor(root) {
    super();
    this.#root = root;
    this.#field = element('div', { className: 'field' });
    this.#offset = element('span', { className: 'offset' });
    this.#value = element('input', { size: 2, maxLength: 2, spellcheck: false, autocomplete: 'off', ariaLabel: 'The byte, in hexadecimal' });
    this.#value.addEventListener('input', () => {
      if (/^[0-9a-f]{2}$/i.test(this.#value.value)) this.#change(parseInt(this.#value.value, 16));
    });
    const bits = element('span', { className: 'bits', role: 'group', ariaLabel: 'Its bits' });
    for (let bit = 7; bit >= 0; bit--) {
      const button = element('button', { type: 'button', title: `bit ${bit}, worth ${1 << bit}` });
      button.onclick = () => this.#change(parseInt(this.#value.value, 16) ^ 1 << bit);
      this.#bits[bit] = button;
      bits.append(button);
    }
    const button = (textContent, title, act) => Object.assign(element('button', { type: 'button', textContent, title }), { onclick: act });
    this.#editor = element('div', { className: 'editor', hidden: true }, this.#offset, this.#value, bits,
      button('−1', 'one less', () => this.#change(this.#now() - 1 & 255)),
      button('+1', 'one more', () => this.#change(this.#now() + 1 & 255)),
      button('insert 00', 'a zero byte before this one', () => this.#tell('insert', this.#at)),
      button('remove', 'take this byte out', () => this.#tell('remove', this.#at)));
    root.append(this.#field, this.#editor);
  }

  #now() { return parseInt(this.#value.value, 16) || 0; }
  #tell(kind, detail) { this.dispatchEvent(new CustomEvent(kind, { detail })); }
  #change(value) { this.#tell('edit', { at: this.#at, value }); }

  showByte(at, byte) {
    this.#at = at;
    this.#editor.hidden = byte === undefined;
    if (byte === undefined) return;
    this.#offset.textContent = `byte ${at} = ${byte}`;
    if (document.activeElement !== this.#value) this.#value.value = hex(byte);
    this.#bits.forEach((button, bit) => {
      button.textContent = byte >> bit & 1;
      button.ariaPressed = String(Boolean(byte >> bit & 1));
      button.ariaLabel = `bit ${bit}: ${byte >> bit & 1}`;
    });
  }

  showField(field, bytes, hint = 'Point at a byte or a field, or click a byte to change it.') {
    if (!field) {
      this.#field.replaceChildren(element('span', { className: 'hint', textContent: hint }));
      return;
    }
    const { path, type, offset, length, value, sentence } = field;
    const raw = Array.from(bytes.slice(offset, offset + Math.min(length, 16)), hex).join(' ') + (length > 16 ? ' …' : '');
    const where = length === 1 ? `byte ${offset}` : length ? `bytes ${offset}–${offset + length - 1}` : `no bytes, at ${offset}`;
    this.#field.replaceChildren(
      element('div', {}, element('b', { textContent: path }), ' ', element('span', { className: 'type', textContent: type }),
              ' ', element('span', { className: 'where', textContent: where })),
      element('div', { className: 'raw' }, element('code', { textContent: raw }), ' → ', element('code', { className: 'value', textContent: value })),
      element('div', { className: 'about' }, ...marked(sentence ?? '')));
  }
}
