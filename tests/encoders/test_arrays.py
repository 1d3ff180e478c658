"""The image encoder: exact channel statistics; image and table encoders through JSON.

The table encoder against scikit-learn.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from dubio.core.errors import UserError
from dubio.core.types import Examples
from dubio.encoders import (
    ArrayRows,
    ImageEncoding,
    ScaledImageEncoding,
    TableEncoding,
    encoder_from_json,
    encoding_for,
    fit_encoder,
)


def examples(inputs: np.ndarray) -> Examples:
    return Examples(inputs, np.zeros(len(inputs), dtype=np.int64))


@pytest.mark.parametrize("shape", [(50, 6, 5, 3), (50, 6, 5)])
def test_image_channels_have_mean_zero_and_deviation_one_in_training(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(1).integers(0, 200, shape).astype(np.uint8)
    encoder = fit_encoder(ImageEncoding(), examples(images))
    values = encoder.encode(examples(images)).values
    channels = 1 if len(shape) == 3 else 3
    assert values.shape == (50, channels, 6, 5)
    assert values.dtype == np.float32
    assert encoder.shape == (channels, 6, 5)
    np.testing.assert_allclose(values.mean(axis=(0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(values.std(axis=(0, 2, 3)), 1, atol=1e-6)
    plain = images.reshape(50, 6, 5, channels).transpose(0, 3, 1, 2).astype(np.float64)
    wanted = (plain - plain.mean(axis=(0, 2, 3), keepdims=True)) / plain.std(axis=(0, 2, 3), keepdims=True)
    np.testing.assert_allclose(values, wanted, atol=1e-6)


def test_image_statistics_do_not_depend_on_row_order() -> None:
    images = np.random.default_rng(2).integers(0, 256, (40, 4, 4, 3)).astype(np.uint8)
    assert fit_encoder(ImageEncoding(), examples(images)) == fit_encoder(ImageEncoding(), examples(images[::-1]))


@pytest.mark.parametrize("shape", [(2, 4, 6, 3), (2, 4, 6)])
def test_a_fixed_scale_does_not_depend_on_the_training_images(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(4).integers(0, 256, shape).astype(np.uint8)
    encoding = encoding_for("scaled-image", {})
    values = fit_encoder(encoding, examples(images)).encode(examples(images)).values
    plain = images.reshape(2, 4, 6, -1).transpose(0, 3, 1, 2).astype(np.float64)
    np.testing.assert_allclose(values, (plain - 127) / 128, atol=1e-7)
    assert fit_encoder(encoding, examples(images)) == fit_encoder(encoding, examples(images[:1] // 2))
    other = fit_encoder(encoding_for("scaled-image", {"mean": 100.0, "deviation": 50.0}), examples(images))
    np.testing.assert_allclose(other.encode(examples(images)).values, (plain - 100) / 50, atol=1e-6)


def test_image_encoder_refuses_other_shapes_and_types() -> None:
    encoder = fit_encoder(ImageEncoding(), examples(np.zeros((2, 4, 4, 1), dtype=np.uint8)))
    assert (encoder.encode(examples(np.full((1, 4, 4), 3, dtype=np.uint8))).values == 3).all()  # constant: centred
    with pytest.raises(UserError, match="4×4 with 1"):
        encoder.encode(examples(np.zeros((2, 5, 4, 1), dtype=np.uint8)))
    with pytest.raises(UserError, match="uint8"):
        encoder.encode(examples(np.zeros((2, 4, 4, 1))))


@pytest.mark.parametrize(
    ("encoding", "inputs"),
    [
        (TableEncoding(), np.random.default_rng(3).normal(size=(9, 3)) * 1e-7),
        (ImageEncoding(), np.random.default_rng(3).integers(0, 256, (9, 3, 3, 3)).astype(np.uint8)),
        (ScaledImageEncoding(), np.random.default_rng(3).integers(0, 256, (9, 3, 3, 3)).astype(np.uint8)),
    ],
)
def test_encoders_survive_json_exactly(encoding: TableEncoding | ImageEncoding, inputs: np.ndarray) -> None:
    encoder = fit_encoder(encoding, examples(inputs))
    again = encoder_from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    np.testing.assert_array_equal(again.encode(examples(inputs)).values, encoder.encode(examples(inputs)).values)


def test_table_agrees_with_scikit_learn_where_values_are_missing() -> None:
    rng = np.random.default_rng(0)
    train, test = rng.normal(5, 3, (60, 4)), rng.normal(5, 3, (20, 4))
    train[rng.random(train.shape) < 0.2] = np.nan
    test[rng.random(test.shape) < 0.2] = np.nan
    encoder = fit_encoder(TableEncoding(), examples(train))
    scaler = StandardScaler().fit(train)  # ignores missing values
    wanted = SimpleImputer(strategy="constant", fill_value=0.0).fit_transform(scaler.transform(test))
    got = encoder.encode(examples(test))
    assert isinstance(got, ArrayRows)
    assert got.values.dtype == np.float32
    np.testing.assert_allclose(got.values, wanted, atol=1e-6)
    assert encoder.shape == (4,)


def test_table_columns_that_never_vary_are_only_centred() -> None:
    train = np.array([[0.1, np.nan, 1.0]] * 3)
    train[:, 2] = [1, 2, 3]
    encoder = fit_encoder(TableEncoding(), examples(train))
    got = encoder.encode(examples(np.array([[1.1, 7.0, np.nan]]))).values
    np.testing.assert_allclose(got, [[1.0, 7.0, 0.0]], atol=1e-6)


def test_table_refuses_other_widths_and_infinity() -> None:
    encoder = fit_encoder(TableEncoding(), examples(np.zeros((2, 3))))
    with pytest.raises(UserError, match="3 columns"):
        encoder.encode(examples(np.zeros((2, 4))))
    with pytest.raises(UserError, match="row 1, column 2"):
        encoder.encode(examples(np.array([[0, 0, 0], [0, 0, np.inf]])))


@pytest.mark.parametrize("damage", [{"mean": ""}, {"mean": [1.0]}, {"deviation": "xy"}, {"mean": [], "deviation": []}])
@pytest.mark.parametrize("kind", ["table", "image"])
def test_saved_statistics_that_are_not_numbers_for_each_column_are_refused(
    kind: str, damage: dict[str, object]
) -> None:
    inputs = np.zeros((2, 2)) if kind == "table" else np.zeros((2, 3, 3, 2), np.uint8)
    encoder = fit_encoder(TableEncoding() if kind == "table" else ImageEncoding(), examples(inputs))
    saved = json.loads(json.dumps(encoder.to_json()))
    encoder_from_json(saved)
    for changed in (damage, {**damage, "shape": []}):
        with pytest.raises(UserError, match="mean and a deviation of each column"):
            encoder_from_json({**saved, **changed})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [1e39, -1e308])
def test_table_refuses_numbers_that_single_precision_cannot_hold(number: float) -> None:
    encoder = fit_encoder(TableEncoding(), examples(np.array([[0.0, 1.0], [2.0, 3.0]])))
    with pytest.raises(UserError, match=r"row 1, column 0 .* single precision; given"):
        encoder.encode(examples(np.array([[0.0, 1.0], [number, np.nan]])))
    encoder.encode(examples(np.array([[1e37, np.nan]])))
