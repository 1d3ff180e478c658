"""Rules about passes through a network: repeating, sampling, stacking, learning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dubio.core.specs import name_of
from dubio.core.types import Modality
from dubio.inference.engine import looped_states, plain_passes, repeat, shared_prefix, stacked_states
from dubio.inference.samples import state_of
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Edit, Model, Network, Scores
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit
from dubio.testing.findings import Problem, spoken
from dubio.testing.samples import batch_of, of_mixed_length, some

Build = Callable[..., Network]

TOLERANCE = 1e-5
ROWS = 6
CLASSES = 3
SAMPLES = 4
EDITS: tuple[Edit, ...] = (DropoutEdit(), ConcreteDropoutEdit())


def close(one: Tensor, other: Tensor) -> bool:
    """Equal within 1e-5, absolute and relative: the order of sums may differ, nothing else."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def with_head(network: Network) -> Model:
    """The network with a softmax head for three classes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Model(network, Softmax().build(network.width, CLASSES))


def logits_of(scores: Scores) -> Tensor:
    """Return the logits of all samples, one row after another."""
    return scores.logits.flatten(0, 1)


def each_stage_repeats(network: Network, inputs: Modality) -> Iterator[Problem]:
    """Repeat the value before every stage and see whether the rest gives each example again."""
    network.eval()
    value: Any = batch_of(of_mixed_length(inputs, ROWS, 4))
    with torch.inference_mode():
        wanted = repeat(network(value), 2)
        for place, stage in enumerate(network.stages):
            problem = _repeated(network, place, value, wanted)
            if problem is not None:
                yield problem
                return
            value = stage(value)


def _repeated(network: Network, place: int, value: Any, wanted: Tensor) -> Problem | None:
    stage = f"stage {place + 1} ({type(network.stages[place]).__name__})"
    if not isinstance(value, Tensor) and not (hasattr(value, "repeat") and hasattr(value, "footprint")):
        return Problem(
            f"What {stage} takes is a {type(value).__name__} that cannot be repeated.",
            "Pass a tensor, or a NamedTuple with the methods repeat(times) and footprint().",
        )
    if not isinstance(value, Tensor) and not (isinstance(value.footprint(), int) and value.footprint() > 0):
        return Problem(
            f"footprint() of what {stage} takes is {value.footprint()!r}.",
            "Give the number of elements, a positive int.",
        )
    try:
        found = repeat(value, 2)
        for step in list(network.stages)[place:]:
            found = step(found)
    except Exception as fault:
        return Problem(f"{stage} and those after it fail on a repeated batch: {spoken(fault)}", _REPEAT)
    return (
        None if close(found, wanted) else Problem(f"From {stage} on, a repeated batch comes out differently.", _REPEAT)
    )


_REPEAT = "repeat(times) gives the whole batch again and again, sample by sample, along the first axis of every part."


def both_passes_agree(build: Build, inputs: Modality) -> Iterator[Problem]:
    """The engine's shared-prefix pass against its plain twin, with the same draws."""
    encoded, rows = of_mixed_length(inputs, ROWS, 5), np.arange(ROWS)
    for edit in EDITS:
        model = with_head(build())
        edit.apply(model)
        model.eval()
        with torch.inference_mode():
            fast = logits_of(shared_prefix(model, batch_of(encoded), BlockDraws(7), rows, SAMPLES))
            plain = logits_of(plain_passes(model, batch_of(encoded), BlockDraws(7), rows, SAMPLES))
        if not close(fast, plain):
            yield Problem(
                f"With {name_of(edit)}, {SAMPLES} samples from shared stages differ from {SAMPLES} whole passes.",
                "A stage must treat every row of a repeated batch alike; one with broadcasts = True repeats by itself, "
                "sample by sample.",
            )


def states_stack(build: Build, inputs: Modality) -> Iterator[Problem]:
    """Two weight states mapped over against one after the other."""
    model = with_head(build(0)).eval()
    states = (state_of(with_head(build(0))), state_of(with_head(build(1))))
    batch = batch_of(of_mixed_length(inputs, ROWS, 6))
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch speaks of speed here, which is no matter of conformance
        plain = looped_states(model, states, batch)
        try:
            stacked = stacked_states(model, states, batch)
        except Exception as fault:
            yield Problem(
                f"Mapping over two weight states raised {spoken(fault)}",
                "Nothing may depend on a value of a weight (no .item(), no `if` on a tensor) nor write in place.",
            )
            return
    if not close(stacked, plain):
        yield Problem("Two weight states at once differ from one after the other.", "Keep no result between passes.")


def every_parameter_learns(build: Build, inputs: Modality) -> Iterator[Problem]:
    """One backward pass with each edit; every parameter must get a gradient that is not zero."""
    encoded = some(inputs, 64, 8)
    labels = torch.arange(64) % CLASSES
    for edit in EDITS:
        model = with_head(build())
        edit.apply(model)
        model.train()
        for noise in model.noises():
            noise.generator = torch.Generator().manual_seed(0)
        loss = model.loss(batch_of(encoded), labels).mean() + model.penalty(64)
        torch.autograd.backward(loss)
        learned = [(name, p.grad) for name, p in model.network.named_parameters() if p.requires_grad]
        dead = [name for name, gradient in learned if gradient is None or not gradient.any()]
        if dead:
            yield Problem(
                f"With {name_of(edit)}, the loss does not depend on {', '.join(dead)}.",
                "Remove parameters that are not used, or set requires_grad=False.",
            )
            return
