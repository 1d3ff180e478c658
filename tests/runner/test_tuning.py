"""Tuning: trials are the product of the lists, and must change the fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dubio.core.errors import UserError
from dubio.runner.tuning import combinations, plan_trials
from tests.runner import fake_trainer
from tests.runner.helpers import prepare


def test_trials_are_the_product_of_the_lists(fake_world, benchmark):
    assert combinations({"a": (1, 2), "b": (3, 4)}) == [
        {"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4},
    ]  # fmt: skip
    wanted = replace(benchmark("plain", "drop"), tune={"plain": {"lr": (0.1, 0.2, 0.3)}})
    plan, trials = plan_trials(wanted, prepare(wanted), fake_trainer)
    assert [trial.arguments for trial in trials] == [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]
    assert len(plan.of_kind("fit")) == 3


def test_tuning_needs_a_validation_split(fake_world, benchmark):
    wanted = replace(benchmark("plain"), tune={"plain": {"lr": (0.1, 0.2)}})
    (task,) = prepare(wanted)
    splits = tuple(split for split in task.task.splits if split.kind != "val")
    with pytest.raises(UserError, match=r"\[tune.plain\]: task .* has no validation split"):
        plan_trials(wanted, [replace(task, task=replace(task.task, splits=splits))], fake_trainer)


def test_tuning_what_does_not_change_the_fit_is_refused(fake_world, benchmark):
    wanted = replace(benchmark("mc-drop"), tune={"mc-drop": {"samples": (5, 10)}})
    with pytest.raises(UserError, match="same fit"):
        plan_trials(wanted, prepare(wanted), fake_trainer)
    wanted = replace(benchmark("opaque"), tune={"opaque": {}})
    with pytest.raises(UserError, match="recipes"):
        plan_trials(wanted, prepare(wanted), fake_trainer)
