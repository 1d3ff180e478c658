"""ImageNet's usual folders: ``train/WNID/*.JPEG``, and ``val/WNID/*.JPEG`` or ``val/*.JPEG`` with a table of labels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dubio.core.errors import BadFile, listing
from dubio.core.types import IntArray, StrArray

LOOKS = (
    "train/n01440764/*.JPEG and so on for each class, and val/n01440764/*.JPEG or val/*.JPEG with a file of labels "
    "(LOC_val_solution.csv, val_annotations.txt, val_labels.txt or imagenet_2012_validation_synset_labels.txt)"
)
ROOTS = (".", "imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC")
"""Where, inside a folder that is named, ``train`` and ``val`` may be."""

LABELS = (
    "LOC_val_solution.csv",
    "val_annotations.txt",
    "val_labels.txt",
    "imagenet_2012_validation_synset_labels.txt",
    "synset_labels.txt",
)
_ENDINGS = (".jpeg", ".jpg", ".png")
_WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True, eq=False)
class Files:
    """The photographs of one part.

    Attributes:
        names: Paths inside the root ``[N]``, sorted.
        sizes: Bytes ``[N]``.
        changed: When each was last changed, in nanoseconds ``[N]``.
        labels: Class index ``[N]``.
    """

    names: StrArray
    sizes: IntArray
    changed: IntArray
    labels: IntArray

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: IntArray) -> Files:
        """These rows, in this order."""
        return Files(self.names[rows], self.sizes[rows], self.changed[rows], self.labels[rows])


def find_root(folder: Path) -> Path | None:
    """The folder with ``train`` and ``val`` in a folder that is named, or None."""
    for inner in ROOTS:
        root = folder / inner
        if (root / "val").is_dir() and _classes(root / "train"):
            return root
    return None


def _classes(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in os.scandir(folder) if _WNID.fullmatch(entry.name) and entry.is_dir()))


def read_folders(root: Path, named: Path) -> tuple[tuple[str, ...], Files, Files]:
    """The classes (WordNet ids, sorted), the training photographs and the published validation photographs.

    Args:
        root: The folder with ``train`` and ``val``.
        named: The folder that was named, the root or above it; labels may lie there too.

    Raises:
        BadFile: When a class has no training photographs, or the validation photographs have no labels.
    """
    classes = _classes(root / "train")
    train = _by_class(root, "train", classes)
    without = np.flatnonzero(np.bincount(train.labels, minlength=len(classes)) == 0)
    if len(without):
        raise BadFile(f"{root / 'train'}: no photographs of {listing([classes[k] for k in without.tolist()])}.")
    inside = _classes(root / "val")
    if unknown := sorted(set(inside) - set(classes)):
        raise BadFile(f"{root / 'val'}: the class {unknown[0]} has no folder in train.")
    test = _by_class(root, "val", classes) if inside else _flat(root, named, classes)
    if len(test) == 0:
        raise BadFile(f"{root / 'val'}: no photographs; expected {LOOKS}.")
    return classes, train, test


def _scanned(root: Path, folder: str) -> Iterator[tuple[str, int, int]]:
    """Name, bytes and time of change of every photograph of a folder, by name."""
    place = root / folder
    if not place.is_dir():
        return
    with os.scandir(place) as entries:
        found = [entry for entry in entries if entry.name.lower().endswith(_ENDINGS) and entry.is_file()]
    for entry in sorted(found, key=lambda entry: entry.name):
        about = entry.stat()
        yield f"{folder}/{entry.name}", about.st_size, about.st_mtime_ns


def _by_class(root: Path, part: str, classes: tuple[str, ...]) -> Files:
    found = [(*one, k) for k, name in enumerate(classes) for one in _scanned(root, f"{part}/{name}")]
    return _files(found)


def _flat(root: Path, named: Path, classes: tuple[str, ...]) -> Files:
    photographs = list(_scanned(root, "val"))
    places = [place / name for place in dict.fromkeys((root / "val", root, named)) for name in LABELS]
    table = next((path for path in places if path.is_file()), None)
    if table is None:
        raise BadFile(f"{root / 'val'} has no class folders and there is no file of labels; expected {LOOKS}.")
    labels = _read_labels(table, [Path(name).name for name, _, _ in photographs], classes)
    return _files([(*one, label) for one, label in zip(photographs, labels, strict=True)])


def _read_labels(table: Path, names: list[str], classes: tuple[str, ...]) -> list[int]:
    """The class of each photograph: ``NAME WNID …`` a line (spaces, tabs or commas), or one WNID a line, by name."""
    lines = [
        re.split(r"[\s,]+", line.strip()) for line in table.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    index = {name: k for k, name in enumerate(classes)}
    if all(len(line) == 1 and _WNID.fullmatch(line[0]) for line in lines):
        if len(lines) != len(names):
            raise BadFile(f"{table.name} has {len(lines):,} labels; val has {len(names):,} photographs.")
        said = dict(zip(names, (line[0] for line in lines), strict=True))
    else:
        said = {line[0].partition(".")[0]: line[1] for line in lines if len(line) > 1 and _WNID.fullmatch(line[1])}
        if not said:
            raise BadFile(f"{table.name} names no classes by their WordNet id, such as n01440764.")
        said = {name: said.get(name.partition(".")[0], "") for name in names}
    without = [name for name in names if said[name] not in index]
    if without:
        raise BadFile(f"{table.name} gives {len(without):,} photographs no class of train: {listing(without)}.")
    return [index[said[name]] for name in names]


def _files(found: list[tuple[str, int, int, int]]) -> Files:
    names, sizes, changed, labels = zip(*found, strict=True) if found else ((), (), (), ())
    return Files(
        np.array(names, dtype=np.str_),
        np.array(sizes, dtype=np.int64),
        np.array(changed, dtype=np.int64),
        np.array(labels, dtype=np.int64),
    )
