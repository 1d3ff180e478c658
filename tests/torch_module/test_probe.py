"""The outputs of a module are logits: probabilities are refused."""

import numpy as np
import pytest
import torch
from torch import nn

import dubio
from dubio.torch_module.probe import check_logits, reading_layers
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


class Branches(nn.Module):
    """Layers in another order than their calls, normalised inputs, half of them, a frozen start, an unused layer."""

    def __init__(self):
        super().__init__()
        self.late, self.unused, self.early = nn.Linear(8, 8), nn.Linear(4, 4), nn.Linear(4, 8)
        self.norm, self.part, self.both = nn.BatchNorm1d(4), nn.Linear(2, 8), nn.Linear(12, 8)
        self.frozen = nn.Linear(4, 8).requires_grad_(False)
        self.shift = nn.Parameter(torch.zeros(8))

    def forward(self, x):
        with torch.no_grad():
            apart = self.frozen(x)
        h = self.late(self.early(self.norm(x)).relu() + apart + self.shift) + self.part(x[:, :2])
        return self.both(torch.cat([x, h], dim=1))[:, :3]


def test_layers_that_read_the_inputs_are_those_of_a_pass():
    module = Branches()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    expected = {"norm": True, "early": True, "part": False, "frozen": True}
    for rows in (torch.randn(3, 4), torch.zeros(2, 4)):  # a stored fit is read with inputs of 0
        assert reading_layers(module, rows) == expected
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert not any(layer._forward_hooks for layer in module.modules())


def test_words_are_read_by_their_embedding():
    module = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 3))
    assert reading_layers(module, torch.ones(2, 3, dtype=torch.int64)) == {"0": True}


def test_a_module_that_refuses_other_values_says_nothing():
    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
            nn.init.zeros_(self.first.weight)
            nn.init.zeros_(self.first.bias)

        def forward(self, x):
            h = self.first(x)
            assert not h.any()
            return self.last(h)

    assert reading_layers(Checked(), torch.ones(2, 4)) is None
