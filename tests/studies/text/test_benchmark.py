"""The text benchmark names what exists, and each of its presets can be planned."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.core.registry import METHODS, NETWORKS, TASKS, task
from dubio.core.specs import describe, name_of
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.runner.benchmark_file import load_benchmark
from dubio.runner.overrides import Overrides
from dubio.runner.plan import make_plan, method_rows
from dubio.runner.prepare import method_arguments
from dubio.runner.trainer import load_trainer
from tests.runner.helpers import prepare

pytest.importorskip("torch")

CORPORA = {"20news", "imdb", "clinc", "reuters", "aapd", "amazon"}


@pytest.mark.parametrize("preset", ["paper", "paper-penalties", "small"])
def test_every_name_is_registered_and_every_argument_known(preset):
    benchmark = load_benchmark("text", preset)
    assert {entry.name for entry in benchmark.tasks} == CORPORA
    assert {entry.network for entry in benchmark.tasks} == {"textcnn", "textcnn-v2", "bert"}
    for entry in benchmark.tasks:
        TASKS.entry(entry.name).check(entry.arguments)
        NETWORKS.entry(entry.network).check(entry.network_arguments)
        assert method_arguments(benchmark, entry).keys() == set(benchmark.methods_of(entry))


def test_post_hoc_scores_share_the_trainings_of_their_networks(tiny_corpora):
    benchmark = Overrides(networks=["textcnn"]).apply(load_benchmark("text", "small-posthoc"))
    settings = prepare(benchmark)
    (setting,) = settings
    assert setting.name == "clinc-novelty"
    fits = make_plan(benchmark, settings, load_trainer(), {}).of_kind("fit")
    assert len([node for node in fits if not node.needs]) == 3  # one for each member
    assert len([node for node in fits if node.needs]) == 3


def test_ensembles_inside_one_network_run_on_clinc_beside_a_deep_ensemble():
    cheap = load_benchmark("text", "small-cheap")
    assert {(entry.name, entry.network) for entry in cheap.tasks} == {("clinc", "textcnn"), ("clinc", "bert")}
    for entry in cheap.tasks:
        arguments = method_arguments(cheap, entry)
        assert {"deep-ensemble", "packed-ensemble", "batch-ensemble", "masksembles", "multi-head"} < arguments.keys()
        for name in arguments:
            METHODS.make(name, **arguments[name])


@pytest.mark.parametrize("preset", ["small-last-layers", "small-frozen"])
def test_bayesian_last_layers_run_on_clinc(preset):
    benchmark = load_benchmark("text", preset)
    entries = {entry.network: entry for entry in benchmark.tasks}
    assert entries.keys() == ({"bert"} if preset == "small-frozen" else {"textcnn", "bert"})
    for entry in entries.values():
        assert entry.name == "clinc"
        recipes = {name: METHODS.make(name, **own) for name, own in method_arguments(benchmark, entry).items()}
        assert recipes["laplace"].collect.structure == "last-kron"
        assert recipes["vbll"].head.covariance == "diagonal"
    assert ("lora-laplace" in recipes) == (preset == "small-last-layers")
    assert entries["bert"].network_arguments["trainable_layers"] == (0 if preset == "small-frozen" else 2)


def test_the_paper_drops_attention_probabilities_too():
    entries = [entry for entry in load_benchmark("text", "paper").tasks if entry.network == "bert"]
    assert entries
    assert all(entry.network_arguments["noisy_attention"] for entry in entries)


def test_hidden_and_attention_dropout_of_trained_blocks_are_a_preset():
    benchmark = load_benchmark("text", "small-attention")
    (entry,) = benchmark.tasks
    assert (entry.name, entry.network) == ("clinc", "bert")
    assert entry.network_arguments["noisy_attention"]
    assert entry.network_arguments["noisy_layers"] == entry.network_arguments["trainable_layers"] == 2
    recipes = {name: METHODS.make(name, **own) for name, own in method_arguments(benchmark, entry).items()}
    assert len(recipes) == 8  # the set-ups that drop at a fixed rate
    assert all([name_of(edit) for edit in recipe.edits] == ["dropout"] for recipe in recipes.values())


def test_the_penalties_of_the_papers_code_are_a_preset():
    paper, fixed = load_benchmark("text", "paper"), load_benchmark("text", "paper-penalties")
    for before, entry in zip(paper.tasks, fixed.tasks, strict=True):
        told, without = method_arguments(fixed, entry), method_arguments(paper, before)
        for name, arguments in told.items():
            changed = {key: value for key, value in arguments.items() if without[name][key] != value}
            assert changed == ({"weight_penalty": 1e-6, "rate_penalty": 1e-5} if "concrete" in name else {})
    words = next(entry for entry in fixed.tasks if entry.network == "textcnn")
    edits = METHODS.make("mc-concrete-dropout", **method_arguments(fixed, words)["mc-concrete-dropout"]).edits
    assert (edits[0].weight_penalty, edits[0].rate_penalty) == (1e-6, 1e-5)
    assert "rate_penalty" not in describe(METHODS.make("mc-concrete-dropout").edits[0])  # stored fits keep their ids


def test_presets_are_the_papers_and_a_smaller_one():
    paper, small = load_benchmark("text", "paper"), load_benchmark("text", "small")
    assert (paper.members, paper.samples, small.preset, small.members) == (5, 10, "small", 3)
    words = [entry for entry in paper.tasks if entry.network == "textcnn"]
    assert {(entry.training["epochs"], entry.training["patience"]) for entry in words} == {(45, 15)}
    assert {entry.training["patience"] for entry in small.tasks if entry.network == "textcnn"} == {5}
    known = {entry.encoding.get("vocabulary", 20000) for entry in words if entry.name in ("20news", "aapd")}
    assert known == {30000}
    assert sorted(entry.arguments["source"] for entry in words if entry.name == "amazon") == [
        "books", "dvd", "electronics", "kitchen",
    ]  # fmt: skip
    eighteen = tuple(entry.name for entry in METHODS.entries() if entry.facts.get("family") == "dropout")
    assert set(eighteen) <= set(paper.methods)


@pytest.fixture
def tiny_corpora(monkeypatch):
    """The six corpora by name, each a dozen words."""
    TASKS.names()
    monkeypatch.setattr(TASKS, "_entries", {})
    rows = Examples(("one", "two", "three", "four", "five", "six") * 3, np.arange(18) % 2)
    kinds = (("train", "train"), ("val", "val"), ("test", "id"))
    splits = tuple(Split.of(split, kind, rows) for split, kind in kinds)

    def register(name: str) -> None:
        @task(name)
        def tiny(*, setting: str = "", source: str = "", target: str = "") -> Task:
            """Eighteen texts of one word."""
            title = "-".join(filter(None, [name, setting, source]))
            return Task(title, "text", "multiclass", ("a", "b"), splits, SourceCard("", "", "", ""))

    for name in CORPORA:
        register(name)


@pytest.mark.parametrize(("preset", "base", "sampled"), [("paper", 25, 2), ("small", 15, 2)])
def test_the_textcnn_entries_are_planned(tiny_corpora, preset, base, sampled):
    """Five families of M members, and the two samplers where the preset has them."""
    benchmark = Overrides(networks=["textcnn"]).apply(load_benchmark("text", preset))
    settings = prepare(benchmark)
    plan = make_plan(benchmark, settings, load_trainer(), {})
    fits = {setting.name: 0 for setting in settings}
    for node in plan.of_kind("fit"):
        fits[node.task.name] += 1
    assert fits["clinc-novelty"] == base + sampled
    if preset == "paper":
        assert set(fits.values()) == {base + sampled}
        assert len(fits) == 13
    rows = {row["name"]: row for row in method_rows(benchmark, settings, plan)}
    assert rows["mc-concrete-dropout-ensemble"]["family"] == "mc-concrete-dropout"


@pytest.mark.parametrize(("preset", "fits"), [("paper", 42), ("small", 30)])
def test_sngp_shares_the_fits_of_s_15_with_its_ensembles(tiny_corpora, preset, fits):
    """Three families of base models with M members, three of SNGP at five multipliers, M − 1 more of each at 15."""
    chosen = Overrides(networks=["textcnn-v2"], tasks=["clinc"]).apply(load_benchmark("text", preset))
    settings = prepare(chosen)
    plan = make_plan(chosen, settings, load_trainer(), {})
    assert len(plan.of_kind("fit")) == fits
    rows = {row["name"]: row for row in method_rows(chosen, settings, plan)}
    assert rows["sngp-ensemble"]["family"] == "sngp-s15"
    assert rows["mc-sngp-concrete-dropout-ensemble"]["family"] == "mc-sngp-concrete-dropout-s15"
    assert rows["sngp-s5"]["title"] == "SNGP, spectral = 5"
    only = Overrides(networks=["textcnn-v2"], tasks=["clinc"], methods=["sngp"]).apply(load_benchmark("text", preset))
    assert only.all_methods == ("sngp-s1", "sngp-s2", "sngp-s5", "sngp-s10", "sngp-s15")


def test_the_default_is_a_short_list_of_methods_on_one_task_of_each_setting():
    """It was all corpora and set-ups: half a day and more."""
    start, smoke = load_benchmark("text"), load_benchmark("text", "smoke")
    assert start.preset == "start"
    assert {(entry.name, entry.network) for entry in start.tasks} == {
        (name, "textcnn") for name in ("20news", "clinc", "reuters", "amazon")
    }
    assert [len(start.methods_of(entry)) for entry in start.tasks] == [4] * 4
    (entry,) = smoke.tasks
    assert (entry.name, entry.training["epochs"], smoke.methods_of(entry)) == (
        "amazon", 2, ("deterministic", "mc-dropout"),
    )  # fmt: skip
    for benchmark in (start, smoke):
        for chosen in benchmark.tasks:
            assert method_arguments(benchmark, chosen).keys() == set(benchmark.methods_of(chosen))
