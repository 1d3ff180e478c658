"""Conformance rules for a method: what its function makes, how it fits toy tasks, what its posterior predicts."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dubio.core.registry import METHODS, Entry
from dubio.core.specs import describe, restore
from dubio.core.types import Modality, Split, Task
from dubio.encoders import Encoded, TextEncoding, encoding_for
from dubio.inference.batches import collate
from dubio.inference.engine import one_thread
from dubio.methods import FitContext, encode_split, fit, fit_spec, pred_spec, predictor
from dubio.methods.estimator import EstimatorRecipe
from dubio.methods.recipe import Recipe
from dubio.methods.specification import NetworkSpec
from dubio.testing.rules import (
    SIGNATURE,
    Case,
    Outcome,
    Problem,
    Rule,
    apply_rules,
    case_of,
    findings_of,
    one_line,
    other_global_seed,
)
from dubio.testing.tasks import CLASSES, SMALL_NETWORKS, small_task

LIMIT_SECONDS = 60.0
"""Largest time for a fit of 120 examples; a slower one cannot be repeated in a benchmark."""

ENOUGH = 0.6
"""The accuracy that a method must reach on three classes six deviations apart; chance is a third."""


@dataclass
class MethodCase(Case[Any]):
    """A method to check, the modality it is fitted on, and its first posterior, set by the rule that fits."""

    inputs: Modality = "table"
    posterior: Any = None

    @cached_property
    def task(self) -> Task:
        """The toy task, the same for every fit."""
        return small_task(self.inputs)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of its test split."""
        return np.arange(len(_encoded(self.inputs)))

    def fit(self, seed: int, global_seed: int) -> Any:
        """Return the posterior of a fit on the toy task, global generators seeded otherwise."""
        context = FitContext(encoding=_encoding(self.inputs))
        with other_global_seed(global_seed), torch.random.fork_rng(devices=[]):
            torch.manual_seed(global_seed)
            network = NetworkSpec(*SMALL_NETWORKS[self.inputs])
            return self.make().fit(self.task, network, seed=seed, context=context)

    def logits(self, posterior: Any, batches: Sequence[NDArray[np.int64]] = ()) -> NDArray[np.float32]:
        """Return logits ``[S, N, K]`` on the test split, predicted in these batches; by default in one."""
        batches, draws, encoded = batches or [self.rows], posterior.draw(5), _encoded(self.inputs)
        pieces = [draws.predict(collate(encoded, rows), rows).logits.detach().cpu().numpy() for rows in batches]
        # batches come in any order; sorting by row restores that of the examples
        joined: NDArray[np.float32] = np.concatenate(pieces, axis=1)[:, np.argsort(np.concatenate(batches))]
        return joined


def examine_method(
    method: Entry[Any] | str, *, inputs: Sequence[Modality] = ("table",), arguments: Mapping[str, Any] | None = None
) -> list[Outcome]:
    """Check a method: :func:`examine_method` returns the outcome of every rule, :func:`check_method` the problems.

    It is fitted three times on a toy task of 120 training examples, with a small built-in network; an estimator twice,
    without one.

    Args:
        method: A registered name or entry.
        inputs: The modalities to fit it on.
        arguments: Arguments of the registered function, where its defaults do not suffice.
    """
    case = case_of(MethodCase, METHODS, method, arguments)
    with one_thread():
        outcomes = apply_rules(RULES, case)
        if all(outcome.state != "failed" for outcome in outcomes if outcome.what == MAKES):
            fitted = ESTIMATED if isinstance(case.subject, EstimatorRecipe) else FITTED
            for modality in inputs:
                rules = [replace(rule, what=f"{rule.what} ({modality})") for rule in fitted]
                outcomes += apply_rules(rules, replace(case, inputs=modality))
    return outcomes


check_method = findings_of(examine_method)
"""Return the problems of a method, with the arguments of :func:`examine_method`; an empty list when it conforms."""


def _encoding(inputs: Modality) -> Any:
    return TextEncoding(min_frequency=1) if inputs == "text" else encoding_for(inputs, {})


@lru_cache(maxsize=3)
def _encoded(inputs: Modality) -> Encoded:
    task = small_task(inputs)
    return encode_split(_encoding(inputs), task.of_kind("train")[0], task.of_kind("id")[0])


def _makes(case: MethodCase) -> Iterator[Problem]:
    succeeded = yield from case.made()
    method = case.subject
    if not succeeded or isinstance(method, RECIPES):
        return
    if not isinstance(getattr(method, "name", None), str) or not callable(getattr(method, "fit", None)):
        problem = f"The function returned {type(method).__name__}, which is not a method."
        yield Problem(problem, "Return a Recipe, or an object with a name and fit(task, network, *, seed, context).")
        return
    parameters = inspect.signature(method.fit).parameters
    for name in ("seed", "context"):
        if name not in parameters and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
            yield Problem(f"fit does not take {name!r}.", "It is called as fit(task, network, seed=…, context=…).")


def _restores(case: MethodCase) -> Iterator[Problem]:
    method = case.subject
    try:
        text = json.dumps(describe(method), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as fault:
        yield Problem(
            f"It has no JSON form: {one_line(fault)}",
            "Every slot must be a part: a frozen dataclass under @dubio.core.specs.part('name'), with plain fields.",
        )
        return
    if restore(json.loads(text)) != method:
        problem = "Restored from its JSON form, it is another method."
        yield Problem(problem, "Every field of a part must be a number, a text, a tuple or a part, compared by value.")
    if json.dumps(describe(case.make()), sort_keys=True) != text:
        yield Problem("Made twice, it is not the same method.", "Draw nothing at random while making a recipe.")


def _fits(case: MethodCase) -> Iterator[Problem]:
    started = time.monotonic()
    try:
        case.posterior = case.fit(0, global_seed=1)
    except Exception as fault:
        yield Problem(f"Fitting 120 toy examples raised {one_line(fault)}", "Make it fit a small and easy task.")
        return
    seconds = time.monotonic() - started
    if seconds > LIMIT_SECONDS:
        yield Problem(f"Fitting 120 examples took {seconds:.0f} seconds.", "Make the default epochs or steps fewer.")


def _leaves_task(case: MethodCase) -> Iterator[Problem]:
    for split in case.task.splits:
        if split.data.fingerprint() != split.fingerprint:
            problem = f"Fitting changed the data of split {split.name!r}."
            yield Problem(problem, "Work on a copy: other methods read the same arrays.")


def _draws(case: MethodCase) -> Iterator[Problem]:
    posterior = case.posterior
    for name in ("draw", "tensors"):
        if not callable(getattr(posterior, name, None)):
            advice = "Return a posterior: WeightSamples, Mixture, or an object with draw(seed) and tensors()."
            yield Problem(f"fit returned {type(posterior).__name__}, which has no method {name!r}.", advice)
            return
    logits, rows = case.logits(posterior), len(case.rows)
    shape = (len(posterior.draw(5).member), rows, len(CLASSES))
    if logits.shape != shape:
        problem = f"The logits have shape {logits.shape}; member, examples and classes say {shape}."
        yield Problem(problem, "predict gives [samples, batch, classes], and member names the fit of every sample.")
    if np.isnan(logits).any() or (logits == np.inf).any():
        yield Problem("The logits hold NaN or +inf.", "Only finite numbers and −inf (probability zero) are allowed.")


def _samples_differ(case: MethodCase) -> Iterator[Problem]:
    logits = case.logits(case.posterior)
    if len(logits) > 1 and (logits == logits[:1]).all():
        yield Problem(f"All {len(logits)} samples are the same.", "Give one sample, or make the prediction random.")


def _same_seed(case: MethodCase) -> Iterator[Problem]:
    first, again = case.posterior, case.fit(0, global_seed=2)
    if not _equal_tensors(first.tensors(), again.tensors()):
        problem = "Fitted twice with one seed, the weights differ."
        yield Problem(problem, "Draw from generators made from fit's seed, never from global randomness or the clock.")
    elif not np.array_equal(case.logits(first), case.logits(again)):
        yield Problem("Drawn twice with one seed, the predictions differ.", "Draw all noise from draw's seed.")


def _other_seed(case: MethodCase) -> Iterator[Problem]:
    other = case.fit(1, global_seed=1)
    if _equal_tensors(case.posterior.tensors(), other.tensors()):
        problem = "Fitted with two seeds, the weights are the same, so that repetitions over seeds repeat nothing."
        yield Problem(problem, "Derive first weights and the order of examples from the seed.")


def _equal_tensors(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _batches(case: MethodCase) -> Iterator[Problem]:
    posterior, rows = case.posterior, case.rows
    together = case.logits(posterior)
    sevens = [rows[i : i + 7] for i in range(0, len(rows), 7)]
    cuts = {"in batches of 7": sevens, "in the opposite order": [rows[::-1].copy()]}
    for how, batches in cuts.items():
        logits = case.logits(posterior, batches)
        if logits.shape != together.shape or not np.allclose(logits, together, rtol=1e-4, atol=1e-4):
            advice = "Draw noise from (seed, sample, example index), as dubio.networks.draws.BlockDraws does."
            yield Problem(f"Predicted {how}, the logits differ.", advice)


def _learns(case: MethodCase) -> Iterator[Problem]:
    logits = case.logits(case.posterior).astype(np.float64)
    shifted = np.exp(logits - logits.max(axis=2, keepdims=True))
    probs = (shifted / shifted.sum(axis=2, keepdims=True)).mean(axis=0)
    labels = case.task.of_kind("id")[0].data.labels
    accuracy = float((probs.argmax(axis=1) == labels).mean())
    if accuracy < ENOUGH:
        problem = f"On three well-separated classes its accuracy is {accuracy:.0%}; chance is 33 %."
        yield Problem(problem, "Check its loss, its learning rate and its epochs.")


# Estimators: stored arrays take the place of the posterior.


def _estimator_fit(case: MethodCase) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.float32], NDArray[np.float32]]:
    """Return the arrays of a fit, and the logits ``[N, K]`` of all test rows, together and one by one."""
    spec = fit_spec(case.subject, case.task, _encoding(case.inputs), NetworkSpec(""), seed=0, member=0)
    result = fit(spec, case.task, FitContext())
    predict = predictor(spec, pred_spec(case.subject, "", seed=0, member=0), result.tensors, result.encoder)
    split = case.task.of_kind("id")[0]
    rows = [Split.of(split.name, split.kind, split.data.take(np.array([row]))) for row in range(len(split))]
    return result.tensors, predict(split).logits[0], np.concatenate([predict(row).logits[0] for row in rows])


def _estimates(case: MethodCase) -> Iterator[Problem]:
    try:
        case.posterior = _estimator_fit(case)
    except Exception as fault:
        yield Problem(f"Fitting 120 toy examples raised {one_line(fault)}", "Make it fit a small and easy task.")
        return
    _, logits, one_by_one = case.posterior
    if logits.shape != (len(case.rows), len(CLASSES)) or not np.isfinite(logits).all():
        problem = f"The logits have shape {logits.shape}, or are not finite."
        yield Problem(problem, f"scores gives finite float64 [examples, {len(CLASSES)} classes].")
    elif not np.allclose(logits, one_by_one, rtol=1e-4, atol=1e-4):
        yield Problem("Predicted one by one, the logits differ.", "scores must treat every row by itself.")


def _same_arrays(case: MethodCase) -> Iterator[Problem]:
    (first, _, _), (again, _, _) = case.posterior, _estimator_fit(case)
    if first.keys() != again.keys() or not all(np.array_equal(first[name], again[name]) for name in first):
        yield Problem("Fitted twice, the arrays differ.", "Draw from generators with a fixed seed.")


def _estimator_learns(case: MethodCase) -> Iterator[Problem]:
    accuracy = float((case.posterior[1].argmax(axis=1) == case.task.of_kind("id")[0].data.labels).mean())
    if accuracy < ENOUGH:
        yield Problem(f"On three well-separated classes its accuracy is {accuracy:.0%}.", "Check fit and scores.")


RECIPES = (Recipe, EstimatorRecipe)

MAKES = "it makes a Recipe, or an object with name and fit"

RULES: tuple[Rule[MethodCase], ...] = (
    SIGNATURE,
    Rule(MAKES, _makes, ends=True),
    Rule("restored from its JSON form, it is the same", _restores, applies=lambda c: isinstance(c.subject, RECIPES)),
)

FITTED: tuple[Rule[MethodCase], ...] = (
    Rule("it fits a small task", _fits, ends=True),
    Rule("it does not change the task", _leaves_task, ends=True),
    Rule("its posterior predicts [samples, examples, classes]", _draws, ends=True),
    Rule("its samples differ", _samples_differ),
    Rule("the same seed gives the same bits", _same_seed),
    Rule("another seed gives other weights", _other_seed),
    Rule("predictions do not depend on how examples are batched", _batches),
    Rule("it learns more than chance", _learns),
)

ESTIMATED: tuple[Rule[MethodCase], ...] = (
    Rule("it fits a small task and predicts row by row", _estimates, ends=True),
    Rule("it does not change the task", _leaves_task, ends=True),
    Rule("the same data gives the same bits", _same_arrays),
    Rule("it learns more than chance", _estimator_learns, applies=lambda case: case.subject.estimator.fits_classes),
)
