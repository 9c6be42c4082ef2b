"The soak test finds what is wrong: its checks, put to a broker with few records and to tables that are not right."
import random
import struct
import sys
from types import SimpleNamespace

import pytest

from broker_process import ROOT

pytest.importorskip('confluent_kafka')
sys.path.insert(0, str(ROOT/'tools'))
import soak
import soak_load
import soak_programs
from soak_load import Run


@pytest.mark.parametrize('kills', [1, 3, 10])
def test_when_who_is_killed(kills):
    planned = soak.plan(1800, kills, random.Random(1))
    assert planned == sorted(planned) and 0 < planned[0][0] < planned[-1][0] < 1800
    assert [who for _, who in planned].count('broker') == kills
    assert {who for _, who in planned} == {'broker', 'streams', 'connect'}


@pytest.mark.kafka(topics={'_schemas': 1})
def test_schemas(kafka_broker, tmp_path):
    run = Run(kafka_broker.bootstrap_servers, tmp_path)
    writer = soak_load.producer(run)
    for key, value in ((b'a', b'1'), (b'b', b'2'), (b'a', b'3'), (b'b', None)): writer.produce('_schemas', value, key)
    assert writer.flush(30) == 0
    soak_load.check_schemas(run, {b'a': b'3', b'b': None})
    assert not run.complaints and run.tally['readings of _schemas'] == 1
    for wrong in {b'a': b'1', b'b': None}, {b'a': b'3', b'b': b'2'}, {b'a': b'3', b'c': b'4'}:
        soak_load.check_schemas(run, wrong)
        assert '_schemas: 1 of' in run.complaints.pop()


def finished(directory, monkeypatch, topics: dict) -> SimpleNamespace:
    "A soak test at its end, with these records, key and value, in its topics."
    def message(key, value): return SimpleNamespace(key=lambda: key, value=lambda: value)
    monkeypatch.setattr(soak_load, 'read_all', lambda run, topic: [message(*pair) for pair in topics[topic]])
    monkeypatch.setattr(soak, 'PATIENCE', 0)
    monkeypatch.setattr(soak.time, 'sleep', lambda seconds: None)
    return SimpleNamespace(run=Run('', directory), rest=0)


@pytest.mark.parametrize('totals, changelog, complaint', [
    ([1, 2], [1, 2], None), ([2], [2], None), ([1], [2], 'totals: 1 of 1 keys are wrong'),
    ([3], [2], 'totals: 1 of 1 keys are wrong'), ([2], [3], 'soak-counts-changelog: 1 of 1 keys are wrong'),
    ([2, 1, 2], [2], 'went back')])
def test_totals(tmp_path, monkeypatch, totals, changelog, complaint):
    topics = {name: [(b'key', struct.pack('>q', total)) for total in values]
              for name, values in (('totals', totals), ('soak-counts-changelog', changelog))}
    found = finished(tmp_path, monkeypatch, topics)
    found.run.counts['key'] = 2
    soak.check_totals(found)
    assert complaint in found.run.complaints[0] if complaint else not found.run.complaints


@pytest.mark.parametrize('numbers, position, complaint', [
    ([0, 1, 2], 42, None), ([0, 1], 42, 'lines: 2 records'), ([0, 1, 1, 2], 42, 'lines: 4 records'),
    ([0, 2, 1], 42, 'lines: 3 records'), ([0, 1, 2], 28, 'connect-offsets')])
def test_lines(tmp_path, monkeypatch, numbers, position, complaint):
    lines = [soak_load.line(number) for number in range(3)]
    (tmp_path/'source.txt').write_text(''.join(f'{line}\n' for line in lines))
    found = finished(tmp_path, monkeypatch, {'lines': [(None, lines[number].encode()) for number in numbers],
                                             'connect-offsets': [(b'file', b'{"position": %d}' % position)]})
    found.run.tally['lines'] = 3
    soak.check_source(found)
    assert complaint in found.run.complaints[0] if complaint else not found.run.complaints


@pytest.mark.parametrize('written, complaint', [
    ('item-00000000;\nitem-00000001;\n', None), ('item-00000000;item-00000000;\nitem-00000001;\n', None),
    ('item-00000000;\nitem-0000', 'items: 1 different lines')])
def test_items(tmp_path, monkeypatch, written, complaint):
    (tmp_path/'sink.txt').write_text(written)
    found = finished(tmp_path, monkeypatch, {})
    found.run.tally['items'] = 2
    soak.check_sink(found)
    assert complaint in found.run.complaints[0] if complaint else not found.run.complaints


def test_a_pass_that_has_not_ended(tmp_path):
    (tmp_path/'orders-0').mkdir()
    assert soak_programs.half_done(tmp_path) == []
    (tmp_path/'orders-0'/'00000000000000000000.log.cleaned').touch()
    assert len(soak_programs.half_done(tmp_path)) == 1
    (tmp_path/'cleaner-offset-checkpoint').write_text('0\n1\norders 0 17\n')
    assert soak_programs.read_checkpoint(tmp_path/'cleaner-offset-checkpoint') == {('orders', '0'): 17}
