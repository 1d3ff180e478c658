"""The outputs of a module are logits: probabilities are refused."""

import numpy as np
import pytest
import torch
from torch import nn

import dubio
from dubio.torch_module.probe import check_logits
from tests.torch_module.helpers import ONE_EPOCH, perceptron, refused, table


class Probabilities(nn.Module):
    """Logits while it is trained, probabilities otherwise."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x) if self.training else self.fc(x).exp() / self.fc(x).exp().sum(1, keepdim=True)


def test_a_module_that_gives_probabilities_is_refused():
    words = "network: the module gives probabilities"
    refused(words, network=lambda: nn.Sequential(perceptron(), nn.Softmax(1)))
    refused(words, network=Probabilities)
    several = np.eye(3, dtype=int)[table()[1]]
    told = {"train": (table()[0], several), "target": "multilabel"}
    refused(words, network=Probabilities, **told)
    refused("network: the module ends with a sigmoid", network=nn.Sequential(perceptron(), nn.Sigmoid()), **told)


@pytest.mark.parametrize("last", [nn.LogSoftmax(1), nn.ReLU(), nn.Sigmoid()])
def test_other_ends_are_logits(last):
    network = nn.Sequential(perceptron(), last)
    assert dubio.fit("deterministic", network=network, train=table(), **ONE_EPOCH).samples == 1
    check_logits(nn.Linear(4, 3).double(), torch.zeros(3, 4, dtype=torch.float64), "multiclass")
