"""Softmax and sigmoid heads against closed forms."""

import math

import pytest
import torch

from dubio.core.errors import UserError
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Sigmoid, Softmax


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
