"""Random streams: one per purpose, from (seed, member).

Member k of seed s is ``SeedSequence([s, k])`` whatever the size of the ensemble, so that an ensemble's first member is
the single model of that seed.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Purpose = Literal["weights", "noise", "order", "prediction", "langevin", "draws", "batches"]

_STREAMS: dict[Purpose, int] = {
    "weights": 0, "noise": 1, "order": 2, "prediction": 3, "langevin": 4, "draws": 5, "batches": 6,
}  # fmt: skip


def stream(seed: int, member: int, purpose: Purpose, *more: int) -> np.random.SeedSequence:
    """Return the seed sequence of one purpose, and of one epoch if ``more`` names it."""
    return np.random.SeedSequence([seed, member], spawn_key=(_STREAMS[purpose], *more))


def number(seed: int, member: int, purpose: Purpose, *more: int) -> int:
    """Return the stream as one 63-bit number, for generators that take a number."""
    return int(stream(seed, member, purpose, *more).generate_state(1, np.uint64)[0] >> np.uint64(1))
