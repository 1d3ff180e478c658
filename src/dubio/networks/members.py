"""Members inside one network: how an ensemble's members share a batch, and stages that separate and join them.

A network with members gives features ``[B, M, width]``, which the head scores one by one; at prediction they are
samples of different members (:mod:`dubio.networks.network`). Members lie side by side in one of two ways:

- *as rows* (BatchEnsemble, Masksembles): each example M times, row i belongs to member i mod M;
- *as channels* (packed ensembles): one row per example, whose channels are M groups.

Where members share all features (several heads, MIMO), the last stage repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, cast

import torch
from torch import Generator, Tensor, nn

from dubio.core.errors import UserError
from dubio.networks.network import Edit, Model, Stage, contract, grouped, kind_of
from dubio.networks.noise import sites
from dubio.networks.rank_one import RankOne, offered_layers


class MemberEdit(Edit):
    """An edit that makes members; a recipe has at most one.

    Attributes:
        size: M, the number of members.
        redraws: The layers whose weights it draws anew, in words; empty where all weights are a start.
        least_batch: Smallest batch that trains every member.
    """

    random: ClassVar[bool] = False
    redraws: ClassVar[str] = ""

    size: int

    @property
    def least_batch(self) -> int:
        """One example, where each trains all members."""
        return 1

    @property
    def sets(self) -> int:
        """The sets of logits per example."""
        return self.size


class SplitMembers(Stage):
    """Each example M times, the members of an example side by side.

    Attributes:
        assigned: Whether training leaves the batch as it is, so that each example trains one member.
    """

    def __init__(self, members: int, *, assigned: bool = False) -> None:
        """Split a batch among ``members``."""
        super().__init__()
        self.members, self.assigned = members, assigned

    def forward(self, value: Any) -> Any:
        """Return a row for every example and member."""
        if self.assigned and self.training:
            return value
        if isinstance(value, Tensor):
            return value.repeat_interleave(self.members, dim=0)
        return value.interleave(self.members)


class JoinMembers(Stage):
    """Rows ``[B · M, width]`` as features ``[B, M, width]``; ``[B, 1, width]`` where an example trains one member."""

    def __init__(self, split: SplitMembers) -> None:
        """Join what a stage has split."""
        super().__init__()
        self.members, self.assigned = split.members, split.assigned

    def forward(self, h: Tensor) -> Tensor:
        """Return the features of each example."""
        return h.reshape(-1, 1 if self.assigned and self.training else self.members, h.shape[-1])


class GroupMembers(Stage):
    """Channels ``[B, M · width]`` as features ``[B, M, width]``."""

    def __init__(self, members: int) -> None:
        """Group the channels of ``members``."""
        super().__init__()
        self.members = members

    def forward(self, h: Tensor) -> Tensor:
        """Return the features of each member."""
        return grouped(h, 1, self.members)


class RepeatFeatures(Stage):
    """Features that all members share: ``[B, width]`` becomes ``[B, M, width]``."""

    def __init__(self, members: int) -> None:
        """Repeat features for ``members``."""
        super().__init__()
        self.members = members

    def forward(self, h: Tensor) -> Tensor:
        """Return the same features for each member."""
        return h.unsqueeze(1).expand(-1, self.members, -1)


class MultiHeadLinear(nn.Linear):
    """A dense layer with weights of its own for each member, on rows: ``weight [M · outputs, inputs]``."""

    members: int
    member_axes: dict[str, int]

    def forward(self, h: Tensor) -> Tensor:
        """Return W_m h + b_m of each row ``[B · M, inputs]``."""
        weight = grouped(self.weight, 0, self.members)
        out = torch.einsum("bmi,mki->bmk", h.reshape(-1, self.members, h.shape[-1]), weight)
        return (out if self.bias is None else out + grouped(self.bias, 0, self.members)).flatten(0, 1)


class Arrangement(nn.Module):
    """How a training batch is arranged for the members; a stage-like object without weights.

    Attributes:
        passes: Rows that a training pass computes per example, as a fraction of those of a prediction.
        generator: Source of draws during training.
    """

    passes: float = 1.0

    def __init__(self) -> None:
        """Start without a generator."""
        super().__init__()
        self.generator: Generator | None = None

    def forward(self, batch: Any, examples: int) -> tuple[Any, Tensor]:
        """Return the batch to train on, and the example ``[rows]`` that each row of the head is about."""
        raise NotImplementedError


class OneMemberEach(Arrangement):
    """Each example trains one member, by its position in the batch, whose order is random."""

    def __init__(self, members: int) -> None:
        """Assign examples to ``members``."""
        super().__init__()
        self.passes = 1.0 / members

    def forward(self, batch: Any, examples: int) -> tuple[Any, Tensor]:
        """Return the batch as it is."""
        return batch, torch.arange(examples)


def check_unchanged(method: str, model: Model) -> None:
    """Refuse a model that another edit has changed in a way that members cannot follow.

    Raises:
        UserError: For a network that has members already, or whose sites are filled.
    """
    if model.network.sets > 1:
        raise UserError(f"{method}: this network has {model.network.sets} sets of features already.")
    if model.noises() or model.gaussians():
        raise UserError(f"{method}: must come before the edits that make a network random.")


def set_members(model: Model, members: int, *, width: int | None = None) -> None:
    """Declare that a network gives features ``[B, members, width]``, and draw noise in its head for each of them."""
    network = model.network
    network.sets = members
    network.width = network.width if width is None else width
    for site in sites(model.head):
        site.sets, site.width = members, network.width


def split_rows(model: Model, index: int, split: SplitMembers) -> None:
    """Make members rows from a stage on; noise behind it is drawn for each of them."""
    stages = list(model.network.stages)
    for stage in stages[index:]:
        for site in sites(stage):
            site.sets = split.members
    model.network.stages = nn.ModuleList([*stages[:index], split, *stages[index:], JoinMembers(split)])
    set_members(model, split.members)


def is_frozen(layer: nn.Module) -> bool:
    """Return whether a layer is of a kind that can have members, but is not trained."""
    return type(layer) in (nn.Linear, nn.Conv2d) and not cast(Tensor, layer.weight).requires_grad


def own_heads(method: str, model: Model, members: int, width: int) -> None:
    """Give each member a head of its own, with first weights as of a single one.

    Raises:
        UserError: When the head has no plain dense layer.
    """
    for head in head_layers(method, model):
        widen(head, inputs=width, outputs=head.out_features, members=members)
        head.__class__ = MultiHeadLinear


def head_layers(method: str, model: Model) -> list[nn.Linear]:
    """Return the plain dense layers of a head, of which each member can have its own.

    Raises:
        UserError: When there is none, with the reason.
    """
    layers = [layer for _, layer in offered_layers(model.head, "head")]
    if not layers or any(type(layer) is not nn.Linear for layer in layers):
        reason = model.head.missing or f"the head is {kind_of(model.head)} without one"
        raise UserError(f"{method}: each member needs a dense last layer of its own; {reason}.")
    return cast(list[nn.Linear], layers)


def widen(layer: nn.Linear | nn.Conv2d, *, inputs: int, outputs: int, members: int) -> None:
    """Replace a layer's weights by those of members, each drawn as the layer's own were: ``[members · outputs, …]``.

    Args:
        layer: Changed in place.
        inputs: Inputs of one output.
        outputs: Outputs of one member.
        members: M.
    """
    shape = (members * outputs, inputs, *layer.weight.shape[2:])
    layer.weight = nn.Parameter(layer.weight.new_empty(shape), requires_grad=layer.weight.requires_grad)
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias.new_empty(members * outputs), requires_grad=layer.bias.requires_grad)
    biases = [None] * members if layer.bias is None else layer.bias.detach().chunk(members)
    first_weights = getattr(layer, "first_weights", as_torch)
    for weight, bias in zip(layer.weight.detach().chunk(members), biases, strict=True):
        first_weights(weight, bias)
    of_members(layer, members, weight=0, bias=0)


def as_torch(weight: Tensor, bias: Tensor | None) -> None:
    """Draw first weights as ``nn.Linear`` and ``nn.Conv2d`` do: uniform within ±1/√(inputs of an output)."""
    bound = weight[0].numel() ** -0.5
    for tensor in (weight, bias):
        if tensor is not None:
            nn.init.uniform_(tensor, -bound, bound)


def reading_layers(model: Model) -> dict[str, bool]:
    """Return the layers that read the network's inputs, and whether they read them whole, by their paths.

    Of a network whose stages do not say, it is the first module with weights of its own.
    """
    for index, stage in enumerate(model.network.stages):
        if (readers := contract(stage).readers) is not None:
            return {f"network.stages.{index}.{path}": reads_all for path, reads_all in readers.items()}
    modules = model.network.named_modules(prefix="network")
    first = next((path for path, module in modules if any(True for _ in module.parameters(recurse=False))), None)
    return {} if first is None else {first: True}


def of_members(module: nn.Module, members: int, **axes: int) -> None:
    """Note on which axis of its tensors a module has a slice for each member."""
    module.members, module.member_axes = members, axes  # type: ignore[assignment]


def member_slices(root: nn.Module) -> Iterator[tuple[str, list[Tensor]]]:
    """Return the tensors of every layer with members as views ``[M, …]``, with the layer's path."""
    for path, module in root.named_modules():
        if isinstance(module, RankOne):
            yield path.removesuffix(".factors"), [t for t in (module.r, module.s, module.bias) if t is not None]
        elif (axes := getattr(module, "member_axes", None)) is not None:
            members, named = cast(int, module.members), [(getattr(module, name), axis) for name, axis in axes.items()]
            tensors = [(tensor, axis) for tensor, axis in named if tensor is not None]
            yield path, [grouped(tensor, axis, members).movedim(axis, 0) for tensor, axis in tensors]


@torch.no_grad()
def mixing_layer(model: Model, batch: Any) -> str | None:
    """Return the first layer through which another member changes the logits of the first one; None without any.

    Args:
        model: With members; put in evaluation mode.
        batch: A few examples.
    """
    model.eval()

    def first() -> Tensor:
        output: Tensor = model(batch)
        return output[:: model.network.sets]

    expected = first()
    for path, tensors in member_slices(model):
        before = [tensor.clone() for tensor in tensors]
        for tensor in tensors:
            tensor[1:] += 1.0
        changed = not torch.allclose(first(), expected, rtol=1e-4, atol=1e-5)
        for tensor, own in zip(tensors, before, strict=True):
            tensor.copy_(own)
        if changed:
            return path
    return None


@torch.no_grad()
def exchangeable(model: Model, batch: Any) -> bool:
    """Return whether members that exchange their weights exchange their logits.

    They do unless something that is not a member's own, such as the inputs, enters behind the first layer: each
    member then has its channels of it.

    Args:
        model: With members; put in evaluation mode.
        batch: A few examples.
    """
    model.eval()
    members = model.network.sets
    before = model(batch).unflatten(0, (-1, members))
    slices = [tensor for _, tensors in member_slices(model) for tensor in tensors]
    for tensor in slices:
        tensor.copy_(tensor.roll(1, 0))
    after = model(batch).unflatten(0, (-1, members))
    for tensor in slices:
        tensor.copy_(tensor.roll(-1, 0))
    return torch.allclose(after, before.roll(1, 1), rtol=1e-4, atol=1e-5)
