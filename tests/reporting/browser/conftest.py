"""A headless Chromium without a network, and pages in it; without a browser the tests are skipped, in CI they fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from dubio.reporting.build import Report, build_report
from dubio.reporting.page import render
from tests.reporting.browser.worlds import calibrated_world, hostile_world
from tests.reporting.stored_runs import World

CHROMIUM = Path("/usr/bin/chromium")
AXE = Path(os.environ.get("DUBIO_AXE", "node_modules/axe-core/axe.min.js"))
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
LOCAL = ("file:", "data:", "blob:")
HARMLESS = 'WARN Dropping "fit-y" because spec has discrete height.'
"""Vega-Lite's remark on figures as wide as the page with rows of a fixed height, which is what they should be."""

Opener = Callable[..., Any]


def missing(reason: str) -> NoReturn:
    """Skip, or fail where ``DUBIO_BROWSER=required`` says that nothing may be skipped."""
    if os.environ.get("DUBIO_BROWSER") == "required":
        pytest.fail(f"{reason}, and DUBIO_BROWSER=required")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser per file: while one is open its event loop runs, and tests of other files may want their own."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("needs playwright")
    if not CHROMIUM.exists():
        missing(f"needs Chromium at {CHROMIUM}")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.exists():
        missing(f"needs axe-core at {AXE}; run make axe")
    return AXE.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def calibrated() -> World:
    return calibrated_world()


@pytest.fixture(scope="session")
def calibrated_report(calibrated: World) -> Report:
    return build_report(*calibrated)


@pytest.fixture(scope="session")
def page_file(calibrated_report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(calibrated_report), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def hostile_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    path.write_text(render(build_report(*hostile_world())), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opener]:
    """Open files in a fresh profile; a request, dialog, warning or error of any of them fails the test."""
    problems: list[str] = []
    contexts = []

    def route(route: Any) -> None:
        if route.request.url.startswith(LOCAL):
            route.continue_()
        else:
            problems.append(f"request of {route.request.url}")
            route.abort()

    def open_file(path: Path, fragment: str = "", **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        context.route("**", route)
        tab = context.new_page()
        tab.set_default_timeout(60_000)
        tab.on("console", lambda message: message.text == HARMLESS or problems.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: problems.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.goto(path.as_uri() + fragment)
        if options.get("java_script_enabled", True):
            tab.wait_for_selector("html[data-ready]")
        return tab

    yield open_file
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def tab(open_page: Opener, page_file: Path) -> Any:
    return open_page(page_file)
