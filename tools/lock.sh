#!/usr/bin/env bash
# Write requirements/*.lock from the *_requirements of settings.ini: every package at one version, with hashes, for
# Python 3.11 and newer on every system. Needs uv (`pip install uv` in an environment of its own, or UV=path/to/uv).
#
#   tools/lock.sh              after a change in settings.ini: keeps the versions already locked
#   tools/lock.sh --upgrade    the newest versions that settings.ini allows
#
#   learn.lock    what ./learn.sh installs
#   test.lock     what ./test.sh installs
#   spark.lock    what both add for Spark
#   site.lock     what ./site.sh installs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=${UV:-uv}
if ! command -v "$uv" >/dev/null; then
    echo "tools/lock.sh needs uv: install it in an environment of its own and name it with UV=path/to/uv." >&2
    exit 1
fi

needs() {  # needs EXTRA...: their requirements, a line each
    "${PYTHON:-python3}" - "$@" <<'PY'
import sys
from configparser import ConfigParser
config = ConfigParser(delimiters=['='])
config.read('settings.ini', encoding='utf-8')
for extra in sys.argv[1:]: print('\n'.join(config['DEFAULT'][f'{extra}_requirements'].split()))
PY
}

lock() {  # lock FILE ARGUMENT... <REQUIREMENTS
    local file=$1
    shift
    "$uv" pip compile - --output-file "$file" --quiet --universal --python-version 3.11 --generate-hashes \
        --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'tools/lock.sh' "$@"
    echo "$file: $(grep -c '^[a-z].*==' "$file") packages"
}

# The versions are chosen for all purposes together, so that one environment can serve them all.
together=$(mktemp)
trap 'rm -f "$together"' EXIT
cat requirements/*.lock 2>/dev/null | awk '/^#/ { next } /^[a-z]/ { keep = !seen[$0]++ } keep' >"$together" || true
needs learn test fast inspect plots spark java connect site | lock "$together" "$@"

needs learn fast inspect | lock requirements/learn.lock --constraints "$together" --upgrade
needs test fast inspect | lock requirements/test.lock --constraints "$together" --upgrade
needs spark java connect plots | lock requirements/spark.lock --constraints "$together" --upgrade
needs site | lock requirements/site.lock --constraints "$together" --upgrade
