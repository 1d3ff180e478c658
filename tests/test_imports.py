"""What is loaded when: importing dubio and asking for help cost nothing, and the scoring side never meets torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import dubio

SOURCE = Path(dubio.__file__).parent
SCORING_SIDE = (
    "formats", "metrics", "calibration", "statistics", "referral", "evaluation", "store", "reporting",
    "tasks", "encoders", "estimators", "core",
)  # fmt: skip


def modules_after(code: str) -> set[str]:
    """The modules loaded once the code has run in a fresh interpreter."""
    listing = "import json, sys; print('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{listing}"], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def run_cli(*words: str) -> str:
    return (
        f"import sys\nsys.argv = ['dubio', *{list(words)!r}]\nfrom dubio.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code"
    )


def test_importing_dubio_loads_nothing_heavy() -> None:
    loaded = modules_after("import dubio; dubio.__version__; dir(dubio)")
    assert not loaded & {"numpy", "scipy", "torch", "typer", "rich"}


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("evaluate", "--help"), ("--version",)])
def test_help_loads_no_arrays(words: tuple[str, ...]) -> None:
    loaded = modules_after(run_cli(*words))
    assert not loaded & {"numpy", "scipy", "torch", "altair", "vl_convert", "sklearn", "pyarrow"}


def test_listing_metrics_loads_no_torch() -> None:
    assert "torch" not in modules_after(run_cli("list", "metrics"))


def test_scoring_side_loads_no_torch() -> None:
    names = [f"dubio.{path.stem}" for path in sorted(SOURCE.glob("[!_]*.py"))]
    for package in SCORING_SIDE:
        for path in sorted((SOURCE / package).rglob("*.py")):
            parts = path.relative_to(SOURCE.parent).with_suffix("").parts
            names.append(".".join(parts).removesuffix(".__init__"))
    loaded = modules_after("\n".join(f"import {name}" for name in names))
    assert "torch" not in loaded
    assert set(names) <= loaded


def test_commands_import_only_light_things_at_the_top() -> None:
    for path in sorted((SOURCE / "cli").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom | ast.Import):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
                for name in names:
                    top = name.partition(".")[0]
                    light = top in sys.stdlib_module_names or top in ("typer", "dubio")
                    # the options of own data are defined once, in a module that imports nothing; docstrings are
                    # read by one that imports the standard library alone
                    modules = ("dubio", "dubio.core.errors", "dubio.core.validate", "dubio.tasks.data_options")
                    inside = top != "dubio" or name in modules or name.startswith("dubio.cli")
                    assert light, f"{path.name} imports {name} at the top"
                    assert inside, f"{path.name} imports {name} at the top"


@pytest.mark.parametrize("name", dubio.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(dubio, name) is not None
    assert name in dir(dubio)


def test_no_submodule_replaces_a_public_name() -> None:
    """Importing dubio.x binds dubio.x to the module; a public function of that name would be lost."""
    pytest.importorskip("torch")
    code = (
        "import importlib, pkgutil, types, dubio\n"
        "for module in pkgutil.walk_packages(dubio.__path__, 'dubio.'):\n"
        "    if not module.name.endswith('__main__'):\n        importlib.import_module(module.name)\n"
        "clashes = [name for name in dubio.__all__ if isinstance(getattr(dubio, name), types.ModuleType)]\n"
        "assert not clashes, clashes"
    )
    modules_after(code)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        _ = dubio.evalute  # type: ignore[attr-defined]
