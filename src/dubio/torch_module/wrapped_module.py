"""A user's module as a model: one stage, and a head that is its last layer where it has one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from dubio.core.errors import UserError
from dubio.core.types import Target
from dubio.methods.recipe import Recipe
from dubio.networks.gaussian_weights import KINDS
from dubio.networks.members import MemberEdit, exchangeable, mixing_layer
from dubio.networks.network import Edit, Model, Network, Stage
from dubio.networks.noise import SiteEdit
from dubio.networks.spectral import SpectralNorm
from dubio.torch_module.dropout_sites import SiteLayer, replace_dropout, replace_layer
from dubio.torch_module.probe import (
    Probe,
    check_logits,
    class_count,
    probe,
    probe_twice,
    reading_layers,
    unfused_attention,
)
from dubio.training.seeds import number

OWN_PATH = re.compile(r"network\.stages\.\d+\.module(?:\.([\w.]*\w))?")
"""The path of a module's layer in the model."""

HEAD_PATH = re.compile(r"\bhead\.linear\b")
"""The path of the last layer in the model."""

NetworkSource = nn.Module | Callable[[], nn.Module]


class WrappedModule(Stage):
    """A module as the one stage of a network.

    Attributes:
        module: The module, without its last layer where that is the head.
        last: The path of the last layer that became the head; None without one.
    """

    batched_over_weights = False  # a user's operations may not be ones that can be mapped over

    def __init__(
        self,
        module: nn.Module,
        widens: int,
        last: str | None = None,
        *,
        called: Iterable[str] = (),
        readers: Mapping[str, bool] | None = None,
    ) -> None:
        """Wrap a module.

        Args:
            module: The module, without its last layer where that is the head.
            widens: Elements of its largest layer per element of the input.
            last: The path of the last layer, where it is the head.
            called: The paths of dense layers that a pass calls, the last one included.
            readers: The paths of the layers that read the inputs, and whether they read them whole, where known.
        """
        super().__init__()
        self.last = last
        self.module = module
        self.widens = widens
        self.uncertain = tuple(p for p, layer in self.named_modules() if type(layer) in KINDS and _is_plain(layer))
        self.adapts = tuple(
            f"module.{p}" for p in called if p not in ("", last) and _holds_weight(module.get_submodule(p))
        )
        if readers is not None:
            self.readers = {f"module.{path}".rstrip("."): reads_all for path, reads_all in readers.items()}
        self._site_layers = [layer for layer in module.modules() if isinstance(layer, SiteLayer)]

    def forward(self, batch: Tensor) -> Tensor:
        """Return the module's output."""
        for layer in self._site_layers:
            layer.begin_pass()
        with unfused_attention():
            return cast(Tensor, self.module(batch))


@dataclass(frozen=True)
class ModelBuilder:
    """Builds the models of a fit: one per member, each from a module of its own.

    Attributes:
        source: A module, which is copied with its weights, or a function that makes one.
        rows: Two or three examples.
        target: The meaning of the logits.
        seed: Determines first weights.
    """

    source: NetworkSource
    rows: Tensor
    target: Target
    seed: int

    def module(self, member: int) -> nn.Module:
        """Return a new module with the first weights of a member.

        Raises:
            UserError: When the function does not make a module, or its parameters cannot be fitted.
        """
        module: Any = self.source
        if not isinstance(module, nn.Module):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(number(self.seed, member, "weights"))
                module = module()
            if not isinstance(module, nn.Module):
                raise UserError(f"network: the function must make an nn.Module; it made a {type(module).__name__}.")
        check_parameters(module)
        return deepcopy(module).cpu()  # the user may still hold a reference to it

    def adapt(self, recipe: Recipe) -> Recipe:
        """Return a recipe for these inputs and this target; only augmentation depends on the inputs' modality."""
        image = self.rows.ndim == 4 and self.rows.is_floating_point()
        return recipe.for_task("image" if image else "table", self.target)

    def model(self, recipe: Recipe, member: int) -> Model:
        """Return the model of a recipe."""
        module = self.module(member)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number(self.seed, member, "weights", 1))  # edits may draw weights of their own
            return wrap(module, recipe, self.rows)

    def classes(self) -> int:
        """Return K, the number of logits per example."""
        module = self.module(0)
        with torch.random.fork_rng(devices=[]):
            return class_count(probe(module, self.rows))

    def check_outputs(self) -> None:
        """Refuse a module that gives probabilities.

        Raises:
            UserError: With what it does.
        """
        module = self.module(0)
        with torch.random.fork_rng(devices=[]):
            check_logits(module, self.rows, self.target)


def wrap(module: nn.Module, recipe: Recipe, rows: Tensor) -> Model:
    """Return the model that a recipe trains: the module with the recipe's edits.

    Args:
        module: The module; it is changed, not copied.
        recipe: A supported recipe, for the task's target.
        rows: Two or three examples.

    Raises:
        UserError: When the module lacks what the recipe needs.
    """
    probes = probe_twice(module, rows)
    classes, widens = class_count(*probes), probes[0].widens
    members = any(isinstance(edit, MemberEdit) for edit in recipe.edits)
    readers = reading_layers(module, probes[0].inputs) if members else None
    if any(isinstance(edit, SiteEdit) for edit in recipe.edits):
        replace_dropout(module, {len(record.inputs): record.dropout_shapes for record in probes})
    path = last_layer(module, probes[0])
    body, layer = (module, None) if path is None else split_last_layer(module, path)
    width = classes if layer is None else layer.in_features
    head = recipe.head.build(width, classes)
    head.missing = "" if layer is not None else missing_last_layer(module, probes[0])
    head.adopt(layer)
    if readers is not None and path is not None:
        readers.pop(path, None)  # it is the head now
    stage = WrappedModule(body, widens, path, called=probes[0].linear_calls, readers=readers)
    model = Model(Network([stage], width, before_head=()), head)
    with _own_layer_names(path):
        for edit in recipe.edits:
            _check_edit(edit)
            edit.apply(model)
        if members:
            check_members(model, rows, recipe.name)
        recipe.collect.check(model, [record.inputs for record in probes])
    return model


def own_name(name: str, model: Model) -> str:
    """Return the name of a weight of the model as the module calls it."""
    stage = next(stage for stage in model.network.stages if isinstance(stage, WrappedModule))
    own = OWN_PATH.sub(lambda path: path[1] or "", name)
    return own if stage.last is None else HEAD_PATH.sub(stage.last, own).lstrip(".")


def _check_edit(edit: Edit) -> None:
    """Refuse an edit of layers that only registered networks offer."""
    if isinstance(edit, SpectralNorm):
        other = "'posthoc' with scores=['density'] has the density of its features without it"
        raise UserError(f"'spectral_norm' bounds layers that a network names, and a module names none; {other}.")


@contextmanager
def _own_layer_names(last: str | None) -> Iterator[None]:
    """Let messages call layers as the module does; edits know them by their paths in the model."""
    try:
        yield
    except UserError as fault:
        text = OWN_PATH.sub(lambda path: f"layer {path[1]!r}" if path[1] else "the module", str(fault))
        if last is not None:
            text = HEAD_PATH.sub(f"layer {last!r}" if last else "the module", text)
        fault.args = (text, *fault.args[1:])
        raise


def check_members(model: Model, rows: Tensor, name: str) -> None:
    """Refuse a module in which an edit's members cannot be kept apart, or whose operations assume its own widths.

    Raises:
        UserError: Naming the layer through which one member changes another, or what fails.
    """
    method = name or "this recipe"
    try:
        mixed, exchange = mixing_layer(model, rows), exchangeable(model, rows)
    except UserError:
        raise  # an edit's own refusal
    except (RuntimeError, ValueError, IndexError) as fault:
        reason = f"{type(fault).__name__}: {(str(fault).splitlines() or [''])[0]}"
        changes = f"{method} changes the widths or the number of rows of layers"
        raise UserError(f"network: {changes}; with members this one fails: {reason}") from fault
    if mixed is not None:
        needs = f"{method} needs a module that keeps rows and groups of channels apart"
        raise UserError(f"network: {needs}; in this one {mixed} mixes members.")
    if not exchange:
        needs = f"{method} needs layers behind the first to read outputs of layers alone"
        beside = "in this one the inputs or fixed values enter beside them, of which members would see different parts"
        raise UserError(f"network: {needs}; {beside}.")


def check_source(source: NetworkSource, members: int) -> None:
    """Refuse what no members can be made from.

    Raises:
        UserError: For anything but a module or a function, a function that needs arguments, or one module for several
            members.
    """
    if isinstance(source, nn.Module):
        if members > 1:
            needs = f"{members} members need {members} independent first weights"
            raise UserError(f"network: {needs}; give a function, such as network=lambda: MyModule(...).")
    elif not callable(source):
        raise UserError(f"network: must be an nn.Module, or a function that makes one; given {type(source).__name__}.")
    elif required := ", ".join(_required_arguments(source)):
        hint = "such as network=lambda: MyModule(...)"
        raise UserError(f"network: the function is called without arguments, and needs {required}; wrap it, {hint}.")


def _required_arguments(source: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(source).parameters.values()
    except (ValueError, TypeError):  # some functions written in C have no signature
        return []
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in open_ended]


def check_parameters(module: nn.Module) -> None:
    """Refuse parameters that the methods cannot train, draw or store.

    Raises:
        UserError: For a module without trainable parameters, or with shared, uninitialised or other than float32 ones.
    """
    parameters = list(module.named_parameters(remove_duplicate=False))
    if not any(p.requires_grad for _, p in parameters):
        raise UserError("network: the module has no trainable parameter.")
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
            reason = "a prediction would depend on the other examples of its batch"
            raise UserError(f"network: {name} keeps no running statistics (track_running_stats=False): {reason}.")
    names: dict[int, str] = {}
    for name, p in parameters:
        if isinstance(p, nn.parameter.UninitializedParameter):
            raise UserError(f"network: {name} has no shape yet; pass a batch through the module first.")
        if p.dtype != torch.float32:
            raise UserError(f"network: {name} has type {p.dtype}; only torch.float32 is supported.")
        if id(p) in names:
            raise UserError(f"network: {name} and {names[id(p)]} are one parameter; weights must not be shared.")
        names[id(p)] = name


def last_layer(module: nn.Module, record: Probe) -> str | None:
    """Return the path of the plain dense layer with a bias whose output is the module's; None without one."""
    for path, ((shape, output), *more) in record.linear_calls.items():
        layer = module.get_submodule(path)
        trained = isinstance(layer, nn.Linear) and layer.bias is not None and layer.bias.requires_grad
        if output is record.output and not more and len(shape) == 2 and trained and _is_plain(layer):
            return path if _splits(module, path, record) else None
    return None


def missing_last_layer(module: nn.Module, record: Probe) -> str:
    """Return why a module has no last layer that could be the head, as a part of a sentence."""
    path, calls = next(reversed(record.linear_calls.items()), ("", []))
    if not calls:
        return "this module calls no nn.Linear"
    name, layer = f"layer {path!r}", module.get_submodule(path)
    if calls[-1][1] is not record.output:
        return f"the module's outputs are not those of {name}, the last nn.Linear that it calls"
    if layer.bias is None:
        return f"{name} has no bias"
    if not all(parameter.requires_grad for parameter in layer.parameters()):
        return f"{name} is frozen (requires_grad=False)"
    return f"{name} is called several times, on other than rows, or with weights that are not its own"


def split_last_layer(module: nn.Module, path: str) -> tuple[nn.Module, nn.Linear]:
    """Return the module up to its last layer, and the layer."""
    layer = module.get_submodule(path)
    assert isinstance(layer, nn.Linear)
    if path == "":
        return nn.Identity(), layer
    replace_layer(module, layer, nn.Identity())
    return module, layer


@torch.no_grad()
def _splits(module: nn.Module, path: str, record: Probe) -> bool:
    """Return whether the split module gives the same output; its last weights may also be used in other layers."""
    body, layer = split_last_layer(deepcopy(module), path)
    try:
        return torch.equal(layer(WrappedModule(body.eval(), 1)(record.inputs)), record.output)
    except (AttributeError, RuntimeError, TypeError):
        return False


def _is_plain(layer: nn.Module) -> bool:
    """Return whether a layer's weight is a trained parameter of its own, not computed from another one."""
    return _holds_weight(layer) and layer.weight.requires_grad is True


def _holds_weight(layer: nn.Module) -> bool:
    """Return whether a layer's weight is a parameter of its own, trained or frozen."""
    return layer._parameters.get("weight") is not None and not layer._forward_pre_hooks
