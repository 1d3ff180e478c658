"""The straight line of the text paper's fine-tuning."""

import pytest

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.methods.recipe import Recipe
from dubio.training.schedules import Linear


def test_from_one_hundred_thousandth_to_a_tenth_of_it():
    rates = [1e-5 * Linear().factor(step / 4) for step in range(5)]
    assert rates == pytest.approx([1e-5, 7.75e-6, 5.5e-6, 3.25e-6, 1e-6])


def test_set_ups_offer_it():
    recipe = METHODS.make("deterministic", schedule="linear")
    assert isinstance(recipe, Recipe)
    assert recipe.schedule == Linear(0.1)


def test_an_end_above_the_start_is_refused():
    with pytest.raises(UserError, match="between 0 and 1"):
        Linear(1.5)
