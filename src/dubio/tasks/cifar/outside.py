"""Images of another sort than those trained on: another data set's, or noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dubio.core.errors import UnknownName
from dubio.core.types import UNLABELLED, Examples, IntArray, Split
from dubio.tasks.cifar.forms import SIDE, Pictures
from dubio.tasks.cifar.sets import CIFAR10, CIFAR100, FASHION, ImageSet
from dubio.tasks.shift import levels
from dubio.tasks.splits import balanced_rows

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
