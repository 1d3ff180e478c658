"""What affine augmentation costs of a training step, and what Flipout costs, on images of 64 pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from bench.timing import cpu_in_turns
from dubio.encoders import ArrayRows
from dubio.inference.augmentation import Affine
from dubio.inference.batches import LabelledRows
from dubio.networks.gaussian_weights import GaussianWeights
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.vgg_retina import vgg_retina
from dubio.training.collectors import Last
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.objectives import Objective
from dubio.training.optimisers import Adam
from dubio.training.schedules import Constant

IMAGES, SIZE, BATCH, BASE = 512, 64, 64, 8
CONDITIONS = f"vgg-retina base {BASE}, {SIZE} px, batch {BATCH}, Adam, float32, one thread, seconds of the processor"


def epoch(augmentation: Affine | None, edit: GaussianWeights | None) -> Callable[[], object]:
    """One pass over made-up images, ready to be timed."""
    generator = np.random.default_rng(0)
    rows = ArrayRows(generator.standard_normal((IMAGES, 3, SIZE, SIZE), dtype=np.float32))
    labels = generator.integers(0, 2, size=IMAGES)
    body = vgg_retina((3, SIZE, SIZE), base=BASE)
    model = Model(body, Softmax().build(body.width, 2))
    if edit is not None:
        edit.apply(model)
    objective = Objective(batch=BATCH, epochs=1, patience=0, class_weights="batch", augmentation=augmentation)
    slots = Slots(objective, Adam(4e-4, 5e-5), Constant(), Last())
    data, check = LabelledRows(rows, labels, 2), LabelledRows(rows.take(np.arange(1)), labels[:1], 2)
    context = LoopContext(torch.device("cpu"), lambda fraction, words: None)
    return lambda: train(model, slots, data, check, seed=0, member=0, context=context)


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    views = Affine(zoom=0.1, pixels=3.0, degrees=180.0, flip=0.5)
    ratio = cpu_in_turns(epoch(views, None), epoch(None, None), rounds=7)
    share, steps = 1.0 - ratio.second / ratio.first, IMAGES // BATCH
    yield (
        f"affine augmentation of a retina training step: {share:.0%} of it "
        f"({1e3 * ratio.first / steps:.0f} ms with, {1e3 * ratio.second / steps:.0f} ms without; aim < 15 %) "
        f"[{CONDITIONS}]"
    )
    ratio = cpu_in_turns(epoch(None, GaussianWeights()), epoch(None, None), rounds=3)
    yield (
        f"Flipout against ordinary weights, one training step: {ratio.times:.1f} × "
        f"({1e3 * ratio.second / steps:.0f} ms → {1e3 * ratio.first / steps:.0f} ms) [{CONDITIONS}]"
    )
