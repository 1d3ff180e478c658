"""Random resized crops against crops cut by hand and resized by torch, and their law against the definition."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from dubio.core.errors import UserError
from dubio.core.specs import describe, restore
from dubio.inference.augmentation import augmented
from dubio.inference.resized_crop import TRIES, ResizedCrop
from dubio.methods.arguments import AUGMENTATION, augmentation_of


def images(rows=3, height=16, width=16):
    return torch.randn(rows, 2, height, width, generator=torch.Generator().manual_seed(0))


def draws(rows=3, area=0.5, ratio=0.5, low=0.5, right=0.5, flip=0.9):
    row = [area] * TRIES + [ratio] * TRIES + [low, right, flip]
    return torch.tensor([row] * rows)


def uniforms(rows, seed=0):
    return torch.rand(rows, ResizedCrop.width, generator=torch.Generator().manual_seed(seed))


def test_a_crop_of_the_whole_area_is_the_image():
    batch = images()
    assert torch.allclose(ResizedCrop(area=1.0, ratio=1.0).apply(batch, uniforms(3) * 0 + 0.7), batch, atol=1e-5)
    mirrored = ResizedCrop(area=1.0, ratio=1.0, flip=1.0).apply(batch, uniforms(3))
    assert torch.allclose(mirrored, batch.flip(-1), atol=1e-5)


@pytest.mark.parametrize(("low", "right"), [(0.0, 0.0), (1.0, 0.0), (0.5, 1.0)])
def test_inside_it_is_the_crop_resized_by_torch(low, right):
    batch = images()
    # a quarter of the area of a square: half of each side, at whole pixels
    found = ResizedCrop(area=0.25, ratio=1.0, flip=0.0).apply(batch, draws(area=0.0, low=low, right=right))
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
    row = draws(1, area=1.0, ratio=1.0)  # the whole area four times as wide as high: never fits
    assert torch.equal(torch.stack(crop.sides(row, 1.0)), torch.ones(2, 1))
    row[:, 3], row[:, TRIES + 3] = 0.0, 0.5  # the fourth pair: half the area, as wide as high
    assert torch.allclose(torch.stack(crop.sides(row, 1.0)), torch.full((2, 1), math.sqrt(0.5)))


def test_places_lie_inside_and_reach_every_edge():
    crop = ResizedCrop(area=0.25, ratio=1.0, flip=0.0)
    for low, right in ((0.0, 0.0), (1.0, 1.0)):
        (rows,) = crop.maps(draws(1, area=0.0, low=low, right=right), 16, 16)
        edges = torch.tensor([[-1.0, -1.0, 1.0], [1.0, 1.0, 1.0]]) @ rows.T
        assert torch.allclose(edges[int(low)], torch.full((2,), 2 * low - 1))
        assert edges.abs().max() <= 1.0 + 1e-6


def test_views_are_functions_of_the_draws_and_the_part_of_its_description():
    crop = ResizedCrop()
    views = [augmented(crop, images(), torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])
    assert restore(describe(crop)) == crop


def test_methods_reach_it_by_the_argument_crop():
    plain = {key: argument.default for key, argument in AUGMENTATION.items()}
    assert augmentation_of(plain | {"crop": 0.08, "flip": 0.5}) == ResizedCrop()
    with pytest.raises(UserError, match="goes together with flip alone; shift must be 0, given 4"):
        augmentation_of(plain | {"crop": 0.08, "shift": 4})


@pytest.mark.parametrize("wrong", [{"area": 0.0}, {"area": 1.5}, {"ratio": 0.5}, {"flip": 2.0}])
def test_what_means_nothing_is_refused(wrong):
    with pytest.raises(UserError, match=f"resized_crop: {next(iter(wrong))} must"):
        ResizedCrop(**wrong)
