#!/usr/bin/env bash
# Runs the official SDKs against the gateway. Quiet when all is well; non-zero when anything failed.
#
#   tests/sdk/run.sh            both suites
#   tests/sdk/run.sh python     one of them: python, js
#
# WALTZ_BIN names the program to test; without it, target/debug/waltz of this checkout.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
work=$repo/.test
venv=$work/venv
wanted=${1:-all}
mkdir -p "$work"

case $wanted in all | python | js) ;; *) echo "usage: run.sh [python|js]" >&2; exit 2 ;; esac

binary=${WALTZ_BIN:-$repo/target/debug/waltz}
if [[ ! -x $binary ]]; then
    echo "no program at $binary: run 'cargo build -p waltz', or name one in WALTZ_BIN" >&2
    exit 2
fi
# A copy of this run's own, so that a build that goes on meanwhile cannot pull it away.
scratch=$(mktemp -d "$work/run.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cp "$binary" "$scratch/waltz"
export WALTZ_BIN=$scratch/waltz

# Runs a command; shows what it said only if it fails.
quietly() {
    local said
    said=$("$@" 2>&1) || { echo "$said" >&2; echo "failed: $*" >&2; return 1; }
}

# Whether a folder was made from exactly these files.
fresh() { [[ -f $1 && $(cat "$1") == "$2" ]]; }

prepare_python() {
    local stamp=$venv/.stamp hash
    hash=$(cat "$here/python/requirements.txt" <(python3 --version) | sha256sum)
    fresh "$stamp" "$hash" && return
    rm -rf "$venv"
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        quietly apt-get install -y python3-venv
    fi
    quietly python3 -m venv "$venv"
    quietly "$venv/bin/pip" install --disable-pip-version-check -r "$here/python/requirements.txt"
    echo "$hash" >"$stamp"
}

prepare_js() {
    local stamp=$here/js/node_modules/.stamp hash
    hash=$(cat "$here/js/package.json" "$here/js/package-lock.json" <(node --version) | sha256sum)
    fresh "$stamp" "$hash" && return
    (cd "$here/js" && quietly npm ci)
    echo "$hash" >"$stamp"
}

# Runs a suite; keeps its output and shows it if it fails. The summary line goes into `summary`.
status=0
summary=()
suite() {
    local name=$1 pattern=$2 log=$scratch/$1.log
    shift 2
    if ! "$@" >"$log" 2>&1; then
        cat "$log"
        status=1
    fi
    summary+=("$name: $(grep -E "$pattern" "$log" | tail -n 4 | sed 's/^# //; s/^=* *//; s/ *=*$//' | paste -sd, | sed 's/,\([^ ]\)/, \1/g')")
}

run_python() {
    prepare_python
    export PYTHONDONTWRITEBYTECODE=1
    suite python '^[=0-9 ]*[0-9]+ (passed|failed|error)' "$venv/bin/python" -m pytest -c "$here/python/pytest.ini" --rootdir "$here/python" "$here/python"
}

run_js() {
    prepare_js
    suite js '^# (pass|fail|cancelled|skipped) ' node --test --test-reporter=tap "$here/js/openai.test.js"
}

began=$SECONDS
[[ $wanted == js ]] || run_python
[[ $wanted == python ]] || run_js
outcome=passed
[[ $status == 0 ]] || outcome=FAILED
printf 'sdk tests %s in %s s (%s)\n' "$outcome" "$((SECONDS - began))" "$(IFS=';'; echo "${summary[*]}" | sed 's/;/; /g')"
exit "$status"
