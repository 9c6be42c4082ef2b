// Cells of a chapter that can be changed and run in the page. The script's tag says which lesson this is:
// <script defer src="_static/lessons.js" data-lesson="lessons/002_tiny.frames.json">. The lesson is a list of cells in
// order, {id, source, runnable, hidden}; a cell of it that the page shows is the element #cell-ID.
(() => {
  const tag = document.currentScript ?? document.querySelector('script[data-lesson]');
  const site = new URL('..', tag.src);
  let python, cells = [], running = false, fixtures, bar;

  function element(name, properties = {}, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  // --- Python ---

  async function start() {
    if (!python) {
      const { Python } = await import(new URL('inspector/python.js', site));
      python ??= new Python();
      python.addEventListener('progress', ({ detail: { text, part } }) => { if (part < 1) tell(current, text, part); });
      python.addEventListener('broken', ({ detail }) => { tell(current, detail); python.stop(detail); });
    }
    python.start();
    await (fixtures ??= python.call('fixtures'));
    return python;
  }

  function startAgain() {
    python?.stop('Stopped. The next run begins with a new Python.');
    fixtures = undefined;
    for (const cell of cells) { cell.done = false; tell(cell, ''); }
    tell(bar, '');
  }

  // --- one cell ---

  let current;      // the cell that waits or runs
  function tell(cell, text, part) {
    if (!cell?.status) return;
    cell.status.textContent = text;
    cell.progress.hidden = part === undefined;
    if (part !== undefined) cell.progress.value = part;
  }

  const sourceOf = (cell) => (cell.editor ? cell.editor.value : cell.source);

  // Runs a cell; `quiet` leaves the output that the page came with.
  async function execute(cell, quiet) {
    const output = quiet ? null : freshOutput(cell), from = performance.now();
    const source = sourceOf(cell);
    cell.root?.setAttribute('aria-busy', true);
    try {
      const failed = await python.run('cells.run', [cell.number, source], (piece) => output?.add(piece));
      cell.done = !failed;
      if (failed) { (output ?? freshOutput(cell)).fail(failed); tell(cell, ''); return false; }
      const seconds = (performance.now() - from) / 1000;
      tell(cell, `✓ ${seconds < 0.1 ? '' : seconds.toFixed(1) + ' s'}`);
      return true;
    } catch (error) { tell(cell, error.message); return false; } finally { cell.root?.removeAttribute('aria-busy'); }
  }

  // Runs cells, after those above that haven't been run yet: what they define is needed. How far it is says `teller`,
  // which is a cell, or the bar at the top.
  async function run(wanted, teller = wanted.at(-1)) {
    if (running || !wanted.length) return;
    running = true;
    document.body.classList.add('lesson-running');
    current = teller;
    const last = cells.indexOf(wanted.at(-1)), chosen = new Set(wanted), from = performance.now();
    try {
      tell(teller, python?.loaded ? 'Running' : 'Loading Python', python?.loaded ? undefined : 0);
      await start();
      for (const cell of cells.slice(0, last + 1)) {
        if (!cell.runnable || (!chosen.has(cell) && cell.done)) continue;
        tell(teller, cell === teller ? 'Running' : `Running cell ${cell.number}`);
        if (await execute(cell, !chosen.has(cell)) || cell === teller) continue;
        tell(teller, `Cell ${cell.number} has failed.`);
        return cell.root?.scrollIntoView({ block: 'nearest' });
      }
      if (teller === bar) tell(bar, `✓ all cells, ${((performance.now() - from) / 1000).toFixed(1)} s`);
    } catch (error) { tell(teller, error.message); } finally {
      running = false;
      document.body.classList.remove('lesson-running');
    }
  }

  const above = (cell) => cells.slice(0, cells.indexOf(cell)).filter(({ runnable }) => runnable);

  // --- what it shows ---

  function freshOutput(cell) {
    if (!cell.root) return { add() {}, fail() {} };
    cell.output ??= cell.root.querySelector(':scope > .cell_output');
    const box = element('div', { className: 'cell_output docutils container lesson-output' });
    box.setAttribute('aria-live', 'polite');
    cell.root.querySelector(':scope > .lesson-output')?.remove();
    if (cell.output) cell.output.hidden = true;
    cell.tools.after(box);
    let stream;      // what is printed goes on in the same block
    const block = (className, text) => {
      const pre = element('pre', { textContent: text });
      box.append(element('div', { className: `output ${className} notranslate` }, element('div', { className: 'highlight' }, pre)));
      return pre;
    };
    return {
      add({ kind, text }) {
        if (kind === 'html') { box.append(element('div', { className: 'output text_html', innerHTML: text })); stream = undefined; return; }
        if (kind === 'text') { block('text_plain', text); stream = undefined; return; }
        if (stream?.kind !== kind) stream = { kind, pre: block(kind === 'stderr' ? 'stderr' : 'stream', '') };
        stream.pre.append(text);
      },
      fail({ error, hint }) {
        block('traceback', error.replace(/\n$/, ''));
        if (hint) box.append(element('p', { className: 'lesson-hint', textContent: hint }));
      },
    };
  }

  function reset(cell) {
    cell.editor.value = cell.source;
    coloured(cell);
    cell.root.querySelector(':scope > .lesson-output')?.remove();
    if (cell.output) cell.output.hidden = false;
    tell(cell, '');
    cell.done = false;
  }

  // --- colours, by the classes of the theme ---

  const KEYWORDS = new Set(('and as assert async await break case class continue def del elif else except finally for from global if ' +
    'import in is lambda match nonlocal not or pass raise return try while with yield').split(' '));
  const CONSTANTS = new Set(['None', 'True', 'False']);
  const TOKEN = new RegExp([
    '(?<comment>#.*)',
    '(?<string>(?:\\b[rbfRBFuU]{1,2})?(?:"""[^]*?(?:"""|$)|\'\'\'[^]*?(?:\'\'\'|$)|"(?:\\\\.|[^"\\\\\n])*"?|\'(?:\\\\.|[^\'\\\\\n])*\'?))',
    '(?<number>\\b(?:0[xXbBoO][0-9a-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:e[+-]?\\d+)?))',
    '(?<name>[A-Za-z_]\\w*)', '(?<operator>[-+*/%=<>!&|^~@:]+)'].join('|'), 'g');

  function highlighted(source) {
    const pieces = [];
    let end = 0, before = '';
    for (const found of source.matchAll(TOKEN)) {
      pieces.push(source.slice(end, found.index));
      const [text] = found, { comment, string, number, name } = found.groups;
      const kind = comment ? 'c1' : string ? 's1' : number ? 'mi' : !name ? 'o'
        : CONSTANTS.has(name) ? 'kc' : KEYWORDS.has(name) ? 'k' : before === 'def' ? 'nf' : before === 'class' ? 'nc' : 'n';
      pieces.push(element('span', { className: kind, textContent: text }));
      before = text;
      end = found.index + text.length;
    }
    return [...pieces, source.slice(end)];
  }

  function coloured(cell) {
    const edited = cell.editor.value !== cell.source;
    cell.root.classList.toggle('lesson-edited', edited);
    if (edited) cell.code.replaceChildren(...highlighted(cell.editor.value), '\n'); else cell.code.innerHTML = cell.original;
  }

  // --- what the reader can do ---

  function button(textContent, title, act) {
    const made = element('button', { type: 'button', textContent, title });
    made.onclick = act;
    return made;
  }

  function equip(cell) {
    const code = cell.root.querySelector(':scope > .cell_input pre');
    if (!code) return;
    if (!cell.runnable) {
      cell.root.append(element('p', { className: 'lesson-hint', textContent: 'Needs a real socket: run it on your machine.' }));
      cell.root.querySelector(':scope > .cell_input').after(cell.root.lastChild);
      return;
    }
    const editor = element('textarea', { value: cell.source, spellcheck: false, autocapitalize: 'off', autocomplete: 'off',
      wrap: 'off', rows: 1, ariaLabel: `Code of cell ${cell.number}. Control and Enter runs it, Escape leaves it.` });
    Object.assign(cell, { code, editor, original: code.innerHTML });
    code.parentElement.classList.add('lesson-code');
    code.after(editor);
    code.setAttribute('aria-hidden', true);
    editor.addEventListener('input', () => coloured(cell));
    editor.addEventListener('keydown', (event) => key(cell, event));
    cell.status = element('span', { className: 'lesson-status', role: 'status' });
    cell.progress = element('progress', { max: 1, value: 0, hidden: true, ariaLabel: 'Loading Python' });
    cell.tools = element('div', { className: 'lesson-tools' },
      button('▶ Run', 'Run this cell (Ctrl+Enter)', () => run([cell])),
      element('span', { className: 'lesson-number', textContent: `cell ${cell.number}` }), cell.progress, cell.status,
      button('Run all above', 'Run the cells above again, in order', () => run(above(cell), cell)),
      button('Stop', 'End Python; what it knew is lost', startAgain),
      button('Reset', 'The cell as it was', () => reset(cell)));
    const [all, stop, back] = [...cell.tools.children].slice(-3);
    all.className = 'lesson-above';
    stop.className = 'lesson-stop';
    back.className = 'lesson-reset';
    if (!above(cell).length) all.remove();
    cell.root.querySelector(':scope > .cell_input').after(cell.tools);
  }

  function key(cell, event) {
    const { editor } = cell, type = (text) => { event.preventDefault(); document.execCommand('insertText', false, text); };
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey || event.shiftKey)) {
      event.preventDefault();
      run([cell]);
    } else if (event.key === 'Tab' && !event.shiftKey) type('    ');
    else if (event.key === 'Escape') cell.tools.querySelector('button').focus();
    else if (event.key === 'Enter') {      // the next line begins where this one does
      const line = editor.value.slice(0, editor.selectionStart).split('\n').at(-1);
      type('\n' + line.match(/^ */)[0] + (/:\s*(#.*)?$/.test(line) ? '    ' : ''));
    } else if (event.key === 'Backspace' && editor.selectionStart === editor.selectionEnd) {   // four spaces at once
      const line = editor.value.slice(0, editor.selectionStart).split('\n').at(-1);
      if (!/^( {4})+$/.test(line)) return;
      editor.setSelectionRange(editor.selectionStart - 4, editor.selectionStart);
      event.preventDefault();
      document.execCommand('delete');
    }
  }

  function introduce() {
    const title = document.querySelector('article h1, h1');
    bar = { status: element('span', { className: 'lesson-status', role: 'status' }),
            progress: element('progress', { max: 1, value: 0, hidden: true, ariaLabel: 'Loading Python' }) };
    const all = () => run(cells.filter(({ runnable }) => runnable), bar);
    title?.after(element('div', { className: 'lesson-bar' },
      element('span', { textContent: 'The code on this page runs in your browser. Change it, and press Ctrl+Enter.' }),
      bar.progress, bar.status,
      button('Run all', 'Run every cell, from the first to the last', all),
      button('Start again', 'Forget what has been run', startAgain)));
  }

  async function begin() {
    const response = await fetch(new URL(tag.dataset.lesson, site));
    if (!response.ok) return;
    cells = await response.json();
    let shown = 0;
    for (const cell of cells) {
      cell.root = document.getElementById(`cell-${cell.id}`);
      cell.number = cell.root ? String(++shown) : `after ${shown}, which is not shown`;
    }
    if (!cells.some(({ root, runnable }) => root && runnable)) return;
    for (const cell of cells) if (cell.root) equip(cell);
    introduce();
  }
  begin();
})();
