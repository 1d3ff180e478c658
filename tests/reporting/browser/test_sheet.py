"""The sheet of a policy as it is printed: one page of A4, without a request or an error."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

import dubio
from dubio.reporting.sheet import policy_sheet
from tests.reporting.test_sheet import CAL, CAPACITY, GRID, GROUPS, NEW, RISK, SCREENING, VOID, rows

A4 = (595, 842)
"""Points."""


def pages(pdf: bytes) -> list[tuple[int, int]]:
    """Return width and height of every page of a file that Chromium has printed, in points."""
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert len(boxes) == len(re.findall(rb"/Type /Page\b", pdf)) == int(re.findall(rb"/Count (\d+)", pdf)[0])
    return [(round(float(width)), round(float(height))) for width, height in boxes]


def printed(browser: Any, html: str) -> bytes:
    requests: list[str] = []
    errors: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: errors.append(message.text))
    page.set_content(html)
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    pdf = bytes(page.pdf(prefer_css_page_size=True))
    page.close()
    assert [url for url in requests if not url.startswith("data:")] == []
    assert errors == []
    return pdf


def test_pages_are_counted(browser: Any) -> None:
    html = "<style>@page { size: A4 } p { break-after: page }</style><p>one</p><p>two</p>three"
    assert pages(printed(browser, html)) == [A4, A4, A4]


def test_every_kind_of_policy_prints_on_one_page(browser: Any) -> None:
    validation, grouped = rows(900, 2, kind="val"), rows(900, 8, size=3, kind="id")
    dozen = replace(NEW, columns={"site": np.array([f"site {number}" for number in range(12)])[np.arange(700) % 12]})
    chosen = GRID.systems["b"][1].policy
    assert chosen is not None
    cases: list[tuple[dubio.Policy, Any]] = [
        (RISK, None), (RISK, CAL), (RISK, NEW), (CAPACITY, CAL), (CAPACITY, NEW), (SCREENING, NEW), (GROUPS, grouped),
        (chosen, NEW), (chosen, dozen), (SCREENING, dozen), (VOID, validation),
    ]  # fmt: skip
    for policy, predictions in cases:
        sheet = policy_sheet(policy, predictions, by=() if predictions is None else ("site",))
        assert pages(printed(browser, sheet.to_html())) == [A4], (policy.kind, policy.guarantee)


def test_a_dark_scheme_and_a_narrow_window_leave_the_sheet_readable(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 800}, color_scheme="dark")
    page.set_content(policy_sheet(RISK, NEW, by=("site",)).to_html())
    assert page.evaluate("getComputedStyle(document.querySelector('main')).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    firsts = page.locator("tbody tr > :first-child").evaluate_all("all => all.map((one) => one.clientWidth)")
    assert min(firsts) >= 100  # names of rates stood there in columns of two letters
    page.close()
