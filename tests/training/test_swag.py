"""Averages of a trajectory against numpy over its snapshots; cut off and continued; storage in half precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dubio.core.errors import UserError
from dubio.encoders import ArrayRows
from dubio.inference.batches import LabelledRows
from dubio.inference.samples import WeightSamples
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Dense, Model, Network
from dubio.training import batch_norm
from dubio.training.batch_norm import refresh, statistics
from dubio.training.collectors import Epoch, FinishContext, KeepAll
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.objectives import Objective
from dubio.training.optimisers import SGD
from dubio.training.schedules import ConstantTail
from dubio.training.swag import SWA, SWAG, gaussian_of

CPU = torch.device("cpu")


def images(rows, seed):
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(rows, 1, 4, 4)).astype(np.float32)
    return LabelledRows(ArrayRows(values), generator.integers(0, 3, size=rows), 3)


TRAIN, VAL = images(30, 0), images(10, 1)
CONTEXT = FinishContext(TRAIN, VAL, CPU, seed=5, batch=8)


def network(normalised=True):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(2) if normalised else nn.Identity()
    stages = [nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.ReLU()), nn.Flatten(), Dense("dense", 8, 4, accepts=())]
    return Model(Network(stages, 4), Softmax().build(4, 3))


def trained(collect, epochs, *, normalised=True, lr=0.1):
    model = network(normalised)
    slots = Slots(Objective(8, epochs, patience=0), SGD(lr), ConstantTail(), collect)
    context = LoopContext(CPU, lambda fraction, words: None)
    held, _ = train(model, slots, TRAIN, VAL, seed=0, member=0, context=context)
    return model, held


def snapshots(epochs):
    """The parameters after each epoch of the same training, ``name → [epoch, …]`` float64."""
    model, held = trained(KeepAll(), epochs)
    states = KeepAll().finish(held, model, CONTEXT).states
    names = [name for name, _ in model.named_parameters()]
    return {name: np.stack([state[name].numpy().astype(np.float64) for state in states]) for name in names}


@pytest.mark.parametrize(("epochs", "rank"), [(7, 3), (4, 20), (5, 5)])
def test_collected_moments_are_those_of_the_snapshots(epochs, rank):
    _, held = trained(SWAG(rank), epochs)
    law = gaussian_of(held, rank)
    for name, seen in snapshots(epochs).items():
        np.testing.assert_allclose(law.mean[name].numpy(), seen.mean(0), rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(law.variance[name].numpy(), seen.var(0), rtol=1e-5, atol=1e-12)
        running = np.stack([seen[: k + 1].mean(0) for k in range(epochs)])
        np.testing.assert_allclose(law.deviations[name].numpy(), (seen - running)[-rank:], rtol=1e-4, atol=1e-7)
    assert law.rank == min(rank, epochs)


def test_a_tiny_spread_around_large_weights_is_not_lost():
    """Squares of float32 weights near 1000 differ by more than the variance; Welford's rule never forms them."""
    model, collect = network(), SWAG(rank=4)
    held = collect.init(model)
    values = 1000.0 + 1e-3 * np.arange(6)
    for epoch, value in enumerate(values, start=1):
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(value)
        held = collect.update(held, model, Epoch(epoch, 0.0, True))
    wanted = values.astype(np.float32).astype(np.float64).var()
    for tensor in gaussian_of(held, 4).variance.values():
        np.testing.assert_allclose(tensor.numpy(), wanted, rtol=1e-5)


def test_every_draw_has_statistics_of_its_own_weights():
    collect = SWAG(rank=4, draws=3)
    model, held = trained(collect, 5)
    posterior = collect.finish(held, model, CONTEXT)
    twin = network()
    for k in range(3):
        state = posterior.state(k)
        twin.load_state_dict(state)
        refresh(twin, FinishContext(TRAIN, TRAIN, CPU, seed=5, batch=8))
        for name, tensor in statistics(twin).items():
            assert torch.equal(tensor, state[name])
    assert not torch.equal(posterior.state(0)["head.linear.weight"], posterior.state(1)["head.linear.weight"])
    assert collect.passes(model, 100) == 3
    assert SWAG(draws=3, norm_examples=25).passes(model, 100) == 0.75
    assert SWAG(draws=3, norm_examples=200).passes(model, 100) == 3
    assert collect.passes(network(normalised=False), 100) == 0


@pytest.mark.parametrize("few", [1, 2, 3])
def test_draws_that_share_a_pass_get_what_each_gets_alone(monkeypatch, few):
    model = network()
    size = sum(p.numel() for p in model.parameters())
    monkeypatch.setattr(batch_norm, "HELD_ELEMENTS", few * size)
    own = {name: p.detach().clone() for name, p in model.named_parameters()}
    draws = [{name: p + 0.3 * k for name, p in own.items()} for k in range(3)]
    found = batch_norm.refresh_draws(model, [lambda draw=draw: draw for draw in draws], CONTEXT)
    assert all(torch.equal(own[name], p) for name, p in model.named_parameters())
    for draw, statistic in zip(draws, found, strict=True):
        twin = network()
        twin.load_state_dict(draw, strict=False)
        refresh(twin, FinishContext(TRAIN, TRAIN, CPU, seed=5, batch=8))
        assert all(torch.equal(tensor, statistic[name]) for name, tensor in statistics(twin).items())
    assert batch_norm.refresh_draws(network(normalised=False), [dict] * 2, CONTEXT) == [{}, {}]


def test_the_mean_is_one_network_with_statistics_of_its_own():
    model, held = trained(SWA(), 5)
    (state,) = SWA().finish(held, model, CONTEXT).states
    for name, seen in snapshots(5).items():
        np.testing.assert_allclose(state[name].numpy(), seen.mean(0), rtol=1e-6, atol=1e-7)
    twin = network()
    twin.load_state_dict(state)
    refresh(twin, FinishContext(TRAIN, TRAIN, CPU, seed=5, batch=8))
    assert all(torch.equal(tensor, state[name]) for name, tensor in statistics(twin).items())


def test_a_network_without_batch_norm_is_drawn_without_a_pass_over_the_data():
    collect = SWAG(rank=3, draws=2)
    model, held = trained(collect, 3, normalised=False)
    nothing = FinishContext(None, None, CPU, seed=5, batch=8)
    posterior = collect.finish(held, model, nothing)
    assert posterior.buffers == ({}, {})
    assert posterior.state(0).keys() == model.state_dict().keys()


def test_what_is_said_before_any_training_is_what_comes_of_it():
    schedule = ConstantTail()
    assert SWAG(rank=5, draws=7).states(schedule, 6) == 7
    assert SWAG(rank=5, draws=7).stored(schedule, 6) == 7.0
    assert SWAG(rank=5, draws=7).stored(schedule, 3) == 5.0
    assert SWAG().states(schedule, 1) == SWA().states(schedule, 0) == 0
    for make, words in ((lambda: SWAG(rank=1), "rank must be .* at least 2"), (lambda: SWAG(draws=0), "draws must be")):
        with pytest.raises(UserError, match=words):
            make()


def test_half_precision_snapshots_are_the_rounded_ones_in_half_the_room():
    half, full = KeepAll(store="float16"), KeepAll()
    (model, held), (twin, exact) = trained(half, 3), trained(full, 3)
    rounded, whole = half.finish(held, model, CONTEXT), full.finish(exact, twin, CONTEXT)
    parameters = {name for name, _ in model.named_parameters()}
    for few, many in zip(rounded.states, whole.states, strict=True):
        for name, tensor in many.items():
            wanted = tensor.half() if name in parameters else tensor
            assert few[name].dtype == wanted.dtype
            assert torch.equal(few[name], wanted)
    stored = {name: torch.from_numpy(tensor.numpy().copy()) for name, tensor in rounded.tensors().items()}
    again = half.form.restore(stored, network(), 0, None)
    cast = [{name: tensor.to(twin.state_dict()[name].dtype) for name, tensor in s.items()} for s in rounded.states]
    batch, rows = torch.from_numpy(VAL.encoded.values), np.arange(10)
    wanted = WeightSamples(twin, tuple(cast)).draw(0).predict(batch, rows).logits
    assert torch.equal(again.draw(0).predict(batch, rows).logits, wanted)
    assert half.stored(ConstantTail(), 3) == 1.5
    assert held.facts["val_nll"] is None


def test_weights_beyond_half_precision_are_refused():
    model = network()
    with torch.no_grad():
        next(model.parameters()).fill_(1e6)
    with pytest.raises(UserError, match="float16 cannot hold"):
        KeepAll(store="float16").update(KeepAll().init(model), model, Epoch(1, 0.0, True))
    with pytest.raises(UserError, match=r"store must be .*float32.*float16"):
        KeepAll(store="bfloat16")
