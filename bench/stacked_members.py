"""Twenty members on one batch: their weights stacked and mapped over, against a loop.

The engine decides by the number of parameters alone (on a CPU it stacks up to 2¹⁸ of them); both ways are timed on
either side of that rule, and their logits compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bench.ensemble_models import CLASSES, images, shaken, small_vgg
from bench.timing import cpu_in_turns, line
from dubio.inference.engine import looped_states, stacked_states, stacks
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Model

MEMBERS = 20


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    body = mlp((30,), hidden=(64, 64))
    table = Model(body, Softmax().build(body.width, CLASSES))
    yield _case("an MLP of 64 × 64", table, torch.randn(32, 30), "above 1, it stacks")
    yield _case("a narrow VGG", small_vgg((8, 16), 8), _batch(8), "above 1, it stacks")
    yield _case("VGG-small", small_vgg(), _batch(32), "below 1, it loops")


def _batch(size: int) -> torch.Tensor:
    return torch.from_numpy(images(32, size).encoded.at(np.arange(32)))


@torch.inference_mode()
def _case(name: str, model: Model, batch: torch.Tensor, aim: str) -> str:
    model.eval()
    states = shaken(model, MEMBERS)
    far = (stacked_states(model, states, batch) - looped_states(model, states, batch)).abs().max()
    ratio = cpu_in_turns(
        lambda: looped_states(model, states, batch), lambda: stacked_states(model, states, batch), rounds=5
    )
    rule = "stacks" if stacks(model, states, torch.device("cpu")) else "loops"
    assert rule in aim
    size = model.parameter_count()
    told = f"{name}, {size:,} parameters, batch {len(batch)}, logits within {far:.0e}; the engine {rule}; CPU seconds"
    return line(f"{MEMBERS} members stacked", ratio, aim, told)
