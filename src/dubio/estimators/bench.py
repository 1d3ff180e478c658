"""``dubio.benchmark``: a task's splits to train on, and its test splits to be judged on, for any framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import UnknownName, UserError
from dubio.core.lazy_rows import LazyRows
from dubio.core.registry import TASKS
from dubio.core.types import IntArray, Kind, Split, Task
from dubio.estimators.asking import BATCH, Answers, ask
from dubio.estimators.baselines import PRIOR, RANDOM, Baseline, ClassPrior, RandomReferral, Stored, stored_baselines
from dubio.estimators.comparing import Comparison, compare_scores
from dubio.estimators.results import Scores
from dubio.estimators.scoring import Drawing, score_split
from dubio.evaluation import REPLICATES, STANDARD
from dubio.formats.values import Values


class Part(NamedTuple):
    """Raw inputs and labels, as in ``x, y = bench.train``.

    Attributes:
        inputs: Texts: a list. Tables: float ``[N, D]``. Images: uint8 ``[N, H, W, C]`` (rows of a file where they are
            too large for memory). Nothing is standardised.
        labels: Class index ``[N]`` (−1: none of the classes), or multi-hot ``[N, K]``.
    """

    inputs: list[str] | NDArray[Any] | LazyRows
    labels: IntArray


@dataclass(frozen=True, eq=False)
class Bench:
    """A task as a benchmark for estimators of any framework.

    Attributes:
        task: The task: its classes, splits, source card and notes.
    """

    task: Task

    @property
    def train(self) -> Part:
        """What to train on."""
        return self._kind("train")

    @property
    def validation(self) -> Part:
        """What to choose by."""
        return self._kind("val")

    @property
    def calibration(self) -> Part:
        """What guarantees are fitted on, where the task keeps such examples."""
        return self._kind("cal")

    @property
    def test(self) -> Part:
        """The in-distribution test examples."""
        return _part(self.test_splits[0])

    @property
    def shifts(self) -> dict[str, Part]:
        """The test splits under shift and out of distribution, by name."""
        return {split.name: _part(split) for split in self.task.of_kind("shift", "ood")}

    @property
    def test_splits(self) -> tuple[Split, ...]:
        """Every split that estimators are judged on, the in-distribution one first."""
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
    ) -> Scores:
        """Ask an estimator about every test split and score what it says.

        Args:
            estimator: ``estimator(x) -> p`` or ``(p, uncertainty)``, called with batches of raw inputs; or an object
                with ``predict_proba``; or a baseline. Shapes: see :mod:`dubio.estimators.frameworks`.
            values: What p is: ``"probs"``, ``"log_probs"`` or ``"logits"``.
            batch: Rows at a time.
            splits: Names of further test splits beside the in-distribution one; all by default.
            metrics: Names of metrics; referral, and detection by every quantity, are scored in any case.
            replicates: Bootstrap replicates for the intervals; 0 for none.
            level: Confidence level of the intervals.
            seed: Of the bootstrap.
            name: What the system is called in the results.

        Raises:
            UserError: For an answer that cannot be predictions, naming the split, the row and the column.
        """
        if replicates < 0 or replicates == 1:
            raise UserError(f"replicates must be 0 (no intervals) or at least 2; given {replicates}.")
        chosen = self._chosen(splits)
        answers = {split.name: self._answers(estimator, split, values, batch) for split in chosen}
        return self._scored(name, answers, _notes(estimator), Drawing(replicates, level, seed), metrics)

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
    ) -> Comparison:
        """Score several systems and test every pair on the same examples.

        Args:
            systems: Name to estimator or baseline.
            values: What p is, of all of them or by name (``"probs"`` where a name is left out).
            batch: As of :meth:`evaluate`.
            splits: As of :meth:`evaluate`.
            metrics: As of :meth:`evaluate`.
            replicates: As of :meth:`evaluate`; tests draw more where their correction asks for them.
            level: Confidence level of intervals and tests.
            seed: Of the bootstrap.

        Raises:
            UserError: Where there is no system but the control, or as :meth:`evaluate` does.
        """
        if replicates < 2:
            raise UserError(f"replicates must be at least 2 in a comparison; given {replicates}.")
        if all(isinstance(each, RandomReferral) for each in systems.values()):
            raise UserError("a comparison needs a system beside the control.")
        stated: Mapping[str, Values] = dict.fromkeys(systems, values) if isinstance(values, str) else values
        for name in stated:
            if name not in systems:
                raise UnknownName("system in values", name, systems)
        answers: dict[str, dict[str, Answers]] = {}
        notes: dict[str, tuple[str, ...]] = {}
        for name in sorted(systems, key=lambda name: _is_open_control(systems[name])):  # controls last: they need one
            if _is_open_control(systems[name]):
                first = next(iter(answers))
                answers[name] = {split: systems[name].over(each) for split, each in answers[first].items()}
                notes[name] = (f"the predictions are those of {first}",)
            else:
                answers[name] = {
                    split.name: self._answers(systems[name], split, stated.get(name, "probs"), batch)
                    for split in self._chosen(splits)
                }
                notes[name] = _notes(systems[name])
        drawing = Drawing(replicates, level, seed)
        scores = {name: self._scored(name, answers[name], notes[name], drawing, metrics) for name in systems}
        at_random = [name for name, each in systems.items() if isinstance(each, RandomReferral)]
        return compare_scores(scores, at_random, replicates=replicates, level=level, seed=seed)

    def baselines(self, store: Path | str | None = None, *, run: str | None = None) -> dict[str, Any]:
        """Systems that need no training here, by name.

        Args:
            store: A dubio store; every method it has on the same test examples stands among them, with the lowest seed
                that was run.
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

    def _kind(self, kind: Kind) -> Part:
        found = self.task.of_kind(kind)
        if not found:
            raise UserError(f"the task {self.task.name!r} has no split of kind {kind!r}.")
        return _part(found[0])

    def _chosen(self, splits: Sequence[str] | None) -> tuple[Split, ...]:
        """The in-distribution split, and those of the others that are asked for."""
        home, *others = self.test_splits
        if splits is None:
            return home, *others
        for name in splits:
            if name not in [split.name for split in (home, *others)]:
                raise UnknownName(f"test split of {self.task.name}", name, [split.name for split in (home, *others)])
        return home, *(split for split in others if split.name in splits)

    def _answers(self, system: Any, split: Split, values: Values, batch: int) -> Answers:
        if isinstance(system, RandomReferral):
            of = ClassPrior() if system.of is None else system.of
            return system.over(self._answers(of, split, values, batch))
        if isinstance(system, Baseline):
            return system.answer(self.task, split)
        return ask(system, self.task, split, values=values, batch=batch)

    def _scored(
        self, name: str, answers: Mapping[str, Answers], notes: tuple[str, ...], drawing: Drawing,
        metrics: Sequence[str],
    ) -> Scores:  # fmt: skip
        home = next(iter(answers.values()))
        splits = {
            split: score_split(self.task.split(split), each, home, drawing, metrics) for split, each in answers.items()
        }
        return Scores(self.task.name, name, splits, drawing, notes, answers)


def benchmark(name: str, /, **arguments: Any) -> Bench:
    """A registered task as a benchmark for estimators of any framework.

    Args:
        name: The task: ``"retina"``, ``"clinc"``, ``"digits"``, ``"own"`` for your own data, or a plugin's.
        arguments: The task's arguments; ``dubio list tasks`` names them.

    Raises:
        UnknownName: For an unknown task or argument, with the nearest name.
    """
    made: Task = TASKS.make(
        name, **{key: str(value) if isinstance(value, Path) else value for key, value in arguments.items()}
    )
    return Bench(made)


def _part(split: Split) -> Part:
    inputs = split.data.inputs
    if isinstance(inputs, tuple):
        return Part(list(inputs), split.data.labels.copy())
    return Part(inputs if isinstance(inputs, LazyRows) else np.array(inputs), split.data.labels.copy())


def _is_open_control(system: Any) -> bool:
    return isinstance(system, RandomReferral) and system.of is None


def _notes(system: Any) -> tuple[str, ...]:
    if isinstance(system, Stored):
        member = "" if system.member is None else f", member {system.member}"
        return (f"{system.method} with {system.network}, seed {system.seed}{member}, of run {system.run}",)
    if _is_open_control(system):
        return (f"the predictions are those of the {PRIOR}",)
    return ()
