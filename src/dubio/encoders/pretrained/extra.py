"""The libraries of the extra ``bert``, imported when they are first needed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from dubio.core.errors import MissingExtra

EXTRA = "bert"
LIBRARIES = ("transformers", "tokenizers", "huggingface_hub")


def module(name: str) -> Any:
    """A module of one of :data:`LIBRARIES`.

    Raises:
        MissingExtra: When it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in LIBRARIES:
            raise
        raise _missing() from missing


def require() -> None:
    """Say at once, before anything is fetched or planned, that the extra is missing.

    Raises:
        MissingExtra: When one of its libraries is not installed.
    """
    if any(importlib.util.find_spec(name) is None for name in LIBRARIES):
        raise _missing()


def _missing() -> MissingExtra:
    return MissingExtra("a pre-trained encoder (network 'bert')", EXTRA)
