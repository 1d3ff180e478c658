"""Photographs of made-up eyes, in folders laid out like the public data sets; and a machine without other data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

CENTRE, RADIUS = (150, 110), 90
"""Of the disc in a picture of 320×240 pixels, unless another one is asked for."""


def eye(seed: int, *, size=(320, 240), centre=CENTRE, radius=RADIUS, level=150):
    """An orange disc with dots on a black ground, uint8 [H, W, 3]."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: size[1], : size[0]]
    inside = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 <= radius**2
    picture = np.zeros((size[1], size[0], 3))
    picture[inside] = np.array([1.0, 0.6, 0.3]) * level
    picture += (
        inside[..., None]
        * rng.normal(0, 0.1 * level, (size[1] // 8 + 1, size[0] // 8 + 1, 1))
        .repeat(8, 0)
        .repeat(8, 1)[: size[1], : size[0]]
    )
    return np.clip(picture, 0, 255).astype(np.uint8)


@pytest.fixture
def no_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and no folder that the environment names."""
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.delenv("DUBIO_DATA", raising=False)


@pytest.fixture
def alone(no_other_data: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other data, and no network: whoever tries to fetch something fails at once."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")


@pytest.fixture
def eyes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Saves made-up eyes; the cache is a folder of this test alone."""
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DUBIO_DATA", raising=False)

    class Eyes:
        home = tmp_path / "photographs"
        make = staticmethod(eye)

        def save(self, name: str, seed: int, **how) -> Path:
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(eye(seed, **how)).save(path)
            return path

        def write(self, name: str, *lines: str) -> Path:
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return path

    return Eyes()


@pytest.fixture
def real(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data; an empty cache, so that nothing else is found."""
    monkeypatch.setenv("DUBIO_CACHE", str(tmp_path))
    monkeypatch.delenv("DUBIO_DATA", raising=False)
    return data_dir
