"""Markdown tables of a run's scores: one row per method, mean ± standard deviation over its runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import isnan
from statistics import mean, stdev

from dubio.metrics.referral_curve import FRACTIONS
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.measures import AT_IN_DOMAIN_TEMPERATURE, RANKED_BY, referral_name
from dubio.reporting.score_table import Score, ScoreTable
from dubio.reporting.wording import RANDOM

IN_DOMAIN = {
    "accuracy": "accuracy",
    referral_name("referral_auc", max(FRACTIONS)): "AUC",
    "quadratic_kappa": "quadratic kappa",
    "rps": "rps",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "calibrated_nll": "calibrated nll",
    "nll": "nll",
    "brier": "brier",
    "ece": "ece",
}
SHIFTED = {
    "accuracy": "accuracy",
    "generalisation_gap": "gap",
    "ood_auroc": "AUROC",
    "ood_aupr": "AUPR",
    "ood_fpr95": "FPR95",
}

KINDS = ("id", "ood", "shift")


def score_table(scores: Iterable[Score]) -> str:
    """Return the table of one task: the in-domain test set, then the shifted and OOD ones."""
    rows = [score for score in scores if score.method != RANDOM and score.kind in KINDS]
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    kinds = {row.split: row.kind for row in rows}
    for row in rows:
        values[row.method, row.split, row.metric].append(row.value)
    splits = sorted(kinds, key=lambda split: KINDS.index(kinds[split]))
    columns = [
        (split, metric, title if kinds[split] == "id" else f"{split}: {title}")
        for split in splits
        for metric, title in (IN_DOMAIN if kinds[split] == "id" else SHIFTED).items()
        if any(key[1:] == (split, metric) for key in values)
    ]
    body = [
        [method, str(max(len(values.get((method, *column[:2]), ())) for column in columns)),
         *(spread_text(values.get((method, *column[:2]), ())) for column in columns)]
        for method in dict.fromkeys(row.method for row in rows)
    ]  # fmt: skip
    return markdown_table(["method", "runs", *(title for *_, title in columns)], body)


def severity_table(scores: ScoreTable, task: TaskView) -> str:
    """Return the table of a task with many corruptions: means at three severities, then OOD sets.

    Every corruption in every severity would be a column of its own, hundreds in all. NLL is at the temperature of the
    in-domain test set: a deployed model is not recalibrated when its inputs get worse.
    """
    levels = [[split.name for split in splits] for splits in zip(*task.severities.values(), strict=False)]
    shown = sorted({0, len(levels) // 2, len(levels) - 1})
    columns = [("accuracy", [task.in_domain.name], "accuracy"), ("calibrated nll", [task.in_domain.name], RANKED_BY)]
    columns += [(f"severity {i + 1}: accuracy", levels[i], "accuracy") for i in shown]
    columns += [(f"severity {i + 1}: nll", levels[i], AT_IN_DOMAIN_TEMPERATURE) for i in shown]
    columns += [(f"{split.name}: AUROC", [split.name], "ood_auroc") for split in task.of_kind("ood")]
    body = []
    for method in scores.methods_of(task):
        cells = [scores.average(task, splits, method.name, metric) for _, splits, metric in columns]
        runs = max(0 if cell is None else cell.n for cell in cells)
        texts = [spread_text(() if cell is None else cell.values) for cell in cells]
        body.append([method.name, str(runs), *texts])
    return markdown_table(["method", "runs", *(title for title, *_ in columns)], body)


def markdown_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is left-aligned and whose others are right-aligned."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in body)])


def spread_text(values: Sequence[float], places: int = 3) -> str:
    """Return the mean of values, with their standard deviation where there are several; a dash for none."""
    if not values:
        return "–"
    spread = f" ± {stdev(values):.{places}f}" if len(values) > 1 else ""
    return f"{mean(values):.{places}f}{spread}"


def interval_text(value: float, low: float, high: float, *, signed: bool = True, places: int = 3) -> str:
    """Return a value with its interval, where that is defined."""
    form = f"+.{places}f" if signed else f".{places}f"
    if isnan(low):
        return f"{value:{form}} (no interval)"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"
