"""Two jobs against one on eight small trainings, from the command to the stored result."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.timing import Ratio, line

BENCHMARK = """
name = "eight"
description = "Eight small trainings."
seeds = [0, 1, 2, 3, 4, 5, 6, 7]
methods = ["deterministic"]

[[task]]
name = "digits"
network = "cnn"
training = { epochs = 120, patience = 0 }
"""


class Seconds(NamedTuple):
    """Seconds of the whole command, and from the start of the first training to the last stored prediction."""

    whole: float
    trained: float


def run() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "eight.toml"
        plan.write_text(BENCHMARK)
        one, two = _seconds(plan, 1), _seconds(plan, 2)
    conditions = "digits, cnn, without baselines"
    whole, trained = Ratio(one.whole, two.whole), Ratio(one.trained, two.trained)
    yield line("Two jobs against one, eight trainings", whole, "≥ 1.85 ×", f"whole command with report; {conditions}")
    yield line("Their trainings and predictions alone", trained, "≥ 1.85 ×", conditions)


def _seconds(plan: Path, jobs: int) -> Seconds:
    where = plan.parent / f"jobs-{jobs}"
    command = [sys.executable, "-m", "dubio", "run", str(plan), "--no-baselines", "--jobs", str(jobs)]
    command += ["--store", str(where / "store"), "--out", str(where / "report")]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    whole = time.perf_counter() - started
    fits, predictions = (list((where / "store" / kind).glob("*/record.json")) for kind in ("fits", "predictions"))
    begun = min(path.stat().st_mtime - json.loads(path.read_text())["seconds"] for path in fits)
    return Seconds(whole, max(path.stat().st_mtime for path in predictions) - begun)
