"""Executors: which worker gets which device, and which devices are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dubio.cli.app import app
from dubio.core.errors import UserError
from dubio.methods.fitting import available_devices, check_device
from dubio.runner.executors import LocalExecutor, WorkerOrders, worker_environment
from dubio.store import Store


def told(orders: WorkerOrders, worker: int) -> str:
    device: str = json.loads(orders.to_json(worker))["device"]
    return device


def test_workers_take_the_devices_in_turn(tmp_path: Path) -> None:
    orders = WorkerOrders(tmp_path, devices=("cuda:0", "cuda:1"))
    assert [told(orders, worker) for worker in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert told(WorkerOrders(tmp_path), 1) == "cpu"


def test_who_follows_a_dead_worker_gets_its_slot(tmp_path: Path) -> None:
    class Sitting:
        def __init__(self, slot: int) -> None:
            self.slot = slot

    executor = LocalExecutor(3, WorkerOrders(tmp_path, devices=("a", "b", "c")), tmp_path)
    executor._workers = [Sitting(0), Sitting(2)]  # type: ignore[list-item]
    assert executor._free_slot() == 1


def test_workers_start_ahead_of_their_jobs_and_are_then_used(tmp_path: Path) -> None:
    Store.open(tmp_path / "store").close()
    executor = LocalExecutor(3, WorkerOrders(tmp_path / "store", trainer="tests.runner.fake_trainer"), tmp_path)
    try:
        executor.start(0)
        assert executor._workers == []
        executor.start(2)
        started = [worker.process.pid for worker in executor._workers]
        assert len(started) == 2
        assert executor.free() == 3
        while not executor._workers[1].ready:
            executor.wait(0.5)
        executor._workers[0].ready = False  # whoever is ready comes first
        executor.submit({"id": "a" * 64, "kind": "unheard"})
        assert [worker.job for worker in executor._workers] == [None, "a" * 64]
        executor.start(9)
        assert [worker.process.pid for worker in executor._workers][:2] == started
        assert len(executor._workers) == 3
    finally:
        executor.close()


def test_a_worker_that_dies_before_it_has_a_job_is_counted_and_loses_none(tmp_path: Path) -> None:
    executor = LocalExecutor(1, WorkerOrders(tmp_path / "no-store", trainer="tests.runner.fake_trainer"), tmp_path)
    try:
        executor.start(1)
        while executor._workers:
            assert executor.wait(0.5) == []
        assert executor._failed_starts == 1
    finally:
        executor.close()


def test_the_last_words_of_a_worker_that_cannot_start_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("raise RuntimeError('not today')")
    orders = WorkerOrders(tmp_path, [tmp_path / "odd.py"], trainer="tests.runner.fake_trainer").to_json()
    command = [sys.executable, "-m", "dubio.runner.worker"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **worker_environment()},
    ) as worker:  # fmt: skip
        assert worker.stdin is not None
        assert worker.stderr is not None
        worker.stdin.write(orders + "\n")
        worker.stdin.flush()  # and stays open: the worker ends by itself
        last_words = worker.stderr.read()
        assert worker.wait(30) == 1
    assert last_words == f"plugin {str(tmp_path / 'odd.py')!r} cannot be imported: RuntimeError: not today\n"


@pytest.mark.parametrize("name", ["cuda:97", "gpu", "", "meta"])
def test_a_device_that_is_not_there_is_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match=rf"--devices: '{name}' cannot be used here; .*cpu"):
        check_device(name)


def test_every_device_said_to_be_there_can_be_used() -> None:
    for name in available_devices():
        assert check_device(name) == name


def test_the_command_refuses_it_before_anything_is_made(tmp_path: Path) -> None:
    asked = ["run", "quick", "--task", "digits", "--devices", "cpu,cuda:97", "--store", str(tmp_path / "store")]
    result = CliRunner().invoke(app, asked)
    assert isinstance(result.exception, UserError)  # which the program turns into one line and exit code 2
    assert "cuda:97" in str(result.exception)
    assert not (tmp_path / "store").exists()
