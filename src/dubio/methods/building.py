"""From a specification to a model: network, head, filled sites, first weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.registry import NETWORKS
from dubio.core.specs import restore
from dubio.core.types import Modality
from dubio.encoders import Encoding, encoding_of
from dubio.encoders.pretrained import resolve_arguments
from dubio.methods.recipe import Recipe
from dubio.networks.gaussian_weights import GaussianWeights
from dubio.networks.network import Model, Network
from dubio.networks.noise import fill
from dubio.networks.spectral import WeightEdit, fill_weights
from dubio.training.seeds import number


@dataclass(frozen=True)
class NetworkSpec:
    """A network by name and arguments."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def describe(self, inputs: Modality) -> dict[str, Any]:
        """Name, version and every argument with its default filled in.

        Raises:
            UserError: When the network takes inputs of another modality.
        """
        entry = NETWORKS.entry(self.name)
        takes = entry.facts["inputs"]
        if takes != inputs:
            fitting = [other.name for other in NETWORKS.entries() if other.facts["inputs"] == inputs]
            raise UserError(
                f"network {self.name!r} takes {takes} inputs, this task has {inputs} inputs; "
                f"networks for {inputs}: {', '.join(fitting) or '(none)'}."
            )
        full = resolve_arguments(entry, entry.check(self.arguments))
        arguments = {key: list(v) if isinstance(v, tuple) else v for key, v in full.items()}
        return {"name": self.name, "version": entry.facts["version"], "arguments": arguments}

    def encoding(self) -> Encoding:
        """The encoding that the network wants, at its defaults."""
        entry = NETWORKS.entry(self.name)
        return encoding_of(entry, resolve_arguments(entry, entry.check(self.arguments)), {})

    def build(self, shape: tuple[int, ...]) -> Network:
        """The network for inputs of this shape."""
        return cast(Network, NETWORKS.make(self.name, shape, **dict(self.arguments)))


def build_model(spec: Mapping[str, Any], shape: tuple[int, ...]) -> Model:
    """The model a fit specification describes, with its first weights.

    Args:
        spec: A fit specification.
        shape: The shape of an encoded example, from the encoder.
    """
    recipe = cast(Recipe, restore(spec["recipe"]))
    network = NetworkSpec(spec["network"]["name"], spec["network"]["arguments"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number(spec["seed"], spec["member"], "weights"))
        body = network.build(shape)
        model = Model(body, recipe.head.build(body.width, len(spec["task"]["classes"])))
        for edit in recipe.edits:
            if isinstance(edit, WeightEdit):
                fill_weights(model, edit)
            elif isinstance(edit, GaussianWeights):
                edit.put_on(model.network, model.head)
            else:
                fill(model, edit)
    return model


def continue_from(model: Model, state: Mapping[str, Tensor]) -> None:
    """Start a model from another fit's weights; what only the new model has (a drop rate) keeps its first value.

    Raises:
        UserError: When a weight of the earlier fit has no place here.
    """
    own = model.state_dict()
    for name, tensor in state.items():
        if name not in own or own[name].shape != tensor.shape:
            found = tuple(own[name].shape) if name in own else "nothing"
            raise UserError(
                f"start: the earlier fit has {name} of shape {tuple(tensor.shape)}, this recipe's model has {found}."
            )
    model.load_state_dict(dict(state), strict=False)
