"""A module's own dropout layers as noise sites: their draws then come from the engine, row by row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.networks.network import kind_of
from dubio.networks.noise import Dropout, Noise, Site, SiteEdit

UNITS = (nn.Dropout,)
"""Layers that drop every unit independently."""

CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
"""Layers that drop whole channels."""

Shapes = Sequence[tuple[int, ...]]


class LayerSite(Site):
    """The site of a dropout layer, which has a rate."""

    def __init__(self, name: str, width: int, rate: float) -> None:
        """Make a site.

        Args:
            name: The layer's path and, where a pass uses the layer repeatedly, the number of the call.
            width: Units (or channels) of an example.
            rate: The layer's p.
        """
        super().__init__(name, width, accepts=("dropout", "own_dropout"))
        self.rate = rate


@part("own_dropout")
@dataclass(frozen=True)
class OwnDropout(SiteEdit):
    """Fixed dropout at a module's own dropout layers, each with its own rate."""

    def noise(self, site: Site) -> Noise:
        """Return dropout with the layer's rate."""
        if not isinstance(site, LayerSite):
            raise UserError(f"own_dropout: site {site.name!r} is not a dropout layer of a module and has no rate.")
        return Dropout(site.width, site.rate)


class SiteLayer(nn.Module):
    """A replacement of a dropout layer: one site for each call of the layer in a pass."""

    def __init__(self, path: str, sites: Sequence[LayerSite], *, by_channel: bool) -> None:
        """Replace the layer at this path by sites."""
        super().__init__()
        self.sites = nn.ModuleList(sites)
        self._path, self._by_channel = path, by_channel
        self._calls = 0

    def begin_pass(self) -> None:
        """Count calls from 0 again."""
        self._calls = 0

    def forward(self, h: Tensor) -> Tensor:
        """Apply the noise to ``h [rows, …]``."""
        if self._calls == len(self.sites):
            raise UserError(f"{_layer(self._path)} is used more often in this pass than in the first one.")
        site = self.sites[self._calls]
        self._calls += 1
        width = h.shape[1] if self._by_channel else h[0].numel()
        if width != site.width:
            raise UserError(f"{_layer(self._path)} acts on {width} values of an example; it was {site.width} before.")
        out: Tensor = site(h) if self._by_channel else site(h.flatten(1)).reshape(h.shape)
        return out


def dropout_layers(module: nn.Module) -> dict[str, nn.Module]:
    """Return the dropout layers of a module by path, each once."""
    return {path: layer for path, layer in module.named_modules() if isinstance(layer, nn.modules.dropout._DropoutNd)}


def replace_layer(module: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Replace a layer by another one at every path of a module."""
    for path, layer in list(module.named_modules(remove_duplicate=False)):
        if layer is old:
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, new)


def replace_dropout(module: nn.Module, shapes: Mapping[int, Mapping[str, Shapes]]) -> None:
    """Replace a module's dropout layers by sites, in place.

    Args:
        module: The module.
        shapes: For two passes with different numbers of rows, the input shapes of each dropout layer, by its path.

    Raises:
        UserError: When it has no dropout layer, or one whose input is not a batch of examples.
    """
    layers = dropout_layers(module)
    if not layers:
        raise UserError("network: this method needs dropout, and the module has no nn.Dropout layer; add one.")
    for path, layer in layers.items():
        by_channel = isinstance(layer, CHANNELS)
        widths = _widths(path, {rows: by_path[path] for rows, by_path in shapes.items()}, by_channel=by_channel)
        names = [path if i == 0 else f"{path}#{i + 1}" for i in range(len(widths))]
        sites = [LayerSite(name, width, _rate(path, layer)) for name, width in zip(names, widths, strict=True)]
        replace_layer(module, layer, SiteLayer(path, sites, by_channel=by_channel))


def _rate(path: str, layer: nn.Module) -> float:
    """Return the rate of a dropout layer."""
    if not isinstance(layer, UNITS + CHANNELS):
        kinds = ", ".join(f"nn.{kind.__name__}" for kind in UNITS + CHANNELS)
        raise UserError(f"{_layer(path)} is {kind_of(layer)}; supported are {kinds}.")
    if not 0.0 <= layer.p < 1.0:
        raise UserError(f"{_layer(path)} has p={layer.p}; it must be at least 0 and less than 1.")
    return float(layer.p)


def _widths(path: str, shapes: Mapping[int, Shapes], *, by_channel: bool) -> list[int]:
    """Return the number of draws per example for each call of a layer in a pass."""
    first, second = ([shape[1:] for shape in calls] for calls in shapes.values())
    if not first:
        raise UserError(f"{_layer(path)} is not used in evaluation; remove it, or use it.")
    batch_first = all(shape[0] == rows for rows, calls in shapes.items() for shape in calls)
    if not batch_first or first != second or any(len(shape) < 1 for shape in first):
        acts = f"acts on shapes {list(shapes.values())} in batches of {list(shapes)} examples"
        raise UserError(f"{_layer(path)} {acts}; the first axis must be the batch, and the others always the same.")
    return [shape[0] if by_channel else math.prod(shape) for shape in first]


def _layer(path: str) -> str:
    return f"network: the dropout layer {path!r}"
