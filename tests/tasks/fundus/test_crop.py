"""From files to pixels: geometry against the disc that was drawn, every mode and every broken file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from dubio.tasks.fundus.crop import crop_square, find_disc  # noqa: E402
from dubio.tasks.fundus.photographs import read_photographs  # noqa: E402
from dubio.tasks.images.files import Unreadable, open_picture  # noqa: E402


def disc_of(pixels):
    """Centre and both diameters of what is not black."""
    bright = np.asarray(pixels).max(axis=2) > 40
    rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
    return (columns[0] + columns[-1] + 1) / 2, (rows[0] + rows[-1] + 1) / 2, np.ptp(columns) + 1, np.ptp(rows) + 1


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize(
    ("frame", "centre", "radius"),
    [((320, 240), (150, 110), 90), ((1200, 900), (500, 460), 380), ((400, 300), (201, 150), 140)],
)
def test_the_disc_fills_the_square(eyes, size, frame, centre, radius):
    picture = Image.fromarray(eyes.make(1, size=frame, centre=centre, radius=radius))
    x, y, wide, high = disc_of(crop_square(picture, find_disc(picture).box, size))
    assert abs(x - size / 2) <= 1.5
    assert abs(y - size / 2) <= 1.5
    assert size - 2 <= wide <= size
    assert size - 2 <= high <= size


def test_a_disc_cut_off_above_and_below_stays_round(eyes):
    picture = Image.fromarray(eyes.make(1, size=(400, 240), centre=(200, 120), radius=180))
    x, y, wide, high = disc_of(crop_square(picture, find_disc(picture).box, 128))
    assert abs(x - 64) <= 1
    assert abs(y - 64) <= 1
    assert wide >= 126
    assert high == pytest.approx(128 * 240 / 360, abs=2)  # the frame shows 240 of the disc's 360 pixels


def test_lettering_and_a_grey_ground_do_not_move_the_disc(eyes):
    pixels = eyes.make(1).astype(int)
    pixels[5:9, 10:60] = 255
    pixels[110:112, 230:300] = 255  # a line that touches the disc
    noisy = np.clip(np.maximum(pixels, 9) + np.random.default_rng(0).integers(-4, 5, pixels.shape), 0, 255)
    box = find_disc(Image.fromarray(noisy.astype(np.uint8))).box
    np.testing.assert_allclose(box, (60, 20, 240, 200), atol=4)


def test_a_photograph_without_ground_is_used_whole(eyes):
    pixels = eyes.make(1)[60:160, 100:200]
    seen = find_disc(Image.fromarray(pixels))
    assert seen.box == (0, 0, 100, 100)
    assert seen.problem is None


@pytest.mark.parametrize(
    ("pixels", "problem"),
    [
        (np.zeros((60, 80, 3), np.uint8), "too dark"),
        (np.full((60, 80, 3), 128, np.uint8), "no disc"),
        (np.pad(np.full((6, 80, 3), 200, np.uint8), ((30, 30), (0, 0), (0, 0))), "no disc"),
        (np.pad(np.full((20, 20, 3), 200, np.uint8), ((50, 50), (50, 50), (0, 0))), "no disc"),
    ],
)
def test_what_is_no_eye_is_said_to_be_none(pixels, problem):
    assert find_disc(Image.fromarray(pixels)).problem == problem


def test_a_dark_eye_is_found_and_called_dark(eyes):
    seen = find_disc(Image.fromarray(eyes.make(1, level=18)))
    assert seen.problem == "too dark"
    np.testing.assert_allclose(seen.box, (60, 20, 240, 200), atol=4)
    assert find_disc(Image.fromarray(eyes.make(1, level=60))).problem is None


def test_every_mode_gives_the_same_eye(eyes, tmp_path):
    rgb = Image.fromarray(eyes.make(3))
    grey = rgb.convert("L")
    alpha = rgb.convert("RGBA")
    alpha.putalpha(255)
    rgb.save(tmp_path / "plain.png")
    alpha.save(tmp_path / "rgba.png")
    rgb.quantize(256).save(tmp_path / "palette.png")
    rgb.convert("CMYK").save(tmp_path / "cmyk.tif")
    rgb.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=95)
    grey.save(tmp_path / "grey.png")
    Image.fromarray(np.asarray(grey).astype(np.uint16) * 257).save(tmp_path / "deep.png")
    wanted = {name: grey.convert("RGB") if name in ("grey.png", "deep.png") else rgb for name in os.listdir(tmp_path)}
    for name in ("plain.png", "rgba.png", "palette.png", "cmyk.tif", "cmyk.jpg", "grey.png", "deep.png"):
        picture = open_picture(tmp_path / name, 512)  # too small to be decoded at a fraction
        assert picture.mode == "RGB"
        off = np.abs(np.asarray(picture).astype(int) - np.asarray(wanted[name]).astype(int)).mean()
        assert off < {"palette.png": 6, "cmyk.jpg": 4}.get(name, 1), name


def test_what_is_transparent_becomes_black(tmp_path):
    pixels = np.full((40, 40, 4), 200, np.uint8)
    pixels[:, :20, 3] = 0
    Image.fromarray(pixels).save(tmp_path / "half.png")
    found = np.asarray(open_picture(tmp_path / "half.png", 64))
    assert found[:, :20].max() == 0
    assert 150 < found[:, 20:].mean() < 160  # 200 · 200/255 on black


def test_a_large_jpeg_is_decoded_small_without_losing_the_picture(eyes, tmp_path):
    big = Image.fromarray(eyes.make(1, size=(1600, 1200), centre=(800, 600), radius=550))
    big.save(tmp_path / "big.jpg", quality=92)
    small = open_picture(tmp_path / "big.jpg", 64)
    assert small.width < big.width
    assert min(small.size) >= 128
    fast = crop_square(small, find_disc(small).box, 64).astype(int)
    slow = crop_square(big, find_disc(big).box, 64).astype(int)
    assert np.abs(fast - slow).mean() < 3


def broken(eyes):
    """A folder with a good eye and one file of each way to be broken."""
    eyes.save("good.jpg", 1)
    whole = eyes.save("cut.jpg", 2).read_bytes()
    (eyes.home / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (eyes.home / "empty.png").write_bytes(b"")
    (eyes.home / "words.png").write_text("no picture")
    eyes.save("copy.jpg", 1)
    Image.fromarray(np.zeros((50, 50, 3), np.uint8)).save(eyes.home / "black.png")
    Image.fromarray(np.full((50, 50, 3), 90, np.uint8)).save(eyes.home / "card.png")
    names = ("good", "cut", "empty", "words", "copy", "black", "card", "gone")
    eyes.write("labels.csv", "image,grade", *(f"{name},{number % 5}" for number, name in enumerate(names)))
    eyes.save("stray.jpg", 5)


def test_every_broken_file_is_a_line_of_the_report_and_none_is_fatal(eyes):
    broken(eyes)
    found = read_photographs(eyes.home, 64)
    assert found.ids.tolist() == ["good", "black", "card"]
    told = [problem.line() for problem in found.problems]
    assert told[0] == "gone: label without image (left out)"
    assert told[1] == "stray.jpg: image without label (left out)"
    assert told[2].startswith("cut: unreadable: image file is truncated")
    assert told[3] == "empty: unreadable: the file is empty (left out)"
    assert told[4] == "words: unreadable: its format is not that of a picture (left out)"
    assert told[5] == "copy: same photograph: the same as good (left out)"
    assert told[6:] == ["black: too dark (kept)", "card: no disc (kept)"]


def test_a_folder_without_one_readable_file_is_refused(eyes):
    eyes.write("a.png", "no picture")
    eyes.write("labels.csv", "image,grade", "a,1")
    with pytest.raises(Exception, match="none of its 1 photographs can be read"):
        read_photographs(eyes.home, 64)


def test_an_absurd_picture_is_a_line_not_a_crash(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.fromarray(np.zeros((50, 50, 3), np.uint8)).save(tmp_path / "huge.png")
    with pytest.raises(Unreadable, match="decompression bomb"):
        open_picture(Path(tmp_path / "huge.png"), 64)
