"""A small store, a checkpoint and a fit of a module, written by dubio, as trees of files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.seeds import Tree, _written

LEFT_OUT = ("locks/", "tmp/")


@functools.cache
def store_tree() -> Tree:
    """Return a store of one run: a task, two methods, two seeds, with predictions on two splits and pictures."""
    tree = _written(lambda folder: write_store(folder / "store"))
    return {name: raw for name, raw in tree.items() if not name.removeprefix("store/").startswith(LEFT_OUT)}


def write_store(path: Path) -> None:
    """Write the store."""
    from campaigns.seeds import png
    from dubio.core.types import Examples, Kind, Split
    from dubio.store import Store
    from dubio.store.maintenance import rebuild_index

    classes = ["healthy", "ill"]
    kinds: tuple[tuple[str, Kind], ...] = (("test", "id"), ("elsewhere", "shift"))
    splits = [
        Split.of(name, kind, Examples(np.full((30, 2), float(place)), np.arange(30) % 2))
        for place, (name, kind) in enumerate(kinds)
    ]
    runs: list[dict[str, Any]] = []
    with Store.open(path) as store:
        for seed in (0, 1):
            singles = [_write_single(store, splits, seed, member) for member in (0, 1)]
            runs += [_run(seed, member, "deterministic", *ids) for member, ids in enumerate(singles)]
            pooled = store.write_ensemble({"kind": "prediction", "members": [prediction for prediction, _ in singles]})
            runs.append(_run(seed, None, "deep-ensemble", pooled, *(fit for _, fit in singles)))
        store.write_manifest(_manifest(classes, splits, runs), "0123456789abcdef")
        store.write_failure("f" * 64, {"id": "f" * 64, "what": "fit", "task": "screening", "error": "it failed"})
        store.write_examples(splits[0].fingerprint, {0: png()})
        store.checkpoint("c" * 64).save({"w": np.zeros(3, np.float32)}, {"epoch": 1}, {"first": {"w": np.ones(3)}})
        rebuild_index(store)


def _write_single(store: Any, splits: list[Any], seed: int, member: int) -> tuple[str, str]:
    from dubio.core.predictions import Predictions
    from dubio.core.specs import identity

    fit = store.write_fit(
        {"kind": "fit", "seed": seed, "member": member, "start": None},
        {"w": np.zeros(3, np.float32)},
        {"words": ["a"]},
        {"seconds": 2.5, "parameters": 3, "epochs": 2},
    )
    spec = {"schema": 1, "kind": "prediction", "fit": fit}
    generator = np.random.default_rng(10 * seed + member)
    with store.prediction_writer(spec, {"python": "3.11"}) as writer:
        for split in splits:
            labels = np.arange(30) % 2
            logits = (generator.normal(size=(1, 30, 2)) + 2 * np.eye(2)[labels]).astype(np.float32)
            ids = np.array([str(k) for k in range(30)])
            writer.add(split, Predictions(logits=logits, labels=labels, ids=ids, kind=split.kind), 0.5)
    return identity(spec), fit


def _run(seed: int, member: int | None, method: str, prediction: str, *fits: str) -> dict[str, Any]:
    spec = {"schema": 1, "kind": "prediction", "fit": fits[0]}
    return {
        "id": prediction,
        "task": "screening",
        "network": "mlp",
        "method": method,
        "seed": seed,
        "member": member,
        "fits": list(fits),
        "spec": spec,
    }


def _manifest(classes: list[str], splits: list[Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    task = {
        "name": "screening",
        "arguments": {},
        "inputs": "table",
        "target": "multiclass",
        "classes": classes,
        "network": "mlp",
        "network_arguments": {},
        "notes": ["A note."],
        "card": {
            "source": "package x",
            "revision": "1",
            "licence": "BSD",
            "citation": "A. Author",
            "description": "Data.",
        },
        "splits": [{"name": s.name, "kind": s.kind, "fingerprint": s.fingerprint, "examples": 30} for s in splits],
    }
    titles = {"deterministic": "Deterministic", "deep-ensemble": "Deep ensemble"}
    methods = [
        {
            "name": name,
            "title": title,
            "members": 1 + (name != "deterministic"),
            "samples": 0,
            "family": "deterministic",
        }
        for name, title in titles.items()
    ]
    return {
        "schema": 1,
        "name": "small",
        "benchmark": {"name": "small", "seeds": [0, 1]},
        "tasks": [task, {**task, "name": "triage"}],
        "methods": methods,
        "runs": [*runs, *({**run, "task": "triage"} for run in runs)],
        "failures": [],
    }


def perceptron() -> Any:
    """Return the module of the stored fit."""
    from torch import nn

    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


@functools.cache
def module_fits() -> Tree:
    """Return fits of a module, as ``dubio.fit(...).save`` writes them."""
    import dubio

    generator = np.random.default_rng(0)
    labels = np.arange(48) % 3
    inputs = (generator.normal(size=(48, 4)) + 2 * np.eye(3, 4)[labels]).astype(np.float32)

    def write(folder: Path) -> None:
        kinds: dict[str, dict[str, Any]] = {"deterministic": {}, "swag": {"tail_epochs": 3, "rank": 2, "samples": 2}}
        for name, arguments in kinds.items():
            fit = dubio.fit(name, network=perceptron, train=(inputs, labels), epochs=1, **arguments)
            fit.save(folder / f"{name}.safetensors")

    return _written(write)


@functools.cache
def encoders() -> list[bytes]:
    """Return fitted encoders of texts and of numbers as JSON, as a store keeps them."""
    import json

    from dubio.core.types import Examples
    from dubio.encoders import encoding_for, fit_encoder

    texts = ("a good film", "a good plot", "a good film", "a plot")
    table = np.arange(8.0).reshape(4, 2)
    images = np.arange(4 * 48, dtype=np.uint8).reshape(4, 4, 4, 3)
    fitted = [
        fit_encoder(encoding_for(modality, {}), Examples(inputs, np.array([0, 1, 0, 1])))
        for modality, inputs in (("text", texts), ("table", table), ("image", images))
    ]
    return [json.dumps(encoder.to_json()).encode() for encoder in fitted]


@functools.cache
def torch_weights() -> bytes:
    """Return named tensors as torch saved them before its zip files, one of them with its axes in another order."""
    import io
    from collections import OrderedDict

    import torch

    tensors = OrderedDict(
        {"conv.weight": torch.arange(24.0).view(4, 3, 1, 2), "norm.num_batches_tracked": torch.tensor(7)},
        turned=torch.arange(6.0).view(2, 3).t(),
    )
    file = io.BytesIO()
    torch.save(tensors, file, _use_new_zipfile_serialization=False)
    return file.getvalue()
