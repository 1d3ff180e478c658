"""Errors that users can meet name what was given, what is allowed and the nearest name."""

import math

import numpy as np
import pytest

from dubio.core.errors import UnknownName, UserError, check_between_0_and_1, check_known, nearest, one_of


def test_the_first_unknown_name_is_refused_with_the_nearest_one():
    check_known("colour", ["red", "blue"], {"red", "blue", "green"})
    check_known("colour", [], [])
    with pytest.raises(UnknownName, match=r"unknown colour 'gren'\. Did you mean 'green'\? Known: blue, green, red\."):
        check_known("colour", ["red", "gren", "violet"], ["red", "blue", "green"])


def test_one_of_returns_the_value_or_names_the_argument():
    assert one_of("colour", "red", (name for name in ("red", "blue"))) == "red"
    with pytest.raises(UnknownName, match=r"unknown value of colour 'bleu'\. Did you mean 'blue'\?"):
        one_of("colour", "bleu", ("red", "blue"))


@pytest.mark.parametrize("value", [0.5, 1e-9, np.float32(0.25), np.float64(0.75)])
def test_levels_lie_between_0_and_1(value):
    check_between_0_and_1("level", value)


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, -0.5, math.nan, math.inf, "0.5", None])
def test_other_levels_are_refused(value):
    with pytest.raises(UserError, match=f"level must lie between 0 and 1; given {value}"):
        check_between_0_and_1("level", value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("packed", "packed-ensemble"), ("mimo-ensemble", "mimo"), ("Packed_Ensembl", "packed-ensemble"), ("gp", "gp-head"),
     ("lora-laplac", "lora-laplace"), ("swa-ensembl", "swa-ensemble"), ("mimmo", "mimo"), ("xyz", None)],
)  # fmt: skip
def test_a_name_that_shares_words_is_nearer_than_one_that_shares_letters(name, meant):
    """'packed' was taken for 'laplace', and 'mimo-ensemble' for 'lora-ensemble'."""
    names = ["gp-head", "laplace", "lora", "lora-ensemble", "lora-laplace", "mimo", "packed-ensemble", "sngp", "swa",
             "swa-ensemble"]  # fmt: skip
    assert nearest(name, names) == meant
    assert nearest("score.energy", ["confidence", "energy"]) == "energy"
