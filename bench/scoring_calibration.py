"""Calibrated nll against Nelder–Mead on the same halves, and a deep-ensemble growth curve."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from scipy.optimize import minimize

from bench.scoring import made_up
from bench.timing import cpu_in_turns, line
from dubio.calibration.cross_validation import REPEATS, cross_validate, fit_folds, random_halves
from dubio.calibration.temperature import evidence_of
from dubio.core.predictions import Predictions
from dubio.statistics.ensemble_equivalent import growth_curve

ROWS, CLASSES, MEMBERS = 10_000, 100, 100


def run() -> Iterator[str]:
    logits, labels = made_up(1, ROWS, CLASSES)
    logits *= 1.7  # overconfident, so that there is a temperature to find

    def ours() -> tuple[float, ...]:
        return cross_validate(Predictions(logits, labels)).temperatures

    def theirs() -> tuple[float, ...]:
        given = Predictions(logits, labels)
        halves = random_halves(given, repeats=REPEATS, seed=0)
        return tuple(_nelder_mead(given, side) for half in halves for side in (half, ~half))

    def ours_fitted() -> object:
        given = Predictions(logits, labels)
        return fit_folds(evidence_of(given), random_halves(given, repeats=REPEATS, seed=0))

    apart = float(np.abs(np.subtract(ours(), theirs())).max())
    conditions = f"{ROWS:,} × {CLASSES}, float64, one thread, CPU time; temperatures differ by at most {apart:.0e}"
    fitted = cpu_in_turns(theirs, ours_fitted, rounds=3)
    yield line(f"Temperatures of {REPEATS} × 2 halves, against Nelder–Mead", fitted, "≥ 10 ×", conditions)
    scored = cpu_in_turns(theirs, ours, rounds=3)
    yield line("The same with nll, Brier and AURC of every half, against its fits alone", scored, "none", conditions)
    yield from _growth()


def _nelder_mead(predictions: Predictions, rows: np.ndarray) -> float:
    logs, labels = predictions.log_probs[rows], predictions.labels[rows]

    def loss(parameters: np.ndarray) -> float:
        scaled = logs / parameters[0]
        scaled -= scaled.max(axis=1, keepdims=True)
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[np.arange(len(labels)), labels]).mean())

    return float(minimize(loss, [1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10}).x[0])


def _growth() -> Iterator[str]:
    logits, labels = made_up(MEMBERS, ROWS, CLASSES)
    predictions = Predictions(logits, labels, member=np.arange(MEMBERS))
    for orders in (1, 3):
        started = time.process_time()
        growth_curve(predictions, orders=orders)
        seconds = time.process_time() - started
        yield (
            f"Deep-ensemble curve of {MEMBERS} members, {orders} random order{'s' * (orders > 1)}: {seconds:.1f} s "
            f"(aim < 30 s) [{ROWS:,} × {CLASSES}, nll, Brier, error and AURC at every size, one thread, CPU time]"
        )
