"""What a module does to a few examples, seen before anything is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.types import Target
from dubio.torch_module.dropout import dropouts


@dataclass
class Passed:
    """One pass in evaluation mode.

    Attributes:
        inputs: What came in.
        output: What came out.
        dropped: The shapes that came to each dropout layer, by its path.
        calls: How often each dense layer was used.
        linear: The last output of each dense layer.
        fed: The shape of what came into it.
        largest: Elements of the largest output of any layer.
    """

    inputs: Tensor
    output: Any = None
    dropped: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    linear: dict[str, Tensor] = field(default_factory=dict)
    fed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    largest: int = 1

    @property
    def widens(self) -> int:
        """Elements of the largest layer for each element that comes in."""
        return max(1, self.largest // max(1, self.inputs.numel()))


@torch.no_grad()
def watch(module: nn.Module, batch: Tensor) -> Passed:
    """Pass a batch through a module.

    Raises:
        UserError: When the module fails on it.
    """
    seen = Passed(batch, dropped={path: [] for path in dropouts(module)})

    def hook(path: str) -> Any:
        def see(layer: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            if path in seen.dropped:
                seen.dropped[path].append(tuple(given[0].shape))
            if isinstance(output, Tensor):
                seen.largest = max(seen.largest, output.numel())
            if type(layer) is nn.Linear and given:
                seen.calls[path] += 1
                seen.linear[path], seen.fed[path] = output, tuple(given[0].shape)

        return see

    handles = [layer.register_forward_hook(hook(path)) for path, layer in module.named_modules()]
    try:
        with plain_attention():
            seen.output = module.eval()(batch)
    except (RuntimeError, TypeError, ValueError, IndexError) as fault:
        raise UserError(
            f"network: the module fails on a batch of shape {list(batch.shape)}, {batch.dtype}: "
            f"{type(fault).__name__}: {fault}"
        ) from fault
    finally:
        for handle in handles:
            handle.remove()
    return seen


@contextmanager
def plain_attention() -> Iterator[None]:
    """While this is open, transformer layers call their sub-layers, also in evaluation.

    Their fused kernel reads the weights and passes over dropout layers and whatever else has been put in their place.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def check_logits(module: nn.Module, rows: Tensor, target: Target) -> None:
    """Refuse probabilities in place of logits: their likelihood would be that of other probabilities.

    Raises:
        UserError: When every row of the module's outputs is non-negative and sums to 1, or, where each label counts on
            its own, a sigmoid comes last.
    """
    with torch.enable_grad(), plain_attention():
        output: Tensor = module.eval()(rows)
    values = output.detach()
    if bool((values >= 0).all()) and bool(((values.sum(1) - 1.0).abs() < 1e-4).all()):
        raise UserError(
            "network: the module gives probabilities: all its outputs are at least 0, and those of an example sum to "
            "1. It must give logits, of which the softmax is taken here; leave its own softmax out."
        )
    if target == "multilabel" and type(output.grad_fn).__name__.startswith("SigmoidBackward"):
        raise UserError(
            "network: the module ends with a sigmoid. It must give logits, of which the sigmoid is taken here; leave "
            "its own out."
        )


def classes_of(passes: tuple[Passed, ...]) -> int:
    """K, the logits of an example.

    Raises:
        UserError: When what came out is no ``[batch, K]``.
    """
    for seen in passes:
        given = list(seen.output.shape) if isinstance(seen.output, Tensor) else type(seen.output).__name__
        rows = len(seen.inputs)
        if not isinstance(seen.output, Tensor) or seen.output.ndim != 2 or len(seen.output) != rows:
            raise UserError(f"network: the module must give logits [{rows}, K] for {rows} examples; it gave {given}.")
        if seen.output.shape[1] < 2 or not seen.output.is_floating_point():
            raise UserError(
                "network: the module must give a logit for each of at least 2 classes (two for a yes or no); it gave "
                f"{given}, {seen.output.dtype}."
            )
    return int(passes[0].output.shape[1])
