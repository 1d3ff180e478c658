"""The policy with the largest coverage at which a binary screening keeps its sensitivity and specificity."""

from __future__ import annotations

import numpy as np

from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Predictions
from dubio.metrics.decisions import predicted
from dubio.referral.calibration_set import fraction, make_policy, usable
from dubio.referral.policy import Policy
from dubio.referral.search import Search, prepare
from dubio.referral.units import Claim, graded_uncertainty, units_of

GOALS = ("sensitivity", "specificity")


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
    """Keep as much as possible with sensitivity and specificity among the kept above what is asked.

    Sensitivity is P(called positive | positive, kept), specificity P(called negative | negative, kept); a row is called
    positive where that is the more probable class. With probability at least ``confidence`` over calibration sets both
    hold *together* for new rows like these (:mod:`dubio.referral.search`, step 2). Where ``group`` is given each is
    averaged over the groups that have such rows.

    Args:
        calibration: Labelled binary predictions that neither training nor selection has seen.
        sensitivity: Asked among the kept, between 0 and 1; None to ask nothing.
        specificity: The same of specificity.
        positive: Index or name of the positive class.
        confidence: Between 0 and 1.
        quantity: The uncertainty to refer by.
        seed: Of the parting into design and test.
        allow_selected: Accept a training or validation split; the guarantee then does not hold.

    Raises:
        UserError: When no threshold meets both, with what could be guaranteed; or for a task that is not binary.
    """
    asked = zip(GOALS, (sensitivity, specificity), strict=True)
    goals = {name: fraction(f"{name} (--{name})", value) for name, value in asked if value is not None}
    if not goals:
        raise UserError("give sensitivity, specificity or both.")
    fraction("confidence (--confidence)", confidence)
    if calibration.target == "multilabel" or calibration.class_count != 2:
        raise UserError(f"screening needs two classes; these predictions are {calibration.target} with "
                        f"{calibration.class_count}.")  # fmt: skip
    index = class_index(calibration, positive)
    source = usable(calibration, labelled="screening", allow_selected=allow_selected)
    known = source.predictions
    claims = _claims(known, goals, index)
    units = units_of(known, graded_uncertainty(known, quantity), 2 * known.labels + predicted(known))
    search = prepare(units, claims, level=1.0 - confidence, seed=seed)
    threshold = search.largest()
    if threshold is None:
        raise UserError(_refusal(search, confidence))
    stands = {claim.name: search.standing(claim, threshold) for claim in claims}
    told = " and ".join(f"{name} above {goal:.4g}" for name, goal in goals.items())
    return make_policy(
        "screening", source, quantity=quantity, threshold=threshold, confidence=confidence, goals=goals,
        guarantee=f"With {confidence:.4g} confidence the kept have {told}, for new data like the calibration data.",
        evidence={
            "rows": float(len(known)),
            "units": float(units.count),
            "coverage": search.coverage(threshold),
            **search.facts(threshold),
            **{name: 1.0 - stand.mean for name, stand in stands.items()},
            **{f"{name}_units": float(stand.count) for name, stand in stands.items()},
        },
        seed=seed, positive=index,
    )  # fmt: skip


def class_index(predictions: Predictions, given: int | str) -> int:
    """The index of a class given by index or name.

    Raises:
        UnknownName: When there is no such class.
    """
    names = predictions.classes or ()
    if isinstance(given, str) and given in names:
        return names.index(given)
    text = str(given)
    if text.isdecimal() and int(text) < predictions.class_count:
        return int(text)
    raise UnknownName("positive class", given, [*names, *map(str, range(predictions.class_count))])


def _claims(known: Predictions, goals: dict[str, float], positive: int) -> tuple[Claim, ...]:
    truth = known.labels == positive
    wrong = (predicted(known) != known.labels).astype(np.float64)
    sides = {"sensitivity": truth, "specificity": ~truth}
    for name in goals:
        if not sides[name].any():
            raise UserError(f"{name} cannot be bounded: the calibration set has no row of the class it is about.")
    return tuple(Claim(name, sides[name], wrong, 1.0 - goal) for name, goal in goals.items())


def _refusal(search: Search, confidence: float) -> str:
    best = search.nearest_miss()
    asked = " and ".join(f"{claim.name} above {1 - claim.risk:.4g}" for claim in search.claims)
    found = " and ".join(
        f"{claim.name} above {1 - search.upper(claim, best):.4g} (observed {1 - stand.mean:.4g} on {stand.count})"
        for claim in search.claims
        for stand in [search.standing(claim, best)]
    )
    return (
        f"no threshold on this calibration set keeps {asked} with confidence {confidence:.4g}. The best that can be "
        f"guaranteed is {found}, keeping {search.coverage(best):.1%} of rows. Give more calibration data, lower goals "
        "or a lower confidence."
    )
