"""Searches that ran into their bounds are told with a run's results."""

from __future__ import annotations

import numpy as np

from dubio.runner import running
from dubio.runner.fit_bounds import bound_cautions
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
        scale, views = bound_cautions(store, runs)
        assert bound_cautions(store, runs[3:]) == ()
    assert scale.startswith("toy/net: of 2 of 4 Laplace fits (laplace, laplace-ensemble) the noise scale that")
    assert "the greatest that was tried, 18;" in scale
    assert "of 1 of 4 Laplace fits (laplace-ensemble) the noise scale for predictions with views" in views
    assert "the least that was tried, 0.0056;" in views


def test_it_is_among_the_advice_of_the_manifest_and_of_the_finish(fake_world, benchmark, monkeypatch):
    monkeypatch.setattr(running, "bound_cautions", lambda store, runs: (f"{len(runs)} runs",))
    finish = fake_world.run(benchmark("plain"))
    assert finish.cautions == ("2 runs",)
    assert finish.manifest["advice"][-1] == "2 runs"
