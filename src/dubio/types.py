"""The core types: splits, tasks, predictions, metrics, runs.

Everything left of :class:`Predictions` may be replaced by the user's own system; everything right of it needs only
numpy and scipy. These types hold data and check it; they train nothing and score nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dubio.errors import UnknownName, UserError, one_of
from dubio.pooling import FloatArray, pool_sigmoid, pool_softmax, row_blocks

Kind = Literal["train", "val", "cal", "id", "shift", "ood"]
"""What a split is for. ``cal`` is seen neither by training nor by selection."""

Target = Literal["multiclass", "multilabel", "ordinal"]
Modality = Literal["text", "image", "table"]
Direction = Literal["higher", "lower"]
Need = Literal["labels", "samples", "ood", "data_variance", "model_variance", "two_classes"]

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
StrArray = NDArray[np.str_]
Inputs = tuple[str, ...] | NDArray[Any]

KINDS: tuple[Kind, ...] = get_args(Kind)
TARGETS: tuple[Target, ...] = get_args(Target)

UNLABELLED = -1
"""The label of an example that belongs to none of the task's classes, or whose class is not known."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Raw examples, as they come from a data set, before any encoder has seen them.

    Attributes:
        inputs: Text: a tuple of strings. Images: uint8 ``[N, H, W, C]``. Tables: float ``[N, D]``, NaN = missing.
        labels: Class index ``[N]`` (−1: none of the task's classes), or multi-hot ``[N, K]``.
        ids: What an example is called, unique within a data set.
        group: What belongs together (a patient, a document) and is never torn apart or resampled singly.
    """

    inputs: Inputs
    labels: IntArray
    ids: StrArray | None = None
    group: StrArray | None = None

    def __post_init__(self) -> None:
        for name in ("labels", "ids", "group"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.inputs):
                raise UserError(f"{name} has {len(column)} rows, inputs has {len(self.inputs)}.")

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: IntArray) -> Examples:
        """The examples at these rows, in this order."""
        inputs = tuple(self.inputs[int(i)] for i in rows) if isinstance(self.inputs, tuple) else self.inputs[rows]
        return Examples(
            inputs,
            self.labels[rows],
            None if self.ids is None else self.ids[rows],
            None if self.group is None else self.group[rows],
        )

    def fingerprint(self) -> str:
        """SHA-256 over the content: inputs, labels, ids and groups."""
        digest = hashlib.sha256()
        if isinstance(self.inputs, tuple):
            for text in self.inputs:
                raw = text.encode("utf-8", "surrogatepass")
                digest.update(len(raw).to_bytes(8, "little"))
                digest.update(raw)
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
    """A named part of a task's data with what it is for and the hash of its content."""

    name: str
    kind: Kind
    data: Examples
    fingerprint: str

    @classmethod
    def of(cls, name: str, kind: Kind, data: Examples) -> Split:
        """Make a split and hash its content."""
        one_of("kind", kind, KINDS)
        return cls(name, kind, data, data.fingerprint())

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True)
class SourceCard:
    """Where data comes from and on what terms.

    Attributes:
        source: The package, address or file it was read from.
        revision: The version of that source.
        licence: Its licence.
        citation: Whom to cite.
        description: One or two sentences a reader of the report needs.
    """

    source: str
    revision: str
    licence: str
    citation: str
    description: str = ""


@dataclass(frozen=True, eq=False)
class Task:
    """A data set made ready: what goes in, what comes out, and its splits.

    Attributes:
        name: The task's registered name, or the user's.
        inputs: What an example is.
        target: What is predicted.
        classes: The names of the classes, in the order of the label index.
        splits: At least one ``train``, one ``val`` and one ``id``.
        card: Source card.
        notes: What a reader must know of these splits: duplicates found, rows dropped.
    """

    name: str
    inputs: Modality
    target: Target
    classes: tuple[str, ...]
    splits: tuple[Split, ...]
    card: SourceCard
    notes: tuple[str, ...] = ()

    def split(self, name: str) -> Split:
        """The split of that name.

        Raises:
            UnknownName: When there is none.
        """
        for split in self.splits:
            if split.name == name:
                return split
        raise UnknownName(f"split of task {self.name}", name, [split.name for split in self.splits])

    def of_kind(self, *kinds: Kind) -> tuple[Split, ...]:
        """The splits of these kinds, in the task's order."""
        return tuple(split for split in self.splits if split.kind in kinds)


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
        for rows in row_blocks(self.samples, len(self), self.class_count):
            block = self.logits[:, rows]
            # A comparison is also False for NaN, and needs no second pass. A label with p = 1 has the logit +inf.
            good = block <= np.inf if self.target == "multilabel" else block < np.inf
            if not good.all():
                sample, row, column = (int(i[0]) for i in np.nonzero(~good))
                refused = "NaN" if self.target == "multilabel" else "NaN or +inf"
                raise UserError(
                    f"logits must not be {refused}; sample {sample}, row {rows.start + row}, "
                    f"column {column} is {block[sample, row, column]}."
                )
            if self.target != "multilabel" and (block == -np.inf).all(axis=-1).any():
                sample, row = (int(i[0]) for i in np.nonzero((block == -np.inf).all(axis=-1)))
                raise UserError(f"logits must not be -inf for every class; sample {sample}, row {rows.start + row}.")
        low, high = (0, 1) if self.target == "multilabel" else (UNLABELLED, self.class_count - 1)
        outside = (self.labels < low) | (self.labels > high)
        if outside.any():
            where = np.argwhere(outside)[0]
            raise UserError(
                f"labels must lie between {low} and {high}; row {int(where[0])} is {int(self.labels[tuple(where)])}."
            )

    def __len__(self) -> int:
        return int(self.logits.shape[1])

    @property
    def samples(self) -> int:
        """S, the number of samples."""
        return int(self.logits.shape[0])

    @property
    def class_count(self) -> int:
        """K, the number of classes."""
        return int(self.logits.shape[2])

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
        for rows in row_blocks(self.samples, len(self), self.class_count):
            block = self.logits[:, rows]
            if no is None:
                yes[rows] = pool_softmax(block, self.temperature)
            else:
                yes[rows], no[rows] = pool_sigmoid(block, self.temperature)
        return yes, no

    def take(self, rows: IntArray | BoolArray) -> Predictions:
        """The predictions at these rows, in this order."""

        def cut(column: Any, axis: int = 0) -> Any:
            return None if column is None else (column[rows] if axis == 0 else column[:, rows])

        taken = replace(
            self,
            logits=cut(self.logits, 1),
            labels=cut(self.labels),
            ood=cut(self.ood),
            data_variance=cut(self.data_variance, 1),
            model_variance=cut(self.model_variance, 1),
            ids=cut(self.ids),
            group=cut(self.group),
        )
        if "_pooled" in self.__dict__:  # rows are pooled one by one: what is known of them stays true
            taken.__dict__["_pooled"] = tuple(cut(side) for side in self._pooled)
        return taken

    @property
    def labelled(self) -> Predictions:
        """Only the examples whose class is known and among the classes; itself where all are."""
        if self.target == "multilabel" or (self.labels >= 0).all():
            return self
        return self._labelled_rows

    @cached_property
    def _labelled_rows(self) -> Predictions:
        return self.take(self.labels >= 0)


@dataclass(frozen=True)
class Metric:
    """A number computed from predictions, and what may be done with it.

    Attributes:
        name: Its registered name.
        better: Which way is better.
        compute: The value on a set of predictions.
        per_example: Contributions whose mean is the value, where it is such a mean.
        needs: What the predictions must have for it to be defined.
        targets: The targets it is defined for.
        comparable: False for what must not rank different models; ``why_not`` says why.
        why_not: The reason, in one sentence.
        version: Bumped by hand when the definition changes.
        summary: One line for ``dubio list metrics``.
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
    summary: str = ""


Status = Literal["done", "failed", "pending"]


@dataclass(frozen=True)
class Run:
    """One line of a benchmark: a method on a task with a seed, and where its predictions are.

    Attributes:
        id: Identity: the prediction's id.
        task: Task name.
        network: Network name.
        method: The method's name in this benchmark.
        seed: The benchmark's seed.
        member: Which independent fit of that seed, or None for a method that uses several.
        fits: The fits it draws from.
        spec: The resolved specification its id is the hash of.
        status: Whether its predictions are whole.
        timings: Seconds by phase, and what they were measured on; never part of an identity.
        environment: Versions and device, for the record.
    """

    id: str
    task: str
    network: str
    method: str
    seed: int
    member: int | None
    fits: tuple[str, ...]
    spec: Mapping[str, Any]
    status: Status = "pending"
    timings: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)


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

    return replace(
        first,
        logits=stack("logits", 1),
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
    return replace(
        first,
        logits=stack("logits"),
        data_variance=stack("data_variance"),
        model_variance=stack("model_variance"),
        member=member,
    )
