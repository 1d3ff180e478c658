"""A policy for a capacity, without labels and with ties."""

import numpy as np
import pytest

from dubio.referral import (
    fit_capacity_policy,
)
from tests.referral.helpers import easy, of_doubts, without_labels


def test_capacity_needs_no_labels_and_ties_are_told():
    plain = fit_capacity_policy(without_labels(easy()), capacity=0.2)
    assert plain.evidence["referred"] == pytest.approx(0.2, abs=0.01)
    tied = of_doubts(np.repeat([0.1, 0.3], [50, 150]), np.zeros(200))
    policy = fit_capacity_policy(tied, capacity=0.2)
    assert policy.evidence["referred"] == 0
    assert "150 calibration rows" in policy.notes[-1]
