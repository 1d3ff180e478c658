"""Pieces run side by side, are kept, and go on where they were interrupted; figures add up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from campaigns.pieces import ROOT, Kept, Piece, run_pieces, total

from campaigns import pieces


@pytest.fixture(autouse=True)
def code(monkeypatch):
    """The code that is tried, as its hash."""
    monkeypatch.setattr(pieces, "code_digest", lambda: "some code")


def counting(folder, name, **options):
    """A piece that leaves a line for each time it ran."""

    def work():
        with (folder / "ran").open("a") as log:
            log.write(f"{name}\n")
        return {"count": 1, "by": {name: 1}, "problems": []}

    return Piece(name, work, **options)


def test_figures_add_up_and_finished_pieces_are_not_run_again(tmp_path):
    kept = Kept(tmp_path / "parts", {"seed": 0})
    work = [counting(tmp_path, name) for name in "abc"]
    assert total(run_pieces(work[:2], kept, 2)) == {"count": 2, "by": {"a": 1, "b": 1}, "problems": []}
    again = Kept(tmp_path / "parts", {"seed": 0})
    assert total(run_pieces(work, again, 2))["count"] == 3
    assert sorted((tmp_path / "ran").read_text().split()) == ["a", "b", "c"]


@pytest.mark.parametrize("changed", ["options", "code"])
def test_other_options_and_other_code_begin_anew(tmp_path, monkeypatch, changed):
    run_pieces([counting(tmp_path, "a")], Kept(tmp_path / "parts", {"seed": 0}), 1)
    if changed == "code":
        monkeypatch.setattr(pieces, "code_digest", lambda: "other code")
    run_pieces([counting(tmp_path, "a")], Kept(tmp_path / "parts", {"seed": int(changed == "options")}), 1)
    assert (tmp_path / "ran").read_text().split() == ["a", "a"]


def test_pieces_of_one_lane_run_one_at_a_time_and_others_beside_them(tmp_path):
    def timed(name):
        def work():
            started = time.monotonic()
            time.sleep(0.3)
            return {name: [started, time.monotonic()], "problems": []}

        return work

    laned = [Piece(f"lane {i}", timed(f"lane {i}"), "lane") for i in range(2)]
    figures = total(run_pieces([*laned, Piece("free", timed("free"))], Kept(tmp_path / "parts", {}), 3))
    assert figures["lane 0"][1] <= figures["lane 1"][0]
    assert figures["free"][0] < figures["lane 0"][1]


def test_a_piece_that_ends_without_figures_is_an_error(tmp_path, capfd):
    def fail():
        raise ZeroDivisionError("no figures")

    with pytest.raises(RuntimeError, match="a broken piece"):
        run_pieces([Piece("a broken piece", fail)], Kept(tmp_path / "parts", {}), 1)
    assert "ZeroDivisionError: no figures" in capfd.readouterr().err


SCRIPT = """
import signal, sys, time
from pathlib import Path
from campaigns.pieces import Kept, Piece, run_pieces

def fast():
    return {"n": 1, "problems": []}

def slow():
    Path(sys.argv[1], "begun").touch()
    if not Path(sys.argv[1], "go").exists():
        try:
            time.sleep(60)
        except KeyboardInterrupt:  # lost, as in a finaliser
            time.sleep(60)
    return {"n": 1, "problems": []}

signal.signal(signal.SIGINT, signal.default_int_handler)
kept = Kept(Path(sys.argv[1], "parts"), {})
print(len(run_pieces([Piece("fast", fast), Piece("slow", slow)], kept, 1)))
"""


def test_after_an_interrupt_no_process_is_left_and_the_same_command_continues(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    children = (f"/proc/{process.pid}/task/{process.pid}/children",)
    workers = open(*children).read().split()  # noqa: SIM115
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=30)[1]
    assert workers
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)
    (tmp_path / "go").touch()
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "2"
    assert "fast" not in ended.stdout
    assert [json.loads(path.read_text())["n"] for path in (tmp_path / "parts").glob("*.json")] == [1, 1]
