"A real browser for the pages of the site, which are served on loopback; and a site that was built for it."
import contextlib
import fcntl
import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

from broker_process import ROOT
from clients import fetch

FLAGS = ('--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking '
         '--disable-component-update --disable-sync').split()
NEEDED = 'sphinx', 'myst_nb', 'furo', 'spellchecker'
PATIENCE = 600     # seconds, for a build on a busy machine


def sphinx_absent() -> str | None:
    "Why no site can be built, if none can."
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    return f'no {missing[0]}: ./site.sh installs what the site needs' if missing else None


def browser_absent() -> str | None:
    "Why no browser can look at it, if none can."
    if importlib.util.find_spec('playwright') is None: return 'no playwright: ./site.sh installs what the site needs'
    return fetch.chromium_absent()


def build_site(*arguments) -> tuple[Path, subprocess.CompletedProcess]:
    "The site in build/tests, made by the first who asks; for those who come later there is little left to do."
    out = ROOT/'build'/'tests'/'site'
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out.parent/'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, ROOT/'tools'/'site.py', '--out', out, '--work', out.parent/'work', *arguments]
        return out, subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


@contextlib.contextmanager
def served(site: Path):
    "The address of a site, while it is served."
    spec = importlib.util.spec_from_file_location('site_tool', ROOT/'tools'/'site.py')
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    with tool.server(site, 0) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        try: yield f'http://127.0.0.1:{serving.server_port}'
        finally: serving.shutdown()


@contextlib.contextmanager
def browsing():
    "A browser, with nothing in it."
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=fetch.chromium_program(), args=FLAGS)
        try: yield browser
        finally: browser.close()
