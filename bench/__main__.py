"""Run the benchmarks and print a line for each: `make bench`, or `python -m bench NAME …` for some of them."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

from bench import (
    augmentation,
    jobs,
    laplace_draws,
    mc_dropout,
    page,
    retina_preprocessing,
    retina_samples,
    retina_training,
    scoring,
    scoring_bootstrap,
    scoring_calibration,
    scoring_memory,
    serving,
    snapshot_storage,
    stacked_members,
    table_reading,
    text_grid,
    text_inference,
    train_step,
    weight_draws,
)

BENCHMARKS = {
    "mc_dropout": mc_dropout.run,
    "jobs": jobs.run,
    "train_step": train_step.run,
    "retina_training": retina_training.run,
    "retina_samples": retina_samples.run,
    "text_inference": text_inference.run,
    "text_grid": text_grid.run,
    "retina_preprocessing": retina_preprocessing.run,
    "scoring": scoring.run,
    "scoring_calibration": scoring_calibration.run,
    "scoring_bootstrap": scoring_bootstrap.run,
    "scoring_memory": scoring_memory.run,
    "weight_draws": weight_draws.run,
    "laplace_draws": laplace_draws.run,
    "stacked_members": stacked_members.run,
    "augmentation": augmentation.run,
    "snapshot_storage": snapshot_storage.run,
    "table_reading": table_reading.run,
    "serving": serving.run,
    "page": page.run,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}. Known: {', '.join(BENCHMARKS)}.", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        for line in BENCHMARKS[name]():
            print(line, flush=True)
    return 0


sys.exit(main(sys.argv[1:]))
