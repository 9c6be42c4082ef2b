"""The inspector and the lessons, used in a real browser: paste, point, click, flip, compare, run. Nothing that a page
asks for comes from anywhere but the site."""
import contextlib
import json
import re
import sys

import pytest

from broker_process import ROOT
from browser import browser_absent, browsing, build_site, served, sphinx_absent
from size import ALL, LATER

sys.path.append(str(ROOT/'tools'))
import pages

WHY_NOT = (f'{LATER}the site, built and looked at in a browser' if not ALL else
           browser_absent() or pages.pyodide_absent())
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))
PATIENCE = 60_000      # milliseconds, for Python to be loaded on a busy machine
EXAMPLES = {each['name']: each for each in pages.examples()}
UNKNOWN, BROKEN = (EXAMPLES[name]['hex'] for name in ('Unknown topic, response', 'A broken answer'))
LESSONS = [path.stem for path in pages.lessons()]


@pytest.fixture(scope='module')
def browser():
    with browsing() as browser: yield browser

@pytest.fixture(scope='module')
def address(tmp_path_factory):
    "The pages alone, without the rest of the site."
    site = tmp_path_factory.mktemp('site')
    pages.write_pages(site)
    with served(site) as address: yield address

@contextlib.contextmanager
def opened(browser, url: str, width: int = 1400, height: int = 900, **options):
    "A page; it must not ask any other host for anything, and not complain."
    context = browser.new_context(viewport={'width': width, 'height': height}, **options)
    context.set_default_timeout(PATIENCE)
    page, asked, complaints = context.new_page(), [], []
    context.on('request', lambda request: asked.append(request.url))     # those of its workers, too
    page.on('console', lambda message: message.type == 'error' and complaints.append(message.text))
    page.on('pageerror', lambda error: complaints.append(str(error)))
    page.goto(url)
    yield page
    context.close()
    here = re.match(r'http://127\.0\.0\.1:\d+/', url)[0]
    assert len(asked) > 5 and [each for each in asked if not each.startswith((here, 'data:'))] == []
    assert complaints == []

@pytest.fixture(scope='module')
def inspector(browser, address):
    "The page, once for all tests: each begins with bytes of its own."
    with opened(browser, f'{address}/inspector/') as page: yield page


def take(page, name: str):
    "Clicks an example, and waits for what Python says about it."
    page.get_by_role('button', name=name, exact=True).click()
    page.locator('#verdict :is(.good, .bad)').first.wait_for()

def byte(page, at: int, grid: str = 'bytes'): return page.locator(f'#{grid} .b[data-at="{at}"]')
def row(page, path: str): return page.locator(f'#fields tr[title="{path}"]')
def lit(page) -> list[int]: return [int(each.get_attribute('data-at')) for each in page.locator('#bytes .b.lit').all()]
def verdict(page) -> str: return page.locator('#verdict').inner_text()
def wait_until_it_says(page, text: str): page.locator('#verdict').get_by_text(text).first.wait_for()


# --- the inspector ---

def test_what_is_pasted_is_explained(inspector):
    inspector.get_by_label('Your bytes').fill('00000023 0012 0004 25edc0ae 0009 6b61666b612d636c69 00 0a'
                                              '6b61666b612d636c69 04 302e31 00')
    wait_until_it_says(inspector, 'request: ApiVersions version 4')
    wait_until_it_says(inspector, 'each of them explained')
    wait_until_it_says(inspector, 'because its length is followed by 18')
    assert row(inspector, 'header.correlation_id').locator('.value').inner_text().startswith('636338350')
    assert 'Int32' in row(inspector, 'header.correlation_id').inner_text()
    assert 'matched' in row(inspector, 'header.correlation_id').locator('.about').inner_text()


def test_the_dump_of_a_tester_and_base64_are_read(inspector):
    box, raw = inspector.get_by_label('Your bytes'), bytes.fromhex(UNKNOWN)
    rows = [(at, raw[at:at + 16].hex(' ')) for at in range(0, len(raw), 16)]
    box.fill('\n'.join(f'remote: [tester::#VT6] {at:04x} | {row:<47} | ......' for at, row in rows))
    wait_until_it_says(inspector, 'response: DescribeTopicPartitions version 0')
    box.fill('AAAADgASAAAAAABlAARlZGdl')
    wait_until_it_says(inspector, 'request: ApiVersions version 0')
    box.fill('00 0')
    inspector.get_by_text('3 hexadecimal digits').wait_for()


def test_broken_bytes_say_how_far_and_why_and_what_would_help(inspector):
    take(inspector, 'A broken answer')
    assert 'Understood up to offset 13' in verdict(inspector) and "can't be null" in verdict(inspector)
    assert 'broken' in byte(inspector, 13).get_attribute('class')
    assert 'rest' in byte(inspector, 20).get_attribute('class')
    inspector.get_by_role('button', name='Go there').click()
    assert inspector.evaluate('document.activeElement.dataset.at') == '13'
    inspector.get_by_role('button', name='a byte 00 at 8: header.tagged_fields').click()
    wait_until_it_says(inspector, 'The same, byte for byte')
    assert inspector.get_by_label('Your bytes').input_value().replace('\n', ' ') == bytes.fromhex(UNKNOWN).hex(' ')
    inspector.get_by_role('button', name='Undo').click()
    wait_until_it_says(inspector, 'Understood up to offset 13')


def test_bytes_and_fields_light_up_together(inspector):
    take(inspector, 'Unknown topic, response')
    row(inspector, 'body.topics[0].name').hover()
    assert lit(inspector) == list(range(17, 26))
    assert 'body.topics[0].name' in inspector.locator('#detail').inner_text()
    byte(inspector, 30).hover()
    assert lit(inspector) == list(range(26, 42))
    assert 'lit' in row(inspector, 'body.topics[0].topic_id').get_attribute('class')
    inspector.locator('#fields tr.heading', has_text='topics[0]').hover()
    assert lit(inspector) == list(range(14, 49))


def test_nothing_moves_under_the_pointer(inspector):
    "However much there is to say about a field."
    take(inspector, 'Record batches')
    places = set()
    for at in 0, 16, 21, 43, 70, 90:
        byte(inspector, at).hover()
        places.add(byte(inspector, 0).bounding_box()['y'])
    assert len(places) == 1


def test_a_byte_is_flipped_and_back(inspector):
    take(inspector, 'Unknown topic, response')
    byte(inspector, 15).click()
    inspector.get_by_role('button', name='bit 0').click()
    changed = row(inspector, 'body.topics[0].error_code').locator('.value')
    inspector.locator('tr.changed').wait_for()
    assert changed.inner_text().startswith('2 (CORRUPT_MESSAGE) was 3 (UNKNOWN_TOPIC_OR_PARTITION)')
    inspector.keyboard.press('Tab')          # the cursor is in the tools: back to the bytes
    byte(inspector, 13).click()
    inspector.keyboard.type('05')
    wait_until_it_says(inspector, 'Understood up to')
    inspector.keyboard.press('Control+z')
    inspector.keyboard.press('Control+z')
    inspector.wait_for_function("!document.querySelector('tr.changed')")
    assert inspector.locator('#verdict .good').count() == 1
    byte(inspector, 50).click()
    inspector.keyboard.press('Delete')
    inspector.get_by_role('button', name='a byte 00 at 50').wait_for()
    inspector.get_by_role('button', name='Back to what it was').click()
    inspector.locator('#verdict .good').wait_for()


def test_the_keyboard_is_enough(inspector):
    take(inspector, 'ApiVersions request')
    inspector.get_by_role('button', name='A broken answer').focus()
    inspector.keyboard.press('Tab')
    assert inspector.evaluate('document.activeElement.dataset.at') == '0'
    for key, at in (('ArrowRight', 1), ('ArrowDown', 17), ('End', 31), ('Home', 16), ('Control+End', 39),
                    ('ArrowDown', 39), ('ArrowUp', 23), ('Control+Home', 0), ('ArrowLeft', 0), ('PageDown', 39)):
        inspector.keyboard.press(key)
        assert inspector.evaluate('document.activeElement.dataset.at') == str(at), key
    assert 'offset 39: 00, body.tagged_fields' == inspector.evaluate('document.activeElement.ariaLabel')
    inspector.keyboard.press('Enter')
    assert inspector.evaluate('document.activeElement.title') == 'body.tagged_fields'
    inspector.keyboard.press('ArrowUp')
    inspector.keyboard.press('Enter')
    assert inspector.evaluate('document.activeElement.dataset.at') == '34' and lit(inspector) == list(range(34, 39))
    inspector.keyboard.press('Enter')
    inspector.keyboard.press('ArrowLeft')    # to the heading, and fold it
    inspector.keyboard.press('ArrowLeft')
    assert row(inspector, 'body.client_software_name').is_hidden()
    inspector.keyboard.press('ArrowRight')
    assert row(inspector, 'body.client_software_name').is_visible()


def test_a_link_carries_everything(browser, address, inspector):
    take(inspector, 'A broken answer')
    byte(inspector, 21).click()
    inspector.wait_for_url('**at=21*')
    with opened(browser, inspector.url) as other:
        other.locator('#verdict .bad').wait_for()
        assert other.get_by_label('Your bytes').input_value() == inspector.get_by_label('Your bytes').input_value()
        assert other.get_by_label('Kafka’s bytes, to compare with').input_value()
        wait_until_it_says(other, '00 is missing: Kafka’s header.tagged_fields')
        assert [other.locator(f'#{name}').input_value() for name in ('kind', 'api', 'version')] == \
               ['response', 'DescribeTopicPartitions', '0']
        assert byte(other, 21).get_attribute('tabindex') == '0'
    take(inspector, 'ApiVersions response')      # a long one, which is compressed
    inspector.wait_for_url('**bytes=.*')
    with opened(browser, inspector.url) as other: wait_until_it_says(other, '669 bytes, each of them explained')


def test_two_messages_are_compared(inspector):
    take(inspector, 'Unknown topic, response')
    inspector.get_by_role('button', name='Compare', exact=True).click()
    inspector.locator('#beside').fill(UNKNOWN.replace('0003', '0005', 1))
    wait_until_it_says(inspector, '1 of 15 fields differ')
    assert 'Kafka has 05 instead of 03 at 15' in verdict(inspector)
    assert 'different' in row(inspector, 'body.topics[0].error_code').get_attribute('class')
    assert 'different' in byte(inspector, 15, 'beside-bytes').get_attribute('class')
    byte(inspector, 15, 'beside-bytes').hover()
    assert lit(inspector) == [14, 15]
    inspector.get_by_label('only what differs').check()
    assert inspector.locator('#fields .name').count() == 1
    inspector.get_by_label('only what differs').uncheck()


def test_files_are_opened(inspector, tmp_path):
    log = ROOT/'tests'/'fixtures'/'segments'/'logs'/'seg.rdkafka-gzip-0'/f'{0:020}.log'
    inspector.locator('#file').set_input_files(log)
    inspector.get_by_role('tab', name='without gzip').first.click()
    assert inspector.locator('#bytes .b').count() > 50 and inspector.locator('.editor').is_hidden()
    many = tmp_path/f'{0:020}.log'
    many.write_bytes(log.read_bytes() * 400)
    inspector.locator('#file').set_input_files(many)
    inspector.get_by_role('button', name=re.compile(f'4096 more of {many.stat().st_size - 4096} bytes')).wait_for()
    inspector.get_by_role('button', name='Explain more').click()
    inspector.get_by_role('button', name=re.compile('4096 more of')).click()
    assert inspector.locator('#bytes .b').count() == 8192
    inspector.locator('#file').set_input_files({'name': '00000000000000000000.index', 'mimeType': '',
                                                'buffer': bytes.fromhex('0000000500000100')})
    inspector.get_by_text('.index: where in the segment').first.wait_for()
    text = tmp_path/'request.hex'
    text.write_text(EXAMPLES['ApiVersions request']['hex'])
    inspector.locator('#file').set_input_files(text)
    wait_until_it_says(inspector, 'request: ApiVersions version 3')


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_it_fits_a_narrow_window(browser, address, scheme):
    with opened(browser, f'{address}/inspector/', 420, 800, color_scheme=scheme) as page:
        for name in EXAMPLES:
            take(page, name)
            assert page.evaluate('document.documentElement.scrollWidth') <= 420, name
            assert page.locator('#bytes .row').first.locator('.b').count() == 8
        byte(page, 12).click()
        assert page.locator('.editor').bounding_box()['width'] <= 420


# --- lessons ---

@pytest.fixture(scope='module')
def site():
    if reason := sphinx_absent(): pytest.skip(reason)
    out, done = build_site()
    assert done.returncode == 0, done.stdout + done.stderr
    with served(out) as address: yield address


def cells(site: str, name: str) -> list[dict]: return pages.lesson(json.loads((ROOT/'nbs'/f'{name}.ipynb').read_text()))
def tools(page, cell: dict): return page.locator(f'#cell-{cell["id"]} .lesson-tools')
def output(page, cell: dict): return page.locator(f'#cell-{cell["id"]} .lesson-output')


def test_a_cell_is_run_changed_and_run_again(browser, site):
    name = LESSONS[1]
    shown = [cell for cell in cells(site, name) if cell['runnable'] and not cell['hidden']]
    with opened(browser, f'{site}/{name}.html') as page:
        last = shown[-1]
        editor = page.locator(f'#cell-{last["id"]} textarea')
        assert editor.input_value() == last['source']
        editor.fill('import struct\nfor number in (1, 2):\n    print(number)\nstruct.pack(">h", 18)')
        editor.press('Control+Enter')
        output(page, last).get_by_text(r"b'\x00\x12'").wait_for()     # after all cells above, which it may need
        assert '1\n2' in output(page, last).inner_text()
        assert all('✓' in tools(page, cell).inner_text() for cell in shown)
        editor.press('End')
        editor.press('Enter')
        editor.type('nonsense')
        editor.press('Shift+Enter')
        output(page, last).get_by_text('NameError').wait_for()
        number = [cell['id'] for cell in cells(site, name) if not cell['hidden']].index(last['id']) + 1
        assert f'In cell {number}, line 5' in output(page, last).inner_text()
        assert 'pyodide' not in output(page, last).inner_text()
        editor.fill('class Bold:\n    def _repr_html_(self): return "<b>rich</b>"\nBold()')
        editor.press('Control+Enter')
        output(page, last).locator('b', has_text='rich').wait_for()
        tools(page, last).get_by_role('button', name='Reset').click()
        assert editor.input_value() == last['source'] and output(page, last).count() == 0
        editor.press('Tab')
        assert editor.input_value().count('    ') == last['source'].count('    ') + 1
        editor.press('Escape')
        assert page.evaluate('document.activeElement.textContent') == '▶ Run'


def test_what_hangs_is_stopped(browser, site):
    with opened(browser, f'{site}/{LESSONS[0]}.html') as page:
        cell = next(cell for cell in cells(site, LESSONS[0]) if cell['runnable'] and not cell['hidden'])
        editor = page.locator(f'#cell-{cell["id"]} textarea')
        editor.fill('print("so far", flush=True)\nwhile True: pass')
        editor.press('Control+Enter')
        output(page, cell).get_by_text('so far').wait_for()
        tools(page, cell).get_by_role('button', name='Stop').click()
        tools(page, cell).get_by_text('Stopped').wait_for()
        editor.fill('6 * 7')
        editor.press('Control+Enter')
        output(page, cell).get_by_text('42').wait_for()


@pytest.mark.parametrize('name', LESSONS)
def test_every_lesson_can_be_run_in_the_page(browser, site, name):
    wanted = [cell for cell in cells(site, name) if cell['runnable']]
    if not wanted: pytest.skip('– a chapter without code')
    with opened(browser, f'{site}/{name}.html') as page:
        page.get_by_role('button', name='Run all', exact=True).click()
        shown = [cell for cell in wanted if not cell['hidden']]
        tools(page, shown[-1]).get_by_text('✓').or_(page.locator('.traceback')).first.wait_for()
        assert page.locator('.lesson-output .traceback').all_inner_texts() == []
        assert page.evaluate('document.documentElement.scrollWidth') <= 1400
