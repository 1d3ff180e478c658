"""Read a page as its reader does: cells, marks, downloads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

CHAPTER = "section.chapter[data-task]:not([hidden])"


def matrix(tab: Any) -> Any:
    """The first table of the shown task."""
    return tab.locator(f"{CHAPTER} table.matrix").first


def shown_rows(table: Any) -> list[str]:
    """The titles of the rows that are not hidden, in order."""
    return table.locator("tbody tr:not([hidden]) > th").all_text_contents()


def figure(tab: Any, title: str) -> Any:
    """A figure of the shown task, drawn."""
    caption = tab.locator("figcaption b", has_text=re.compile(f"^{title}"))
    one = tab.locator(f"{CHAPTER} figure").filter(has=caption).first
    one.scroll_into_view_if_needed()
    one.locator("svg.marks").wait_for()
    return one


def marks(figure: Any, kind: str = "point") -> dict[str, dict[str, str]]:
    """Method → name → value of every mark of a kind, as their descriptions say; of several the last."""
    texts = figure.locator(f'svg [aria-roledescription="{kind}"]').evaluate_all(
        "all => all.map((one) => one.getAttribute('aria-label'))"
    )
    values = [dict(item.partition(": ")[::2] for item in text.split("; ")) for text in texts]
    return {own["method"]: own for own in values}


def chosen(tab: Any, name: str, value: str) -> None:
    """Choose an option of the page's controls."""
    tab.locator(f"#choose-{name}").select_option(value)


def toggle_method(tab: Any, title: str) -> None:
    """Show or hide a method."""
    if not tab.locator(".controls .methods").get_attribute("open"):
        tab.locator(".controls .methods").evaluate("one => { one.open = true; }")
    tab.locator("#method-list label", has_text=title).first.click()


def downloaded(tab: Any, button: Any, folder: Path) -> Path:
    """Click a button and return the file that it saves."""
    with tab.expect_download() as event:
        button.click()
    path = folder / event.value.suggested_filename
    event.value.save_as(path)
    return path
