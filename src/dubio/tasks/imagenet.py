"""ImageNet, streamed: photographs are decoded when a batch asks for them, never all in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dubio.core.errors import UserError
from dubio.core.registry import task
from dubio.core.types import Examples, IntArray, Kind, Split, Task
from dubio.tasks.images.imagenet_files import CARD, PUBLISHED, Files, Opened, open_folder, report, ways
from dubio.tasks.images.problems import summary
from dubio.tasks.images.streamed import Square, StreamedRows
from dubio.tasks.sources.locate import DataSource
from dubio.tasks.splitting import balanced_rows


@task("imagenet", source=DataSource(CARD, locate=ways, check=report))
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

    Splits: train, val and, where asked for, cal, all out of the published training part; test, the published validation
    part. Every photograph is seen as the centre of ``size`` pixels after its shorter side became ``shorter``;
    augmentation works on that square. Files that cannot be read are left out and listed in the notes.

    Args:
        data: The folder with ``train`` and ``val``; looked for if left out (``dubio data where imagenet``).
        shorter: Pixels that the shorter side is resized to.
        size: Pixels of the square in its centre.
        train: So many training photographs, equally of all classes; all that are left if left out.
        test: So many test photographs.
        val: Share of the published training part for validation.
        cal: Share of the published training part for calibration.
        split_seed: Of the cut.
        data_dir: A folder to look for data in, before DUBIO_DATA.
        verify: Decode every file once, instead of looking at its head and end, to find those that cannot be read.
    """
    square = Square(shorter, size)
    if not (val > 0 and cal >= 0 and val + cal <= 0.8):
        raise UserError(f"val and cal are shares of training, above 0 and at most 0.8 together; given {val} and {cal}.")
    opened = open_folder(data, data_dir, verify=verify)
    pool, kinds = opened.train, _cut(opened.train, val, cal, train, split_seed)
    splits = [_split(opened, square, name, kind, pool.take(rows)) for name, kind, rows in kinds]
    splits.append(_split(opened, square, "test", "id", opened.test.take(_some("test", opened.test, test, split_seed))))
    revision = f"{len(pool):,} training and {len(opened.test):,} validation photographs, {opened.root.name}"
    card = replace(CARD, revision=revision)
    return Task("imagenet", "image", "multiclass", opened.classes, tuple(splits), card, _notes(opened, split_seed))


def _cut(pool: Files, val: float, cal: float, train: int | None, seed: int) -> list[tuple[str, Kind, IntArray]]:
    """Rows of train, val and cal; val and cal are the same however many photographs train."""
    left: IntArray = np.arange(len(pool), dtype=np.int64)
    held: list[tuple[str, Kind, IntArray]] = []
    shares: tuple[tuple[str, Kind, float], ...] = (("val", "val", val), ("cal", "cal", cal))
    for name, kind, share in shares:
        count = round(share * len(pool))
        if share and not 1 <= count < len(left):
            raise UserError(f"{name} {share} of {len(pool):,} training photographs leaves a split without any.")
        chosen = left[balanced_rows(pool.labels[left], count, seed)]
        left = np.setdiff1d(left, chosen)
        held += [(name, kind, chosen)] if share else []
    rows = left[_some("train", pool.take(left), train, seed)]
    if len(np.unique(pool.labels[rows])) < len(np.unique(pool.labels)):
        raise UserError("train has no photograph of some class; ask for more, or for a smaller val.")
    return [("train", "train", rows), *held]


def _some(argument: str, files: Files, count: int | None, seed: int) -> IntArray:
    if count is not None and not 1 <= count <= len(files):
        raise UserError(f"{argument} must be from 1 to {len(files):,}, the photographs there are; given {count}.")
    return balanced_rows(files.labels, len(files) if count is None else count, seed)


def _split(opened: Opened, square: Square, name: str, kind: Kind, files: Files) -> Split:
    images = StreamedRows(opened.root, files.names, files.sizes, np.arange(len(files), dtype=np.int64), square)
    return Split.of(name, kind, Examples(images, files.labels, files.names))


def _notes(opened: Opened, seed: int) -> tuple[str, ...]:
    have = {"train": len(opened.train), "val": len(opened.test), "classes": len(opened.classes)}
    differs = [f"{what} {have[what]:,} of {PUBLISHED[what]:,}" for what in have if have[what] != PUBLISHED[what]]
    return (
        f"val and cal are cut out of the training part at random, equally of all classes (seed {seed}); test is the "
        "published validation part.",
        *([f"This copy differs from the published counts: {', '.join(differs)}."] if differs else []),
        *summary(opened.problems),
    )
