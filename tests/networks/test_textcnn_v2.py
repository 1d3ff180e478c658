"""TextCNN with 2-D convolutions against torch's own conv2d over the whole fixed length, and against TextCNN."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.encoders import TokenRows
from dubio.inference.batches import collate
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import ConcreteDropoutEdit, sites
from dubio.networks.spectral import SpectralNorm
from dubio.networks.textcnn import textcnn
from dubio.networks.textcnn_v2 import textcnn_v2

VOCABULARY, LENGTH, KERNELS = 50, 10, (2, 3, 5)


def texts(lengths, seed=0):
    generator = np.random.default_rng(seed)
    rows = [generator.integers(1, VOCABULARY, size=n) for n in lengths]
    return TokenRows(np.concatenate(rows).astype(np.int32), np.cumsum([0, *lengths]).astype(np.int64))


def network(s=None):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = textcnn_v2((VOCABULARY,), length=LENGTH, embedding=8, maps=6, kernels=KERNELS)
        if s is not None:
            SpectralNorm(s).apply(net)
    return net.eval()


def by_hand(net, tokens):
    """A text padded to the fixed length, conv2d over words by embedding, the windows past its end left out."""
    tokens = tokens[:LENGTH]
    padded = functional.pad(torch.as_tensor(tokens, dtype=torch.long), (0, LENGTH - len(tokens)))
    image = net.stages[0].table(padded)[None, None]
    out = []
    for layer, size in zip(net.stages[2].layers, KERNELS, strict=True):
        maps = torch.relu(functional.conv2d(image, layer.weight, layer.bias))[0, :, :, 0]
        out.append(maps[:, : max(1, len(tokens) - size + 1)].amax(dim=1))
    return torch.cat(out)


@pytest.mark.parametrize("s", [None, 0.2])
def test_it_is_a_two_dimensional_convolution_over_a_fixed_length(s):
    rows, net = texts([1, 2, 3, 9, 10, 11, 25]), network(s)
    out = net(collate(rows, np.arange(7)))
    for i in range(7):
        tokens = rows.tokens[rows.offsets[i] : rows.offsets[i + 1]]
        assert torch.allclose(out[i], by_hand(net, tokens), atol=1e-6)


def test_words_past_the_fixed_length_are_not_read():
    net = network()
    long, short = texts([25]), texts([LENGTH])
    assert torch.allclose(
        net(collate(long, np.arange(1))),
        net(collate(TokenRows(long.tokens[:LENGTH], short.offsets), np.arange(1))),
        atol=1e-6,
    )


def test_within_the_length_it_is_textcnn():
    rows, net = texts([4, 1, 9, 7]), network()
    other = textcnn((VOCABULARY,), embedding=8, maps=6, kernels=KERNELS).eval()
    other.stages[0].load_state_dict(net.stages[0].state_dict())
    with torch.no_grad():
        for i, layer in enumerate(net.stages[2].layers):
            other.stages[1].weights[i].copy_(layer.weight[:, 0].transpose(0, 1))
    batch = collate(rows, np.arange(4))
    assert torch.allclose(net(batch), other(batch), atol=1e-6)


def test_noise_on_the_inputs_takes_the_pass_by_position_which_agrees():
    rows, net = texts([4, 1, 12, 7]), network(0.5)
    model = Model(net, Softmax().build(net.width, 3))
    ConcreteDropoutEdit().apply(model)
    batch = collate(rows, np.arange(4))
    plain = model.eval().network(batch)
    for site in sites(net):
        if site.noise is not None:
            site.noise.sampling = True
            site.noise.given = torch.full((4, site.width), 1e-30)  # u = 0 drops nothing
    with torch.no_grad():
        kept = [site.noise for site in sites(net) if site.noise is not None]
        assert [noise.width for noise in kept] == [8, 8, 8]
        scale = 1.0 / (1.0 - kept[0].rate())
        weights = net.stages[2]
        assert all((layer.bias == 0).all() for layer in weights.layers)
        assert torch.allclose(net(batch), plain * scale, atol=1e-5)


def test_a_length_below_the_widest_kernel_is_refused():
    with pytest.raises(UserError, match="at least the widest kernel, 5; given 4"):
        textcnn_v2((20,), length=4)
