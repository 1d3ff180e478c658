"""Where photographs are on this machine, and what the preprocessing report says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dubio.tasks.fundus.labels import GRADES
from dubio.tasks.fundus.layouts import LAYOUTS, TABLE
from dubio.tasks.fundus.photographs import SIZES, gather
from dubio.tasks.images.problems import summary
from dubio.tasks.sources.locate import DATA_VARIABLE, DataMissing, cache_dir, data_folders

HOMES = (
    "",
    "retina",
    "eyepacs",
    "deepdrid",
    "DeepDRiD",
    "aptos2019",
    "aptos",
    "idrid",
    "IDRiD",
    "messidor2",
    "messidor",
)
"""Folders inside a named folder that are looked into."""


def here(data_dir: str | None = None) -> list[dict[str, Any]]:
    """Every data set of photographs in the folders the user names."""
    found = [copy for folder in data_folders(data_dir) for copy in _in_folder(folder)]
    return list({copy["path"]: copy for copy in found}.values())


def _in_folder(folder: Path) -> list[dict[str, Any]]:
    found = []
    for place in (folder / home for home in HOMES if (folder / home).is_dir()):
        arrays = [place / f"deepdrid_{size}.npz" for size in SIZES]
        found += [_copy(path, "arrays") for path in arrays if path.is_file()]
        found += [_copy(place, layout.name) for layout in LAYOUTS if layout.find(place) is not None]
    return found


def _copy(path: Path, form: str) -> dict[str, Any]:
    return {"form": form, "path": str(path), "way": "folder", "whole": True}


def find_data(data: str | None, data_dir: str | None, size: int) -> Path:
    """The photographs a task is asked for: the path given, or the first data set in the user's folders.

    Args:
        data: A folder, table or npz.
        data_dir: A folder to look in; what is named must hold them, and nothing else is searched.
        size: Arrays smaller than this are passed over.

    Raises:
        DataMissing: When nothing is found; the message says what may be placed.
    """
    if data is not None:
        return Path(data).expanduser()
    named = data_folders(data_dir)[0] if data_dir else None
    for copy in here() if named is None else _in_folder(named):
        if copy["form"] != "arrays" or int(Path(copy["path"]).stem.partition("_")[2]) >= size:
            return Path(copy["path"])
    if named is not None and TABLE.find(named) is not None:
        return named
    if named is not None:
        raise DataMissing(f"data_dir {data_dir!r} holds no photographs of eyes of {size} pixels or more. {by_hand()}")
    raise DataMissing(f"there are no photographs of eyes on this machine that dubio knows of. {by_hand()}")


def by_hand() -> str:
    """How a reader places a data set."""
    forms = "; ".join(f"{layout.name}: {layout.looks}" for layout in (*LAYOUTS, TABLE))
    return (
        f"Name a folder, a table of labels beside its images, or an npz with --data or the argument data; or place a "
        f"public data set in a folder named by --data-dir or {DATA_VARIABLE}. Known layouts: {forms}."
    )


def ways(data_dir: str | None = None) -> dict[str, Any]:
    """What is here and every way to more; nothing is fetched, because every source asks for an agreement."""
    return {
        "corpus": "retina",
        "here": here(data_dir),
        "folders": [str(folder) for folder in data_folders(data_dir)],
        "cache": str(cache_dir() / "retina"),
        "sources": [{"name": layout.name, "source": layout.card.source, "looks": layout.looks} for layout in LAYOUTS],
        "by_hand": by_hand(),
    }


def report(data_dir: str | None = None, *, size: int = 64, verify: bool = False) -> dict[str, Any]:
    """The preprocessing report of the photographs in a folder (or table, or npz), prepared where they were not.

    Args:
        data_dir: The folder, or a table or npz; the folders of DUBIO_DATA are searched if left out.
        size: Both sides, in pixels.
        verify: Read all files again and check the cache.
    """
    is_file = data_dir is not None and Path(data_dir).expanduser().is_file()
    path = find_data(data_dir if is_file else None, data_dir, size)
    data = gather(path, size, verify=verify)
    return {
        "data": data.name,
        "path": str(path),
        "size": size,
        "photographs": len(data),
        "patients": len(np.unique(data.patient)),
        "grades": dict(zip(GRADES, np.bincount(data.grade, minlength=len(GRADES)).tolist(), strict=True)),
        "summary": [*data.notes, *summary(data.problems)],
        "findings": [problem.line() for problem in data.problems],
    }
