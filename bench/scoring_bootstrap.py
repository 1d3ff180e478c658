"""Bootstrap intervals against the point estimates they are of."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from bench.scoring import made_up
from bench.timing import cpu_in_turns
from dubio.metrics.naming import metric_named
from dubio.statistics.bootstrap import bootstrap
from dubio.types import Predictions

ROWS, CLASSES = 50_000, 100
FAST = ("accuracy", "nll", "brier", "ece", "aurc", "ood_auroc")
SLOW = {"ece_adaptive": 200, "calibrated_nll": 200, "calibrated_brier": 200, "calibrated_aurc": 10}
"""Replicates of metrics without a fast form; the last one fits its temperatures anew every time."""


def run() -> Iterator[str]:
    logits, labels = made_up(1, ROWS, CLASSES)
    ood = np.random.default_rng(1).random(ROWS) < 0.2
    metrics = {name: metric_named(name) for name in FAST}

    def points() -> None:
        given = Predictions(logits, labels, ood=ood)
        for metric in metrics.values():
            metric.compute(given)

    def intervals() -> None:
        bootstrap(metrics, Predictions(logits, labels, ood=ood), replicates=1000)

    ratio = cpu_in_turns(points, intervals, rounds=1)
    yield (
        f"1,000 bootstrap replicates of {', '.join(FAST)}: {ratio.second / ratio.first:.0f} × the point estimates "
        f"({ratio.first:.3f} s → {ratio.second:.3f} s; aim ≤ 60 ×) [{ROWS:,} × {CLASSES}, one thread, CPU time]"
    )
    for name, replicates in SLOW.items():
        given = Predictions(logits, labels)
        started = time.process_time()
        bootstrap({name: metric_named(name)}, given, replicates=replicates)
        seconds = time.process_time() - started
        yield f"{replicates} bootstrap replicates of {name}: {seconds:.1f} s [{ROWS:,} × {CLASSES}, CPU time]"
