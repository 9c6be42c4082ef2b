"./learn.sh: JupyterLab opens at the map, and leaves the chapters as they are unless somebody changes them."
import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest

from broker_process import PATIENCE, ROOT, environment, free_port, wait_until

TOKEN = 'for-this-test'


def ask(port: int, path: str, method: str = 'GET', body=None):
    request = urllib.request.Request(f'http://127.0.0.1:{port}/{path}', method=method,
                                     headers={'Authorization': f'token {TOKEN}', 'Content-Type': 'application/json'},
                                     data=None if body is None else json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer: return json.loads(answer.read())


@pytest.fixture(scope='module')
def checkout(tmp_path_factory):
    "What JupyterLab needs of one: the chapters, and how it is set up."
    place = tmp_path_factory.mktemp('checkout')
    shutil.copytree(ROOT/'tools'/'jupyter', place/'tools'/'jupyter')
    shutil.copytree(ROOT/'nbs', place/'nbs', ignore=shutil.ignore_patterns('.*'))
    (place/'.venv').mkdir()
    return place


@pytest.fixture(scope='module')
def lab(checkout):
    "The port of a JupyterLab, started as learn.sh starts it."
    if importlib.util.find_spec('jupyterlab') is None:
        pytest.skip('JupyterLab is not installed: ./learn.sh installs it')
    port = free_port()
    command = [sys.executable, '-m', 'jupyterlab', '--config=tools/jupyter/config.py', '--no-browser', '--allow-root',
               '--ip=127.0.0.1', f'--ServerApp.port={port}',
               '--ServerApp.port_retries=0', f'--IdentityProvider.token={TOKEN}', 'nbs/map.ipynb']
    with open(checkout/'log', 'wb') as log:
        process = subprocess.Popen(command, cwd=checkout, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   env=environment())
    def up():
        assert process.poll() is None, (checkout/'log').read_text()
        with contextlib.suppress(OSError): return ask(port, 'api/status')
    try:
        wait_until(up, 'JupyterLab to answer', 60)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_nothing_is_saved_by_itself(lab):
    settings = lambda name: ask(lab, f'lab/api/settings/{name}')
    overrides = json.loads((ROOT/'tools'/'jupyter'/'overrides.json').read_text())
    for name, wanted in overrides.items():
        properties = settings(name)['schema']['properties']
        assert {key: properties[key]['default'] for key in wanted} == wanted, name


def test_a_chapter_that_was_run_and_saved_is_the_same_file(lab, checkout):
    "What JupyterLab adds when a kernel has run (the language, counts, its name for the kernel) is not written down."
    path = checkout/'nbs'/'028_wire.pages.ipynb'
    before, model = path.read_bytes(), ask(lab, 'api/contents/028_wire.pages.ipynb')
    content = model['content']
    content['metadata'] |= {'language_info': {'name': 'python', 'version': '3.99'},
                            'kernelspec': {'name': 'python3', 'display_name': 'Python 3 (ipykernel)',
                                           'language': 'python'}}
    for number, cell in enumerate(cell for cell in content['cells'] if cell['cell_type'] == 'code'):
        cell['execution_count'] = number
        cell['metadata'] |= {'trusted': True, 'execution': {'iopub.status.busy': '2026-11-17T00:00:00Z'}}
        for output in cell['outputs']:
            if output['output_type'] == 'execute_result': output['execution_count'] = number
    assert b'image/svg+xml' in before and any(cell.get('execution_count') for cell in content['cells'])
    time.sleep(0.01)
    ask(lab, 'api/contents/028_wire.pages.ipynb', 'PUT', {'type': 'notebook', 'format': 'json', 'content': content})
    assert path.read_bytes() == before
    content['cells'][0]['source'] += '\n\nA note of mine.'
    ask(lab, 'api/contents/028_wire.pages.ipynb', 'PUT', {'type': 'notebook', 'format': 'json', 'content': content})
    assert b'A note of mine.' in path.read_bytes(), 'what somebody wrote is saved'


def test_pictures_are_shown_before_anything_runs(lab):
    "The server marks the cells of a notebook as trusted when it knows its signature."
    cells = ask(lab, 'api/contents/016_house.ipynb')['content']['cells']
    assert all(cell['metadata']['trusted'] for cell in cells if cell['cell_type'] == 'code')


def test_the_script_says_what_it_takes():
    done = subprocess.run([ROOT/'learn.sh', '--help'], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and './learn.sh [--spark]' in done.stdout and done.stderr == ''
