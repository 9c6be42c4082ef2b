"Kafka's schema files, from three sources that are not ours, and our declarations in the same form."
import functools
import importlib.resources
import json
import re
import zipfile
from pathlib import Path

import pytest

from size import jars_absent, real_kafka
from kafka_scratch.broker.apis import APIS
from kafka_scratch.wire.frames import RequestHeader, ResponseHeader
from kafka_scratch.cluster.records import RECORD_TYPES
from kafka_scratch.wire.primitives import Array, Boolean, Bytes, Float64, Int8, Int16, Int32, Int64, String, UInt16
from kafka_scratch.wire.primitives import UInt32, Uuid
from kafka_scratch.log.control_records import CONTROL_VALUES
from kafka_scratch.wire.schema import Message, default_of, version_range

DIGEST = Path(__file__).parents[1]/'fixtures'/'schemas'/'metadata-records.json'
needs_jars = pytest.mark.skipif(bool(jars_absent()), reason=str(jars_absent()))

TYPES = {'bool': Boolean, 'int8': Int8, 'int16': Int16, 'int32': Int32, 'int64': Int64, 'uint16': UInt16,
         'uint32': UInt32,
         'float64': Float64, 'string': String, 'bytes': Bytes, 'records': Bytes, 'uuid': Uuid}
# 0 for the others
NATURAL = {'bool': False, 'float64': 0.0, 'string': '', 'bytes': b'', 'records': b'', 'uuid': bytes(16)}

CALLS = {cls.__name__: cls for api in APIS.values() for cls in (api.request, api.response)}
HEADERS = {cls.__name__: cls for cls in (RequestHeader, ResponseHeader)}
METADATA = {cls.__name__: cls for cls in RECORD_TYPES.values()}
CONTROL = {cls.__name__: cls for cls in CONTROL_VALUES.values()}

# Where we differ on purpose: two shorter names, and the version that Kafka writes before an EndTxnMarker without a word
# in its schema.
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
    def facts(fields):
        return [{key: facts(f[key]) if key == 'fields' else f[key] for key in FACTS if key in f} for f in fields]
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
    return {'bool': lambda t: str(t).lower() == 'true', 'string': str, 'float64': float}.get(kind,
        lambda t: int(str(t), 0))(text)


def their_fields(schema: dict, fields: list, version: int) -> list:
    """The fields of a version as a schema file has them: name, type, tag, nullable, default, compact, and the fields
    inside."""
    shape = []
    for f in fields:
        if version not in version_range(f['versions']): continue
        kind, nullable = f['type'], version in version_range(f.get('nullableVersions', 'none'))
        element = kind.removeprefix('[]')
        tag = f['tag'] if version in version_range(f.get('taggedVersions', 'none')) else None
        inside = f.get('fields') or next((s['fields'] for s in schema.get('commonStructs', ()) if s['name'] == element),
                                         None)
        type_name = 'array of ' * kind.startswith('[]') + (TYPES[element].name if element in TYPES else 'structs')
        shape.append((snake_case(f['name']), type_name, tag, nullable,
                      parsed_default(f.get('default'), kind, version, nullable),
                      version in version_range(f.get('flexibleVersions', '0+')),
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
        # our way to say that it isn't there
        if f.tag is not None and type_name == 'structs' and default is None: default = element()
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
