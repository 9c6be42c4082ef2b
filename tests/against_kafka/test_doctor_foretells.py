"""`kafka-scratch doctor` on the directory of an Apache Kafka: at work, killed, damaged, and shut down in order.

What a start would do, it says. Then Kafka is started, and its logs end where the doctor said they would.
"""
import json
import subprocess
import sys
from pathlib import Path

from size import needs_kafka
from broker_process import ROOT, environment

sys.path.insert(0, str(ROOT))
from benchmarks import real_kafka

pytestmark = needs_kafka
SETTINGS = {'log.segment.bytes': 1 << 20, 'log.cleaner.backoff.ms': 200}


def typed(*words, lines: str = '') -> tuple[int, str]:
    "A command, and what it prints."
    done = subprocess.run([sys.executable, '-m', 'kafka_scratch', *map(str, words)], input=lines, text=True,
                          capture_output=True, env=environment(PYTHONPATH=str(ROOT)), timeout=120)
    assert 'Traceback' not in done.stderr, done.stderr
    return done.returncode, done.stdout


def ends(port: int, *topics) -> dict:
    "Where the logs of topics end, as the broker says."
    described = json.loads(typed('topics', 'describe', *topics, '--json', '-b', f'127.0.0.1:{port}')[1])
    return {(topic['topic'], each['partition']): each['next_offset'] for topic in described
            for each in topic['partitions']}


def flip(path: Path, at: int):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_what_it_says_of_kafkas_directory(tmp_path):
    kafka = real_kafka.RealKafka(tmp_path, SETTINGS)
    with kafka:
        here = '-b', f'127.0.0.1:{kafka.port}'
        kafka.create_topics({'torn': 1, 'altered': 1, 'sound': 2})
        assert typed('topics', 'create', 'compacted', '--set', 'cleanup.policy=compact', *here)[0] == 0
        for topic in 'torn', 'altered', 'sound':
            for _ in range(3): typed('produce', topic, *here, lines='x' * 100 + '\n' + 'y' * 100 + '\n')
        keyed = ''.join(f'{number % 50}:{"z" * 200}\n' for number in range(20_000))
        typed('produce', 'compacted', '--format', 'key-value', '--separator', ':', *here, lines=keyed)
        code, text = typed('doctor', kafka.log_dir)
        assert code == 0 and f'process {kafka.pid} uses it now' in text, text
        before = ends(kafka.port, 'torn', 'altered', 'sound')
        kafka.process.kill()
        kafka.process.wait()
        code, text = typed('doctor', kafka.log_dir)
        assert code == 0 and 'it was not shut down in order' in text, text
        torn, altered = (max((kafka.log_dir/f'{topic}-0').glob('*.log')) for topic in ('torn', 'altered'))
        torn.write_bytes(torn.read_bytes()[:-5])
        flip(altered, altered.stat().st_size // 2)
        (kafka.log_dir/'recovery-point-offset-checkpoint').unlink()
        code, text = typed('doctor', kafka.log_dir, '--json')
        found = json.loads(text)
        told = {(each['topic'], each['partition']): each['end_offset'] for each in found['partitions']}
        assert code == 1 and told['torn', 0] < before['torn', 0] and told['altered', 0] < before['altered', 0]
        assert {Path(each['where']).parent.name for each in found['findings'] if each['bad']} == {'torn-0', 'altered-0'}
        kafka.start()
        assert ends(kafka.port, 'torn', 'altered', 'sound') == {place: told[place] for place in before}
    code, text = typed('doctor', kafka.log_dir)
    assert code == 0 and 'it was shut down in order' in text, text
