"""Handwritten digits of scikit-learn: novelty and corruption on 8×8 images."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dubio.core.registry import task
from dubio.core.types import Examples, FloatArray, IntArray, Split, Task
from dubio.tasks.shift import corrupted_split, corruptions, hold_out, novel_names
from dubio.tasks.sources.locate import DataSource, scikit_learn_data, source_card
from dubio.tasks.splitting import SplitOptions, assign_parts, part_splits

CARD = source_card("digits")

FILE = "datasets/data/digits.csv.gz"
"""The digits in scikit-learn's folder."""


@task("digits", source=DataSource(CARD))
def digits(
    *, novel: tuple[str, ...] = ("8", "9"), fractions: tuple[float, ...] = (0.5, 0.1, 0.15, 0.25), split_seed: int = 0
) -> Task:
    """Handwritten digits, 8×8: in-domain, novel digits, and 15 corruptions of the test images.

    Splits: train, val, cal, test; ``novel`` (every image of a held-out digit); ``noise-1`` … ``noise-5``, ``blur-1`` …
    ``blur-5``, ``rotation-1`` … ``rotation-5`` (the test images, corrupted).

    The held-out digits are 8 and 9 by default: both share strokes with digits that are trained on (3, 0, 4, 7), so that
    recognising them as novel is neither trivial nor hopeless.

    Args:
        novel: Digits held out of training, or ``("auto",)``.
        fractions: Shares of train, val, cal and test among the other digits.
        split_seed: Seed of the split and the corruptions.
    """
    shades, labels = read_digits()
    images = np.rint(shades * (255 / 16)).astype(np.uint8)[..., None]
    names = tuple(str(digit) for digit in range(10))
    held_out = novel_names(names, np.bincount(labels, minlength=10).tolist(), novel, seed=split_seed)
    novelty = hold_out(names, labels, held_out)
    examples = Examples(images, novelty.labels, ids=np.arange(len(images)).astype(np.str_))
    trained = examples.take(np.flatnonzero(~novelty.novel))
    parts = assign_parts(trained.labels, SplitOptions(fractions, split_seed))
    splits = part_splits(trained, parts)
    if held_out:
        splits.append(Split.of("novel", "ood", examples.take(np.flatnonzero(novelty.novel))))
    test = next(split.data for split in splits if split.name == "test")
    corrupted = corruptions(np.asarray(test.inputs), seed=split_seed)
    splits += [corrupted_split(test, pixels, family, severity) for (family, severity), pixels in corrupted.items()]
    notes: tuple[str, ...] = ("The noise, blur and rotation splits are the test images, corrupted.",)
    if held_out:
        notes = (f"Digits never trained on: {', '.join(held_out)}.", *notes)
    return Task("digits", "image", "multiclass", novelty.classes, tuple(splits), CARD, notes)


def read_digits() -> tuple[FloatArray, IntArray]:
    """Return the images ``[N, 8, 8]``, in shades from 0 to 16, and their labels ``[N]``.

    They are read from scikit-learn's own file where it has one: importing scikit-learn takes a second in every worker.

    Raises:
        MissingExtra: When scikit-learn is not installed.
    """
    for folder in package_folders("sklearn"):
        if (path := folder / FILE).is_file():
            rows = np.loadtxt(path, delimiter=",")
            return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(np.int64)
    bunch = scikit_learn_data("load_digits", "the task digits")
    return bunch["images"], bunch["target"].astype(np.int64)


def package_folders(name: str) -> list[Path]:
    """Return where a package is installed, without importing it; nowhere where it is not."""
    spec = find_spec(name)
    return [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
