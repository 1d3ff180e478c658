"""Helpers of the network tests: hand-counted parameters, plain versions of the networks, seeded layers and inputs."""

from __future__ import annotations

import torch
from torch.nn import functional

from dubio.core.registry import NETWORKS
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model

SMALL = {
    "vgg16-bn": {"base": 8, "dense": 24},
    "vgg-small": {"channels": [8, 12], "convolutions": [1, 2], "dense": 16},
    "preresnet": {"depth": 8},
    "preresnet-164": {"depth": 8},
    "wrn": {"depth": 10, "widen": 1},
    "resnet50": {"base": 8, "blocks": [1, 2]},
}
"""A network of every family that runs in no time."""


def model_of(name, shape=(3, 16, 16), classes=3, seed=0, **arguments):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NETWORKS.make(name, shape, **(arguments or SMALL[name]))
        return Model(network, Softmax().build(network.width, classes))


def lived_in(model, seed=1):
    """The model in eval mode, with batch-norm as it might be after training."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if "norm" in name and tensor.dtype.is_floating_point:
            drawn = torch.rand(tensor.shape, generator=generator)
            tensor.copy_(drawn - 0.5 if name.endswith(("running_mean", "bias")) else drawn + 0.5)
    return model.eval()


def images(rows=4, shape=(3, 16, 16), seed=0):
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(seed))


# -- parameters by hand: of a k×k convolution k²·i·o, of batch-norm 2 a channel, of a dense layer (i + 1)·o


def vgg_parameters(groups, dense, classes, side=32):
    channels = [c for c, many in groups for _ in range(many)]
    convs = sum(9 * i * o + o + 2 * o for i, o in zip([3, *channels], channels, strict=False))
    flat = channels[-1] * (side // 2 ** len(groups)) ** 2
    return convs + (flat + 1) * dense + (dense + 1) * dense + (dense + 1) * classes


def preresnet_parameters(n, block, classes):
    total, inputs = 9 * 3 * 16, 16
    for c in (16, 32, 64):
        for i in range(n):
            out = c if block == "basic" else 4 * c
            basic = 2 * inputs + 9 * inputs * c + 2 * c + 9 * c * c
            bottleneck = 2 * inputs + inputs * c + 2 * c + 9 * c * c + 2 * c + c * out
            total += basic if block == "basic" else bottleneck
            if not i and inputs != out:
                total += inputs * out
            inputs = out
    return total + 2 * inputs + (inputs + 1) * classes


def wrn_parameters(n, k, classes):
    total, inputs = 9 * 3 * 16, 16
    for c in (16 * k, 32 * k, 64 * k):
        for i in range(n):
            total += 2 * inputs + 9 * inputs * c + 2 * c + 9 * c * c
            total += inputs * c if not i and inputs != c else 0
            inputs = c
    return total + 2 * inputs + (inputs + 1) * classes


def resnet50_parameters(classes):
    total, inputs = 49 * 3 * 64 + 2 * 64, 64
    for c, many in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(many):
            total += inputs * c + 2 * c + 9 * c * c + 2 * c + 4 * c * c + 8 * c
            total += 0 if i else inputs * 4 * c + 8 * c
            inputs = 4 * c
    return total + (inputs + 1) * classes


# -- each network written out, from its weights alone


class Weights:
    """The weights of a model by the stage they stand in."""

    def __init__(self, model):
        self.state = model.state_dict()

    def stage(self, number):
        prefix = f"network.stages.{number}."
        return {name.removeprefix(prefix): t for name, t in self.state.items() if name.startswith(prefix)}


def conv(h, w, name, stride=1):
    kernel = w[f"{name}.weight"].shape[-1]
    return functional.conv2d(h, w[f"{name}.weight"], w.get(f"{name}.bias"), stride=stride, padding=kernel // 2)


def norm(h, w, name):
    mean, variance, gain, bias = (
        w[f"{name}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (h - mean) / (variance + 1e-5).sqrt() * gain + bias


def plain_vgg(model, h, poolings):
    weights, stage = Weights(model), 1
    for pool in poolings:
        w = weights.stage(stage)
        h = functional.relu(norm(conv(h, w, "conv"), w, "norm"))
        h = functional.max_pool2d(h, 2) if pool else h
        stage += 1
    h = h.flatten(1)
    for number in (stage + 1, stage + 2):
        w = weights.stage(number)
        h = functional.relu(h @ w["linear.weight"].T + w["linear.bias"])
    return h


def plain_preresnet(model, h, strides, convs):
    weights = Weights(model)
    h = conv(h, weights.stage(1), "conv")
    for number, stride in enumerate(strides):
        w, branch = weights.stage(number + 2), h
        for i in range(convs):
            strided = (convs == 2 and i == 0) or (convs == 3 and i == 1)
            branch = conv(functional.relu(norm(branch, w, f"norms.{i}")), w, f"convs.{i}", stride if strided else 1)
        h = branch + (conv(h, w, "shortcut", stride) if "shortcut.weight" in w else h)
    return functional.relu(norm(h, weights.stage(len(strides) + 2), "norm")).mean((2, 3))


def plain_wrn(model, h, strides):
    weights = Weights(model)
    h = conv(h, weights.stage(1), "conv")
    for number, stride in enumerate(strides):
        w = weights.stage(number + 2)
        active = functional.relu(norm(h, w, "norm1"))
        branch = conv(functional.relu(norm(conv(active, w, "conv1", stride), w, "norm2")), w, "conv2")
        h = branch + (conv(active, w, "shortcut", stride) if "shortcut.weight" in w else h)
    return functional.relu(norm(h, weights.stage(len(strides) + 2), "norm")).mean((2, 3))


def plain_resnet50(model, h, blocks):
    weights = Weights(model)
    w = weights.stage(1)
    h = functional.max_pool2d(functional.relu(norm(conv(h, w, "conv", 2), w, "norm")), 3, stride=2, padding=1)
    strides = [2 if group and not i else 1 for group, many in enumerate(blocks) for i in range(many)]
    for number, stride in enumerate(strides):
        w, branch = weights.stage(number + 2), h
        for i in range(3):
            branch = norm(conv(branch, w, f"convs.{i}", stride if i == 1 else 1), w, f"norms.{i}")
            branch = functional.relu(branch) if i < 2 else branch
        if "shortcut.weight" in w:
            h = norm(conv(h, w, "shortcut", stride), w, "shortcut_norm")
        h = functional.relu(branch + h)
    return h.mean((2, 3))


def seeded(build, seed=0):
    """What ``build`` makes, its first weights drawn from this seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def normals(*shape, seed=1):
    """Standard normal numbers from this seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
