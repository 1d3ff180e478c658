"""Small copies of test images, kept so that a report can show examples when the data set is no longer at hand."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dubio.core.specs import check_id
from dubio.store.atomic import Scratch
from dubio.store.layout import Layout

ENDING = ".png"
SIGNATURE = b"\x89PNG\r\n\x1a\n"
"""How a PNG file begins; what does not is no picture of ours."""


def write_pictures(layout: Layout, scratch: Scratch, fingerprint: str, pictures: Mapping[int, bytes]) -> None:
    """Put pictures beside those that are there; one that is there stays, since it is of the same example.

    Args:
        layout: Of the store.
        scratch: Where files are written first.
        fingerprint: Of the split: its rows never change.
        pictures: Row → PNG.
    """
    directory = layout.pictures / check_id(fingerprint)
    for row, content in pictures.items():
        path = directory / f"{row}{ENDING}"
        if not path.exists():
            scratch.write_file(path, content)


def read_pictures(layout: Layout, fingerprint: str) -> dict[int, bytes]:
    """All pictures of a split by row; a file that is no PNG, or not called after a row, is passed over."""
    directory = layout.pictures / check_id(fingerprint)
    if not directory.is_dir():
        return {}
    found = {}
    for name in sorted(os.listdir(directory)):
        row = name.removesuffix(ENDING)
        if name.endswith(ENDING) and row.isascii() and row.isdigit():
            content = (directory / name).read_bytes()
            if content.startswith(SIGNATURE):
                found[int(row)] = content
    return found
