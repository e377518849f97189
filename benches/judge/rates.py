"""What the cascade says about files of labelled rows: `waltz judge` on at most so many rows of each, spread evenly.

    WALTZ_MODELS=FOLDER python benches/judge/rates.py target/release/waltz 500 ../shared/data/beavertails.jsonl ...

Without the model `smollm2` levels 0 and 1 decide. Prints for each file and label that people gave: rows of both kinds, F1,
recall and false positives with Wilson's 95 % interval; and for each file the share of rows that each level decided and
the time of a row. `FILE:words` keeps only rows whose category begins with these words.
"""

import gzip
import json
import subprocess
import sys


def wilson(hits, rows, z=1.959964):
    if rows == 0:
        return "-"
    share = hits / rows
    middle = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z * (share * (1 - share) / rows + z * z / (4 * rows * rows)) ** 0.5 / (1 + z * z / rows)
    return f"{100 * share:.1f} % [{100 * (middle - half):.1f}, {100 * (middle + half):.1f}]"


def sample(path, words, most):
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    rows = [row for row in map(json.loads, opened) if (row.get("category") or "").startswith(words)]
    step = max(1, len(rows) / most)
    return [rows[int(place * step)] for place in range(min(most, len(rows)))]


def main(program, most, files):
    tables = ["| file | label | n+ | n- | F1 | recall | false positives |\n|---|---|---|---|---|---|---|"]
    levels = ["| file | n | level 0 | level 1 | level 2 | ms, median | ms, 95 % |\n|---|---|---|---|---|---|---|"]
    for name in files:
        path, _, words = name.partition(":")
        rows = sample(path, words, most)
        title = f"{path.split('/')[-1].split('.')[0]} {words}".strip()
        lines = "".join(
            json.dumps({"id": place, "prompt": row["prompt"], "response": row.get("response")}) + "\n"
            for place, row in enumerate(rows)
        )
        done = subprocess.run([program, "judge"], input=lines, capture_output=True, text=True, check=True)
        judged = [json.loads(line) for line in done.stdout.splitlines()]
        kinds = [
            ("prompt_label", "prompt", {"harmful": True, "benign": False}, lambda said: said["prompt_harm"]),
            ("response_label", "answer", {"unsafe": True, "safe": False}, lambda said: said["response_harm"]),
            ("refusal", "refusal", {True: True, False: False}, lambda said: said["refusal"]),
        ]
        for key, shown, truths, score in kinds:
            pairs = [
                (truths[row[key]], score(said) >= 0.5)
                for row, said in zip(rows, judged)
                if row[key] in truths and score(said) is not None
            ]
            positive, negative = sum(truth for truth, _ in pairs), sum(not truth for truth, _ in pairs)
            if not pairs:
                continue
            found = sum(truth and said for truth, said in pairs)
            false = sum(said and not truth for truth, said in pairs)
            f1 = f"{2 * found / (2 * found + false + positive - found):.3f}" if positive and negative else "-"
            tables.append(
                f"| {title} | {shown} | {positive} | {negative} | {f1} | {wilson(found, positive)} "
                f"| {wilson(false, negative)} |"
            )
        shares = [f"{100 * sum(said['level'] == level for said in judged) / len(judged):.1f} %" for level in range(3)]
        times = sorted(said["micros"] / 1000 for said in judged)
        levels.append(
            f"| {title} | {len(rows)} | {' | '.join(shares)} | {times[len(times) // 2]:.2f} "
            f"| {times[int(len(times) * 0.95)]:.0f} |"
        )
    print("\n".join(tables) + "\n\n" + "\n".join(levels))


main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
