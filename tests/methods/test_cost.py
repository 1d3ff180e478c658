"""What a fit will cost: the time of a step without what every training pays once, and few steps where they are slow."""

from __future__ import annotations

import pytest

from dubio.methods.cost import step_seconds


class Clock:
    """Trainings that pay ``once`` and then ``step`` seconds a step; the first of all pays more."""

    def __init__(self, once: float, step: float) -> None:
        self.once, self.step, self.steps = once, step, [0]

    def __call__(self, steps: int) -> float:
        self.steps.append(steps)
        return self.once + self.step * steps + (3.0 if len(self.steps) == 2 else 0.0)


def test_what_is_paid_once_is_left_out_of_a_step() -> None:
    clock = Clock(once=0.2, step=0.01)
    assert step_seconds(clock) == pytest.approx(0.01)


def test_slow_steps_are_measured_three_times_and_no_more() -> None:
    clock = Clock(once=0.05, step=4.0)
    assert step_seconds(clock) == pytest.approx(4.0, rel=0.02)
    assert sum(clock.steps) == 3
