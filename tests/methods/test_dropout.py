"""The 18 dropout set-ups by name, and the fits that they share."""

from dataclasses import replace

from dubio.core.registry import METHODS
from dubio.core.specs import describe
from tests.methods.helpers import SETUPS, images, spec_of


def test_there_are_eighteen_and_each_comes_out_by_name():
    assert len(SETUPS) == 18
    recipes = [METHODS.make(name) for name in SETUPS]
    assert len({describe(replace(r, name="", title="")).__repr__() for r in recipes}) == 18
    axes = {
        (bool(r.edits) and type(r.edits[0]).__name__, type(r.head).__name__, r.samples > 0, r.members > 1)
        for r in recipes
    }
    assert len(axes) == 18


def test_the_eighteen_share_five_fits():
    task = images()
    fits = {repr(spec_of(METHODS.make(name), task)) for name in SETUPS}
    assert len(fits) == 5
