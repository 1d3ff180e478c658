"""Mutators: functions that damage a valid file, on the level of its format or of its bytes.

Each takes a generator and the bytes of a file, and returns the bytes of another one; the same generator makes the
same file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

Mutator = Callable[[Random, bytes], bytes]


def either(*mutators: Mutator, chances: Sequence[float] | None = None) -> Mutator:
    """Return a mutator that applies one of these.

    Args:
        mutators: The mutators.
        chances: How often each is chosen; equally often where omitted.
    """

    def mutate(rng: Random, raw: bytes) -> bytes:
        return rng.choices(mutators, chances)[0](rng, raw)

    return mutate


def several(mutator: Mutator, most: int = 3) -> Mutator:
    """Return a mutator that applies this one once, often, or a few times."""

    def mutate(rng: Random, raw: bytes) -> bytes:
        for _ in range(rng.choice((1, 1, 2, most))):
            raw = mutator(rng, raw)
        return raw

    return mutate
