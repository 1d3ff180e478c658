"""Fit the policy with the largest coverage at which a binary screening reaches its sensitivity and specificity."""

from __future__ import annotations

import numpy as np

from dubio.core.draws import unit_numbers
from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Predictions
from dubio.metrics.decisions import predicted
from dubio.referral.calibration_set import CalibrationSet, usable_rows
from dubio.referral.group_search import ThresholdSearch, threshold_search
from dubio.referral.policy import Policy
from dubio.referral.units import Claim, units_of


def fit_screening_policy(
    calibration: Predictions,
    *,
    sensitivity: float | None = None,
    specificity: float | None = None,
    positive: int | str = 1,
    confidence: float = 0.95,
    quantity: str = "confidence",
    seed: int = 0,
    allow_selected: bool = False,
) -> Policy:
    """Retain as much as possible with sensitivity and specificity among the retained above their targets.

    Sensitivity is P(called positive | positive, retained), specificity P(called negative | negative, retained); a row
    is called positive where that is the more probable class. With probability at least ``confidence`` over calibration
    sets both hold *together* for new rows like these (:mod:`dubio.referral.group_search`, step 2). Where ``group`` is
    given each is averaged over the groups that have such rows.

    Args:
        calibration: Labelled binary predictions that neither training nor selection has seen.
        sensitivity: Target among the retained, between 0 and 1; None for no target.
        specificity: The same of specificity.
        positive: Index or name of the positive class.
        confidence: Between 0 and 1.
        quantity: The uncertainty to refer by.
        seed: Seed of the split into design and test.
        allow_selected: Accept a training or validation split; the guarantee then does not hold.

    Raises:
        UserError: When no threshold meets both, with what could be guaranteed; or for a task that is not binary.
    """
    targets = {"sensitivity": sensitivity, "specificity": specificity}
    goals = {name: value for name, value in targets.items() if value is not None}
    if not goals:
        raise UserError("give sensitivity, specificity or both.")
    if calibration.target == "multilabel" or calibration.class_count != 2:
        raise UserError(f"screening needs two classes; these predictions are {calibration.target} with "
                        f"{calibration.class_count}.")  # fmt: skip
    index = class_index(calibration, positive)
    rows, notes = usable_rows(calibration, allow_selected, "screening")
    source = CalibrationSet(rows, notes, "screening", goals, confidence, quantity, seed)
    claims = _claims(rows, goals, index)
    units = units_of(rows, quantity)
    numbers = unit_numbers(rows, seed=seed, purpose="design")
    search = threshold_search(units, claims, level=1.0 - confidence, numbers=numbers)
    threshold = search.largest()
    if threshold is None:
        raise UserError(_refusal(search, confidence))
    estimates = {claim.name: search.estimate(claim, threshold) for claim in claims}
    limits = " and ".join(f"{name} above {goal:.4g}" for name, goal in goals.items())
    evidence = {
        "coverage": search.coverage(threshold),
        **search.facts(threshold),
        **{name: 1.0 - estimate.mean for name, estimate in estimates.items()},
        **{f"{name}_units": float(estimate.units) for name, estimate in estimates.items()},
    }
    name = rows.classes[index] if rows.classes else f"class {index}"
    guarantee = (f"With {confidence:.4g} confidence the retained have {limits}, for new data like the calibration "
                 f"data; positive is {name}.")  # fmt: skip
    return source.policy(threshold, guarantee, evidence, positive=index)


def class_index(predictions: Predictions, name: int | str) -> int:
    """Return the index of a class given by index or name.

    Raises:
        UnknownName: When there is no such class.
    """
    names = predictions.classes or ()
    if isinstance(name, str) and name in names:
        return names.index(name)
    text = str(name)
    if text.isdecimal() and int(text) < predictions.class_count:
        return int(text)
    raise UnknownName("positive class", name, [*names, *map(str, range(predictions.class_count))])


def _claims(labelled: Predictions, goals: dict[str, float], positive: int) -> tuple[Claim, ...]:
    truth = labelled.labels == positive
    wrong = (predicted(labelled) != labelled.labels).astype(np.float64)
    sides = {"sensitivity": truth, "specificity": ~truth}
    for name in goals:
        if not sides[name].any():
            raise UserError(f"{name} cannot be bounded: the calibration set has no row of the class it is about.")
    return tuple(Claim(name, sides[name], wrong, 1.0 - goal) for name, goal in goals.items())


def _refusal(search: ThresholdSearch, confidence: float) -> str:
    best = search.nearest_miss()
    targets = " and ".join(f"{claim.name} above {1 - claim.risk:.4g}" for claim in search.claims)
    best_bounds = " and ".join(
        f"{claim.name} above {1 - search.upper(claim, best):.4g} (observed {1 - estimate.mean:.4g} on {estimate.units})"
        for claim in search.claims
        for estimate in [search.estimate(claim, best)]
    )
    return (
        f"no threshold on this calibration set reaches {targets} with confidence {confidence:.4g}. The best that "
        f"can be guaranteed is {best_bounds}, retaining {search.coverage(best):.1%} of rows. Give more calibration "
        "data, lower targets or a lower confidence."
    )
