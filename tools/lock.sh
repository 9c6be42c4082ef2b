#!/usr/bin/env bash
# Write requirements.lock from the *_requirements of settings.ini: every tool at one version, with hashes, for
# Python 3.11 and newer on every system. Needs uv (`pip install uv` in an environment of its own, or UV=path/to/uv).
#
#   tools/lock.sh              after a change in settings.ini: keeps the versions already locked
#   tools/lock.sh --upgrade    the newest versions that settings.ini allows
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=${UV:-uv}
if ! command -v "$uv" >/dev/null; then
    echo "tools/lock.sh needs uv: install it in an environment of its own and name it with UV=path/to/uv." >&2
    exit 1
fi

"${PYTHON:-python3}" - <<'PY' |
from configparser import ConfigParser
config = ConfigParser(delimiters=['='])
config.read('settings.ini', encoding='utf-8')
settings = config['DEFAULT']
for key in settings:
    if key.endswith('requirements'): print('\n'.join(settings[key].split()))
PY
    "$uv" pip compile - --output-file requirements.lock --quiet \
        --universal --python-version 3.11 --generate-hashes \
        --no-annotate --no-emit-index-url --no-emit-find-links \
        --custom-compile-command 'tools/lock.sh' "$@"

echo "requirements.lock: $(grep -c '^[a-z].*==' requirements.lock) packages"
