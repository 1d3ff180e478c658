"""The conformance suite: says in words what a task, network, method or metric of yours gets wrong.

Each check takes what was registered (by its name or entry) and returns a list of :class:`Finding`, empty when
all is as it should be; :func:`assert_ok` raises when it is not::

    from dubio import load_plugin
    from dubio.testing import assert_ok, check_metric

    def test_my_metric() -> None:
        load_plugin(Path("mine.py"))
        assert_ok(check_metric("top-share-accuracy"))

``dubio check mine.py`` runs the same checks on everything a file registers. Tasks and metrics need no
torch for that; the checks are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dubio.testing.rules import CheckedEntry, ConformanceError, Finding, Outcome, assert_ok, check_plugin

if TYPE_CHECKING:
    from dubio.testing.methods import check_method, examine_method
    from dubio.testing.metrics import check_metric, examine_metric
    from dubio.testing.networks import check_network, examine_network
    from dubio.testing.tasks import check_task, examine_task

# fmt: off
__all__ = [
    "CheckedEntry", "ConformanceError", "Finding", "Outcome", "assert_ok", "check_method", "check_metric",
    "check_network", "check_plugin", "check_task", "examine_method", "examine_metric", "examine_network",
    "examine_task",
]
# fmt: on


def __getattr__(name: str) -> Any:
    """Load a check from the module of its kind: ``check_task`` from ``tasks``."""
    if name not in __all__:
        raise AttributeError(f"module 'dubio.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dubio.testing.{name.partition('_')[2]}s"), name)
