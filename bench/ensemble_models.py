"""Small networks, images and weight states for the benchmarks of ensembles."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dubio.encoders import ArrayRows
from dubio.inference.batches import LabelledRows
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.vgg import vgg_small

CLASSES = 10


def images(rows: int, size: int = 32, seed: int = 0) -> LabelledRows:
    """Noise with a patch whose place tells the class: learnable, and as large as CIFAR's."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, size=rows)
    values = generator.normal(size=(rows, 3, size, size)).astype(np.float32)
    width = size // CLASSES
    for row, label in enumerate(labels):
        values[row, :, :width, label * width : (label + 1) * width] += 3.0
    return LabelledRows(ArrayRows(values), labels, CLASSES)


def small_vgg(channels: tuple[int, ...] = (16, 32, 64, 128), size: int = 32, seed: int = 0) -> Model:
    """VGG-small, or a narrower one."""
    torch.manual_seed(seed)
    body = vgg_small((3, size, size), channels=channels, convolutions=(1, *[2] * (len(channels) - 1)))
    return Model(body, Softmax().build(body.width, CLASSES))


def shaken(model: Model, count: int, scale: float = 0.01) -> list[dict[str, Tensor]]:
    """Weight states around a model's own."""
    generator = torch.Generator().manual_seed(0)
    names = {name for name, _ in model.named_parameters()}
    return [
        {
            name: tensor + scale * torch.randn(tensor.shape, generator=generator) if name in names else tensor.clone()
            for name, tensor in model.state_dict().items()
        }
        for _ in range(count)
    ]
