"""How public data sets of fundus photographs lie in a folder, and how each is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dubio.core.errors import BadFile
from dubio.core.types import SourceCard
from dubio.tasks.fundus import cards
from dubio.tasks.fundus.deepdrid import deepdrid_parts, find_deepdrid
from dubio.tasks.fundus.photographs import Collection, Files, Label, match, unlabelled
from dubio.tasks.fundus.records import column, read_records
from dubio.tasks.fundus.tables import find_table, table_parts

Parts = list[tuple[list[Label], Path, str]]
"""Labels, the folder their images are in, and what is put before their ids."""


@dataclass(frozen=True)
class Layout:
    """A form in which photographs may lie in a folder.

    Attributes:
        name: What a data set of this form is called in reports.
        looks: The names of its files, for a reader who places them.
        card: Source card.
        find: The place inside a folder that ``read`` wants, or None.
        read: Labels and images of each part.
    """

    name: str
    looks: str
    card: SourceCard
    find: Callable[[Path], Path | None]
    read: Callable[[Path], Parts]


def _with_file(*names: str) -> Callable[[Path], Path | None]:
    def find(folder: Path) -> Path | None:
        return folder if all((folder / name).is_file() for name in names) else None

    return find


def _eyepacs_parts(folder: Path) -> Parts:
    """``trainLabels.csv``, and ``retinopathy_solution.csv`` with the test grades where it is there."""
    parts: Parts = []
    for file, images, part in (("trainLabels.csv", "train", "train"), ("retinopathy_solution.csv", "test", "test")):
        if (folder / file).is_file():
            place = folder / images if (folder / images).is_dir() else folder
            parts.append(([_eye(record, part) for record in read_records(folder / file)], place, ""))
    # one part alone is no cut: the test patients are then taken out of it
    return parts if len(parts) > 1 else [([replace(item, part="") for item in parts[0][0]], *parts[0][1:])]


def _eye(record: dict[str, str], part: str) -> Label:
    image = column(record, "image")
    return Label(image, column(record, "level"), patient=re.sub(r"_(left|right)$", "", image), part=part)


def _aptos_parts(folder: Path) -> Parts:
    place = folder / "train_images" if (folder / "train_images").is_dir() else folder
    records = read_records(folder / "train.csv")
    return [([Label(column(item, "id_code"), column(item, "diagnosis")) for item in records], place, "")]


def _find_aptos(folder: Path) -> Path | None:
    table = folder / "train.csv"
    if not table.is_file():
        return None
    with table.open(encoding="utf-8-sig", errors="replace") as file:
        return (
            folder
            if {"id_code", "diagnosis"} <= {name.strip().lower() for name in file.readline().split(",")}
            else None
        )


_IDRID_TABLE = re.compile(r"idrid[ _]disease[ _]grading[ _](training|testing)[ _]labels\.csv$", re.IGNORECASE)


def _idrid_tables(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for inner in ("", "B. Disease Grading", "B. Disease Grading/B. Disease Grading"):
        place = folder / inner
        for path in sorted([*place.glob("*.csv"), *place.glob("*roundtruth*/*.csv")]):
            if table := _IDRID_TABLE.search(path.name):
                found.setdefault(table[1].lower(), path)
    return found


def _find_idrid(folder: Path) -> Path | None:
    return folder if "training" in _idrid_tables(folder) else None


def _idrid_parts(folder: Path) -> Parts:
    """Two parts that number their images alike; the part is put before the id."""
    parts: Parts = []
    for which, table in _idrid_tables(folder).items():
        home = table.parent if table.parent == folder else table.parent.parent
        places = [path for path in sorted(home.rglob("*")) if path.is_dir() and which in path.name.lower()]
        if not places:
            raise BadFile(
                f"data {str(folder)!r}: IDRiD's folder of {which} images ('… {which.title()} Set') is missing."
            )
        part = {"training": "train", "testing": "test"}[which]
        records = read_records(table)
        labels = [Label(column(item, "image name"), column(item, "retinopathy grade"), part=part) for item in records]
        parts.append((labels, places[0], f"{which}/"))
    return parts


def _messidor_parts(folder: Path) -> Parts:
    """The adjudicated grades; the two eyes of an examination are paired by ``messidor-2.csv`` where it is there."""
    pairs: dict[str, str] = {}
    if (folder / "messidor-2.csv").is_file():
        for number, record in enumerate(read_records(folder / "messidor-2.csv"), start=1):
            pairs |= {Path(name).stem.lower(): f"examination {number}" for name in record.values() if name}
    place = next((folder / name for name in ("IMAGES", "images") if (folder / name).is_dir()), folder)
    labels = [
        Label(
            Path(name).stem,
            column(record, "adjudicated_dr_grade", "diagnosis"),
            patient=pairs.get(Path(name).stem.lower(), ""),
            quality=column(record, "adjudicated_gradable"),
        )
        for record in read_records(folder / "messidor_data.csv")
        if (name := column(record, "image_id", "id_code", "image"))
    ]
    return [(labels, place, "")]


LAYOUTS = (
    Layout(
        "deepdrid",
        "regular_fundus_images with regular-fundus-training, regular-fundus-validation and the evaluation folder",
        cards.DEEPDRID,
        find_deepdrid,
        deepdrid_parts,
    ),
    Layout(
        "idrid",
        "'1. Original Images' and '2. Groundtruths' of 'B. Disease Grading'",
        cards.IDRID,
        _find_idrid,
        _idrid_parts,
    ),
    Layout(
        "messidor-2",
        "messidor_data.csv (and messidor-2.csv) beside the folder IMAGES",
        cards.MESSIDOR,
        _with_file("messidor_data.csv"),
        _messidor_parts,
    ),
    Layout(
        "eyepacs",
        "trainLabels.csv beside the folder train (and retinopathy_solution.csv beside test)",
        cards.EYEPACS,
        _with_file("trainLabels.csv"),
        _eyepacs_parts,
    ),
    Layout("aptos-2019", "train.csv beside the folder train_images", cards.APTOS, _find_aptos, _aptos_parts),
)
"""The public data sets."""

TABLE = Layout(
    "own",
    "one CSV with the columns image and grade (patient, site, quality, split)",
    cards.OWN,
    find_table,
    table_parts,
)
"""Any folder with a table of labels."""


def layout_of(path: Path) -> tuple[Layout, Path] | None:
    """The layout of a folder or table, and the place inside it to read; None where it is none of the known ones."""
    for layout in (*LAYOUTS, TABLE) if path.is_dir() else (TABLE,):
        place = layout.find(path)
        if place is not None:
            return layout, place
    return None


def read_collection(path: Path) -> Collection:
    """The photographs of a folder, or of a table of labels beside its images.

    Raises:
        BadFile: When it is laid out in none of the known ways, or has no photograph with a grade.
    """
    found = layout_of(path)
    if found is None:
        looks = "; ".join(f"{layout.name}: {layout.looks}" for layout in (*LAYOUTS, TABLE))
        raise BadFile(f"data {str(path)!r} is laid out in none of the ways dubio reads. {looks}.")
    layout, place = found
    photographs, findings = [], []
    meant: dict[Path, tuple[Files, set[Path]]] = {}
    parts = layout.read(place)
    for labels, folder, prefix in parts:
        files, known = meant.setdefault(folder, (Files(folder), set()))
        some, wrong, mentioned = match(labels, files, prefix=prefix)
        photographs += some
        findings += wrong
        known |= mentioned
    for files, known in meant.values():
        findings += unlabelled(files, known)
    if not photographs:
        first = f" For example {findings[0].line()}." if findings else ""
        raise BadFile(f"data {str(path)!r}: no photograph with a grade and a file.{first}")
    lone = not any(label.patient for labels, _, _ in parts for label in labels)
    notes = (f"{layout.name} names no patients: every photograph counts as a patient.",) if lone else ()
    name = layout.name if layout is not TABLE else path.stem
    card = layout.card if layout is not TABLE else replace(layout.card, source=path.name)
    card = replace(card, revision=f"{path.name}, {len(photographs):,} photographs")
    return Collection(name, path, tuple(photographs), tuple(findings), card, notes)
