"""The reason of each decision of a policy, in words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import overload

from dubio.core.types import BoolArray, FloatArray
from dubio.referral.policy import Policy
from dubio.referral.threshold import answer_probability, least_probability, percentage, rounded_down, shown_quantity

UNCERTAINTY_NAMES = {"confidence": "1 − confidence"}
"""The displayed name of an uncertainty where it is not the quantity itself."""


@dataclass(frozen=True, eq=False)
class Reasons(Sequence[str]):
    """The reason of each decision, put into words when it is read: as texts they would take most of the memory.

    Attributes:
        policy: The policy.
        uncertainties: ``[N]``, rounded as they were compared.
        retained: ``[N]``.
        marked: ``[N]`` rows whose reason has an ending, or None.
        ending: That ending.
    """

    policy: Policy
    uncertainties: FloatArray
    retained: BoolArray
    marked: BoolArray | None = None
    ending: str = ""
    _least: tuple[float, int] | None = field(init=False)

    def __post_init__(self) -> None:
        above = self.uncertainties[self.uncertainties > self.policy.threshold]
        referred = [float(above.min())] if len(above) else []
        object.__setattr__(self, "_least", least_probability(self.policy, referred))

    def with_ending(self, marked: BoolArray, ending: str) -> Reasons:
        """Return the same reasons, those of some rows with an ending."""
        return replace(self, marked=marked, ending=ending)

    def __len__(self) -> int:
        return len(self.retained)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        text = self._sentence(float(self.uncertainties[index]), bool(self.retained[index]))
        return text + self.ending if self.marked is not None and self.marked[index] else text

    def _sentence(self, value: float, retain: bool) -> str:
        policy, least = self.policy, self._least
        if policy.threshold == inf:
            return policy.rule
        name = UNCERTAINTY_NAMES.get(policy.quantity, shown_quantity(policy.quantity))
        text = f"{name} {value:.6g} is {'at most' if retain else 'above'} the threshold {policy.threshold:.6g}"
        answer = answer_probability(policy, value)
        if least is not None and answer is not None:
            shown = percentage(answer, least[1])
            if not retain and shown == percentage(*least):  # below it, and equal if rounded up
                shown = percentage(rounded_down(answer, least[1]), least[1])
            text = f"the answer has {shown}, {'at least' if retain else 'below'} {percentage(*least)} ({text})"
        rank = bisect_left(policy.seen, value) / len(policy.seen)
        return text if retain else f"{text}; {int(100 * rank)} % of calibration rows are more certain"
