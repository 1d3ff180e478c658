"""The pitfalls guard: which way a metric is better, and whether it may rank different models at all.

Names of anyone's table are matched with the registered metrics whatever their case and hyphens; ``Acc`` is accuracy. A
metric that must not rank models is ranked only when it is asked for by name, and never without the reason why it
should not be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dubio.core.errors import UserError, check_known, nearest, one_of
from dubio.core.registry import METRICS
from dubio.core.types import Direction, Metric
from dubio.metrics.metric import metric_named

SPELLINGS = {
    "acc": "accuracy", "err": "error", "log_loss": "nll", "logloss": "nll", "cross_entropy": "nll",
    "negative_log_likelihood": "nll", "brier_score": "brier",
}  # fmt: skip
"""What tables often call a registered metric."""

HIGHER = frozenset({
    "auroc", "auc", "aucroc", "rocauc", "aupr", "auprc", "ap", "map", "f1", "precision", "recall", "sensitivity",
    "specificity", "accuracy", "acc", "kappa", "mcc", "r2", "iou", "miou", "dice", "bleu", "rouge", "ndcg", "mrr",
    "likelihood", "ll", "top1", "top5", "em",
})  # fmt: skip
LOWER = frozenset({
    "error", "err", "fpr", "fpr95", "fnr", "ece", "mce", "ace", "sce", "tace", "nll", "brier", "rmse", "mse", "mae",
    "mape", "loss", "logloss", "entropy", "perplexity", "ppl", "crps", "rps", "aurc", "eaurc", "augrc", "wer",
    "cer", "eer",
})  # fmt: skip
"""Words in names of metrics that state which way is better."""

NO_SCORE = frozenset({"std", "sd", "se", "sem", "var", "ci", "low", "high", "lower", "upper", "n", "rank", "standard"})
"""Words in names of columns beside a score, such as its standard deviation."""


@dataclass(frozen=True)
class Chosen:
    """The metrics a comparison goes by.

    Attributes:
        metrics: Metric to which way is better.
        cautions: For each ranked metric that should not rank models, the reason.
        left_out: For each metric of the table that is not ranked, the reason.
    """

    metrics: dict[str, Direction]
    cautions: dict[str, str]
    left_out: dict[str, str]


def known_metric(name: str) -> Metric | None:
    """Return the registered metric that a name in a table refers to, or None."""
    head, bracket, arguments = name.strip().partition("(")
    plain = re.sub(r"[\s-]+", "_", re.sub(r"[↑↓.%]", "", head).strip().lower())
    plain = SPELLINGS.get(plain, plain)
    call = bracket + arguments if "=" in arguments else ""  # "accuracy (%)" states a unit
    return metric_named(plain + call) if plain in METRICS.names() else None


def direction_of(name: str) -> Direction | None:
    """Return which way a metric of anyone's table is better, by its registered name, an arrow or its parts; else None.

    ``Test Acc. ↑``, ``FPR@95``, ``roc-auc`` and ``macro_F1`` are understood; a name whose parts disagree is not.
    """
    if (metric := known_metric(name)) is not None:
        return metric.better
    if "↑" in name or "↓" in name:
        return "higher" if "↑" in name else "lower"
    parts = re.findall(r"[a-z]+\d*", name.lower())
    ways: set[Direction] = {"higher" for word in parts if word in HIGHER}
    ways |= {"lower" for word in parts if word in LOWER}
    if len(ways) != 1 or NO_SCORE.intersection(parts):
        return None
    (way,) = ways
    negated = parts[0] in ("neg", "negative")
    return way if not negated else "lower" if way == "higher" else "higher"


def choose(
    present: Sequence[str],
    requested: Sequence[str],
    directions: Mapping[str, Direction],
    refused: Mapping[str, str] | None = None,
) -> Chosen:
    """Decide what to compare by.

    Args:
        present: The metrics of the table.
        requested: Those the user named; none means all that may rank models.
        directions: Directions the user gave; they overrule the registry.
        refused: Metric to the reason why it ranks nothing, where the table itself says so.

    Raises:
        UserError: For a metric that is not in the table, or whose direction is not known.
    """
    check_known("metric in the table of results", (*requested, *directions), present)
    names = tuple(dict.fromkeys(requested or present))
    registered = {name: known_metric(name) for name in names}
    reasons = {name: own.why_not for name, own in registered.items() if own is not None and not own.comparable}
    reasons |= {name: reason for name, reason in (refused or {}).items() if name in registered}
    better = {name: direction for name in names if (direction := direction_of(name)) is not None}
    better |= {name: direction for name, direction in directions.items() if name in registered}
    aimless = [name for name in names if name not in better]
    if requested:
        if aimless:
            raise UserError(f"metric {aimless[0]!r}: {_unknown_direction(aimless[0])}")
        return Chosen({name: better[name] for name in names}, reasons, {})
    left_out = {name: _unknown_direction(name) for name in aimless} | reasons
    metrics = {name: better[name] for name in names if name not in left_out}
    if not metrics:
        sentences = " ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise UserError(f"no metric of this table ranks models by itself; name one with --metric. {sentences}")
    return Chosen(metrics, {}, left_out)


def parse_direction(text: str) -> tuple[str, Direction]:
    """Parse ``METRIC=lower`` or ``METRIC=higher`` into a pair.

    Raises:
        UserError: For another form or direction.
    """
    name, equals, direction = text.rpartition("=")
    if not equals or not name:
        raise UserError(f"--better must be METRIC=higher or METRIC=lower; given {text!r}.")
    one_of("--better", direction.strip(), ("higher", "lower"))
    return name.strip(), "higher" if direction.strip() == "higher" else "lower"


def _unknown_direction(name: str) -> str:
    like = nearest(name, METRICS.names())
    hint = f" (the nearest metric dubio knows is {like!r})" if like else ""
    return f"its direction is not known{hint}; give --better {name}=higher or {name}=lower."
