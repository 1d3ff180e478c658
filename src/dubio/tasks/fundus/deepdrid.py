"""DeepDRiD as its repository lays it out: three parts, the grades of an eye in one of two columns, hospitals apart."""

from __future__ import annotations

from pathlib import Path

from dubio.tasks.fundus.photographs import Label
from dubio.tasks.fundus.records import Record, column, read_records

_HOME = "regular_fundus_images"
_LEARNED = {"train": "training", "val": "validation"}
_EVALUATION = "Online-Challenge1&2-Evaluation"


def find_deepdrid(folder: Path) -> Path | None:
    """The folder that holds the three parts."""
    for place in (folder, folder / _HOME, folder / "DeepDRiD" / _HOME):
        if (place / "regular-fundus-training" / "regular-fundus-training.csv").is_file():
            return place
    return None


def deepdrid_parts(folder: Path) -> list[tuple[list[Label], Path, str]]:
    """Labels and images of training, validation and evaluation, as far as they are there."""
    parts: list[tuple[list[Label], Path, str]] = []
    for part, name in _LEARNED.items():
        home = folder / f"regular-fundus-{name}"
        table = home / f"regular-fundus-{name}.csv"
        if table.is_file():
            sites = _sites(home / f"regular-fundus-source-{name}.csv")
            labels = [_learned(record, part, sites) for record in read_records(table)]
            parts.append((labels, _images(home), ""))
    home = folder / _EVALUATION
    grades, quality = _evaluation_table(home, "Challenge1"), _evaluation_table(home, "Challenge2")
    if grades is not None:
        judged = {column(item, "image_id"): column(item, "overall quality") for item in quality or ()}
        parts.append(([_evaluated(record, judged) for record in grades], _images(home), ""))
    return parts


def _images(home: Path) -> Path:
    return home / "Images" if (home / "Images").is_dir() else home


def _sites(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    return {column(record, "image_id"): column(record, "source") for record in read_records(path)}


def _learned(record: Record, part: str, sites: dict[str, str]) -> Label:
    """A row carries the grade of its eye alone; the file's name is not trusted for the side (56_r3 is a left eye)."""
    image = column(record, "image_id")
    grade = column(record, "left_eye_dr_level") or column(record, "right_eye_dr_level")
    quality = column(record, "overall quality")
    return Label(image, grade, column(record, "patient_id"), sites.get(image, ""), quality, part)


def _evaluation_table(home: Path, name: str) -> list[Record] | None:
    """The published labels of a challenge; its upload form has none."""
    for ending in (".csv", ".xlsx"):
        path = home / f"{name}_labels{ending}"
        if path.is_file():
            return read_records(path)
    return None


def _evaluated(record: Record, judged: dict[str, str]) -> Label:
    image = column(record, "image_id")
    grade = column(record, "dr_levels", "dr_level")
    return Label(image, grade, image.partition("_")[0], "", judged.get(image, ""), "test")
