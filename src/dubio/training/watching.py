"""Inputs and outputs of a model's linear maps, seen while a batch passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.networks.linear_maps import Inputs, LinearMap, WeightMatrix
from dubio.networks.network import Model


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass of a batch through a linear map.

    Attributes:
        module: The module that showed it.
        inputs: What came in: a tensor, or a function of rows.
        outputs: What went out, in the graph.
    """

    module: nn.Module
    inputs: Tensor | Inputs
    outputs: Tensor

    @property
    def everywhere(self) -> bool:
        """Whether every position counts: there is one, or they are those of an image."""
        return isinstance(self.module, nn.Conv2d) or self.outputs.ndim == 2


@contextmanager
def watched(model: Model, layers: Mapping[str, WeightMatrix]) -> Iterator[dict[str, Pass]]:
    """Passes by path, filled in while this is open."""
    seen: dict[str, Pass] = {}

    def hook(path: str) -> Any:
        def see(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor:
            inputs = given[1] if isinstance(module, LinearMap) else given[0].detach()
            seen[path] = Pass(module, inputs, output)
            return output.clone()  # what follows may write into it

        return see

    handles = [model.get_submodule(path).register_forward_hook(hook(path)) for path in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def passed_once(model: Model, layers: Mapping[str, WeightMatrix], batch: Any) -> dict[str, WeightMatrix]:
    """Those of the layers that a batch passes exactly once, example by example, and that its logits depend on.

    A layer that is used twice has two inputs, one that is not called at all shows none. Of one whose outputs do not
    lead with the batch nobody knows which belong to an example. One that nothing comes of, or that is passed without a
    gradient, has no curvature. All of them are left out.
    """
    seen: dict[str, list[Tensor]] = {path: [] for path in layers}

    def hook(path: str) -> Any:
        def see(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor:
            seen[path].append(output)
            return output.clone()  # what follows may write into it

        return see

    handles = [model.get_submodule(path).register_forward_hook(hook(path)) for path in layers]
    try:
        with torch.enable_grad():
            logits: Tensor = model.eval()(batch)
    finally:
        for handle in handles:
            handle.remove()
    rows = len(logits)
    once = {path: outputs[0] for path, outputs in seen.items() if len(outputs) == 1}
    once = {path: output for path, output in once.items() if output.requires_grad and output.shape[0] == rows}
    if not once or not logits.requires_grad:
        return {}
    found = torch.autograd.grad(logits.sum(), list(once.values()), allow_unused=True)
    return {path: layers[path] for path, gradient in zip(once, found, strict=True) if gradient is not None}


def by_position(module: nn.Module, inputs: Tensor | Inputs, rows: slice) -> Tensor:
    """What a linear map multiplies, ``[rows, positions, inputs]``: of a convolution its windows."""
    if not isinstance(inputs, Tensor):
        return inputs(rows).detach()
    part = inputs[rows]
    if isinstance(module, nn.Conv2d):
        assert not isinstance(module.padding, str)  # such a convolution is no plain one
        windows = functional.unfold(part, module.kernel_size, module.dilation, module.padding, module.stride)
        return windows.transpose(1, 2)
    return part.reshape(part.shape[0], -1, part.shape[-1])


def gradients_at(module: nn.Module, gradient: Tensor) -> Tensor:
    """A gradient at a map's outputs (or the outputs themselves) as ``[B, positions, outputs]``."""
    if isinstance(module, nn.Conv2d):
        return gradient.flatten(2).transpose(1, 2)
    return gradient.reshape(gradient.shape[0], -1, gradient.shape[-1])
