"""The layouts of the public data sets of fundus photographs, and of any folder with a table of labels.

A table has columns for image and grade and, where known, patient, site, quality and split. DeepDRiD has three parts,
the grades of an eye in one of two columns, and its hospitals in a separate table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.core.types import SourceCard
from dubio.tasks.fundus.labels import Collection, Files, Label, Record, column, match, read_records, unlabelled

DEEPDRID = SourceCard(
    source="https://github.com/deepdrdoc/DeepDRiD (regular fundus images)",
    revision="v1.1",
    licence="CC BY-SA 4.0",
    citation="R. Liu et al. (2022), DeepDRiD: Diabetic Retinopathy, Grading and Image Quality Estimation Challenge, "
    "Patterns 3, doi:10.1016/j.patter.2022.100512",
    description="Two photographs of each eye from screening projects in China, with grade, quality and project.",
)
IDRID = SourceCard(
    source="https://ieee-dataport.org/open-access/indian-diabetic-retinopathy-image-dataset-idrid (Disease Grading)",
    revision="2018",
    licence="CC BY 4.0",
    citation="P. Porwal et al. (2018), Indian Diabetic Retinopathy Image Dataset (IDRiD), Data 3, "
    "doi:10.3390/data3030025",
    description="Photographs of one eye clinic in India.",
)
MESSIDOR = SourceCard(
    source="https://www.adcis.net/en/third-party/messidor2/ (images), "
    "https://www.kaggle.com/datasets/google-brain/messidor2-dr-grades (adjudicated grades)",
    revision="2018",
    licence="research and education, by agreement with the owners",
    citation="E. Decencière et al. (2014), Feedback on a publicly distributed image database: the Messidor database, "
    "Image Analysis & Stereology 33; J. Krause et al. (2018), Grader variability, Ophthalmology 125",
    description="Examinations of two eyes in French hospitals, with adjudicated grades.",
)
EYEPACS = SourceCard(
    source="https://www.kaggle.com/c/diabetic-retinopathy-detection",
    revision="2015",
    licence="the rules of the competition; research use",
    citation="Kaggle and EyePACS (2015), Diabetic Retinopathy Detection",
    description="Photographs of left and right eyes from screening in the United States, of many cameras.",
)
APTOS = SourceCard(
    source="https://www.kaggle.com/c/aptos2019-blindness-detection",
    revision="2019",
    licence="the rules of the competition; research use",
    citation="Asia Pacific Tele-Ophthalmology Society and Aravind Eye Hospital (2019), APTOS 2019 Blindness Detection",
    description="Photographs from screening in rural India.",
)
OWN = SourceCard(
    source="the user's own photographs",
    revision="as found",
    licence="the owner's",
    citation="the owner's",
    description="The user's own photographs of the eye's background.",
)


COLUMNS: dict[str, tuple[str, ...]] = {
    "image": ("image", "image_id", "id_code", "id", "filename", "file", "path", "name"),
    "grade": ("grade", "level", "diagnosis", "dr_grade", "dr_level", "label"),
    "patient": ("patient", "patient_id", "subject", "subject_id"),
    "site": ("site", "source", "hospital", "camera", "domain"),
    "quality": ("quality", "overall_quality", "overall quality", "gradable"),
    "subset": ("split", "part", "fold"),
}
"""Names that a column may have, in lower case; the first that is present counts."""

_ENDINGS = (".csv", ".tsv", ".xlsx")


def find_table(path: Path) -> Path | None:
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


def table_parts(table: Path) -> list[tuple[list[Label], Path, str]]:
    """Return the labels of a table, and its folder.

    Raises:
        UnknownName: When it has no column of images or of grades.
    """
    records = read_records(table)
    for needed in ("image", "grade"):
        if records and not any(name in records[0] for name in COLUMNS[needed]):
            raise UnknownName(f"columns of {table.name}: none for the {needed}", ", ".join(records[0]), COLUMNS[needed])
    labels = [Label(**{field: column(record, *names) for field, names in COLUMNS.items()}) for record in records]
    return [(labels, table.parent, "")]


_IMAGES = "regular_fundus_images"
_LEARNED = {"train": "training", "val": "validation"}
_EVALUATION = "Online-Challenge1&2-Evaluation"


def find_deepdrid(folder: Path) -> Path | None:
    """Return the folder that holds the three parts."""
    for source in (folder, folder / _IMAGES, folder / "DeepDRiD" / _IMAGES):
        if (source / "regular-fundus-training" / "regular-fundus-training.csv").is_file():
            return source
    return None


def deepdrid_parts(folder: Path) -> list[tuple[list[Label], Path, str]]:
    """Return labels and images of training, validation and evaluation, as far as they are present."""
    parts: list[tuple[list[Label], Path, str]] = []
    for subset, name in _LEARNED.items():
        source = folder / f"regular-fundus-{name}"
        table = source / f"regular-fundus-{name}.csv"
        if table.is_file():
            sites = _sites(source / f"regular-fundus-source-{name}.csv")
            labels = [_learned(record, subset, sites) for record in read_records(table)]
            parts.append((labels, _images(source), ""))
    source = folder / _EVALUATION
    grades, quality = _evaluation_table(source, "Challenge1"), _evaluation_table(source, "Challenge2")
    if grades is not None:
        qualities = {column(item, "image_id"): column(item, "overall quality") for item in quality or ()}
        parts.append(([_evaluated(record, qualities) for record in grades], _images(source), ""))
    return parts


def _images(folder: Path) -> Path:
    return folder / "Images" if (folder / "Images").is_dir() else folder


def _sites(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    return {column(record, "image_id"): column(record, "source") for record in read_records(path)}


def _learned(record: Record, subset: str, sites: dict[str, str]) -> Label:
    """Read the grade of the row's eye; the file's name is not trusted for the side (56_r3 is a left eye)."""
    image = column(record, "image_id")
    grade = column(record, "left_eye_dr_level") or column(record, "right_eye_dr_level")
    quality = column(record, "overall quality")
    return Label(image, grade, column(record, "patient_id"), sites.get(image, ""), quality, subset)


def _evaluation_table(folder: Path, name: str) -> list[Record] | None:
    """Return the published labels of a challenge; its upload form has none."""
    for ending in (".csv", ".xlsx"):
        path = folder / f"{name}_labels{ending}"
        if path.is_file():
            return read_records(path)
    return None


def _evaluated(record: Record, qualities: dict[str, str]) -> Label:
    image = column(record, "image_id")
    grade = column(record, "dr_levels", "dr_level")
    return Label(image, grade, image.partition("_")[0], "", qualities.get(image, ""), "test")


Parts = list[tuple[list[Label], Path, str]]
"""Labels, the folder of their images, and the prefix of their ids."""


@dataclass(frozen=True)
class Layout:
    """A layout in which photographs may lie in a folder.

    Attributes:
        name: The name of a data set of this layout in reports.
        files: The names of its files, for a reader who places them.
        card: Source card.
        find: Returns the path inside a folder that ``read`` takes, or None.
        read: Returns labels and images of each part.
    """

    name: str
    files: str
    card: SourceCard
    find: Callable[[Path], Path | None]
    read: Callable[[Path], Parts]


def _with_file(*names: str) -> Callable[[Path], Path | None]:
    def find(folder: Path) -> Path | None:
        return folder if all((folder / name).is_file() for name in names) else None

    return find


def _eyepacs_parts(folder: Path) -> Parts:
    """Read ``trainLabels.csv``, and the test grades in ``retinopathy_solution.csv`` if it exists."""
    parts: Parts = []
    for file, images, subset in (("trainLabels.csv", "train", "train"), ("retinopathy_solution.csv", "test", "test")):
        if (folder / file).is_file():
            source = folder / images if (folder / images).is_dir() else folder
            parts.append(([_eye(record, subset) for record in read_records(folder / file)], source, ""))
    # one part alone is no split: the test patients are then cut out of it
    return parts if len(parts) > 1 else [([replace(item, subset="") for item in parts[0][0]], *parts[0][1:])]


def _eye(record: dict[str, str], subset: str) -> Label:
    image = column(record, "image")
    return Label(image, column(record, "level"), patient=re.sub(r"_(left|right)$", "", image), subset=subset)


def _aptos_parts(folder: Path) -> Parts:
    source = folder / "train_images" if (folder / "train_images").is_dir() else folder
    records = read_records(folder / "train.csv")
    return [([Label(column(item, "id_code"), column(item, "diagnosis")) for item in records], source, "")]


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
    tables: dict[str, Path] = {}
    for inner in ("", "B. Disease Grading", "B. Disease Grading/B. Disease Grading"):
        source = folder / inner
        for path in sorted([*source.glob("*.csv"), *source.glob("*roundtruth*/*.csv")]):
            if table := _IDRID_TABLE.search(path.name):
                tables.setdefault(table[1].lower(), path)
    return tables


def _find_idrid(folder: Path) -> Path | None:
    return folder if "training" in _idrid_tables(folder) else None


def _idrid_parts(folder: Path) -> Parts:
    """Read the two parts, which number their images alike; ids begin with the part's name."""
    parts: Parts = []
    for which, table in _idrid_tables(folder).items():
        parent = table.parent if table.parent == folder else table.parent.parent
        places = [path for path in sorted(parent.rglob("*")) if path.is_dir() and which in path.name.lower()]
        if not places:
            raise BadFile(
                f"data {str(folder)!r}: IDRiD's folder of {which} images ('… {which.title()} Set') is missing."
            )
        subset = {"training": "train", "testing": "test"}[which]
        records = read_records(table)
        labels = [
            Label(column(item, "image name"), column(item, "retinopathy grade"), subset=subset) for item in records
        ]
        parts.append((labels, places[0], f"{which}/"))
    return parts


def _messidor_parts(folder: Path) -> Parts:
    """Read the adjudicated grades; ``messidor-2.csv``, if it exists, pairs the two eyes of an examination."""
    pairs: dict[str, str] = {}
    if (folder / "messidor-2.csv").is_file():
        for number, record in enumerate(read_records(folder / "messidor-2.csv"), start=1):
            pairs |= {Path(name).stem.lower(): f"examination {number}" for name in record.values() if name}
    source = next((folder / name for name in ("IMAGES", "images") if (folder / name).is_dir()), folder)
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
    return [(labels, source, "")]


LAYOUTS = (
    Layout(
        "deepdrid",
        "regular_fundus_images with regular-fundus-training, regular-fundus-validation and the evaluation folder",
        DEEPDRID,
        find_deepdrid,
        deepdrid_parts,
    ),
    Layout(
        "idrid", "'1. Original Images' and '2. Groundtruths' of 'B. Disease Grading'", IDRID, _find_idrid, _idrid_parts
    ),
    Layout(
        "messidor-2",
        "messidor_data.csv (and messidor-2.csv) beside the folder IMAGES",
        MESSIDOR,
        _with_file("messidor_data.csv"),
        _messidor_parts,
    ),
    Layout(
        "eyepacs",
        "trainLabels.csv beside the folder train (and retinopathy_solution.csv beside test)",
        EYEPACS,
        _with_file("trainLabels.csv"),
        _eyepacs_parts,
    ),
    Layout("aptos-2019", "train.csv beside the folder train_images", APTOS, _find_aptos, _aptos_parts),
)
"""The public data sets."""

TABLE = Layout(
    "own", "one CSV with the columns image and grade (patient, site, quality, split)", OWN, find_table, table_parts
)
"""Any folder with a table of labels."""


def layout_of(path: Path) -> tuple[Layout, Path] | None:
    """Return the layout of a folder or table, and the path inside it to read; None where it has no known layout."""
    for layout in (*LAYOUTS, TABLE) if path.is_dir() else (TABLE,):
        source = layout.find(path)
        if source is not None:
            return layout, source
    return None


def read_collection(path: Path) -> Collection:
    """Return the photographs of a folder, or of a table of labels beside its images.

    Raises:
        BadFile: When it has no known layout, or no photograph with a grade.
    """
    detected = layout_of(path)
    if detected is None:
        layouts = "; ".join(f"{layout.name}: {layout.files}" for layout in (*LAYOUTS, TABLE))
        raise BadFile(f"data {str(path)!r} has no layout that dubio reads. {layouts}.")
    layout, source = detected
    photographs, problems = [], []
    mentioned_in: dict[Path, tuple[Files, set[Path]]] = {}
    parts = layout.read(source)
    for labels, folder, prefix in parts:
        files, mentioned_files = mentioned_in.setdefault(folder, (Files(folder), set()))
        some, wrong, mentioned = match(labels, files, prefix=prefix)
        photographs += some
        problems += wrong
        mentioned_files |= mentioned
    for files, mentioned_files in mentioned_in.values():
        problems += unlabelled(files, mentioned_files)
    if not photographs:
        first = f" For example {problems[0].line()}." if problems else ""
        raise BadFile(f"data {str(path)!r}: no photograph with a grade and a file.{first}")
    lone = not any(label.patient for labels, _, _ in parts for label in labels)
    notes = (f"{layout.name} names no patients: every photograph counts as a patient.",) if lone else ()
    name = layout.name if layout is not TABLE else path.stem
    card = layout.card if layout is not TABLE else replace(layout.card, source=path.name)
    card = replace(card, revision=f"{path.name}, {len(photographs):,} photographs")
    return Collection(name, path, tuple(photographs), tuple(problems), card, notes)
