"""The quick benchmark's smallest task, for real: killed, resumed, shared, divided, with one job and with two."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dubio.store import Store
from dubio.store.verification import verify
from tests.store.helpers import dump_index

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
COMMAND = (
    "run", "quick", "--task", "breast-cancer", "--set", "epochs=3", "--seeds", "0,1", "--checkpoint-seconds", "0",
)  # fmt: skip
FITS = 21
"""18 of networks, and one of each plain baseline."""


def start(folder: Path, store: str, jobs: int, *more: str) -> subprocess.Popen[str]:
    return dubio(folder, *COMMAND, "--store", store, "--out", f"{store}-report", "--jobs", str(jobs), *more)


def dubio(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dubio", *words]
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, text=True, stdout=-1, stderr=-1)


def end(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said


def dumped(folder: Path, store: str) -> str:
    opened = Store.open(folder / store, create=False)
    assert verify(opened) == ()
    assert len(opened.ids("fits")) == FITS
    return dump_index(opened)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="module")
def whole(folder) -> str:
    """The index of a run that nothing disturbed."""
    end(start(folder, "whole", jobs=1))
    return dumped(folder, "whole")


def test_two_jobs_give_the_same_bits(folder, whole):
    end(start(folder, "two", jobs=2))
    assert dumped(folder, "two") == whole


def test_killed_and_resumed_it_ends_the_same(folder, whole):
    fits = folder / "killed" / "fits"
    for count in (2, 7, 13):
        process = start(folder, "killed", jobs=2)
        deadline = time.monotonic() + 120
        while (len(list(fits.glob("*"))) if fits.is_dir() else 0) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        process.communicate()
    end(start(folder, "killed", jobs=2))
    assert dumped(folder, "killed") == whole


def test_two_runs_on_one_store_end_the_same(folder, whole):
    first, second = start(folder, "both", jobs=1), start(folder, "both", jobs=1)
    end(first)
    end(second)
    assert dumped(folder, "both") == whole


def test_three_machines_and_a_merge_end_the_same(folder, whole):
    """Equal are weights, encoders and predictions, byte for byte, the manifest, and the table of results."""
    for number in "123":
        end(start(folder, f"shard-{number}", 1, "--shard", f"{number}/3"))
        assert not (folder / f"shard-{number}-report").exists()
    end(dubio(folder, "store", "merge", "shard-1", "shard-2", "shard-3", "--into", "merged"))
    counts = [len(Store.open(folder / f"shard-{number}").ids("fits")) for number in "123"]
    assert (sum(counts), max(counts) - min(counts) <= 2) == (FITS, True)
    before = fit_times(folder / "merged")
    end(start(folder, "merged", 1))
    assert fit_times(folder / "merged") == before  # the report trains and predicts nothing
    assert dumped(folder, "merged") == whole
    for pattern in ("fits/*/*.safetensors", "fits/*/encoder.json", "predictions/*/*.safetensors", "runs/*.json"):
        single, merged = contents(folder / "whole", pattern), contents(folder / "merged", pattern)
        assert single
        assert single == merged
    assert contents(folder / "whole-report", "results.csv") == contents(folder / "merged-report", "results.csv")


def fit_times(store: Path) -> dict[str, int]:
    files = [path for kind in ("fits", "predictions") for path in store.glob(f"{kind}/*/record.json")]
    return {str(path): path.stat().st_mtime_ns for path in files}


def contents(root: Path, pattern: str) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.glob(pattern)}
