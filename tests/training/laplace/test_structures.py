"""The structures of a Laplace approximation: which networks they refuse."""

import pytest

from dubio.core.errors import UserError
from dubio.training.laplace.structures import check_structure
from tests.networks.helpers import forked


def test_the_laplace_approximation_refuses_several_sets():
    with pytest.raises(UserError, match=r"one set .*; this network gives 3"):
        check_structure(forked(), "kron")
