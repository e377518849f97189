#!/usr/bin/env python3
"""Measure what a gateway adds to a request, against a mock upstream on loopback.

    bench.py WORK_FOLDER [--targets direct,litellm,...] [--rounds 3] [--secs 3] [--conc 1,16,64]
             [--stream] [--extra my_targets.toml] [--out results.jsonl] [--summary]

The targets are all started first (each one's start-up time and idle memory are noted), then driven
in turn: in every round, at every concurrency, each target for --secs seconds, in an order shuffled
per round. A noisy machine therefore hits all of them alike, and the summary gives ratios to
`direct` in the same round. CPU per request is read from the target's own process tree, so it holds
where requests per second would not. Standard library only; Linux only.
"""
import argparse, json, math, os, random, secrets, signal, statistics as st, subprocess, sys, time, tomllib
import urllib.request, urllib.error
from pathlib import Path

HERE = Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
REQUEST = {
    "model": "mock",
    "messages": [
        {"role": "system", "content": "You are a helpful assistant. Answer briefly."},
        {"role": "user", "content": "What is the capital of France, and what river runs through it? Here is what I know so far. "
            + "The city has a long history, many bridges, wide streets and a large park in the north. " * 8},
    ],
    "temperature": 0.2,
    "max_tokens": 256,
}
ANSWER = "Paris is the capital of France. " + (
    "It lies on the river Seine, which runs from the south-east to the north-west. "
    "About two million people live within its old limits, and many more around them. ") * 6


def tree(pid):
    kids = {}
    for p in Path("/proc").iterdir():
        if p.name.isdigit():
            try:
                ppid = int((p / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            kids.setdefault(ppid, []).append(int(p.name))
    out, todo = [], [pid]
    while todo:
        x = todo.pop()
        out.append(x)
        todo += kids.get(x, [])
    return out


def cpu_s(pid):
    total = 0
    for p in tree(pid):
        try:
            f = Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(f[11]) + int(f[12])
        except OSError:
            pass
    return total / TICK


def mem_mb(pid, field="VmRSS"):
    total = 0
    for p in tree(pid):
        try:
            for line in Path(f"/proc/{p}/status").read_text().splitlines():
                if line.startswith(field + ":"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total / 1024


def post(url, headers, body, timeout=30):
    req = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(req, timeout=timeout) as r:
        return r.status, r.read()


def text_of(body, stream):
    """The answer's text; a gateway may cut a stream's chunks anew, so the deltas are put together."""
    if not stream:
        return json.loads(body)["choices"][0]["message"]["content"]
    out = ""
    for line in body.decode().splitlines():
        if line.startswith("data: {"):
            for c in json.loads(line[6:]).get("choices") or []:
                out += (c.get("delta") or {}).get("content") or ""
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("work")
    ap.add_argument("--targets")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--secs", type=float, default=3)
    ap.add_argument("--conc", default="1,16,64")
    ap.add_argument("--stream", action="store_true")
    ap.add_argument("--extra", action="append", default=[])
    ap.add_argument("--waltz", default=str(HERE.parents[1] / "target/release/waltz"), help="the gateway's own program")
    ap.add_argument("--bin", help="folder with mock-upstream and loadgen (default: target/release)")
    ap.add_argument("--out")
    ap.add_argument("--startups", type=int, default=1, help="start each target this often; the median is given")
    ap.add_argument("--summary", action="store_true", help="print the table of an earlier run's --out file, and start nothing")
    a = ap.parse_args()
    if a.summary:
        rows = [r for r in map(json.loads, open(a.out)) if r["kind"] == "load"]
        return print_summary(rows, sorted({r["target"] for r in rows}, key=lambda n: (n != "direct", n)))
    work = Path(a.work).resolve()
    bindir = Path(a.bin) if a.bin else HERE / "target/release"
    key = "sk-" + secrets.token_hex(24)

    def fill(x):
        """Put the folders and the run's key into every string of a target."""
        if isinstance(x, dict):
            return {k: fill(v) for k, v in x.items()}
        if isinstance(x, list):
            return [fill(v) for v in x]
        if isinstance(x, str):
            return x.replace("{here}", str(HERE)).replace("{work}", str(work)).replace("{bin}", str(bindir)).replace("{key}", key).replace("{waltz}", a.waltz)
        return x

    targets = fill(tomllib.loads((HERE / "targets.toml").read_text()))
    for x in a.extra:
        targets |= fill(tomllib.loads(Path(x).read_text()))
    if a.targets:
        targets = {k: targets[k] for k in a.targets.split(",")}
    procs, live = {}, {}
    logs = work / "bench_logs"
    logs.mkdir(exist_ok=True)
    out = open(a.out, "a") if a.out else None

    def emit(rec):
        if out:
            out.write(json.dumps(rec) + "\n")
            out.flush()

    def spawn(name, cmd, env):
        log = open(logs / f"{name}.log", "w")
        return subprocess.Popen(cmd, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=work,
                                env=os.environ | env, start_new_session=True)

    def stop(p):
        try:
            os.killpg(p.pid, signal.SIGTERM)
            p.wait(8)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def start(name, t):
        """Spawn, and wait for the first good chat completion."""
        if "url_file" in t:
            Path(t["url_file"]).unlink(missing_ok=True)
        t0 = time.monotonic()
        p = spawn(name, t["cmd"], t.get("env", {}))
        err = None
        while time.monotonic() - t0 < t.get("start_limit_s", 120):
            if p.poll() is not None:
                return None, None, f"exited {p.returncode}"
            try:
                url = t.get("url")
                if "url_file" in t:
                    url = Path(t["url_file"]).read_text().strip() + t.get("url_suffix", "")
                s, b = post(url, t.get("headers", {}), REQUEST | t.get("body", {}), 10)
                if s == 200 and b"choices" in b:
                    t["url"] = url
                    return p, time.monotonic() - t0, None
                err = f"{s} {b[:200]!r}"
            except urllib.error.HTTPError as e:
                err = f"{e.code} {e.read()[:300]!r}"
            except (OSError, urllib.error.URLError) as e:
                err = str(e)
            time.sleep(0.02)
        stop(p)
        return None, None, f"no good answer: {err}"

    try:
        procs["direct"] = spawn("mock", [str(bindir / "mock-upstream")], {"MOCK_TEXT": os.environ.get("MOCK_TEXT", ANSWER)})
        time.sleep(0.3)
        for name, t in targets.items():
            if name == "direct":
                live[name] = t
                continue
            if "same_process_as" in t:
                if t["same_process_as"] in procs:
                    procs[name] = procs[t["same_process_as"]]
                    live[name] = t
                continue
            if "cmd" in t:
                ups = []
                for i in range(a.startups):
                    p, up, err = start(name, t)
                    if p is None:
                        break
                    ups.append(up)
                    if i + 1 < a.startups:
                        stop(p)
                if p is None:
                    print(f"{name}: did not start: {err}", file=sys.stderr)
                    emit({"kind": "start", "target": name, "error": err})
                    continue
                procs[name] = p
                size = sum(int(subprocess.run(["du", "-sm", d], capture_output=True, text=True).stdout.split()[0])
                           for d in t.get("install", []) if Path(d).exists())
                rec = {"kind": "start", "target": name, "startup_s": round(st.median(ups), 3),
                       "rss_idle_mb": round(mem_mb(p.pid), 1), "install_mb": size}
                print(rec, file=sys.stderr)
                emit(rec)
            live[name] = t
        # one checked answer from each, so that an error page is not what gets measured
        bodies = {}
        for name, t in list(live.items()):
            body = REQUEST | t.get("body", {}) | ({"stream": True} if a.stream else {})
            if a.stream:
                body |= t.get("stream_body", {})
            f = work / f"body_{name}.json"
            f.write_text(json.dumps(body, separators=(",", ":")))
            bodies[name] = f
            try:
                s, b = post(t["url"], t.get("headers", {}), body)
                if s != 200 or "capital of France" not in text_of(b, a.stream):
                    raise ValueError(f"{s} {b[:300]!r}")
            except (OSError, ValueError) as e:
                extra = e.read()[:300] if isinstance(e, urllib.error.HTTPError) else b""
                print(f"{name}: no good answer: {e} {extra!r}", file=sys.stderr)
                del live[name]
        rows = []
        for rnd in range(a.rounds):
            for conc in [int(c) for c in a.conc.split(",")]:
                order = list(live)
                random.shuffle(order)
                for name in order:
                    t = live[name]
                    pid = procs[name].pid if name in procs else None
                    c0 = cpu_s(pid) if pid else 0
                    cmd = [str(bindir / "loadgen"), "--url", t["url"], "--body", str(bodies[name]), "--conc", str(conc),
                           "--secs", str(a.secs), "--warm", "0.5", "--expect", "[DONE]" if a.stream else "capital of France"]
                    for k, v in t.get("headers", {}).items():
                        cmd += ["--header", f"{k}: {v}"]
                    res = subprocess.run(cmd, capture_output=True, text=True, timeout=a.secs + 60)
                    r = json.loads(res.stdout)
                    r |= {"kind": "load", "target": name, "round": rnd, "stream": a.stream, "load1": os.getloadavg()[0]}
                    if pid:
                        # CPU over the whole run, warm-up and tail included, by the answers of the whole run
                        r["cpu_us_per_req"] = (cpu_s(pid) - c0) / max(r["done"], 1) * 1e6
                        r["rss_mb"] = mem_mb(pid)
                        r["rss_peak_mb"] = mem_mb(pid, "VmHWM")
                    rows.append(r)
                    emit(r)
                    if r["errors"]:
                        print(f"{name} conc {conc}: {r['errors']} errors, first: {r['first_error']}", file=sys.stderr)
        print_summary(rows, live)
    finally:
        for p in set(procs.values()):
            stop(p)


def with_interval(ratios):
    """The median of ratios within rounds and its 95 % interval, which needs six rounds."""
    if not ratios:
        return ""
    ordered, n = sorted(ratios), len(ratios)
    # The largest number of ratios that can be left out at either end.
    out = max((k for k in range(n // 2) if 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n <= 0.05), default=None)
    median = f"{st.median(ordered):.2f}"
    return median if out is None else f"{median} [{ordered[out]:.2f}, {ordered[n - 1 - out]:.2f}]"


def print_summary(rows, live):
    def med(xs):
        xs = [x for x in xs if x is not None and x == x]  # None: no answer within the window
        return st.median(xs) if xs else float("nan")

    kinds = "SSE" if rows and rows[0]["stream"] else "JSON"
    print(f"\n| {kinds} target | conc | req/s | of direct | p50 ms | p99 ms | added p50 ms | added p99 ms | added first content p50 ms | CPU µs/req | CPU by floor_parse's | RSS MB | errors |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    by = {}
    for r in rows:
        by.setdefault((r["target"], r["conc"]), {})[r["round"]] = r
    for name in live:
        for conc in sorted({c for (n, c) in by if n == name}):
            mine, base = by[name, conc], by.get(("direct", conc), {})
            both = [k for k in mine if k in base]
            d = lambda f: med([mine[k][f] - base[k][f] for k in both if None not in (mine[k][f], base[k][f])])
            floor = by.get(("floor_parse", conc), {})
            cpu = [mine[k]["cpu_us_per_req"] / floor[k]["cpu_us_per_req"] for k in mine
                   if "cpu_us_per_req" in mine[k] and floor.get(k, {}).get("cpu_us_per_req")]
            ratio = med([mine[k]["rps"] / base[k]["rps"] for k in both if base[k]["rps"]])
            print(f"| {name} | {conc} | {med([r['rps'] for r in mine.values()]):.0f} | {ratio:.3f} "
                  f"| {med([r['p50_ms'] for r in mine.values()]):.2f} | {med([r['p99_ms'] for r in mine.values()]):.2f} "
                  f"| {d('p50_ms'):.2f} | {d('p99_ms'):.2f} | {d('content_p50_ms'):.2f} "
                  f"| {med([r.get('cpu_us_per_req', float('nan')) for r in mine.values()]):.0f} "
                  f"| {with_interval(cpu)} "
                  f"| {med([r.get('rss_mb', float('nan')) for r in mine.values()]):.0f} "
                  f"| {sum(r['errors'] for r in mine.values())} |")


if __name__ == "__main__":
    main()
