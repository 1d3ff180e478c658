"""Bootstrap intervals against the point estimates they are of."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from bench.scoring import made_up
from bench.timing import cpu_in_turns
from dubio.core.predictions import Predictions
from dubio.metrics.metric import metric_named
from dubio.statistics.bootstrap import bootstrap

ROWS, CLASSES = 50_000, 100
FAST = ("accuracy", "nll", "brier", "ece", "aurc", "ood_auroc")
OTHERS = ("ece_adaptive", "classwise_ece", "ace", "tace", "calibrated_nll", "calibrated_brier", "calibrated_aurc")
"""Bins of equal mass or of every class, and temperatures fitted by cross-validation."""
REPLICATES = 200


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

    ratio = cpu_in_turns(points, intervals, rounds=5)
    yield (
        f"1,000 bootstrap replicates of {', '.join(FAST)}: {ratio.second / ratio.first:.0f} × the point estimates "
        f"({ratio.first:.3f} s → {ratio.second:.3f} s; aim ≤ 60 ×) [{ROWS:,} × {CLASSES}, one thread, CPU time]"
    )
    for name in OTHERS:
        given = Predictions(logits, labels)
        started = time.process_time()
        bootstrap({name: metric_named(name)}, given, replicates=REPLICATES)
        seconds = time.process_time() - started
        yield f"{REPLICATES} bootstrap replicates of {name}: {seconds:.1f} s [{ROWS:,} × {CLASSES}, CPU time]"
