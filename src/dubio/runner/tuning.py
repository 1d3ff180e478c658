"""Tune methods: try the values of ``[tune]`` as ordinary stored fits, choose by NLL on the validation split.

A trial is the fit of the first seed's member 0, so the winner's trial is also part of the final plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dubio.core.errors import UserError
from dubio.core.specs import describe
from dubio.runner.benchmark_file import Benchmark
from dubio.runner.execute import failure_record
from dubio.runner.plan import Plan, SeedPlanner, is_recipe
from dubio.runner.prepare import PreparedTask, make_method
from dubio.runner.trainer import Trainer
from dubio.store import Store


@dataclass(frozen=True)
class Trial:
    """One combination of values and the fit that tries it."""

    task: PreparedTask
    method: str
    arguments: Mapping[str, Any]
    fit: str

    @property
    def key(self) -> tuple[int, str]:
        """Index of the task, and method."""
        return self.task.index, self.method

    def to_json(self, score: float | None) -> dict[str, Any]:
        """Return it with its validation NLL, as the manifest stores it."""
        return {"arguments": describe(self.arguments), "fit": self.fit, "val_nll": score}


@dataclass(frozen=True)
class Choice:
    """The chosen trial of one method on one task, and the validation NLL of every trial (None: it failed)."""

    trial: Trial
    scores: tuple[tuple[Trial, float | None], ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as the manifest stores it."""
        task = self.trial.task
        return {
            "task": task.name,
            "network": task.entry.network,
            "method": self.trial.method,
            "chosen": describe(self.trial.arguments),
            "trials": [trial.to_json(score) for trial, score in self.scores],
        }


def plan_trials(benchmark: Benchmark, tasks: Iterable[PreparedTask], trainer: Trainer) -> tuple[Plan, list[Trial]]:
    """Plan the fits of all trials.

    Raises:
        UserError: If a tuned argument does not change the fit, so that validation could not choose between its values.
    """
    plan = Plan()
    trials: list[Trial] = []
    for task in tasks:
        for method, lists in benchmark.tune.items():
            if method not in task.methods:
                continue
            if not task.task.of_kind("val"):
                reason = f"task {task.name} has no validation split to choose values on (val = 0)"
                raise UserError(f"[tune.{method}]: {reason}; set the arguments themselves.")
            planner = SeedPlanner(plan, task, trainer, benchmark.seeds[0], benchmark)
            own = [_trial(benchmark, task, method, values, planner) for values in combinations(lists)]
            if len({trial.fit for trial in own}) < len(own):
                raise UserError(
                    f"[tune.{method}]: some of these values lead to the same fit, so validation cannot choose between "
                    f"them; tune only arguments that change the training (given: {', '.join(lists)})."
                )
            trials += own
    return plan, trials


def combinations(lists: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the listed values, in the order they are listed."""
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def choose(trials: Iterable[Trial], store: Store) -> dict[tuple[int, str], Choice]:
    """Return (index of the task, method) → the trial with the lowest validation NLL; the first of equals.

    A trial that failed has no score; if all failed there is no choice.
    """
    groups: dict[tuple[int, str], list[tuple[Trial, float | None]]] = {}
    for trial in trials:
        groups.setdefault(trial.key, []).append((trial, _validation_nll(store, trial)))
    choices = {}
    for key, group in groups.items():
        scored = [(score, index) for index, (_, score) in enumerate(group) if score is not None]
        if scored:
            choices[key] = Choice(group[min(scored)[1]][0], tuple(group))
    return choices


def tuning_failures(trials: Iterable[Trial], choices: Mapping[tuple[int, str], Choice]) -> dict[str, dict[str, Any]]:
    """Return the failures of methods that could not be tuned because every trial failed."""
    reason = "not run, because every trial of its tuning failed."
    failures = {}
    for trial in trials:
        if trial.key not in choices:
            name, method = f"{trial.task.name}/{trial.task.entry.network}", trial.method
            failure = failure_record("", f"tuning of {name}: {method}", "tuning", trial.task.name, method, reason)
            failures[f"tune-{name}-{method}"] = {**failure, "blocked": []}
    return failures


def _trial(benchmark: Benchmark, task: PreparedTask, name: str, values: dict[str, Any], planner: SeedPlanner) -> Trial:
    method = make_method(benchmark, name, task.method_arguments[name], values)
    if not is_recipe(method):
        raise UserError(f"[tune.{name}]: only methods that are recipes can be tuned; {name!r} is not one.")
    remark = ", ".join(f"{key} = {value}" for key, value in values.items())
    return Trial(task, name, values, planner.add_fit(name, method, 0, f" with {remark}"))


def _validation_nll(store: Store, trial: Trial) -> float | None:
    if not store.has_fit(trial.fit):
        return None
    score = store.record(trial.fit).get("val_nll")
    return None if score is None else float(score)
