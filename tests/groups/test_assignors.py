"Who gets what, as Kafka's own assignors work it out; patterns as RE2 reads them; fingerprints as in Kafka's logs."
import json
import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from size import budget
from kafka_scratch.groups.assignors import (
    ASSIGNORS, MemberSubscription, Pattern, PatternError, assign_heterogeneous, assign_homogeneous, assign_range,
    assign_uniform, hand_on, metadata_hash, topic_hash, xxh3)
from kafka_scratch.cluster.image import Image, broker_registered, partition_made, topic_made
from kafka_scratch.cluster.records import PartitionRecord, RegisterBrokerRecord, TopicRecord

RECORDED = Path(__file__).parents[1]/'fixtures'/'wire'/'recorded'
CASES = [json.loads(line) for line in (RECORDED / 'assignors.jsonl').open()]


def group_of(case):
    partitions = {int(topic): count for topic, count in case['partitions'].items()}
    def member(said):
        return MemberSubscription(frozenset(said['topics']), frozenset(map(tuple, said['owned'])), said['instance'])
    members = {id: member(said) for id, said in case['members'].items()}
    return members, partitions


def assignments(found): return {id: set(map(tuple, each)) for id, each in found.items()}


@pytest.mark.parametrize('number', range(len(CASES)))
def test_like_kafkas_assignors(number):
    case = CASES[number]
    members, partitions = group_of(case)
    assert assign_range(members, partitions) == assignments(case['range'])
    ours, theirs = assign_uniform(members, partitions), assignments(case['uniform'])
    if len({member.topic_ids for member in members.values()}) == 1: assert ours == theirs
    else:   # Kafka has another algorithm for different wishes: ours has to be at least as equal
        assert set().union(*ours.values()) == set().union(*theirs.values())
        assert sum(len(each)**2 for each in ours.values()) <= sum(len(each)**2 for each in theirs.values())


def test_kafka_recorded_both_kinds():
    kinds = [len({tuple(m['topics']) for m in case['members'].values()}) == 1 for case in CASES]
    assert kinds.count(True) > 50 and kinds.count(False) > 15


@st.composite
def groups(draw):
    partitions = draw(st.dictionaries(st.sampled_from('abcd'), st.integers(1, 9), min_size=1))
    ids = draw(st.lists(st.sampled_from([f'm{n}' for n in range(7)]), unique=True, min_size=1))
    everybody = draw(st.none() | st.frozensets(st.sampled_from('abcde'), min_size=1))
    wants = {id: everybody or draw(st.frozensets(st.sampled_from('abcde'))) for id in ids}
    chance = random.Random(draw(st.integers(0, 1 << 32)))   # one draw for all of them: it is much faster
    owner = {(topic, n): chance.choice([None, *ids]) for topic, count in partitions.items() for n in range(count)}
    owned = {id: frozenset(partition for partition in owner if owner[partition] == id) for id in ids}
    return {id: MemberSubscription(wants[id], owned[id]) for id in ids}, partitions


@budget(120, deadline=None)
@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_everything_that_somebody_wants_has_one_owner(group, name):
    members, partitions = group
    found = ASSIGNORS[name](members, partitions)
    given_out = [partition for each in found.values() for partition in each]
    topics = set().union(*(member.topic_ids for member in members.values()))
    wanted = {(topic, n) for topic, count in partitions.items() for n in range(count) if topic in topics}
    assert sorted(given_out) == sorted(wanted) and found.keys() == members.keys()
    assert all(topic in members[id].topic_ids for id, each in found.items() for topic, _ in each)


@budget(120, deadline=None)
@given(groups())
def test_uniform_is_equal_and_stable(group):
    members, partitions = group
    found = assign_uniform(members, partitions)
    for more, other in ((a, b) for a in found for b in found):   # nobody could hand one to somebody who has two fewer
        if len(found[more]) <= len(found[other]) + 1: continue
        assert not any(topic in members[other].topic_ids for topic, _ in found[more])
    again = {id: members[id]._replace(assignment=frozenset(each)) for id, each in found.items()}
    assert assign_uniform(again, partitions) == found   # nothing has changed: nothing moves


@budget(60, deadline=None)
@given(groups())
def test_both_ways_to_share_agree_on_sizes(group):
    members, partitions = group
    everybody = {id: member._replace(topic_ids=frozenset(partitions)) for id, member in members.items()}
    both = assign_homogeneous, assign_heterogeneous
    sizes = [sorted(map(len, assign(everybody, partitions).values())) for assign in both]
    assert sizes[0] == sizes[1]


def test_uniform_is_fast_enough():
    members = {f'm{n}': MemberSubscription(frozenset(range(10))) for n in range(500)}
    start = time.perf_counter()
    found = assign_uniform(members, dict.fromkeys(range(10), 1000))
    assert {len(each) for each in found.values()} == {20}
    different = {id: member._replace(topic_ids=frozenset({n % 10, (n + 1) % 10}))
                 for n, (id, member) in enumerate(members.items())}
    assert sum(map(len, assign_uniform(different, dict.fromkeys(range(10), 100)).values())) == 1000
    assert time.perf_counter() - start < 20


# Patterns

def test_patterns_match_as_in_kafka():
    recorded = json.loads((RECORDED / 'topic-patterns.json').read_text())
    for text, names in recorded['matches'].items():
        assert sorted(name for name in recorded['topics'] if Pattern(text).matches(name)) == names, text
    for text in recorded['refused']:
        with pytest.raises(PatternError): Pattern(text)
    for text in recorded['accepted']: Pattern(text)


REPEATS = st.sampled_from(['*', '+', '?', '{2}', '{1,2}', '{0,}', '*?'])
SIMPLE = st.recursive(st.sampled_from(['a', 'b', '.', '[ab]', '[^a]', '\\w', '-', '\\b', '^', '$', '']),
                      lambda inner: st.builds('({})'.format, inner) | st.builds('{}|{}'.format, inner, inner)
                      | st.builds('{}{}'.format, inner, inner) | st.builds('(?:{}){}'.format, inner, REPEATS),
                      max_leaves=6)


@budget(400, deadline=None)
@given(SIMPLE, st.text('ab-', max_size=6))
def test_patterns_match_as_in_python(text, name):
    assert Pattern(text).matches(name) == bool(re.compile(text).fullmatch(name))


@budget(300, deadline=None)
@given(st.text('ab()[]{}|*+?\\^$.-:P<>1,2id&', max_size=12))
def test_any_text_is_a_pattern_or_refused(text):
    try: Pattern(text).matches('abab-1')
    except PatternError: pass


@pytest.mark.parametrize('text', ['(a+)+b', '(a*)*b', '(a|a)*b', '(a|aa)+b', 'a{0,200}a{0,200}b', '((a?){20}){20}b'])
def test_no_pattern_takes_long(text):
    start = time.perf_counter()
    assert not Pattern(text).matches('a' * 249) and Pattern(text).matches('aab')
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize('text', [
    '(' * 10_000, '(' * 10_000 + ')' * 10_000, '((a{1000}){1000}){1000}', '(((){1000}){1000}){1000}', 'a' * 32_000,
    '[' * 20_000, '(?i' * 9_000])
def test_large_patterns_are_refused_quickly(text):
    start = time.perf_counter()
    try: Pattern(text)
    except PatternError: pass
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize('text, yes, no', [
    ('(?i)[^a]', 'bB-', 'aA'), (r'(?i)\P{Lu}', '-1', 'aA'), (r'(?i)\p{Lu}', 'aA', '-1ß'),
    ('(?i)[[:^upper:]]', '-1', 'aA'), (r'(?i)\W', '-', 'aA'), (r'(?i)[^\x41-\x43]', 'dD', 'aAbC'),
    (r'(?i)[^[:^lower:]]', 'aA', '-'), ('(?i)[A-Z]', 'aZ', 'ß-'), ('(?i:[^a])', 'b', 'aA'), ('[^a]', 'A', 'a')])
def test_case_is_folded_before_a_class_is_negated(text, yes, no):
    pattern = Pattern(text)
    assert all(map(pattern.matches, yes)) and not any(map(pattern.matches, no))


def test_a_number_with_thousands_of_digits():
    for text in ('a{' + '9' * 5000 + '}', 'a{1,' + '0' * 5000 + '}'):
        with pytest.raises(PatternError): Pattern(text)


def test_a_member_that_can_have_nothing_makes_nobody_search():
    "Its topic doesn't exist, so it has nothing; that must not look as if others could give it something."
    held, load = {'a': {'t': [0, 1, 2]}, 'b': {'t': [3, 4, 5]}, 'empty': {}}, Counter(a=3, b=3)
    assert not hand_on('a', held, subscribers={}, load=load)   # without subscribers, a search would fail
    members = {id: MemberSubscription(frozenset(topic)) for id, topic in (('a', 't'), ('b', 't'), ('empty', 'z'))}
    assert [len(assignment) for assignment in assign_uniform(members, {'t': 6}).values()] == [3, 3, 0]


# Fingerprints

def test_the_hash_is_xxh3():
    expected = json.loads((RECORDED / 'xxh3.json').read_text())
    for n, number in expected.items(): assert xxh3(bytes((7 * i + int(n)) & 255 for i in range(int(n)))) == number


def image_with(partitions=2, racks=(None, None), name='orders', id=b'\1' * 16):
    image = Image()
    for number, rack in enumerate(racks): broker_registered(image, RegisterBrokerRecord(broker_id=number, rack=rack))
    topic_made(image, TopicRecord(name=name, topic_id=id))
    for n in range(partitions):
        record = PartitionRecord(topic_id=id, partition_id=n, replicas=[0, 1], isr=[0, 1], leader=0)
        partition_made(image, record)
    return image


def test_the_fingerprint_sees_what_matters():
    images = [image_with(), image_with(3), image_with(racks=('r1', 'r2')), image_with(racks=('r1', None)),
              image_with(name='order'), image_with(id=b'\2' * 16)]
    prints = {topic_hash(next(iter(image.topics.values())), image) for image in images}
    assert len(prints) == len(images)
    turned = image_with(racks=('r2', 'r1'))
    assert metadata_hash(['orders'], images[2]) == metadata_hash(['orders'], turned), 'racks are sorted'
    assert metadata_hash({'orders', 'nobody'}, images[0]) == metadata_hash(['orders'], images[0]) != 0
    assert metadata_hash([], images[0]) == 0
