"""Any folder of photographs with a table of image, grade and, where known, patient, site, quality and split."""

from __future__ import annotations

from pathlib import Path

from dubio.core.errors import UnknownName, UserError
from dubio.tasks.fundus.photographs import Label
from dubio.tasks.fundus.records import column, read_records

COLUMNS: dict[str, tuple[str, ...]] = {
    "image": ("image", "image_id", "id_code", "id", "filename", "file", "path", "name"),
    "grade": ("grade", "level", "diagnosis", "dr_grade", "dr_level", "label"),
    "patient": ("patient", "patient_id", "subject", "subject_id"),
    "site": ("site", "source", "hospital", "camera", "domain"),
    "quality": ("quality", "overall_quality", "overall quality", "gradable"),
    "part": ("split", "part", "fold"),
}
"""What a column may be called, in lower case; the first that is there counts."""

_ENDINGS = (".csv", ".tsv", ".xlsx")


def find_table(path: Path) -> Path | None:
    """The table itself, or the only one in a folder.

    Raises:
        UserError: When a folder has several.
    """
    if path.is_file():
        return path if path.suffix.lower() in _ENDINGS else None
    tables = sorted(file for file in path.glob("*") if file.suffix.lower() in _ENDINGS)
    if len(tables) > 1:
        raise UserError(f"data {str(path)!r} has {len(tables)} tables; name one: {', '.join(t.name for t in tables)}.")
    return tables[0] if tables else None


def table_parts(table: Path) -> list[tuple[list[Label], Path, str]]:
    """The labels of a table, and the folder it lies in.

    Raises:
        UnknownName: When it has no column of images or of grades.
    """
    records = read_records(table)
    for needed in ("image", "grade"):
        if records and not any(name in records[0] for name in COLUMNS[needed]):
            raise UnknownName(f"columns of {table.name}: none for the {needed}", ", ".join(records[0]), COLUMNS[needed])
    labels = [Label(**{field: column(record, *names) for field, names in COLUMNS.items()}) for record in records]
    return [(labels, table.parent, "")]
