"""Argument groups are flattened into keyword arguments; a method can bring its ensemble."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from dubio.core.errors import UnknownName, UserError
from dubio.core.registry import METHODS, Ensemble, Registry, method


@dataclass(frozen=True)
class Inner:
    flip: float = 0.0


@dataclass(frozen=True)
class Steps:
    epochs: int = 45
    optimiser: Literal["adam", "sgd"] = "adam"
    inner: Inner = Inner()


@dataclass(frozen=True)
class Result:
    steps: Steps
    rank: int
    name: str = "own"
    title: str = "Own"
    members: int = 1


def own(*, steps: Steps = Steps(epochs=7), rank: int = 20) -> Result:  # noqa: B008
    """A method of one's own."""
    return Result(steps, rank)


@pytest.fixture
def methods(monkeypatch):
    METHODS.names()  # filled before it is copied
    monkeypatch.setattr(METHODS, "_entries", {**METHODS._entries})
    return METHODS


def test_a_group_is_written_as_arguments_of_its_own():
    registry = Registry("thing")
    registry.register("own")(own)
    entry = registry.entry("own")
    assert entry.defaults() == {"epochs": 7, "optimiser": "adam", "flip": 0.0, "rank": 20}
    assert registry.make("own", flip=1, rank=3) == Result(Steps(7, "adam", Inner(1.0)), 3)
    with pytest.raises(UnknownName, match=r"'epoch'.*'epochs'"):
        registry.make("own", epoch=3)
    with pytest.raises(UserError, match="optimiser"):
        registry.make("own", optimiser="lion")
    with pytest.raises(UserError, match="own: epochs"):
        registry.make("own", epochs="many")


def test_one_name_in_two_groups_is_a_mistake():
    def twice(*, steps: Steps = Steps(), epochs: int = 3) -> None:  # noqa: B008
        """Take epochs twice."""

    registry = Registry("thing")
    registry.register("twice")(twice)
    with pytest.raises(TypeError, match="epochs"):
        registry.entry("twice").parameters()


def test_a_method_brings_its_ensemble(methods):
    assert method("own", family="mine", role="reference", ensemble=True)(own) is own
    entry = methods.entry("own-ensemble")
    assert entry.facts == {"family": "mine", "ensemble_of": "own"}
    assert list(entry.parameters()) == ["epochs", "optimiser", "flip", "rank", "members"]
    assert methods.make("own-ensemble", rank=4) == Result(Steps(7), 4, "own-ensemble", "Own ensemble", 5)
    assert methods.entry("own").facts == {"family": "mine", "role": "reference"}


def test_an_ensemble_may_have_a_name_and_title_of_its_own(methods):
    method("own", ensemble=Ensemble("many", "Many", "Many of them."))(own)
    assert methods.entry("many").summary == "Many of them."
    assert methods.make("many", members=2) == Result(Steps(7), 20, "many", "Many", 2)
