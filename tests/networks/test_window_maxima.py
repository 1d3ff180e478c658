"""The largest sums over windows against the dense formula, in value and gradient."""

import numpy as np
import pytest
import torch
from torch import Tensor

from dubio.core.registry import NETWORKS
from dubio.encoders import TokenRows
from dubio.inference.batches import collate
from dubio.inference.engine import shared_prefix
from dubio.networks import word_convolutions
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import ConcreteDropoutEdit, Dropout, DropoutEdit
from dubio.networks.packed import Packed
from dubio.networks.spectral import SpectralNorm
from dubio.networks.window_maxima import largest_sums
from dubio.networks.word_convolutions import PickOverTime, Ranked, RankOverTime, Unsummed, WordConvolutions, by_text

LENGTHS = (1, 2, 3, 5, 5, 8, 13)
VOCABULARY = 40


def texts(lengths: tuple[int, ...]) -> TokenRows:
    tokens = np.random.default_rng(1).integers(1, VOCABULARY, size=sum(lengths)).astype(np.int32)
    return TokenRows(tokens, np.cumsum([0, *lengths]).astype(np.int64))


def by_loops(
    vectors: Tensor, weights: Tensor, places: Tensor, lengths: Tensor, kernels: tuple[int, ...], dropped: list[Tensor]
) -> list[Tensor]:
    """The definition: every window of every text by itself."""
    table, tops, first = (vectors @ weights.t()).view(len(vectors), sum(kernels), -1), [], 0
    for size, mask in zip(kernels, dropped, strict=True):
        rows = []
        for b, length in enumerate(lengths.tolist()):
            windows = [
                sum(table[places[b, t + j], first + j] for j in range(size)) for t in range(max(1, length - size + 1))
            ]
            sums = torch.stack(windows)
            rows.append(sums.masked_fill(mask[b, : len(sums)], -torch.inf).max(dim=0).values)
        tops.append(torch.stack(rows))
        first += size
    return tops


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_values_and_gradients_are_those_of_the_definition(rate: float) -> None:
    generator = torch.Generator().manual_seed(3)
    kernels, maps, batch = (2, 3, 5), 4, collate(texts(LENGTHS), np.arange(len(LENGTHS)))
    shapes = (len(batch.distinct), 7), (sum(kernels) * maps, 7)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    sizes = [(*batch.places.shape[:1], batch.places.shape[1] - size + 1, maps) for size in kernels]
    dropped = [torch.rand(size, generator=generator) < rate for size in sizes]
    arguments = (*inputs, batch.places, batch.lengths, kernels, dropped)
    factors = [torch.randn(len(LENGTHS), maps, generator=generator, dtype=torch.float64) for _ in kernels]
    results = []
    for way in (by_loops, largest_sums):
        tops = way(*arguments)
        loss = sum((torch.relu(top + 0.3) * factor).sum() for top, factor in zip(tops, factors, strict=True))
        results.append((*tops, *torch.autograd.grad(loss, inputs)))
    for expected, value in zip(*results, strict=True):
        assert torch.allclose(expected, value, rtol=1e-12, atol=1e-12)
    assert all((rate == 1.0) == bool((gradient == 0).all()) for gradient in results[1][-2:])


def test_words_beyond_sixteen_bits_have_their_gradients() -> None:
    """More words than 2¹⁶, of which the first and the last are read."""
    vectors = torch.zeros(70_000, 1, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([[2.0], [3.0]], dtype=torch.float64)  # one map, two words a window
    (top,) = largest_sums(vectors, weights, torch.tensor([[0, 69_999]]), torch.tensor([2]), (2,), (None,))
    top.sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.nonzero()[:, 0].tolist() == [0, 69_999]
    assert vectors.grad[[0, 69_999], 0].tolist() == [2.0, 3.0]


def test_a_second_derivative_is_refused_instead_of_wrong() -> None:
    vectors = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    (top,) = largest_sums(vectors, vectors * 2, torch.tensor([[0, 1, 2]]), torch.tensor([3]), (3,), (None,))
    (gradient,) = torch.autograd.grad((top**2).sum(), vectors, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_the_distinct_tokens_of_every_text_are_listed_once() -> None:
    places = torch.tensor([[2, 0, 2], [1, 1, 0]])
    owners, tokens, own = by_text(places, 4)
    assert list(zip(owners.tolist(), tokens.tolist(), strict=True)) == [(0, 0), (0, 2), (1, 0), (1, 1)]
    assert torch.equal(tokens[own], places)
    assert torch.equal(owners[own], torch.tensor([[0] * 3, [1] * 3]))


def model_of(name: str, edits: tuple) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = NETWORKS.make(name, (VOCABULARY,), embedding=8, maps=6, kernels=(2, 3, 5))
        model = Model(body, Softmax().build(body.width, 4))
        for edit in edits:
            edit.apply(model)
    return model.double().train()


CASES = [
    ("textcnn", ()),
    ("textcnn", (DropoutEdit(0.0),)),
    ("textcnn", (ConcreteDropoutEdit(),)),
    ("textcnn-v2", ()),
    ("textcnn-v2", (ConcreteDropoutEdit(),)),
    ("textcnn-v2", (SpectralNorm(0.9),)),
    ("textcnn", (Packed(2, 2.0),)),
    ("textcnn", (Packed(2, 2.0), ConcreteDropoutEdit())),
]


@pytest.mark.parametrize(("name", "edits"), CASES)
@pytest.mark.parametrize("lengths", [LENGTHS, (1, 2)])
def test_a_training_step_has_the_gradient_of_the_plain_stages(name, edits, lengths, monkeypatch) -> None:
    """The plain stages convolve over positions or tokens, rectify, mask and take a dense maximum."""
    batch, labels = collate(texts(lengths), np.arange(len(lengths))), torch.arange(len(lengths)) % 4
    results = []
    for plain in (True, False):
        model = model_of(name, edits)
        if plain:
            monkeypatch.setattr(WordConvolutions, "_adds_later", lambda self, vectors: False)
        else:
            monkeypatch.undo()
        # one pass more in both: a bounded weight moves its singular vectors in each
        assert isinstance(_convolved(model, batch), Unsummed) != plain
        model.draw_from(torch.Generator().manual_seed(5))
        loss = model.loss(batch, labels).mean() + model.penalty(100)
        loss.backward()
        results.append((loss.detach(), {n: p.grad for n, p in model.named_parameters()}))
    assert torch.allclose(results[0][0], results[1][0], rtol=1e-12)
    for parameter, expected in results[0][1].items():
        assert torch.allclose(expected, results[1][1][parameter], rtol=1e-9, atol=1e-12), parameter


def _convolved(model: Model, batch):
    value = batch
    for stage in model.network.stages:
        value = stage(value)
        if isinstance(stage, WordConvolutions):
            return value
    raise AssertionError("no convolutions")


@pytest.mark.parametrize(("name", "edits"), [case for case in CASES if ConcreteDropoutEdit() in case[1]])
@pytest.mark.parametrize("lengths", [LENGTHS, (1, 2)])
@pytest.mark.parametrize("block", [1, 20, 1 << 13])
@torch.no_grad()
def test_samples_with_noisy_words_are_those_of_convolutions_over_positions(
    name, edits, lengths, block, monkeypatch
) -> None:
    """torch's conv1d over every position of every noisy text, against products of its distinct words in blocks."""
    monkeypatch.setattr(word_convolutions, "BLOCK_WORDS", block)
    rows = np.arange(len(lengths))
    batch, model = collate(texts(lengths), rows), model_of(name, edits).eval()
    stages, ranked = [], WordConvolutions._ranked
    monkeypatch.setattr(WordConvolutions, "_ranked", lambda *given: stages.append(given) or ranked(*given))
    fast = shared_prefix(model, batch, BlockDraws(3), rows, 4).logits
    assert stages, "the products were not used"
    monkeypatch.setattr(WordConvolutions, "_ranks_now", lambda self, vectors: False)
    slow = shared_prefix(model, batch, BlockDraws(3), rows, 4).logits
    assert torch.allclose(fast, slow, rtol=1e-12, atol=1e-12)
    assert (fast[0] != fast[1]).any()


@torch.no_grad()
def test_the_largest_sums_of_noisy_words_are_ranked_already() -> None:
    model = model_of("textcnn", (ConcreteDropoutEdit(),)).eval()
    batch = collate(texts(LENGTHS), np.arange(len(LENGTHS)))
    assert not isinstance(_convolved(model, batch), Ranked)  # no noise acts
    for noise in model.noises():
        noise.sampling = True
    assert isinstance(_convolved(model, batch), Ranked)
    model.network.stages[1].marks[0].register_forward_hook(lambda mark, inputs, output: None)
    assert not isinstance(_convolved(model, batch), Ranked)  # its sums are looked at


def test_hooked_maps_and_passes_without_gradient_see_every_window() -> None:
    model = model_of("textcnn", ())
    batch = collate(texts(LENGTHS), np.arange(len(LENGTHS)))
    with torch.no_grad():
        assert not isinstance(_convolved(model, batch), Unsummed)
    seen = []
    model.network.stages[1].marks[0].register_forward_hook(lambda mark, inputs, output: seen.append(output.shape))
    model(batch)
    assert seen == [(len(LENGTHS), max(LENGTHS) - 1, 6)]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_dropped_values_are_independent_with_the_rate(p: float) -> None:
    noise = Dropout(1, p)
    noise.generator = torch.Generator().manual_seed(0)
    mask = noise.dropped((1000, 10, 37)).double()
    error = np.sqrt(p * (1 - p) / mask.numel())
    assert float(mask.mean()) == pytest.approx(p, abs=5 * error + 2**-17)
    flat = mask.flatten()
    for lag in range(1, 9):  # four values share a draw
        together = float((flat[:-lag] * flat[lag:]).mean())
        assert together == pytest.approx(p * p, abs=5 * p * np.sqrt(1 - p * p) / np.sqrt(len(flat)) + 2**-16)
    again = Dropout(1, p)
    again.generator = torch.Generator().manual_seed(0)
    assert torch.equal(again.dropped((1000, 10, 37)).double(), mask)


def test_training_keeps_the_largest_survivor_of_each_map() -> None:
    """E[max of survivors] over many texts with the same two windows: (1 − p)·a + p(1 − p)·b over 1 − p, a > b."""
    pick = PickOverTime((1,), 1)
    pick.sites[0].noise = Dropout(1, 0.3)
    pick.sites[0].noise.generator = torch.Generator().manual_seed(2)
    count = 200_000
    vectors, weights = torch.tensor([[2.0], [5.0]]), torch.ones(1, 1, 1)
    places, lengths = torch.tensor([[0, 1]]).expand(count, 2), torch.full((count,), 2)
    maps = Unsummed((vectors,), places, lengths, (weights,), (torch.ones(1),))
    values = pick(RankOverTime(pick)(maps))[:, 0]
    assert set(values.unique().tolist()) == set(torch.tensor([0.0, 3 / 0.7, 6 / 0.7]).tolist())
    assert float((values == 0).float().mean()) == pytest.approx(0.09, abs=0.004)
    assert float(values.mean()) == pytest.approx(6.0 + 0.3 * 3.0, abs=0.04)
