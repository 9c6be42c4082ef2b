"""Patterns as RE2 reads them; and the same with RE2 and without it.

Where google-re2 is installed it does the matching, after our parser has read the pattern. What a pattern means is
therefore
tried in both ways: `Pattern` itself, and one that has to do without.
"""
import importlib.util
import json
import re
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from size import budget
from kafka_scratch.groups.regex import Pattern, PatternError

RECORDED = Path(__file__).parents[1]/'fixtures'/'wire'/'recorded'
needs_re2 = pytest.mark.skipif(importlib.util.find_spec('re2') is None, reason='google-re2 is not installed')


def without_re2(text):
    "A pattern as on a machine where google-re2 isn't installed."
    pattern = Pattern(text)
    pattern.re2 = None
    return pattern


WAYS = [Pattern, without_re2]
both_ways = pytest.mark.parametrize('way', WAYS)


@both_ways
def test_patterns_match_as_in_kafka(way):
    recorded = json.loads((RECORDED / 'topic-patterns.json').read_text())
    for text, names in recorded['matches'].items():
        assert sorted(name for name in recorded['topics'] if way(text).matches(name)) == names, text
    for text in recorded['refused']:
        with pytest.raises(PatternError): way(text)
    for text in recorded['accepted']: way(text)


REPEATS = st.sampled_from(['*', '+', '?', '{2}', '{1,2}', '{0,}', '*?'])
SIMPLE = st.recursive(st.sampled_from(['a', 'b', '.', '[ab]', '[^a]', '\\w', '-', '\\b', '^', '$', '']),
                      lambda inner: st.builds('({})'.format, inner) | st.builds('{}|{}'.format, inner, inner)
                      | st.builds('{}{}'.format, inner, inner) | st.builds('(?:{}){}'.format, inner, REPEATS),
                      max_leaves=6)


@budget(400, deadline=None)
@given(SIMPLE, st.text('ab-', max_size=6))
def test_patterns_match_as_in_python(text, name):
    for way in WAYS: assert way(text).matches(name) == bool(re.compile(text).fullmatch(name))


@budget(300, deadline=None)
@given(st.text('ab()[]{}|*+?\\^$.-:P<>1,2id&', max_size=12))
def test_any_text_is_a_pattern_or_refused(text):
    try: found = [way(text).matches('abab-1') for way in WAYS]
    except PatternError: return
    assert found[0] == found[1]


@both_ways
@pytest.mark.parametrize('text', ['(a+)+b', '(a*)*b', '(a|a)*b', '(a|aa)+b', 'a{0,200}a{0,200}b', '((a?){20}){20}b'])
def test_no_pattern_takes_long(text, way):
    start = time.perf_counter()
    assert not way(text).matches('a' * 249) and way(text).matches('aab')
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize('text', [
    '(' * 10_000, '(' * 10_000 + ')' * 10_000, '((a{1000}){1000}){1000}', '(((){1000}){1000}){1000}', 'a' * 32_000,
    '[' * 20_000, '(?i' * 9_000])
def test_large_patterns_are_refused_quickly(text):
    start = time.perf_counter()
    try: Pattern(text)
    except PatternError: pass
    assert time.perf_counter() - start < 10


@both_ways
@pytest.mark.parametrize('text, yes, no', [
    ('(?i)[^a]', 'bB-', 'aA'), (r'(?i)\P{Lu}', '-1', 'aA'), (r'(?i)\p{Lu}', 'aA', '-1ß'),
    ('(?i)[[:^upper:]]', '-1', 'aA'), (r'(?i)\W', '-', 'aA'), (r'(?i)[^\x41-\x43]', 'dD', 'aAbC'),
    (r'(?i)[^[:^lower:]]', 'aA', '-'), ('(?i)[A-Z]', 'aZ', 'ß-'), ('(?i:[^a])', 'b', 'aA'), ('[^a]', 'A', 'a')])
def test_case_is_folded_before_a_class_is_negated(text, yes, no, way):
    pattern = way(text)
    assert all(map(pattern.matches, yes)) and not any(map(pattern.matches, no))


def test_a_number_with_thousands_of_digits():
    for text in ('a{' + '9' * 5000 + '}', 'a{1,' + '0' * 5000 + '}'):
        with pytest.raises(PatternError): Pattern(text)


# With RE2 and without it

PIECES = (
    r'a b k s A K - . _ 1 , & : { } [ ] ( ) | * + ? *? {2} {1,2} {0,} {01} {,2} ^ $ \A \z \b \B \w \W \d \D \s \S '
          r'(?: (?i) (?i: (?-i: (?m) (?s) (?U) (?im-s: (?P<n> (?<n> [ab] [^a] [a-z] []a] [^]a] [a-] [\d-z] [^\W] '
          r'[[:lower:]] '
          r'[[:^upper:]] [[:punct:]] \pL \p{Lu} \P{Lu} \p{^Lu} \p{Latin} \p{Zs} \x41 \x{61} \x{17f} \101 \n \. \- \Q '
          r'\E ſ K ü').split()
NAMES = st.text('abkAKs-._1{}[]:,& ', max_size=6) | st.text(max_size=4)


@needs_re2
@budget(1500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=7).map(''.join), st.lists(NAMES, max_size=5))
def test_both_ways_agree_on_any_pattern(text, names):
    try: pattern, other = Pattern(text), without_re2(text)
    except PatternError: return
    assert pattern.re2 is not None
    for name in names: assert pattern.matches(name) == other.matches(name)


TOPICS = st.text('abcxyzABC0123456789._-', max_size=30) | st.sampled_from(['orders', 'orders.new', 'payments.v2',
    '__consumer_offsets', 'x-1'])
USUAL = st.sampled_from(['orders', 'payments', '[.]', r'\.', '.*', '.+', '[a-z]+', '[^.]*', r'\d{1,3}', r'\w+', '-',
                         '_', 'v[0-9]', '(eu|us)', '(?i:ORDERS)', '(a|b)*', '__', '|', '^', '$'])


@needs_re2
@budget(800, deadline=None)
@given(st.lists(USUAL, max_size=5).map(''.join), TOPICS)
def test_usual_patterns_mean_what_they_mean_to_re2(text, name):
    "Not as our parser reads them, but as they are written."
    import re2
    for way in WAYS: assert way(text).matches(name) == (re2.fullmatch(text, name) is not None)


@needs_re2
@pytest.mark.parametrize('text, name, ours', [
    ('a{01}', 'a', True),           # to RE2 not a repetition
    (r'\Qab\E*', 'abab', True),     # to RE2 only the b is repeated
    ('a(?i)*', '', False),          # to RE2 the a is repeated
    ('(?i)ſ', 's', False),          # to RE2 a long s is an s
    ('(?i)\u212a', 'k', False)])    # and the sign for kelvin a k
def test_what_our_parser_reads_otherwise_than_re2(text, name, ours):
    "Patterns that nobody writes; but with the package and without, they mean the same."
    import re2
    assert (re2.fullmatch(text, name) is not None) != ours
    for way in WAYS: assert way(text).matches(name) == ours


@needs_re2
@pytest.mark.parametrize('text, why', [
    (r'a\C', r'\C has no meaning'), ('(?)a', 'a group of a kind that is not supported'),
    (r'\p{Greek}', 'no category Greek')])
def test_what_re2_takes_is_refused_all_the_same(text, why):
    "The first also by the RE2 that Kafka has, which is written in Java."
    import re2
    assert re2.compile(text)
    with pytest.raises(PatternError, match=f'^{re.escape(why)}$'): Pattern(text)


@needs_re2
def test_what_re2_refuses_is_matched_without_it(capfd):
    pattern = Pattern('(a{40}){40}')   # 1600 repetitions in all
    assert pattern.re2 is None and pattern.matches('a' * 1600) and not pattern.matches('a' * 1599)
    assert capfd.readouterr() == ('', ''), 'RE2 writes no complaints to the terminal'


@both_ways
@pytest.mark.parametrize('name', ['\n', 'ü', '\0', '\x7f', '🦕', '\ud800'])
def test_letters_that_no_topic_has(name, way):
    "A transactional id may have them; RE2 isn't asked, since it knows them by other rules."
    assert way('.').matches(name) and way('(?-s)[^a]').matches(name) and not way('[ -~]*').matches(name)
    assert way(f'a{name}$').matches(f'a{name}') and not way(f'a{name}^').matches(f'a{name}')


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, 're2', None)   # importing it now fails
    pattern = Pattern('r[.].*')
    assert pattern.matches('r.one') and not pattern.matches('r') and pattern.re2 is None
