"""Rooms are imported when something in them is first looked up, so that importing dubio loads nothing heavy."""

from __future__ import annotations

import importlib
import pkgutil


def import_rooms(*rooms: str) -> None:
    """Import every module of these packages, so that what they register is known."""
    for room in rooms:
        package = importlib.import_module(room)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{room}.{module.name}")
