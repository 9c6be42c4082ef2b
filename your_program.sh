#!/bin/sh
# Start the broker:  ./your_program.sh [server.properties]
# Needs Python 3.11 or newer and nothing else; uses .venv when there is one.
set -eu

# The directory this script really is in, also when it was started through a symbolic link.
self=$0
case $self in */*) ;; *) self=./$self ;; esac
while [ -h "$self" ]; do
    link=$(readlink "$self")
    case $link in
        /*) self=$link ;;
        *) self=${self%/*}/$link ;;
    esac
done
dir=$(CDPATH='' cd -- "${self%/*}/" && pwd -P)

if [ -x "$dir/.venv/bin/python" ]; then python=$dir/.venv/bin/python
elif command -v python3 >/dev/null 2>&1; then python=python3
elif command -v python >/dev/null 2>&1; then python=python
else
    echo 'kafka_scratch needs Python 3.11 or newer, and no python3 was found.' >&2
    exit 1
fi

# The version is looked at by the Python that becomes the broker: a second one just for that would double the
# start-up time. Any Python can parse these lines. The empty entry is the working directory: not ours to import from.
export PYTHONPATH="$dir${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -c '
import sys
if sys.version_info < (3, 11):
    sys.exit("kafka_scratch needs Python 3.11 or newer, and this is %d.%d." % sys.version_info[:2])
sys.path[:] = [entry for entry in sys.path if entry]
import runpy
runpy.run_module("kafka_scratch.broker.server", run_name="__main__", alter_sys=True)
' "$@"
