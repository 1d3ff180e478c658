"""The study as one JSON document."""

from __future__ import annotations

import math
from typing import Any

from dubio.reporting.results import Results
from dubio.studies.ensembles.conclusions import conclusions
from dubio.studies.ensembles.prefixes import MEASURES
from dubio.studies.ensembles.published import agreements, order_of
from dubio.studies.ensembles.study import SCORED, Line, Study


def study_document(results: Results) -> dict[str, Any]:
    """Curves and equivalents of every method on every task, and what they say to P's conclusions; empty without any."""
    studies = list(results.studies.values())
    if not studies:
        return {}
    return {
        "tasks": [
            {
                "task": study.task.key,
                "networks": len(study.growth),
                "compared_with_samples": study.equal,
                "methods": [_line(study, line) for line in study.lines],
                "published": published_document(study),
            }
            for study in studies
        ],
        "conclusions": [
            {
                "statement": claim.statement,
                "where": claim.where,
                "outcome": claim.outcome,
                "evidence": [vars(each) for each in claim.evidence],
            }
            for claim in conclusions(studies)
        ],
    }


def _line(study: Study, line: Line) -> dict[str, Any]:
    """Means over runs; an equivalent beyond the longest ensemble, and an infinite mean, is null."""
    return {
        "method": line.name,
        "without_augmentation": line.base if line.augmented else None,
        "samples": list(line.sizes),
        "runs": len(line.values),
        "mean": {measure: [_finite(float(value)) for value in line.mean(measure)] for measure in MEASURES},
        "deep_ensemble_equivalent": {
            score: [
                {part: _finite(getattr(worth, part).size) for part in ("lower", "central", "upper")}
                for worth in study.equivalents(line, score)
            ]
            for score in SCORED
        },
    }


def published_document(study: Study) -> dict[str, Any]:
    """P's numbers beside ours where they can be compared, and the order of methods in both."""
    order = order_of(study)
    return {
        "numbers": [
            {
                "method": each.line.name,
                "measure": each.published.metric,
                "samples": each.published.samples,
                "ours": _finite(each.ours.mean),
                "published": each.published.value,
            }
            for each in agreements(study)
        ],
        "order": None
        if order is None
        else {
            "network": order.network,
            "samples": {"here": order.here, "published": order.there},
            "calibrated_nll": {"here": dict(order.values.before), "published": dict(order.values.after)},
            "kendall_tau": order.values.tau,
            "reversed": [list(pair) for pair in order.reversed],
            "reversed_and_told_apart": [list(pair) for pair in order.surely],
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
