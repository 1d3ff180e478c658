"""The command ``dubio dee``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dubio.cli.app import app
from dubio.cli.dee import dee
from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Predictions
from dubio.reporting.ensemble_curves import curves_of_systems, equivalents_chart
from dubio.statistics.ensemble_equivalent import equivalent_curve, growth_curve
from dubio.store import Store
from tests.cli.helpers import StoredRun, invoke, run_command
from tests.reporting.chart_checks import names_and_expressions, rows_of_chart
from tests.reporting.helpers import EVIL


def run(*arguments):
    return invoke(app, *arguments)


LABELS = np.random.default_rng(0).integers(0, 3, 150)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    shared = rng.normal(size=(150, 3)) + 1.5 * np.eye(3)[LABELS]
    ensemble = (shared + 1.5 * rng.normal(size=(5, 150, 3))).astype(np.float32)
    weak = (shared + 1.5 * rng.normal(size=(150, 3)) + 0.4 * rng.normal(size=(4, 150, 3))).astype(np.float32)
    strong = (shared + 3.0 * np.eye(3)[LABELS] + rng.normal(size=(3, 150, 3))).astype(np.float32)
    np.savez(tmp_path / "de.npz", logits=ensemble, labels=LABELS, member=np.arange(5))
    np.savez(tmp_path / "bare.npz", logits=ensemble, labels=LABELS)
    np.savez(tmp_path / "weak.npz", logits=weak, labels=LABELS)
    np.savez(tmp_path / "strong.npz", logits=strong, labels=LABELS)
    return tmp_path


@pytest.mark.parametrize("metric", ["nll", "brier", "error", "aurc"])
def test_the_numbers_are_those_of_the_statistics(files, metric):
    found = run("dee", f"weak={files / 'weak.npz'}", files / "strong.npz", "--ensemble", files / "de.npz",
                "--metric", metric, "--orders", 2, "--json")  # fmt: skip
    document = json.loads(found.stdout)
    arrays = {name: np.load(files / f"{name}.npz")["logits"] for name in ("de", "weak")}
    ensemble = growth_curve(Predictions(arrays["de"], LABELS, member=np.arange(5)), orders=2)
    method = growth_curve(Predictions(arrays["weak"], LABELS), unit="sample", orders=2)
    for told, wanted in zip(
        document["methods"]["weak"]["dee"], equivalent_curve(ensemble, method, metric), strict=True
    ):
        for part in ("lower", "central", "upper"):
            each = getattr(wanted, part)
            assert told[part] == (str(each) if each.beyond else pytest.approx(each.size))
    assert document["longest"] == 5
    assert document["methods"]["strong"]["dee"][-1]["central"] == "> 5"


def test_printed_with_bounds_and_a_figure(files):
    found = run("dee", files / "weak.npz", files / "strong.npz", "--ensemble", files / "bare.npz", "--orders", 2,
                "--figure", files / "dee.svg")  # fmt: skip
    assert "> 5" in found.output
    assert "each of the 5 samples counts as one" in found.output
    drawn = (files / "dee.svg").read_text()
    assert drawn.startswith("<svg")
    again = run("dee", files / "weak.npz", files / "strong.npz", "--ensemble", files / "bare.npz", "--orders", 2,
                "--figure", files / "again.svg")  # fmt: skip
    assert again.exit_code == 0
    assert (files / "again.svg").read_text() == drawn


def test_the_figure_shows_equivalents_with_bounds_up_to_the_longest_ensemble(files):
    arrays = {name: np.load(files / f"{name}.npz")["logits"] for name in ("de", "weak", "strong")}
    ensemble = Predictions(arrays["de"], LABELS, member=np.arange(5))
    systems = {f"{EVIL} {name}": Predictions(arrays[name], LABELS) for name in ("weak", "strong")}
    curves = curves_of_systems(ensemble, systems, orders=2)
    chart = equivalents_chart(curves, "nll")
    grown = growth_curve(ensemble, orders=2)
    for name, system in systems.items():
        wanted = equivalent_curve(grown, growth_curve(system, unit="sample", orders=2), "nll")
        shown = [row for row in rows_of_chart(chart, "low") if row["method"] == name]
        for samples, bounds in enumerate(wanted, start=1):
            (row,) = {row["x"]: row for row in shown if row["x"] == samples and (row["y"] or 0) <= 5}.values()
            assert row["y"] == (None if bounds.central.beyond else pytest.approx(bounds.central.size, rel=1e-5))
            assert row["high"] == pytest.approx(min(bounds.upper.size, 5), rel=1e-5)
        beyond = {row["x"] for row in shown if (row["y"] or 0) > 5}
        assert beyond == {n for n, bounds in enumerate(wanted, start=1) if bounds.central.beyond}
    assert not [text for text in names_and_expressions(chart) if "script" in text]


def test_mistakes_are_named(files):
    np.savez(files / "one.npz", logits=np.zeros((150, 3), np.float32), labels=LABELS)
    with pytest.raises(UserError, match="at least two members, and this file has one sample"):
        run("dee", files / "weak.npz", "--ensemble", files / "one.npz")
    with pytest.raises(UserError, match=r"--figure .*must end in one of"):
        run("dee", files / "weak.npz", "--ensemble", files / "de.npz", "--figure", files / "x.jpg", "--orders", 1)
    np.savez(files / "other.npz", logits=np.zeros((10, 3), np.float32), labels=LABELS[:10])
    with pytest.raises(UserError, match="one has 150 rows and the other 10"):
        run("dee", files / "other.npz", "--ensemble", files / "de.npz")


def test_deep_ensemble_equivalents_of_a_stored_run(stored_run: StoredRun) -> None:
    found = json.loads(run_command(dee, "--store", stored_run.path, "--orders", 2, "--json"))["tasks"]["screening"]
    assert found["longest"] == 4
    curve = found["methods"]["deep-ensemble"]
    with Store.open(stored_run.path, create=False) as store:
        manifest = store.manifest(stored_run.run)
        (split,) = manifest["tasks"][0]["splits"]
        pooled = next(run["id"] for run in manifest["runs"] if run["method"] == "deep-ensemble")
        wanted = growth_curve(store.read_predictions(pooled, split["name"], split["fingerprint"]), orders=2)
    assert curve["mean"] == pytest.approx(wanted.mean["nll"].tolist())
    assert [each["samples"] for each in curve["dee"]] == [1, 2]
    assert "deterministic" not in found["methods"]
    with pytest.raises(UnknownName, match="deep-ensemble"):
        run_command(dee, "deep-ensembel", "--store", stored_run.path)
    with pytest.raises(UserError, match="does not go with --store"):
        run_command(dee, "--store", stored_run.path, "--ensemble", "x.npz")
    with pytest.raises(UserError, match="or --store"):
        run_command(dee)


def test_patients_are_named_and_unused_columns_too(files):
    arrays = dict(np.load(files / "weak.npz"))
    np.savez(files / "grouped.npz", **arrays, patient=np.arange(150) // 3, site=np.zeros(150, dtype=int))
    np.savez(files / "of.npz", **dict(np.load(files / "de.npz")), patient=np.arange(150) // 3)
    common = ("dee", files / "grouped.npz", "--ensemble", files / "of.npz", "--orders", 1)
    with pytest.raises(UserError, match=r"'patient' looks like groups.*--group patient"):
        run(*common)
    assert "note: Columns that are not used: site." in run(*common, "--group", "patient").stderr
