"Every field that is declared has a sentence, and every sentence a field."
import importlib
import pkgutil
from pathlib import Path

import pytest

import kafka_scratch
from broker_process import ROOT
from kafka_scratch.broker.apis import APIS
from kafka_scratch.cluster.records import RECORD_TYPES
from kafka_scratch.log.records import CONTROL_VALUES, BatchHeader, ControlKey, Record
from kafka_scratch.tools.inspect import inspections
from kafka_scratch.tools.inspect_files import kind_of_file
from kafka_scratch.wire.field_notes import FIELD_NOTES, PREFIX_NOTES, field_note, note_fields, owned
from kafka_scratch.wire.frames import RequestHeader, ResponseHeader
from kafka_scratch.wire.primitives import Array
from kafka_scratch.wire.schema import Message, path_text

FIXTURES = ROOT/'tests'/'fixtures'
OTHERS = ('kafka_scratch.tiny', 'kafka_scratch.spark', 'kafka_scratch.__main__')   # they declare no messages


def everything_imported():
    for module in pkgutil.walk_packages(kafka_scratch.__path__, 'kafka_scratch.'):
        if not module.name.startswith(OTHERS): importlib.import_module(module.name)


def fields_of(declared: type, path: tuple = ()):
    "The paths of all fields, with 0 for every number, as a walk would note them."
    for field in declared.FIELDS:
        yield (*path, field.name)
        array, inner = isinstance(field.type, Array), getattr(field.type, 'element', field.type)
        if array: yield (*path, field.name, 0)
        if isinstance(inner, type): yield from fields_of(inner, (*path, field.name, *[0] * array))


def declared_paths() -> set[tuple]:
    "Where fields can be: in a body, in a header, in a batch, in a value, and alone."
    everything_imported()
    ours = [declared for declared in Message.__subclasses__() if declared.__module__.startswith('kafka_scratch.')]
    found = {path for declared in ours for path in fields_of(declared)} - {('count',)}   # which is never alone
    for api in APIS.values():
        for declared in (api.request, api.response): found |= set(fields_of(declared, ('body',)))
    for declared in (RequestHeader, ResponseHeader): found |= set(fields_of(declared, ('header',)))
    for declared in (*RECORD_TYPES.values(), *CONTROL_VALUES.values()):
        found |= set(fields_of(declared, ('batch', 0, 'record', 0, 'value')))
    found |= set(fields_of(BatchHeader, ('batch', 0))) | set(fields_of(Record, ('batch', 0, 'record', 0)))
    return found | set(fields_of(ControlKey))


def paths_in_files() -> set[tuple]:
    "Where fields are in the files of a log directory, as `inspect` names them."
    found = set()
    for path in sorted((FIXTURES/'segments'/'logs').rglob('*')) + sorted((FIXTURES/'single-broker'/'logs').rglob('*')):
        if not path.is_file() or not path.stat().st_size or not kind_of_file(str(path)) or 'big' in str(path): continue
        for inspection in inspections(path.read_bytes(), str(path)): found |= {span.path for span in inspection.spans}
    return found


def without_numbers(path: tuple) -> tuple: return tuple(0 if isinstance(step, int) else step for step in path)


@pytest.fixture(scope='module')
def paths() -> set[tuple]:
    return declared_paths() | {without_numbers(path) for path in paths_in_files()}


def test_every_field_has_a_sentence(paths):
    assert len(paths) > 1000
    assert sorted(path_text(path) for path in paths if not field_note(path)) == []


# a `message_size` is part of no declaration, `broker.id` is what old directories say, the others come after an error
# or after a vote, or in a file that a person has changed
ELSEWHERE = {'message_size', 'broker.id', 'votedDirectoryId', 'continued', 'rest'}


def test_every_sentence_has_a_field(paths):
    used = {owned(path) for path in paths} | {path[-1] if isinstance(path[-1], str) else path[-2] for path in paths}
    assert set(FIELD_NOTES) - used - ELSEWHERE == set() and ELSEWHERE <= set(FIELD_NOTES)


def test_a_line_with_an_owner_says_something_else():
    for name, sentence in FIELD_NOTES.items():
        bare = FIELD_NOTES.get(name.rpartition('.')[2]) if '.' in name else None
        assert sentence != bare or name == 'record[].length', name


def test_they_are_sentences():
    for name, sentence in [*FIELD_NOTES.items(), *PREFIX_NOTES.items()]:
        assert sentence[-1] in '.?' and (sentence[0].isupper() or sentence[0].isdigit()) and len(sentence) < 110, name


@pytest.mark.parametrize('line', ['api_key | Once more.', 'nothing', 'nothing |'])
def test_a_line_is_a_name_and_a_sentence(line):
    with pytest.raises(ValueError): note_fields(line)


def test_prefixes_are_told_from_fields_of_the_same_name():
    assert field_note(('body', 'topics', 'count')).startswith('How many elements `topics` has.')
    assert 'in all' in field_note(('body', 'topics', 0, 'count'))
    assert field_note(('body', 'topic_names', 0, 'length')) == 'How many bytes `topic_names` takes.'
    assert 'record' in field_note(('batch', 1, 'record', 2, 'length'))
    assert field_note(('batch', 1, 'record', 2, 'value', 'length')) == 'How many bytes `value` takes.'
    assert field_note((0, 'length')) == FIELD_NOTES['length'] and field_note((3,)) == ''


def test_no_name_is_only_in_one_of_the_two():
    "The chapter shows the table in groups; nothing is added elsewhere."
    text = (Path(kafka_scratch.__file__).parent/'wire'/'field_notes.py').read_text(encoding='utf-8')
    assert all(f'\n{name} | ' in text for name in FIELD_NOTES)
