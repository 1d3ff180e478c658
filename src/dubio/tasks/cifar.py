"""CIFAR-10 and CIFAR-100, clean, corrupted, and with out-of-distribution images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dubio.core.errors import UserError
from dubio.core.lazy_rows import row_digests
from dubio.core.registry import task
from dubio.core.types import UNLABELLED, Examples, Split, Task
from dubio.tasks.data_options import takes_options
from dubio.tasks.images.corruptions import CORRUPTIONS, CorruptedRows, corruption
from dubio.tasks.images.datasets import CIFAR10, CIFAR100, FASHION, ImageSet
from dubio.tasks.images.files import to_levels
from dubio.tasks.images.formats import SIDE, Parts
from dubio.tasks.shift import SEVERITIES, joined_names
from dubio.tasks.sources.locate import DataSource
from dubio.tasks.splitting import (
    TRAIN,
    UNASSIGNED,
    SplitOptions,
    assign_parts,
    balanced_rows,
    check_training_shares,
    part_splits,
    subset_rows,
)

NOISE = "noise"
OOD_SETS: dict[str, ImageSet] = {"cifar10": CIFAR10, "cifar100": CIFAR100, "fashion-mnist": FASHION}
_NOISE_DEVIATION = 64.0


@dataclass(frozen=True)
class CifarOptions:
    """Arguments of the tasks ``cifar10`` and ``cifar100``.

    Attributes:
        data: A folder, an original archive or an npz; searched for if left out (``dubio data where cifar10``).
        train: Number of training images, equally of all classes; all that remain if left out.
        test: Number of test images, equally of all classes; all if left out.
        val: Share of the training images for validation.
        cal: Share of the training images for calibration.
        corruptions: Names joined by ``+``, such as ``gaussian-noise+jpeg``; ``all`` or ``none``.
        severities: Severities of the corruptions, from 1 to 5.
        ood: The other CIFAR, ``fashion-mnist`` and ``noise``, joined by ``+``; ``all`` or ``none``.
        split_seed: Seed of the choice of images and of all randomness in corruptions and noise.
        data_dir: A folder to search for data, before DUBIO_DATA.
    """

    data: str | None = None
    train: int | None = None
    test: int | None = None
    val: float = 0.1
    cal: float = 0.0
    corruptions: str = "none"
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    ood: str = "none"
    split_seed: int = 0
    data_dir: str | None = None

    def __post_init__(self) -> None:
        check_training_shares(self.val, self.cal)
        if self.split_seed < 0:
            raise UserError(f"split_seed must be at least 0; given {self.split_seed}.")
        unknown = [severity for severity in self.severities if severity not in SEVERITIES]
        if unknown or len(set(self.severities)) < len(self.severities) or not self.severities:
            raise UserError(f"severities must be some of 1, 2, 3, 4, 5, each once; given {list(self.severities)}.")


@task("cifar10", source=DataSource(CIFAR10.corpus.card, (CIFAR10.corpus,)))
@takes_options(CifarOptions)
def cifar10(options: CifarOptions) -> Task:
    """CIFAR-10: 32×32 photographs in 10 classes, clean, corrupted, and with out-of-distribution images.

    Splits: train, val, cal where it has a share, test; for each corruption and severity a split such as ``jpeg-3``; for
    each out-of-distribution set a split of its name (``noise``: ``noise-uniform`` and ``noise-gaussian``), at most as
    large as test.

    Args:
        options: Its fields are this task's arguments.
    """
    return _cifar_task(CIFAR10, options, ("cifar100", "fashion-mnist"))


@task("cifar100", source=DataSource(CIFAR100.corpus.card, (CIFAR100.corpus,)))
@takes_options(CifarOptions)
def cifar100(options: CifarOptions) -> Task:
    """CIFAR-100: 32×32 photographs in 100 classes, clean, corrupted, and with out-of-distribution images.

    The splits are those of ``cifar10``.

    Args:
        options: Its fields are this task's arguments.
    """
    return _cifar_task(CIFAR100, options, ("cifar10", "fashion-mnist"))


def _cifar_task(images: ImageSet, options: CifarOptions, others: tuple[str, ...]) -> Task:
    corruptions = joined_names("corruptions", options.corruptions, tuple(CORRUPTIONS))
    ood = joined_names("ood", options.ood, (*others, NOISE))
    parts, source = images.training_and_test(options.data, options.data_dir)
    test = parts["test"].take(subset_rows("test", parts["test"].labels, options.test, options.split_seed))
    splits = [*_learned_splits(parts["train"], options), Split.of("test", "id", test)]
    splits += corrupted_splits(test, corruptions, options.severities, options.split_seed)
    splits += ood_splits(ood, len(test), options.split_seed, options.data_dir)
    counts = f"{len(parts['train']):,} training and {len(parts['test']):,} test images ({source})"
    card = replace(images.corpus.card, revision=counts)
    notes = _notes(parts, options, corruptions, ood)
    return Task(images.corpus.name, "image", "multiclass", images.classes, tuple(splits), card, notes)


def _learned_splits(pool: Examples, options: CifarOptions) -> list[Split]:
    """Return train, val and, where it has a share, cal; val and cal do not depend on the number of training images."""
    shares = SplitOptions.of_training(val=options.val, cal=options.cal, seed=options.split_seed)
    parts = assign_parts(pool.labels, shares)
    rows = np.flatnonzero(parts == TRAIN)
    chosen = rows[subset_rows("train", pool.labels[rows], options.train, options.split_seed)]
    parts[np.setdiff1d(rows, chosen)] = UNASSIGNED
    return part_splits(pool, parts)


def corrupted_splits(test: Examples, names: Sequence[str], severities: Sequence[int], seed: int) -> list[Split]:
    """Return the test images once for each corruption and severity; their pixels are computed batch by batch."""
    if not names:
        return []
    assert isinstance(test.inputs, np.ndarray)
    assert test.ids is not None
    digests, rows = row_digests(test.inputs), np.arange(len(test), dtype=np.int64)
    splits = []
    for kind in names:
        for severity in severities:
            name = f"{kind}-{severity}"
            images = CorruptedRows(test.inputs, rows, digests, corruption(kind), severity, seed)
            # an id is unique within a data set: a corrupted image is another example than its original
            examples = Examples(images, test.labels, np.char.add(test.ids, f"/{name}"))
            splits.append(Split.of(name, "shift", examples, family=kind, severity=severity))
    return splits


def ood_splits(names: Sequence[str], most: int, seed: int, data_dir: str | None) -> list[Split]:
    """Return splits of kind ``ood`` without labels, at most ``most`` images each.

    Args:
        names: Data sets, or ``noise``.
        most: The number of test images, so that both sides of a comparison have a similar size.
        seed: Seed of the choice among a data set's test images, and of the noise.
        data_dir: A folder to search for data.

    Raises:
        DataMissing: When a data set is not on this machine and cannot be fetched.
    """
    splits = []
    for name in names:
        if name == NOISE:
            splits += noise_splits(most, seed)
        else:
            images = OOD_SETS[name].test_images(data_dir)
            splits.append(_ood_split(name, images.take(balanced_rows(images.labels, min(most, len(images)), seed))))
    return splits


def noise_splits(count: int, seed: int) -> list[Split]:
    """Return ``noise-uniform`` (uniform levels) and ``noise-gaussian`` (mean 127.5, deviation 64, clipped)."""
    shape = (count, SIDE, SIDE, 3)
    uniform = np.random.default_rng([seed, 1]).integers(0, 256, shape, dtype=np.uint8)
    gaussian = to_levels(np.random.default_rng([seed, 2]).normal(127.5, _NOISE_DEVIATION, shape))
    ids, labels = np.arange(count).astype(np.str_), np.zeros(count, dtype=np.int64)
    return [
        _ood_split("noise-uniform", Examples(uniform, labels, ids)),
        _ood_split("noise-gaussian", Examples(gaussian, labels, ids)),
    ]


def _ood_split(name: str, images: Examples) -> Split:
    assert images.ids is not None
    labels = np.full(len(images), UNLABELLED, dtype=np.int64)
    return Split.of(name, "ood", Examples(images.inputs, labels, np.char.add(f"{name}/", images.ids)))


def _notes(parts: Parts, options: CifarOptions, corruptions: Sequence[str], ood: Sequence[str]) -> tuple[str, ...]:
    cut = "val and cal" if options.cal else "val"
    notes = [f"Cut out of the training images at random, stratified by class (seed {options.split_seed}): {cut}."]
    for subset, published in (("train", 50_000), ("test", 10_000)):
        if len(parts[subset]) != published:
            notes.append(f"This copy has {len(parts[subset]):,} of the published {published:,} {subset} images.")
    if corruptions:
        notes.append("Corruptions are dubio's own, of the test images: not CIFAR-10-C, and not comparable with it.")
    if any(name.startswith("cifar") for name in ood):
        notes.append(
            "CIFAR-10 and CIFAR-100 share no class, but some are close (pickup_truck and truck, wolf and dog): near "
            "out-of-distribution images, not far ones."
        )
    return tuple(notes)
