"""Refresh a model: train its method again, with the same data options and recipe, on data with more rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dubio.core.errors import UserError, listing
from dubio.deployment.folder import PARTS, ModelFile, model_source, read_description, recalibrated
from dubio.deployment.run_models import RunModel
from dubio.reporting.stored_run import Run
from dubio.runner.benchmark_file import Benchmark, TaskEntry, Variant
from dubio.runner.overrides import DATA, whole_path

COMPARED = ("accuracy", "nll", "brier")
"""Scores of the old and the new model that are shown beside each other."""


def refreshed_benchmark(folder: Path, data: Path | None) -> tuple[Benchmark, ModelFile]:
    """Return the benchmark that trains a model's method on other data, and the model's description.

    Args:
        folder: The folder of the model.
        data: The file or folder with all rows, old and new.

    Raises:
        UserError: For a model of a bundled data set, or without data.
    """
    content = read_description(folder)
    entry = dict(content.source.task)
    arguments = dict(entry.get("arguments", {}))
    if DATA not in arguments:
        raise UserError(f"--from: the model was trained on {entry['name']}, whose data are not a file of yours.")
    if data is None:
        raise UserError("--from needs --data: the file or folder with all rows, old and new.")
    own_data = {DATA: str(whole_path(str(data))), "parts": None}
    if PARTS in content.files:
        own_data["parts"] = str(whole_path(str(folder / PARTS)))
    stored: Mapping[str, Any] = content.source.benchmark
    names = content.names
    task = next(
        TaskEntry(**{**own, "arguments": {**own["arguments"], **own_data}, "methods": None})
        for own in stored["tasks"]
        if own["network"] == names.network and own["arguments"] == arguments
    )
    method = names.method
    variants = {name: Variant(**own) for name, own in stored.get("variants", {}).items() if name == method}
    bases = {method, *(variant.method for variant in variants.values())}
    tables: dict[str, Any] = {
        key: {n: v for n, v in stored.get(key, {}).items() if n in bases} for key in ("method_arguments", "tune")
    }
    task = replace(task, method_arguments={n: v for n, v in task.method_arguments.items() if n in bases},
                   method_network={n: v for n, v in task.method_network.items() if n in bases})  # fmt: skip
    further = {key: stored[key] for key in ("members", "samples", "thresholds") if key in stored}
    seeds = tuple(stored["seeds"])
    return Benchmark(stored["name"], (task,), (method,), seeds, variants=variants, **tables, **further), content


def changes(content: ModelFile, run: Run) -> list[str]:
    """Return what changed between a model and the run that refreshes it: rows, classes, scores of the same method."""
    selected = RunModel.select(run, content.names.method, task=content.names.task, seed=content.names.seed)
    model = selected.model()
    if content.recalibration is not None:  # scores of both are recalibrated in the same way
        model = recalibrated(selected, model, content.recalibration.method)
    new, old = model_source(selected, model), content.source
    sizes = [{split.name: split.examples for split in source.splits} for source in (old, new)]
    rows = [
        f"{name} {sizes[0].get(name, 0):,} → {sizes[1].get(name, 0):,}"
        for name in dict.fromkeys([*sizes[0], *sizes[1]])
    ]
    sentences = [f"rows: {', '.join(rows)}"]
    if PARTS not in content.files:
        reason = "the model does not hold the parts of its rows"
        sentences.append(f"Rows were divided anew, since {reason}: some of its test rows may have been trained on.")
    before, after = set(content.fits[0].spec["task"]["classes"]), set(model.classes)
    for verb, names in (("new", after - before), ("no longer there", before - after)):
        if names:
            sentences.append(f"classes {verb}: {listing(sorted(names))}")
    if before == after:
        sentences.append(f"classes: the same {len(after)}")
    pairs = {name: (old.scores.get(name), new.scores.get(name)) for name in COMPARED}
    shown = [f"{name} {a:.4f} → {b:.4f}" for name, (a, b) in pairs.items() if a is not None and b is not None]
    if shown:
        sentences.append(f"{content.names.method} on the test rows of each, which differ: {', '.join(shown)}")
    if content.policy is not None:
        sentences.append("The policy of the old model is not for the new one: export it with a policy of its own.")
    return sentences
