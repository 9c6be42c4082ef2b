"""`kafka-log` in Spark: the tables of tables.py as DataFrames, filters pushed down, columns chosen, and every mistake
one sentence."""
import itertools
import json
import random
import re

import pytest

from size import spark_absent

if reason := spark_absent(): pytest.skip(reason, allow_module_level=True)

from broker_process import FIXTURES
from kafka_scratch.log.reader import BadPath
from kafka_scratch.spark.datasource import FilteringReader, as_filter, complaint, in_worker, takes_filters
from kafka_scratch.spark.options import TABLES, BadOption, Options
from kafka_scratch.spark.read import read_table
from kafka_scratch.spark.source import KafkaLog
from segments_by_hand import COMMITTED, DAMAGE, DAMAGED, EXPECTED, LOGS, as_consumer, place, write_log

SINGLE = FIXTURES/'single-broker'/'logs'


def load(spark, path=LOGS, schema=None, **options):
    reader = spark.read.format('kafka-log').options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


def dicts(frame) -> list[dict]: return frame.toArrow().to_pylist()


def in_order(rows) -> list: return sorted(rows, key=lambda row: json.dumps(row, default=str))


# --- What is in the tables --------------------------------------------------------------------------------------------

def test_records_are_those_that_a_consumer_got(spark):
    found = [as_consumer(row) for row in dicts(load(spark).where('not control'))]
    assert sorted(found, key=place) == sorted(EXPECTED, key=place)


def test_read_committed(spark):
    found = {name: [] for name in COMMITTED}
    for row in sorted(dicts(load(spark, isolationLevel='read_committed')), key=place):
        found[f'{row["topic"]}-{row["partition"]}'].append(row['offset'])
    assert found == {name: told['offsets'] for name, told in COMMITTED.items()}


@pytest.mark.parametrize('path, table', [*itertools.product([LOGS, SINGLE], TABLES),
                                         (FIXTURES/'snapshot-only'/'logs', 'topics'),
                                         (FIXTURES/'snapshot-only'/'logs', 'metadata_records')],
                         ids=str)
def test_every_table_is_what_it_is_without_spark(spark, path, table):
    found, wanted = load(spark, path, table=table).toArrow(), read_table(str(path), Options(table=table))
    assert found.schema.names == wanted.schema.names
    assert in_order(found.to_pylist()) == in_order(wanted.to_pylist()) and len(found)


def test_internal_topics_by_name(spark):
    assert (load(spark, topics='__consumer_offsets').count() == 2
            and load(spark).where("topic like '\\\\_\\\\_%'").count() == 0)


def test_a_view_in_sql(spark):
    spark.sql(f"create or replace temporary view these using `kafka-log` options (path '{LOGS}', table 'batches')")
    found = spark.sql('select codec, count(*) n from these group by codec order by codec').collect()
    wanted = read_table(str(LOGS), Options(table='batches')).column('codec').to_pylist()
    assert [tuple(row) for row in found] == sorted((codec, wanted.count(codec)) for codec in set(wanted))


def test_a_partition_a_segment_and_a_relative_path(spark):
    assert load(spark, LOGS/'seg.tx-1').count() == 4 == load(spark, LOGS/'seg.tx-1'/f'{0:020}.log').count()
    import os
    assert load(spark, os.path.relpath(LOGS)).count() == 392


def test_nothing_at_all(spark):
    "No split: Spark makes one up, and it is empty."
    assert load(spark, topicPattern='nothing').count() == 0 and load(spark).where("topic = 'nothing'").count() == 0
    assert load(spark, FIXTURES/'three-brokers'/'node-1').count() == 0


def test_many_splits(spark):
    frame = load(spark, splitSize='2k')
    assert frame.rdd.getNumPartitions() > 10 and in_order(dicts(frame)) == in_order(read_table(str(LOGS)).to_pylist())
    assert load(spark).rdd.getNumPartitions() == 1


# --- Filters ----------------------------------------------------------------------------------------------------------

PREDICATES = [
    "topic = 'seg.tx'", "topic in ('seg.tx', 'seg.big', 'nobody')", "topic like 'seg.java%'", "topic <=> 'seg.tx'",
    'topic is null', "topic > 'seg.r' and topic <= 'seg.tx'",
    'partition in (0, 1) and topic = \'seg_shapes\'', 'partition <> 0', 'partition = cast(1 as bigint)',
    'offset between 5 and 7', 'offset > 5 and offset < 7', 'offset >= 140',
    'offset < 0', 'offset in (1, 3, 150)', 'offset > 2.5', 'offset % 2 = 1', "offset <= 3 or topic = 'seg.multi'",
    "timestamp >= '2026-11-16 00:19:32.111'",
    "timestamp < timestamp'2026-11-16 00:19:32.111'", "timestamp = timestamp'2026-11-16 00:19:32.11'",
    "timestamp > timestamp'2026-11-16 00:19:32.1105'",
    "timestamp <= timestamp'2026-11-16 00:19:32.1105'",
    "timestamp in (timestamp'2026-11-16 00:19:32.11', timestamp'2026-11-16 00:19:32.112')",
    "timestamp > timestamp'2026-11-16 02:19:32+02:00' and topic = 'seg_shapes'", "timestamp > date'2026-11-16'",
    'key is null and offset > 3', "value = X'76'",
    'not control and transactional', "(topic = 'seg.tx' and offset > 3) or offset = 0"]


@pytest.fixture(scope='module')
def whole(spark):
    "The table, without filters that are pushed down, and in memory."
    frame = load(spark, pushFilters='false').cache()
    yield frame
    frame.unpersist()


@pytest.mark.parametrize('predicate', PREDICATES)
def test_a_filter_gives_what_it_gives_without_being_pushed_down(spark, whole, predicate):
    assert in_order(dicts(load(spark, pushFilters='true').where(predicate))) == in_order(dicts(whole.where(predicate)))


def test_filters_at_random(spark, whole):
    "Some conditions on all the columns that planning knows, with values that there are."
    rng, rows = random.Random(5), dicts(whole)
    for _ in range(6):
        terms = []
        for column in rng.sample(('topic', 'partition', 'offset', 'timestamp'), rng.choice((1, 2, 2, 3))):
            value = rng.choice(rows)[column]
            literal = f"timestamp'{value}'" if column == 'timestamp' else repr(value)
            terms.append(f'{column} {rng.choice(("=", "<", "<=", ">", ">=", "<>"))} {literal}')
        predicate = ' and '.join(terms)
        assert in_order(dicts(load(spark,
                                   pushFilters='true').where(predicate))) == in_order(
                                       dicts(whole.where(predicate))), predicate


@pytest.mark.parametrize('path, table, predicate', [
    (LOGS, 'batches', 'base_offset >= 20'), (LOGS, 'batches', 'last_offset < 20'),
    (LOGS, 'batches', 'base_offset <= 20 and last_offset >= 20'),
    (LOGS, 'batches', "max_timestamp > timestamp'2026-11-16 00:19:32.111'"),
    (LOGS, 'batches', "max_timestamp < timestamp'2026-11-16 00:19:32.111'"),
    (LOGS, 'batches', "topic = 'seg.multi' and codec = 'none'"), (SINGLE, 'metadata_records',
                                                                  'offset between 20 and 30'),
    (SINGLE, 'metadata_records', "type = 'TopicRecord' and offset > 50"), (SINGLE, 'topics', "name = 'orders'")])
def test_filters_on_other_tables(spark, path, table, predicate):
    wanted = load(spark, path, table=table, pushFilters='false').where(predicate)
    assert in_order(dicts(load(spark, path, table=table,
                               pushFilters='true').where(predicate))) == in_order(dicts(wanted))


def test_a_filter_reaches_the_plan(spark):
    "Fewer splits: that is what it is good for. And what isn't read can't be damaged."
    every, few = load(spark, splitSize='1'), load(spark, splitSize='1',
                                                  pushFilters='true').where("topic = 'seg.multi' and offset >= 100")
    assert 1 < few.rdd.getNumPartitions() < every.rdd.getNumPartitions() / 3
    from pyspark.sql.datasource import EqualTo, In, Not
    assert as_filter(EqualTo(('Offset',), 3)) == ('offset', '=', 3) and as_filter(Not(EqualTo(('offset',),
        3))) is None and as_filter(EqualTo(('a', 'b'), 3)) is None
    source = KafkaLog({'path': str(LOGS), 'pushFilters': 'true'})
    reader = source.reader(source.schema())
    given = [EqualTo(('topic',), 'seg.tx'), In(('partition',), (1, 2)), Not(EqualTo(('offset',), 3))]
    assert isinstance(reader, FilteringReader)
    assert reader.pushFilters(given) == given and [split.topic for group in reader.partitions() for split
                                                   in group.value] == ['seg.tx']


def test_one_dataframe_for_many_questions(spark):
    "As it is used every day: a view, and queries with other filters, one after the other and in one."
    frame = load(spark)
    multi, tx = frame.where("topic = 'seg.multi'"), frame.where("topic = 'seg.tx' and offset > 3")
    assert (multi.count(), frame.count(), tx.count(), frame.where('offset = 0').count(), multi.count()) == (140, 392,
        17, 22, 140)
    assert multi.union(tx).union(frame).count() == 140 + 17 + 392
    assert multi.alias('a').join(frame.where("topic = 'seg.tx'").alias('b'), 'offset').count() == 25


def test_why_filters_are_not_pushed_down_unless_asked_for(spark):
    """A Spark without pushLimit mixes up the filters of two queries. If this fails, it has learned not to, and nobody
    has to ask any more."""
    from pyspark.sql.datasource import DataSourceReader
    frame = load(spark, pushFilters='true')
    assert frame.where("topic = 'seg.multi'").count() == 140
    assert (frame.count() == 392) == hasattr(DataSourceReader, 'pushLimit') == takes_filters(Options())


# --- Columns ----------------------------------------------------------------------------------------------------------

def test_only_the_columns_asked_for(spark):
    found = load(spark, schema='value_size int, topic string, OFFSET long, segment string')
    assert found.columns == ['value_size', 'topic', 'OFFSET', 'segment']
    rows = {(row['topic'], row['segment'], row['OFFSET']): row['value_size'] for row in dicts(found)}
    wanted = read_table(str(LOGS), Options(), ['topic', 'segment', 'offset', 'value_size']).to_pylist()
    assert rows == {(row['topic'], row['segment'], row['offset']): row['value_size'] for row in wanted}
    assert load(spark, schema='OFFSET long').where('OFFSET > 100').count() == load(spark).where('offset > 100').count()


def test_a_schema_with_everything(spark):
    whole = load(spark)
    again = load(spark, schema=whole.schema)
    assert in_order(dicts(again)) == in_order(dicts(whole))
    from pyspark.sql.types import LongType, StructField, StructType
    assert load(spark, schema=StructType([StructField('offset', LongType(), False)])).count() == 392


# --- Damage -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name', ['flipped-byte-in-value', 'truncated-last-batch', 'bad-length'])
def test_damage(spark, name):
    path, (_, position, _) = DAMAGED/name, DAMAGE[name]
    with pytest.raises(Exception) as error: load(spark, path).count()
    assert complaint(error.value).startswith(f'{path}/{0:020}.log, byte {position}: ')
    for policy in ('skip', 'quarantine'):
        assert dicts(load(spark, path, onDamage=policy)) == read_table(str(path), Options(on_damage=policy)).to_pylist()
    assert dicts(load(spark, path,
                      onDamage='quarantine').where('damage is not null').select('damage'))[0][
                          'damage'].startswith(f'{name}/{0:020}.log, byte {position}: ')


# --- Mistakes ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('path, options, says', [
    ('/nowhere', {}, '/nowhere is neither a file nor a directory'), (FIXTURES/'wire', {},
                                                                     'wire is no log directory: there is no partition '
                                                                     'in it'),
    (LOGS, dict(table='tables'),
     "table is one of records, batches, metadata_records, topics, partitions, configs, brokers, not 'tables'"),
    (LOGS, dict(subscribe='orders'), "there is no option 'subscribe': did you mean topics?"),
    (LOGS, dict(splitSize='x'), 'splitSize is a number of bytes'),
    (FIXTURES/'wire', dict(table='topics'), 'has no __cluster_metadata-0 in it')], ids=str)
def test_mistakes_are_refused_at_once_and_in_one_sentence(spark, path, options, says):
    "When the table is named, not when it is first read; and without a page of Python."
    with pytest.raises(Exception) as error: load(spark, path, **options)
    assert (says in complaint(error.value) and 'Traceback' not in str(error.value)
            and len(str(error.value).splitlines()) <= 3)


@pytest.mark.parametrize('schema, options, says', [
    ('offset long, val binary', {}, "the table records has no column 'val': did you mean value?"),
    ('qqq int', {}, "the table records has no column 'qqq': there are topic, partition, "),
    ('offset int', {}, 'the column offset of records is bigint, not int'),
    ('headers string', {}, 'the column headers of records is array<struct<key:string,value:binary>>, not string'),
    ('damage string', {}, "has no column 'damage'"), (None, dict(topics='nobody'), 'logs has no log of nobody'),
    (None, dict(startingOffsets='latest'), 'startingOffsets latest is for streams')], ids=str)
def test_mistakes_that_show_when_it_is_read(spark, schema, options, says):
    with pytest.raises(Exception) as error: load(spark, LOGS, schema, **options).count()
    assert says in complaint(error.value) and 'Traceback' not in str(error.value)


def test_a_path_is_missing(spark):
    for read in (lambda: spark.read.format('kafka-log').load(), lambda: spark.read.format('kafka-log').load([str(LOGS),
        str(LOGS)])):
        with pytest.raises(Exception) as error: read()
        assert complaint(error.value) == 'one path is what it takes: .load("/var/lib/kafka/data")'


def test_a_missing_setting_is_named(spark):
    name = 'spark.sql.python.filterPushdown.enabled'
    spark.conf.set(name, 'false')
    try:
        with pytest.raises(Exception, match=re.escape(name)): load(spark, pushFilters='true').count()
        assert load(spark, pushFilters='false').count() == 392   # which doesn't need it
    finally: spark.conf.set(name, 'true')


def test_other_errors_keep_their_traceback(spark):
    "Only what is meant for people comes without one."
    assert complaint(ValueError('something else')) is None and not in_worker()
    with pytest.raises(BadPath): KafkaLog({'path': '/nowhere'})
    with pytest.raises(BadOption): KafkaLog({})
    import os
    assert 'SPARK_HIDE_TRACEBACK' not in os.environ
    with pytest.raises(Exception) as error: load(spark, '/nowhere')
    boom = spark.udf.register('boom', lambda n: 1 // 0)
    with pytest.raises(Exception, match='ZeroDivisionError') as error: spark.range(1).select(boom('id')).collect()
    assert 'Traceback' in str(error.value)


def test_a_log_that_grows_between_two_questions(spark, tmp_path):
    records = [([(None, b'v', 0)], 0, 0, False, 0)] * 5
    write_log(tmp_path/'orders-0', records)
    frame = load(spark, tmp_path)
    assert frame.count() == 5
    write_log(tmp_path/'orders-0', records)
    assert frame.count() == 5 or frame.count() == 10   # a DataFrame is planned once
    assert load(spark, tmp_path).count() == 10
