"""The fast passes against plain float64 arithmetic, on ordinary and on adversarial logits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from dubio.core.errors import UserError
from dubio.core.passes import threads
from dubio.core.predictions import Predictions, join
from dubio.metrics.decomposition import decompose, forget
from dubio.metrics.scoring import brier, nll

RNG = np.random.default_rng(0)


def _holes(logits):
    """Some classes are impossible: p = 0 in some samples, in all of one row, and all but one class in another."""
    logits[RNG.random(logits.shape) < 0.2] = -np.inf
    logits[:, 0, 1] = -np.inf
    logits[:, 1, 1:] = -np.inf
    logits[..., 0] = np.maximum(logits[..., 0], -3.0)  # a finite one in every row
    return logits


CASES = {
    "ordinary": RNG.normal(size=(4, 30, 6)) * 2,
    "one sample": RNG.normal(size=(1, 30, 6)) * 2,
    "two samples": np.random.default_rng(2).normal(size=(2, 30, 6)) * 2,
    "two classes": RNG.normal(size=(5, 30, 2)),
    "impossible classes": _holes(RNG.normal(size=(4, 30, 6))),
    "impossible classes, one sample": _holes(RNG.normal(size=(1, 30, 6))),
    "huge": RNG.normal(size=(3, 30, 5)) * 3e4,
    "far from zero": RNG.normal(size=(3, 30, 5)) + np.array([1e4, -1e4, 300.0])[:, None, None],
    "nearly certain": RNG.normal(size=(3, 30, 5)) + 40 * np.eye(5)[0],
    "certain to the last digit": RNG.normal(size=(3, 30, 5)) + 90 * np.eye(5)[0],
    "samples agree": np.repeat(RNG.normal(size=(1, 30, 5)), 4, axis=0),
    "uniform": np.zeros((3, 30, 4)),
    "opposed": np.where(np.arange(4)[:, None, None] % 2 == np.arange(2), 500.0, -500.0) * np.ones((4, 30, 2)),
    "nearly tied near zero": RNG.choice([0.0, 1e-14, -1e-14, -1e-6], size=(1, 30, 5)),
}


@pytest.fixture(params=CASES, name="predictions")
def _predictions(request):
    logits = CASES[request.param].astype(np.float32)
    return Predictions(logits, RNG.integers(0, logits.shape[2], logits.shape[1]))


def _plain(logits):
    """log p_s and log p̄ in float64 and log space."""
    logs = log_softmax(logits.astype(np.float64), axis=-1)
    with np.errstate(divide="ignore"):
        return logs, logsumexp(logs, axis=0) - np.log(len(logs))


def _entropy(logs):
    return -(np.exp(logs) * np.where(np.isneginf(logs), 0.0, logs)).sum(axis=-1)


def test_decomposition_equals_plain_arithmetic(predictions):
    logs, pooled = _plain(predictions.logits)
    probs, mean = np.exp(logs), np.exp(pooled)
    found = decompose(predictions)
    assert found.expected_entropy == pytest.approx(_entropy(logs).mean(axis=0), rel=1e-7, abs=1e-13)
    assert found.pooled_entropy == pytest.approx(_entropy(pooled), rel=1e-7, abs=1e-13)
    wanted = np.maximum(_entropy(pooled) - _entropy(logs).mean(axis=0), 0)
    assert found.mutual_information == pytest.approx(wanted, abs=2e-12)
    assert found.sample_variance == pytest.approx(probs.var(axis=0).mean(axis=-1), rel=1e-6, abs=1e-20)
    assert found.total_variance == pytest.approx((mean * (1 - mean)).mean(axis=-1), rel=1e-6, abs=1e-16)
    assert found.expected_variance == pytest.approx((probs * (1 - probs)).mean(axis=(0, 2)), rel=1e-6, abs=1e-16)
    for part in vars(found).values():
        assert np.isfinite(part).all()
        assert (part >= 0).all()


@pytest.mark.parametrize("member", [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2, 3], [5, 5, 5, 2], [3, 3, 3, 3]])
def test_variance_between_and_within_members(member):
    logits = (RNG.normal(size=(4, 20, 5)) * 2).astype(np.float32)
    found = decompose(Predictions(logits, np.zeros(20, dtype=int), member=np.array(member)))
    probs = np.exp(_plain(logits)[0])
    centres = np.stack([probs[np.array(member) == which].mean(axis=0) for which in member])
    assert found.between_members == pytest.approx(((centres - probs.mean(axis=0)) ** 2).mean(axis=(0, 2)), rel=1e-9)
    assert found.within_members == pytest.approx(((probs - centres) ** 2).mean(axis=(0, 2)), rel=1e-9, abs=1e-20)


@pytest.mark.parametrize("member", [[0, 1], [0, 0], [0, 0, 1, 1], [0, 1, 2, 3], [5, 5, 5, 2], [3, 3, 3, 3]])
@pytest.mark.parametrize("spread", [1e-5, 1e-6])
def test_members_that_nearly_agree_have_their_digits(member, spread):
    rng = np.random.default_rng(4)
    logits = rng.normal(size=(1, 20, 5)) + spread * rng.normal(size=(len(member), 20, 5))
    given = Predictions(logits.astype(np.float32), np.zeros(20, dtype=int), member=np.array(member))
    found, probs = decompose(given), np.exp(_plain(given.logits)[0])
    centres = np.stack([probs[np.array(member) == which].mean(axis=0) for which in member])
    between = ((centres - probs.mean(axis=0)) ** 2).mean(axis=(0, 2))
    within = ((probs - centres) ** 2).mean(axis=(0, 2))
    assert found.between_members == pytest.approx(between, rel=1e-6, abs=1e-20)
    assert found.within_members == pytest.approx(within, rel=1e-6, abs=1e-20)
    assert found.sample_variance == pytest.approx(between + within, rel=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_summary_equals_plain_arithmetic(predictions, temperature):
    given = Predictions(predictions.logits, predictions.labels, temperature=temperature)
    logs = log_softmax(_plain(given.logits)[1] / temperature, axis=-1)
    rows = np.arange(len(given))
    chosen = np.argmax(logs >= logs.max(axis=1, keepdims=True) - 1e-12, axis=1)
    others = np.exp(logs)
    others[rows, chosen] = 0
    found = given.summary
    assert found.chosen.tolist() == chosen.tolist()
    assert found.top == pytest.approx(np.exp(logs.max(axis=1)), rel=4e-7)
    assert found.complement == pytest.approx(others.sum(axis=1), rel=4e-7, abs=1e-300)
    assert found.other_squares == pytest.approx((others**2).sum(axis=1), rel=8e-7, abs=1e-50)
    assert nll.per_example(given) == pytest.approx(-logs[rows, given.labels], rel=4e-7, abs=4e-7)
    gap = np.exp(logs) - np.eye(logs.shape[1])[given.labels]
    assert brier.per_example(given) == pytest.approx((gap**2).sum(axis=1), rel=4e-7, abs=1e-12)


def test_log_probs_equal_plain_arithmetic(predictions):
    assert predictions.log_probs == pytest.approx(_plain(predictions.logits)[1], rel=1e-12, abs=1e-12)


def test_threads_do_not_change_a_bit():
    logits = RNG.normal(size=(7, 3000, 9)).astype(np.float32)
    given = Predictions(logits, np.zeros(3000, dtype=int))
    one = decompose(given)
    forget(given)
    with threads(3):
        three = decompose(given)
    for name, part in vars(one).items():
        assert np.array_equal(part, getattr(three, name)), name
    with pytest.raises(UserError, match="threads must be at least 1"), threads(0):
        pass


def test_taken_and_joined_rows_know_what_the_whole_knows():
    whole = Predictions(RNG.normal(size=(1, 50, 4)).astype(np.float32), RNG.integers(0, 4, 50))
    rows = RNG.permutation(50)[:20]
    before = whole.take(rows).summary.complement  # of its own logits
    _ = whole.summary
    assert np.array_equal(whole.take(rows).summary.complement, before)
    parts = join([whole.take(rows), whole.take(np.arange(10))])
    assert np.array_equal(parts.summary.complement, np.concatenate([before, whole.summary.complement[:10]]))
    assert (len(parts), parts.samples, parts.class_count) == (30, 1, 4)
    assert np.array_equal(parts.logits, np.concatenate([whole.logits[:, rows], whole.logits[:, :10]], axis=1))


def test_rows_that_follow_each_other_are_not_copied():
    whole = Predictions(RNG.normal(size=(2, 50, 4)).astype(np.float32), RNG.integers(0, 4, 50))
    assert whole.take(np.ones(50, dtype=bool)) is whole
    assert np.shares_memory(whole.take(np.arange(50) >= 30).logits, whole.logits)
    with pytest.raises(UserError, match="empty"):
        whole.take(np.zeros(50, dtype=bool))


def test_a_decomposition_is_remembered_until_it_is_forgotten():
    given = Predictions(np.zeros((2, 3, 2), dtype=np.float32), np.zeros(3, dtype=int))
    first = decompose(given)
    assert decompose(given) is first
    forget(given)
    assert decompose(given) is not first
