"""TextCNN prediction with products once a vocabulary entry against the plain forward pass, on 20 Newsgroups."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from bench.obvious import ObviousTextCNN, padded
from bench.timing import Ratio, least, line
from dubio.core.errors import DubioError
from dubio.core.registry import TASKS
from dubio.encoders import TokenRows
from dubio.encoders.text import TextEncoding
from dubio.inference.batches import collate, prediction_rows
from dubio.inference.samples import WeightSamples, state_of
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.textcnn import textcnn

VOCABULARY, CLASSES, BATCH = 30_000, 20, 128
PLAIN_BATCHES = (32, 128)
CHECKED = 8  # every eighth text is compared with a pass of its own


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    try:
        rows, vocabulary = _newsgroups()
    except DubioError as fault:
        yield f"TextCNN inference on 20 Newsgroups: not measured, the texts are not here ({fault})"
        return
    model, plain = _twins(vocabulary)
    posterior = WeightSamples(model, (state_of(model),))
    logits = torch.empty(len(rows), CLASSES)

    def ours() -> None:
        drawn = posterior.draw(0)
        for index in prediction_rows(rows, BATCH):
            logits[index] = drawn.predict(collate(rows, index), index).logits[0]

    by_length = torch.from_numpy(np.argsort(rows.lengths, kind="stable"))

    def theirs(batch: int) -> None:
        for index in by_length.split(batch):
            plain(padded(rows, index))

    with torch.inference_mode():
        first = min(least(lambda batch=batch: theirs(batch), rounds=1) for batch in PLAIN_BATCHES)  # type: ignore[misc]
        second = least(ours, rounds=3)
        difference = _difference(logits, plain, rows)
    conditions = (
        f"{len(rows)} texts, {rows.lengths.mean():.0f} words on average, {vocabulary} entries, from tokens to logits, "
        f"products included; plain: the faster of length-sorted batches of {' and '.join(map(str, PLAIN_BATCHES))}; "
        f"float32, one thread, least seconds of the process; largest difference {difference:.0e}, of logits up to "
        f"{logits.abs().max():.1f}"
    )
    yield line("TextCNN inference, against the plain PyTorch pass", Ratio(first, second), "≥ 5 ×", conditions)


def _newsgroups() -> tuple[TokenRows, int]:
    """The test texts and the size of the vocabulary."""
    task = TASKS.make("20news")
    encoder = TextEncoding(vocabulary=VOCABULARY, min_frequency=1).fit(task.split("train").data)
    return encoder.encode(task.split("test").data), encoder.shape[0]


def _twins(vocabulary: int) -> tuple[Model, ObviousTextCNN]:
    """Our model and the plain one with the same weights, of the size that trained ones have."""
    torch.manual_seed(0)
    body = textcnn((vocabulary,))
    model = Model(body, Softmax().build(body.width, CLASSES))
    plain = ObviousTextCNN(vocabulary, CLASSES, 0.0)
    embed, convolve = body.stages[0], body.stages[1]
    with torch.no_grad():
        embed.table.weight[1:].normal_(0.0, 0.3)
        plain.embedding.weight.copy_(embed.table.weight)
        for layer, weight, bias in zip(plain.convolutions, convolve.weights, convolve.biases, strict=True):
            bias.normal_(0.0, 0.1)
            layer.weight.copy_(weight.permute(2, 1, 0))
            layer.bias.copy_(bias)
        plain.head.load_state_dict(model.head.linear.state_dict())
    return model.eval(), plain.eval()


def _difference(logits: Tensor, plain: ObviousTextCNN, rows: TokenRows) -> float:
    """The largest against the plain pass of each text by itself, where it has no windows that reach into padding."""
    chosen = [i for i in range(0, len(rows), CHECKED) if rows.lengths[i] >= 5]
    alone = torch.cat([plain(padded(rows, torch.tensor([i]))) for i in chosen])
    return float((alone - logits[chosen]).abs().max())
