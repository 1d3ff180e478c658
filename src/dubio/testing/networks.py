"""Conformance rules for a network: what it builds, what passes between its stages, where noise acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from dubio.core.registry import NETWORKS, Entry
from dubio.core.types import Modality
from dubio.encoders.pretrained import encoder_argument
from dubio.inference.engine import one_thread
from dubio.networks.network import Network
from dubio.testing.rules import (
    Outcome,
    Problem,
    Rule,
    apply_rules,
    case_of,
    findings_of,
    one_line,
    other_global_seed,
    signature_problems,
)
from dubio.testing.sites import (
    ROWS,
    SHAPES,
    NetworkCase,
    batch_of,
    both_passes_agree,
    close,
    each_stage_repeats,
    every_parameter_learns,
    every_site_acts,
    of_mixed_length,
    random_rows,
    short_and_long,
    sites_are_named,
    sites_name_weights,
    states_stack,
)


def examine_network(network: Entry[Any] | str, *, arguments: Mapping[str, Any] | None = None) -> list[Outcome]:
    """Check a network: :func:`examine_network` returns the outcome of every rule, :func:`check_network` the problems.

    Args:
        network: A registered name or entry.
        arguments: Arguments of the registered function, where its defaults do not suffice.
    """
    with one_thread():
        return apply_rules(RULES, case_of(NetworkCase, NETWORKS, network, arguments))


check_network = findings_of(examine_network)
"""Return the problems of a network, with the arguments of :func:`examine_network`; an empty list when it conforms."""


def _registered(case: NetworkCase) -> Iterator[Problem]:
    modalities = get_args(Modality)
    inputs, version = case.entry.facts.get("inputs"), case.entry.facts.get("version")
    if inputs not in modalities:
        yield Problem(f"It is registered with inputs={inputs!r}.", f"inputs must be one of {', '.join(modalities)}.")
    if not isinstance(version, int) or version < 1:
        yield Problem(f"It is registered with version={version!r}.", "version must be a whole number from 1.")


def _builds(case: NetworkCase) -> Iterator[Problem]:
    shape = SHAPES[case.inputs]
    succeeded = yield from case.made(shape, action=f"Building it for inputs of shape {shape}")
    if succeeded and not isinstance(case.subject, Network):
        problem = f"The function returned {type(case.subject).__name__}, not a Network."
        yield Problem(problem, "Return dubio.networks.network.Network(stages, width).")


def _output(case: NetworkCase) -> Iterator[Problem]:
    network = case.build().eval()
    batch = batch_of(of_mixed_length(case.inputs, ROWS, 1))
    try:
        with torch.inference_mode():
            out = network(batch)
    except Exception as fault:
        problem = f"A pass over a batch of {ROWS} examples raised {one_line(fault)}"
        yield Problem(problem, "Make the stages fit each other.")
        return
    shape = (ROWS, network.width) if network.sets == 1 else (ROWS, network.sets, network.width)
    if not isinstance(out, Tensor) or out.shape != shape:
        form = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        problem = f"A batch of {ROWS} examples gives {form}; width says {network.width}, sets {network.sets}."
        yield Problem(problem, f"The last stage gives [batch, width], or [batch, sets, width], here {shape}.")
    elif out.dtype != torch.float32 or not torch.isfinite(out).all():
        yield Problem("The output is not finite float32.", "Check for a division by zero or a logarithm of zero.")


def _seeded(case: NetworkCase) -> Iterator[Problem]:
    states = []
    for number, seed in ((1, 0), (2, 0), (3, 1)):
        with other_global_seed(number):
            states.append(case.build(seed).state_dict())
    for name, tensor in states[0].items():
        if not torch.equal(tensor, states[1][name]):
            problem = f"Built twice from one seed, {name} starts with different values."
            yield Problem(problem, "Draw first weights with torch's own generator, which is seeded for every fit.")
            return
    if encoder_argument(case.entry) is not None:
        return  # pre-trained weights are the same for every member; their heads and batches differ
    if all(torch.equal(tensor, states[2][name]) for name, tensor in states[0].items()):
        problem = "Built from two seeds, it starts with the same weights, so an ensemble would have equal members."
        yield Problem(problem, "Draw first weights at random, without fixing a seed inside the network.")


def _steady(case: NetworkCase) -> Iterator[Problem]:
    batch = batch_of(of_mixed_length(case.inputs, ROWS, 1))
    network = case.build().eval()
    with torch.inference_mode():
        if not torch.equal(network(batch), network(batch)):
            problem = "Two deterministic passes over one batch differ."
            yield Problem(problem, "In evaluation mode nothing may be random but a Site.")
            return
        network.train()
        if not torch.equal(network(batch), network(batch)):
            problem = "It is random during training although no site is filled."
            yield Problem(problem, "Remove its own dropout (nn.Dropout, functional.dropout) and name a Site there.")


def _rows_alone(case: NetworkCase) -> Iterator[Problem]:
    encoded = random_rows(case.inputs, ROWS, 2)
    network = case.build().eval()
    with torch.inference_mode():
        together = network(batch_of(encoded))
        alone = torch.cat([network(batch_of(encoded, [row])) for row in range(ROWS)])
    if not close(together, alone):
        yield Problem(
            f"An example's output changes by up to {float((together - alone).abs().max()):.2g} with the other examples "
            "of its batch.",
            "Statistics over the batch (a mean, a norm, a maximum over axis 0) belong to training only.",
        )


def _padding(case: NetworkCase) -> Iterator[Problem]:
    encoded = short_and_long(3)
    network = case.build().eval()
    with torch.inference_mode():
        beside, alone = network(batch_of(encoded))[:1], network(batch_of(encoded, [0]))
    if not close(beside, alone):
        problem = f"A text of 3 tokens changes by up to {float((beside - alone).abs().max()):.2g} beside one of 30."
        yield Problem(problem, "Padding must not count: mask positions past lengths before pooling or attention.")


RULES: tuple[Rule[NetworkCase], ...] = (
    Rule("it is registered for a known modality, with a version", _registered, ends=True),
    Rule(
        "its arguments after shape are keyword-only, typed and have a docstring",
        lambda case: signature_problems(case.entry, ("shape",)),
    ),
    Rule("it builds a Network", _builds, ends=True),
    Rule("a batch gives [batch, width]", _output, ends=True),
    Rule("its first weights come from the seed", _seeded),
    Rule("it is random at its sites only", _steady),
    Rule("an example does not depend on the others in its batch", _rows_alone),
    Rule("a text does not depend on padding", _padding, applies=lambda case: case.inputs == "text"),
    Rule("values between stages can be repeated", each_stage_repeats),
    Rule("its sites are named and accept known edits", sites_are_named),
    Rule("noise at every site reaches the output", every_site_acts),
    Rule("sites of concrete dropout name the weights they feed", sites_name_weights),
    Rule("sampling from shared stages equals whole passes", both_passes_agree),
    Rule("several weight states can be run at once", states_stack),
    Rule("training reaches every parameter", every_parameter_learns),
)
