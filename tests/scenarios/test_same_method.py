"""The same method against itself on real fits: how often a report calls its trainings different methods.

A pool of small networks is trained on 150 digits. Methods are drawn from it as disjoint sets of fits: all are the same
method, so that every significant difference is a false alarm.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dubio.core.registry import METHODS
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import encoding_for
from dubio.statistics.trainings import ENOUGH, Trainings, over_members, over_runs
from dubio.statistics.verdicts import Rows, Runs, compare_methods, compare_systems

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

POOL, DRAWS = 520, 400
CARD = SourceCard("scikit-learn", "1", "none", "none")


@pytest.fixture(scope="module")
def label_probabilities() -> NDArray[np.float64]:
    """The probability of the label, [fits, examples]; two minutes on one core."""
    from sklearn.datasets import load_digits

    from dubio.methods import NetworkSpec, fit, fit_spec, pred_spec, predictor
    from dubio.methods.fitting import FitContext

    bunch, order = load_digits(), np.random.default_rng(0).permutation(1797)
    pixels, labels = (bunch.data[order] / 16).astype(np.float32), bunch.target[order].astype(np.int64)
    cuts = {"train": slice(0, 150), "val": slice(150, 250), "id": slice(250, 1050)}
    splits = tuple(Split.of(name, name, Examples(pixels[cut], labels[cut])) for name, cut in cuts.items())  # type: ignore[arg-type]
    task = Task("few digits", "table", "multiclass", tuple(map(str, range(10))), splits, CARD)
    recipe, rows = METHODS.make("deterministic", epochs=15), []
    for member in range(POOL):
        spec = fit_spec(recipe, task, encoding_for("table", {}), NetworkSpec("mlp"), seed=0, member=member)
        result = fit(spec, task, FitContext())
        prediction = pred_spec(recipe, "0" * 16, seed=0, member=member)
        predictions = predictor(spec, prediction, result.tensors, result.encoder)(splits[2])
        rows.append(predictions.probs[np.arange(800), predictions.labels])
    return np.array(rows)


def drawn(p: NDArray[np.float64], fits: NDArray[np.int64]) -> tuple[NDArray[np.float64], Trainings | None]:
    """The losses of one method, [runs, examples], from fits [runs, members], and its trainings as a report has them."""

    def losses(members: list[int]) -> NDArray[np.float64]:
        return np.asarray(-np.log(p[members].mean(axis=0)))

    values = np.array([losses(run) for run in fits.tolist()])
    runs = over_runs({tuple(run): float(own.mean()) for run, own in zip(fits.tolist(), values, strict=True)})
    if runs is not None and runs.freedom >= ENOUGH:
        return values, runs
    if fits.shape[1] == 1:
        return values, runs
    parts = [{(out,): float(losses([k for k in run if k != out]).mean()) for out in run} for run in fits.tolist()]
    return values, over_members(parts)


def alarms(p: NDArray[np.float64], methods: int, runs: int, members: int) -> tuple[float, float]:
    """The share of draws with any significant difference: between methods, and between these trained systems."""
    rng, counts = np.random.default_rng((methods, runs, members)), np.zeros(2)
    for _ in range(DRAWS):
        fits = rng.permutation(len(p))[: methods * runs * members].reshape(methods, runs, members)
        every = {str(k): drawn(p, own) for k, own in enumerate(fits)}
        scores = {name: Runs(tuple(values.mean(axis=1).tolist())) for name, (values, _) in every.items()}
        rows = Rows({name: values.mean(axis=0) for name, (values, _) in every.items()})
        trainings = {name: own for name, (_, own) in every.items() if own is not None}
        assert len(trainings) == methods
        as_methods = compare_methods(scores, "lower", rows, trainings, dict.fromkeys(scores, members))
        for k, pairs in enumerate((as_methods, compare_systems(scores, "lower", rows))):
            counts[k] += any(test.better is not None for test in pairs.tests)
    return counts[0] / DRAWS, counts[1] / DRAWS


DESIGNS = [(2, 1, 5), (4, 1, 5), (10, 1, 5), (2, 3, 1), (4, 2, 1), (4, 3, 1), (4, 5, 1), (4, 2, 5), (4, 3, 3)]
"""Methods, runs of each, and members of a run; the pool is at least ten times one draw."""


def test_a_method_is_seldom_called_different_from_itself(label_probabilities: NDArray[np.float64]) -> None:
    rates = {design: alarms(label_probabilities, *design) for design in DESIGNS}
    print(rates)
    for design, (as_methods, as_systems) in rates.items():
        assert math.prod(design) * 10 <= POOL, design
        assert as_methods <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / DRAWS), (design, as_methods)
        assert as_systems > 0.3, (design, as_systems)  # these trained systems do differ: it is another question
