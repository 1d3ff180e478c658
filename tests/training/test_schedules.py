"""Schedules of trajectories against the papers' equations, at the steps of a real training.

The straight line of the text paper's fine-tuning.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.specs import describe, restore
from dubio.encoders import ArrayRows
from dubio.inference.batches import LabelledRows
from dubio.methods.recipe import Recipe
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model
from dubio.training.collectors import Last
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.objectives import Objective
from dubio.training.optimisers import SGD
from dubio.training.schedules import ConstantTail, Cut, Cyclic, Linear, LinearTail, Triangular


class Noted(SGD):
    """SGD that notes its rates."""

    def set_factor(self, optimiser, factor):
        super().set_factor(optimiser, factor)
        self.rates.append(optimiser.param_groups[0]["lr"])


def rates(schedule, epochs, lr, steps=3):
    """The learning rate of every step of a training with so many steps an epoch."""
    noted = Noted(lr)
    object.__setattr__(noted, "rates", [])
    generator = np.random.default_rng(0)
    rows = 4 * steps - 1
    data = LabelledRows(ArrayRows(generator.normal(size=(rows, 2)).astype(np.float32)), np.arange(rows) % 2, 2)
    model = Model(mlp((2,), hidden=(2,)), Softmax().build(2, 2))
    slots = Slots(Objective(4, epochs, patience=0), noted, schedule, Last())
    context = LoopContext(torch.device("cpu"), lambda fraction, words: None)
    train(model, slots, data, data, seed=0, member=0, context=context)
    return noted.rates


@pytest.mark.parametrize(("cycle", "cycles"), [(2, 3), (4, 2), (2, 7), (6, 1)])
def test_triangles_are_those_of_equation_17(cycle, cycles):
    high, low, steps = 1e-2, 5e-4, 3
    epochs = (2 * cycles - 1) * cycle // 2
    c = cycle * steps

    def equation(i):
        t = ((i - 1) % c + 1) / c
        return (1 - 2 * t) * high + 2 * t * low if t <= 0.5 else (2 - 2 * t) * low + (2 * t - 1) * high

    schedule = Triangular(cycles, low / high)
    schedule.check_epochs(epochs)
    found = rates(schedule, epochs, high, steps)
    np.testing.assert_allclose(found, [equation(i) for i in range(1, epochs * steps + 1)], rtol=1e-9)
    kept = [epoch for epoch in range(1, epochs + 1) if schedule.marks_after(epoch, epochs)]
    assert kept == [cycle // 2 + k * cycle for k in range(cycles)]
    assert kept[-1] == epochs
    for epoch in kept:  # the rate is lowest in the step before a snapshot
        assert found[epoch * steps - 1] == pytest.approx(low)


def test_cosines_are_those_of_equation_16_with_a_snapshot_at_the_end_of_each():
    epochs, cycles, steps, lr = 12, 3, 3, 0.2
    length = math.ceil(epochs * steps / cycles)
    wanted = [lr / 2 * (math.cos(math.pi * ((t - 1) % length) / length) + 1) for t in range(1, epochs * steps + 1)]
    np.testing.assert_allclose(rates(Cyclic(cycles), epochs, lr, steps), wanted, atol=1e-9)
    assert [e for e in range(1, epochs + 1) if Cyclic(cycles).marks_after(e, epochs)] == [4, 8, 12]


def test_a_cut_schedule_is_the_beginning_of_the_whole_one():
    whole = rates(LinearTail(), 10, 0.05)
    assert rates(Cut(LinearTail(), 0.8), 8, 0.05) == pytest.approx(whole[:24])
    # fast geometric ensembles: 160 epochs of a schedule of 200 end three quarters down the slope
    assert Cut(LinearTail(), 160 / 200).factor(1.0) == pytest.approx(1.0 - 0.99 * (0.8 - 0.5) / 0.4)


def test_a_constant_tail_marks_its_epochs():
    assert rates(ConstantTail(), 2, 0.01) == [0.01] * 6
    assert [e for e in range(1, 7) if ConstantTail().marks_after(e, 6)] == [1, 2, 3, 4, 5, 6]
    assert [e for e in range(1, 7) if ConstantTail(3).marks_after(e, 6)] == [3, 6]


def test_what_means_nothing_is_refused_and_descriptions_come_back():
    with pytest.raises(UserError, match=r"multiple of 7.*given epochs=8"):
        Triangular(4).check_epochs(8)
    for make, words in (
        (lambda: Triangular(0), "cycles must be .* at least 1"),
        (lambda: Triangular(2, 1.5), "low must be .* between 0 and 1"),
        (lambda: ConstantTail(0), "every must be .* at least 1"),
        (lambda: Cut(LinearTail(), 1.2), "share must be .* above 0"),
    ):
        with pytest.raises(UserError, match=words):
            make()
    for schedule in (Triangular(3, 0.1), ConstantTail(2), Cut(LinearTail(), 0.8)):
        assert restore(json.loads(json.dumps(describe(schedule)))) == schedule


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
