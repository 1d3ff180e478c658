"""The user's own data: a table of texts or numbers, a folder of images, or arrays."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import task
from dubio.core.types import Examples, SourceCard, Split, Target, Task
from dubio.tasks.cutting import Wishes, cut_rows
from dubio.tasks.duplicates import shared_rows
from dubio.tasks.labelling import labelled
from dubio.tasks.pictures import rows_of_folder, rows_of_npz
from dubio.tasks.readers import read_table
from dubio.tasks.rows import Named, Rows, rows_of_table

FOLDER_SIZE = 64
"""Both sides of an image from a folder, unless a size is given."""


@task("own")
def own(
    *,
    data: str,
    name: str = "own",
    text: str | None = None,
    label: str | None = None,
    features: tuple[str, ...] = (),
    label_separator: str | None = None,
    target: Target | None = None,
    order: tuple[str, ...] = (),
    id: str | None = None,
    group: str | None = None,
    time: str | None = None,
    domain: str | None = None,
    train_domain: str | None = None,
    split: str | None = None,
    novel: tuple[str, ...] = (),
    fractions: tuple[float, ...] = (0.6, 0.1, 0.15, 0.15),
    split_seed: int = 0,
    size: int | None = None,
) -> Task:
    """Your own data: CSV, TSV, JSON lines, Parquet, a folder of images, or npz.

    Splits: train, val, cal, test; ``novel`` (every row that carries a held-out class; with given parts those of test);
    one for each other domain; ``unseen`` (test rows of classes training lacks, where parts are given or go by time).
    Rows with an empty text are left out and noted. Rows that splits share are counted in the notes.

    Args:
        data: The file or folder.
        name: What the task is called in reports.
        text: The column of texts.
        label: The column of classes (npz: ``y`` unless named; a folder of images names its classes itself).
        features: Numeric columns; ``*`` for all that have no other use. Missing values may be empty.
        label_separator: What stands between labels where a cell holds several.
        target: What is predicted, where the data should not decide.
        order: The classes in their order; makes the target ordinal.
        id: The column of unique ids.
        group: The column of what belongs together; no group is torn between splits.
        time: The column of times; the oldest rows train, the newest test.
        domain: The column of domains.
        train_domain: The domain to train on; every other one is a shift.
        split: The column of given parts: train, val, cal, test, shift-…, ood-…; a part it lacks is cut
            out of train.
        novel: Classes to hold out of training, or ``auto``.
        fractions: Shares of train, val, cal and test.
        split_seed: Of random parts and automatic novelty.
        size: Both sides of every image (a folder: 64 unless given; npz: as they are).
    """
    path = Path(data).expanduser()
    named = Named(text, features, label, label_separator, id, group, time, domain, split)
    rows = _read(path, named, size)
    given = labelled(rows, target=target, order=order)
    cut = cut_rows(rows, given, Wishes(fractions, split_seed, novel, train_domain))
    examples = Examples(rows.inputs, cut.labels, rows.ids, rows.group)
    splits = tuple(Split.of(part, kind, examples.take(chosen)) for part, (kind, chosen) in cut.splits.items())
    shared = tuple(found.sentence() for found in shared_rows(splits, rows.modality))
    notes = (*rows.notes, *given.notes, *cut.notes, *shared)
    return Task(name, rows.modality, given.target, cut.classes, splits, _card(path, rows), notes)


def _read(path: Path, named: Named, size: int | None) -> Rows:
    if not path.exists():
        raise BadFile(f"data {str(path)!r}: no such file or folder.")
    if path.is_dir():
        _refuse_columns(named, path)
        return rows_of_folder(path, size=FOLDER_SIZE if size is None else size)
    if path.suffix.lower() == ".npz":
        return rows_of_npz(path, named, size=size)
    if size is not None:
        raise UserError(f"size is for images; {path.name} is a table.")
    return rows_of_table(read_table(path), named)


def _refuse_columns(named: Named, path: Path) -> None:
    for argument in ("text", "features", "label", "label_separator", "id", "group", "time", "domain", "split"):
        if getattr(named, argument):
            raise UserError(f"{argument} names a column; {path.name} is a folder of images, which has none.")


def _card(path: Path, rows: Rows) -> SourceCard:
    if path.is_dir():
        revision = f"{len(rows):,} images"
    else:
        with path.open("rb") as file:
            revision = "sha256 " + hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return SourceCard(
        source=path.name,
        revision=revision,
        licence="the owner's",
        citation="the owner's",
        description=f"The user's own data: {len(rows):,} rows.",
    )
