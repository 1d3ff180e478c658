"""Two jobs against one on eight small trainings, from the command to the stored result."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

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


def run() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "eight.toml"
        plan.write_text(BENCHMARK)
        ratio = Ratio(_seconds(plan, 1), _seconds(plan, 2))
    yield line("Two jobs against one, eight trainings", ratio, "≥ 1.85 ×", "whole command with report; digits, cnn")


def _seconds(plan: Path, jobs: int) -> float:
    where = plan.parent / f"jobs-{jobs}"
    command = [sys.executable, "-m", "dubio", "run", str(plan), "--jobs", str(jobs)]
    command += ["--store", str(where / "store"), "--out", str(where / "report")]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started
