"""How ./learn.sh sets JupyterLab up, for this checkout alone.

Nothing is saved by itself (overrides.json, which also keeps JupyterLab from asking the network for news); what is saved
has no traces of the machine, so that a chapter that was run and saved differs only where it was changed; and pictures
that are stored in the chapters are shown at once.
"""
import json
import warnings
from pathlib import Path

from nbformat import read
from nbformat.sign import NotebookNotary
from traitlets.config import Config

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

c = get_config()  # noqa: F821 (JupyterLab runs this file with it)
c.LabApp.app_settings_dir = str(HERE)
c.LabApp.default_url = '/lab/tree/map.ipynb'   # the map
c.Application.log_level = 'WARN'   # the address is printed all the same
warnings.filterwarnings('ignore', 'Overriding existing .*_save_hook')   # JupyterLab reads its configuration twice

notary = Config(db_file=str(ROOT/'.venv'/'signatures.db'), secret_file=str(ROOT/'.venv'/'signatures.key'),
                data_dir=str(ROOT/'.venv'))
c.NotebookNotary = notary


def trust_chapters():
    "Signs what this checkout's chapters have stored; JupyterLab hides pictures of notebooks that nobody signed."
    with_config = NotebookNotary(config=Config(NotebookNotary=notary))
    for path in (ROOT/'nbs').glob('*.ipynb'):
        try: with_config.sign(read(path, as_version=4))
        except Exception as error: print(f'{path.name} is not shown with its pictures before it is run: {error}')


def clean(model, **_):
    "Before a notebook is saved: out with what only says where and when it was run."
    if model['type'] != 'notebook': return
    metadata = model['content']['metadata']
    metadata.pop('language_info', None)
    if 'kernelspec' in metadata: metadata['kernelspec']['display_name'] = metadata['kernelspec']['name']
    for cell in model['content']['cells']:
        cell['metadata'].pop('trusted', None)
        cell['metadata'].pop('execution', None)
        if cell['cell_type'] != 'code': continue
        cell['execution_count'] = None
        for output in cell['outputs']:
            if 'execution_count' in output: output['execution_count'] = None


def join_pictures(os_path, model, **_):
    "After a notebook was saved: a picture is one text, as nbdev writes it, and not a list of its lines."
    if model['type'] != 'notebook': return
    notebook = json.loads(Path(os_path).read_text(encoding='utf-8'))
    for output in (output for cell in notebook['cells'] for output in cell.get('outputs', [])):
        if 'image/svg+xml' in output.get('data', {}):
            output['data']['image/svg+xml'] = ''.join(output['data']['image/svg+xml'])
    text = json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + '\n'
    Path(os_path).write_text(text, encoding='utf-8', newline='\n')


c.FileContentsManager.pre_save_hook = clean
c.FileContentsManager.post_save_hook = join_pictures
trust_chapters()
