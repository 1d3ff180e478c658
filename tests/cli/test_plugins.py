"""Plugins of installed packages: loaded where they are asked for, and named."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dubio.core import registry
from dubio.core.errors import BadFile, UnknownName, UserError
from dubio.core.registry import METRICS, TASKS, installed_plugins, load_plugin, load_plugins, plugin_title
from dubio.runner.benchmark_run import prepare_run
from dubio.runner.executors import WorkerOrders
from dubio.runner.overrides import Overrides

PLUGIN = '''
import os
from pathlib import Path

from dubio import Predictions, metric
from dubio.core.registry import TASKS, task

with Path(os.environ["LOADED_BY"]).open("a") as log:
    log.write(f"{os.getpid()}\\n")


@metric("always-half", better="higher")
def half(p: Predictions) -> float:
    """A metric that is always the same."""
    return 0.5


@task("mine")
def mine():
    """A task of a plugin."""
    return TASKS.make("breast-cancer")
'''

BENCHMARK = """
name = "small"
methods = ["prior"]
seeds = [0]
[[task]]
name = "mine"
network = "mlp"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like site-packages with a package that offers the plugin ``halves``."""
    folder = tmp_path / "site"
    metadata = folder / "my_package-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text("[dubio.plugins]\nhalves = my_package_plugin\n")
    (folder / "my_package_plugin.py").write_text(PLUGIN)
    monkeypatch.setenv("LOADED_BY", str(tmp_path / "loaded"))
    monkeypatch.delenv(registry.PLUGINS_VARIABLE, raising=False)
    return folder


@pytest.fixture
def importable(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same on the search path of this process, whose registries are restored afterwards."""
    monkeypatch.syspath_prepend(str(installed))
    importlib.invalidate_caches()
    for known in (METRICS, TASKS):
        known.names()
        monkeypatch.setattr(known, "_entries", dict(known._entries))
    monkeypatch.delitem(sys.modules, "my_package_plugin", raising=False)
    yield installed
    sys.modules.pop("my_package_plugin", None)


def dubio(installed: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "dubio", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment,
                          cwd=installed.parent)  # fmt: skip


def test_an_installed_plugin_is_not_loaded_unless_it_is_named(installed: Path, tmp_path: Path) -> None:
    plain = dubio(installed, "list", "metrics")
    assert plain.returncode == 0
    assert "always-half" not in plain.stdout
    assert "Installed plugins, not loaded: halves; load with --plugin NAME." in plain.stderr
    assert not (tmp_path / "loaded").exists()  # its code did not run
    asked = dubio(installed, "list", "metrics", "--plugin", "halves")
    stated = dubio(installed, "list", "metrics", DUBIO_PLUGINS="halves")
    for done in (asked, stated):
        assert "always-half" in done.stdout
        assert "plugins: halves (my-package 1.2)" in done.stderr
        assert "not loaded" not in done.stderr


def test_an_unknown_name_and_an_unknown_plugin_say_what_is_installed(importable: Path) -> None:
    with pytest.raises(UnknownName, match="Installed plugins, not loaded: halves; load with --plugin NAME"):
        TASKS.entry("mine")
    with pytest.raises(BadFile, match=r"'halfs': no such file, nor an installed plugin. Installed: halves"):
        load_plugin("halfs")
    load_plugin("halves")
    assert TASKS.entry("mine").origin == "my_package_plugin"
    with pytest.raises(UnknownName) as refusal:
        TASKS.entry("yours")
    assert "not loaded" not in str(refusal.value)


def test_the_environment_comes_first_and_each_is_loaded_once(
    importable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = tmp_path / "extra.py"
    extra.write_text("")
    monkeypatch.setenv("DUBIO_PLUGINS", f" halves ,{extra},")
    assert load_plugins(["halves", extra]) == ("halves", str(extra))
    assert (tmp_path / "loaded").read_text().count("\n") == 1
    assert list(map(plugin_title, ("halves", str(extra)))) == ["halves (my-package 1.2)", str(extra)]


def test_a_plugin_that_fails_or_is_offered_twice_is_named(importable: Path) -> None:
    other = importable / "other-3.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 3\n")
    (other / "entry_points.txt").write_text("[dubio.plugins]\nhalves = elsewhere\nbroken = not_there_at_all\n")
    importlib.invalidate_caches()
    assert set(installed_plugins()) == {"broken", "halves"}
    with pytest.raises(
        UserError, match="several installed packages offer a plugin 'halves': elsewhere, my_package_plugin"
    ):
        load_plugin("halves")
    with pytest.raises(BadFile, match=r"installed plugin 'broken' \(not_there_at_all\) cannot be imported"):
        load_plugin("broken")


def test_a_run_gives_its_plugins_to_workers_notes_and_command(importable: Path, tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(BENCHMARK)
    prepared = prepare_run(tmp_path / "b.toml", Overrides(), plugins=["halves"])
    assert prepared.plugins == ("halves",)
    assert "plugins: halves (my-package 1.2)" in prepared.notes
    assert "--plugin halves" in prepared.command
    orders = json.loads(WorkerOrders(tmp_path, [Path("a.py")], installed=prepared.plugins).to_json())
    assert (orders["plugins"], orders["installed"]) == ([str(Path("a.py").resolve())], ["halves"])


@pytest.mark.slow
def test_a_run_names_its_plugins_and_every_worker_loads_them(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(BENCHMARK)
    done = dubio(installed, "run", "b.toml", "--jobs", 1, DUBIO_PLUGINS="halves")
    assert done.returncode == 0, done.stderr
    assert "plugins: halves (my-package 1.2)" in done.stderr
    assert len(set((tmp_path / "loaded").read_text().split())) >= 2  # this process and its worker
    (manifest,) = [json.loads(path.read_text()) for path in (tmp_path / "dubio-store" / "runs").glob("*.json")]
    assert manifest["plugins"] == ["halves (my-package 1.2)"]
    page = (tmp_path / "dubio-report" / "report.html").read_text()
    assert "Plugins: halves (my-package 1.2)." in page
    assert "--plugin halves" in page
