"""Checkpoints of a fit under way: written whole, compared on reading, dropped when not what was written.

A checkpoint that cannot be trusted costs time, never correctness: the fit starts anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from dubio.errors import CorruptFile
from dubio.store.atomic import Scratch
from dubio.store.fits import tensor_bytes
from dubio.store.identity import canonical
from dubio.store.layout import Layout
from dubio.store.records import file_facts, plain, read_json, verify_file

POINTER = "latest.json"


class FitCheckpoint:
    """The checkpoint of one fit.

    Attributes:
        every_seconds: How often a training should save.
    """

    def __init__(self, layout: Layout, scratch: Scratch, fit_id: str, every_seconds: float) -> None:
        """Make the handle; nothing is read or written yet."""
        self.every_seconds = every_seconds
        self._directory = layout.checkpoint(fit_id)
        self._scratch = scratch

    def load(self) -> dict[str, Any] | None:
        """``{"tensors": …, "state": …}`` as last saved, or None when there is nothing that can be trusted."""
        if not (self._directory / POINTER).exists():
            return None
        try:
            facts = read_json(self._directory / POINTER)
            path = self._directory / str(facts["file"])
            verify_file(self._directory, path.name, facts)
            with safe_open(path, framework="np") as source:
                state = json.loads(source.metadata()["state"])
                return {"tensors": {name: source.get_tensor(name) for name in source.keys()}, "state": state}  # noqa: SIM118
        except (CorruptFile, SafetensorError, KeyError, TypeError, ValueError):
            self.remove()
            return None

    def save(self, tensors: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by this one; until the very end the earlier one stands."""
        content = tensor_bytes(tensors, {"state": canonical(plain(state)).decode("utf-8")})
        facts = file_facts(content)
        name = f"{facts['sha256'][:16]}.safetensors"
        self._scratch.write_file(self._directory / name, content)
        self._scratch.write_file(self._directory / POINTER, canonical({**facts, "file": name}))
        for old in self._directory.glob("*.safetensors"):
            if old.name != name:
                old.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget it."""
        shutil.rmtree(self._directory, ignore_errors=True)
