"""A hundred snapshots of a small network in float32 and in float16: bytes on disk and what rounding does to the nll."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from bench.ensemble_models import images, small_vgg
from dubio.formats.safetensors import write_tensors
from dubio.inference.samples import WeightSamples
from dubio.training.collectors import FinishContext, KeepAll
from dubio.training.loop import LoopContext, Slots, train
from dubio.training.objectives import Objective
from dubio.training.optimisers import SGD
from dubio.training.schedules import ConstantTail
from dubio.training.validation import posterior_nll

SNAPSHOTS, TRAIN, TEST, SIZE = 100, 100, 200, 10


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    exact, rounded = (_snapshots(store) for store in ("float32", "float16"))
    sizes = [_bytes(posterior) for posterior in (exact, rounded)]
    data = images(TEST, SIZE, seed=1)
    losses = [posterior_nll(p, data, seed=0, device=torch.device("cpu")) for p in (exact, rounded)]
    yield (
        f"storage of {SNAPSHOTS} snapshots: {sizes[0] / 1e6:.1f} MB in float32, {sizes[1] / 1e6:.1f} MB in float16 "
        f"({sizes[1] / sizes[0]:.0%}; aim about half) [VGG with {exact.model.parameter_count():,} parameters; "
        f"nll of all together {losses[0]:.6f} and {losses[1]:.6f}, apart by {abs(losses[0] - losses[1]):.1e}]"
    )


def _snapshots(store: str) -> WeightSamples:
    model, data = small_vgg((8, 16), SIZE), images(TRAIN, SIZE)
    collect = KeepAll(store=store)  # type: ignore[arg-type]
    slots = Slots(Objective(50, SNAPSHOTS, patience=0), SGD(0.02), ConstantTail(), collect)
    device = torch.device("cpu")
    context = LoopContext(device, lambda fraction, words: None)
    held, _ = train(model, slots, data, images(10, SIZE, seed=2), seed=0, member=0, context=context)
    return collect.finish(held, model, FinishContext(data, data, device, seed=0, batch=50))


def _bytes(posterior: WeightSamples) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        write_tensors(path, {name: np.asarray(tensor) for name, tensor in posterior.tensors().items()}, {})
        return path.stat().st_size
