"""A mixture of posteriors: a deep ensemble of whatever its parts are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dubio.inference.posterior import Drawn, Posterior, Rows, Sampled, concatenated, parts_of


@dataclass(frozen=True, eq=False)
class Mixture:
    """Equally likely parts, each an independent fit."""

    parts: tuple[Posterior, ...]

    def draw(self, seed: int) -> DrawnMixture:
        """Draw every part with a seed of its own."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self.parts), np.uint64)
        return DrawnMixture(tuple(part.draw(int(s)) for part, s in zip(self.parts, seeds, strict=True)))

    def tensors(self) -> dict[str, Tensor]:
        """``<part>:<name>`` → tensor."""
        return {f"{i}:{name}": t for i, part in enumerate(self.parts) for name, t in part.tensors().items()}


class DrawnMixture:
    """A mixture made ready to predict."""

    def __init__(self, parts: tuple[Drawn, ...]) -> None:
        """Predict with every part."""
        self._parts = parts
        self.member = tuple(i for i, part in enumerate(parts) for _ in part.member)

    def parts(self) -> Iterator[Drawn]:
        """The parts of every part."""
        return (piece for part in self._parts for piece in parts_of(part))

    def predict(self, batch: Any, rows: Rows) -> Sampled:
        """The samples of every part, one part after another."""
        return concatenated([part.predict(batch, rows) for part in self._parts])
