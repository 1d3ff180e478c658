"""Predictions: what a classifier said about a set of examples, stored between predicting and scoring.

Predictions put together: the same system on several sets of examples, or several fits on the same examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError, one_of
from dubio.core.passes import SUMMARY_BYTES, Room, Summary, Sums, over_rows, pool_sigmoid, pool_softmax, row_blocks
from dubio.core.types import TARGETS, UNLABELLED, BoolArray, FloatArray, IntArray, Kind, StrArray, Target


@dataclass(frozen=True, eq=False)
class _Taken:
    """Logits of rows of other predictions, copied only when they are asked for."""

    source: Predictions
    rows: IntArray

    @property
    def class_count(self) -> int:
        return self.source.class_count

    def logits(self) -> NDArray[np.float32]:
        return self.source.logits[:, self.rows]

    def summary(self) -> Summary | None:
        known = self.source.__dict__.get("summary")
        return None if known is None else known.take(self.rows)


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a classifier said about a set of examples: the stored artefact between predicting and scoring.

    Attributes:
        logits: ``[S, N, K]`` float32; −inf allowed, NaN never, +inf only of a label (p = 1). Binary is the pair (0, z).
        labels: ``[N]`` class index (−1: unlabelled) or, for ``multilabel``, multi-hot ``[N, K]``.
        target: What the logits mean: softmax over classes, or one sigmoid a label.
        ood: ``[N]``, True where the example is not from the training distribution.
        member: ``[S]``, which independent fit a sample came from.
        data_variance: ``[S, N, K]`` σ² of a heteroscedastic head.
        model_variance: ``[S, N]`` variance of a GP head.
        ids: ``[N]``, aligns two systems.
        group: ``[N]``, what bootstrap, paired tests and referral bounds resample.
        temperature: Applied after pooling.
        classes: Names of the classes.
        kind: The kind of split this was predicted on, where known: guarantees refuse what selection has seen.
    """

    logits: NDArray[np.float32]
    labels: IntArray
    target: Target = "multiclass"
    ood: BoolArray = None  # type: ignore[assignment]  # filled in __post_init__
    member: IntArray = None  # type: ignore[assignment]  # filled in __post_init__
    data_variance: NDArray[np.float32] | None = None
    model_variance: NDArray[np.float32] | None = None
    ids: StrArray | None = None
    group: StrArray | None = None
    temperature: float = 1.0
    classes: tuple[str, ...] | None = None
    kind: Kind | None = None

    def __post_init__(self) -> None:
        one_of("target", self.target, TARGETS)
        if self.logits.ndim != 3:
            raise UserError(f"logits must be [samples, examples, classes]; given shape {self.logits.shape}.")
        samples, rows, classes = self.logits.shape
        if samples == 0 or rows == 0 or classes == 0:
            raise UserError(f"logits must not be empty; given shape {self.logits.shape}.")
        if self.ood is None:
            object.__setattr__(self, "ood", np.zeros(rows, dtype=bool))
        if self.member is None:
            object.__setattr__(self, "member", np.zeros(samples, dtype=np.int64))
        if not 0 < self.temperature < np.inf:
            raise UserError(f"temperature must be positive and finite; given {self.temperature}.")
        self._check_shapes(samples, rows, classes)
        self._check_values()

    def _check_shapes(self, samples: int, rows: int, classes: int) -> None:
        wanted: dict[str, tuple[int, ...]] = {
            "labels": (rows, classes) if self.target == "multilabel" else (rows,),
            "ood": (rows,),
            "member": (samples,),
            "data_variance": (samples, rows, classes),
            "model_variance": (samples, rows),
            "ids": (rows,),
            "group": (rows,),
        }
        for name, shape in wanted.items():
            column = getattr(self, name)
            if column is not None and column.shape != shape:
                raise UserError(
                    f"{name} must have shape {shape} beside logits of shape {self.logits.shape}; given {column.shape}."
                )
        if self.classes is not None and len(self.classes) != classes:
            raise UserError(f"classes must name {classes} classes; given {len(self.classes)}.")

    def _check_values(self) -> None:
        if self.samples == 1 and self.target != "multilabel":  # what the summary asks next, and tells as much
            self.__dict__["_highest"] = np.empty(len(self), dtype=np.int64)
        over_rows(self.logits, self._check_block, block_bytes=SUMMARY_BYTES)
        low, high = (0, 1) if self.target == "multilabel" else (UNLABELLED, self.class_count - 1)
        outside = (self.labels < low) | (self.labels > high)
        if outside.any():
            where = np.argwhere(outside)[0]
            raise UserError(
                f"labels must lie between {low} and {high}; row {int(where[0])} is {int(self.labels[tuple(where)])}."
            )

    def _check_block(self, rows: slice, room: Room) -> None:
        block = self.logits[:, rows]
        if "_highest" in self.__dict__:
            highest = self.__dict__["_highest"][rows] = block[0].argmax(axis=1)  # the place of a NaN, if there is one
            if np.isfinite(block[0].ravel()[np.arange(0, block.size, block.shape[2]) + highest]).all():
                return
        elif -np.inf < block.min() and block.max() < np.inf:  # two plain reads; both comparisons are False for NaN
            return
        # A label with p = 1 has the logit +inf.
        good = block <= np.inf if self.target == "multilabel" else block < np.inf
        if not good.all():
            sample, row, column = (int(i[0]) for i in np.nonzero(~good))
            refused = "NaN" if self.target == "multilabel" else "NaN or +inf"
            raise UserError(
                f"logits must not be {refused}; sample {sample}, row {rows.start + row}, "
                f"column {column} is {block[sample, row, column]}."
            )
        if self.target != "multilabel" and (block.max(axis=-1) == -np.inf).any():
            sample, row = (int(i[0]) for i in np.nonzero(block.max(axis=-1) == -np.inf))
            raise UserError(f"logits must not be -inf for every class; sample {sample}, row {rows.start + row}.")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Logits that were not copied yet; every other attribute is there from the start."""
            origin = self.__dict__.get("_origin")
            if name != "logits" or origin is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.__dict__["logits"] = origin.logits()
            del self.__dict__["_origin"]
            return self.__dict__["logits"]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def samples(self) -> int:
        """S, the number of samples."""
        return len(self.member)

    @property
    def class_count(self) -> int:
        """K, the number of classes."""
        origin = self.__dict__.get("_origin")
        if origin is None:
            return int(self.logits.shape[2])
        return int(origin.class_count)

    @cached_property
    def log_probs(self) -> FloatArray:
        """log p̄ ``[N, K]``: the mean of probabilities over samples, in log space, then the temperature."""
        return self._pooled[0]

    @cached_property
    def probs(self) -> FloatArray:
        """p̄ ``[N, K]``."""
        return np.exp(self.log_probs)

    @cached_property
    def log_complements(self) -> FloatArray:
        """log(1 − p̄) ``[N, K]`` of a multi-label prediction, accurate where p̄ is near one."""
        if self._pooled[1] is None:
            raise UserError(f"log_complements is defined for multilabel predictions; these are {self.target}.")
        return self._pooled[1]

    @cached_property
    def _pooled(self) -> tuple[FloatArray, FloatArray | None]:
        yes = np.empty(self.logits.shape[1:])
        no = np.empty_like(yes) if self.target == "multilabel" else None

        def work(rows: slice, room: Room) -> None:
            block = self.logits[:, rows]
            if no is None:
                yes[rows] = pool_softmax(block, self.temperature, room)
            else:
                yes[rows], no[rows] = pool_sigmoid(block, self.temperature)

        over_rows(self.logits, work)
        return yes, no

    @cached_property
    def summary(self) -> Summary:
        """Decision, its probability and that of the label, a row; of multi-class and ordinal predictions.

        Raises:
            UserError: For multi-label predictions.
        """
        if self.target == "multilabel":
            raise UserError("a summary is defined for one class a row; these predictions are multilabel.")
        origin = self.__dict__.get("_origin")
        known: Summary | None = None if origin is None else origin.summary()
        if known is not None:
            return known
        sums = Sums(len(self))
        over_rows(self.logits, partial(self._sum_up, sums), block_bytes=SUMMARY_BYTES * self.samples)
        return sums.summary(self.labels)

    def _sum_up(self, sums: Sums, rows: slice, room: Room) -> None:
        highest: IntArray | None = None
        if self.samples == 1 and self.temperature == 1.0:
            logs = self.logits[0, rows]  # a constant a row does not matter
            highest = self.__dict__["_highest"][rows] if "_highest" in self.__dict__ else None
        elif "_pooled" in self.__dict__:
            logs = self.log_probs[rows]
        else:
            parts = row_blocks(self.samples, rows.stop - rows.start, self.class_count)
            blocks = (self.logits[:, rows][:, part] for part in parts)
            logs = np.concatenate([pool_softmax(block, self.temperature, room) for block in blocks])
        sums.fill(rows, logs, self.labels[rows], room, highest)

    def take(self, rows: IntArray | BoolArray) -> Predictions:
        """The predictions at these rows, in this order; rows that follow each other are not copied.

        Raises:
            UserError: When there is none.
        """
        chosen = np.arange(len(self))[rows]
        if len(chosen) == 0:
            raise UserError("predictions must not be empty; no row was taken.")
        first, last = int(chosen[0]), int(chosen[-1])
        following = len(chosen) == last - first + 1 and bool((np.diff(chosen) == 1).all())
        if following and len(chosen) == len(self):
            return self
        place: Any = slice(first, last + 1) if following else chosen

        def cut(column: Any, axis: int = 0) -> Any:
            return None if column is None else (column[place] if axis == 0 else column[:, place])

        taken = self.with_checked(
            **({"logits": self.logits[:, place]} if following else {"_origin": _Taken(self, chosen)}),
            labels=cut(self.labels),
            ood=cut(self.ood),
            data_variance=cut(self.data_variance, 1),
            model_variance=cut(self.model_variance, 1),
            ids=cut(self.ids),
            group=cut(self.group),
        )
        # Every row is pooled on its own: what is known of a row stays true.
        if "_pooled" in self.__dict__:
            taken.__dict__["_pooled"] = tuple(cut(side) for side in self._pooled)
        if following and "summary" in self.__dict__:
            taken.__dict__["summary"] = self.summary.take(place)
        return taken

    def as_ood(self) -> Predictions:
        """The same, every row flagged as out of distribution."""
        return self.with_checked(ood=np.ones(len(self), dtype=bool))

    def with_checked(self, **columns: Any) -> Predictions:
        """The same with other columns, made of checked ones, which are not checked again.

        Args:
            columns: By the names of the attributes; ``_origin`` in place of ``logits`` for what copies them on demand.
        """
        made = object.__new__(type(self))
        kept = ("_origin", *(each.name for each in fields(self)))
        made.__dict__.update({name: self.__dict__[name] for name in kept if name in self.__dict__} | columns)
        made.__dict__.pop("_origin" if "logits" in columns else "logits" if "_origin" in columns else "", None)
        return made

    @property
    def labelled(self) -> Predictions:
        """Only the examples whose class is known and among the classes; itself where all are."""
        if self.target == "multilabel" or (self.labels >= 0).all():
            return self
        return self._labelled_rows

    @cached_property
    def _labelled_rows(self) -> Predictions:
        return self.take(self.labels >= 0)


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
