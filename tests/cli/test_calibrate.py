"""The commands ``dubio calibrate fit`` and ``apply``, and ``dubio evaluate --calibration``."""

import json

import numpy as np
import pytest

from dubio.cli.app import app
from dubio.core.errors import UnknownName, UserError
from dubio.formats import read_predictions
from tests.cli.helpers import invoke


def run(*arguments):
    return invoke(app, *arguments)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    for name, rows in (("val", 200), ("test", 300)):
        labels = rng.integers(0, 3, rows)
        z = 4 * (rng.normal(size=(rows, 3)) + np.eye(3)[labels])
        p = np.exp(z - z.max(1, keepdims=True))
        np.savez(tmp_path / f"{name}.npz", probs=p / p.sum(1, keepdims=True), labels=labels, ids=np.arange(rows))
    return tmp_path


def test_fit_then_evaluate_and_apply_agree(files):
    fitted = run("calibrate", "fit", files / "val.npz", "-o", files / "t.json", "--json")
    temperature = json.loads(fitted.stdout)["parameters"]["temperature"]
    assert temperature > 1.5
    arguments = ("--metric", "nll", "--replicates", 0, "--json")
    plain = json.loads(run("evaluate", files / "test.npz", *arguments).stdout)["systems"]["test"]["scores"]["nll"]
    direct = json.loads(run("evaluate", files / "test.npz", "--calibration", files / "t.json", *arguments).stdout)
    for output in ("out.npz", "out.safetensors"):
        applied = run("calibrate", "apply", files / "t.json", files / "test.npz", "-o", files / output)
        assert "written" in applied.output
        again = json.loads(run("evaluate", files / output, *arguments).stdout)["systems"]["out"]["scores"]["nll"]
        assert again["value"] == pytest.approx(direct["systems"]["test"]["scores"]["nll"]["value"], abs=1e-6)
    assert direct["systems"]["test"]["scores"]["nll"]["value"] < plain["value"]
    assert direct["notes"][0] == f"test: recalibrated with {files / 't.json'} (temperature)."


def test_what_it_was_fitted_on_is_told(files):
    run("calibrate", "fit", files / "val.npz", "-o", files / "t.json")
    told = run("evaluate", files / "val.npz", "--calibration", files / "t.json", "--replicates", 0)
    assert "fitted on these predictions" in told.output
    told = run("calibrate", "apply", files / "t.json", files / "val.npz", "-o", files / "out.npz")
    assert "fitted on these predictions" in told.output


def test_one_of_several_systems_is_recalibrated(files):
    run("calibrate", "fit", files / "val.npz", "-o", files / "v.json", "--method", "vector")
    test = files / "test.npz"
    found = run("evaluate", f"a={test}", f"b={test}", "--calibration", f"b={files / 'v.json'}", "--metric", "brier",
                "--replicates", 50, "--json")  # fmt: skip
    document = json.loads(found.stdout)
    test = document["pairs"]["metrics"]["brier"][0]
    assert test["better"] == "b"
    assert test["difference"] > test["resolves"] > 0
    with pytest.raises(UserError, match="NAME=PATH"):
        run("evaluate", f"a={files / 'test.npz'}", f"b={files / 'test.npz'}", "--calibration", files / "v.json")
    with pytest.raises(UnknownName, match="system in --calibration 'c'"):
        run("evaluate", f"a={files / 'test.npz'}", "--calibration", f"c={files / 'v.json'}")


def test_mistakes_are_named(files):
    run("calibrate", "fit", files / "val.npz", "-o", files / "t.json")
    with pytest.raises(UserError, match=r"must end in \.npz or \.safetensors"):
        run("calibrate", "apply", files / "t.json", files / "test.npz", "-o", files / "out.pkl")
    (files / "x.json").write_text("{}")
    with pytest.raises(UserError, match="not a recalibration"):
        run("calibrate", "apply", files / "x.json", files / "test.npz", "-o", files / "out.npz")
    separable = np.eye(2)[[0, 1] * 20] * 0.8 + 0.1
    np.savez(files / "easy.npz", probs=separable, labels=np.array([0, 1] * 20))
    told = run("calibrate", "fit", files / "easy.npz", "-o", files / "e.json")
    assert "no optimum inside" in told.output


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_the_decision_about_rows_without_a_label_is_written_with_the_predictions(tmp_path, ending):
    labels = np.array([[1, 0], [0, 1]] * 20)
    np.savez(tmp_path / "val.npz", probs=np.where(labels == 1, 0.4, 0.2), labels=labels)
    run("calibrate", "fit", tmp_path / "val.npz", "--target", "multilabel", "-o", tmp_path / "t.json")
    out = tmp_path / f"new.{ending}"
    common = tmp_path / "t.json", tmp_path / "val.npz", "--target", "multilabel", "-o", out
    run("calibrate", "apply", *common)
    assert read_predictions(out, target="multilabel").empty_decision == "empty"
    run("calibrate", "apply", *common, "--empty-decision", "argmax")
    assert read_predictions(out, target="multilabel").empty_decision == "argmax"


def test_patients_are_named_and_unused_columns_too(files):
    arrays = dict(np.load(files / "val.npz"))
    np.savez(files / "c.npz", **arrays, subject=np.arange(200) // 4, site=np.zeros(200, dtype=int))
    fit, apply = ("fit", files / "c.npz"), ("apply", files / "t.json", files / "c.npz")
    for command, output in ((fit, "t.json"), (apply, "out.npz")):
        with pytest.raises(UserError, match=r"'subject' looks like groups.*--group subject"):
            run("calibrate", *command, "-o", files / output)
        done = run("calibrate", *command, "-o", files / output, "--group", "subject")
        assert "note: Columns that are not used: site." in done.stderr
    assert np.load(files / "out.npz")["group"].tolist() == [str(k // 4) for k in range(200)]
    document = json.loads(run("calibrate", *fit, "-o", files / "t.json", "--rows-are-independent", "--json").stdout)
    assert document["notes"][0] == "Columns that are not used: subject, site."


def test_subgroups_have_their_own_likelihood_and_their_column_is_written(files):
    arrays = dict(np.load(files / "val.npz"))
    site = np.array(["a", "b", "b", "b"] * 50)
    np.savez(files / "c.npz", **arrays, site=site, **{"score.own": np.arange(200.0)})
    fit = ("calibrate", "fit", files / "c.npz", "--by", "site", "-o", files / "t.json")
    document = json.loads(run(*fit, "--json").stdout)
    temperature = document["parameters"]["temperature"]
    for value, own in document["subgroups"]["site"].items():
        chosen = site == value
        powers = arrays["probs"][chosen] ** (1 / temperature)
        after = (powers / powers.sum(1, keepdims=True))[np.arange(chosen.sum()), arrays["labels"][chosen]]
        before = arrays["probs"][chosen][np.arange(chosen.sum()), arrays["labels"][chosen]]
        assert own["rows"] == chosen.sum()
        assert own["nll_before"] == pytest.approx(-np.log(before).mean(), rel=1e-5)
        assert own["nll_after"] == pytest.approx(-np.log(after).mean(), rel=1e-4)
    assert "site b, 150 rows: nll" in run(*fit).stdout
    for output in ("out.npz", "out.safetensors"):
        run("calibrate", "apply", files / "t.json", files / "c.npz", "--by", "site", "-o", files / output)
        written = read_predictions(files / output)
        assert written.columns["site"].tolist() == site.tolist()
        assert written.scores["own"].tolist() == list(range(200))


def test_a_likelihood_that_stays_infinite_is_explained(tmp_path):
    probs = np.tile([0.7, 0.3, 0.0], (40, 1))
    np.savez(tmp_path / "zero.npz", probs=probs, labels=np.arange(40) % 3)
    printed = run("calibrate", "fit", tmp_path / "zero.npz", "-o", tmp_path / "t.json")
    assert "nll ∞ → ∞" in printed.output
    assert "the true class has probability zero in some rows" in printed.output
    document = json.loads(run("calibrate", "fit", tmp_path / "zero.npz", "-o", tmp_path / "t.json", "--json").stdout)
    assert "stays infinite" in document["notes"][-1]
