"""A referral policy as a value, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isclose
from typing import Annotated, Any, Literal

from dubio.core.errors import UserError, plural
from dubio.core.notebook import Shown
from dubio.core.predictions import LEAST_TEMPERATURE
from dubio.core.types import EmptyDecision, Kind, Target
from dubio.core.validate import (
    ASCENDING,
    FINITE,
    RISING,
    Constraint,
    Finite,
    NonNegative,
    NullAs,
    Positive,
    at_least,
    document,
    encode,
    entries,
    from_json,
    strictly_between,
    to_json,
)
from dubio.referral.threshold import rule

PolicyKind = Literal["risk", "capacity", "screening"]

SELECTED = ("train", "val")
"""Kinds of split that training or selection has used."""

Quantity = Annotated[
    str, Constraint("that names an uncertainty other than random", lambda name: name not in ("", "random"))
]
"""An uncertainty of dubio, or a score of the system's own; predictions that lack it are refused when it is applied."""


Probability = Annotated[float, strictly_between(0, 1)]


@dataclass(frozen=True)
class Family:
    """Guarantees that were fitted together and hold at once, so that any of them may be chosen afterwards.

    Attributes:
        system: The system that the policy is for.
        targets: The bounds on the error that were fixed beforehand.
        systems: Number of systems that were fitted.
        confidence: Probability, over calibration sets, that every guarantee of the family holds.
    """

    system: str
    targets: Annotated[tuple[Probability, ...], entries(1), RISING]
    systems: Positive
    confidence: Probability

    @property
    def each_confidence(self) -> float:
        """The confidence of each guarantee alone: 1 − confidence is shared equally over targets × systems."""
        return 1.0 - (1.0 - self.confidence) / self.size

    @property
    def size(self) -> int:
        """The number of guarantees."""
        return len(self.targets) * self.systems

    @property
    def sentence(self) -> str:
        """How the confidence is shared."""
        targets = f"{len(self.targets)} {plural('target', len(self.targets))}"
        systems = f"{self.systems} {plural('system', self.systems)}"
        return (f"The guarantees of all policies fitted together ({targets} × {systems}) hold at once with "
                f"{self.confidence:.4g} confidence: any of them may be chosen afterwards.")  # fmt: skip


@document("referral policy", schema=1)
@dataclass(frozen=True)
class Policy(Shown):
    """A referral policy: predictions whose uncertainty is at most the threshold are retained.

    Attributes:
        kind: The guarantee: a bound on the error, a capacity, or sensitivity and specificity.
        quantity: The uncertainty it refers by.
        threshold: Retained if uncertainty ≤ threshold; infinite (null in JSON) where everything is retained.
        confidence: Probability, over calibration sets, that the guarantee holds.
        goals: The targets, by name: ``max_risk``, ``capacity``, ``sensitivity``, ``specificity``.
        positive: Index of the positive class of a screening policy.
        guarantee: The guarantee in words.
        evidence: Numbers of the calibration set it rests on, by name.
        notes: Sentences that a reader must know.
        target: The kind of prediction.
        class_count: Number of classes.
        classes: Their names, where known.
        temperature: Of the calibration predictions.
        samples: Their number of samples.
        grouped: Whether groups were the independent units.
        split: The kind of split it was fitted on, where known.
        seen: Uncertainties of independent calibration rows, ascending, for the test of shift.
        empty_decision: How multi-label rows without a label above one half were decided.
        family: The guarantees it was fitted with, where there are others.
        system: The identity of the deployed model that it was fitted for, where known.
    """

    kind: PolicyKind
    quantity: Quantity
    threshold: Annotated[float, FINITE, NullAs(inf)]
    confidence: Probability
    goals: Annotated[Mapping[str, Finite], entries(1)]
    positive: NonNegative | None
    guarantee: str
    evidence: Mapping[str, Finite]
    notes: tuple[str, ...]
    target: Target
    class_count: Positive
    classes: tuple[str, ...] | None
    temperature: Annotated[float, at_least(LEAST_TEMPERATURE)]
    samples: Positive
    grouped: bool
    split: Kind | None
    seen: Annotated[tuple[Finite, ...], entries(1), ASCENDING] = field(repr=False)
    empty_decision: EmptyDecision = "empty"
    family: Family | None = None
    system: str | None = None

    @property
    def void(self) -> bool:
        """Whether it was fitted, by force, on a split that training or selection has used, and guarantees nothing."""
        return self.split in SELECTED

    def __post_init__(self) -> None:
        if self.classes is not None and len(self.classes) != self.class_count:
            raise UserError(f"field 'classes' must name {self.class_count} classes; given {len(self.classes)}.")
        if (self.positive is not None) != (self.kind == "screening"):
            raise UserError("field 'positive' must be given for a screening policy and for no other.")
        if self.positive is not None and self.positive >= self.class_count:
            raise UserError(f"field 'positive' must be the index of one of {self.class_count} classes.")
        if (family := self.family) is not None:
            if self.goals.get("max_risk") not in family.targets:
                raise UserError("field 'goals' must have a max_risk that is one of the targets of 'family'.")
            if not isclose(1.0 - self.confidence, 1.0 - family.each_confidence, rel_tol=1e-6):
                expected = f"{family.each_confidence:.6g}, as the level of 'family' is shared"
                raise UserError(f"field 'confidence' must be {expected}; given {self.confidence:.6g}.")

    @property
    def rule(self) -> str:
        """Which rows it retains, in words: where possible by the probability of the answer."""
        return rule(self)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; a threshold of null retains everything."""
        return dict(encode(self))

    def __str__(self) -> str:
        """Return the guarantee, the threshold and the evidence, as the command prints them."""
        evidence = (f"  {name.replace('_', ' ')}: {value:.4g}" for name, value in self.evidence.items())
        return "\n".join([self.guarantee, f"rule: {self.rule}", *evidence])

    def to_json(self) -> str:
        """Return the policy as one JSON document."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str, *, name: str = "policy") -> Policy:
        """Read a policy, checking every field.

        Args:
            text: JSON.
            name: The file or object that a message names.

        Raises:
            BadFile: Naming the field that is missing, unknown or has a value that is not allowed.
        """
        return from_json(cls, text, name)
