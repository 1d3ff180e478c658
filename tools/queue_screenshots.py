"""Take the pictures of the expert's queue that the docs show, from servers that are started for them.

``python tools/queue_screenshots.py`` writes to ``docs/images``; :mod:`tools.screenshots` takes those of reports.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

sys.path.insert(0, str(Path(__file__).parent))
from screenshots import ARGUMENTS, CHROMIUM, IMAGES, smaller

from dubio.core.predictions import Predictions
from dubio.referral import fit_capacity_policy

SIZE = {"width": 1100, "height": 700}
TEXTS = {
    "review-204": ("The first hour drags, the second is among the best I have seen this year.", 0.48),
    "review-117": ("Not bad at all, if you do not mind a plot that was old when cinema was young.", 0.55),
    "review-090": ("A triumph of set design over everything else.", 0.40),
    "review-311": ("Go and see it.", 0.93),
    "review-064": ("Two hours that I want back.", 0.04),
}


def _policy(classes: tuple[str, ...]) -> str:
    rng = np.random.default_rng(0)
    logits = np.zeros((1, 600, len(classes)), dtype=np.float32)
    logits[0] = rng.normal(scale=2, size=logits[0].shape)
    labels = np.array([rng.choice(len(classes), p=np.exp(row) / np.exp(row).sum()) for row in logits[0]])
    return fit_capacity_policy(Predictions(logits, labels, classes=classes, kind="cal"), capacity=0.4).to_json()


def _retina(seed: int) -> str:
    """Return a drawn fundus: a disc with vessels and spots."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (256, 256), "black")
    draw = ImageDraw.Draw(image)
    draw.ellipse((16, 16, 240, 240), fill=(176, 74, 38))
    draw.ellipse((172, 104, 208, 148), fill=(240, 200, 120))
    for angle in np.linspace(0, 2 * np.pi, 9)[:-1]:
        radii = np.arange(0, 130, 6)
        ends = 126 + radii * np.sin(angle) + 6 * np.sin(radii / 14)
        points = list(zip(190 + 0.9 * radii * np.cos(angle), ends, strict=True))
        draw.line([p for p in points if np.hypot(p[0] - 128, p[1] - 128) < 108], fill=(120, 30, 22), width=3)
    for x, y in rng.normal(120, 28, size=(14, 2)):
        draw.ellipse((x, y, x + 4, y + 4), fill=(90, 12, 12))
    buffer = io.BytesIO()
    image.save(buffer, "png")
    return base64.b64encode(buffer.getvalue()).decode()


def rows(kind: str) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """Return the classes and the requests of a picture."""
    if kind == "image":
        shares = {"none": 0.09, "mild": 0.38, "moderate": 0.33, "severe": 0.15, "proliferative": 0.05}
        row = {"photograph": _retina(1), "eye": "left", "age": 61}
        return tuple(shares), [{"id": "patient-0412-left", "row": row, "probabilities": shares}]
    requests = [
        {"id": name, "row": {"text": text}, "probabilities": {"negative": 1 - share, "positive": share}}
        for name, (text, share) in TEXTS.items()
    ]
    return ("negative", "positive"), requests


@contextmanager
def served(folder: Path, kind: str) -> Iterator[str]:
    """Start a server and send it the rows; yield its address."""
    classes, requests = rows(kind)
    (folder / "policy.json").write_text(_policy(classes), encoding="utf-8")
    words = ["serve", "--policy", str(folder / "policy.json"), "--log", str(folder / "log"), "--port", "0"]
    process = subprocess.Popen([sys.executable, "-m", "dubio", *words], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        match = next(m for line in process.stderr if (m := re.match(r"dubio serve: (http://\S+?)/$", line.strip())))
        body = json.dumps({"rows": requests}).encode()
        request = urllib.request.Request(f"{match[1]}/decide", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request).read()
        yield match[1]
    finally:
        process.terminate()
        process.wait(60)


def shoot(address: str, scheme: str) -> bytes:
    """Return the picture of a queue, after a first label where more rows wait."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        tab = browser.new_context(viewport=SIZE, color_scheme=scheme, timezone_id="UTC").new_page()
        tab.goto(address)
        tab.wait_for_selector("#work:visible")
        if tab.locator("#count").inner_text().split()[2] != "1":
            tab.keyboard.press("2")
            tab.wait_for_function("() => document.getElementById('count').textContent.startsWith('1 of')")
            tab.wait_for_timeout(300)
        image = smaller(tab.screenshot())
        browser.close()
    return image


def main() -> None:
    """Write every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder of the pictures")
    options = parser.parse_args()
    for name, kind, scheme in (("queue-text", "text", "light"), ("queue-image-dark", "image", "dark")):
        with tempfile.TemporaryDirectory() as folder, served(Path(folder), kind) as address:
            image = shoot(address, scheme)
        (options.out / f"{name}.png").write_bytes(image)
        print(options.out / f"{name}.png", f"{len(image):,} bytes")


if __name__ == "__main__":
    main()
