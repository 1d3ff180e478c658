"""Predictions put together: the same system on several sets of examples, or several fits on the same examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.errors import UserError
from dubio.predictions import Predictions
from dubio.summaries import Summary


@dataclass(frozen=True, eq=False)
class _Joined:
    """Logits of several predictions one after another, copied only when they are asked for."""

    parts: tuple[Predictions, ...]

    @property
    def class_count(self) -> int:
        return self.parts[0].class_count

    def logits(self) -> NDArray[np.float32]:
        return np.concatenate([part.logits for part in self.parts], axis=1)

    def summary(self) -> Summary:
        return Summary.joined([part.summary for part in self.parts])


def join(parts: Sequence[Predictions]) -> Predictions:
    """One set of predictions from several of the same system on different examples, rows one after another.

    Raises:
        UserError: When they differ in samples, classes, target or temperature.
    """
    first = parts[0]
    for part in parts[1:]:
        _same("join predictions", first, part, ("samples", "class_count", "target", "temperature"))
        if first.classes is not None and part.classes is not None:
            _same("join predictions", first, part, ("classes",))
        if not np.array_equal(part.member, first.member):
            raise UserError("cannot join predictions: their samples come from different members.")

    def stack(name: str, axis: int = 0) -> Any:
        columns = [getattr(part, name) for part in parts]
        return None if any(column is None for column in columns) else np.concatenate(columns, axis=axis)

    return first.with_checked(
        _origin=_Joined(tuple(parts)),
        labels=stack("labels"),
        ood=stack("ood"),
        data_variance=stack("data_variance", 1),
        model_variance=stack("model_variance", 1),
        ids=stack("ids"),
        group=stack("group"),
        kind=first.kind if all(part.kind == first.kind for part in parts) else None,
    )


def _same(what: str, first: Predictions, part: Predictions, names: Sequence[str]) -> None:
    """Refuse to put together what differs in one of these."""
    for name in names:
        if getattr(part, name) != getattr(first, name):
            raise UserError(
                f"cannot {what}: {name} is {getattr(first, name)} in one and {getattr(part, name)} in another."
            )


def pool_members(parts: Sequence[Predictions]) -> Predictions:
    """The ensemble of several fits on the same examples: M × T samples, each remembering its member.

    Raises:
        UserError: When the parts are not about the same examples.
    """
    first = parts[0]
    for part in parts[1:]:
        _same("pool members", first, part, ("class_count", "target", "temperature"))
        if not np.array_equal(part.labels, first.labels) or (
            first.ids is not None and part.ids is not None and not np.array_equal(part.ids, first.ids)
        ):
            raise UserError("cannot pool members: they were predicted on different examples.")

    def stack(name: str) -> Any:
        columns = [getattr(part, name) for part in parts]
        return None if any(column is None for column in columns) else np.concatenate(columns, axis=0)

    member = np.concatenate([np.full(part.samples, index, dtype=np.int64) for index, part in enumerate(parts)])
    return first.with_checked(
        logits=stack("logits"),
        data_variance=stack("data_variance"),
        model_variance=stack("model_variance"),
        member=member,
    )
