"""Records `connection-limits.json`: what clients see at a broker with few places. `python
tests/record/connection_limits.py`"""
import json
import tempfile
import time
from pathlib import Path

from recording import command_line, framed

from benchmarks import processes, real_kafka
from broker_process import Client
from knocking import BY_ADDRESS, STORIES, TWO_DOORS, crowd, protected, two
from quotas_by_hand import alteration
from kafka_scratch.security.alter_quotas import AlterClientQuotasRequest, alter_client_quotas


def limit_addresses(port: int):
    change = AlterClientQuotasRequest(entries=[alteration({'ip': '127.0.0.1'}, {'connection_creation_rate': 1.0})])
    with Client(port) as client: client.ask(framed(alter_client_quotas, 1, change))
    time.sleep(4)   # until it is known, and nobody has come for a while


def record_all(to: Path):
    lines = []
    for settings in STORIES:
        with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, settings) as kafka:
            time.sleep(1)
            lines.append({'story': 'crowd', 'settings': settings, 'seen': crowd(kafka.port)})
    with tempfile.TemporaryDirectory() as place, real_kafka.RealKafka(place, BY_ADDRESS) as kafka:
        limit_addresses(kafka.port)
        lines.append({'story': 'two', 'settings': BY_ADDRESS, 'seen': two(kafka.port)})
    with tempfile.TemporaryDirectory() as place:
        kafka, door = real_kafka.RealKafka(place, TWO_DOORS), processes.free_port()
        kafka.properties['listeners'] += f',CLIENTS://127.0.0.1:{door}'
        kafka.properties['advertised.listeners'] += f',CLIENTS://127.0.0.1:{door}'
        with kafka:
            time.sleep(1)
            lines.append({'story': 'protected', 'settings': TWO_DOORS, 'seen': protected(door, kafka.port)})
    (to/'connection-limits.json').write_text(json.dumps(lines, indent=1) + '\n')


if __name__ == '__main__': record_all(command_line(__doc__).to)
