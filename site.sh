#!/usr/bin/env bash
# Make the site of the book:  ./site.sh [--check] [--serve [PORT]] [--out DIR]
#
#   --check          look whether all links lead somewhere, and all words are spelt right
#   --serve [PORT]   serve it on this machine, until Ctrl-C: http://127.0.0.1:8000
#   --out DIR        write it there, not into _site
#
# The first run makes .venv and installs what the site needs; npm, if it is there, brings Pyodide, without which no page
# can run Python. No chapter is executed: the outputs are those that are in it. A second run makes only what has changed.
# The site asks no other host for anything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

for argument in "$@"; do
    case $argument in -h|--help) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
done

. tools/environment.sh
make_venv
install site
exec "$venv/bin/python" tools/site.py "$@"
