"""Take the pictures of the page that README and docs show, with Debian's Chromium and without a network.

``python tools/screenshots.py`` trains the quick benchmark into a folder of its own; ``--store DIR`` takes a store that
is there, ``--page FILE`` a page. The sheet is that of a policy for logistic regression on the breast-cancer data;
``--only sheet`` takes it alone. The pictures are written to ``docs/images``.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
IMAGES = Path(__file__).parent.parent / "docs" / "images"
SIZE = {"width": 1280, "height": 800}
LARGEST = 250_000
"""Bytes of a picture."""
CHAPTER = "section.chapter[data-task]:not([hidden])"


def make_page(store: Path | None, folder: Path) -> Path:
    """Write the page of a store, or of the quick benchmark that is trained for it; return its path."""
    if store is None:
        command = ["run", "quick", "--store", str(folder / "store"), "--out", str(folder)]
    else:
        command = ["report", "--store", str(store), "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "dubio", *command], check=True, stdout=subprocess.DEVNULL)
    return folder / "report.html"


def make_sheet(folder: Path) -> Path:
    """Fit a policy on a calibration set, apply it to a test set, and return the path of its sheet."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data, rng = load_breast_cancer(), np.random.default_rng(0)
    order, malignant = rng.permutation(len(data.target)), 1 - data.target
    clinics = np.array(["clinic A", "clinic B"])[rng.integers(0, 2, len(order))]
    training, *parts = np.split(order, [60, 310])
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(data.data[training], malignant[training])
    for name, rows in zip(("calibration", "test"), parts, strict=True):
        columns = {"labels": malignant[rows], "classes": np.array(["benign", "malignant"]), "clinic": clinics[rows]}
        np.savez(folder / f"{name}.npz", probs=model.predict_proba(data.data[rows]), **columns)
    sheet, policy = folder / "sheet.html", folder / "policy.json"
    fit = ["fit", folder / "calibration.npz", "--max-risk", "0.05", "--by", "clinic", "-o", policy]
    apply = ["apply", policy, folder / "test.npz", "--by", "clinic", "-o", folder / "decisions.csv", "--report", sheet]
    for command in (fit, apply):
        words = [sys.executable, "-m", "dubio", "refer", *map(str, command)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return sheet


@contextmanager
def opened(page: Path, scheme: str, ready: str = "html[data-ready]") -> Iterator[Any]:
    """Open the page in a fresh profile, until an element is there; requests are refused."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        context = browser.new_context(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
        context.route("**", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
        tab = context.new_page()
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector(ready)
        yield tab
        browser.close()


def first_screen(tab: Any) -> None:
    """Show the page as it opens."""
    tab.locator(f"{CHAPTER} figure svg.marks").first.wait_for()


def cockpit(tab: Any) -> None:
    """Show the cockpit of the last task at its first guaranteed stop, where there is one, beside another system."""
    tab.locator("#choose-task").select_option(index=tab.locator("#choose-task option").count() - 1)
    part = tab.locator(f"{CHAPTER} .widget.cockpit").first
    part.locator("select").nth(1).select_option(index=4)
    stops = part.locator(".stops button:not([disabled])")
    if stops.count():
        stops.first.click()
    scroll_to(tab, f"{CHAPTER} .part-cockpit")


def examples(tab: Any) -> None:
    """Show the examples, unfolded."""
    unfold = "all => all.forEach((one) => { one.open = one.id.endsWith('examples'); })"
    tab.locator("details.part").evaluate_all(unfold)
    scroll_to(tab, f"{CHAPTER} .widget.examples")


def scroll_to(tab: Any, selector: str) -> None:
    """Bring an element below the controls, which stay at the top, and wait for figures that come into view."""
    top = "one => window.scrollTo(0, one.getBoundingClientRect().top + window.scrollY - 90)"
    tab.locator(selector).first.evaluate(top)
    tab.wait_for_timeout(1500)


def smaller(png: bytes) -> bytes:
    """Return the same picture, compressed as well as PNG allows."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(buffer, "png", optimize=True)
    return buffer.getvalue()


SHOTS = {
    "page-first-screen": (first_screen, "light"),
    "page-first-screen-dark": (first_screen, "dark"),
    "page-cockpit": (cockpit, "light"),
    "page-examples": (examples, "light"),
}


SHEET = "sheet"


def main() -> None:
    """Write every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, help="a store with a run; by default the quick benchmark is trained")
    parser.add_argument("--page", type=Path, help="a page that is already written")
    parser.add_argument("--only", choices=[*SHOTS, SHEET], help="take this picture alone")
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder of the pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    names = [options.only] if options.only else [*SHOTS, SHEET]
    with tempfile.TemporaryDirectory() as folder:
        page = options.page or (make_page(options.store, Path(folder)) if names != [SHEET] else None)
        for name in names:
            if name == SHEET:
                with opened(make_sheet(Path(folder)), "light", "main") as tab:
                    image = smaller(tab.locator("main").screenshot())
            else:
                show, scheme = SHOTS[name]
                with opened(page, scheme) as tab:
                    show(tab)
                    image = smaller(tab.screenshot())
            if len(image) > LARGEST:
                sys.exit(f"{name}.png has {len(image):,} bytes, more than {LARGEST:,}")
            (options.out / f"{name}.png").write_bytes(image)
            print(options.out / f"{name}.png", f"{len(image):,} bytes")


if __name__ == "__main__":
    main()
