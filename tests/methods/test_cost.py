"""What a fit will cost: the time of an example in a step, from as few examples as a slow network allows."""

from __future__ import annotations

import time

import pytest
from torch import Tensor

from dubio.core.registry import METHODS
from dubio.methods import cost
from dubio.methods.cost import SLOW, WARMING, estimate, example_seconds, first_passes
from dubio.methods.specification import build_model
from dubio.networks.network import Model, Stage
from tests.methods.helpers import images, spec_of


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


def test_a_stage_that_remembers_runs_on_few_examples_where_it_is_slow() -> None:
    now = [0.0]

    def run(row: int) -> None:
        now[0] += WARMING / 3

    assert first_passes(run, range(100), lambda: now[0]) == (4, pytest.approx(WARMING / 3))
    now[0] = 0.0
    assert first_passes(run, range(2), lambda: now[0]) == (2, pytest.approx(WARMING / 3))


class Remembering(Stage):
    """Burns time on every example that it has not seen."""

    remembers = True

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.seen: set[bytes] = set()

    def forward(self, batch: Tensor) -> Tensor:
        for row in batch:
            if (key := row.numpy().tobytes()) not in self.seen:
                self.seen.add(key)
                end = time.process_time() + self.seconds
                while time.process_time() < end:
                    pass
        return batch


def test_a_remembered_stage_is_paid_for_once_and_not_in_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was counted in every epoch: hours were forecast for heads of a frozen encoder."""
    task, each = images(), 0.02
    spec = spec_of(METHODS.make("deterministic", epochs=50, patience=0), task)

    def slow_model(*arguments: object) -> Model:
        model = build_model(*arguments)  # type: ignore[arg-type]
        model.network.stages.insert(0, Remembering(each))
        return model

    plain = estimate(spec, task)["seconds"]
    monkeypatch.setattr(cost, "build_model", slow_model)
    remembering = estimate(spec, task)["seconds"]
    once = each * (30 + 15)  # training and validation images
    assert remembering == pytest.approx(plain + once, abs=0.6 * once)  # 50 epochs would be 45 seconds


def test_a_forecast_never_takes_the_model_of_a_method_with_another_head_or_other_layers() -> None:
    """Where a forecast ran out of time, Laplace met the Gaussian process of the method before it, and was refused."""
    task = images()
    sizes = {}
    for name in ("gp-head", "laplace", "packed-ensemble", "deterministic"):
        recipe = METHODS.make(name, epochs=1)
        spec = spec_of(recipe, task)
        cost.estimate(spec, task, pace=1.0)
        sizes[name] = sum(p.numel() for p in next(iter(cost._last_model.values())).parameters())
        assert sizes[name] == sum(p.numel() for p in build_model(spec, (1, 6, 6)).parameters()), name
    assert len(set(sizes.values())) == 3, "laplace is drawn around the plain network"
