"""Fit policies for a grid of targets and several systems, whose guarantees hold all at once.

A reader who sees several policies chooses one by what it retains, and so by the calibration set: a guarantee that each
of them has alone says nothing about the one that looks best. Here the targets are fixed beforehand, and each of the
m = targets × systems policies is fitted by :func:`~dubio.referral.risk.fit_risk_policy` at confidence 1 − α/m,
α = 1 − confidence.

**Why it is valid.** Each guarantee fails with probability at most α/m, so that any of them fails with probability at
most α (Bonferroni), however the systems and their errors depend on each other; a target without a policy guarantees
nothing and cannot fail. Where none fails, the one that is chosen does not, whatever the choice depends on.

**Why it is not sharper.** At one fixed threshold an upper bound on the error would serve every target at once. But the
policies of different targets stop at different thresholds: the first at which the error reaches r differs with r, and
each of these is a test of its own that may go wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

from dubio.core.documents import is_text
from dubio.core.errors import UserError, check_between_0_and_1, plural
from dubio.core.files import file_name, new_folder
from dubio.core.notebook import Shown
from dubio.core.predictions import Predictions
from dubio.referral.policy import Family, Policy
from dubio.referral.risk import NoGuarantee, fit_risk_policy
from dubio.referral.threshold import least_probability, percentage
from dubio.statistics.paired import align

TARGETS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""The bounds on the error unless others are named."""

LONGEST_NAME = 80
"""Characters of a system's name in the name of a file."""


@dataclass(frozen=True)
class Stop:
    """The policy of one system for one target, or the reason why there is none.

    Attributes:
        system: Name of the system.
        target: The bound on the error.
        policy: None where no threshold meets the target: everything is referred.
        refusal: The reason then.
    """

    system: str
    target: float
    policy: Policy | None
    refusal: str | None = None

    @property
    def guaranteed(self) -> bool:
        """Whether there is a policy and its guarantee is not void."""
        return self.policy is not None and not self.policy.void

    @property
    def coverage(self) -> float:
        """Share of calibration rows that are retained."""
        return 0.0 if self.policy is None else self.policy.evidence["coverage"]

    @property
    def rule(self) -> str:
        """Which rows are retained, in words."""
        return "every row is referred" if self.policy is None else self.policy.rule

    def __str__(self) -> str:
        """Return the stop in one line."""
        answer = "guaranteed" if self.guaranteed else "not guaranteed"
        return f"{self.system}: error below {self.target:g} {answer}, {self.coverage:.1%} retained; {self.rule}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; a threshold is null where nothing or everything is retained, as ``rule`` says."""
        policy = self.policy
        least = None if policy is None else least_probability(policy)
        return {
            "target": self.target,
            "guaranteed": self.guaranteed,
            "coverage": self.coverage,
            "error": None if policy is None else policy.evidence["error"],
            "threshold": None if policy is None or policy.threshold == inf else policy.threshold,
            "probability": None if least is None else {"value": least[0], "text": percentage(*least)},
            "rule": self.rule,
            "guarantee": None if policy is None else policy.guarantee,
            "refusal": self.refusal,
        }


@dataclass(frozen=True, repr=False)
class PolicyGrid(Shown):
    """The policies of every system for every target of a grid.

    Attributes:
        stops: System by system, the targets of each in ascending order.
        targets: The bounds on the error, ascending.
        confidence: Probability, over calibration sets, that all guarantees hold.
        quantity: The uncertainty they refer by.
    """

    stops: tuple[Stop, ...]
    targets: tuple[float, ...]
    confidence: float
    quantity: str

    @property
    def systems(self) -> dict[str, tuple[Stop, ...]]:
        """System to its stops, in ascending order of their targets."""
        names = dict.fromkeys(stop.system for stop in self.stops)
        return {name: tuple(stop for stop in self.stops if stop.system == name) for name in names}

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies of all stops that have one."""
        return tuple(stop.policy for stop in self.stops if stop.policy is not None)

    @property
    def sentence(self) -> str:
        """How the confidence is shared, or that there is no guarantee."""
        first = self.policies[0]
        return first.guarantee if first.void or first.family is None else first.family.sentence

    def file_names(self) -> dict[tuple[str, float], str]:
        """Return (system, target) to the name of the policy's file, safe on every file system and each different."""
        stems: dict[str, str] = {}
        for name in self.systems:
            stem = short = file_name(name)[:LONGEST_NAME]
            number = 1
            while stem.casefold() in map(str.casefold, stems.values()):
                number += 1
                stem = f"{short}-{number}"
            stems[name] = stem
        stops = (stop for stop in self.stops if stop.policy is not None)
        return {(stop.system, stop.target): f"risk-{stop.target!r}-{stems[stop.system]}.json" for stop in stops}

    def files(self) -> dict[str, str]:
        """Return the name and the content of every policy's file."""
        contents = (policy.to_json() for policy in self.policies)
        return dict(zip(self.file_names().values(), contents, strict=True))

    def write(self, folder: str | Path) -> Path:
        """Write every policy into a new or empty folder, all of them or none.

        Raises:
            UserError: Where it has files: policies of an earlier fit would stand beside these, with another level.
        """
        path = Path(folder)
        with new_folder(path) as scratch:
            for name, content in self.files().items():
                (scratch / name).write_bytes(content.encode("utf-8"))
        return path

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, without the policies themselves."""
        names = self.file_names()
        systems = [
            {"name": name, "stops": [{**stop.as_dict(), "file": names.get((name, stop.target))} for stop in stops]}
            for name, stops in self.systems.items()
        ]
        return {
            "confidence": self.confidence,
            "each_confidence": self.policies[0].confidence,
            "sentence": self.sentence,
            "quantity": self.quantity,
            "targets": list(self.targets),
            "systems": systems,
        }

    def downloads(self) -> dict[str, Any]:
        """Return the files as a page can hold them: what all policies of a system share stands there once.

        Returns:
            System to ``uncertainties``, a text, and ``files``: name to the texts before and after it. The content of
            a file is before + uncertainties + after.
        """
        downloads: dict[str, Any] = {}
        names = self.file_names()
        for stop in self.stops:
            if stop.policy is not None:
                before, key, others = stop.policy.to_json().partition('"seen": [')
                uncertainties, bracket, after = others.partition("]")
                own = downloads.setdefault(stop.system, {"uncertainties": uncertainties, "files": {}})
                own["files"][names[stop.system, stop.target]] = [before + key, bracket + after]
        return downloads

    def __str__(self) -> str:
        """Return the stops, one in a line, and how the confidence is shared."""
        return "\n".join([*map(str, self.stops), self.sentence])

    __repr__ = __str__


def fit_risk_policies(
    systems: Mapping[str, Predictions],
    *,
    targets: Sequence[float] = TARGETS,
    confidence: float = 0.95,
    quantity: str = "confidence",
    seed: int = 0,
    allow_selected: bool = False,
) -> PolicyGrid:
    """Fit a policy for every target and system, such that all guarantees hold at once.

    With probability at least ``confidence`` over calibration sets every policy keeps the error among its retained rows
    below its target, so that target and system may be chosen afterwards. Name one system beforehand and the level is
    shared over the targets alone.

    Args:
        systems: Name to predictions of the same calibration rows, as for :func:`~dubio.referral.fit_risk_policy`; they
            are aligned by their ids.
        targets: Bounds on the error, fixed without looking at these rows.
        confidence: Of all guarantees together.
        quantity: The uncertainty to refer by.
        seed: Seed of the split of groups into design and test.
        allow_selected: Accept a training or validation split; the guarantees then do not hold.

    Raises:
        NoGuarantee: When no system meets any target.
        UserError: For systems on different rows, a split or a value that is not allowed.
    """
    bounds = _checked_targets(targets)
    check_between_0_and_1("confidence (--confidence)", confidence)
    options: Any = {"quantity": quantity, "seed": seed, "allow_selected": allow_selected}
    stops: list[Stop] = []
    refusals: list[NoGuarantee] = []
    for name, calibration in _checked_systems(systems).items():
        family = Family(name, bounds, len(systems), confidence)
        for target in bounds:
            try:
                policy = fit_risk_policy(calibration, max_risk=target, confidence=family.each_confidence, **options)
            except NoGuarantee as refusal:
                refusals.append(refusal)
                stops.append(Stop(name, target, None, str(refusal)))
                continue
            guarantee = policy.guarantee if policy.void else f"{policy.guarantee} {family.sentence}"
            stops.append(Stop(name, target, replace(policy, guarantee=guarantee, family=family)))
    if len(refusals) == len(stops):
        best = min(reversed(refusals), key=lambda refusal: refusal.upper)  # of equal ones that of the largest target
        fitted = f"{len(bounds)} {plural('target', len(bounds))} × {len(systems)} {plural('system', len(systems))}"
        raise NoGuarantee(f"none of {fitted} can be guaranteed. The nearest: {best}", best.upper, best.coverage)
    return PolicyGrid(tuple(stops), bounds, confidence, quantity)


def _checked_targets(targets: Sequence[float]) -> tuple[float, ...]:
    """Return the targets in ascending order.

    Raises:
        UserError: For no target, one that is not between 0 and 1, or one that is named twice.
    """
    for target in targets:
        check_between_0_and_1("targets (--targets)", target)
    bounds = sorted(map(float, targets))
    if not bounds:
        raise UserError("targets (--targets) must name at least one bound on the error; given none.")
    repeated = [low for low, high in pairwise(bounds) if low == high]
    if repeated:
        raise UserError(f"targets (--targets) must be different; given {repeated[0]:g} more than once.")
    return tuple(bounds)


def _checked_systems(systems: Mapping[str, Predictions]) -> dict[str, Predictions]:
    if not isinstance(systems, Mapping):
        raise UserError(f"systems must map a name to predictions; given {type(systems).__name__}.")
    for name in systems:
        if not isinstance(name, str) or not is_text(name):
            raise UserError(f"the name of a system must be Unicode text; given {name!r}. Name it with NAME=PATH.")
    return align(systems)
