"""Names of files that any system accepts."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


def file_name(text: str) -> str:
    """A part of a file name: letters, digits and dashes of the text."""
    return _PLAIN.sub("-", text).strip("-.") or "unnamed"
