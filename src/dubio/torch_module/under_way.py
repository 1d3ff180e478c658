"""A fit of a module under way, kept in a folder: the same call again goes on where it was interrupted.

The folder holds ``call.json`` (which call it is of), what the training under way has come to (``checkpoints/``, as in a
store) and the trainings of the call that are finished (``fits/``). It is gone when the call is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import CorruptFile, UserError
from dubio.core.specs import canonical, identity
from dubio.store.checkpoints import FitCheckpoint
from dubio.store.fits import read_fit, write_fit
from dubio.store.locks import ScratchDirectory, storing, try_lock
from dubio.store.records import Layout
from dubio.training.checkpoints import Checkpoint

EVERY_SECONDS = 60.0
"""How long a training goes between two savings."""

CALL, LOCK, TMP = "call.json", "lock", "tmp"

GENERATOR = "generator/"
"""How the states of torch's own generators are named among the tensors of a checkpoint."""

Call = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]


class UnderWay:
    """The trainings of one call, each a member's, and of a member each a link of its recipe's chain."""

    def __init__(self, layout: Layout, scratch: ScratchDirectory, call: Call, device: torch.device) -> None:
        """Make the handle; nothing is read or written yet."""
        self._layout, self._scratch, self._call, self._device = layout, scratch, call, device

    def checkpoint(self, member: int, link: int) -> Checkpoint:
        """Where a training is kept."""
        name = identity(self._spec(member, link))
        return WithGenerators(FitCheckpoint(self._layout, self._scratch, name, EVERY_SECONDS), self._device)

    def finished(self, member: int, link: int) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What a training left, and its record; None where it is not finished, or not what was written any more."""
        name = identity(self._spec(member, link))
        if not self._layout.directory("fits", name).is_dir():
            return None
        try:
            found = read_fit(self._layout, name)
        except CorruptFile:
            shutil.rmtree(self._layout.directory("fits", name))
            return None
        # copies: the folder is removed at the end
        tensors = {key: torch.from_numpy(np.array(array)) for key, array in found.tensors.items()}
        return tensors, {key: value for key, value in found.record.items() if key not in ("files", "bytes")}

    def finish(self, member: int, link: int, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
        """Keep what a training left, instead of what it had come to."""
        spec = self._spec(member, link)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        write_fit(self._layout, self._scratch, spec, arrays, {}, record)
        shutil.rmtree(self._layout.checkpoint(identity(spec)), ignore_errors=True)

    def _spec(self, member: int, link: int) -> dict[str, Any]:
        return {**self._call, "member": member, "link": link}


class WithGenerators:
    """A checkpoint that also has the states of torch's own generators: a module may draw from them, as nn.Dropout does.

    Attributes:
        every_seconds: How long to go between two savings.
    """

    def __init__(self, inner: FitCheckpoint, device: torch.device) -> None:
        """Add the generators of the CPU and of this device to a checkpoint."""
        self.every_seconds = inner.every_seconds
        self._inner, self._device = inner, device

    def load(self) -> dict[str, Any] | None:
        """What was saved last, or None; the generators are then as they were."""
        kept = self._inner.load()
        if kept is not None:
            tensors: dict[str, NDArray[Any]] = kept["tensors"]
            torch.set_rng_state(torch.from_numpy(np.array(tensors[f"{GENERATOR}cpu"])))
            if self._device.type == "cuda" and f"{GENERATOR}cuda" in tensors:  # it may have been saved elsewhere
                torch.cuda.set_rng_state(torch.from_numpy(np.array(tensors[f"{GENERATOR}cuda"])), self._device)
        return kept

    def save(self, tensors: Arrays, state: Mapping[str, Any], settled: Mapping[str, Arrays]) -> dict[str, Path]:
        """Replace what is kept; see :class:`~dubio.training.checkpoints.Checkpoint`."""
        states = {f"{GENERATOR}{name}": value.numpy() for name, value in self._states().items()}
        return self._inner.save({**tensors, **states}, state, settled)

    def _states(self) -> dict[str, Tensor]:
        own = {"cpu": torch.get_rng_state()}
        return {**own, "cuda": torch.cuda.get_rng_state(self._device)} if self._device.type == "cuda" else own


@contextmanager
def under_way(folder: str | Path | None, call: Callable[[], Call], device: str) -> Iterator[UnderWay | None]:
    """Keep a call in a folder while this is open; the folder is removed at a good end, and stays at any other.

    Args:
        folder: The folder, which need not exist; None keeps nothing.
        call: Describes the call: whatever decides what is fitted.
        device: Where it is fitted, which decides nothing.

    Raises:
        UserError: When the folder is used by another process, holds another call, or anything else.
    """
    if folder is None:
        yield None
        return
    path, asked = Path(folder), json.loads(canonical(call()))
    name = repr(str(path))
    with storing(path):
        if (
            path.exists()
            and not (path / CALL).is_file()
            and any(item.name not in (LOCK, TMP) for item in path.iterdir())
        ):
            raise UserError(f"checkpoint: {name} holds other files; give a new or empty folder.")
        path.mkdir(parents=True, exist_ok=True)
    lock = try_lock(path / LOCK)
    if lock is None:
        raise UserError(f"checkpoint: another process is using {name}; give another folder.")
    try:
        _check_call(path, asked, name)
        scratch = ScratchDirectory(path / TMP)
        try:
            scratch.write_file(path / CALL, canonical(asked))
            yield UnderWay(Layout(path), scratch, asked, torch.device(device))
        finally:
            scratch.close()
        for item in ("checkpoints", "fits", TMP):
            shutil.rmtree(path / item, ignore_errors=True)
        (path / CALL).unlink(missing_ok=True)
    finally:
        lock.release()
    with suppress(OSError):  # something else is in it, or somebody else already at it
        (path / LOCK).unlink(missing_ok=True)
        path.rmdir()


def _check_call(path: Path, asked: Call, name: str) -> None:
    """Refuse a folder that holds another call."""
    if not (path / CALL).is_file():
        return
    mend = "Give the same arguments, or another folder; or remove this one, and start anew."
    try:
        kept = json.loads((path / CALL).read_bytes())
        differ = [key for key in dict.fromkeys((*asked, *kept)) if kept.get(key) != asked.get(key)]
    except (ValueError, AttributeError, TypeError) as fault:
        raise UserError(f"checkpoint: {name} cannot be read: its {CALL} is damaged. {mend}") from fault
    if differ:
        raise UserError(f"checkpoint: {name} holds a fit of another call: other {', '.join(differ)}. {mend}")
