"""Dropout rates, best epochs and spectral multipliers of trainings."""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import pytest

from dubio.reporting.run_view import RunView
from dubio.reporting.score_table import Cell
from dubio.reporting.style import SPARE, Style
from dubio.studies.text.training import (
    SPECTRAL_CAPTION,
    Panel,
    _common,
    epochs_chart,
    epochs_of,
    epochs_reading,
    multiplied_chart,
    multiplied_of,
    multiplied_reading,
    natural,
    rates_chart,
    rates_of,
    rates_reading,
)
from tests.reporting.stored_runs import MULTIPLIERS, SITES, World, stored, task_of
from tests.studies.charts import HOSTILE, interpreted, rows_of


def test_rates_are_those_of_the_records_where_they_were_learned(text_world: World, text_run: RunView) -> None:
    store, manifest = text_world
    found = rates_of(text_run, task_of(text_run, "digits"))
    assert found is not None
    assert found.sites == ("K1", "K2", "K3", "μ")
    assert [style.title for style, _ in found.methods] == ["MC concrete dropout"]
    runs = [r for r in manifest["runs"] if (r["task"], r["method"]) == ("digits", "mc-concrete-dropout")]
    expected = np.array([[store.records[run["fits"][0]]["rates"][site] for site in SITES] for run in runs])
    assert found.methods[0][1] == pytest.approx(expected)
    assert f"{expected.mean(axis=0).max():.3f}" in rates_reading([found])


def test_sites_stand_in_the_order_of_their_numbers_and_heads_last() -> None:
    sites = ["conv1.units", "conv10.units", "conv2.units", "head", "stage2.1.conv1", "stage2.0.conv12", "stage10.conv1"]
    assert sorted(sites, key=natural) == [
        "conv1.units", "conv2.units", "conv10.units", "stage2.0.conv12", "stage2.1.conv1", "stage10.conv1", "head",
    ]  # fmt: skip
    assert sorted(["mu", "K10", "sigma", "K2"], key=natural) == ["K2", "K10", "mu", "sigma"]


def test_long_names_of_sites_are_slanted(text_run: RunView) -> None:
    found = rates_of(text_run, task_of(text_run, "digits"))
    assert found is not None
    long = replace(found, sites=tuple(f"convolution{place}" for place in range(1, 5)))
    for panels, angle in (([found], 0), ([long, replace(long, title="again")], -45)):
        spec = rates_chart(panels).to_dict()
        axis = (spec.get("spec") or spec)["layer"][0]["encoding"]["x"]["axis"]
        assert axis["labelAngle"] == angle


def test_rates_are_drawn_one_by_one_and_as_means() -> None:
    rates = np.array([[0.1, np.nan, 0.3], [0.3, np.nan, np.nan]])
    panel = Panel(HOSTILE, ((Style(f"{HOSTILE} method", *SPARE[0], False), rates),), (f"{HOSTILE} site", "K2", "K10"))
    chart = rates_chart([panel, replace(panel, title="b")])
    rows = [row for row in rows_of(chart) if row["panel"] == HOSTILE]
    assert [(row["site"], row["rate"]) for row in rows if "rate" in row] == [
        (f"{HOSTILE} site", 0.1), (f"{HOSTILE} site", 0.3), ("K10", 0.3),
    ]  # fmt: skip
    assert {row["site"]: row["mean"] for row in rows if "mean" in row} == {f"{HOSTILE} site": 0.2, "K10": 0.3}
    assert not any(HOSTILE in text for text in interpreted(chart))


def test_epochs_are_drawn_one_by_one_and_as_means_with_one_standard_deviation() -> None:
    methods = tuple(
        (Style(title, *SPARE[0], False), np.array(epochs))
        for title, epochs in ((HOSTILE, [2.0, 4.0, 9.0]), ("one", [7.0]))
    )
    for panels in ([Panel("a", methods)], [Panel("a", methods), Panel(f"{HOSTILE}b", methods)]):
        chart = epochs_chart(panels)
        rows = [row for row in rows_of(chart) if row["panel"] == "a"]
        assert [row["epoch"] for row in rows if "epoch" in row] == [2, 4, 9, 7]
        mean, alone = (row for row in rows if "mean" in row)
        spread = statistics.stdev([2, 4, 9])
        assert (mean["mean"], mean["low"], mean["high"]) == pytest.approx((5, 5 - spread, 5 + spread), rel=1e-5)
        assert (alone["low"], alone["high"]) == (7, 7)
        assert not any(HOSTILE in text for text in interpreted(chart))


def test_epochs_are_those_of_the_records_every_fit_once(text_world: World, text_run: RunView) -> None:
    store, manifest = text_world
    found = epochs_of(text_run, task_of(text_run, "digits"))
    assert found is not None
    titles = [style.title for style, _ in found.methods]
    assert titles == ["Deterministic", "MC dropout", "MC concrete dropout"]
    fits = {fit for run in manifest["runs"] if run["task"] == "digits" for fit in run["fits"]}
    assert sum(epochs.size for _, epochs in found.methods) == len(fits)
    runs = [r for r in manifest["runs"] if (r["task"], r["method"]) == ("digits", "deterministic")]
    expected = [store.records[run["fits"][0]]["best_epoch"] for run in runs]
    assert sorted(found.methods[0][1]) == sorted(expected)
    means = {style.title: epochs.mean() for style, epochs in found.methods}
    assert epochs_reading([found]).startswith(min(means, key=lambda title: means[title]))


def test_the_multiplier_is_that_of_the_recipe_not_of_the_name(text_world: World, text_run: RunView) -> None:
    panels = multiplied_of(text_run, task_of(text_run, "reviews (textcnn)"))
    assert set(panels) == {"AUROC, elsewhere", "Accuracy", "Calibrated NLL"}
    (line,) = panels["Accuracy"]
    assert line.s == MULTIPLIERS
    assert line.style.title == "bounded"
    for name, cell in zip(("bounded-a", "bounded-b", "bounded-c"), line.scores, strict=True):
        right = [(p.probs.argmax(axis=1) == p.labels).mean() for p in stored(text_world, "reviews", name, "test")]
        assert cell.values == pytest.approx(right)
    rows = [row for row in rows_of(multiplied_chart(panels)) if row["panel"] == "Accuracy"]
    assert [row["s"] for row in rows] == [f"{s:g}" for s in MULTIPLIERS]
    assert [row["method"] for row in rows] == ["bounded-a", "bounded-b", "bounded-c"]
    assert [row["mean"] for row in rows] == pytest.approx([np.mean(cell.values) for cell in line.scores], rel=1e-4)
    assert "bounded" not in interpreted(multiplied_chart(panels))
    means = [cell.mean for cell in panels["AUROC, elsewhere"][0].scores]
    stated = f"{min(means):.3f} to {max(means):.3f}, best at s = {MULTIPLIERS[int(np.argmax(means))]:g}"
    assert f"AUROC, elsewhere: bounded {stated}." in multiplied_reading(panels)
    once = {title: [replace(line, scores=tuple(map(first_value, line.scores)))] for title, (line,) in panels.items()}
    assert "another training might reverse the order" in multiplied_reading(once)
    assert "another training" not in multiplied_reading(panels)


def first_value(cell: Cell) -> Cell:
    return replace(cell, values=cell.values[:1])


def test_lines_are_named_by_what_their_methods_share() -> None:
    assert _common(["SNGP, spectral 1", "SNGP, spectral 15"]) == "SNGP"


@pytest.mark.parametrize(("count", "words"), [(1, "In one training the"), (3, "Over three trainings the")])
def test_one_training_is_one(count: int, words: str) -> None:
    rates = np.tile([0.1, 0.2], (count, 1))
    panel = Panel("a", ((Style("Concrete", *SPARE[0], False), rates),), ("K1", "K2"))
    assert rates_reading([panel]).startswith(words)


def test_the_bound_of_a_convolution_is_told_apart_from_that_of_a_dense_layer() -> None:
    assert "√k · s" in SPECTRAL_CAPTION
