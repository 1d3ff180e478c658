"""Predict a file of rows: chunk by chunk, in bounded memory, resumable, into one file.

Finished chunks are files in ``OUTPUT.parts``, beside a plan that says of which model and which rows they are. The same
command continues there; the last step joins them, and removes the folder. Columns of all rows are joined in mapped
files and written block by block: in memory are, of all rows, 16 bytes of a hash of their ids, which must be unique.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.csv_files import CsvTable, Repeated
from dubio.core.errors import BadFile, MissingExtra, StoreError, UserError
from dubio.core.files import make_directories, open_atomic, write_file, writing
from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions, join_names
from dubio.deployment.inputs import RowNotes
from dubio.deployment.model import Model
from dubio.deployment.row_files import Chunk, RowFile, UniqueIds
from dubio.formats.arrays import SCORE
from dubio.formats.prediction_tables import RESERVED
from dubio.formats.predictions import SYSTEM_KEY, read_verified, write_predictions
from dubio.store.records import json_bytes

TABLES = (".csv", ".parquet")
SUFFIXES = (".safetensors", ".npz", *TABLES)
PLAN = "plan.json"
_BY_SAMPLE = ("logits", "data_variance", "model_variance")

Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class PredictionJob:
    """The prediction of a file of rows.

    Attributes:
        model: The model.
        source: The rows.
        output: The file to write: .safetensors (everything), .parquet, .csv or .npz.
        all_samples: Whether every sample is written, and not the pooled probabilities alone.
        progress: Called with the number of rows that are done.
    """

    model: Model
    source: RowFile
    output: Path
    all_samples: bool = False
    progress: Progress = field(default=lambda rows: None)

    def __post_init__(self) -> None:
        suffix = self.output.suffix.lower()
        if suffix not in SUFFIXES:
            raise UserError(f"--output {str(self.output)!r} must end in {', '.join(SUFFIXES)}.")
        if suffix == ".parquet":
            _pyarrow()
        if self.all_samples and suffix == ".npz":
            raise UserError("--samples: an npz file holds pooled probabilities; name a .safetensors file.")

    @property
    def parts(self) -> Path:
        """The folder of finished chunks."""
        return self.output.with_name(f"{self.output.name}.parts")

    def run(self) -> tuple[Predictions, tuple[str, ...]]:
        """Predict all rows and write the file; return the predictions and what looks unlike training.

        Raises:
            UserError: For rows that do not fit; nothing stays, for the corrected file is another one.
            StoreError: When a chunk cannot be written; finished ones stay.
        """
        finished = self._begin()
        counter = None if self.model.training is None else self.model.training.counter()
        files: list[Path] = []
        notes = RowNotes()
        ids = UniqueIds()
        rows = 0

        def use(chunk: Chunk) -> None:
            nonlocal rows
            ids.add(chunk)
            path = self.parts / f"{len(files):06d}.safetensors"
            examples, _ = self.model.form.examples(chunk.rows, chunk.references)
            if counter is not None:
                counter.add(examples, self.model.encoder)
            if path.name not in finished:
                predictions = self.model.of_examples(examples)
                labels = predictions.labels if chunk.labels is None else chunk.labels
                with writing(path, StoreError):
                    write_predictions(path, predictions.with_checked(ids=chunk.ids, labels=labels, group=chunk.group))
            files.append(path)
            notes.unused.update(dict.fromkeys(chunk.unused))
            notes.add(self.model.form, examples.inputs)
            rows += len(examples)
            self.progress(rows)

        try:
            self.source.read(use)
        except StoreError:  # the same command may continue once there is space
            raise
        except UserError:
            self.finish()
            raise
        predictions = self._joined(files).with_checked(notes=notes.texts)
        self._write(predictions)
        return predictions, () if counter is None else counter.warnings()

    def finish(self) -> None:
        """Remove the finished chunks."""
        shutil.rmtree(self.parts, ignore_errors=True)

    def _begin(self) -> set[str]:
        """Return the names of the chunks that an earlier call has finished; another plan's are removed."""
        plan = {"model": self.model.identity, "rows": self.source.fingerprint(), "chunk": self.source.chunk}
        content = json_bytes(plan)
        with writing(self.parts):
            if self.parts.is_dir() and (
                not (self.parts / PLAN).is_file() or (self.parts / PLAN).read_bytes() != content
            ):
                shutil.rmtree(self.parts)
            make_directories(self.parts)
            write_file(self.parts / PLAN, content)
            return {path.name for path in self.parts.glob("*.safetensors") if _is_whole(path)}

    def _joined(self, files: Sequence[Path]) -> Predictions:
        """Return the predictions of all chunks: every column is a mapped file, and one chunk at a time is read."""
        first, sizes = read_verified(files[0]), list[int]()
        kinds: dict[str, list[np.dtype[Any]]] = {}
        for chunk in map(read_verified, files):
            sizes.append(len(chunk))
            for name, column in _columns(chunk).items():
                kinds.setdefault(name, []).append(column.dtype)
        arrays: dict[str, Any] = {}
        for name, dtypes in kinds.items():
            if len(dtypes) == len(files):
                shape = list(_columns(first)[name].shape)
                shape[name in _BY_SAMPLE] = sum(sizes)
                arrays[name] = self._mapped(name, tuple(shape), max(dtypes, key=lambda dtype: dtype.itemsize))
        stop = 0
        for chunk in map(read_verified, files):
            start, stop = stop, stop + len(chunk)
            for name, array in arrays.items():
                rows = array[:, start:stop] if name in _BY_SAMPLE else array[start:stop]
                rows[...] = _columns(chunk)[name]
        if "group" in kinds.keys() - arrays.keys():  # of JSON Lines: some of its objects have none
            arrays["group"] = join_names([chunk.group for chunk in map(read_verified, files)], sizes)
        scores = {name.removeprefix(SCORE): arrays.pop(name) for name in [*arrays] if name.startswith(SCORE)}
        return first.with_checked(**arrays, scores=scores)

    def _pooled(self, predictions: Predictions) -> Predictions:
        """Return one sample with the pooled probabilities, in a mapped file."""
        shape = (1, *predictions.logits.shape[1:])
        logits = self._mapped("logits.pooled", shape, np.dtype(np.float32))
        for block in row_blocks(*predictions.logits.shape):
            rows = predictions.take(np.arange(block.start, block.stop))
            logits[0, block] = rows.log_probs
            if predictions.target == "multilabel":
                logits[0, block] -= rows.log_complements
        fresh: dict[str, Any] = {"logits": logits, "member": np.zeros(1, dtype=np.int64), "temperature": 1.0}
        return predictions.with_checked(**fresh, data_variance=None, model_variance=None)

    def _mapped(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array in a mapped file, whose space on the disk is taken first.

        A disk that fills up while a map is written ends the process without a word.
        """
        path = self.parts / f"{name}.array"
        with writing(path, StoreError):
            with path.open("wb") as handle:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle.fileno(), 0, prod(shape) * dtype.itemsize)
            return np.memmap(path, dtype, "r+", shape=shape)

    def _write(self, predictions: Predictions) -> None:
        suffix = self.output.suffix.lower()
        if suffix not in TABLES:
            with writing(self.output):
                write_predictions(self.output, predictions if self.all_samples else self._pooled(predictions))
            return
        if self.all_samples and predictions.temperature != 1:
            raise UserError("--samples: a table cannot state the temperature of samples; name a .safetensors file.")
        with writing(self.output), open_atomic(self.output) as sink:
            (_write_csv if suffix == ".csv" else _write_parquet)(sink, predictions, self.all_samples)


def _columns(chunk: Predictions) -> dict[str, NDArray[Any]]:
    """Return what a chunk has for each of its rows, by name."""
    names = (*_BY_SAMPLE, "labels", "ood", "ids", "group")
    columns = {name: getattr(chunk, name) for name in names} | {SCORE + name: c for name, c in chunk.scores.items()}
    return {name: column for name, column in columns.items() if column is not None}


def table_blocks(predictions: Predictions, all_samples: bool, size: int = 4096) -> Iterator[dict[str, Any]]:
    """Yield the columns of a table of predictions, block by block: pooled probabilities, or the logits of each sample.

    A method's own uncertainties are columns ``score.<name>``.

    The columns of classes have their names, or ``p0``, ``p1`` … (``logit0`` …) where a name is that of another column.
    """
    names = predictions.classes or ()
    others = {*RESERVED, "sample", "member", ""}
    if not names or others & set(names) or len(set(names)) < len(names):
        names = tuple(f"{'logit' if all_samples else 'p'}{k}" for k in range(predictions.class_count))
    ids, labelled = predictions.ids, predictions.target != "multilabel" and bool((predictions.labels >= 0).any())
    for start in range(0, len(predictions), size):
        rows = predictions.take(np.arange(start, min(start + size, len(predictions))))
        side: dict[str, Any] = {"id": rows.ids} if ids is not None else {}
        side |= {"group": rows.group} if rows.group is not None else {}
        if labelled:
            titles = np.array([*(predictions.classes or map(str, range(rows.class_count))), ""], dtype=np.str_)
            side["label"] = titles[rows.labels]
        side |= {SCORE + name: score for name, score in rows.scores.items()}
        if not all_samples:
            yield side | dict(zip(names, rows.probs.T, strict=True))
            continue
        for sample in range(rows.samples):
            position = {"sample": np.full(len(rows), sample), "member": np.full(len(rows), rows.member[sample])}
            yield side | position | dict(zip(names, rows.logits[sample].T, strict=True))


def _write_csv(sink: Any, predictions: Predictions, all_samples: bool) -> None:
    """Write a table as CSV; whether a cell must be escaped is known only at the end, so that blocks are made twice."""

    def rows() -> Iterator[tuple[Any, ...]]:
        for block in table_blocks(predictions, all_samples):
            yield from zip(*(column.tolist() for column in block.values()), strict=True)

    header = [*next(table_blocks(predictions, all_samples))]
    for line in CsvTable(header, Repeated(rows), lambda value: f"{value:.9g}").lines(raw=False):
        sink.write(line.encode("utf-8"))


def _write_parquet(sink: Any, predictions: Predictions, all_samples: bool) -> None:
    arrow, parquet = _pyarrow()
    writer = None
    facts = {SYSTEM_KEY: predictions.system} if predictions.system else {}
    for block in table_blocks(predictions, all_samples):
        table = arrow.table({name: arrow.array(column) for name, column in block.items()}, metadata=facts)
        writer = writer or parquet.ParquetWriter(sink, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as missing:
        raise MissingExtra("writing a Parquet file", "parquet") from missing
    return pyarrow, parquet


def _is_whole(path: Path) -> bool:
    """Return whether a chunk can be read; chunks are written atomically, and a disk may still lose one."""
    try:
        read_verified(path)
    except (BadFile, OSError, ValueError, json.JSONDecodeError):
        path.unlink(missing_ok=True)
        return False
    return True
