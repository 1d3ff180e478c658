"""Draws from a Laplace approximation, with one scale for plain predictions and one for random views of the examples.

Views add noise of their own, so that less noise in the weights does best beside them (pitfalls paper, Table 3). One fit
serves both ways of predicting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dubio.inference.augmentation import Views
from dubio.inference.drawn_states import DrawnStates, InParts, load_state
from dubio.inference.engine import fixed, shared_body
from dubio.inference.laplace import LaplaceGaussian
from dubio.inference.laplace_blocks import Damping
from dubio.inference.posterior import Rows, Sampled
from dubio.inference.weight_draws import DRAW, FIXED, SEED, WeightDraws, of_distribution, under
from dubio.networks.network import Model

VIEWED = "viewed/"
"""How the stored tensors of draws with the scale for views are named."""


HEAD = ("head.linear.weight", "head.linear.bias")
"""The last layer, where the head is softmax or sigmoid."""


@dataclass(frozen=True, eq=False)
class LaplaceDraws:
    """Equally likely draws from a Laplace approximation.

    Attributes:
        plain: With the scale for predictions without views.
        viewed: The same draws with the scale for predictions with views; None where that was not looked for.
        scale: The scale of ``viewed``.
    """

    plain: WeightDraws
    viewed: WeightDraws | None = None
    scale: float = 1.0

    @property
    def chosen(self) -> WeightDraws:
        """Those that predict."""
        return self.plain if self.plain.views is None or self.viewed is None else self.viewed

    def draw(self, seed: int) -> DrawnStates | InParts | DrawnHeads:
        """Put the model in eval mode; noise will come from this seed, the weights from their own.

        Where only the last layer is random and nothing else is, the network before it is run once for all draws.
        """
        chosen = self.chosen
        alone = chosen.distribution.centre().keys() <= set(HEAD) and not any(chosen.buffers)
        if alone and chosen.views is None and not chosen.samples:
            return DrawnHeads(chosen)
        return chosen.draw(seed)

    def fewer(self, most: int) -> LaplaceDraws:
        """At most so many of the draws."""
        viewed = None if self.viewed is None else self.viewed.fewer(most)
        return replace(self, plain=self.plain.fewer(most), viewed=viewed)

    def tensors(self) -> dict[str, Tensor]:
        """The distribution once, both scales, and the batch-norm statistics of every draw at each."""
        named = self.plain.tensors()
        if self.viewed is not None:
            named[f"{VIEWED}scale"] = torch.tensor(self.scale, dtype=torch.float64)
            for k, buffers in enumerate(self.viewed.buffers):
                named |= {f"{VIEWED}{DRAW}{k}/{name}": tensor for name, tensor in buffers.items()}
        return named

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        model: Model,
        draws: int,
        damping: Damping,
        samples: int,
        views: Views | None = None,
    ) -> LaplaceDraws:
        """The posterior that :meth:`tensors` wrote."""
        gaussian = LaplaceGaussian.from_tensors(of_distribution(tensors), model, damping)
        plain = WeightDraws.from_tensors(tensors, model, gaussian, draws, samples, views)
        if f"{VIEWED}scale" not in tensors:
            return cls(plain)
        scale = float(tensors[f"{VIEWED}scale"])
        buffers = tuple(under(f"{VIEWED}{DRAW}{k}/", tensors) for k in range(draws))
        seed, shared = int(tensors[SEED]), under(FIXED, tensors)
        return cls(plain, WeightDraws(model, gaussian.scaled(scale), seed, shared, buffers, samples, views), scale)


class DrawnHeads:
    """Draws that differ in the last layer alone."""

    def __init__(self, draws: WeightDraws) -> None:
        """Make every draw's last layer, and the model ready with what they share."""
        states = [draws.state(k) for k in range(len(draws.buffers))]
        model, device = draws.model, next(draws.model.parameters()).device
        load_state(model, states[0])
        self._model = fixed(model.eval(), 0)
        self._weights, self._biases = (torch.stack([state[name] for state in states]).to(device) for name in HEAD)
        self.member = (0,) * len(states)

    @torch.inference_mode()
    def predict(self, batch: Any, rows: Rows) -> Sampled:
        """Every draw's logits on a batch."""
        return Sampled(shared_body(self._model, self._weights, self._biases, batch))
