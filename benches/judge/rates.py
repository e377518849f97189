"""What levels 0 and 1 together say about a file of labelled rows: `waltz judge` on it, and the shares.

    python benches/judge/rates.py target/release/waltz ../shared/data/alpaca_prompts.jsonl ...

Prints for each file and label: rows, share flagged with Wilson's 95 % interval, the share that level 1 decided,
and microseconds per kB. `FILE:words` keeps only rows whose category begins with these words.
"""

import gzip
import json
import subprocess
import sys


def wilson(hits, rows, z=1.959964):
    share = hits / rows
    middle = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z * (share * (1 - share) / rows + z * z / (4 * rows * rows)) ** 0.5 / (1 + z * z / rows)
    return middle - half, middle + half


def main(program, files):
    print("| file | label | n | flagged | level 1 decided | us per kB |\n|---|---|---|---|---|---|")
    for name in files:
        path, _, words = name.partition(":")
        opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
        rows = [json.loads(line) for line in opened]
        rows = [row for row in rows if (row.get("category") or "").startswith(words)]
        lines = "".join(
            json.dumps({"id": place, "prompt": row["prompt"], "response": row.get("response")}) + "\n"
            for place, row in enumerate(rows)
        )
        done = subprocess.run([program, "judge"], input=lines, capture_output=True, text=True, check=True)
        judged = [json.loads(line) for line in done.stdout.splitlines()]
        kilobytes = sum(len(row["prompt"].encode()) + len((row.get("response") or "").encode()) for row in rows) / 1000
        speed = sum(verdict["micros"] for verdict in judged) / kilobytes
        kinds = [
            ("prompt_label", lambda verdict: verdict["prompt_harm"] >= 0.5),
            ("response_label", lambda verdict: verdict["unsafe"]),
            ("refusal", lambda verdict: verdict["refusal"] >= 0.5),
        ]
        for kind, flagged in kinds:
            for label in dict.fromkeys(row[kind] for row in rows if row[kind] is not None):
                own = [verdict for row, verdict in zip(rows, judged) if row[kind] == label]
                if kind != "prompt_label" and own[0]["refusal"] is None:
                    continue
                hits = sum(map(flagged, own))
                low, high = wilson(hits, len(own))
                first = sum(verdict["level"] == 1 for verdict in own) / len(own)
                shown = {True: "refusal", False: "no refusal"}.get(label, f"{kind.split('_')[0]} {label}")
                print(
                    f"| {path.split('/')[-1].split('.')[0]} {words} | {shown} | {len(own)} "
                    f"| {100 * hits / len(own):.1f} % [{100 * low:.1f}, {100 * high:.1f}] "
                    f"| {100 * first:.1f} % | {speed:.0f} |",
                    flush=True,
                )


main(sys.argv[1], sys.argv[2:])
