"""Batch-norm statistics of weight draws: of at most 2,048 examples, read once for all draws, against one pass a draw.

The plain way is what one would write with torch alone: put a draw's weights into the model, let every batch-norm layer
keep a cumulative average (`momentum = None`), and run the whole network over the training data. Nearly all of the time
goes into forward passes: what is saved is those of the other examples (the methods' default is 2,048 of them), so that
the ratio grows with the training data. What it does to predictions is in `tests/training/test_batch_norm.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bench.ensemble_models import images, shaken, small_vgg
from bench.timing import cpu_in_turns, line
from dubio.inference.augmentation import ShiftFlip, augment
from dubio.inference.batches import collate, training_rows
from dubio.methods.arguments import NORM_EXAMPLES
from dubio.training.batch_norm import batch_norm_layers, refresh_draws
from dubio.training.collectors import FinishContext

DRAWS, ROWS, BATCH = 4, 4608, 64


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    cases = (("VGG-small", (16, 32, 64, 128), 32), ("a narrow VGG", (8, 16), 16))
    for name, channels, size in cases:
        for augmentation in (ShiftFlip(4, 0.5), None):
            yield from _case(name, channels, size, augmentation)


def _case(name: str, channels: tuple[int, ...], size: int, augmentation: ShiftFlip | None) -> Iterator[str]:
    data, model = images(ROWS, size), small_vgg(channels, size)
    parameters = {n for n, _ in model.named_parameters()}
    draws = [{n: t for n, t in state.items() if n in parameters} for state in shaken(model, DRAWS)]
    context = FinishContext(data, data, torch.device("cpu"), seed=0, batch=BATCH, augmentation=augmentation)

    @torch.no_grad()
    def plain() -> None:
        for draw in draws:
            model.load_state_dict(draw, strict=False)
            model.train()
            for layer in batch_norm_layers(model).values():
                layer.reset_running_stats()
                layer.momentum = None
            generator = torch.Generator().manual_seed(0)
            for rows in training_rows(data.encoded, BATCH, np.random.default_rng(0)):
                model(augment(augmentation, collate(data.encoded, rows), generator))
        for layer in batch_norm_layers(model).values():
            layer.momentum = 0.1

    def ours() -> None:
        refresh_draws(model, [lambda draw=draw: draw for draw in draws], context, NORM_EXAMPLES)

    views = "crop and flip" if augmentation else "no augmentation"
    told = f"{name}, {ROWS} images of {size}×{size}, {views}, float32, 1 thread, CPU seconds"
    yield line(f"batch-norm of {DRAWS} draws", cpu_in_turns(plain, ours, rounds=1), "≥ 2 ×", told)
