"""The documentation is correct: its Python runs, its benchmarks are read, its names and links exist."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubio.core.registry import REGISTRIES
from dubio.evaluation import evaluate
from dubio.runner.benchmark_file import parse_benchmark
from tests.cli.helpers import run_here
from tests.executor_here import training_here

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md")])
ALL_PAGES = sorted({*PAGES, ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")})
ENTRY_POINTS = "dubio.plugins"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(language: str, *pages: str) -> list[str]:
    matches = [(page, match) for page in PAGES for match in BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [text for page, (kind, text) in matches if kind == language and (not pages or page.name in pages)]


@pytest.mark.parametrize("number", range(len(blocks("python", "extending.md"))))
def test_plugin_examples_conform(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in REGISTRIES.values():  # what an example registers is forgotten after it
        registry.names()
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    plugin = tmp_path / "mine.py"
    plugin.write_text(blocks("python", "extending.md")[number], encoding="utf-8")
    done = run_here(tmp_path, "check", plugin)
    assert done.returncode == 0, done.stdout + done.stderr


def test_python_on_the_first_page_runs(tmp_path: Path) -> None:
    (example,) = blocks("python", "getting-started.md")
    process = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    # two of three decisions are right; Brier = (0.02 + 0.08 + 0.72) / 3
    accuracy, brier = map(float, process.stdout.split())
    assert accuracy == pytest.approx(2 / 3)
    assert brier == pytest.approx(0.82 / 3, abs=1e-6)


def test_python_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    examples = blocks("python", "python.md")
    assert len(examples) == 6
    outputs = []
    for example in examples:
        with training_here():
            exec(example, {})  # with names of its own: each stands alone
        outputs.append(capsys.readouterr().out)
    before, after = map(float, outputs[2].split())
    assert after < before
    resampled, accuracy = outputs[3].split()
    assert resampled == "groups"
    assert 0.5 < float(accuracy) < 1
    assert "not significantly different" in outputs[4]
    assert outputs[5].startswith("not met: ece(bins=10) < 0.03 @upper: the upper bound is 0.")
    assert "1 of 2 requirements met." in outputs[5]
    assert (tmp_path / "report" / "report.html").is_file()


def test_page_on_your_own_module_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    example, going_on, reading = blocks("python", "your-module.md")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    torch.manual_seed(0)
    world: dict[str, Any] = {}
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


def written_by(framework: str) -> str:
    """Return the code under one heading of the page on prediction files."""
    page = (ROOT / "docs" / "prediction-files.md").read_text(encoding="utf-8")
    return str(BLOCK.findall(page.partition(f"### {framework}\n")[2])[0][1])


def test_a_file_written_from_pytorch_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    inputs, targets = torch.randn(30, 4), torch.arange(30) % 3
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5))
    batches = [(inputs[:20], targets[:20]), (inputs[20:], targets[20:])]
    exec(written_by("PyTorch"), {"model": model, "loader": batches})
    result = evaluate(tmp_path / "mine.npz", replicates=0)
    expected = (model.eval()(inputs).argmax(1) == targets).float().mean()
    assert result["accuracy"] == pytest.approx(float(expected))


def test_a_file_written_from_scikit_learn_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    inputs, targets = generator.normal(size=(60, 3)), np.array(["pear", "apple", "fig"] * 20)
    classifier = linear.LogisticRegression().fit(inputs, targets)
    exec(written_by("scikit-learn"), {"classifier": classifier, "inputs": inputs, "targets": targets})
    result = evaluate(tmp_path / "mine.npz", replicates=0)
    assert result["accuracy"] == pytest.approx(classifier.score(inputs, targets))
    assert result.predictions.classes == ("apple", "fig", "pear")


def test_answers_with_a_stated_confidence_are_scored_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answers, labels = ["fig", "pear", "fig", "plum"], ["fig", "pear", "pear", "fig"]
    exec(
        written_by("Answers without probabilities"),
        {"answers": answers, "labels": labels, "confidence": [0.9, 0.8, 0.6, 0.7]},
    )
    result = evaluate(tmp_path / "mine.npz", metrics=["accuracy", 'aurc(quantity="stated")'], replicates=0)
    assert result["accuracy"] == 0.5
    assert result['aurc(quantity="stated")'] == pytest.approx((0 / 1 + 0 / 2 + 1 / 3 + 2 / 4) / 4)


@pytest.mark.parametrize("framework", ["PyTorch", "scikit-learn", "Keras", "JAX", "Hugging Face"])
def test_code_that_writes_a_file_is_python_of_at_most_ten_lines(framework: str) -> None:
    code = written_by(framework)
    compile(code, framework, "exec")
    assert len(code.strip().splitlines()) <= 10
    assert "np.savez(" in code


def test_benchmark_examples_are_read() -> None:
    tables = [tomllib.loads(text) for text in blocks("toml")]
    benchmarks = [parse_benchmark(table) for table in tables if "task" in table]
    assert {benchmark.name for benchmark in benchmarks} == {"bert", "mine", "small", "topics", "tuned"}


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_linked_files_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), target


def exists(name: str) -> bool:
    """Return whether a dotted name is a module or something that a module, a class or a dataclass has."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            if attribute in getattr(value, "__dataclass_fields__", {}):
                return True
            if not hasattr(value, attribute):
                return False
            value = getattr(value, attribute)
        return True
    return False


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_the_documentation_exist(page: Path) -> None:
    pytest.importorskip("torch")
    names = set(re.findall(r"\bdubio(?:\.[A-Za-z_]\w*)+", page.read_text(encoding="utf-8")))
    assert not sorted(name for name in names - {ENTRY_POINTS} if not exists(name))


def test_cross_references_lead_to_documented_modules() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md")]
    documented = {name for text in pages for name in re.findall(r"^::: ([\w.]+)", text, re.MULTILINE)}
    for page in PAGES:
        for name in re.findall(r"\]\[(dubio[\w.]+)\]", page.read_text(encoding="utf-8")):
            assert any(name == module or name.startswith(f"{module}.") for module in documented), (page.name, name)


def test_every_promise_about_security_names_what_holds_it() -> None:
    """Each row of a table of promises names tests that exist, or a campaign that the Makefile has."""
    text, makefile = ((ROOT / name).read_text(encoding="utf-8") for name in ("SECURITY.md", "Makefile"))
    tables = re.findall(r"^\| promise \| held by \|\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) >= 15
    for row in rows:
        held_by = row.rsplit("|", 2)[1]
        tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", held_by)
        campaigns = re.findall(r"`make (\w+)`", held_by)
        assert tests or campaigns, row
        for file, name in tests:
            assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), (file, name)
        assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in campaigns), row
