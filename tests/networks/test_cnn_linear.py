"""Convolutions beside coarse pixels: its pixels are those of the linear baseline, its parameters counted by hand."""

import numpy as np
import pytest
import torch

from dubio.core.errors import UserError
from dubio.core.registry import METHODS
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import ArrayRows
from dubio.inference.batches import collate
from dubio.methods.encoding_cache import encode, encoder_of, fitted_encoder
from dubio.methods.estimator import estimator_logits, fit_estimator
from dubio.methods.fitting import no_progress, start_linear
from dubio.methods.logistic_regression import LogisticRegression, features_of
from dubio.methods.specification import NetworkSpec, build_model, encoding_of, fit_spec
from dubio.networks.cnn_linear import PIXEL_SCALE, cnn_linear
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import sites
from dubio.networks.packed import Packed
from dubio.testing import check_network


@pytest.mark.parametrize("size", [16, 28, 64])
def test_the_head_sees_the_pixels_of_the_linear_baseline(size):
    network = cnn_linear((3, size, size), channels=(2, 4)).eval()
    images = np.random.default_rng(0).normal(size=(3, 3, size, size)).astype(np.float32)
    with torch.inference_mode():
        features = network(torch.from_numpy(images)).numpy()
    maps = 4 * 16
    assert features.shape == (3, network.width)
    assert np.allclose(features[:, maps:], PIXEL_SCALE * features_of({}, ArrayRows(images)), atol=1e-5)


def test_parameters_are_those_counted_by_hand():
    network = cnn_linear((3, 64, 64))
    weights = 9 * (3 * 8 + 8 * 16 + 16 * 32) + 2 * (8 + 16 + 32)
    assert network.width == 32 * 16 + 3 * 256
    model = Model(network, Softmax().build(network.width, 2))
    assert model.parameter_count() == weights + 2 * network.width + 2 == 8650


def test_concrete_dropout_acts_on_channels_but_those_of_the_data():
    channels = [site.name for site in sites(cnn_linear((1, 32, 32))) if "concrete_dropout" in site.accepts]
    assert channels == ["conv2", "conv3"]


def test_the_network_conforms():
    assert check_network("cnn-linear", arguments={"channels": [2, 4]}) == []


def test_members_of_a_packed_ensemble_cannot_divide_pixels():
    network = cnn_linear((3, 32, 32), channels=(4, 8))
    model = Model(network, Softmax().build(network.width, 2))
    with pytest.raises(UserError, match=r"packed: .* pixels"):
        Packed(2, 2.0).apply(model)


def task_of(classes: int, absent: int | None = None) -> Task:
    """Random images of as many classes, each brighter in a place of its own; no image is of the class ``absent``."""
    rng = np.random.default_rng(classes)
    splits = []
    for name, kind, size in (("train", "train", 120), ("val", "val", 40), ("test", "id", 30)):
        y = rng.integers(classes, size=size)
        y[y == absent] = 0
        x = rng.normal(128, 40, (size, 32, 32, 3))
        x[np.arange(size), 4 * y, 4 * y] += 90.0
        splits.append(Split.of(name, kind, Examples(x.clip(0, 255).astype(np.uint8), y)))
    names = tuple(f"class {k}" for k in range(classes))
    return Task("places", "image", "multiclass", names, tuple(splits), SourceCard("made up", "1", "none", "none"))


def started(method: str, task: Task, **arguments):
    """Return the model of a method before training, started at the regression, and its encoder."""
    network = NetworkSpec("cnn-linear", {"channels": (2, 4)})
    spec = fit_spec(METHODS.make(method, **arguments), task, network.encoding(), network, seed=0, member=0)
    encoder = fitted_encoder(encoding_of(spec), task.split("train"))
    model = build_model(spec, encoder_of(encoder).shape)
    start_linear(model, encoder, task)
    return model.eval(), encoder


@pytest.mark.parametrize("method", ["deterministic", "mc-dropout", "mean-field-vi", "concrete-dropout"])
@pytest.mark.parametrize(("classes", "absent"), [(2, None), (4, None), (4, 2)])
def test_a_linear_head_starts_as_the_linear_baseline(method, classes, absent):
    task = task_of(classes, absent)
    model, encoder = started(method, task)
    rows = encode(encoder, task.split("test"))
    linear, _ = fit_estimator(LogisticRegression(), encoder, task, task.split("train"), task.split("val"), no_progress)
    with torch.inference_mode():
        logits = model(collate(rows, np.arange(len(rows)))).double()
    present = [k for k in range(classes) if k != absent]
    expected = torch.from_numpy(estimator_logits(LogisticRegression(), linear, rows, "multiclass"))[:, present]
    assert np.allclose(logits[:, present].softmax(1), expected.softmax(1), atol=1e-5)
    if absent is not None:
        assert (logits.softmax(1)[:, absent] < 0.05).all()


@pytest.mark.parametrize(("method", "arguments"), [("heteroscedastic", {}), ("multi-head", {"size": 3})])
def test_other_heads_start_as_they_did(method, arguments):
    task = task_of(2)
    model, _ = started(method, task, **arguments)
    network = NetworkSpec("cnn-linear", {"channels": (2, 4)})
    spec = fit_spec(METHODS.make(method, **arguments), task, network.encoding(), network, seed=0, member=0)
    untouched = build_model(spec, (3, 32, 32)).state_dict()
    assert all(torch.equal(value, untouched[name]) for name, value in model.state_dict().items())
