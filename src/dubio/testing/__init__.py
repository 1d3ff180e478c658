"""The conformance suite: says in words what a task, network, method or metric of yours gets wrong.

Each check takes what was registered (by its name or entry) and returns a list of :class:`Finding`, empty when
all is as it should be; :func:`assert_ok` raises when it is not::

    from dubio import load_plugin
    from dubio.testing import assert_ok, check_metric

    def test_my_metric() -> None:
        load_plugin(Path("mine.py"))
        assert_ok(check_metric("top-share-accuracy"))

``dubio check mine.py`` runs the same checks on everything a file registers. Tasks and metrics need no
torch for that; the names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dubio.testing.methods import check_method, examine_method
    from dubio.testing.metrics import check_metric, examine_metric
    from dubio.testing.networks import check_network, examine_network
    from dubio.testing.rules import ConformanceError, Finding, Outcome, assert_ok
    from dubio.testing.tasks import check_task, examine_task

__all__ = [
    "ConformanceError",
    "Finding",
    "Outcome",
    "assert_ok",
    "check_method",
    "check_metric",
    "check_network",
    "check_task",
    "examine_method",
    "examine_metric",
    "examine_network",
    "examine_task",
]

_NAMES = {
    "rules": ("ConformanceError", "Finding", "Outcome", "assert_ok"),
    "methods": ("check_method", "examine_method"),
    "metrics": ("check_metric", "examine_metric"),
    "networks": ("check_network", "examine_network"),
    "tasks": ("check_task", "examine_task"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from the module it lives in."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'dubio.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dubio.testing.{_MODULE_OF[name]}"), name)
