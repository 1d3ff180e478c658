"""The header of a store: that it is one, and of which schema."""

from __future__ import annotations

import os

from dubio.core.errors import CorruptFile, StoreError
from dubio.store.atomic import Scratch, storing
from dubio.store.layout import Layout
from dubio.store.records import pretty, read_json

SCHEMA = 1
"""Bumped by hand when a store written by this dubio can no longer be read by an older one."""


def create_header(layout: Layout) -> None:
    """Make an empty directory a store.

    Raises:
        StoreError: When it holds something else, or cannot be written.
    """
    with storing(layout.root):
        layout.root.mkdir(parents=True, exist_ok=True)
        foreign = sorted(name for name in os.listdir(layout.root) if name not in ("store.json", "tmp"))
        if foreign and not layout.header.exists():
            raise StoreError(
                f"{str(layout.root)!r} is not a dubio store (it has no store.json) and is not empty: "
                f"it holds {foreign[0]!r}. Name an empty or a new directory."
            )
        scratch = Scratch(layout.scratch)
    try:
        scratch.write_file(layout.header, pretty({"dubio": "store", "schema": SCHEMA}))
    finally:
        scratch.close()


def check_header(layout: Layout) -> None:
    """Refuse what this dubio cannot read.

    Raises:
        StoreError: When the header is damaged or of a newer schema.
    """
    try:
        header = read_json(layout.header)
        schema = int(header["schema"])
    except (CorruptFile, KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"{str(layout.header)!r} cannot be read: {fault}") from fault
    if schema > SCHEMA:
        raise StoreError(
            f"the store {str(layout.root)!r} has schema {schema}; this dubio reads up to {SCHEMA}. "
            "Use a newer dubio, or another --store."
        )
