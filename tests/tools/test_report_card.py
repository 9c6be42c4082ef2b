"The report card: what test suites print is read right, two brokers are compared right, and the exit code says so."
import json
import shutil
import sys
import tomllib

import pytest

from broker_process import ROOT
from size import later

sys.path.insert(0, str(ROOT/'tools'))
import report_card
import report_outcomes
import report_suites
from report_outcomes import FAILED, PASSED, SKIPPED, GoEvents, Known, Outcome

GOOD, BAD, LEFT = Outcome(PASSED), Outcome(FAILED, 'words'), Outcome(SKIPPED)


def events(*lines) -> dict:
    taken = GoEvents()
    for line in lines: taken.take(line if isinstance(line, str) else json.dumps(line))
    return taken.outcomes()


def ended(test: str, action: str, said: str = '') -> list[dict]:
    return [{'Action': 'run', 'Test': test}, {'Action': 'output', 'Test': test, 'Output': said},
            {'Action': action, 'Test': test}]


# --- what suites print ---

def test_go_each_state():
    assert events(*ended('TestA', 'pass'), *ended('TestB', 'fail', 'no such topic\n'), *ended('TestC', 'skip')) == {
        'TestA': GOOD, 'TestB': Outcome(FAILED, 'no such topic\n'), 'TestC': LEFT}


def test_go_subtests_represent_their_test():
    lines = [{'Action': 'run', 'Test': 'TestA'}, *ended('TestA/one', 'pass'), *ended('TestA/two', 'fail', 'no'),
             {'Action': 'fail', 'Test': 'TestA'}]
    assert events(*lines) == {'TestA/one': GOOD, 'TestA/two': Outcome(FAILED, 'no')}


def test_go_a_test_that_fails_after_its_subtests_passed():
    lines = [{'Action': 'run', 'Test': 'TestA'}, *ended('TestA/one', 'pass'),
             {'Action': 'output', 'Test': 'TestA', 'Output': 'left something open'},
             {'Action': 'fail', 'Test': 'TestA'}]
    assert events(*lines) == {'TestA': Outcome(FAILED, 'left something open'), 'TestA/one': GOOD}


def test_go_a_test_that_never_ends_has_failed():
    "A panic ends the program; what ran has no last line."
    found = events(*ended('TestA', 'pass'), {'Action': 'run', 'Test': 'TestB'},
                   {'Action': 'output', 'Test': 'TestB', 'Output': 'panic: 1'}, {'Action': 'fail', 'Package': 'p'})
    assert found == {'TestA': GOOD, 'TestB': Outcome(FAILED, 'panic: 1')}


def test_go_the_compilers_words_are_kept():
    taken = GoEvents()
    assert taken.take('undefined: dial\n') is None and taken.outcomes() == {} and taken.loose == 'undefined: dial\n'


def test_go_tests_are_those_that_come_to_the_address():
    helpers = ('func dial() string {\n\treturn os.Getenv("SEEDS")\n}\n\n'
               '// other has nothing to do with dial\nfunc other() {}\n')
    tests = ('func TestA(t *testing.T) {\n\tconnect(t)\n}\n\nfunc TestB(t *testing.T) {\n\tother()\n}\n'
             'func connect(t *testing.T) { dial() }\nfunc (s *suite) TestC() { dial() }\n')
    assert report_outcomes.go_tests([helpers, tests], 'SEEDS') == ['TestA']


def test_junit():
    text = '''<testsuites><testsuite><testcase classname="test.integration.test_admin" name="test_a[1]"/>
        <testcase classname="test.test_admin" name="test_b"><failure message="AssertionError">line 3</failure>
        </testcase>
        <testcase classname="test.test_admin" name="test_c"><error message="no fixture"/></testcase>
        <testcase classname="test.test_admin" name="test_d"><skipped/></testcase></testsuite></testsuites>'''
    assert report_outcomes.junit(text) == {
        'test_admin::test_a[1]': GOOD, 'test_admin::test_b': Outcome(FAILED, 'AssertionError\nline 3'),
        'test_admin::test_c': Outcome(FAILED, 'no fixture\n'), 'test_admin::test_d': LEFT}


def test_librdkafka_its_table():
    source = ('#define _TEST(NAME, FLAGS, ...)\n    _TEST(0001_a, 0),\n    _TEST(0002_b, TEST_F_LOCAL),\n'
              '    _TEST(0003_c,\n          0,\n          TEST_BRKVER(0, 9, 0, 0)),\n'
              '    _TEST(0004_d, TEST_F_SOCKEM, TEST_BRKVER(0, 9, 0, 0)),\n    _TEST(0005_e, TEST_F_KNOWN_ISSUE),\n')
    assert report_outcomes.rdkafka_tests(source) == ['0001_a', '0003_c', '0004_d']


@pytest.mark.parametrize('report, state', [
    ('{"tests": {"0001_a": {"state": "PASSED"}}}', PASSED), ('{"tests": {"0001_a": {"state": "SKIPPED"}}}', SKIPPED),
    ('{"tests": {"0001_a": {"state": "FAILED"}}}', FAILED), ('', FAILED), ('{"tests": {', FAILED)])
def test_librdkafka_a_report(report, state):
    outcome = report_outcomes.rdkafka_outcome('0001_a', report, '\x1b[36mhello\x1b[0m TEST FAILURE\nno topic')
    assert outcome.state == state
    if state == FAILED: assert 'no topic' in outcome.said and '\x1b' not in outcome.said


# --- the comparison ---

OURS_ONLY = Known('go*', ('TestB', 'TestC/*'), 'ours', 'nobody has written it')


def compared(ours: dict, kafka: dict, *known) -> list[tuple]:
    return [(each.test, each.fails, each.reason, each.unexplained)
            for each in report_outcomes.differences('gogo', ours, kafka, list(known))]


def test_what_passes_or_is_skipped_on_both_is_no_difference():
    assert compared({'TestA': GOOD, 'TestB': LEFT}, {'TestA': GOOD, 'TestB': LEFT}) == []


def test_a_known_difference():
    assert compared({'TestB': BAD, 'TestC/x': BAD}, {'TestB': GOOD, 'TestC/x': GOOD}, OURS_ONLY) == [
        ('TestB', 'ours', 'nobody has written it', False), ('TestC/x', 'ours', 'nobody has written it', False)]


def test_a_reason_is_for_the_broker_that_it_names():
    assert compared({'TestB': GOOD}, {'TestB': BAD}, OURS_ONLY) == [('TestB', 'kafka', None, True)]


def test_what_fails_on_both_is_no_difference_to_explain():
    assert compared({'TestB': BAD}, {'TestB': BAD}, OURS_ONLY) == [('TestB', 'both', None, False)]


def test_what_is_skipped_on_one_of_them_is():
    assert compared({'TestB': LEFT}, {'TestB': GOOD}) == [('TestB', 'neither', None, True)]


def test_by_chance_on_either():
    either = Known('gogo', ('TestB',), 'either', 'a race in the test')
    assert [line[2] for line in (*compared({'TestB': BAD}, {'TestB': GOOD}, either),
                                 *compared({'TestB': GOOD}, {'TestB': BAD}, either))] == ['a race in the test'] * 2


def test_on_one_broker_alone_a_failure_is_looked_up_all_the_same():
    both = Known('gogo', ('TestE',), 'both', 'it needs three brokers')
    assert compared({'TestB': BAD, 'TestD': BAD, 'TestE': BAD}, {}, OURS_ONLY, both) == [
        ('TestB', 'ours', 'nobody has written it', False), ('TestD', 'ours', None, True),
        ('TestE', 'ours', 'it needs three brokers', False)]


def test_a_reason_that_nothing_needs_any_more_is_told():
    lines = report_outcomes.outlived('gogo', {'TestB': GOOD}, {'TestB': GOOD}, [OURS_ONLY])
    assert len(lines) == 1 and 'nobody has written it' in lines[0]
    assert report_outcomes.outlived('gogo', {'TestB': BAD}, {'TestB': GOOD}, [OURS_ONLY]) == []


def test_the_row():
    ours = {'a': GOOD, 'b': BAD, 'c': GOOD, 'd': BAD, 'e': LEFT}
    kafka = {'a': GOOD, 'b': GOOD, 'c': BAD, 'd': BAD, 'e': LEFT}
    assert report_outcomes.row('gogo', ours, kafka) == ['gogo', 5, 2, 2, 1, 1, 1, 1]


# --- the command ---

def command(monkeypatch, tmp_path, capsys, brokers: dict, *arguments) -> tuple[int, str]:
    "The command with a suite that is made up: its outcomes on each broker, or an error."
    def take(suite, broker, pattern):
        if isinstance(brokers[broker], Exception): raise brokers[broker]
        return brokers[broker]
    known = tmp_path/'known.toml'
    known.write_text('[[known]]\nsuite = "gogo"\ntests = ["TestB"]\nfails = "ours"\n'
                     'reason = """nobody\nhas written it"""\n')
    suite = report_suites.Suite('gogo', 'a package', (), 1, lambda directory: None)
    for name, value in (('SUITES', {'gogo': suite}), ('take', take), ('KNOWN', known), ('KEPT', tmp_path/'kept.json')):
        monkeypatch.setattr(report_card, name, value)
    monkeypatch.setattr(report_card.real_kafka, 'absent', lambda: None)
    monkeypatch.setattr(report_card.processes, 'end_cleanly_on_sigterm', lambda: None)
    monkeypatch.setattr(sys, 'argv', ['report_card.py', *arguments])
    code = report_card.main()
    return code, capsys.readouterr().out


def test_exit_code_0_when_every_difference_has_a_reason(monkeypatch, tmp_path, capsys):
    brokers = {'ours': {'TestA': GOOD, 'TestB': BAD}, 'kafka': {'TestA': GOOD, 'TestB': GOOD}}
    code, text = command(monkeypatch, tmp_path, capsys, brokers)
    assert code == 0 and '| gogo | 2 | 1 | 2 | 1 | 0 | 0 | 0 |' in text and 'TestB. nobody has written it' in text
    code, shown = command(monkeypatch, tmp_path, capsys, {}, '--show')      # without running anything
    assert code == 0 and text in shown


def test_exit_code_1_when_one_has_none(monkeypatch, tmp_path, capsys):
    code, text = command(monkeypatch, tmp_path, capsys, {'ours': {'TestA': BAD}, 'kafka': {'TestA': GOOD}}, '--words')
    assert code == 1 and 'TestA. **unexplained**' in text and 'on this broker ---\nwords' in text


def test_exit_code_2_when_a_suite_cannot_run(monkeypatch, tmp_path, capsys):
    assert command(monkeypatch, tmp_path, capsys, {'ours': RuntimeError('no such version')})[0] == 2


def test_a_test_that_passes_alone_has_passed():
    found = {'TestA': BAD, 'TestB': BAD, 'TestC': GOOD}
    assert report_card.again('', found, lambda test: {test: GOOD if test == 'TestA' else BAD}) == {
        'TestA': Outcome(PASSED, tries=2)}


def test_the_known_reasons_are_of_suites_that_there_are():
    for each in report_outcomes.read_known(report_card.KNOWN):
        assert each.reason and any(Known(each.suite, ('x',), 'ours', '').speaks_of(name, 'x')
                                   for name in report_suites.SUITES), each
    assert tomllib.loads(report_card.KNOWN.read_text(encoding='utf-8')).keys() <= {'known'}


# --- for real, in small ---

def franz_go_absent() -> str | None:
    if shutil.which('go') is None: return 'no `go` on PATH'
    directory = report_suites.GO_CACHE/'github.com'/'twmb'/'franz-go@v1.22.2'
    if not directory.exists(): return f'no franz-go in {report_suites.GO_CACHE}: run tests/clients/fetch.py --fetch'


@later('tests that others wrote')
@pytest.mark.skipif(bool(franz_go_absent()), reason=str(franz_go_absent()))
def test_some_of_franz_gos_own_tests_pass():
    wanted = 'TestPing|TestIssue337|TestIssue434|TestClient_Produce$|TestGroupSimple|TestAddRemovePartitions'
    found = report_card.take(report_suites.SUITES['franz-go'], 'ours', wanted)
    assert len(found) > 5 and {test: each for test, each in found.items() if each.state == FAILED} == {}
