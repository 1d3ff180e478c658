"""What is found about referral and subgroups as plain values, for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dubio.metrics.referral_curve import FRACTIONS
from dubio.reporting.results import Results
from dubio.studies.retina.tables import nhs_cell


def gains_document(results: Results) -> list[dict[str, Any]]:
    """The area under the referral curve of every method on every split, and its gain over random referral."""
    return [
        {
            "task": task,
            "split": split,
            "method": method,
            "area": asdict(gain.area),
            "gain": asdict(gain.gain),
            "resampled": gain.units,
            "replicates": gain.replicates,
            "excludes_zero": gain.excludes_zero,
            "nhs": {f"{f:g}": nhs_cell(found.retained[split, method], at).text for at, f in enumerate(FRACTIONS)},
        }
        for task, found in results.screening.items()
        for (split, method), gain in found.gains.items()
    ]


def subgroups_document(results: Results) -> list[dict[str, Any]]:
    """Calibration of every method on every part of a test set."""
    return [
        {"task": task, "split": split, "fact": fact, "value": value, "method": method, **asdict(part),
         "underpowered": part.underpowered}
        for task, found in results.screening.items()
        for (split, fact, value, method), part in found.subgroups.items()
    ]  # fmt: skip
