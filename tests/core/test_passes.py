"""Pooling over passes: the mean of probabilities in log space, in blocks of rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, logsumexp

from dubio.core.passes import log_mean_exp, log_sigmoid, pool_sigmoid, pool_softmax, row_blocks
from dubio.core.passes import log_softmax as ours
from tests.core.helpers import some_predictions


def test_sigmoids_are_pooled_per_label_with_exact_complements():
    logits = np.array([[[40.0, -40.0, np.inf, -np.inf, 0.0]], [[-40.0, -40.0, np.inf, -np.inf, 1.0]]])
    yes, no = pool_sigmoid(logits, 1.0)
    assert np.exp(yes)[0] == pytest.approx([0.5, expit(-40), 1, 0, (0.5 + expit(1.0)) / 2])
    assert np.exp(no)[0] == pytest.approx([0.5, 1, 0, 1, 1 - (0.5 + expit(1.0)) / 2])
    yes, no = pool_sigmoid(logits, 2.0)
    assert np.exp(yes) + np.exp(no) == pytest.approx(np.ones((1, 5)))
    assert not np.isnan(yes).any()


def test_logarithms_at_zero_and_one_are_exact():
    assert ours(np.array([[0.0, -np.inf]])).tolist() == [[0.0, -np.inf]]
    assert log_mean_exp(np.array([[-np.inf], [-np.inf]])).tolist() == [-np.inf]
    assert log_sigmoid(np.array([-np.inf, np.inf, -1e5])).tolist() == [-np.inf, 0.0, -1e5]


@pytest.mark.parametrize(("samples", "rows", "classes"), [(1, 10, 2), (50, 1000, 1000), (3, 0, 5)])
def test_blocks_cover_every_row_once_and_stay_small(samples, rows, classes):
    blocks = list(row_blocks(samples, rows, classes))
    assert [row for block in blocks for row in range(block.start, block.stop)] == list(range(rows))
    assert all((b.stop - b.start) * samples * classes * 8 <= 1 << 20 or b.stop - b.start == 1 for b in blocks)


def test_pooling_in_blocks_equals_pooling_at_once():
    predictions = some_predictions(rows=4000, classes=40)
    assert predictions.log_probs == pytest.approx(pool_softmax(predictions.logits, 1.0))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1.0, 50.0, 3000.0]), st.sampled_from([1.0, 0.3, 7.0]))
def test_pooling_is_the_mean_of_probabilities_then_the_temperature(seed, scale, temperature):
    logits = np.random.default_rng(seed).normal(size=(4, 6, 3)) * scale
    logits[0, 0, 0] = -np.inf
    pooled = logsumexp(log_softmax(logits, axis=-1), axis=0) - np.log(4)
    wanted = log_softmax(pooled / temperature, axis=-1)
    assert pool_softmax(logits, temperature) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert np.exp(pool_softmax(logits, temperature)).sum(-1) == pytest.approx(np.ones(6))
