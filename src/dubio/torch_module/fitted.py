"""What ``dubio.fit`` gives back: a posterior over a module's weights that predicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import UNLABELLED, FloatArray, Target
from dubio.inference.posterior import MixturePredictor, Restored
from dubio.methods.prediction import sample_logits
from dubio.methods.recipe import Recipe
from dubio.torch_module.examples import Given, checked_labels, read
from dubio.torch_module.states import own_states
from dubio.training.seeds import number


class Form(NamedTuple):
    """What a module takes and holds.

    Attributes:
        shape: Of one input.
        dtype: Of its elements.
        weights: The shapes of the model's state, by name.
    """

    shape: tuple[int, ...]
    dtype: str
    weights: dict[str, list[int]]


@dataclass(frozen=True, eq=False)
class FittedModule:
    """A fit of a user's module.

    Attributes:
        recipe: The method, every argument filled in.
        members: What each independent fit left.
        classes: Names of the classes.
        target: What the logits mean.
        seed: Of the fit, and of every draw at prediction.
        device: Where it predicts.
        form: What a module must look like to have these weights.
        records: Of each member: epochs, validation nll, seconds, ….
    """

    recipe: Recipe
    members: tuple[Restored, ...]
    classes: tuple[str, ...]
    target: Target
    seed: int
    device: str
    form: Form
    records: tuple[dict[str, Any], ...]

    def predict(self, x: Any, labels: Any = None) -> Predictions:
        """What every sample says of examples; row i has the same noise in every call.

        Args:
            x: Inputs, ``(inputs, labels)``, a dataset or a loader.
            labels: Of ``x``, where it has none itself; without any the predictions are unlabelled.

        Raises:
            UserError: When the inputs are not finite, or not of the shape and type that were fitted, or multilabel
                predictions have no labels.
        """
        given = read(x, "x") if labels is None else read((x, labels), "x")
        if given.labels is None and self.target == "multilabel":
            raise UserError("labels: multilabel predictions need labels; for probabilities alone use probs(x).")
        return self._predictions(given)

    def probs(self, x: Any) -> FloatArray:
        """Mean probabilities ``[N, K]``, of each label on its own where the target is multilabel."""
        given = read(x, "x")
        return self._predictions(given._replace(labels=None)).probs

    @property
    def samples(self) -> int:
        """Predictions that are pooled: over members, weight states, noise draws and views."""
        return len(self._drawn.member)

    def save(self, path: str | Path) -> None:
        """Write everything but the module's code to one safetensors file; ``dubio.load_fit`` reads it."""
        from dubio.torch_module.stored import save

        save(self, Path(path))

    def state_dicts(self) -> Iterator[dict[str, Tensor]]:
        """Every weight state that predicts, under the names it has in your module: for ``load_state_dict``.

        Of Gaussian weights it is their mean.
        """
        return (state for member in self.members for state in own_states(member))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """``<member>:<name>`` and tensor, of all that is stored."""
        for k, member in enumerate(self.members):
            for name, tensor in member.tensors().items():
                yield f"{k}:{name}", tensor

    @cached_property
    def _drawn(self) -> MixturePredictor:
        """Every member drawn by its own seed, so that a member predicts the same alone and among others."""
        return MixturePredictor(
            tuple(part.draw(number(self.seed, k, "prediction")) for k, part in enumerate(self.members))
        )

    def _predictions(self, given: Given) -> Predictions:
        rows, classes = len(given.rows), len(self.classes)
        given = given.like(self.form.shape, self.form.dtype, "x", "the fit saw")
        if given.labels is not None:
            labels = checked_labels(given.labels, rows, classes, self.target, "x")
        else:
            labels = np.zeros((rows, classes), np.int64) if self.target == "multilabel" else np.full(rows, UNLABELLED)
        logits, _ = sample_logits(self._drawn, given.rows, classes, self.device)
        member = np.array(self._drawn.member, dtype=np.int64)
        return Predictions(logits, labels, target=self.target, member=member, classes=self.classes)
