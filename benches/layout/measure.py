"""Where the functions of the program lie: writes crates/waltz/layout.txt, by which the release build orders them.

    python3 benches/layout/measure.py            # builds, runs the gateway under valgrind, writes the list
    python3 benches/layout/measure.py --check    # builds, says how many of the list's names the program still has

Functions that requests use come first, the busiest for their size in front; then those that only a start uses. Needs valgrind, and the
linker that rustc brings along on x86-64 Linux. Names hold for one compiler and one Cargo.lock: run it again for a release.
"""

import argparse
import bisect
import json
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "crates/waltz/layout.txt"
PROGRAM = ROOT / "target/release/waltz"
ADDRESS = "127.0.0.1:8797"
ROUNDS = 40

GARDEN = "The garden has roses, two old trees and a bench in the shade. " * 12


def build(work):
    """Builds the program; returns (address, size, name) of its functions, by address."""
    table = work / "waltz.map"
    command = ["cargo", "rustc", "--release", "-p", "waltz", "--bin", "waltz", "--", "-C", f"link-arg=-Wl,-Map={table}"]
    subprocess.run(command, cwd=ROOT, check=True)
    # Each function has a section of its own, with its name.
    section = re.compile(r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+ +\S+:\(\.text\.(?:unlikely\.|hot\.|startup\.)?(\S+)\)$")
    found = map(section.match, table.read_text().splitlines())
    functions = [(int(part[1], 16), int(part[2], 16), part[3]) for part in found if part and int(part[2], 16) > 0]
    if not functions:
        raise SystemExit("the linker's map has no functions: is it lld's?")
    return sorted(functions)


def requests():
    """What a gateway is asked, one after the other: both forms, whole and streamed, something personal, something unsafe."""
    texts = ["What grows here? " + GARDEN, "Write to jane.roe@example.com about it. " + GARDEN, "Tell me about weapons."]
    for text in texts:
        for stream in (False, True):
            body = {"model": "mock", "messages": [{"role": "user", "content": text}], "stream": stream, "max_tokens": 64}
            yield "/v1/chat/completions", body
            yield "/v1/messages", body


def post(path, body):
    request = urllib.request.Request(f"http://{ADDRESS}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()


def is_up():
    try:
        urllib.request.urlopen(f"http://{ADDRESS}/healthz", timeout=5).read()
        return True
    except OSError:
        return False


def run(work):
    """Runs the gateway under valgrind; returns what it ran at its start and for requests."""
    upstream = subprocess.Popen([PROGRAM, "mock", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    url = re.search(r"127\.0\.0\.1:\d+", upstream.stdout.readline())[0]
    (work / "waltz.toml").write_text(f'[[upstreams]]\nname = "mock"\nurl = "http://{url}/v1"\nmodels = ["mock"]\n')
    out = work / "callgrind.out"
    watched = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no", f"--callgrind-out-file={out}"]
    gateway = subprocess.Popen(
        [*watched, PROGRAM, "serve", "--config", work / "waltz.toml", "--data", work / "data", "--listen", ADDRESS],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(120):
            time.sleep(1)
            if is_up():
                break
        # The tasks that begin after it listens, and the first rounds of those that repeat.
        time.sleep(3)
        control = lambda *words: subprocess.run(["callgrind_control", *words, str(gateway.pid)], check=True, stdout=subprocess.DEVNULL)
        control("-d")
        control("-z")
        for _ in range(ROUNDS):
            for path, body in requests():
                post(path, body)
        # What was asked goes from the journal to the database.
        time.sleep(2)
        control("-d")
    finally:
        gateway.send_signal(signal.SIGTERM)
        gateway.wait(60)
        upstream.terminate()
    return costs(f"{out}.1"), costs(f"{out}.2")


def costs(path):
    """Instructions run by address in the program."""
    found = {}
    is_call = is_own = False
    for line in pathlib.Path(path).read_text(errors="replace").splitlines():
        if line.startswith("ob="):
            is_own = line == f"ob={PROGRAM}"
        if line.startswith("calls="):
            is_call = True
            continue
        cost = re.match(r"0x([0-9a-f]+) \d+ (\d+)$", line)
        if cost and is_own and not is_call:
            address = int(cost[1], 16)
            found[address] = found.get(address, 0) + int(cost[2])
        is_call = False
    return found


def by_function(functions, found):
    starts = [function[0] for function in functions]
    sums = {}
    for address, cost in found.items():
        place = bisect.bisect_right(starts, address) - 1
        if place >= 0 and address < functions[place][0] + functions[place][1]:
            sums[functions[place]] = sums.get(functions[place], 0) + cost
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say how many names the program still has")
    check = parser.parse_args().check
    if not check and shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        functions = build(work)
        if check:
            names = LIST.read_text().split()
            known = {function[2] for function in functions}
            print(f"{sum(name in known for name in names)} of {len(names)} names")
            return
        start, asked = (by_function(functions, part) for part in run(work))
    busy = sorted(asked, key=lambda function: -asked[function] / function[1])
    rest = sorted(set(start) - set(asked))
    size = lambda part: f"{len(part)} functions, {sum(function[1] for function in part) / 1e6:.1f} MB"
    print(f"requests: {size(busy)}; only the start: {size(rest)}; all: {size(functions)}")
    LIST.write_text("".join(f"{name}\n" for _, _, name in busy + rest))


main()
