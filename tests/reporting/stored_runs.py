"""Whole benchmark runs of invented predictions: tasks, methods and seeds, in a store that answers from memory."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import numpy as np

from dubio.core.errors import StoreError
from dubio.core.predictions import Predictions, pool_members
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.run_view import RunView
from dubio.store.examples import Content

METHODS = [
    ("deterministic", "Deterministic", 1, 0, "deterministic", 1.0),
    ("mc-dropout", "MC dropout", 1, 5, "mc-dropout", 1.3),
    ("mc-concrete-dropout", "MC concrete dropout", 1, 5, "mc-concrete-dropout", 1.25),
    ("deep-ensemble", "Deep ensemble", 2, 0, "deterministic", 1.0),
    ("mc-dropout-ensemble", "MC dropout ensemble", 2, 5, "mc-dropout", 1.3),
    ("mc-concrete-dropout-ensemble", "MC concrete dropout ensemble", 2, 5, "mc-concrete-dropout", 1.25),
]
SEVERITIES = (1, 2, 3)
TASKS = [
    (
        "digits",
        "image",
        ["0", "1", "2", "3"],
        [("test", "id", 300), ("novel", "ood", 150)]
        + [(f"{base}-{k}", "shift", 200) for base in ("blur", "noise") for k in SEVERITIES],
    ),
    ("screening", "table", ["healthy", "ill"], [("test", "id", 200)]),
    ("reviews", "text", ["bad", "good"], [("test", "id", 250), ("elsewhere", "shift", 220)]),
]
SEEDS = (0, 1)


class FakeStore:
    """Answers ``read_predictions`` and ``record`` as a store does, and counts how often it is asked."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.contents = manifest
        self.predictions: dict[tuple[str, str], Predictions] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.specs: dict[str, dict[str, Any]] = {}
        self.examples: dict[str, dict[int, Content]] = {}
        self.reads = 0

    def manifests(self) -> list[str]:
        return [self.contents["name"]]

    def manifest(self, name: str) -> dict[str, Any]:
        if name != self.contents["name"]:
            raise StoreError(f"no run {name!r}")
        return self.contents

    def read_predictions(self, pred_id: str, split_name: str, fingerprint: str) -> Predictions:
        self.reads += 1
        try:
            return self.predictions[pred_id, split_name]
        except KeyError:
            raise StoreError(f"no predictions {pred_id} on {split_name}") from None

    def record(self, identifier: str) -> dict[str, Any]:
        return self.records[identifier]

    def read_examples(self, fingerprint: str) -> dict[int, Content]:
        return self.examples.get(fingerprint, {})

    def spec(self, kind: str, identifier: str) -> dict[str, Any]:
        return self.specs.get(identifier, {})


def identifier(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def predictions(
    task: str,
    split: str,
    kind: str,
    rows: int,
    classes: int,
    *,
    draw: tuple[object, ...],
    samples: int,
    strength: float,
) -> Predictions:
    """Plausible logits: the same hard and easy examples for every method, its own noise for every fit and sample."""
    shared = np.random.default_rng(int(identifier(task, split)[:8], 16))
    own = np.random.default_rng(int(identifier(task, split, *draw)[:8], 16))
    severity = int(split[-1]) if split[-1].isdigit() else 0
    labels = shared.integers(0, classes, rows)
    clear = shared.gamma(2.0, 1.6, rows) * (0.25 if kind == "ood" else 1.0) * (1 - 0.14 * severity)
    signal = np.eye(classes)[labels] * clear[:, None]
    fit_noise = own.normal(0, 1.1, (rows, classes))
    sample_noise = own.normal(0, 0.8, (max(1, samples), rows, classes)) * (samples > 0)
    logits = (strength * 1.7 * (signal + fit_noise / strength + sample_noise)).astype(np.float32)
    known = np.full(rows, -1) if kind == "ood" else labels
    return Predictions(
        logits=logits,
        labels=known.astype(np.int64),
        ood=np.full(rows, kind in ("shift", "ood")),
        ids=np.array([f"{split}-{i}" for i in range(rows)]),
        kind=kind,  # type: ignore[arg-type]
    )


def make_world(seeds: tuple[int, ...] = SEEDS, kept_aside: int = 0) -> tuple[FakeStore, dict[str, Any]]:
    """The store and the manifest of one run; ``kept_aside`` examples a task make a calibration split."""
    manifest: dict[str, Any] = {
        "schema": 1,
        "name": "quick-0a1b2c3d",
        "benchmark": {"name": "quick", "seeds": list(seeds)},
        "tasks": [_task(*task, kept_aside) for task in TASKS],
        "methods": [
            {"name": name, "title": title, "members": members, "samples": samples, "family": family}
            for name, title, members, samples, family, _ in METHODS
        ],
        "runs": [],
        "failures": [
            {
                "id": "f" * 64,
                "what": "fit",
                "task": "reviews",
                "method": "mc-dropout",
                "error": "the loss is not a number after epoch 3",
            }
        ],
    }
    store = FakeStore(manifest)
    for task in manifest["tasks"]:
        for seed in seeds:
            for method in METHODS:
                _add_runs(store, manifest, task, seed, method)
    return store, manifest


def _task(
    name: str, inputs: str, classes: list[str], splits: list[tuple[str, str, int]], kept_aside: int
) -> dict[str, Any]:
    cal = [("cal", "cal", kept_aside)] if kept_aside else []
    parts = [("train", "train", 1200), ("val", "val", 200), *cal, *splits]
    return {
        "name": name,
        "arguments": {},
        "inputs": inputs,
        "target": "multiclass",
        "classes": classes,
        "network": {"image": "cnn", "table": "mlp", "text": "textcnn"}[inputs],
        "network_arguments": {},
        "card": {
            "source": f"package {name}",
            "revision": "1.2.3",
            "licence": "BSD-3-Clause",
            "citation": "A. Author (1998), A data set.",
            "description": f"The {name} of an invented world.",
        },
        "notes": ["3 exact duplicates between train and test were dropped from train."] if name == "digits" else [],
        "splits": [{"name": n, "kind": k, "fingerprint": identifier(name, n), "examples": e} for n, k, e in parts],
    }


def _add_runs(
    store: FakeStore,
    manifest: dict[str, Any],
    task: dict[str, Any],
    seed: int,
    method: tuple[str, str, int, int, str, float],
) -> None:
    name, _, members, samples, family, strength = method
    fits = [identifier("fit", task["name"], family, seed, m) for m in range(2)]
    singles = [identifier("pred", fit, samples) for fit in fits]
    if members == 1:
        for member, (fit, pred) in enumerate(zip(fits, singles, strict=True)):
            _add_single(store, task, fit, pred, seed, samples, strength)
            manifest["runs"].append(_run(pred, task, name, seed, member, [fit]))
        return
    pooled = identifier("pred", *singles)
    for split in _tested(task):
        parts = [store.predictions[pred, split["name"]] for pred in singles]
        store.predictions[pooled, split["name"]] = pool_members(parts)
    manifest["runs"].append(_run(pooled, task, name, seed, None, fits))
    seconds = sum(store.records[pred]["seconds"] for pred in singles)
    store.records[pooled] = {**store.records[singles[0]], "seconds": seconds}


def _add_single(
    store: FakeStore, task: dict[str, Any], fit: str, pred: str, seed: int, samples: int, strength: float
) -> None:
    _add_predictions(store, task, fit, pred, samples, strength)
    jitter = int(fit[:4], 16) / 65535
    store.records[fit] = {
        "seconds": 4.0 + jitter,
        "parameters": 12345,
        "epochs": 20,
        "bytes": 50_000,
        "environment": {"dubio": "0.1", "torch": "2.6", "python": "3.11"},
    }
    examples = sum(split["examples"] for split in _tested(task))
    store.records[pred] = {
        "seconds": 0.02 * max(1, samples),
        "examples": examples,
        "bytes": 9_000,
        "environment": {"dubio": "0.1", "torch": "2.6", "python": "3.11"},
    }


def _add_predictions(
    store: FakeStore, task: dict[str, Any], fit: str, pred: str, samples: int, strength: float
) -> None:
    for split in _tested(task):
        store.predictions[pred, split["name"]] = predictions(
            task["name"],
            split["name"],
            split["kind"],
            split["examples"],
            len(task["classes"]),
            draw=(fit,),
            samples=samples,
            strength=strength,
        )


def _run(
    pred: str, task: dict[str, Any], method: str, seed: int, member: int | None, fits: list[str]
) -> dict[str, Any]:
    return {
        "id": pred,
        "task": task["name"],
        "network": task["network"],
        "method": method,
        "seed": seed,
        "member": member,
        "fits": fits,
        "spec": {"schema": 1, "kind": "prediction", "fit": fits[0]},
    }


def _tested(task: dict[str, Any]) -> list[dict[str, Any]]:
    return [split for split in task["splits"] if split["kind"] in ("cal", "id", "shift", "ood")]


# -- the same with what text benchmarks store: rates, epochs, two networks on a task, multipliers

SITES = ("K1", "K2", "K3", "mu")
MULTIPLIERS = (1.0, 5.0, 15.0)


def make_text_world() -> tuple[FakeStore, dict[str, Any]]:
    """One seed; the task ``reviews`` under two networks, and a method in three multipliers on it."""
    store, manifest = make_world((0,))
    manifest = copy.deepcopy(manifest)
    _add_records(store, manifest)
    _add_network(store, manifest)
    for multiplier in MULTIPLIERS:
        _add_multiplier(store, manifest, multiplier)
    return store, manifest


def _add_records(store: FakeStore, manifest: dict[str, Any]) -> None:
    """Best epochs everywhere, rates where they are learned or fixed."""
    for run in manifest["runs"]:
        for fit in run["fits"]:
            rng = np.random.default_rng(int(fit[:8], 16))
            record = store.records[fit]
            record["best_epoch"] = int(rng.integers(1, 20))
            if "concrete" in run["method"]:
                store.specs[fit] = {"recipe": {"edits": [{"part": "concrete_dropout", "start": 0.1}]}}
                record["rates"] = {site: float(rate) for site, rate in zip(SITES, rng.uniform(0, 0.5, 4), strict=True)}
            elif "dropout" in run["method"]:
                store.specs[fit] = {"recipe": {"edits": [{"part": "dropout", "p": 0.5}]}}
                record["rates"] = dict.fromkeys(SITES, 0.5)


def _add_network(store: FakeStore, manifest: dict[str, Any]) -> None:
    """The task ``reviews`` once more, learned by another network with the deterministic method alone."""
    task = next(task for task in manifest["tasks"] if task["name"] == "reviews")
    manifest["tasks"].append({**task, "network": "bert"})
    for member in range(2):
        _add_run(store, manifest, task, "deterministic", "bert", member, {"edits": []}, 1.5)


def _add_multiplier(store: FakeStore, manifest: dict[str, Any], multiplier: float) -> None:
    """A method whose name says nothing of its multiplier."""
    name = f"bounded-{'abc'[MULTIPLIERS.index(multiplier)]}"
    manifest["methods"].append({"name": name, "title": name, "members": 1, "samples": 0, "family": name})
    task = next(task for task in manifest["tasks"] if task["name"] == "reviews")
    recipe = {"head": "gp", "edits": [{"part": "spectral_norm", "s": multiplier, "version": 1}]}
    for member in range(2):
        _add_run(store, manifest, task, name, task["network"], member, recipe, 0.8 + multiplier / 20)


def _add_run(
    store: FakeStore,
    manifest: dict[str, Any],
    task: dict[str, Any],
    method: str,
    network: str,
    member: int,
    recipe: dict[str, Any],
    strength: float,
) -> None:
    fit = identifier("fit", task["name"], method, network, member)
    pred = identifier("pred", fit)
    _add_predictions(store, task, fit, pred, 0, strength)
    store.records[fit] = {"seconds": 1.0, "parameters": 10, "epochs": 5, "best_epoch": 3, "bytes": 10}
    store.records[pred] = {"seconds": 0.1, "examples": 470, "bytes": 10}
    store.specs[fit] = {"recipe": recipe}
    manifest["runs"].append(_run(pred, {**task, "network": network}, method, 0, member, [fit]))


def task_of(run: RunView, key: str) -> TaskView:
    """A task of a run by its key."""
    return next(task for task in run.tasks if task.key == key)


def stored(
    world: tuple[FakeStore, dict[str, Any]], task: str, method: str, split: str, network: str | None = None
) -> list[Predictions]:
    """What a method's runs predict on a split."""
    store, manifest = world
    return [
        store.predictions[run["id"], split]
        for run in manifest["runs"]
        if (run["task"], run["method"]) == (task, method) and network in (None, run["network"])
    ]


World = tuple[FakeStore, dict[str, Any]]
