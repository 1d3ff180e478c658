"""The page on a user's own module: its code runs as it stands."""

import re
from pathlib import Path

import numpy as np
import torch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "your-module.md"


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example, going_on, reading = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    torch.manual_seed(0)
    world: dict[str, object] = {}
    exec(example, world)
    nll, *probs = map(float, re.findall(r"[\d.]+(?:e-?\d+)?", capsys.readouterr().out))
    assert 0.0 < nll < np.log(3)
    assert len(probs) == 3
    assert abs(sum(probs) - 1.0) < 1e-6
    before = world["predictions"].logits
    exec(reading, world)
    found = world["fitted"].predict((world["inputs"][500:], world["labels"][500:]))
    np.testing.assert_array_equal(found.logits, before)
    exec(going_on, world)
    assert len(world["fitted"].members) == 2
    assert not Path("under-way").exists()
