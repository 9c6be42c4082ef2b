"The tiny broker as its users meet it: a file of Python, started as a process."
import contextlib
import signal
import subprocess
import sys
from pathlib import Path

from broker_process import Client, free_port, wait_until

PASSED = {   # the module of a chapter → the last stage that the program passes after it
    'port': 2, 'frames': 4, 'api_versions': 5, 'connections': 7, 'compact': 8, 'unknown_topic': 9, 'records': 9,
    'metadata_log': 9, 'describe': 12, 'fetch': 16, 'fetch_log': 18, 'produce': 21, 'produce_log': 25}


@contextlib.contextmanager
def tiny_broker(directory: Path, text: str, *arguments, may_complain: bool = False):
    "The program, on a port that is free, which it gives. It is stopped at the end, and must not have complained."
    port, file = free_port(), directory/'tiny_broker.py'
    assert text.count('9092') == 1
    file.write_text(text.replace('9092', str(port)), encoding='utf-8')
    process = subprocess.Popen([sys.executable, file, *map(str, arguments)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: is_open(port) or process.poll() is not None, 'the program to listen')
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError): process.send_signal(signal.SIGTERM)
        try: _, said = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
    assert process.returncode == -signal.SIGTERM and (may_complain or said == ''), said


def is_open(port: int) -> bool:
    "Does somebody listen? A connection that says nothing is no harm to any of the programs."
    try: Client(port, 'localhost').close()
    except ConnectionRefusedError: return False
    return True
