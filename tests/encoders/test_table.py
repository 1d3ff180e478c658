"""The table encoder against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from dubio.core.errors import UserError
from dubio.core.types import Examples
from dubio.encoders import ArrayRows, TableEncoding, fit_encoder


def examples(inputs: np.ndarray) -> Examples:
    return Examples(inputs, np.zeros(len(inputs), dtype=np.int64))


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
