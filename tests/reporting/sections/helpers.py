"""A small screening benchmark: two eyes a patient, a shift, a split of one class, subgroups."""

from __future__ import annotations

from typing import Any

import numpy as np

from dubio.core.predictions import Predictions
from dubio.reporting.charts import Rows, data_of, specification
from dubio.reporting.section import Figure
from tests.reporting.stored_runs import FakeStore, identifier

CLASSES = ("healthy", "ill")
SPLITS = (("cal", "cal", 240), ("test", "id", 120), ("poor", "shift", 80), ("severe", "shift", 40))
METHODS = (("deterministic", "Deterministic", 1.6), ("mc-dropout", "MC dropout", 0.9))
SEEDS = (0, 1)

World = tuple[FakeStore, dict[str, Any]]


def predictions(split: str, kind: str, rows: int, draw: str, strength: float) -> Predictions:
    shared, own = (np.random.default_rng(int(identifier(*key)[:8], 16)) for key in ((split,), (split, draw)))
    labels = np.ones(rows, dtype=np.int64) if split == "severe" else shared.integers(0, 2, rows)
    clear = shared.gamma(2.0, 1.0, rows) * (0.6 if split == "poor" else 1.0)
    odds = strength * ((2 * labels - 1) * clear + own.normal(0, 1, rows))
    return Predictions(
        logits=np.stack([np.zeros(rows), odds], axis=-1)[None].astype(np.float32),
        labels=labels,
        ood=np.full(rows, kind == "shift"),
        ids=np.array([f"{split}-{row}" for row in range(rows)]),
        group=np.array([f"{split}-patient-{row // 2}" for row in range(rows)]),
        kind=kind,  # type: ignore[arg-type]
        classes=CLASSES,
    )


def screening_world(site: str = "other") -> World:
    """The store and its manifest; every tenth example of a split is of the site ``site``."""
    facts = {
        name: {"site": {"values": ["main", site], "rows": " ".join(str(int(row % 10 == 0)) for row in range(rows))}}
        for name, kind, rows in SPLITS
        if kind != "cal"
    }
    splits = [("train", "train", 500), ("val", "val", 100), *SPLITS]
    task = {
        "name": "eyes", "arguments": {}, "inputs": "image", "target": "multiclass", "classes": list(CLASSES),
        "network": "cnn", "network_arguments": {}, "card": {}, "notes": [], "facts": facts,
        "splits": [{"name": n, "kind": k, "fingerprint": identifier("eyes", n), "examples": e} for n, k, e in splits],
    }  # fmt: skip
    manifest: dict[str, Any] = {
        "schema": 1, "name": "eyes-0a1b2c3d", "benchmark": {"name": "eyes", "seeds": list(SEEDS)}, "tasks": [task],
        "methods": [{"name": name, "title": title, "members": 1, "samples": 0, "family": name}
                    for name, title, _ in METHODS],
        "runs": [], "failures": [],
    }  # fmt: skip
    store = FakeStore(manifest)
    for seed in SEEDS:
        for name, _, strength in METHODS:
            fit, made = identifier("fit", name, seed), identifier("prediction", name, seed)
            for split, kind, rows in SPLITS:
                store.predictions[made, split] = predictions(split, kind, rows, fit, strength)
            store.records[fit] = {"seconds": 2.0, "parameters": 10, "epochs": 3, "bytes": 100, "environment": {}}
            store.records[made] = {"seconds": 0.1, "examples": 480, "bytes": 100, "environment": {}}
            run = {"id": made, "task": "eyes", "network": "cnn", "method": name, "seed": seed, "member": 0}
            manifest["runs"].append({**run, "fits": [fit], "spec": {}})
    return store, manifest


def runs_of(world: World, method: str, split: str) -> list[Predictions]:
    """The predictions of every run of a method on a split."""
    store, manifest = world
    return [store.predictions[run["id"], split] for run in manifest["runs"] if run["method"] == method]


def rows_of(figure: Figure) -> Rows:
    """The rows of a figure whose specification is valid Vega-Lite, and names nothing but fixed fields."""
    chart = figure.chart()
    chart.to_dict()  # validates
    spec = specification(chart)
    users = {row[key] for row in data_of(spec) for key in ("method", "panel", "subset") if key in row}
    assert not any(text in name for text in users for name in _names_in(spec))
    return data_of(spec)


def _names_in(node: Any) -> list[str]:
    """Every field and expression of a specification."""
    if isinstance(node, list):
        return [name for child in node for name in _names_in(child)]
    if not isinstance(node, dict):
        return []
    keys = ("field", "filter", "test", "expr", "calculate", "groupby", "format", "labelExpr", "param")
    own = [str(node[key]) for key in keys if key in node]
    children = [child for key, child in node.items() if key not in ("datasets", "domain")]
    return own + [name for child in children for name in _names_in(child)]
