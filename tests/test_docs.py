"""What the documentation shows works: its Python runs, its benchmarks are read, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dubio.runner.benchmark import parse_benchmark

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


def test_benchmark_examples_are_read() -> None:
    tables = [tomllib.loads(text) for text in blocks("toml")]
    benchmarks = [parse_benchmark(table) for table in tables if "task" in table]
    assert {benchmark.name for benchmark in benchmarks} == {"small", "topics"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_links_between_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), target
