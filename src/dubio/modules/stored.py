"""A fit of a module in one file: tensors, and the recipe as JSON beside them. The module's code stays its user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import numpy as np
import torch

from dubio.errors import BadFile, UserError
from dubio.formats.tensors import read_tensors, write_tensors
from dubio.methods.devices import check_device
from dubio.methods.recipe import Recipe
from dubio.modules.building import Builder, Source, check_source
from dubio.modules.fitted import FittedModule, Form
from dubio.modules.fitting import modality_of, restored, shapes_of
from dubio.networks.network import Model
from dubio.parts import describe, restore

SCHEMA = 1
KEY = "dubio_module_fit"
"""Where the file's header has the specification."""


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
    """Read what :meth:`~dubio.modules.fitted.FittedModule.save` wrote.

    Args:
        path: The file.
        network: The module that was fitted, or the function that makes it; its weights are replaced.
        device: Where to predict.

    Raises:
        BadFile: When the file is no fit of a module.
        UserError: When the module is not the one that was fitted.
    """
    check_device(device, "device")
    arrays, header = read_tensors(Path(path))
    if KEY not in header:
        raise BadFile(f"{str(path)!r}: not a fit of a module, as dubio.fit(...).save(...) writes it.")
    found = json.loads(header[KEY])
    if found["schema"] != SCHEMA:
        raise BadFile(f"{str(path)!r}: written in format {found['schema']}; this dubio reads {SCHEMA}.")
    recipe = cast(Recipe, restore(found["recipe"]))
    check_source(network, recipe.members)
    rows = torch.from_numpy(np.zeros((2, *found["shape"]), dtype=found["dtype"]))
    builder = Builder(network, rows, found["target"], found["seed"])
    settled = recipe.for_task(modality_of(rows), found["target"])
    members = []
    for k in range(recipe.members):
        start = f"{k}:"
        named = {n.removeprefix(start): torch.from_numpy(np.array(a)) for n, a in arrays.items() if n.startswith(start)}
        model = builder.model(settled, k)
        _check(model, found["weights"])
        members.append(restored(settled, named, model.to(torch.device(device))))
    form = Form(tuple(found["shape"]), found["dtype"], found["weights"])
    names, records = tuple(found["classes"]), tuple(found["records"])
    return FittedModule(recipe, tuple(members), names, found["target"], found["seed"], device, form, records)


def _check(model: Model, weights: dict[str, list[int]]) -> None:
    """Refuse a model that these weights were not fitted to."""
    own = shapes_of(model)
    for name in sorted(own.keys() | weights.keys()):
        if own.get(name) != weights.get(name):
            raise UserError(
                f"network: this is not the module that was fitted: {name} has shape {own.get(name, 'none')}, the "
                f"stored one {weights.get(name, 'none')}."
            )
