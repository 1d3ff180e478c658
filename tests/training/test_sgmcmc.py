"""Samplers against targets whose distribution is known, the cyclic schedule against its equation, what is kept when."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import nn

from dubio.core.errors import UserError
from dubio.encoders import ArrayRows
from dubio.inference.batches import LabelledRows
from dubio.networks.heads.linear import Softmax
from dubio.networks.mlp import mlp
from dubio.networks.network import HeadModule, Model
from dubio.networks.noise import ConcreteDropoutEdit
from dubio.networks.textcnn import textcnn
from dubio.training.collectors import BestOnValidation, Epoch, FinishContext, KeepAll, Last
from dubio.training.loop import check_slots
from dubio.training.objectives import Objective
from dubio.training.optimisers import SGD, Adam
from dubio.training.schedules import Constant, Cosine, Cyclic, temperature_value
from dubio.training.sgmcmc import SGHMC, SGLD

CHAINS, EXAMPLES, L2 = 4000, 50, 0.5
CURVATURE = torch.tensor([[2.0, 0.6], [0.6, 1.0]])
CENTRE = torch.tensor([1.0, -2.0])
PRECISION = CURVATURE + L2 * torch.eye(2)
NOTHING = LabelledRows(ArrayRows(np.zeros((0, 2), dtype=np.float32)), np.zeros(0, dtype=np.int64), 2)
FINISHED = FinishContext(NOTHING, NOTHING, torch.device("cpu"), seed=0, batch=1)
MEAN = torch.linalg.solve(PRECISION, CURVATURE @ CENTRE)


class Chains(nn.Module):
    """Independent chains, one a row, on a mean loss ½(θ − c)ᵀA(θ − c)."""

    def __init__(self, embedded=False):
        super().__init__()
        start = torch.zeros(CHAINS, 2)
        self.table = nn.Embedding(CHAINS, 2, _weight=start) if embedded else nn.ParameterList([nn.Parameter(start)])
        self.head = HeadModule()

    @property
    def theta(self):
        return next(self.parameters())

    def noises(self):
        return []

    def gaussians(self):
        return []


def step(chains, optimiser):
    chains.theta.grad = (chains.theta.detach() - CENTRE) @ CURVATURE
    optimiser.step()


def sampled(setting, steps, *, temperature=1.0, examples=EXAMPLES, explored=0, embedded=False):
    """The states of all chains after so many steps, the first of them without noise."""
    chains = Chains(embedded)
    optimiser = setting.build(chains)
    generator = torch.Generator().manual_seed(3)
    for count, heat in ((explored, 0.0), (steps, temperature)):
        setting.begin_epoch(optimiser, temperature=heat, examples=examples, generator=generator)
        setting.set_factor(optimiser, 1.0)
        for _ in range(count):
            step(chains, optimiser)
    return chains.theta.detach().double().numpy()


def relative_error(states, temperature=1.0):
    """Largest error of the covariance, whitened by the target's: 0 where the distribution is the posterior's."""
    wanted = temperature / EXAMPLES * torch.linalg.inv(PRECISION).double().numpy()
    white = np.linalg.inv(np.linalg.cholesky(wanted))
    return float(np.abs(white @ np.cov(states.T) @ white.T - np.eye(2)).max())


SAMPLERS = {
    "sgld": (SGLD(lr=0.04, l2=L2), 400),
    "sgld with momentum while exploring": (SGLD(lr=0.04, l2=L2, momentum=0.9), 400),
    "sghmc": (SGHMC(lr=0.005, l2=L2, alpha=0.1), 400),
}


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("name", SAMPLERS)
def test_small_steps_settle_in_the_posterior(name, temperature):
    setting, steps = SAMPLERS[name]
    states = sampled(setting, steps, temperature=temperature, explored=30)
    deviation = np.sqrt(temperature / EXAMPLES * np.diag(np.linalg.inv(PRECISION.numpy())))
    assert np.allclose(states.mean(0), MEAN.numpy(), atol=5 * deviation.max() / math.sqrt(CHAINS))
    # 4000 chains know a variance to 2 %, steps of this size make it at most 6 % too large
    assert relative_error(states, temperature) < 0.12


def test_noise_of_another_scale_would_not_pass():
    setting, steps = SAMPLERS["sgld"]
    for wrong in (EXAMPLES * 2, EXAMPLES // 2, 1):
        assert relative_error(sampled(setting, steps, examples=wrong)) > 0.4


def stationary(move, noise):
    """Covariance of θ in the stationary law of a linear recursion on (θ, v)."""
    return solve_discrete_lyapunov(move, noise)[:2, :2]


def test_momentum_that_went_on_beside_the_noise_would_not_pass():
    """θ ← θ − lr·v + noise with v ← 0.9·v + g: about a fifth of the variance, and the tolerance above is an eighth."""
    precision, lr, momentum, eye = PRECISION.double().numpy(), 0.004, 0.9, np.eye(2)
    move = np.block([[eye - lr * precision, -lr * momentum * eye], [precision, momentum * eye]])
    noise = np.kron(np.diag([1.0, 0.0]), 2 * lr / EXAMPLES * eye)
    shares = np.linalg.eigvals(stationary(move, noise) @ precision * EXAMPLES).real
    assert (shares < 0.3).all()


@pytest.mark.parametrize("lr", [0.05, 0.4])
def test_large_steps_settle_where_their_own_recursion_says(lr):
    precision, alpha, eye = PRECISION.double().numpy(), 0.3, np.eye(2)
    langevin = solve_discrete_lyapunov(eye - lr * precision, 2 * lr / EXAMPLES * eye)
    move = np.block([[eye - lr * precision, (1 - alpha) * eye], [-lr * precision, (1 - alpha) * eye]])
    hamiltonian = stationary(move, np.kron(np.ones((2, 2)), 2 * alpha * lr / EXAMPLES * eye))
    for setting, wanted in ((SGLD(lr=lr, l2=L2), langevin), (SGHMC(lr=lr, l2=L2, alpha=alpha), hamiltonian)):
        found = np.cov(sampled(setting, 300).T)
        white = np.linalg.inv(np.linalg.cholesky(wanted))
        assert np.abs(white @ found @ white.T - eye).max() < 0.08  # 3.5 standard errors of 4000 chains


def test_a_rate_of_their_own_leaves_the_distribution_of_embeddings_as_it_is():
    slow = SGLD(lr=0.004, l2=L2, embedding_rate=10.0)
    assert relative_error(sampled(slow, 400, embedded=True)) < 0.12
    assert relative_error(sampled(slow, 100)) > 0.12  # other weights have not settled at the rate itself


def test_without_temperature_the_steps_are_gradient_descent():
    pairs = (
        (SGLD(lr=0.1, l2=0.2), SGD(lr=0.1, momentum=0.0, l2=0.2)),
        (SGLD(lr=0.1, l2=0.2, momentum=0.9), SGD(lr=0.1, momentum=0.9, l2=0.2)),
        (SGHMC(lr=0.1, l2=0.2, alpha=0.1), SGD(lr=0.1, momentum=0.9, l2=0.2)),
    )
    for ours, theirs in pairs:
        one, other = Chains(), Chains()
        a, b = ours.build(one), theirs.build(other)
        for _ in range(5):
            step(one, a)
            step(other, b)
        assert torch.allclose(one.theta, other.theta, atol=1e-6)


@pytest.mark.parametrize("setting", [SGLD(l2=0.1), SGHMC(l2=0.1)])
def test_neither_learned_rates_nor_padding_are_shaken(setting):
    model = Model(textcnn((7,), embedding=4, maps=3), Softmax().build(9, 2))
    ConcreteDropoutEdit().apply(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = setting.build(model)
    setting.begin_epoch(optimiser, temperature=1.0, examples=10, generator=torch.Generator().manual_seed(0))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimiser.step()
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) == ("noise" in name), name
    table = model.network.stages[0].table.weight
    assert not table[0].any()
    assert table[1:].ne(before["network.stages.0.table.weight"][1:]).all()


@pytest.mark.parametrize(("cycles", "steps"), [(1, 7), (4, 20), (5, 45 * 3), (49, 98), (3, 9)])
def test_cyclic_is_equation_16(cycles, steps):
    length = math.ceil(steps / cycles)
    for t in range(1, steps + 1):
        wanted = 0.5 * (math.cos(math.pi * ((t - 1) % length) / length) + 1)
        assert Cyclic(cycles).factor((t - 1) / steps) == pytest.approx(wanted, abs=1e-7)


def course(schedule, epochs):
    said = [(schedule.temperature_in(e, epochs), schedule.marks_after(e, epochs)) for e in range(1, epochs + 1)]
    return [e for e, (heat, _) in enumerate(said, 1) if heat], [e for e, (_, keeps) in enumerate(said, 1) if keeps]


def test_noise_and_snapshots_are_in_the_last_part_of_each_cycle():
    assert course(Cyclic(2, sampling=3, temperature=0.5, keep=3), 20) == ([8, 9, 10, 18, 19, 20],) * 2
    assert course(Cyclic(2, sampling=4, temperature=1.0, keep=2), 12) == ([3, 4, 5, 6, 9, 10, 11, 12], [4, 6, 10, 12])
    assert course(Cyclic(1, sampling=5, temperature=1.0, keep=3), 5)[1] == [2, 4, 5]
    assert course(Cyclic(4), 12) == ([], [3, 6, 9, 12])  # a snapshot ensemble
    assert Cyclic(2, sampling=3, temperature=0.5, keep=3).temperature_in(8, 20) == 0.5
    for plain in (Constant(), Cosine()):
        assert course(plain, 6) == ([], [])


def test_a_temperature_may_be_a_rule_of_the_training():
    assert temperature_value(0.3, 100, 7) == 0.3
    assert temperature_value("1/n", 50_000, 782) == 2e-5  # Zhang et al.
    assert temperature_value("n/batches^2", 50_000, 782) == pytest.approx(0.0818, abs=1e-4)  # the pitfalls paper's code
    schedule = Cyclic(2, sampling=3, temperature="1/n", keep=3)
    assert [schedule.temperature_in(epoch, 20) for epoch in (7, 8)] == [0.0, "1/n"]
    check_slots("x", Objective(epochs=20, patience=0), SGLD(), schedule, KeepAll())
    with pytest.raises(UserError, match="draws no noise"):
        check_slots("x", Objective(epochs=20, patience=0), Adam(), schedule, KeepAll())


def test_every_marked_snapshot_is_kept_and_counted_before():
    schedule, epochs = Cyclic(3, sampling=2, temperature=1.0, keep=2), 12
    for collect, wanted in (
        (KeepAll(), [3, 4, 7, 8, 11, 12]),
        (KeepAll(skip=2), [7, 8, 11, 12]),
        (KeepAll(skip=2, most=3), [8, 11, 12]),
        (KeepAll(most=1), [12]),
    ):
        model = Model(mlp((2,), hidden=(3,)), Softmax().build(3, 2))
        held = collect.init(model)
        for epoch in range(1, epochs + 1):
            with torch.no_grad():
                for p in model.parameters():
                    p.fill_(float(epoch))
            marked = schedule.marks_after(epoch, epochs)
            held = collect.update(held, model, Epoch(epoch, 0.1 * epoch, marked))
        states = collect.finish(held, model, FINISHED).states
        assert [float(next(iter(state.values())).flatten()[0]) for state in states] == wanted
        assert all(state.keys() == model.state_dict().keys() for state in states)
        assert collect.states(schedule, epochs) == len(wanted)
        assert held.facts["epoch"] == 12
    assert Last().states(schedule, epochs) == BestOnValidation().states(schedule, epochs) == 1


def test_slots_that_do_not_go_together_are_refused():
    good = {
        "objective": Objective(epochs=8, patience=0),
        "optimiser": SGLD(),
        "schedule": Cyclic(2, 2, 1.0, 2),
        "collect": KeepAll(),
    }
    check_slots("x", **good)
    for change, why in (
        ({"objective": Objective(epochs=9, patience=0)}, "multiple of cycles; given epochs=9, cycles=2"),
        ({"objective": Objective(epochs=1 << 29, patience=0)}, "at most 1,000,000; given 536,870,912"),
        ({"objective": Objective(epochs=2, patience=0)}, "too few for sampling=2"),
        ({"objective": Objective(epochs=8, patience=3)}, "patience must be 0; given 3"),
        ({"optimiser": Adam()}, "'adam' draws no noise"),
        ({"collect": KeepAll(skip=4)}, "nothing from 8 epochs"),
        ({"schedule": Constant()}, "given constant"),
    ):
        with pytest.raises(UserError, match=why):
            check_slots("x", **{**good, **change})


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: Cyclic(0), "cycles must be .* at least 1"),
        (lambda: Cyclic(2, sampling=2, keep=3), "at most one snapshot per sampling epoch"),
        (lambda: Cyclic(2, temperature=1.0), "sampling of at least 1 epoch"),
        (lambda: SGLD(lr=0.0), "lr must be .* above 0"),
        (lambda: SGLD(momentum=1.0), "below 1; given 1.0"),
        (lambda: SGHMC(alpha=0.0), "alpha must be .* above 0 and of at most 1"),
        (lambda: SGHMC(embedding_rate=-1.0), "embedding_rate must be .* above 0"),
        (lambda: KeepAll(most=-1), "most must be .* at least 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(made, why):
    with pytest.raises(UserError, match=why):
        made()
