"""A search that finds nothing says so."""

import math

import pytest

from dubio.core.errors import TrainingFailed
from dubio.training.laplace.selection import minimise_on_log_grid


def test_no_finite_score_is_no_best_value():
    with pytest.raises(TrainingFailed, match=r"0\.01 to 10"):
        minimise_on_log_grid(lambda value: math.nan, 0.01, 10.0)
