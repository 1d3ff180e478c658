"""Recalibrations for deployment: fitted, written, read and applied, and refused when damaged."""

import json

import numpy as np
import pytest

from dubio.calibration.recalibration import (
    METHODS,
    Recalibration,
    apply_recalibration,
    fit_recalibration,
    fitted_on,
    read_recalibration,
    recalibration_to_json,
    write_recalibration,
)
from dubio.calibration.temperature import fit_temperature
from dubio.core.errors import BadFile, UserError
from dubio.core.predictions import Predictions
from dubio.core.validate import json_schema
from dubio.metrics.scoring import nll
from tests.core.helpers import schema_fault


def made(seed, rows=300, target="multiclass", scale=3.0, **more):
    rng = np.random.default_rng(seed)
    if target == "multilabel":
        labels = rng.integers(0, 2, (rows, 4))
        logits = rng.normal(size=(2, rows, 4)) + 1.5 * labels - 0.75
    else:
        labels = rng.integers(0, 4, rows)
        logits = rng.normal(size=(2, rows, 4)) + 1.5 * np.eye(4)[labels]
    return Predictions((scale * logits).astype(np.float32), labels, target=target, **more)


@pytest.mark.parametrize("target", ["multiclass", "multilabel", "ordinal"])
@pytest.mark.parametrize("method", METHODS)
def test_written_and_read_it_does_the_same_and_helps_new_rows(method, target, tmp_path):
    validation, test = made(0, target=target), made(1, 2000, target=target)
    found = fit_recalibration(validation, method)
    assert found.fitted_on.nll_after <= found.fitted_on.nll_before
    write_recalibration(tmp_path / "r.json", found)
    again = read_recalibration(tmp_path / "r.json")
    assert recalibration_to_json(again) == recalibration_to_json(found)
    one, other = apply_recalibration(found, test), apply_recalibration(again, test)
    np.testing.assert_array_equal(one.probs, other.probs)
    if method == "temperature":  # the others may follow the validation rows too closely
        assert nll(one) < nll(test)
    np.testing.assert_array_equal(one.labels, test.labels)


def test_temperature_is_the_fitted_one_and_keeps_the_samples():
    validation = made(0)
    found = fit_recalibration(validation)
    assert found.parameters.temperature == fit_temperature(validation).temperature
    tempered = apply_recalibration(found, made(1))
    assert tempered.samples == 2
    assert tempered.temperature == found.parameters.temperature


def test_it_knows_what_it_was_fitted_on_in_any_order():
    validation = made(0)
    found = fit_recalibration(validation)
    assert fitted_on(found, validation.take(np.random.default_rng(0).permutation(300)))
    assert not fitted_on(found, made(1))
    assert not fitted_on(found, validation.take(np.arange(299)))


def test_other_predictions_are_refused():
    found = fit_recalibration(made(0, classes=("a", "b", "c", "d")))
    with pytest.raises(UserError, match="for multiclass predictions; these are multilabel"):
        apply_recalibration(found, made(1, target="multilabel"))
    with pytest.raises(UserError, match="for 4 classes; the predictions have 3"):
        apply_recalibration(found, Predictions(np.zeros((1, 2, 3), np.float32), np.zeros(2, np.int64)))
    with pytest.raises(UserError, match="other names"):
        apply_recalibration(found, made(1, classes=("a", "b", "d", "c")))
    with pytest.raises(UserError, match="use a validation file"):
        fit_recalibration(made(0, kind="train"))
    with pytest.raises(UserError, match="every row is unlabelled"):
        fit_recalibration(Predictions(np.zeros((1, 2, 3), np.float32), np.full(2, -1)))


DAMAGE = {
    "temperature": [
        ("temperature", 0),
        ("temperature", -1.0),
        ("temperature", "x"),
        ("temperature", None),
        ("temperature", 1e-320),
        ("temperature", 5e-324),
        ("temperature", 1e-17),
    ],
    "vector": [
        ("weights", [1.0]),
        ("biases", [0.0, 0.0, 0.0, "a"]),
        ("weights", None),
        ("weights", [1e308] * 4),
        ("biases", [-1e40] * 4),
    ],
    "isotonic": [
        ("maps", []),
        ("maps", [{"knots": [0.0, 0.0], "values": [0.0, 1.0]}] * 4),
        ("maps", [{"knots": [0.0, 1.0], "values": [1.0, 0.0]}] * 4),
        ("maps", [{"knots": [0.0, 1.0], "values": [0.0, 2.0]}] * 4),
        ("maps", [{"knots": [], "values": []}] * 4),
        ("maps", 3),
    ],
}


@pytest.mark.parametrize(("method", "key", "value"), [(m, k, v) for m, told in DAMAGE.items() for k, v in told])
def test_damaged_parameters_are_refused(method, key, value, tmp_path):
    document = recalibration_to_json(fit_recalibration(made(0, rows=60), method))
    document["parameters"][key] = value
    (tmp_path / "r.json").write_text(json.dumps(document))
    with pytest.raises(BadFile, match=r"r\.json.*parameters"):
        read_recalibration(tmp_path / "r.json")


def test_files_that_are_no_recalibration_are_refused(tmp_path):
    file = tmp_path / "r.json"
    document = recalibration_to_json(fit_recalibration(made(0, rows=60)))
    for text, message in (
        ("{", "is not JSON"),
        ("[" * 100_000, "nested deeper than 100 levels"),
        ("[]", "table"),
        ('{"dubio": "policy"}', "not a recalibration"),
        (json.dumps(document | {"schema": 2}), "schema 2; this dubio reads up to 1"),
        (json.dumps(document | {"schema": "1"}), "schema '1'"),
        (json.dumps(document | {"method": "pickle"}), "field 'method'.*pickle"),
        (json.dumps(document | {"classes": 0}), "field 'classes'"),
        (json.dumps(document | {"names": ["a"]}), "field 'names'"),
        (json.dumps({key: value for key, value in document.items() if key != "fitted_on"}), "'fitted_on'"),
    ):
        file.write_text(text)
        with pytest.raises(BadFile, match=message):
            read_recalibration(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadFile):
        read_recalibration(file)
    with pytest.raises(BadFile, match="cannot be read"):
        read_recalibration(tmp_path / "none.json")


def test_infinite_likelihood_is_kept(tmp_path):
    logits = np.array([[[0.0, -np.inf], [-0.9, -0.5], [-1.2, -0.4]]], np.float32)
    found = fit_recalibration(Predictions(logits, np.array([1, 1, 0])))
    write_recalibration(tmp_path / "r.json", found)
    assert np.isinf(read_recalibration(tmp_path / "r.json").fitted_on.nll_before)


@pytest.mark.parametrize("method", METHODS)
def test_recalibrations_satisfy_their_json_schema(method):
    document = json.loads(json.dumps(recalibration_to_json(fit_recalibration(made(0, rows=60), method))))
    schema = json_schema(Recalibration)
    assert schema_fault(schema, document) is None
    for change in ({"schema": 2}, {"classes": 0}, {"parameters": {"temperature": 0}}, {"more": 1}):
        assert schema_fault(schema, {**document, **change}) is not None
