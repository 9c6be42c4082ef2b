// Python, in a thread of its own, so that the page stays responsive. Everything comes from the site itself.
//
// The page sends {id, name, values}: call the Python function of this name with these values. The answer is
// {id, result} or {id, error}; {id, output} may come before it, whenever the code prints something. While Python is
// being loaded there are messages {progress: {text, part}}, with `part` from 0 to 1.
import { loadPyodide } from '../pyodide/pyodide.mjs';

const site = new URL('../', self.location.href);
const say = (text, part) => postMessage({ progress: { text, part } });

const SIZES = { 'pyodide.asm.wasm': 9.6e6, 'python_stdlib.zip': 2.55e6, 'kafka_scratch.zip': 0.38e6 };
const ALL = Object.values(SIZES).reduce((sum, size) => sum + size);
let arrived = 0;

// Pyodide fetches its own files: they are counted as they come, and otherwise left alone.
const fetchIt = self.fetch.bind(self);
self.fetch = async (resource, options) => {
  const response = await fetchIt(resource, options);
  const name = new URL(resource.url ?? resource, site).pathname.split('/').pop();
  if (response.ok && name in SIZES) count(response.clone().body.getReader());
  return response;
};

async function count(reader) {
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    arrived += piece.value.length;
    const part = arrived / ALL;
    say(part < 0.99 ? `Loading Python: ${(arrived / 1e6).toFixed(1)} of ${(ALL / 1e6).toFixed(1)} MB` : 'Starting Python', 0.7 * Math.min(1, part));
  }
}

async function download(path) {
  const response = await fetch(new URL(path, site));
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response;
}

let running;   // the id of the call that shows something
const page = { show: (kind, text) => postMessage({ id: running, output: { kind, text } }) };

async function start() {
  say('Loading Python', 0);
  const files = ['inspector/glue.py', 'inspector/pasted.py', 'inspector/hints.py', 'inspector/cells.py'];
  const ours = Promise.all([download('pyodide/kafka_scratch.zip').then((it) => it.arrayBuffer()),
                            ...files.map((file) => download(file).then((it) => it.text()))]);
  const python = await loadPyodide({ indexURL: new URL('pyodide/', site).href, env: { HOME: '/book', COLUMNS: '100' } });
  say('Unpacking kafka_scratch', 0.85);
  const [archive, ...sources] = await ours;
  python.unpackArchive(archive, 'zip', { extractDir: '/book' });
  sources.forEach((source, n) => python.FS.writeFile('/book/' + files[n].split('/').pop(), source));
  python.FS.mkdir('/book/nbs');
  python.registerJsModule('page', page);
  python.runPython("import sys, os; sys.path.insert(0, '/book'); os.chdir('/book/nbs')");
  say('Ready', 1);
  return python;
}

const ready = start();
ready.catch((error) => postMessage({ broken: String(error.message ?? error) }));

let fixtures;
const special = {
  // Puts the fixtures where chapters expect them.
  async fixtures(python) {
    fixtures ??= download('lessons/fixtures.zip').then((it) => it.arrayBuffer())
      .then((archive) => python.unpackArchive(archive, 'zip', { extractDir: '/book' }));
    await fixtures;
  },
};

async function call(python, name, values) {
  if (name in special) return special[name](python, ...values);
  const [module, method] = name.split('.');
  const found = python.pyimport(module);
  const converted = values.map((value) => (value === null ? undefined : python.toPy(value)));   // None
  try { return JSON.parse(await found[method](...converted)); } finally { found.destroy(); }
}

let last = Promise.resolve();   // one call at a time, in order
self.onmessage = ({ data: { id, name, values } }) => {
  last = last.then(async () => {
    try {
      const python = await ready;
      running = id;
      postMessage({ id, result: await call(python, name, values) ?? null });
    } catch (error) { postMessage({ id, error: String(error.message ?? error) }); }
  });
};
