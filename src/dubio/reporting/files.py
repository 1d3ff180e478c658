"""Names of files that any system accepts."""

from __future__ import annotations

import re

_OTHER = re.compile(r"[^A-Za-z0-9_.]+")


def file_name(text: str) -> str:
    """Return a text as a part of a file name: its letters, digits and dots, with one dash for everything between."""
    return _OTHER.sub("-", text).strip("-.") or "unnamed"
