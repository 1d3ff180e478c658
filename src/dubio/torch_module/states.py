"""Weight states under the names that they have in a user's module."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from dubio.inference.engine import State
from dubio.inference.laplace import LaplaceDraws
from dubio.inference.posterior import Restored
from dubio.inference.samples import WeightSamples
from dubio.inference.weight_draws import WeightDraws
from dubio.networks.network import Model
from dubio.torch_module.wrapping import Whole
from dubio.training.laplace.structures import LAST

BODY = "network.stages.0.module."
"""Where the module is in the model."""

SPREAD = ".log_sigma"
"""What Gaussian weights have beside their means."""


def own_states(part: Restored) -> Iterator[dict[str, Tensor]]:
    """The weight states of one fit."""
    found = part.chosen if isinstance(part, LaplaceDraws) else part
    if isinstance(found, WeightSamples):
        return (own_names(found.model, state) for state in found.states)
    assert isinstance(found, WeightDraws)
    return (own_names(found.model, found.state(k)) for k in range(len(found.buffers)))


def own_names(model: Model, state: State) -> dict[str, Tensor]:
    """A state of the model as one of the module: its last layer back in its place."""
    (whole,) = model.network.stages
    assert isinstance(whole, Whole)
    last = f"{whole.last}." if whole.last else ""
    own = {}
    for name, tensor in state.items():
        if not name.endswith(SPREAD):
            own[name.removeprefix(BODY) if name.startswith(BODY) else last + name.removeprefix(f"{LAST}.")] = tensor
    return own
