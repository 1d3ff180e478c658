"""The paper's interface: a scikit-learn model and a torch one on the retina benchmark, as the documentation has it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dubio.estimators import EstimatorBenchmark

torch = pytest.importorskip("torch")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "retina.md"


def examples() -> list[str]:
    """The Python that the page shows, in its order."""
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def write_eyes(path: Path) -> None:
    """Eyes that are the brighter, the more they are ill, four photographs a patient, some of them bad."""
    rng = np.random.default_rng(0)
    grade = np.arange(160) % 5
    x = rng.integers(0, 60, (160, 64, 64, 3)) + 40 * grade[:, None, None, None]
    quality = (rng.random(160) > 0.3).astype(int)
    np.savez(path, x=x.astype(np.uint8), y=grade, patient=np.repeat(np.arange(40), 4), quality=quality)


def check(world: dict, bench: EstimatorBenchmark) -> None:
    """Scores are those of the models' own probabilities, and every system is in the comparison."""
    x, y = bench.test
    found = world["scores"]
    assert found["class_auroc"] == pytest.approx(roc_auc_score(y, world["model"].predict_proba(x)[:, 1]))
    far, grades = bench.shifts["bad-quality"]
    wanted = roc_auc_score(grades, world["model"].predict_proba(far)[:, 1])
    assert found["class_auroc", "bad-quality"] == pytest.approx(wanted)
    p, spread = world["estimator"](x[:5])
    assert (tuple(p.shape), tuple(spread.shape)) == ((20, 5, 2), (5,))
    compared = bench.compare({"logistic": world["model"], "torch": world["estimator"]}, replicates=20)
    assert "logistic" in str(compared)
    assert "torch" in str(compared)


def shown(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.chdir(path)
    torch.manual_seed(0)
    world: dict = {}
    for example in examples():
        exec(example, world)
    return world


def test_the_page_runs_on_made_up_eyes(tmp_path, monkeypatch, capsys):
    write_eyes(tmp_path / "deepdrid_64.npz")
    world = shown(tmp_path, monkeypatch)
    check(world, world["bench"])
    assert world["scores"]["class_auroc"] > 0.9
    assert "random referral" in capsys.readouterr().out


def test_the_page_runs_on_real_eyes(data_dir, monkeypatch):
    if not (data_dir / "deepdrid_64.npz").is_file():
        pytest.skip("no deepdrid_64.npz")
    world = shown(data_dir, monkeypatch)
    check(world, world["bench"])
    assert world["scores"]["class_auroc"] > 0.6
