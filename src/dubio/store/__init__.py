"""The store: fits and predictions under the hash of their specification; atomic, verified, shared by processes."""

from __future__ import annotations

from pathlib import Path

from dubio.core.specs import canonical, identity
from dubio.store.locks import BusyError
from dubio.store.store import Store

__all__ = ["BusyError", "Store", "canonical", "identity", "open_store"]


def open_store(path: str | Path = "dubio-store", *, create: bool = False) -> Store:
    """Open a store of fits, predictions and benchmark runs.

    Args:
        path: Its folder.
        create: Whether an empty one is created if there is none.

    Raises:
        StoreError: If there is no store, or it cannot be read by this version.
    """
    return Store.open(path, create=create)
