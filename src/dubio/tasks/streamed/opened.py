"""ImageNet on this machine: where it is, what it holds, and what ``dubio data`` says of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import BadFile
from dubio.core.types import SourceCard
from dubio.tasks.fundus.findings import Finding, summary
from dubio.tasks.sources.corpus import DataMissing
from dubio.tasks.sources.places import DATA_VARIABLE, data_folders
from dubio.tasks.streamed.layout import LOOKS, Files, find_root, read_folders
from dubio.tasks.streamed.survey import memory, unreadable

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
class Opened:
    """ImageNet's photographs, those that can be read.

    Attributes:
        root: The folder with ``train`` and ``val``.
        classes: WordNet ids, sorted.
        train: Of the published training part.
        test: Of the published validation part.
        findings: What was left out.
    """

    root: Path
    classes: tuple[str, ...]
    train: Files
    test: Files
    findings: tuple[Finding, ...]


def open_folder(data: str | None, data_dir: str | None, *, verify: bool = False) -> Opened:
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
    findings = unreadable(root, (train, test), verify=verify)
    bad = np.array([finding.id for finding in findings], dtype=np.str_)
    train, test = (part.take(np.flatnonzero(~np.isin(part.names, bad))) for part in (train, test))
    if len(test) == 0 or np.bincount(train.labels, minlength=len(classes)).min() == 0:
        raise BadFile(f"{root}: once the {len(bad):,} unreadable files are left out, a class or val has no photograph.")
    return Opened(root, classes, train, test, tuple(findings))


def by_hand() -> str:
    """How a reader places it."""
    return (
        f"It is fetched by hand, because its owners ask for an agreement. Name its folder with the argument data, with "
        f"--data-dir or with {DATA_VARIABLE} (a folder 'imagenet' inside it will do too): {LOOKS}."
    )


def ways(data_dir: str | None = None) -> dict[str, Any]:
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


def report(data_dir: str | None = None, *, verify: bool = False) -> dict[str, Any]:
    """The counts of the copy on this machine beside the published ones, and the files that cannot be read.

    Args:
        data_dir: The folder, or one to look in.
        verify: Decode every file.
    """
    opened = open_folder(None, data_dir, verify=verify)
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
        "summary": [*counts, *summary(opened.findings)],
        "findings": [finding.line() for finding in opened.findings],
    }
