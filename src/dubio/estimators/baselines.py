"""Baselines that need no training: the class prior, random referral, and stored runs of dubio's methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dubio.core.errors import UserError, listing
from dubio.core.predictions import Predictions
from dubio.core.types import BoolArray, Split, Task, class_frequencies
from dubio.estimators.adapters import GIVEN, predictions_on
from dubio.formats.values import as_logits
from dubio.store import Store
from dubio.store.records import with_defaults

PRIOR = "class prior"
RANDOM = "random referral"


@dataclass(frozen=True)
class ClassPrior:
    """Predict the smoothed share of every class (label) among the training examples, whatever the input."""

    def predict(self, task: Task, split: Split) -> Predictions:
        """Return the same probabilities for every row."""
        labels = np.concatenate([train.data.labels for train in task.of_kind("train")])
        rows = np.tile(class_frequencies(labels, len(task.classes)), (len(split), 1))
        return predictions_on(split, task, as_logits(rows, "probs", task.target, name=PRIOR))


@dataclass(frozen=True)
class RandomReferral:
    """The control: another system's predictions, its rows referred at random.

    No random number is drawn: all rows are equally uncertain, and ties are retained in equal shares, which is the
    expectation over all random orders.

    Attributes:
        of: The estimator that makes the predictions. None: in a comparison its first estimator, alone the class prior.
    """

    of: Any = None

    @staticmethod
    def control(predictions: Predictions) -> Predictions:
        """Return the same predictions, equally uncertain about every row."""
        return predictions.with_checked(scores={GIVEN: np.zeros(len(predictions))})


@dataclass(frozen=True)
class Stored:
    """Stored predictions of one of dubio's methods.

    Attributes:
        store: Directory of the store.
        prediction: Id of the predictions.
        method: Name of the method.
        network: Name of the network.
        seed: Seed of the fit.
        member: Index of the independent fit; None for a method that uses several.
        run: Name of the run that made them.
    """

    store: Path
    prediction: str
    method: str
    network: str
    seed: int
    member: int | None
    run: str

    def predict(self, task: Task, split: Split) -> Predictions:
        """Return the stored predictions on a split.

        Raises:
            StoreError: When there are none on exactly these examples.
        """
        with Store.open(self.store, create=False) as store:
            predictions = store.read_predictions(self.prediction, split.name, split.fingerprint)
        in_domain: BoolArray = np.zeros(len(predictions), dtype=bool)
        own = {"group": split.data.group, "ids": split.data.ids, "empty_decision": task.empty_decision}
        return predictions.with_checked(ood=in_domain, **own)


Baseline = ClassPrior | Stored
"""A system that predicts a whole split of a task at once."""


def stored_baselines(task: Task, splits: Sequence[Split], path: Path | str, run: str | None) -> dict[str, Stored]:
    """Return a baseline for every method that a store has on the same test examples: its lowest seed and member.

    Args:
        task: The task.
        splits: The test splits that predictions are needed on.
        path: The store.
        run: The run to read, by its name or the beginning of it; all runs by default.

    Raises:
        UserError: When the store has no run on these examples.
    """
    with Store.open(path, create=False) as store:
        names = store.manifests() if run is None else (store.full_name(run),)
        manifests = {name: with_defaults(store.manifest(name)) for name in names}
    baselines: list[Stored] = []
    for name, manifest in manifests.items():
        matching = {(entry["name"], entry["network"]) for entry in manifest["tasks"] if _same(entry, splits)}
        first: dict[tuple[str, str], Mapping[str, Any]] = {}
        for entry in sorted(manifest["runs"], key=_order):
            if (entry["task"], entry["network"]) in matching:
                first.setdefault((entry["method"], entry["network"]), entry)
        baselines += [
            Stored(Path(path), entry["id"], method, network, int(entry["seed"]), entry["member"], name)
            for (method, network), entry in first.items()
        ]
    if not baselines:
        raise UserError(
            f"the store {str(path)!r} has no run on the same test examples as {task.name!r}; its runs: "
            f"{listing(manifests)}. The task's arguments must be those of the run."
        )
    return _named(baselines)


def _same(entry: Mapping[str, Any], splits: Sequence[Split]) -> bool:
    stored = {(split["name"], split["fingerprint"]) for split in entry["splits"]}
    return all((split.name, split.fingerprint) in stored for split in splits)


def _order(entry: Mapping[str, Any]) -> tuple[int, int]:
    return int(entry["seed"]), -1 if entry["member"] is None else int(entry["member"])


def _named(baselines: Sequence[Stored]) -> dict[str, Stored]:
    """Name each by its method, with the network and the run where the same method occurs more than once."""
    unique = list({baseline.prediction: baseline for baseline in reversed(baselines)}.values())[::-1]
    named: dict[str, Stored] = {}
    for baseline in unique:
        same_method = [other for other in unique if other.method == baseline.method]
        same_network = [other for other in same_method if other.network == baseline.network]
        details = [baseline.network] if len(same_network) < len(same_method) else []
        details += [baseline.run] if len(same_network) > 1 else []
        named[f"{baseline.method} ({', '.join(details)})" if details else baseline.method] = baseline
    return named
