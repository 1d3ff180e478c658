"""Each way in which a network can be wrong has a sentence of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.core.registry import NETWORKS
from dubio.inference.batches import TokenBatch
from dubio.networks.network import Dense, Network
from dubio.testing import assert_ok, check_network
from tests.networks.helpers import SMALL
from tests.testing.helpers import BOTH, Broken, told


def dense(shape: tuple[int, ...], *, units: int = 16) -> Network:
    return Network([Dense("dense", shape[0], units, accepts=BOTH)], units)


def test_a_good_network_passes() -> None:
    assert told(dense) == []


def test_built_in_networks_pass() -> None:
    small = {**SMALL, "vgg-retina": {"base": 8}}
    for known in NETWORKS.entries():
        if known.origin.startswith("dubio.networks") and "pretrained" not in known.facts:
            assert_ok(check_network(known, arguments=small.get(known.name)))


def test_registration_is_looked_at() -> None:
    assert "inputs='tables'" in told(dense, "tables")[0]
    assert "version='1'" in told(dense, version="1")[0]


def test_no_network() -> None:
    def mine(shape: tuple[int, ...]) -> nn.Module:
        return nn.Linear(shape[0], 3)

    assert told(mine) == ["The function returned Linear, not a Network."]


def test_arguments_after_shape_are_keyword_only() -> None:
    def mine(shape: tuple[int, ...], units: int = 16) -> Network:
        return dense(shape, units=units)

    assert "The argument 'units' is not keyword-only" in told(mine)[0]


def test_building_that_fails() -> None:
    def mine(shape: tuple[int, ...]) -> Network:
        return dense((shape[1],))

    assert "Building it for inputs of shape (7,) raised IndexError" in told(mine)[0]


def test_wrong_width() -> None:
    def mine(shape: tuple[int, ...]) -> Network:
        return Network([Broken(shape)], 20)

    assert told(mine) == ["A batch of 6 examples gives shape (6, 16); width says 20, sets 1."]


def test_stages_that_do_not_fit() -> None:
    def mine(shape: tuple[int, ...]) -> Network:
        return Network([Broken(shape, inputs=3)], 16)

    assert "A pass over a batch of 6 examples raised RuntimeError" in told(mine)[0]


def test_nan() -> None:
    class Bad(Broken):
        def after(self, h: Tensor) -> Tensor:
            return torch.log(-h.abs())

    def mine(shape: tuple[int, ...]) -> Network:
        return Network([Bad(shape)], 16)

    assert told(mine) == ["The output is not finite float32."]


def test_first_weights_from_numpy() -> None:
    def mine(shape: tuple[int, ...]) -> Network:
        made = dense(shape)
        with torch.no_grad():
            made.stages[0].linear.weight.copy_(torch.from_numpy(np.random.standard_normal((16, shape[0]))))
        return made

    assert told(mine) == ["Built twice from one seed, stages.0.linear.weight starts with different values."]


def test_first_weights_without_randomness() -> None:
    def mine(shape: tuple[int, ...]) -> Network:
        torch.manual_seed(3)
        return dense(shape)

    assert "Built from two seeds, it starts with the same weights" in told(mine)[0]


def test_noise_of_its_own() -> None:
    class InTraining(Broken):
        def after(self, h: Tensor) -> Tensor:
            return functional.dropout(h, 0.5, self.training)

    class Always(Broken):
        def after(self, h: Tensor) -> Tensor:
            return h + torch.randn_like(h)

    def training(shape: tuple[int, ...]) -> Network:
        return Network([InTraining(shape)], 16)

    def always(shape: tuple[int, ...]) -> Network:
        return Network([Always(shape)], 16)

    assert told(training) == ["It is random during training although no site is filled."]
    assert "Two deterministic passes over one batch differ." in told(always)


def test_examples_that_see_each_other() -> None:
    class Centred(Broken):
        def before(self, h: Tensor) -> Tensor:
            return h - h.mean(dim=0)

    def mine(shape: tuple[int, ...]) -> Network:
        return Network([Centred(shape)], 16)

    assert any("with the other examples of its batch" in text for text in told(mine))


class BadPair(NamedTuple):
    first: Tensor
    second: Tensor

    def repeat(self, times: int) -> BadPair:
        return BadPair(self.first.repeat(times, 1), self.second.repeat_interleave(times, 0))

    def footprint(self) -> int:
        return self.first.numel()


class Unrepeatable(NamedTuple):
    first: Tensor
    second: Tensor


class Apart(nn.Module):
    def __init__(self, kind: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, h: Tensor) -> Any:
        return self.kind(h, 2 * h)


class Together(Dense):
    def forward(self, pair: Any) -> Tensor:
        return super().forward(pair[0] * pair[1])


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [(BadPair, "a repeated batch gives other values"), (Unrepeatable, "a Unrepeatable that cannot be repeated")],
)
def test_values_between_stages(kind: Any, sentence: str) -> None:
    def mine(shape: tuple[int, ...]) -> Network:
        return Network([Apart(kind), Together("dense", shape[0], 16, accepts=BOTH)], 16)

    assert any(sentence in text for text in told(mine)), told(mine)


def test_a_stage_that_claims_to_broadcast() -> None:
    class Liar(Dense):
        broadcasts = True

        def forward(self, h: Tensor) -> Tensor:
            noise = self.site.noise
            if noise is None or noise.given is None:
                return super().forward(h)
            each = h.repeat_interleave(len(noise.given) // len(h), 0)  # example by example, not sample by sample
            return super().forward(each)

    def mine(shape: tuple[int, ...]) -> Network:
        return Network([Liar("dense", shape[0], 16, accepts=BOTH)], 16)

    assert any("4 samples from shared stages differ from 4 whole passes" in text for text in told(mine))


class MeanOfWords(nn.Module):
    """The mean of word vectors over all positions, PAD included: not what a network may do."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, 16)

    def forward(self, batch: TokenBatch) -> Tensor:
        return self.table(batch.distinct)[batch.places].mean(dim=1)


class MaskedMean(MeanOfWords):
    """The mean over real words only."""

    def forward(self, batch: TokenBatch) -> Tensor:
        vectors = self.table(batch.distinct)[batch.places]
        real = torch.arange(batch.places.shape[1]) < batch.lengths[:, None]
        return (vectors * real[..., None]).sum(dim=1) / batch.lengths[:, None]


@pytest.mark.parametrize("stage", [MeanOfWords, MaskedMean])
def test_padding(stage: type[MeanOfWords]) -> None:
    def mine(shape: tuple[int, ...]) -> Network:
        return Network([stage(shape[0]), Dense("dense", 16, 16, accepts=BOTH)], 16)

    found = told(mine, "text")
    if stage is MaskedMean:
        assert found == []
    else:
        assert len(found) == 1
        assert "A text of 3 tokens changes by up to" in found[0]
