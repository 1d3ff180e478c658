"""Predictions: the answers of a classifier on a set of examples, stored between predicting and scoring.

Everything before :class:`Predictions` may be any system of any framework; everything after it needs only these arrays.
A system with samples (an ensemble, MC dropout) has one set of logits per sample. The predictive distribution is the
mean of their probabilities, p̄ = (1/S) Σ_s p_s, and :attr:`Predictions.probs` is the only place where it is formed.

Metrics state what they need of predictions. Most need probabilities; those that rank examples by uncertainty need a
score per example and whether the answer is correct, which a system without probabilities can give too, in ``scores``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError, one_of
from dubio.core.passes import (
    SUMMARY_BYTES,
    RowSums,
    Scratch,
    Summary,
    over_rows,
    pool_sigmoid,
    pool_softmax,
    row_blocks,
)
from dubio.core.types import (
    EMPTY_DECISIONS,
    TARGETS,
    UNLABELLED,
    BoolArray,
    EmptyDecision,
    FloatArray,
    IntArray,
    Kind,
    StrArray,
    Target,
)

Logits = NDArray[np.float32]

LEAST_TEMPERATURE = 2.0**-52
"""A smaller one would multiply the last bit of log p̄ = −1 into a factor of e: rounding would decide, not predictions.
From here on nothing overflows: log p̄ of float32 logits is above −1e39, and 1e39 / 2⁻⁵² < 1e55."""


@dataclass(frozen=True, eq=False)
class DeferredLogits:
    """Logits that were checked before and are read when they are first needed, in place of an array.

    Attributes:
        shape: (samples, rows, classes).
        read: Returns the array.
        summary: Returns the summary without reading logits, or None where that is not possible.
    """

    shape: tuple[int, ...]
    read: Callable[[], Logits]
    summary: Callable[[], Summary | None] = lambda: None


class _LazyLogits:
    """The attribute ``logits``: an array, or a copy that is made when it is first read."""

    def __get__(self, owner: Predictions | None, cls: type[Predictions]) -> Logits:
        if owner is None:
            raise AttributeError("logits")  # to dataclass: a field without a default
        stored: Logits | DeferredLogits = owner.__dict__["_logits"]
        if not isinstance(stored, np.ndarray):
            stored = owner.__dict__["_logits"] = stored.read()
        return stored

    def __set__(self, owner: Predictions, value: Logits | DeferredLogits) -> None:
        owner.__dict__["_logits"] = value


@dataclass(frozen=True, eq=False)
class Predictions:
    """The answers of a classifier on a set of examples: S samples, N examples, K classes.

    Attributes:
        logits: ``[S, N, K]`` float32; −inf allowed, NaN never, +inf only of a label (p = 1). Binary is the pair (0, z).
        labels: ``[N]`` class index (−1: unlabelled) or, for ``multilabel``, multi-hot ``[N, K]``.
        target: The meaning of the logits: softmax over classes, or one sigmoid per label.
        ood: ``[N]``, True where the example is not from the training distribution.
        member: ``[S]``, which independent fit a sample came from.
        data_variance: ``[S, N, K]`` σ² of a heteroscedastic head.
        model_variance: ``[S, N]`` variance of a GP head.
        ids: ``[N]``, unique names of the examples; they align two systems.
        group: ``[N]``, the units that bootstrap, paired tests and referral bounds resample (a patient, a document).
        temperature: Divides the logarithm of the pooled probabilities.
        classes: Names of the classes.
        kind: The kind of split this was predicted on, where known: guarantees refuse what selection has seen.
        columns: Texts ``[N]`` by name (site, device, …), for subgroups.
        scores: The system's own uncertainties ``[N]`` by name, higher where it is less certain.
        empty_decision: How a multi-label row is decided that has no label above one half.
        notes: What a reader must know of the source, such as columns that nothing uses; results repeat them.
        system: The identity of the deployed model that made them, where known.
        features: ``[F, N, D]`` float16, the outputs of a layer without noise, one set for each of F weight states.
    """

    logits: _LazyLogits = _LazyLogits()
    labels: IntArray  # type: ignore[misc]  # logits has no default: its descriptor raises AttributeError for the class
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
    columns: Mapping[str, StrArray] = field(default_factory=dict)
    scores: Mapping[str, FloatArray] = field(default_factory=dict)
    empty_decision: EmptyDecision = "empty"
    notes: tuple[str, ...] = ()
    system: str | None = None
    features: NDArray[np.float16] | None = None
    _highest: IntArray | None = field(default=None, init=False, repr=False)

    # --- checks -----------------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        one_of("target", self.target, TARGETS)
        one_of("empty_decision (--empty-decision)", self.empty_decision, EMPTY_DECISIONS)
        if self.empty_decision == "argmax" and self.target != "multilabel":
            raise UserError("empty_decision (--empty-decision) is for multilabel predictions; "
                            f"these are {self.target}.")  # fmt: skip
        if len(self._shape) != 3:
            raise UserError(f"logits must be [samples, examples, classes]; given shape {self._shape}.")
        samples, rows, classes = self._shape
        if samples == 0 or rows == 0 or classes == 0:
            raise UserError(f"logits must not be empty; given shape {self._shape}.")
        if self.ood is None:
            object.__setattr__(self, "ood", np.zeros(rows, dtype=bool))
        if self.member is None:
            object.__setattr__(self, "member", np.zeros(samples, dtype=np.int64))
        if not LEAST_TEMPERATURE <= self.temperature < np.inf:
            raise UserError(f"temperature must be finite and at least {LEAST_TEMPERATURE:.3g}; "
                            f"given {self.temperature}.")  # fmt: skip
        self._check_shapes(samples, rows, classes)
        self._check_labels()
        if self._deferred is None:
            self._check_logits()

    def _check_shapes(self, samples: int, rows: int, classes: int) -> None:
        shapes: dict[str, tuple[int, ...]] = {
            "labels": (rows, classes) if self.target == "multilabel" else (rows,),
            "ood": (rows,),
            "member": (samples,),
            "data_variance": (samples, rows, classes),
            "model_variance": (samples, rows),
            "ids": (rows,),
            "group": (rows,),
        }
        arrays = [(name, getattr(self, name), shape) for name, shape in shapes.items()]
        arrays += [(f"column {name!r}", column, (rows,)) for name, column in self.columns.items()]
        arrays += [(f"score {name!r}", score, (rows,)) for name, score in self.scores.items()]
        for name, array, shape in arrays:
            if array is not None and array.shape != shape:
                beside = f"beside logits of shape {self._shape}"
                raise UserError(f"{name} must have shape {shape} {beside}; given {array.shape}.")
        if self.features is not None and (self.features.ndim != 3 or self.features.shape[1] != rows):
            beside = f"beside logits of shape {self._shape}"
            raise UserError(f"features must have shape (states, {rows}, width) {beside}; given {self.features.shape}.")
        for name, score in self.scores.items():
            if not np.isfinite(score).all():
                row = int(np.flatnonzero(~np.isfinite(score))[0])
                raise UserError(f"score {name!r} must be finite; row {row} is {score[row]}.")
        if self.classes is not None and len(self.classes) != classes:
            raise UserError(f"classes must name {classes} classes; given {len(self.classes)}.")

    def _check_labels(self) -> None:
        low, high = (0, 1) if self.target == "multilabel" else (UNLABELLED, self.class_count - 1)
        outside = (self.labels < low) | (self.labels > high)
        if outside.any():
            index = tuple(np.argwhere(outside)[0])
            raise UserError(f"labels must lie between {low} and {high}; row {index[0]} is {self.labels[index]}.")

    def _check_logits(self) -> None:
        if self.samples == 1 and self.target != "multilabel":  # the summary needs it next, and NaN shows in it too
            object.__setattr__(self, "_highest", np.empty(len(self), dtype=np.int64))
        over_rows(self.logits, self._check_block, block_bytes=SUMMARY_BYTES)

    def _check_block(self, rows: slice, scratch: Scratch) -> None:
        block = self.logits[:, rows]
        if self._highest is not None:
            highest = self._highest[rows] = block[0].argmax(axis=1)  # the index of a NaN, if there is one
            if np.isfinite(block[0].ravel()[np.arange(0, block.size, block.shape[2]) + highest]).all():
                return
        elif -np.inf < block.min() and block.max() < np.inf:  # two plain reads; both comparisons are False for NaN
            return
        # A label with p = 1 has the logit +inf.
        good = block <= np.inf if self.target == "multilabel" else block < np.inf
        if not good.all():
            sample, row, column = (int(i[0]) for i in np.nonzero(~good))
            refused = "NaN" if self.target == "multilabel" else "NaN or +inf"
            where = f"sample {sample}, row {rows.start + row}, column {column}"
            raise UserError(f"logits must not be {refused}; {where} is {block[sample, row, column]}.")
        if self.target != "multilabel" and (block.max(axis=-1) == -np.inf).any():
            sample, row = (int(i[0]) for i in np.nonzero(block.max(axis=-1) == -np.inf))
            raise UserError(f"logits must not be -inf for every class; sample {sample}, row {rows.start + row}.")

    # --- sizes ------------------------------------------------------------------------------------------------------

    @property
    def _deferred(self) -> DeferredLogits | None:
        stored = self.__dict__["_logits"]
        return None if isinstance(stored, np.ndarray) else stored

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.__dict__["_logits"].shape)

    def __len__(self) -> int:
        return len(self.labels)

    def __getstate__(self) -> dict[str, Any]:
        """Read deferred logits before pickling: how they are read has no pickled form."""
        return {**vars(self), "_logits": self.logits}

    @property
    def samples(self) -> int:
        """S, the number of samples."""
        return len(self.member)

    @property
    def class_count(self) -> int:
        """K, the number of classes."""
        return self._shape[2]

    # --- probabilities ----------------------------------------------------------------------------------------------

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
        """log p̄ and, for multi-label predictions, log(1 − p̄)."""
        yes = np.empty(self.logits.shape[1:])
        no = np.empty_like(yes) if self.target == "multilabel" else None

        def work(rows: slice, scratch: Scratch) -> None:
            block = self.logits[:, rows]
            if no is None:
                yes[rows] = pool_softmax(block, self.temperature, scratch)
            else:
                yes[rows], no[rows] = pool_sigmoid(block, self.temperature)

        over_rows(self.logits, work)
        return yes, no

    @cached_property
    def summary(self) -> Summary:
        """Decision, its probability and that of the label per row; for multi-class and ordinal predictions.

        Raises:
            UserError: For multi-label predictions.
        """
        if self.target == "multilabel":
            raise UserError("a summary is defined for one class per row; these predictions are multilabel.")
        available = None if self._deferred is None else self._deferred.summary()
        if available is not None:
            return available
        sums = RowSums(len(self))
        over_rows(self.logits, partial(self._sum_block, sums), block_bytes=SUMMARY_BYTES * self.samples)
        return sums.summary(self.labels)

    def _sum_block(self, sums: RowSums, rows: slice, scratch: Scratch) -> None:
        highest: IntArray | None = None
        if self.samples == 1 and self.temperature == 1.0:
            logs = self.logits[0, rows]  # a constant per row does not matter
            highest = None if self._highest is None else self._highest[rows]
        elif "_pooled" in self.__dict__:
            logs = self.log_probs[rows]
        else:
            slices = row_blocks(self.samples, rows.stop - rows.start, self.class_count)
            blocks = (self.logits[:, rows][:, block] for block in slices)
            logs = np.concatenate([pool_softmax(block, self.temperature, scratch) for block in blocks])
        sums.fill(rows, logs, self.labels[rows], scratch, highest)

    # --- other predictions from these -------------------------------------------------------------------------------

    def with_checked(self, **columns: Any) -> Predictions:
        """Replace attributes by values made of checked ones: logits are not checked again.

        Args:
            columns: By the names of the attributes.
        """
        logits = columns.pop("logits", self.__dict__["_logits"])
        return replace(self, logits=checked_logits(logits) if isinstance(logits, np.ndarray) else logits, **columns)

    def take(self, rows: IntArray | BoolArray) -> Predictions:
        """Return the predictions at these rows, in this order; consecutive rows are a view, not a copy.

        Raises:
            UserError: When there is none.
        """
        chosen = np.arange(len(self))[rows]
        if len(chosen) == 0:
            raise UserError("predictions must not be empty; no row was taken.")
        first, last = int(chosen[0]), int(chosen[-1])
        consecutive = len(chosen) == last - first + 1 and bool((np.diff(chosen) == 1).all())
        if consecutive and len(chosen) == len(self):
            return self
        index: Any = slice(first, last + 1) if consecutive else chosen
        selected = object.__new__(Predictions)  # every array was checked: not again for some of its rows
        own = vars(selected)
        own |= {name: vars(self)[name] for name in _KEPT}
        own |= {name: _at(vars(self)[name], index) for name in _BY_ROW}
        own |= {name: _at(vars(self)[name], (slice(None), index)) for name in (*_BY_SAMPLE, "features")}
        own |= {name: {key: column[index] for key, column in vars(self)[name].items()} for name in _BY_NAME}
        own["_logits"] = self.logits[:, index] if consecutive else self._deferred_rows(chosen)
        # Every row is pooled on its own: what is known of a row stays true.
        if "_pooled" in vars(self):
            own["_pooled"] = tuple(_at(side, index) for side in self._pooled)
        if consecutive and "summary" in vars(self):
            own["summary"] = self.summary.take(index)
        return selected

    def _deferred_rows(self, rows: IntArray) -> DeferredLogits:
        def summary() -> Summary | None:
            available: Summary | None = vars(self).get("summary")
            return None if available is None else available.take(rows)

        return DeferredLogits((self.samples, len(rows), self.class_count), lambda: self.logits[:, rows], summary)

    def take_samples(self, samples: IntArray | BoolArray) -> Predictions:
        """Return the predictions of some samples alone, without scores and features of the system, which are of all."""
        columns = {name: _at(vars(self)[name], samples) for name in _BY_SAMPLE}
        columns |= {"logits": self.logits[samples], "member": self.member[samples]}
        return self.with_checked(scores={}, features=None, **columns)

    def as_ood(self) -> Predictions:
        """Return the same with every row flagged as out of distribution."""
        return self.with_checked(ood=np.ones(len(self), dtype=bool))

    @property
    def labelled(self) -> Predictions:
        """Only the examples whose class is known and among the classes; itself where all are."""
        if self.target == "multilabel" or (self.labels >= 0).all():
            return self
        return self._labelled_rows

    @cached_property
    def _labelled_rows(self) -> Predictions:
        return self.take(self.labels >= 0)


_BY_ROW = ("labels", "ood", "ids", "group")
_BY_SAMPLE = ("data_variance", "model_variance")
_BY_NAME = ("columns", "scores")
_KEPT = ("target", "member", "temperature", "classes", "kind", "empty_decision", "notes", "system")


def _at(array: Any, index: Any) -> Any:
    return None if array is None else array[index]


def check_predictions(value: Any, argument: str) -> None:
    """Refuse anything but predictions, such as the path of a file of them."""
    if not isinstance(value, Predictions):
        raise UserError(f"{argument} must be dubio.Predictions; given {type(value).__name__}. Read a file with "
                        "dubio.read_predictions.")  # fmt: skip


def checked_logits(array: Logits) -> DeferredLogits:
    """Return logits that were checked before, to be given to :class:`Predictions` in place of an array."""
    return DeferredLogits(array.shape, lambda: array)


def join(parts: Sequence[Predictions]) -> Predictions:
    """Join the predictions of one system on different examples, rows one after another.

    Where a part has no ids or groups and another has, its rows get names of their own (:func:`join_names`); where a
    part lacks a column, its texts are empty. Features are joined where all parts have them. ``kind`` is None unless all
    parts have the same.

    Raises:
        UserError: When they differ in samples, classes, target or temperature, or only some have a variance or score.
    """
    first = parts[0]
    for other in parts[1:]:
        facts = ("samples", "class_count", "target", "temperature", "empty_decision")
        _check_same("join predictions", first, other, facts)
        if first.classes is not None and other.classes is not None:
            _check_same("join predictions", first, other, ("classes",))
        if not np.array_equal(other.member, first.member):
            raise UserError("cannot join predictions: their samples come from different members.")
        _check_all_or_none("join predictions", _quantities(first) ^ _quantities(other))
    sizes = list(map(len, parts))
    stacked = {name: _stack([getattr(item, name) for item in parts], 0) for name in ("labels", "ood")}
    stacked |= {name: _stack([getattr(item, name) for item in parts], 1) for name in (*_BY_SAMPLE, "features")}
    stacked |= {name: join_names([getattr(item, name) for item in parts], sizes) for name in ("ids", "group")}
    stacked["scores"] = {name: np.concatenate([item.scores[name] for item in parts]) for name in first.scores}
    stacked["columns"] = {
        name: np.concatenate([item.columns.get(name, np.full(len(item), "")) for item in parts])
        for name in dict.fromkeys(name for item in parts for name in item.columns)
    }
    stacked["classes"] = next((item.classes for item in parts if item.classes is not None), None)
    stacked["notes"] = tuple(dict.fromkeys(note for item in parts for note in item.notes))
    for name in ("kind", "system"):
        stacked[name] = getattr(first, name) if len({getattr(item, name) for item in parts}) == 1 else None
    logits = DeferredLogits(
        (first.samples, sum(sizes), first.class_count),
        lambda: np.concatenate([item.logits for item in parts], axis=1),
        lambda: Summary.joined([item.summary for item in parts]),
    )
    return first.with_checked(logits=logits, **stacked)


def join_names(parts: Sequence[StrArray | None], sizes: Sequence[int]) -> StrArray | None:
    """Join ids or groups of several sets of rows; rows of a set without any get names that no other row has.

    Such a row is a unit of its own, and its name is that of its position (:func:`row_names`).

    Args:
        parts: The names of each set, or None.
        sizes: The number of rows of each set.

    Returns:
        The names of all rows; None where no set has any.
    """
    names = [column for column in parts if column is not None]
    if not names:
        return None
    numbers = row_names(sum(sizes))
    while any(np.char.startswith(column, numbers[0][:-9]).any() for column in names):
        numbers = np.char.add("_", numbers)
    own = np.split(numbers, np.cumsum(sizes)[:-1])
    return np.concatenate([rows if column is None else column for column, rows in zip(parts, own, strict=True)])


def row_names(count: int) -> StrArray:
    """Return names of rows that have none: their positions, in digits of one length so that names sort like rows."""
    return np.char.add("row ", np.char.zfill(np.arange(count).astype(np.str_), 9))


def _quantities(predictions: Predictions) -> set[str]:
    """Return the names of the variances and scores that a system gives beside its logits."""
    variances = {name for name in _BY_SAMPLE if getattr(predictions, name) is not None}
    return variances | {f"score {name!r}" for name in predictions.scores}


def pool_members(parts: Sequence[Predictions]) -> Predictions:
    """Make the ensemble of several fits on the same examples: M × T samples, each with the index of its member.

    An own score of the members, such as a distance in their features, becomes its mean over members.

    Raises:
        UserError: When the parts are not about the same examples, or only some have a variance or score.
    """
    first = parts[0]
    for other in parts[1:]:
        _check_same("pool members", first, other, ("class_count", "target", "temperature", "empty_decision"))
        _check_all_or_none("pool members", _quantities(first) ^ _quantities(other))
        if not np.array_equal(other.labels, first.labels) or (
            first.ids is not None and other.ids is not None and not np.array_equal(other.ids, first.ids)
        ):
            raise UserError("cannot pool members: they were predicted on different examples.")
    columns = ("logits", *_BY_SAMPLE, "features")
    stacked = {name: _stack([getattr(item, name) for item in parts], 0) for name in columns}
    member = np.concatenate([np.full(item.samples, index, dtype=np.int64) for index, item in enumerate(parts)])
    scores = {name: np.mean([item.scores[name] for item in parts], axis=0) for name in first.scores}
    return first.with_checked(member=member, scores=scores, **stacked)


def _stack(arrays: list[Any], axis: int) -> Any:
    return None if any(array is None for array in arrays) else np.concatenate(arrays, axis=axis)


def _check_all_or_none(action: str, lacking: set[str]) -> None:
    """Refuse a variance or score that one set of predictions has and another has not: it would be lost."""
    if lacking:
        raise UserError(f"cannot {action}: only some of them have {min(lacking)}; give it for all or none.")


def _check_same(action: str, first: Predictions, other: Predictions, names: Sequence[str]) -> None:
    for name in names:
        values = getattr(first, name), getattr(other, name)
        if values[0] != values[1]:
            raise UserError(f"cannot {action}: {name} is {values[0]} in one and {values[1]} in another.")
