"""`kafka-scratch tiny`: a program comes out, and it runs alone.

The command is run as its users run it, as a process; and so is what it prints.
"""
import ast
import contextlib
import json
import shutil
import subprocess
import sys

import pytest

from broker_process import FIXTURES, ROOT, Client, environment, free_port, wait_until
from kafka_scratch.tiny.program import CHAPTERS, STAGES, program

STAGE = FIXTURES/'course'/'22-produce-one-record'


def run(*arguments: str) -> tuple[int, str, str]:
    "Exit code, output, and complaints."
    done = subprocess.run([sys.executable, '-m', 'kafka_scratch', 'tiny', *arguments], capture_output=True, text=True,
                          timeout=60, env=environment(PYTHONPATH=str(ROOT)))
    assert 'Traceback' not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_it_prints_the_program():
    assert run() == (0, program(), '')
    assert run('--after', 'fetch') == (0, program('fetch'), '')


@pytest.mark.parametrize('chapter', CHAPTERS)
def test_it_needs_nothing_but_the_standard_library(chapter):
    tree = ast.parse(program(chapter))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules and modules <= sys.stdlib_module_names
    names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    assert len(names) == len(set(names))   # what was replaced is gone


def test_the_help_lists_the_chapters_and_their_stages():
    code, text, _ = run('--help')
    listed = [line.split() for line in text.splitlines() if 'stages 1 to' in line]
    assert code == 0 and [(words[0], int(words[4])) for words in listed] == list(STAGES.items())


def test_a_chapter_that_is_none():
    code, text, complaint = run('--after', 'chapter 6')
    assert (code, text) == (2, '')
    assert complaint.startswith("kafka-scratch: no chapter is called 'chapter 6': it is one of port, frames, ")


@contextlib.contextmanager
def started(directory, text: str):
    "A printed program as a process of its own, where the package can't be found. Its port."
    port = free_port()
    assert text.count('= 9092') == 1
    (directory/'tiny_broker.py').write_text(text.replace('= 9092', f'= {port}'))
    shutil.copytree(STAGE/'logs', directory/'logs')
    (directory/'server.properties').write_text(f'node.id=1\nlog.dirs={directory/"logs"}\n')
    process = subprocess.Popen([sys.executable, '-I', 'tiny_broker.py', 'server.properties'], cwd=directory,
                               stderr=subprocess.PIPE)
    def listening():
        assert process.poll() is None, process.stderr.read().decode()
        with contextlib.suppress(OSError): return Client(port, 'localhost')
    try:
        wait_until(listening, 'the program to listen').close()
        yield port
    finally:
        process.terminate()
        process.communicate()


def test_what_it_prints_is_a_broker(tmp_path):
    request, wanted = [bytes.fromhex(json.loads(line)['hex']) for line in (STAGE/'conversation.jsonl').open()]
    with started(tmp_path, run()[1]) as port, Client(port, 'localhost') as client:
        client.send(request)
        assert client.frame() == wanted
    stored = (tmp_path/'logs'/'apple-0'/f'{0:020}.log').read_bytes()
    assert len(stored) == 73 and stored in request
