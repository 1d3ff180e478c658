"""Specifications: everything that determines a fit or a prediction, as JSON; identities are their hashes.

A fit specification also says how to build the model: network, head, edits and first weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch

from dubio.core.errors import UserError
from dubio.core.registry import NETWORKS
from dubio.core.specs import describe, name_of, restore
from dubio.core.types import Examples, Modality, Split, Target, Task
from dubio.encoders import Encoding
from dubio.encoders import encoding_of as network_encoding
from dubio.encoders.pretrained import resolve_arguments
from dubio.encoders.text import texts_of
from dubio.methods.estimator import Estimator, EstimatorRecipe
from dubio.methods.recipe import Recipe
from dubio.networks.network import Model, Network
from dubio.training.seeds import number

SCHEMA = 1
PREDICTION_VERSION = 1
"""Bumped by hand whenever the same weights come to give other predictions."""


@dataclass(frozen=True)
class NetworkSpec:
    """A network by name and arguments."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def describe(self, inputs: Modality) -> dict[str, Any]:
        """Return name, version and every argument with its default filled in, but later ones at theirs.

        Raises:
            UserError: When the network takes inputs of another modality.
        """
        entry = NETWORKS.entry(self.name)
        if (takes := entry.facts["inputs"]) != inputs:
            suitable = [other.name for other in NETWORKS.entries() if other.facts["inputs"] == inputs]
            names = f"networks for {inputs}: {', '.join(suitable) or '(none)'}"
            raise UserError(f"network {self.name!r} takes {takes} inputs, this task has {inputs} inputs; {names}.")
        full = resolve_arguments(entry, entry.check(self.arguments))
        defaults, later = entry.defaults(), entry.facts["later"]
        stated = {key: v for key, v in full.items() if key not in later or v != defaults[key]}
        arguments = {key: list(v) if isinstance(v, tuple) else v for key, v in stated.items()}
        return {"name": self.name, "version": entry.facts["version"], "arguments": arguments}

    def encoding(self) -> Encoding:
        """Return the encoding that the network asks for, at its defaults."""
        entry = NETWORKS.entry(self.name)
        return network_encoding(entry, resolve_arguments(entry, entry.check(self.arguments)), {})

    def build(self, shape: tuple[int, ...]) -> Network:
        """Return the network for inputs of this shape."""
        return cast(Network, NETWORKS.make(self.name, shape, **dict(self.arguments)))


def fit_spec(
    recipe: Recipe | EstimatorRecipe,
    task: Task,
    encoding: Encoding,
    network: NetworkSpec,
    *,
    seed: int,
    member: int,
    start_id: str | None = None,
) -> dict[str, Any]:
    """Return everything that determines the weights of one fit, defaults filled in; its hash is the fit's identity.

    Args:
        recipe: The method.
        task: The task.
        encoding: How examples are encoded.
        network: The network.
        seed: The benchmark's seed.
        member: Which fit of that seed.
        start_id: The fit it continues from.
    """
    train_split, val_split = training_splits(task)
    learned_from: dict[str, str] = {}
    if isinstance(recipe, EstimatorRecipe):  # with an encoding of its own
        parts = recipe.spec_parts(task.inputs)
    else:
        if encoding.learns_from_all:
            learned_from = {"all": encoder_split(encoding, task).fingerprint}
        if val_split is None and (choice := recipe.collect.chooses):
            raise UserError(f"{recipe.name}: {choice}, and task {task.name} has no validation split (val = 0).")
        parts = {
            "encoding": describe(encoding),
            "network": network.describe(task.inputs),
            "recipe": _fit_part(recipe, task.inputs, task.target),
            "start": start_id,
            "seed": seed,
            "member": member,
        }
    return {
        "schema": SCHEMA,
        "kind": "fit",
        "task": {
            "name": task.name,
            "inputs": task.inputs,
            "target": task.target,
            "classes": list(task.classes),
            "train": train_split.fingerprint,
            "val": None if val_split is None else val_split.fingerprint,
            **learned_from,
        },
        **parts,
    }


@lru_cache(maxsize=256)
def _fit_part(recipe: Recipe, inputs: Modality, target: Target) -> Any:
    """Return the part of a recipe that determines weights; a plan asks for it once per member and seed."""
    return describe(recipe.for_task(inputs, target).fit_part())


def pred_spec(recipe: Recipe | EstimatorRecipe, fit_id: str, *, seed: int, member: int) -> dict[str, Any]:
    """Return everything that determines the predictions of one fit; its hash is their identity."""
    added: dict[str, Any] = {"latest": recipe.most} if recipe.most else {}
    if recipe.features:
        added["features"] = recipe.features
    if recipe.samples and (versions := sampling_versions(recipe)):
        added["sampling"] = versions
    fixed = isinstance(recipe, EstimatorRecipe)  # nothing is drawn: its predictions have no seed
    return {
        **added,
        "schema": SCHEMA,
        "kind": "prediction",
        "version": PREDICTION_VERSION,
        "fit": fit_id,
        "samples": recipe.samples,
        "views": describe(recipe.views),
        "seed": 0 if fixed else seed,
        "member": 0 if fixed else member,
    }


def sampling_versions(recipe: Recipe | EstimatorRecipe) -> dict[str, int]:
    """Return the versions of sampling by name of edit; the first one is left out, so that stored ids stay valid."""
    edits = () if isinstance(recipe, EstimatorRecipe) else recipe.edits
    versions = {name_of(edit): getattr(edit, "sampling_version", 1) for edit in edits}
    return {name: version for name, version in versions.items() if version > 1}


def recipe_of(spec: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a network's fit specification."""
    return cast(Recipe, restore(spec["recipe"]))


def estimator_of(spec: Mapping[str, Any]) -> Estimator | None:
    """Return the estimator of a fit specification; None where a network is trained."""
    recipe = restore(spec["recipe"])
    return recipe.estimator if isinstance(recipe, EstimatorRecipe) else None


def encoding_of(spec: Mapping[str, Any]) -> Encoding:
    """Return the encoding of a fit specification."""
    return cast(Encoding, restore(spec["encoding"]))


def build_model(spec: Mapping[str, Any], shape: tuple[int, ...]) -> Model:
    """Build the model that a fit specification describes, with its first weights.

    Args:
        spec: A fit specification.
        shape: The shape of an encoded example, from the encoder.

    Raises:
        UserError: When the network's version is not the one this dubio knows: its weights would mean something else.
    """
    recipe = recipe_of(spec)
    network = NetworkSpec(spec["network"]["name"], spec["network"]["arguments"])
    version, described = NETWORKS.entry(network.name).facts["version"], spec["network"]["version"]
    if described != version:
        raise UserError(
            f"network {network.name!r} has version {described} in this description; this dubio knows version "
            f"{version}: train it again, or use the dubio that trained it."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number(spec["seed"], spec["member"], "weights"))
        body = network.build(shape)
        model = Model(body, recipe.head.build(body.width, len(spec["task"]["classes"])))
        for edit in recipe.edits:
            edit.apply(model)
    return model


def training_splits(task: Task) -> tuple[Split, Split | None]:
    """Return the training split, and the validation split or None.

    Raises:
        UserError: Unless the task has exactly one training split and at most one validation split.
    """
    train, val = task.of_kind("train"), task.of_kind("val")
    if len(train) != 1:
        raise UserError(f"task {task.name} must have exactly one train split; it has {len(train)}.")
    if len(val) > 1:
        raise UserError(f"task {task.name} must have at most one val split; it has {len(val)}.")
    return train[0], val[0] if val else None


def encoder_split(encoding: Encoding, task: Task) -> Split:
    """Return the examples that an encoder is fitted on: the training split, or all in-domain ones by mistake."""
    return _all_texts(task) if encoding.learns_from_all else training_splits(task)[0]


@lru_cache(maxsize=4)
def _all_texts(task: Task) -> Split:
    """Return the texts of all in-domain splits without labels; cached, because a split is known by its identity."""
    splits = task.of_kind("train", "val", "cal", "id")
    texts = tuple(text for split in splits for text in texts_of(split.data.inputs))
    return Split.of("all", "train", Examples(texts, np.full(len(texts), -1)))
