"""What stands beside an estimator without any training: the class prior, referral at random, stored runs of dubio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import UserError, listing
from dubio.core.types import BoolArray, Split, Task
from dubio.estimators.asking import Answers, predictions_on
from dubio.formats.values import as_logits
from dubio.store import Store

PRIOR = "class prior"
RANDOM = "random referral"


@dataclass(frozen=True)
class ClassPrior:
    """The share of every class (label) among the training examples, whatever the input."""

    def answer(self, task: Task, split: Split) -> Answers:
        """The same probabilities for every row."""
        labels = np.concatenate([part.data.labels for part in task.of_kind("train")])
        if task.target == "multilabel":
            shares = labels.mean(axis=0)
        else:
            counts = np.bincount(labels[labels >= 0], minlength=len(task.classes))
            shares = counts / counts.sum()
        rows = np.tile(shares, (len(split), 1))
        return Answers(predictions_on(split, task, as_logits(rows, "probs", task.target, name=PRIOR)))


@dataclass(frozen=True)
class RandomReferral:
    """The control: some system's predictions, its rows referred at random.

    No random number is drawn: all rows are equally uncertain, and ties are kept in equal parts, which is what is
    expected over all random orders.

    Attributes:
        of: The estimator whose predictions they are. None: in a comparison the first estimator there, alone the class
            prior.
    """

    of: Any = None

    def over(self, answers: Answers) -> Answers:
        """The control of a system with these answers."""
        return Answers(answers.predictions, np.zeros(len(answers.predictions)))


@dataclass(frozen=True)
class Stored:
    """A run of one of dubio's methods, read from a store.

    Attributes:
        store: Its directory.
        prediction: The run's id.
        method: The method's name.
        network: The network's.
        seed: Of the run.
        member: Which independent fit; None for a method that uses several.
        run: The manifest it is listed in.
    """

    store: Path
    prediction: str
    method: str
    network: str
    seed: int
    member: int | None
    run: str

    def answer(self, task: Task, split: Split) -> Answers:
        """Its stored predictions on a split.

        Raises:
            StoreError: When it has none on these very examples.
        """
        with Store.open(self.store, create=False) as store:
            found = store.read_predictions(self.prediction, split.name, split.fingerprint)
        at_home: BoolArray = np.zeros(len(found), dtype=bool)
        return Answers(found.with_checked(ood=at_home, group=split.data.group, ids=split.data.ids))


Baseline = ClassPrior | Stored
"""What knows the splits of a task and is not asked batch by batch."""


def stored_baselines(task: Task, splits: Sequence[Split], path: Path | str, run: str | None) -> dict[str, Stored]:
    """A baseline for every method that a store has on the same test examples: its lowest seed and member.

    Args:
        task: The task.
        splits: The test splits that predictions are needed on.
        path: The store.
        run: The run to read, by its name or the beginning of it; all runs by default.

    Raises:
        UserError: When no run was made on these examples.
    """
    with Store.open(path, create=False) as store:
        names = store.manifests() if run is None else (store.full_name(run),)
        manifests = {name: store.manifest(name) for name in names}
    found: list[Stored] = []
    for name, manifest in manifests.items():
        here = {(entry["name"], entry["network"]) for entry in manifest["tasks"] if _same(entry, splits)}
        first: dict[tuple[str, str], Mapping[str, Any]] = {}
        for entry in sorted(manifest["runs"], key=_order):
            if (entry["task"], entry["network"]) in here:
                first.setdefault((entry["method"], entry["network"]), entry)
        found += [
            Stored(Path(path), entry["id"], method, network, int(entry["seed"]), entry["member"], name)
            for (method, network), entry in first.items()
        ]
    if not found:
        raise UserError(
            f"the store {str(path)!r} has no run on the same test examples as {task.name!r}; its runs: "
            f"{listing(manifests)}. The task's arguments must be those of the run."
        )
    return _named(found)


def _same(entry: Mapping[str, Any], splits: Sequence[Split]) -> bool:
    known = {(split["name"], split["fingerprint"]) for split in entry["splits"]}
    return all((split.name, split.fingerprint) in known for split in splits)


def _order(entry: Mapping[str, Any]) -> tuple[int, int]:
    return int(entry["seed"]), -1 if entry["member"] is None else int(entry["member"])


def _named(found: Sequence[Stored]) -> dict[str, Stored]:
    """By method; with the network and the run where the same method is there more than once."""
    different = {each.prediction: each for each in reversed(found)}
    kept = list(reversed(different.values()))
    named: dict[str, Stored] = {}
    for each in kept:
        alike = [other for other in kept if other.method == each.method]
        told = [] if len({other.network for other in alike}) == 1 else [each.network]
        twins = [other for other in alike if other.network == each.network]
        told += [] if len(twins) == 1 else [each.run]
        named[f"{each.method} ({', '.join(told)})" if told else each.method] = each
    return named
