"""Noise sites and the noise that fills them.

A network names the places where noise may act; an edit fills those that accept it and guesses nothing by layer type.
Noise is a pure function of its input and of uniform draws: while training the draws come from an explicit generator,
at prediction they are *given* by the engine, one row an example, so that they never depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor, nn

from dubio.core.errors import UserError
from dubio.core.specs import name_of, part

Weights = Callable[[], Iterable[Tensor]]

SMALLEST_UNIFORM = 2.0**-25
"""Below half the spacing of float32 uniforms: keeps logarithms finite without changing any other draw."""


class Noise(nn.Module):
    """What acts at a site: identity in a deterministic pass, random while training or sampling."""

    def __init__(self, width: int) -> None:
        """Make noise for a site of that many features or channels."""
        super().__init__()
        self.width = width
        self.sampling = False
        self.generator: Generator | None = None
        self.given: Tensor | None = None

    @property
    def active(self) -> bool:
        """Whether the next pass is random here."""
        return self.training or self.sampling

    def uniforms(self, h: Tensor) -> Tensor:
        """Draws ``[rows, width]``, shaped to act on ``h [rows, width, …]`` alike at every position."""
        if self.given is not None:
            drawn = self.given.reshape(-1, self.width)
        else:
            drawn = torch.rand(h.shape[0], self.width, generator=self.generator).to(h.device)
        return drawn.reshape(*drawn.shape, *([1] * (h.ndim - 2)))

    def penalty(self, weights: Iterable[Tensor], examples: int) -> Tensor | None:
        """What this noise adds to a mean training loss over ``examples``, if anything."""
        return None

    def rate(self) -> float:
        """The probability that an input is dropped."""
        raise NotImplementedError


class Dropout(Noise):
    """Fixed dropout: an input survives with probability 1 − p and is scaled by 1/(1 − p)."""

    def __init__(self, width: int, p: float) -> None:
        """Make dropout with rate p."""
        super().__init__(width)
        self.p = p

    def forward(self, h: Tensor) -> Tensor:
        """Drop features of ``h``."""
        if not self.active:
            return h
        return h * ((self.uniforms(h) >= self.p) * (1.0 / (1.0 - self.p)))

    def depth(self) -> int:
        """How many of the largest values a maximum over survivors may have to look at.

        The largest survivor is the G-th largest value, P(G > g) = p^g; beyond 2⁻²⁴, the resolution of a float32
        uniform, no draw reaches.
        """
        if not self.active or self.p == 0.0:
            return 1
        return math.ceil(-24.0 * math.log(2.0) / math.log(self.p))

    def survivor(self, most: int) -> Tensor:
        """Rank (from 0) of the largest survivor, ``[rows, width]``: floor(log u / log p), but at most ``most``."""
        if self.given is None:
            raise RuntimeError("survivor ranks are drawn at prediction only")
        if self.p == 0.0:
            return torch.zeros_like(self.given, dtype=torch.long)
        ranks = torch.log(self.given).mul_(1.0 / math.log(self.p))
        return ranks.clamp_max_(most).to(torch.long)  # ranks are not negative: truncation is the floor

    def rate(self) -> float:
        """The fixed p."""
        return self.p


class ConcreteDropout(Noise):
    """Dropout whose rate is learned, by the concrete relaxation (text paper, eq. 4).

    z = σ((logit p + logit u)/τ), output h·(1 − z)/(1 − p).
    """

    def __init__(self, width: int, *, start: float, temperature: float, length_scale: float) -> None:
        """Make concrete dropout that starts at rate ``start``."""
        super().__init__(width)
        self.temperature = temperature
        self.length_scale = length_scale
        self.logit = nn.Parameter(torch.tensor(math.log(start / (1.0 - start))))

    def forward(self, h: Tensor) -> Tensor:
        """Softly drop features of ``h``."""
        if not self.active:
            return h
        u = self.uniforms(h).clamp(SMALLEST_UNIFORM, 1.0 - 2.0**-24)
        z = torch.sigmoid((self.logit + torch.logit(u)) / self.temperature)
        return h * ((1.0 - z) / torch.sigmoid(-self.logit))

    def penalty(self, weights: Iterable[Tensor], examples: int) -> Tensor:
        """(l²/2N)·‖W‖²/(1 − p) + (D_in/N)·(p ln p + (1 − p) ln(1 − p)), for a mean cross-entropy."""
        p, q = torch.sigmoid(self.logit), torch.sigmoid(-self.logit)
        norm = sum(((w * w).sum() for w in weights), start=torch.zeros((), device=p.device))
        entropy = p * nn.functional.logsigmoid(self.logit) + q * nn.functional.logsigmoid(-self.logit)
        return self.length_scale**2 / (2.0 * examples) * norm / q + self.width / examples * entropy

    def rate(self) -> float:
        """The learned p."""
        return float(torch.sigmoid(self.logit.detach()))


class Site(nn.Module):
    """A named place where noise may act.

    Attributes:
        name: What the report calls it.
        accepts: The edits that may fill it.
        width: Features (or channels) there.
        spatial: Whether a channel is shared by many positions.
        noise: What fills it, or None.
    """

    def __init__(
        self, name: str, width: int, *, accepts: Iterable[str], weights: Weights | None = None, spatial: bool = False
    ) -> None:
        """Name a site.

        Args:
            name: Its name.
            width: Features (or channels) there.
            accepts: The edits that may fill it.
            weights: Gives the weights of the layer that the noise feeds, for edits whose penalty needs them.
            spatial: Whether one draw a channel is shared by many positions.
        """
        super().__init__()
        self.name = name
        self.width = width
        self.accepts = frozenset(accepts)
        self.spatial = spatial
        self.noise: Noise | None = None
        self._weights = weights

    def forward(self, h: Tensor) -> Tensor:
        """Let the noise, if any, act."""
        return h if self.noise is None else self.noise(h)

    def penalty(self, examples: int) -> Tensor | None:
        """What the noise here adds to a mean training loss."""
        if self.noise is None:
            return None
        return self.noise.penalty(self._weights() if self._weights else (), examples)


class Edit(Protocol):
    """Fills the sites of a model that accept it."""

    def noise(self, site: Site) -> Noise:
        """The noise for one site."""
        ...


@part("dropout")
@dataclass(frozen=True)
class DropoutEdit:
    """Fixed dropout at the network's own dropout sites."""

    p: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.p < 1.0:
            raise UserError(f"dropout: p must be at least 0 and less than 1; given {self.p}.")

    def noise(self, site: Site) -> Noise:
        """Dropout of the same rate everywhere."""
        return Dropout(site.width, self.p)


@part("concrete_dropout")
@dataclass(frozen=True)
class ConcreteDropoutEdit:
    """Concrete dropout at the inputs of layers; a rate learned at each.

    Attributes:
        start: The rate to start from.
        length_scale: l of the penalty; l² = 1e-2 by default.
        dense_temperature: τ where each feature has its own draw.
        spatial_temperature: τ where a channel's draw is shared over positions.
    """

    start: float = 0.1
    length_scale: float = 0.1
    dense_temperature: float = 0.1
    spatial_temperature: float = 2.0 / 3.0

    def __post_init__(self) -> None:
        if not 0.0 < self.start < 1.0:
            raise UserError(f"concrete_dropout: start must lie between 0 and 1; given {self.start}.")

    def noise(self, site: Site) -> Noise:
        """Concrete dropout with the temperature for this sort of site."""
        temperature = self.spatial_temperature if site.spatial else self.dense_temperature
        return ConcreteDropout(site.width, start=self.start, temperature=temperature, length_scale=self.length_scale)


def sites(model: nn.Module) -> Iterator[Site]:
    """Every site of a model, in the order of its modules."""
    return (module for module in model.modules() if isinstance(module, Site))


def fill(model: nn.Module, edit: Edit) -> None:
    """Fill every site of the model that accepts this edit.

    Raises:
        UserError: When no site accepts it, or one is already filled.
    """
    name = name_of(edit)
    wanted = [site for site in sites(model) if name in site.accepts]
    if not wanted:
        offered = sorted({accepted for site in sites(model) for accepted in site.accepts})
        raise UserError(f"this network has no site for {name!r}; its sites accept {', '.join(offered)}.")
    for site in wanted:
        if site.noise is not None:
            raise UserError(f"site {site.name!r} is already filled; two edits cannot share it.")
        site.noise = edit.noise(site)
