"""Tuning: ``[tune]`` lists tried out as ordinary stored fits, chosen from by nll on the validation split.

A trial is the fit of the first seed's member 0, so the winner's trial is at the same time part of the real plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dubio.core.errors import UserError
from dubio.core.specs import describe
from dubio.runner.arguments import make_method
from dubio.runner.benchmark import Benchmark
from dubio.runner.left import Left
from dubio.runner.plan import Plan, SeedPlanner, is_recipe
from dubio.runner.setting import Setting
from dubio.store import Store


@dataclass(frozen=True)
class Trial:
    """One combination of values and the fit that tries it."""

    setting: Setting
    method: str
    arguments: Mapping[str, Any]
    fit: str


@dataclass(frozen=True)
class Choice:
    """What was chosen for one method on one task, and from what."""

    trial: Trial
    scores: tuple[tuple[Trial, float | None], ...]

    def to_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        setting = self.trial.setting
        return {
            "task": setting.name,
            "network": setting.entry.network,
            "method": self.trial.method,
            "chosen": describe(self.trial.arguments),
            "trials": [
                {"arguments": describe(trial.arguments), "fit": trial.fit, "val_nll": score}
                for trial, score in self.scores
            ],
        }


def plan_trials(benchmark: Benchmark, settings: Iterable[Setting], left: Left) -> tuple[Plan, tuple[Trial, ...]]:
    """The fits of all trials.

    Raises:
        UserError: When what is tuned does not change the fit, so that nothing could choose between its values.
    """
    plan, trials = Plan(), []
    for setting in settings:
        for method, lists in benchmark.tune.items():
            if method not in setting.methods:
                continue
            planner = SeedPlanner(plan, setting, left, benchmark.seeds[0], benchmark.base)
            found = [_trial(benchmark, setting, method, combo, planner) for combo in combinations(lists)]
            if len({trial.fit for trial in found}) < len(found):
                raise UserError(
                    f"[tune.{method}]: some of these values lead to the same fit, so validation cannot choose between "
                    f"them; tune only what changes the training (given: {', '.join(lists)})."
                )
            trials += found
    return plan, tuple(trials)


def combinations(lists: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Every combination of the listed values, in the order they are listed."""
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def choose(trials: Iterable[Trial], store: Store) -> dict[tuple[int, str], Choice]:
    """(index of the task, method) → the trial with the lowest validation nll; the first of equals.

    A trial that failed has no score; where all failed there is no choice.
    """
    grouped: dict[tuple[int, str], list[Trial]] = {}
    for trial in trials:
        grouped.setdefault((trial.setting.index, trial.method), []).append(trial)
    chosen = {}
    for key, group in grouped.items():
        scores = tuple((trial, _score(store, trial)) for trial in group)
        scored = [(score, place) for place, (_, score) in enumerate(scores) if score is not None]
        if scored:
            chosen[key] = Choice(group[min(scored)[1]], scores)
    return chosen


def _trial(benchmark: Benchmark, setting: Setting, name: str, combo: dict[str, Any], planner: SeedPlanner) -> Trial:
    method = make_method(benchmark, name, setting.method_arguments[name], combo)
    if not is_recipe(method):
        raise UserError(f"[tune.{name}]: only methods that are recipes can be tuned; {name!r} is not one.")
    words = ", ".join(f"{key} = {value}" for key, value in combo.items())
    return Trial(setting, name, combo, planner.add_fit(name, method, 0, f" with {words}"))


def _score(store: Store, trial: Trial) -> float | None:
    if not store.has_fit(trial.fit):
        return None
    score = store.record(trial.fit).get("val_nll")
    return None if score is None else float(score)
