"""Affine views against numpy and scipy: nothing, flips, quarter turns, shifts, zoom; and their ranges.

Random resized crops against crops cut by hand and resized by torch, and their law against the definition.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.specs import describe, restore
from dubio.inference.augmentation import TRIES, Affine, ResizedCrop, ShiftFlip, Views, affine_grid, augment
from dubio.inference.samples import WeightSamples, state_of
from dubio.methods.arguments import ImageViews
from dubio.networks.draws import BlockDraws
from tests.networks.helpers import IMAGE_ROWS, image_batch, image_model, lived_in, nearly_equal

MIDDLE = [0.5, 0.5, 0.5, 0.5, 0.9, 0.9]
"""Draws that change nothing: the middle of every range, no flip."""


def images(rows=3, channels=2, height=8, width=8, seed=0):
    return torch.randn(rows, channels, height, width, generator=torch.Generator().manual_seed(seed))


def draws(rows=3, **changed):
    places = {"zoom": 0, "down": 1, "right": 2, "angle": 3, "flip": 4, "flip_vertical": 5}
    row = list(MIDDLE)
    for name, value in changed.items():
        row[places[name]] = value
    return torch.tensor([row] * rows)


def close(found, wanted):
    return np.allclose(found.numpy(), np.asarray(wanted), atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 8), (6, 11), (7, 5)])
def test_the_middle_of_every_range_changes_nothing(shape):
    batch = images(height=shape[0], width=shape[1])
    assert close(Affine(0.1, 2.0, 180.0, 0.5, 0.5).apply(batch, draws()), batch)


@pytest.mark.parametrize("shape", [(8, 8), (6, 11)])
def test_flips_are_numpys(shape):
    batch = images(height=shape[0], width=shape[1])
    flips = Affine(flip=0.5, flip_vertical=0.5)
    assert close(flips.apply(batch, draws(flip=0.4)), np.flip(batch.numpy(), 3))
    assert close(flips.apply(batch, draws(flip_vertical=0.4)), np.flip(batch.numpy(), 2))
    assert close(flips.apply(batch, draws(flip=0.1, flip_vertical=0.1)), np.flip(batch.numpy(), (2, 3)))


def test_quarter_and_half_turns_are_numpys():
    batch = images()
    turned = {angle: Affine(degrees=180.0).apply(batch, draws(angle=0.5 + angle / 360)) for angle in (-90, 90, 180)}
    assert close(turned[180], np.rot90(batch.numpy(), 2, (2, 3)))
    assert close(turned[90], np.rot90(batch.numpy(), 1, (2, 3)))
    assert close(turned[-90], np.rot90(batch.numpy(), -1, (2, 3)))


def test_whole_pixels_shift_by_whole_pixels_and_zeros_come_in():
    batch = images()
    found = Affine(pixels=2.0).apply(batch, draws(down=1.0, right=0.0))  # the view at p is the image at p + (2, −2)
    wanted = np.zeros_like(batch.numpy())
    wanted[:, :, :-2, 2:] = batch.numpy()[:, :, 2:, :-2]
    assert close(found, wanted)


def test_a_fraction_is_the_same_share_of_any_side():
    batch = images(height=8, width=16)
    share = Affine(fraction=0.25).apply(batch, draws(down=1.0, right=1.0))
    down = Affine(pixels=2.0).apply(batch, draws(down=1.0))
    assert close(share, Affine(pixels=4.0).apply(down, draws(right=1.0)))
    both = Affine(pixels=1.0, fraction=0.125).apply(batch, draws(down=0.0))
    assert close(both, Affine(pixels=2.0).apply(batch, draws(down=0.0)))
    assert "fraction" not in describe(Affine(pixels=1.0))  # fits stored before there was one keep their identity
    with pytest.raises(UserError, match="fraction"):
        Affine(fraction=1.0)


@pytest.mark.parametrize("shape", [(9, 9), (6, 11)])
def test_any_map_is_scipys_linear_interpolation(shape):
    height, width = shape
    batch = images(rows=4, channels=1, height=height, width=width)
    uniforms = torch.rand(4, 6, generator=torch.Generator().manual_seed(3))
    part = Affine(0.3, 1.5, 70.0, 0.5, 0.5)
    found = part.apply(batch, uniforms)
    for image, view, u in zip(batch[:, 0], found[:, 0], uniforms.double().numpy(), strict=True):
        zoom, down, right, angle = 2 * u[:4] - 1
        a = np.deg2rad(70.0 * angle)
        # in (row, column) order: x' = ±(cos a·x − sin a·y)/z + t, y' = ±(sin a·x + cos a·y)/z + t
        signs = np.array([-1.0 if u[5] < 0.5 else 1.0, -1.0 if u[4] < 0.5 else 1.0])
        matrix = signs[:, None] * np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) / (1 + 0.3 * zoom)
        centre = np.array([(height - 1) / 2, (width - 1) / 2])
        offset = centre - matrix @ centre + 1.5 * np.array([down, right])
        # the image in a border of zeros, so that what lies outside is interpolated towards zero
        framed = np.pad(image.numpy().astype(np.float64), 8)
        wanted = ndimage.affine_transform(framed, matrix, offset + 8 - matrix @ np.array([8.0, 8.0]), order=1)
        assert np.allclose(view.numpy(), wanted[8:-8, 8:-8], atol=1e-4)


def test_the_grid_is_torchs():
    maps = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
    wanted = torch.nn.functional.affine_grid(maps, [5, 1, 6, 11], align_corners=False)
    assert torch.allclose(affine_grid(maps, 6, 11), wanted, atol=1e-6)


def test_a_view_grows_where_the_zoom_is_above_one():
    image = torch.zeros(1, 1, 21, 21)
    image[:, :, 8:13, 8:13] = 1.0
    area = {u: float(Affine(zoom=0.4).apply(image, draws(1, zoom=u)).sum()) for u in (0.0, 0.5, 1.0)}
    assert area[0.0] == pytest.approx(25 * 0.6**2, rel=0.1)
    assert area[0.5] == pytest.approx(25, rel=1e-5)
    assert area[1.0] == pytest.approx(25 * 1.4**2, rel=0.1)


def test_every_image_has_its_own_map_and_the_batch_does_not_matter():
    batch, part = images(rows=6), Affine(0.1, 1.0, 180.0, 0.5, 0.5)
    uniforms = torch.rand(6, 6, generator=torch.Generator().manual_seed(1))
    whole = part.apply(batch, uniforms)
    alone = torch.cat([part.apply(batch[i : i + 1], uniforms[i : i + 1]) for i in range(6)])
    assert torch.equal(whole, alone)
    same = part.apply(batch[:1].expand(6, -1, -1, -1), uniforms)
    assert len({tuple(view.flatten().tolist()) for view in same}) == 6


def test_training_views_follow_the_generator():
    part = Affine(0.1, 1.0, 180.0, 0.5)
    one, two, other = (augment(part, images(), torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_it_is_a_part_and_refuses_what_means_nothing():
    views = Views(Affine(0.1, 3.0, 180.0, 0.5), 2)
    assert restore(describe(views)) == views
    wrong = ({"zoom": 1.0}, {"pixels": -1.0}, {"degrees": 200.0}, {"flip": 1.5}, {"flip_vertical": -0.1})
    for arguments in wrong:
        with pytest.raises(UserError, match=next(iter(arguments))):
            Affine(**arguments)


def crop_images(rows=3, height=16, width=16):
    return torch.randn(rows, 2, height, width, generator=torch.Generator().manual_seed(0))


def crop_draws(rows=3, area=0.5, ratio=0.5, low=0.5, right=0.5, flip=0.9):
    row = [area] * TRIES + [ratio] * TRIES + [low, right, flip]
    return torch.tensor([row] * rows)


def uniforms(rows, seed=0):
    return torch.rand(rows, ResizedCrop.width, generator=torch.Generator().manual_seed(seed))


def test_a_crop_of_the_whole_area_is_the_image():
    batch = crop_images()
    assert torch.allclose(ResizedCrop(area=1.0, ratio=1.0).apply(batch, uniforms(3) * 0 + 0.7), batch, atol=1e-5)
    mirrored = ResizedCrop(area=1.0, ratio=1.0, flip=1.0).apply(batch, uniforms(3))
    assert torch.allclose(mirrored, batch.flip(-1), atol=1e-5)


@pytest.mark.parametrize(("low", "right"), [(0.0, 0.0), (1.0, 0.0), (0.5, 1.0)])
def test_inside_it_is_the_crop_resized_by_torch(low, right):
    batch = crop_images()
    # a quarter of the area of a square: half of each side, at whole pixels
    found = ResizedCrop(area=0.25, ratio=1.0, flip=0.0).apply(batch, crop_draws(area=0.0, low=low, right=right))
    top, left = int(8 * low), int(8 * right)
    cut = batch[:, :, top : top + 8, left : left + 8]
    wanted = functional.interpolate(cut, size=(16, 16), mode="bilinear", align_corners=False)
    # at its own edge torch's crop does not see the pixel beside it, which a view of the image does
    assert torch.allclose(found[:, :, 1:-1, 1:-1], wanted[:, :, 1:-1, 1:-1], atol=1e-5)


@pytest.mark.parametrize("shape", [(20, 20), (20, 30), (30, 20)])
def test_area_and_ratio_follow_their_law(shape):
    crop, n = ResizedCrop(area=0.2), 20_000
    down, across = crop.sides(uniforms(n), shape[1] / shape[0])
    assert float(torch.maximum(down, across).max()) <= 1.0
    rng = np.random.default_rng(1)
    tall, wide = [], []
    for _ in range(n):  # the definition, one image at a time
        for _ in range(TRIES):
            area = shape[0] * shape[1] * rng.uniform(0.2, 1.0)
            ratio = math.exp(rng.uniform(-math.log(4 / 3), math.log(4 / 3)))
            width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if width <= shape[1] and height <= shape[0]:
                break
        else:
            height, width = shape
        tall.append(height / shape[0])
        wide.append(width / shape[1])
    for found, wanted in ((down, tall), (across, wide), (down * across, np.multiply(tall, wide))):
        for level in (0.1, 0.5, 0.9):
            assert np.quantile(found.numpy(), level) == pytest.approx(np.quantile(wanted, level), abs=0.01)


def test_the_first_pair_that_fits_is_taken_and_the_whole_image_if_none_does():
    crop = ResizedCrop(area=0.5, ratio=4.0, flip=0.0)
    row = crop_draws(1, area=1.0, ratio=1.0)  # the whole area four times as wide as high: never fits
    assert torch.equal(torch.stack(crop.sides(row, 1.0)), torch.ones(2, 1))
    row[:, 3], row[:, TRIES + 3] = 0.0, 0.5  # the fourth pair: half the area, as wide as high
    assert torch.allclose(torch.stack(crop.sides(row, 1.0)), torch.full((2, 1), math.sqrt(0.5)))


def test_places_lie_inside_and_reach_every_edge():
    crop = ResizedCrop(area=0.25, ratio=1.0, flip=0.0)
    for low, right in ((0.0, 0.0), (1.0, 1.0)):
        (rows,) = crop.maps(crop_draws(1, area=0.0, low=low, right=right), 16, 16)
        edges = torch.tensor([[-1.0, -1.0, 1.0], [1.0, 1.0, 1.0]]) @ rows.T
        assert torch.allclose(edges[int(low)], torch.full((2,), 2 * low - 1))
        assert edges.abs().max() <= 1.0 + 1e-6


def test_views_are_functions_of_the_draws_and_the_part_of_its_description():
    crop = ResizedCrop()
    views = [augment(crop, crop_images(), torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])
    assert restore(describe(crop)) == crop


def test_methods_reach_it_by_the_argument_crop():
    assert ImageViews(crop=0.08, flip=0.5).augmentation() == ResizedCrop()
    with pytest.raises(UserError, match="shift must be 0, given 4"):
        ImageViews(crop=0.08, shift=4).augmentation()


@pytest.mark.parametrize("wrong", [{"area": 0.0}, {"area": 1.5}, {"ratio": 0.5}, {"flip": 2.0}])
def test_what_means_nothing_is_refused(wrong):
    with pytest.raises(UserError, match=f"resized_crop: {next(iter(wrong))} must"):
        ResizedCrop(**wrong)


def test_views_of_folded_networks_are_those_of_the_plain_ones():
    model = lived_in(image_model("vgg-small"))
    views = Views(ShiftFlip(4, 0.5), 3)
    found = WeightSamples(model, (state_of(model),), 0, views).draw(5).predict(image_batch(), IMAGE_ROWS).logits
    for index, logits_of_view in enumerate(found):
        uniforms = BlockDraws(5).rows("view", "uniform", 3, range(index, index + 1), IMAGE_ROWS)[0]
        with torch.inference_mode():
            assert nearly_equal(logits_of_view, model(views.augmentation.apply(image_batch(), uniforms)))
