"Who gets what, as Kafka's own assignors work it out."
import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from size import budget
from kafka_scratch.groups.assignors import (
    ASSIGNORS, MemberSubscription, assign_heterogeneous, assign_homogeneous, assign_range, assign_uniform, hand_on)

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


def test_a_member_that_can_have_nothing_makes_nobody_search():
    "Its topic doesn't exist, so it has nothing; that must not look as if others could give it something."
    held, load = {'a': {'t': [0, 1, 2]}, 'b': {'t': [3, 4, 5]}, 'empty': {}}, Counter(a=3, b=3)
    assert not hand_on('a', held, subscribers={}, load=load)   # without subscribers, a search would fail
    members = {id: MemberSubscription(frozenset(topic)) for id, topic in (('a', 't'), ('b', 't'), ('empty', 'z'))}
    assert [len(assignment) for assignment in assign_uniform(members, {'t': 6}).values()] == [3, 3, 0]
