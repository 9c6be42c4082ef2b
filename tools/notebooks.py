#!/usr/bin/env python3
"""Execute the notebooks and keep their saved outputs true.

    tools/notebooks.py run                    execute every notebook in place and save its outputs
    tools/notebooks.py run nbs/030_wire.frames.ipynb
    tools/notebooks.py check                  fail if a saved output is not what the code prints

Cells run as nbdev_test runs them: `#| eval: false` and the flags named by tst_flags in settings.ini are
skipped (a skipped cell keeps the outputs it has), and the notebook's folder is the working directory.
A notebook with a failing cell is left as it was.
"""
import argparse
import difflib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIFF_LINES = 60
RUNNING = set()  # the processes that execute notebooks right now


def settings():
    "The project's settings.ini, as a mapping."
    parser = ConfigParser(delimiters=['='])
    parser.read(ROOT/'settings.ini', encoding='utf-8')
    return parser['DEFAULT']


def execute(source: Path, flags: set) -> str:
    "Run the notebook at `source` in this process; its text, with fresh outputs and cleaned. SystemExit on failure."
    from execnb.nbio import dict2nb, nb2dict, nb2str, read_nb
    from execnb.shell import CaptureShell
    from fastcore.basics import str2bool
    from nbdev.clean import clean_nb
    from nbdev.frontmatter import FrontmatterProc
    from nbdev.process import NBProcessor, nb_lang

    saved = read_nb(source)
    position = {cell.id: number for number, cell in enumerate(saved.cells)}
    if len(position) < len(saved.cells): sys.exit(f'{source.name}: two cells have the same id')
    # nbdev's processor takes directives and front matter out of the cells, so it gets a copy.
    copy = dict2nb(nb2dict(saved))
    copy.path_ = str(source)
    running = NBProcessor(nb=copy, procs=FrontmatterProc, process=True).nb
    skip_flags = set(settings()['tst_flags'].split()) - flags
    current = None

    def skip(cell):
        nonlocal current
        if cell.cell_type != 'code' or 'nbdev_export(' in cell.source: return True
        directives = getattr(cell, 'directives_', None) or {}
        if directives.get('eval:', [''])[0].lower() == 'false' or skip_flags & directives.keys(): return True
        cell.outputs = []  # the shell only stores outputs when there are any
        current = cell
        return False

    def keep(cell):
        saved.cells[position[cell.id]].outputs = cell.outputs

    front = getattr(running, 'frontmatter_', {})
    if not str2bool(front.get('skip_exec', False)) and nb_lang(running) == 'python':
        os.chdir(source.parent)
        shell = CaptureShell(source)
        try:
            shell.run_all(running, exc_stop=True, preproc=skip, postproc=keep)
        except BaseException as error:
            if current is None: raise
            where = f'cell {position[current.id] + 1} of {len(saved.cells)} (id {current.id})'
            code = ''.join(f'    | {line}\n' for line in current.source.splitlines())
            sys.exit(f'{source.name}, {where}:\n{code}{trace(error)}')
    clean_nb(saved)
    return nb2str(saved)


def trace(error: BaseException) -> str:
    "The traceback of `error` from the cell onwards: the machinery that ran the cell is not news."
    frame = error.__traceback__
    while frame and not frame.tb_frame.f_code.co_filename.startswith('<ipython-input'): frame = frame.tb_next
    return ''.join(traceback.format_exception(type(error), error, frame)).rstrip()


def stop(process: subprocess.Popen):
    "End `process` and everything it started."
    with suppress(ProcessLookupError): os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def in_subprocess(path: Path, flags: list, timeout: float) -> tuple:
    "Execute one notebook in a Python of its own: (its new text or None, what went wrong, seconds)."
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix='notebook-') as scratch:
        target = Path(scratch)/'executed.ipynb'
        # Whatever the reader's terminal, clock and locale: outputs come out the same.
        env = os.environ | dict(IN_TEST='1', IPYTHONDIR=scratch, COLUMNS='80', LINES='24', TZ='UTC', NO_COLOR='1',
                                PYTHONUTF8='1', PYTHONDONTWRITEBYTECODE='1', PIP_REQUIRE_VIRTUALENV='true',
                                PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')])))
        for name in 'FORCE_COLOR', 'PYTHON_COLORS': env.pop(name, None)
        command = [sys.executable, __file__, 'execute', str(path), str(target), '--flags', ','.join(flags)]
        with open(Path(scratch)/'log', 'w+b') as log:
            # A session of its own, so that what a notebook started and left running ends with it.
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
                                       start_new_session=True)
            RUNNING.add(process)
            code = None
            try:
                code = process.wait(timeout)
                trouble = f'{path.name}: its Python ended with exit status {code}' if code else ''
            except subprocess.TimeoutExpired:
                trouble = f'{path.name}: still running after {timeout:g} seconds, stopped'
            finally:
                stop(process)
                RUNNING.discard(process)
            log.seek(0)
            said = log.read().decode(errors='replace').strip()
        text = None if trouble else target.read_text(encoding='utf-8')
    if trouble and said: trouble = said if code == 1 else f'{said}\n{trouble}'  # 1: `execute` has told the story
    return text, trouble, time.perf_counter() - start


def difference(old: str, new: str, name: str, limit: int = DIFF_LINES) -> str:
    "A unified diff of at most `limit` lines."
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), f'{name} (saved)', f'{name} (executed)',
                                      lineterm='', n=4))
    more = [f'... {len(lines) - limit} more lines'] if len(lines) > limit else []
    return '\n'.join(lines[:limit] + more)


def every_notebook() -> list:
    "The notebooks nbdev would test, in reading order."
    folder = ROOT/settings()['nbs_path']
    return sorted(path for path in folder.glob('*.ipynb') if path.name[0] not in '._')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True, metavar='{run,check}')
    for name, text in (('run', 'execute in place and save the outputs'),
                       ('check', 'execute a copy; exit 1 with a diff if the saved outputs differ')):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument('notebooks', nargs='*', type=Path, metavar='NB', help='notebooks (default: all of them)')
        command.add_argument('--flags', default='', help='also run cells with these flags, e.g. --flags spark,slow')
        command.add_argument('--jobs', type=int, default=2, help='notebooks at a time (default: 2)')
        command.add_argument('--timeout', type=float, default=600, help='seconds for one notebook (default: 600)')
    worker = commands.add_parser('execute')  # what `run` and `check` start; not for people
    worker.add_argument('source', type=Path)
    worker.add_argument('target', type=Path)
    worker.add_argument('--flags', default='')
    options = parser.parse_args()
    flags = options.flags.replace(',', ' ').split()

    if options.command == 'execute':
        sys.path[0] = str(ROOT)
        code = 0
        try: options.target.write_text(execute(options.source, set(flags)), encoding='utf-8', newline='\n')
        except SystemExit as failure:
            print(failure, flush=True)
            code = 1
        os._exit(code)  # threads and servers a notebook left behind must not hold us up

    paths = [path.resolve() for path in options.notebooks] or every_notebook()
    for path in paths:
        if not path.is_file(): parser.error(f'no such notebook: {path}')
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bad = differs = 0
    pool = ThreadPoolExecutor(max(1, options.jobs))
    futures = {pool.submit(in_subprocess, path, flags, options.timeout): path for path in paths}
    try:
        for done, future in enumerate(as_completed(futures), 1):
            path = futures[future]
            text, trouble, seconds = future.result()
            word, old = 'ok', path.read_text(encoding='utf-8')
            if text is None: word = 'FAILED'
            elif options.command == 'run':
                word = 'unchanged' if text == old else 'saved'
                if text != old: path.write_text(text, encoding='utf-8', newline='\n')
            elif text != old:
                word = 'DIFFERS'
                differs += 1
                trouble = difference(old, text, path.name)
            print(f'[{done}/{len(paths)}] {path.name:<40} {word:<10} {seconds:6.1f} s', file=sys.stderr, flush=True)
            if trouble:
                bad += 1
                print(trouble, flush=True)
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(RUNNING): stop(process)
        print('interrupted: notebooks not yet reported are as they were', file=sys.stderr)
        return 130
    if bad:
        hint = '; if a diff above is meant, tools/notebooks.py run saves it' if differs else ''
        print(f'{bad} of {len(paths)} notebooks are not as they should be{hint}', file=sys.stderr)
    return 1 if bad else 0


if __name__ == '__main__': sys.exit(main())
