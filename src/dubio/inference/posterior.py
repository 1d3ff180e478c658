"""What a fit leaves behind and how it is drawn from.

A mixture of posteriors: a deep ensemble of whatever its parts are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Rows = NDArray[np.int64]


class Sampled(NamedTuple):
    """What samples of a posterior say of a batch: ``logits [S, B, K]`` and, where there are any, variances.

    ``data_variance [S, B, K]`` is of a heteroscedastic head, ``model_variance [S, B]`` of a GP head.
    """

    logits: Tensor
    data_variance: Tensor | None = None
    model_variance: Tensor | None = None


class Drawn(Protocol):
    """A posterior made ready to predict: weights and buffers final.

    Attributes:
        member: Which independent fit each sample comes from.
    """

    member: tuple[int, ...]

    def predict(self, batch: Any, rows: Rows) -> Sampled:
        """Samples on a batch; ``rows`` are the example indices, from which all noise is drawn."""
        ...


def chunks_of(drawn: Drawn) -> Iterator[Drawn]:
    """A drawn posterior, or the parts in which it offers itself: samples one part after another, in order.

    One whose weights are too many to be held at once has a method ``parts``; each of them is made when its turn comes.
    """
    parts = getattr(drawn, "parts", None)
    return iter((drawn,)) if parts is None else parts()


class Posterior(Protocol):
    """What a method's fit returns."""

    def draw(self, seed: int) -> Drawn:
        """Fix every sample; the same seed gives the same samples."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """All weights and statistics, by name, for the store."""
        ...


class Restored(Posterior, Protocol):
    """What one fit left, read back from the store."""

    def limit(self, most: int) -> Restored:
        """The same posterior with at most so many weight states, the latest; of a single one, so many noise draws."""
        ...


def concatenate(parts: list[Sampled]) -> Sampled:
    """Samples one after another."""
    return Sampled(
        torch.cat([part.logits for part in parts]),
        _all_or_none([part.data_variance for part in parts]),
        _all_or_none([part.model_variance for part in parts]),
    )


def _all_or_none(variances: list[Tensor | None]) -> Tensor | None:
    """Variances one after another, where every part has them."""
    found = [variance for variance in variances if variance is not None]
    return torch.cat(found) if len(found) == len(variances) else None


@dataclass(frozen=True, eq=False)
class Mixture:
    """Equally likely parts, each an independent fit."""

    parts: tuple[Posterior, ...]

    def draw(self, seed: int) -> MixturePredictor:
        """Draw every part with a seed of its own."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self.parts), np.uint64)
        return MixturePredictor(tuple(part.draw(int(s)) for part, s in zip(self.parts, seeds, strict=True)))

    def tensors(self) -> dict[str, Tensor]:
        """``<part>:<name>`` → tensor."""
        return {f"{i}:{name}": t for i, part in enumerate(self.parts) for name, t in part.tensors().items()}


class MixturePredictor:
    """A mixture made ready to predict."""

    def __init__(self, parts: tuple[Drawn, ...]) -> None:
        """Predict with every part."""
        self._parts = parts
        self.member = tuple(i for i, part in enumerate(parts) for _ in part.member)

    def parts(self) -> Iterator[Drawn]:
        """The parts of every part."""
        return (piece for part in self._parts for piece in chunks_of(part))

    def predict(self, batch: Any, rows: Rows) -> Sampled:
        """The samples of every part, one part after another."""
        return concatenate([part.predict(batch, rows) for part in self._parts])
