"""Checkpoints of an unfinished fit: written atomically, verified on reading, set aside when they cannot be used.

A damaged checkpoint costs time, never correctness: the fit starts again. ``latest.json`` names the fit and the files
that belong to it, with their SHA-256 and size, and is written last; a file that it does not name is ignored. Arrays
that never change (snapshots) have files of their own, which the next checkpoint takes over.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from dubio.core.documents import parse_json
from dubio.core.errors import CorruptFile
from dubio.core.files import make_directories, sync_directory
from dubio.core.specs import canonical, to_plain
from dubio.formats.safetensors import write_tensors
from dubio.store.locks import ScratchDirectory, storing
from dubio.store.records import Layout, StoredFile, check_file, file_facts, read_json, verify_file

POINTER = "latest.json"

Arrays = Mapping[str, NDArray[Any]]


def move_aside(layout: Layout, source: Path, kind: str) -> Path:
    """Move something damaged into ``corrupt/`` of its store; return its new path."""
    target = layout.corrupt / f"{kind}-{source.name}-{uuid.uuid4().hex[:8]}"
    with storing(target):
        make_directories(layout.corrupt)
        os.rename(source, target)
        sync_directory(layout.corrupt)
    return target


def read_pointer(directory: Path) -> dict[str, Any]:
    """Return the content of a checkpoint's ``latest.json``, every file that it names verified.

    Raises:
        CorruptFile: When it is missing or of another fit, or a file is not what was written.
    """
    path = directory / POINTER
    pointer: dict[str, Any] = read_json(path)
    settled = pointer.get("settled", {}) if isinstance(pointer, dict) else None
    if not isinstance(settled, dict):
        raise CorruptFile(f"{path}: not what was written.")
    # version 0.1 does not name the fit
    if pointer.get("fit", directory.name) != directory.name:
        raise CorruptFile(f"{path}: the checkpoint of another fit.")
    for facts in (pointer, *settled.values()):
        name = facts.get("file") if isinstance(facts, dict) else None
        check_file(path, name, facts, StoredFile)
        verify_file(directory, str(name), facts)
    return pointer


class FitCheckpoint:
    """The checkpoint of one fit.

    Attributes:
        every_seconds: How often a training should save.
        notes: Sentences about checkpoints that were set aside.
    """

    def __init__(self, layout: Layout, scratch: ScratchDirectory, fit_id: str, every_seconds: float) -> None:
        """Make the handle; nothing is read or written yet."""
        self.every_seconds = every_seconds
        self.notes: list[str] = []
        self._layout = layout
        self._directory = layout.checkpoint(fit_id)
        self._scratch = scratch
        self._settled: dict[str, dict[str, Any]] = {}
        self._loaded = False

    def load(self) -> dict[str, Any] | None:
        """Return the last checkpoint, or None when there is none that is intact.

        Returns:
            ``{"tensors": …, "state": …, "settled": {name: file}}``.
        """
        if self._directory.is_dir() and not os.path.lexists(self._directory / POINTER):
            return None  # its writer died before it was whole
        if not os.path.lexists(self._directory):
            return None
        self._loaded = True
        try:
            pointer = read_pointer(self._directory)
            with safe_open(self._path(pointer), framework="np") as source:
                state = parse_json(source.metadata()["state"], str(self._path(pointer)), CorruptFile)
                tensors = {name: source.get_tensor(name) for name in source.keys()}  # noqa: SIM118
        except (CorruptFile, SafetensorError, OSError, LookupError, TypeError, ValueError) as fault:
            self.set_aside(str(fault))
            return None
        self._settled = pointer.get("settled", {})
        return {"tensors": tensors, "state": state, "settled": self._files()}

    def set_aside(self, reason: str) -> bool:
        """Move the checkpoint that was loaded out of the way, so that the fit starts anew.

        Returns:
            Whether one was loaded since the last call.
        """
        if not self._loaded:
            return False
        target = move_aside(self._layout, self._directory, "checkpoints")
        self.notes.append(f"checkpoint set aside as {target}; its fit starts anew: {reason}")
        self._settled, self._loaded = {}, False
        return True

    def save(
        self, tensors: Arrays, state: Mapping[str, Any], settled: Mapping[str, Arrays] = MappingProxyType({})
    ) -> dict[str, Path]:
        """Replace the checkpoint by this one; the earlier one is valid until the very end.

        Args:
            tensors: Arrays that change from one checkpoint to the next.
            state: Numbers and texts beside them.
            settled: Named groups of arrays that never change: those without a file yet are written.

        Returns:
            The file of each settled group.
        """
        self._settled = {
            name: self._settled[name] if self._has(name) else self._write(group, {}) for name, group in settled.items()
        }
        latest = self._write(tensors, {"state": canonical(to_plain(state)).decode("utf-8")})
        pointer = {**latest, "settled": self._settled, "fit": self._directory.name}
        self._scratch.write_file(self._directory / POINTER, canonical(pointer))
        named = {facts["file"] for facts in (latest, *self._settled.values())}
        with suppress(OSError):  # left to the next checkpoint, or to the end of the fit
            for old in self._directory.glob("*.safetensors"):
                if old.name not in named:
                    old.unlink()
        return self._files()

    def remove(self) -> None:
        """Remove it."""
        self._settled, self._loaded = {}, False
        shutil.rmtree(self._directory, ignore_errors=True)

    def _has(self, name: str) -> bool:
        return name in self._settled and self._path(self._settled[name]).is_file()

    def _path(self, facts: Mapping[str, Any]) -> Path:
        return self._directory / str(facts["file"])

    def _files(self) -> dict[str, Path]:
        return {name: self._path(facts) for name, facts in self._settled.items()}

    def _write(self, tensors: Arrays, metadata: Mapping[str, str]) -> dict[str, Any]:
        """Write tensors into a file named after their content; return its entry in ``latest.json``."""
        fresh = self._scratch.new()
        try:
            with storing(self._directory):
                write_tensors(fresh, tensors, metadata)
                facts = file_facts(fresh)
                make_directories(self._directory)
            name = f"{facts['sha256'][:16]}.safetensors"
            self._scratch.adopt(fresh, self._directory / name)
        finally:
            with suppress(OSError):
                fresh.unlink()
        return {**facts, "file": name}
