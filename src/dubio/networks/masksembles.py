"""Masksembles (Durasov et al., 2021): one network, of whose features each member sees a fixed subset.

The inputs of every layer but the first are multiplied by one of M binary masks, drawn once. A mask has m ones; the M
masks are drawn over ⌊m·S⌋ positions, and positions that no mask uses are left out. The expected number of the others is

    C = m·S·(1 − (1 − 1/S)^M)

(their supplementary material), which determines m for a layer of C inputs. Two masks share m/S ones on average, so
that their intersection over union is close to 1/(2S − 1): S = 1 is a single network, a large S gives members without
common features. Masks are not trained: the parameters are those of one network. In training each example goes through
one mask, as with dropout, so that a step costs what it costs with one network; a prediction goes through all M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.specs import part
from dubio.core.validate import Positive, PositiveFloat
from dubio.networks.members import MemberEdit, OneMemberEach, SplitMembers, check_unchanged, reading_layers, split_rows
from dubio.networks.network import Model, UnfitWidth
from dubio.networks.rank_one import RankOne, offered_layers, scale_layer, stage_of

ATTEMPTS = 500
"""Sets of masks drawn for each number of positions until one uses exactly the layer's inputs."""


@part("masksembles")
@dataclass(frozen=True)
class Masksembles(MemberEdit):
    """Masks on the inputs of every dense layer and convolution, except the one that reads the data.

    Attributes:
        size: M, the number of masks.
        scale: S, at least 1: how little masks overlap.
    """

    size: Positive = 4
    scale: PositiveFloat = 2.0

    def __post_init__(self) -> None:
        if self.scale < 1.0:
            raise UserError(f"masksembles: scale must be at least 1, where masks are the same; given {self.scale}.")

    @property
    def least_batch(self) -> int:
        """M: of a smaller batch, whose example i trains member i, the last members would get none."""
        return self.size

    def apply(self, model: Model) -> None:
        """Mask the inputs of the layers.

        Raises:
            UserError: When no layer reads outputs of another one, or one cannot be masked.
        """
        check_unchanged("masksembles", model)
        readers = reading_layers(model)
        body = [(path, layer) for path, layer in offered_layers(model.network, "network") if path not in readers]
        behind_weights = any(True for _ in model.network.parameters())
        head = offered_layers(model.head, "head") if behind_weights else []
        if not body and not head:
            raise UserError("masksembles: no trained dense layer or convolution reads the outputs of another layer.")
        for path, layer in (*body, *head):
            scale_layer("masksembles", path, layer, lambda inputs, *_: RankOne(masks(inputs, self.size, self.scale)))
        index = min(stage_of(path) for path, _ in body) if body else len(model.network.stages)
        split_rows(model, index, SplitMembers(self.size, assigned=True))
        model.network.arrangement = OneMemberEach(self.size)


def ones_per_mask(inputs: int, members: int, scale: float) -> int:
    """Return m, such that M masks of m ones are expected to use ``inputs`` positions."""
    return max(1, round(inputs / (scale * (1.0 - (1.0 - 1.0 / scale) ** members))))


def masks(inputs: int, members: int, scale: float) -> Tensor:
    """Return masks ``[M, inputs]``, each with m ones, that together use every input; from torch's own generator.

    The number of positions that masks use is random. Sets are drawn until it is right, over ⌊m·S⌋ positions first,
    then over ever more different numbers of them.

    Raises:
        UserError: When a layer is too narrow for such masks.
    """
    ones = min(inputs, max(ones_per_mask(inputs, members, scale), -(-inputs // members)))
    if (tensor := _draw(inputs, members, ones, scale)) is not None:
        return tensor
    smaller = (round(scale / 2**step, 1) for step in range(1, math.ceil(math.log2(scale))))
    other = next((s for s in smaller if _is_possible(inputs, members, s)), 1.0)
    failed = f"no draw of {members} masks with {ones} ones each used all {inputs} inputs of a layer"
    hint = f"Scale {other:g} works in this layer."
    raise UnfitWidth(f"masksembles: scale={scale:g} leaves too few ones: {failed}. {hint}")


def _is_possible(inputs: int, members: int, scale: float) -> bool:
    ones = min(inputs, max(ones_per_mask(inputs, members, scale), -(-inputs // members)))
    return _draw(inputs, members, ones, scale) is not None


def _draw(inputs: int, members: int, ones: int, scale: float) -> Tensor | None:
    """Return masks with this number of ones that use every input, or None where no draw did."""
    middle = min(int(ones * scale), ones * members)
    for positions in sorted(range(max(ones, inputs), ones * members + 1), key=lambda size: abs(size - middle)):
        for _ in range(ATTEMPTS):
            candidates = torch.rand(members, positions).argsort(dim=1) < ones
            used = candidates.any(dim=0)
            if int(used.sum()) == inputs:
                return candidates[:, used].float()
    return None
