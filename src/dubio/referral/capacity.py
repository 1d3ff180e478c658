"""Fit the policy for a given capacity: at most a share of the rows is referred."""

from __future__ import annotations

from math import ceil

from scipy.stats import beta, betabinom

from dubio.calibration.conformal import SLACK
from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import FloatArray
from dubio.referral.calibration_set import CalibrationSet, usable_rows
from dubio.referral.policy import Policy
from dubio.referral.units import independent_uncertainties

BATCH = 100
"""The size of the batch of new rows whose number of referrals is predicted."""


def fit_capacity_policy(
    calibration: Predictions,
    *,
    capacity: float,
    confidence: float = 0.95,
    quantity: str = "confidence",
    seed: int = 0,
    allow_selected: bool = False,
) -> Policy:
    """Refer the most uncertain, on average at most a share ``capacity`` of new rows.

    The threshold is the k-th smallest of n calibration uncertainties, k = ⌈(n + 1)(1 − capacity)⌉. If calibration and
    new rows are exchangeable, a new row is referred with probability at most 1 − k/(n + 1) ≤ capacity, over calibration
    sets and new rows together. For one calibration set the share of all future rows that is referred follows
    Beta(n + 1 − k, k), and the number among the next b rows the beta-binomial of these parameters; with ties both are
    stochastically smaller, so that upper bounds stay valid. Labels are not used.

    Where ``group`` is given, rows of one group are not exchangeable: one row of each, drawn by hash
    (:mod:`dubio.core.draws`), is used. The guarantee is about a random row of a new group, so about the share that is
    referred of a group's rows, averaged over groups; large groups count no more than small ones.

    Args:
        calibration: Predictions that neither training nor selection has seen.
        capacity: Share that can be referred, between 0 and 1.
        confidence: Confidence of the bounds stated beside the expectation.
        quantity: The uncertainty to refer by.
        seed: Seed of the choice of one row per group.
        allow_selected: Accept a training or validation split; the guarantee then does not hold.

    Raises:
        UserError: When there are too few rows for this capacity, or for a split or a value that is not allowed.
    """
    rows = usable_rows(calibration, allow_selected)
    source = CalibrationSet(*rows, "capacity", {"capacity": capacity}, confidence, quantity, seed)
    values = independent_uncertainties(source.predictions, quantity, seed=seed)
    count = len(values)
    rank = ceil((count + 1) * (1.0 - capacity) - SLACK)
    if rank > count:
        unit = "rows" if source.predictions.group is None else "groups"
        raise UserError(f"a capacity (--capacity) of {capacity:g} needs at least {ceil(1 / capacity - SLACK) - 1} "
                        f"independent calibration {unit}; given {count}.")  # fmt: skip
    above = count + 1 - rank
    expected, upper = above / (count + 1), float(beta.ppf(confidence, above, rank))
    batch = int(betabinom.ppf(confidence, BATCH, above, rank))
    threshold = float(values[rank - 1])
    referred, share, following = "of new rows are referred", "share", f"{BATCH}"
    if source.predictions.group is not None:
        referred, share = "of the rows of a new group are referred", "mean over groups of that share"
        following = f"{BATCH} rows, each of a group of its own"
    guarantee = (
        f"On average at most {expected:.4g} {referred}, for data like the calibration data. With {confidence:.4g} "
        f"confidence the long-run {share} is at most {upper:.4g}, and at most {batch} of the next {following}."
    )
    evidence = {
        "referred": float((values > threshold).mean()),
        "expected_referral": expected,
        "upper_referral": upper,
        "of_next_hundred": float(batch),
    }
    return source.policy(threshold, guarantee, evidence, _tie_note(values, threshold, expected))


def _tie_note(values: FloatArray, threshold: float, expected: float) -> tuple[str, ...]:
    """Return a note where rows of equal uncertainty leave much of the capacity unused."""
    used = float((values > threshold).mean())
    if used > 0.9 * expected - 1 / len(values):
        return ()
    tied = int((values == threshold).sum())
    return (f"{tied} calibration rows have exactly the uncertainty of the threshold and are retained together: only "
            f"{used:.4g} of the rows are referred.",)  # fmt: skip
