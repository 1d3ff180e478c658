"""Data inside other installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dubio.core.errors import MissingExtra


def package_version(package: str, use: str) -> str:
    """Return the installed version of a package.

    Raises:
        MissingExtra: When it is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError as missing:
        raise MissingExtra(use, "train") from missing


def scikit_learn_data(name: str, use: str) -> Mapping[str, Any]:
    """Return one of scikit-learn's bundled data sets, by the name of its loader.

    Raises:
        MissingExtra: When scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ModuleNotFoundError as missing:
        raise MissingExtra(use, "train") from missing
    bunch: Mapping[str, Any] = getattr(datasets, name)()
    return bunch
