"""Laplace: draws of the last layer that share one pass through the network, and what Kronecker factors cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bench.ensemble_models import images, small_vgg
from bench.timing import Ratio, cpu_in_turns, least, line
from dubio.inference.batches import LabelledRows, collate
from dubio.networks.linear_maps import linear_maps
from dubio.networks.network import Model
from dubio.training.collectors import Collected, FinishContext
from dubio.training.laplace.collector import Laplace
from dubio.training.laplace.curvature import kronecker

DRAWS, ROWS, BATCH = 20, 256, 128
CPU = torch.device("cpu")


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    data, model = images(ROWS), small_vgg()
    told = f"VGG-small, images of 32×32, {model.parameter_count():,} parameters, float32, 1 thread, CPU seconds"
    context = FinishContext(data, data, CPU, seed=0, batch=BATCH)
    posterior = Laplace("last-kron", draws=DRAWS, scale=1.0).finish(Collected(), model, context)
    rows = np.arange(BATCH)
    batch = collate(data.encoded, rows)
    shared, whole = posterior.draw(0), posterior.plain.draw(0)
    far = (shared.predict(batch, rows).logits - whole.predict(batch, rows).logits).abs().max()
    ratio = cpu_in_turns(lambda: whole.predict(batch, rows), lambda: shared.predict(batch, rows), rounds=3)
    conditions = f"batch {BATCH}, logits within {far:.0e}; {told}"
    yield line(f"{DRAWS} last-layer draws, the network run once", ratio, f"about {DRAWS}", conditions)
    factors = least(lambda: kronecker(model, linear_maps(model), data, batch=BATCH, device=CPU, seed=0), rounds=2)
    ratio = Ratio(factors, least(lambda: _epoch(model.train(), data), rounds=2))
    yield line("Kronecker factors, in epochs of training", ratio, "about the number of classes, 10", told)


def _epoch(model: Model, data: LabelledRows) -> None:
    """Forward and backward over the examples, as a training step has them."""
    for first in range(0, ROWS, BATCH):
        rows = np.arange(first, first + BATCH)
        model.zero_grad(set_to_none=True)
        labels = torch.from_numpy(data.labels[rows])
        model.head.loss(model(collate(data.encoded, rows)), labels).mean().backward()
