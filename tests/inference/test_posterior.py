"""Posteriors of several states: samples number the members that they come from."""

import numpy as np
import torch

from dubio.inference.posterior import Mixture
from dubio.inference.predictor import PredictionNoise, predict_states
from dubio.inference.samples import WeightSamples, state_of
from tests.networks.helpers import SETS, fork_inputs, forked


def test_several_states_and_a_mixture_number_their_members():
    model = forked()
    states = tuple(state_of(forked(seed=seed)) for seed in range(2))
    drawn = predict_states(model, [lambda s=s: s for s in states], 0, PredictionNoise())
    logits = drawn.predict(fork_inputs(), np.arange(7)).logits
    assert drawn.member == (0, 1, 2, 0, 1, 2)
    for index, seed in enumerate(range(2)):
        alone = WeightSamples(forked(seed=seed), (states[index],)).draw(0).predict(fork_inputs(), np.arange(7)).logits
        assert torch.allclose(logits[SETS * index : SETS * (index + 1)], alone, atol=1e-5)
    mixed = Mixture(tuple(WeightSamples(forked(seed=seed), (states[seed],)) for seed in range(2))).draw(0)
    assert mixed.member == (0, 1, 2, 3, 4, 5)
