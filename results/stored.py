"""The predictions of every run of a store, by task, method and training."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.files import write_file
from dubio.core.predictions import Predictions, join
from dubio.core.specs import identity
from dubio.core.types import FloatArray
from dubio.reporting.manifest_view import MethodRun, SplitView, TaskView, read_manifest
from dubio.reporting.run_view import lineage_in
from dubio.reporting.stored_run import open_run
from dubio.store import Store
from dubio.studies.text.as_published import in_tested_order

SMALLEST_LOGIT = -1e4
"""Logarithms of probabilities below it, zero for any score, become finite."""


@dataclass(frozen=True, eq=False)
class Stored:
    """The predictions of one training, or of one ensemble; ``computes`` unless only scores computed before are used."""

    store: Store
    task: TaskView
    run: MethodRun
    computes: bool = True

    def in_domain(self) -> Predictions:
        """Return those of the in-domain test set, its samples pooled."""
        return pooled(self.task.read(self.store, self.run, self.task.in_domain))

    def with_ood(self) -> Predictions | None:
        """Return those of the in-domain and the OOD test set in their common order; None without the latter."""
        splits = self.task.of_kind("ood")
        return self.beside(*splits) if splits else None

    def beside(self, *splits: SplitView) -> Predictions:
        """Return those of the in-domain test set and of other splits, as OOD rows, in their common order."""
        outside = join([pooled(self.task.read(self.store, self.run, split)) for split in splits])
        return in_tested_order(self.in_domain(), outside)

    @property
    def tested(self) -> tuple[str, ...]:
        """What was predicted: tasks that share their trainings share the ids of their runs, too."""
        return (self.run.id, *(split.fingerprint for split in self.task.splits))

    @property
    def first_trainings(self) -> tuple[str, ...]:
        """The trainings that its fits continue, or the fits themselves: networks drawn in the same way share them."""
        return tuple(lineage_in(self.store, fit)[-1] for fit in self.run.fits)

    def cached(self, purpose: Sequence[Any], compute: Callable[[], Sequence[Any]]) -> FloatArray:
        """Return numbers of these predictions, computed once per store, so that writing a page can be interrupted."""
        key = identity([*self.tested, *purpose])
        path = self.store.path / "derived" / "results" / f"{key}.json"
        if path.is_file():
            return np.array(json.loads(path.read_text(encoding="utf-8")), dtype=np.float64)
        if not self.computes:
            return np.empty(0)
        values = np.array(compute(), dtype=np.float64)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(values.tolist()))
        return values


Runs = Mapping[tuple[str, str], Mapping[tuple[int, int | None], Stored]]
"""(task, method) → (seed, member) → predictions."""


def read_runs(path: Path, *, computes: bool = True) -> Runs:
    """Return what the manifests of a store name, without baselines, each prediction once; nothing without a store."""
    collected: dict[tuple[str, str], dict[tuple[int, int | None], Stored]] = {}
    if not (path / "store.json").exists():
        return collected
    store = Store.open(path, create=False)
    for file in sorted((path / "runs").glob("*.json")):
        view = read_manifest(open_run(file.stem, store=path).manifest)
        tasks = {task.key: task for task in view.tasks}
        baselines = {method.name for method in view.methods if method.baseline}
        for own in (run for run in view.runs if run.method not in baselines):
            key = own.task, own.method
            stored = Stored(store, tasks[own.task], own, computes)
            collected.setdefault(key, {}).setdefault((own.seed, own.member), stored)
    return collected


def pooled(p: Predictions) -> Predictions:
    """Return the same probabilities as one sample: all that scores of pooled probabilities need, in little memory."""
    logs = p.log_probs if p.target != "multilabel" else p.log_probs - p.log_complements
    logits = np.clip(logs, SMALLEST_LOGIT, -SMALLEST_LOGIT).astype(np.float32)[None]
    return Predictions(
        logits, p.labels, p.target, ood=p.ood, ids=p.ids, group=p.group, empty_decision=p.empty_decision
    )
