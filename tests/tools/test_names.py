"`import kafka_scratch`: the few names that people use, loaded when they are asked for."
import json
import subprocess
import sys
from configparser import ConfigParser
from importlib import import_module

import pytest

import kafka_scratch
from broker_process import ROOT, environment


def loaded(code: str) -> list[str]:
    "What a program loads beyond what Python itself has loaded."
    program = f'import sys, json; before = set(sys.modules); {code}; print(json.dumps(sorted(set(sys.modules) - before)))'  # noqa: E501
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=60,
                          env=environment(PYTHONPATH=str(ROOT)), check=True)
    return json.loads(done.stdout)


def test_importing_it_alone_loads_nothing_else():
    assert loaded('import kafka_scratch; kafka_scratch.__version__; dir(kafka_scratch)') == ['kafka_scratch']


@pytest.mark.parametrize('name', kafka_scratch.__all__)
def test_a_name(name):
    "It is listed, is what its module has, and is looked up once."
    assert name in dir(kafka_scratch)
    found = getattr(kafka_scratch, name)
    assert found is getattr(import_module(found.__module__),
                            name) and vars(kafka_scratch)[name] is found and found.__doc__


def test_a_name_loads_what_it_needs_and_no_more():
    for name, needless in (('load_image', 'kafka_scratch.apis'), ('Client', 'kafka_scratch.broker'),
                           ('get_session', 'pyspark'), ('partition_records', 'kafka_scratch.cluster')):
        assert needless not in loaded(f'from kafka_scratch import {name}'), name


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'kafka_scratch' has no attribute 'nonsense'"):
        kafka_scratch.nonsense
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"): exec('from kafka_scratch import nonsense')


def test_all_of_them_at_once():
    found = {}
    exec('from kafka_scratch import *', found)
    assert {*kafka_scratch.__all__} <= {*found} and len(kafka_scratch.__all__) > 5


def test_the_version_is_that_of_the_settings():
    settings = ConfigParser(delimiters=['='])
    settings.read(ROOT/'settings.ini', encoding='utf-8')
    assert kafka_scratch.__version__ == settings['DEFAULT']['version']
