"""Tables and numbers as results print them: aligned text that a terminal, a notebook and a log show alike."""

from __future__ import annotations

import math
from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns, the first row as heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def number_text(value: float) -> str:
    """Return four decimals, or three digits of a small number; ∞ and "undefined" (NaN) are kept apart."""
    if not math.isfinite(value):
        return "undefined" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"
