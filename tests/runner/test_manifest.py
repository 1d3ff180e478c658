"""Searches that ran into their bounds are told with a run's results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dubio.runner import benchmark_run as running
from dubio.runner.manifest import benchmark_warnings, fit_warnings, manifest_key
from dubio.runner.overrides import Overrides
from dubio.store import Store


def chosen(**more):
    scale = {"scale": 1.0, "scale_at_bound": None, "scale_with_views": None, "scale_with_views_at_bound": None}
    return {"laplace": {"decay": 1e-4, "decay_at_bound": None, **scale, **more}}


def run_of(method, *fits, task="toy"):
    return {"task": task, "network": "net", "method": method, "fits": list(fits)}


def test_a_sentence_for_every_value_that_some_fits_ended_at_the_edge_with(tmp_path):
    records = [
        chosen(scale=17.8, scale_at_bound="high"),
        chosen(scale=17.8, scale_at_bound="high", scale_with_views=0.0056, scale_with_views_at_bound="low"),
        chosen(),
        {"laplace": {"scale": 0.1, "scale_with_views": None}},  # of a store written before bounds were recorded
        {"epochs": 3},
    ]
    with Store.open(tmp_path / "store") as store:
        fits = [
            store.write_fit({"kind": "fit", "number": i}, {"w": np.zeros(1)}, {}, record)
            for i, record in enumerate(records)
        ]
        runs = [
            run_of("laplace", fits[0]),
            run_of("laplace", fits[2]),
            run_of("laplace-ensemble", *fits[:4]),
            run_of("deterministic", fits[4], "0" * 64),  # whose fit is gone
            run_of("laplace", fits[3], task="other"),
        ]
        scale, views = fit_warnings(store, runs)
        assert fit_warnings(store, runs[3:]) == ()
    assert scale.startswith("toy/net: in 2 of 3 fits with a search on validation (laplace, laplace-ensemble)")
    assert "the best scale is the largest value tried, 18;" in scale
    assert "in 1 of 3 fits with a search on validation (laplace-ensemble)" in views
    assert "scale with views is the smallest value tried, 0.0056;" in views


def test_it_is_among_the_advice_of_the_manifest_and_of_the_finish(fake_world, benchmark, monkeypatch):
    monkeypatch.setattr(running, "fit_warnings", lambda store, runs: (f"{len(runs)} runs",))
    finish = fake_world.run(benchmark("plain"))
    assert finish.warnings == ("2 runs",)
    assert finish.manifest["advice"][-1] == "2 runs"


def test_mc_dropout_without_a_tuned_rate_is_cautioned_against(fake_world, benchmark):
    from dataclasses import replace

    from dubio.core.registry import method

    def sampled(*, p: float = 0.5, samples: int = 5):
        """Fixed dropout, sampled."""

    method("mc-fixed")(sampled)
    plain = benchmark("plain", "mc-drop", "mc-fixed")
    (caution,) = benchmark_warnings(plain)
    assert "mc-fixed." in caution
    assert "mc-drop" not in caution  # it has no rate to fix
    assert benchmark_warnings(replace(plain, tune={"mc-fixed": {"p": (0.1, 0.2)}})) == ()
    assert benchmark_warnings(replace(plain, method_arguments={"mc-fixed": {"p": 0.1}})) == ()
    assert benchmark_warnings(benchmark("plain", "mc-fixed", p=0.1)) == ()


def test_budgets_are_those_of_the_resolved_recipes_with_what_a_fit_starts_from(fake_world, benchmark):
    wanted = replace(
        benchmark("plain", "drop", "plain-ensemble", "child", "opaque", seeds=(0,), epochs=6),
        method_arguments={"drop": {"epochs": 9}},
        tune={"plain": {"lr": (0.1, 0.2)}},
    )
    manifest = fake_world.run(wanted).manifest
    budgets = manifest["tasks"][0]["budgets"]
    assert {name: (budget["epochs"], budget["trials"]) for name, budget in budgets.items()} == {
        "plain": (6, 2),
        "drop": (9, 0),
        "plain-ensemble": (6, 0),
        "child": (12, 0),
        "opaque": (None, 0),
    }


def key_of(data, **options):
    named = {"data": str(data), "features": ("u", "v"), "label": "y", **options}
    prepared = running.prepare_run(None, Overrides(data_options=named))
    return prepared.benchmark.name, manifest_key(prepared.benchmark, prepared.tasks)


def test_the_key_of_a_run_does_not_depend_on_how_the_path_of_its_data_is_spelled(tmp_path, monkeypatch):
    folder, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    rows = [f"{k % 7},{k % 3},{'ab'[k % 2]}" for k in range(60)]
    table = "\n".join(["u,v,y", *rows, ""])
    (folder / "data.csv").write_text(table)
    (elsewhere / "data.csv").symlink_to(folder / "data.csv")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(folder)
    spelled = ("data.csv", "./data.csv", "..//mine/./data.csv", folder / "data.csv", "~/mine/data.csv")
    keys = {key_of(path) for path in spelled}
    monkeypatch.chdir(elsewhere)
    keys |= {key_of(path) for path in ("data.csv", "../mine/data.csv")}
    assert len(keys) == 1
    (elsewhere / "data.csv").unlink()
    (elsewhere / "data.csv").write_text(table.replace("6,", "5,"))
    assert key_of("data.csv") not in keys  # other content
    assert key_of(folder / "data.csv", split_seed=1) not in keys  # other options


def test_a_folder_is_named_the_same_from_within_and_from_outside(tmp_path, monkeypatch):
    from PIL import Image

    for name, grey in (("cat", 20), ("dog", 220)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for k in range(12):
            Image.new("L", (8, 8), grey + k).save(tmp_path / "pets" / name / f"{k}.png")

    def key(data):
        prepared = running.prepare_run(None, Overrides(data_options={"data": data, "size": 8}))
        return prepared.benchmark.name, manifest_key(prepared.benchmark, prepared.tasks)

    monkeypatch.chdir(tmp_path / "pets")
    inside = {key("."), key("../pets/"), key(str(tmp_path / "pets"))}
    monkeypatch.chdir(tmp_path)
    assert {key("pets"), key("./pets/")} | inside == {key("pets")}
    assert key("pets")[0] == "pets"


def test_methods_that_are_not_trained_are_named_before_the_run(fake_world, benchmark):
    (caution,) = benchmark_warnings(benchmark("plain", epochs=0))
    weights = "predictions are those of the weights that training would start from"
    assert caution == f"epochs = 0 trains nothing (plain): {weights}."
    assert benchmark_warnings(benchmark("plain", epochs=1)) == ()
