"""The positive class of a screening policy."""

from dataclasses import replace

import numpy as np

from dubio.referral import (
    fit_screening_policy,
)
from tests.referral.helpers import of_doubts


def test_positive_class_by_name_or_number():
    truth = np.arange(600) % 2
    given = replace(of_doubts(np.linspace(0.01, 0.2, 600), np.zeros(600), truth=truth), classes=("well", "sick"))
    named = fit_screening_policy(given, sensitivity=0.8, positive="sick")
    assert named == fit_screening_policy(given, sensitivity=0.8, positive=1)
    assert named.positive == 1
