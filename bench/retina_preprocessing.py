"""Preparing photographs (hash, decode, find the disc, crop, resize, keep) against plain Pillow in one process."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from bench.timing import in_turns, line
from dubio.tasks.fundus.cache import cores, file_hashes, prepare_files

COUNT, DIFFERENT, FRAME, SIZES = 160, 8, (2592, 1944), (64, 512)


def run() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        paths = _photographs(Path(folder))
        before = os.environ.get("DUBIO_CACHE")
        try:
            for size in SIZES:
                yield _compared(paths, Path(folder), size)
        finally:
            if before is None:
                os.environ.pop("DUBIO_CACHE", None)
            else:
                os.environ["DUBIO_CACHE"] = before


def _compared(paths: list[Path], folder: Path, size: int) -> str:
    def plain() -> None:
        rows = np.empty((len(paths), size, size, 3), dtype=np.uint8)
        for row, path in enumerate(paths):
            with Image.open(path) as image:
                rows[row] = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))

    def ours() -> None:
        os.environ["DUBIO_CACHE"] = str(folder / f"cache-{size}-{time.monotonic_ns()}")  # nothing is remembered
        hashes = file_hashes(paths)
        prepare_files({str(said): path for path, said in hashes.items()}, size, processes=min(2, cores()))

    ratio = in_turns(plain, ours, rounds=3)
    conditions = (
        f"{COUNT} jpegs of {FRAME[0]}×{FRAME[1]} to {size} pixels, {len(paths) / ratio.first:.0f} → "
        f"{len(paths) / ratio.second:.0f} images a second, {min(2, cores())} processes, their start included"
    )
    return line(f"Preparing photographs at {size} pixels against plain open and resize", ratio, "≥ 1.6 ×", conditions)


def _photographs(folder: Path) -> list[Path]:
    """A few pictures again and again; what follows a jpeg's end makes every file another one."""
    for number in range(DIFFERENT):
        _photograph(folder / f"{number}.jpg", number)
    paths = [folder / f"{number}.jpg" for number in range(COUNT)]
    for number, path in enumerate(paths[DIFFERENT:]):
        path.write_bytes(paths[number % DIFFERENT].read_bytes() + number.to_bytes(4, "little"))
    return paths


def _photograph(path: Path, seed: int) -> None:
    """A disc with blotches on black, as large as a camera's picture."""
    rng = np.random.default_rng(seed)
    width, height = FRAME
    y, x = np.ogrid[:height, :width]
    inside = (x - width / 2) ** 2 + (y - height / 2) ** 2 <= (0.48 * height) ** 2
    blotches = Image.fromarray(rng.integers(60, 200, (75, 100, 3), dtype=np.uint8)).resize(FRAME)
    grain = rng.integers(0, 24, (height, width, 1), dtype=np.uint8)
    Image.fromarray((np.asarray(blotches) + grain) * inside[..., None]).save(path, quality=90)
