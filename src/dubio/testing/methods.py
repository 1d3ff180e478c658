"""Rules for a method: what its function makes, how it fits tiny tasks, what its posterior says."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dubio.core.registry import METHODS, Entry
from dubio.core.specs import describe, restore
from dubio.core.types import Modality, Task
from dubio.encoders import Encoded, TextEncoding, encoding_for
from dubio.inference.batches import collate
from dubio.inference.engine import one_thread
from dubio.methods import FitContext, encode_split
from dubio.methods.recipe import Recipe
from dubio.methods.specification import NetworkSpec
from dubio.testing.factories import entry_of, missing_arguments, signature_problems
from dubio.testing.findings import Finding, Outcome, Problem, Rule, flattened, follow, spoken
from dubio.testing.randomness import other_global_seed
from dubio.testing.worlds import CLASSES, SMALL_NETWORKS, small_task

PATIENCE_SECONDS = 60.0
"""A fit of 120 examples that takes longer than this is not a fit that a benchmark can repeat."""

ENOUGH = 0.6
"""The accuracy that a method must reach on three classes six deviations apart; chance is a third."""


@dataclass
class Subject:
    """A method under examination, and what its fits left."""

    entry: Entry[Any]
    arguments: Mapping[str, Any]
    inputs: Modality
    posterior: Any = None  # of the first fit, once the rule that makes it has run

    @cached_property
    def task(self) -> Task:
        """The tiny task, the same for every fit."""
        return small_task(self.inputs)

    def make(self) -> Any:
        """The method."""
        return self.entry.make(**self.arguments)

    def fit(self, seed: int, elsewhere: int) -> Any:
        """The posterior of a fit on the tiny task, global randomness standing elsewhere."""
        context = FitContext(encoding=_encoding(self.inputs))
        with other_global_seed(elsewhere), torch.random.fork_rng(devices=[]):
            torch.manual_seed(elsewhere)
            network = NetworkSpec(*SMALL_NETWORKS[self.inputs])
            return self.make().fit(self.task, network, seed=seed, context=context)

    def logits(self, posterior: Any, batches: Sequence[NDArray[np.int64]], seed: int = 5) -> NDArray[np.float32]:
        """Logits ``[S, N, K]`` on the test split, predicted in these batches."""
        drawn, encoded = posterior.draw(seed), _encoded(self.inputs)
        parts = [drawn.predict(collate(encoded, rows), rows).logits.detach().cpu().numpy() for rows in batches]
        # batches come in any order; sorting by row puts the examples back into theirs
        joined: NDArray[np.float32] = np.concatenate(parts, axis=1)[:, np.argsort(np.concatenate(batches))]
        return joined


def check_method(
    method: Entry[Any] | str,
    *,
    inputs: Sequence[Modality] = ("table",),
    arguments: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """What is wrong with a method; empty when nothing is.

    It is fitted three times on a task of 120 made-up training examples, with a small built-in network.

    Args:
        method: A registered name or entry.
        inputs: The modalities to fit it on.
        arguments: For the registered function, where its defaults will not do.
    """
    return flattened(examine_method(method, inputs=inputs, arguments=arguments))


def examine_method(
    method: Entry[Any] | str,
    *,
    inputs: Sequence[Modality] = ("table",),
    arguments: Mapping[str, Any] | None = None,
) -> list[Outcome]:
    """The same as :func:`check_method`, rule by rule."""
    entry, given = entry_of(METHODS, method), dict(arguments or {})
    with one_thread():
        outcomes = follow(RULES, Subject(entry, given, inputs[0]))
        if all(outcome.state != "failed" for outcome in outcomes if outcome.what == MAKES):
            for modality in inputs:
                named = tuple(Rule(f"{rule.what} ({modality})", rule.check, rule.ends) for rule in FITTED)
                outcomes += follow(named, Subject(entry, given, modality))
    return outcomes


def _encoding(inputs: Modality) -> Any:
    return TextEncoding(min_frequency=1) if inputs == "text" else encoding_for(inputs, {})


@lru_cache(maxsize=3)
def _encoded(inputs: Modality) -> Encoded:
    task = small_task(inputs)
    return encode_split(_encoding(inputs), task.of_kind("train")[0], task.of_kind("id")[0])


def _rows(inputs: Modality) -> NDArray[np.int64]:
    return np.arange(len(_encoded(inputs)))


def _makes(subject: Subject) -> Iterator[Problem]:
    lacking = list(missing_arguments(subject.entry, subject.arguments))
    if lacking:
        yield from lacking
        return
    try:
        made = subject.make()
    except Exception as fault:
        yield Problem(f"Making it raised {spoken(fault)}", "Make it work with its default arguments.")
        return
    if isinstance(made, Recipe):
        return
    if not isinstance(getattr(made, "name", None), str) or not callable(getattr(made, "fit", None)):
        yield Problem(
            f"The function returned {type(made).__name__}, which is no method.",
            "Return a Recipe, or an object with a name and fit(task, network, *, seed, context).",
        )
        return
    taken = inspect.signature(made.fit).parameters
    for name in ("seed", "context"):
        if name not in taken and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values()):
            yield Problem(f"fit does not take {name!r}.", "It is called as fit(task, network, seed=…, context=…).")


def _written_down(subject: Subject) -> Iterator[Problem]:
    made = subject.make()
    try:
        text = json.dumps(describe(made), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as fault:
        yield Problem(
            f"It cannot be written down: {spoken(fault)}",
            "Every slot must be a part: a frozen dataclass under @dubio.core.specs.part('name'), with plain fields.",
        )
        return
    if restore(json.loads(text)) != made:
        yield Problem(
            "Written down and read again, it is another method.",
            "Let every field of a part be a number, a text, a tuple or a part, and compare by value.",
        )
    if json.dumps(describe(subject.make()), sort_keys=True) != text:
        yield Problem("Made twice, it is not the same method.", "Draw nothing at random while making a recipe.")


def _fits(subject: Subject) -> Iterator[Problem]:
    started = time.monotonic()
    try:
        subject.posterior = subject.fit(0, elsewhere=1)
    except Exception as fault:
        yield Problem(f"Fitting 120 made-up examples raised {spoken(fault)}", "Make it fit a small and easy task.")
        return
    seconds = time.monotonic() - started
    if seconds > PATIENCE_SECONDS:
        yield Problem(f"Fitting 120 examples took {seconds:.0f} seconds.", "Make the default epochs or steps fewer.")


def _leaves_task(subject: Subject) -> Iterator[Problem]:
    for split in subject.task.splits:
        if split.data.fingerprint() != split.fingerprint:
            yield Problem(
                f"Fitting changed the data of split {split.name!r}.",
                "Work on a copy: other methods read the same arrays.",
            )


def _draws(subject: Subject) -> Iterator[Problem]:
    posterior = subject.posterior
    for name in ("draw", "tensors"):
        if not callable(getattr(posterior, name, None)):
            yield Problem(
                f"fit returned {type(posterior).__name__}, which has no method {name!r}.",
                "Return a posterior: Points, Mixture, or an object with draw(seed) and tensors().",
            )
            return
    logits, rows = subject.logits(posterior, [_rows(subject.inputs)]), len(_rows(subject.inputs))
    wanted = (len(posterior.draw(5).member), rows, len(CLASSES))
    if logits.shape != wanted:
        yield Problem(
            f"The logits have shape {logits.shape}; member, examples and classes say {wanted}.",
            "predict gives [samples, batch, classes], and member names the fit of every sample.",
        )
    if np.isnan(logits).any() or (logits == np.inf).any():
        yield Problem("The logits hold NaN or +inf.", "Only finite numbers and −inf (probability zero) are allowed.")


def _samples_differ(subject: Subject) -> Iterator[Problem]:
    logits = subject.logits(subject.posterior, [_rows(subject.inputs)])
    if len(logits) > 1 and (logits == logits[:1]).all():
        yield Problem(
            f"All {len(logits)} samples say the same.", "Give one sample, or let the noise act when predicting."
        )


def _same_seed(subject: Subject) -> Iterator[Problem]:
    first, rows = subject.posterior, [_rows(subject.inputs)]
    again = subject.fit(0, elsewhere=2)
    if not _equal_tensors(first.tensors(), again.tensors()):
        yield Problem(
            "Fitted twice with one seed, the weights differ.",
            "Draw from generators made from the seed that fit is given, never from global randomness or the clock.",
        )
    elif not np.array_equal(subject.logits(first, rows), subject.logits(again, rows)):
        yield Problem("Drawn twice with one seed, the predictions differ.", "Draw all noise from draw's seed.")


def _other_seed(subject: Subject) -> Iterator[Problem]:
    other = subject.fit(1, elsewhere=1)
    if _equal_tensors(subject.posterior.tensors(), other.tensors()):
        yield Problem(
            "Fitted with two seeds, the weights are the same, so that repetitions over seeds repeat nothing.",
            "Let the seed decide first weights and the order of examples.",
        )


def _equal_tensors(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _batches(subject: Subject) -> Iterator[Problem]:
    posterior, rows = subject.posterior, _rows(subject.inputs)
    whole = subject.logits(posterior, [rows])
    cuts = {
        "in batches of 7": [rows[i : i + 7] for i in range(0, len(rows), 7)],
        "in the opposite order": [rows[::-1].copy()],
    }
    for how, batches in cuts.items():
        found = subject.logits(posterior, batches)
        if found.shape != whole.shape or not np.allclose(found, whole, rtol=1e-4, atol=1e-4):
            yield Problem(
                f"Predicted {how}, the logits are others.",
                "Draw noise from (seed, sample, example index), as dubio.networks.draws.BlockDraws does.",
            )


def _learns(subject: Subject) -> Iterator[Problem]:
    logits = subject.logits(subject.posterior, [_rows(subject.inputs)]).astype(np.float64)
    shifted = np.exp(logits - logits.max(axis=2, keepdims=True))
    probs = (shifted / shifted.sum(axis=2, keepdims=True)).mean(axis=0)
    labels = subject.task.of_kind("id")[0].data.labels
    accuracy = float((probs.argmax(axis=1) == labels).mean())
    if accuracy < ENOUGH:
        yield Problem(
            f"On three classes that are easy to tell apart it is right in {accuracy:.0%} of cases; chance is 33 %.",
            "Look at its loss, its learning rate and its epochs.",
        )


MAKES = "it makes a Recipe, or an object with name and fit"

RULES: tuple[Rule[Subject], ...] = (
    Rule("its arguments are keyword-only, typed and have a docstring", lambda s: signature_problems(s.entry)),
    Rule(MAKES, _makes, ends=True),
    Rule(
        "written down and read again, it is the same",
        _written_down,
        applies=lambda s: isinstance(s.make(), Recipe),
    ),
)

FITTED: tuple[Rule[Subject], ...] = (
    Rule("it fits a small task", _fits, ends=True),
    Rule("it leaves the task as it was", _leaves_task, ends=True),
    Rule("its posterior predicts [samples, examples, classes]", _draws, ends=True),
    Rule("its samples differ", _samples_differ),
    Rule("the same seed gives the same bits", _same_seed),
    Rule("another seed gives other weights", _other_seed),
    Rule("predictions do not depend on how examples are batched", _batches),
    Rule("it learns more than chance", _learns),
)
