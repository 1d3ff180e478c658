"""Photographs of the retina: is the eye to be referred, and does the classifier know when it cannot tell?"""

from __future__ import annotations

from pathlib import Path

from dubio.core.errors import UserError
from dubio.core.registry import task
from dubio.core.types import SourceCard, Task
from dubio.tasks.fundus.photographs import Gathered, gather
from dubio.tasks.fundus.report import find_data, report, ways
from dubio.tasks.fundus.shifts import JOINT, Predicted, Wishes, cut, elsewhere, shifts_asked
from dubio.tasks.images.problems import summary
from dubio.tasks.sources.locate import DataSource

CARD = SourceCard(
    source="your copy of EyePACS, APTOS 2019, DeepDRiD, IDRiD or Messidor-2, or your own photographs",
    revision="as found",
    licence="that of the data set",
    citation="A. Filos et al. (2019), A Systematic Comparison of Bayesian Deep Learning Robustness in Diabetic "
    "Retinopathy Tasks; and that of the data set",
    description="Photographs of the eye's background, graded 0 to 4 for diabetic retinopathy; referable from grade 2.",
)

DEFAULT_SIZE = 64


@task("retina", source=DataSource(CARD, locate=ways, check=report))
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
    """Diabetic retinopathy: is an eye to be referred (grade 2 or more), under a shift of camera, hospital or severity.

    Splits: train, val, cal, test; the parts a data set names are kept, those it lacks are cut out of its training
    patients. ``bad-quality``, ``severe`` and ``other-sites`` are the photographs that a shift holds out of all of them;
    another data set is a split called after it. No patient is ever both learned from and tested on.

    Args:
        data: A folder in a known layout, a table of labels beside its images, or an npz; what DUBIO_DATA has if left
            out.
        size: Both sides of a photograph: 64, 128, 256 or 512 pixels.
        target: ``binary`` (referable or not) or ``ordinal`` (the five grades).
        shift: ``quality``, ``severity``, ``site``, several joined by ``+``, or ``none``; quality if left out, where the
            data names it and there is no ``shift_data``.
        shift_data: Another data set, whole, as the shift.
        val: Share of training patients for validation, where the data has no such part.
        cal: Share of training patients for calibration, where the data has no such part.
        split_seed: Of the cut.
        data_dir: A folder to look for data in, before DUBIO_DATA.
        verify: Read all files again, whatever is remembered of them, and check the prepared photographs.
    """
    found = gather(find_data(data, data_dir, size), size, verify=verify)
    shifts = shifts_asked(shift, found, elsewhere=shift_data is not None)
    wishes = Wishes(target, shifts, val, cal, split_seed)
    splits, notes = cut(found, wishes)
    notes = [*found.notes, *summary(found.problems), *notes]
    name = _name(wishes, size)
    if shift_data is not None:
        other = gather(Path(shift_data).expanduser(), size, verify=verify)
        _refuse_same(found, other)
        split, more = elsewhere(other, wishes)
        splits.append(split)
        name += f"-{other.name}"
        notes += [f"Shift: {other.name}: {note}" for note in (*other.notes, *summary(other.problems))] + more
    if shift is None and all(split.kind not in ("shift", "ood") for split in splits):
        notes.append(
            "No shift: the data names no quality. Ask for one with shift, or give another data set as shift_data."
        )
    return Task(name, "image", wishes.target, wishes.classes, tuple(splits), found.card, tuple(notes))


def _name(wishes: Wishes, size: int) -> str:
    """What results call it: the shift, the target and the size where they are not the usual ones."""
    parts = ["retina"]
    if wishes.shifts not in ((), ("quality",)):
        parts.append(JOINT.join(wishes.shifts))
    if wishes.predicted != "binary":
        parts.append(wishes.predicted)
    if size != DEFAULT_SIZE:
        parts.append(str(size))
    return "-".join(parts)


def _refuse_same(found: Gathered, other: Gathered) -> None:
    if other.name == found.name:
        raise UserError(f"shift_data must be another data set than data; both are {found.name!r}.")
