"""Temperature scaling against scipy's optimisers, closed forms and its promises."""

import decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize
from scipy.special import expit, logsumexp

from dubio.calibration.temperature import HIGHEST, apply_temperature, fit_temperature
from dubio.core.errors import UserError
from dubio.core.predictions import LEAST_TEMPERATURE, Predictions


def sampled(rows=400, classes=5, sharpness=2.0, scale=1.0, seed=0, samples=1):
    """Logits whose labels were drawn at temperature ``scale``."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(samples, rows, classes)) * sharpness
    mean = np.log(np.exp(logits - logsumexp(logits, axis=-1, keepdims=True)).mean(axis=0)) / scale
    probs = np.exp(mean - logsumexp(mean, axis=-1, keepdims=True))
    labels = np.array([rng.choice(classes, p=row) for row in probs])
    return Predictions(logits.astype(np.float32), labels)


def reference_nll(predictions, temperature):
    if predictions.target == "multilabel":
        odds = (predictions.log_probs - predictions.log_complements) / temperature
        signed = np.where(predictions.labels == 1, odds, -odds)
        return float(np.logaddexp(0, -signed).sum(axis=1).mean())
    scaled = predictions.log_probs / temperature
    own = scaled[np.arange(len(predictions)), predictions.labels]
    return float((logsumexp(scaled, axis=1) - own).mean())


@pytest.mark.parametrize("scale", [0.4, 1.0, 1.7, 6.0])
@pytest.mark.parametrize("samples", [1, 4])
def test_optimum_equals_scipy(scale, samples):
    predictions = sampled(scale=scale, samples=samples)
    found = fit_temperature(predictions)
    best = optimize.minimize_scalar(
        lambda log_t: reference_nll(predictions, np.exp(log_t)),
        bounds=(-4, 4),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert found.temperature == pytest.approx(np.exp(best.x), rel=1e-5)
    assert found.nll_after == pytest.approx(best.fun, abs=1e-10)
    assert found.nll_before == pytest.approx(reference_nll(predictions, 1.0), abs=1e-12)
    assert found.at_bound is None
    assert not found.floored


def test_multilabel_optimum_equals_scipy():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(3, 300, 4)) * 3
    labels = (rng.random((300, 4)) < expit(logits.mean(axis=0) / 2)).astype(np.int64)
    predictions = Predictions(logits.astype(np.float32), labels, target="multilabel")
    found = fit_temperature(predictions)
    best = optimize.minimize_scalar(
        lambda log_t: reference_nll(predictions, np.exp(log_t)),
        bounds=(-4, 4),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert found.temperature == pytest.approx(np.exp(best.x), rel=1e-5)
    assert found.nll_after == pytest.approx(best.fun, abs=1e-10)


def test_closed_form_of_two_classes():
    """Every row says (0, z) and a share q is right: the best T has σ(z/T) = q."""
    z, right, total = 3.0, 7, 10
    logits = np.tile([0.0, z], (1, total, 1)).astype(np.float32)
    labels = (np.arange(total) < right).astype(np.int64)
    found = fit_temperature(Predictions(logits, labels))
    assert found.temperature == pytest.approx(z / np.log(right / (total - right)), rel=1e-6)


def test_bounds_are_reported():
    sure = Predictions(np.tile([0.0, 2.0], (1, 6, 1)).astype(np.float32), np.ones(6, dtype=np.int64))
    assert fit_temperature(sure).at_bound == "lowest"
    assert fit_temperature(sure).temperature == pytest.approx(1 / HIGHEST)
    mistaken = Predictions(sure.logits, np.zeros(6, dtype=np.int64))
    assert fit_temperature(mistaken).at_bound == "highest"
    assert fit_temperature(mistaken).temperature == pytest.approx(HIGHEST)


def test_very_sure_predictions_end_at_the_bound_quickly():
    sure = Predictions(np.array([[[80.0, 0.0, 0.0]]], dtype=np.float32), np.array([0]))
    found = fit_temperature(sure)
    assert found.at_bound == "lowest"
    assert found.iterations < 12


def test_uniform_predictions_keep_temperature_one():
    found = fit_temperature(Predictions(np.zeros((1, 8, 3), dtype=np.float32), np.arange(8) % 3))
    assert found.temperature == 1.0
    assert found.at_bound is None


def test_a_certain_mistake_is_floored_in_the_fit_alone():
    logits = np.array([[[-np.inf, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 0.0]]], dtype=np.float32)
    found = fit_temperature(Predictions(logits, np.array([0, 1, 1, 0])))
    assert found.floored
    assert np.isfinite(found.temperature)
    assert found.nll_before == np.inf
    assert found.nll_after == np.inf


def test_floor_never_makes_the_likelihood_worse():
    """One row whose true class has log p = −600 pulls T up; floored, the others would pull it down."""
    logits = np.zeros((1, 60, 2), dtype=np.float32)
    logits[0, :, 1] = 0.5
    logits[0, 0] = (-600.0, 0.0)
    labels = np.ones(60, dtype=np.int64)
    labels[0] = 0
    found = fit_temperature(Predictions(logits, labels))
    assert found.nll_after <= found.nll_before
    assert found.declined == (found.temperature == 1.0)


def test_unlabelled_rows_do_not_count_and_alone_are_refused():
    predictions = sampled(rows=50)
    padded = Predictions(
        np.concatenate([predictions.logits, predictions.logits[:, :5]], axis=1),
        np.concatenate([predictions.labels, np.full(5, -1)]),
    )
    assert fit_temperature(padded).temperature == pytest.approx(fit_temperature(predictions).temperature, rel=1e-9)
    with pytest.raises(UserError, match="unlabelled"):
        fit_temperature(Predictions(predictions.logits, np.full(50, -1)))


def test_temperatures_multiply():
    predictions = sampled(rows=30)
    twice = apply_temperature(apply_temperature(predictions, 2.0), 1.5)
    np.testing.assert_allclose(twice.probs, apply_temperature(predictions, 3.0).probs, atol=1e-12)


finite_logits = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(2, 5)),
    elements=st.floats(-50, 50, width=32),
)


def exact_nll(predictions):
    """In float64; the metric's own exponentials of one sample are those of float32."""
    return -float(predictions.log_probs[np.arange(len(predictions)), predictions.labels].mean())


@settings(max_examples=60, deadline=None)
@given(finite_logits, st.data())
@example(np.ones((1, 1, 2), np.float32), None)  # no temperature is better than 1, where nll is rounded to float32
def test_never_worsens_the_likelihood_it_was_fitted_to(logits, data):
    rows, classes = logits.shape[1:]
    drawn = data and data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    predictions = Predictions(logits, np.array(drawn or [0] * rows))
    found = fit_temperature(predictions)
    assert found.nll_after <= found.nll_before
    tempered = exact_nll(apply_temperature(predictions, found.temperature))
    assert tempered == pytest.approx(found.nll_after, rel=1e-9, abs=1e-9)
    assert tempered <= exact_nll(predictions) * (1 + 1e-9) + 1e-9


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.floats(0.5, 2.0))
def test_tempering_first_changes_the_temperature_alone(seed, factor):
    predictions = sampled(rows=60, classes=3, seed=seed)
    plain, tempered = fit_temperature(predictions), fit_temperature(apply_temperature(predictions, factor))
    assert tempered.nll_after == pytest.approx(plain.nll_after, abs=1e-9)
    if plain.at_bound is None and tempered.at_bound is None:
        assert tempered.temperature * factor == pytest.approx(plain.temperature, rel=1e-5)


TOO_SMALL = [5e-324, 1e-320, float(np.finfo(float).tiny), 1e-17, np.nextafter(LEAST_TEMPERATURE, 0), 0.0, -1.0]


@pytest.mark.parametrize("temperature", TOO_SMALL)
@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_a_temperature_that_rounding_would_decide_is_refused(temperature, target):
    labels = np.eye(3, dtype=np.int64) if target == "multilabel" else np.arange(3)
    rows = Predictions(np.zeros((1, 3, 3), np.float32), labels, target)
    with pytest.raises(UserError, match=r"temperature must be finite and at least 2\.22e-16"):
        apply_temperature(rows, temperature)


def test_the_product_of_temperatures_is_refused_too():
    rows = apply_temperature(Predictions(np.zeros((1, 3, 3), np.float32), np.arange(3)), 1e-10)
    with pytest.raises(UserError, match=r"temperature must be finite and at least 2\.22e-16; given 1.0"):
        apply_temperature(rows, 1e-10)


LARGEST = float(np.finfo(np.float32).max)
EXTREME = np.array(
    [[0, 1e-3, -1], [LARGEST, -LARGEST, 0], [-LARGEST] * 3, [LARGEST, LARGEST, -np.inf], [-np.inf, -np.inf, 0],
     [1e-30, 0, 5]],
    np.float32,
)  # fmt: skip


def exact_softmax(logits, temperature):
    """softmax(log softmax(z) / T) = softmax(z / T), with 60 digits."""
    with decimal.localcontext(prec=60, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX):
        wide = [decimal.Decimal(float(z)) for z in logits]
        powers = [((z - max(wide)) / decimal.Decimal(temperature)).exp() for z in wide]
        return [float(power / sum(powers)) for power in powers]


@pytest.mark.parametrize("temperature", [LEAST_TEMPERATURE, 1e-12, 1e-3, 0.5, 3.0, 1e12, 1e308])
@pytest.mark.parametrize("samples", [1, 3])
def test_every_allowed_temperature_gives_probabilities(temperature, samples):
    logits = np.repeat(EXTREME[None], samples, axis=0)
    rows = apply_temperature(Predictions(logits, np.zeros(len(EXTREME), np.int64)), temperature)
    assert np.isfinite(rows.probs).all()
    np.testing.assert_allclose(rows.probs.sum(axis=1), 1.0, rtol=1e-12)
    assert np.isfinite(rows.summary.top).all()
    # the rounding of log p̄, about 1e-16 each, is divided by T as well
    error = 1e-12 + 1e-15 / temperature
    for row, probabilities in zip(EXTREME, rows.probs, strict=True):
        if error < 0.1:
            np.testing.assert_allclose(probabilities, exact_softmax(row, temperature), atol=error)


@pytest.mark.parametrize("temperature", [LEAST_TEMPERATURE, 1e-3, 1.5, 1e308])
def test_every_allowed_temperature_gives_probabilities_of_labels(temperature):
    logits = np.array([[[0, 1e-3, -1], [LARGEST, -LARGEST, 0], [np.inf, -np.inf, 1e-30]]], np.float32)
    rows = apply_temperature(Predictions(logits, np.zeros((3, 3), np.int64), "multilabel"), temperature)
    odds = logits[0].astype(float)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(rows.probs, expit(odds / temperature), atol=1e-12 + 1e-15 / temperature)
    assert ((rows.probs >= 0) & (rows.probs <= 1)).all()
