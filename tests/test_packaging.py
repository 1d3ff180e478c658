"""What is shipped: the files in the wheel, and a clean environment without torch that can list, help and evaluate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import dubio

ROOT = Path(__file__).resolve().parents[1]
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert isinstance(done, subprocess.CompletedProcess)
    return done


def test_constraints_pin_torch_and_never_name_an_index() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert "torch==2.13.0" in pins
    assert all("==" in pin and "://" not in pin for pin in pins)
    assert not any(pin.startswith("torchvision") for pin in pins)


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = sum(project["optional-dependencies"].values(), project["dependencies"])
    names = {item.partition(">")[0].partition("[")[0].lower() for item in wanted} - {"dubio"}
    pinned = {
        line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    }
    assert names <= pinned


def test_scoring_side_does_not_depend_on_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert not any("torch" in item for item in project["dependencies"])


def test_only_this_file_marks_tests_of_packaging() -> None:
    """`make packaging` loads no other."""
    mark = "mark." + "packaging"
    marking = [path for path in ROOT.glob("tests/**/*.py") if mark in path.read_text(encoding="utf-8")]
    assert marking == [Path(__file__).resolve()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    constrained = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    done = run(sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT, env=constrained)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("dubio-*.whl")
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment that has dubio and nothing beyond its base dependencies."""
    folder = tmp_path_factory.mktemp("bare")
    assert run(sys.executable, "-m", "venv", "--without-pip", folder).returncode == 0
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, *PIP, "--python", programs / "python")  # this one's: installing another takes ten seconds
    done = run(*pip, "install", "--no-compile", "--constraint", ROOT / "constraints.txt", wheel)
    assert done.returncode == 0, done.stderr
    return programs


@pytest.mark.packaging
def test_wheel_holds_what_is_not_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    beside = {path for path in (ROOT / "src" / "dubio").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {path.relative_to(ROOT / "src").as_posix() for path in beside} <= names
    assert "dubio/py.typed" in names
    assert "dubio/studies/quick/benchmark.toml" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


@pytest.mark.packaging
def test_bare_environment_has_no_torch(bare: Path) -> None:
    assert run(bare / "python", "-c", "import torch").returncode != 0
    assert run(bare / "python", "-c", "import dubio; dubio.Predictions").returncode == 0


@pytest.mark.packaging
def test_bare_help_and_lists(bare: Path) -> None:
    assert run(bare / "dubio", "--version").stdout == f"dubio {dubio.__version__}\n"
    assert run(bare / "dubio", "--help").returncode == 0
    done = run(bare / "dubio", "list", "metrics", "--json")
    assert done.returncode == 0, done.stderr
    assert {"accuracy", "nll", "brier", "ece"} <= {item["name"] for item in json.loads(done.stdout)}


@pytest.mark.packaging
def test_bare_evaluate(bare: Path, tmp_path: Path) -> None:
    write = (
        "import numpy as np\n"
        "p = np.array([[.9, .1], [.2, .8], [.6, .4], [.3, .7]])\n"
        "np.savez('a.npz', probs=p, labels=np.array([0, 1, 1, 1]))"
    )
    assert run(bare / "python", "-c", write, cwd=tmp_path).returncode == 0
    done = run(bare / "dubio", "evaluate", "a.npz", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    json.loads(done.stdout)


@pytest.mark.packaging
def test_bare_environment_says_which_extra_is_missing(bare: Path) -> None:
    done = run(bare / "dubio", "list", "methods")
    assert done.returncode == 2
    assert "pip install 'dubio[train]'" in done.stderr
    assert "Traceback" not in done.stderr
