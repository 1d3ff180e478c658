"""The interface between the runner and training: how specifications are written, fits made and predictions drawn.

:mod:`dubio.methods` implements it. Workers receive the name of the module, so that tests can run plans without
torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from dubio.core.predictions import Predictions
from dubio.core.types import Split, Task

TORCH_TRAINER = "dubio.methods"

Spec = Mapping[str, Any]


class Trainer(Protocol):
    """A module with these names."""

    __name__: str
    FitContext: Any
    NetworkSpec: Any

    def fit_spec(
        self, recipe: Any, task: Task, encoding: Any, network: Any, *, seed: int, member: int, start_id: str | None
    ) -> dict[str, Any]:
        """Return everything that determines the weights of one fit."""

    def pred_spec(self, recipe: Any, fit_id: str, *, seed: int, member: int) -> dict[str, Any]:
        """Return everything that determines the predictions drawn from one fit."""

    def fit(self, spec: Spec, task: Task, context: Any) -> Any:
        """Fit, and return an object with ``tensors``, ``encoder`` and ``record``."""

    def predictor(
        self, spec: Spec, prediction: Spec, tensors: Any, encoder: Any, *, device: str
    ) -> Callable[[Split], Predictions]:
        """Return a function that predicts any split from one fit."""

    def encoder_split(self, encoding: Any, task: Task) -> Split:
        """Return the examples that an encoder is fitted on."""

    def encode_split(self, encoding: Any, train_split: Split, split: Split) -> Any:
        """Return a split encoded by what was fitted on the training split."""

    def predict_with(
        self, posterior: Any, encoded: Any, split: Split, task: Spec, *, seed: int, device: str
    ) -> Predictions:
        """Predict one encoded split from a posterior."""

    def begin_job(self) -> None:
        """Begin to count what a job saves because of earlier ones in the same process."""

    def seconds_saved(self) -> float:
        """Return the seconds that the present job saved so far."""

    def check(self, fit_spec: Spec, task: Task) -> None:
        """Refuse a fit that is certain to fail, before any training."""

    def estimate(self, fit_spec: Spec, task: Task, *, device: str, pace: float | None = None) -> Mapping[str, float]:
        """Return the approximate ``{"seconds", "bytes", "pace", "pass"}`` of a fit, measured unless a pace is given."""


def load_trainer(name: str = TORCH_TRAINER) -> Trainer:
    """Import the trainer of that module name."""
    return cast(Trainer, importlib.import_module(name))
