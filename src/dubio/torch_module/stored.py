"""A fit of a module in one file: tensors, and the recipe as JSON beside them. The module's code stays its user's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import BadFile, UserError
from dubio.core.specs import describe
from dubio.formats.safetensors import read_tensors, write_tensors
from dubio.methods.fitting import check_device
from dubio.networks.network import Model
from dubio.torch_module.building import Builder, Source, check_source
from dubio.torch_module.fitted import FittedModule
from dubio.torch_module.fitting import modality_of, shapes_of
from dubio.torch_module.reading import KEY, SCHEMA, specification_of
from dubio.torch_module.tensor_checks import member_of


def save(fitted: FittedModule, path: Path) -> None:
    """Write a fit; an existing file is replaced once the new one is whole.

    Raises:
        UserError: When there is no such folder.
    """
    if not path.parent.is_dir():
        raise UserError(f"save: there is no folder {str(path.parent)!r}.")
    tensors = {name: tensor.cpu().numpy() for name, tensor in fitted.tensors()}
    specification = {
        "schema": SCHEMA,
        "recipe": describe(fitted.recipe),
        "classes": list(fitted.classes),
        "target": fitted.target,
        "seed": fitted.seed,
        "shape": list(fitted.form.shape),
        "dtype": fitted.form.dtype,
        "weights": fitted.form.weights,
        "records": list(fitted.records),
    }
    write_tensors(path, tensors, {KEY: json.dumps(specification, ensure_ascii=False, sort_keys=True)})


def load_fit(path: str | Path, *, network: Source, device: str = "cpu") -> FittedModule:
    """Read what :meth:`~dubio.torch_module.fitted.FittedModule.save` wrote.

    Args:
        path: The file.
        network: The module that was fitted, or the function that makes it; its weights are replaced.
        device: Where to predict.

    Raises:
        BadFile: When the file is no fit of a module.
        UserError: When the module is not the one that was fitted.
    """
    check_device(device, "device")
    name = repr(str(path))
    arrays, header = read_tensors(Path(path))
    found = specification_of(header, name)
    check_source(network, found.recipe.members)
    rows = torch.from_numpy(np.zeros((2, *found.form.shape), dtype=found.form.dtype))
    builder = Builder(network, rows, found.target, found.seed)
    recipe = found.recipe.for_task(modality_of(rows), found.target)
    grouped = _by_member(arrays, found.recipe.members, name)
    members = []
    for k, named in enumerate(grouped):
        model = builder.model(recipe, k)
        _check(model, found.form.weights)
        members.append(member_of(recipe, named, model.to(torch.device(device)), f"{name}, member {k}"))
    if len(found.classes) != builder.classes():
        raise BadFile(f"{name}: {len(found.classes)} names of classes; the module gives {builder.classes()} logits.")
    return FittedModule(
        found.recipe, tuple(members), found.classes, found.target, found.seed, device, found.form, found.records
    )


def _by_member(arrays: Mapping[str, NDArray[Any]], members: int, path: str) -> list[dict[str, Tensor]]:
    """The tensors of each member, ``<member>:<name>`` in the file."""
    found: list[dict[str, Tensor]] = [{} for _ in range(members)]
    for key, array in arrays.items():
        member, colon, name = key.partition(":")
        if not colon or not member.isdecimal() or int(member) >= members:
            raise BadFile(
                f"{path}: there must be no tensor {key!r}; all are named '<member>:<name>', the member below {members}."
            )
        found[int(member)][name] = torch.from_numpy(np.array(array))
    return found


def _check(model: Model, weights: dict[str, list[int]]) -> None:
    """Refuse a model that these weights were not fitted to."""
    own = shapes_of(model)
    for name in sorted(own.keys() | weights.keys()):
        if own.get(name) != weights.get(name):
            raise UserError(
                f"network: this is not the module that was fitted: {name} has shape {own.get(name, 'none')}, the "
                f"stored one {weights.get(name, 'none')}."
            )
