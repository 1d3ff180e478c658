"""Softmax and sigmoid heads against closed forms."""

import math

import pytest
import torch

from dubio.core.errors import UserError
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Sigmoid, Softmax, SoftmaxOnLabels, logits_of_softmax


def test_softmax_becomes_sigmoid_where_labels_do_not_exclude_each_other():
    assert Softmax().for_target("multilabel") == Sigmoid()
    assert Softmax().for_target("multiclass") == Softmax()
    assert Heteroscedastic().for_target("multilabel").link == "sigmoid"
    with pytest.raises(UserError, match="multilabel"):
        Sigmoid().for_target("multiclass")


def test_losses_are_the_negative_log_likelihood():
    logits = torch.tensor([[1.0, -2.0, 0.5]])
    softmax = Softmax().build(4, 3).loss(logits, torch.tensor([2]))
    assert softmax.item() == pytest.approx(math.log(sum(math.exp(v) for v in (1.0, -2.0, 0.5))) - 0.5, rel=1e-6)
    sigmoid = Sigmoid().build(4, 3).loss(logits, torch.tensor([[1, 0, 1]]))
    expected = math.log(1 + math.exp(-1.0)) + math.log(1 + math.exp(-2.0)) + math.log(1 + math.exp(-0.5))
    assert sigmoid.item() == pytest.approx(expected, rel=1e-6)


def test_a_softmax_on_labels_has_the_probabilities_of_a_softmax_and_the_loss_of_sigmoids():
    z = torch.tensor([[0.3, -1.0, 2.0], [60.0, -60.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    logits = logits_of_softmax(z)
    torch.testing.assert_close(torch.sigmoid(logits), torch.softmax(z, dim=-1))
    torch.testing.assert_close(torch.sigmoid(-logits[1, 0]), torch.exp(torch.tensor(-60.0, dtype=torch.float64)))
    head, labels = SoftmaxOnLabels().for_target("multilabel").build(4, 3), torch.tensor([[1, 0, 1]] * 3)
    p = torch.softmax(z[0], dim=-1)
    expected = -(p[0].log() + (1 - p[1]).log() + p[2].log())
    loss = head.loss(logits, labels)
    assert loss[0].item() == pytest.approx(expected.item(), rel=1e-9)
    loss.sum().backward()
    assert torch.isfinite(z.grad).all()
    with pytest.raises(UserError, match="multilabel"):
        SoftmaxOnLabels().for_target("multiclass")


def test_at_most_one_label_can_be_decided_by_a_softmax():
    torch.manual_seed(0)
    head = SoftmaxOnLabels().build(6, 5)
    decided = (head(torch.randn(200, 6) * 9) > 0).sum(dim=1)
    assert int(decided.max()) == 1
