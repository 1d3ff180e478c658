"""dubio: does a classifier know when it does not know, and which uncertainty method makes it know best?

The names below are loaded when they are first used, so that ``import dubio`` costs nothing and never loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dubio.core.errors import BadFile, DubioError, MissingExtra, StoreError, UnknownName, UserError
    from dubio.core.predictions import Predictions, join, pool_members
    from dubio.core.registry import load_plugin, method, metric, network, task
    from dubio.core.types import Examples, Metric, Run, SourceCard, Split, Task
    from dubio.estimators import benchmark
    from dubio.evaluation import Evaluation, evaluate
    from dubio.formats import read_predictions, write_predictions
    from dubio.referral import (
        Policy,
        apply_policy,
        fit_capacity_policy,
        fit_risk_policy,
        fit_screening_policy,
        shift_test,
    )
    from dubio.torch_module import FittedModule, fit, load_fit

__version__ = "0.1.0"

__all__ = [
    "BadFile",
    "DubioError",
    "Evaluation",
    "Examples",
    "FittedModule",
    "Metric",
    "MissingExtra",
    "Policy",
    "Predictions",
    "Run",
    "SourceCard",
    "Split",
    "StoreError",
    "Task",
    "UnknownName",
    "UserError",
    "__version__",
    "apply_policy",
    "benchmark",
    "evaluate",
    "fit",
    "fit_capacity_policy",
    "fit_risk_policy",
    "fit_screening_policy",
    "join",
    "load_fit",
    "load_plugin",
    "method",
    "metric",
    "network",
    "pool_members",
    "read_predictions",
    "shift_test",
    "task",
    "write_predictions",
]

_HOMES = {
    "dubio.core.errors": ("BadFile", "DubioError", "MissingExtra", "StoreError", "UnknownName", "UserError"),
    "dubio.core.predictions": ("Predictions", "join", "pool_members"),
    "dubio.core.registry": ("load_plugin", "method", "metric", "network", "task"),
    "dubio.core.types": ("Examples", "Metric", "Run", "SourceCard", "Split", "Task"),
    "dubio.estimators": ("benchmark",),
    "dubio.evaluation": ("Evaluation", "evaluate"),
    "dubio.formats": ("read_predictions", "write_predictions"),
    "dubio.referral": (
        "Policy",
        "apply_policy",
        "fit_capacity_policy",
        "fit_risk_policy",
        "fit_screening_policy",
        "shift_test",
    ),
    "dubio.torch_module": ("FittedModule", "fit", "load_fit"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from the module it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module 'dubio' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Every public name, loaded or not."""
    return sorted({*globals(), *__all__})
