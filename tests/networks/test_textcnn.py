"""TextCNN against an ordinary convolution written out, and its dropout under the maximum against drawn masks."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from dubio.core.types import PADDING_WORD, UNKNOWN_WORD, Examples
from dubio.encoders import PAD, UNK, TextEncoding, TokenRows, fit_encoder
from dubio.inference.batches import collate
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import DropoutEdit
from dubio.networks.textcnn import GatherOverTime, textcnn
from dubio.networks.word_convolutions import rectified, widened

VOCABULARY = 50


def texts(lengths, seed=0):
    generator = np.random.default_rng(seed)
    rows = [generator.integers(1, VOCABULARY, size=n) for n in lengths]
    return TokenRows(np.concatenate(rows).astype(np.int32), np.cumsum([0, *lengths]).astype(np.int64))


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return textcnn((VOCABULARY,), embedding=8, maps=6, kernels=(2, 3, 5)).eval()


def by_hand(net, tokens):
    """One text at a time, torch's own conv1d, no padding but to the kernel's size."""
    embed, convolve = net.stages[0], net.stages[1]
    out = []
    for weight, bias in zip(convolve.weights, convolve.biases, strict=True):
        size = weight.shape[0]
        vectors = embed.table(torch.as_tensor(tokens, dtype=torch.long)).T[None]
        vectors = functional.pad(vectors, (0, max(0, size - vectors.shape[2])))
        maps = torch.relu(functional.conv1d(vectors, weight.permute(1, 2, 0), bias))
        out.append(maps.amax(dim=2)[0])
    return torch.cat(out)


def test_a_batch_is_what_each_text_gives_alone():
    rows, net = texts([1, 2, 3, 9, 17]), network()
    out = net(collate(rows, np.arange(5)))
    for i in range(5):
        tokens = rows.tokens[rows.offsets[i] : rows.offsets[i + 1]]
        assert torch.allclose(out[i], by_hand(net, tokens), atol=1e-6)


def test_products_by_token_equal_the_convolution_by_position_in_value_and_gradient():
    rows, net = texts([4, 1, 12, 7]), network()
    words = net.stages[0](collate(rows, np.arange(4)))
    convolve = net.stages[1]
    places, kernels = widened(words.places, convolve.kernels), range(len(convolve.kernels))
    channels = torch.nn.functional.embedding(places, words.vectors).transpose(1, 2)
    totals = (
        [convolve.by_token(i, words.vectors, places) for i in kernels],
        [convolve.by_position(i, channels) for i in kernels],
    )
    maps, grads = [], []
    for way in totals:
        net.zero_grad()
        maps.append([rectified(t, words.lengths, size) for t, size in zip(way, convolve.kernels, strict=True)])
        sum((m * (i + 1)).pow(2).sum() for i, m in enumerate(maps[-1])).backward(retain_graph=True)
        grads.append([p.grad.clone() for p in net.parameters()])
    for a, b in zip(*maps, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    for a, b in zip(*grads, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def gathered(net, batch):
    """The stages with products once a vocabulary entry."""
    front = GatherOverTime(*net.stages[:3])
    with torch.no_grad():
        return net.stages[3](front(batch))


@pytest.mark.parametrize("block", [1, 300, 1 << 19])
def test_products_of_the_whole_vocabulary_are_what_each_text_gives_alone(monkeypatch, block):
    """Texts shorter than a kernel, and blocks of texts of any size, included."""
    monkeypatch.setattr("dubio.networks.textcnn.BLOCK_ELEMENTS", block)
    rows, net = texts([1, 2, 3, 4, 9, 17, 5]), network()
    with torch.no_grad():
        for bias in net.stages[1].biases:
            bias.uniform_(-0.3, 0.3)
    out = gathered(net, collate(rows, np.arange(7)))
    for i in range(7):
        tokens = rows.tokens[rows.offsets[i] : rows.offsets[i + 1]]
        assert torch.allclose(out[i], by_hand(net, tokens), atol=1e-5)


def test_products_of_the_whole_vocabulary_give_a_text_the_same_bits_in_every_batch():
    rows, net = texts([6, 30, 2, 11]), network()
    whole = gathered(net, collate(rows, np.arange(4)))
    for part in ([2], [3, 0], [1, 2, 0]):
        assert torch.equal(gathered(net, collate(rows, np.array(part))), whole[part])


def test_products_are_those_of_the_weights_they_were_made_from():
    rows, net = texts([5, 8]), network()
    batch = collate(rows, np.arange(2))
    front, before = GatherOverTime(*net.stages[:3]), net(batch)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(0.1)
    assert torch.allclose(net.stages[3](front(batch)), before, atol=1e-5)


def test_pad_is_zero_and_stays_zero_after_a_step():
    net = network().train()
    table = net.stages[0].table.weight
    assert (table[0] == 0).all()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.1)
    net(collate(texts([1, 8]), np.arange(2))).sum().backward()
    optimiser.step()
    assert (table[0] == 0).all()


def test_training_masks_and_sampled_ranks_have_the_same_mean_prediction():
    rows, body = texts([30] * 4, seed=5), network()
    model = Model(body, Softmax().build(body.width, 3))
    DropoutEdit(0.5).apply(model)
    pick = body.stages[3]
    batch = collate(rows, np.arange(4))
    generator = torch.Generator().manual_seed(0)
    for noise in model.noises():
        noise.generator = generator
    model.train()
    masked = torch.stack([pick(body.stages[2](body.stages[1](body.stages[0](batch)))) for _ in range(3000)])
    model.eval()
    for noise in model.noises():
        noise.sampling = True
    ranked = body.stages[2](body.stages[1](body.stages[0](batch)))
    for site in pick.sites:
        site.noise.given = torch.rand(3000 * 4, 6, generator=generator)
    ranks = pick(ranked).reshape(3000, 4, -1)
    spread = masked.std(0) / np.sqrt(3000) * np.sqrt(2)
    assert ((masked.mean(0) - ranks.mean(0)).abs() <= 5 * spread + 1e-6).all()


@pytest.mark.parametrize("word", [PADDING_WORD, UNKNOWN_WORD])
def test_unmasked_padding_is_the_maximum_over_every_window_of_the_padded_text(word: str) -> None:
    """The erratum against a plain convolution over texts filled up with one word, zero or that of unknown words."""
    texts = ("a b c d e f", "b", "f e d a")
    encoder = fit_encoder(TextEncoding(min_frequency=1), Examples(texts, np.zeros(3, dtype=np.int64)))
    torch.manual_seed(0)
    plain = textcnn(encoder.shape, embedding=5, maps=4, kernels=(2, 3)).eval()
    filled = tuple(text + f" {word}" * (9 - len(text.split())) for text in texts)
    rows = encoder.encode(Examples(filled, np.zeros(3, dtype=np.int64)))
    with torch.no_grad():
        features = plain(collate(rows, np.arange(3)))
        embed, convolve = plain.stages[0], plain.stages[1]
        padded = torch.tensor([[*rows.row(i)] for i in range(3)])
        channels = embed.table(padded).transpose(1, 2)
        kernels = zip(convolve.weights, convolve.biases, strict=True)
        maps = [functional.conv1d(channels, w.permute(1, 2, 0), b).relu().amax(-1) for w, b in kernels]
    assert padded.shape == (3, 9)
    assert (padded == (PAD if word == PADDING_WORD else UNK)).sum() == 3 * 9 - 11
    torch.testing.assert_close(features, torch.cat(maps, dim=1))
