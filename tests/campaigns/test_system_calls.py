"""A failed system call leaves the old or the new, a sentence, and nothing that a second try could trip over.

`make faults` fails every call of every operation; here it is every ninth. Without a C compiler this fails, and says so.
"""

from __future__ import annotations

import shutil
import sys

import pytest
from campaigns.faults import main, run_faults
from campaigns.operations import Operation
from campaigns.shim import FAULTS
from campaigns.system_calls import Trial

CHOSEN = "create|write|add a split|save a checkpoint|index|lock|aside|sweep|^refer fit$|of a grid|log of a server"


@pytest.fixture(scope="module")
def figures():
    return run_faults("--every", "9", "--only", CHOSEN)["system calls"]


def test_no_failed_call_does_harm(figures):
    assert figures["problems"] == []


def test_faults_of_every_kind_were_injected(figures):
    assert set(FAULTS) <= figures["cases"].keys()
    assert sum(figures["cases"].values()) > 100
    # An error ends most operations, an interrupt and a short write none.
    assert figures["refused"]["EIO"] > figures["cases"]["EIO"] / 2
    assert figures["refused"]["EINTR"] == figures["refused"]["short"] == 0
    assert figures["calls"]["write a fit"] > 30
    assert figures["faults"]["append to the log of a server"] > 10
    assert 0 < figures["folders"]["write a fit"] <= figures["faults"]["write a fit"]


def test_a_server_cuts_a_torn_log_off_whatever_interrupts_it():
    figures = run_faults("--every", "1", "--only", "torn log")["system calls"]
    assert figures["problems"] == []
    assert figures["cases"]["EINTR"] > 20


def test_a_result_that_is_neither_old_nor_new_is_a_problem_and_equal_folders_are_looked_at_once(tmp_path):
    looks = tmp_path / "looks"

    def observe(folder):
        with looks.open("a") as log:
            log.write("x")
        return {path.name: path.read_text() for path in folder.iterdir()}

    def writing(text):
        return lambda folder: (folder / "file").write_text(text)

    trial = Trial(Operation("replace", writing("old"), writing("new"), observe), tmp_path / "work")
    path = trial.copy() / "file"
    assert trial.look(must_be_new=False) == []
    path.write_text("ne")
    (problem,) = trial.look(must_be_new=False)
    assert problem == "file is ne; allowed: new, old"
    path.write_text("old")
    assert trial.look(must_be_new=True) == ["file is old; allowed: new"]
    counted = len(looks.read_text())
    path.write_text("ne")
    assert trial.look(must_be_new=False) == [problem]
    assert len(looks.read_text()) == counted


def test_without_a_compiler_the_campaign_says_so_and_ends(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["faults", "--every", "9", "--disks", "0", "--kills", "0"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "C compiler" in capsys.readouterr().err
