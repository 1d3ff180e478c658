"""Made-up images in the forms that CIFAR comes in.

Small copies of corpora, placed in a folder and made into tasks.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.core.registry import TASKS
from dubio.core.types import Task
from dubio.testing import check_task


def made(count: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 32, 32, 3] and labels, every class equally often."""
    images = np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
    return images, (np.arange(count) % classes).astype(np.uint8)


def flat(images: np.ndarray) -> np.ndarray:
    """Rows of a red, a green and a blue plane, as the authors' files have them."""
    return np.stack([np.concatenate([image[..., c].ravel() for c in range(3)]) for image in images])


def python_files(folder: Path, label: str, parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    folder.mkdir(parents=True)
    for name, (images, labels) in parts.items():
        (folder / name).write_bytes(pickle.dumps({"data": flat(images), label: labels.tolist()}, 2))


def ten(seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"data_batch_{k}": made(20, 10, seed + k) for k in range(1, 6)} | {"test_batch": made(20, 10, seed + 6)}


def npz(path: Path, seed: int = 0) -> Path:
    parts = ten(seed)
    train = [parts[f"data_batch_{k}"] for k in range(1, 6)]
    x, y = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    np.savez(path, x_train=x, y_train=y, x_test=parts["test_batch"][0], y_test=parts["test_batch"][1])
    return path


def same(one, other) -> bool:
    return [(s.name, s.fingerprint) for s in one.splits] == [(s.name, s.fingerprint) for s in other.splits]


def put(path: Path, text: str, encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))


def make(name: str, folder: Path, **arguments: Any) -> Task:
    made: Task = TASKS.make(name, data_dir=str(folder), **arguments)
    findings = [finding for finding in check_task(made) if "also in split" not in str(finding)]
    assert not findings, findings
    return made


def sizes(task: Task) -> dict[str, int]:
    return {split.name: len(split) for split in task.splits}


def ids(task: Task, *names: str) -> list[str]:
    """Return the ids of these splits."""
    return [str(i) for name in names for i in task.split(name).data.ids]


def needs(real: Path, file: str) -> None:
    if not (real / file).is_file():
        pytest.skip(f"{file} is not among the real data")


def make_real(name: str, folder: Path, **arguments: Any) -> Task:
    task: Task = TASKS.make(name, data_dir=str(folder), **arguments)
    ids = np.concatenate([split.data.ids for split in task.splits if split.data.ids is not None])
    assert len(np.unique(ids)) == len(ids) == sum(len(split) for split in task.splits)
    return task
