"""Exported models of texts and of numbers, rows for them, requests to a server, pages that a store keeps."""

from __future__ import annotations

import functools
import json
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from campaigns.seeds import Tree, _written, delimited, json_lines, npz, parquet

FEATURES = ("age", "dose")
WORDS = ("good", "bad", "fine", "poor", "film", "plot")


def model_rows(inputs: str, count: int = 60) -> list[dict[str, Any]]:
    """Return rows for a model of ``text`` or of a ``table``."""
    generator = np.random.default_rng(7)
    rows = []
    for k in range(count):
        text = f"{WORDS[k % 4]} {WORDS[4 + k % 2]} {WORDS[generator.integers(6)]}"
        numbers = np.round(generator.normal(size=2) + 2 * (k % 2), 3).tolist()
        values = {"review": text} if inputs == "text" else dict(zip(FEATURES, numbers, strict=True))
        rows.append({"id": f"r{k}", **values, "label": ("no", "yes")[k % 2]})
    return rows


@functools.cache
def model(inputs: str) -> Any:
    """Return a model with a temperature and a policy: dropout on numbers, logistic regression on texts."""
    from dubio.calibration.recalibration import fit_recalibration
    from dubio.core.registry import METHODS
    from dubio.core.specs import identity
    from dubio.core.types import Examples, SourceCard, Split, Task
    from dubio.deployment.inputs import InputForm
    from dubio.deployment.model import Model, ModelFit, ModelNames
    from dubio.deployment.training_summary import TrainingSummary
    from dubio.encoders import encoding_for
    from dubio.formats.safetensors import write_tensors
    from dubio.methods import FitContext, NetworkSpec, fit, fit_spec, pred_spec
    from dubio.referral import fit_capacity_policy

    rows, labels = model_rows(inputs), np.arange(60) % 2
    columns = ("review",) if inputs == "text" else FEATURES
    texts = tuple(str(row["review"]) for row in rows) if inputs == "text" else ()
    contents: Any = texts or np.array([[row[name] for name in FEATURES] for row in rows])
    cuts = {"train": slice(0, 30), "val": slice(30, 40), "cal": slice(40, 60)}
    kinds: Any = {name: Examples(contents[cut], labels[cut]) for name, cut in cuts.items()}
    splits = tuple(Split.of(name, name, kinds[name]) for name in kinds)
    task = Task("own", inputs, "multiclass", ("no", "yes"), splits, SourceCard("x", "1", "none", "none"))  # type: ignore[arg-type]
    method, network = ("linear", "textcnn") if inputs == "text" else ("mc-dropout", "mlp")
    recipe: Any = METHODS.make(method, **({} if inputs == "text" else {"samples": 3}))
    encoding = recipe.encoding(inputs) if inputs == "text" else encoding_for("table", {})
    spec = fit_spec(recipe, task, encoding, NetworkSpec(network), seed=0, member=0, start_id=None)
    result = fit(spec, task, FitContext())
    weights = sha256(_written(lambda folder: write_tensors(folder / "w", result.tensors, {}))["w"]).hexdigest()
    prediction = pred_spec(recipe, identity(spec), seed=0, member=0)
    fits = [ModelFit(spec, prediction, result.tensors, result.encoder, weights)]
    form = InputForm(inputs, columns, label="label", id="id")  # type: ignore[arg-type]
    plain = Model(ModelNames(method, method, "own", network, "tiny", 0), form, fits)
    calibration = plain.predictions(rows[40:]).with_checked(labels=labels[40:], kind="cal")
    own = plain.with_parts(
        recalibration=fit_recalibration(calibration, "temperature"),
        training=TrainingSummary.of(task, plain.encoder, columns),
    )
    calibration = own.predictions(rows[40:]).with_checked(labels=labels[40:], kind="cal")
    policy = replace(fit_capacity_policy(calibration, capacity=0.3), system=own.identity)
    return own.with_parts(policy=policy)


@functools.cache
def model_tree(inputs: str) -> Tree:
    """Return an exported model as a folder."""
    from dubio.deployment.folder import export_model

    def write(folder: Path) -> None:
        selected: Any = SimpleNamespace(
            run=SimpleNamespace(manifest={"advice": [], "methods": [], "command": "dubio run tiny"}),
            entry={"splits": [{"name": "test", "kind": "id", "examples": 3, "fingerprint": "f" * 64}], "name": "own"},
            stored=lambda kind, model: None,
        )
        export_model(selected, model(inputs), folder / "model")

    return _written(write)


def resealed_model(tree: Tree, damaged: str) -> Tree:
    """Return the folder with the hash of its damaged file in ``model.json``, and with a right seal."""
    from dubio.core.errors import DubioError
    from dubio.store.records import seal

    try:
        description = json.loads(tree["model/model.json"])
        name = damaged.removeprefix("model/")
        if name != "model.json":
            description["files"][name] = {"sha256": sha256(tree[damaged]).hexdigest(), "bytes": len(tree[damaged])}
        return {**tree, "model/model.json": seal(description)}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, DubioError):
        return tree


def row_files(inputs: str, ending: str) -> Tree:
    """Return a model and rows for it in a file."""
    rows = model_rows(inputs, 12)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    x = np.array([[row.get(name, 0.0) for name in FEATURES] for row in rows])
    contents = {
        ".csv": delimited(rows), ".jsonl": json_lines(rows), ".parquet": parquet(columns),
        ".npz": npz(x=x, label=np.array(columns["label"])),
    }  # fmt: skip
    return {**model_tree(inputs), f"rows{ending}": contents[ending]}


@functools.cache
def system_policy() -> Tree:
    """Return the policy of a deployed model, and predictions of that model."""
    from dubio.formats import write_predictions

    own = model("table")

    def write(folder: Path) -> None:
        (folder / "damaged.json").write_text(own.policy.to_json())
        write_predictions(folder / "rows.safetensors", own.predictions(model_rows("table", 20)))

    return _written(write)


def requests() -> list[Tree]:
    """Return bodies of requests: rows to predict, probabilities, labels."""
    rows = [{"id": row["id"], "row": {name: row[name] for name in FEATURES}} for row in model_rows("table", 4)]
    sampled: list[Any] = [{"probabilities": [{"no": 0.3, "yes": 0.7}] * 3, "row": {"note": "seen"}}, *rows[:1]]
    labels: list[Any] = [{"id": "known", "label": "yes"}, {"id": "known", "label": None}]
    bodies: list[dict[str, Any]] = [{"rows": rows}, {"rows": sampled}, *labels]
    return [{"label.json" if "label" in own else "decide.json": json.dumps(own).encode()} for own in bodies]


def cached_report() -> Tree:
    """Return a page that a store keeps for the next time."""
    blocks = [["table", {"columns": [], "rows": [], "title": "t"}], ["card", {"title": "t", "texts": ["a", "b"]}]]
    document = {"files": {"report.html": "<html></html>", "results.csv": "a,b\n"}, "terminal": blocks}
    return {"store/derived/page.report": zlib.compress(json.dumps(document).encode(), 6)}


OPTIONS = {
    "targets": ("refer fit rows.npz -o OUT --targets", ("0.3,0.4", "default", "0.45,0.5,0.6")),
    "require": (
        "evaluate rows.npz --replicates 5 --junit OUT.xml --require",
        ("accuracy>=0.2", "ece<0.9@upper", "rows:nll<=3@lower", "brier < 2"),
    ),
    "metric": ("evaluate rows.npz --replicates 5 --json --metric", ("nll", "ece(bins=10)", "aurc")),
    "set": ("run tiny.toml --dry-run --json --set", ("mc-dropout.samples=2", "epochs=2")),
    "fail-on": ("refer apply risk.json rows.npz -o OUT.csv --fail-on", ("violated", "violated,shift")),
    "max-unpacked": ("evaluate rows.npz --replicates 5 --json --max-unpacked", ("20MB", "1GB", "100000")),
}
"""Option → the command that takes it last, and valid values."""


def option_trees() -> list[Tree]:
    """Return trees of the value of an option and the files of its command."""
    from campaigns.seeds import BENCHMARK, own_rows, referral_files

    made = referral_files()
    files = {"rows.npz": made["cal.npz"], "risk.json": made["risk.json"], "tiny.toml": BENCHMARK}
    files["own.csv"] = delimited(own_rows())
    return [{**files, f"option/{name}": value.encode()} for name, (_, values) in OPTIONS.items() for value in values]
