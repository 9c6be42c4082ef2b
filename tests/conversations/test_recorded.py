"""What clients and a real broker said to each other, said again to ours: the table is in `helpers/recordings.py`.

Not in it, because they need more than a node: logging in (security/test_sasl.py, test_security.py: a guard in front of
the node, proofs that depend on nonces), offsets (groups/test_offsets.py: what a member says depends on ids that it
heard, and how it got them is not in the file), and what goes over sockets (apis/test_edge_cases.py,
apis/test_log_edge_cases.py, test_conversations.py, test_course.py).
"""
import pytest

from player import differences, recorded
from recordings import RECORDINGS

TOGETHER = [file for file, recording in RECORDINGS.items() if not recording.alone]
ALONE = [pytest.param(file, line, id=f'{file}: {line["name"]}')
         for file, recording in RECORDINGS.items() if recording.alone for line in recorded(file)]


def check(directory, file: str, lines: list[dict]):
    recording = RECORDINGS[file]
    node = recording.node(directory, lines)
    count, different = differences(recording, node, lines)
    assert not different, '\n'.join(different)
    assert count == recording.compared
    recording.at_end(node, lines)


@pytest.mark.parametrize('file', TOGETHER)
def test_answers_are_those_of_a_real_broker(tmp_path, file): check(tmp_path, file, recorded(file))


@pytest.mark.parametrize('file, line', ALONE)
def test_an_answer_is_that_of_a_real_broker(tmp_path, file, line): check(tmp_path, file, [line])
