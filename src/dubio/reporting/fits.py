"""What the records of single trainings tell beyond their cost: when they converged, and with which rates.

The multiplier of spectral normalisation is read from the recipe that was fitted, never from a method's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dubio.core.errors import DubioError
from dubio.reporting.manifest_view import Manifest, Source

SPECTRAL = "spectral_norm"
"""The part of a recipe that bounds how far a layer stretches its inputs."""

LEARNED = "concrete_dropout"
"""The part of a recipe that learns its rates."""


@dataclass(frozen=True)
class FitFacts:
    """One training.

    Attributes:
        best_epoch: The epoch whose weights were kept, where the record tells.
        rates: Site → drop rate, where they were learned.
        spectral: The multiplier s of spectral normalisation, where there is one.
        otherwise: The recipe without that multiplier: fits that share it differ in s alone.
    """

    best_epoch: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    spectral: float | None = None
    otherwise: str = ""


def fit_facts(store: Source, view: Manifest, records: Mapping[str, Mapping[str, Any]]) -> dict[str, FitFacts]:
    """Fit id → what is known of it, for every fit of a run.

    Args:
        store: Where the specifications are.
        view: The benchmark run.
        records: Records already read, by id.
    """
    wanted = {fit for run in view.runs for fit in run.fits}
    return {fit: _facts(records.get(fit) or {}, _recipe(store, fit)) for fit in sorted(wanted)}


def _facts(record: Mapping[str, Any], recipe: Mapping[str, Any]) -> FitFacts:
    epoch, edits = record.get("best_epoch"), recipe.get("edits") or []
    spectral = [edit["s"] for edit in edits if edit.get("part") == SPECTRAL and _is_number(edit.get("s"))]
    learned = any(edit.get("part") == LEARNED for edit in edits)
    rates = {str(site): float(rate) for site, rate in (record.get("rates") or {}).items() if _is_number(rate)}
    bare = [
        {key: value for key, value in edit.items() if key != "s"} if edit.get("part") == SPECTRAL else edit
        for edit in edits
    ]
    return FitFacts(
        best_epoch=float(epoch) if _is_number(epoch) and epoch is not None else None,
        rates=rates if learned else {},
        spectral=float(spectral[0]) if spectral else None,
        otherwise=json.dumps({**recipe, "edits": bare}, sort_keys=True),
    )


def _recipe(store: Source, fit: str) -> Mapping[str, Any]:
    """The recipe of a fit; of one whose specification cannot be read, or that has none, nothing is known."""
    try:
        recipe = store.spec("fits", fit).get("recipe")
    except DubioError:
        return {}
    return recipe if isinstance(recipe, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
