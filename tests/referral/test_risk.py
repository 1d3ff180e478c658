"""A policy with a bound on the error: what is retained, and what a refusal offers."""

import json
from math import inf

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.referral import (
    apply_policy,
    fit_capacity_policy,
    fit_risk_policy,
    fit_screening_policy,
)
from tests.referral.helpers import draw, easy, of_doubts


def test_the_whole_is_kept_where_the_whole_is_good_enough():
    policy = fit_risk_policy(draw(np.random.default_rng(0), 500, lambda doubts: 0 * doubts), max_risk=0.05)
    assert policy.threshold == inf
    assert policy.evidence["coverage"] == 1.0
    assert json.loads(policy.to_json())["threshold"] is None
    assert apply_policy(policy, easy()).retained.all()


def test_rows_that_are_equally_certain_stay_together_and_do_not_stop_the_search():
    rng = np.random.default_rng(1)
    doubts = np.where(rng.random(1000) < 0.6, 0.0, 0.4)
    policy = fit_risk_policy(of_doubts(doubts, rng.random(1000) < doubts), max_risk=0.05)
    assert 0 <= policy.threshold < 0.4
    assert policy.evidence["retained"] == (doubts == 0).sum()


def test_refusal_states_what_could_be_guaranteed():
    with pytest.raises(UserError, match=r"below max_risk 0.01 .* best that can be guaranteed is an error below 0\.\d+"):
        fit_risk_policy(easy(), max_risk=0.01)
    with pytest.raises(UserError, match=r"no threshold on these 4 rows .* below 0\.\d+"):
        fit_risk_policy(easy(4), max_risk=0.05)
    with pytest.raises(UserError, match=r"on these 130 groups .* guaranteed is an error below"):
        fit_risk_policy(easy(260, group=np.repeat(np.arange(130), 2).astype(str)), max_risk=0.01)
    truth = np.arange(400) % 2
    hard = of_doubts(np.linspace(0.1, 0.5, 400), np.random.default_rng(0).random(400) < 0.3, truth=truth)
    with pytest.raises(UserError, match=r"guaranteed is sensitivity above 0\.\d+ .* and specificity above 0\.\d+"):
        fit_screening_policy(hard, sensitivity=0.9, specificity=0.9)
    with pytest.raises(UserError, match=r"0\.001 needs at least 999 independent calibration rows; given 400"):
        fit_capacity_policy(easy(), capacity=0.001)


def test_multilabel_rows_are_right_as_a_whole():
    rng = np.random.default_rng(0)
    labels = (rng.random((300, 3)) < 0.5).astype(np.int64)
    logits = (6.0 * (2 * labels - 1))[None].astype(np.float32)
    policy = fit_risk_policy(Predictions(logits, labels, "multilabel", kind="cal"), max_risk=0.05)
    applied = apply_policy(policy, Predictions(logits, labels, "multilabel"))
    assert applied.retained_error == 0
    assert applied.predicted[0] == ";".join(str(k) for k in np.flatnonzero(labels[0]))
