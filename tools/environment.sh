# Sourced by test.sh and learn.sh at the top of the checkout: a Python environment in .venv, with the packages of some
# of requirements/*.lock. What is there already stays; what a new or changed lock file asks for is added.

export PIP_REQUIRE_VIRTUALENV=true PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUTF8=1
unset PYTHONHOME

root=$(pwd -P)
venv=$root/.venv

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python; do
        if new_enough "$candidate"; then echo "$candidate"; return; fi
    done
    echo 'This needs Python 3.11 or newer, and none was found; PYTHON=/path/to/python names one.' >&2
    return 1
}

make_venv() {
    local python said
    # An environment remembers the path it was made at, so one that was moved along with the checkout is made anew.
    if new_enough "$venv/bin/python" && [ "$(cat "$venv/made-at" 2>/dev/null)" = "$root" ]; then return; fi
    python=$(find_python) || return
    echo "Making .venv with $("$python" --version)"
    if ! said=$("$python" -m venv --clear "$venv" 2>&1); then
        echo "$said" >&2
        echo "No environment could be made in $venv. (On Debian and Ubuntu, \`apt install python3-venv\` adds what Python lacks there.)" >&2
        return 1
    fi
    mkdir "$venv/locks"
    echo "$root" >"$venv/made-at"
}

# Of the hundreds of lines that pip prints, one remains: on a terminal it is written over, elsewhere it comes now and then.
pip_progress() {  # pip_progress PACKAGES
    awk -v packages="$1" -v terminal="$([ -t 1 ] && echo yes)" '
        function say(text) { if (terminal) printf "\r%-50s", text; else print text; fflush() }
        /^Collecting / { n++; if (terminal || n % 25 == 0) say("  " n " of " packages " packages") }
        /^Installing collected/ { say("  unpacking " packages " packages") }
        END { if (terminal) printf "\r%-50s\r", "" }'
}

install() {  # install LOCK...: what requirements/LOCK.lock names, if it isn't there yet
    local lock missing=() files=() packages
    for lock in "$@"; do
        if ! cmp -s "requirements/$lock.lock" "$venv/locks/$lock.lock"; then missing+=("$lock") files+=(-r "requirements/$lock.lock"); fi
    done
    if [ ${#missing[@]} -gt 0 ]; then
        packages=$(for lock in "${missing[@]}"; do grep -oE '^[a-z][^ ;]*==[^ ;]+' "requirements/$lock.lock"; done | sort -u | wc -l)
        echo "Installing $((packages)) packages into .venv, for: ${missing[*]} (once)"
        if ! "$venv/bin/python" -m pip install --progress-bar off --require-hashes "${files[@]}" 2>"$venv/pip-errors" | pip_progress "$((packages))"; then
            cat "$venv/pip-errors" >&2
            echo 'Not everything could be installed. Is the package index within reach? (`.venv/bin/pip config list` tells which one it is.)' >&2
            return 1
        fi
        for lock in "${missing[@]}"; do cp "requirements/$lock.lock" "$venv/locks/"; done
        echo "  done; .venv has $(du -sm "$venv" | cut -f1) MB"
    fi
}

install_project() {  # kafka_scratch itself, as a link to this checkout: its commands, its fixtures for pytest
    if cat settings.ini setup.py pyproject.toml | cmp -s - "$venv/installed.settings"; then return; fi
    "$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation --editable .
    cat settings.ini setup.py pyproject.toml >"$venv/installed.settings"
}

has_java() {  # is there one that Spark runs on?
    "$venv/bin/python" -c 'from kafka_scratch.spark.session import find_java; find_java()' 2>/dev/null
}

hide_java() {  # hide_java DIRECTORY: a PATH with everything on it but Java and its tools
    local folder
    mkdir "$1"
    while IFS= read -r folder; do
        if [ -d "$folder" ]; then find -L "$folder" -maxdepth 1 -type f ! -name 'java*' ! -name 'mvn*' -exec ln -sf -t "$1" {} + 2>/dev/null || true; fi
    done < <(tr ':' '\n' <<<"$PATH" | tac)   # the first on the PATH wins
    export PATH=$1
    unset JAVA_HOME
}

workers() { "$venv/bin/python" -c 'import os; print(max(2, min(2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(), 8)))'; }

bounded() {  # bounded SECONDS COMMAND...: one that hangs is ended, where the system has a `timeout` that can do it
    if timeout --foreground 1 true 2>/dev/null; then timeout --foreground "$@"; else shift; "$@"; fi
}
