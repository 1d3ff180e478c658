"""Checkpoints of an unfinished fit: written atomically, verified on reading, removed when damaged.

A damaged checkpoint costs time, never correctness: the fit starts again. ``latest.json`` names the files that belong to
it, with their SHA-256 and size, and is written last; a file that it does not name is ignored. Arrays that never change
(snapshots) have files of their own, which the next checkpoint takes over.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from dubio.core.errors import CorruptFile
from dubio.core.files import make_directories
from dubio.core.specs import canonical, to_plain
from dubio.formats.safetensors import write_tensors
from dubio.store.locks import ScratchDirectory, storing
from dubio.store.records import Layout, file_facts, read_json, verify_file

POINTER = "latest.json"

Arrays = Mapping[str, NDArray[Any]]


class FitCheckpoint:
    """The checkpoint of one fit.

    Attributes:
        every_seconds: How often a training should save.
    """

    def __init__(self, layout: Layout, scratch: ScratchDirectory, fit_id: str, every_seconds: float) -> None:
        """Make the handle; nothing is read or written yet."""
        self.every_seconds = every_seconds
        self._directory = layout.checkpoint(fit_id)
        self._scratch = scratch
        self._settled: dict[str, dict[str, Any]] = {}

    def load(self) -> dict[str, Any] | None:
        """Return the last checkpoint, or None when there is none that is intact.

        Returns:
            ``{"tensors": …, "state": …, "settled": {name: file}}``.
        """
        if not (self._directory / POINTER).exists():
            return None
        try:
            facts = read_json(self._directory / POINTER)
            settled = dict(facts.get("settled", {}))
            for file in (facts, *settled.values()):
                verify_file(self._directory, str(file["file"]), file)
            with safe_open(self._path(facts), framework="np") as source:
                state = json.loads(source.metadata()["state"])
                tensors = {name: source.get_tensor(name) for name in source.keys()}  # noqa: SIM118
        except (CorruptFile, SafetensorError, OSError, AttributeError, KeyError, TypeError, ValueError):
            self.remove()
            return None
        self._settled = settled
        return {"tensors": tensors, "state": state, "settled": self._files()}

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
        self._scratch.write_file(self._directory / POINTER, canonical({**latest, "settled": self._settled}))
        named = {facts["file"] for facts in (latest, *self._settled.values())}
        with suppress(OSError):  # left to the next checkpoint, or to the end of the fit
            for old in self._directory.glob("*.safetensors"):
                if old.name not in named:
                    old.unlink()
        return self._files()

    def remove(self) -> None:
        """Remove it."""
        self._settled = {}
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
