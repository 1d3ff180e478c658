"""Reading data that arrives inside another installed package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from dubio.core.errors import MissingExtra
from dubio.core.types import Examples, IntArray, Kind, Split
from dubio.tasks.splitting import PARTS

PART_KINDS: dict[str, Kind] = {"train": "train", "val": "val", "cal": "cal", "test": "id"}
"""What the four parts are for."""


def package_version(package: str, use: str) -> str:
    """The installed version of a package.

    Raises:
        MissingExtra: When it is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError as missing:
        raise MissingExtra(use, "train") from missing


def scikit_learn_data(name: str, use: str) -> Mapping[str, Any]:
    """One of scikit-learn's bundled data sets, by the name of its loader.

    Raises:
        MissingExtra: When scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ModuleNotFoundError as missing:
        raise MissingExtra(use, "train") from missing
    bunch: Mapping[str, Any] = getattr(datasets, name)()
    return bunch


def splits_of(examples: Examples, parts: IntArray) -> tuple[Split, ...]:
    """The four splits of examples, given the part of each row; a part without rows is left out."""
    return tuple(
        Split.of(name, PART_KINDS[name], examples.take(np.flatnonzero(parts == index)))
        for index, name in enumerate(PARTS)
        if (parts == index).any()
    )
