"""Small copies of corpora, placed in a folder and made into tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dubio.core.registry import TASKS
from dubio.core.types import Task
from dubio.testing import check_task


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
