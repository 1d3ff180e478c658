"""Runs from beginning to end: variants, facts of examples, arguments that cannot be meant."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dubio
from dubio.core.errors import UserError
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.reporting.manifest_view import read_manifest
from dubio.runner.benchmark_file import parse_benchmark
from dubio.runner.benchmark_run import _beside, prepare_run
from dubio.runner.manifest import subgroup_columns
from dubio.runner.overrides import Overrides
from dubio.store import Store
from dubio.tasks.fundus.layouts import OWN
from dubio.tasks.fundus.photographs import PhotographSet


def made(rows: int, seed: int) -> Examples:
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (rows, 6, 6, 3), dtype=np.uint8)
    site = np.array([f"site {row % 3}" for row in range(rows)])
    return Examples(images, np.arange(rows) % 2, facts={"site": site})


def task_of(inputs: Any = "image") -> Task:
    splits = (
        ("train", "train"),
        ("val", "val"),
        ("test", "id"),
        ("far", "shift"),
        ("noise-1", "shift"),
        ("noise-2", "shift"),
        ("hospital-2", "shift"),
        ("new", "ood"),
    )
    levels = {"noise-1": 1, "noise-2": 2}
    parts = tuple(
        Split.of(
            name,
            kind,  # type: ignore[arg-type]
            made(60, seed),
            family="noise" if name in levels else None,
            severity=levels.get(name),
        )
        for seed, (name, kind) in enumerate(splits)
    )
    return Task("eyes", inputs, "multiclass", ("no", "yes"), parts, SourceCard("", "", "", ""))


def test_facts_travel_through_the_manifest_and_touch_no_fingerprint() -> None:
    task = task_of()
    splits = [{"name": s.name, "kind": s.kind, "fingerprint": "0" * 64, "examples": len(s)} for s in task.splits]
    entry = {"name": "t", "splits": splits, **subgroup_columns(task)}
    columns = read_manifest({"name": "r", "tasks": [entry], "methods": [], "runs": []}).tasks[0].columns
    assert set(columns) == {"test", "far", "noise-1", "noise-2", "hospital-2", "new"}
    assert columns["far"]["site"].tolist() == task.split("far").data.facts["site"].tolist()
    some = task.split("test").data
    bare = Examples(some.inputs, some.labels)
    assert bare.fingerprint() == some.fingerprint()
    assert some.take(np.array([2, 0])).facts["site"].tolist() == ["site 2", "site 0"]


def test_photographs_know_site_and_quality_where_the_data_names_them() -> None:
    names, none = np.array(["a", "b", "c"]), np.array(["", "", ""])
    data = PhotographSet("own", np.zeros((3, 2, 2, 3), np.uint8), np.arange(3), np.array([1, 0, -1]), names, names,
                    np.array(["x", "", "y"]), none, (), OWN, ())  # fmt: skip
    assert {name: column.tolist() for name, column in data.facts.items()} == {
        "site": ["x", "unknown", "y"],
        "quality": ["good", "bad", "unknown"],
    }


def test_a_run_with_variants_is_whole_and_goes_on(preset_table, preset_world):
    small = parse_benchmark(preset_table, "paper")
    narrowed = Overrides(networks=["other-net"], seeds=(0,)).apply(small)
    finish = preset_world.run(narrowed)
    assert not finish.outcome.failures
    assert {run["method"] for run in finish.manifest["runs"]} == {"drop-slow", "drop-fast"}
    assert [row["name"] for row in finish.manifest["methods"]] == ["drop-slow", "drop-fast"]
    assert finish.manifest["benchmark"]["preset"] == "paper"
    assert preset_world.run(narrowed).outcome.completed == []


def test_planning_does_not_wait_for_the_reports_to_be_loaded():
    code = "import sys, dubio.runner.benchmark_run; print('dubio.reporting' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


def test_something_else_is_done_while_the_workers_are_busy_and_only_then(preset_table, preset_world):
    small = Overrides(networks=["other-net"], seeds=(0,)).apply(parse_benchmark(preset_table, "paper"))
    threads = []

    def meanwhile() -> Iterator[None]:
        threads.append(threading.current_thread())
        yield
        threads.append(threading.current_thread())

    with Store.open(preset_world.path / "store") as store:
        for _ in range(2):  # the second time nothing is missing
            preset_world.prepared(small).run(store, meanwhile=meanwhile)
    assert len(threads) == 2
    assert len({*threads} - {threading.main_thread()}) == 1
    assert not threads[0].is_alive()


def test_after_an_interrupt_no_further_step_is_taken_beside_the_workers():
    steps, begun, interrupted = [], threading.Event(), threading.Event()

    def meanwhile() -> Iterator[None]:
        steps.append("first")
        begun.set()
        assert interrupted.wait(30)
        yield
        steps.append("second")

    def work() -> None:
        with _beside(meanwhile):
            assert begun.wait(30)
            threading.Timer(0.2, interrupted.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["first"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"jobs": 0}, "jobs"),
        ({"seeds": ["a"]}, "seeds"),
        ({"seeds": 1.5}, "seeds"),
        ({"tasks": "breast-cancer"}, "tasks"),
        ({"methods": "mc-dropout"}, "methods"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_before_anything_is_made(tmp_path, arguments, named) -> None:
    with pytest.raises(UserError, match=named):
        dubio.run("quick", store=tmp_path / "store", **arguments)
    assert not (tmp_path / "store").exists()


def test_all_methods_are_those_that_apply(tmp_path: Any) -> None:
    lines = [f"{('bad poor', 'good fine')[k % 2]} film number {k % 7},{('no', 'yes')[k % 2]}" for k in range(80)]
    (tmp_path / "texts.csv").write_text("text,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    columns = {"text": "text", "label": "label"}
    overrides = Overrides(methods=("all",), data_options={"data": str(tmp_path / "texts.csv"), **columns})
    prepared = prepare_run(None, overrides)
    (task,) = prepared.tasks
    assert {"deterministic", "mc-dropout", "posthoc", "posthoc-ensemble", "deep-ensemble"} <= set(task.methods)
    assert not {"sngp", "ddu", "linear", "all"} & set(task.methods)
    assert any("ddu is left out: this network offers no weight for 'spectral_norm'" in note for note in prepared.notes)
    assert "--method all" in prepared.command
