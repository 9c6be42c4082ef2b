"""How Sphinx makes the site. tools/site.py prepares what it reads, and starts it."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT/'tools'))
from site_chapters import chapters, lessons, number_and_title   # noqa: E402
from site_contents import sidebar   # noqa: E402

project = html_title = html_short_title = 'kafka_scratch'
author = copyright = 'kafka_scratch contributors'
extensions = ['myst_nb']
nb_execution_mode = 'off'       # the outputs are those that the notebooks have
nb_merge_streams = True
nb_output_stderr = 'show'
myst_enable_extensions = ['deflist']
myst_heading_anchors = 4
# An anchor may be in HTML, which MyST doesn't know: tools/site.py looks at all links, in the pages themselves. And a
# page of many short entries, such as the glossary, has small headings right below its title.
suppress_warnings = ['myst.xref_missing', 'myst.header']

html_theme = 'furo'
html_static_path = ['static']
html_css_files = ['site.css']
html_favicon = 'static/favicon.svg'
templates_path = ['templates']
html_copy_source = html_show_sourcelink = html_show_sphinx = html_show_copyright = False
html_use_index = False
pygments_style, pygments_dark_style = 'friendly', 'github-dark'
html_theme_options = {'navigation_with_keys': False}
html_sidebars = {'**': ['sidebar/brand.html', 'sidebar/search.html', 'sidebar/scroll-start.html', 'contents.html',
                        'sidebar/scroll-end.html']}

ORDER = chapters()
PLACE = {path.stem: at for at, path in enumerate(ORDER)}
LESSONS = {path.stem for path in lessons()}


def name_cells(app, doctree):
    "Each code cell has an id, by which it can be linked, and run."
    from docutils import nodes
    for node in doctree.findall(nodes.container):
        if cell := node.get('cell_metadata', {}).get('cell_id'): node['ids'].append(f'cell-{cell}')


def neighbour(at: int) -> dict | None:
    "The link to another chapter, as the theme wants it."
    if not 0 <= at < len(ORDER): return None
    return {'title': number_and_title(ORDER[at]), 'link': f'{ORDER[at].stem}.html'}


def for_page(app, page, template, context, doctree):
    "The sidebar is ours; a chapter leads to the next one; those that can be run have the script that does it."
    context['contents'] = sidebar(page)
    context.pop('toctree', None)   # so that the theme doesn't make one
    if page not in PLACE: return
    at = PLACE[page]
    context['prev'] = neighbour(at - 1) or {'title': 'The map', 'link': 'map.html'}
    context['next'] = neighbour(at + 1)
    if page in LESSONS:
        app.add_css_file('lessons.css')
        app.add_js_file('lessons.js', loading_method='defer', **{'data-lesson': f'lessons/{page}.json'})


def setup(app):
    app.connect('doctree-read', name_cells)
    app.connect('html-page-context', for_page, priority=100)   # before the theme's
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
