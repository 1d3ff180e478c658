"""Photographs of the retina: is the eye to be referred, and does the classifier know when it is uncertain?

Photographs are looked for on this machine and never fetched; the preprocessing report lists their problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import UserError
from dubio.core.registry import task
from dubio.core.types import Task
from dubio.tasks.fundus.labels import GRADES
from dubio.tasks.fundus.layouts import LAYOUTS, TABLE, list_layouts
from dubio.tasks.fundus.photographs import SIZES, read_photographs
from dubio.tasks.fundus.shifts import Predicted, RetinaOptions, other_data_split, retina_splits, shift_names
from dubio.tasks.images.files import left_out_counts, summary
from dubio.tasks.shift import JOINT
from dubio.tasks.sources.locate import (
    DATA_VARIABLE,
    DataMissing,
    DataSource,
    data_folders,
    source_card,
    unfetched_facts,
)

FOLDERS = (
    "", "retina", "eyepacs", "deepdrid", "DeepDRiD", "aptos2019", "aptos", "idrid", "IDRiD", "messidor2", "messidor",
)  # fmt: skip
"""Folders inside a named folder that are searched."""

DEFAULT_SIZE = 64


def _copies(folders: Iterable[Path]) -> dict[Path, str]:
    """Return the format of every data set of photographs in these folders, by its path."""
    copies: dict[Path, str] = {}
    for folder in (parent / name for parent in folders for name in FOLDERS if (parent / name).is_dir()):
        arrays = (folder / f"deepdrid_{size}.npz" for size in SIZES)
        copies |= {path: "arrays" for path in arrays if path.is_file()}
        copies |= [(folder, layout.name) for layout in LAYOUTS if layout.find(folder) is not None]
    return copies


def find_data(data: str | None, data_dir: str | None, size: int) -> Path:
    """Return the photographs for a task: the given path, or the first data set in the user's folders.

    Args:
        data: A folder, table or npz.
        data_dir: A folder to search; it must hold photographs, and nothing else is searched.
        size: Arrays smaller than this are skipped.

    Raises:
        DataMissing: When there are none, or only smaller ones; the message says what may be placed.
    """
    if data is not None:
        return Path(data).expanduser()
    folder = data_folders(data_dir)[0] if data_dir else None
    copies = _copies(data_folders(None) if folder is None else [folder])
    for path, form in copies.items():
        if form != "arrays" or int(path.stem.partition("_")[2]) >= size:
            return path
    if copies:
        names = ", ".join(str(path) for path in copies)
        smaller = f"the photographs on this machine ({names}) are smaller, and none is enlarged"
        raise DataMissing(f"size {size}: {smaller}. Choose a smaller size, or name the original photographs with data.")
    if folder is not None and TABLE.find(folder) is not None:
        return folder
    missing = "there are no photographs of eyes in the folders that dubio searches."
    if folder is not None:
        missing = f"data_dir {data_dir!r} holds no photographs of eyes of at least {size} pixels."
    raise DataMissing(f"{missing} {_placing_advice()}")


def _placing_advice() -> str:
    return (
        f"Name a folder, a table of labels beside its images, or an npz with --data or the argument data; or place a "
        f"public data set in a folder named by --data-dir or {DATA_VARIABLE}. Known layouts: {list_layouts()}."
    )


def list_copies(data_dir: str | None = None) -> dict[str, Any]:
    """Return the copies on this machine and the sources; nothing is fetched, because every source has its terms."""
    copies = [(form, path) for path, form in _copies(data_folders(data_dir)).items()]
    names = {layout.name: layout.name for layout in LAYOUTS}
    return unfetched_facts("retina", copies, names, _placing_advice(), data_dir)


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


@task("retina", source=DataSource(source_card("retina"), locate=list_copies, check=preprocessing_report))
def retina(
    *,
    data: str | None = None,
    size: int = DEFAULT_SIZE,
    target: Predicted = "binary",
    shift: str | None = None,
    shift_data: str | None = None,
    val: float = 0.2,
    cal: float = 0.15,
    split_seed: int = 0,
    data_dir: str | None = None,
    verify: bool = False,
) -> Task:
    """Diabetic retinopathy: is an eye to be referred (grade 2 or more), under a shift of quality, severity or site.

    Splits: train, val, cal, test; the parts a data set names are used, those it lacks are cut out of its training
    patients. ``bad-quality``, ``severe`` and ``other-sites`` are the photographs that a shift holds out of all of them;
    another data set is a split of its name. No patient is ever both learned from and tested on.

    Args:
        data: A folder in a known layout, a table of labels beside its images, or an npz; what DUBIO_DATA has if left
            out.
        size: Both sides of a photograph: 64, 128, 256 or 512 pixels.
        target: ``binary`` (referable or not) or ``ordinal`` (the five grades).
        shift: ``quality``, ``severity``, ``site``, several joined by ``+``, or ``none``; quality if left out, where the
            data names it and there is no ``shift_data``.
        shift_data: Another complete data set as the shift.
        val: Share of training patients for validation, where the data has no such part.
        cal: Share of training patients for calibration, where the data has no such part.
        split_seed: Seed of the split.
        data_dir: A folder to search for data, before DUBIO_DATA.
        verify: Read all files again, whatever is cached, and check the prepared photographs.
    """
    photographs = read_photographs(find_data(data, data_dir, size), size, verify=verify)
    shifts = shift_names(shift, photographs, other_data=shift_data is not None)
    options = RetinaOptions(target, shifts, val, cal, split_seed)
    splits, split_notes, left_out = retina_splits(photographs, options)
    left_out |= left_out_counts(photographs.problems)
    notes = [*photographs.notes, *summary(photographs.problems), *split_notes]
    name = _name(options, size)
    if shift_data is not None:
        other = read_photographs(Path(shift_data).expanduser(), size, verify=verify)
        if other.name == photographs.name:
            raise UserError(f"shift_data must be another data set than data; both are {photographs.name!r}.")
        split, shift_notes = other_data_split(other, options)
        splits.append(split)
        left_out |= {f"{reason} ({other.name})": n for reason, n in left_out_counts(other.problems).items()}
        name += f"-{other.name}"
        notes += [f"Shift: {other.name}: {note}" for note in (*other.notes, *summary(other.problems))] + shift_notes
    if shift is None and all(split.kind not in ("shift", "ood") for split in splits):
        notes.append("No shift: the data names no quality. Set shift, or give another data set as shift_data.")
    rows = sum(map(len, splits)) + sum(left_out.values())
    card = photographs.card
    return Task(name, "image", options.target, options.classes, tuple(splits), card, tuple(notes), rows, left_out)


def _name(options: RetinaOptions, size: int) -> str:
    """Return the task's name in results: with the shift, the target and the size where they are not the defaults."""
    labels = (
        "" if options.shifts in ((), ("quality",)) else JOINT.join(options.shifts),
        "" if options.predicted == "binary" else options.predicted,
        "" if size == DEFAULT_SIZE else str(size),
    )
    return "-".join(["retina", *filter(None, labels)])
