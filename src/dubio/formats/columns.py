"""The roles of columns in a file of predictions: which is the group, the id, a subgroup, and which nothing uses."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dubio.core.column_roles import looks_like_units, names_units
from dubio.core.errors import UnknownName, UserError, listing

COLUMN = "column."
"""What the name of a further column of texts begins with."""

Cells = TypeVar("Cells")


@dataclass(frozen=True)
class Roles:
    """The columns that the user names.

    Attributes:
        group: The column of groups (patients, documents), where it is not called ``group``.
        ids: The column of ids, where it is not called so.
        by: Columns of subgroups.
        rows_are_independent: Whether the user says that no column names units that rows belong to.
    """

    group: str | None = None
    ids: str | None = None
    by: tuple[str, ...] = ()
    rows_are_independent: bool = False

    def __post_init__(self) -> None:
        if self.group is not None and self.rows_are_independent:
            raise UserError(f"give group (--group {self.group}) or rows_are_independent (--rows-are-independent), "
                            "not both.")  # fmt: skip

    def assigned(self, columns: Mapping[str, Cells], ids: str, roles: Container[str]) -> dict[str, Cells]:
        """Return the columns under the names of their roles; one that was called so before is ``column.NAME``.

        Args:
            columns: By the names of the file.
            ids: What the column of ids is called in such a file.
            roles: All names that have a role in such a file.

        Raises:
            UnknownName: When there is no such column, with the nearest.
        """
        assigned = dict(columns)
        for option, name, role in (("group", self.group, "group"), ("id", self.ids, ids)):
            if name is not None and (key := column_key(columns, name, option)) != role:
                if role in columns:
                    assigned[COLUMN + role] = columns[role]
                assigned[role] = columns[key]
                if key not in roles:
                    assigned.pop(key, None)
        for name in self.by:
            assigned[COLUMN + name] = columns[column_key(columns, name, "by")]
            if name not in roles:
                assigned.pop(name, None)
        return assigned

    def notes_on(self, others: Mapping[str, Any], *, grouped: bool, declared: Container[str] = ()) -> tuple[str, ...]:
        """Return what a reader must know of the columns that have no role.

        Args:
            others: Name to cells ``[N]``; None for an array that has no value per row.
            declared: Those that the file calls ``column.NAME``: a note of their own is about them, because some
                results use them unasked.
            grouped: Whether the rows have groups.

        Raises:
            UserError: When rows have no groups and one of these columns looks like some.
        """
        units = [name for name, cells in others.items() if cells is not None and self._may_be_units(name, cells)]
        if units and not grouped and not self.rows_are_independent:
            raise UserError(
                f"column {units[0]!r} looks like groups, such as patients or documents, and is not used as such: rows "
                "of one group are not independent, so that intervals would be too narrow and guarantees would not "
                f"hold. Say group={units[0]!r} (--group {units[0]}), or rows_are_independent=True "
                "(--rows-are-independent) if they are independent."
            )
        unused = [name for name in others if name not in self.by]
        notes = list(filter(None, map(unused_note, (
            [name for name in unused if name not in declared], [name for name in unused if name in declared],
        ))))  # fmt: skip
        if units and not grouped:
            notes.append(f"Rows were declared independent, although column {units[0]!r} looks like groups: if rows of "
                         "one group depend on each other, intervals are too narrow and guarantees do not "
                         "hold.")  # fmt: skip
        return tuple(notes)

    def _may_be_units(self, name: str, cells: Any) -> bool:
        """Return whether a column looks like units; a declared subgroup does so by its name alone."""
        return looks_like_units(name, cells) and (name not in self.by or names_units(name))


def unused_note(names: Sequence[str]) -> str:
    """Return the note about columns that nothing uses; empty for none."""
    return f"Columns that are not used: {listing(names)}." if names else ""


def column_key(columns: Mapping[str, Any], name: str, option: str) -> str:
    """Return the key of a column that a user names: its name, with or without ``column.`` before it.

    Raises:
        UnknownName: Naming the option and the nearest column.
    """
    for key in (name, COLUMN + name):
        if key in columns:
            return key
    raise UnknownName(f"column for --{option}", name, [key.removeprefix(COLUMN) for key in columns])


def without_role(columns: Mapping[str, Any], roles: Container[str]) -> dict[str, Any]:
    """Return the columns that have no role, by their own names: further texts too."""
    return {
        name.removeprefix(COLUMN): cells
        for name, cells in columns.items()
        if name.startswith(COLUMN) or name not in roles
    }
