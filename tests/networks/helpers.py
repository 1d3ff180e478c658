"""Helpers of the network tests: small networks, hand-counted parameters, plain versions, seeded layers, a tiny BERT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.registry import NETWORKS
from dubio.encoders import ArrayRows
from dubio.inference.batches import LabelledRows
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Dense, Model, Network, Stage
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit

SMALL = {
    "vgg16-bn": {"base": 8, "dense": 24},
    "vgg-small": {"channels": [8, 12], "convolutions": [1, 2], "dense": 16},
    "preresnet": {"depth": 8},
    "preresnet-164": {"depth": 8},
    "wrn": {"depth": 10, "widen": 1},
    "resnet50": {"base": 8, "blocks": [1, 2]},
}
"""A network of every family that runs in no time."""


def image_model(name, shape=(3, 16, 16), classes=3, seed=0, **arguments):
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


def image_batch(rows=4, shape=(3, 16, 16), seed=0):
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


SETS, CLASSES, WIDTH, FEATURES = 3, 4, 6, 5
CPU = torch.device("cpu")


class Fork(Stage):
    """One linear layer per set: features ``[B, D]`` to ``[B, sets, width]``."""

    def __init__(self, inputs: int, width: int, sets: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(inputs, width) for _ in range(sets))

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(torch.stack([branch(h) for branch in self.branches], dim=1))


def forked(head=None, edits=(), seed=0, sets=SETS):
    """A model whose sets are branches behind one dense layer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        stages = [Dense("dense", FEATURES, 8, accepts=("dropout", "concrete_dropout")), Fork(8, WIDTH, sets)]
        model = Model(Network(stages, WIDTH, sets=sets), (head or Softmax()).build(WIDTH, CLASSES))
    for edit in edits:
        edit.apply(model)
    return model.eval()


def branch_of(model, index, head=None):
    """An ordinary model of one branch, with the same weights."""
    dense, fork = model.network.stages
    branch = Fork(8, WIDTH, 1)
    branch.branches[0] = fork.branches[index]
    single = Model(Network([dense, branch], WIDTH, sets=1), model.head)
    single.network.stages.append(nn.Flatten())
    return single.eval()


def fork_inputs(rows=7, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, FEATURES)).astype(np.float32))


def fork_examples(multilabel=False, rows=40):
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, (rows, CLASSES)) if multilabel else rng.integers(0, CLASSES, rows)
    return LabelledRows(ArrayRows(fork_inputs(rows).numpy()), labels.astype(np.int64), CLASSES)


IMAGE_ROWS = np.array([0, 5, 130, 900])
"""In several blocks of draws."""


DROPOUT_EDITS = {"dropout": DropoutEdit(0.3), "concrete_dropout": ConcreteDropoutEdit()}


def image_logits(way, model, samples=4, batch=None):
    with torch.inference_mode():
        chunks = way(model, image_batch() if batch is None else batch, BlockDraws(7), IMAGE_ROWS, samples)
    return chunks.logits.flatten(0, 1)


def nearly_equal(found, wanted):
    return torch.allclose(found, wanted, rtol=1e-5, atol=1e-5 * max(1.0, float(wanted.abs().max())))


def runs_of_convolutions(model):
    """How often each convolution runs, counted as passes are made."""
    runs = {name: 0 for name, m in model.named_modules() if isinstance(m, nn.Conv2d)}

    def counter(name):
        def count(*_):
            runs[name] += 1

        return count

    for name in runs:
        model.get_submodule(name).register_forward_hook(counter(name))
    return runs


SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("un", "##believ", "##able", "hello", "there", "!", "a", "b", "c", "cat", "##s", "dog", "on", "the", "mat", ",")
MADE_UP = tuple(f"{name}{i}" for name in ("one", "two", "three") for i in range(6))
VOCABULARY = (*SPECIAL, *WORDS, *MADE_UP, "word")
POSITIONS = 256


def save_bert(folder: Path, *, seed: int = 0, layers: int = 2, pooler: bool = True, tokeniser: bool = True) -> Path:
    """Write a BERT of two blocks and 32 features with random weights, in the files that transformers writes."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=POSITIONS,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertModel(config, add_pooling_layer=pooler)
        for tensor in model.parameters():  # larger than BERT's own first weights, so that texts differ in the end
            if tensor.ndim == 2:
                torch.nn.init.normal_(tensor, std=0.2)
    model.save_pretrained(folder, safe_serialization=True)
    if tokeniser:
        cut = BertWordPieceTokenizer({word: index for index, word in enumerate(VOCABULARY)})
        cut.save(str(folder / "tokenizer.json"))
    else:
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return folder


CIFAR = (3, 32, 32)


def assert_parameters(name, arguments, shape, classes, by_hand, published):
    """Compare a network's count of parameters with that by hand and with the published one, where there is one."""
    with torch.device("meta"):  # nothing is drawn: 36 million numbers would take a while
        count = image_model(name, shape, classes, **arguments).parameter_count()
    assert count == by_hand
    assert published is None or count == published


def assert_function(name, arguments, plain):
    """Compare a network's deterministic pass with the plain version of it."""
    model, batch = lived_in(image_model(name, **arguments)), image_batch()
    with torch.inference_mode():
        outputs, expected = model.network(batch), plain(model, batch)
    assert expected.std() > 1e-3
    assert torch.allclose(outputs, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def save_efficientnet(path: Path, seed: int = 0) -> Path:
    """Save EfficientNet-Lite0 with random weights and the batch statistics of random images, as its package does."""
    from dubio.networks.efficientnet_lite import PUBLISHED, PUBLISHED_BLOCK, PUBLISHED_LAST, random_stages

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        stages = [lived_in(stage).train() for stage in random_stages()]
        for norm in (module for stage in stages for module in stage.modules() if isinstance(module, nn.BatchNorm2d)):
            norm.momentum = 1.0
        with torch.no_grad():
            nn.Sequential(*stages)(2 * torch.rand(16, 3, 32, 32) - 1)
    tensors = {}
    for index, stage in enumerate(stages):
        block = 0 < index < len(stages) - 1
        names = PUBLISHED_BLOCK if block else PUBLISHED_LAST if index else PUBLISHED
        for key, tensor in stage.state_dict().items():
            layer, _, kind = key.partition(".")
            tensors[f"_blocks.{index - 1}." * block + f"{names[layer]}.{kind}"] = tensor
    tensors |= {"_fc.weight": torch.zeros(1000, 1280), "_fc.bias": torch.zeros(1000)}
    torch.save(tensors, path, _use_new_zipfile_serialization=False)
    return path
