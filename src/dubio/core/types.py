"""The types that all packages share: examples, splits, tasks, metrics, runs, and the names of kinds and targets.

These types hold data and check it; they train nothing and score nothing. Predictions have a module of their own,
:mod:`dubio.core.predictions`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError, check_known, one_of
from dubio.core.lazy_rows import LazyRows
from dubio.core.weights import Values, Weights

if TYPE_CHECKING:
    from dubio.core.predictions import Predictions


Kind = Literal["train", "val", "cal", "id", "shift", "ood"]
"""The purpose of a split. ``cal`` is seen neither by training nor by selection."""

Target = Literal["multiclass", "multilabel", "ordinal"]
Modality = Literal["text", "image", "table"]
Direction = Literal["higher", "lower"]
EmptyDecision = Literal["argmax", "empty"]
"""The decision about a multi-label row without a label above one half: the most probable label, or none."""

Need = Literal["probs", "labels", "samples", "ood", "data_variance", "model_variance", "two_classes"]
"""What a metric may need of predictions; ``probs`` are probabilities of all classes."""

FloatArray = NDArray[np.floating]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
StrArray = NDArray[np.str_]
Inputs = tuple[str, ...] | NDArray[Any] | LazyRows

PADDING_WORD = "\ue000"
"""A word in a text that stands for padding: no vocabulary has it, and its vector is zero."""

UNKNOWN_WORD = "\ue001"
"""A word that no vocabulary has."""

KINDS: tuple[Kind, ...] = get_args(Kind)
TARGETS: tuple[Target, ...] = get_args(Target)
EMPTY_DECISIONS: tuple[EmptyDecision, ...] = get_args(EmptyDecision)

UNLABELLED = -1
"""The label of an example that belongs to none of the task's classes, or whose class is not known."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Raw examples, as they come from a data set, before any encoder has seen them.

    Attributes:
        inputs: Text: a tuple of strings. Images: uint8 ``[N, H, W, C]``, in memory or in a file. Tables: float
            ``[N, D]``, NaN = missing.
        labels: Class index ``[N]`` (−1: none of the task's classes), or multi-hot ``[N, K]``.
        ids: Names of the examples, unique within a data set.
        group: The unit an example belongs to (a patient, a document), which is never split up or resampled in part.
        facts: Further texts per example, by name (a hospital, a quality), for subgroups in the report. Not in the
            fingerprint, since nothing is learned from them.
    """

    inputs: Inputs
    labels: IntArray
    ids: StrArray | None = None
    group: StrArray | None = None
    facts: Mapping[str, StrArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = {f"fact {name!r}": column for name, column in self.facts.items()}
        for name, column in {**columns, "labels": self.labels, "ids": self.ids, "group": self.group}.items():
            if column is not None and len(column) != len(self.inputs):
                raise UserError(f"{name} has {len(column)} rows, inputs has {len(self.inputs)}.")

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: IntArray) -> Examples:
        """Return the examples at these rows, in this order."""
        inputs: Inputs
        if isinstance(self.inputs, tuple):
            inputs = tuple(self.inputs[int(i)] for i in rows)
        else:
            inputs = self.inputs.take(rows) if isinstance(self.inputs, LazyRows) else self.inputs[rows]
        ids, group = (None if column is None else column[rows] for column in (self.ids, self.group))
        return Examples(inputs, self.labels[rows], ids, group, {name: fact[rows] for name, fact in self.facts.items()})

    def fingerprint(self) -> str:
        """Return the SHA-256 of the content: inputs, labels, ids and groups; facts do not count."""
        digest = hashlib.sha256()
        if isinstance(self.inputs, tuple):
            for text in self.inputs:
                raw = text.encode("utf-8", "surrogatepass")
                digest.update(len(raw).to_bytes(8, "little"))
                digest.update(raw)
        elif isinstance(self.inputs, LazyRows):
            digest.update(self.inputs.content())
        else:
            _hash_array(digest, self.inputs)
        for column in (self.labels, self.ids, self.group):
            digest.update(b"|")
            if column is not None:
                _hash_array(digest, column)
        return digest.hexdigest()


def _hash_array(digest: Any, array: NDArray[Any]) -> None:
    """Feed shape, type and bytes; the width of a string array does not count."""
    digest.update(str(array.shape).encode())
    if array.dtype.kind == "U":
        digest.update("\x00".join(array.tolist()).encode("utf-8", "surrogatepass"))
        return
    digest.update(array.dtype.str.encode())
    digest.update(np.ascontiguousarray(array).data)


@dataclass(frozen=True, eq=False)
class Split:
    """A named part of a task's data.

    Attributes:
        name: Unique within the task.
        kind: The purpose of the split.
        data: Its examples.
        fingerprint: Hash of the content of the data; nothing else of the split enters it.
        family: The kind of shift that several splits share, such as one corruption at several severities.
        severity: The strength of the shift within its family, from 1 on.
    """

    name: str
    kind: Kind
    data: Examples
    fingerprint: str
    family: str | None = None
    severity: int | None = None

    @classmethod
    def of(
        cls, name: str, kind: Kind, data: Examples, *, family: str | None = None, severity: int | None = None
    ) -> Split:
        """Make a split and hash its content."""
        one_of("kind", kind, KINDS)
        return cls(name, kind, data, data.fingerprint(), family, severity)

    def __len__(self) -> int:
        return len(self.data)


_NUMBERED = re.compile(r"(.+)-([1-9][0-9]*)")


def families_by_name(sizes: Mapping[str, int]) -> dict[str, tuple[str, int]]:
    """Return family and severity of shift splits whose names alone state them.

    They are called ``noise-1``, ``noise-2`` and so on without a gap and hold the same number of examples: the same ones
    at increasing severity. Other domains may end in numbers too (``hospital-2``), but have different sizes.

    Args:
        sizes: Number of examples of each shift split, by name.
    """
    families: dict[str, dict[int, str]] = {}
    for name in sizes:
        if match := _NUMBERED.fullmatch(name):
            families.setdefault(match[1], {})[int(match[2])] = name
    return {
        name: (family, severity)
        for family, names in families.items()
        if len(names) > 1 and max(names) == len(names) and len({sizes[name] for name in names.values()}) == 1
        for severity, name in names.items()
    }


@dataclass(frozen=True)
class SourceCard:
    """The origin of a data set and its terms of use.

    Attributes:
        source: The package, address or file it was read from.
        revision: The version of that source.
        licence: Its licence.
        citation: The publication to cite.
        description: One or two sentences a reader of the report needs.
    """

    source: str
    revision: str
    licence: str
    citation: str
    description: str = ""


def empty_decision_for(*labels: IntArray) -> EmptyDecision:
    """Return ``argmax`` where every one of these training rows has a label (of several): no row is without one then.

    Args:
        labels: Class index ``[N]`` or multi-hot ``[N, K]``, of each training split.
    """
    return "argmax" if all(rows.ndim == 2 and rows.any(axis=1).all() for rows in labels) else "empty"


@dataclass(frozen=True, eq=False)
class Task:
    """A data set ready for use: its inputs, its target and its splits.

    Attributes:
        name: The task's registered name, or the user's.
        inputs: The modality of an example.
        target: The kind of prediction.
        classes: The names of the classes, in the order of the label index.
        splits: At least one ``train``, one ``val`` and one ``id``.
        card: Source card.
        notes: Facts about these splits that a reader must know: duplicates found, how rows were divided.
        rows: Number of rows read; None where splits hold other rows than those, such as corrupted images.
        left_out: Reason → rows that were read and are in no split; with those of all splits they are ``rows``.
        features: Names of the columns of a table, where they have any.
        novel: Classes of the data that were held out of training.
    """

    name: str
    inputs: Modality
    target: Target
    classes: tuple[str, ...]
    splits: tuple[Split, ...]
    card: SourceCard
    notes: tuple[str, ...] = ()
    rows: int | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    novel: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        accounted = sum(map(len, self.splits)) + sum(self.left_out.values())
        if self.rows not in (None, accounted):
            raise ValueError(f"task {self.name}: {self.rows} rows were read, {accounted} are accounted for.")

    def split(self, name: str) -> Split:
        """Return the split of that name.

        Raises:
            UnknownName: When there is none.
        """
        splits = {split.name: split for split in reversed(self.splits)}
        check_known(f"split of task {self.name}", [name], splits)
        return splits[name]

    def of_kind(self, *kinds: Kind) -> tuple[Split, ...]:
        """Return the splits of these kinds, in the task's order."""
        return tuple(split for split in self.splits if split.kind in kinds)

    @property
    def empty_decision(self) -> EmptyDecision:
        """How multi-label rows without a label above one half are decided, by the labels of the training rows."""
        return empty_decision_for(*(split.data.labels for split in self.of_kind("train")))

    def class_counts(self, split: Split) -> dict[str, int]:
        """Return class → number of rows of a split that carry it."""
        labels = split.data.labels
        if labels.ndim == 1:
            counts = np.bincount(labels[labels >= 0], minlength=len(self.classes))
        else:
            counts = labels.sum(axis=0)
        return dict(zip(self.classes, counts.tolist(), strict=True))

    @property
    def account(self) -> str:
        """Where every row that was read is, in one sentence; empty where their number is not known."""
        if self.rows is None:
            return ""
        used = ", ".join(f"{split.name} {len(split):,}" for split in self.splits)
        lost = "".join(f"; left out, {reason}: {count:,}" for reason, count in self.left_out.items())
        return f"Of {self.rows:,} rows read: {used}{lost}."


@dataclass(frozen=True)
class Metric:
    """A number computed from predictions, and what may be done with it.

    Attributes:
        name: Its registered name.
        better: Which way is better.
        compute: The value on a set of predictions.
        per_example: Values of the rows whose mean is the value and whose spread gives its variance, where it has them.
        needs: What the predictions must have for it to be defined.
        targets: The targets it is defined for.
        comparable: False for what must not rank different models; ``why_not`` says why.
        why_not: The reason, in one sentence.
        version: Bumped by hand when the definition changes.
        interval: ``percentile``, or ``centred`` for an estimate that resampling itself pushes up or down, such as a sum
            of absolute differences: its bootstrap interval takes the spread of the replicates, not their place.
        weighted: The values under several columns of weights; None for what depends on the order of rows or on a
            random split of them, and is computed again on the rows of every replicate.
        least_units: With fewer examples or groups (of detection, on the smaller side) systems are not compared by it.
        likelihood: Whether a probability of zero makes it infinite, unless probabilities are raised to a floor.
    """

    name: str
    better: Direction
    compute: Callable[[Predictions], float]
    per_example: Callable[[Predictions], FloatArray] | None = None
    needs: frozenset[Need] = frozenset()
    targets: frozenset[Target] = frozenset(TARGETS)
    comparable: bool = True
    why_not: str = ""
    version: int = 1
    interval: Literal["percentile", "centred"] = "percentile"
    weighted: Callable[[Predictions, Weights], Values] | None = None
    least_units: int = 2
    likelihood: bool = False


def class_frequencies(labels: IntArray, classes: int) -> FloatArray:
    """Return the smoothed frequency of every class ``[K]``, or of every label of multi-hot labels ``[N, K]``.

    Jeffreys' prior adds half an example to every class, (n_k + ½) / (n + K/2), and to either side of a label,
    (n_k + ½) / (n + 1): a class that training lacks keeps a probability above 0, and likelihoods stay finite.
    """
    if labels.ndim == 2:
        return np.asarray((labels.sum(axis=0) + 0.5) / (len(labels) + 1))
    counts = np.bincount(labels[labels >= 0], minlength=classes) + 0.5
    return np.asarray(counts / counts.sum())
