"""The retina benchmark: its presets, what its methods share, the twin of mean-field VI, and data it is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.registry import METHODS, NETWORKS, TASKS
from dubio.runner.benchmark_file import load_benchmark
from dubio.runner.execute import Outcome
from dubio.runner.manifest import benchmark_warnings, make_manifest
from dubio.runner.overrides import Overrides, verified_tasks
from dubio.runner.plan import make_plan, method_rows
from dubio.runner.prepare import method_arguments, method_networks, prepare_available
from dubio.runner.trainer import load_trainer
from dubio.runner.tuning import plan_trials
from tests.runner.helpers import prepare

pytest.importorskip("torch")

PAPER = ("64", "128", "256", "512")
TWIN = [5, 10, 20]


def arrays(path: Path, grades: int = 5, quality: bool = True, patients: int = 40) -> str:
    """An npz of four noise pictures a patient."""
    rng = np.random.default_rng(0)
    count = 4 * patients
    columns = {
        "x": rng.integers(0, 255, (count, 64, 64, 3), dtype=np.uint8),
        "y": np.arange(count) % grades,
        "patient": np.repeat(np.arange(patients), 4),
    }
    np.savez(path, **(columns | ({"quality": rng.integers(0, 2, count)} if quality else {})))
    return str(path)


@pytest.fixture(scope="module")
def eyes(tmp_path_factory) -> str:
    return arrays(tmp_path_factory.mktemp("eyes") / "eyes.npz")


@pytest.mark.parametrize("preset", [*PAPER, "small", "small-transferred", "start", "smoke", "tempered"])
def test_every_name_is_registered_and_every_argument_known(preset):
    benchmark = load_benchmark("retina", preset)
    for entry in benchmark.tasks:
        TASKS.entry(entry.name).check(entry.arguments)
        NETWORKS.entry(entry.network).check(entry.network_arguments)
        assert method_arguments(benchmark, entry).keys() == set(benchmark.methods_of(entry))
    assert benchmark_warnings(benchmark) == ()


@pytest.mark.parametrize("size", PAPER)
def test_a_preset_a_size_has_the_papers_hyper_parameters(size):
    benchmark = load_benchmark("retina", size)
    (entry,) = benchmark.tasks
    assert entry.arguments == {"size": int(size)}
    assert (len(benchmark.seeds), benchmark.members, benchmark.samples) == (9, 3, 100)
    assert entry.network_arguments == {"base": 32}
    networks = method_networks(benchmark, entry)
    assert {name: made["base"] for name, made in networks.items()} == {
        "mean-field-vi": 22, "mean-field-vi-ensemble": 22,
    }  # fmt: skip
    arguments = method_arguments(benchmark, entry)
    dropout = METHODS.make("mc-dropout", **arguments["mc-dropout"])
    assert (dropout.optimiser.lr, dropout.optimiser.l2, dropout.optimiser.shrink) == (4e-4, 5e-5, 0.0)
    assert (dropout.edits[0].p, dropout.samples, dropout.objective.batch) == (0.2, 100, 64)
    assert dropout.objective.class_weights == "batch"
    views = dropout.objective.augmentation
    assert (views.zoom, views.degrees, views.flip, views.flip_vertical) == (0.1, 180.0, 0.5, 0.5)
    assert views.fraction * 512 == 25
    for name in arguments:
        assert ("l2" in benchmark.tune.get(name, {})) == ("concrete" not in name)


@pytest.mark.parametrize(
    ("preset", "beta", "anneal"),
    [
        *((size, 1.0, 0.0) for size in PAPER),
        ("tempered", 0.01, 0.25),
        ("small", 0.01, 0.25),
        ("small-transferred", 0.01, 0.25),
    ],
)
def test_only_the_papers_presets_have_the_plain_evidence_lower_bound(preset, beta, anneal):
    """R, eq. 3: the divergence counts in full."""
    benchmark = load_benchmark("retina", preset, ["mean-field-vi-ensemble"])
    for entry in benchmark.tasks:
        for name in ("mean-field-vi", "mean-field-vi-ensemble"):
            if name in benchmark.methods_of(entry):
                (edit,) = METHODS.make(name, **method_arguments(benchmark, entry)[name]).edits
                assert (edit.beta, edit.anneal) == (beta, anneal)
    assert any("mean-field-vi" in benchmark.methods_of(entry) for entry in benchmark.tasks)


def test_tempered_differs_from_the_paper_in_the_bound_alone():
    tempered, paper = load_benchmark("retina", "tempered"), load_benchmark("retina", "512")
    (entry,), (before,) = tempered.tasks, paper.tasks
    assert entry == replace(before, method_arguments=entry.method_arguments)
    told, without = method_arguments(tempered, entry), method_arguments(paper, before)
    assert {name for name in told if told[name] != without[name]} == {"mean-field-vi", "mean-field-vi-ensemble"}


def test_the_small_preset_is_the_default():
    benchmark = load_benchmark("retina")
    assert (benchmark.preset, benchmark.seeds, benchmark.samples) == ("small", (0, 1, 2), 100)
    assert [entry.arguments for entry in benchmark.tasks] == [{}, {"shift": "severity"}]
    for entry in benchmark.tasks:
        assert (entry.network, entry.network_arguments) == ("cnn-linear", {"channels": [8, 16, 32]})
        twins = {name: list(arguments["channels"]) for name, arguments in method_networks(benchmark, entry).items()}
        assert twins == {"mean-field-vi": TWIN}


def test_the_transferred_preset_has_the_methods_of_small_on_a_frozen_network():
    small, transferred = load_benchmark("retina"), load_benchmark("retina", "small-transferred")
    assert (transferred.seeds, transferred.samples, transferred.tune) == (small.seeds, small.samples, {})
    assert [entry.arguments for entry in transferred.tasks] == [entry.arguments for entry in small.tasks]
    for before, entry in zip(small.tasks, transferred.tasks, strict=True):
        assert transferred.methods_of(entry) == small.methods_of(before)
        assert (entry.network, entry.network_arguments["trainable_blocks"]) == ("efficientnet-lite0", 0)
        assert method_networks(transferred, entry) == {}  # one head, whose weights mean-field VI makes Gaussian
        views = METHODS.make("regularised", **method_arguments(transferred, entry)["regularised"])
        assert (views.objective.augmentation.pixels, views.objective.augmentation.flip) == (0, 0.5)


def test_the_small_preset_weights_no_class_stops_at_no_epoch_and_tunes_nothing():
    """What made it end near chance on a weak signal: see the table in docs/retina.md."""
    benchmark = load_benchmark("retina")
    assert benchmark.tune == {}
    for entry in benchmark.tasks:
        for name, arguments in method_arguments(benchmark, entry).items():
            recipe = METHODS.make(name, **arguments)
            assert (recipe.objective.class_weights, recipe.objective.patience) == ("none", 0), name
            assert (type(recipe.collect).__name__, type(recipe.schedule).__name__) == ("Last", "Cosine"), name


def test_the_small_twin_of_mean_field_vi_has_about_as_many_numbers():
    numbers = {}
    for channels in ((8, 16, 32), TWIN):
        network = NETWORKS.make("cnn-linear", (3, 64, 64), channels=tuple(channels))
        convolutions = 9 * sum(i * o for i, o in zip((3, *channels), channels, strict=False))
        numbers[len(numbers)] = convolutions + 2 * network.width, 2 * sum(channels) + 2
    (whole, others), (means, twins) = numbers[0], numbers[1]
    assert whole + others == 8650
    assert 2 * means + twins == pytest.approx(8650, rel=0.07)


def told(benchmark, **arguments):
    return Overrides(data_options=arguments).apply(benchmark)


def test_mc_dropout_and_the_ensembles_share_their_fits(eyes):
    benchmark = told(load_benchmark("retina"), data=eyes, shift="quality")
    settings = prepare(benchmark)
    first = {(0, method): {key: values[0] for key, values in lists.items()} for method, lists in benchmark.tune.items()}
    plan = make_plan(benchmark, settings, load_trainer(), first)
    # three regularised members, one of mean-field VI and one of concrete dropout, in three seeds
    assert len(plan.of_kind("fit")) == 3 * 5
    fits = {name: {run.fits for run in plan.runs if run.method == name} for name in benchmark.methods}
    assert fits["mc-dropout"] == fits["regularised"]
    assert fits["mc-dropout-ensemble"] == fits["deep-ensemble-regularised"]
    assert fits["mc-concrete-dropout"] == fits["concrete-dropout"]
    widths = {node.method: node.spec["network"]["arguments"]["channels"] for node in plan.of_kind("fit")}
    assert widths == {"regularised": [8, 16, 32], "mean-field-vi": TWIN, "concrete-dropout": [8, 16, 32]}
    rows = {row["name"]: row for row in method_rows(benchmark, settings, plan)}
    assert (rows["mc-dropout-ensemble"]["family"], rows["mc-dropout"]["samples"]) == ("mc-dropout", 100)
    manifest = make_manifest(benchmark, settings, plan, (), Outcome())
    (task,) = manifest["tasks"]
    assert (task["name"], list(task["network_arguments"]["channels"])) == ("retina", [8, 16, 32])
    assert list(task["method_networks"]["mean-field-vi"]["channels"]) == TWIN
    assert manifest["benchmark"]["tasks"][0]["method_network"] == {"mean-field-vi": {"channels": TWIN}}


def test_ensembles_that_the_small_preset_leaves_out_can_be_asked_for_and_share_the_fits(eyes):
    def fits_of(*methods):
        benchmark = load_benchmark("retina", None, methods)
        asked = Overrides(methods=methods, seeds=(0,), data_options={"data": eyes, "shift": "quality"}).apply(benchmark)
        settings = prepare(asked)
        plan = make_plan(asked, settings, load_trainer(), {(0, name): {"l2": 5e-5} for name in asked.tune})
        return asked, {node.id: node.spec for node in plan.of_kind("fit")}

    _, single = fits_of("mean-field-vi")
    vis, members = fits_of("mean-field-vi-ensemble")
    assert vis.tasks[0].method_network == {"mean-field-vi-ensemble": {"channels": TWIN}}
    assert len(members) == 3
    assert single.keys() < members.keys()
    _, single = fits_of("mc-concrete-dropout")
    concrete, members = fits_of("mc-concrete-dropout-ensemble")
    assert concrete.method_arguments == {"mc-concrete-dropout-ensemble": {"l2": 0.0}}
    assert single.keys() < members.keys()


def test_methods_with_the_same_fits_have_the_same_trials(eyes):
    benchmark = replace(told(load_benchmark("retina", "64"), data=eyes, shift="quality"), seeds=(0,))
    plan, trials = plan_trials(benchmark, prepare(benchmark), load_trainer())
    assert len(trials) == 3 * 6
    assert len(plan.of_kind("fit")) == 3 * 2


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, ["retina", "retina-severity"]),
        ({"shift": "quality"}, ["retina"]),
        ({"shift": "severity"}, ["retina-severity"]),
        ({"shift": "quality+severity"}, ["retina-quality+severity"]),
        ({"shift": "none"}, ["retina"]),
        ({"target": "ordinal"}, ["retina-ordinal", "retina-severity-ordinal"]),
    ],
)
def test_shifts_and_targets_are_told(eyes, arguments, names):
    found = prepare_available(told(load_benchmark("retina"), data=eyes, **arguments))
    assert [setting.name for setting in found.tasks] == names
    assert found.skipped == ()


def test_data_that_names_no_quality_is_run_without_that_shift(tmp_path):
    data = arrays(tmp_path / "plain.npz", quality=False)
    found = prepare_available(told(load_benchmark("retina"), data=data))
    assert [[split.name for split in setting.task.of_kind("shift")] for setting in found.tasks] == [[], ["severe"]]
    other = arrays(tmp_path / "elsewhere.npz", patients=30)
    found = prepare_available(told(load_benchmark("retina", "64"), data=data, shift_data=other))
    (setting,) = found.tasks
    assert (setting.name, [split.name for split in setting.task.of_kind("shift")]) == (
        "retina-elsewhere", ["elsewhere"],
    )  # fmt: skip


def test_data_without_severe_grades_leaves_that_task_out(tmp_path):
    benchmark = told(load_benchmark("retina"), data=arrays(tmp_path / "mild.npz", grades=3))
    found = prepare_available(benchmark)
    assert [setting.name for setting in found.tasks] == ["retina"]
    assert "no severe" in str(found.skipped[0].reason)
    with pytest.raises(UserError, match="no severe"):
        prepare_available(told(benchmark, shift="severity"))


def test_what_no_task_is_told_is_refused():
    with pytest.raises(UserError, match="--data"):
        told(load_benchmark("quick"), data="mine.csv")
    with pytest.raises(UserError, match="no task of benchmark 'retina' has an argument 'label'; they have data, size"):
        told(load_benchmark("retina"), label="class")
    with pytest.raises(UserError, match=r"--verify.*your own data"):
        verified_tasks(load_benchmark("quick"))


def test_files_are_verified_here_and_not_by_workers(eyes):
    benchmark = told(load_benchmark("retina"), data=eyes)
    read = verified_tasks(benchmark)
    assert [read[place].name for place in read] == ["retina", "retina-severity"]
    assert all("verify" not in entry.arguments for entry in benchmark.tasks)
