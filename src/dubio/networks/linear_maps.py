"""The linear maps of a model: where a weight acts, and its weight and bias as one matrix ``[outputs, inputs + 1]``.

Most are modules, ``nn.Linear`` or ``nn.Conv2d``. A stage that computes a linear map by other means (such as a
convolution over words as sums of products) marks its outputs with a :class:`LinearMap`, whose hooks then see the map's
inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Inputs = Callable[[slice], Tensor]
"""From rows of the batch to the map's inputs ``[rows, positions, inputs]``; computed only on demand."""


class LinearMap(nn.Module):
    """Marks the outputs of a linear map whose weights belong to the surrounding stage; they pass unchanged."""

    def __init__(self, weight: str, bias: str | None, *, outputs: int = 0) -> None:
        """Name the stage's parameters.

        Args:
            weight: Its inputs are all axes but one.
            bias: Of shape ``[outputs]``, or None.
            outputs: The axis of the weight's outputs.
        """
        super().__init__()
        self.weight_name, self.bias_name, self.outputs = weight, bias, outputs

    def forward(self, outputs: Tensor, inputs: Inputs) -> Tensor:
        """Return the outputs ``[batch, positions, outputs]`` as they are."""
        return outputs


@dataclass(frozen=True)
class WeightMatrix:
    """A weight and its bias as one matrix, the bias as the column of an input that is always 1.

    Attributes:
        weight: The weight's name in the model.
        bias: The bias's name, or None.
        shape: The weight's shape.
        outputs: The axis of the outputs in the shape.
    """

    weight: str
    bias: str | None
    shape: tuple[int, ...]
    outputs: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """Rows (outputs) and columns (inputs, and 1 for a bias)."""
        outputs = self.shape[self.outputs]
        return outputs, torch.Size(self.shape).numel() // outputs + (self.bias is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters it is made of."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def gather(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return the matrix of a weight state."""
        flat = state[self.weight].movedim(self.outputs, 0).flatten(1)
        return flat if self.bias is None else torch.cat([flat, state[self.bias][:, None]], dim=1)

    def scatter(self, matrix: Tensor) -> dict[str, Tensor]:
        """Return the parameters of a matrix."""
        flat = matrix if self.bias is None else matrix[:, :-1]
        inputs = [size for axis, size in enumerate(self.shape) if axis != self.outputs]
        weight = flat.reshape(-1, *inputs).movedim(0, self.outputs).contiguous()
        return {self.weight: weight} if self.bias is None else {self.weight: weight, self.bias: matrix[:, -1].clone()}


def linear_maps(model: nn.Module) -> dict[str, WeightMatrix]:
    """Return every trainable linear map of a model, by the path of the module that shows its inputs and outputs.

    Excluded are grouped convolutions, paddings other than zeros, and layers whose weight is frozen or computed from
    another one; a frozen bias is not part of its layer's matrix.
    """
    parameters = dict(model.named_parameters())
    maps = {}
    for path, module in model.named_modules():
        weight, bias, outputs = f"{path}.weight", f"{path}.bias", 0
        if isinstance(module, LinearMap):
            weight, bias = _marked(module, path, parameters)
            outputs = module.outputs
        elif type(module) is not nn.Linear and not _is_plain_convolution(module):
            continue
        if weight in parameters and parameters[weight].requires_grad:
            own = bias if bias in parameters and parameters[bias].requires_grad else None
            maps[path] = WeightMatrix(weight, own, tuple(parameters[weight].shape), outputs)
    return maps


def _is_plain_convolution(module: nn.Module) -> bool:
    if type(module) is not nn.Conv2d:
        return False
    return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)


def _marked(mark: LinearMap, path: str, parameters: Mapping[str, Tensor]) -> tuple[str, str]:
    """Return the parameters' names of a mark: those of the nearest surrounding module that has such a weight."""
    stem = path
    while "." in stem and f"{stem}.{mark.weight_name}" not in parameters:
        stem = stem.rpartition(".")[0]
    return f"{stem}.{mark.weight_name}", f"{stem}.{mark.bias_name}"
