"""Methods that continue a stored fit, for real: shared starts, one job and two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dubio.store import Store, index
from dubio.store.sweeping import verify

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
METHODS = ("deterministic", "snapshot-ensemble", "fge", "swa", "swag", "swag-ensemble")
SETTINGS = (
    "epochs=3", "snapshot-ensemble.cycles=3", "fge.cycles=2", "swa.tail_epochs=2", "swag.tail_epochs=2",
    "swag-ensemble.tail_epochs=2", "swag-ensemble.members=2",
)  # fmt: skip


def run(folder: Path, jobs: int) -> str:
    """The index of a whole run with so many jobs."""
    chosen = [word for name in METHODS for word in ("--method", name)]
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    words = ["run", "quick", "--task", "breast-cancer", "--seeds", "0-0", *chosen, *settings]
    places = ["--store", f"store{jobs}", "--out", f"report{jobs}", "--jobs", str(jobs)]
    command = [sys.executable, "-m", "dubio", *words, *places]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    store = Store.open(folder / f"store{jobs}", create=False)
    assert verify(store) == ()
    # the plain network of either member, which all others continue; one training in cycles; three tails and a second
    assert len(store.ids("fits")) == 2 + 1 + 3 + 1
    return index.dump(store)


def test_the_same_seed_gives_the_same_bits_whatever_the_jobs(tmp_path):
    assert run(tmp_path, 1) == run(tmp_path, 2)
