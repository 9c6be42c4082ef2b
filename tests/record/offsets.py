"""Records `offsets.jsonl`, and `offsets-log.json` with what is in the log afterwards: `python tests/record/offsets.py`."""  # noqa: E501
import json
import tempfile
from pathlib import Path

from recording import Recorder, command_line

from benchmarks import real_kafka
from offset_conversations import CONVERSATIONS, SETTINGS, TOPICS, before, hold, wait_for_coordinator, written


def record(to: Path):
    with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, SETTINGS) as kafka:
        kafka.create_topics(TOPICS)
        found = {'before': hold(kafka.port, before)}
        wait_for_coordinator(kafka.port)
        for name, conversation in CONVERSATIONS.items(): found[name] = hold(kafka.port, conversation)
        keeper = Recorder(kafka.port)
        keeper.cases = [case | {'conversation': name} for name, cases in found.items() for case in cases]
        keeper.save('offsets.jsonl', to)
        kafka.stop()
        (to/'offsets-log.json').write_text(json.dumps(written(kafka.log_dir), indent=0) + '\n')


if __name__ == '__main__': record(command_line(__doc__).to)
