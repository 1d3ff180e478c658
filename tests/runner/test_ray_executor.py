"""The Ray executor: that it gives the same bits as local processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dubio.core.errors import MissingExtra
from dubio.runner.executors import WorkerOrders
from dubio.runner.ray_executor import RayExecutor
from dubio.store import Store
from tests.store.helpers import dump_index

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
JUST_ONE = ("quick", "--task", "breast-cancer", "--method", "mc-dropout", "--seeds", "0,1")


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"dubio\[ray\]"):
        RayExecutor(1, WorkerOrders(tmp_path), tmp_path)


@pytest.mark.slow
def test_ray_actors_make_the_same_store(tmp_path):
    pytest.importorskip("ray", reason="needs the extra ray")
    for executor in ("local", "ray"):
        words = [*JUST_ONE, "--executor", executor, "--store", executor, "--out", f"{executor}-report"]
        subprocess.run([sys.executable, "-m", "dubio", "run", *words], cwd=tmp_path, env=ENVIRONMENT, check=True)
    local, ray = (Store.open(tmp_path / name, create=False) for name in ("local", "ray"))
    assert dump_index(local) == dump_index(ray)
    assert weights(local.path) == weights(ray.path)


def weights(store: Path) -> dict[str, bytes]:
    found = {path.parent.name: path.read_bytes() for path in store.glob("fits/*/weights.safetensors")}
    assert found
    return found
