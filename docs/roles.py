"""A hook of mkdocs: docstrings name code as ``:func:`x``` for readers of the source; pages show only the name."""

from __future__ import annotations

import re
from typing import Any

ROLE = re.compile(r":(?:func|class|mod|data|meth|attr|exc):<code>~?(?:dubio\.)?")


def on_page_content(html: str, **_: Any) -> str:
    """Take the roles out of a page."""
    return ROLE.sub("<code>", html)
