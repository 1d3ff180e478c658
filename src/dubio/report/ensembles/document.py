"""The study as one JSON document."""

from __future__ import annotations

import math
from typing import Any

from dubio.report.ensembles.conclusions import conclusions
from dubio.report.ensembles.prefixes import MEASURES
from dubio.report.ensembles.study import SCORED, Line, Study
from dubio.report.results import Results


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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
