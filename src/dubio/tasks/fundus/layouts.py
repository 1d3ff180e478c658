"""The layouts of the public data sets of fundus photographs, and of any folder with a table of labels.

A layout finds its tables and returns parts: the labels of a table, by the names of its columns, and the folder of their
images. DeepDRiD has three parts, the grades of an eye in one of two columns, and its hospitals in a separate table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.tasks.fundus.labels import Collection, Files, Label, Photograph, Record, column, match, read_records
from dubio.tasks.images.files import Problem
from dubio.tasks.sources.locate import Layout, catalogue, find_file, find_folder, source_card

OWN = source_card("own-photographs")

COLUMNS: dict[str, tuple[str, ...]] = {
    "image": ("image", "image_id", "id_code", "id", "filename", "file", "path", "name"),
    "grade": ("grade", "level", "diagnosis", "dr_grade", "dr_level", "label"),
    "patient": ("patient", "patient_id", "subject", "subject_id"),
    "site": ("site", "source", "hospital", "camera", "domain"),
    "quality": ("quality", "overall_quality", "overall quality", "gradable"),
    "subset": ("split", "part", "fold"),
}
"""Names that a column of the user's table may have, in lower case; the first that is present counts."""

Parts = list[tuple[list[Label], Path, str]]
"""Labels, the folder of their images, and the prefix of their ids."""

_ENDINGS = (".csv", ".tsv", ".xlsx")


def read_labels(table: Path, columns: Mapping[str, Sequence[str]], subset: str = "") -> list[Label]:
    """Return the labels of a table.

    Args:
        table: A CSV, TSV or xlsx file.
        columns: The names that the column of each field of a label may have.
        subset: The part that the table holds, where it has no column of parts.
    """
    fields = [{name: column(row, *names) for name, names in columns.items()} for row in read_records(table)]
    return [Label(**{"subset": subset, **values}) for values in fields]


def _inner(folder: Path, *names: str) -> Path:
    """Return the first of these folders that is inside a folder, or else the folder itself."""
    return next((folder / name for name in names if (folder / name).is_dir()), folder)


def _find_table(path: Path) -> Path | None:
    """Return the table itself, or the only one in a folder.

    Raises:
        UserError: When a folder has several.
    """
    if path.is_file():
        return path if path.suffix.lower() in _ENDINGS else None
    tables = sorted(file for file in path.glob("*") if file.suffix.lower() in _ENDINGS)
    if len(tables) > 1:
        raise UserError(f"data {str(path)!r} has {len(tables)} tables; name one: {', '.join(t.name for t in tables)}.")
    return tables[0] if tables else None


def _table_parts(table: Path) -> Parts:
    """Return the labels of a user's table.

    Raises:
        UnknownName: When it has no column of images or of grades.
    """
    for record in read_records(table)[:1]:
        for needed in ("image", "grade"):
            if not any(name in record for name in COLUMNS[needed]):
                raise UnknownName(f"columns of {table.name}: none for the {needed}", ", ".join(record), COLUMNS[needed])
    return [(read_labels(table, COLUMNS), table.parent, "")]


def _deepdrid_parts(folder: Path) -> Parts:
    """Return labels and images of training, validation and evaluation, as far as they are present."""
    parts: Parts = []
    for subset, name in (("train", "training"), ("val", "validation")):
        source = folder / f"regular-fundus-{name}"
        table = source / f"{source.name}.csv"
        if table.is_file():
            sites = _by_image(source / f"regular-fundus-source-{name}.csv", "source")
            eyes = [_deepdrid_eye(record, subset, sites) for record in read_records(table)]
            parts.append((eyes, _inner(source, "Images"), ""))
    source = folder / "Online-Challenge1&2-Evaluation"
    # the upload forms of the challenges, beside their published labels, have no labels
    grades, quality = (find_file(f"Challenge{k}_labels.csv", f"Challenge{k}_labels.xlsx")(source) for k in (1, 2))
    if grades is not None:
        qualities = {} if quality is None else _by_image(quality, "overall quality")
        eyes = read_labels(grades, {"image": ["image_id"], "grade": ["dr_levels", "dr_level"]}, "test")
        eyes = [replace(eye, patient=eye.image.partition("_")[0], quality=qualities.get(eye.image, "")) for eye in eyes]
        parts.append((eyes, _inner(source, "Images"), ""))
    return parts


def _deepdrid_eye(record: Record, subset: str, sites: Mapping[str, str]) -> Label:
    """Read the grade of the row's eye; the file's name is not trusted for the side (56_r3 is a left eye)."""
    image, grade = column(record, "image_id"), column(record, "left_eye_dr_level")
    grade = grade or column(record, "right_eye_dr_level")
    quality = column(record, "overall quality")
    return Label(image, grade, column(record, "patient_id"), sites.get(image, ""), quality, subset)


def _by_image(table: Path, name: str) -> dict[str, str]:
    """Return a column of a table by the image; nothing where there is no such file."""
    records = read_records(table) if table.is_file() else []
    return {column(record, "image_id"): column(record, name) for record in records}


def _eyepacs_parts(folder: Path) -> Parts:
    """Read ``trainLabels.csv``, and the test grades in ``retinopathy_solution.csv`` if it exists."""
    tables = {"train": folder / "trainLabels.csv", "test": folder / "retinopathy_solution.csv"}
    present = {subset: table for subset, table in tables.items() if table.is_file()}
    parts: Parts = []
    for subset, table in present.items():
        # one part alone is no split: the test patients are then cut out of it
        labels = read_labels(table, {"image": ["image"], "grade": ["level"]}, subset if len(present) > 1 else "")
        eyes = [replace(eye, patient=re.sub(r"_(left|right)$", "", eye.image)) for eye in labels]
        parts.append((eyes, _inner(folder, subset), ""))
    return parts


def _aptos_parts(folder: Path) -> Parts:
    labels = read_labels(folder / "train.csv", {"image": ["id_code"], "grade": ["diagnosis"]})
    return [(labels, _inner(folder, "train_images"), "")]


def _find_aptos(folder: Path) -> Path | None:
    if not (folder / "train.csv").is_file():
        return None
    with (folder / "train.csv").open(encoding="utf-8-sig", errors="replace") as file:
        names = {name.strip().lower() for name in file.readline().split(",")}
    return folder if {"id_code", "diagnosis"} <= names else None


_IDRID_TABLE = re.compile(r"idrid[ _]disease[ _]grading[ _](training|testing)[ _]labels\.csv$", re.IGNORECASE)


def _idrid_tables(folder: Path) -> dict[str, Path]:
    tables: dict[str, Path] = {}
    for inner in ("", "B. Disease Grading", "B. Disease Grading/B. Disease Grading"):
        source = folder / inner
        for path in sorted([*source.glob("*.csv"), *source.glob("*roundtruth*/*.csv")]):
            if table := _IDRID_TABLE.search(path.name):
                tables.setdefault(table[1].lower(), path)
    return tables


def _idrid_parts(folder: Path) -> Parts:
    """Read the two parts, which number their images alike; ids begin with the part's name."""
    parts: Parts = []
    for name, table in _idrid_tables(folder).items():
        parent = table.parent if table.parent == folder else table.parent.parent
        folders = [path for path in sorted(parent.rglob("*")) if path.is_dir() and name in path.name.lower()]
        if not folders:
            raise BadFile(f"data {str(folder)!r}: IDRiD's folder of {name} images ('… {name.title()} Set') is missing.")
        columns = {"image": ["image name"], "grade": ["retinopathy grade"]}
        subset = {"training": "train", "testing": "test"}[name]
        parts.append((read_labels(table, columns, subset), folders[0], f"{name}/"))
    return parts


def _messidor_parts(folder: Path) -> Parts:
    """Read the adjudicated grades; ``messidor-2.csv``, if it exists, pairs the two eyes of an examination."""
    pairs: dict[str, str] = {}
    if (folder / "messidor-2.csv").is_file():
        for number, record in enumerate(read_records(folder / "messidor-2.csv"), start=1):
            pairs |= {Path(name).stem.lower(): f"examination {number}" for name in record.values() if name}
    columns = {
        "image": ["image_id", "id_code", "image"],
        "grade": ["adjudicated_dr_grade", "diagnosis"],
        "quality": ["adjudicated_gradable"],
    }
    labels = [replace(eye, image=Path(eye.image).stem) for eye in read_labels(folder / "messidor_data.csv", columns)]
    eyes = [replace(eye, patient=pairs.get(eye.image.lower(), "")) for eye in labels]
    return [(eyes, _inner(folder, "IMAGES", "images"), "")]


_TRAIN = ("regular-fundus-training/regular-fundus-training.csv",)
LAYOUTS = tuple(
    Layout(name, catalogue()[name]["files"], find, read)
    for name, find, read in (
        ("deepdrid", find_folder(_TRAIN, "regular_fundus_images", "DeepDRiD/regular_fundus_images"), _deepdrid_parts),
        ("idrid", lambda folder: folder if "training" in _idrid_tables(folder) else None, _idrid_parts),
        ("messidor-2", find_folder(["messidor_data.csv"]), _messidor_parts),
        ("eyepacs", find_folder(["trainLabels.csv"]), _eyepacs_parts),
        ("aptos-2019", _find_aptos, _aptos_parts),
    )
)
"""The public data sets."""

TABLE = Layout(
    "own", "one CSV with the columns image and grade (patient, site, quality, split)", _find_table, _table_parts
)
"""Any folder with a table of labels."""


def list_layouts() -> str:
    """Return the names and files of all layouts, for a message."""
    return "; ".join(f"{layout.name}: {layout.files}" for layout in (*LAYOUTS, TABLE))


def read_collection(path: Path) -> Collection:
    """Return the photographs of a folder, or of a table of labels beside its images.

    Raises:
        BadFile: When it has no known layout, or no photograph with a grade.
    """
    layouts = (*LAYOUTS, TABLE) if path.is_dir() else (TABLE,)
    detected = next(((layout, source) for layout in layouts if (source := layout.find(path)) is not None), None)
    if detected is None:
        raise BadFile(f"data {str(path)!r} has no layout that dubio reads. {list_layouts()}.")
    layout, source = detected
    photographs: list[Photograph] = []
    problems: list[Problem] = []
    parts: Parts = layout.read(source)
    files = {folder: Files(folder) for _, folder, _ in parts}
    for labels, folder, prefix in parts:
        matched, unmatched = match(labels, files[folder], prefix=prefix)
        photographs += matched
        problems += unmatched
    problems += [problem for listed in files.values() for problem in listed.unlabelled()]
    if not photographs:
        first = f" For example {problems[0].line()}." if problems else ""
        raise BadFile(f"data {str(path)!r}: no photograph with a grade and a file.{first}")
    lone = not any(label.patient for labels, _, _ in parts for label in labels)
    notes = (f"{layout.name} names no patients: every photograph counts as a patient.",) if lone else ()
    own = layout is TABLE
    card = replace(OWN, source=path.name) if own else source_card(layout.name)
    card = replace(card, revision=f"{path.name}, {len(photographs):,} photographs")
    return Collection(path.stem if own else layout.name, path, tuple(photographs), tuple(problems), card, notes)
