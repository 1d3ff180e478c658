"""The part of an encoder that is not trained: run once a text, and remembered.

Its weights are those of the pre-trained encoder, so it is no part of a model's state: nothing of it is stored with a
fit, copied by a collector or given to an optimiser, and every fit of a process shares it. Each text is run by itself,
without padding: what is remembered never depends on the batch it was first met in.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from dubio.networks.transformer import Hidden, Pieces

REMEMBERED_BYTES = 1 << 30
"""States kept at most; texts beyond that are run again each time."""


class FrozenStages:
    """Stages that never change, and the states they gave for the texts met so far."""

    def __init__(self, stages: Sequence[nn.Module], limit: int = REMEMBERED_BYTES) -> None:
        """Freeze these stages."""
        self._stages = nn.ModuleList(stages).eval().requires_grad_(False)
        self._limit = limit
        self._bytes = 0
        self._known: dict[bytes, Tensor] = {}

    def states(self, pieces: Tensor) -> Tensor:
        """Hidden states ``[L, H]`` of one text of these piece ids ``[L]``, on their device."""
        key = pieces.cpu().numpy().tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._run(pieces)
            if self._bytes + found.numel() * found.element_size() <= self._limit:
                self._known[key] = found
                self._bytes += found.numel() * found.element_size()
        return found.to(pieces.device)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _run(self, pieces: Tensor) -> Tensor:
        """One text through all stages; as an ordinary tensor, since training may use what validation met first."""
        own = pieces.clone()
        self._stages.to(own.device)
        length = torch.tensor([len(own)], device=own.device)
        value: Pieces | Hidden = Pieces(own, torch.arange(len(own), device=own.device)[None], length)
        for stage in self._stages:
            value = stage(value)
        assert isinstance(value, Hidden)
        return value.states[0].clone()


class Frozen(nn.Module):
    """The first stage of a network whose lower part is frozen: no parameters, no sites."""

    def __init__(self, stages: FrozenStages) -> None:
        """Look states up in these stages."""
        super().__init__()
        self._frozen = stages

    def forward(self, batch: Pieces) -> Hidden:
        """States of every text, padded with zeros to the longest."""
        ids = batch.distinct[batch.places]
        rows = [self._frozen.states(row[:length]) for row, length in zip(ids, batch.lengths.tolist(), strict=True)]
        return Hidden(pad_sequence(rows, batch_first=True), batch.lengths)
