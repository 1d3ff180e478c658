"""MC dropout with 50 samples against 50 plain passes, and concrete dropout with ten against ten, on TextCNN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from bench.corpus import clinc_like, review_like
from bench.obvious import ObviousConcrete, ObviousTextCNN, obvious_concrete, padded
from bench.timing import cpu_in_turns, in_turns, line
from dubio.encoders import TokenRows
from dubio.inference.batches import collate, prediction_rows
from dubio.inference.engine import plain_passes, shared_prefix
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import ConcreteDropoutEdit, DropoutEdit, SiteEdit
from dubio.networks.textcnn import textcnn

SAMPLES = 50
CONCRETE_SAMPLES = 10
BATCH = 128


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    cases = (("review-like", review_like(256), 2, 20_000), ("CLINC-like", clinc_like(512), 150, 2196))
    for name, rows, classes, vocabulary in cases:
        yield from _fixed(name, rows, classes, vocabulary)
        yield from _concrete(name, rows, classes, vocabulary)


def _fixed(name: str, rows: TokenRows, classes: int, vocabulary: int) -> Iterator[str]:
    model = _model(vocabulary, classes, DropoutEdit(0.5))
    obvious = ObviousTextCNN(vocabulary, classes, 0.5).train()

    def ours(way: object) -> None:
        draws = BlockDraws(0)
        for index in prediction_rows(rows, BATCH):
            way(model, collate(rows, index), draws, index, SAMPLES)  # type: ignore[operator]

    with torch.inference_mode():
        twin = in_turns(lambda: ours(plain_passes), lambda: ours(shared_prefix), rounds=2)
        plain = in_turns(lambda: _passes(obvious, rows, SAMPLES), lambda: ours(shared_prefix), rounds=2)
    conditions = _conditions(name, rows)
    yield line(
        f"MC dropout, {SAMPLES} samples, against {SAMPLES} passes of the same network", twin, "≥ 10 ×", conditions
    )
    yield line(f"MC dropout, {SAMPLES} samples, against {SAMPLES} passes of plain PyTorch", plain, "≥ 10 ×", conditions)


def _concrete(name: str, rows: TokenRows, classes: int, vocabulary: int) -> Iterator[str]:
    """Noise on the inputs of the convolutions leaves nothing but the embedding for samples to share."""
    model = _model(vocabulary, classes, ConcreteDropoutEdit())
    obvious = obvious_concrete(vocabulary, ObviousConcrete(nn.Linear(300, classes), 0.1)).train()

    def ours() -> None:
        draws = BlockDraws(0)
        for index in prediction_rows(rows, BATCH):
            shared_prefix(model, collate(rows, index), draws, index, CONCRETE_SAMPLES)

    with torch.inference_mode():
        ratio = cpu_in_turns(lambda: _passes(obvious, rows, CONCRETE_SAMPLES), ours, rounds=2)
    title = f"Concrete dropout, {CONCRETE_SAMPLES} samples, against {CONCRETE_SAMPLES} passes of plain PyTorch"
    yield line(title, ratio, "none", _conditions(name, rows))


def _model(vocabulary: int, classes: int, edit: SiteEdit) -> Model:
    body = textcnn((vocabulary,))
    model = Model(body, Softmax().build(body.width, classes))
    edit.apply(model)
    return model.eval()


def _passes(obvious: nn.Module, rows: TokenRows, samples: int) -> None:
    """The obvious way: the whole network once per sample."""
    for index in prediction_rows(rows, BATCH):
        batch = padded(rows, torch.from_numpy(np.asarray(index)))
        torch.stack([obvious(batch) for _ in range(samples)])


def _conditions(name: str, rows: TokenRows) -> str:
    return f"{name} lengths, {len(rows)} texts in length-sorted batches of {BATCH}, float32, one thread"
