// The page: what was pasted, what Python says about it, and what is shown of that.
import { Python } from './python.js';
import { ByteGrid, hex } from './grid.js';
import { FieldTable } from './fields.js';
import { Detail } from './detail.js';
import { linkOf, stateOf } from './link.js';
import { byId, element } from './dom.js';

const LARGEST = 4 << 20;       // of a file, so much is read
const python = new Python();
const grid = new ByteGrid(byId('bytes'), { title: 'Bytes' });
const besideGrid = new ByteGrid(byId('beside-bytes'), { title: 'Kafka’s bytes', editable: false });
const table = new FieldTable(byId('fields'));
const detail = new Detail(byId('detail'));

// What the page is about. `original` is what was pasted, before bytes were changed one by one.
const state = { bytes: new Uint8Array(), beside: null, text: '', kind: 'guess', api: '', version: null, name: '', at: 0, fields: 1500 };
let original = { bytes: state.bytes, values: null };
let found = null, besideFound = null;      // what Python said
let comparison = null, repairs = [];       // which fields belong together; what would make it fit
let view = 0;                              // 0 is the bytes themselves; others are what was in compressed batches
const past = [], future = [];              // to undo, and to redo

// --- bytes in, bytes out ---

const hexText = (bytes) => {
  const rows = [];
  const most = Math.min(bytes.length, 1 << 16);
  for (let at = 0; at < most; at += 16) rows.push(Array.from(bytes.subarray(at, Math.min(at + 16, most)), hex).join(' '));
  return rows.join('\n') + (most < bytes.length ? `\n… ${bytes.length - most} more bytes` : '');
};
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const same = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

// New bytes, from wherever: they become the original that later changes are compared with.
function setBytes(bytes, { keepText = false } = {}) {
  if (state.bytes.length && !same(bytes, state.bytes)) remember();
  state.bytes = bytes;
  original = { bytes, values: null };
  if (!keepText) byId('paste').value = hexText(bytes);
  grid.begin();
  besideGrid.begin();
  view = 0;
  refresh();
}

function remember() {
  past.push({ bytes: state.bytes, original });
  if (past.length > 200) past.shift();
  future.length = 0;
}

function edit(bytes) {
  remember();
  state.bytes = bytes;
  byId('paste').value = hexText(bytes);
  refresh();
}

function travel(from, to) {
  const moment = from.pop();
  if (!moment) return;
  to.push({ bytes: state.bytes, original });
  state.bytes = moment.bytes;
  original = moment.original;
  byId('paste').value = hexText(state.bytes);
  refresh();
}
const undo = () => travel(past, future), redo = () => travel(future, past);

const replaced = (at, value) => { const bytes = state.bytes.slice(); bytes[at] = value; return bytes; };
const inserted = (at) => Uint8Array.from([...state.bytes.subarray(0, at), 0, ...state.bytes.subarray(at)]);
const removed = (at) => Uint8Array.from([...state.bytes.subarray(0, at), ...state.bytes.subarray(at + 1)]);

for (const source of [grid, detail]) {
  source.addEventListener('edit', ({ detail: { at, value } }) => { if (state.bytes[at] !== value) edit(replaced(at, value)); });
  source.addEventListener('insert', ({ detail: at }) => edit(inserted(at)));
  source.addEventListener('remove', ({ detail: at }) => edit(removed(at)));
}
grid.addEventListener('undo', undo);
grid.addEventListener('redo', redo);
byId('undo').onclick = undo;
byId('redo').onclick = redo;

// --- what was pasted ---

async function read(box, accept) {
  const problem = byId(`${box.id}-problem`), text = box.value;
  if (!text.trim()) { problem.hidden = true; return accept(new Uint8Array()); }
  const answer = await python.call('glue.pasted', text);
  if (box.value !== text) return;          // somebody went on typing
  problem.hidden = !answer.problem;
  problem.textContent = answer.problem ?? '';
  box.title = answer.form ? `read as ${answer.form}` : '';
  if (answer.hex !== undefined) accept(fromHex(answer.hex));
}

let typing;
const soon = (act) => { clearTimeout(typing); typing = setTimeout(act, 150); };
byId('paste').addEventListener('input', () => soon(() => {
  state.text = byId('paste').value;
  state.name = '';
  if (state.kind === 'file') setKind('guess');
  read(byId('paste'), (bytes) => setBytes(bytes, { keepText: true }));
}));
byId('beside').addEventListener('input', () => soon(() =>
  read(byId('beside'), (bytes) => { state.beside = bytes.length ? bytes : null; refresh(); })));

async function open(file) {
  const bytes = new Uint8Array(await file.slice(0, LARGEST).arrayBuffer());
  const text = bytes.subarray(0, 4096).includes(0) ? null : new TextDecoder().decode(bytes);
  if (text !== null) {   // a file may hold hexadecimal, as well
    const answer = await python.call('glue.pasted', text);
    if (answer.hex) return take({ bytes: fromHex(answer.hex) });
  }
  take({ bytes, kind: 'guess', name: file.name });
  if (file.size > LARGEST) byId('paste').value = `The first ${LARGEST >> 20} MB of ${file.name}.\n\n${byId('paste').value}`;
}

byId('choose').onclick = () => byId('file').click();
byId('file').onchange = ({ target }) => { if (target.files[0]) open(target.files[0]); target.value = ''; };
document.addEventListener('dragover', (event) => { event.preventDefault(); document.body.classList.add('dropping'); });
document.addEventListener('dragleave', (event) => { if (!event.relatedTarget) document.body.classList.remove('dropping'); });
document.addEventListener('drop', (event) => {
  event.preventDefault();
  document.body.classList.remove('dropping');
  const [file] = event.dataTransfer.files, text = event.dataTransfer.getData('text');
  if (file) open(file);
  else if (text) { byId('paste').value = text; byId('paste').dispatchEvent(new Event('input')); }
});

// --- what it is ---

function setKind(kind) { state.kind = kind; byId('kind').value = kind; showControls(); }

function showControls() {
  const response = state.kind === 'response';
  for (const each of document.querySelectorAll('.of-response')) each.hidden = !response;
  for (const each of document.querySelectorAll('.of-file')) each.hidden = state.kind !== 'file';
  if (state.api) byId('api').value = state.api;
  showVersions();
  byId('name').value = state.name;
}

let apis = [];
function showVersions() {
  const versions = apis.find(({ name }) => name === byId('api').value)?.versions ?? [];
  byId('version').replaceChildren(...versions.map((value) => element('option', { value, textContent: value })));
  if (versions.length) byId('version').value = versions.includes(state.version) ? state.version : versions.at(-1);
}

byId('kind').onchange = () => {
  state.kind = byId('kind').value;
  if (state.kind === 'response' && !state.api) {
    state.api = found?.api || 'ApiVersions';
    state.version = found?.version ?? null;
  }
  showControls();
  if (state.kind === 'response') state.version = Number(byId('version').value);
  refresh({ fresh: true });
};
byId('api').onchange = () => {
  state.api = byId('api').value;
  state.version = null;
  showVersions();
  state.version = Number(byId('version').value);
  refresh({ fresh: true });
};
byId('version').onchange = () => { state.version = Number(byId('version').value); refresh({ fresh: true }); };
byId('name').oninput = () => { state.name = byId('name').value; soon(() => refresh({ fresh: true })); };

// --- Python's answer ---

let asked = 0;
async function refresh({ fresh = false } = {}) {
  if (fresh) original = { bytes: original.bytes, values: null };
  const turn = ++asked;
  byId('undo').disabled = !past.length;
  byId('redo').disabled = !future.length;
  byId('compare').ariaPressed = String(!byId('beside-box').hidden);
  keepLink();
  if (!state.bytes.length) { found = besideFound = comparison = null; return show(); }
  if (!found) show();                       // the bytes at least, while Python is being loaded
  const { kind, api, version, name } = state;
  try {
    const question = [kind, api, version, name, state.fields];
    const answer = await python.call('glue.look', state.bytes, ...question);
    if (turn !== asked) return;
    const understood = [answer.kind, answer.api ?? '', answer.version ?? null, name, state.fields];      // as it was understood
    const other = state.beside && await python.call('glue.look', state.beside, ...understood);
    const compared = other && !answer.problem ? await python.call('glue.compare', state.bytes, state.beside, ...understood) : null;
    const before = original.values || same(original.bytes, state.bytes) ? answer : await python.call('glue.look', original.bytes, ...understood);
    if (turn !== asked) return;
    original.values ??= valuesOf(before);
    [found, besideFound, comparison, repairs] = [answer, other, compared, []];
    show();
    if (answer.parts.some(({ problem, notes }) => problem || notes.length)) {
      const tried = await python.call('glue.repairs', state.bytes, ...understood.slice(0, 3));
      if (turn !== asked || !tried.length) return;
      repairs = tried;
      showVerdict();
    }
  } catch (error) { showBroken(error.message); }
}

const valuesOf = ({ parts }) => {
  const values = new Map();
  parts.forEach((part, p) => part.spans.forEach(({ path, value }) => values.set(`${p}/${path}`, value)));
  return values;
};

// --- what is shown ---

// The views: the bytes themselves with all that was found in them; and what compressed batches hold.
function viewsOf(answer, bytes) {
  const views = [{ title: 'As they are', bytes, parts: [], editable: true }];
  answer?.parts.forEach((part, p) => {
    if (part.at === null) {
      const payload = fromHex(part.hex);
      views.push({ title: part.title, bytes: payload, editable: false, parts: [numbered(part, p, 0, payload.length)] });
    } else views[0].parts.push(numbered(part, p, part.at, part.size));
  });
  for (const each of views) {
    each.fields = each.parts.flatMap(({ fields }) => fields);
    each.fields.forEach((field, n) => { field.n = n; });
  }
  return views;
}

// A part, which begins at `start`, with its fields where they are in the bytes of the view.
function numbered(part, p, start, size) {
  const fields = part.spans.map((span) => ({ ...span, offset: start + span.offset, key: `${p}/${span.path}` }));
  return { p, title: part.title, fields, notes: part.notes, problem: part.problem, end: start + part.end, stop: start + size };
}

let views = [], besideViews = [], pairs = null;
function show() {
  views = viewsOf(found, state.bytes);
  besideViews = besideFound ? viewsOf(besideFound, state.beside) : [];
  view = Math.min(view, views.length - 1);
  const { bytes, parts, fields, editable } = views[view], beside = besideViews[view];
  byId('both').hidden = !bytes.length;
  byId('text').disabled = !bytes.length;
  const marks = { changed: new Set(), different: new Set(), broken: new Set() };
  if (view === 0 && bytes.length === original.bytes.length) bytes.forEach((byte, at) => { if (byte !== original.bytes[at]) marks.changed.add(at); });
  for (const part of parts) if (part.problem && part.end < bytes.length) marks.broken.add(part.end);
  if (view === 0 && original.values) {
    for (const field of fields) {
      const before = original.values.get(field.key);
      if (before !== field.value) field.was = before ?? null;
    }
  }
  pairs = beside && view === 0 ? parts.map((part, p) => ({ ...part, pairs: paired(part, beside.parts[p], part.p) })) : null;
  if (beside) for (let at = 0; at < Math.max(bytes.length, beside.bytes.length); at++) if (bytes[at] !== beside.bytes[at]) marks.different.add(at);
  grid.show(bytes, fields, marks, { editable });
  byId('beside-bytes').hidden = !beside;
  if (beside) {
    const broken = new Set(beside.parts.filter(({ problem }) => problem).map(({ end }) => end));
    besideGrid.show(beside.bytes, beside.fields, { different: marks.different, broken });
  }
  table.show(pairs ?? parts, { comparing: Boolean(pairs) });
  byId('differences-only-label').hidden = !pairs;
  showViews();
  showVerdict();
  detail.showByte(grid.focused, editable ? bytes[grid.focused] : undefined);
  lightUp();
}

// Fields of both, each with its counterpart, as Python has paired them.
function paired(part, other, p) {
  return (comparison?.pairs[p] ?? []).map(([a, b]) => {
    const mine = part?.fields[a], counterpart = other?.fields[b];
    const equal = mine && counterpart && mine.value === counterpart.value && mine.type === counterpart.type;
    return { mine, other: counterpart, same: Boolean(equal) };
  });
}

function showViews() {
  byId('views').hidden = views.length < 2;
  byId('views').replaceChildren(...views.map(({ title }, n) => {
    const tab = element('button', { type: 'button', role: 'tab', textContent: title, ariaSelected: String(n === view) });
    tab.onclick = () => { view = n; grid.begin(); show(); };
    return tab;
  }));
}

const plural = (count, what) => `${count} ${what}${count === 1 ? '' : 's'}`;

function showVerdict() {
  const lines = [], { parts, bytes } = views[view];
  const line = (className, ...children) => lines.push(element('p', { className }, ...children));
  if (!state.bytes.length) line('hint', 'Paste some bytes above, drop a file anywhere, or take one of the examples.');
  else if (!found) line('hint', python.loaded ? 'Looking…' : `${plural(state.bytes.length, 'byte')}. Python is being loaded, to explain them…`);
  else if (found.problem) line('bad', `✗ ${found.problem}`);
  else {
    const wrong = parts.filter(({ problem }) => problem), name = (part) => part.title.replace(/^(request|response) 1: /, parts.length > 1 ? '$&' : '$1: ');
    for (const part of wrong.slice(0, 3)) {
      const go = element('button', { type: 'button', textContent: 'Go there' });
      go.onclick = () => grid.focus(Math.min(part.end, bytes.length - 1));
      line('bad', element('b', { textContent: `✗ ${name(part)}` }), ` · ${part.problem} `, go);
    }
    if (!wrong.length) {
      const titles = parts.length === 1 ? name(parts[0]) : `${parts.length} ${UNITS[found.kind] ?? 'parts'}`;
      const end = parts.at(-1)?.stop ?? 0, all = parts.every((part) => part.end === part.stop) && end === bytes.length;
      line('good', element('b', { textContent: `✓ ${titles}` }), ` · ${plural(bytes.length, 'byte')}` + (all ? ', each of them explained' : ''));
    }
    for (const part of parts) for (const note of part.notes) line('odd', `⚠ ${note}`);
    if (found.why && state.kind === 'guess' && found.kind !== 'file') line('why', `Read as ${KINDS[found.kind]}, because ${found.why}.`);
    if (found.more) {
      const more = element('button', { type: 'button', textContent: 'Explain more' });
      more.onclick = () => { state.fields *= 4; refresh(); };
      line('why', `The first ${views[0].fields.length} fields. `, more);
    }
    if (repairs.length && view === 0) {
      line('fix', 'It would fit with ', ...repairs.flatMap((repair, n) => [...(n ? [' or '] : []), repairButton(repair)]));
    }
    if (pairs) line(...difference());
    if (!same(state.bytes, original.bytes)) {
      const back = element('button', { type: 'button', textContent: 'Back to what it was' });
      back.onclick = () => edit(original.bytes);
      line('why', 'You changed it. ', back);
    }
  }
  byId('verdict').replaceChildren(...lines);
}

function repairButton({ text, hex: wanted, version, at }) {
  const button = element('button', { type: 'button', textContent: text, title: 'Try it; you can undo it' });
  button.onclick = () => {
    if (version !== undefined) { state.version = version; showControls(); return refresh({ fresh: true }); }
    grid.focused = at;
    edit(fromHex(wanted));
  };
  return button;
}

const UNITS = { request: 'requests', response: 'responses', segment: 'batches', metadata: 'batches' };
const KINDS = { request: 'a request', response: 'a response', segment: 'a log segment', metadata: 'a metadata log' };

function difference() {
  const all = pairs.flatMap((part) => part.pairs), different = all.filter((pair) => !pair.same);
  if (!different.length && same(state.bytes, state.beside)) return ['good', '= The same, byte for byte.'];
  if (!different.length) return ['odd', '≠ The same values, but not the same bytes.'];
  const { mine, other } = different[0], at = state.bytes.findIndex((byte, n) => byte !== state.beside[n]);
  const values = mine && other ? `${mine.value} here, ${other.value} in Kafka’s` : mine ? 'only here' : 'only in Kafka’s';
  return ['odd', element('b', { textContent: `≠ ${different.length} of ${all.length} fields differ` }),
          `, first ${(mine ?? other).path}: ${values}. ` + (comparison?.change || (at >= 0 ? `The first byte that differs is at ${at}.` : ''))];
}

function showBroken(message) {
  byId('verdict').replaceChildren(element('p', { className: 'bad', textContent: `✗ ${message.trim().split('\n').at(-1)}` }));
}

// --- bytes and fields light up together ---

let hovered = null, focused = null;     // {n: Set of fields, other: Set of Kafka's fields}
const ofField = (n) => (n >= 0 ? { n: new Set([n]), other: new Set() } : null);
const ofRow = (ranges) => ranges && { n: new Set(ranges.fields.map(({ n }) => n).filter((n) => n !== undefined)),
                                      other: new Set(ranges.fields.map(({ otherN }) => otherN).filter((n) => n !== undefined)) };

function lightUp() {
  const lit = hovered ?? focused, fields = views[view]?.fields ?? [], others = besideViews[view]?.fields ?? [];
  const numbers = lit?.n ?? new Set();
  const paths = new Set([...numbers].map((n) => fields[n]?.key));
  const otherNumbers = new Set([...lit?.other ?? [], ...others.filter(({ key }) => paths.has(key)).map(({ n }) => n)]);
  grid.light([...numbers].map((n) => fields[n]).filter(Boolean));
  besideGrid.light([...otherNumbers].map((n) => others[n]).filter(Boolean));
  table.light(numbers);
  const [first] = numbers, field = numbers.size === 1 ? fields[first] : undefined;
  const [firstOther] = otherNumbers;
  if (field) detail.showField(field, views[view].bytes);
  else if (!numbers.size && otherNumbers.size === 1) detail.showField(others[firstOther], besideViews[view].bytes);
  else {
    const hint = fields.length && grid.hasFocus() ? 'Nobody knows what this byte means: it comes after the place where reading stopped.' : undefined;
    detail.showField(fields[grid.fieldAt(grid.focused)], views[view]?.bytes ?? new Uint8Array(), hint);
  }
}

const listen = (source, kind, act) => source.addEventListener(kind, ({ detail: it }) => { act(it); lightUp(); });
listen(grid, 'hover', (at) => { hovered = at === null ? null : ofField(grid.fieldAt(at)); });
listen(grid, 'focus', (at) => {
  focused = ofField(grid.fieldAt(at));
  state.at = at;
  keepLink();
  detail.showByte(at, views[view].editable ? views[view].bytes[at] : undefined);
});
listen(grid, 'blur', () => { focused = null; });
listen(grid, 'choose', (at) => table.reveal(grid.fieldAt(at)));
listen(grid, 'enter', (at) => table.reveal(grid.fieldAt(at), { focus: true }));
listen(besideGrid, 'hover', (at) => {
  const n = at === null ? -1 : besideGrid.fieldAt(at), other = besideViews[view]?.fields[n];
  const mine = other && views[view].fields.find(({ key }) => key === other.key);
  hovered = n < 0 ? null : { n: new Set(mine ? [mine.n] : []), other: new Set([n]) };
});
listen(table, 'hover', (ranges) => { hovered = ofRow(ranges); });
listen(table, 'focus', (ranges) => { focused = ofRow(ranges); });
listen(table, 'blur', () => { focused = null; });
listen(table, 'choose', (ranges) => {
  const first = Math.min(...ofRow(ranges).n);
  if (Number.isFinite(first)) grid.reveal(views[view].fields[first].offset);
});
listen(table, 'enter', (ranges) => {
  const first = Math.min(...ofRow(ranges).n);
  if (Number.isFinite(first)) grid.focus(views[view].fields[first].offset);
});
byId('sentences').onchange = ({ target }) => document.body.classList.toggle('plain', !target.checked);
byId('values-only').onchange = ({ target }) => { table.valuesOnly = target.checked; };
byId('differences-only').onchange = ({ target }) => { table.differencesOnly = target.checked; };

// --- links, examples ---

let keeping;
function keepLink() {        // soon: browsers don't like it to change with every key
  clearTimeout(keeping);
  keeping = setTimeout(async () => {
    const link = await linkOf(state), none = !state.bytes.length;
    byId('link').disabled = !link || none;
    byId('link').title = none || link ? 'The address of this page carries the bytes' : 'Too many bytes for a link';
    if (link !== location.hash) history.replaceState(null, '', link || location.pathname + location.search);
  }, 200);
}

// Puts the page into a state: from a link, an example, a file.
function take({ bytes = new Uint8Array(), beside = null, text = '', kind = 'guess', api = '', version = null, name = '', at = 0 }) {
  Object.assign(state, { beside, text, api, version, name, at, fields: 1500 });
  setKind(kind);
  byId('beside-box').hidden = !beside;
  byId('beside').value = beside ? hexText(beside) : '';
  byId('beside-problem').hidden = byId('paste-problem').hidden = true;
  setBytes(bytes);
  grid.focused = Math.min(at, Math.max(bytes.length - 1, 0));
  if (!bytes.length && text) { byId('paste').value = text; byId('paste').dispatchEvent(new Event('input')); }
}

addEventListener('hashchange', async () => {
  const wanted = await stateOf(location.hash);
  if (wanted && await linkOf(state) !== location.hash) take(wanted);
});

byId('compare').onclick = () => {
  const box = byId('beside-box');
  box.hidden = !box.hidden;
  if (box.hidden) { state.beside = null; byId('beside').value = ''; } else byId('beside').focus();
  refresh();
};

async function copy(button, text) {
  const label = button.textContent;
  try { await navigator.clipboard.writeText(text); button.textContent = 'Copied'; } catch { button.textContent = 'Not allowed'; }
  setTimeout(() => { button.textContent = label; }, 1500);
}
byId('link').onclick = async () => copy(byId('link'), new URL(await linkOf(state), location.href).href);
byId('text').onclick = async () => {
  if (!found) return;
  copy(byId('text'), await python.call('glue.text', state.bytes, found.kind, found.api ?? '', found.version, state.name));
};

async function showExamples() {
  const response = await fetch(new URL('examples.json', import.meta.url));
  if (!response.ok) return;
  const examples = await response.json(), group = document.querySelector('.examples');
  for (const example of examples) {
    const button = element('button', { type: 'button', textContent: example.name, title: example.about });
    button.onclick = () => take({ ...example, name: '', bytes: fromHex(example.hex), beside: example.beside ? fromHex(example.beside) : null });
    group.append(button);
  }
}

// --- Python's state, light and dark ---

const status = byId('python');
python.addEventListener('progress', ({ detail: { text, part } }) => {
  status.hidden = part === 1;
  status.querySelector('progress').value = part;
  status.lastElementChild.textContent = text;
});
python.addEventListener('broken', ({ detail: message }) => {
  status.hidden = false;
  status.classList.add('bad');
  status.querySelector('progress').hidden = true;
  status.lastElementChild.textContent = message;
});

const themes = ['auto', 'light', 'dark'];     // the same choice as in the rest of the site
document.body.dataset.theme = localStorage.getItem('theme') ?? 'auto';
byId('theme').onclick = () => {
  const dark = matchMedia('(prefers-color-scheme: dark)').matches, now = document.body.dataset.theme;
  const next = now === 'auto' ? (dark ? 'light' : 'dark') : themes[(themes.indexOf(now) + 1) % 3];
  document.body.dataset.theme = next;
  localStorage.setItem('theme', next);
};

async function start() {
  python.start();
  showControls();
  showExamples();
  const wanted = await stateOf(location.hash);
  if (wanted) take(wanted); else refresh();
  apis = await python.call('glue.apis');
  byId('api').replaceChildren(...apis.map(({ name, key }) => element('option', { value: name, textContent: `${name} (${key})` })));
  showControls();
}
start();
