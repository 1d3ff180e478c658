"""A user's module as a model: one stage, and a head that is its last layer where that can be told apart."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.types import Target
from dubio.methods.recipe import Recipe
from dubio.networks.gaussian_weights import KINDS, GaussianWeights
from dubio.networks.heads.linear import SigmoidHead, SoftmaxHead
from dubio.networks.network import HeadModule, Model, Network, Stage
from dubio.networks.noise import DropoutEdit
from dubio.torch_module.dropout import OwnDropout, Places, put, put_sites
from dubio.torch_module.passes import Passed, classes_of, plain_attention, watch
from dubio.training.laplace.collector import Laplace
from dubio.training.laplace.structures import layers_of


class Whole(Stage):
    """A module as the one stage of a network."""

    batched_over_weights = False  # a user's operations may not be ones that can be mapped over

    def __init__(self, module: nn.Module, widens: int, last: str | None = None) -> None:
        """Take a module.

        Args:
            module: The module, or what is left of it without its last layer.
            widens: Elements of its largest layer for each that comes in.
            last: The path of the last layer, where it has been taken out.
        """
        super().__init__()
        self.last = last
        self.module = module
        self.widens = widens
        self._places = [layer for layer in module.modules() if isinstance(layer, Places)]

    def forward(self, batch: Tensor) -> Tensor:
        """What the module gives."""
        for places in self._places:
            places.begin()
        with plain_attention():
            out: Tensor = self.module(batch)
        return out


class SoftmaxOfLogits(SoftmaxHead):
    """A softmax of what comes in, which is logits already."""

    def __init__(self) -> None:
        """Make a head without a layer."""
        HeadModule.__init__(self)

    def forward(self, features: Tensor) -> Tensor:
        """The logits."""
        return features


class SigmoidOfLogits(SigmoidHead):
    """A sigmoid of what comes in, which is logits already."""

    def __init__(self) -> None:
        """Make a head without a layer."""
        HeadModule.__init__(self)

    def forward(self, features: Tensor) -> Tensor:
        """The logits."""
        return features


def model_of(module: nn.Module, recipe: Recipe, rows: Tensor, target: Target) -> Model:
    """The model that a recipe trains: the module itself, its dropout layers or its weights random as the recipe says.

    Args:
        module: Taken over, not copied.
        recipe: A recipe that is supported.
        rows: Two or three examples.
        target: What the logits mean.

    Raises:
        UserError: When the module lacks what the recipe needs.
    """
    passes = _passes(module, rows)
    classes = classes_of(passes)
    if any(isinstance(edit, DropoutEdit | OwnDropout) for edit in recipe.edits):
        put_sites(module, {len(seen.inputs): seen.dropped for seen in passes})
    path = last_layer(module, passes[0])
    if path is None:
        head: HeadModule = SigmoidOfLogits() if target == "multilabel" else SoftmaxOfLogits()
        model = Model(Network([Whole(module, passes[0].widens)], classes, before_head=()), head)
    else:
        body, layer = without_last(module, path)
        head = recipe.head.build(layer.in_features, classes)
        head.linear = layer
        model = Model(Network([Whole(body, passes[0].widens, path)], layer.in_features, before_head=()), head)
    for edit in recipe.edits:
        if isinstance(edit, GaussianWeights):
            edit.make_gaussian(_gaussian(model))
        else:
            edit.apply(model)
    if isinstance(recipe.collect, Laplace):
        _check_laplace(model, recipe.collect, passes, path)
    recipe.collect.check(model)
    return model


def _check_laplace(model: Model, laplace: Laplace, passes: tuple[Passed, ...], path: str | None) -> None:
    """Refuse a structure that the module has no layers for: before hours of training, not behind them."""
    if not laplace.structure.startswith("last-"):
        layers_of(model, (seen.inputs for seen in passes))
    elif path is None:
        raise UserError(
            f"structure={laplace.structure!r} needs a last layer: an nn.Linear with a bias, whose outputs are "
            "the logits as the module gives them; this module ends otherwise: use 'kron' or 'diag'."
        )


def check_parameters(module: nn.Module) -> None:
    """Refuse parameters that the methods cannot move, draw or store.

    Raises:
        UserError: For a module without trainable parameters, or with shared, unmade or other than float32 ones.
    """
    named = list(module.named_parameters(remove_duplicate=False))
    if not any(p.requires_grad for _, p in named):
        raise UserError("network: the module has no trainable parameter.")
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
            raise UserError(
                f"network: {name} keeps no running statistics (track_running_stats=False), so that a prediction would "
                "depend on the examples beside it."
            )
    known: dict[int, str] = {}
    for name, p in named:
        if isinstance(p, nn.parameter.UninitializedParameter):
            raise UserError(f"network: {name} has no shape yet; pass a batch through the module first.")
        if p.dtype != torch.float32:
            raise UserError(f"network: {name} has type {p.dtype}; only torch.float32 is supported.")
        if id(p) in known:
            raise UserError(f"network: {name} and {known[id(p)]} are one parameter; weights must not be shared.")
        known[id(p)] = name


def last_layer(module: nn.Module, seen: Passed) -> str | None:
    """The path of the plain dense layer, with a bias, whose outputs are what the module gives; None without one."""
    for path, output in seen.linear.items():
        layer = module.get_submodule(path)
        whole = isinstance(layer, nn.Linear) and layer.bias is not None and layer.bias.requires_grad
        if output is seen.output and seen.calls[path] == 1 and len(seen.fed[path]) == 2 and whole and _plain(layer):
            return path if _same_without(module, path, seen) else None
    return None


def without_last(module: nn.Module, path: str) -> tuple[nn.Module, nn.Linear]:
    """The module up to its last layer, and the layer."""
    layer = module.get_submodule(path)
    assert isinstance(layer, nn.Linear)
    if path == "":
        return nn.Identity(), layer
    put(module, layer, nn.Identity())
    return module, layer


@torch.no_grad()
def _same_without(module: nn.Module, path: str, seen: Passed) -> bool:
    """Whether the layer behind the rest of a module gives the same: its weights may be used elsewhere too."""
    body, layer = without_last(deepcopy(module), path)
    try:
        whole = Whole(body.eval(), 1)
        return torch.equal(layer(whole(seen.inputs)), seen.output)
    except (AttributeError, RuntimeError, TypeError):
        return False


def _passes(module: nn.Module, rows: Tensor) -> tuple[Passed, ...]:
    """Passes with two numbers of rows, which tell what the batch axis is."""
    two = torch.cat([rows, rows, rows])[:3]
    return watch(module, two), watch(module, two[:2])


def _gaussian(model: Model) -> list[tuple[str, nn.Module]]:
    found = [(path, layer) for path, layer in model.named_modules() if type(layer) in KINDS and _plain(layer)]
    if not found:
        raise UserError("network: the module has no plain nn.Linear or nn.Conv2d whose weights could be Gaussian.")
    return found


def _plain(layer: nn.Module) -> bool:
    """Whether a layer's weight is a trained parameter of its own, not computed from another one."""
    weight = layer._parameters.get("weight")
    return weight is not None and weight.requires_grad and not layer._forward_pre_hooks
