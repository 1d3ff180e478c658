"""Ensembling studies: a small one with predictions, and others written down number by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dubio.core.predictions import Predictions, pool_members
from dubio.reporting import Report
from dubio.reporting.manifest_view import MethodView, SplitView, TaskView
from dubio.statistics.ensemble_equivalent import SCORES, GrowthCurve
from dubio.statistics.sample_curves import MEASURES
from dubio.studies.ensembles.overview import EnsemblingStudy
from dubio.studies.ensembles.study import TACE_SETTINGS, Role, SampleCurve, Study
from tests.reporting.stored_runs import FakeStore, identifier

ROWS, CLASSES, NETWORKS, SAMPLES = 120, 4, 9, 5
SEEDS = (0, 1)
FAMILIES = ("blur", "fog", "noise", "snow")

BETWEEN = {
    "deterministic": 0.0, "snapshot-ensemble": 0.95, "swa": 0.0, "swag": 0.5, "mc-dropout": 0.25, "laplace": 0.2,
    "laplace-last": 0.1,
}  # fmt: skip
"""How far the samples of one training differ, as a share of how far trainings differ."""

FAMILY = {"deep-ensemble": "deterministic", "swag-ensemble": "swag", "swa-ensemble": "swa"}
"""What an ensemble pools; all else is its own family."""
LAST = {"structure": "last-full"}


def methods() -> list[dict[str, Any]]:
    rows = [
        ("deterministic", "Single network", 1, 0, "deterministic", {}),
        ("deterministic-views", "Single network, augmented", 1, 0, "deterministic", {"views": SAMPLES}),
        ("deep-ensemble", "Deep ensemble", NETWORKS, 0, "deep-ensemble", {}),
        ("deep-ensemble-views", "Deep ensemble, augmented", NETWORKS, 0, "deep-ensemble", {"views": 1}),
        ("snapshot-ensemble", "Snapshot ensemble", 1, SAMPLES, "snapshot-ensemble", {}),
        ("swa", "SWA", 1, 0, "swa", {}),
        ("swa-views", "SWA, augmented", 1, 0, "swa", {"views": SAMPLES}),
        ("swag", "SWAG", 1, SAMPLES, "swag", {}),
        ("swag-views", "SWAG, augmented", 1, SAMPLES, "swag", {"views": 1}),
        ("mc-dropout", "MC dropout", 1, SAMPLES, "mc-dropout", {}),
        ("laplace", "Laplace", 1, SAMPLES, "laplace", {}),
        ("laplace-last", "Laplace, last layer", 1, SAMPLES, "laplace", LAST),
        ("laplace-last-views", "Laplace, last layer, augmented", 1, SAMPLES, "laplace", {**LAST, "views": 1}),
        ("swag-ensemble", "SWAG ensemble", 2, SAMPLES, "swag-ensemble", {}),
        ("swa-ensemble", "Ensemble of SWA", 2, 0, "swa-ensemble", {}),
    ]
    return [
        {"name": name, "title": title, "members": members, "samples": samples, "family": FAMILY.get(name, name),
         "method": method, "arguments": arguments}
        for name, title, members, samples, method, arguments in rows
    ]  # fmt: skip


def predictions(network: str, split: str, kind: str, draw: tuple[object, ...], samples: int, family: str, *,
                views: bool) -> Predictions:  # fmt: skip
    shared = np.random.default_rng(int(identifier(split)[:8], 16))
    own = np.random.default_rng(int(identifier(network, split, *draw)[:8], 16))
    severity = int(split[-1]) if split[-1].isdigit() else 0
    labels = shared.integers(0, CLASSES, ROWS)
    signal = np.eye(CLASSES)[labels] * (shared.gamma(2.0, 1.0, ROWS) * (1 - 0.15 * severity))[:, None]
    between = BETWEEN[family]
    mode, noise = own.normal(0, 0.9, (ROWS, CLASSES)), own.normal(0, 0.9, (samples, ROWS, CLASSES))
    jitter = own.normal(0, 0.4, (samples, ROWS, CLASSES)) if views else 0.0
    logits = 2.2 * (signal + np.sqrt(1 - between**2) * mode * (0.8 if views else 1.0) + between * noise + jitter)
    return Predictions(
        logits=logits.astype(np.float32),
        labels=labels.astype(np.int64),
        ood=np.full(ROWS, kind != "id"),
        ids=np.array([f"{split}-{row}" for row in range(ROWS)]),
        kind=kind,  # type: ignore[arg-type]
    )


def make_study(
    networks: tuple[str, ...] = ("vgg-small",), *, corrupted: bool = False
) -> tuple[FakeStore, dict[str, Any]]:
    """The store and the manifest of one run."""
    away = [(f"{base}-{level}", "shift") for base in FAMILIES for level in (1, 2)] if corrupted else []
    splits = [("train", "train"), ("test", "id"), *away]
    manifest: dict[str, Any] = {
        "schema": 1,
        "name": "study-0a1b2c3d",
        "benchmark": {"name": "study", "seeds": list(SEEDS)},
        "tasks": [
            {
                "name": "pictures", "task": "pictures", "arguments": {}, "inputs": "image", "target": "multiclass",
                "classes": [str(index) for index in range(CLASSES)], "network": network, "network_arguments": {},
                "card": {}, "notes": [],
                "splits": [
                    {"name": name, "kind": kind, "fingerprint": identifier(name), "examples": ROWS}
                    for name, kind in splits
                ],
            }
            for network in networks
        ],
        "methods": methods(),
        "runs": [],
        "failures": [],
    }  # fmt: skip
    store = FakeStore(manifest)
    for network in networks:
        for seed in SEEDS:
            for row in manifest["methods"]:
                _add(store, manifest, network, seed, row, splits[1:])
    return store, manifest


def _add(store: FakeStore, manifest: dict[str, Any], network: str, seed: int, row: dict[str, Any],
         splits: list[tuple[str, str]]) -> None:  # fmt: skip
    family = FAMILY.get(row["method"], "laplace-last" if "structure" in row["arguments"] else row["method"])
    members = {"deterministic": NETWORKS, "deep-ensemble": NETWORKS}.get(row["method"], row["members"])
    if seed and family == "deterministic":
        if row["members"] > 1:
            return
        members = 1
    views = int(row["arguments"].get("views", 0))
    samples = max(1, row["samples"]) * max(1, views)
    fits = [identifier("fit", network, family, seed, member) for member in range(members)]
    made = [identifier("pred", fit, views, samples) for fit in fits]
    record = {"seconds": 1.0, "parameters": 10, "epochs": 2, "bytes": 100, "examples": ROWS, "environment": {}}
    for fit, pred in zip(fits, made, strict=True):
        store.records[fit] = store.records[pred] = record
        for name, kind in splits:
            store.predictions[pred, name] = predictions(network, name, kind, (fit,), samples, family, views=bool(views))
    if row["members"] > 1:
        pooled = identifier("pooled", *made)
        store.records[pooled] = record
        for name, _ in splits:
            store.predictions[pooled, name] = pool_members([store.predictions[pred, name] for pred in made])
        _note(manifest, pooled, network, row["name"], seed, None, fits)
    else:
        for member, (fit, pred) in enumerate(zip(fits, made, strict=True)):
            _note(manifest, pred, network, row["name"], seed, member, [fit])


def _note(manifest: dict[str, Any], pred: str, network: str, method: str, seed: int, member: int | None,
          fits: list[str]) -> None:  # fmt: skip
    manifest["runs"].append({"id": pred, "task": "pictures", "network": network, "method": method, "seed": seed,
                             "member": member, "fits": fits, "spec": {}})  # fmt: skip


def study_section(report: Report) -> EnsemblingStudy:
    """Return the section of the ensembling study."""
    (section,) = [placed.section for placed in report.sections if isinstance(placed.section, EnsemblingStudy)]
    return section


LONGEST = 20
"""Networks of a study that is written down number by number."""


def curve(
    name: str,
    calibrated: Sequence[Sequence[float]],
    *,
    sizes: tuple[int, ...] = (1, 2, 3, 5, 10),
    role: Role = "method",
    base: str = "",
    registered: str = "",
    settings: Mapping[str, Any] | None = None,
    members: int = 1,
    **others: Sequence[Sequence[float]],
) -> SampleCurve:
    """A curve with these calibrated NLLs, ``[R, X]``; of other measures the same where they are not given."""
    arguments = {"views": 1} if base else {}
    method = MethodView(name, registered or base or name, name, name, members=members, samples=max(sizes),
                        arguments=arguments | (settings or {}))  # fmt: skip
    plain = np.array(calibrated, dtype=float)
    sides = [np.array(others.get(measure, plain), dtype=float) for measure in MEASURES]
    runs = () if role == "deep_ensemble" else tuple((0, member) for member in range(len(plain)))
    values = np.stack(sides, axis=2)
    return SampleCurve(method, base or name, role, sizes, values, np.zeros((len(plain), len(TACE_SETTINGS))), runs)


def task(network: str = "vgg-small", corpus: str = "pictures", images: tuple[int, int, int] = (90, 10, 50),
         arguments: Mapping[str, Any] | None = None) -> TaskView:  # fmt: skip
    splits = tuple(
        SplitView(name, kind, name, count)  # type: ignore[arg-type]
        for (name, kind), count in zip((("train", "train"), ("val", "val"), ("test", "id")), images, strict=True)
    )
    return TaskView(corpus, network, "image", "multiclass", tuple("abcdefghij"), splits, key=corpus,
                    network_arguments=arguments or {})  # fmt: skip


def growth(spread: float = 0.0) -> GrowthCurve:
    """Deep ensembles of l networks score 2 − 0.05·l: an equivalent is (2 − value)/0.05."""
    mean = 2.0 - 0.05 * np.arange(1, LONGEST + 1)
    return GrowthCurve(dict.fromkeys(SCORES, mean), {s: np.full(LONGEST, spread) for s in SCORES}, 10)


def study(*curves: SampleCurve, of: TaskView | None = None, spread: float = 0.0) -> Study:
    return Study(of or task(), curves, growth(spread))


def equivalent_to(*networks: float) -> list[float]:
    """Return the scores whose deep-ensemble equivalents are these numbers of networks."""
    return [2.0 - 0.05 * each for each in networks]


def growing(*runs: tuple[float, float], name: str = "swag") -> SampleCurve:
    """A method whose runs are equivalent to these numbers of networks with 5 and with 10 samples."""
    return curve(name, [equivalent_to(1.5, 1.6, 1.8, *run) for run in runs])


def scattered(noise: tuple[float, float], families: int = 10, seed: int = 0) -> Study:
    """Families of methods whose NLL is their error times ten with so much noise, before and after calibration."""
    generator = np.random.default_rng(seed)
    made = []
    for place in range(families):
        error = generator.uniform(0.1, 0.4) + generator.normal(0, 0.01, (3, 5))
        before, after = (10 * error + by * generator.normal(0, 1, (1, 1)) for by in noise)
        made.append(curve(f"method-{place}", after.tolist(), nll=before.tolist(), error=error.tolist()))
    return study(*made)
