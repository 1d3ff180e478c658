"""Fixtures of the commands' tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dubio.core.types import Examples, Split
from dubio.store import Store
from tests.cli.helpers import StoredRun
from tests.reporting.stored_runs import make_world

ENVIRONMENT = {"python": "3.11", "torch": "2.6"}


@pytest.fixture(scope="session")
def stored_run(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """One task and two methods of the invented world, put into a real store."""
    path = tmp_path_factory.mktemp("store") / "s"
    source, manifest = make_world((0, 1))
    task = manifest["tasks"][1]
    split = _split(task)
    task["splits"] = [{"name": split.name, "kind": "id", "fingerprint": split.fingerprint, "examples": len(split)}]
    runs = []
    with Store.open(path) as store:
        for old in manifest["runs"]:
            if old["task"] != task["name"] or old["method"] != "deterministic":
                continue
            spec = {"kind": "fit", "seed": old["seed"], "member": old["member"]}
            fit = store.write_fit(spec, {"w": np.zeros(3, np.float32)}, {}, {"seconds": 2.5, "parameters": 3})
            made = {"kind": "prediction", "fit": fit}
            with store.prediction_writer(made, ENVIRONMENT) as writer:
                writer.add(split, source.predictions[old["id"], "test"], 0.5)
            runs.append(
                {**old, "id": next(i for i in store.ids("predictions") if _fit_of(store, i) == fit), "fits": [fit]}
            )
        for seed in (0, 1):
            members = [run for run in runs if run["seed"] == seed and run["member"] is not None]
            pooled = store.write_ensemble({"kind": "prediction", "members": [run["id"] for run in members]})
            fits = [fit for run in members for fit in run["fits"]]
            runs.append({**members[0], "id": pooled, "method": "deep-ensemble", "member": None, "fits": fits})
        methods = [method for method in manifest["methods"] if method["name"] in ("deterministic", "deep-ensemble")]
        whole = {**manifest, "name": "small", "tasks": [task], "methods": methods, "runs": runs, "failures": []}
        name = store.write_manifest(whole, "0123456789abcdef").stem
    return StoredRun(path, name, runs[0]["fits"][0], runs[0]["id"], runs[-1]["id"])


def _split(task: dict[str, Any]) -> Split:
    examples = next(split["examples"] for split in task["splits"] if split["kind"] == "id")
    return Split.of("test", "id", Examples(np.zeros((examples, 2)), np.zeros(examples, dtype=np.int64)))


def _fit_of(store: Store, identifier: str) -> Any:
    return store.spec("predictions", identifier).get("fit")
