"""A failed system call leaves the old or the new, a sentence, and nothing that a second try could trip over.

`make faults` fails every call of every operation; here it is every ninth. Without a C compiler this fails, and says so.
"""

from __future__ import annotations

import shutil
import sys

import pytest
from campaigns.faults import main, preloaded
from campaigns.shim import FAULTS

STORE = "create|write|add a split|checkpoint|index|lock|aside|sweep|^refer fit$"


@pytest.fixture(scope="module")
def figures():
    return preloaded("campaigns.system_calls", "--every", "9", "--only", STORE)


def test_no_failed_call_does_harm(figures):
    assert figures["problems"] == []


def test_faults_of_every_kind_were_injected(figures):
    assert set(FAULTS) <= figures["cases"].keys()
    assert sum(figures["cases"].values()) > 100
    # An error ends most operations, an interrupt and a short write none.
    assert figures["refused"]["EIO"] > figures["cases"]["EIO"] / 2
    assert figures["refused"]["EINTR"] == figures["refused"]["short"] == 0
    assert figures["calls"]["write a fit"] > 30


def test_without_a_compiler_the_campaign_says_so_and_ends(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["faults", "--every", "9", "--disks", "0", "--kills", "0"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "C compiler" in capsys.readouterr().err
