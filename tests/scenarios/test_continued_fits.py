"""Methods that continue a stored fit, for real: shared starts, one job and two."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from dubio.runner.benchmark_file import load_benchmark
from dubio.runner.benchmark_run import PreparedBenchmark
from dubio.runner.overrides import Overrides
from dubio.runner.trainer import load_trainer
from dubio.store import Store
from dubio.store.verification import verify
from tests.runner.helpers import prepare
from tests.store.helpers import dump_index

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
    return dump_index(store)


def test_the_same_seed_gives_the_same_bits_whatever_the_jobs(tmp_path):
    assert run(tmp_path, 1) == run(tmp_path, 2)


NORMED = ("deterministic", "laplace", "mean-field-vi", "csgld", "swag")
FEW = (
    "task.train=200", "task.test=40", "network.channels=[8, 16]", "network.convolutions=[1, 1]", "network.dense=16",
    "epochs=2", "start_epochs=2", "batch=32", "csgld.cycles=1", "csgld.sampling_epochs=2", "csgld.samples_per_cycle=2",
    "swag.tail_epochs=2", "swag.samples=2", "laplace.samples=2", "mean-field-vi.samples=2", "mean-field-vi.epochs=2",
)  # fmt: skip


def images(folder: Path) -> Path:
    """Made-up images in the form of CIFAR-10, lighter from class to class."""
    generator, arrays = np.random.default_rng(0), {}
    for part, count in (("train", 240), ("test", 40)):
        labels = np.arange(count) % 10
        noise = generator.integers(0, 100, (count, 32, 32, 3))
        arrays |= {f"x_{part}": (noise + 15 * labels[:, None, None, None]).astype(np.uint8), f"y_{part}": labels}
    np.savez(folder / "cifar10_made.npz", **arrays)
    return folder


def bits(tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[np.dtype, tuple[int, ...], bytes]]:
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in tensors.items()}


def test_batch_norm_and_augmentation_give_the_same_bits_whatever_the_jobs(tmp_path):
    """Two epochs of a small VGG with crops and flips, and what is made of it: refreshed statistics, draws, noise."""
    chosen = Overrides(tasks=["cifar10"], methods=NORMED, settings=FEW, data_dir=images(tmp_path))
    benchmark = chosen.apply(load_benchmark("ensembles", "small", NORMED))
    assert [(task.name, task.network, task.training["shift"]) for task in benchmark.tasks] == [
        ("cifar10", "vgg-small", 4)
    ]
    settings, found = prepare(benchmark), []
    for jobs in (1, 2):
        with Store.open(tmp_path / f"store{jobs}") as store:
            prepared = PreparedBenchmark(benchmark, settings, load_trainer())
            finish = prepared.run(store, jobs)
            assert finish.outcome.failures == {}
            assert verify(store) == ()
            found.append({key: bits(store.read_fit(key).tensors) for key in store.ids("fits")})
    one, two = found
    assert len(one) == len(NORMED)  # three of them go on from the plain network's fit
    assert any(name.endswith("running_var") for fit in one.values() for name in fit)
    assert one == two
