"""Gathering what is found about referral while predictions are read, one run after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dubio.core.errors import DubioError
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray
from dubio.reporting.manifest_view import Manifest, MethodRun, Source, SplitView, TaskView, parts_of
from dubio.reporting.measures import values_at_fractions
from dubio.reporting.sections.referral import Curves
from dubio.statistics.bootstrap import RunIntervals, replicates_for
from dubio.studies.retina.found import Exhibit, Gain, Gallery, Retained, Screening, Subgroup
from dubio.studies.retina.looking import calibration_statistics, exhibit, gain_statistics, look

Place = tuple[str, str, str]
"""(task, split, method)."""


@dataclass
class ScreeningGathering:
    """What has been gathered so far, of all tasks."""

    retained: dict[Place, list[Retained]] = field(default_factory=dict)
    resampled: RunIntervals = field(default_factory=RunIntervals)
    sizes: dict[tuple[str, ...], int] = field(default_factory=dict)
    grouped: dict[tuple[str, str], bool] = field(default_factory=dict)
    exhibits: dict[Place, Exhibit] = field(default_factory=dict)

    def look(
        self, task: TaskView, split: SplitView, run: MethodRun, predictions: Predictions, curves: Curves | None
    ) -> dict[str, float]:
        """Look at a run on a split; returns the scores that are not known otherwise (those at fractions retained).

        Args:
            task: The task.
            split: The in-domain test split, or one away from home; of a corruption, its worst severity counts.
            run: The run.
            predictions: Its predictions there.
            curves: The run's referral curves, where it is at home.
        """
        if split != task.of_kind("id")[0] and split not in task.farthest:
            return {}
        place = task.key, split.name, run.method
        if predictions.target != "multilabel" and not (predictions.labels >= 0).any():
            return {}
        if task.inputs == "image" and predictions.target != "multilabel":
            self.exhibits.setdefault(place, exhibit(run, predictions))
        if task.target != "multilabel":
            self._add_subgroups(task, split, run, predictions)
        if not task.screened:
            return {}
        known = predictions.labelled
        seen = look(run, known, curves)
        self.retained.setdefault(place, []).append(seen)
        self.grouped[task.key, split.name] = known.group is not None
        self.sizes[task.key, split.name] = len(known)
        self.resampled.add(("gain", *place), known, gain_statistics(known))
        return {} if curves is not None else values_at_fractions(seen.accuracy, seen.auc)

    def _add_subgroups(self, task: TaskView, split: SplitView, run: MethodRun, predictions: Predictions) -> None:
        labelled = predictions.labels >= 0
        for fact, value, rows in _parts(task, split):
            chosen = np.flatnonzero(rows & labelled)
            if len(chosen):
                part = predictions.take(chosen)
                self.sizes[task.key, split.name, fact, value] = len(part)
                place = task.key, split.name, fact, value, run.method
                self.resampled.add(("part", *place), part, calibration_statistics(part))

    def screening(self, view: Manifest) -> dict[str, Screening]:
        """Task → what was found about it; a task without subgroups that is not two-sided has nothing."""
        keys = {place[0] for place in self.retained} | {key[1] for key in self._kept("part")}
        return {task.key: self._of(task.key) for task in view.tasks if task.key in keys}

    def _of(self, task: str) -> Screening:
        gains = {
            (split, method): Gain(
                self.resampled.interval(("gain", task, split, method, "area")),
                self.resampled.interval(("gain", task, split, method, "gain")),
                self.resampled.units(("gain", task, split, method, "gain")),
                replicates_for(self.sizes[task, split]),
            )
            for key, split, method in self.retained
            if key == task
        }
        runs = {(split, method): tuple(found) for (key, split, method), found in self.retained.items() if key == task}
        parts = {
            (split, fact, value, method): self._subgroup((task, split, fact, value, method))
            for _, key, split, fact, value, method, _ in self._kept("part")
            if key == task
        }
        grouped = {split: found for (key, split), found in self.grouped.items() if key == task}
        return Screening(runs, gains, parts, grouped)

    def _subgroup(self, place: tuple[str, ...]) -> Subgroup:
        key = ("part", *place)
        return Subgroup(
            self.sizes[place[:4]],
            self.resampled.units((*key, "ece")),
            self.resampled.interval((*key, "accuracy")),
            self.resampled.interval((*key, "ece"), centred=True),
            self.resampled.interval((*key, "excess")),
        )

    def _kept(self, what: str) -> Iterator[tuple[str, ...]]:
        yield from (key for key in self.resampled.sums if key[0] == what)

    def galleries(self, store: Source, view: Manifest) -> dict[str, Gallery]:
        """Task → what it can show; pictures are read from the store, where some were kept."""
        found = {}
        for task in view.tasks:
            exhibits = {(split, method): e for (key, split, method), e in self.exhibits.items() if key == task.key}
            shown = {split for split, _ in exhibits}
            pictures = {split.name: _pictures(store, split) for split in task.splits if split.name in shown}
            kept = {split: some for split, some in pictures.items() if some}
            if kept:
                found[task.key] = Gallery(exhibits, kept)
        return found


def _parts(task: TaskView, split: SplitView) -> Iterator[tuple[str, str, BoolArray]]:
    for fact, column in task.facts.get(split.name, {}).items():
        for value, rows in parts_of(column).items():
            yield fact, value, rows


def _pictures(store: Source, split: SplitView) -> dict[int, bytes]:
    """The pictures of a split; without any the report has no gallery, which needs no word."""
    try:
        return store.read_pictures(split.fingerprint)
    except DubioError:
        return {}
