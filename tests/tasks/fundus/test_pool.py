"""Photographs prepared by several processes: the same pixels, and a crash costs one photograph."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from dubio.tasks.fundus import pool  # noqa: E402
from dubio.tasks.fundus.photographs import read_photographs  # noqa: E402


def many(eyes, count):
    for number in range(count):
        eyes.save(f"{number}.png", number)
    eyes.write("labels.csv", "image,grade,patient", *(f"{n},{n % 5},p{n // 2}" for n in range(count)))


def test_processes_give_the_same_as_one_and_survive_a_file_that_kills(eyes, tmp_path, monkeypatch):
    many(eyes, 10)
    (eyes.home / "3.png").write_bytes(b"")
    alone = read_photographs(eyes.home, 64, processes=1)
    monkeypatch.setattr(pool, "JOBS_PER_PROCESS", 2)
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "two"))
    both = read_photographs(eyes.home, 64, processes=2)
    np.testing.assert_array_equal(np.asarray(alone.images), np.asarray(both.images))
    assert alone.problems == both.problems


def deadly(array, path, row):
    """Prepare a photograph in a worker process that dies at one file."""
    if path.name == "2.png":
        os._exit(9)
    return pool.prepare_one(path, row, np.load(array, mmap_mode="r+"))


def test_a_process_that_dies_costs_one_photograph(eyes, tmp_path, monkeypatch):
    many(eyes, 12)
    array = tmp_path / "rows.npy"
    np.lib.format.open_memmap(array, mode="w+", dtype=np.uint8, shape=(12, 64, 64, 3)).flush()
    monkeypatch.setattr(pool, "prepare_in_file", deadly)
    monkeypatch.setattr(pool, "JOBS_PER_PROCESS", 1)
    outcomes = []
    pool.prepare_all([(eyes.home / f"{n}.png", n) for n in range(12)], array, 2, outcomes.append)
    assert sorted(outcome.row for outcome in outcomes) == [*range(12)]
    (lost,) = [outcome for outcome in outcomes if outcome.sort]
    assert (lost.row, lost.sort) == (2, "unreadable")
    rows = np.load(array)
    assert rows[2].max() == 0
    assert all(rows[row].max() > 0 for row in range(12) if row != 2)


def test_a_script_without_a_main_guard_runs_once(eyes, tmp_path):
    many(eyes, 8)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nprint('started', flush=True)\n"
        "from dubio.tasks.fundus import pool\nfrom dubio.tasks.fundus.photographs import read_photographs\n"
        "pool.JOBS_PER_PROCESS = 1\nprint(len(read_photographs(Path(sys.argv[1]), 64, processes=2)))\n"
    )
    done = subprocess.run([sys.executable, script, eyes.home], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["started", "8"]
