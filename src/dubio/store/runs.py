"""The store: every fit and prediction under the hash of what it is, and the manifests of benchmark runs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from dubio.core.errors import CorruptFile, StoreError, UnknownName, UserError
from dubio.core.predictions import Predictions
from dubio.core.specs import ID
from dubio.store import fits as fit_files
from dubio.store import pictures as picture_files
from dubio.store import predictions as prediction_files
from dubio.store.atomic import Scratch, storing
from dubio.store.checkpoints import FitCheckpoint
from dubio.store.fits import StoredFit, Tensors
from dubio.store.header import check_header, create_header
from dubio.store.layout import Layout, Room
from dubio.store.locks import BusyError, is_held, locked
from dubio.store.predictions import PredictionWriter, SplitKey
from dubio.store.records import pretty, read_json, read_record, read_spec

MANIFEST_LISTS = ("tasks", "methods", "runs", "failures")
"""What every manifest of a run lists."""


class Store:
    """A directory of fits and predictions, shared by any number of processes.

    Open it with :meth:`open`. Reading needs nothing more; writing makes a scratch directory, which :meth:`close` (or
    leaving the ``with`` block) removes.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._scratch: Scratch | None = None

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
        if not layout.header.exists():
            if not create:
                raise StoreError(f"there is no dubio store at {str(path)!r}.")
            create_header(layout)
        check_header(layout)
        return cls(layout)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.layout.root

    @property
    def scratch(self) -> Scratch:
        """This process's scratch directory, made when first needed."""
        if self._scratch is None:
            self._scratch = Scratch(self.layout.scratch)
            with storing(self.layout.locks):
                self.layout.locks.mkdir(exist_ok=True)
        return self._scratch

    def close(self) -> None:
        """Remove what this process left behind."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    # --- fits -------------------------------------------------------------------------------------------------------

    def ids(self, room: Room) -> tuple[str, ...]:
        """Every fit or prediction there is, sorted."""
        directory = self.layout.room(room)
        return tuple(sorted(filter(ID.fullmatch, os.listdir(directory)))) if directory.is_dir() else ()

    def has_fit(self, fit_id: str) -> bool:
        """Whether there is a fit of that id; its content is compared when it is read."""
        return self.layout.directory("fits", fit_id).is_dir()

    def write_fit(self, spec: Mapping[str, Any], tensors: Tensors, encoder: Any, record: Mapping[str, Any]) -> str:
        """Put a fit in its place, whole; its failure and checkpoint are forgotten. Returns its id."""
        fit_id = fit_files.write_fit(self.layout, self.scratch, spec, tensors, encoder, record)
        self.forget_failure(fit_id)
        self.checkpoint(fit_id).remove()
        return fit_id

    def read_fit(self, fit_id: str) -> StoredFit:
        """A fit: spec, tensors, encoder, record; every file compared with the record.

        Raises:
            CorruptFile: When it is not there or is not what was written.
        """
        return fit_files.read_fit(self.layout, fit_id)

    def checkpoint(self, fit_id: str, every_seconds: float = 600.0) -> FitCheckpoint:
        """The checkpoint of a fit under way."""
        return FitCheckpoint(self.layout, self.scratch, fit_id, every_seconds)

    # --- predictions ------------------------------------------------------------------------------------------------

    def prediction_writer(self, spec: Mapping[str, Any], environment: Mapping[str, Any]) -> PredictionWriter:
        """Collects the predictions on several splits and puts them in place together."""
        return PredictionWriter(self.layout, self.scratch, spec, environment)

    def write_ensemble(self, spec: Mapping[str, Any]) -> str:
        """Put an ensemble's list of members in its place; returns its id."""
        return prediction_files.write_ensemble(self.layout, self.scratch, spec)

    def read_predictions(self, pred_id: str, split_name: str, fingerprint: str) -> Predictions:
        """The predictions on one split; an ensemble's are pooled from its members' files.

        Raises:
            CorruptFile: When a file is not what was written.
            StoreError: When there is no such prediction, or none on that split.
        """
        return prediction_files.read_prediction(self.layout, pred_id, split_name, fingerprint)

    def missing_splits(self, pred_id: str, splits: Sequence[SplitKey]) -> tuple[SplitKey, ...]:
        """Which of these (name, fingerprint) pairs a prediction was not yet made on."""
        return prediction_files.missing_splits(self.layout, pred_id, splits)

    # --- both -------------------------------------------------------------------------------------------------------

    def spec(self, room: Room, identifier: str) -> dict[str, Any]:
        """The specification of a fit or prediction.

        Raises:
            CorruptFile: When its hash is not its id.
        """
        return read_spec(self.layout.directory(room, identifier))

    def record(self, identifier: str) -> dict[str, Any]:
        """Timings, environment and bytes of a fit or prediction; of an ensemble, summed over its members.

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
            return read_record(directory)
        parts = [self.record(member) for member in members]
        return {
            "members": list(members),
            "bytes": sum(part["bytes"] for part in parts),
            "seconds": sum(part["seconds"] for part in parts),
            "examples": parts[0]["examples"],
            "environment": parts[0]["environment"],
            "files": {},
        }

    def verify(self, room: Room, identifier: str) -> None:
        """Compare every file of a fit or prediction with its record.

        Raises:
            CorruptFile: When anything of it is not what was written.
        """
        check = fit_files.verify_fit if room == "fits" else prediction_files.verify_prediction
        check(self.layout, identifier)

    def set_aside(self, room: Room, identifier: str) -> Path | None:
        """Move something damaged out of the way so that it is made anew.

        Verified once more under its lock: another process may have mended it in between.

        Returns:
            Where it was moved to, or None when it is sound by now or someone is mending it.
        """
        source = self.layout.directory(room, identifier)
        target = self.layout.corrupt / f"{room}-{identifier}-{uuid.uuid4().hex[:8]}"
        try:
            with self.lock(identifier):
                try:
                    self.verify(room, identifier)
                except CorruptFile:
                    with storing(target):
                        self.layout.corrupt.mkdir(exist_ok=True)
                        if not source.is_dir():
                            return None
                        os.rename(source, target)
                        return target
        except BusyError:
            pass
        return None

    def lock(self, identifier: str) -> AbstractContextManager[None]:
        """Hold the lock of an id within a block; raises BusyError at once when another process has it."""
        self.scratch  # noqa: B018  makes the directory of the locks
        return locked(self.layout.lock(identifier))

    def is_locked(self, identifier: str) -> bool:
        """Whether some process is making this now."""
        return is_held(self.layout.lock(identifier))

    # --- failures and manifests -------------------------------------------------------------------------------------

    def write_failure(self, identifier: str, failure: Mapping[str, Any]) -> None:
        """Record what went wrong; replaced or forgotten when it is tried again."""
        self.scratch.write_file(self.layout.failure(identifier), pretty(failure))

    def forget_failure(self, identifier: str) -> None:
        """It went well this time."""
        self.layout.failure(identifier).unlink(missing_ok=True)

    def failures(self) -> tuple[dict[str, Any], ...]:
        """Every recorded failure, by id."""
        found = sorted(self.layout.failures.glob("*.json")) if self.layout.failures.is_dir() else []
        return tuple(read_json(path) for path in found)

    def write_manifest(self, manifest: Mapping[str, Any], key: str) -> Path:
        """Keep the manifest of a benchmark run as ``runs/<name>-<id8>.json``.

        Args:
            manifest: The manifest.
            key: The hash of what the run is about; its first eight digits name the file.
        """
        path = self.layout.manifests / f"{manifest['name']}-{key[:8]}.json"
        self.scratch.write_file(path, pretty(manifest))
        return path

    def write_pictures(self, fingerprint: str, pictures: Mapping[int, bytes]) -> None:
        """Keep small copies of some examples of a split, PNG by row."""
        picture_files.write_pictures(self.layout, self.scratch, fingerprint, pictures)

    def read_pictures(self, fingerprint: str) -> dict[int, bytes]:
        """The small copies that are kept of a split's examples, PNG by row; empty where there are none."""
        return picture_files.read_pictures(self.layout, fingerprint)

    def manifests(self) -> tuple[str, ...]:
        """The names of every benchmark run kept here, sorted."""
        directory = self.layout.manifests
        return tuple(sorted(path.stem for path in directory.glob("*.json"))) if directory.is_dir() else ()

    def full_name(self, name: str) -> str:
        """The name of the run that is meant by its name, or by a beginning that fits one alone (``quick``).

        Raises:
            UserError: When no run, or more than one, is meant.
        """
        known = self.manifests()
        fitting = [name] if name in known else [item for item in known if item.startswith(name)]
        if len(fitting) > 1:
            raise UserError(f"run {name!r} may be any of: {', '.join(fitting)}. Name one in full.")
        if not fitting:
            raise UnknownName(f"run in {str(self.path)!r}", name, known)
        return fitting[0]

    def manifest(self, name: str | Path) -> dict[str, Any]:
        """A manifest by its name (``quick-1a2b3c4d``), by a beginning that fits one alone, or by the path of its file.

        Raises:
            UserError: When no run, or more than one, is meant.
            CorruptFile: When the file is not a manifest.
        """
        path = Path(name)
        if path.suffix != ".json" or not path.is_file():
            path = self.layout.manifests / f"{self.full_name(str(name))}.json"
        manifest = read_json(path)
        if not isinstance(manifest, dict) or not all(isinstance(manifest.get(key), list) for key in MANIFEST_LISTS):
            raise CorruptFile(f"{path}: not the manifest of a run.")
        return manifest
