"""Splits that are not trained on: novel classes, other domains, corrupted images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UnknownName, UserError, check_known
from dubio.core.types import UNLABELLED, BoolArray, Examples, Inputs, IntArray, Split, StrArray
from dubio.tasks.images.files import to_levels

AUTO = "auto"
"""Among novel classes: choose them automatically."""

JOINT = "+"
NONE, ALL = "none", "all"

SEVERITIES = (1, 2, 3, 4, 5)
"""Severities of a corruption, weakest first."""

_NOISE = (0.08, 0.12, 0.18, 0.26, 0.38)  # deviation, of the full range of grey levels (Hendrycks and Dietterich 2019)
_BLUR = (0.03, 0.05, 0.07, 0.10, 0.14)  # deviation of the kernel, of the shorter side of the image
_ROTATION = (10.0, 20.0, 30.0, 45.0, 60.0)  # degrees


@dataclass(frozen=True, eq=False)
class Novelty:
    """Labels once some classes are held out.

    Attributes:
        classes: Names of the remaining classes, in their original order.
        labels: Labels among those: an index (−1 for a novel row) or multi-hot.
        novel: ``[N]``, True where a row carries a held-out class, alone or among others.
    """

    classes: tuple[str, ...]
    labels: IntArray
    novel: BoolArray


def joined_names(argument: str, value: str, choices: Sequence[str]) -> tuple[str, ...]:
    """Return the names in ``a+b``, or all of them, or none, in the order of ``choices``.

    Raises:
        UnknownName: For an unknown name.
    """
    if value in (NONE, ALL):
        return tuple(choices) if value == ALL else ()
    names = value.split(JOINT)
    for name in names:
        if name not in choices:
            raise UnknownName(f"value of {argument}", name, [*choices, ALL, NONE])
    return tuple(name for name in choices if name in names)


def novel_names(classes: Sequence[str], rows: Sequence[int], names: Sequence[str], *, seed: int) -> tuple[str, ...]:
    """Return the classes to hold out of training.

    ``("auto",)`` chooses them: classes in a seeded random order, one for every five (at least one), passing over a
    class without rows and one that would bring the held-out rows above a third of all rows.

    Args:
        classes: Every class.
        rows: Number of rows of each.
        names: Names, or ``("auto",)``.
        seed: Seed of the random order.

    Raises:
        UnknownName: For a class that does not exist.
        UserError: When fewer than two classes would stay.
    """
    if tuple(names) == (AUTO,):
        return _choose(classes, rows, seed)
    check_known("class in novel", names, classes)
    if names and len(classes) - len(set(names)) < 2:
        raise UserError(f"novel must leave at least two classes; it holds out {len(set(names))} of {len(classes)}.")
    return tuple(name for name in classes if name in names)


def _choose(classes: Sequence[str], rows: Sequence[int], seed: int) -> tuple[str, ...]:
    if len(classes) < 3:
        raise UserError(f"novel 'auto' needs at least three classes, to hold one out; there are {len(classes)}.")
    number = min(max(1, len(classes) // 5), len(classes) - 2)
    most = sum(rows) / 3
    chosen: list[int] = []
    for index in np.random.default_rng(seed).permutation(len(classes)).tolist():
        if len(chosen) < number and (rows[index] or not most) and sum(rows[i] for i in chosen) + rows[index] <= most:
            chosen.append(index)
    if not chosen:  # several labels per row: every label may lie on more than a third of the rows
        chosen = [int(np.argmin(rows))]
    return tuple(classes[i] for i in sorted(chosen))


def hold_out(classes: Sequence[str], labels: IntArray, names: Sequence[str]) -> Novelty:
    """Hold classes out: their rows become novel, the others have their labels under new indices.

    Args:
        classes: Every class.
        labels: Class index ``[N]``, or multi-hot ``[N, K]``; a row that carries a novel label
            beside others is novel.
        names: The classes to hold out.
    """
    stays = np.array([name not in names for name in classes], dtype=bool)
    remaining = tuple(name for name, stay in zip(classes, stays, strict=True) if stay)
    if labels.ndim == 2:
        return Novelty(remaining, labels[:, stays], np.asarray(labels[:, ~stays].any(axis=1)))
    # the index after the last class is that of the label −1
    index = np.append(np.where(stays, np.cumsum(stays) - 1, UNLABELLED), UNLABELLED)
    new = index[labels].astype(np.int64)
    return Novelty(remaining, new, (labels >= 0) & (new < 0))


def hold_out_untrained(classes: Sequence[str], labels: IntArray, trained: BoolArray) -> Novelty:
    """Hold out the classes that no training row carries.

    Args:
        classes: Every class.
        labels: Class index ``[N]``, or multi-hot ``[N, K]``.
        trained: The training rows ``[N]``.
    """
    carried = labels[trained]
    present = np.asarray(carried.any(axis=0) if labels.ndim == 2 else np.isin(np.arange(len(classes)), carried))
    return hold_out(classes, labels, [name for name, trains in zip(classes, present, strict=True) if not trains])


def other_domains(domain: StrArray, train_domain: str) -> dict[str, BoolArray]:
    """Return the rows of every domain except the one to train on, by the domain's name.

    Args:
        domain: The domain of each row ``[N]``.
        train_domain: The domain to train on.

    Raises:
        UnknownName: When no row is of that domain.
        UserError: When there is no other domain.
    """
    names = np.unique(domain).tolist()
    check_known("train_domain", [train_domain], names)
    if len(names) == 1:
        raise UserError(f"train_domain {train_domain!r} is the only domain; a shift needs another one.")
    return {name: domain == name for name in names if name != train_domain}


def add_noise(images: NDArray[np.uint8], severity: int, *, seed: int) -> NDArray[np.uint8]:
    """Add Gaussian noise of deviation 0.08, 0.12, 0.18, 0.26 or 0.38 of the range, on every pixel and channel."""
    noise = np.random.default_rng([seed, severity, 0]).normal(0, 255 * _strength(_NOISE, severity), images.shape)
    return to_levels(images + noise)


def blur(images: NDArray[np.uint8], severity: int) -> NDArray[np.uint8]:
    """Blur with a Gaussian kernel of deviation 3, 5, 7, 10 or 14 % of the shorter side."""
    from scipy import ndimage

    sigma = _strength(_BLUR, severity) * min(images.shape[1:3])
    return to_levels(ndimage.gaussian_filter(images.astype(np.float64), (0, sigma, sigma, 0), mode="nearest"))


def rotate(images: NDArray[np.uint8], severity: int, *, seed: int) -> NDArray[np.uint8]:
    """Rotate by 10, 20, 30, 45 or 60 degrees, to the left or the right at random; edges are extended."""
    from scipy import ndimage

    leftward = np.random.default_rng([seed, severity, 1]).random(len(images)) < 0.5
    angle, turned = _strength(_ROTATION, severity), np.empty_like(images)
    for rows, turn in ((leftward, angle), (~leftward, -angle)):
        source = images[rows].astype(np.float64)
        turned[rows] = to_levels(ndimage.rotate(source, turn, axes=(1, 2), reshape=False, order=1, mode="nearest"))
    return turned


def corruptions(images: NDArray[np.uint8], *, seed: int) -> dict[tuple[str, int], NDArray[np.uint8]]:
    """Return noise, blur and rotation in five severities each, by family and severity.

    Args:
        images: uint8 ``[N, H, W, C]``.
        seed: Seed of the noise and of the directions of rotation.
    """
    corrupted = {("noise", severity): add_noise(images, severity, seed=seed) for severity in SEVERITIES}
    corrupted |= {("blur", severity): blur(images, severity) for severity in SEVERITIES}
    corrupted |= {("rotation", severity): rotate(images, severity, seed=seed) for severity in SEVERITIES}
    return corrupted


def corrupted_split(test: Examples, images: Inputs, family: str, severity: int) -> Split:
    """Return the test examples with corrupted images as a shift that is called ``FAMILY-SEVERITY``."""
    assert test.ids is not None
    name = f"{family}-{severity}"
    # an id is unique within a data set: a corrupted image is another example than its original
    examples = replace(test, inputs=images, ids=np.char.add(test.ids, f"/{name}"))
    return Split.of(name, "shift", examples, family=family, severity=severity)


def _strength(strengths: tuple[float, ...], severity: int) -> float:
    if severity not in SEVERITIES:
        raise UserError(f"severity must be one of {', '.join(map(str, SEVERITIES))}; given {severity}.")
    return strengths[severity - 1]
