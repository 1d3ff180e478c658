"""Photographs on this machine, and the preprocessing report on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dubio.tasks.fundus.labels import GRADES
from dubio.tasks.fundus.layouts import LAYOUTS, TABLE
from dubio.tasks.fundus.photographs import SIZES, read_photographs
from dubio.tasks.images.problems import summary
from dubio.tasks.sources.locate import DATA_VARIABLE, DataMissing, cache_dir, data_folders

FOLDERS = (
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
"""Folders inside a named folder that are searched."""


def _copies(data_dir: str | None = None) -> list[dict[str, Any]]:
    """Return every data set of photographs in the folders the user names."""
    copies = [copy for folder in data_folders(data_dir) for copy in _copies_in(folder)]
    return list({copy["path"]: copy for copy in copies}.values())


def _copies_in(parent: Path) -> list[dict[str, Any]]:
    copies = []
    for folder in (parent / name for name in FOLDERS if (parent / name).is_dir()):
        arrays = [folder / f"deepdrid_{size}.npz" for size in SIZES]
        copies += [_copy(path, "arrays") for path in arrays if path.is_file()]
        copies += [_copy(folder, layout.name) for layout in LAYOUTS if layout.find(folder) is not None]
    return copies


def _copy(path: Path, form: str) -> dict[str, Any]:
    return {"form": form, "path": str(path), "way": "folder", "whole": True}


def find_data(data: str | None, data_dir: str | None, size: int) -> Path:
    """Return the photographs for a task: the given path, or the first data set in the user's folders.

    Args:
        data: A folder, table or npz.
        data_dir: A folder to search; it must hold photographs, and nothing else is searched.
        size: Arrays smaller than this are skipped.

    Raises:
        DataMissing: When there are none; the message says what may be placed.
    """
    if data is not None:
        return Path(data).expanduser()
    folder = data_folders(data_dir)[0] if data_dir else None
    for copy in _copies() if folder is None else _copies_in(folder):
        if copy["form"] != "arrays" or int(Path(copy["path"]).stem.partition("_")[2]) >= size:
            return Path(copy["path"])
    if folder is not None and TABLE.find(folder) is not None:
        return folder
    if folder is not None:
        message = f"data_dir {data_dir!r} holds no photographs of eyes of at least {size} pixels."
        raise DataMissing(f"{message} {_placing_advice()}")
    raise DataMissing(f"there are no photographs of eyes in the folders that dubio searches. {_placing_advice()}")


def _placing_advice() -> str:
    layouts = "; ".join(f"{layout.name}: {layout.files}" for layout in (*LAYOUTS, TABLE))
    return (
        f"Name a folder, a table of labels beside its images, or an npz with --data or the argument data; or place a "
        f"public data set in a folder named by --data-dir or {DATA_VARIABLE}. Known layouts: {layouts}."
    )


def list_copies(data_dir: str | None = None) -> dict[str, Any]:
    """Return the copies on this machine and the sources; nothing is fetched, because every source has its terms."""
    return {
        "corpus": "retina",
        "here": _copies(data_dir),
        "folders": [str(folder) for folder in data_folders(data_dir)],
        "cache": str(cache_dir() / "retina"),
        "sources": [{"name": layout.name, "source": layout.card.source, "looks": layout.files} for layout in LAYOUTS],
        "by_hand": _placing_advice(),
    }


def preprocessing_report(data_dir: str | None = None, *, size: int = 64, verify: bool = False) -> dict[str, Any]:
    """Return the preprocessing report of the photographs in a folder (or table, or npz), which it prepares if needed.

    Args:
        data_dir: The folder, or a table or npz; the folders of DUBIO_DATA are searched if left out.
        size: Both sides, in pixels.
        verify: Read all files again and check the cache.
    """
    is_file = data_dir is not None and Path(data_dir).expanduser().is_file()
    path = find_data(data_dir if is_file else None, data_dir, size)
    data = read_photographs(path, size, verify=verify)
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
