"""Noise sites, and the dropout that fills them.

A network names the sites where noise may act; an edit fills those that accept it and never guesses by layer type.
Noise is a pure function of its input and of uniform draws. During training the draws come from an explicit generator;
at prediction the engine *gives* them, one row per example, so that they do not depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Generator, Tensor, nn

from dubio.core.errors import UserError
from dubio.core.specs import added, name_of, part
from dubio.core.validate import NonNegativeFloat, at_least, below, strictly_between

Weights = Callable[[], Iterable[Tensor]]

SMALLEST_UNIFORM = 2.0**-25
"""Below half the spacing of float32 uniforms: keeps logarithms finite and changes no other draw."""


class Noise(nn.Module):
    """Noise at a site: the identity in a deterministic pass, random during training and sampling."""

    def __init__(self, width: int) -> None:
        """Make noise for a site of ``width`` features or channels."""
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
        """Return draws ``[rows, width]``, shaped to act on every position of ``h [rows, width, …]``."""
        if self.given is not None:
            uniforms = self.given.reshape(-1, self.width)
        else:
            uniforms = torch.rand(h.shape[0], self.width, generator=self.generator).to(h.device)
        return uniforms.reshape(*uniforms.shape, *([1] * (h.ndim - 2)))

    def penalty(self, weights: Iterable[Tensor], examples: int) -> Tensor | None:
        """Return the term of this noise in a mean training loss over ``examples``, if it has one."""
        return None

    def rate(self) -> float:
        """Return the probability that an input is dropped."""
        raise NotImplementedError


class Dropout(Noise):
    """Fixed dropout: an input survives with probability 1 − p and is scaled by 1/(1 − p)."""

    def __init__(self, width: int, p: float) -> None:
        """Make dropout with rate p."""
        super().__init__(width)
        self.p = p

    def forward(self, h: Tensor) -> Tensor:
        """Drop features of ``h``."""
        return h * ((self.uniforms(h) >= self.p) * (1.0 / (1.0 - self.p))) if self.active else h

    def dropped(self, shape: Sequence[int]) -> Tensor:
        """Return which of many values are dropped in a training step, each for itself, at p to the nearest 2⁻¹⁶.

        Four values share one 64-bit draw: a float32 uniform for each takes five times as long. A rate other than 0 is
        rounded neither to 0 nor to 1, which has no 16-bit number.
        """
        count = math.prod(shape)
        rate = min(max(round(self.p * 2**16), 1), 2**16 - 1) if self.p else 0
        bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None, generator=self.generator)
        return bits.view(torch.int16)[:count].view(*shape) < rate - 2**15

    def depth(self) -> int:
        """Return how many of the largest values a maximum over survivors may have to look at.

        The largest survivor is the G-th largest value, P(G > g) = p^g; beyond 2⁻²⁴, the resolution of a float32
        uniform, no draw reaches.
        """
        if not self.active or self.p == 0.0:
            return 1
        return math.ceil(-24.0 * math.log(2.0) / math.log(self.p))

    def survivor(self, most: int) -> Tensor:
        """Return the rank (from 0) of the largest survivor, ``[rows, width]``: min(floor(log u / log p), most)."""
        if self.given is None:
            raise RuntimeError("survivor ranks are drawn at prediction only")
        if self.p == 0.0:
            return torch.zeros_like(self.given, dtype=torch.long)
        ranks = torch.log(self.given).mul_(1.0 / math.log(self.p))
        return ranks.clamp_max_(most).to(torch.long)  # ranks are not negative: truncation is the floor

    def rate(self) -> float:
        """Return the fixed p."""
        return self.p


class ConcreteDropout(Noise):
    """Dropout whose rate is learned, by the concrete relaxation (text paper, eq. 4).

    z = σ((logit p + logit u)/τ), output h·(1 − z)/(1 − p).
    """

    def __init__(
        self, width: int, *, start: float, temperature: float, length_scale: float,
        weight_penalty: float | None = None, rate_penalty: float | None = None,
    ) -> None:  # fmt: skip
        """Make concrete dropout that starts at rate ``start``."""
        super().__init__(width)
        self.temperature, self.length_scale = temperature, length_scale
        self.weight_penalty, self.rate_penalty = weight_penalty, rate_penalty
        self.logit = nn.Parameter(torch.tensor(math.log(start / (1.0 - start))))

    def forward(self, h: Tensor) -> Tensor:
        """Softly drop features of ``h``."""
        if not self.active:
            return h
        u = self.uniforms(h).clamp(SMALLEST_UNIFORM, 1.0 - 2.0**-24)
        z = torch.sigmoid((self.logit + torch.logit(u)) / self.temperature)
        return h * ((1.0 - z) / torch.sigmoid(-self.logit))

    def penalty(self, weights: Iterable[Tensor], examples: int) -> Tensor:
        """Return w·‖W‖²/(1 − p) + d·D_in·(p ln p + (1 − p) ln(1 − p)), for a mean cross-entropy.

        w is l²/2N and d is 1/N, N the training examples (Gal, Hron and Kendall 2017), unless they are fixed.
        """
        p, q = torch.sigmoid(self.logit), torch.sigmoid(-self.logit)
        norm = sum(((w * w).sum() for w in weights), start=torch.zeros((), device=p.device))
        entropy = p * nn.functional.logsigmoid(self.logit) + q * nn.functional.logsigmoid(-self.logit)
        w = self.length_scale**2 / (2.0 * examples) if self.weight_penalty is None else self.weight_penalty
        d = 1.0 / examples if self.rate_penalty is None else self.rate_penalty
        return w * norm / q + d * self.width * entropy

    def rate(self) -> float:
        """Return the learned p."""
        return float(torch.sigmoid(self.logit.detach()))


class Site(nn.Module):
    """A named position in a network where noise may act.

    Attributes:
        name: Its name; noise is drawn by it.
        accepts: The edits that may fill it.
        width: Features (or channels).
        spatial: Whether one draw per channel is shared by many positions.
        sets: Rows per example, where a network gives several sets of features: a draw each.
        noise: The noise that fills it, or None.
    """

    def __init__(
        self, name: str, width: int, *, accepts: Iterable[str], weights: Weights | None = None, spatial: bool = False
    ) -> None:
        """Make an empty site.

        Args:
            name: Its name.
            width: Features (or channels).
            accepts: The edits that may fill it.
            weights: Returns the weights of the layer behind the site, for edits whose penalty needs them.
            spatial: Whether one draw per channel is shared by many positions.
        """
        super().__init__()
        self.name, self.width, self.accepts = name, width, frozenset(accepts)
        self.spatial, self.sets = spatial, 1
        self.noise: Noise | None = None
        self._weights = weights

    def forward(self, h: Tensor) -> Tensor:
        """Apply the noise, if there is any."""
        return h if self.noise is None else self.noise(h)

    def penalty(self, examples: int) -> Tensor | None:
        """Return the term of the noise in a mean training loss."""
        if self.noise is None:  # a bounded weight moves its singular vectors when it is read
            return None
        return self.noise.penalty(self._weights() if self._weights else (), examples)


class SiteEdit:
    """An :class:`~dubio.networks.network.Edit` that fills every site which accepts it, most often with dropout."""

    random: ClassVar[bool] = True
    drops_inputs: ClassVar[bool] = True
    sampling_version: ClassVar[int] = 1
    prior_decay: ClassVar[None] = None

    def noise(self, site: Site) -> Noise:
        """Return the noise for one site."""
        raise NotImplementedError

    def apply(self, model: nn.Module) -> None:
        """Fill every site of the model that accepts this edit.

        Raises:
            UserError: When no site accepts it, or one is already filled.
        """
        name = name_of(self)
        accepting = [site for site in sites(model) if name in site.accepts]
        if not accepting:
            accepted = sorted({edit for site in sites(model) for edit in site.accepts})
            raise UserError(f"this network has no site for {name!r}; its sites accept {', '.join(accepted)}.")
        for site in accepting:
            if site.noise is not None:
                raise UserError(f"site {site.name!r} is already filled; two edits cannot share it.")
            site.noise = self.noise(site)


@part("dropout")
@dataclass(frozen=True)
class DropoutEdit(SiteEdit):
    """Fixed dropout at the network's own dropout sites."""

    p: Annotated[float, at_least(0), below(1)] = 0.5

    def noise(self, site: Site) -> Noise:
        """Return dropout with rate p."""
        return Dropout(site.width, self.p)


@part("concrete_dropout")
@dataclass(frozen=True)
class ConcreteDropoutEdit(SiteEdit):
    """Concrete dropout at the inputs of layers, with a learned rate at each.

    Attributes:
        start: The rate to start from.
        length_scale: l of the penalty; l² = 1e-2 by default.
        weight_penalty: Factor of ‖W‖²/(1 − p) instead of l²/2N.
        rate_penalty: Factor of D_in·(p ln p + (1 − p) ln(1 − p)) instead of 1/N.
        dense_temperature: τ where each feature has its own draw.
        spatial_temperature: τ where a channel's draw is shared over positions.
    """

    sampling_version: ClassVar[int] = 2  # word convolutions multiply each distinct word of a text once

    start: Annotated[float, strictly_between(0, 1)] = 0.1
    length_scale: float = 0.1
    dense_temperature: float = 0.1
    spatial_temperature: float = 2.0 / 3.0
    weight_penalty: NonNegativeFloat | None = added(None)  # noqa: RUF009
    rate_penalty: NonNegativeFloat | None = added(None)  # noqa: RUF009

    def noise(self, site: Site) -> Noise:
        """Return concrete dropout with the temperature of this kind of site."""
        temperature = self.spatial_temperature if site.spatial else self.dense_temperature
        return ConcreteDropout(
            site.width, start=self.start, temperature=temperature, length_scale=self.length_scale,
            weight_penalty=self.weight_penalty, rate_penalty=self.rate_penalty,
        )  # fmt: skip


def sites(model: nn.Module) -> Iterator[Site]:
    """Return every site of a model, in the order of its modules."""
    return (module for module in model.modules() if isinstance(module, Site))
