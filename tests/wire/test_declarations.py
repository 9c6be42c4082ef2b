"""Our declarations say what Kafka's own schema files say.

Three sources, none of them ours: the schemas inside the installed kafka-python (for requests, responses and headers), a
digest of those in
Kafka 4.1.1 (for the records in logs; `fixtures/schemas`), and Kafka's jars themselves, if they are there. A source may
be of another Kafka
than the one we follow, so the promise is: every version that we declare exists there, and looks the same.
"""
import json

import pytest
from kafka import errors as kafka_python_errors

from declarations import CALLS, CONTROL, HEADERS, METADATA, TYPES, check, digest, needs_jars, of_digest, of_jars
from declarations import of_kafka_python
from kafka_scratch.broker.apis import APIS
from kafka_scratch.wire.codes import API_NAMES, ERROR_NAMES
from kafka_scratch.wire.primitives import Boolean, Uuid
from kafka_scratch.wire.schema import version_range


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
    assert of_digest() == {name: digest(schema) for name,
                           schema in schemas.items() if schema['type'] == 'metadata' or name in CONTROL}


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


OLD_NAMES = {-1: 'UNKNOWN', 0: 'NO_ERROR', 6: 'NOT_LEADER_FOR_PARTITION', 10: 'MESSAGE_SIZE_TOO_LARGE',
             17: 'INVALID_TOPIC',
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
    # not in kafka-python
    assert unknown == {f'ConsumerGroup{what}{way}' for what in ('Heartbeat', 'Describe') for way in ('Request',
        'Response')}
    for name, cls in (METADATA | CALLS | HEADERS).items():
        if not cls.FIELDS or name in unknown: continue
        source = sources[name]
        for key, other in (('name', 'Another'), ('type', 'float64'), ('versions', '7+'), ('default', '77'),
                           ('nullableVersions', 'other')):
            altered = json.loads(json.dumps(source))
            first = altered['fields'][0]
            nullable = '0+' if version_range(first.get('nullableVersions', 'none')) == range(0) else 'none'
            if key == 'default' and TYPES.get(first['type']) in (None, Uuid, Boolean): continue
            first[key] = nullable if other == 'other' else other
            with pytest.raises(AssertionError): check(cls, altered)
