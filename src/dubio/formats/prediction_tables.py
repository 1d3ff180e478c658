"""Predictions from a table: one row per example or, with a column ``sample`` or ``member``, per sample of an example.

Columns ``p0, p1, …`` are probabilities, ``logp0, …`` their logarithms, ``logit0, …`` logits; ``p``, ``logp`` or
``logit`` alone is that of the second of two classes. Without such columns every column of numbers that is none of the
reserved ones is a class of that name, and ``values`` says what its numbers are. ``column.<name>`` is a further text per
example, ``score.<name>`` the system's own uncertainty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dubio.core.column_roles import is_misspelt, looks_like_units
from dubio.core.documents import parse_json
from dubio.core.errors import UserError, listing
from dubio.core.predictions import Predictions
from dubio.core.types import UNLABELLED, Target
from dubio.formats.arrays import SCORE, LabelFile, is_known, nearest_hint, refuse_built_in_scores, with_logits
from dubio.formats.columns import COLUMN, Roles, without_role
from dubio.formats.values import VALUES, Values, as_logits
from dubio.tables import (
    Cells,
    NotANumber,
    Table,
    as_numbers,
    has_comma,
    listed,
    number_in,
    plain_name,
    plain_names,
    taken,
)

RESERVED = ("label", "id", "group", "domain", "ood", "sample", "member")
_NUMBERED = re.compile(r"(p|logp|logit)(\d*)")
_MEANING: dict[str, Values] = {"p": "probs", "logp": "log_probs", "logit": "logits"}
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def numeric_columns(values: Values | None, roles: Roles) -> Callable[[Mapping[str, Sequence[Any]]], set[str]]:
    """Return what chooses the columns that must be numbers, by their names and first cells."""
    named = {roles.group, roles.ids, *roles.by, *RESERVED}

    def choose(head: Mapping[str, Sequence[Any]]) -> set[str]:
        numbers = {name for name in head if _NUMBERED.fullmatch(name)}
        if values is not None and not numbers:
            numbers = {name for name, cells in head.items() if not is_known(name) and _has_number(cells)}
        return (numbers | {name for name in head if name.startswith(SCORE)}) - named

    return choose


def predictions_from_table(
    table: Table,
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
    table = replace(table, columns=roles.assigned(table.columns, "id", RESERVED))
    columns, meaning, names = _value_columns(table, values, roles)
    numbers = _present(table, columns)
    if len(columns) == 1 and names is None and target != "multilabel":
        numbers = numbers[:, 0]
    order, member = _samples(table)
    if numbers.ndim == 1 and len(order) > 1:
        raise UserError("give both classes as columns where there are several samples.")
    if member is not None or len(order) > 1:
        numbers = numbers[order] if len(order) > 1 else numbers[order[0]]
    arrays = _side_arrays(table, order, in_domain)
    if names is not None:
        arrays["classes"] = np.array(names, dtype=np.str_)
    if member is not None:
        arrays["member"] = member
    if "label" in table.columns:
        if labels is not None:
            raise UserError("labels are given twice: as a column, and on their own.")
        classes = 2 if numbers.ndim == 1 else numbers.shape[-1]
        arrays["labels"] = _labels(table, _constant(table, "label", order), classes, names, target)
    declared = [name.removeprefix(COLUMN) for name in table.columns if name.startswith(COLUMN)]
    others = _others(table, columns, order[0])
    notes = roles.notes_on(others, grouped="group" in table.columns, declared=declared)
    silent = Roles(rows_are_independent=True)
    try:
        logits = as_logits(numbers, meaning, target, tolerance=tolerance,
                           row_name=lambda sample, row: table.reference(order[sample, row]))  # fmt: skip
    except UserError as refusal:
        classes_read = f" Read as classes: {listing(names)}; call a column that is none 'column.NAME'." if names else ""
        raise UserError(f"{refusal}{classes_read}") from None
    labels, unused = labels.of_rows(arrays.get("ids")) if isinstance(labels, LabelFile) else (labels, ())
    return with_logits(
        logits, arrays, labels=labels, target=target, temperature=1.0, kind=None, roles=silent
    ).with_checked(notes=(*notes, *unused))


def _side_arrays(table: Table, order: NDArray[np.int64], in_domain: str | None) -> dict[str, Any]:
    """Return ids, groups, further texts, scores and flags, one of each per example."""
    refuse_built_in_scores(table.columns, "column")
    arrays: dict[str, Any] = {}
    for column, name in (("id", "ids"), ("group", "group")):
        if column in table.columns:
            texts = plain_names(_constant(table, column, order))
            if "" in texts:
                row = int(order[0][texts.index("")])
                raise UserError(f"{table.reference(row)}, column {column!r} is empty.")
            if name == "ids":
                _check_unique(table, texts, order[0])
            arrays[name] = table.text_array(texts)
    for column in table.columns:
        if column.startswith(COLUMN):
            arrays[column] = table.text_array(plain_names(_constant(table, column, order)))
        elif column.startswith(SCORE):
            _constant(table, column, order)
            arrays[column] = _present(table, [column])[order[0], 0]
    flags = _flags(table, in_domain)
    if flags is not None:
        arrays["ood"] = flags[order[0]]
    return arrays


def _check_unique(table: Table, ids: Sequence[str], rows: NDArray[np.int64]) -> None:
    """Refuse an id that two examples have, naming their rows as a spreadsheet counts them."""
    row_of: dict[str, int] = {}
    for identifier, row in zip(ids, rows.tolist(), strict=True):
        if row_of.setdefault(identifier, row) != row:
            both = f"{table.reference(row_of[identifier])} and {table.reference(row)}"
            raise UserError(f"ids must be unique; {identifier!r} is in {both}.")


def _present(table: Table, columns: list[str]) -> NDArray[np.float64]:
    """Return columns of numbers ``[N, K]``.

    Raises:
        UserError: Naming row and column of the first one that is missing.
    """
    numbers = table.matrix(columns, "values")
    if np.isnan(numbers.min(initial=0.0)):
        row, index = np.argwhere(np.isnan(numbers))[0]
        raise UserError(f"{table.reference(int(row))}, column {columns[index]!r} must be a number, and is missing.")
    return numbers


def _others(table: Table, values: Sequence[str], rows: NDArray[np.int64]) -> dict[str, Cells | None]:
    """Return the columns that have no role, one cell per example."""
    roles = {name for name in table.columns if name.startswith(SCORE) or _NUMBERED.fullmatch(name)}
    others = without_role(table.columns, {*RESERVED, *values, *roles})
    return {name: None if cells is None else taken(cells, rows) for name, cells in others.items()}


def _value_columns(table: Table, values: Values | None, roles: Roles) -> tuple[list[str], Values, list[str] | None]:
    """Return the columns of values, their meaning, and the names of classes or None where they are numbered."""
    frame = table.columns
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
            commas = [n for n, cells in frame.items() if n not in RESERVED and cells is not None and has_comma(cells)]
            hint = f" The numbers of {listing(commas)} have a decimal comma; write a point." if commas else ""
            raise UserError(f"the table has no column of predictions.{hint}")
        for name in names:
            if looks_like_units(name, frame[name]) and not np.isin(table.floats(name, "values"), (0, 1)).all():
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


def _has_number(cells: Cells | Sequence[Any] | None) -> bool:
    """Return whether any cell is a number; a column without one is no class."""
    if cells is None or isinstance(cells, np.ndarray):
        return cells is not None
    return any((number := number_in(cell)) is not None and not math.isnan(number) for cell in cells)


def _samples(table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return the row of each sample of each example ``[S, N]``, and the member of each sample or None."""
    count = len(table)
    keys = [name for name in ("member", "sample") if name in table.columns]
    if not keys:
        return np.arange(count)[None], None
    if "id" not in table.columns:
        raise UserError(f"a table with a column {keys[0]!r} needs a column 'id', which identifies the examples.")
    ids = plain_names(table.column("id", "id"))
    draws = list(zip(*(map(_natural, listed(table.column(name, name))) for name in keys), strict=True))
    example = {name: index for index, name in enumerate(dict.fromkeys(ids))}
    sample = {draw: index for index, draw in enumerate(sorted(set(draws)))}
    if len(sample) * len(example) > count:
        _refuse_missing(keys, ids, draws, example, sample)
    order = np.full((len(sample), len(example)), -1, dtype=np.int64)
    for row in range(count):
        index = sample[draws[row]], example[ids[row]]
        if order[index] >= 0:
            rows = f"{table.reference(int(order[index]))} and {table.reference(row)}"
            raise UserError(f"{rows} are the same sample of id {ids[row]!r}.")
        order[index] = row
    if "member" not in table.columns:
        return order, None
    members = {draw[0]: index for index, draw in enumerate(sorted({draw[:1] for draw in sample}))}
    return order, np.array([members[draw[0]] for draw in sample], dtype=np.int64)


def _refuse_missing(keys: Sequence[str], ids: list[str], draws: list[Any], example: Any, sample: Any) -> NoReturn:
    """Refuse an example that lacks a sample, before a place is made for every sample of every one."""
    present = set(zip(ids, draws, strict=True))
    name, draw = next((name, draw) for draw in sample for name in example if (name, draw) not in present)
    missing = ", ".join(f"{key} {value[1]}" for key, value in zip(keys, draw, strict=True))
    raise UserError(f"id {name!r} has no row for {missing}; every example needs every sample.")


def _natural(cell: Any) -> tuple[float, str]:
    """Return a sort key: numbers by size, then texts."""
    text = plain_name(cell)
    return (float(text), text) if re.fullmatch(r"-?\d{1,15}", text) else (float("inf"), text)


def _constant(table: Table, column: str, order: NDArray[np.int64]) -> Cells:
    """Return one cell per example; refuse samples that disagree."""
    if len(order) == 1:  # its examples are in the order of their rows
        return table.column(column, column)
    cells = listed(table.column(column, column))
    for sample in order[1:]:
        for base, row in zip(order[0], sample, strict=True):
            if cells[base] != cells[row] and not (cells[base] != cells[base] and cells[row] != cells[row]):  # NaN twice
                rows = f"{table.reference(base)} and {table.reference(row)} have {cells[base]!r} and {cells[row]!r}"
                raise UserError(f"column {column!r} differs between the samples of one example: {rows}.")
    return [cells[row] for row in order[0]]


def _labels(table: Table, cells: Cells, classes: int, names: list[str] | None, target: Target) -> NDArray[np.int64]:
    """Return class indices ``[N]`` or, multi-label, 0 and 1 ``[N, K]``.

    Raises:
        UserError: Naming the row of a label that is no class.
    """
    indices = None if names is None else {name: index for index, name in enumerate(names)}
    if target == "multilabel":
        hot = np.zeros((len(cells), classes), dtype=np.int64)
        for row, cell in enumerate(listed(cells)):
            with _label_of(table, row):
                for item in _items(cell):
                    hot[row, _class(item, classes, indices)] = 1
        return hot
    if indices is not None:
        numbers_of = {"": UNLABELLED, **indices}
        texts = plain_names(cells)
        for row in (row for row, text in enumerate(texts) if text not in numbers_of):
            with _label_of(table, row):
                _class(texts[row], classes, indices)
        return np.array([numbers_of[text] for text in texts], dtype=np.int64)
    try:
        numbers = as_numbers(cells)
        allowed = (numbers == np.floor(numbers)) & (numbers >= UNLABELLED) & (numbers < classes)
        bad = np.flatnonzero(~(np.isnan(numbers) | allowed))
    except NotANumber as fault:
        bad = np.array([fault.row])
    for row in bad.tolist():
        with _label_of(table, row):
            _class(listed(cells)[row], classes, None)
    return np.where(np.isnan(numbers), UNLABELLED, numbers).astype(np.int64)


@contextmanager
def _label_of(table: Table, row: int) -> Iterator[None]:
    """Name the row in a refusal of its label."""
    try:
        yield
    except UserError as fault:
        raise UserError(f"{table.reference(row)}, column 'label' {fault}") from None


def _items(cell: Any) -> list[Any]:
    """Return the labels of a cell: a list, a JSON list, or texts with semicolons between them."""
    if isinstance(cell, str) and cell.strip().startswith("["):
        try:
            cell = parse_json(cell, "a list of labels", UserError)
        except UserError:
            raise UserError(f"is not a JSON list: {cell!r:.60}.") from None
    if isinstance(cell, list):
        return cell
    return [item.strip() for item in plain_name(cell).split(";") if item.strip()]


def _class(cell: Any, classes: int, indices: dict[str, int] | None) -> int:
    if indices is not None:
        name = plain_name(cell)
        if name in indices:
            return indices[name]
        raise UserError(f"is {name!r:.60}, which is not a class{nearest_hint(name, list(indices))}. "
                        f"Classes: {listing(indices)}.")  # fmt: skip
    number = number_in(cell)  # "2.0" too: a column with missing labels is often written so
    if number is None or not number.is_integer():
        raise UserError(f"must be the number of a class; given {cell!r:.60}.")
    if not UNLABELLED <= number < classes:
        raise UserError(f"must lie between 0 and {classes - 1}; given {number:.0f}.")
    return int(number)


def _flags(table: Table, in_domain: str | None) -> NDArray[np.bool_] | None:
    """Return which rows are out of distribution: from ``ood``, or from ``domain`` and the name of the in-domain one."""
    cells = table.column("domain", "domain") if "domain" in table.columns else []
    domains = [plain_name(cell) for cell in listed(cells)]
    if in_domain is not None:
        if not domains:
            raise UserError("in_domain (--in-domain) needs a column 'domain', and the table has none.")
        if in_domain not in domains:
            raise UserError(f"no row has the domain {in_domain!r}; there are {listing(sorted(set(domains)))}.")
        return np.array([cell != in_domain for cell in domains])
    if "ood" in table.columns:
        texts = [plain_name(cell).lower() for cell in listed(table.column("ood", "ood"))]
        for row, text in enumerate(texts):
            if text not in _TRUTH:
                raise UserError(f"{table.reference(row)}, column 'ood' must be true or false; given {text!r:.60}.")
        return np.array([_TRUTH[text] for text in texts])
    if len(set(domains)) > 1:
        raise UserError("the table has several domains; say which one is in distribution with in_domain (--in-domain).")
    return None
