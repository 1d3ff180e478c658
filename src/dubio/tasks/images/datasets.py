"""The data sets of small images, with their classes and every way to them: CIFAR-10, CIFAR-100, Fashion-MNIST.

The SHA-256 of CIFAR's archives are those that Keras (python) and TensorFlow Datasets (binary) check, those of
Fashion-MNIST the ones TensorFlow Datasets checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile
from dubio.core.types import Examples, SourceCard
from dubio.tasks.images.files import read_arrays
from dubio.tasks.images.formats import (
    Format,
    Parts,
    binary_format,
    folder_format,
    npz_formats,
    position_ids,
    python_format,
    read_idx,
    read_npz,
)
from dubio.tasks.sources.fetch import obtain, open_archive
from dubio.tasks.sources.locate import Corpus, LocalCopy, Original, find_copy, placing_advice

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR100_CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest",
    "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard",
    "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine", "possum",
    "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf",
    "woman", "worm",
)  # fmt: skip

FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


SITE = "https://www.cs.toronto.edu/~kriz"
_CITATION = "A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, University of Toronto"
_LICENCE = "none stated; the authors ask to be cited"


@dataclass(frozen=True)
class ImageSet:
    """A data set of small images.

    Attributes:
        corpus: The ways to it.
        formats: The formats it is read in, the best first.
        classes: In the order of the labels.
    """

    corpus: Corpus
    formats: tuple[Format, ...]
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
        return self._read_copy(copy), f"{copy.layout.name}, {copy.path.name}"

    def test_images(self, data_dir: str | None) -> Examples:
        """Return the test images, from any copy that has them."""
        return self._read_copy(find_copy(self.corpus, data_dir) or obtain(self.corpus))["test"]

    def _read_copy(self, copy: LocalCopy) -> Parts:
        return next(item for item in self.formats if item.name == copy.layout.name).read(copy.path)

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
        for folder in folders:
            for item in (item for item in self.formats if not item.partial):
                if (inside := item.find(folder)) is not None:
                    return item.read(inside), f"{item.name}, {inside.name}"
        raise BadFile(f"data {str(path)!r} does not hold {self.corpus.name}. {placing_advice(self.corpus)}")


def _archives(stem: str, python: str, binary: str) -> tuple[Original, Original]:
    return (
        Original(f"{SITE}/{stem}-python.tar.gz", f"{stem}-python.tar.gz", sha256=python),
        Original(f"{SITE}/{stem}-binary.tar.gz", f"{stem}-binary.tar.gz", sha256=binary),
    )


def _image_set(
    name: str, card: SourceCard, formats: tuple[Format, ...], originals: tuple[Original, ...], classes: tuple[str, ...]
) -> ImageSet:
    counts = {"train": 50_000, "test": 10_000, "classes": len(classes)}
    layouts = tuple(
        item.layout({key: n for key, n in counts.items() if key != "train" or not item.partial}) for item in formats
    )
    return ImageSet(Corpus(name, card, layouts, originals), formats, classes)


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

CIFAR10 = _image_set(
    "cifar10",
    SourceCard(
        source=f"{SITE}/cifar.html, CIFAR-10",
        revision="50,000 training and 10,000 test images",
        licence=_LICENCE,
        citation=_CITATION,
        description="Colour photographs of 32×32 pixels in 10 classes.",
    ),
    (
        python_format("cifar-10-batches-py", {"train": _BATCHES, "test": ("test_batch",)}, "labels", 10),
        binary_format(
            "cifar-10-batches-bin",
            {"train": tuple(f"{name}.bin" for name in _BATCHES), "test": ("test_batch.bin",)},
            1,
            10,
        ),
        folder_format(CIFAR10_CLASSES),
        *npz_formats("cifar10", 10),
    ),
    _archives(
        "cifar-10",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    CIFAR10_CLASSES,
)

CIFAR100 = _image_set(
    "cifar100",
    SourceCard(
        source=f"{SITE}/cifar.html, CIFAR-100",
        revision="50,000 training and 10,000 test images",
        licence=_LICENCE,
        citation=_CITATION,
        description="Colour photographs of 32×32 pixels in 100 classes (the fine labels).",
    ),
    (
        python_format("cifar-100-python", {"train": ("train",), "test": ("test",)}, "fine_labels", 100),
        binary_format("cifar-100-binary", {"train": ("train.bin",), "test": ("test.bin",)}, 2, 100),
        folder_format(CIFAR100_CLASSES),
        *npz_formats("cifar100", 100),
    ),
    _archives(
        "cifar-100",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    CIFAR100_CLASSES,
)

_IDX = "t10k-images-idx3-ubyte.gz"


def _find_idx(folder: Path) -> Path | None:
    """Find the images in a folder that bears the data set's name: MNIST's files have the same names."""
    inner = [folder] if "fashion" in folder.name.lower() else []
    candidates = [*inner, folder / "fashion-mnist", folder / "FashionMNIST" / "raw"]
    return next((candidate / _IDX for candidate in candidates if (candidate / _IDX).is_file()), None)


def _find_fashion_npz(folder: Path) -> Path | None:
    return next(iter(sorted([*folder.glob("fashion_mnist.npz"), *folder.glob("fashion_mnist_*.npz")])), None)


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


_FASHION_FORMATS = (
    Format("idx", f"{_IDX} in a folder fashion-mnist", _find_idx, lambda path: _framed(read_idx(path, 28))),
    Format("arrays", "fashion_mnist.npz or fashion_mnist_*.npz with x", _find_fashion_npz, _read_fashion_npz),
)
FASHION = ImageSet(
    Corpus(
        "fashion-mnist",
        SourceCard(
            source="https://github.com/zalandoresearch/fashion-mnist",
            revision="10,000 test images",
            licence="MIT",
            citation="H. Xiao, K. Rasul and R. Vollgraf (2017), Fashion-MNIST, arXiv:1708.07747",
            description="Grey photographs of clothes, 28×28 pixels.",
        ),
        tuple(item.layout({"test": 10_000}) for item in _FASHION_FORMATS),
        (
            Original(
                f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{_IDX}",
                _IDX,
                sha256="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
        ),
    ),
    _FASHION_FORMATS,
    FASHION_CLASSES,
)
