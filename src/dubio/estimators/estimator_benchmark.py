"""``dubio.benchmark``: a task's splits to train on, and its test splits to be scored on, for any framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UserError, check_known
from dubio.core.lazy_rows import LazyRows
from dubio.core.predictions import Predictions
from dubio.core.registry import TASKS
from dubio.core.types import IntArray, Kind, Split, Task
from dubio.estimators.adapters import BATCH, predict_split
from dubio.estimators.baselines import PRIOR, RANDOM, Baseline, ClassPrior, RandomReferral, Stored, stored_baselines
from dubio.estimators.comparison import EstimatorComparison, compare_scores
from dubio.estimators.scores import BootstrapOptions, EstimatorScores, at_random, score_split, unchanged
from dubio.evaluation import REPLICATES, STANDARD
from dubio.formats.values import Values
from dubio.statistics.bootstrap import check_replicates


class SplitData(NamedTuple):
    """Raw inputs and labels, as in ``x, y = bench.train``.

    Attributes:
        inputs: Texts: a list. Tables: float ``[N, D]``. Images: uint8 ``[N, H, W, C]`` (rows of a file where they are
            too large for memory). Nothing is standardised.
        labels: Class index ``[N]`` (−1: none of the classes), or multi-hot ``[N, K]``.
    """

    inputs: list[str] | NDArray[Any] | LazyRows
    labels: IntArray


@dataclass(frozen=True, eq=False)
class EstimatorBenchmark:
    """A task as a benchmark for estimators of any framework.

    Attributes:
        task: The task: its classes, splits, source card and notes.
    """

    task: Task

    @property
    def train(self) -> SplitData:
        """The training examples."""
        return self._kind("train")

    @property
    def validation(self) -> SplitData:
        """The validation examples, for model selection."""
        return self._kind("val")

    @property
    def calibration(self) -> SplitData:
        """The calibration examples, which guarantees are fitted on, where the task has such a split."""
        return self._kind("cal")

    @property
    def test(self) -> SplitData:
        """The in-distribution test examples."""
        return _data(self.test_splits[0])

    @property
    def shifts(self) -> dict[str, SplitData]:
        """The test splits under shift and out of distribution, by name."""
        return {split.name: _data(split) for split in self.task.of_kind("shift", "ood")}

    @property
    def test_splits(self) -> tuple[Split, ...]:
        """Every split that estimators are scored on, the in-distribution one first."""
        return (*self.task.of_kind("id"), *self.task.of_kind("shift", "ood"))

    def evaluate(
        self,
        estimator: Any,
        *,
        values: Values = "probs",
        batch: int = BATCH,
        splits: Sequence[str] | None = None,
        metrics: Sequence[str] = STANDARD,
        replicates: int = REPLICATES,
        level: float = 0.95,
        seed: int = 0,
        name: str = "estimator",
    ) -> EstimatorScores:
        """Score an estimator's predictions on every test split.

        Args:
            estimator: ``estimator(x) -> p`` or ``(p, uncertainty)``, called with batches of raw inputs; or an object
                with ``predict_proba``; or a baseline. Shapes: see :mod:`dubio.estimators.adapters`.
            values: What p is: ``"probs"``, ``"log_probs"`` or ``"logits"``.
            batch: Rows per call.
            splits: Names of further test splits beside the in-distribution one; all by default.
            metrics: Names of metrics; referral, and detection by every quantity, are always included.
            replicates: Bootstrap replicates for the intervals; 0 for none.
            level: Confidence level of the intervals.
            seed: Seed of the bootstrap.
            name: The system's name in the results.

        Raises:
            UserError: For an answer that cannot be predictions, naming the split, the row and the column.
        """
        check_replicates(replicates)
        predictions = {split.name: self._predict(estimator, split, values, batch) for split in self._chosen(splits)}
        options, control = BootstrapOptions(replicates, level, seed), isinstance(estimator, RandomReferral)
        return self._score(name, predictions, _notes(estimator), options, metrics, control)

    def compare(
        self,
        systems: Mapping[str, Any],
        *,
        values: Values | Mapping[str, Values] = "probs",
        batch: int = BATCH,
        splits: Sequence[str] | None = None,
        metrics: Sequence[str] = STANDARD,
        replicates: int = REPLICATES,
        level: float = 0.95,
        seed: int = 0,
    ) -> EstimatorComparison:
        """Score several systems and test every pair on the same examples.

        Args:
            systems: Name to estimator or baseline.
            values: What p is, of all of them or by name (``"probs"`` where a name is left out).
            batch: As for :meth:`evaluate`.
            splits: As for :meth:`evaluate`.
            metrics: As for :meth:`evaluate`.
            replicates: As for :meth:`evaluate`, and at least 2.
            level: Confidence level of intervals and tests.
            seed: Of the bootstrap.

        Raises:
            UserError: When every system is a control, or as for :meth:`evaluate`.
        """
        check_replicates(replicates)
        if replicates < 2:
            raise UserError(f"replicates must be at least 2 in a comparison; given {replicates}.")
        if all(isinstance(system, RandomReferral) for system in systems.values()):
            raise UserError("a comparison needs a system beside the control.")
        values_of: Mapping[str, Values] = dict.fromkeys(systems, values) if isinstance(values, str) else values
        check_known("system in values", values_of, systems)
        options: dict[str, Any] = {"batch": batch, "splits": splits, "metrics": metrics}
        options |= {"replicates": replicates, "level": level, "seed": seed}
        scores: dict[str, EstimatorScores] = {}
        for name in sorted(systems, key=lambda name: _is_open_control(systems[name])):  # controls last: they need one
            if _is_open_control(systems[name]):
                first = next(iter(scores.values()))
                predictions = {split: RandomReferral.control(own) for split, own in first.predictions.items()}
                note = f"the predictions are those of {first.system}"
                scores[name] = self._score(name, predictions, (note,), first.bootstrap, metrics, True)
            else:
                scores[name] = self.evaluate(systems[name], values=values_of.get(name, "probs"), name=name, **options)
        controls = [name for name, system in systems.items() if isinstance(system, RandomReferral)]
        return compare_scores({name: scores[name] for name in systems}, controls)

    def baselines(self, store: Path | str | None = None, *, run: str | None = None) -> dict[str, Any]:
        """Systems that need no training here, by name.

        Args:
            store: A dubio store; every method it has on the same test examples is included, with the lowest seed that
                was run.
            run: The run to read there; all by default.

        Raises:
            UserError: When the store has no run on these examples.
        """
        if store is None and run is not None:
            raise UserError("run names a run of a store; give store too.")
        ready: dict[str, Any] = {PRIOR: ClassPrior(), RANDOM: RandomReferral()}
        return ready if store is None else ready | stored_baselines(self.task, self.test_splits, store, run)

    def __repr__(self) -> str:
        splits = ", ".join(f"{split.name} ({split.kind}) {len(split):,}" for split in self.task.splits)
        return f"<benchmark {self.task.name}: {len(self.task.classes)} classes, {self.task.target}; {splits}>"

    def _kind(self, kind: Kind) -> SplitData:
        splits = self.task.of_kind(kind)
        if not splits:
            raise UserError(f"the task {self.task.name!r} has no split of kind {kind!r}.")
        return _data(splits[0])

    def _chosen(self, splits: Sequence[str] | None) -> tuple[Split, ...]:
        """Return the in-distribution test split and the named ones of the others."""
        names = [split.name for split in self.test_splits]
        check_known(f"test split of {self.task.name}", splits or (), names)
        in_domain, *others = self.test_splits
        return in_domain, *(split for split in others if splits is None or split.name in splits)

    def _predict(self, system: Any, split: Split, values: Values, batch: int) -> Predictions:
        if isinstance(system, RandomReferral):
            of = ClassPrior() if system.of is None else system.of
            return system.control(self._predict(of, split, values, batch))
        if isinstance(system, Baseline):
            return system.predict(self.task, split)
        return predict_split(system, self.task, split, values=values, batch=batch)

    def _score(
        self,
        name: str,
        predictions: Mapping[str, Predictions],
        notes: tuple[str, ...],
        bootstrap: BootstrapOptions,
        metrics: Sequence[str],
        control: bool,
    ) -> EstimatorScores:
        in_domain, adapt = next(iter(predictions.values())), at_random if control else unchanged
        splits = {
            split: score_split(self.task.split(split), own, in_domain, bootstrap, metrics, adapt)
            for split, own in predictions.items()
        }
        return EstimatorScores(self.task.name, name, splits, bootstrap, notes, predictions)


def benchmark(name: str, /, **arguments: Any) -> EstimatorBenchmark:
    """Return a registered task as a benchmark for estimators of any framework.

    Args:
        name: The task: ``"retina"``, ``"clinc"``, ``"digits"``, ``"own"`` for your own data, or a plugin's.
        arguments: The task's arguments; ``dubio list tasks`` names them.

    Raises:
        UnknownName: For an unknown task or argument, with the nearest name.
    """
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in arguments.items()}
    task: Task = TASKS.make(name, **plain)
    return EstimatorBenchmark(task)


def _data(split: Split) -> SplitData:
    inputs = split.data.inputs
    if isinstance(inputs, tuple):
        return SplitData(list(inputs), split.data.labels.copy())
    return SplitData(inputs if isinstance(inputs, LazyRows) else np.array(inputs), split.data.labels.copy())


def _is_open_control(system: Any) -> bool:
    return isinstance(system, RandomReferral) and system.of is None


def _notes(system: Any) -> tuple[str, ...]:
    if isinstance(system, Stored):
        member = "" if system.member is None else f", member {system.member}"
        return (f"{system.method} with {system.network}, seed {system.seed}{member}, of run {system.run}",)
    if _is_open_control(system):
        return (f"the predictions are those of the {PRIOR}",)
    return ()
