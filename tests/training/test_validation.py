"""The validation loss of networks with several sets of features pools the sets' probabilities."""

import pytest
import torch

from dubio.inference.samples import WeightSamples, state_of
from dubio.networks.heads.linear import Sigmoid, Softmax
from dubio.training.validation import posterior_nll, validation_nll
from tests.networks.helpers import CPU, SETS, branch_of, fork_examples, forked


@pytest.mark.parametrize("multilabel", [False, True])
def test_validation_pools_the_probabilities_of_the_sets(multilabel):
    data = fork_examples(multilabel)
    model = forked(Sigmoid() if multilabel else Softmax())
    nll = validation_nll(model, data, 0, CPU)
    x, labels = torch.from_numpy(data.encoded.values), torch.from_numpy(data.labels)
    with torch.inference_mode():
        logits = torch.stack([branch_of(model, index)(x) for index in range(SETS)]).double()
    if multilabel:
        mean = torch.sigmoid(logits).mean(dim=0)
        expected = -torch.where(labels == 1, mean, 1.0 - mean).log().sum(dim=1).mean()
    else:
        expected = -torch.softmax(logits, -1).mean(dim=0)[torch.arange(40), labels].log().mean()
    assert nll == pytest.approx(float(expected), rel=1e-5)
    posterior = WeightSamples(model, (state_of(model),))
    assert posterior_nll(posterior, data, seed=0, device=CPU) == pytest.approx(nll, rel=1e-6)
