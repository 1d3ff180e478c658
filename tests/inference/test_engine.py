"""Every fast path equals its plain twin."""

import numpy as np
import pytest
import torch
from torch import nn

from dubio.core.registry import NETWORKS
from dubio.encoders import ArrayRows, TokenRows
from dubio.inference.batches import collate
from dubio.inference.engine import (
    fixed,
    looped_states,
    over_states,
    plain_passes,
    repeat,
    shared_prefix,
    stacked_states,
    stacks,
)
from dubio.inference.samples import WeightSamples, state_of
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.gp import RandomFeatureGP
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit, sites
from tests.networks.helpers import (
    CLASSES,
    DROPOUT_EDITS,
    SETS,
    SMALL,
    fork_inputs,
    forked,
    image_batch,
    image_logits,
    image_model,
    lived_in,
    nearly_equal,
    runs_of_convolutions,
)

SHAPES = {"mlp": (6,), "cnn": (1, 8, 8), "textcnn": (40,)}
ARGUMENTS = {"mlp": {"hidden": (7, 5)}, "cnn": {}, "textcnn": {"embedding": 6, "maps": 5}}


def examples(name, count=40):
    generator = np.random.default_rng(1)
    if name == "textcnn":
        lengths = generator.integers(1, 30, size=count)
        tokens = generator.integers(1, 40, size=lengths.sum()).astype(np.int32)
        return TokenRows(tokens, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    return ArrayRows(generator.normal(size=(count, *SHAPES[name])).astype(np.float32))


def model_of(name, edits=(), head=None, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = NETWORKS.make(name, SHAPES[name], **ARGUMENTS[name])
        model = Model(body, (head or Softmax()).build(body.width, 3))
    for edit in edits:
        edit.apply(model)
    return model.eval()


def logits(chunks):
    return chunks.logits.flatten(0, 1)


@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize("edit", [DropoutEdit(0.4), ConcreteDropoutEdit(0.3)])
@pytest.mark.parametrize("head", [Softmax(), Heteroscedastic(3)])
def test_the_shared_prefix_equals_plain_passes(name, edit, head):
    model, rows = model_of(name, (edit,), head), np.array([3, 17, 30, 4, 5])
    batch = collate(examples(name), rows)
    with torch.inference_mode():
        fast = logits(shared_prefix(model, batch, BlockDraws(5), rows, 7))
        plain = logits(plain_passes(model, batch, BlockDraws(5), rows, 7))
    assert fast.shape == (7 * 5, 3)
    assert torch.allclose(fast, plain, atol=1e-5)
    assert not torch.allclose(fast[:5], fast[5:10], atol=1e-3), "samples must differ"


@pytest.mark.parametrize("edits", [(), (DropoutEdit(0.4),), (ConcreteDropoutEdit(0.3),)])
@pytest.mark.parametrize("samples", [0, 7])
@pytest.mark.parametrize("head", [Softmax(), Heteroscedastic(3)])
def test_fixed_weights_predict_what_the_model_itself_predicts(edits, samples, head):
    model, rows = model_of("textcnn", edits, head), np.array([3, 17, 30, 4, 5])
    batch = collate(examples("textcnn"), rows)
    ready = fixed(model, samples)
    with torch.inference_mode():
        fast = logits(shared_prefix(ready, batch, BlockDraws(5), rows, samples))
        plain = logits(plain_passes(model, batch, BlockDraws(5), rows, samples))
    assert torch.allclose(fast, plain, atol=1e-5)
    # Noise on the inputs of the convolutions leaves nothing to compute ahead.
    assert (ready is model) == (edits == (ConcreteDropoutEdit(0.3),) and samples > 0)


def test_fixed_weights_keep_to_their_room_and_ordinary_stages_offer_nothing():
    model = model_of("textcnn")
    needed = (40 + 1) * (3 + 4 + 5) * 5
    assert fixed(model, 0, needed) is not model
    assert fixed(model, 0, needed - 1) is model
    for name in ("mlp", "cnn"):
        other = model_of(name)
        assert fixed(other, 0) is other


@pytest.mark.parametrize("edits", [(), (DropoutEdit(0.4),)])
def test_fixed_weights_of_several_states_stay_their_own(edits):
    model, rows = model_of("textcnn", edits), np.arange(12)
    states = tuple(state_of(model_of("textcnn", edits, seed=s)) for s in range(3))
    batch = collate(examples("textcnn"), rows)
    together = WeightSamples(model, states).draw(1).predict(batch, rows).logits
    for i, state in enumerate(states):
        alone = looped_states(model_of("textcnn", edits), [state], batch)[0]
        assert torch.allclose(together[i], alone, atol=1e-5)


@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize("edit", [DropoutEdit(0.4), ConcreteDropoutEdit(0.3)])
def test_a_row_does_not_depend_on_its_batch(name, edit):
    model, data = model_of(name, (edit,), Heteroscedastic(2)), examples(name)
    posterior = WeightSamples(model, (state_of(model),), samples=4)
    whole = posterior.draw(9).predict(collate(data, np.arange(40)), np.arange(40))
    for rows in (np.array([39, 0, 7]), np.array([12])):
        part = posterior.draw(9).predict(collate(data, rows), rows)
        assert torch.allclose(part.logits, whole.logits[:, rows], atol=1e-5)
        assert torch.allclose(part.data_variance, whole.data_variance[:, rows], atol=1e-5)


def test_more_samples_do_not_change_the_first_ones():
    model, rows = model_of("mlp", (DropoutEdit(0.5),)), np.arange(6)
    batch = collate(examples("mlp"), rows)
    few, many = (
        WeightSamples(model, (state_of(model),), samples=s).draw(1).predict(batch, rows).logits for s in (3, 20)
    )
    assert torch.allclose(few, many[:3], atol=1e-6)


def test_chunks_of_samples_equal_one_chunk(monkeypatch):
    model, rows = model_of("textcnn", (ConcreteDropoutEdit(0.3),)), np.arange(6)
    batch = collate(examples("textcnn"), rows)
    with torch.inference_mode():
        whole = logits(shared_prefix(model, batch, BlockDraws(5), rows, 7))
        monkeypatch.setattr("dubio.inference.engine.CHUNK_ELEMENTS", 1)
        cut = logits(shared_prefix(model, batch, BlockDraws(5), rows, 7))
    assert torch.allclose(whole, cut, atol=1e-5)


def test_a_deterministic_pass_has_no_noise_even_where_sites_are_filled():
    plain, filled = model_of("mlp"), model_of("mlp", (DropoutEdit(0.5),))
    rows = np.arange(5)
    batch = collate(examples("mlp"), rows)
    with torch.inference_mode():
        a = logits(shared_prefix(plain, batch, BlockDraws(0), rows, 0))
        b = logits(shared_prefix(filled, batch, BlockDraws(0), rows, 0))
    assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_stacked_states_equal_looped_states(name):
    model, rows = model_of(name), np.arange(8)
    states = [state_of(model_of(name, seed=s)) for s in range(4)]
    batch = collate(examples(name), rows)
    with torch.inference_mode():
        stacked, looped = stacked_states(model, states, batch), looped_states(model, states, batch)
        ruled = over_states(model, states, batch)
    assert stacked.shape == (4, 8, 3)
    assert torch.allclose(stacked, looped, atol=1e-5)
    assert torch.allclose(ruled, looped, atol=1e-5)


def test_the_rule_looks_at_shapes_and_device_alone():
    small, large = {"w": torch.zeros(10)}, {"w": torch.zeros(1 << 20)}
    model, cpu = model_of("mlp"), torch.device("cpu")
    assert stacks(model, [small] * 2, cpu)
    assert not stacks(model, [small], cpu)
    assert not stacks(model, [large] * 2, cpu)
    assert stacks(model, [large] * 2, torch.device("cuda"))
    assert not stacks(model_of("textcnn"), [small] * 2, cpu)


@pytest.mark.parametrize("edit", [DropoutEdit(0.4), ConcreteDropoutEdit(0.3)])
@pytest.mark.parametrize("head", [Softmax(), Heteroscedastic(3), RandomFeatureGP(16)])
def test_shared_stages_equal_whole_passes(edit, head):
    model, rows = forked(head, (edit,)), np.array([3, 17, 30, 4, 5])
    with torch.inference_mode():
        fast = shared_prefix(model, fork_inputs(5), BlockDraws(5), rows, 4)
        plain = plain_passes(model, fork_inputs(5), BlockDraws(5), rows, 4)
    assert fast.logits.shape == (4 * SETS, 5, CLASSES)
    assert fast.own == plain.own == {}
    for left, right in zip(fast[:-1], plain[:-1], strict=True):
        assert (left is None) == (right is None)
        assert left is None or torch.allclose(left, right, atol=1e-5)
    noisy = fast.logits.reshape(4, SETS, 5, CLASSES)
    assert not torch.allclose(noisy[0], noisy[1], atol=1e-3), "samples must differ"


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("edit", DROPOUT_EDITS)
def test_samples_are_those_of_whole_passes(name, edit):
    model = lived_in(image_model(name))
    DROPOUT_EDITS[edit].apply(model)
    found = image_logits(shared_prefix, model.eval())
    assert nearly_equal(found, image_logits(plain_passes, model))
    assert found.reshape(4, 4, 3).std(0).min() > 1e-6
    assert nearly_equal(image_logits(shared_prefix, fixed(model, 4)), found)


@pytest.mark.parametrize("name", ["vgg16-bn", "vgg-small", "preresnet", "resnet50"])
def test_under_dropout_all_convolutions_run_once_for_all_samples(name):
    model = lived_in(image_model(name))
    DROPOUT_EDITS["dropout"].apply(model)
    runs = runs_of_convolutions(model.eval())
    image_logits(shared_prefix, model, samples=6)
    assert set(runs.values()) == {1}


def test_repeated_images_keep_their_order_in_memory():
    h = image_batch().contiguous(memory_format=torch.channels_last)
    assert repeat(h, 3).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(repeat(h, 3), h.repeat(3, 1, 1, 1))


@pytest.mark.parametrize("name", SMALL)
def test_stacked_states_with_batch_norm_are_those_of_a_loop(name):
    model = lived_in(image_model(name))
    states = [state_of(lived_in(image_model(name, seed=seed), seed=seed + 5)) for seed in range(3)]
    with torch.inference_mode():
        assert nearly_equal(stacked_states(model, states, image_batch()), looped_states(model, states, image_batch()))


@pytest.mark.parametrize("name", ["vgg16-bn", "vgg-small"])
def test_batch_norm_is_folded_for_fixed_weights_and_changes_nothing(name):
    model = lived_in(image_model(name))
    ready = fixed(model, samples=0)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in ready.modules())
    kinds = [type(stage).__name__.removeprefix("Folded") for stage in ready.network.stages]
    assert kinds == [type(stage).__name__ for stage in model.network.stages]
    with torch.inference_mode():
        assert nearly_equal(ready(image_batch()), model(image_batch()))
    assert fixed(model, samples=0, limit=10) is model


def test_stages_in_which_noise_will_act_are_not_folded():
    model = lived_in(image_model("vgg-small"))
    first, *_ = (site for site in sites(model) if site.name == "conv2-1")
    first.noise = DROPOUT_EDITS["concrete_dropout"].noise(first)
    ready = fixed(model.eval(), samples=3)
    kinds = [type(stage).__name__ for stage in ready.network.stages]
    assert kinds[:4] == ["Pixels", "FoldedConvNorm", "ConvNorm", "ConvNorm"]
