"""Frozen stages of arrays: one pass per example, in evaluation mode, bounded, outside of a model's state."""

import copy

import pytest
import torch
from torch import nn

from dubio.networks.frozen import FrozenRows, FrozenStages
from dubio.networks.network import LOOKUPS


def stages():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        conv, norm = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
    norm.running_mean.copy_(torch.tensor([0.1, -0.2, 0.3]))
    norm.running_var.copy_(torch.tensor([0.5, 2.0, 1.5]))
    return [conv, norm, nn.ReLU()]


def images(rows=4, seed=0):
    return torch.randn(rows, 2, 5, 5, generator=torch.Generator().manual_seed(seed))


def test_outputs_are_those_of_the_stages_in_evaluation_mode_and_are_computed_once():
    plain, frozen = nn.Sequential(*stages()).eval(), FrozenStages(stages())
    stage, batch, runs = FrozenRows(frozen), images(), []
    frozen._stages[0].register_forward_hook(lambda *_: runs.append(1))
    with torch.no_grad():
        wanted = plain(batch)
    with torch.inference_mode():
        first = stage.train()(batch)  # a model in training mode does not reach batch-norm in it
    torch.testing.assert_close(first, wanted)
    assert len(runs) == 4
    again = stage(batch[[2, 0, 2]])
    assert torch.equal(again, first[[2, 0, 2]])
    assert len(runs) == 4
    stage(batch[:1].flip(3))
    assert len(runs) == 5  # another view is another example
    assert torch.equal(frozen._stages[1].running_mean, stages()[1].running_mean)
    # seen first in inference mode, then in training
    layer = nn.Linear(3, 1)
    layer(again.mean((2, 3))).sum().backward()
    assert layer.weight.grad.any()


def test_outputs_do_not_depend_on_the_batch_in_which_an_example_came_first():
    batch = images(6)
    together, alone = FrozenRows(FrozenStages(stages())), FrozenRows(FrozenStages(stages()))
    assert torch.equal(together(batch), torch.cat([alone(batch[i : i + 1]) for i in reversed(range(6))]).flip(0))


def test_examples_of_equal_bytes_and_other_shapes_are_told_apart():
    frozen = FrozenStages([nn.Identity()])
    square, long = torch.zeros(1, 4, 4), torch.zeros(1, 2, 8)
    assert frozen.states(square).shape == (1, 4, 4)
    assert frozen.states(long).shape == (1, 2, 8)


def test_the_cache_is_bounded():
    frozen, batch = FrozenStages(stages(), limit=2 * 3 * 9 * 4), images()
    assert torch.equal(FrozenRows(frozen)(batch), FrozenRows(FrozenStages(stages()))(batch))
    assert len(frozen._cache) == 2


def test_copies_share_the_cache_and_nothing_is_stored_or_trained():
    stage = FrozenRows(FrozenStages(stages()))
    assert copy.deepcopy(stage)._frozen is stage._frozen
    assert stage.state_dict() == {}
    assert list(stage.parameters()) == []
    with torch.no_grad():
        torch.testing.assert_close(stage.traceable()(images()), stage(images()))


def test_what_another_job_computed_counts_once_per_example():
    frozen, batch = FrozenStages(stages()), images()
    LOOKUPS.begin_job()
    FrozenRows(frozen)(torch.cat([batch, batch]))
    assert LOOKUPS.seconds_saved() == 0.0
    LOOKUPS.begin_job()
    FrozenRows(frozen)(torch.cat([batch, batch]))
    assert LOOKUPS.seconds_saved() == pytest.approx(sum(entry.seconds for entry in frozen._cache.values()))
