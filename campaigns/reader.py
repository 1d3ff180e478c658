"""One kind of file that dubio reads: valid files, how they are damaged, and what reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from random import Random

from campaigns.mutators import Mutator
from campaigns.mutators.raw import any_bytes
from campaigns.seeds import Tree

Action = str | Callable[[Path], object]
"""A command line of dubio, or a function of the case's folder; either reads the damaged file."""


REPAIRED = 0.7
"""Chance that damage is covered up."""


@dataclass(frozen=True)
class Reader:
    """One kind of file that dubio reads.

    Attributes:
        name: Its name.
        trees: Makes the valid files; one of the trees is damaged in a case.
        damaged: Patterns of the files that may be damaged, with the mutator of each.
        actions: Commands (words separated by spaces; OUT is a new file) and functions, one of which a case runs.
        share: How often it is drawn, relative to the others.
        writes: Whether its commands may change the folder beside what they write to OUT.
        repair: Often applied to the files after the damage, as its author could: hashes that are right again.
    """

    name: str
    trees: Callable[[], list[Tree]]
    damaged: tuple[tuple[str, Mutator], ...]
    actions: tuple[Action, ...]
    share: float = 1.0
    writes: bool = False
    repair: Callable[[Tree, str], Tree] | None = None

    def damage(self, rng: Random) -> tuple[Tree, str]:
        """Return the files of a case, and the one that was damaged."""
        tree = dict(rng.choice(self.trees()))
        matching = [
            (pattern, mutator) for pattern, mutator in self.damaged if any(fnmatch(name, pattern) for name in tree)
        ]
        pattern, mutator = rng.choice(matching)
        name = rng.choice([name for name in tree if fnmatch(name, pattern)])
        change = any_bytes if rng.random() < 0.15 else mutator
        tree[name] = change(rng, tree[name])
        if self.repair is not None and rng.random() < REPAIRED:
            before, tree = tree, self.repair(tree, name)
            name = next((path for path in tree if path not in before), name)
        return tree, name


def resealed(mutator: Mutator) -> Mutator:
    """Return a mutator that often gives the damaged record of a store a right seal again, as its author could."""

    def mutate(rng: Random, raw: bytes) -> bytes:
        from dubio.core.errors import DubioError
        from dubio.store.records import seal

        damaged = mutator(rng, raw)
        if rng.random() >= REPAIRED:
            return damaged
        try:
            return seal(json.loads(damaged))
        except (ValueError, TypeError, AttributeError, RecursionError, DubioError):
            return damaged

    return mutate


def chained(mutator: Mutator) -> Mutator:
    """Return a mutator of one frame of a log that gives it, and all after it, right checksums, as its author could."""

    def mutate(rng: Random, raw: bytes) -> bytes:
        payloads = [line[33:] for line in raw.splitlines()]
        index = rng.randrange(len(payloads))
        payloads[index] = mutator(rng, payloads[index])
        previous, lines = b"0" * 32, []
        for payload in payloads:
            previous = sha256(previous + payload).hexdigest()[:32].encode()
            lines.append(previous + b" " + payload + b"\n")
        return b"".join(lines)

    return mutate


def about(path: str, *commands: str) -> tuple[str, ...]:
    """Return commands with a path in the place of the braces."""
    return tuple(command.replace("{}", path) for command in commands)


def once(make: Callable[[], list[Tree]]) -> Callable[[], list[Tree]]:
    """Return a function that makes the trees when it is first called."""
    kept: list[list[Tree]] = []

    def trees() -> list[Tree]:
        if not kept:
            kept.append(make())
        return kept[0]

    return trees
