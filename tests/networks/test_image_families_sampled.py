"""The image networks under the engine: shared prefixes, Gaussian weights, stacked states, folded batch-norm, fits."""

import numpy as np
import pytest
import torch
from torch import nn

from dubio.core.registry import METHODS
from dubio.core.types import Examples, SourceCard, Split, Task
from dubio.encoders import encoding_for
from dubio.inference.augmentation import ShiftFlip, Views
from dubio.inference.engine import fixed, looped_states, plain_passes, repeat, shared_prefix, stacked_states
from dubio.inference.samples import WeightSamples, state_of
from dubio.methods import FitContext, NetworkSpec, fit, fit_spec, pred_spec
from dubio.networks.draws import BlockDraws
from dubio.networks.gaussian_weights import GaussianWeights
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit, sites
from dubio.networks.spectral import SpectralBound, SpectralNorm
from tests.methods.helpers import predict
from tests.networks.helpers import SMALL, images, lived_in, model_of

ROWS = np.array([0, 5, 130, 900])
"""In several blocks of draws."""

EDITS = {"dropout": DropoutEdit(0.3), "concrete_dropout": ConcreteDropoutEdit()}


def logits(way, model, samples=4, batch=None):
    with torch.inference_mode():
        chunks = way(model, images() if batch is None else batch, BlockDraws(7), ROWS, samples)
    return chunks.logits.flatten(0, 1)


def close(found, wanted):
    return torch.allclose(found, wanted, rtol=1e-5, atol=1e-5 * max(1.0, float(wanted.abs().max())))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("edit", EDITS)
def test_samples_are_those_of_whole_passes(name, edit):
    model = lived_in(model_of(name))
    EDITS[edit].apply(model)
    found = logits(shared_prefix, model.eval())
    assert close(found, logits(plain_passes, model))
    assert found.reshape(4, 4, 3).std(0).min() > 1e-6
    assert close(logits(shared_prefix, fixed(model, 4)), found)


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


@pytest.mark.parametrize("name", ["vgg16-bn", "vgg-small", "preresnet", "resnet50"])
def test_under_dropout_all_convolutions_run_once_for_all_samples(name):
    model = lived_in(model_of(name))
    EDITS["dropout"].apply(model)
    runs = runs_of_convolutions(model.eval())
    logits(shared_prefix, model, samples=6)
    assert set(runs.values()) == {1}


def test_dropout_inside_blocks_masks_single_units_and_leaves_the_first_convolution_shared():
    model = lived_in(model_of("wrn"))
    EDITS["dropout"].apply(model)
    runs = runs_of_convolutions(model.eval())
    logits(shared_prefix, model, samples=6)
    assert runs["network.stages.1.conv"] == 1
    block, seen = model.network.stages[2], []
    block.conv2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    block.norm2.register_forward_hook(lambda _, __, out: seen.append(torch.relu(out.detach())))
    logits(plain_passes, model, samples=1)
    before, after = seen
    ratio = after[before > 0] / before[before > 0]
    dropped = ratio == 0
    assert torch.allclose(ratio[~dropped], torch.tensor(1 / 0.7), rtol=1e-5)
    assert float(dropped.float().mean()) == pytest.approx(0.3, abs=0.02)
    alive, lost = (before > 0).sum((2, 3)), ((after == 0) & (before > 0)).sum((2, 3))
    assert (lost / alive)[alive > 50].max() < 0.6  # no channel is dropped as a whole


def test_repeated_images_keep_their_order_in_memory():
    h = images().contiguous(memory_format=torch.channels_last)
    assert repeat(h, 3).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(repeat(h, 3), h.repeat(3, 1, 1, 1))


@pytest.mark.parametrize("name", SMALL)
def test_gaussian_weights_cover_all_convolutions_and_dense_layers_and_nothing_else(name):
    model = lived_in(model_of(name))
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    weights, before = sum(m.weight.numel() for m in layers), model.parameter_count()
    GaussianWeights(log_sigma=-3.0).apply(model)
    assert model.gaussians() == layers
    assert model.parameter_count() == before + weights
    found = logits(shared_prefix, model.eval(), samples=3)
    assert close(found, logits(plain_passes, model, samples=3))
    assert found.reshape(3, 4, 3).std(0).min() > 1e-6


@pytest.mark.parametrize("name", SMALL)
def test_spectral_bounds_cover_all_convolutions_and_hidden_layers(name):
    model = model_of(name)
    layers = [m for m in model.network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    SpectralNorm(0.5).apply(model)
    assert sum(isinstance(m, SpectralBound) for m in model.modules()) == len(layers)
    for layer in layers:
        assert torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2) < 0.53  # by power iteration


@pytest.mark.parametrize("name", SMALL)
def test_stacked_states_with_batch_norm_are_those_of_a_loop(name):
    model = lived_in(model_of(name))
    states = [state_of(lived_in(model_of(name, seed=seed), seed=seed + 5)) for seed in range(3)]
    with torch.inference_mode():
        assert close(stacked_states(model, states, images()), looped_states(model, states, images()))


@pytest.mark.parametrize("name", ["vgg16-bn", "vgg-small"])
def test_batch_norm_is_folded_for_fixed_weights_and_changes_nothing(name):
    model = lived_in(model_of(name))
    ready = fixed(model, samples=0)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in ready.modules())
    kinds = [type(stage).__name__.removeprefix("Folded") for stage in ready.network.stages]
    assert kinds == [type(stage).__name__ for stage in model.network.stages]
    with torch.inference_mode():
        assert close(ready(images()), model(images()))
    assert fixed(model, samples=0, limit=10) is model


def test_stages_in_which_noise_will_act_are_not_folded():
    model = lived_in(model_of("vgg-small"))
    first, *_ = (site for site in sites(model) if site.name == "conv2-1")
    first.noise = EDITS["concrete_dropout"].noise(first)
    ready = fixed(model.eval(), samples=3)
    kinds = [type(stage).__name__ for stage in ready.network.stages]
    assert kinds[:4] == ["Pixels", "FoldedConvNorm", "ConvNorm", "ConvNorm"]


@pytest.mark.parametrize("name", ["vgg-small", "resnet50"])
def test_snapshots_predict_alike_with_folded_batch_norm(name):
    model = model_of(name)
    states = tuple(state_of(lived_in(model_of(name, seed=seed), seed=seed)) for seed in range(3))
    drawn = WeightSamples(model, states).draw(0)
    with torch.inference_mode():
        wanted = looped_states(model, states, images())
    assert close(drawn.predict(images(), ROWS).logits, wanted)


def test_views_of_folded_networks_are_those_of_the_plain_ones():
    model = lived_in(model_of("vgg-small"))
    views = Views(ShiftFlip(4, 0.5), 3)
    found = WeightSamples(model, (state_of(model),), 0, views).draw(5).predict(images(), ROWS).logits
    for index, logits_of_view in enumerate(found):
        uniforms = BlockDraws(5).rows("view", "uniform", 3, range(index, index + 1), ROWS)[0]
        with torch.inference_mode():
            assert close(logits_of_view, model(views.augmentation.apply(images(), uniforms)))


@pytest.mark.parametrize("name", SMALL)
def test_examples_can_be_mapped_over(name):
    model = lived_in(model_of(name))
    with torch.inference_mode():
        assert close(torch.vmap(lambda one: model(one[None])[0])(images()), model(images()))


def tiny_task():
    """Images whose class is the colour that stands out."""
    generator = np.random.default_rng(0)
    labels = np.arange(40) % 3
    pixels = generator.integers(0, 120, (40, 16, 16, 3)) + 120 * np.eye(3, dtype=np.int64)[labels][:, None, None, :]
    inputs = pixels.astype(np.uint8)
    cuts = {"train": slice(0, 16), "val": slice(16, 28), "id": slice(28, 40)}
    splits = tuple(Split.of(kind, kind, Examples(inputs[cut], labels[cut])) for kind, cut in cuts.items())
    return Task("colours", "image", "multiclass", ("r", "g", "b"), splits, SourceCard("made here", "1", "none", "none"))


def fitted(name, arguments, task, method="mc-dropout", **options):
    recipe = METHODS.make(method, **options)
    network = NetworkSpec(name, arguments)
    spec = fit_spec(recipe, task, encoding_for("image", {}), network, seed=0, member=0, start_id=None)
    done = fit(spec, task, FitContext())
    asked = pred_spec(recipe, "f", seed=0, member=0)
    return done, predict(spec, asked, done.tensors, done.encoder, task.of_kind("id")[0])


@pytest.mark.parametrize("name", SMALL)
def test_an_epoch_moves_weights_and_batch_norm_and_samples_come_out(name):
    options = {"epochs": 1, "batch": 8, "samples": 3, "shift": 2, "flip": 0.5}
    done, found = fitted(name, SMALL[name], tiny_task(), **options)
    assert found.logits.shape == (3, 12, 3)
    assert np.isfinite(found.logits).all()
    assert np.ptp(found.logits, axis=0).max() > 0
    counts = {int(t) for key, t in done.tensors.items() if key.endswith("num_batches_tracked")}
    assert counts == {2}


def cifar(data_dir, train=64, val=32, test=32):
    """A few real images, the classes mixed."""
    file = data_dir / "cifar10_10k_5k.npz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not among the real data")
    with np.load(file, allow_pickle=False) as held:
        order = np.random.default_rng(0).permutation(len(held["y_train"]))[: train + val + test]
        inputs, labels = held["x_train"][order], held["y_train"][order].astype(np.int64)
        names = tuple(str(name) for name in held["classes"])
    cuts = {"train": slice(0, train), "val": slice(train, train + val), "id": slice(train + val, None)}
    splits = tuple(Split.of(kind, kind, Examples(inputs[cut], labels[cut])) for kind, cut in cuts.items())
    return Task("few", "image", "multiclass", names, splits, SourceCard("CIFAR-10", "1", "none", "none"))


BIG = {
    "vgg16-bn": {},
    "preresnet": {"depth": 20},
    "wrn": {"depth": 16, "widen": 2},
    "resnet50": {"base": 16},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BIG)
def test_two_epochs_on_real_images(name, data_dir):
    options = {"epochs": 2, "batch": 32, "lr": 0.01, "shift": 4, "flip": 0.5, "samples": 2}
    done, found = fitted(name, BIG[name], cifar(data_dir), **options)
    assert done.record["epochs"] == 2
    assert found.logits.shape == (2, 32, 10)
    assert np.isfinite(found.logits).all()
