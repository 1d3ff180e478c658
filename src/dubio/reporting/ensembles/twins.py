"""Methods with and without test-time augmentation: what differs from another in its views alone is its twin."""

from __future__ import annotations

from collections.abc import Sequence

from dubio.reporting.manifest import MethodView


def twins_of(methods: Sequence[MethodView]) -> dict[str, str]:
    """Method that predicts random views → the method that is the same without them.

    Both are registered under one name with the same further arguments; without a twin a method is not listed.
    """
    plain: dict[tuple[str, str], str] = {}
    for method in methods:
        if not method.views:
            plain.setdefault((method.registered, method.settings), method.name)
    return {
        method.name: plain[method.registered, method.settings]
        for method in methods
        if method.views and (method.registered, method.settings) in plain
    }
