from __future__ import annotations

import json

import pytest

import dubio
from dubio.cli.app import app
from dubio.core.errors import UserError
from dubio.referral import fit_capacity_policy
from tests.cli.helpers import invoke


def test_a_policy_file_of_this_method_is_bound_to_the_model(texts_run, tmp_path):
    calibration = texts_run.predictions("texts", "deterministic", "cal")
    (tmp_path / "policy.json").write_text(fit_capacity_policy(calibration, capacity=0.2).to_json())
    words = ("--method", "deterministic", "--store", texts_run.store, "--policy", tmp_path / "policy.json", "--json")
    document = json.loads(invoke(app, "export", texts_run.name, *words, "-o", tmp_path / "model").stdout)
    model = dubio.load(tmp_path / "model")
    assert model.policy.system == model.identity == document["model"]
    other = ("--method", "mc-dropout", *words[2:])
    with pytest.raises(UserError, match="was not fitted for this model"):
        invoke(app, "export", texts_run.name, *other, "-o", tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--method", "swag"), "swag"),
        (("--method", "mc-dropout", "--max-risk", 0.1, "--capacity", 0.1), "give one of"),
        (("--method", "mc-dropout", "--policy", "nowhere.json"), "nowhere.json"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(texts_run, tmp_path, words, refusal):
    with pytest.raises(UserError, match=refusal):
        invoke(app, "export", texts_run.name, *words, "--store", texts_run.store, "-o", tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_model_is_refreshed_with_more_rows(texts_run, texts_csv, tmp_path):
    store = ("--store", texts_run.store)
    invoke(app, "export", texts_run.name, "--method", "mc-dropout", *store, "-o", tmp_path / "model", "--capacity", 0.3)
    head, *rows = texts_csv.read_text().splitlines()
    more = [f'{1000 + k},"bad poor slow film {k}",bad' for k in range(40)]
    (tmp_path / "more.csv").write_text("\n".join([head, *rows, *more]) + "\n")
    data = ("--data", tmp_path / "more.csv", "--no-baselines", "--jobs", 1)
    places = ("--store", tmp_path / "store", "--out", tmp_path / "report")
    result = invoke(app, "run", "--from", tmp_path / "model", *data, *places)
    assert "train 240 → 264" in result.stderr
    assert "rows of the earlier model are in the parts where they were; 40 new rows" in result.stderr
    assert "classes: the same 2" in result.stderr
    assert "The policy of the old model is not for the new one" in result.stderr
    old = dubio.load(tmp_path / "model")
    refreshed = dubio.open_run(store=tmp_path / "store").predictor("mc-dropout")
    assert (refreshed.columns, refreshed.classes) == (old.columns, old.classes)
    with pytest.raises(UserError, match="fitted for the model"):
        refreshed.decide(["good film"], old.policy)
