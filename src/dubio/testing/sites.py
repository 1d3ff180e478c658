"""Conformance rules for passes through a network and for its noise sites, and small batches to pass through it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import nearest
from dubio.core.registry import Entry
from dubio.core.specs import known_parts, name_of
from dubio.core.types import Modality
from dubio.encoders import ArrayRows, Encoded, TokenRows
from dubio.inference.batches import Batch, collate
from dubio.inference.engine import looped_states, plain_passes, repeat, shared_prefix, stacked_states
from dubio.inference.samples import state_of
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Edit, Model, Network, Scores
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit, Site, SiteEdit, sites
from dubio.testing.rules import Case, Problem, one_line

TOLERANCE = 1e-5
ROWS = 6
CLASSES = 3
SAMPLES = 4
EDITS: tuple[Edit, ...] = (DropoutEdit(), ConcreteDropoutEdit())

RESERVED = ("head", "mu", "sigma")
"""Names of the sites of heads: noise is drawn by site name, so a network's sites need others."""

_REPEAT = "repeat(times) gives the whole batch again and again, one copy after another, along the first axis."

VOCABULARY = 40
SHAPES: dict[Modality, tuple[int, ...]] = {"table": (7,), "image": (1, 8, 8), "text": (VOCABULARY,)}
"""The shape that a network's function is called with."""


@dataclass
class NetworkCase(Case[Network]):
    """A network to check."""

    entry: Entry[Any]

    @property
    def inputs(self) -> Modality:
        """The modality it was registered for."""
        return cast(Modality, self.entry.facts["inputs"])

    def build(self, seed: int = 0) -> Network:
        """Return the network for a small shape, its first weights from this seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make(SHAPES[self.inputs])

    def model(self, seed: int = 0) -> Model:
        """Return the network with a softmax head for three classes."""
        network = self.build(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return Model(network, Softmax().build(network.width, CLASSES))


def close(one: Tensor, other: Tensor) -> bool:
    """Return whether tensors are equal within 1e-5, absolute and relative: only the order of sums may differ."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)


def logits_of(scores: Scores) -> Tensor:
    """Return the logits of all samples, one row after another."""
    return scores.logits.flatten(0, 1)


# --- passes -----------------------------------------------------------------------------------------------------------


def each_stage_repeats(case: NetworkCase) -> Iterator[Problem]:
    """Repeat the value before every stage and check that the remaining stages give each example again."""
    network = case.build().eval()
    value: Any = batch_of(of_mixed_length(case.inputs, ROWS, 4))
    with torch.inference_mode():
        features = network(value)
        for index, stage in enumerate(network.stages):
            problem = _repeat_problem(network, index, value, torch.cat([features, features]))
            if problem is not None:
                yield problem
                return
            value = stage(value)


def _repeat_problem(network: Network, index: int, value: Any, expected: Tensor) -> Problem | None:
    stage = f"stage {index + 1} ({type(network.stages[index]).__name__})"
    if not isinstance(value, Tensor):
        if not (hasattr(value, "repeat") and hasattr(value, "footprint")):
            problem = f"The value that {stage} takes is a {type(value).__name__} that cannot be repeated."
            return Problem(problem, "Pass a tensor, or a NamedTuple with the methods repeat(times) and footprint().")
        if not (isinstance(value.footprint(), int) and value.footprint() > 0):
            problem = f"footprint() of the value that {stage} takes is {value.footprint()!r}."
            return Problem(problem, "Return the number of elements, a positive int.")
    try:
        repeated = repeat(value, 2)
        for step in list(network.stages)[index:]:
            repeated = step(repeated)
    except Exception as fault:
        return Problem(f"{stage} and those after it fail on a repeated batch: {one_line(fault)}", _REPEAT)
    if close(repeated, expected):
        return None
    return Problem(f"From {stage} on, a repeated batch gives other values.", _REPEAT)


def both_passes_agree(case: NetworkCase) -> Iterator[Problem]:
    """Compare the engine's shared-prefix pass with its plain twin, with the same draws."""
    encoded, rows = of_mixed_length(case.inputs, ROWS, 5), np.arange(ROWS)
    for edit in EDITS:
        model = case.model()
        edit.apply(model)
        model.eval()
        with torch.inference_mode():
            fast = logits_of(shared_prefix(model, batch_of(encoded), BlockDraws(7), rows, SAMPLES))
            plain = logits_of(plain_passes(model, batch_of(encoded), BlockDraws(7), rows, SAMPLES))
        if not close(fast, plain):
            yield Problem(
                f"With {name_of(edit)}, {SAMPLES} samples from shared stages differ from {SAMPLES} whole passes.",
                "A stage must treat every row of a repeated batch in the same way; one with broadcasts = True repeats "
                "by itself, one copy after another.",
            )


def states_stack(case: NetworkCase) -> Iterator[Problem]:
    """Compare two weight states run at once with one after the other."""
    model = case.model().eval()
    states = (state_of(case.model(0)), state_of(case.model(1)))
    batch = batch_of(of_mixed_length(case.inputs, ROWS, 6))
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns about speed here, which is not checked
        plain = looped_states(model, states, batch)
        try:
            stacked = stacked_states(model, states, batch)
        except Exception as fault:
            advice = "Nothing may depend on a value of a weight (no .item(), no `if` on a tensor) nor write in place."
            yield Problem(f"Mapping over two weight states raised {one_line(fault)}", advice)
            return
    if not close(stacked, plain):
        yield Problem("Two weight states at once differ from one after the other.", "Keep no result between passes.")


def every_parameter_learns(case: NetworkCase) -> Iterator[Problem]:
    """Check that every parameter gets a non-zero gradient from one backward pass with each edit."""
    encoded = random_rows(case.inputs, 64, 8)
    labels = torch.arange(64) % CLASSES
    for edit in EDITS:
        model = case.model()
        edit.apply(model)
        model.train()
        model.draw_from(torch.Generator().manual_seed(0))
        loss = model.loss(batch_of(encoded), labels).mean() + model.penalty(64)
        torch.autograd.backward(loss)
        gradients = [(name, p.grad) for name, p in model.network.named_parameters() if p.requires_grad]
        dead = [name for name, gradient in gradients if gradient is None or not gradient.any()]
        if dead:
            problem = f"With {name_of(edit)}, the loss does not depend on {', '.join(dead)}."
            yield Problem(problem, "Remove parameters that are not used, or set requires_grad=False.")
            return


# --- noise sites ------------------------------------------------------------------------------------------------------


def site_edits() -> dict[str, type[SiteEdit]]:
    """Return every registered edit that fills sites, by name."""
    return {name: cls for name, cls in known_parts().items() if issubclass(cls, SiteEdit)}


def sites_are_named(case: NetworkCase) -> Iterator[Problem]:
    """Check that there is a site, and that each has a name of its own and accepts edits that exist."""
    own, edits = list(sites(case.build())), site_edits()
    if not any(site.accepts for site in own):
        yield Problem(
            "It has no noise site that accepts an edit, so that dropout could act only before its head.",
            "Put a dubio.networks.noise.Site where dropout belongs, accepts=('dropout', 'concrete_dropout').",
        )
    names = [site.name for site in own]
    for name in sorted({name for name in names if names.count(name) > 1 or name in RESERVED}):
        other = "a head's site" if name in RESERVED else "another site"
        problem = f"The site name {name!r} is also that of {other}; both would draw the same noise."
        yield Problem(problem, "Give every site a name of its own.")
    for site in own:
        for name in sorted(site.accepts - set(edits)):
            guess = nearest(name, edits)
            hint = f" Did you mean {guess!r}?" if guess else ""
            problem = f"Site {site.name!r} accepts {name!r}, which is not an edit.{hint}"
            yield Problem(problem, f"Edits are {', '.join(sorted(edits))}.")


def every_site_acts(case: NetworkCase) -> Iterator[Problem]:
    """Fill one site at a time and check that samples differ from a deterministic pass."""
    edits = site_edits()
    for index, site in enumerate(sites(case.build())):
        for name in sorted(site.accepts & set(edits)):
            try:
                edit = edits[name]()
            except TypeError:  # a user's edit that needs arguments
                continue
            try:
                acts = _acts(case, index, edit)
            except Exception as fault:
                problem = f"Filling site {site.name!r} with {name} makes the pass fail: {one_line(fault)}"
                yield Problem(problem, f"Its width ({site.width}) must be the size of axis 1 of the site's input.")
                continue
            if not acts:
                problem = f"Noise ({name}) at site {site.name!r} never reaches the output."
                yield Problem(problem, "Call the site in the stage's forward: self.site(h); or remove it.")


def _acts(case: NetworkCase, index: int, edit: SiteEdit) -> bool:
    """Return whether any sample with noise at this one site differs from the pass without."""
    model = case.model().eval()
    site = list(sites(model.network))[index]
    batch, rows = batch_of(random_rows(case.inputs, ROWS, 9)), np.arange(ROWS)
    with torch.inference_mode():
        still = logits_of(plain_passes(model, batch, BlockDraws(3), rows, 0))
        site.noise = edit.noise(site).eval()
        noisy = logits_of(plain_passes(model, batch, BlockDraws(3), rows, SAMPLES))
    # relative to the outputs, which are small in an untrained deep network
    return bool((noisy - still.repeat(SAMPLES, 1)).abs().max() > TOLERANCE * still.abs().max())


def sites_name_weights(case: NetworkCase) -> Iterator[Problem]:
    """Check that sites of concrete dropout name the layer behind them, which its penalty needs."""
    edit, network = ConcreteDropoutEdit(), case.build()
    for site in sites(network):
        if name_of(edit) in site.accepts and not _penalises(network, site, edit):
            yield Problem(
                f"Site {site.name!r} accepts concrete_dropout and does not name the weights behind it.",
                "Give the site weights=lambda: (self.linear.weight,), the weights of the layer behind it.",
            )


def _penalises(network: Network, site: Site, edit: ConcreteDropoutEdit) -> bool:
    own = [p for p in network.parameters() if p.requires_grad]
    site.noise = edit.noise(site)
    penalty = cast(Tensor, site.penalty(10))
    site.noise = None
    return any(g is not None and g.any() for g in torch.autograd.grad(penalty, own, allow_unused=True))


# --- batches ----------------------------------------------------------------------------------------------------------


def batch_of(encoded: Encoded, rows: Sequence[int] | range | None = None) -> Batch:
    """Return rows (all by default) as one batch."""
    return collate(encoded, np.array(range(len(encoded)) if rows is None else rows, dtype=np.int64))


def random_rows(inputs: Modality, rows: int, seed: int) -> Encoded:
    """Return random examples; texts all have eight tokens."""
    generator = np.random.default_rng(seed)
    if inputs == "text":
        return texts(np.full(rows, 8), generator)
    return ArrayRows(generator.standard_normal((rows, *SHAPES[inputs])).astype(np.float32))


def of_mixed_length(inputs: Modality, rows: int, seed: int) -> Encoded:
    """Return random examples; texts have one to twelve tokens."""
    generator = np.random.default_rng(seed)
    if inputs == "text":
        return texts(generator.integers(1, 13, rows), generator)
    return random_rows(inputs, rows, seed)


def texts(lengths: NDArray[np.int64], generator: np.random.Generator) -> TokenRows:
    """Return random texts of these lengths, without padding."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    tokens = generator.integers(1, VOCABULARY, int(offsets[-1])).astype(np.int32)
    return TokenRows(tokens, offsets)


def short_and_long(seed: int) -> TokenRows:
    """Return a text of three tokens and one of thirty."""
    return texts(np.array([3, 30]), np.random.default_rng(seed))
