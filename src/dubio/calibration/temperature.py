"""Temperature scaling: one number, fitted by maximum likelihood to the log of the averaged probabilities.

The log-likelihood is concave in b = 1/T, so its slope is found zero by Newton's method in b, kept inside a bracket
that shrinks with every evaluation. Where the likelihood keeps rising up to the end of the allowed range (every example
right: no finite optimum) the end is returned and reported. See :mod:`dubio.calibration.likelihood` for the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal, Protocol

import numpy as np

from dubio.calibration.likelihood import Evidence, Terms, evidence_of
from dubio.core.predictions import Predictions

LOWEST, HIGHEST = 0.01, 100.0
"""The range of b = 1/T; that of T is the same."""

NEWTON_TOLERANCE = 3e-4
"""Relative length of a Newton step that ends the search; what is left after it is about its square."""
TOLERANCE = 1e-9
"""The same for a step that is not Newton's."""
MAX_ITERATIONS = 100
PATIENCE = 4
"""Newton steps taken on trust before one that does not halve the last is replaced."""

Bound = Literal["lowest", "highest"]


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature.

    Attributes:
        temperature: T; predictions are divided by it in log space. Above one: they were overconfident.
        at_bound: Which end of the allowed range of T was hit, where one was: there is no optimum inside it.
        iterations: Evaluations of the likelihood.
        nll_before: Mean negative log-likelihood at T = 1, of the probabilities as they are (not floored).
        nll_after: The same at the fitted temperature; never above ``nll_before``.
        floored: Whether some probability was raised to the floor for the fit.
        declined: Whether the fit came out worse than T = 1 on the probabilities as they are, which only the floor can
            cause, so that T = 1 was kept.
    """

    temperature: float
    at_bound: Bound | None
    iterations: int
    nll_before: float
    nll_after: float
    floored: bool
    declined: bool


@dataclass(frozen=True)
class Root:
    """Where the slope of a concave likelihood vanishes, or the end of the range it pushes against."""

    b: float
    at_bound: Bound | None
    iterations: int


def fit_temperature(predictions: Predictions) -> Temperature:
    """Fit one temperature to labelled predictions by maximum likelihood.

    A likelihood that does not depend on b at all (uniform predictions) gives T = 1.

    Args:
        predictions: Multi-class, ordinal or multi-label; unlabelled examples are left out.

    Raises:
        UserError: When no example is labelled.
    """
    return fit_evidence(evidence_of(predictions))


def fit_evidence(evidence: Evidence) -> Temperature:
    """Fit one temperature to evidence; see :func:`fit_temperature`."""
    floored = evidence.floored()
    root = solve(floored)
    before, after = (float(evidence.scores(b).nll.mean()) for b in (1.0, root.b))
    declined = after > before
    if declined and floored is evidence:  # rounding, not the floor: the optimum is T = 1 to the last digits
        root, declined, after = Root(1.0, None, root.iterations), False, before
    return Temperature(
        temperature=1.0 if declined else 1.0 / root.b,
        at_bound=None if declined else root.at_bound,
        iterations=root.iterations,
        nll_before=before,
        nll_after=before if declined else after,
        floored=floored is not evidence,
        declined=declined,
    )


def apply_temperature(predictions: Predictions, temperature: float) -> Predictions:
    """The same predictions, tempered once more: temperatures multiply."""
    return replace(predictions, temperature=predictions.temperature * temperature)


class Likelihood(Protocol):
    """A concave likelihood of b: of evidence, or of anything else with such terms."""

    def terms(self, b: float) -> Terms:
        """Terms at b, of which slope and curvature are summed."""
        ...


def solve(evidence: Likelihood, *, start: float = 1.0) -> Root:
    """Safeguarded Newton on the slope of the (floored) likelihood.

    Args:
        evidence: With finite margins.
        start: The first b.
    """
    bracket = Bracket()
    b, stride = min(max(start, LOWEST), HIGHEST), np.inf
    for iteration in range(1, MAX_ITERATIONS + 1):
        terms = evidence.terms(b)
        slope, curvature = float(terms.slope.sum()), float(terms.curvature.sum())
        if slope >= 0.0 and b == HIGHEST:
            return Root(b, "lowest", iteration)
        if slope <= 0.0 and b == LOWEST:
            return Root(b, "highest", iteration)
        if slope == 0.0:
            return Root(b, None, iteration)
        bracket = bracket.shrunk(b, slope)
        proposal = newton_step(b, slope, curvature)
        # Newton creeps where the likelihood is nearly straight: steps that stop shrinking are replaced
        slow = iteration > PATIENCE and abs(proposal - b) > 0.5 * stride
        following = bracket.inside(float(np.copysign(np.inf, slope)) if slow else proposal)
        stride = abs(following - b)
        if stride <= (NEWTON_TOLERANCE if following == proposal else TOLERANCE) * b:
            return Root(following, None, iteration)
        b = following
    return Root(b, None, MAX_ITERATIONS)


@dataclass(frozen=True)
class Bracket:
    """An interval that holds the root; an end is ``known`` once the slope there was seen to point inwards."""

    low: float = LOWEST
    high: float = HIGHEST
    low_known: bool = False
    high_known: bool = False

    def shrunk(self, b: float, slope: float) -> Bracket:
        """The bracket after the slope at b was seen."""
        if slope > 0.0:
            return replace(self, low=b, low_known=True)
        return replace(self, high=b, high_known=True)

    def inside(self, proposal: float) -> float:
        """The proposal, or where it leaves the bracket: an end not yet tried, else the geometric middle."""
        if self.low < proposal < self.high:
            return proposal
        known, end = (self.low_known, self.low) if proposal <= self.low else (self.high_known, self.high)
        return sqrt(self.low * self.high) if known else end


def newton_step(b: float, slope: float, curvature: float) -> float:
    """Newton's b − ℓ′/ℓ″, infinite in the slope's direction where the likelihood is locally straight."""
    if curvature >= 0.0:
        return float(np.copysign(np.inf, slope))
    with np.errstate(over="ignore"):
        return b - slope / curvature
