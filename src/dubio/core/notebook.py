"""Print a result as a terminal would, into a text or into the HTML that a notebook shows."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 120
STYLE = "font-family: monospace; white-space: pre-wrap; word-break: normal; overflow-wrap: break-word"
"""Of results in a notebook, whose own style may have another font, in which columns are not aligned."""


class Shown:
    """A result that a notebook shows as it prints."""

    def _repr_html_(self) -> str:
        return as_html(str(self))


def as_text(result: Any) -> str:
    """Return what a terminal shows of a result that rich can print."""
    return _printed(result).export_text().rstrip()


def as_html(result: Any) -> str:
    """Return the same as HTML; a text keeps its lines, whatever their length."""
    return _printed(result).export_html(inline_styles=True, code_format=f'<pre style="{STYLE}">{{code}}</pre>')


def _printed(result: Any) -> Console:
    from rich.console import Console
    from rich.text import Text

    lines = result.splitlines() if isinstance(result, str) else ()
    # In a notebook rich would show the result itself, a second time.
    width = max([WIDTH, *map(len, lines)])
    console = Console(record=True, file=io.StringIO(), width=width, force_jupyter=False)
    console.print(Text(result) if isinstance(result, str) else result)
    return console
