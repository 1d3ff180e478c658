from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn import metrics as sk

from dubio.metrics.quantities import uncertainty
from dubio.reporting.run_view import RunView
from dubio.studies.text.correlations import correlations_across, correlations_of, correlations_reading
from dubio.studies.text.networks import architectures_of, architectures_reading
from dubio.studies.text.scatter import diversity_of, diversity_reading, likelihoods_of, transfer_of
from dubio.studies.text.training import (
    epochs_of,
    epochs_reading,
    multiplied_of,
    multiplied_reading,
    natural,
    rates_figure,
    rates_of,
    rates_reading,
)
from tests.reporting.text_world import MULTIPLIERS, SITES, stored, task_of
from tests.reporting.world import FakeStore

World = tuple[FakeStore, dict[str, Any]]


# --- clouds ----------------------------------------------------------------------------------------------------------


def test_diversity_is_drawn_against_accuracy_where_something_is_pooled(text_run: RunView) -> None:
    cloud = diversity_of(text_run, task_of(text_run, "digits"))
    assert cloud is not None
    titles = {m.title: m.name for m in text_run.methods}
    assert "Deterministic" not in {point.style.title for point in cloud.points}
    for point in cloud.points:
        name = titles[point.style.title]
        assert point.x.mean == pytest.approx(text_run.scores.cells["digits", "test", name, "diversity"].mean)
        assert point.y.mean == pytest.approx(text_run.scores.cells["digits", "test", name, "accuracy"].mean)
    expected = spearmanr([p.x.mean for p in cloud.points], [p.y.mean for p in cloud.points]).statistic
    assert f"{expected:+.2f}".replace("-", "−") in diversity_reading(cloud)


def test_detection_is_drawn_against_accuracy_only_where_shifted_data_have_labels(
    text_world: World, text_run: RunView
) -> None:
    assert transfer_of(text_run, task_of(text_run, "screening")) == []
    panels = {panel.title: panel for panel in transfer_of(text_run, task_of(text_run, "digits"))}
    assert set(panels) == {"digits → blur, worst severity", "digits → noise, worst severity"}
    point = next(p for p in panels["digits → blur, worst severity"].points if p.style.title == "Deterministic")
    home, away = (stored(text_world, "digits", "deterministic", split) for split in ("test", "blur-5"))
    areas = [
        sk.roc_auc_score(np.repeat([0, 1], [len(a), len(b)]), -np.concatenate([a.probs.max(1), b.probs.max(1)]))
        for a, b in zip(home, away, strict=True)
    ]
    assert point.y.values == pytest.approx(areas, abs=1e-4)  # confidences that round to one are tied in 1 − max p
    assert point.x.values == pytest.approx([(p.probs.argmax(axis=1) == p.labels).mean() for p in away])


def test_likelihoods_are_those_of_the_table(text_run: RunView) -> None:
    cloud = likelihoods_of(text_run, task_of(text_run, "screening"))
    names = {m.title: m.name for m in text_run.methods}
    for point in cloud.points:
        name = names[point.style.title]
        cells = [text_run.scores.cells["screening", "test", name, m] for m in ("nll", "calibrated_nll")]
        assert (point.x.mean, point.y.mean) == pytest.approx([cell.mean for cell in cells])


# --- correlations ----------------------------------------------------------------------------------------------------


def test_correlations_are_pearsons_of_the_quantity_as_defined(text_world: World, text_run: RunView) -> None:
    heat = correlations_of(text_run, task_of(text_run, "digits"), "novel")
    assert heat is not None
    home, away = (stored(text_world, "digits", "deep-ensemble", split)[0] for split in ("test", "novel"))
    flag = np.repeat([0.0, 1.0], [len(home), len(away)])
    confidence = np.concatenate([home.probs.max(axis=1), away.probs.max(axis=1)])
    information = np.concatenate([uncertainty(p, "mutual_information") for p in (home, away)])
    row = heat.rows.index("Deep ensemble")
    at = {name: heat.values[row, column] for column, name in enumerate(heat.quantities)}
    assert at["confidence"] == pytest.approx(pearsonr(confidence, flag).statistic)
    assert at["confidence"] < 0
    assert at["mutual_information"] == pytest.approx(pearsonr(information, flag).statistic)
    assert np.isnan(heat.values[heat.rows.index("Deterministic"), heat.quantities.index("mutual_information")])
    assert "data_uncertainty" not in heat.quantities


def test_correlations_everywhere_are_means_over_methods(text_run: RunView) -> None:
    heat, single = correlations_across(text_run), correlations_of(text_run, task_of(text_run, "digits"), "novel")
    assert heat is not None
    assert single is not None
    means = np.nanmean(single.values, axis=0)
    assert heat.values[heat.rows.index("digits → novel")] == pytest.approx(means)
    assert "correlates most" in correlations_reading(heat)
    assert correlations_of(text_run, task_of(text_run, "screening"), "test") is None


# --- trainings -------------------------------------------------------------------------------------------------------


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
    for panels, angle in (([found], 0.0), ([long, long], 45.0)):
        labels = rates_figure(panels).axes[0].get_xticklabels()
        assert {label.get_rotation() for label in labels} == {angle}


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
    best = max(range(3), key=lambda place: panels["AUROC, elsewhere"][0].scores[place].mean)
    assert f"best at s = {MULTIPLIERS[best]:g}" in multiplied_reading(panels)


# --- networks and ranks ----------------------------------------------------------------------------------------------


def test_networks_that_share_a_task_are_paired_by_method(text_world: World, text_run: RunView) -> None:
    (found,) = architectures_of(text_run)
    assert (found.task, found.networks) == ("reviews", ("textcnn", "bert"))
    assert [style.title for style in found.styles] == ["Deterministic"]
    (values,) = found.panels[0].values
    for network in found.networks:
        right = [
            (p.probs.argmax(axis=1) == p.labels).mean()
            for p in stored(text_world, "reviews", "deterministic", "test", network)
        ]
        assert values[network] == pytest.approx(np.mean(right))
    assert architectures_reading(found).startswith("bert is better than textcnn in accuracy for ")
