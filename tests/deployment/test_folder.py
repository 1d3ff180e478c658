from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import dubio
from dubio.core.errors import BadFile, UserError
from dubio.core.specs import identity
from dubio.deployment.folder import DESCRIPTION, export_model, read_description, recalibrated, with_own_policy
from dubio.deployment.run_models import RunModel
from dubio.referral import fit_capacity_policy, fit_risk_policy
from dubio.store.records import SEAL, json_bytes

ROWS = ["good fine film", "bad poor plot", "slow scene", ""]


@pytest.fixture(scope="module")
def selected(texts_run):
    return RunModel.select(texts_run, "mc-dropout")


@pytest.fixture(scope="module")
def folder(selected, tmp_path_factory):
    model = recalibrated(selected, selected.model(), "temperature")
    policy = fit_capacity_policy(selected.stored("cal", model), capacity=0.3)
    return export_model(selected, with_own_policy(selected, model, policy), tmp_path_factory.mktemp("out") / "model")


def test_a_loaded_model_is_the_exported_one(texts_run, folder):
    loaded, own = dubio.load(folder), texts_run.predictor("mc-dropout")
    assert loaded.columns == own.columns == ("review",)
    assert (loaded.classes, loaded.inputs) == (("bad", "good"), "text")
    np.testing.assert_array_equal(loaded.predictions(ROWS).logits, own.predictions(ROWS).logits)
    assert loaded.identity != own.identity  # a temperature is part of it
    assert loaded.recalibration is not None
    np.testing.assert_allclose(
        np.log(loaded.predict_proba(ROWS)[:, 0] / loaded.predict_proba(ROWS)[:, 1])
        * loaded.predictions(ROWS).temperature,
        np.log(own.predict_proba(ROWS)[:, 0] / own.predict_proba(ROWS)[:, 1]),
        rtol=1e-6,
    )
    assert loaded.policy.system == loaded.identity
    assert loaded.decide(ROWS).retained.shape == (4,)


def test_the_stored_predictions_are_those_of_a_model_without_noise(texts_run):
    selected = RunModel.select(texts_run, "deterministic")
    model = selected.model()
    stored = selected.stored("id", model)
    split = selected.task.of_kind("id")[0]
    np.testing.assert_allclose(model.predict_proba(split.data.inputs), stored.probs, atol=1e-5)


def test_the_weights_are_the_store_s_own_bytes(texts_run, folder):
    content = read_description(folder)
    (row,) = [row for row in texts_run.manifest["runs"] if row["method"] == "mc-dropout"]
    recorded = [texts_run.source.record(fit)["files"]["weights.safetensors"]["sha256"] for fit in row["fits"]]
    assert [content.files[fit.weights].sha256 for fit in content.fits] == recorded


def test_the_card_names_data_scores_policy_and_the_limit_of_the_seal(folder):
    card = (folder / "card.md").read_text()
    for words in ("texts.csv", "accuracy", "good", "NLL", "Rule: ", "no signature", "| test | id | "):
        assert words in card, words


@pytest.mark.parametrize(("method", "warned"), [("mc-dropout", True), ("deterministic", False)])
def test_the_card_has_the_cautions_about_its_own_method_alone(texts_run, tmp_path, method, warned):
    assert any("mc-dropout" in text for text in texts_run.manifest["advice"])
    own = RunModel.select(texts_run, method)
    card = (export_model(own, own.model(), tmp_path / "model") / "card.md").read_text()
    assert ("Sampling noise at a rate" in card) is warned


@pytest.mark.parametrize("name", ["model.json", "weights-0.safetensors", "encoder-0.json", "card.md"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_a_damaged_file_is_refused_in_one_sentence(folder, tmp_path, name, damage):
    copy = shutil.copytree(folder, tmp_path / "copy")
    content = bytearray((copy / name).read_bytes())
    if damage == "missing":
        (copy / name).unlink()
    else:
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content[:-5] if damage == "cut" else content)
    with pytest.raises(BadFile) as refusal:
        dubio.load(copy)
    assert str(copy) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain["fits"][0]["spec"]["network"].update(name="unknown"),
        lambda plain: plain["fits"][0]["spec"]["task"]["classes"].append("third"),
        lambda plain: plain["fits"][0]["prediction"].update(samples=7),
        lambda plain: plain["form"].update(inputs="image", shape=[4, 4, 1]),
        lambda plain: plain.update(schema=99),
        lambda plain: plain["files"].update({"../outside": {"sha256": "0", "bytes": 1}}),
    ],
)
def test_a_folder_sealed_again_with_other_content_is_refused(folder, tmp_path, change):
    copy = shutil.copytree(folder, tmp_path / "copy")
    plain = json.loads((copy / DESCRIPTION).read_text())
    del plain[SEAL]
    change(plain)
    (copy / DESCRIPTION).write_bytes(json_bytes({**plain, SEAL: identity(plain)}))
    with pytest.raises(BadFile):
        dubio.load(copy)


def test_a_network_of_another_version_is_refused_by_name_and_version(folder, tmp_path):
    """Its weights have another meaning, and may have the same shapes."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    plain = json.loads((copy / DESCRIPTION).read_text())
    del plain[SEAL]
    for fit in plain["fits"]:
        fit["spec"]["network"]["version"] -= 1
    (copy / DESCRIPTION).write_bytes(json_bytes({**plain, SEAL: identity(plain)}))
    versions = r"network '.+' has version \d+ in this description; this dubio knows version \d+"
    with pytest.raises(BadFile, match=versions):
        dubio.load(copy)


def test_a_policy_of_another_model_is_refused_unless_forced(texts_run, selected, folder):
    other = RunModel.select(texts_run, "deterministic")
    policy = fit_risk_policy(other.stored("cal", other.model()), max_risk=0.6)
    model = dubio.load(folder).with_parts(recalibration=None)
    for refuse in (lambda: model.decide(ROWS, policy), lambda: with_own_policy(selected, selected.model(), policy)):
        with pytest.raises(UserError, match="fitted for the model"):
            refuse()
    forced = model.decide(ROWS, policy, force=True)
    assert any("fitted for the model" in warning for warning in forced.warnings)


def test_a_policy_without_a_system_is_recognised_by_its_calibration_rows(texts_run, selected):
    model, other = selected.model(), RunModel.select(texts_run, "deterministic")
    unnamed = [one.stored("cal", one.model()).with_checked(system=None) for one in (selected, other)]
    own, foreign = (fit_capacity_policy(rows, capacity=0.3) for rows in unnamed)
    assert with_own_policy(selected, model, own).policy.system == model.identity
    with pytest.raises(UserError, match="--force"):
        with_own_policy(selected, model, foreign)
    assert with_own_policy(selected, model, foreign, force=True).policy.system == model.identity


def test_an_existing_folder_is_not_written_over(selected, folder):
    with pytest.raises(UserError, match="new or an empty folder"):
        export_model(selected, selected.model(), folder)


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_that_is_no_model_is_refused(tmp_path, name):
    with pytest.raises(BadFile, match="is not a model"):
        dubio.load(tmp_path / name)


def test_rows_unlike_the_run_s_data_are_named(folder, selected):
    model = dubio.load(folder)
    texts = selected.task.of_kind("id")[0].data.inputs
    assert model.differences(texts) == ()
    unlike = model.differences([f"zebra quagga {text}" for text in texts])
    assert any("share of unknown words" in sentence for sentence in unlike)
