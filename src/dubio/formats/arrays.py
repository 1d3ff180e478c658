"""Predictions from named arrays, whatever file or framework they come from.

Names: one of ``probs``, ``log_probs``, ``logits``; then ``labels`` and optionally ``ids``, ``group``, ``member``,
``ood``, ``data_variance``, ``model_variance``, ``classes``, ``empty_decision`` (a text), ``column.<name>`` (texts such
as a site) and ``score.<name>`` (the system's own uncertainty). A single array of another name is read where ``values``
says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dubio.core.column_roles import is_misspelt
from dubio.core.errors import UserError, listing, nearest, one_of, plural
from dubio.core.npz import row_that_is_no_text
from dubio.core.predictions import Logits, Predictions
from dubio.core.types import TARGETS, UNLABELLED, BoolArray, EmptyDecision, FloatArray, IntArray, Kind, StrArray, Target
from dubio.formats.columns import COLUMN, Roles, column_key, without_role
from dubio.formats.values import TOLERANCE, VALUES, Values, as_logits, numbers_of, real_numbers

BESIDE = ("labels", "ids", "group", "member", "ood", "data_variance", "model_variance", "classes", "empty_decision")
NAMES = (*VALUES, *BESIDE)
SCORE = "score."
"""What the name of a system's own uncertainty begins with."""

BUILT_IN = (
    "confidence", "predictive_entropy", "expected_entropy", "mutual_information", "model_uncertainty",
    "data_uncertainty", "total_variance", "expected_variance", "random",
)  # fmt: skip
"""Names of the uncertainties that dubio computes itself; a test compares them with the registered ones."""


@dataclass(frozen=True, eq=False)
class LabelFile:
    """Labels that a file of their own holds, and the ids of their rows where it has some.

    Attributes:
        path: The file.
        labels: One per row of it.
        ids: As long, or None.
    """

    path: Path
    labels: NDArray[Any]
    ids: Any = None

    def of_rows(self, ids: StrArray | None) -> tuple[NDArray[Any], tuple[str, ...]]:
        """Return the labels of rows with these ids, in their order, and notes about what is not used.

        By the order of the rows where either has no ids: a sheet that an annotator filled in is rarely in the order of
        the predictions, and nothing shows it where the number of rows agrees.

        Raises:
            UserError: When ids of the file are not unique, or a row has no label in it.
        """
        name = repr(str(self.path))
        if self.ids is None:
            return self.labels, ()
        if ids is None:
            return self.labels, (f"The ids of {name} are not used, because the predictions have none: its labels are "
                                 "taken in the order of the rows.",)  # fmt: skip
        shapes = np.shape(self.labels), np.shape(self.ids)
        if len(shapes[1]) != 1 or shapes[0][:1] != shapes[1]:
            raise UserError(f"labels of {name}: ids must have shape {shapes[0][:1]}; given {shapes[1]}.")
        try:
            own = as_ids(self.ids, "ids").tolist()
        except UserError as refusal:
            raise UserError(f"labels of {name}: {refusal}") from None
        row_of = {identifier: row for row, identifier in enumerate(own)}
        rows = [row_of.get(identifier, -1) for identifier in ids.tolist()]
        if -1 in rows:
            missing = [identifier for identifier, row in zip(ids.tolist(), rows, strict=True) if row < 0]
            raise UserError(f"{name} has no label for {len(missing)} of {len(ids)} rows of the predictions (first: id "
                            f"{missing[0]!r}). Labels are taken by their ids; leave a label empty (a number: -1) where "
                            "it is unknown.")  # fmt: skip
        others = row_of.keys() - set(ids.tolist())
        spare = [identifier for identifier in own if identifier in others]
        note = f"{name}: the predictions have no rows for {len(spare)} {plural('label', len(spare))}"
        return self.labels[rows], (f"{note} (first: id {spare[0]!r}).",) if spare else ()


def is_known(name: str) -> bool:
    """Return whether an array of this name belongs to predictions."""
    return name in NAMES or name.startswith((COLUMN, SCORE))


def predictions_from_arrays(
    arrays: Mapping[str, Any],
    *,
    values: Values | None = None,
    labels: Any = None,
    target: Target = "multiclass",
    tolerance: float = TOLERANCE,
    temperature: float = 1.0,
    kind: Kind | None = None,
    roles: Roles | None = None,
) -> Predictions:
    """Return checked predictions from named arrays.

    Args:
        arrays: By the names above.
        values: The meaning of the numbers, where their name does not say it.
        labels: Labels, where ``arrays`` has none.
        target: The kind of prediction; never guessed from the shape of the labels.
        tolerance: Largest difference from one of the sum of a row's probabilities.
        temperature: Applied after pooling.
        kind: The kind of split they were predicted on.
        roles: Arrays of other names that are groups, ids or subgroups.

    Raises:
        UserError: Naming the array, row and column at fault, or an array that looks like groups and is not used.
    """
    one_of("target", target, TARGETS)
    roles = roles or Roles()
    arrays = roles.assigned(arrays, "ids", NAMES)
    refuse_near_misses(arrays, roles)
    refuse_built_in_scores(arrays, "array")
    meaning, name = which_values(arrays, values)
    logits = as_logits(arrays[name], meaning, target, tolerance=tolerance, name=name)
    own = {key: array for key, array in arrays.items() if key != name}
    return with_logits(logits, own, labels=labels, target=target, temperature=temperature, kind=kind, roles=roles)


def with_logits(
    logits: Logits,
    arrays: Mapping[str, Any],
    *,
    labels: Any,
    target: Target,
    temperature: float,
    kind: Kind | None,
    roles: Roles,
) -> Predictions:
    """Return predictions from logits ``[S, N, K]`` and the arrays beside them, under the names of their roles."""
    if logits.ndim != 3:
        raise UserError(f"logits must be [samples, examples, classes]; given shape {logits.shape}.")
    rows, classes = logits.shape[1:]
    if labels is not None and "labels" in arrays:
        raise UserError("labels are given twice: beside the predictions, and on their own.")

    def optional(name: str, convert: Callable[..., Any], *more: Any) -> Any:
        return None if arrays.get(name) is None else convert(arrays[name], name, *more)

    names, ids = optional("classes", _class_names), optional("ids", as_ids)
    labels, unused = labels.of_rows(ids) if isinstance(labels, LabelFile) else (labels, ())
    labels = labels if labels is not None else arrays.get("labels")
    declared = [name for name, _ in _prefixed(arrays, COLUMN)]
    notes = roles.notes_on(_per_row(arrays, rows), grouped=arrays.get("group") is not None, declared=declared)
    return Predictions(
        logits,
        as_labels(labels, rows, classes, target, names, ids),
        target,
        optional("ood", as_flags, rows),
        optional("member", _integers),
        optional("data_variance", _variance, 3),
        optional("model_variance", _variance, 2),
        ids,
        optional("group", as_texts),
        temperature,
        names,
        kind,
        {name: as_texts(array, name) for name, array in _prefixed(arrays, COLUMN)},
        {name: as_score(array, name) for name, array in _prefixed(arrays, SCORE)},
        cast(EmptyDecision, str(arrays.get("empty_decision", "empty"))),
        (*notes, *unused),
    )


def with_roles(predictions: Predictions, roles: Roles) -> Predictions:
    """Return predictions whose groups or ids are those of their columns that the user names.

    Raises:
        UnknownName: When they have no such column, of subgroups either.
    """
    for name in roles.by:
        column_key(predictions.columns, name, "by")
    own: dict[str, StrArray] = {}
    if roles.group is not None:
        own["group"] = predictions.columns[column_key(predictions.columns, roles.group, "group")]
    if roles.ids is not None:
        own["ids"] = as_ids(predictions.columns[column_key(predictions.columns, roles.ids, "id")], roles.ids)
    return predictions.with_checked(**own) if own else predictions


def _per_row(arrays: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return the arrays that have no role, None in place of one that has no value per row."""
    names = [name for name in arrays if is_known(name)]
    others = {name: numbers_of(array, name) for name, array in without_role(arrays, names).items()}
    return {name: array if array.shape == (rows,) else None for name, array in others.items()}


def _prefixed(arrays: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    return [(name.removeprefix(prefix), array) for name, array in arrays.items() if name.startswith(prefix)]


def as_score(array: Any, name: str) -> FloatArray:
    """Return numbers ``[N]`` in float64."""
    return real_numbers(array, f"{SCORE}{name}").astype(np.float64, copy=False)


def refuse_near_misses(names: Iterable[str], roles: Roles) -> None:
    """Refuse a name that is nearly a known one: ignoring ``groups`` would make intervals wrong.

    Args:
        names: Under the names of their roles.
        roles: What the user names; nothing is a group where rows are independent.

    Raises:
        UserError: Naming both.
    """
    present = set(names)
    for name in sorted(name for name in present if not is_known(name)):
        close = nearest(name, NAMES)
        if close == "group" and roles.rows_are_independent:
            continue
        if close is not None and close not in present and (_alike(name, close) or is_misspelt(name, close)):
            raise UserError(f"array {name!r} is not known; did you mean {close!r}? Known: {', '.join(NAMES)}.")


def refuse_built_in_scores(names: Iterable[str], kind: str) -> None:
    """Refuse an own uncertainty that is called as one that dubio computes: a name could not say which is meant.

    Args:
        names: Names of arrays or columns.
        kind: What a message calls them.

    Raises:
        UserError: Naming the first of them, and another name for it.
    """
    for name in names:
        own = name.removeprefix(SCORE)
        if name.startswith(SCORE) and own in BUILT_IN:
            raise UserError(f"{kind} {name!r} has the name of an uncertainty that dubio computes itself; rename the "
                            f"{kind}, to {SCORE + 'own_' + own!r} say.")  # fmt: skip


def _alike(name: str, other: str) -> bool:
    """Return whether names are equal but for case, underscores and a plural s."""
    return name.lower().replace("_", "").rstrip("s") == other.replace("_", "").rstrip("s")


def which_values(arrays: Mapping[str, Any], values: Values | None) -> tuple[Values, str]:
    """Return the meaning of the numbers and the name of their array.

    Raises:
        UserError: When that is unknown or ambiguous.
    """
    if values is not None:
        one_of("values", values, VALUES)
    named = [name for name in VALUES if name in arrays]
    if values in named:
        return values, values
    if len(named) > 1:
        raise UserError(f"there are {' and '.join(named)}; say which to use with values (--values).")
    if named and values is not None:
        raise UserError(f"the array is called {named[0]!r}, and values (--values) says {values!r}.")
    if named:
        return named[0], named[0]
    others = [name for name in arrays if not is_known(name)]
    if len(others) != 1:
        names = ", ".join(sorted(arrays)) or "none"
        raise UserError(f"no array is called {', '.join(VALUES[:-1])} or {VALUES[-1]}; found: {names}.")
    if values is None:
        raise UserError(f"say what the array {others[0]!r} is with values (--values): {', '.join(VALUES)}.")
    return values, others[0]


def as_labels(
    labels: Any,
    rows: int,
    classes: int,
    target: Target,
    names: Sequence[str] | None,
    ids: StrArray | None = None,
) -> IntArray:
    """Return class indices ``[N]`` (−1: unlabelled), or multi-hot ``[N, K]``.

    Args:
        labels: Whole numbers or names of classes; None for unlabelled rows.
        rows: The number of rows.
        classes: The number of classes.
        target: The kind of prediction.
        names: The names of the classes, where labels are names.
        ids: The ids of the rows, for messages.
    """
    if labels is None:
        if target == "multilabel":
            raise UserError("labels are missing; multilabel predictions need them.")
        return np.full(rows, UNLABELLED, dtype=np.int64)
    array = numbers_of(labels, "labels")
    shape = (rows, classes) if target == "multilabel" else (rows,)
    if array.shape != shape:
        hint = " For several labels per row, say target (--target) multilabel." if array.ndim == 2 and rows else ""
        beside = f"beside {rows} predictions of {classes} classes"
        raise UserError(f"labels must have shape {shape} {beside}; given {array.shape}.{hint}")
    named = array.dtype.kind in "US" and target != "multilabel"
    return _named_labels(as_texts(array, "labels"), names, ids) if named else _integers(array, "labels")


def _named_labels(labels: StrArray, names: Sequence[str] | None, ids: StrArray | None) -> IntArray:
    """Return the indices of labels written as text: names of classes, or whole numbers where those have none."""
    if names is None:
        try:
            return np.array([int(label) if label else UNLABELLED for label in labels.tolist()], dtype=np.int64)
        except (ValueError, OverflowError):
            allowed = "give whole numbers, or an array 'classes'"
            raise UserError(f"labels are texts, and the classes have no names; {allowed}.") from None
    index = {name: number for number, name in enumerate(names)} | {"": UNLABELLED}
    for row, label in enumerate(labels.tolist()):
        if label not in index:
            where = f"row {row}" if ids is None else f"that of id {str(ids[row])!r}"
            raise UserError(f"labels: {where} is {label!r}, which is not a class{nearest_hint(label, names)}. "
                            f"Classes: {listing(names)}.")  # fmt: skip
    return np.array([index[label] for label in labels.tolist()], dtype=np.int64)


def nearest_hint(label: str, names: Sequence[str]) -> str:
    """Return the nearest of these names as the end of a sentence; empty where none is close."""
    hint = nearest(label, names)
    return f"; nearest: {hint!r}" if hint else ""


def _integers(array: Any, name: str) -> IntArray:
    numbers = numbers_of(array, name)
    if numbers.dtype.kind not in "fiub":
        raise UserError(f"{name} must be whole numbers; given an array of type {numbers.dtype}.")
    if numbers.dtype.kind == "f":
        bad = ~(np.isfinite(numbers) & (numbers == np.floor(numbers)))
        if bad.any():
            where = np.argwhere(bad)[0]
            raise UserError(f"{name} must be whole numbers; row {int(where[0])} is {numbers[tuple(where)]}.")
    if numbers.dtype.kind == "u" and numbers.size and numbers.max() > np.iinfo(np.int64).max:
        raise UserError(f"{name} must be whole numbers below 2^63.")
    return numbers.astype(np.int64)


def as_flags(array: Any, name: str, rows: int) -> BoolArray:
    """Return truth values ``[N]`` from truth values or 0 and 1."""
    flags = numbers_of(array, name)
    if flags.shape != (rows,):
        raise UserError(f"{name} must have shape {(rows,)}; given {flags.shape}.")
    if flags.dtype.kind == "b":
        return flags
    numbers = _integers(flags, name)
    if ((numbers != 0) & (numbers != 1)).any():
        row = int(np.flatnonzero((numbers != 0) & (numbers != 1))[0])
        raise UserError(f"{name} must be true or false (0 or 1); row {row} is {numbers[row]}.")
    return numbers.astype(bool)


def _variance(array: Any, name: str, dimensions: int) -> NDArray[np.float32]:
    """Return variances with a leading sample axis, finite and not negative."""
    variances = real_numbers(array, name)
    if variances.ndim == dimensions - 1:
        variances = variances[None]
    narrowed = variances.astype(np.float32, copy=False)
    bad = ~((narrowed >= 0) & (narrowed < np.inf))
    if bad.any():
        where = tuple(int(index) for index in np.argwhere(bad)[0])
        raise UserError(f"{name} must be finite and not negative; at {where} (sample, row, …) it is {narrowed[where]}.")
    return narrowed


def as_texts(array: Any, name: str) -> StrArray:
    """Return texts ``[N]`` from texts or whole numbers."""
    texts = numbers_of(array, name)
    if texts.dtype.kind == "S":
        try:
            return np.char.decode(texts, "utf-8")
        except UnicodeDecodeError as fault:
            number = texts.ravel().tolist().index(fault.object.rstrip(b"\0"))
            raise UserError(f"{name}: row {number} is not UTF-8: {fault}") from fault
    strings = texts.dtype.kind == "O" and all(isinstance(item, str) for item in texts.ravel())
    if texts.dtype.kind not in "Uiu" and not strings:
        raise UserError(f"{name} must be texts or whole numbers; given an array of type {texts.dtype}.")
    texts = texts.astype(np.str_)
    if (row := row_that_is_no_text(texts)) is not None:
        raise UserError(f"{name}: row {row} is not Unicode text.")
    return texts


def as_ids(array: Any, name: str) -> StrArray:
    """Return texts ``[N]``, all different."""
    ids = as_texts(array, name)
    unique, counts = np.unique(ids, return_counts=True)
    if len(unique) != ids.size:
        double = str(unique[counts > 1][0])
        rows = ", ".join(str(row) for row in np.flatnonzero(ids == double)[:2])
        raise UserError(f"{name} must be unique; {double!r} is in rows {rows}.")
    return ids


def _class_names(array: Any, name: str) -> tuple[str, ...]:
    texts = as_texts(array, name)
    if texts.ndim != 1 or len(set(texts.tolist())) != len(texts):
        raise UserError(f"{name} must be a list of different names.")
    return tuple(texts.tolist())
