"""TF-IDF and logistic regression on the rows that the linear judge learned from, as a baseline.

    waltz train judge --out /tmp/judge --rows /tmp/judge/rows
    pip install scikit-learn
    python benches/judge/baseline.py /tmp/judge/rows

Words and pairs of words, sublinear counts, balanced classes, the same weights of rows, the same sources held
back. The threshold is set on the validation rows as the judge's is: where F1 is highest, every source counting
alike within its kind.
"""

import json
import pathlib
import sys

import numpy
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

HEADS = [("prompt", "harmful", 0.45), ("response", "is_unsafe", 0.2), ("refusal", "refusal", 0.35)]
LONGEST = 3000


def text_of(head, row):
    if head == "prompt":
        return row["prompt"][:LONGEST]
    if head == "refusal":
        return row["response"][:LONGEST]
    return row["prompt"][:LONGEST] + "\n" + row["response"][:LONGEST]


def labelled(head, label, rows):
    return [row for row in rows if row[label] is not None and (head == "prompt" or row["response"] is not None)]


def threshold(rows, label, scores, prior):
    weights = numpy.zeros(len(rows))
    for truth in (False, True):
        of_kind = [index for index, row in enumerate(rows) if row[label] == truth]
        sources = {rows[index]["source"] for index in of_kind}
        for index in of_kind:
            same = sum(rows[other]["source"] == rows[index]["source"] for other in of_kind)
            weights[index] = (prior if truth else 1 - prior) / (len(sources) * same)
    order = numpy.argsort(-scores)
    truths = numpy.array([row[label] for row in rows])[order]
    found = numpy.cumsum(weights[order] * truths)
    wrong = numpy.cumsum(weights[order] * ~truths)
    return scores[order][numpy.argmax(2 * found / (found + wrong + prior))]


def main(folder):
    parts = {
        name: [json.loads(line) for line in (folder / f"{name}.jsonl").open()]
        for name in ("taught", "validation", "held")
    }
    print("| source | head | n+ | n- | F1 | AUC | recall | false positives |\n|---|---|---|---|---|---|---|---|")
    for head, label, prior in HEADS:
        taught = labelled(head, label, parts["taught"])
        vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2, max_features=300_000)
        features = vectors.fit_transform(text_of(head, row) for row in taught)
        model = LogisticRegression(C=10, class_weight="balanced", solver="liblinear", max_iter=300)
        model.fit(features, [row[label] for row in taught], sample_weight=[row["weight"] for row in taught])

        def score(rows):
            return model.decision_function(vectors.transform(text_of(head, row) for row in rows))

        validation = labelled(head, label, parts["validation"])
        edge = threshold(validation, label, score(validation), prior)
        rows = validation + labelled(head, label, parts["held"])
        for source in dict.fromkeys(row["source"] for row in rows):
            own = [row for row in rows if row["source"] == source]
            truths = numpy.array([row[label] for row in own])
            scores = score(own)
            said = scores >= edge
            positives, negatives = int(truths.sum()), int((~truths).sum())
            found, wrong = int((said & truths).sum()), int((said & ~truths).sum())
            f1 = f"{2 * found / (found + wrong + positives):.3f}" if positives else "-"
            auc = f"{roc_auc_score(truths, scores):.3f}" if positives and negatives else "-"
            recall = f"{found / positives:.3f}" if positives else "-"
            alarms = f"{100 * wrong / negatives:.1f} %" if negatives else "-"
            print(f"| {source} | {head} | {positives} | {negatives} | {f1} | {auc} | {recall} | {alarms} |", flush=True)


main(pathlib.Path(sys.argv[1]))
