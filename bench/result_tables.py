"""Markdown tables for `docs/results/` from a report's `results.csv`: `python -m bench.result_tables results.csv`.

One table a task: mean over its runs (seed and member of a single fit, seed of an ensemble) on the in-domain test set,
then what confidence tells of every split away from home.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

HOME = {
    "accuracy": "accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "calibrated_nll": "calibrated nll",
    "nll": "nll",
    "brier": "brier",
    "ece": "ece",
}
AWAY = {
    "accuracy": "accuracy",
    "generalisation_gap": "gap",
    "ood_auroc": "AUROC",
    "ood_aupr": "AUPR",
    "ood_fpr95": "FPR95",
}

CONTROL = "random-referral"
"""No method: what referral at random would give."""

Row = Mapping[str, str]


def read(path: Path) -> dict[str, list[Row]]:
    """Task → its rows of a long table."""
    found: dict[str, list[Row]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["task"]].append(row)
    return found


def table(rows: Iterable[Row]) -> str:
    """The table of one task."""
    rows = [row for row in rows if row["method"] != CONTROL]
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    kinds = {row["split"]: row["kind"] for row in rows}
    for row in rows:
        values[row["method"], row["split"], row["metric"]].append(float(row["value"]))
    places = sorted(kinds, key=lambda split: ("id", "ood", "shift").index(kinds[split]))
    columns = [
        (split, metric, title if kinds[split] == "id" else f"{split}: {title}")
        for split in places
        for metric, title in (HOME if kinds[split] == "id" else AWAY).items()
        if any(key[1:] == (split, metric) for key in values)
    ]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    runs = {name: len(values[name, places[0], "accuracy"]) for name in methods}
    lines = ["| method | runs | " + " | ".join(title for *_, title in columns) + " |"]
    lines.append("|---|--:|" + "--:|" * len(columns))
    for name in methods:
        cells = [_cell(values.get((name, split, metric), ())) for split, metric, _ in columns]
        lines.append(f"| {name} | {runs[name]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(found: Sequence[float]) -> str:
    if not found:
        return "–"
    spread = f" ± {stdev(found):.3f}" if len(found) > 1 else ""
    return f"{mean(found):.3f}{spread}"


def main(arguments: Sequence[str]) -> int:
    """Print the tables of every file named."""
    for path in arguments:
        for task, rows in read(Path(path)).items():
            print(f"### {task}\n\n{table(rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
