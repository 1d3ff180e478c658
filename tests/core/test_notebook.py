"""Results as a terminal and as a notebook show them."""

from __future__ import annotations

import html
import re

import pytest
from rich.table import Table

from dubio.core.notebook import WIDTH, Shown, as_html, as_text


def test_a_text_keeps_its_lines_whatever_their_length() -> None:
    lines = ["x" * (3 * WIDTH), "a [bold]b[/bold] <script>", ""]
    page = as_html("\n".join(lines))
    assert page.startswith('<pre style="font-family: monospace; ')
    assert "<script>" not in page
    assert html.unescape(re.sub("<[^>]+>", "", page)).split("\n")[:2] == lines[:2]


def test_a_table_prints_the_same_cells_as_text_and_as_html() -> None:
    table = Table("name", "value")
    table.add_row("one", "1.5")
    assert "one" in as_text(table)
    assert "1.5" in as_html(table)


def test_a_result_is_shown_once_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich shows what is printed in a notebook; the notebook shows the HTML that is returned."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("it was shown by rich, too"))
    table = Table("name")
    table.add_row("one")
    assert "one" in as_html(table)
    assert "one" in as_text(table)


def test_a_shown_result_is_its_text() -> None:
    class Note(Shown):
        def __str__(self) -> str:
            return "a < b\nc"

    assert Note()._repr_html_().startswith("<pre ")
    assert "a &lt; b\nc" in Note()._repr_html_()
