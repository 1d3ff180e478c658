from __future__ import annotations

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.predictions import pool_members
from dubio.core.registry import METHODS
from dubio.core.types import Examples, Split
from dubio.deployment.model import TOLERANCE, near_threshold
from dubio.methods import predictor
from dubio.referral import apply_policy, fit_capacity_policy, fit_risk_policy
from tests.deployment.helpers import FORMS, TASKS, fitted_model, rows_of

NOISY = {"epochs": 2, "samples": 4}
FAMILIES = [
    ("text", "deterministic", {"epochs": 2}),
    ("text", "mc-dropout", NOISY),
    ("text", "mc-heteroscedastic-concrete-dropout", NOISY),
    ("text", "linear", {}),
    ("table", "deep-ensemble", {"epochs": 2, "members": 2}),
    ("table", "mc-dropout-ensemble", {**NOISY, "members": 2}),
    ("table", "heteroscedastic", {"epochs": 2}),
    ("table", "sngp", {"epochs": 2, "features": 32}),
    ("table", "swag", {"epochs": 2, "samples": 3, "rank": 2, "tail_epochs": 3}),
    ("table", "mean-field-vi", {**NOISY, "start_epochs": 1}),
    ("table", "csgld", {"epochs": 4, "cycles": 2, "sampling_epochs": 1, "samples_per_cycle": 1}),
    ("table", "laplace", {"epochs": 2, "samples": 3}),
    ("table", "packed-ensemble", {"epochs": 2}),
    ("table", "mimo", {"epochs": 2}),
    ("table", "vbll", {"epochs": 2, "samples": 3}),
    ("text", "packed-ensemble", {"epochs": 2}),
    ("text", "masksembles", {"epochs": 2}),
    ("image", "batch-ensemble", {"epochs": 1}),
    ("table", "boosting", {"rounds": 3}),
    ("table", "prior", {}),
    ("image", "deterministic", {"epochs": 1, "views": 3, "shift": 1}),
    ("text", "posthoc", {"epochs": 2}),
    ("table", "posthoc-ensemble", {"epochs": 2, "members": 2}),
    ("image", "posthoc", {"epochs": 1, "views": 3, "shift": 1}),
    ("image", "ddu", {"epochs": 1}),
]


@pytest.mark.parametrize(("inputs", "method", "arguments"), FAMILIES, ids=[f"{i}-{m}" for i, m, _ in FAMILIES])
def test_a_row_has_the_same_samples_alone_and_in_any_batch(inputs, method, arguments):
    task = TASKS[inputs]()
    model, rows = fitted_model(method, task, **arguments), rows_of(task)
    whole = model.predictions(rows)
    for size in (1, 3, 7):
        order = np.random.default_rng(size).permutation(len(rows))
        for start in range(0, len(rows), size):
            chosen = order[start : start + size]
            part = model.predictions([rows[index] for index in chosen])
            samples = np.exp(part.logits) / np.exp(part.logits).sum(-1, keepdims=True)
            expected = np.exp(whole.logits[:, chosen]) / np.exp(whole.logits[:, chosen]).sum(-1, keepdims=True)
            np.testing.assert_allclose(samples, expected, atol=TOLERANCE, rtol=0)
            np.testing.assert_allclose(part.probs, whole.probs[chosen], atol=TOLERANCE, rtol=0)
            assert part.scores.keys() == whole.scores.keys()
            for name, score in part.scores.items():  # beyond 1 the tolerance is relative
                np.testing.assert_allclose(score, whole.scores[name][chosen], atol=TOLERANCE, rtol=TOLERANCE)
    inside = getattr(METHODS.make(method, **arguments), "sets", 1)  # members inside one network
    assert whole.member.max() + 1 == inside * len(model.fits)


@pytest.mark.parametrize(("inputs", "method"), [("text", "deterministic"), ("table", "deep-ensemble")])
def test_without_noise_a_deployed_prediction_is_the_stored_one(inputs, method):
    task = TASKS[inputs]()
    model = fitted_model(method, task, epochs=2)
    split = task.of_kind("id")[0]
    stored = [predictor(fit.spec, fit.prediction, fit.tensors, fit.encoder)(split).logits for fit in model.fits]
    np.testing.assert_allclose(model.predictions(rows_of(task)).logits, np.concatenate(stored), atol=1e-5)


def test_the_own_scores_of_an_ensemble_are_those_of_the_store():
    task = TASKS["table"]()
    model = fitted_model("posthoc-ensemble", task, epochs=2, members=3)
    split = task.of_kind("id")[0]
    stored = pool_members([predictor(f.spec, f.prediction, f.tensors, f.encoder)(split) for f in model.fits])
    scores = model.predictions(rows_of(task)).scores
    assert list(scores) == sorted(stored.scores) != []
    for name, values in stored.scores.items():
        np.testing.assert_allclose(scores[name], values, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_policy_may_refer_by_an_own_score():
    task = TASKS["table"]()
    model = fitted_model("posthoc", task, epochs=3)
    calibration = model.predictions(rows_of(task, "cal") * 8)
    labelled = calibration.with_checked(labels=np.tile(task.of_kind("cal")[0].data.labels, 8), kind="cal")
    for quantity in ("energy", "mahalanobis"):  # one is negative, the other positive
        policy = fit_capacity_policy(labelled, capacity=0.3, quantity=quantity)
        applied = model.decide(rows_of(task), policy)
        scores = model.uncertainty(rows_of(task), quantity)
        assert 0 < applied.retained.sum() < len(scores)
        assert scores[applied.retained].max() <= scores[~applied.retained].min()


def test_noise_by_key_has_the_distribution_of_noise_by_index():
    task = TASKS["table"]()
    model, rows = fitted_model("mc-dropout", task, epochs=3, samples=2000), rows_of(task)[:3]
    (fit,) = model.fits
    values = task.of_kind("id")[0].data.inputs[:3]
    split = Split.of("few", "id", Examples(values, np.zeros(3, dtype=np.int64)))
    stored = predictor(fit.spec, fit.prediction, fit.tensors, fit.encoder)(split)
    keyed = model.predictions(rows)
    # the mean over 2,000 samples: six standard errors of a difference
    spread = np.sqrt(2 * keyed.logits.var(axis=1).max() / 2000) + keyed.logits.std(axis=0).max() * np.sqrt(2 / 2000)
    assert np.abs(stored.probs - keyed.probs).max() < 6 * spread
    assert keyed.logits.std(axis=0).min() > 0


def test_rows_are_mappings_arrays_or_a_frame():
    pandas = pytest.importorskip("pandas")
    task = TASKS["table"]()
    model, rows = fitted_model("deterministic", task, epochs=1), rows_of(task)
    expected = model.predict_proba(rows)
    values = task.of_kind("id")[0].data.inputs
    np.testing.assert_array_equal(model.predict_proba(values), expected)
    np.testing.assert_array_equal(model.predict_proba(values.tolist()), expected)
    frame = pandas.DataFrame(values, columns=FORMS["table"].columns).assign(label="a")
    predictions = model.predictions(frame)
    np.testing.assert_array_equal(predictions.probs, expected)
    unused, missing = predictions.notes
    assert unused == "Columns that the model does not use: label."
    assert missing.startswith(f"Rows with a missing number: {np.isnan(values).any(axis=1).sum()} (")
    texts = [{column: None if np.isnan(v) else repr(float(v)) for column, v in row.items()} for row in rows]
    np.testing.assert_array_equal(model.predict_proba(texts), expected)


@pytest.mark.parametrize(
    ("inputs", "row", "words"),
    [
        ("table", {"height": 1, "width": 2, "age": 3}, ["row 1", "'dose'"]),
        ("table", {"height": 1, "width": "wide", "age": 3, "dose": 4}, ["row 1", "'width'", "number", "wide"]),
        ("table", {"height": float("inf"), "width": 2, "age": 3, "dose": 4}, ["row 1", "'height'", "finite"]),
        ("table", [1, 2, 3], ["row 1", "4 numbers"]),
        ("text", {"revew": "good"}, ["row 1", "'review'", "revew"]),
        ("text", {"review": 3}, ["row 1", "'review'", "text", "3"]),
        ("image", {"image": np.zeros((7, 8), np.uint8)}, ["row 1", "'image'", "[8, 8, 1]", "[7, 8]"]),
        ("image", {"image": b"no image"}, ["row 1", "'image'", "image"]),
    ],
)
def test_a_row_that_does_not_fit_is_refused_by_row_and_column(inputs, row, words):
    task = TASKS[inputs]()
    model = fitted_model("prior", task)
    with pytest.raises(UserError) as refusal:
        model.predictions([rows_of(task)[0], row])
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_it_is_a_scikit_learn_classifier():
    from sklearn.base import clone, is_classifier
    from sklearn.metrics import accuracy_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.utils.validation import check_is_fitted

    task = TASKS["table"]()
    model = fitted_model("deterministic", task, epochs=1)
    values, labels = task.of_kind("id")[0].data.inputs, task.of_kind("id")[0].data.labels
    assert clone(model) is model
    assert is_classifier(model)
    check_is_fitted(model)
    assert model.get_params()["method"] == "deterministic"
    pipeline = make_pipeline(FunctionTransformer(), model).fit(values, labels)
    np.testing.assert_array_equal(pipeline.predict(values), model.predict(values))
    assert set(model.predict(values)) <= set(model.classes_)
    names = model.classes_[labels]
    assert pipeline.score(values, names) == accuracy_score(names, model.predict(values))
    with pytest.raises(UserError, match="no parameters to set"):
        model.set_params(method="swag")


def test_its_identity_is_that_of_its_outputs():
    task = TASKS["table"]()
    settings = [(4, 0), (5, 0), (4, 1)]
    models = [fitted_model("mc-dropout", task, epochs=1, samples=samples, seed=seed) for samples, seed in settings]
    again = fitted_model("mc-dropout", task, epochs=1, samples=4)
    assert again.identity == models[0].identity
    assert len({model.identity for model in models}) == 3
    np.testing.assert_array_equal(again.predict_proba(rows_of(task)), models[0].predict_proba(rows_of(task)))


def test_decisions_are_those_of_the_policy():
    task = TASKS["table"]()
    model = fitted_model("mc-dropout", task, epochs=3, samples=4)
    calibration = model.predictions(rows_of(task, "cal") * 8)
    labelled = calibration.with_checked(labels=np.tile(task.of_kind("cal")[0].data.labels, 8), kind="cal")
    policy = fit_risk_policy(labelled, max_risk=0.6)
    rows = rows_of(task)
    applied = model.decide(rows, policy)
    expected = apply_policy(policy, model.predictions(rows))
    np.testing.assert_array_equal(applied.retained, expected.retained)
    np.testing.assert_array_equal(model.with_parts(policy=policy).decide(rows).retained, expected.retained)
    with pytest.raises(UserError, match="no policy"):
        model.decide(rows)


def test_a_score_next_to_the_threshold_is_said():
    # 0.5 + 1.5e-5 is rounded to 0.5 + 2⁻¹⁶, and 0.5 + 0.5e-5 to 0.5: they are on either side of the threshold
    scores = np.array([0.3, 0.5 - 9e-6, 0.5 - 3e-5, 0.5, 0.5 + 1.5e-5, 0.5 + 2e-5, 0.8])
    assert near_threshold(scores, 0.5).tolist() == [False, True, False, True, True, False, False]
    large = np.array([1000.0, 1000.0 + 5e-3, 1000.1, -1000.0])  # an own score: the tolerance is relative
    assert near_threshold(large, 1000.0).tolist() == [True, True, False, False]


@pytest.mark.parametrize("threshold", [np.inf, -np.inf])
def test_no_score_is_near_a_threshold_that_decides_all_rows_alike(threshold):
    assert not near_threshold(np.array([0.0, 0.3, 1e6]), threshold).any()
