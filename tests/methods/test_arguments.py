"""Arguments that methods share, as users write them."""

from __future__ import annotations

import pytest

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.specs import canonical, describe


@pytest.mark.parametrize("name", ["deterministic", "swag"])
def test_a_layer_by_its_number_is_the_same_recipe_as_by_its_text(name):
    """Identities depend on the text, which stored predictions have."""
    number, text = (METHODS.make(name, store_features=layer) for layer in (1, "1"))
    assert number.features == "1"
    assert canonical(describe(number)) == canonical(describe(text))


@pytest.mark.parametrize("layer", [True, -1, 1.0, 12345, "first"])
def test_other_layers_are_refused_by_the_arguments_name(layer):
    with pytest.raises(UserError, match=r"deterministic: store_features must be .*'last', the number of a layer"):
        METHODS.make("deterministic", store_features=layer)


def test_an_empty_batch_is_refused_by_the_arguments_name():
    with pytest.raises(UserError, match=r"^deterministic: batch must be a whole number of at least 1; given 0\.$"):
        METHODS.make("deterministic", batch=0)
