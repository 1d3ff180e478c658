"""The models of a fit: one a member, each from a module of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.types import Target
from dubio.methods.recipe import Recipe
from dubio.networks.network import Model
from dubio.torch_module.passes import check_logits, classes_of, watch
from dubio.torch_module.wrapping import check_parameters, model_of
from dubio.training.seeds import number

Source = nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class Builder:
    """Makes models.

    Attributes:
        source: A module, which is copied with its weights, or a function that makes one.
        rows: Two or three examples.
        target: What the logits mean.
        seed: Where first weights come from.
    """

    source: Source
    rows: Tensor
    target: Target
    seed: int

    def module(self, member: int) -> nn.Module:
        """A new module with the first weights of a member.

        Raises:
            UserError: When the function makes something else, or a module with parameters that cannot be fitted.
        """
        if isinstance(self.source, nn.Module):
            check_parameters(self.source)
            return deepcopy(self.source).cpu()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number(self.seed, member, "weights"))
            made = self.source()
        if not isinstance(made, nn.Module):
            raise UserError(f"network: the function must make an nn.Module; it made a {type(made).__name__}.")
        check_parameters(made)
        return deepcopy(made).cpu()  # it may be one that somebody else still has

    def model(self, recipe: Recipe, member: int) -> Model:
        """The model of a recipe."""
        module = self.module(member)
        with torch.random.fork_rng(devices=[]):
            return model_of(module, recipe, self.rows, self.target)

    def classes(self) -> int:
        """K, the logits of an example."""
        module = self.module(0)
        with torch.random.fork_rng(devices=[]):
            return classes_of((watch(module, self.rows),))

    def check_outputs(self) -> None:
        """Refuse a module that gives probabilities already.

        Raises:
            UserError: With what it does.
        """
        module = self.module(0)
        with torch.random.fork_rng(devices=[]):
            check_logits(module, self.rows, self.target)


def check_source(source: Source, members: int) -> None:
    """Refuse what no members can be made from.

    Raises:
        UserError: For something that is neither, a function that needs arguments, or one module for several members.
    """
    if isinstance(source, nn.Module):
        if members > 1:
            raise UserError(
                f"network: {members} members need {members} independent first weights, and one module has only its "
                "own; give a function that makes a new one, such as network=lambda: MyModule(...)."
            )
    elif not callable(source):
        raise UserError(f"network: must be an nn.Module, or a function that makes one; given {type(source).__name__}.")
    elif needed := _arguments(source):
        raise UserError(
            f"network: the function is called without arguments, and needs {', '.join(needed)}; give them in one "
            "without, such as network=lambda: MyModule(...)."
        )


def _arguments(source: Callable[..., Any]) -> list[str]:
    """The arguments that a function cannot be called without."""
    try:
        parameters = inspect.signature(source).parameters.values()
    except (ValueError, TypeError):  # some functions written in C do not say
        return []
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in open_ended]
