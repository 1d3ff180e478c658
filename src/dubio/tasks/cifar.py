"""Images of another sort than those trained on: another data set's, or noise.

From images to a task's splits: train, val, cal, test, corrupted copies of test, and images of other sorts.

CIFAR-10, clean, corrupted, and beside images of other sorts.

CIFAR-100, clean, corrupted, and beside images of other sorts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dubio.core.errors import UnknownName, UserError
from dubio.core.lazy_rows import row_digests
from dubio.core.registry import task
from dubio.core.types import UNLABELLED, Examples, IntArray, Split, Task
from dubio.tasks.bundled import splits_of
from dubio.tasks.images.corruptions import CORRUPTIONS, CorruptedRows, corruption
from dubio.tasks.images.datasets import CIFAR10, CIFAR100, FASHION, ImageSet
from dubio.tasks.images.formats import SIDE, Parts, Pictures
from dubio.tasks.shift import SEVERITIES, levels
from dubio.tasks.sources.locate import DataSource
from dubio.tasks.splitting import TRAIN, balanced_rows, stratified_parts

JOINT = "+"
NONE, ALL = "none", "all"
NOISE = "noise"

SETS: dict[str, ImageSet] = {"cifar10": CIFAR10, "cifar100": CIFAR100, "fashion-mnist": FASHION}
_SPREAD = 64.0


def asked(argument: str, words: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names in ``a+b``, or all of them, or none, in the order in which they are known.

    Raises:
        UnknownName: For a name that is none of them.
    """
    if words in (NONE, ALL):
        return tuple(known) if words == ALL else ()
    given = words.split(JOINT)
    for name in given:
        if name not in known:
            raise UnknownName(f"value of {argument}", name, [*known, ALL, NONE])
    return tuple(name for name in known if name in given)


def outside_splits(names: Sequence[str], most: int, seed: int, data_dir: str | None) -> list[Split]:
    """Splits of kind ``ood``, at most ``most`` images each; none of them has a label.

    Args:
        names: Data sets, or ``noise``.
        most: As many as there are test images, so that neither side of a comparison is the larger by far.
        seed: Of the choice among a data set's test images, and of the noise.
        data_dir: A folder to look for data in.

    Raises:
        DataMissing: When a data set is not on this machine and cannot be fetched.
    """
    splits = []
    for name in names:
        if name == NOISE:
            splits += noise_splits(most, seed)
        else:
            found = SETS[name].tested(data_dir)["test"]
            rows = balanced_rows(found.labels, min(most, len(found)), seed)
            splits.append(_split(name, found.take(rows)))
    return splits


def noise_splits(count: int, seed: int) -> list[Split]:
    """``noise-uniform``: every level as likely; ``noise-gaussian``: mean 127.5 and deviation 64, cut to the range."""
    shape = (count, SIDE, SIDE, 3)
    uniform = np.random.default_rng([seed, 1]).integers(0, 256, shape, dtype=np.uint8)
    gaussian = levels(np.random.default_rng([seed, 2]).normal(127.5, _SPREAD, shape))
    ids = np.arange(count).astype(np.str_)
    labels: IntArray = np.zeros(count, dtype=np.int64)
    return [
        _split("noise-uniform", Pictures(uniform, labels, ids)),
        _split("noise-gaussian", Pictures(gaussian, labels, ids)),
    ]


def _split(name: str, found: Pictures) -> Split:
    labels = np.full(len(found), UNLABELLED, dtype=np.int64)
    return Split.of(name, "ood", Examples(found.images, labels, np.char.add(f"{name}/", found.ids)))


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


@task("cifar10", source=DataSource(CIFAR10.corpus.card, (CIFAR10.corpus,)))
def cifar10(
    *,
    data: str | None = None,
    train: int | None = None,
    test: int | None = None,
    val: float = 0.1,
    cal: float = 0.0,
    corruptions: str = "none",
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    ood: str = "none",
    split_seed: int = 0,
    data_dir: str | None = None,
) -> Task:
    """CIFAR-10: 32×32 photographs in 10 classes, clean, corrupted, and beside images of other sorts.

    Splits: train, val, cal where asked for, test; of each corruption and severity a split such as ``jpeg-3``; of each
    set out of distribution a split called after it (``noise``: ``noise-uniform`` and ``noise-gaussian``), at most as
    large as test.

    Args:
        data: A folder, an original archive or an npz; looked for if left out (``dubio data where cifar10``).
        train: So many training images, equally of all classes; all that are left if left out.
        test: So many test images, equally of all classes.
        val: Share of the training images for validation.
        cal: Share of the training images for calibration.
        corruptions: Names joined by ``+``, such as ``gaussian-noise+jpeg``; ``all`` or ``none``.
        severities: Of the corruptions, from 1 to 5.
        ood: ``cifar100``, ``fashion-mnist`` and ``noise``, joined by ``+``; ``all`` or ``none``.
        split_seed: Of the choice of images and of what is random in corruptions and noise.
        data_dir: A folder to look for data in, before DUBIO_DATA.
    """
    wishes = Wishes(train, test, val, cal, corruptions, severities, ood, split_seed)
    return task_of(CIFAR10, wishes, data, data_dir, ("cifar100", "fashion-mnist"))


@task("cifar100", source=DataSource(CIFAR100.corpus.card, (CIFAR100.corpus,)))
def cifar100(
    *,
    data: str | None = None,
    train: int | None = None,
    test: int | None = None,
    val: float = 0.1,
    cal: float = 0.0,
    corruptions: str = "none",
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    ood: str = "none",
    split_seed: int = 0,
    data_dir: str | None = None,
) -> Task:
    """CIFAR-100: 32×32 photographs in 100 classes, clean, corrupted, and beside images of other sorts.

    Splits: train, val, cal where asked for, test; of each corruption and severity a split such as ``jpeg-3``; of each
    set out of distribution a split called after it (``noise``: ``noise-uniform`` and ``noise-gaussian``), at most as
    large as test.

    Args:
        data: A folder, an original archive or an npz; looked for if left out (``dubio data where cifar100``).
        train: So many training images, equally of all classes; all that are left if left out.
        test: So many test images, equally of all classes.
        val: Share of the training images for validation.
        cal: Share of the training images for calibration.
        corruptions: Names joined by ``+``, such as ``gaussian-noise+jpeg``; ``all`` or ``none``.
        severities: Of the corruptions, from 1 to 5.
        ood: ``cifar10``, ``fashion-mnist`` and ``noise``, joined by ``+``; ``all`` or ``none``.
        split_seed: Of the choice of images and of what is random in corruptions and noise.
        data_dir: A folder to look for data in, before DUBIO_DATA.
    """
    wishes = Wishes(train, test, val, cal, corruptions, severities, ood, split_seed)
    return task_of(CIFAR100, wishes, data, data_dir, ("cifar10", "fashion-mnist"))
