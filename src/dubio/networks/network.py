"""A network is an ordered list of stages that pass one value, and names its noise sites.

The value between stages is a tensor whose first axis is the batch, or a NamedTuple with the methods of
:class:`Carried`. A network has no head; :class:`Model` puts one at its end. What a stage must offer beyond
``forward`` is said by its attributes alone, so that the engine can run the stages before the first active site once
and only the rest S times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dubio.networks.gaussian_weights import GaussianLayer, gaussian_layers
from dubio.networks.noise import Noise, Site, sites


class Carried(Protocol):
    """What a value between stages that is not a tensor must offer."""

    def repeat(self, times: int) -> Any:
        """The same batch again and again, sample by sample."""
        ...

    def footprint(self) -> int:
        """Elements that one repetition adds to what is held at once."""
        ...


class Network(nn.Module):
    """Stages without a head.

    Attributes:
        stages: In the order in which they run.
        width: Features that come out, ``[batch, width]``.
        before_head: The edits that may act before the head, or None for all that the head accepts.
    """

    def __init__(self, stages: Sequence[nn.Module], width: int, *, before_head: Iterable[str] | None = None) -> None:
        """Put stages in a row.

        Args:
            stages: The stages. One whose class has ``broadcasts = True`` takes an unrepeated batch and given noise for
                several samples, and repeats by itself; one with ``batched_over_weights = False`` uses operations that
                cannot be mapped over a stack of weights; one with ``bounds`` names the layers whose weight an edit such
                as spectral normalisation may bound, one with ``uncertain`` those whose weights may be Gaussian (those
                of ``bounds`` where it has none); one with ``widens`` makes so many elements of each that comes in,
                where that is far from one; a first one with a method ``prepared`` offers other stages for weights
                that no longer change (see :func:`dubio.inference.engine.fixed`).
            width: Features that come out.
            before_head: The edits that may fill the head's own sites, where the published network has none there.
        """
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.width = width
        self.before_head = None if before_head is None else frozenset(before_head)

    def forward(self, value: Any) -> Any:
        """Run every stage."""
        for stage in self.stages:
            value = stage(value)
        return value


class Model(nn.Module):
    """A network with a head at its end."""

    head: Any  # a dubio.networks.heads.head.HeadModule; heads stand on networks, so its type is not known here

    def __init__(self, network: Network, head: nn.Module) -> None:
        """Join a network and a head module; the head's sites accept no more than the network says."""
        super().__init__()
        self.network = network
        self.head = head
        if network.before_head is not None:
            for site in sites(head):
                site.accepts &= network.before_head

    @property
    def steps(self) -> list[nn.Module]:
        """The stages and, last, the head."""
        return [*self.network.stages, self.head]

    def forward(self, value: Any) -> Any:
        """The head's output on a batch."""
        return self.head(self.network(value))

    def sites(self) -> list[Site]:
        """Every noise site, the head's included."""
        return list(sites(self))

    def noises(self) -> list[Noise]:
        """The noise in filled sites."""
        return [site.noise for site in self.sites() if site.noise is not None]

    def rates(self) -> dict[str, float]:
        """Drop rate by site name, of the filled sites."""
        return {site.name: site.noise.rate() for site in self.sites() if site.noise is not None}

    def gaussians(self) -> list[GaussianLayer]:
        """The layers with Gaussian weights, the head's included."""
        return gaussian_layers(self)

    def penalty(self, examples: int, progress: float = 1.0) -> Tensor:
        """Sum of what noise adds to a mean loss over that many examples when ``progress`` of all steps are done."""
        parts = [found for site in self.sites() if (found := site.penalty(examples)) is not None]
        parts += [layer.penalty(examples, progress) for layer in self.gaussians()]
        return torch.stack(parts).sum() if parts else torch.zeros(())

    def parameter_count(self) -> int:
        """Trainable parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


class Dense(nn.Module):
    """A site, a linear layer and a ReLU."""

    bounds = ("linear",)

    def __init__(self, name: str, inputs: int, outputs: int, *, accepts: Iterable[str]) -> None:
        """Make a layer whose inputs are the site ``name``."""
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.site = Site(name, inputs, accepts=accepts, weights=lambda: (self.linear.weight,))

    def forward(self, h: Tensor) -> Tensor:
        """relu(W·noise(h) + b)."""
        return torch.relu(self.linear(self.site(h)))
