"""The policy with the largest coverage whose error among the kept is bounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.metrics.decisions import correct
from dubio.referral.bounds import binomial_p
from dubio.referral.calibration_set import fraction, make_policy, usable
from dubio.referral.policy import Policy
from dubio.referral.search import prepare
from dubio.referral.units import Claim, Units, graded_uncertainty, units_of
from dubio.referral.walk import Walks


class NoGuarantee(UserError):
    """No threshold meets the bound that was asked for.

    Attributes:
        upper: The lowest bound on the error that can be guaranteed; 1 where there is none.
        coverage: Share of calibration rows kept at that bound.
    """

    def __init__(self, message: str, upper: float, coverage: float) -> None:
        super().__init__(message)
        self.upper, self.coverage = upper, coverage


@dataclass(frozen=True)
class Found:
    """The outcome of a search: a threshold, or the best bound where none meets what is asked.

    Attributes:
        threshold: The largest shown, or None.
        upper: Where there is none, the lowest bound on the error that can be guaranteed.
        coverage: Share of rows kept at the threshold, or at that bound.
        error: Observed error there.
        evidence: Further figures.
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
    """Keep as much as possible with an error among the kept below ``max_risk``.

    With probability at least ``confidence`` over calibration sets, P(wrong | kept) < max_risk for new rows like these,
    by exact binomial bounds; :mod:`dubio.referral.walk` says how and why. Where ``group`` is given the risk is that of
    a group: the share of a group's kept rows that are wrong, averaged over groups that have any; see
    :mod:`dubio.referral.search`.

    Args:
        calibration: Labelled predictions that neither training nor selection has seen. Multi-label rows are wrong
            unless the whole set of labels is right.
        max_risk: The bound, between 0 and 1.
        confidence: Between 0 and 1.
        quantity: The uncertainty to refer by.
        seed: Of the parting of groups into design and test.
        allow_selected: Accept a training or validation split; the guarantee then does not hold.

    Raises:
        NoGuarantee: When no threshold meets the bound, with the best that could be guaranteed.
        UserError: For a split or a value that is not allowed.
    """
    fraction("max_risk (--max-risk)", max_risk)
    fraction("confidence (--confidence)", confidence)
    source = usable(calibration, labelled="a bound on the error", allow_selected=allow_selected)
    known = source.predictions
    wrong = 1.0 - correct(known)
    units = units_of(known, graded_uncertainty(known, quantity), wrong)
    if units.single:
        found = _among_rows(units, wrong, max_risk, 1.0 - confidence)
    else:
        found = _among_groups(units, wrong, max_risk, 1.0 - confidence, seed)
    if found.threshold is None:
        raise NoGuarantee(_refusal(found, units, max_risk, confidence), found.upper, found.coverage)
    rate = "error among the kept" if units.single else "mean over groups of the error among their kept rows"
    return make_policy(
        "risk", source, quantity=quantity, threshold=found.threshold, confidence=confidence,
        goals={"max_risk": max_risk},
        guarantee=f"With {confidence:.4g} confidence the {rate} is below {max_risk:.4g}, for new data like the "
        "calibration data.",
        evidence={
            "rows": float(len(known)),
            "units": float(units.count),
            "coverage": found.coverage,
            "error": found.error,
            "error_without_referral": float(wrong.mean()),
            **found.evidence,
        },
        seed=seed,
    )  # fmt: skip


def _among_rows(units: Units, wrong: FloatArray, risk: float, level: float) -> Found:
    walks = Walks.over(units.uncertainty, wrong, risk=risk, level=level)
    chosen = walks.largest()
    if chosen is None:
        upper, best = walks.best_bound()
        return Found(None, upper, best.kept / units.count, best.error, {"kept": float(best.kept)})
    p_value = binomial_p(chosen.error, chosen.kept, risk)
    evidence = {"kept": float(chosen.kept), "wrong": float(chosen.wrong), "p_value": p_value}
    return Found(chosen.threshold, risk, chosen.kept / units.count, chosen.error, evidence)


def _among_groups(units: Units, wrong: FloatArray, risk: float, level: float, seed: int) -> Found:
    claim = Claim("error", np.ones(len(wrong), dtype=bool), wrong, risk)
    search = prepare(units, (claim,), level=level, seed=seed)
    chosen = search.largest()
    threshold = search.nearest_miss() if chosen is None else chosen
    stand = search.standing(claim, threshold)
    evidence = {**search.facts(threshold), "kept_groups": float(stand.count)}
    upper = search.upper(claim, threshold)
    return Found(chosen, upper, search.coverage(threshold), stand.mean, evidence)


def _refusal(found: Found, units: Units, risk: float, confidence: float) -> str:
    what = "rows" if units.single else "groups"
    offer = (
        f"The best that can be guaranteed is an error below {found.upper:.4g}, keeping {found.coverage:.1%} of rows "
        f"(observed error {found.error:.4g})"
        if found.upper < 1.0
        else "No bound at all can be guaranteed"
    )
    return (
        f"no threshold on these {units.count} {what} has an error among the kept below max_risk {risk:.4g} with "
        f"confidence {confidence:.4g}. {offer}. Give more calibration data, a higher max_risk or a lower confidence."
    )
