"""The store: every fit and prediction under the hash of its specification, and the manifests of benchmark runs.

A store is a directory with ``store.json`` (its schema), ``fits/``, ``predictions/``, ``checkpoints/``, ``runs/``
(manifests), ``failures/``, ``examples/`` and ``index.sqlite``, which is derived. :class:`Store` is the way in;
:mod:`dubio.store.fits`, :mod:`dubio.store.predictions` and :mod:`dubio.store.examples` know the files of each.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Literal

from dubio.core.errors import CorruptFile, StoreError, UnknownName, UserError
from dubio.core.files import make_directories
from dubio.core.predictions import Predictions
from dubio.core.specs import ID
from dubio.store import fits as fit_files
from dubio.store import predictions as prediction_files
from dubio.store.checkpoints import FitCheckpoint, move_aside
from dubio.store.examples import Content, encode_examples, examples_file, read_examples, shortened
from dubio.store.fits import StoredFit, Tensors
from dubio.store.locks import BusyError, ScratchDirectory, is_held, locked, storing
from dubio.store.predictions import PredictionWriter, SplitKey
from dubio.store.records import (
    EntryKind,
    Layout,
    StoredSplit,
    json_bytes,
    read_json,
    read_manifest,
    read_record,
    read_spec,
    seal,
)

SCHEMA = 1
"""Raised by hand when a store written by this dubio can no longer be read by an older one."""


class Store:
    """A directory of fits and predictions, shared by any number of processes.

    Open it with :meth:`open`. Reading needs nothing more; writing makes a scratch directory, which :meth:`close` (or
    leaving the ``with`` block) removes.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._scratch: ScratchDirectory | None = None

    def __repr__(self) -> str:
        """Return where the store is, and how much it holds."""
        fits, predictions = len(self.ids("fits")), len(self.ids("predictions"))
        return f"Store({str(self.path)!r}): {fits} fits, {predictions} predictions, {len(self.manifests())} runs"

    # --- opening and closing ----------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Path | str, create: bool = True) -> Store:
        """Open the store at a path, making an empty one where there is none.

        Args:
            path: Its directory.
            create: Whether to make it.

        Raises:
            StoreError: When it is not a store, is of a newer schema, or cannot be written.
        """
        layout = Layout(Path(path).absolute())
        if not os.path.lexists(layout.header):
            if not create:
                raise StoreError(f"there is no dubio store at {str(path)!r}.")
            _create_header(layout)
        _check_header(layout)
        return cls(layout)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.layout.root

    @property
    def scratch(self) -> ScratchDirectory:
        """This process's scratch directory, made when first needed."""
        if self._scratch is None:
            self._scratch = ScratchDirectory(self.layout.scratch)
            with storing(self.layout.locks):
                make_directories(self.layout.locks)
            self._sweep_checkpoints()
        return self._scratch

    def _sweep_checkpoints(self) -> None:
        """Remove the checkpoints of finished fits, which a process left that died between the two steps."""
        for path in self.finished_checkpoints():
            with suppress(BusyError), locked(self.layout.lock(path.name)):
                if self.has_fit(path.name):
                    shutil.rmtree(path, ignore_errors=True)

    def finished_checkpoints(self) -> list[Path]:
        """Return the checkpoints of fits that are in the store."""
        paths = [self.layout.checkpoint(name) for name in _ids_in(self.layout.checkpoints)]
        return [path for path in paths if self.has_fit(path.name)]

    def close(self) -> None:
        """Remove this process's scratch directory."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    # --- fits -------------------------------------------------------------------------------------------------------

    def has_fit(self, fit_id: str) -> bool:
        """Return whether there is a fit of that id; its content is verified when it is read."""
        return self.layout.directory("fits", fit_id).is_dir()

    def write_fit(self, spec: Mapping[str, Any], tensors: Tensors, encoder: Any, record: Mapping[str, Any]) -> str:
        """Store a fit, remove its failure and its checkpoint, and return its id."""
        fit_id = fit_files.write_fit(self.layout, self.scratch, spec, tensors, encoder, record)
        self.forget_failure(fit_id)
        self.checkpoint(fit_id).remove()
        return fit_id

    def read_fit(self, fit_id: str) -> StoredFit:
        """Return a fit, every file of it verified.

        Raises:
            CorruptFile: When it is missing or is not what was written.
        """
        return fit_files.read_fit(self.layout, fit_id)

    def checkpoint(self, fit_id: str, every_seconds: float = 600.0) -> FitCheckpoint:
        """Return the checkpoint of an unfinished fit; one that cannot be used is set aside, with a note."""
        return FitCheckpoint(self.layout, self.scratch, fit_id, every_seconds)

    # --- predictions ------------------------------------------------------------------------------------------------

    def prediction_writer(
        self, spec: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> AbstractContextManager[PredictionWriter]:
        """Yield a writer that collects the predictions on several splits; the end of the block stores them together."""
        return prediction_files.write_prediction(self.layout, self.scratch, spec, environment)

    def write_ensemble(self, spec: Mapping[str, Any]) -> str:
        """Store an ensemble's list of members; return its id."""
        return prediction_files.write_ensemble(self.layout, self.scratch, spec)

    def read_predictions(self, pred_id: str, split_name: str, fingerprint: str) -> Predictions:
        """Return the predictions on one split; an ensemble's are pooled from its members' files.

        Raises:
            CorruptFile: When a file is not what was written.
            StoreError: When there is no such prediction, or none on that split.
        """
        return prediction_files.read_prediction(self.layout, pred_id, split_name, fingerprint)

    def missing_splits(self, pred_id: str, splits: Sequence[SplitKey]) -> tuple[SplitKey, ...]:
        """Return the (name, fingerprint) pairs for which this prediction has no file."""
        return prediction_files.missing_splits(self.layout, pred_id, splits)

    # --- both -------------------------------------------------------------------------------------------------------

    def ids(self, kind: EntryKind) -> tuple[str, ...]:
        """Return the ids of all fits or of all predictions, sorted."""
        return tuple(_ids_in(self.layout.entries(kind)))

    def spec(self, kind: EntryKind, identifier: str) -> dict[str, Any]:
        """Return the specification of a fit or prediction.

        Raises:
            CorruptFile: When its hash is not its id.
        """
        return read_spec(self.layout.directory(kind, identifier))

    def record(self, identifier: str) -> dict[str, Any]:
        """Return timings, environment and bytes of a fit or prediction; of an ensemble, summed over its members.

        Raises:
            StoreError: When there is nothing of that id.
        """
        if self.has_fit(identifier):
            return read_record(self.layout.directory("fits", identifier))
        directory = self.layout.directory("predictions", identifier)
        if not directory.is_dir():
            raise StoreError(f"the store {str(self.path)!r} has no fit or prediction {identifier}.")
        members = prediction_files.members_of(read_spec(directory))
        if not members:
            return read_record(directory, StoredSplit)
        records = [read_record(self.layout.directory("predictions", member), StoredSplit) for member in members]
        totals = {key: sum(record[key] for record in records) for key in ("bytes", "seconds")}
        shared = {key: records[0][key] for key in ("examples", "environment")}
        return {"members": list(members), **totals, **shared, "files": {}}

    def verify(self, kind: EntryKind, identifier: str) -> None:
        """Compare every file of a fit or prediction with its record.

        Raises:
            CorruptFile: When any of them is not what was written.
        """
        check = fit_files.verify_fit if kind == "fits" else prediction_files.verify_prediction
        check(self.layout, identifier)

    def place(self, fresh: Path, kind: EntryKind, identifier: str) -> None:
        """Put a fit, or files of a prediction with their record, in place; they lie in the scratch directory."""
        target = self.layout.directory(kind, identifier)
        if kind == "fits":
            self.scratch.adopt_directory(fresh, target)
            self.checkpoint(identifier).remove()
        else:
            record = read_record(fresh)
            environment = record.get("environment", {})
            prediction_files.place_prediction(self.scratch, fresh, target, record["files"], environment)
        self.forget_failure(identifier)

    def set_aside(self, kind: EntryKind, identifier: str) -> Path | None:
        """Move a damaged fit or prediction out of the way so that it is made again.

        It is verified once more under its lock: another process may have replaced it in between.

        Returns:
            Its new path, or None when it is intact by now or another process is working on it.
        """
        source = self.layout.directory(kind, identifier)
        with suppress(BusyError), self.lock(identifier):
            try:
                self.verify(kind, identifier)
            except CorruptFile:
                return move_aside(self.layout, source, kind) if source.is_dir() else None
        return None

    def lock(self, identifier: str) -> AbstractContextManager[None]:
        """Hold the lock of an id within a block; raise BusyError at once when another process has it."""
        self.scratch  # noqa: B018  makes the directory of the locks
        return locked(self.layout.lock(identifier))

    def is_locked(self, identifier: str) -> bool:
        """Return whether some process is making this now."""
        return is_held(self.layout.lock(identifier))

    # --- failures ---------------------------------------------------------------------------------------------------

    def write_failure(self, identifier: str, failure: Mapping[str, Any]) -> None:
        """Record a failure; it is replaced or removed when the fit or prediction is tried again."""
        self.scratch.write_file(self.layout.failure(identifier), json_bytes(failure))

    def forget_failure(self, identifier: str) -> None:
        """Remove the record of a failure, if there is one."""
        with storing(self.layout.failure(identifier)):
            self.layout.failure(identifier).unlink(missing_ok=True)

    def failures(self) -> tuple[dict[str, Any], ...]:
        """Return every recorded failure, by id."""
        return tuple(read_json(path) for path in sorted(self.layout.failures.glob("*.json")))

    # --- manifests of benchmark runs --------------------------------------------------------------------------------

    def write_manifest(self, manifest: Mapping[str, Any], key: str) -> Path:
        """Write the manifest of a benchmark run as ``runs/<name>-<id8>.json``.

        Args:
            manifest: The manifest; the file also holds its hash.
            key: The hash of the run's content; its first eight digits name the file.
        """
        path = self.layout.manifests / f"{manifest['name']}-{key[:8]}.json"
        self.scratch.write_file(path, seal(manifest))
        return path

    def manifests(self) -> tuple[str, ...]:
        """Return the names of all benchmark runs in this store, sorted."""
        return tuple(sorted(path.stem for path in self.layout.manifests.glob("*.json")))

    def full_name(self, name: str) -> str:
        """Return the full name of a run, given that name or a beginning that fits one alone (``quick``).

        Raises:
            UserError: When no run, or more than one, fits.
        """
        names = self.manifests()
        fitting = [name] if name in names else [item for item in names if item.startswith(name)]
        if len(fitting) > 1:
            raise UserError(f"run {name!r} may be any of: {', '.join(fitting)}. Name one in full.")
        if not fitting:
            raise UnknownName(f"run in {str(self.path)!r}", name, names)
        return fitting[0]

    def find(self, name: str) -> tuple[Literal["runs"] | EntryKind, str]:
        """Return what is stored under a name: a run's name or the id of a fit or prediction, or a beginning of either.

        Args:
            name: The name, at least six digits of an id, or the path of a manifest.

        Returns:
            The kind of entry, and its full name; a path as it is.

        Raises:
            UserError: When nothing, or more than one, fits.
        """
        if Path(name).is_file():
            return "runs", name
        runs = self.manifests()
        if any(run.startswith(name) for run in runs):
            return "runs", self.full_name(name)
        if not re.fullmatch("[0-9a-f]{6,}", name):
            raise UnknownName("run", name, runs)
        kinds: tuple[EntryKind, ...] = ("fits", "predictions")
        hits = [(kind, identifier) for kind in kinds for identifier in self.ids(kind) if identifier.startswith(name)]
        if not hits:
            raise UserError(f"the store {str(self.path)!r} has no fit or prediction whose id begins with {name!r}.")
        if len(hits) > 1:
            listed = ", ".join(f"{identifier[:16]}… ({kind[:-1]})" for kind, identifier in hits[:5])
            raise UserError(f"{name!r} is the beginning of {len(hits)} ids: {listed}; give more digits.")
        return hits[0]

    def manifest(self, name: str | Path) -> dict[str, Any]:
        """Return a manifest by its name (``quick-1a2b3c4d``), by a beginning that fits one alone, or by its path.

        Raises:
            UserError: When no run, or more than one, fits.
            CorruptFile: When the file is not a manifest.
        """
        path = Path(name)
        if path.suffix != ".json" or not path.is_file():
            path = self.layout.manifests / f"{self.full_name(str(name))}.json"
        return read_manifest(path)

    # --- examples ---------------------------------------------------------------------------------------------------

    def write_examples(self, fingerprint: str, contents: Mapping[int, Content]) -> None:
        """Store texts, table rows or small images, so that a report can show them when the data is no longer at hand.

        Args:
            fingerprint: Fingerprint of the split: its rows never change, so an example that is stored stays.
            contents: Row → content; it is shortened.
        """
        stored = self.read_examples(fingerprint)
        missing = {row: shortened(content) for row, content in contents.items() if row not in stored}
        if missing:
            content = encode_examples(missing)
            self.scratch.write_file(examples_file(self.layout, fingerprint, content), content)

    def read_examples(self, fingerprint: str) -> dict[int, Content]:
        """Return the stored examples of a split by row, empty where there are none; damaged files are left out."""
        return read_examples(self.layout, fingerprint)


def _ids_in(directory: Path) -> list[str]:
    try:
        return sorted(filter(ID.fullmatch, os.listdir(directory)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as fault:
        raise StoreError(f"{str(directory)!r} cannot be read: {fault.strerror or fault}.") from fault


def _create_header(layout: Layout) -> None:
    """Make an empty directory a store, or raise a StoreError when it holds something else or cannot be written."""
    with storing(layout.root):
        make_directories(layout.root)
        others = sorted(name for name in os.listdir(layout.root) if name not in ("store.json", "tmp"))
        if others and not layout.header.exists():
            raise StoreError(
                f"{str(layout.root)!r} is not a dubio store (it has no store.json) and is not empty: "
                f"it holds {others[0]!r}. Name an empty or a new directory."
            )
        scratch = ScratchDirectory(layout.scratch)
    try:
        scratch.write_file(layout.header, json_bytes({"dubio": "store", "schema": SCHEMA}))
    finally:
        scratch.close()


def _check_header(layout: Layout) -> None:
    """Raise a StoreError when the header is damaged or of a newer schema."""
    try:
        schema = read_json(layout.header)["schema"]
    except CorruptFile as fault:
        raise StoreError(f"{str(layout.header)!r} cannot be read: {fault}") from fault
    except (KeyError, TypeError) as fault:
        raise StoreError(f"{str(layout.header)!r} is not the header of a dubio store: it names no schema.") from fault
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise StoreError(f"{str(layout.header)!r}: its schema must be a whole number from 1; given {schema!r}.")
    if schema > SCHEMA:
        raise StoreError(
            f"the store {str(layout.root)!r} has schema {schema}; this dubio reads up to {SCHEMA}. "
            "Use a newer dubio, or another --store."
        )
