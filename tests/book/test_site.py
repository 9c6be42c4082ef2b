"The site: built without a warning, every link leads somewhere, every word is spelt right, everything has its place."
import re
import subprocess
import sys
import tomllib

import pytest

from broker_process import PATIENCE, ROOT
from browser import browser_absent, browsing, build_site, served, sphinx_absent
from kafka_scratch.broker.apis import APIS
from kafka_scratch.cluster.other_settings import BROKER_TABLE
from kafka_scratch.cluster.settings_table import TOPIC_TABLE
from kafka_scratch.wire.codes import API_NAMES, ERROR_NAMES, ErrorCode
from size import ALL, LATER

sys.path.append(str(ROOT/'tools'))
import book
import site_check

WHY_NOT = sphinx_absent() if ALL else f'{LATER}the site, built and looked at in a browser'
built_site = pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))
NO_BROWSER = WHY_NOT or browser_absent()
in_a_browser = pytest.mark.skipif(bool(NO_BROWSER), reason=str(NO_BROWSER))
SERVED = {API_NAMES[key] for key in APIS}


# --- what it is made from ---

def sentences(name: str) -> dict: return tomllib.loads((ROOT/'site'/name).read_text(encoding='utf-8'))


def test_every_error_code_is_explained():
    explained = sentences('errors.toml')
    assert list(explained) == ERROR_NAMES
    for each in explained.values():
        assert each.keys() <= {'meaning', 'cause', 'retriable'}
        assert each['meaning'].endswith('.') and each['cause'].endswith('.')


def test_every_api_is_introduced():
    introduced = sentences('apis.toml')
    assert introduced.keys() == SERVED
    tiny = {each.get('tiny') for each in introduced.values()} - {None}
    assert tiny <= {book.name_of(path) for path in book.chapters()}


def test_our_words_are_in_order():
    lines = [line for line in site_check.WORDS.read_text(encoding='utf-8').splitlines() if not line.startswith('#')]
    assert lines == sorted(set(lines))


# --- its checks see what they should ---

def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path/'a.html').write_text('<h1 id="top">A</h1><a href="b.html#here">b</a><a href="b.html#gone">b</a>'
                                   '<a href="c.html">c</a><a href="#top">up</a><a href="https://example.org/">out</a>'
                                   '<script src="https://example.org/x.js"></script><script>"<a href=\'no\'>"</script>')
    (tmp_path/'b.html').write_text('<p id="here"><img src="../secret.png"><a href="a.html">a</a>')
    (tmp_path/'x.css').write_text('@import "//example.org/font.css";')
    checked, wrong, outside = site_check.check_links(tmp_path)
    assert checked == 6 and outside == ['https://example.org/', 'https://example.org/x.js']
    assert wrong == ['a.html: no place b.html#gone', 'a.html: no c.html', 'a.html: loads https://example.org/x.js',
                     'b.html: no ../secret.png', 'x.css: loads //example.org/font.css']


def test_words_are_those_that_people_read():
    text = ('A `codeword`, [a link](some/plaice.html), SASL, ApiVersions, v4, log.dirs, re-read it’s <b>b</b>\n'
            '```\nfenced wrods\n```\n<code>inn</code> wrods')
    assert list(site_check.words_in(text)) == ['link', 're', 'read', 'it', 'wrods']


def test_the_script_says_what_it_takes():
    done = subprocess.run([ROOT/'site.sh', '--help'], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and './site.sh [--check]' in done.stdout and done.stderr == ''


# --- the site itself ---

@pytest.fixture(scope='module')
def site():
    out, done = build_site('--check')
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def ids(path) -> set[str]: return site_check.references(path.read_text(encoding='utf-8'))[0]


@built_site
def test_it_is_built_without_a_warning_and_without_a_wrong_link_or_word(site):
    "And once more, when nothing has changed."
    _, again = build_site('--check')
    assert again.returncode == 0 and again.stderr == '' and ' 0 wrong' in again.stdout and ' 0 unknown' in again.stdout


def is_shown(cell: dict) -> bool:
    "A code cell that isn't hidden, and is more than directives."
    lines = ''.join(cell['source']).splitlines()
    return '#| hide' not in lines and any(line.strip() and not line.startswith('#|') for line in lines)


@built_site
def test_every_chapter_has_its_page(site):
    for path in book.chapters():
        text = (site/f'{path.stem}.html').read_text(encoding='utf-8')
        cells = {cell['id'] for cell in book.read(path)['cells'] if cell['cell_type'] == 'code' and is_shown(cell)}
        assert set(re.findall(r'id="cell-([\w-]+)"', text)) == cells, path.name
        assert not re.search(r'^#\|', re.sub(r'<[^>]*>', '', text), re.M), f'{path.name}: a directive is shown'


@built_site
def test_every_part_of_the_book_is_in_the_sidebar(site):
    text = (site/'index.html').read_text(encoding='utf-8')
    assert all(f'>{part["title"]}</a>' in text for part in book.parts())
    assert all(f'href="{path.stem}.html"' in text for path in book.chapters())


@built_site
@pytest.mark.parametrize('name', sorted(SERVED))
def test_every_api_has_its_page(site, name):
    path = site/'reference'/'apis'/f'{name}.html'
    text, api = path.read_text(encoding='utf-8'), APIS[API_NAMES.index(name)]
    for kind, message in (('request', api.request), ('response', api.response)):
        fields = [field for field in message.FIELDS if set(field.versions) & set(api.versions)]
        assert {f'{kind}.{field.name}' for field in fields} <= ids(path)
    assert text.count('class="kafka-bytes"') == 2, 'a request and a response, inspected'
    assert f'{name} request v{api.versions[-1]}, ' in text


@built_site
def test_every_error_code_has_its_row(site):
    text = (site/'reference'/'errors.html').read_text(encoding='utf-8')
    for name in ERROR_NAMES: assert f'<tr id="{name}"><td data-head="Code">{getattr(ErrorCode, name)}</td>' in text


@built_site
def test_every_setting_has_its_row(site):
    found = ids(site/'reference'/'settings.html')
    assert {f'topic.{name}' for name in TOPIC_TABLE} | {f'broker.{name}' for name in BROKER_TABLE} <= found


@built_site
def test_every_command_has_its_help(site):
    text = (site/'reference'/'command_line.html').read_text(encoding='utf-8')
    for name in 'serve', 'produce', 'consume', 'topics create', 'groups reset', 'inspect', 'image', 'records', 'tables':
        assert f'usage: kafka-scratch {name} ' in text


@built_site
def test_every_page_of_the_docs_is_there(site):
    assert [path for path in (ROOT/'docs').rglob('*.md')
            if not (site/path.relative_to(ROOT).with_suffix('.html')).exists()] == []


# --- in a browser ---

PAGES = ('index', 'map', 'glossary', 'parts/one-evening', 'reference/apis/ApiVersions', 'reference/errors',
         'reference/settings', 'reference/command_line', 'search')


@pytest.fixture(scope='module')
def address(site):
    with served(site) as address: yield address


@pytest.fixture(scope='module')
def browser():
    with browsing() as browser: yield browser


@in_a_browser
@pytest.mark.parametrize('width', [1400, 420])
def test_pages_fit_and_ask_nobody_else(browser, address, width):
    context = browser.new_context(viewport={'width': width, 'height': 900})
    page, elsewhere, complaints = context.new_page(), [], []
    page.on('request', lambda request: request.url.startswith((address, 'data:')) or elsewhere.append(request.url))
    page.on('console', lambda message: message.type == 'error' and complaints.append(message.text))
    page.on('pageerror', lambda error: complaints.append(str(error)))
    chapters = [path.stem for path in book.chapters()]
    for name in (*PAGES, *chapters[::12]):
        page.goto(f'{address}/{name}.html')
        room = page.evaluate('[document.documentElement.scrollWidth, window.innerWidth]')
        assert room[0] <= room[1], f'{name} is wider than the window'
    context.close()
    assert elsewhere == [] and complaints == []


@in_a_browser
def test_it_can_be_searched(browser, address):
    page = browser.new_page()
    page.goto(f'{address}/index.html')
    page.locator('input[name=q]').first.fill('INVALID_REPLICATION_FACTOR')
    page.locator('input[name=q]').first.press('Enter')
    page.locator('ul.search a[href*="reference/errors.html"]').first.wait_for()
    page.close()


@in_a_browser
def test_one_gets_from_chapter_to_chapter(browser, address):
    page, order = browser.new_page(), book.chapters()
    page.goto(f'{address}/{order[0].stem}.html')
    for path in order[1:9]:
        page.locator('.related-pages .next-page').click()
        page.wait_for_url(f'{address}/{path.stem}.html')
    page.locator('.related-pages .prev-page').click()
    page.wait_for_url(f'{address}/{order[7].stem}.html')
    page.close()


@in_a_browser
def test_what_is_not_there_says_so(browser, address):
    page = browser.new_page()
    assert page.goto(f'{address}/no/such/page.html').status == 404
    assert 'No such page' in page.content()
    page.get_by_text('the map').click()
    page.wait_for_url(f'{address}/map.html')
    page.close()
