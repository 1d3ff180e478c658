"""The obvious PyTorch way: what one would write without dubio, used as the yardstick."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.encoders import TokenRows


class ObviousTextCNN(nn.Module):
    """nn.Embedding, three nn.Conv1d, ReLU, dropout per position, max over time, dropout, a head (nn.Linear)."""

    def __init__(self, vocabulary: int, classes: int, p: float, head: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 300, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(300, 100, size) for size in (3, 4, 5))
        self.dropout = nn.Dropout(p) if p else nn.Identity()
        self.head = head or nn.Linear(300, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = self.embedding(tokens).transpose(1, 2)
        maps = [self.dropout(torch.relu(convolution(vectors))).amax(dim=2) for convolution in self.convolutions]
        return self.head(self.dropout(torch.cat(maps, dim=1)))


class ObviousConcrete(nn.Module):
    """A layer behind concrete dropout of its input channels."""

    def __init__(self, layer: nn.Conv1d | nn.Linear, temperature: float) -> None:
        super().__init__()
        self.layer = layer
        self.temperature = temperature
        self.logit = nn.Parameter(torch.tensor(-2.0))

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return self.layer(inputs)
        u = torch.rand(*inputs.shape[:2], *([1] * (inputs.ndim - 2))).clamp(1e-7, 1 - 1e-7)
        z = torch.sigmoid((self.logit + torch.logit(u)) / self.temperature)
        return self.layer(inputs * (1 - z) / torch.sigmoid(-self.logit))

    def penalty(self, examples: int) -> Tensor:
        p = torch.sigmoid(self.logit)
        entropy = p * torch.log(p) + (1 - p) * torch.log(1 - p)
        return (0.005 * self.layer.weight.square().sum() / (1 - p) + self.layer.weight.shape[1] * entropy) / examples


class ObviousHeteroscedastic(nn.Module):
    """log of the mean softmax over ten draws of μ + σ·ε; its cross-entropy is the loss."""

    def __init__(self, mu: nn.Module, log_variance: nn.Module) -> None:
        super().__init__()
        self.mu = mu
        self.log_variance = log_variance

    def forward(self, features: Tensor) -> Tensor:
        mu, sigma = self.mu(features), torch.exp(0.5 * self.log_variance(features))
        drawn = torch.log_softmax(mu + sigma * torch.randn(10, *mu.shape), dim=-1)
        return torch.logsumexp(drawn, dim=0) - math.log(10)


def obvious_concrete(vocabulary: int, head: nn.Module) -> ObviousTextCNN:
    """The network with concrete dropout before each convolution, and a head that has its own."""
    network = ObviousTextCNN(vocabulary, 0, 0.0, head)
    network.convolutions = nn.ModuleList(ObviousConcrete(layer, 2 / 3) for layer in network.convolutions)
    return network


def padded(rows: TokenRows, index: Tensor) -> Tensor:
    """A batch padded to its longest text, and to the widest kernel."""
    texts = [
        torch.from_numpy(rows.tokens[rows.offsets[i] : rows.offsets[i + 1]].astype("int64")) for i in index.tolist()
    ]
    batch = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return functional.pad(batch, (0, max(0, 5 - batch.shape[1])))
