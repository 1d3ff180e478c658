"""The ensembling study's presets: P's numbers, names that exist, and trainings that are shared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dubio.core.errors import UserError
from dubio.core.registry import NETWORKS, TASKS
from dubio.runner.benchmark_file import Benchmark, TaskEntry, load_benchmark
from dubio.runner.manifest import benchmark_warnings
from dubio.runner.overrides import Overrides
from dubio.runner.plan import PlannedRun, make_plan
from dubio.runner.prepare import make_method, method_arguments
from dubio.runner.trainer import load_trainer
from tests.runner.helpers import prepare

torch = pytest.importorskip("torch")

from dubio.networks.network import Model  # noqa: E402
from dubio.training.schedules import temperature_value  # noqa: E402

PRESETS = (
    "paper", "paper-all", "small", "small-networks", "small-noisy", "small-posthoc", "small-cheap",
    "small-last-layers", "start", "smoke",
)  # fmt: skip


def entry_of(benchmark: Benchmark, task: str, network: str) -> TaskEntry:
    (found,) = [e for e in benchmark.tasks if (e.name, e.network, e.called) == (task, network, "")]
    return found


@pytest.mark.parametrize("preset", PRESETS)
def test_every_name_is_registered_and_every_recipe_can_be_made(preset: str) -> None:
    benchmark = load_benchmark("ensembles", preset)
    for entry in benchmark.tasks:
        TASKS.entry(entry.name).check(entry.arguments)
        NETWORKS.entry(entry.network).check(entry.network_arguments)
        arguments = method_arguments(benchmark, entry)
        assert arguments.keys() == set(benchmark.methods_of(entry))
        for name, given in arguments.items():
            recipe = make_method(benchmark, name, given, {})
            assert (recipe.views is not None) == name.endswith("-tta")
    assert benchmark_warnings(benchmark) == ()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_task_is_asked_for_by_what_results_call_it(preset: str) -> None:
    benchmark = load_benchmark("ensembles", preset)
    known = {label for entry in benchmark.tasks for label in entry.labels}
    assert known == {entry.called or entry.name for entry in benchmark.tasks}
    for name in known:
        chosen = Overrides(tasks=[name]).apply(benchmark).tasks
        assert {entry.called or entry.name for entry in chosen} == {name}


def test_mimo_in_a_small_network_repeats_as_many_inputs_as_its_paper_on_imagenet() -> None:
    """Havasi et al. (2021), ImageNet with ResNet-50: an input repetition of 0.6, since capacity is short."""
    benchmark = load_benchmark("ensembles", "small-cheap")
    given = method_arguments(benchmark, entry_of(benchmark, "cifar10", "vgg-small"))["mimo"]
    (edit,) = make_method(benchmark, "mimo", given, {}).edits
    assert vars(edit) == {"size": 3, "repetitions": 1, "repeated_inputs": 0.6}


TABLE_2 = {
    "vgg16-bn": (0.05, 400, 5e-4),
    "preresnet": (0.1, 300, 3e-4),
    "preresnet-164": (0.1, 300, 3e-4),
    "wrn": (0.1, 300, 5e-4),
}


@pytest.mark.parametrize("task", ["cifar10", "cifar100"])
@pytest.mark.parametrize("network", TABLE_2)
def test_the_paper_preset_has_the_papers_schedules(task: str, network: str) -> None:
    """P, Appendix D and Table 2; SPEC §7."""
    benchmark = load_benchmark("ensembles", "paper")
    entry = entry_of(benchmark, task, network)
    told = method_arguments(benchmark, entry)
    lr, epochs, decay = TABLE_2[network]
    plain = told["deterministic"]
    assert (plain["lr"], plain["epochs"], plain["l2"]) == (lr, epochs, decay)
    assert (plain["batch"], plain["optimiser"], plain["schedule"]) == (128, "sgd", "linear_tail")
    assert (plain["shift"], plain["flip"], plain["patience"], plain["clip"]) == (4, 0.5, 0, 0.0)
    snapshots, langevin = told["snapshot-ensemble"], told["csgld"]
    assert (snapshots["epochs"] / snapshots["cycles"], snapshots["lr"], snapshots["batch"]) == (40, 0.2, 64)
    assert (langevin["epochs"] / langevin["cycles"], langevin["lr"], langevin["batch"]) == (50, 0.5, 64)
    assert (langevin["sampling_epochs"], langevin["samples_per_cycle"]) == (3, 3)
    assert langevin["temperature"] == "n/batches^2"  # of P's code; a number that no rule gave stood here before
    batches = -(-50_000 // langevin["batch"])
    assert temperature_value(langevin["temperature"], 50_000, batches) == pytest.approx(0.082, abs=5e-4)
    short, high = (2, 1e-2) if network == "vgg16-bn" else (4, 5e-2)
    fge, swag, vi = told["fge"], told["swag"], told["mean-field-vi"]
    assert (fge["epochs"], fge["cycle_epochs"], fge["tail_lr"], fge["tail_low_lr"]) == (160, short, high, 5e-4)
    assert fge["schedule_epochs"] == 0  # the whole of eq. 10 in 160 epochs, not a longer one that is cut
    assert (swag["rank"], swag["samples"]) == (20, 100)
    assert swag["tail_lr"] == (5e-2 if task == "cifar100" and network.startswith("preresnet") else 1e-2)
    assert (vi["epochs"], vi["start_epochs"], vi["lr"], vi["scale_lr"]) == (100, epochs, 1e-3, 1e-3)
    assert (vi["beta"], vi["log_sigma"]) == (1e-5 if network == "wrn" else 1e-4, -5.0)
    if network in ("vgg16-bn", "wrn"):
        dropout = told["mc-dropout"]
        assert (dropout["p"], dropout["epochs"]) == (0.5 if network == "vgg16-bn" else 0.3, 400)
    else:
        assert "mc-dropout" not in told


PAPER = load_benchmark("ensembles", "paper")
CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}
SIDES = {"cifar10": 32, "cifar100": 32, "imagenet": 224}


TABLE_3 = {  # CIFAR-10, with test-time augmentation, CIFAR-100, with it
    "vgg16-bn": (0.042, 0.042, 0.100, 0.100),
    "preresnet": (0.213, 0.141, 0.478, 0.401),
    "preresnet-164": (0.120, 0.105, 0.285, 0.225),
    "wrn": (0.022, 0.018, 0.022, 0.004),
}


@pytest.mark.parametrize("task", ["cifar10", "cifar100"])
@pytest.mark.parametrize("network", TABLE_3)
def test_paper_all_trains_on_every_image_and_chooses_nothing_on_validation(task: str, network: str) -> None:
    paper, whole = load_benchmark("ensembles", "paper"), load_benchmark("ensembles", "paper-all")
    assert {entry.name for entry in whole.tasks} == {"cifar10", "cifar100"}
    entry = entry_of(whole, task, network)
    assert entry.arguments["val"] == 0.0
    told, before = method_arguments(whole, entry), method_arguments(paper, entry_of(paper, task, network))
    plain, viewed = TABLE_3[network][:2] if task == "cifar10" else TABLE_3[network][2:]
    assert (told["laplace"]["scale"], told["laplace-tta"]["scale"]) == (plain, viewed)
    for name, arguments in told.items():
        assert {key: value for key, value in arguments.items() if before[name][key] != value}.keys() <= {"scale"}
        assert make_method(whole, name, arguments, {}).collect.chooses == ""


def test_small_has_both_temperatures() -> None:
    for preset, rule in (("small", "1/n"), ("small-noisy", "n/batches^2")):
        benchmark = load_benchmark("ensembles", preset)
        told = method_arguments(benchmark, entry_of(benchmark, "cifar10", "vgg-small"))
        names = [name for name in told if name.startswith(("csgld", "csghmc"))]
        assert len(names) == 8
        assert {told[name]["temperature"] for name in names} == {rule}
        assert make_method(benchmark, "csgld", told["csgld"], {}).schedule.temperature == rule


@pytest.mark.parametrize("entry", PAPER.tasks, ids=lambda entry: f"{entry.name}-{entry.network}")
def test_every_laplace_of_the_paper_preset_can_be_made_of_its_network(entry: TaskEntry) -> None:
    """At the real size, on a device that holds no numbers: nothing is found out behind 400 epochs."""
    told = method_arguments(PAPER, entry)
    found = {name: given["structure"] for name, given in told.items() if name.startswith("laplace")}
    last = "last-kron" if entry.name == "cifar100" else "last-full"
    assert found == {name: last if "last" in name else "kron" for name in found}
    with torch.device("meta"):
        body = NETWORKS.make(entry.network, (3, SIDES[entry.name], SIDES[entry.name]), **entry.network_arguments)
        for name in found:
            recipe = make_method(PAPER, name, told[name], {})
            model = Model(body, recipe.head.build(body.width, CLASSES[entry.name]))
            recipe.collect.check(model)
            if entry.name == "cifar100" and "last" in name:
                with pytest.raises(UserError, match=r"'last-full'.*use 'last-kron'"):
                    replace(recipe.collect, structure="last-full").check(model)


def test_the_paper_preset_stores_every_hundred_snapshots_in_half_the_room() -> None:
    snapshots = ("snapshot-ensemble", "csgld", "csghmc", "fge")
    for entry in PAPER.tasks:
        told = method_arguments(PAPER, entry)
        kept = {name: given["store"] for name, given in told.items() if name.startswith(snapshots)}
        assert kept
        assert set(kept.values()) == {"float16"}, entry


def test_imagenet_is_as_in_the_paper() -> None:
    benchmark = load_benchmark("ensembles", "paper")
    told = method_arguments(benchmark, entry_of(benchmark, "imagenet", "resnet50"))
    plain, snapshots, vi = told["deterministic"], told["snapshot-ensemble"], told["mean-field-vi"]
    assert (plain["batch"], plain["lr"], plain["epochs"], plain["l2"]) == (256, 0.1, 130, 1e-4)
    schedule = make_method(benchmark, "deterministic", plain, {}).schedule
    for epoch in range(130):
        assert schedule.factor((epoch + 0.5) / 130) == pytest.approx(0.1 ** (epoch // 30))
    assert (snapshots["epochs"] / snapshots["cycles"], snapshots["lr"]) == (45, 0.1)
    assert (vi["beta"], vi["lr"], vi["log_sigma"], vi["epochs"]) == (1e-3, 0.01, -6.0, 45)
    falling = make_method(benchmark, "mean-field-vi", vi, {}).schedule
    for epoch in range(45):
        assert falling.factor((epoch + 0.5) / 45) == pytest.approx(0.1 ** (epoch // 30))
    recipes = {name: make_method(benchmark, name, given, {}) for name, given in told.items()}
    assert recipes["fge"].start == recipes["deterministic"].fit_part()
    assert recipes["fge"].pooled == 50


def test_the_small_preset_shares_its_trainings() -> None:
    benchmark = load_benchmark("ensembles", "small")
    entry = entry_of(benchmark, "cifar10", "vgg-small")
    arguments = method_arguments(benchmark, entry)
    recipes = {name: make_method(benchmark, name, given, {}) for name, given in arguments.items()}
    plain = recipes["deterministic"].fit_part()
    for name in ("fge", "swag", "mean-field-vi", "laplace"):
        assert recipes[name].start == plain
    for name, recipe in recipes.items():
        if name.endswith("-tta"):
            assert recipe.fit_part() == recipes[name.removesuffix("-tta")].fit_part()
    assert {recipes[name].pooled for name in ("fge", "swag", "mc-dropout", "laplace")} == {20}
    assert [recipes[name].pooled for name in ("snapshot-ensemble", "csgld", "csghmc")] == [12, 18, 18]


SMALL = load_benchmark("ensembles", "small-networks")


@pytest.mark.parametrize("network", ["vgg-small", "preresnet", "wrn"])
def test_a_last_snapshot_has_the_epochs_of_a_network_of_the_pool(network: str) -> None:
    """The rule of equal epochs, and whatever continues a training continues one of the pool."""
    arguments = method_arguments(SMALL, entry_of(SMALL, "cifar10", network))
    recipes = {name: make_method(SMALL, name, given, {}) for name, given in arguments.items()}
    pool = recipes["deterministic"]
    assert recipes["deep-ensemble"].fit_part() == pool.fit_part()
    for name in ("snapshot-ensemble", "csgld", "csghmc"):
        if name in recipes:
            schedule, epochs = recipes[name].schedule, recipes[name].objective.epochs
            assert epochs == pool.objective.epochs
            assert schedule.marks_after(epochs, epochs)
    for name in ("fge", "swag", "mean-field-vi", "laplace"):
        assert recipes[name].start == pool.fit_part()


@pytest.mark.parametrize("preset", ["paper", "paper-all", "small", "small-networks"])
def test_swa_and_swag_share_one_tail(preset: str) -> None:
    benchmark = load_benchmark("ensembles", preset)
    entries = [entry for entry in benchmark.tasks if "swag" in benchmark.methods_of(entry)]
    for entry in entries:
        told = method_arguments(benchmark, entry)
        for suffix in ("", "-tta", "-ensemble", "-ensemble-tta"):
            if f"swa{suffix}" in told:
                swa, swag = (make_method(benchmark, name, told[name], {}) for name in (f"swa{suffix}", f"swag{suffix}"))
                assert swa.start == swag.fit_part()
                assert swa.members == swag.members
    assert entries


def test_augmented_ensembles_are_made_of_the_predictions_of_their_members(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No training and no prediction of their own: each pools those of …-tta."""
    monkeypatch.setenv("DUBIO_DATA", str(data_dir))
    small = load_benchmark("ensembles", "small")
    plan = make_plan(small, prepare(Overrides(tasks=["cifar10"]).apply(small)), load_trainer(), {})
    runs: dict[str, list[PlannedRun]] = {}
    for run in plan.runs:
        runs.setdefault(run.method, []).append(run)
    pooled = [name for name in runs if name.endswith("-ensemble-tta") and name.replace("-ensemble-tta", "-tta") in runs]
    assert len(pooled) == 10
    for name in pooled:
        singles = runs[name.replace("-ensemble-tta", "-tta")]
        assert list(runs[name][0].spec["members"]) == [run.id for run in singles]
        assert runs[name][0].fits == tuple(run.fits[0] for run in singles)


def test_shifted_test_sets_need_no_training_of_their_own(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUBIO_DATA", str(data_dir))
    whole = load_benchmark("ensembles", "small")
    settings = prepare(whole)
    assert [setting.name for setting in settings] == ["cifar10", "cifar10-shifted"]
    plan = make_plan(whole, settings, load_trainer(), {})
    home = {node.id for node in make_plan(whole, settings[:1], load_trainer(), {}).of_kind("fit")}
    assert {node.id for node in plan.of_kind("fit")} == home
    few = [run for run in plan.runs if run.task == "cifar10-shifted" and run.member is not None]
    assert {run.spec["latest"] for run in few} == {5}


def test_scores_of_features_are_tested_on_ood_images_without_further_trainings(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shifted task had its own twelve methods before, and trained them."""
    monkeypatch.setenv("DUBIO_DATA", str(data_dir))
    benchmark = load_benchmark("ensembles", "small-posthoc")
    plan = make_plan(benchmark, prepare(benchmark), load_trainer(), {})
    tasks = {run.method: {other.task for other in plan.runs if other.method == run.method} for run in plan.runs}
    assert set(tasks) == {"deterministic", "posthoc", "ddu", "deep-ensemble", "posthoc-ensemble"}
    assert all(both == {"cifar10", "cifar10-shifted"} for both in tasks.values())
    # three networks, their scores, and DDU's network with its scores
    assert len(plan.of_kind("fit")) == 3 + 3 + 2


def test_the_smoke_preset_trains_no_network_twice() -> None:
    benchmark = load_benchmark("ensembles", "smoke")
    counts = []
    for entry in benchmark.tasks:
        with torch.device("meta"):
            network = NETWORKS.make(entry.network, (3, 32, 32), **entry.network_arguments)
        counts.append(sum(parameter.numel() for parameter in network.parameters()))
    assert len(counts) == 4
    assert len(set(counts)) == len(counts)
