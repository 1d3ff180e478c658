"""What the documentation shows works: its Python runs, its benchmarks are read, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dubio.evaluation import evaluate
from dubio.runner.benchmark_file import parse_benchmark

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(language: str, *pages: str) -> list[str]:
    found = [(page, match) for page in PAGES for match in BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [text for page, (kind, text) in found if kind == language and (not pages or page.name in pages)]


@pytest.mark.parametrize("number", range(len(blocks("python", "extending.md"))))
def test_plugin_examples_conform(number: int, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(blocks("python", "extending.md")[number], encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "dubio", "check", plugin], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_python_on_the_first_page_runs(tmp_path: Path) -> None:
    (example,) = blocks("python", "getting-started.md")
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # two of three decisions are right; Brier = (0.02 + 0.08 + 0.72) / 3
    accuracy, brier = map(float, done.stdout.split())
    assert accuracy == pytest.approx(2 / 3)
    assert brier == pytest.approx(0.82 / 3, abs=1e-6)


def test_python_page_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    examples = blocks("python", "python.md")
    assert len(examples) == 3
    for example in examples:
        done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    before, after = map(float, done.stdout.split())
    assert after < before
    assert (tmp_path / "report" / "report.html").is_file()


def written_by(framework: str) -> str:
    """The code that a part of the page on prediction files shows."""
    page = (ROOT / "docs" / "prediction-files.md").read_text(encoding="utf-8")
    return str(BLOCK.findall(page.partition(f"### {framework}\n")[2])[0][1])


def test_a_file_written_from_pytorch_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    inputs, targets = torch.randn(30, 4), torch.arange(30) % 3
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5))
    batches = [(inputs[:20], targets[:20]), (inputs[20:], targets[20:])]
    exec(written_by("PyTorch"), {"model": model, "loader": batches})
    found = evaluate(tmp_path / "mine.npz", replicates=0)
    wanted = (model.eval()(inputs).argmax(1) == targets).float().mean()
    assert found["accuracy"] == pytest.approx(float(wanted))


def test_a_file_written_from_scikit_learn_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    inputs, targets = generator.normal(size=(60, 3)), np.array(["pear", "apple", "fig"] * 20)
    classifier = linear.LogisticRegression().fit(inputs, targets)
    exec(written_by("scikit-learn"), {"classifier": classifier, "inputs": inputs, "targets": targets})
    found = evaluate(tmp_path / "mine.npz", replicates=0)
    assert found["accuracy"] == pytest.approx(classifier.score(inputs, targets))
    assert found.predictions.classes == ("apple", "fig", "pear")


@pytest.mark.parametrize("framework", ["PyTorch", "scikit-learn", "Keras", "JAX", "Hugging Face"])
def test_what_writes_a_file_is_python_of_at_most_ten_lines(framework: str) -> None:
    code = written_by(framework)
    compile(code, framework, "exec")
    assert len(code.strip().splitlines()) <= 10
    assert "np.savez(" in code


def test_benchmark_examples_are_read() -> None:
    tables = [tomllib.loads(text) for text in blocks("toml")]
    benchmarks = [parse_benchmark(table) for table in tables if "task" in table]
    assert {benchmark.name for benchmark in benchmarks} == {"bert", "mine", "small", "topics", "tuned"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_links_between_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), target
