"""Pass a few examples through a module and record what happens, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_map

from dubio.core.errors import UserError
from dubio.core.types import Target
from dubio.torch_module.dropout_sites import dropout_layers

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)
"""Layers that normalise what they read."""


@dataclass
class Probe:
    """The record of one pass in evaluation mode.

    Attributes:
        inputs: The batch.
        output: The module's output.
        dropout_shapes: Input shapes of each dropout layer, one per call, by its path.
        linear_calls: Shape of the input and output of each call of a dense layer, by its path.
        largest: Elements of the largest output of any layer.
    """

    inputs: Tensor
    output: Any = None
    dropout_shapes: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    linear_calls: dict[str, list[tuple[tuple[int, ...], Tensor]]] = field(default_factory=dict)
    largest: int = 1

    @property
    def widens(self) -> int:
        """Elements of the largest layer per element of the input."""
        return max(1, self.largest // max(1, self.inputs.numel()))


@torch.no_grad()
def probe(module: nn.Module, batch: Tensor) -> Probe:
    """Pass a batch through a module.

    Raises:
        UserError: When the module fails on it.
    """
    record = Probe(batch, dropout_shapes={path: [] for path in dropout_layers(module)})

    def hook(path: str) -> Any:
        def see(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if path in record.dropout_shapes:
                record.dropout_shapes[path].append(tuple(inputs[0].shape))
            if isinstance(output, Tensor):
                record.largest = max(record.largest, output.numel())
            if type(layer) is nn.Linear and inputs:
                record.linear_calls.setdefault(path, []).append((tuple(inputs[0].shape), output))

        return see

    handles = [layer.register_forward_hook(hook(path)) for path, layer in module.named_modules()]
    try:
        with unfused_attention():
            record.output = module.eval()(batch)
    except (RuntimeError, TypeError, ValueError, IndexError) as fault:
        kind, reason = f"shape {list(batch.shape)}, {batch.dtype}", f"{type(fault).__name__}: {fault}"
        raise UserError(f"network: the module fails on a batch of {kind}: {reason}") from fault
    finally:
        for handle in handles:
            handle.remove()
    return record


@torch.no_grad()
def reading_layers(module: nn.Module, rows: Tensor) -> dict[str, bool] | None:
    """Return the layers that read the inputs and no outputs of other layers, whatever their order in the module.

    In two passes every layer with weights gives random numbers instead of its outputs. A layer whose own inputs are the
    same in both reads no outputs of others. Normalisation is not counted: behind it the inputs are still the inputs.

    Args:
        module: The module; it is not changed.
        rows: A few examples.

    Returns:
        By the path of a layer with weights, whether it reads the inputs whole; None where the module fails on such
        numbers.
    """
    try:
        first, second = (_layer_inputs(module, rows, seed) for seed in (0, 1))
    except (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError):
        return None
    containers = {path for path in first if any(other != path and _is_inside(other, path) for other in first)}
    return {  # in the order of the calls, in which an edit may draw their weights
        path: all(h.numel() == rows.numel() for h in inputs)
        for path, inputs in first.items()
        if path not in containers and _same(inputs, second.get(path, []))
    }


def _layer_inputs(module: nn.Module, rows: Tensor, seed: int) -> dict[str, list[Tensor]]:
    """Return the inputs of each call of a layer with weights, in a pass in which such layers give random numbers."""
    generator, inputs_of = torch.Generator().manual_seed(seed), dict[str, list[Tensor]]()

    def replaced(output: Any) -> Any:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return output
        # positive, so that neither a ReLU nor a logarithm makes two draws the same
        return (0.5 + torch.rand(output.shape, generator=generator)).to(output)

    def hook(path: str) -> Any:
        def see(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
            if inputs and isinstance(inputs[0], Tensor):
                inputs_of.setdefault(path, []).append(inputs[0].clone())
            return None if isinstance(layer, NORMS) else tree_map(replaced, output)

        return see

    layers = [(path, layer) for path, layer in module.named_modules() if _has_weights(layer)]
    handles = [layer.register_forward_hook(hook(path)) for path, layer in layers]
    try:
        with unfused_attention():
            module.eval()(rows)
    finally:
        for handle in handles:
            handle.remove()
    return inputs_of


def _has_weights(layer: nn.Module) -> bool:
    return parametrize.is_parametrized(layer) or any(True for _ in layer.parameters(recurse=False))


def _same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, second, strict=True)
    )


def _is_inside(path: str, container: str) -> bool:
    return path.startswith(f"{container}.") if container else True


def probe_twice(module: nn.Module, rows: Tensor) -> tuple[Probe, Probe]:
    """Probe a module with two numbers of rows, which shows which axis is the batch."""
    three = torch.cat([rows, rows, rows])[:3]
    return probe(module, three), probe(module, three[:2])


@contextmanager
def unfused_attention() -> Iterator[None]:
    """Let transformer layers call their sub-layers in evaluation, too.

    Their fused kernel reads the weights and skips dropout layers and whatever replaces them.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def check_logits(module: nn.Module, rows: Tensor, target: Target) -> None:
    """Refuse a module that gives probabilities: the likelihood of their softmax would be wrong.

    Raises:
        UserError: When every row of the module's outputs is non-negative and sums to 1, or, for multilabel targets, the
            module ends with a sigmoid.
    """
    with torch.enable_grad(), unfused_attention():
        output: Tensor = module.eval()(rows)
    values = output.detach()
    if bool((values >= 0).all()) and bool(((values.sum(1) - 1.0).abs() < 1e-4).all()):
        raise UserError("network: the module gives probabilities; it must give logits: leave its softmax out.")
    if target == "multilabel" and type(output.grad_fn).__name__.startswith("SigmoidBackward"):
        raise UserError("network: the module ends with a sigmoid; it must give logits: leave the sigmoid out.")


def class_count(*probes: Probe) -> int:
    """Return K, the number of logits per example.

    Raises:
        UserError: When the output is not ``[batch, K]``.
    """
    for record in probes:
        output, rows = record.output, len(record.inputs)
        shape = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != rows:
            raise UserError(f"network: the module must give logits [{rows}, K] for {rows} examples; it gave {shape}.")
        if output.shape[1] < 2 or not output.is_floating_point():
            kind = f"{shape}, {output.dtype}"
            raise UserError(f"network: must give a logit for each of at least 2 classes (yes and no); it gave {kind}.")
    return int(probes[0].output.shape[1])
