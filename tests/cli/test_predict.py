from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import dubio
from dubio.cli.app import app
from dubio.core.errors import UserError
from dubio.deployment.model import TOLERANCE
from dubio.formats import read_predictions
from tests.cli.helpers import invoke


@pytest.fixture(scope="module")
def model(texts_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    words = ("--method", "mc-dropout", "--store", texts_run.store, "--capacity", 0.3)
    result = invoke(app, "export", texts_run.name, *words, "-o", folder)
    assert "MC dropout on texts" in result.stdout
    return folder


def test_run_folder_and_python_predict_and_decide_the_same(texts_run, texts_csv, model, tmp_path):
    run = ("predict", texts_run.name, texts_csv, "--method", "mc-dropout", "--store", texts_run.store)
    invoke(app, *run, "-o", tmp_path / "run.safetensors")
    decided = ("-o", tmp_path / "model.safetensors", "--decisions", tmp_path / "decisions.csv", "--json")
    document = json.loads(invoke(app, "predict", model, texts_csv, *decided).stdout)
    run_file, folder_file = (read_predictions(tmp_path / f"{name}.safetensors") for name in ("run", "model"))
    np.testing.assert_array_equal(run_file.logits, folder_file.logits)
    loaded = dubio.load(model)
    assert run_file.system == folder_file.system == document["model"] == loaded.identity
    with texts_csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert run_file.ids.tolist() == [row["number"] for row in rows]
    one_by_one = np.concatenate([loaded.predict_proba([row]) for row in rows[:20]])
    np.testing.assert_allclose(run_file.probs[:20], one_by_one, atol=TOLERANCE, rtol=0)
    with (tmp_path / "decisions.csv").open(newline="") as file:
        decisions = [row["decision"] for row in csv.DictReader(file)]
    applied = loaded.decide(rows)
    assert decisions == [("refer", "retain")[kept] for kept in applied.retained.tolist()]
    assert document["decisions"]["referred"] == decisions.count("refer") > 0
    assert document["unlike_training"] == []


def test_rows_unlike_the_run_are_warned_of(model, texts_csv, tmp_path):
    texts = texts_csv.read_text().replace("film", "zebra quagga okapi").replace("scene", "tapir tapir tapir")
    (tmp_path / "new.csv").write_text(texts)
    result = invoke(app, "predict", model, tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    assert "warning: Unlike training, share of unknown words" in result.stderr


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--method", "mc-dropot"), "mc-dropout"),
        ((), "--method must name"),
        (("--method", "best"), "supports none"),
        (("--method", "mc-dropout", "--seed", 7), "--seed"),
        (("--method", "mc-dropout", "--task", "other"), "texts"),
        (("--method", "mc-dropout", "--policy", "p.json"), "--decisions"),
        (("--method", "mc-dropout", "--decisions", "d.csv"), "no policy"),
        (("--method", "mc-dropout", "--decisions", "./p.csv"), "is the file of --output"),
    ],
)
def test_what_does_not_fit_is_refused(texts_run, texts_csv, tmp_path, monkeypatch, words, refusal):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=refusal):
        invoke(app, "predict", texts_run.name, texts_csv, *words, "--store", texts_run.store, "-o", "p.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_model_s_folder_is_one_method(model, texts_csv, tmp_path):
    with pytest.raises(UserError, match="--method: for a run"):
        invoke(app, "predict", model, texts_csv, "--method", "mc-dropout", "-o", tmp_path / "p.csv")


def test_show_prints_the_card(model):
    assert invoke(app, "show", model).stdout.startswith("# MC dropout on texts")
    assert json.loads(invoke(app, "show", model, "--json").stdout)["identity"] == dubio.load(model).identity


def test_a_run_that_is_not_there_is_named_before_a_method_is_asked_for(texts_run, texts_csv, tmp_path):
    with pytest.raises(UserError, match=f"unknown run .* 'model'.*{texts_run.name}"):
        invoke(app, "predict", "model", texts_csv, "--store", texts_run.store, "-o", tmp_path / "p.csv")
