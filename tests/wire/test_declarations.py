"""Our declarations say what Kafka's own schema files say.

Three sources, none of them ours: the schemas inside the installed kafka-python (for requests, responses and headers), a digest of those in
Kafka 4.1.1 (for the records in logs; `fixtures/schemas`), and Kafka's jars themselves, if they are there. A source may be of another Kafka
than the one we follow, so the promise is: every version that we declare exists there, and looks the same.
"""
import functools
import importlib.resources
import json
import re
import zipfile
from pathlib import Path

import pytest

from size import jars_absent, real_kafka
from kafka import errors as kafka_python_errors

from kafka_scratch.broker.apis import APIS
from kafka_scratch.wire.frames import RequestHeader, ResponseHeader
from kafka_scratch.wire.codes import API_NAMES, ERROR_NAMES
from kafka_scratch.cluster.records import RECORD_TYPES
from kafka_scratch.wire.primitives import Array, Boolean, Bytes, Float64, Int8, Int16, Int32, Int64, String, UInt16, UInt32, Uuid
from kafka_scratch.log.records import CONTROL_VALUES
from kafka_scratch.wire.schema import Message, default_of, version_range

DIGEST = Path(__file__).parents[1]/'fixtures'/'schemas'/'metadata-records.json'
needs_jars = pytest.mark.skipif(bool(jars_absent()), reason=str(jars_absent()))

TYPES = {'bool': Boolean, 'int8': Int8, 'int16': Int16, 'int32': Int32, 'int64': Int64, 'uint16': UInt16, 'uint32': UInt32,
         'float64': Float64, 'string': String, 'bytes': Bytes, 'records': Bytes, 'uuid': Uuid}
NATURAL = {'bool': False, 'float64': 0.0, 'string': '', 'bytes': b'', 'records': b'', 'uuid': bytes(16)}   # 0 for the others

CALLS = {cls.__name__: cls for api in APIS.values() for cls in (api.request, api.response)}
HEADERS = {cls.__name__: cls for cls in (RequestHeader, ResponseHeader)}
METADATA = {cls.__name__: cls for cls in RECORD_TYPES.values()}
CONTROL = {cls.__name__: cls for cls in CONTROL_VALUES.values()}

# Where we differ on purpose: two shorter names, and the version that Kafka writes before an EndTxnMarker without a word in its schema.
SHORTER = {'request_api_key': 'api_key', 'request_api_version': 'api_version'}
BEFORE = {'EndTxnMarker': [{'name': 'Version', 'type': 'int16', 'versions': '0+'}]}


# --- The sources ------------------------------------------------------------------------------------------------------

def schema(text: str) -> dict:
    "A schema file: JSON, but for lines of comment."
    return json.loads(re.sub(r'(?m)^\s*//.*$', '', text))


@functools.cache
def of_kafka_python() -> dict[str, dict]:
    folder = importlib.resources.files('kafka.protocol.schemas.resources')
    return {file.name[:-5]: schema(file.read_text('utf-8')) for file in folder.iterdir() if file.name.endswith('.json')}


@functools.cache
def of_jars() -> dict[str, dict]:
    found = {}
    for jar, folder in (('kafka-clients', 'common/message/'), ('kafka-metadata', 'common/metadata/')):
        for path in real_kafka.libs().glob(f'{jar}-[0-9]*.jar'):
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if name.startswith(folder) and name.endswith('.json')]
                schemas = [schema(archive.read(name).decode()) for name in names]
            found |= {s['name']: s for s in schemas}
    return found


@functools.cache
def of_digest() -> dict[str, dict]: return json.loads(DIGEST.read_text())['records']


FACTS = 'name', 'type', 'versions', 'nullableVersions', 'taggedVersions', 'tag', 'default', 'flexibleVersions', 'fields'

def digest(schema: dict) -> dict:
    "The facts of a schema, without its sentences: what stands in the digest."
    def facts(fields): return [{key: facts(f[key]) if key == 'fields' else f[key] for key in FACTS if key in f} for f in fields]
    kept = {key: schema[key] for key in ('apiKey', 'validVersions', 'flexibleVersions') if key in schema}
    structs = [{**s, 'fields': facts(s['fields'])} for s in schema.get('commonStructs', ())]
    return kept | {'fields': facts(schema['fields'])} | ({'commonStructs': structs} if structs else {})


# --- Both sides in one form -------------------------------------------------------------------------------------------

def snake_case(name: str) -> str:
    name = re.sub(r'(?<=.)(?=[A-Z])', '_', name).lower()
    return SHORTER.get(name, name)


def parsed_default(text, kind: str, version: int, nullable: bool):
    "What a schema file says a field is when nothing is said."
    if text == 'null' and nullable: return None
    if kind.startswith('[]'): return []
    if kind not in TYPES: return 'a struct of defaults'
    if text in (None, ''): return NATURAL.get(kind, 0)
    return {'bool': lambda t: str(t).lower() == 'true', 'string': str, 'float64': float}.get(kind, lambda t: int(str(t), 0))(text)


def their_fields(schema: dict, fields: list, version: int) -> list:
    "The fields of a version as a schema file has them: name, type, tag, nullable, default, compact, and the fields inside."
    shape = []
    for f in fields:
        if version not in version_range(f['versions']): continue
        kind, nullable = f['type'], version in version_range(f.get('nullableVersions', 'none'))
        element = kind.removeprefix('[]')
        tag = f['tag'] if version in version_range(f.get('taggedVersions', 'none')) else None
        inside = f.get('fields') or next((s['fields'] for s in schema.get('commonStructs', ()) if s['name'] == element), None)
        type_name = 'array of ' * kind.startswith('[]') + (TYPES[element].name if element in TYPES else 'structs')
        shape.append((snake_case(f['name']), type_name, tag, nullable,
                      parsed_default(f.get('default'), kind, version, nullable), version in version_range(f.get('flexibleVersions', '0+')),
                      None if element in TYPES else their_fields(schema, inside, version)))
    return shape


def our_fields(cls: type, version: int) -> list:
    "The same, as we declare it."
    shape = []
    for f in cls.FIELDS:
        if version not in f.versions: continue
        element, default = f.type.element if isinstance(f.type, Array) else f.type, default_of(f)
        struct = isinstance(element, type)
        type_name = 'array of ' * isinstance(f.type, Array) + ('structs' if struct else element.name)
        if f.tag is not None and type_name == 'structs' and default is None: default = element()   # our way to say that it isn't there
        shape.append((f.name, type_name, f.tag, version in f.nullable,
                      'a struct of defaults' if isinstance(default, Message) else default, version in f.flexible,
                      our_fields(element, version) if struct else None))
    return shape


def check(cls: type, schema: dict):
    "Is every version that we declare as the schema file says?"
    assert cls.API_KEY == schema.get('apiKey')
    assert set(cls.VERSIONS) <= set(version_range(schema['validVersions']))
    for version in cls.VERSIONS:
        assert (version in cls.FLEXIBLE) == (version in version_range(schema['flexibleVersions'])), version
        theirs = their_fields(schema, BEFORE.get(cls.__name__, []) + schema['fields'], version)
        assert our_fields(cls, version) == theirs, f'{cls.__name__} v{version}'


# --- The promises -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name', [*CALLS, *HEADERS])
def test_calls_are_as_kafka_python_has_them(name):
    schemas = of_kafka_python()
    if name not in schemas: pytest.skip(f'– kafka-python has no {name}: only the jars can tell')
    check((CALLS | HEADERS)[name], schemas[name])


@pytest.mark.parametrize('name', [*METADATA, *CONTROL])
def test_records_are_as_kafka_4_1_has_them(name): check((METADATA | CONTROL)[name], of_digest()[name])


def test_every_kind_and_version_of_record_is_declared():
    declared = {name: cls.VERSIONS for name, cls in (METADATA | CONTROL).items()}
    assert declared == {name: version_range(schema['validVersions']) for name, schema in of_digest().items()}


@needs_jars
@pytest.mark.parametrize('name', [*CALLS, *HEADERS, *METADATA, *CONTROL])
def test_everything_is_as_the_jars_have_it(name): check((CALLS | HEADERS | METADATA | CONTROL)[name], of_jars()[name])


@needs_jars
def test_the_digest_is_what_the_jars_say():
    schemas = of_jars()
    assert of_digest() == {name: digest(schema) for name, schema in schemas.items() if schema['type'] == 'metadata' or name in CONTROL}


def test_a_request_and_its_response_have_the_same_versions():
    assert len(APIS) >= 2
    for key, api in APIS.items():
        assert (api.request.API_KEY, api.response.API_KEY, api.response.VERSIONS) == (key, key, api.request.VERSIONS)


def test_api_names_are_those_of_the_schemas():
    named = {schema['apiKey']: name for name, schema in of_kafka_python().items() if name.endswith('Request')}
    assert len(named) > 50
    assert {key: API_NAMES[key] + 'Request' for key in named} == named


@needs_jars
def test_api_names_are_those_of_the_jars():
    named = {schema['apiKey']: name for name, schema in of_jars().items() if name.endswith('Request')}
    assert named == {key: name + 'Request' for key, name in enumerate(API_NAMES)}


OLD_NAMES = {-1: 'UNKNOWN', 0: 'NO_ERROR', 6: 'NOT_LEADER_FOR_PARTITION', 10: 'MESSAGE_SIZE_TOO_LARGE', 17: 'INVALID_TOPIC',
             39: 'INVALID_REPLICATION_ASSIGNMENT'}

def test_error_names_are_those_of_kafka_python():
    "Which has kept the older names of some."
    classes = [value for value in vars(kafka_python_errors).values() if isinstance(value, type)]
    theirs = {error.errno: error.message for error in classes
              if issubclass(error, kafka_python_errors.BrokerResponseError) and isinstance(error.errno, int)}
    ours = dict(enumerate(ERROR_NAMES, -1)) | OLD_NAMES
    assert len(theirs) > 120 and {code: ours.get(code) for code in theirs} == theirs


def test_a_wrong_declaration_is_noticed():
    "The comparison itself can fail: for each fact that is altered in the source."
    sources = of_digest() | of_kafka_python()
    unknown = {name for name in METADATA | CALLS | HEADERS if name not in sources}
    assert unknown == {f'ConsumerGroup{what}{way}' for what in ('Heartbeat', 'Describe') for way in ('Request', 'Response')}   # not in kafka-python
    for name, cls in (METADATA | CALLS | HEADERS).items():
        if not cls.FIELDS or name in unknown: continue
        source = sources[name]
        for key, other in (('name', 'Another'), ('type', 'float64'), ('versions', '7+'), ('default', '77'), ('nullableVersions', 'other')):
            altered = json.loads(json.dumps(source))
            first = altered['fields'][0]
            nullable = '0+' if version_range(first.get('nullableVersions', 'none')) == range(0) else 'none'
            if key == 'default' and TYPES.get(first['type']) in (None, Uuid, Boolean): continue
            first[key] = nullable if other == 'other' else other
            with pytest.raises(AssertionError): check(cls, altered)
