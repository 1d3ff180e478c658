"""ImageNet's usual folders: ``train/WNID/*.JPEG``, and ``val/WNID/*.JPEG`` or ``val/*.JPEG`` with a table of labels.

Which photographs cannot be read: looked at once, and remembered as long as no file changes.

ImageNet on this machine: where it is, what it holds, and what ``dubio data`` says of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import BadFile, UserError, listing
from dubio.core.files import write_file
from dubio.core.types import IntArray, SourceCard, StrArray
from dubio.tasks.images.problems import Problem, progress_on_screen, summary
from dubio.tasks.images.streamed import THREADS, read_fault
from dubio.tasks.sources.locate import DATA_VARIABLE, DataMissing, cache_dir, data_folders

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
class PhotographFiles:
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

    def take(self, rows: IntArray) -> PhotographFiles:
        """These rows, in this order."""
        return PhotographFiles(self.names[rows], self.sizes[rows], self.changed[rows], self.labels[rows])


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


def read_folders(root: Path, named: Path) -> tuple[tuple[str, ...], PhotographFiles, PhotographFiles]:
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


def _by_class(root: Path, part: str, classes: tuple[str, ...]) -> PhotographFiles:
    found = [(*one, k) for k, name in enumerate(classes) for one in _scanned(root, f"{part}/{name}")]
    return _files(found)


def _flat(root: Path, named: Path, classes: tuple[str, ...]) -> PhotographFiles:
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


def _files(found: list[tuple[str, int, int, int]]) -> PhotographFiles:
    names, sizes, changed, labels = zip(*found, strict=True) if found else ((), (), (), ())
    return PhotographFiles(
        np.array(names, dtype=np.str_),
        np.array(sizes, dtype=np.int64),
        np.array(changed, dtype=np.int64),
        np.array(labels, dtype=np.int64),
    )


_CHUNK = 4096


def memory() -> Path:
    """Where surveys are remembered."""
    return cache_dir() / "imagenet"


def find_unreadable(root: Path, parts: Sequence[PhotographFiles], *, verify: bool = False) -> list[Problem]:
    """The photographs that cannot be read, by name.

    The first time, the head of every file is read, and of a jpeg its end; ``verify`` decodes every file. What was found
    is kept in the cache under the names, sizes and times of change of all files, a thorough survey for good.

    Args:
        root: The folder of the names.
        parts: The photographs.
        verify: Decode every file.
    """
    digest = hashlib.sha256(str(root.resolve()).encode())
    for part in parts:
        digest.update("\n".join(part.names.tolist()).encode())
        digest.update(part.sizes.tobytes() + part.changed.tobytes())
    kept = memory() / f"{digest.hexdigest()[:32]}.json"
    known = _remembered(kept)
    if known is None or (verify and not known["verified"]):
        names = [name for part in parts for name in part.names.tolist()]
        known = {"schema": 1, "verified": verify, "unreadable": _looked_at(root, names, verify)}
        _remember(kept, known)
    return [Problem("unreadable", name, words) for name, words in sorted(known["unreadable"].items())]


def _looked_at(root: Path, names: list[str], verify: bool) -> dict[str, str]:
    show = progress_on_screen("Decoding photographs" if verify else "Looking at photographs")
    found: dict[str, str] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            faults = pool.map(lambda name: read_fault(root / name, whole=verify), chunk)
            found |= {name: fault for name, fault in zip(chunk, faults, strict=True) if fault is not None}
            if show is not None:
                show(min(start + _CHUNK, len(names)), len(names))
    return found


def _remembered(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    right = isinstance(said, dict) and said.get("schema") == 1 and isinstance(said.get("unreadable"), dict)
    return said if right else None


def _remember(path: Path, known: dict[str, Any]) -> None:
    """Write the survey down; a cache that cannot be written costs time, not the task."""
    with suppress(UserError):
        write_file(path, json.dumps(known))


CARD = SourceCard(
    source="https://www.image-net.org/download.php (ILSVRC 2012; an account and its terms are asked for)",
    revision="1,281,167 training and 50,000 validation photographs",
    licence="ImageNet's terms: research and education, not commercial",
    citation="O. Russakovsky et al. (2015), ImageNet Large Scale Visual Recognition Challenge, IJCV 115",
    description="Photographs in 1,000 classes. The published validation photographs, whose labels are known, are the "
    "test split.",
)
PUBLISHED = {"train": 1_281_167, "val": 50_000, "classes": 1000}


@dataclass(frozen=True, eq=False)
class ImageNetCopy:
    """ImageNet's photographs, those that can be read.

    Attributes:
        root: The folder with ``train`` and ``val``.
        classes: WordNet ids, sorted.
        train: Of the published training part.
        test: Of the published validation part.
        problems: What was left out.
    """

    root: Path
    classes: tuple[str, ...]
    train: PhotographFiles
    test: PhotographFiles
    problems: tuple[Problem, ...]


def open_imagenet(data: str | None, data_dir: str | None, *, verify: bool = False) -> ImageNetCopy:
    """The photographs of the folder that is named, or of the first of the user's folders that has them.

    Raises:
        DataMissing: When there are none.
        BadFile: When the folder that is named has none, or a class has no photograph left.
    """
    named = None if data is None else Path(data).expanduser()
    folders = (named,) if named else data_folders(data_dir)[: 1 if data_dir else None]
    found = [(folder, find_root(folder)) for folder in folders]
    folder, root = next(((folder, root) for folder, root in found if root is not None), (None, None))
    if folder is None or root is None:
        if named is not None:
            raise BadFile(f"data {str(named)!r} does not hold ImageNet; expected {LOOKS}.")
        where = f"in data_dir {data_dir!r}" if data_dir else "on this machine"
        raise DataMissing(f"ImageNet is not {where}. {by_hand()}")
    classes, train, test = read_folders(root, folder)
    problems = find_unreadable(root, (train, test), verify=verify)
    bad = np.array([problem.id for problem in problems], dtype=np.str_)
    train, test = (part.take(np.flatnonzero(~np.isin(part.names, bad))) for part in (train, test))
    if len(test) == 0 or np.bincount(train.labels, minlength=len(classes)).min() == 0:
        raise BadFile(f"{root}: once the {len(bad):,} unreadable files are left out, a class or val has no photograph.")
    return ImageNetCopy(root, classes, train, test, tuple(problems))


def by_hand() -> str:
    """How a reader places it."""
    return (
        f"It is fetched by hand, because its owners ask for an agreement. Name its folder with the argument data, with "
        f"--data-dir or with {DATA_VARIABLE} (a folder 'imagenet' inside it will do too): {LOOKS}."
    )


def list_copies(data_dir: str | None = None) -> dict[str, Any]:
    """What is here; nothing is fetched and no photograph is looked at."""
    roots = [root for folder in data_folders(data_dir) if (root := find_root(folder)) is not None]
    return {
        "corpus": "imagenet",
        "here": [{"form": "folders", "path": str(root), "way": "folder", "whole": True} for root in roots],
        "folders": [str(folder) for folder in data_folders(data_dir)],
        "cache": str(memory()),
        "kept": "surveys of photographs",
        "sources": [{"name": "ImageNet (ILSVRC 2012)", "source": CARD.source, "looks": LOOKS}],
        "by_hand": by_hand(),
    }


def counts_report(data_dir: str | None = None, *, verify: bool = False) -> dict[str, Any]:
    """The counts of the copy on this machine beside the published ones, and the files that cannot be read.

    Args:
        data_dir: The folder, or one to look in.
        verify: Decode every file.
    """
    opened = open_imagenet(None, data_dir, verify=verify)
    have = {"train": len(opened.train), "val": len(opened.test), "classes": len(opened.classes)}
    counts = [
        f"{what}: {number:,}, published {PUBLISHED[what]:,}{'' if number == PUBLISHED[what] else ' (DIFFERS)'}"
        for what, number in have.items()
    ]
    return {
        "data": "imagenet",
        "path": str(opened.root),
        "photographs": have["train"] + have["val"],
        "counts": have,
        "published": PUBLISHED,
        "summary": [*counts, *summary(opened.problems)],
        "findings": [problem.line() for problem in opened.problems],
    }
