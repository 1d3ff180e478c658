"""From images to a task's splits: train, val, cal, test, corrupted copies of test, and images of other sorts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dubio.core.errors import UserError
from dubio.core.lazy_rows import row_digests
from dubio.core.types import Examples, IntArray, Split, Task
from dubio.tasks.bundled import splits_of
from dubio.tasks.cifar.corrupted import CorruptedRows
from dubio.tasks.cifar.corruption import CORRUPTIONS, corruption
from dubio.tasks.cifar.forms import Parts, Pictures
from dubio.tasks.cifar.outside import NOISE, asked, outside_splits
from dubio.tasks.cifar.sets import ImageSet
from dubio.tasks.shift import SEVERITIES
from dubio.tasks.splits import TRAIN, balanced_rows, stratified_parts


@dataclass(frozen=True)
class Wishes:
    """What is asked of small images.

    Attributes:
        train: So many training images, or None for all that are left.
        test: So many test images, or None for all.
        val: Share of the published training images for validation.
        cal: Share of them for calibration; 0 for none.
        corruptions: Names joined by ``+``, ``all`` or ``none``.
        severities: Of the corruptions.
        ood: Sets joined by ``+``, ``all`` or ``none``.
        seed: Of every random choice.
    """

    train: int | None
    test: int | None
    val: float
    cal: float
    corruptions: str
    severities: tuple[int, ...]
    ood: str
    seed: int

    def __post_init__(self) -> None:
        if not (self.val > 0 and self.cal >= 0 and self.val + self.cal <= 0.8):
            raise UserError(
                f"val and cal are shares of training: val above 0, both together at most 0.8; given {self.val} and "
                f"{self.cal}."
            )
        if self.seed < 0:
            raise UserError(f"split_seed must be at least 0; given {self.seed}.")
        unknown = [severity for severity in self.severities if severity not in SEVERITIES]
        if unknown or len(set(self.severities)) < len(self.severities) or not self.severities:
            raise UserError(f"severities must be some of 1, 2, 3, 4, 5, each once; given {list(self.severities)}.")


def task_of(images: ImageSet, wishes: Wishes, data: str | None, data_dir: str | None, others: tuple[str, ...]) -> Task:
    """A data set as a task.

    Args:
        images: Which.
        wishes: How.
        data: A folder, archive or npz, or None to look for it.
        data_dir: A folder to look in.
        others: The data sets that may be out of distribution.
    """
    kinds = asked("corruptions", wishes.corruptions, tuple(CORRUPTIONS))
    outside = asked("ood", wishes.ood, (*others, NOISE))
    parts, source = images.whole(data, data_dir)
    test = _some("test", parts["test"], wishes.test, wishes.seed)
    splits = [*_learned(parts["train"], wishes), _plain("test", test)]
    splits += corrupted_splits(test, kinds, wishes.severities, wishes.seed)
    splits += outside_splits(outside, len(test), wishes.seed, data_dir)
    counts = f"{len(parts['train']):,} training and {len(parts['test']):,} test images ({source})"
    card = replace(images.corpus.card, revision=counts)
    notes = _notes(parts, wishes, kinds, outside)
    return Task(images.corpus.name, "image", "multiclass", images.classes, tuple(splits), card, notes)


def corrupted_splits(test: Pictures, kinds: tuple[str, ...], severities: tuple[int, ...], seed: int) -> list[Split]:
    """The test images again, once for each corruption and severity; their pixels are made batch by batch."""
    if not kinds:
        return []
    digests, rows = row_digests(test.images), np.arange(len(test), dtype=np.int64)
    made = []
    for kind in kinds:
        for severity in severities:
            name = f"{kind}-{severity}"
            images = CorruptedRows(test.images, rows, digests, corruption(kind), severity, seed)
            # an id is unique within a data set: a corrupted image is another example than the image it was made from
            made.append(Split.of(name, "shift", Examples(images, test.labels, np.char.add(test.ids, f"/{name}"))))
    return made


def _learned(pool: Pictures, wishes: Wishes) -> tuple[Split, ...]:
    """Train, val and, where asked for, cal; val and cal are the same however many images train."""
    shares = (1 - wishes.val - wishes.cal, wishes.val, wishes.cal, 0.0)
    parts = stratified_parts(pool.labels, fractions=shares, seed=wishes.seed)
    rows = np.flatnonzero(parts == TRAIN)
    kept = rows[_rows("train", pool.take(rows), wishes.train, wishes.seed)]
    parts[np.setdiff1d(rows, kept)] = -1
    return splits_of(Examples(pool.images, pool.labels, pool.ids), parts)


def _some(argument: str, found: Pictures, count: int | None, seed: int) -> Pictures:
    return found.take(_rows(argument, found, count, seed))


def _rows(argument: str, found: Pictures, count: int | None, seed: int) -> IntArray:
    if count is not None and not 1 <= count <= len(found):
        raise UserError(f"{argument} must be from 1 to {len(found):,}, the images there are; given {count}.")
    return balanced_rows(found.labels, len(found) if count is None else count, seed)


def _plain(name: str, found: Pictures) -> Split:
    return Split.of(name, "id", Examples(found.images, found.labels, found.ids))


def _notes(parts: Parts, wishes: Wishes, kinds: tuple[str, ...], outside: tuple[str, ...]) -> tuple[str, ...]:
    cut = "val and cal" if wishes.cal else "val"
    notes = [f"Cut out of the training images at random, stratified by class (seed {wishes.seed}): {cut}."]
    for part, published in (("train", 50_000), ("test", 10_000)):
        if len(parts[part]) != published:
            notes.append(f"This copy has {len(parts[part]):,} of the published {published:,} {part} images.")
    if kinds:
        notes.append("Corruptions are dubio's own, of the test images: not CIFAR-10-C, and not to be set beside it.")
    if any(name.startswith("cifar") for name in outside):
        notes.append(
            "CIFAR-10 and CIFAR-100 share no class, but some are close (pickup_truck and truck, wolf and dog): near "
            "out-of-distribution images, not far ones."
        )
    return tuple(notes)
