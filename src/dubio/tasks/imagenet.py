"""ImageNet, streamed: photographs are decoded batch by batch, never all in memory.

The usual folders are ``train/WNID/*.JPEG``, and ``val/WNID/*.JPEG`` or ``val/*.JPEG`` with a table of labels. Files are
checked once; the list of those that cannot be read is cached as long as no file changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import BadFile, UserError, listing
from dubio.core.files import cache_dir, write_file
from dubio.core.registry import task
from dubio.core.types import Examples, IntArray, Split, StrArray, Task
from dubio.tasks.images.files import Problem, progress_on_screen, summary
from dubio.tasks.images.streamed import THREADS, Square, StreamedRows, read_fault
from dubio.tasks.sources.locate import (
    DATA_VARIABLE,
    DataMissing,
    DataSource,
    catalogue,
    data_folders,
    read_cached,
    refuse_if_sealed,
    source_card,
    unfetched_facts,
)
from dubio.tasks.splitting import PART_KINDS, balanced_rows, check_training_shares, subset_rows

PUBLISHED: dict[str, int] = catalogue()["imagenet"]["published"]
EXPECTED_FILES: str = catalogue()["imagenet"]["files"]
ROOTS = (".", "imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC")
"""Folders inside a named folder that may hold ``train`` and ``val``."""

LABELS = (
    "LOC_val_solution.csv", "val_annotations.txt", "val_labels.txt", "imagenet_2012_validation_synset_labels.txt",
    "synset_labels.txt",
)  # fmt: skip
_ENDINGS = (".jpeg", ".jpg", ".png")
_WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True, eq=False)
class PhotographFiles:
    """The photographs of one part.

    Attributes:
        names: Paths inside the root ``[N]``, sorted.
        sizes: Sizes in bytes ``[N]``.
        changed: Times of the last change, in nanoseconds ``[N]``.
        labels: Class index ``[N]``.
    """

    names: StrArray
    sizes: IntArray
    changed: IntArray
    labels: IntArray

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: IntArray) -> PhotographFiles:
        """Return these rows, in this order."""
        return PhotographFiles(self.names[rows], self.sizes[rows], self.changed[rows], self.labels[rows])


def find_root(folder: Path) -> Path | None:
    """Return the folder with ``train`` and ``val`` inside a named folder, or None."""
    roots = (folder / inner for inner in ROOTS)
    return next((root for root in roots if (root / "val").is_dir() and _classes(root / "train")), None)


def _classes(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in os.scandir(folder) if _WNID.fullmatch(entry.name) and entry.is_dir()))


def read_folders(root: Path, named: Path) -> tuple[tuple[str, ...], PhotographFiles, PhotographFiles]:
    """Return the classes (WordNet ids, sorted), the training photographs and the published validation photographs.

    Args:
        root: The folder with ``train`` and ``val``.
        named: The named folder, the root or above it; labels may lie there too.

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
        raise BadFile(f"{root / 'val'}: no photographs; expected {EXPECTED_FILES}.")
    return classes, train, test


def _scanned(root: Path, folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, size and time of change of every photograph of a folder, sorted by name."""
    if not (root / folder).is_dir():
        return
    with os.scandir(root / folder) as entries:
        images = [entry for entry in entries if entry.name.lower().endswith(_ENDINGS) and entry.is_file()]
    for entry in sorted(images, key=lambda entry: entry.name):
        status = entry.stat()
        yield f"{folder}/{entry.name}", status.st_size, status.st_mtime_ns


def _by_class(root: Path, subset: str, classes: tuple[str, ...]) -> PhotographFiles:
    return _files([(*item, k) for k, name in enumerate(classes) for item in _scanned(root, f"{subset}/{name}")])


def _flat(root: Path, named: Path, classes: tuple[str, ...]) -> PhotographFiles:
    photographs = list(_scanned(root, "val"))
    candidates = [folder / name for folder in dict.fromkeys((root / "val", root, named)) for name in LABELS]
    table = next((path for path in candidates if path.is_file()), None)
    if table is None:
        raise BadFile(f"{root / 'val'} has no class folders and there is no file of labels; expected {EXPECTED_FILES}.")
    labels = _read_labels(table, [Path(name).name for name, _, _ in photographs], classes)
    return _files([(*item, label) for item, label in zip(photographs, labels, strict=True)])


def _read_labels(table: Path, names: list[str], classes: tuple[str, ...]) -> list[int]:
    """Return the class of each photograph from lines ``NAME WNID …`` (spaces, tabs or commas), or one WNID per line."""
    try:
        texts = table.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as fault:
        raise BadFile(f"{table.name} is not text in UTF-8: {fault}.") from fault
    lines = [re.split(r"[\s,]+", text.strip()) for text in texts if text.strip()]
    index = {name: k for k, name in enumerate(classes)}
    if all(len(line) == 1 and _WNID.fullmatch(line[0]) for line in lines):
        if len(lines) != len(names):
            raise BadFile(f"{table.name} has {len(lines):,} labels; val has {len(names):,} photographs.")
        wnids = dict(zip(names, (line[0] for line in lines), strict=True))
    else:
        wnids = {line[0].partition(".")[0]: line[1] for line in lines if len(line) > 1 and _WNID.fullmatch(line[1])}
        if not wnids:
            raise BadFile(f"{table.name} names no classes by their WordNet id, such as n01440764.")
        wnids = {name: wnids.get(name.partition(".")[0], "") for name in names}
    without = [name for name in names if wnids[name] not in index]
    if without:
        raise BadFile(f"{table.name} gives no class of train for {len(without):,} photographs: {listing(without)}.")
    return [index[wnids[name]] for name in names]


def _files(items: list[tuple[str, int, int, int]]) -> PhotographFiles:
    names, *numbers = zip(*items, strict=True) if items else ((), (), (), ())
    return PhotographFiles(np.array(names, dtype=np.str_), *(np.array(column, dtype=np.int64) for column in numbers))


_CHUNK = 4096


def find_unreadable(root: Path, parts: Sequence[PhotographFiles], *, verify: bool = False) -> list[Problem]:
    """Return the photographs that cannot be read, by name.

    The first time, the header of every file is read, and of a jpeg its end; ``verify`` decodes every file. The result
    is cached under the names, sizes and times of change of all files.

    Args:
        root: The folder of the names.
        parts: The photographs.
        verify: Decode every file.
    """
    digest = hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogatepass"))
    for files in parts:
        digest.update("\n".join(files.names.tolist()).encode("utf-8", "surrogatepass"))
        digest.update(files.sizes.tobytes() + files.changed.tobytes())
    path = cache_dir() / "imagenet" / f"{digest.hexdigest()[:32]}.json"
    survey = read_cached(path)
    if survey.get("schema") != 1 or (verify and not survey["verified"]):
        names = [name for files in parts for name in files.names.tolist()]
        refuse_if_sealed(f"check {len(names):,} photographs")
        survey = {"schema": 1, "verified": verify, "unreadable": _faults(root, names, verify)}
        with suppress(UserError):  # a cache that cannot be written costs time, not the task
            write_file(path, json.dumps(survey))
    return [Problem("unreadable", name, fault) for name, fault in sorted(survey["unreadable"].items())]


def _faults(root: Path, names: list[str], verify: bool) -> dict[str, str]:
    show = progress_on_screen("Decoding photographs" if verify else "Checking photographs")
    faults: dict[str, str] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            results = pool.map(lambda name: read_fault(root / name, verify=verify), chunk)
            faults |= {name: fault for name, fault in zip(chunk, results, strict=True) if fault is not None}
            if show is not None:
                show(min(start + _CHUNK, len(names)), len(names))
    return faults


@dataclass(frozen=True, eq=False)
class ImageNetCopy:
    """The readable photographs of a copy of ImageNet.

    Attributes:
        root: The folder with ``train`` and ``val``.
        classes: WordNet ids, sorted.
        train: Photographs of the published training part.
        test: Photographs of the published validation part.
        problems: Photographs that were left out.
    """

    root: Path
    classes: tuple[str, ...]
    train: PhotographFiles
    test: PhotographFiles
    problems: tuple[Problem, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of photographs of both parts, and of classes, by their names among the published counts."""
        return {"train": len(self.train), "val": len(self.test), "classes": len(self.classes)}


def open_imagenet(data: str | None, data_dir: str | None, *, verify: bool = False) -> ImageNetCopy:
    """Return the photographs of the named folder, or of the first of the user's folders that has them.

    Raises:
        DataMissing: When there are none.
        BadFile: When the named folder has none, or a class has no readable photograph.
    """
    named = None if data is None else Path(data).expanduser()
    folders = (named,) if named else data_folders(data_dir)[: 1 if data_dir else None]
    roots = [(folder, find_root(folder)) for folder in folders]
    folder, root = next(((folder, root) for folder, root in roots if root is not None), (None, None))
    if folder is None or root is None:
        if named is not None:
            raise BadFile(f"data {str(named)!r} does not hold ImageNet; expected {EXPECTED_FILES}.")
        where = f"in data_dir {data_dir!r}" if data_dir else "on this machine"
        raise DataMissing(f"ImageNet is not {where}. {_placing_advice()}")
    classes, train, test = read_folders(root, folder)
    problems = find_unreadable(root, (train, test), verify=verify)
    bad = np.array([problem.id for problem in problems], dtype=np.str_)
    train, test = (files.take(np.flatnonzero(~np.isin(files.names, bad))) for files in (train, test))
    if len(test) == 0 or np.bincount(train.labels, minlength=len(classes)).min() == 0:
        raise BadFile(f"{root}: once the {len(bad):,} unreadable files are left out, a class or val has no photograph.")
    return ImageNetCopy(root, classes, train, test, tuple(problems))


def _placing_advice() -> str:
    return (
        "It must be fetched by hand, because its owners ask for an agreement. Name its folder with the argument data, "
        f"with --data-dir or with {DATA_VARIABLE} (a folder 'imagenet' inside it will do too): {EXPECTED_FILES}."
    )


def list_copies(data_dir: str | None = None) -> dict[str, Any]:
    """Return the copies on this machine; nothing is fetched and no photograph is opened."""
    roots = (find_root(folder) for folder in data_folders(data_dir))
    copies = [("folders", root) for root in roots if root is not None]
    sources = {"ImageNet (ILSVRC 2012)": "imagenet"}
    facts = unfetched_facts("imagenet", copies, sources, _placing_advice(), data_dir)
    return facts | {"kept": "surveys of photographs"}


def counts_report(data_dir: str | None = None, *, verify: bool = False) -> dict[str, Any]:
    """Return the counts of the copy on this machine beside the published ones, and the unreadable files.

    Args:
        data_dir: The folder, or one to search.
        verify: Decode every file.
    """
    copy = open_imagenet(None, data_dir, verify=verify)
    counts = copy.counts
    sentences = [
        f"{what}: {number:,}, published {PUBLISHED[what]:,}{'' if number == PUBLISHED[what] else ' (DIFFERS)'}"
        for what, number in counts.items()
    ]
    return {
        "data": "imagenet",
        "path": str(copy.root),
        "photographs": counts["train"] + counts["val"],
        "counts": counts,
        "published": PUBLISHED,
        "summary": [*sentences, *summary(copy.problems)],
        "findings": [problem.line() for problem in copy.problems],
    }


@task("imagenet", source=DataSource(source_card("imagenet"), locate=list_copies, check=counts_report))
def imagenet(
    *,
    data: str | None = None,
    shorter: int = 256,
    size: int = 224,
    train: int | None = None,
    test: int | None = None,
    val: float = 0.02,
    cal: float = 0.0,
    split_seed: int = 0,
    data_dir: str | None = None,
    verify: bool = False,
) -> Task:
    """ImageNet (ILSVRC 2012): photographs in 1,000 classes, read from its folders as they are needed.

    Splits: train, val and, where it has a share, cal, all out of the published training part; test, the published
    validation part. Every photograph is resized so that its shorter side is ``shorter``, and cropped to its centre of
    ``size`` pixels; augmentation works on that square. Files that cannot be read are left out and listed in the notes.

    Args:
        data: The folder with ``train`` and ``val``; searched for if left out (``dubio data where imagenet``).
        shorter: The shorter side after resizing, in pixels.
        size: Both sides of the central square, in pixels.
        train: Number of training photographs, equally of all classes; all that remain if left out.
        test: Number of test photographs; all if left out.
        val: Share of the published training part for validation.
        cal: Share of the published training part for calibration.
        split_seed: Seed of the split.
        data_dir: A folder to search for data, before DUBIO_DATA.
        verify: Decode every file once, instead of reading its beginning and end, to find those that cannot be read.
    """
    square = Square(shorter, size)
    check_training_shares(val, cal)
    copy = open_imagenet(data, data_dir, verify=verify)
    parts = _parts(copy.train.labels, {"val": val, "cal": cal}, train, split_seed)
    files = {name: copy.train.take(rows) for name, rows in parts.items()}
    files["test"] = copy.test.take(subset_rows("test", copy.test.labels, test, split_seed))
    splits = [_split(copy.root, square, name, photographs) for name, photographs in files.items()]
    revision = f"{len(copy.train):,} training and {len(copy.test):,} validation photographs, {copy.root.name}"
    card, notes = replace(source_card("imagenet"), revision=revision), _notes(copy, split_seed)
    return Task("imagenet", "image", "multiclass", copy.classes, tuple(splits), card, notes)


def _parts(labels: IntArray, shares: Mapping[str, float], train: int | None, seed: int) -> dict[str, IntArray]:
    """Return rows of train, val and cal; val and cal do not depend on the number of training photographs.

    Iterative stratification would take hours for a million photographs; classes are drawn by largest remainders.
    """
    remaining: IntArray = np.arange(len(labels), dtype=np.int64)
    parts: dict[str, IntArray] = {}
    for name, share in shares.items():
        count = round(share * len(labels))
        if share and not 1 <= count < len(remaining):
            raise UserError(f"{name} {share} of {len(labels):,} training photographs leaves a split without any.")
        rows = remaining[balanced_rows(labels[remaining], count, seed)]
        remaining = np.setdiff1d(remaining, rows)
        if share:
            parts[name] = rows
    rows = remaining[subset_rows("train", labels[remaining], train, seed)]
    if len(np.unique(labels[rows])) < len(np.unique(labels)):
        raise UserError("train has no photograph of some class; choose a larger train or a smaller val.")
    return {"train": rows, **parts}


def _split(root: Path, square: Square, name: str, files: PhotographFiles) -> Split:
    images = StreamedRows(root, files.names, files.sizes, np.arange(len(files), dtype=np.int64), square)
    return Split.of(name, PART_KINDS[name], Examples(images, files.labels, files.names))


def _notes(copy: ImageNetCopy, seed: int) -> tuple[str, ...]:
    counts = copy.counts.items()
    differing = [f"{what} {n:,} of {PUBLISHED[what]:,}" for what, n in counts if n != PUBLISHED[what]]
    return (
        f"val and cal are cut out of the training part at random, equally of all classes (seed {seed}); test is the "
        "published validation part.",
        *([f"This copy differs from the published counts: {', '.join(differing)}."] if differing else []),
        *summary(copy.problems),
    )
