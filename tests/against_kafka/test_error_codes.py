"Error codes as the site explains them: Kafka's numbers and names, and those after which its clients ask again."
import shutil
import subprocess
import tomllib

import pytest

from benchmarks import real_kafka
from broker_process import ROOT
from kafka_scratch.wire.codes import ERROR_NAMES, ErrorCode
from size import kafka_absent

ABSENT = kafka_absent() or ('' if shutil.which('javac')
                            else 'No `javac` on PATH: a small program asks Kafka, and has to be compiled.')


@pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
def test_the_codes_are_kafkas():
    explained = tomllib.loads((ROOT/'site'/'errors.toml').read_text(encoding='utf-8'))
    ours = [f'{getattr(ErrorCode, name)} {name} {str(explained[name].get("retriable", False)).lower()}'
            for name in ERROR_NAMES]
    command = [real_kafka.java(), '-XX:TieredStopAtLevel=1', real_kafka.QUIET, '-cp', f'{real_kafka.libs()}/*',
               ROOT/'tests'/'clients'/'java'/'ErrorCodes.java']
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ours, done.stderr
