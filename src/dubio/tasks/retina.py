"""Photographs of the retina: is the eye to be referred, and does the classifier know when it is uncertain?"""

from __future__ import annotations

from pathlib import Path

from dubio.core.errors import UserError
from dubio.core.registry import task
from dubio.core.types import SourceCard, Task
from dubio.tasks.fundus.photographs import read_photographs
from dubio.tasks.fundus.report import find_data, list_copies, preprocessing_report
from dubio.tasks.fundus.shifts import Predicted, RetinaOptions, other_data_split, retina_splits, shift_names
from dubio.tasks.images.problems import summary
from dubio.tasks.shift import JOINT
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


@task("retina", source=DataSource(CARD, locate=list_copies, check=preprocessing_report))
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
    splits, split_notes = retina_splits(photographs, options)
    notes = [*photographs.notes, *summary(photographs.problems), *split_notes]
    name = _name(options, size)
    if shift_data is not None:
        other = read_photographs(Path(shift_data).expanduser(), size, verify=verify)
        if other.name == photographs.name:
            raise UserError(f"shift_data must be another data set than data; both are {photographs.name!r}.")
        split, shift_notes = other_data_split(other, options)
        splits.append(split)
        name += f"-{other.name}"
        notes += [f"Shift: {other.name}: {note}" for note in (*other.notes, *summary(other.problems))] + shift_notes
    if shift is None and all(split.kind not in ("shift", "ood") for split in splits):
        notes.append("No shift: the data names no quality. Set shift, or give another data set as shift_data.")
    return Task(name, "image", options.target, options.classes, tuple(splits), photographs.card, tuple(notes))


def _name(options: RetinaOptions, size: int) -> str:
    """Return the task's name in results: with the shift, the target and the size where they are not the defaults."""
    labels = ["retina"]
    if options.shifts not in ((), ("quality",)):
        labels.append(JOINT.join(options.shifts))
    if options.predicted != "binary":
        labels.append(options.predicted)
    if size != DEFAULT_SIZE:
        labels.append(str(size))
    return "-".join(labels)
