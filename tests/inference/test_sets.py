"""Networks that give several sets of features per example: members of one fit, in training and prediction."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.encoders import ArrayRows
from dubio.inference.batches import LabelledRows
from dubio.inference.engine import plain_passes, shared_prefix
from dubio.inference.posterior import Mixture
from dubio.inference.predictor import PredictionNoise, predict_states
from dubio.inference.samples import WeightSamples, state_of
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.gp import RandomFeatureGP
from dubio.networks.heads.heteroscedastic import Heteroscedastic
from dubio.networks.heads.linear import Sigmoid, Softmax
from dubio.networks.network import Dense, Model, Network, Stage
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit
from dubio.training.laplace.structures import check_structure
from dubio.training.validation import posterior_nll, validation_nll

SETS, CLASSES, WIDTH, FEATURES = 3, 4, 6, 5
CPU = torch.device("cpu")


class Fork(Stage):
    """One linear layer per set: features ``[B, D]`` to ``[B, sets, width]``."""

    def __init__(self, inputs: int, width: int, sets: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(inputs, width) for _ in range(sets))

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(torch.stack([branch(h) for branch in self.branches], dim=1))


def forked(head=None, edits=(), seed=0, sets=SETS):
    """A model whose sets are branches behind one dense layer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        stages = [Dense("dense", FEATURES, 8, accepts=("dropout", "concrete_dropout")), Fork(8, WIDTH, sets)]
        model = Model(Network(stages, WIDTH, sets=sets), (head or Softmax()).build(WIDTH, CLASSES))
    for edit in edits:
        edit.apply(model)
    return model.eval()


def branch_of(model, index, head=None):
    """An ordinary model of one branch, with the same weights."""
    dense, fork = model.network.stages
    branch = Fork(8, WIDTH, 1)
    branch.branches[0] = fork.branches[index]
    single = Model(Network([dense, branch], WIDTH, sets=1), model.head)
    single.network.stages.append(nn.Flatten())
    return single.eval()


def batch(rows=7, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, FEATURES)).astype(np.float32))


def examples(multilabel=False, rows=40):
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, (rows, CLASSES)) if multilabel else rng.integers(0, CLASSES, rows)
    return LabelledRows(ArrayRows(batch(rows).numpy()), labels.astype(np.int64), CLASSES)


def test_every_set_is_a_sample_of_its_own_member():
    model, x = forked(), batch()
    drawn = WeightSamples(model, (state_of(model),)).draw(0)
    logits = drawn.predict(x, np.arange(7)).logits
    assert logits.shape == (SETS, 7, CLASSES)
    assert drawn.member == (0, 1, 2)
    for index in range(SETS):
        assert torch.allclose(logits[index], branch_of(model, index)(x), atol=1e-6)


@pytest.mark.parametrize("edit", [DropoutEdit(0.4), ConcreteDropoutEdit(0.3)])
@pytest.mark.parametrize("head", [Softmax(), Heteroscedastic(3), RandomFeatureGP(16)])
def test_shared_stages_equal_whole_passes(edit, head):
    model, rows = forked(head, (edit,)), np.array([3, 17, 30, 4, 5])
    with torch.inference_mode():
        fast = shared_prefix(model, batch(5), BlockDraws(5), rows, 4)
        plain = plain_passes(model, batch(5), BlockDraws(5), rows, 4)
    assert fast.logits.shape == (4 * SETS, 5, CLASSES)
    for left, right in zip(fast, plain, strict=True):
        assert (left is None) == (right is None)
        assert left is None or torch.allclose(left, right, atol=1e-5)
    noisy = fast.logits.reshape(4, SETS, 5, CLASSES)
    assert not torch.allclose(noisy[0], noisy[1], atol=1e-3), "samples must differ"


def test_the_sets_draw_their_own_noise_at_the_head():
    model = forked(edits=(DropoutEdit(0.5),))
    with torch.no_grad():
        for branch in model.network.stages[1].branches:
            branch.load_state_dict(model.network.stages[1].branches[0].state_dict())
    logits = WeightSamples(model, (state_of(model),), samples=2).draw(0).predict(batch(), np.arange(7)).logits
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)


def test_several_states_and_a_mixture_number_their_members():
    model = forked()
    states = tuple(state_of(forked(seed=seed)) for seed in range(2))
    drawn = predict_states(model, [lambda s=s: s for s in states], 0, PredictionNoise())
    logits = drawn.predict(batch(), np.arange(7)).logits
    assert drawn.member == (0, 1, 2, 0, 1, 2)
    for index, seed in enumerate(range(2)):
        alone = WeightSamples(forked(seed=seed), (states[index],)).draw(0).predict(batch(), np.arange(7)).logits
        assert torch.allclose(logits[SETS * index : SETS * (index + 1)], alone, atol=1e-5)
    mixed = Mixture(tuple(WeightSamples(forked(seed=seed), (states[seed],)) for seed in range(2))).draw(0)
    assert mixed.member == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("head", [Softmax(), Sigmoid(), Heteroscedastic(3)])
def test_the_loss_is_the_mean_over_sets(head):
    data = examples(multilabel=isinstance(head, Sigmoid))
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


@pytest.mark.parametrize("multilabel", [False, True])
def test_validation_pools_the_probabilities_of_the_sets(multilabel):
    data = examples(multilabel)
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


def test_the_laplace_approximation_refuses_several_sets():
    with pytest.raises(UserError, match=r"one set .*; this network gives 3"):
        check_structure(forked(), "kron")
