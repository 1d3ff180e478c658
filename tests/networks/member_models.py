"""Models for the tests of ensembles inside one network: one of every family, and a batch for it."""

from __future__ import annotations

import torch

from dubio.core.registry import NETWORKS
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model, TokenBatch

CLASSES = 3
SHAPES = {"table": (10,), "image": (3, 16, 16), "text": (40,)}
FAMILIES = {
    "mlp": {"hidden": [8, 8]},
    "cnn": {"channels": [4, 8], "dense": 8},
    "textcnn": {"embedding": 8, "maps": 4},
    "vgg-small": {"channels": [8, 16], "convolutions": [1, 2], "dense": 16},
    "preresnet": {"depth": 8},
    "wrn": {"depth": 10, "widen": 1},
    "resnet50": {"base": 8, "blocks": [1, 2]},
    "vgg-retina": {"base": 4, "groups": 2},
}
"""A network of every family that runs in no time."""

IMAGES = [name for name in FAMILIES if name not in ("mlp", "textcnn")]


def model_of(name, *, seed=0, edit=None, classes=CLASSES, **arguments):
    """The model of a family with its first weights, edited."""
    inputs = NETWORKS.entry(name).facts["inputs"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NETWORKS.make(name, SHAPES[inputs], **{**FAMILIES.get(name, {}), **arguments})
        model = Model(network, Softmax().build(network.width, classes))
        if edit is not None:
            edit.apply(model)
    return model


def batch_of(name, rows=5, seed=0):
    """A batch of inputs for a family."""
    inputs, generator = NETWORKS.entry(name).facts["inputs"], torch.Generator().manual_seed(seed)
    if inputs != "text":
        return torch.randn(rows, *SHAPES[inputs], generator=generator)
    lengths = torch.randint(1, 9, (rows,), generator=generator)
    places = torch.randint(1, 40, (rows, 9), generator=generator) * (torch.arange(9) < lengths[:, None])
    return TokenBatch(torch.arange(40), places, lengths)


def logits_of(model, batch, rows=5):
    """The logits ``[members, rows, classes]``."""
    with torch.no_grad():
        return model.by_sample(model.eval()(batch), rows)
