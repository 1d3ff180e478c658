"""The invented world with what text benchmarks leave behind: rates, epochs, two networks on a task, multipliers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dubio.core.predictions import Predictions
from dubio.reporting.manifest_view import TaskView
from dubio.reporting.run_view import RunView
from tests.reporting.world import FakeStore, identifier, make_world, predictions

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
    for split in (split for split in task["splits"] if split["kind"] in ("id", "shift", "ood")):
        store.predictions[pred, split["name"]] = predictions(
            task["name"],
            split["name"],
            split["kind"],
            split["examples"],
            len(task["classes"]),
            draw=(fit,),
            samples=0,
            strength=strength,
        )
    store.records[fit] = {"seconds": 1.0, "parameters": 10, "epochs": 5, "best_epoch": 3, "bytes": 10}
    store.records[pred] = {"seconds": 0.1, "examples": 470, "bytes": 10}
    store.specs[fit] = {"recipe": recipe}
    manifest["runs"].append(
        {
            "id": pred,
            "task": task["name"],
            "network": network,
            "method": method,
            "seed": 0,
            "member": member,
            "fits": [fit],
            "spec": {"schema": 1, "kind": "prediction", "fit": fit},
        }
    )


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
