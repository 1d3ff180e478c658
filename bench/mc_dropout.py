"""MC dropout prediction with 50 samples against 50 plain passes, on TextCNN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bench.corpus import clinc_like, review_like
from bench.obvious import ObviousTextCNN, padded
from bench.timing import in_turns, line
from dubio.encoders import TokenRows
from dubio.inference.batches import collate, prediction_rows
from dubio.inference.engine import plain_passes, shared_prefix
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import DropoutEdit
from dubio.networks.textcnn import textcnn

SAMPLES = 50
BATCH = 128


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    cases = (("review-like", review_like(256), 2, 20_000), ("CLINC-like", clinc_like(512), 150, 2196))
    for name, rows, classes, vocabulary in cases:
        yield from _case(name, rows, classes, vocabulary)


def _case(name: str, rows: TokenRows, classes: int, vocabulary: int) -> Iterator[str]:
    body = textcnn((vocabulary,))
    model = Model(body, Softmax().build(body.width, classes))
    DropoutEdit(0.5).apply(model)
    model.eval()
    obvious = ObviousTextCNN(vocabulary, classes, 0.5).train()

    def ours(way: object) -> None:
        draws = BlockDraws(0)
        for index in prediction_rows(rows, BATCH):
            way(model, collate(rows, index), draws, index, SAMPLES)  # type: ignore[operator]

    def theirs() -> None:
        for index in prediction_rows(rows, BATCH):
            batch = padded(rows, torch.from_numpy(np.asarray(index)))
            torch.stack([obvious(batch) for _ in range(SAMPLES)])

    conditions = f"{name} lengths, {len(rows)} texts in length-sorted batches of {BATCH}, float32, one thread"
    with torch.inference_mode():
        twin = in_turns(lambda: ours(plain_passes), lambda: ours(shared_prefix), rounds=2)
        plain = in_turns(theirs, lambda: ours(shared_prefix), rounds=2)
    yield line(
        f"MC dropout, {SAMPLES} samples, against {SAMPLES} passes of the same network", twin, "≥ 10 ×", conditions
    )
    yield line(f"MC dropout, {SAMPLES} samples, against {SAMPLES} passes of plain PyTorch", plain, "≥ 10 ×", conditions)
