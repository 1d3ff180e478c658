"""What a fit will cost: the time of an example in a step, from as few examples as a slow network allows."""

from __future__ import annotations

import pytest

from dubio.methods.cost import SLOW, example_seconds


class Clock:
    """Trainings that pay ``once`` and then ``each`` seconds an example; the first of all pays more."""

    def __init__(self, once: float, each: float) -> None:
        self.once, self.each, self.total = once, each, 0.0

    def __call__(self, rows: int, steps: int) -> float:
        elapsed = self.once + self.each * rows * steps + (3.0 if self.total == 0 else 0.0)
        self.total += elapsed
        return elapsed


def test_what_is_paid_once_is_left_out_where_steps_are_fast() -> None:
    assert example_seconds(Clock(once=0.1, each=1e-5), batch=64) == pytest.approx(1e-5)


def test_a_batch_of_a_large_network_is_never_run() -> None:
    """A step of a batch of 128 would take four minutes, and three of them were run."""
    clock = Clock(once=0.01, each=2.0)
    assert example_seconds(clock, batch=128) == pytest.approx(2.0, rel=0.01)
    assert clock.total < 3 + 4 * 2.0 + 0.1


@pytest.mark.parametrize("each", [0.001, 0.01, 0.1])
def test_steps_grow_until_they_are_slow(each: float) -> None:
    clock = Clock(once=0.0, each=each)
    assert example_seconds(clock, batch=256) == pytest.approx(each, rel=0.01)
    assert clock.total < 3 + 20 * SLOW
