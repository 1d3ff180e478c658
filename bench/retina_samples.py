"""MC dropout with 100 samples on the retina network against 100 passes, and why it is what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from bench.timing import Ratio, cpu_in_turns
from dubio.inference.engine import plain_passes, shared_prefix
from dubio.networks.draws import BlockDraws
from dubio.networks.heads.linear import Softmax
from dubio.networks.network import Model
from dubio.networks.noise import DropoutEdit
from dubio.networks.vgg_retina import vgg_retina

SAMPLES, IMAGES, SIZE, BASE, RATE = 100, 128, 64, 8, 0.2
CONDITIONS = f"vgg-retina base {BASE}, {IMAGES} images of {SIZE} px, float32, one thread, seconds of the processor"


def run() -> Iterator[str]:
    torch.set_num_threads(1)
    body = vgg_retina((3, SIZE, SIZE), base=BASE)
    model = Model(body, Softmax().build(body.width, 2))
    DropoutEdit(RATE).apply(model)
    model.eval()
    batch, rows = torch.randn(IMAGES, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0)), np.arange(IMAGES)
    with torch.inference_mode():
        early = _against_passes(model, batch, rows)
        noise = cpu_in_turns(lambda: _passes(model, batch), lambda: model.head(model.network(batch)), rounds=3)
        share = _share_before_noise(model, batch)
        yield _line("from the same weights", early)
        drawn = early.second / (SAMPLES * noise.second)
        yield (
            f"  why: noise comes early. The first dropout acts after the first convolution, which does {share:.0%} of "
            f"the multiplications; computing it once can save that much and no more, at best "
            f"{1 / (1 - share * (1 - 1 / SAMPLES)):.2f} ×. All {SAMPLES} masks of every unit must be drawn, too: a "
            f"sample costs {drawn:.1f} × a pass without noise, where torch's own dropout makes it {noise.times:.1f} ×."
        )
        for site in list(model.sites())[:-1]:
            site.noise = None
        late = _against_passes(model, batch, rows)
        yield _line("with dropout before the head alone", late)
        yield "  why: everything but the head is computed once; this is what a network with late noise would gain."


def _line(what: str, ratio: Ratio) -> str:
    return (
        f"MC dropout on retina images {what}, {SAMPLES} samples against {SAMPLES} passes: {ratio.times:.1f} × "
        f"({ratio.first:.2f} s → {ratio.second:.2f} s) [{CONDITIONS}]"
    )


def _against_passes(model: Model, batch: Tensor, rows: np.ndarray) -> Ratio:
    def by(way: Callable[..., object]) -> Callable[[], object]:
        return lambda: way(model, batch, BlockDraws(0), rows, SAMPLES)

    return cpu_in_turns(by(plain_passes), by(shared_prefix), rounds=1)


def _passes(model: Model, batch: Tensor) -> None:
    """One pass with torch's own dropout wherever the model has noise."""
    value = batch
    for step in model.steps:
        site = getattr(step, "site", None)
        if site is not None and site.noise is not None:
            value = nn.functional.dropout(value, RATE, training=True)
        value = step(value)


def _share_before_noise(model: Model, batch: Tensor) -> float:
    """The share of the network's multiplications that its first convolution does."""
    counts: list[int] = []

    def count(layer: nn.Module, _: object, out: Tensor) -> None:
        counts.append(layer.weight[0].numel() * out[0].numel())  # type: ignore[operator, index, union-attr]

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, nn.Conv2d)]
    model.network(batch[:1])
    for hook in hooks:
        hook.remove()
    return counts[0] / sum(counts)
