// The fields as an outline that can be folded: where each is, its type, its value, and what it means.
import { element, marked } from './dom.js';
import { COLOURS } from './grid.js';

const OF_ONE_FIELD = new Set(['length', 'count', 'present', 'size']);

// `topics[0].name.length` is two levels deep: `topics[0]`, `name.length`.
function levels(path) {
  const steps = path.split('.');
  return OF_ONE_FIELD.has(steps.at(-1)) && steps.length > 1 ? [...steps.slice(0, -2), steps.slice(-2).join('.')] : steps;
}

export class FieldTable extends EventTarget {
  #root; #body; #rows = []; #folded = new Set(); #focused = 0; #last; #valuesOnly = false; #differencesOnly = false;

  constructor(root) {
    super();
    this.#root = root;
    root.addEventListener('mouseover', (event) => this.#tell('hover', this.#rangesOf(event.target.closest('tr'))));
    root.addEventListener('mouseleave', () => this.#tell('hover', null));
    root.addEventListener('focusin', (event) => {
      const row = event.target.closest('tr');
      if (!row || row.dataset.row === undefined) return;
      this.#move(Number(row.dataset.row));
      this.#tell('focus', this.#rangesOf(row));
    });
    root.addEventListener('focusout', (event) => { if (!root.contains(event.relatedTarget)) this.#tell('blur', null); });
    root.addEventListener('click', (event) => {
      const row = event.target.closest('tr');
      if (!row || row.dataset.row === undefined) return;
      row.focus({ preventScroll: true });
      if (event.target.closest('button.fold')) this.#fold(this.#rows[row.dataset.row]);
      this.#tell('choose', this.#rangesOf(row));
    });
    root.addEventListener('keydown', (event) => this.#key(event));
  }

  set valuesOnly(wanted) { this.#valuesOnly = wanted; this.#draw(); }
  set differencesOnly(wanted) { this.#differencesOnly = wanted; this.#draw(); }

  // parts: [{title, fields, problem, notes}], a field with the number `n` that it has in the bytes; `pairs`, to
  // compare, are [{mine, other, same}] instead of fields.
  show(parts, { comparing = false } = {}) {
    this.#last = { parts, comparing };
    this.#draw();
  }

  light(numbers) {
    for (const row of this.#root.querySelectorAll('.lit')) row.classList.remove('lit');
    for (const { row, n } of this.#rows) if (row && n !== undefined && numbers.has(n)) row.classList.add('lit');
  }

  // Scrolls to the row of a field, and puts the focus there if it is wanted.
  reveal(n, { focus = false } = {}) {
    const at = this.#rows.findIndex((each) => each.n === n);
    if (at < 0) return;
    let row = this.#rows[at].row;
    if (row.hidden) { this.#folded.clear(); this.#draw(); row = this.#rows[at].row; }
    if (focus) row.focus({ preventScroll: true });
    row.scrollIntoView({ block: 'nearest' });
  }

  #tell(kind, detail) { this.dispatchEvent(new CustomEvent(kind, { detail })); }

  #rangesOf(row) {
    const found = row && this.#rows[row.dataset.row];
    if (!found) return null;
    return { fields: found.covers, heading: found.heading ? found.path : null };
  }

  #draw() {
    if (!this.#last) return;
    const { parts, comparing } = this.#last, hadFocus = this.#root.contains(document.activeElement);
    this.#rows = [];
    this.#body = element('tbody');
    parts.forEach((part, p) => {
      if (parts.length > 1 && part.title) this.#add({ path: `${p}`, className: 'part' }, element('th', { colSpan: 4, textContent: part.title }));
      let above = [];
      for (const pair of part.pairs ?? part.fields.map((mine) => ({ mine }))) {
        const field = pair.mine ?? pair.other;
        if (this.#valuesOnly && field.prefix && !/null|^-1/.test(field.value)) continue;
        if (this.#differencesOnly && comparing && pair.same) continue;
        const here = levels(field.path);
        this.#headings(p, above, here);
        this.#field(p, here, pair, comparing);
        above = here;
      }
      for (const text of part.notes ?? []) this.#add({ path: `${p}`, className: 'note' }, element('td', { colSpan: 4, textContent: `⚠ ${text}` }));
      if (part.problem) this.#add({ path: `${p}`, className: 'problem' }, element('td', { colSpan: 4, textContent: `✗ ${part.problem}` }));
    });
    const names = comparing ? ['offset', 'field', 'yours', 'Kafka’s'] : ['offset', 'field', 'value'];
    const head = element('thead', {}, element('tr', {}, ...names.map((textContent) => element('th', { scope: 'col', textContent }))));
    const table = element('table', { className: comparing ? 'comparing' : '' }, head, this.#body);
    table.setAttribute('role', 'treegrid');
    table.setAttribute('aria-label', 'Fields');
    this.#root.replaceChildren(...(this.#rows.length ? [table] : []));
    this.#hide();
    this.#move(Math.min(this.#focused, this.#rows.length - 1));
    if (hadFocus) this.#rows[this.#focused]?.row.focus({ preventScroll: true });
  }

  #add(entry, ...cells) {
    const row = element('tr', { className: entry.className ?? '', tabIndex: -1 }, ...cells);
    row.dataset.row = this.#rows.length;
    this.#body.append(row);
    this.#rows.push({ covers: [], ...entry, row });
    return row;
  }

  #headings(p, above, here) {
    let common = 0;
    while (common < Math.min(above.length, here.length) - 1 && above[common] === here[common]) common++;
    for (let depth = common; depth < here.length - 1; depth++) {
      const path = `${p}/${here.slice(0, depth + 1).join('/')}`, folded = this.#folded.has(path);
      const button = element('button', { type: 'button', className: 'fold', tabIndex: -1, textContent: folded ? '▸' : '▾' });
      const label = element('td', { colSpan: 3 }, button, here[depth]);
      label.style.setProperty('--depth', depth);
      const row = this.#add({ path, heading: true, className: 'heading' }, element('td'), label);
      row.setAttribute('aria-expanded', !folded);
      row.setAttribute('aria-level', depth + 1);
    }
  }

  #field(p, here, { mine, other, same = true }, comparing) {
    const field = mine ?? other;
    const label = element('td', { className: 'name' },
                          element('span', { className: mine?.n === undefined ? 'absent' : `c${mine.n % COLOURS}`, textContent: here.at(-1) }),
                          element('div', { className: 'type', textContent: field.type }));
    const value = element('td', { className: 'value', textContent: mine ? mine.value : '–' });
    if (mine?.was !== undefined) value.append(element('span', { className: 'was', textContent: mine.was === null ? ' new' : ` was ${mine.was}` }));
    if (!comparing && field.sentence) value.append(element('div', { className: 'about' }, ...marked(field.sentence)));
    const last = comparing ? [element('td', { className: 'value', textContent: other ? other.value : '–' })] : [];
    const row = this.#add({ path: `${p}/${here.join('/')}`, n: mine?.n, otherN: other?.n,
                            className: [field.prefix ? 'prefix' : '', same ? '' : 'different', mine?.was !== undefined ? 'changed' : ''].join(' ') },
                          element('td', { className: 'offset', textContent: mine ? mine.offset : '' }), label,
                          value, ...last);
    row.style.setProperty('--depth', here.length - 1);
    row.setAttribute('aria-level', here.length);
    row.title = field.path;
    const entry = this.#rows.at(-1);
    entry.covers = [{ n: mine?.n, otherN: other?.n }];
    for (const above of this.#rows) if (above.heading && entry.path.startsWith(above.path + '/')) above.covers.push(entry.covers[0]);
  }

  #hide() {
    const folded = [...this.#folded];
    for (const { row, path, heading } of this.#rows) {
      row.hidden = folded.some((each) => path.startsWith(each + '/'));
      if (heading) {
        row.setAttribute('aria-expanded', !this.#folded.has(path));
        row.querySelector('.fold').textContent = this.#folded.has(path) ? '▸' : '▾';
      }
    }
  }

  #fold({ path, heading }, wanted = !this.#folded.has(path)) {
    if (!heading) return;
    if (wanted) this.#folded.add(path); else this.#folded.delete(path);
    this.#hide();
  }

  #move(at) {
    this.#rows[this.#focused]?.row.setAttribute('tabindex', -1);
    this.#focused = Math.max(at, 0);
    this.#rows[this.#focused]?.row.setAttribute('tabindex', 0);
  }

  #key(event) {
    const { key } = event, here = this.#rows[this.#focused];
    if (!here || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = (by) => {
      let at = this.#focused + by;
      while (this.#rows[at]?.row.hidden) at += by;
      if (this.#rows[at]) this.#go(at);
    };
    const keys = {
      ArrowDown: () => step(1), ArrowUp: () => step(-1), Home: () => this.#go(0),
      End: () => { this.#go(this.#rows.length); step(-1); },
      PageDown: () => { for (let n = 0; n < 10; n++) step(1); }, PageUp: () => { for (let n = 0; n < 10; n++) step(-1); },
      ArrowLeft: () => this.#left(here), ArrowRight: () => this.#fold(here, false),
      Enter: () => this.#tell('enter', { fields: here.covers }), ' ': () => this.#fold(here),
    };
    if (!(key in keys)) return;
    keys[key]();
    event.preventDefault();
  }

  // Folds a heading; from anything else to the heading above it.
  #left(here) {
    if (here.heading && !this.#folded.has(here.path)) return this.#fold(here, true);
    const above = this.#rows.findLastIndex((each) => each.heading && here.path.startsWith(each.path + '/'));
    if (above >= 0) this.#go(above);
  }

  #go(at) {
    const row = this.#rows[at]?.row;
    if (!row) { this.#focused = at; return; }
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: 'nearest' });
  }
}
