"""The result of ``dubio.fit``: a posterior over a module's weights that predicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import UNLABELLED, EmptyDecision, FloatArray, Target
from dubio.encoders import Encoded
from dubio.inference.engine import State
from dubio.inference.posterior import Mixture, MixturePredictor, Restored
from dubio.inference.stored_features import stored_features
from dubio.methods.prediction import own_scores, sample_scores
from dubio.methods.recipe import Recipe
from dubio.networks.lora import merged_state
from dubio.networks.network import Model
from dubio.torch_module.examples import UserExamples, check_labels, read_examples
from dubio.torch_module.wrapped_module import WrappedModule
from dubio.training.seeds import number

BODY = "network.stages.0.module."
"""Prefix of the module's weights in the model."""

HEAD = "head.linear."
"""Prefix of the last layer's weights in the model."""

SPREAD = ".log_sigma"
"""Suffix of the deviations of Gaussian weights, which the module does not have."""


Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of tensors by name."""


class InputSpec(NamedTuple):
    """The inputs that a module takes and the weights that it has.

    Attributes:
        shape: Shape of one input.
        dtype: Type of its elements.
        weights: Shapes of the model's state, by name.
    """

    shape: tuple[int, ...]
    dtype: str
    weights: Shapes


@dataclass(frozen=True, eq=False)
class FittedModule:
    """A fit of a user's module.

    Attributes:
        recipe: The method, every argument filled in.
        members: The posterior of each independent fit.
        classes: Names of the classes.
        target: The meaning of the logits.
        seed: Seed of the fit and of every draw at prediction.
        device: The device it predicts on.
        inputs: Shapes and types that a module must have for these weights.
        records: For each member epochs, validation NLL, seconds, ….
        empty_decision: How multi-label rows without a label above one half are decided, by the training labels.
    """

    recipe: Recipe
    members: tuple[Restored, ...]
    classes: tuple[str, ...]
    target: Target
    seed: int
    device: str
    inputs: InputSpec
    records: tuple[Mapping[str, Any], ...]
    empty_decision: EmptyDecision = "empty"

    def predict(self, x: Any, labels: Any = None) -> Predictions:
        """Return the predictions of every sample; row i has the same noise in every call.

        Args:
            x: Inputs, ``(inputs, labels)``, a dataset or a loader.
            labels: Labels of ``x``, where it has none itself; without any the predictions are unlabelled.

        Raises:
            UserError: When the inputs are not finite, or not of the fitted shape and type, or multilabel predictions
                have no labels.
        """
        examples = read_examples(x, "x") if labels is None else read_examples((x, labels), "x")
        if examples.labels is None and self.target == "multilabel":
            raise UserError("labels: multilabel predictions need labels; for probabilities alone use probs(x).")
        return self._predictions(examples)

    def probs(self, x: Any) -> FloatArray:
        """Return mean probabilities ``[N, K]``, of each label on its own where the target is multilabel."""
        return self._predictions(read_examples(x, "x")._replace(labels=None)).probs

    @property
    def samples(self) -> int:
        """Number of pooled predictions: over members, weight states, noise draws and views."""
        return len(self._drawn.member)

    def save(self, path: str | Path) -> None:
        """Write everything but the module's code to one safetensors file; ``dubio.load_fit`` reads it."""
        from dubio.torch_module.fit_file import save

        save(self, Path(path))

    def state_dicts(self) -> Iterator[dict[str, Tensor]]:
        """Return every weight state that predicts, by its names in your module: for ``load_state_dict``.

        Of Gaussian weights it is their mean; low-rank adapters are added to the weights.

        Raises:
            UserError: For members inside one network, whose layers your module does not have.
        """
        if self.recipe.sets > 1:
            reason = "its members share one network, whose layers your module does not have"
            raise UserError(f"{self.recipe.name}: {reason}.")
        return (own_names(member.model, state) for member in self.members for state in member.weight_states())

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Return ``<member>:<name>`` and tensor of everything that is stored."""
        return iter(Mixture(self.members).tensors().items())

    @cached_property
    def _drawn(self) -> MixturePredictor:
        """Every member drawn with its own seed, so that a member predicts the same alone and in an ensemble."""
        seeds = (number(self.seed, k, "prediction") for k in range(len(self.members)))
        return MixturePredictor(tuple(member.draw(s) for member, s in zip(self.members, seeds, strict=True)))

    def _predictions(self, examples: UserExamples) -> Predictions:
        rows, classes = len(examples.rows), len(self.classes)
        examples = examples.convert(self.inputs.shape, self.inputs.dtype, "x", "the fit saw")
        if examples.labels is not None:
            labels = check_labels(examples.labels, rows, classes, self.target, "x")
        else:
            labels = np.zeros((rows, classes), np.int64) if self.target == "multilabel" else np.full(rows, UNLABELLED)
        arrays = sample_scores(self._drawn, examples.rows, classes, self.device)
        return Predictions(
            arrays["logits"], labels, self.target, member=np.array(self._drawn.member, dtype=np.int64),
            data_variance=arrays.get("data_variance"), model_variance=arrays.get("model_variance"),
            classes=self.classes, scores=own_scores(arrays), empty_decision=self.empty_decision,
            features=self._features(examples.rows),
        )  # fmt: skip

    def _features(self, rows: Encoded) -> NDArray[np.float16] | None:
        """Return the features that the recipe asks for; of a module, those before its last layer are layer 0."""
        if not (layer := self.recipe.features):
            return None
        return np.concatenate([stored_features(member, layer, rows, self.device) for member in self.members])


def own_names(model: Model, state: State) -> dict[str, Tensor]:
    """Return a state of the model under the names of the module, its last layer at its own path."""
    (stage,) = model.network.stages
    assert isinstance(stage, WrappedModule)
    last = f"{stage.last}." if stage.last else ""
    return {
        name.removeprefix(BODY) if name.startswith(BODY) else last + name.removeprefix(HEAD): tensor
        for name, tensor in merged_state(model, state).items()
        if name.startswith((BODY, HEAD)) and not name.endswith(SPREAD)
    }
