"""Networks with several sets of features per example: the loss is the mean over sets."""

import pytest
import torch

from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Sigmoid, Softmax
from tests.networks.helpers import CLASSES, SETS, branch_of, fork_examples, forked


@pytest.mark.parametrize("head", [Softmax(), Sigmoid(), Heteroscedastic(3)])
def test_the_loss_is_the_mean_over_sets(head):
    data = fork_examples(multilabel=isinstance(head, Sigmoid))
    model = forked(head)
    x, labels = torch.from_numpy(data.encoded.values), torch.from_numpy(data.labels)
    if isinstance(head, Heteroscedastic):
        model.head.given = torch.zeros(len(x) * SETS, 3 * CLASSES)
    losses = model.loss(x, labels)
    if isinstance(head, Heteroscedastic):
        model.head.given = torch.zeros(len(x), 3 * CLASSES)
    single = torch.stack([branch_of(model, index).loss(x, labels) for index in range(SETS)])
    assert losses.shape == (40,)
    assert torch.allclose(losses, single.mean(dim=0), atol=1e-6)
