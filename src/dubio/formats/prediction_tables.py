"""Predictions from a table: one row per example or, with a column ``sample`` or ``member``, per sample of an example.

Columns ``p0, p1, …`` are probabilities, ``logp0, …`` their logarithms, ``logit0, …`` logits; ``p``, ``logp`` or
``logit`` alone is that of the second of two classes. Without such columns every column of numbers that is none of the
reserved ones is a class of that name, and ``values`` says what its numbers are. ``column.<name>`` is a further text per
example, ``score.<name>`` the system's own uncertainty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.column_roles import is_misspelt, looks_like_units
from dubio.core.errors import UserError, listing
from dubio.core.predictions import Predictions
from dubio.core.types import UNLABELLED, Target
from dubio.formats.arrays import SCORE, is_known, nearest_hint, with_logits
from dubio.formats.columns import COLUMN, Roles, without_role
from dubio.formats.tables import Frame
from dubio.formats.values import VALUES, Values, as_logits

RESERVED = ("label", "id", "group", "domain", "ood", "sample", "member")
_NUMBERED = re.compile(r"(p|logp|logit)(\d*)")
_MEANING: dict[str, Values] = {"p": "probs", "logp": "log_probs", "logit": "logits"}
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def predictions_from_columns(
    frame: Frame,
    *,
    values: Values | None,
    labels: Any,
    target: Target,
    tolerance: float,
    in_domain: str | None,
    roles: Roles,
) -> Predictions:
    """Return checked predictions from the columns of a table; see the module for their names.

    Raises:
        UserError: Naming row and column at fault, or a column that looks like groups and is not used.
    """
    frame = roles.assigned(frame, "id", RESERVED)
    columns, meaning, names = _value_columns(frame, values, roles)
    numbers = np.array([_numbers(frame[column], column) for column in columns]).T
    if len(columns) == 1 and names is None and target != "multilabel":
        numbers = numbers[:, 0]
    order, member = _samples(frame)
    first = order[0]
    classes = 2 if numbers.ndim == 1 else numbers.shape[1]
    arrays: dict[str, Any] = {meaning: numbers[order] if len(order) > 1 else numbers[first]}
    if numbers.ndim == 1 and len(order) > 1:
        raise UserError("give both classes as columns where there are several samples.")
    if names is not None:
        arrays["classes"] = np.array(names, dtype=np.str_)
    if member is not None:
        arrays["member"] = member
    for column, name in (("id", "ids"), ("group", "group")):
        if column in frame:
            arrays[name] = _constant(frame[column], column, order)
    for column in frame:
        if column.startswith(COLUMN):
            arrays[column] = np.array([str(cell) for cell in _constant_cells(frame[column], column, order)])
        elif column.startswith(SCORE):
            arrays[column] = _numbers(_constant_cells(frame[column], column, order), column)
    if "label" in frame:
        if labels is not None:
            raise UserError("labels are given twice: as a column, and on their own.")
        arrays["labels"] = _labels(_constant_cells(frame["label"], "label", order), classes, names, target)
    flags = _flags(frame, in_domain)
    if flags is not None:
        arrays["ood"] = flags[first]
    notes = roles.notes_on(_others(frame, columns, first), grouped="group" in frame)
    silent = Roles(rows_are_independent=True)
    try:
        logits = as_logits(arrays.pop(meaning), meaning, target, tolerance=tolerance)
    except UserError as refusal:
        classes_read = f" Read as classes: {listing(names)}; call a column that is none 'column.NAME'." if names else ""
        raise UserError(f"{refusal}{classes_read}") from None
    return with_logits(
        logits, arrays, labels=labels, target=target, temperature=1.0, kind=None, roles=silent
    ).with_checked(notes=notes)


def _others(frame: Frame, values: Sequence[str], rows: NDArray[np.int64]) -> dict[str, list[Any]]:
    """Return the columns that have no role, one cell per example."""
    roles = {name for name in frame if name.startswith(SCORE) or _NUMBERED.fullmatch(name)}
    others = without_role(frame, {*RESERVED, *values, *roles})
    return {name: [cells[row] for row in rows] for name, cells in others.items()}


def _value_columns(frame: Frame, values: Values | None, roles: Roles) -> tuple[list[str], Values, list[str] | None]:
    """Return the columns of values, their meaning, and the names of classes or None where they are numbered."""
    for name in frame:
        close = name.lower().rstrip("s")
        if close == "group" and roles.rows_are_independent:
            continue
        close = close if close in RESERVED or not is_misspelt(close, "label") else "label"
        if name not in RESERVED and close in RESERVED and close not in frame:
            raise UserError(f"column {name!r} is not known; did you mean {close!r}? Known: {', '.join(RESERVED)}.")
    numbered = {name: match for name in frame if (match := _NUMBERED.fullmatch(name))}
    if not numbered:
        if values is None:
            remedy = "for columns named after classes, say what their numbers are with values (--values)"
            raise UserError(f"no column is called p0, logp0 or logit0; {remedy}: {', '.join(VALUES)}.")
        names = [name for name in frame if name not in RESERVED and not is_known(name) and _has_number(frame[name])]
        if not names:
            raise UserError("the table has no column of predictions.")
        for name in names:
            if looks_like_units(name, frame[name]) and not set(map(str, frame[name])) <= {"0", "1", "0.0", "1.0"}:
                raise UserError(f"column {name!r} looks like groups, such as patients, and would be read as a class; "
                                f"say group={name!r} (--group {name}), or call it 'column.{name}'.")  # fmt: skip
        return names, values, names
    kinds = {match[1] for match in numbered.values()}
    chosen = [kind for kind in kinds if values is None or _MEANING[kind] == values]
    if len(chosen) != 1:
        meanings = " and ".join(sorted(_MEANING[kind] for kind in kinds))
        remedy = "say which to use with values (--values)" if values is None else f"values (--values) says {values}"
        raise UserError(f"the columns are {meanings}; {remedy}.")
    kind = chosen[0]
    own = [name for name, match in numbered.items() if match[1] == kind]
    expected = [kind] if own == [kind] else [f"{kind}{index}" for index in range(len(own))]
    for name in expected:
        if name not in own:
            expected_names = f"the {len(own)} columns of values must be {kind}0 to {kind}{len(own) - 1}"
            raise UserError(f"column {name!r} is missing; {expected_names}.")
    return expected, _MEANING[kind], None


def _has_number(cells: Sequence[Any]) -> bool:
    """Return whether any cell is a number; a column without one is no class."""
    for cell in cells:
        try:
            float(cell)
        except (TypeError, ValueError):
            continue
        return True
    return False


def _numbers(cells: Sequence[Any], column: str) -> NDArray[np.float64]:
    numbers = np.empty(len(cells))
    for row, cell in enumerate(cells):
        try:
            numbers[row] = float(cell)
        except (TypeError, ValueError):
            raise UserError(f"row {row} (from 0), column {column!r} must be a number; given {cell!r}.") from None
    return numbers


def _samples(frame: Frame) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return the row of each sample of each example ``[S, N]``, and the member of each sample or None."""
    count = len(next(iter(frame.values())))
    keys = [name for name in ("member", "sample") if name in frame]
    if not keys:
        return np.arange(count)[None], None
    if "id" not in frame:
        raise UserError(f"a table with a column {keys[0]!r} needs a column 'id', which identifies the examples.")
    ids = [str(cell) for cell in frame["id"]]
    draws = [tuple(_natural(frame[name][row]) for name in keys) for row in range(count)]
    example = {name: index for index, name in enumerate(dict.fromkeys(ids))}
    sample = {draw: index for index, draw in enumerate(sorted(set(draws)))}
    order = np.full((len(sample), len(example)), -1, dtype=np.int64)
    for row in range(count):
        index = sample[draws[row]], example[ids[row]]
        if order[index] >= 0:
            raise UserError(f"rows {order[index]} and {row} (from 0) are the same sample of id {ids[row]!r}.")
        order[index] = row
    if (order < 0).any():
        which, where = (int(index) for index in np.argwhere(order < 0)[0])
        missing = ", ".join(f"{name} {value[1]}" for name, value in zip(keys, list(sample)[which], strict=True))
        raise UserError(f"id {list(example)[where]!r} has no row for {missing}; every example needs every sample.")
    if "member" not in frame:
        return order, None
    members = {draw[0]: index for index, draw in enumerate(sorted({draw[:1] for draw in sample}))}
    return order, np.array([members[draw[0]] for draw in sample], dtype=np.int64)


def _natural(cell: Any) -> tuple[float, str]:
    """Return a sort key: numbers by size, then texts."""
    text = str(cell)
    return (float(text), text) if re.fullmatch(r"-?\d{1,15}", text) else (float("inf"), text)


def _constant_cells(cells: Sequence[Any], column: str, order: NDArray[np.int64]) -> list[Any]:
    """Return one cell per example; refuse samples that disagree."""
    for sample in order[1:]:
        for base, row in zip(order[0], sample, strict=True):
            if cells[base] != cells[row]:
                rows = f"rows {base} and {row} (from 0) have {cells[base]!r} and {cells[row]!r}"
                raise UserError(f"column {column!r} differs between the samples of one example: {rows}.")
    return [cells[row] for row in order[0]]


def _constant(cells: Sequence[Any], column: str, order: NDArray[np.int64]) -> NDArray[np.str_]:
    constant = _constant_cells(cells, column, order)
    for row, cell in enumerate(constant):
        if cell is None or cell == "":
            raise UserError(f"row {row} (from 0), column {column!r} is empty.")
    return np.array([str(cell) for cell in constant], dtype=np.str_)


def _labels(cells: list[Any], classes: int, names: list[str] | None, target: Target) -> NDArray[np.int64]:
    if target != "multilabel":
        return np.array([UNLABELLED if cell is None or cell == "" else _class(cell, row, classes, names)
                         for row, cell in enumerate(cells)], dtype=np.int64)  # fmt: skip
    hot = np.zeros((len(cells), classes), dtype=np.int64)
    for row, cell in enumerate(cells):
        for item in _items(cell, row):
            hot[row, _class(item, row, classes, names)] = 1
    return hot


def _items(cell: Any, row: int) -> list[Any]:
    """Return the labels of a cell: a list, a JSON list, or texts with semicolons between them."""
    if cell is None or cell == "":
        return []
    if isinstance(cell, str) and cell.startswith("["):
        try:
            cell = json.loads(cell)
        except ValueError:
            raise UserError(f"row {row} (from 0), column 'label' is not a JSON list: {cell!r}.") from None
    if isinstance(cell, list):
        return cell
    return [item.strip() for item in str(cell).split(";") if item.strip()]


def _class(cell: Any, row: int, classes: int, names: list[str] | None) -> int:
    if names is not None:
        if str(cell) in names:
            return names.index(str(cell))
        hint = nearest_hint(str(cell), names)
        raise UserError(f"row {row} (from 0), column 'label' is {cell!r}, which is not a class{hint}.")
    try:
        index = int(float(cell))  # "2.0" too: a column with missing labels is often written so
        if index != float(cell):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"row {row} (from 0), column 'label' must be the number of a class; given {cell!r}.") from None
    if not UNLABELLED <= index < classes:
        raise UserError(f"row {row} (from 0), column 'label' must lie between 0 and {classes - 1}; given {index}.")
    return index


def _flags(frame: Frame, in_domain: str | None) -> NDArray[np.bool_] | None:
    """Return which rows are out of distribution: from ``ood``, or from ``domain`` and the name of the in-domain one."""
    if in_domain is not None:
        if "domain" not in frame:
            raise UserError("in_domain (--in-domain) needs a column 'domain', and the table has none.")
        domains = [str(cell) for cell in frame["domain"]]
        if in_domain not in domains:
            raise UserError(f"no row has the domain {in_domain!r}; there are {', '.join(sorted(set(domains)))}.")
        return np.array([cell != in_domain for cell in domains])
    if "ood" in frame:
        for row, cell in enumerate(frame["ood"]):
            if str(cell).lower() not in _TRUTH:
                raise UserError(f"row {row} (from 0), column 'ood' must be true or false; given {cell!r}.")
        return np.array([_TRUTH[str(cell).lower()] for cell in frame["ood"]])
    if "domain" in frame and len({str(cell) for cell in frame["domain"]}) > 1:
        raise UserError("the table has several domains; say which one is in distribution with in_domain (--in-domain).")
    return None
