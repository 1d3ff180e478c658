"""A benchmark of the user's own data: the quick benchmark's methods on one task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dubio.core.registry import TASKS
from dubio.core.types import Task
from dubio.runner.benchmark import Benchmark, load_benchmark
from dubio.runner.entries import TaskEntry

NETWORKS = {"text": "textcnn", "image": "cnn", "table": "mlp"}
"""The network for each sort of input, where none is named."""

MODEL = "quick"
"""The benchmark whose methods and seeds are taken."""


def own_benchmark(arguments: Mapping[str, Any]) -> tuple[Benchmark, Task]:
    """The benchmark of the user's data, and the data as read.

    Args:
        arguments: Of the task ``own``.
    """
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(arguments["data"]).stem).strip("-._") or "own"
    named = {"name": stem[:60], **arguments}
    task: Task = TASKS.make("own", **named)
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in named.items()}
    entry = TaskEntry("own", NETWORKS[task.inputs], arguments=plain)
    description = f"The methods of the {MODEL} benchmark on {task.name}."
    return replace(load_benchmark(MODEL), name=named["name"], description=description, tasks=(entry,)), task
