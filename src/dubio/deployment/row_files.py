"""Rows to predict, from files: tables of texts or numbers, folders of images, arrays; in chunks, in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, UserError, nearest
from dubio.core.specs import hash_file, identity
from dubio.core.types import UNLABELLED, IntArray, StrArray, Target
from dubio.deployment.inputs import IMAGE, InputForm
from dubio.tables import Cells, Table, listed, plain_name, read_batches, table_ending
from dubio.tasks.images.files import ENDINGS, read_arrays
from dubio.tasks.own.reading import label_lists
from dubio.tasks.splitting import label_array

CHUNK = 1024
"""Rows that are predicted and saved together, at most."""

CHUNK_BYTES = 1 << 26
"""Bytes of the images of a chunk; one image at least."""

ROW = "row"


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive rows of a file.

    Attributes:
        rows: Raw rows, as :class:`~dubio.deployment.model.Model` takes them.
        references: What a message calls each row.
        ids: Their names.
        labels: Their labels; None where the file has none.
        group: Their groups; None where the file has none.
        unused: Columns of the file that the model does not use.
    """

    rows: Any
    references: Sequence[str]
    ids: StrArray
    labels: IntArray | None = None
    group: StrArray | None = None
    unused: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowFile:
    """A file or folder of rows for a model.

    Attributes:
        path: The file or folder.
        form: The form of a row.
        classes: The model's classes, which labels must be among.
        target: The kind of prediction.
    """

    path: Path
    form: InputForm
    classes: tuple[str, ...]
    target: Target

    def __post_init__(self) -> None:
        if not self.path.exists():
            raise BadFile(f"{str(self.path)!r}: no such file or folder.")
        is_table = table_ending(self.path) is not None
        if self.form.inputs == "image" and is_table:
            raise UserError(
                f"this model takes images: give a folder of them or an npz file; {self.path.name} is a table."
            )
        if self.form.inputs != "image" and not is_table and (self.path.is_dir() or self.form.inputs == "text"):
            kind = "texts" if self.form.inputs == "text" else "rows of a table"
            raise UserError(
                f"this model takes {kind}: give a CSV, TSV, JSON Lines or Parquet file; given {self.path.name}."
            )

    @property
    def chunk(self) -> int:
        """The number of rows of a chunk."""
        return max(1, min(CHUNK, CHUNK_BYTES // max(1, prod(self.form.shape))))

    def fingerprint(self) -> str:
        """Return a hash of the file, or of the names, sizes and times of a folder's files."""
        if not self.path.is_dir():
            return hash_file(self.path)
        stats = [(path.relative_to(self.path).as_posix(), path.stat()) for path in self._images()]
        return identity([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats])

    def read(self, use: Callable[[Chunk], None]) -> None:
        """Hand over all rows in chunks, the last one smaller.

        Raises:
            UserError: Naming a column that is missing, a label that is none of the classes, or an unreadable file.
        """
        if self.path.is_dir():
            self._read_folder(use)
        elif self.path.suffix.lower() == ".npz":
            self._read_arrays(use)
        else:
            pending: list[Table] = []

            def collect(batch: Table) -> None:
                pending.append(batch)
                self._cut(pending, self.chunk, use)

            read_batches(self.path, collect)
            self._cut(pending, 1, use)

    def _cut(self, pending: list[Table], least: int, use: Callable[[Chunk], None]) -> None:
        """Hand over chunks while at least ``least`` rows are pending."""
        while sum(map(len, pending)) >= least:
            pieces, count = [], 0
            while pending and count < self.chunk:
                table = pending.pop(0)
                pieces.append(table.take(np.arange(min(len(table), self.chunk - count))))
                if len(table) > len(pieces[-1]):
                    pending.insert(0, table.take(np.arange(len(pieces[-1]), len(table))))
                count += len(pieces[-1])
            use(self._chunk(_joined(pieces)))

    def _chunk(self, table: Table) -> Chunk:
        form = self.form
        for column in form.columns:
            table.column(column, "the model's input")  # named with the nearest one where it is missing
        names = [name for name in form.columns if name in table.columns]
        cells = [listed(table.column(name, "the model's input")) for name in names]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*cells, strict=True)]
        group = table.names(form.group, "group") if form.group in table.columns and form.group else None
        ids = table.names(form.id, "id") if form.id and form.id in table.columns else table.row_numbers.astype(np.str_)
        labels = self._labels(table) if form.label and form.label in table.columns else None
        return Chunk(rows, table.references, ids, labels, group, form.unused(table.columns))

    def _labels(self, table: Table) -> IntArray | None:
        """Return the labels of rows; a cell may be empty, but not name a class that the model does not know."""
        label, several = str(self.form.label), self.target == "multilabel"
        cells = listed(table.column(label, "label"))
        filled = [row for row, cell in enumerate(cells) if several or plain_name(cell)]
        lists, _ = label_lists(table.take(filled), label, self.form.label_separator)
        for row, names in zip(filled, lists, strict=True):
            if not several and len(names) != 1:
                count = f"a list of {len(names)} labels; the model gives a row one class"
                raise UserError(f"{table.reference(row)}, column {label!r}: {count}.")
            for name in names:
                self._check_class(name, f"{table.reference(row)}, column {label!r}")
        labels = np.full(len(table), UNLABELLED, dtype=np.int64)
        if several:
            return label_array(lists, self.classes, self.target)
        labels[filled] = label_array(lists, self.classes, self.target) if filled else 0
        return labels

    def _check_class(self, name: str, where: str) -> None:
        if name not in self.classes:
            hint = nearest(name, self.classes)
            guess = f" Did you mean {hint!r}?" if hint else ""
            raise UserError(
                f"{where}: the model knows no class {name!r}.{guess} Its classes: {', '.join(self.classes)}."
            )

    def _images(self) -> list[Path]:
        return sorted(path for path in self.path.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())

    def _read_folder(self, use: Callable[[Chunk], None]) -> None:
        """Hand over the images of a folder; folders inside it that are named like the classes are labels."""
        files = self._images()
        if not files:
            raise BadFile(f"{str(self.path)!r}: no images; expected files ending in {', '.join(ENDINGS)}.")
        names = [path.relative_to(self.path).as_posix() for path in files]
        folders = {name.split("/")[0] for name in names if "/" in name}
        labelled = bool(folders & set(self.classes))
        for folder in sorted(folders) if labelled else ():
            self._check_class(folder, f"the folder {folder!r} in {str(self.path)!r}")
        for start in range(0, len(files), self.chunk):
            own = names[start : start + self.chunk]
            labels = None
            if labelled:
                labels = np.array([self.classes.index(n.split("/")[0]) if "/" in n else UNLABELLED for n in own])
            rows = [{IMAGE: path} for path in files[start : start + self.chunk]]
            use(Chunk(rows, own, np.array(own, dtype=np.str_), labels))

    def _read_arrays(self, use: Callable[[Chunk], None]) -> None:
        """Hand over the rows of the array ``x``, with labels where an array has the name of the labels."""
        arrays = read_arrays(self.path)
        if "x" not in arrays or arrays["x"].ndim == 0:
            raise BadFile(f"{str(self.path)!r} has no array 'x' of rows; it has {', '.join(arrays) or 'none'}.")
        x, label = arrays["x"], self.form.label or "y"
        if not len(x):
            raise BadFile(f"{str(self.path)!r} has no rows.")
        if self.form.inputs == "image" and x.ndim == 3:
            x = x[..., None]
        labels = None
        if label in arrays and arrays[label].shape[:1] == x.shape[:1]:
            side = Table(self.path, {label: arrays[label].tolist()}, np.arange(len(x)))
            labels = RowFile(
                self.path, InputForm(self.form.inputs, (), label=label), self.classes, self.target
            )._labels(side)
        for start in range(0, len(x), self.chunk):
            rows = slice(start, min(start + self.chunk, len(x)))
            references = [f"{ROW} {index}" for index in range(rows.start, rows.stop)]
            ids = np.arange(rows.start, rows.stop).astype(np.str_)
            use(Chunk(x[rows], references, ids, None if labels is None else labels[rows]))


class UniqueIds:
    """The ids of earlier rows, of which 16 bytes of a hash each are in memory.

    They lie in sorted arrays of which each is more than twice as long as the next: n ids are copied log n times.
    """

    def __init__(self) -> None:
        """Begin without an id."""
        self._runs: list[NDArray[np.bytes_]] = []

    def add(self, chunk: Chunk) -> None:
        """Add the ids of a chunk.

        Raises:
            UserError: Naming an id that an earlier row has too: a file of predictions with it could not be read.
        """
        names = chunk.ids.tolist()
        digests = np.array([blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest() for name in names])
        run, first = np.unique(digests, return_index=True)
        repeated = np.ones(len(names), dtype=np.bool_)
        repeated[first] = False
        for earlier in self._runs:
            nearest_ids = earlier[np.minimum(np.searchsorted(earlier, digests), len(earlier) - 1)]
            repeated |= nearest_ids == digests
        if repeated.any():
            row = int(repeated.argmax())
            name = f"the id {names[row]!r} is that of an earlier row too"
            raise UserError(f"{chunk.references[row]}: {name}; ids must be unique.")
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        self._runs.append(run)


def _joined(tables: Sequence[Table]) -> Table:
    """Return the rows of several tables; a column that one lacks is empty there."""
    if len(tables) == 1:
        return tables[0]
    names = dict.fromkeys(name for table in tables for name in table.columns)
    columns: dict[str, Cells | None] = {}
    for name in names:
        pieces = [table.columns.get(name, [None] * len(table)) for table in tables]
        present = [listed(cells) for cells in pieces if cells is not None]
        columns[name] = [cell for cells in present for cell in cells] if len(present) == len(pieces) else None
    return Table(tables[0].path, columns, np.concatenate([table.row_numbers for table in tables]), tables[0].unit)
