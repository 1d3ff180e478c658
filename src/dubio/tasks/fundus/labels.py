"""Tables of labels as they are published, and the photographs they name, matched with the files that are present.

A table is a CSV with blank columns and odd separators, or a plain Excel sheet.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from dubio.core.errors import BadFile, UserError
from dubio.core.types import SourceCard
from dubio.core.unpacking import check_unpacked, read_member
from dubio.tasks.images.files import Problem
from dubio.tasks.sources.locate import DAMAGED

Record = dict[str, str]
"""A row by the column's name in lower case, every value a text without white space around it."""

_XML = 20
"""Bytes in memory of a byte of XML, about."""

_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def read_records(path: Path) -> list[Record]:
    """Read the rows of a CSV, TSV or xlsx file; columns without a name and rows without a value are skipped.

    Raises:
        BadFile: When it cannot be read, or has no header.
    """
    if path.suffix.lower() == ".xlsx":
        rows = _sheet_rows(path)
    else:
        try:
            text = path.read_text(encoding="utf-8-sig")
            lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
            separator = max(",;\t", key=lines[0].count) if lines else ","
            rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=separator))
        except (OSError, UnicodeDecodeError, csv.Error) as fault:
            raise BadFile(f"labels {str(path)!r} cannot be read: {fault}.") from fault
    if not rows:
        raise BadFile(f"labels {str(path)!r}: the table is empty.")
    names = [name.strip().lower() for name in rows[0]]
    records = []
    for row in rows[1:]:
        record = {name: value.strip() for name, value in zip(names, row, strict=False) if name}
        if any(record.values()):
            records.append(dict.fromkeys(filter(None, names), "") | record)
    return records


def column(record: Record, *names: str) -> str:
    """Return the value under the first of these names that the record has; empty where it has none."""
    return next((record[name] for name in names if name in record), "")


def _sheet_rows(path: Path) -> list[list[str]]:
    """Return the cells of the first sheet of an Excel file."""
    try:
        with zipfile.ZipFile(path) as book:
            shared = []
            if "xl/sharedStrings.xml" in book.namelist():
                strings = ElementTree.fromstring(read_member(path, book, "xl/sharedStrings.xml", factor=_XML))
                shared = ["".join(item.itertext()) for item in strings.iter(f"{_SHEET}si")]
            sheet = min(name for name in book.namelist() if re.fullmatch(r"xl/worksheets/sheet\d+\.xml", name))
            rows = ElementTree.fromstring(read_member(path, book, sheet, factor=_XML)).iter(f"{_SHEET}row")
            table, cells = [], 0
            for row in rows:
                table.append(_cells(row, shared))
                cells += len(table[-1])  # one cell far to the right makes a row of empty ones
                check_unpacked(path, 8 * cells)
            return table
    except BadFile:
        raise
    except (OSError, ElementTree.ParseError, ValueError, LookupError, *DAMAGED) as fault:
        raise BadFile(f"labels {str(path)!r} cannot be read as an Excel sheet: {fault}.") from fault


def _cells(row: ElementTree.Element, shared: list[str]) -> list[str]:
    values: dict[int, str] = {}
    for index, cell in enumerate(row.iter(f"{_SHEET}c")):
        letters = re.match(r"[A-Z]{1,3}(?![A-Z])", cell.get("r", ""))  # Excel has no column beyond XFD
        text = "".join(cell.itertext())
        values[_number(letters[0]) if letters else index] = shared[int(text)] if cell.get("t") == "s" else text
    return [values.get(column, "") for column in range(max(values, default=-1) + 1)]


def _number(letters: str) -> int:
    """Return the index of a column: A is 0, Z 25, AA 26."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


GRADES = ("none", "mild", "moderate", "severe", "proliferative")
"""The five grades of diabetic retinopathy, by their number."""

ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".ppm", ".webp")
UNKNOWN = -1
"""A quality that nobody judged."""

_GOOD = ("1", "good", "usable", "gradable", "adequate")
_BAD = ("0", "bad", "poor", "reject", "ungradable", "inadequate")


@dataclass(frozen=True, slots=True)
class Label:
    """The labels of one photograph in a table; a missing field is empty.

    Attributes:
        image: Name of the file, with or without ending and folder.
        grade: As written.
        patient: The patient; a photograph without one counts as its own patient.
        site: Hospital, project or camera.
        quality: As written.
        subset: The part that the data set names.
    """

    image: str
    grade: str
    patient: str = ""
    site: str = ""
    quality: str = ""
    subset: str = ""


@dataclass(frozen=True, slots=True)
class Photograph:
    """A photograph with a grade.

    Attributes:
        id: Its id, unique in its data set.
        path: Its file.
        grade: 0 to 4.
        patient: The patient.
        site: Hospital, project or camera; empty where unknown.
        quality: 1 good, 0 bad, −1 unknown.
        subset: The part that the data set names, or empty.
    """

    id: str
    path: Path
    grade: int
    patient: str
    site: str
    quality: int
    subset: str


@dataclass(frozen=True)
class Collection:
    """A data set of photographs on this machine.

    Attributes:
        name: Its name in reports, such as ``aptos-2019``.
        path: Its folder or file.
        photographs: Those with a grade and a file.
        problems: Problems with the others.
        card: Source card.
        notes: Notes for the reader.
    """

    name: str
    path: Path
    photographs: tuple[Photograph, ...]
    problems: tuple[Problem, ...]
    card: SourceCard
    notes: tuple[str, ...] = ()


class Files:
    """The image files below a folder, found by path or by bare name, with or without ending, in any case.

    A file that was found once counts as labelled.
    """

    def __init__(self, folder: Path) -> None:
        """List them once."""
        self._folder = folder
        self._paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
        self._mentioned: set[Path] = set()
        self._named: dict[str, list[Path]] = defaultdict(list)
        for path in self._paths:
            inside = path.relative_to(folder)
            keys = (inside, inside.with_suffix(""), inside.name, inside.stem)
            for key in dict.fromkeys(str(PurePosixPath(key)).lower() for key in keys):
                self._named[key].append(path)

    def named(self, name: str) -> list[Path]:
        """Return the files that a label may mean; exactly one where all is well."""
        paths = self._named.get(name.replace("\\", "/").strip().lstrip("./").lower(), [])
        self._mentioned.update(paths)
        return paths

    def unlabelled(self) -> list[Problem]:
        """Return the files that no label has named."""
        strays = [path.relative_to(self._folder).as_posix() for path in self._paths if path not in self._mentioned]
        return [Problem("image without label", name) for name in strays]


def match(labels: Sequence[Label], files: Files, *, prefix: str = "") -> tuple[list[Photograph], list[Problem]]:
    """Return photographs for the labels that have a grade and a file, and the problems with the others.

    Args:
        labels: Of one part of a data set.
        files: Where its images are.
        prefix: Put before every id, where parts use the same names for different eyes.
    """
    photographs: list[Photograph] = []
    problems: list[Problem] = []
    for name, same in _by_name(labels).items():
        paths, label, grade = files.named(name), same[0], read_grade(same[0].grade)
        agree = len({(item.grade, item.patient, item.subset) for item in same}) == 1
        if len(same) > 1:
            details = f"{len(same)} labels, " + ("all the same: one kept" if agree else "which disagree: all left out")
            problems.append(Problem("duplicate id", prefix + name, details))
        if not agree:
            continue
        if grade is None:
            problems.append(Problem("without grade", prefix + name, f"its grade is {label.grade!r}"))
        elif len(paths) != 1:
            details = f"{len(paths)} files have this name" if paths else ""
            problems.append(Problem("label without image", prefix + name, details))
        else:
            patient, quality = prefix + (label.patient or name), read_quality(label.quality, name)
            site, subset = label.site.strip(), label.subset
            photographs.append(Photograph(prefix + name, paths[0], grade, patient, site, quality, subset))
    return photographs, problems


def _by_name(labels: Sequence[Label]) -> dict[str, list[Label]]:
    named: dict[str, list[Label]] = defaultdict(list)
    for label in labels:
        if label.image.strip():
            named[label.image.strip()].append(label)
    return named


def read_grade(text: str) -> int | None:
    """Return a grade from 0 to 4, or None for anything else (ungraded, ungradable)."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number in range(len(GRADES)) else None


def read_quality(text: str, where: str) -> int:
    """Return 1 for good, 0 for bad, −1 for not judged.

    Raises:
        UserError: For an unknown word.
    """
    plain = text.strip().lower().removesuffix(".0")
    if plain in ("", "na", "nan"):
        return UNKNOWN
    if plain in _GOOD or plain in _BAD:
        return int(plain in _GOOD)
    raise UserError(f"quality of {where}: good is {', '.join(_GOOD)}; bad is {', '.join(_BAD)}; given {text!r}.")
