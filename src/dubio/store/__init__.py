"""The store: fits and predictions under the hash of what they are, atomic, verified, shared by processes."""

from dubio.core.specs import canonical, identity
from dubio.store.locks import BusyError
from dubio.store.runs import Store

__all__ = ["BusyError", "Store", "canonical", "identity"]
