"""CIFAR-10 and CIFAR-100, clean, corrupted, and with out-of-distribution images (Fashion-MNIST, noise)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, UserError
from dubio.core.lazy_rows import row_digests
from dubio.core.registry import task
from dubio.core.types import UNLABELLED, Examples, Split, Task
from dubio.tasks.data_options import takes_options
from dubio.tasks.images.corruptions import CORRUPTIONS, CorruptedRows
from dubio.tasks.images.files import read_arrays, to_levels
from dubio.tasks.images.formats import (
    SIDE,
    Parts,
    binary_format,
    folder_format,
    npz_formats,
    position_ids,
    python_format,
    read_idx,
    read_npz,
)
from dubio.tasks.shift import SEVERITIES, corrupted_split, joined_names
from dubio.tasks.sources.fetch import obtain, open_archive
from dubio.tasks.sources.locate import (
    Corpus,
    DataSource,
    Layout,
    catalogue,
    find_copy,
    find_file,
    placing_advice,
    public_corpus,
)
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


@dataclass(frozen=True)
class ImageSet:
    """A data set of small images.

    Attributes:
        corpus: The ways to it, and the formats it is read in.
        classes: In the order of the labels.
    """

    corpus: Corpus
    classes: tuple[str, ...]

    def training_and_test(self, data: str | None, data_dir: str | None) -> tuple[Parts, str]:
        """Return training and test images, and the name of their source.

        Args:
            data: A folder, an original archive, or an npz; nothing else is searched.
            data_dir: A folder to search first.

        Raises:
            DataMissing: When it is not on this machine and cannot be fetched.
            BadFile: When ``data`` does not hold the data set.
        """
        if data is not None:
            return self._read_path(Path(data).expanduser())
        copy = obtain(self.corpus, data_dir)
        return copy.read(), f"{copy.layout.name}, {copy.path.name}"

    def test_images(self, data_dir: str | None) -> Examples:
        """Return the test images, from any copy that has them."""
        parts: Parts = (find_copy(self.corpus, data_dir) or obtain(self.corpus)).read()
        return parts["test"]

    def _read_path(self, path: Path) -> tuple[Parts, str]:
        if path.suffix == ".npz" and path.is_file():
            parts = read_npz(path, len(self.classes))
            if "train" not in parts:
                raise BadFile(f"data {str(path)!r} has no training images: x_train and y_train.")
            return parts, f"arrays, {path.name}"
        folders = [path] if path.is_dir() else []
        for original in self.corpus.originals:
            archive = path if path.name == original.file else path / original.file
            if archive.is_file():
                folders.append(open_archive(self.corpus, original, archive))
        layouts = [layout for layout in self.corpus.layouts if not layout.partial]
        for folder, layout in ((folder, layout) for folder in folders for layout in layouts):
            if (inside := layout.find(folder)) is not None:
                return layout.read(inside), f"{layout.name}, {inside.name}"
        raise BadFile(f"data {str(path)!r} does not hold {self.corpus.name}. {placing_advice(self.corpus)}")


def _cifar(name: str, *authors: Layout) -> ImageSet:
    """Return a CIFAR in its authors' formats, as folders of images, or as arrays."""
    classes = tuple(catalogue()[name]["classes"])
    counts = {"test": 10_000, "classes": len(classes)}
    layouts = [
        replace(layout, counts=counts if layout.partial else {"train": 50_000, **counts})
        for layout in (*authors, folder_format(classes), *npz_formats(name, len(classes)))
    ]
    return ImageSet(public_corpus(name, *layouts), classes)


_BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
_BINARY_BATCHES = {subset: [f"{name}.bin" for name in names] for subset, names in _BATCHES.items()}

CIFAR10 = _cifar(
    "cifar10",
    python_format("cifar-10-batches-py", _BATCHES, "labels", 10),
    binary_format("cifar-10-batches-bin", _BINARY_BATCHES, 1, 10),
)
CIFAR100 = _cifar(
    "cifar100",
    python_format("cifar-100-python", {"train": ["train"], "test": ["test"]}, "fine_labels", 100),
    binary_format("cifar-100-binary", {"train": ["train.bin"], "test": ["test.bin"]}, 2, 100),
)

_IDX = "t10k-images-idx3-ubyte.gz"


def _find_idx(folder: Path) -> Path | None:
    """Find the images in a folder that bears the data set's name: MNIST's files have the same names."""
    inner = [_IDX] if "fashion" in folder.name.lower() else []
    return find_file(*inner, f"fashion-mnist/{_IDX}", f"FashionMNIST/raw/{_IDX}")(folder)


def _read_fashion_npz(path: Path) -> Parts:
    arrays = read_arrays(path)
    grey = next((arrays[name] for name in ("x_test", "x") if name in arrays), None)
    if grey is None or grey.dtype != np.uint8 or grey.shape[1:] != (28, 28):
        raise BadFile(f"{path.name}: expected x_test or x, uint8 images of 28×28 pixels.")
    return _framed(grey)


def _framed(grey: NDArray[np.uint8]) -> Parts:
    """Return 28×28 grey as 32×32 colour: two black pixels on each side, the same level in every channel."""
    wide = np.repeat(np.pad(grey, ((0, 0), (2, 2), (2, 2)))[..., None], 3, axis=3)
    return {"test": Examples(wide, np.zeros(len(grey), dtype=np.int64), position_ids("test", len(grey)))}


_FASHION_NPZ = ("fashion_mnist.npz", "fashion_mnist_*.npz")
_FASHION_LAYOUTS = (
    Layout("idx", f"{_IDX} in a folder fashion-mnist", _find_idx, lambda path: _framed(read_idx(path, 28))),
    Layout("arrays", f"{' or '.join(_FASHION_NPZ)} with x", find_file(*_FASHION_NPZ), _read_fashion_npz),
)
FASHION = ImageSet(
    public_corpus("fashion-mnist", *(replace(layout, counts={"test": 10_000}) for layout in _FASHION_LAYOUTS)),
    tuple(catalogue()["fashion-mnist"]["classes"]),
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
        val: Share of the training images for validation; 0 trains on all of them.
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

    Splits: train, val and cal where they have a share, test; for each corruption and severity a split such as
    ``jpeg-3``; for each out-of-distribution set a split of its name (``noise``: ``noise-uniform`` and
    ``noise-gaussian``), at most as large as test.

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
    """Return train, and val and cal where they have a share, which do not depend on the number of training images."""
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
    images = np.asarray(test.inputs)
    digests, rows = row_digests(images), np.arange(len(test), dtype=np.int64)
    return [
        corrupted_split(test, CorruptedRows(images, rows, digests, CORRUPTIONS[kind], severity, seed), kind, severity)
        for kind in names
        for severity in severities
    ]


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
    noise = {"noise-uniform": uniform, "noise-gaussian": gaussian}
    return [_ood_split(name, Examples(images, labels, ids)) for name, images in noise.items()]


def _ood_split(name: str, images: Examples) -> Split:
    assert images.ids is not None
    labels = np.full(len(images), UNLABELLED, dtype=np.int64)
    return Split.of(name, "ood", Examples(images.inputs, labels, np.char.add(f"{name}/", images.ids)))


def _notes(parts: Parts, options: CifarOptions, corruptions: Sequence[str], ood: Sequence[str]) -> tuple[str, ...]:
    cut = " and ".join(name for name, share in (("val", options.val), ("cal", options.cal)) if share)
    notes = [f"Cut out of the training images at random, stratified by class (seed {options.split_seed}): {cut}."]
    if not options.val:
        notes = ["No validation images (val = 0): methods that select an epoch keep the last.", *notes[: bool(cut)]]
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
