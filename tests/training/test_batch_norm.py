"""Batch-norm statistics against a full pass, batches that can be normalised, and methods on normalised networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.encoders import ArrayRows
from dubio.inference.augmentation import ShiftFlip
from dubio.inference.batches import LabelledRows, training_rows
from dubio.inference.engine import looped_states, stacked_states
from dubio.inference.samples import WeightSamples, state_of
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import Dense, Model, Network
from dubio.networks.noise import DropoutEdit
from dubio.networks.vgg import vgg_small
from dubio.training.batch_norm import batch_norm_layers, least_batch, refresh, statistics, with_examples
from dubio.training.collectors import FinishContext, KeepAll, Last
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.objectives import Objective
from dubio.training.optimisers import SGD
from dubio.training.schedules import Constant, ConstantTail
from dubio.training.swag import SWAG
from dubio.training.validation import posterior_nll

CPU = torch.device("cpu")


def images(rows, seed=0):
    generator = np.random.default_rng(seed)
    values = generator.normal(3.0, 2.0, size=(rows, 2, 4, 4)).astype(np.float32)
    return LabelledRows(ArrayRows(values), generator.integers(0, 3, size=rows), 3)


def network(seed=0):
    """Two normalised layers on maps, and one on features."""
    torch.manual_seed(seed)
    stages = [
        nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()),
        nn.Flatten(),
        Dense("dense", 48, 5, accepts=("dropout",)),
        nn.BatchNorm1d(5),
    ]
    return Model(Network(stages, 5), Softmax().build(5, 3))


def trained(model, data, batch, *, collect=None, schedule=None, epochs=2):
    slots = Slots(Objective(batch, epochs, patience=0), SGD(0.05), schedule or Constant(), collect or Last())
    context = LoopContext(CPU, lambda fraction, words: None)
    held, _ = train(model, slots, data, None if data.classes == 10 else images(7, 1), seed=0, member=0, context=context)
    return held


@pytest.mark.parametrize(("rows", "batch"), [(33, 8), (20, 7), (12, 12), (30, 100)])
def test_the_first_layer_gets_the_statistics_of_the_whole_data(rows, batch):
    data, model = images(rows), network()
    refresh(model, FinishContext(data, data, CPU, seed=0, batch=batch))
    first = model.network.stages[0][0]
    seen = data.encoded.values.transpose(1, 0, 2, 3).reshape(2, -1).astype(np.float64)
    np.testing.assert_allclose(first.running_mean.numpy(), seen.mean(1), rtol=1e-6)
    np.testing.assert_allclose(first.running_var.numpy(), seen.var(1, ddof=1), rtol=1e-6)


def test_every_layer_agrees_with_one_full_pass_that_torch_averages():
    """With momentum None torch keeps the plain average over batches: of one batch, its own statistics."""
    data, ours, theirs = images(24), network(), network()
    refresh(ours, FinishContext(data, data, CPU, seed=3, batch=24))
    theirs.train()
    for layer in batch_norm_layers(theirs).values():
        layer.momentum = None
        layer.reset_running_stats()
    with torch.no_grad():
        theirs(torch.from_numpy(data.encoded.values))
    for name, tensor in statistics(theirs).items():
        torch.testing.assert_close(statistics(ours)[name], tensor, rtol=1e-5, atol=1e-6)


def test_every_layer_pools_what_it_sees_in_unequal_batches():
    """By hand: run the batches in training mode, note what comes into each layer, take moments of all of it."""
    data, model, twin = images(19), network(), network()
    refresh(model, FinishContext(data, data, CPU, seed=5, batch=8))
    seen = {name: [] for name in batch_norm_layers(twin)}
    for name, layer in batch_norm_layers(twin).items():
        layer.register_forward_pre_hook(lambda _, given, name=name: seen[name].append(given[0].detach().clone()))
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence(5)))
    mixed = order.permutation(19)
    batches = [mixed[i : i + 8] for i in range(0, 19, 8)]
    twin.train()
    with torch.no_grad():
        for i in order.permutation(len(batches)):
            twin(torch.from_numpy(data.encoded.values[batches[i]]))
    for name, layer in batch_norm_layers(model).items():
        values = torch.cat(seen[name]).transpose(0, 1).flatten(1).to(torch.float64)
        torch.testing.assert_close(layer.running_mean, values.mean(1).float(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(layer.running_var, values.var(1).float(), rtol=1e-5, atol=1e-6)
        assert int(layer.num_batches_tracked) == 3


def test_settings_modes_and_weights_stay_and_dropout_is_off():
    data, model = images(16), network()
    DropoutEdit(0.5).apply(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    refresh(model, FinishContext(data, data, CPU, seed=0, batch=8))
    once = statistics(model)
    refresh(model, FinishContext(data, data, CPU, seed=0, batch=8))
    assert all(torch.equal(once[name], tensor) for name, tensor in statistics(model).items())
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    assert not any(module.training for module in model.modules())
    assert {layer.momentum for layer in batch_norm_layers(model).values()} == {0.1}
    plain = network()
    refresh(plain, FinishContext(data, data, CPU, seed=0, batch=8))
    assert all(torch.equal(once[name], tensor) for name, tensor in statistics(plain).items())


def test_training_views_are_what_the_statistics_are_of():
    data, model = images(40), network()
    refresh(model, FinishContext(data, data, CPU, seed=0, batch=8, augmentation=ShiftFlip(2, 0.0)))
    shifted = model.network.stages[0][0].running_mean
    # zeros are shifted in: on average (1 - 2·(1/5 + 2/5)/4)² of a view is image
    assert torch.all(shifted < 0.85 * data.encoded.values.mean())


def test_without_batch_norm_no_example_is_read():
    model = Model(mlp((2,), hidden=(3,)), Softmax().build(3, 2))
    before = state_of(model)
    refresh(model, FinishContext(None, None, CPU, seed=0, batch=8))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_batch_of_one_joins_its_neighbour():
    rows = images(17).encoded
    for seed in range(6):  # the batch of one comes first, last and between
        plain, whole = (training_rows(rows, 8, np.random.default_rng(seed), least=least) for least in (1, 2))
        assert sorted(len(batch) for batch in plain) == [1, 8, 8]
        assert sorted(len(batch) for batch in whole) == [8, 9]
        assert np.array_equal(np.concatenate(whole), np.concatenate(plain))
    even = [training_rows(images(16).encoded, 8, np.random.default_rng(0), least=least) for least in (1, 2)]
    assert np.array_equal(*even)
    trained(network(), images(17), 8)  # the last batch has one example
    with pytest.raises(UserError, match="at least 2 examples; given 1"):
        trained(network(), images(4), 1)
    assert least_batch(network()) == 2
    assert least_batch(Model(mlp((2,), hidden=(3,)), Softmax().build(3, 2))) == 1


def test_snapshots_carry_their_statistics_and_stacked_evaluation_agrees_with_a_loop():
    data, model = images(24), network()
    held = trained(model, data, 8, collect=KeepAll(), schedule=ConstantTail(), epochs=3)
    states = KeepAll().finish(held, model, None).states
    name = "network.stages.0.0.running_mean"
    assert not torch.equal(states[0][name], states[2][name])
    assert [int(state["network.stages.0.0.num_batches_tracked"]) for state in states] == [3, 6, 9]
    batch, rows = torch.from_numpy(data.encoded.values), np.arange(24)
    model.eval()
    loop = looped_states(model, states, batch)
    torch.testing.assert_close(stacked_states(model, states, batch), loop, rtol=1e-4, atol=1e-5)
    for state, wanted in zip(states, loop, strict=True):
        alone = WeightSamples(model, (state,)).draw(0).predict(batch, rows).logits[0]
        torch.testing.assert_close(alone, wanted, rtol=1e-5, atol=1e-6)


def test_mc_dropout_leaves_batch_norm_in_evaluation():
    data, model = images(24), network()
    DropoutEdit(0.5).apply(model)
    trained(model, data, 8)
    kept = statistics(model)
    batch = torch.from_numpy(data.encoded.values)
    drawn = WeightSamples(model, (state_of(model),), samples=3).draw(0)
    whole = drawn.predict(batch, np.arange(24)).logits
    assert not torch.equal(whole[0], whole[1])
    # a single example is normalised like any other, and nothing is learned from it
    torch.testing.assert_close(drawn.predict(batch[5:6], np.arange(5, 6)).logits, whole[:, 5:6], rtol=1e-5, atol=1e-6)
    assert all(torch.equal(kept[name], tensor) for name, tensor in statistics(model).items())


def test_statistics_of_some_examples_are_those_of_a_context_with_only_them():
    data = images(30)
    context = FinishContext(data, data, CPU, seed=4, batch=8)
    few = with_examples(context, 12)
    assert len(few.train.encoded) == len(few.train.labels) == 12
    same = [(data.encoded.values == row).all(axis=(1, 2, 3)) for row in few.train.encoded.values]
    rows = [int(np.flatnonzero(equal)[0]) for equal in same]
    assert rows == sorted(set(rows))
    assert np.array_equal(few.train.labels, data.labels[rows])
    assert np.array_equal(with_examples(context, 12).train.encoded.values, few.train.encoded.values)
    assert with_examples(context, 0) is with_examples(context, 30) is context
    model = network()
    refresh(model, few)
    seen = data.encoded.values[rows].transpose(1, 0, 2, 3).reshape(2, -1).astype(np.float64)
    np.testing.assert_allclose(model.network.stages[0][0].running_mean.numpy(), seen.mean(1), rtol=1e-6)


def test_draws_normalised_by_some_examples_predict_as_well_as_by_all():
    """On digits: the NLL of pooled SWAG draws is 0.1897 with statistics of all 1,297 examples, 0.1895 with 512."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    values = (digits.images[:, None] / 8.0 - 0.6).astype(np.float32)
    halves = slice(1297), slice(1297, None)
    train_data, test_data = (LabelledRows(ArrayRows(values[i]), digits.target[i], 10) for i in halves)
    torch.manual_seed(0)
    body = vgg_small((1, 8, 8), channels=(8, 16), convolutions=(1, 2))
    model = Model(body, Softmax().build(body.width, 10))
    trained(model, train_data, 32, epochs=6)
    collect = SWAG(draws=8)
    held = trained(model, train_data, 32, collect=collect, schedule=ConstantTail(), epochs=4)
    context = FinishContext(train_data, None, CPU, seed=1, batch=32)
    losses = {}
    for most in (0, 512):
        posterior = replace(collect, norm_examples=most).finish(held, model, context)
        losses[most] = posterior_nll(posterior, test_data, seed=0, device=CPU)
    assert losses[0] < 0.5
    assert losses[512] == pytest.approx(losses[0], abs=0.005)
