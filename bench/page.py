"""The page of a run: from the store to the file, again for an unchanged run, and from the file to a page that answers.

A run of the quick benchmark's preset ``smoke`` is trained for it; ``DUBIO_BENCH_STORE`` names a store with one run,
such as that of ``make demo``. Each report is a process of its own, as a user starts it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
FIRST_FIGURE = "section.chapter:not([hidden]) figure svg.marks"


def run() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "store"
        if given := os.environ.get("DUBIO_BENCH_STORE"):
            shutil.copytree(given, store, ignore=shutil.ignore_patterns("derived"))
        else:
            _dubio("run", "quick", "--preset", "smoke", "--store", store, "--out", folder / "page")
            shutil.rmtree(store / "derived", ignore_errors=True)
        first = _dubio("report", "--store", store, "--out", folder / "page")
        again = median(_dubio("report", "--store", store, "--out", folder / "page") for _ in range(3))
        page = folder / "page" / "report.html"
        conditions = f"whole command, {page.stat().st_size / 1e6:.2f} MB page, {given or 'preset smoke'}"
        times = f"{again:.1f} s, {first / again:.1f} × faster than the first time, {first:.1f} s"
        yield f"Report of an unchanged run: {times} [{conditions}]"
        yield from _in_browser(page)


def _dubio(*arguments: object) -> float:
    """Run a command; return its seconds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "dubio", *map(str, arguments)], check=True, capture_output=True)
    return time.perf_counter() - start


def _in_browser(page: Path) -> Iterator[str]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        yield "Time until the page answers: not measured, without playwright"
        return
    if not CHROMIUM.exists():
        yield f"Time until the page answers: not measured, without {CHROMIUM}"
        return
    ready, drawn = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        for _ in range(5):
            tab = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            start = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("html[data-ready]", state="attached")
            ready.append(time.perf_counter() - start)
            tab.wait_for_selector(FIRST_FIGURE, state="attached")
            drawn.append(time.perf_counter() - start)
            tab.context.close()
        browser.close()
    yield f"Time until the page answers: {median(ready):.2f} s, with its first figure {median(drawn):.2f} s [Chromium]"
