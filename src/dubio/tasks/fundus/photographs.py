"""Photographs and their labels, as a data set names them, matched with the files that are there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dubio.core.errors import UserError
from dubio.core.types import SourceCard
from dubio.tasks.fundus.findings import Finding

GRADES = ("none", "mild", "moderate", "severe", "proliferative")
"""The five grades of diabetic retinopathy, by their number."""

ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".ppm", ".webp")
UNKNOWN = -1
"""A quality that nobody judged."""

_GOOD = ("1", "good", "usable", "gradable", "adequate")
_BAD = ("0", "bad", "poor", "reject", "ungradable", "inadequate")


@dataclass(frozen=True, slots=True)
class Label:
    """What a table says of one photograph; a field it does not have is empty.

    Attributes:
        image: Name of the file, with or without ending and folder.
        grade: As written.
        patient: Whose eye; a photograph without one counts as its own patient.
        site: Hospital, project or camera.
        quality: As written.
        part: The part the data set puts it in.
    """

    image: str
    grade: str
    patient: str = ""
    site: str = ""
    quality: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class Photograph:
    """A photograph with a grade.

    Attributes:
        id: What it is called, unique in its data set.
        path: Its file.
        grade: 0 to 4.
        patient: Whose eye.
        site: Hospital, project or camera; empty where unknown.
        quality: 1 good, 0 bad, −1 unknown.
        part: The part the data set puts it in, or empty.
    """

    id: str
    path: Path
    grade: int
    patient: str
    site: str
    quality: int
    part: str


@dataclass(frozen=True)
class Collection:
    """A data set of photographs on this machine.

    Attributes:
        name: What it is called in reports, such as ``aptos-2019``.
        path: Its folder or file.
        photographs: Those with a grade and a file.
        findings: What is wrong with the others.
        card: Source card.
        notes: What a reader must know of it.
    """

    name: str
    path: Path
    photographs: tuple[Photograph, ...]
    findings: tuple[Finding, ...]
    card: SourceCard
    notes: tuple[str, ...] = ()


class Files:
    """The image files below a folder, found by path or by bare name, with or without ending, in any case."""

    def __init__(self, folder: Path) -> None:
        """List them once."""
        self.folder = folder
        self.paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
        self._named: dict[str, list[Path]] = defaultdict(list)
        for path in self.paths:
            inside = path.relative_to(folder)
            keys = (inside, inside.with_suffix(""), inside.name, inside.stem)
            for key in dict.fromkeys(str(PurePosixPath(key)).lower() for key in keys):
                self._named[key].append(path)

    def named(self, name: str) -> list[Path]:
        """The files a label may mean; exactly one where all is well."""
        return self._named.get(name.replace("\\", "/").strip().lstrip("./").lower(), [])


def match(
    labels: Sequence[Label], files: Files, *, prefix: str = ""
) -> tuple[list[Photograph], list[Finding], frozenset[Path]]:
    """Photographs for the labels that have a grade and a file, and what is wrong with the rest.

    Args:
        labels: Of one part of a data set.
        files: Where its images are.
        prefix: Put before every id, where parts use the same names for different eyes.

    Returns:
        The photographs, the findings, and the files that a label means.
    """
    made: list[Photograph] = []
    findings: list[Finding] = []
    meant: set[Path] = set()
    for name, same in _by_name(labels).items():
        found = files.named(name)
        meant.update(found)
        label = same[0]
        if len(same) > 1:
            agree = len({(item.grade, item.patient, item.part) for item in same}) == 1
            words = f"{len(same)} labels, " + ("all the same: one kept" if agree else "which disagree: all left out")
            findings.append(Finding("duplicate id", prefix + name, words))
            if not agree:
                continue
        grade = read_grade(label.grade)
        if grade is None:
            findings.append(Finding("without grade", prefix + name, f"its grade is {label.grade!r}"))
        elif len(found) != 1:
            words = f"{len(found)} files are called so" if found else ""
            findings.append(Finding("label without image", prefix + name, words))
        else:
            who = prefix + (label.patient or name)
            quality = read_quality(label.quality, name)
            made.append(Photograph(prefix + name, found[0], grade, who, label.site.strip(), quality, label.part))
    return made, findings, frozenset(meant)


def unlabelled(files: Files, meant: Iterable[Path]) -> list[Finding]:
    """The files that no label means."""
    known = set(meant)
    return [
        Finding("image without label", path.relative_to(files.folder).as_posix())
        for path in files.paths
        if path not in known
    ]


def _by_name(labels: Sequence[Label]) -> dict[str, list[Label]]:
    named: dict[str, list[Label]] = defaultdict(list)
    for label in labels:
        if label.image.strip():
            named[label.image.strip()].append(label)
    return named


def read_grade(text: str) -> int | None:
    """A grade from 0 to 4, or None for anything else (ungraded, ungradable)."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number in range(len(GRADES)) else None


def read_quality(text: str, where: str) -> int:
    """1 good, 0 bad, −1 not judged.

    Raises:
        UserError: For a word that is none of the known ones.
    """
    plain = text.strip().lower().removesuffix(".0")
    if plain in ("", "na", "nan"):
        return UNKNOWN
    if plain in _GOOD or plain in _BAD:
        return int(plain in _GOOD)
    raise UserError(f"quality of {where}: good is {', '.join(_GOOD)}; bad is {', '.join(_BAD)}; given {text!r}.")
