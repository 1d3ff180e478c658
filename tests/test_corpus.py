"""Every file that once broke dubio is read or refused in words, within the limits of time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from campaigns.corpus import read_entries

ROOT = Path(__file__).parents[1]
ENTRIES = read_entries()


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    """Every entry is run once, in processes that are watched."""
    command = [sys.executable, "-m", "campaigns.fuzz", "--corpus"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["name"] for line in lines} == ENTRIES.keys(), done.stderr
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", ENTRIES)
def test_the_outcome_is_right(outcomes, name):
    outcome = outcomes[name]
    text = f"{ENTRIES[name].command}: exit {outcome['exit']} {outcome['failure']}\n{outcome['details']}"
    assert outcome["right"], text
