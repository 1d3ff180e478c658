"""Rules for a network: what it builds, what passes between its stages, where noise acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import torch
from torch import Tensor

from dubio.core.registry import NETWORKS, Entry
from dubio.core.types import Modality
from dubio.encoders.pretrained import encoder_argument
from dubio.inference.engine import one_thread
from dubio.networks.network import Network
from dubio.testing.factories import entry_of, missing_arguments, signature_problems
from dubio.testing.findings import Finding, Outcome, Problem, Rule, flattened, follow, spoken
from dubio.testing.passes import (
    both_passes_agree,
    close,
    each_stage_repeats,
    every_parameter_learns,
    states_stack,
)
from dubio.testing.places import every_site_acts, sites_are_named, sites_name_weights
from dubio.testing.randomness import other_global_seed
from dubio.testing.samples import SHAPES, batch_of, of_mixed_length, short_and_long, some

ROWS = 6


@dataclass
class Subject:
    """A network under examination."""

    entry: Entry[Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> Modality:
        """The modality it was registered for."""
        return cast(Modality, self.entry.facts["inputs"])

    def build(self, seed: int = 0) -> Network:
        """The network for a small shape, its first weights from this seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = self.entry.make(SHAPES[self.inputs], **self.arguments)
        return cast(Network, made)


def check_network(network: Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None) -> list[Finding]:
    """What is wrong with a network; empty when nothing is.

    Args:
        network: A registered name or entry.
        arguments: For the registered function, where its defaults will not do.
    """
    return flattened(examine_network(network, arguments=arguments))


def examine_network(network: Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None) -> list[Outcome]:
    """The same as :func:`check_network`, rule by rule."""
    with one_thread():
        return follow(RULES, Subject(entry_of(NETWORKS, network), dict(arguments or {})))


def _registered(subject: Subject) -> Iterator[Problem]:
    known = get_args(Modality)
    inputs, version = subject.entry.facts.get("inputs"), subject.entry.facts.get("version")
    if inputs not in known:
        yield Problem(f"It is registered with inputs={inputs!r}.", f"inputs must be one of {', '.join(known)}.")
    if not isinstance(version, int) or version < 1:
        yield Problem(f"It is registered with version={version!r}.", "version must be a whole number from 1.")


def _builds(subject: Subject) -> Iterator[Problem]:
    lacking = list(missing_arguments(subject.entry, subject.arguments))
    if lacking:
        yield from lacking
        return
    shape = SHAPES[subject.inputs]
    try:
        made = subject.build()
    except Exception as fault:
        yield Problem(
            f"Building it for inputs of shape {shape} raised {spoken(fault)}", "Take every shape it may meet."
        )
        return
    if not isinstance(made, Network):
        yield Problem(
            f"The function returned {type(made).__name__}, not a Network.",
            "Return dubio.networks.network.Network(stages, width).",
        )


def _output(subject: Subject) -> Iterator[Problem]:
    network = subject.build().eval()
    batch = batch_of(of_mixed_length(subject.inputs, ROWS, 1))
    try:
        with torch.inference_mode():
            out = network(batch)
    except Exception as fault:
        yield Problem(
            f"A pass over a batch of {ROWS} examples raised {spoken(fault)}", "Make the stages fit each other."
        )
        return
    shape = (ROWS, network.width) if network.sets == 1 else (ROWS, network.sets, network.width)
    if not isinstance(out, Tensor) or out.shape != shape:
        actual = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        yield Problem(
            f"A batch of {ROWS} examples came out as {actual}; the network's width is {network.width}, with "
            f"{network.sets} set(s) of features.",
            f"The last stage must give [batch, width], or [batch, sets, width] with several sets, here {shape}.",
        )
    elif out.dtype != torch.float32 or not torch.isfinite(out).all():
        yield Problem("What comes out is not finite float32.", "Look for a division by zero or a logarithm of zero.")


def _seeded(subject: Subject) -> Iterator[Problem]:
    states = []
    for number, seed in ((1, 0), (2, 0), (3, 1)):
        with other_global_seed(number):
            states.append(subject.build(seed).state_dict())
    for name, tensor in states[0].items():
        if not torch.equal(tensor, states[1][name]):
            yield Problem(
                f"Built twice from one seed, {name} starts with different values.",
                "Draw first weights with torch's own generator, which is seeded for every fit.",
            )
            return
    if encoder_argument(subject.entry) is not None:
        return  # pre-trained weights are the same for every member; their heads and batches differ
    if all(torch.equal(tensor, states[2][name]) for name, tensor in states[0].items()):
        yield Problem(
            "Built from two seeds, it starts with the same weights, so members of an ensemble would be alike.",
            "Draw first weights at random, without fixing a seed inside the network.",
        )


def _steady(subject: Subject) -> Iterator[Problem]:
    batch = batch_of(of_mixed_length(subject.inputs, ROWS, 1))
    network = subject.build().eval()
    with torch.inference_mode():
        if not torch.equal(network(batch), network(batch)):
            yield Problem(
                "Two deterministic passes over one batch differ.",
                "In eval mode nothing may be random: let a Site do it.",
            )
            return
        network.train()
        if not torch.equal(network(batch), network(batch)):
            yield Problem(
                "While training it is random although no site is filled.",
                "Remove its own dropout (nn.Dropout, functional.dropout) and name a Site there.",
            )


def _rows_alone(subject: Subject) -> Iterator[Problem]:
    encoded = some(subject.inputs, ROWS, 2)
    network = subject.build().eval()
    with torch.inference_mode():
        together = network(batch_of(encoded))
        alone = torch.cat([network(batch_of(encoded, [row])) for row in range(ROWS)])
    if not close(together, alone):
        yield Problem(
            f"An example's output changes by up to {float((together - alone).abs().max()):.2g} with the other examples "
            "of its batch.",
            "Statistics over the batch (a mean, a norm, a maximum over axis 0) belong to training only.",
        )


def _padding(subject: Subject) -> Iterator[Problem]:
    encoded = short_and_long(3)
    network = subject.build().eval()
    with torch.inference_mode():
        beside, alone = network(batch_of(encoded))[:1], network(batch_of(encoded, [0]))
    if not close(beside, alone):
        yield Problem(
            f"A text of 3 tokens changes by up to {float((beside - alone).abs().max()):.2g} beside one of 30.",
            "Padding must not count: mask positions past lengths before pooling or attention.",
        )


def _is_text(subject: Subject) -> bool:
    return subject.inputs == "text"


RULES: tuple[Rule[Subject], ...] = (
    Rule("it is registered for a known modality, with a version", _registered, ends=True),
    Rule(
        "its arguments after shape are keyword-only, typed and have a docstring",
        lambda s: signature_problems(s.entry, ("shape",)),
    ),
    Rule("it builds a Network", _builds, ends=True),
    Rule("a batch comes out as [batch, width]", _output, ends=True),
    Rule("its first weights come from the seed", _seeded),
    Rule("it is random nowhere but at its sites", _steady),
    Rule("an example does not depend on the others in its batch", _rows_alone),
    Rule("a text does not depend on padding", _padding, applies=_is_text),
    Rule("what passes between stages can be repeated", lambda s: each_stage_repeats(s.build(), s.inputs)),
    Rule("its sites are named and accept known edits", lambda s: sites_are_named(s.build())),
    Rule("noise at every site reaches the output", lambda s: every_site_acts(s.build, s.inputs)),
    Rule("sites of concrete dropout name the weights they feed", lambda s: sites_name_weights(s.build())),
    Rule("sampling from shared stages equals whole passes", lambda s: both_passes_agree(s.build, s.inputs)),
    Rule("several weight states can be run at once", lambda s: states_stack(s.build, s.inputs)),
    Rule("training reaches every parameter", lambda s: every_parameter_learns(s.build, s.inputs)),
)
