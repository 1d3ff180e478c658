"""ImageNet, streamed: photographs are decoded batch by batch, never all in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dubio.core.errors import UserError
from dubio.core.registry import task
from dubio.core.types import Examples, IntArray, Kind, Split, Task
from dubio.tasks.images.imagenet_files import (
    CARD,
    PUBLISHED,
    ImageNetCopy,
    PhotographFiles,
    counts_report,
    list_copies,
    open_imagenet,
)
from dubio.tasks.images.problems import summary
from dubio.tasks.images.streamed import Square, StreamedRows
from dubio.tasks.sources.locate import DataSource
from dubio.tasks.splitting import PART_KINDS, balanced_rows, check_training_shares, subset_rows


@task("imagenet", source=DataSource(CARD, locate=list_copies, check=counts_report))
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
    splits = [_split(copy, square, name, kind, copy.train.take(rows)) for name, kind, rows in parts]
    rows = subset_rows("test", copy.test.labels, test, split_seed)
    splits.append(_split(copy, square, "test", "id", copy.test.take(rows)))
    revision = f"{len(copy.train):,} training and {len(copy.test):,} validation photographs, {copy.root.name}"
    card, notes = replace(CARD, revision=revision), _notes(copy, split_seed)
    return Task("imagenet", "image", "multiclass", copy.classes, tuple(splits), card, notes)


def _parts(
    labels: IntArray, shares: Mapping[str, float], train: int | None, seed: int
) -> list[tuple[str, Kind, IntArray]]:
    """Return rows of train, val and cal; val and cal do not depend on the number of training photographs.

    Iterative stratification would take hours for a million photographs; classes are drawn by largest remainders.
    """
    remaining: IntArray = np.arange(len(labels), dtype=np.int64)
    parts: list[tuple[str, Kind, IntArray]] = []
    for name, share in shares.items():
        count = round(share * len(labels))
        if share and not 1 <= count < len(remaining):
            raise UserError(f"{name} {share} of {len(labels):,} training photographs leaves a split without any.")
        rows = remaining[balanced_rows(labels[remaining], count, seed)]
        remaining = np.setdiff1d(remaining, rows)
        if share:
            parts.append((name, PART_KINDS[name], rows))
    rows = remaining[subset_rows("train", labels[remaining], train, seed)]
    if len(np.unique(labels[rows])) < len(np.unique(labels)):
        raise UserError("train has no photograph of some class; choose a larger train or a smaller val.")
    return [("train", "train", rows), *parts]


def _split(copy: ImageNetCopy, square: Square, name: str, kind: Kind, files: PhotographFiles) -> Split:
    images = StreamedRows(copy.root, files.names, files.sizes, np.arange(len(files), dtype=np.int64), square)
    return Split.of(name, kind, Examples(images, files.labels, files.names))


def _notes(copy: ImageNetCopy, seed: int) -> tuple[str, ...]:
    counts = {"train": len(copy.train), "val": len(copy.test), "classes": len(copy.classes)}
    differing = [f"{what} {n:,} of {PUBLISHED[what]:,}" for what, n in counts.items() if n != PUBLISHED[what]]
    return (
        f"val and cal are cut out of the training part at random, equally of all classes (seed {seed}); test is the "
        "published validation part.",
        *([f"This copy differs from the published counts: {', '.join(differing)}."] if differing else []),
        *summary(copy.problems),
    )
