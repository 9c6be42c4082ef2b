#!/usr/bin/env bash
# The test command:  ./test.sh [--all] [--without-java] [arguments for pytest]
#
#   --all             everything, as CI runs it: beside Apache Kafka, with clients in other languages, with Spark,
#                     and with all that takes long. Java, Maven, npm and Go bring what it needs, where they are found.
#   --without-java    as on a machine that has none
#
# Without --all it takes a few minutes: chapters and tests that need Python alone, and those that need Spark where a
# Java is found. The first run makes .venv and installs what this size needs; later runs reuse it. The closing lines
# say what was left out. Arguments for pytest choose tests, e.g. ./test.sh tests/conversations/test_course.py -k 7-concurrent
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

size=() java=yes
while [ $# -gt 0 ]; do
    case $1 in
        --all) size=(--all --durations=20); shift ;;
        --without-java) java=no; shift ;;
        -h|--help) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) break ;;
    esac
done

. tools/environment.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
make_venv
if [ $java = no ]; then hide_java "$scratch/programs"; fi   # after .venv, which remembers where its Python was found
locks=(test)
if [ ${#size[@]} -gt 0 ]; then locks=(learn test spark site); elif has_java; then locks=(test spark); fi
install "${locks[@]}"
install_project
export PATH="$venv/bin:$PATH"
if [ ${#size[@]} -gt 0 ]; then python tests/clients/fetch.py --fetch; python tools/pages.py --fetch || true; fi

# What tests and chapters see is the same everywhere; with IN_TEST set, nbdev_export would do nothing and say nothing.
unset IN_TEST
export COLUMNS=${COLUMNS:-100} TZ=UTC
# Much of the time is spent waiting, so there are more workers than cores. A run that hangs ends.
bounded 3000 python -m pytest -q --no-header --numprocesses "$(workers)" ${size[@]+"${size[@]}"} "$@"
