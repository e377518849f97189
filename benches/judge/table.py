#!/usr/bin/env python3
"""The tables of docs/judge.md: every table source through `waltz judge`, with levels 0+1, with 2a, and with 2a and 2b.

python3 benches/judge/table.py --waltz target/release/waltz --data ../shared/data --rows 400 --out DIR

Rows are drawn by seed from the sources that models/judge/sources.toml keeps for tables. Nothing is trained, calibrated or
chosen here. `--out` keeps what each configuration said, so that a run that was cut goes on.
"""
import argparse, gzip, json, math, pathlib, random, subprocess, tomllib

CONFIGS = {
    "0+1": '[judge]\nencoder = false\nneural = "off"\n',
    "+2a": '[judge]\nneural = "off"\ntimeout_ms = 60000\n',
    "+2b": '[judge]\nneural = "on"\ntimeout_ms = 60000\n',
}
HEADS = {"prompt": "prompt_harm", "response": "response_harm", "refusal": "refusal"}


def rows_of(data, name, most, seed):
    path = data / f"{name}.jsonl"
    lines = open(path, encoding="utf-8") if path.exists() else gzip.open(f"{path}.gz", "rt", encoding="utf-8")
    rows = [json.loads(line) for line in lines]
    random.Random(f"{seed} {name}").shuffle(rows)
    return rows[:most]


def truths(row):
    label = lambda key, yes, no: {yes: True, no: False}.get(row[key])
    return {
        "prompt": label("prompt_label", "harmful", "benign"),
        "response": label("response_label", "unsafe", "safe") if row["response"] else None,
        "refusal": row["refusal"] if row["response"] else None,
    }


def wilson(hits, n, z=1.959964):
    if n == 0:
        return (0.0, 1.0)
    share, scale = hits / n, 1 + z * z / n
    middle = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    return (max(0.0, middle - half), min(1.0, middle + half))


def area(scored):
    ordered = sorted(scored)
    positives = sum(truth for _, truth in ordered)
    negatives = len(ordered) - positives
    if not positives or not negatives:
        return None
    total, at = 0.0, 0
    while at < len(ordered):
        end = at
        while end < len(ordered) and ordered[end][0] == ordered[at][0]:
            end += 1
        total += (at + end + 1) / 2 * sum(truth for _, truth in ordered[at:end])
        at = end
    return (total - positives * (positives + 1) / 2) / (positives * negatives)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waltz", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--sources", default="models/judge/sources.toml")
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--levels", default="0+1,+2a,+2b")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    levels = args.levels.split(",")
    sources = tomllib.load(open(args.sources, "rb"))["source"]
    names = [one["name"] for one in sources if one["half"] == "table" and not one.get("injection")]
    print("| source | head | n+ | n- | " + " | ".join(f"F1 {level} | AUC {level} | false positives {level}" for level in levels) + " |")
    print("|---" * (4 + 3 * len(levels)) + "|")
    costs = {level: [] for level in levels}
    for name in names:
        rows = rows_of(args.data, name, args.rows, args.seed)
        said = {level: judged(args, level, name, rows) for level in levels}
        for level in levels:
            costs[level] += [(name, one["level"], one["micros"]) for one in said[level]]
        for head, field in HEADS.items():
            known = [(index, truths(row)[head]) for index, row in enumerate(rows) if truths(row)[head] is not None]
            if not known:
                continue
            positives = sum(truth for _, truth in known)
            cells = []
            for level in levels:
                scored = [(said[level][index][field], truth) for index, truth in known]
                found = sum(1 for score, truth in scored if truth and score >= 0.5)
                wrong = sum(1 for score, truth in scored if not truth and score >= 0.5)
                negatives = len(known) - positives
                f1 = f"{2 * found / (found + wrong + positives):.3f}" if positives else "-"
                auc = area(scored)
                low, high = wilson(wrong, negatives)
                alarms = f"{100 * wrong / negatives:.1f} % [{100 * low:.1f}, {100 * high:.1f}]" if negatives else "-"
                cells += [f1, "-" if auc is None else f"{auc:.3f}", alarms]
            print(f"| {name} | {head} | {positives} | {len(known) - positives} | " + " | ".join(cells) + " |", flush=True)
    print()
    for level in levels:
        micros = sorted(cost for _, _, cost in costs[level])
        deep = sum(1 for _, reached, _ in costs[level] if reached >= 2) / max(1, len(micros))
        ordinary = [reached for source, reached, _ in costs[level] if source in ("alpaca_prompts", "alpaca_eval_outputs")]
        share = sum(1 for reached in ordinary if reached >= 2) / max(1, len(ordinary))
        print(f"{level}: {len(micros)} rows, median {micros[len(micros) // 2]} us, p95 {micros[len(micros) * 95 // 100]} us; "
              f"level 2 read {100 * deep:.0f} % of all and {100 * share:.0f} % of ordinary rows")


def judged(args, level, name, rows):
    path = args.out / f"{name}.{level}.jsonl"
    if not path.exists():
        config = args.out / f"{level}.toml"
        config.write_text(CONFIGS[level])
        lines = "".join(
            json.dumps({"id": index, "prompt": row["prompt"], **({"response": row["response"]} if row["response"] else {})}) + "\n"
            for index, row in enumerate(rows)
        )
        command = [args.waltz, "judge", "--config", str(config), "--data", str(args.out / "store")]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
        path.write_text(done.stdout)
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
