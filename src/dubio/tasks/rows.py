"""The user's rows before they are cut into splits, whatever file they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError
from dubio.core.types import Inputs, IntArray, Modality, StrArray
from dubio.tasks import columns
from dubio.tasks.columns import Labels
from dubio.tasks.readers import Table

ALL = "*"
"""Among features: every column that is not used for something else."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What was read, row by row.

    Attributes:
        modality: What an input is.
        inputs: Texts, images or numbers.
        labels: The labels of each row.
        listed: Whether a row may carry any number of labels.
        places: How a message calls each row.
        ids: Unique names.
        group: What belongs together, or None.
        domain: Where a row comes from, or None.
        split: The part a row was given, or None.
        time: When a row happened, or None.
        notes: What a reader must know of the reading.
    """

    modality: Modality
    inputs: Inputs
    labels: list[Labels]
    listed: bool
    places: list[str]
    ids: StrArray
    group: StrArray | None = None
    domain: StrArray | None = None
    split: StrArray | None = None
    time: NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: IntArray) -> Rows:
        """These rows, in this order."""
        picked = rows.tolist()

        def cut(column: NDArray[Any] | None) -> Any:
            return None if column is None else column[rows]

        return replace(
            self,
            inputs=tuple(self.inputs[i] for i in picked) if isinstance(self.inputs, tuple) else self.inputs[rows],
            labels=[self.labels[i] for i in picked],
            places=[self.places[i] for i in picked],
            ids=self.ids[rows],
            group=cut(self.group),
            domain=cut(self.domain),
            split=cut(self.split),
            time=cut(self.time),
        )


@dataclass(frozen=True)
class Named:
    """Which column is what, as the user named them; None or empty where there is none."""

    text: str | None = None
    features: tuple[str, ...] = ()
    label: str | None = None
    label_separator: str | None = None
    id: str | None = None
    group: str | None = None
    time: str | None = None
    domain: str | None = None
    split: str | None = None

    def used(self) -> set[str]:
        """Every column that is not a feature and has a use."""
        given = (self.text, self.label, self.id, self.group, self.time, self.domain, self.split)
        return {name for name in given if name is not None}


def rows_of_table(table: Table, named: Named) -> Rows:
    """The rows of a table, by the columns the user named; a row with an empty text is left out and noted.

    Raises:
        UserError: When neither or both of text and features, or no label, is named.
    """
    if named.label is None:
        raise UserError(f"label must name the column of classes; {table.path.name} has {_listed(table.columns)}.")
    labels, listed = columns.label_lists(table, named.label, named.label_separator)
    modality, inputs = _inputs(table, named)
    rows = Rows(
        modality=modality,
        inputs=inputs,
        labels=labels,
        listed=listed,
        places=[table.place(row) for row in range(len(table))],
        **side_columns(table, named),
    )
    return _without_empty(rows) if modality == "text" else rows


def side_columns(table: Table, named: Named) -> dict[str, Any]:
    """Ids, groups, domains, parts and times, by the columns the user named."""
    found: dict[str, Any] = {
        argument: None if column is None else columns.names(table, column, argument)
        for argument, column in (("group", named.group), ("domain", named.domain), ("split", named.split))
    }
    found["ids"] = (
        np.array(table.numbers).astype(np.str_)
        if named.id is None
        else columns.unique_names(table, named.id)
    )
    found["time"] = None if named.time is None else columns.times(table, named.time)
    return found


def _inputs(table: Table, named: Named) -> tuple[Modality, Inputs]:
    if (named.text is None) == (not named.features):
        both = "both are" if named.features else "neither is"
        raise UserError(
            f"give either text (a column of texts) or features (numeric columns); {both} given. "
            f"{table.path.name} has {_listed(table.columns)}."
        )
    if named.text is not None:
        return "text", tuple(columns.texts(table, named.text))
    chosen: Sequence[str] = named.features
    if ALL in chosen:
        used = named.used()
        chosen = [name for name in table.columns if name not in used]
    twice = sorted({name for name in chosen if name == named.label})
    if twice:
        raise UserError(f"features must not contain the label column {twice[0]!r}.")
    return "table", columns.numbers(table, chosen)


def _without_empty(rows: Rows) -> Rows:
    assert isinstance(rows.inputs, tuple)
    empty = [row for row, text in enumerate(rows.inputs) if not text.strip()]
    if not empty:
        return rows
    if len(empty) == len(rows):
        raise UserError(f"all {len(rows)} texts are empty; is text the right column?")
    shown = ", ".join(rows.places[row] for row in empty[:5]) + (", …" if len(empty) > 5 else "")
    kept = rows.take(np.setdiff1d(np.arange(len(rows)), empty))
    return replace(kept, notes=(*rows.notes, f"Left out, because the text is empty: {len(empty):,} rows ({shown})."))


def _listed(names: Mapping[str, Any]) -> str:
    return "the columns " + ", ".join(names) if names else "no columns"
