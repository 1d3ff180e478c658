"""The left side as the runner sees it: how specifications are written, fits made, predictions drawn.

``dubio.methods.work`` is one such module; workers are told its name, so that another one can stand in its place.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from dubio.core.predictions import Predictions
from dubio.core.types import Split, Task

STOCK = "dubio.methods.work"

Spec = Mapping[str, Any]


class Left(Protocol):
    """What the runner asks of the left side."""

    FitContext: Any
    NetworkSpec: Any

    def fit_spec(
        self, recipe: Any, task: Task, encoding: Any, network: Any, *, seed: int, member: int, start_id: str | None
    ) -> dict[str, Any]:
        """Everything that touches the weights of one fit."""
        ...

    def pred_spec(self, recipe: Any, fit_id: str, *, seed: int, member: int) -> dict[str, Any]:
        """Everything that touches the predictions drawn from one fit."""
        ...

    def fit(self, spec: Spec, task: Task, context: Any) -> Any:
        """Make a fit: an object with ``tensors``, ``encoder`` and ``record``."""
        ...

    def predictor(
        self, spec: Spec, prediction: Spec, tensors: Any, encoder: Any, *, device: str
    ) -> Callable[[Split], Predictions]:
        """What predicts any split from one fit."""
        ...

    def encode_split(self, encoding: Any, train_split: Split, split: Split) -> Any:
        """A split encoded by what was fitted on the training split."""
        ...

    def predict_with(
        self, posterior: Any, encoded: Any, split: Split, task: Spec, *, seed: int, device: str
    ) -> Predictions:
        """Predict one encoded split from a posterior."""
        ...

    def check(self, fit_spec: Spec, task: Task) -> None:
        """Refuse a fit that is known to fail, before any training."""
        ...

    def estimate(self, fit_spec: Spec, task: Task, *, device: str) -> Mapping[str, float]:
        """``{"seconds", "bytes"}`` of a fit, roughly, before any training."""
        ...


def load_left(name: str = STOCK) -> Left:
    """Import the left side of that module name."""
    return cast(Left, importlib.import_module(name))
