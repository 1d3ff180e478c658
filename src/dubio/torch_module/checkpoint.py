"""An unfinished fit of a module in a folder: the same call of ``dubio.fit`` resumes where it was interrupted.

The folder holds ``call.json`` (everything that determines the outcome of the call), the state of the current training
(``checkpoints/``, as in a store) and the finished trainings of the call (``fits/``). It is removed when the call ends.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dubio.core.documents import parse_json, read_document
from dubio.core.errors import CorruptFile, UserError
from dubio.core.files import make_directories
from dubio.core.specs import canonical, describe, identity
from dubio.core.types import Target
from dubio.inference.batches import LabelledRows
from dubio.methods.recipe import Recipe
from dubio.store.checkpoints import FitCheckpoint
from dubio.store.locks import storing, try_lock
from dubio.store.records import Layout
from dubio.store.store import Store
from dubio.training.checkpoints import Checkpoint

SCHEMA = 1

EVERY_SECONDS = 60.0
"""Seconds of training between two saves."""

CALL, LOCK, LOCKS, TMP = "call.json", "lock", "locks", "tmp"

GENERATOR = "generator/"
"""Prefix of the states of torch's own generators among the tensors of a checkpoint."""

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""The part of an object's text that differs between processes."""

CallSpec = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]


def call_spec(
    recipe: Recipe,
    module: nn.Module,
    data: tuple[LabelledRows, LabelledRows],
    classes: Sequence[str],
    target: Target,
    seed: int,
) -> dict[str, Any]:
    """Return everything that determines the outcome of a call of ``dubio.fit``.

    Args:
        recipe: The method with its arguments.
        module: The first member's module, with its first weights.
        data: Training and validation examples.
        classes: Names of the classes.
        target: The meaning of the logits.
        seed: The seed.
    """
    state = {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
    network = {  # the module's code cannot be compared
        "layers": ADDRESS.sub("", repr(module)),
        "shapes": {name: list(array.shape) for name, array in state.items()},
        "weights": _digest(*(state[name] for name in sorted(state))),
    }
    examples = {name: _data_spec(rows) for name, rows in zip(("train", "val"), data, strict=True)}
    call = {"classes": list(classes), "target": target, "seed": seed}
    return {"schema": SCHEMA, "method": describe(recipe), "network": network, **examples, **call}


def _data_spec(data: LabelledRows) -> dict[str, Any]:
    """Return size, labels and content of examples; a dataset's views may be random, so its content does not count."""
    values: Any = data.encoded.values  # type: ignore[union-attr]  # a user's examples are rows of numbers
    spec = {"rows": len(values), "shape": list(values.shape[1:]), "labels": _digest(data.labels)}
    return {**spec, "values": _digest(values)} if isinstance(values, np.ndarray) else spec


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class FitFolder:
    """The trainings of one call: for each member, one for each recipe of its chain of starts."""

    def __init__(self, store: Store, call: CallSpec, device: torch.device) -> None:
        """Make the handle; nothing is read or written yet."""
        self._store, self._call, self._device = store, call, device

    def checkpoint(self, member: int, link: int) -> Checkpoint:
        """Return the checkpoint of a training."""
        name = identity(self._spec(member, link))
        return GeneratorCheckpoint(self._store.checkpoint(name, EVERY_SECONDS), self._device)

    def finished(self, member: int, link: int) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return tensors and record of a finished training; None for an unfinished or damaged one."""
        name = identity(self._spec(member, link))
        try:
            fit = self._store.read_fit(name)
        except CorruptFile:
            shutil.rmtree(self._store.layout.directory("fits", name), ignore_errors=True)
            return None
        # copies: the folder is removed at the end
        tensors = {key: torch.from_numpy(np.array(array)) for key, array in fit.tensors.items()}
        return tensors, {key: value for key, value in fit.record.items() if key not in ("files", "bytes")}

    def finish(self, member: int, link: int, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
        """Store a finished training and remove its checkpoint."""
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        self._store.write_fit(self._spec(member, link), arrays, {}, record)

    def _spec(self, member: int, link: int) -> dict[str, Any]:
        return {**self._call, "member": member, "link": link}


class GeneratorCheckpoint:
    """A checkpoint that includes the states of torch's own generators: a module may draw from them, as nn.Dropout does.

    Attributes:
        every_seconds: Seconds between two saves.
    """

    def __init__(self, inner: FitCheckpoint, device: torch.device) -> None:
        """Add the generators of the CPU and of this device to a checkpoint."""
        self.every_seconds = inner.every_seconds
        self._inner, self._device = inner, device

    def load(self) -> dict[str, Any] | None:
        """Return what was saved last, or None, and restore the generators."""
        saved = self._inner.load()
        if saved is not None:
            tensors: dict[str, NDArray[Any]] = saved["tensors"]
            torch.set_rng_state(torch.from_numpy(np.array(tensors[f"{GENERATOR}cpu"])))
            if self._device.type == "cuda" and f"{GENERATOR}cuda" in tensors:  # it may have been saved on a CPU
                torch.cuda.set_rng_state(torch.from_numpy(np.array(tensors[f"{GENERATOR}cuda"])), self._device)
        return saved

    def save(self, tensors: Arrays, state: Mapping[str, Any], settled: Mapping[str, Arrays]) -> dict[str, Path]:
        """Replace what is saved; see :class:`~dubio.training.checkpoints.Checkpoint`."""
        states = {f"{GENERATOR}cpu": torch.get_rng_state().numpy()}
        if self._device.type == "cuda":
            states[f"{GENERATOR}cuda"] = torch.cuda.get_rng_state(self._device).numpy()
        return self._inner.save({**tensors, **states}, state, settled)

    def set_aside(self, reason: str) -> bool:
        """Move what was loaded out of the way; return whether anything was loaded."""
        return self._inner.set_aside(reason)


@contextmanager
def fit_folder(folder: str | Path, call: CallSpec, device: str) -> Iterator[FitFolder]:
    """Keep a call in a folder during the block; the folder is removed when the block ends without an exception.

    Args:
        folder: The folder, which need not exist.
        call: The specification of the call.
        device: The device of the fit, which does not belong to the specification.

    Raises:
        UserError: When another process uses the folder, or it holds another call or other files.
    """
    path, spec = Path(folder), json.loads(canonical(call))
    name = repr(str(path))
    _make_folder(path, name)
    lock = try_lock(path / LOCK)
    if lock is None:
        raise UserError(f"checkpoint: another process is using {name}; give another folder.")
    try:
        _check_call(path, spec, name)
        with Store(Layout(path)) as store:
            store.scratch.write_file(path / CALL, canonical(spec))
            yield FitFolder(store, spec, torch.device(device))
        for item in ("checkpoints", "fits", "corrupt", LOCKS, TMP):
            shutil.rmtree(path / item, ignore_errors=True)
        (path / CALL).unlink(missing_ok=True)
    finally:
        lock.release()
    with suppress(OSError):  # the user's own files are in it, or another process uses it already
        (path / LOCK).unlink(missing_ok=True)
        path.rmdir()


def _make_folder(path: Path, name: str) -> None:
    """Make the folder; refuse one that holds other files."""
    with storing(path):
        in_use = path.exists() and any(item.name not in (LOCK, LOCKS, TMP) for item in path.iterdir())
        if in_use and not (path / CALL).is_file():
            raise UserError(f"checkpoint: {name} holds other files; give a new or empty folder.")
        make_directories(path)


def _check_call(path: Path, spec: CallSpec, name: str) -> None:
    """Refuse a folder that holds another call."""
    if not (path / CALL).is_file():
        return
    hint = "Give the same arguments, or another folder; or remove this one to start again."
    try:
        stored = parse_json(read_document(path / CALL), str(path / CALL))
        different = [key for key in dict.fromkeys((*spec, *stored)) if stored.get(key) != spec.get(key)]
    except (ValueError, AttributeError, TypeError) as fault:
        raise UserError(f"checkpoint: {name} cannot be read: its {CALL} is damaged. {hint}") from fault
    if different:
        raise UserError(f"checkpoint: {name} holds a fit of another call: different {', '.join(different)}. {hint}")
