"""Fit the policy with the largest coverage whose selective risk is bounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dubio.core.draws import Numbers, unit_numbers
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.decisions import correct
from dubio.referral.bounds import binomial_p
from dubio.referral.calibration_set import CalibrationSet, usable_rows
from dubio.referral.fixed_sequence import FixedSequences
from dubio.referral.group_search import threshold_search
from dubio.referral.policy import Policy
from dubio.referral.units import Claim, Units, units_of


class NoGuarantee(UserError):
    """No threshold meets the requested bound.

    Attributes:
        upper: The lowest bound on the error that can be guaranteed; 1 where there is none.
        coverage: Share of calibration rows retained at that bound.
    """

    def __init__(self, message: str, upper: float, coverage: float) -> None:
        super().__init__(message)
        self.upper, self.coverage = upper, coverage


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: a threshold, or the best bound where none meets the target.

    Attributes:
        threshold: The largest that passed, or None.
        upper: Where there is none, the lowest bound on the error that can be guaranteed.
        coverage: Share of rows retained at the threshold, or at that bound.
        error: Observed error there.
        evidence: Further numbers.
    """

    threshold: float | None
    upper: float
    coverage: float
    error: float
    evidence: dict[str, float]


def fit_risk_policy(
    calibration: Predictions,
    *,
    max_risk: float,
    confidence: float = 0.95,
    quantity: str = "confidence",
    seed: int = 0,
    allow_selected: bool = False,
) -> Policy:
    """Retain as much as possible with an error among the retained below ``max_risk``.

    With probability at least ``confidence`` over calibration sets, P(wrong | retained) < max_risk for new rows like
    these, by exact binomial bounds; :mod:`dubio.referral.fixed_sequence` has the procedure and the proof. Where
    ``group`` is given the risk is that of a group: the share of a group's retained rows that are wrong, averaged over
    groups that have any; see :mod:`dubio.referral.group_search`.

    Args:
        calibration: Labelled predictions that neither training nor selection has seen. Multi-label rows are wrong
            unless the whole set of labels is right.
        max_risk: The bound, between 0 and 1.
        confidence: Between 0 and 1.
        quantity: The uncertainty to refer by.
        seed: Seed of the split of groups into design and test.
        allow_selected: Accept a training or validation split; the guarantee then does not hold.

    Raises:
        NoGuarantee: When no threshold meets the bound, with the best that could be guaranteed.
        UserError: For a split or a value that is not allowed.
    """
    rows = usable_rows(calibration, allow_selected, "a bound on the error")
    source = CalibrationSet(*rows, "risk", {"max_risk": max_risk}, confidence, quantity, seed)
    wrong = 1.0 - correct(source.predictions)
    units = units_of(source.predictions, quantity)
    if units.single:
        result = _among_rows(units, wrong, max_risk, 1.0 - confidence)
    else:
        numbers = unit_numbers(source.predictions, seed=seed, purpose="design")
        result = _among_groups(units, wrong, max_risk, 1.0 - confidence, numbers)
    if result.threshold is None:
        raise NoGuarantee(_refusal(result, units, max_risk, confidence), result.upper, result.coverage)
    rate = "error among the retained" if units.single else "mean over groups of the error among their retained rows"
    evidence = {"coverage": result.coverage, "error": result.error, "error_without_referral": float(wrong.mean())}
    guarantee = (
        f"With {confidence:.4g} confidence the {rate} is below {max_risk:.4g}, for new data like the calibration data."
    )
    return source.policy(result.threshold, guarantee, evidence | result.evidence)


def _among_rows(units: Units, wrong: FloatArray, risk: float, level: float) -> SearchResult:
    sequences = FixedSequences.over(units.uncertainty, wrong, risk=risk, level=level)
    chosen = sequences.largest()
    if chosen is None:
        upper, best = sequences.best_bound()
        return SearchResult(None, upper, best.retained / units.count, best.error, {"retained": float(best.retained)})
    p_value = binomial_p(chosen.error, chosen.retained, risk)
    evidence = {"retained": float(chosen.retained), "wrong": float(chosen.wrong), "p_value": p_value}
    return SearchResult(chosen.threshold, risk, chosen.retained / units.count, chosen.error, evidence)


def _among_groups(units: Units, wrong: FloatArray, risk: float, level: float, numbers: Numbers) -> SearchResult:
    claim = Claim("error", np.ones(len(wrong), dtype=bool), wrong, risk)
    search = threshold_search(units, (claim,), level=level, numbers=numbers)
    chosen = search.largest()
    threshold = search.nearest_miss() if chosen is None else chosen
    estimate = search.estimate(claim, threshold)
    evidence = {**search.facts(threshold), "retained_groups": float(estimate.units)}
    upper = search.upper(claim, threshold)
    return SearchResult(chosen, upper, search.coverage(threshold), estimate.mean, evidence)


def _refusal(result: SearchResult, units: Units, risk: float, confidence: float) -> str:
    unit, offer = "rows" if units.single else "groups", "No bound at all can be guaranteed"
    if result.upper < 1.0:
        offer = (f"The best that can be guaranteed is an error below {result.upper:.4g}, retaining "
                 f"{result.coverage:.1%} of rows (observed error {result.error:.4g})")  # fmt: skip
    return (
        f"no threshold on these {units.count} {unit} has an error among the retained below max_risk {risk:.4g} with "
        f"confidence {confidence:.4g}. {offer}. Give more calibration data, a higher max_risk or a lower confidence."
    )
