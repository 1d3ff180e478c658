"""The tables and sentences that ``dubio evaluate`` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dubio.evaluation import Evaluation, Score, SystemComparison
    from dubio.statistics.verdicts import PairTest

FEW = 3
"""Up to this many systems every pair is printed; of more, those with the best one of each metric."""

SAME = "not significant"


def print_scores(results: dict[str, Evaluation]) -> None:
    """Print every metric of every system, with intervals; the best value of a metric that may rank is bold."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    first = next(iter(results.values()))
    ood_rows = (
        f" + {first.ood_rows} out of distribution" if first.ood_rows and first.ood_rows < len(first.predictions) else ""
    )
    table = Table(title=f"{first.rows} rows{ood_rows}, {first.classes} classes, {first.target}")
    table.add_column("metric", no_wrap=True)
    for name in results:
        table.add_column(escape(name), justify="right")
    for metric in dict.fromkeys(name for result in results.values() for name in result.scores):
        scores = [result.scores.get(metric) for result in results.values()]
        best = _best([score for score in scores if score is not None]) if len(results) > 1 else None
        arrow = {"higher": " ↑", "lower": " ↓"}[next(score.better for score in scores if score is not None)]
        table.add_row(metric + arrow, *(_cell(score, best) for score in scores))
    Console().print(table)


def print_pairs(results: dict[str, Evaluation], pairs: SystemComparison | None) -> None:
    """Print every pair of systems by every metric that ranks: difference, interval, p, resolution, verdict."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if pairs is None or not pairs.tests:
        return
    title = "Pairs of systems on the same examples: first − second"
    table = Table(title=title, box=SIMPLE, pad_edge=False, collapse_padding=True)
    table.add_column("metric", no_wrap=True)
    table.add_column("pair")
    for heading in ("difference", "p (Holm)", "detectable"):
        table.add_column(heading, justify="right")
    table.add_column("verdict", min_width=max(map(len, SAME.split())))
    for metric, tests in pairs.tests.items():
        for test in tests if len(results) <= FEW else _with_best(metric, tests, results):
            table.add_row(
                metric,
                escape(f"{test.first} − {test.second}"),
                f"{test.difference:+.4f} [dim]({_number(test.low)}, {_number(test.high)})[/dim]",
                f"{test.adjusted_p:.3g}",
                _number(test.resolves),
                escape(f"{test.better} is better") if test.better else SAME,
            )
    Console().print(table)


def _with_best(metric: str, tests: tuple[PairTest, ...], results: dict[str, Evaluation]) -> list[PairTest]:
    best = _best([result.scores[metric] for result in results.values()])
    names = {name for name, result in results.items() if result.scores[metric].value == best}
    return [test for test in tests if {test.first, test.second} & names]


def print_detection(results: dict[str, Evaluation]) -> None:
    """Print how well every quantity detects out-of-distribution rows, one table per system."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    for name, result in results.items():
        if not result.detection:
            continue
        table = Table(title=f"{escape(name)}: detection of out-of-distribution rows by quantity")
        table.add_column("quantity", no_wrap=True)
        for heading in ("AUROC ↑", "AUPR ood ↑", "AUPR id ↑", "FPR95 ↓", "corr."):
            table.add_column(heading, justify="right")
        for quantity, detection in result.detection.items():
            figures = (detection.auroc, detection.aupr_ood, detection.aupr_id, detection.fpr95, detection.correlation)
            table.add_row(quantity, *("undefined" if math.isnan(figure) else _number(figure) for figure in figures))
        Console().print(table)


def _best(scores: list[Score]) -> float | None:
    """Return the best value of a metric that ranks, if it differs between systems."""
    values = {score.value for score in scores if not math.isnan(score.value)}
    if len(values) < 2 or not scores[0].comparable:
        return None
    return max(values) if scores[0].better == "higher" else min(values)


def _cell(score: Score | None, best: float | None) -> str:
    if score is None:
        return "–"
    if math.isnan(score.value):
        return "undefined"
    text = _number(score.value)
    if not math.isnan(score.low):
        text += f" [dim]({_number(score.low)}, {_number(score.high)})[/dim]"
    return f"[bold]{text}[/bold]" if score.value == best else text


def _number(value: float) -> str:
    """Return four decimals, or three digits of a small number."""
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def notes_on(results: dict[str, Evaluation], pairs: SystemComparison | None) -> list[str]:
    """Return one sentence for each reason not to rank a metric, and how the numbers were computed."""
    first = next(iter(results.values()))
    notes = []
    if first.unlabelled:
        notes.append(f"{first.unlabelled} unlabelled rows are left out of metrics that need labels.")
    if first.replicates:
        notes.append(f"In brackets: {first.level:.0%} bootstrap intervals, {first.replicates} replicates over "
                     f"{first.resampled}, seed {first.seed}.")  # fmt: skip
    if first.detection:
        share = first.ood_rows / len(first.predictions)
        notes.append(
            f"Areas under precision–recall curves depend on the share of out-of-distribution rows, here {share:.3f}."
        )
    if len(results) > 1:
        notes.append("Bold: the best value. It need not be better than the others by more than chance.")
    if pairs is not None and pairs.tests:
        notes.extend(_notes_on_pairs(pairs, len(results)))
    reasons: dict[str, list[str]] = {}
    for name, score in first.scores.items():
        if not score.comparable:
            reasons.setdefault(score.why_not, []).append(name)
    notes.extend(f"Not ranked: {', '.join(names)}. {reason}" for reason, names in reasons.items())
    return notes


def _notes_on_pairs(pairs: SystemComparison, systems: int) -> list[str]:
    from dubio.evaluation import pairs_remark

    notes = [pairs_remark(pairs.level)]
    if systems > FEW:
        notes.append("Only pairs with the best system of each metric are printed; --json has all.")
    for (first, second), test in pairs.mcnemar.items() if systems <= FEW else ():
        notes.append(f"McNemar: only {first} is right on {test.only_first} examples, only {second} on "
                     f"{test.only_second}; exact p = {test.p:.3g}.")  # fmt: skip
    return notes
