"""Frozen stages of a pre-trained network: they run once per example, and their outputs are cached.

Their weights are those of the pre-trained encoder, so they are not part of a model's state: they are neither stored
with a fit, nor copied by a collector or passed to an optimiser, and all fits of a process share them. They stay in
evaluation mode, batch-norm included. Each example runs by itself: its cached outputs do not depend on the batch in
which it came first.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from dubio.networks.network import LOOKUPS, Stage

CACHED_BYTES = 1 << 30
"""Largest size of the cached outputs; examples beyond it run again each time."""


@dataclass
class CachedStates:
    """The outputs of an example, the seconds that they took, and the last job that these were counted in."""

    states: Tensor
    seconds: float
    job: int


class FrozenStages:
    """Stages that never change, with a cache of their outputs by example.

    A subclass says how one example becomes the value of the first stage (:meth:`enter`) and the value of the last stage
    its outputs (:meth:`leave`); here, both are tensors with the batch as their first axis.
    """

    def __init__(self, stages: Sequence[nn.Module], limit: int = CACHED_BYTES) -> None:
        """Freeze these stages."""
        self._stages = nn.ModuleList(stages).eval().requires_grad_(False)
        self._limit, self._bytes = limit, 0
        self._cache: dict[bytes, CachedStates] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenStages:
        """Return itself: copies of a network share what never changes, and the cache."""
        return self

    def plain(self) -> nn.Module:
        """Return the stages by themselves."""
        return nn.Sequential(*self._stages)

    def enter(self, example: Tensor) -> Any:
        """Return one example as the value of the first stage, a batch of one."""
        return example[None]

    def leave(self, value: Any) -> Tensor:
        """Return the outputs of the one example in the value of the last stage."""
        return cast(Tensor, value)[0]

    def states(self, example: Tensor) -> Tensor:
        """Return the outputs of one example, on its device."""
        key = _key(example)
        entry = self._cache.get(key)
        if entry is None:
            started = time.perf_counter()
            states = self._run(example)
            entry = CachedStates(states, time.perf_counter() - started, LOOKUPS.job)
            if self._bytes + states.nbytes <= self._limit:
                self._cache[key] = entry
                self._bytes += states.nbytes
        elif entry.job != LOOKUPS.job:
            LOOKUPS.seconds, entry.job = LOOKUPS.seconds + entry.seconds, LOOKUPS.job
        return entry.states.to(example.device)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _run(self, example: Tensor) -> Tensor:
        """Run one example through all stages; as ordinary tensors, since training may use what validation cached."""
        own = example.clone()
        self._stages.to(own.device)
        value = self.enter(own)
        for stage in self._stages:
            value = stage(value)
        return self.leave(value).clone()


class FrozenRows(Stage):
    """The first stage of a network for arrays whose lower part is frozen: no parameters, no sites."""

    remembers = True

    def __init__(self, stages: FrozenStages) -> None:
        """Look outputs up in these stages."""
        super().__init__()
        self._frozen = stages

    def forward(self, batch: Tensor) -> Tensor:
        """Return the outputs of every example."""
        return torch.stack([self._frozen.states(row) for row in batch])

    def traceable(self) -> nn.Module:
        """Return the frozen stages without their cache."""
        return self._frozen.plain()


def _key(example: Tensor) -> bytes:
    """Return what an example is cached under: a hash of its shape and values, which may be a megabyte of pixels."""
    values = example.detach().cpu().contiguous().numpy()
    return hashlib.blake2b(repr(values.shape).encode() + values.tobytes(), digest_size=32).digest()
