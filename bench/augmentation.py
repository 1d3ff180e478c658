"""Random crops with padding and flips on tensors, a batch at once, against one image after another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from bench.ensemble_models import images
from bench.timing import cpu_in_turns, line
from dubio.inference.augmentation import ShiftFlip

ROWS, PIXELS = 128, 4


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    batch = torch.from_numpy(images(ROWS).encoded.at(np.arange(ROWS)))
    uniforms = torch.rand(ROWS, 3, generator=torch.Generator().manual_seed(0))
    view = ShiftFlip(PIXELS, 0.5)
    assert torch.equal(one_by_one(batch, uniforms), view.apply(batch, uniforms))
    ratio = cpu_in_turns(lambda: one_by_one(batch, uniforms), lambda: view.apply(batch, uniforms), rounds=10)
    speed = f"{ROWS / ratio.second:,.0f} images a second"
    told = f"{speed}; {ROWS} images of 32×32, padding {PIXELS}, flip ½, 1 thread, CPU seconds"
    yield line("crop and flip", ratio, "above 1", told)


def one_by_one(batch: Tensor, uniforms: Tensor) -> Tensor:
    """Pad, cut and flip each image as one would by hand."""
    size = batch.shape[-1]
    views = []
    for image, (down, right, flip) in zip(batch, uniforms, strict=True):
        padded = torch.nn.functional.pad(image, [PIXELS] * 4)
        top, left = int(down * (2 * PIXELS + 1)), int(right * (2 * PIXELS + 1))
        cut = padded[:, top : top + size, left : left + size]
        views.append(cut.flip(-1) if flip < 0.5 else cut)
    return torch.stack(views)
