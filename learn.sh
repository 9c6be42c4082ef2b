#!/usr/bin/env bash
# Read the chapters:  ./learn.sh [--spark] [--no-browser] [arguments for JupyterLab]
#
#   --spark         install what the chapters of part V need, too (1 GB more)
#   --no-browser    only print the address
#
# The first run makes .venv and installs JupyterLab and little else. Then the chapters open at their map, in the
# browser. What you try out in them stays yours: nothing is written to a chapter unless you save it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

locks=(learn)
arguments=()
for argument in "$@"; do
    case $argument in
        --spark) locks+=(spark) ;;
        -h|--help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) arguments+=("$argument") ;;
    esac
done

. tools/environment.sh
make_venv
install "${locks[@]}"

echo 'Opening the chapters in JupyterLab; Ctrl-C here ends it.'
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PATH="$venv/bin:$PATH"
exec jupyter lab --config=tools/jupyter/config.py ${arguments[@]+"${arguments[@]}"} nbs/map.ipynb
