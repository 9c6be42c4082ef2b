// The page's side of Python: `python.call('glue.look', bytes, …)` is a promise of what the function returns.
export class Python extends EventTarget {
  #worker; #waiting = new Map(); #next = 1;
  loaded = false;

  start() {
    if (this.#worker) return this;
    if (location.protocol === 'file:') {
      const how = 'Python only runs in a page that comes from a server: `python -m http.server` in the directory of the site is one.';
      queueMicrotask(() => this.#tell('broken', how));
      return this;
    }
    this.#worker = new Worker(new URL('worker.js', import.meta.url), { type: 'module' });
    this.#worker.onmessage = ({ data }) => this.#hear(data);
    this.#worker.onerror = (event) => this.#tell('broken', event.message || 'Python could not be loaded');
    return this;
  }

  // Ends what is running. The next call begins with a new Python, which knows nothing of what was run before.
  stop(reason = 'stopped') {
    this.#worker?.terminate();
    this.#worker = undefined;
    this.loaded = false;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(new Error(reason));
  }

  call(name, ...values) { return this.run(name, values); }

  // The same, with a function that hears what the code prints, piece by piece.
  run(name, values, hear) {
    this.start();
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, hear });
      this.#worker?.postMessage({ id, name, values });
    });
  }

  #tell(kind, detail) { this.dispatchEvent(new CustomEvent(kind, { detail })); }

  #hear(data) {
    if (data.broken) return this.#tell('broken', data.broken);
    if (data.progress) {
      this.loaded = data.progress.part === 1;
      return this.#tell('progress', data.progress);
    }
    const waiting = this.#waiting.get(data.id);
    if (!waiting) return;
    if (data.output) return waiting.hear?.(data.output);
    this.#waiting.delete(data.id);
    if (data.error) waiting.reject(new Error(data.error)); else waiting.resolve(data.result);
  }
}
