"""Tables of labels as they are published: CSV with blank columns and odd separators, and plain Excel sheets."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

from dubio.core.errors import BadFile

Record = dict[str, str]
"""A row by the column's name in lower case, every value a text without white space around it."""

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def read_records(path: Path) -> list[Record]:
    """The rows of a CSV, TSV or xlsx file; columns without a name and rows without a value are skipped.

    Raises:
        BadFile: When it cannot be read, or has no header.
    """
    if path.suffix.lower() == ".xlsx":
        rows = _sheet_rows(path)
    else:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as fault:
            raise BadFile(f"labels {str(path)!r} cannot be read: {fault}.") from fault
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        separator = max(",;\t", key=lines[0].count) if lines else ","
        rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=separator))
    if not rows:
        raise BadFile(f"labels {str(path)!r}: the table is empty.")
    names = [name.strip().lower() for name in rows[0]]
    made = []
    for row in rows[1:]:
        record = {name: value.strip() for name, value in zip(names, row, strict=False) if name}
        if any(record.values()):
            made.append(dict.fromkeys(filter(None, names), "") | record)
    return made


def column(record: Record, *names: str) -> str:
    """The value under the first of these names that the record has; empty where it has none."""
    return next((record[name] for name in names if name in record), "")


def _sheet_rows(path: Path) -> list[list[str]]:
    """The cells of the first sheet of an Excel file."""
    try:
        with zipfile.ZipFile(path) as book:
            shared = []
            if "xl/sharedStrings.xml" in book.namelist():
                strings = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
                shared = ["".join(item.itertext()) for item in strings.iter(f"{_SHEET}si")]
            sheet = min(name for name in book.namelist() if re.fullmatch(r"xl/worksheets/sheet\d+\.xml", name))
            rows = ElementTree.fromstring(book.read(sheet)).iter(f"{_SHEET}row")
            return [_cells(row, shared) for row in rows]
    except (OSError, zipfile.BadZipFile, ElementTree.ParseError, ValueError, IndexError) as fault:
        raise BadFile(f"labels {str(path)!r} cannot be read as an Excel sheet: {fault}.") from fault


def _cells(row: ElementTree.Element, shared: list[str]) -> list[str]:
    found: dict[int, str] = {}
    for place, cell in enumerate(row.iter(f"{_SHEET}c")):
        letters = re.match(r"[A-Z]+", cell.get("r", ""))
        text = "".join(cell.itertext())
        found[_number(letters[0]) if letters else place] = shared[int(text)] if cell.get("t") == "s" else text
    return [found.get(index, "") for index in range(max(found, default=-1) + 1)]


def _number(letters: str) -> int:
    """The index of a column: A is 0, Z 25, AA 26."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1
