"""The one CSV writer: cells that a spreadsheet would run as a formula are escaped, and dubio undoes it on reading.

A text cell that a spreadsheet may take for a formula (``=HYPERLINK(…)`` as the name of a class) gets a leading
apostrophe, and so does one that begins with an apostrophe, so that removing one apostrophe restores every cell. Numbers
stay as they are. A file with at least one escaped cell says so in a last column, :data:`MARK`, whose cells are
:data:`ESCAPE`: it survives a spreadsheet, sorting and filtering, other readers see one more column, and rows that are
added by hand lack it. Where nothing is escaped there is no such column. Only files with the column are undone, row by
row: an apostrophe in a user's own table is part of its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

MARK = "dubio_escape"
ESCAPE = "apostrophe"

_FORMULA = re.compile(r"['\t\r\n]|[\s\"\x00-\x1f\x7f\u200b-\u200f\u2060\ufeff]*[=+@\-＝＋－＠]")
"""What OWASP lists (CSV Injection), also behind blanks, quotes and invisible characters, which programs may strip."""

_QUOTED = re.compile('["\r\n]')
"""What a cell is quoted for, beside a comma."""


@dataclass(frozen=True)
class CsvTable:
    """A table to be written: the names of its columns, its rows, and how a number is written.

    Attributes:
        header: The names.
        rows: Cells: texts, numbers, None for an empty one. They are gone through twice: an iterator will not do,
            :class:`Repeated` will.
        number: Returns a number as text.
    """

    header: Sequence[str]
    rows: Iterable[Sequence[object]]
    number: Callable[[float], str] = str

    def raw(self) -> str:
        """Return the table as CSV, every cell as it is."""
        return self.text(True)

    def escaped(self) -> str:
        """Return the table as CSV, safe to open in a spreadsheet; marked where a cell had to be escaped."""
        return self.text(False)

    def text(self, raw: bool) -> str:
        """Return the table as the option ``--raw-csv`` asks."""
        return "".join(self.lines(raw))

    def lines(self, raw: bool) -> Iterator[str]:
        """Yield the same line by line, with their ends; of the rows only the one at hand is in memory."""
        if raw or all(map(_is_safe, self._strings())):
            yield from _csv(self._texts(str))
            return
        texts = self._texts(_escaped)
        yield from _csv([[*next(texts), MARK]])
        yield from _csv([*row, ESCAPE] for row in texts)

    def _strings(self) -> Iterator[str]:
        yield from self.header
        for row in self.rows:
            yield from (cell for cell in row if isinstance(cell, str))

    def _texts(self, text: Callable[[str], str]) -> Iterator[list[str]]:
        """Yield the header and the rows, their text cells changed."""
        yield [text(name) for name in self.header]
        for row in self.rows:
            yield [text(cell) if isinstance(cell, str) else self._plain(cell) for cell in row]

    def _plain(self, cell: object) -> str:
        return "" if cell is None else self.number(cell) if isinstance(cell, float) else str(cell)


@dataclass(frozen=True)
class Repeated(Iterable[Sequence[object]]):
    """Rows that are made anew whenever they are gone through.

    Attributes:
        make: Returns them from the first to the last.
    """

    make: Callable[[], Iterator[Sequence[object]]]

    def __iter__(self) -> Iterator[Sequence[object]]:
        return self.make()


def restored(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the rows of a CSV file, header first, as they were before :meth:`CsvTable.escaped`.

    Rows of a file without the mark, and rows without it in a marked file, are returned as they are.
    """
    lines = [list(row) for row in rows]
    if not lines or not is_marked(lines[0]):
        return lines
    return [restored_row(line, len(lines[0])) for line in lines]


def is_marked(header: Sequence[str]) -> bool:
    """Return whether the names of a file's columns say that its cells are escaped."""
    return bool(header) and header[-1].strip() == MARK


def restored_row(row: Sequence[str], width: int) -> list[str]:
    """Return the header or a row of a marked file of that many columns without its mark, unescaped if it has one."""
    own = len(row) == width and row[-1].strip() in (MARK, ESCAPE)
    return [cell.removeprefix("'") if own else cell for cell in row[: width - 1]]


@lru_cache(maxsize=1024)  # names of tasks, methods and metrics come again and again
def _is_safe(text: str) -> bool:
    return text != MARK and _FORMULA.match(text) is None


def _escaped(text: str) -> str:
    return text if _is_safe(text) else f"'{text}"


def _csv(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    return (_line(row) + "\n" for row in rows if row)


def _line(row: Sequence[str]) -> str:
    """Return a row as a line; most have no cell to quote, and all cells are looked through at once."""
    line = ",".join(row)
    plain = line.count(",") == len(row) - 1 and _QUOTED.search(line) is None
    return (line if plain else ",".join(map(_quoted, row))) or '""'


def _quoted(cell: str) -> str:
    """Return a cell, quoted where it must be; Python's csv leaves a carriage return bare, which ends the row."""
    return '"' + cell.replace('"', '""') + '"' if "," in cell or _QUOTED.search(cell) else cell
