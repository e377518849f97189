#!/usr/bin/env bash
# Runs a program on a machine that has a GPU and a CUDA runtime and may have nothing else:
#
#   COPY='scp -q "$1" gpu:"$2"' RUN='ssh gpu "$1"' scripts/gpu.sh FOLDER RESULTS COMMAND FILE...
#
# COPY takes a file here ($1) to a path there ($2); RUN runs a line of shell there ($1). FILEs are put into FOLDER
# there, COMMAND runs inside of it, and what it leaves in `results` comes back to RESULTS, its output as `log`.
#
# Files travel in pieces of at most WALTZ_PIECE bytes (56 MiB) that are named by their SHA-256. A piece that is
# there and whole is not sent again, so that a transfer that broke off goes on where it was. Files ending in .xz are
# unpacked there.
set -euo pipefail

if [ $# -lt 4 ] || [ -z "${COPY:-}" ] || [ -z "${RUN:-}" ]; then
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
folder=$1 results=$2 command=$3
shift 3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

copy() { bash -c "$COPY" copy "$1" "$2"; }
remote() { bash -c "$RUN" run "$1" </dev/null; }
hash() { sha256sum <"$1" | cut -d ' ' -f 1; }

# What an earlier command left must not come back as this one's.
remote "mkdir -p '$folder/pieces' && rm -rf '$folder/results' && mkdir '$folder/results'"
# Only what the far side hashes itself counts as arrived.
remote "cd '$folder/pieces' && find . -type f -exec sha256sum {} +" >"$work/there" || true

needed=
for file in "$@"; do
    name=$(basename "$file")
    split -b "${WALTZ_PIECE:-58720256}" -d -a 4 "$file" "$work/piece."
    pieces=
    for piece in "$work"/piece.*; do
        sum=$(hash "$piece")
        pieces="$pieces pieces/$sum"
        needed="$needed $sum"
        if ! grep -q "^$sum  ./$sum$" "$work/there"; then
            copy "$piece" "$folder/pieces/$sum"
        fi
        rm "$piece"
    done
    sum=$(hash "$file")
    remote "cd '$folder' && cat $pieces >'$name.new' && echo '$sum  $name.new' | sha256sum --check --quiet &&
        mv '$name.new' '$name'"
    case $name in
    *.xz)
        unpack="import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer)"
        remote "cd '$folder' && { xz -dc <'$name' || python3 -c '$unpack' <'$name'; } >'${name%.xz}' &&
            chmod +x '${name%.xz}'"
        ;;
    esac
    echo "carried $name" >&2
done

# Pieces of files that are no longer sent would fill the disk.
remote "cd '$folder/pieces' && for piece in *; do
    case ' $needed ' in *\" \$piece \"*) ;; *) rm -f \"\$piece\" ;; esac
done"

status=0
remote "cd '$folder' && export LD_LIBRARY_PATH=/usr/local/cuda/lib64:\${LD_LIBRARY_PATH:-} &&
    { $command; } >results/log 2>&1" || status=$?
mkdir -p "$results"
remote "tar cf - -C '$folder/results' ." | tar xf - -C "$results"
echo "the command ended with $status; its results are in $results" >&2
exit "$status"
