"""A real task with a real model of another framework."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dubio


@pytest.fixture(scope="session")
def cancer():
    return dubio.benchmark("breast-cancer")


@pytest.fixture(scope="session")
def logistic(cancer):
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(*cancer.train)
