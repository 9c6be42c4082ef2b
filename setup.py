"""Package metadata, all of it read from settings.ini."""
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
parser = ConfigParser(delimiters=['='])
parser.read(here/'settings.ini', encoding='utf-8')
cfg = parser['DEFAULT']

STATUSES = {'3': '3 - Alpha', '4': '4 - Beta', '5': '5 - Production/Stable'}
SPDX = {'apache2': 'Apache-2.0'}
suffix = '_requirements'
readme = here/'README.md'

setup(
    name=cfg['lib_name'], version=cfg['version'], description=cfg['description'],
    long_description=readme.read_text(encoding='utf-8') if readme.exists() else cfg['description'],
    long_description_content_type='text/markdown',
    author=cfg['author'], keywords=cfg['keywords'].split(), license_expression=SPDX[cfg['license']], license_files=['LICENSE'],  # noqa: E501
    classifiers=[f'Development Status :: {STATUSES[cfg["status"]]}', f'Intended Audience :: {cfg["audience"]}',
                 f'Natural Language :: {cfg["language"]}', *cfg['classifiers'].strip().splitlines()],
    python_requires=f'>={cfg["min_python"]}',
    packages=find_packages(include=[cfg['lib_path'], f'{cfg["lib_path"]}.*']),
    install_requires=cfg['requirements'].split(),
    extras_require={key.removesuffix(suffix): cfg[key].split() for key in cfg if key.endswith(suffix)},
    entry_points={'console_scripts': cfg['console_scripts'].split(), 'pytest11': cfg['pytest11'].split(),
                  'nbdev': [f'{cfg["lib_path"]}={cfg["lib_path"]}._modidx:d']},
    zip_safe=False,
)
