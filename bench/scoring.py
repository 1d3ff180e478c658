"""The scoring side against one plain read of the same array: decomposition, and the usual scores."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

import dubio
from bench.timing import Ratio, cpu_in_turns, in_turns
from dubio.core.passes import threads
from dubio.core.predictions import Predictions
from dubio.metrics import decomposition

METRICS = ("nll", "brier", "ece", "aurc", "ood_auroc")


def run() -> Iterator[str]:
    yield from _decomposition(20, 10_000, 1000)
    yield from _scores(50_000, 100)


def made_up(samples: int, rows: int, classes: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits ``[S, N, K]`` of samples that agree in part, with some skill, and the labels."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, classes, rows)
    shared = generator.standard_normal((rows, classes), dtype=np.float32)
    shared[np.arange(rows), labels] += 4.0
    logits = np.empty((samples, rows, classes), dtype=np.float32)
    for sample in logits:
        sample[:] = shared + generator.standard_normal(shared.shape, dtype=np.float32)
    return logits, labels


def reads(what: str, ratio: Ratio, aim: str, conditions: str) -> str:
    """One line: how many plain reads something costs."""
    many = ratio.second / ratio.first
    return f"{what}: {many:.1f} × one read ({ratio.first:.4f} s → {ratio.second:.4f} s; aim {aim}) [{conditions}]"


def _decomposition(samples: int, rows: int, classes: int) -> Iterator[str]:
    logits, labels = made_up(samples, rows, classes)
    predictions = Predictions(logits, labels)

    def ours() -> decomposition.Decomposition:
        decomposition.forget(predictions)
        return decomposition.decompose(predictions)

    def ours_in_two() -> None:
        with threads(2):
            ours()

    size = f"{samples} × {rows:,} × {classes:,} float32; computed in float64, one thread, CPU time"
    found = ours().mutual_information[:200]
    error = float(np.abs(found - _plain_information(logits[:, :200])).max())
    one = cpu_in_turns(logits.sum, ours, rounds=3)
    yield reads("Decomposition", one, "≤ 10 ×", f"{size}; a read is array.sum(); mutual information to {error:.0e}")
    yield reads("Decomposition", cpu_in_turns(logits.max, ours, rounds=3), "≤ 10 ×", f"{size}; a read is array.max()")
    two = in_turns(logits.sum, ours_in_two, rounds=3)
    yield reads("Decomposition, two threads", two, "fewer", "the same; wall-clock time, needs two idle cores")


def _plain_information(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """H(mean) − mean H, term by term in float64."""
    wide = logits.astype(np.float64)
    probs = np.exp(wide - wide.max(axis=-1, keepdims=True))
    probs /= probs.sum(axis=-1, keepdims=True)

    def entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(-(p * np.log(p)).sum(axis=-1))

    return entropy(probs.mean(axis=0)) - entropy(probs).mean(axis=0)


def _scores(rows: int, classes: int) -> Iterator[str]:
    samples, labels = made_up(1, rows, classes)
    logits = samples[0]
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    ood = np.random.default_rng(1).random(rows) < 0.2

    def ours(name: str, values: NDArray[np.float32]) -> Callable[[], object]:
        given = {name: values, "labels": labels, "ood": ood}
        return lambda: dubio.evaluate(given, metrics=METRICS, replicates=0)

    size = f"{rows:,} × {classes} float32, checks of the input included, one thread, CPU time; a read is array.sum()"
    for name, values in (("logits", logits), ("probs", probs)):
        ratio = cpu_in_turns(values.sum, ours(name, values), rounds=15)
        yield reads(f"nll, Brier, ECE, AURC, OOD AUROC from {name}", ratio, "≤ 12 ×", size)
    yield from _peers(probs, labels, ood)


def _peers(probs: NDArray[np.float32], labels: NDArray[np.int64], ood: NDArray[np.bool_]) -> Iterator[str]:
    """What two other packages take for two of the five."""
    if importlib.util.find_spec("sklearn") is None or importlib.util.find_spec("torchmetrics") is None:
        yield "Peers: not measured; scikit-learn and torchmetrics are not both installed."
        return
    import torch
    from sklearn.metrics import log_loss, roc_auc_score
    from torchmetrics.functional.classification import multiclass_calibration_error

    torch.set_num_threads(1)
    kept, classes = ~ood, probs.shape[1]

    def theirs() -> None:
        log_loss(labels[kept], probs[kept], labels=np.arange(classes))
        roc_auc_score(ood, 1 - probs.max(axis=1))
        given, truth = torch.from_numpy(probs[kept]), torch.from_numpy(labels[kept])
        multiclass_calibration_error(given, truth, classes, n_bins=15)

    ratio = cpu_in_turns(probs.sum, theirs, rounds=5)
    yield reads("nll and OOD AUROC by scikit-learn, ECE by torchmetrics", ratio, "a peer", "the same data")
