"""Corruptions against what their formulas say."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dubio.core.lazy_rows import row_digests
from dubio.tasks.images.corruptions import CORRUPTIONS, CorruptedRows, disc, line

pytest.importorskip("PIL.Image")

NEUTRAL = {
    "gaussian-noise": 0.0, "impulse-noise": 0.0, "gaussian-blur": 0.0, "defocus-blur": 0.0, "motion-blur": 0.0,
    "brightness": 0.0, "fog": 0.0, "contrast": 1.0, "pixelate": 1.0,
}  # fmt: skip
"""The strength that changes nothing, where there is one: light always comes in photons, and jpeg always rounds."""


def smooth(count: int = 24, side: int = 32) -> np.ndarray:
    """Made-up pictures with edges and slopes, away from black and white."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:side, :side] / side
    made = []
    for _ in range(count):
        a, b, c, d = rng.uniform(-1, 1, 4)
        plane = 0.5 + 0.15 * a * (x - 0.5) + 0.15 * b * (y - 0.5)
        blob = 0.2 * ((x - 0.5 - c / 4) ** 2 + (y - 0.5 - d / 4) ** 2 < 0.04)
        waves = 0.06 * np.sin(2 * math.pi * (8 * a * x + 8 * b * y))
        made.append(np.stack([plane + blob + waves, plane - blob, plane + waves], axis=-1))
    return np.clip(np.rint(255 * np.array(made)), 0, 255).astype(np.uint8)


def rows_of(images: np.ndarray, name: str, severity: int, seed: int = 0) -> CorruptedRows:
    return CorruptedRows(images, np.arange(len(images)), row_digests(images), CORRUPTIONS[name], severity, seed)


def dice(count: int) -> list[np.random.Generator]:
    return [np.random.default_rng([7, i]) for i in range(count)]


def change(images: np.ndarray, made: np.ndarray) -> float:
    return float(np.square(made.astype(float) - images).mean())


@pytest.mark.parametrize("name", NEUTRAL)
def test_no_strength_no_change(name: str) -> None:
    images = smooth(3)
    np.testing.assert_array_equal(CORRUPTIONS[name].apply(images, NEUTRAL[name], dice(3)), images)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_higher_severity_changes_more(name: str) -> None:
    images = smooth()
    changes = [change(images, rows_of(images, name, severity)[:]) for severity in (1, 2, 3, 4, 5)]
    assert changes[0] > 0
    assert all(weaker < stronger for weaker, stronger in pairwise(changes)), changes


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_images_stay_images(name: str) -> None:
    black_white = np.zeros((4, 32, 32, 3), np.uint8)
    black_white[::2] = 255
    for images in (black_white, smooth(2, 16)[..., :1], smooth(1, 20)):
        made = rows_of(images, name, 5)[:]
        assert made.dtype == np.uint8
        assert made.shape == images.shape


def test_gaussian_noise_has_the_stated_deviation() -> None:
    grey = np.full((20, 32, 32, 3), 128, np.uint8)
    made = rows_of(grey, "gaussian-noise", 3)  # equal images have equal dice: ask each image's own
    sigma = 255 * 0.08
    noise = CORRUPTIONS["gaussian-noise"].apply(grey, 0.08, dice(20)).astype(float) - 128
    # the variance of n normal draws has a standard error of σ²·√(2/n); rounding adds 1/12
    assert noise.var() == pytest.approx(sigma**2 + 1 / 12, rel=4 * math.sqrt(2 / noise.size))
    assert abs(noise.mean()) < 4 * sigma / math.sqrt(noise.size)
    np.testing.assert_array_equal(made[0], made[1])


def test_shot_noise_has_the_variance_of_counts() -> None:
    grey = np.full((20, 32, 32, 3), 102, np.uint8)
    made = CORRUPTIONS["shot-noise"].apply(grey, 120, dice(20)).astype(float)
    # Var(255·Poisson(n·x/255)/n) = 255·x/n
    assert made.mean() == pytest.approx(102, abs=0.3)
    assert made.var() == pytest.approx(255 * 102 / 120 + 1 / 12, rel=0.03)


def test_impulse_noise_hits_the_stated_share() -> None:
    grey = np.full((20, 32, 32, 3), 100, np.uint8)
    made = CORRUPTIONS["impulse-noise"].apply(grey, 0.11, dice(20))
    error = math.sqrt(0.055 / made.size)
    assert set(np.unique(made)) == {0, 100, 255}
    for level in (0, 255):
        assert (made == level).mean() == pytest.approx(0.055, abs=4 * error)


@pytest.mark.parametrize("name", ["gaussian-blur", "defocus-blur"])
@pytest.mark.parametrize("severity", [1, 5])
def test_blur_keeps_the_mean(name: str, severity: int) -> None:
    images = smooth(6)
    made = rows_of(images, name, severity)[:].astype(float)
    # mirrored edges keep the sum; rounding moves a mean by less than its own standard error of √(1/12/n)
    bound = 5 * math.sqrt(1 / 12 / images[0].size)
    np.testing.assert_allclose(made.mean(axis=(1, 2, 3)), images.mean(axis=(1, 2, 3)), atol=bound)


def test_blur_of_a_point_is_its_kernel() -> None:
    point = np.zeros((1, 33, 33, 1), np.uint8)
    point[0, 16, 16] = 255
    made = CORRUPTIONS["defocus-blur"].apply(point, 3 / 33, dice(1))[0, :, :, 0]
    np.testing.assert_allclose(made[13:20, 13:20], 255 * disc(3.0), atol=0.5)
    sigma = 0.05 * 33
    made = CORRUPTIONS["gaussian-blur"].apply(point, 0.05, dice(1))[0, :, :, 0]
    distance = np.arange(-5, 6)
    weights = np.exp(-0.5 * (distance / sigma) ** 2) / np.exp(-0.5 * (np.arange(-7, 8) / sigma) ** 2).sum()
    np.testing.assert_allclose(made[11:22, 11:22], 255 * np.outer(weights, weights), atol=1)


@pytest.mark.parametrize("radius", [0.8, 1.5, 3.2, 6.0])
def test_a_disc_covers_its_area(radius: float) -> None:
    kernel = disc(radius)
    assert kernel.sum() == pytest.approx(1)
    np.testing.assert_array_equal(kernel, kernel.T)
    # the centre pixel lies wholly inside: its weight is one over the disc's area
    assert kernel[len(kernel) // 2, len(kernel) // 2] == pytest.approx(1 / (math.pi * radius**2), rel=0.03)


@pytest.mark.parametrize("angle", [0.0, 0.7, math.pi / 2, 2.5])
def test_a_line_has_its_direction_and_length(angle: float) -> None:
    kernel, length = line(8.0, angle), 8.0
    places = np.arange(len(kernel)) - len(kernel) // 2
    down, right = places @ kernel.sum(1), places @ kernel.sum(0)
    assert kernel.sum() == pytest.approx(1)
    assert [down, right] == pytest.approx([0, 0], abs=1e-9)
    # a uniform line of length L has the variance L²/12 along itself; sharing points among neighbours adds at most 1/4
    spread = places**2 @ kernel.sum(1) + places**2 @ kernel.sum(0)
    assert length**2 / 12 - 0.1 <= spread <= length**2 / 12 + 0.8
    mixed = places @ kernel @ places
    assert np.sign(round(mixed, 6)) == np.sign(round(math.sin(angle) * math.cos(angle), 6))


def test_contrast_brightness_and_fog_are_their_formulas() -> None:
    images = smooth(4)
    low = CORRUPTIONS["contrast"].apply(images, 0.4, dice(4)).astype(float)
    assert low.mean() == pytest.approx(images.mean(), abs=0.1)
    np.testing.assert_allclose(low.std(axis=(1, 2, 3)), 0.4 * images.std(axis=(1, 2, 3)), rtol=0.02)
    light = CORRUPTIONS["brightness"].apply(images, 0.12, dice(4)).astype(float)
    np.testing.assert_allclose(light, np.minimum(255, images + 30.6), atol=0.5)
    foggy = CORRUPTIONS["fog"].apply(images, 1.0, dice(4))
    assert foggy.min() >= 153  # 0.6 of the range: nothing but haze
    np.testing.assert_array_equal(foggy[..., 0], foggy[..., 2])


def test_pixelate_leaves_blocks_of_means() -> None:
    images = smooth(2)
    made = CORRUPTIONS["pixelate"].apply(images, 0.5, dice(2)).astype(float)
    blocks = images.reshape(2, 16, 2, 16, 2, 3).mean(axis=(2, 4))
    np.testing.assert_allclose(made[:, ::2, ::2], blocks, atol=1.0)  # rounded down the columns, and along the rows
    np.testing.assert_array_equal(made[:, ::2, ::2], made[:, 1::2, 1::2])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_is_the_same_in_any_order_and_batch(name: str) -> None:
    images = smooth(7)
    rows = rows_of(images, name, 3)
    whole = rows[:]
    order = np.array([6, 0, 3, 3, 1])
    np.testing.assert_array_equal(rows[order], whole[order])
    np.testing.assert_array_equal(rows.take(order)[1:4], whole[order][1:4])
    np.testing.assert_array_equal(rows[4], whole[4])
    np.testing.assert_array_equal(rows[np.arange(7) > 4], whole[5:])
    elsewhere = rows_of(images[::-1].copy(), name, 3)
    np.testing.assert_array_equal(elsewhere[:], whole[::-1])
    assert elsewhere.take(np.arange(7)[::-1]).content() == rows.content()


def test_another_seed_gives_other_noise_and_another_fingerprint() -> None:
    images = smooth(2)
    one, other = rows_of(images, "gaussian-noise", 2), rows_of(images, "gaussian-noise", 2, seed=1)
    assert (one[:] != other[:]).any()
    assert one.content() != other.content()
    contents = {rows_of(images, name, severity).content() for name in CORRUPTIONS for severity in (1, 5)}
    assert len(contents) == 2 * len(CORRUPTIONS)


def test_keys_are_those_of_the_pixels() -> None:
    rows = rows_of(smooth(3), "contrast", 1)
    assert rows.keys() == [digest.tobytes() for digest in row_digests(rows[:])]


def test_the_documentation_has_these_strengths() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "image-data.md"
    lines = [line.strip("| ").split(" | ") for line in page.read_text(encoding="utf-8").splitlines()]
    rows = [cells for cells in lines if len(cells) == 8 and "`" in cells[1]]
    told = {cells[1].strip("`"): (cells[0], *map(float, cells[3:])) for cells in rows}
    assert told == {made.name: (made.family, *made.strengths) for made in CORRUPTIONS.values()}
