"""The obvious PyTorch way: what one would write without dubio, used as the yardstick."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubio.encoders import TokenRows


class ObviousTextCNN(nn.Module):
    """nn.Embedding, three nn.Conv1d, ReLU, dropout per position, max over time, dropout, nn.Linear."""

    def __init__(self, vocabulary: int, classes: int, p: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 300, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(300, 100, size) for size in (3, 4, 5))
        self.dropout = nn.Dropout(p)
        self.head = nn.Linear(300, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = self.embedding(tokens).transpose(1, 2)
        maps = [self.dropout(torch.relu(convolution(vectors))).amax(dim=2) for convolution in self.convolutions]
        return self.head(self.dropout(torch.cat(maps, dim=1)))


def padded(rows: TokenRows, index: Tensor) -> Tensor:
    """A batch padded to its longest text, and to the widest kernel."""
    texts = [
        torch.from_numpy(rows.tokens[rows.offsets[i] : rows.offsets[i + 1]].astype("int64")) for i in index.tolist()
    ]
    batch = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return functional.pad(batch, (0, max(0, 5 - batch.shape[1])))
