from __future__ import annotations

from typing import Any

import pytest

from dubio.reporting.results import Results
from dubio.reporting.scores import score_run
from tests.reporting.text_world import make_text_world
from tests.reporting.world import FakeStore, make_world


@pytest.fixture(scope="session")
def world() -> tuple[FakeStore, dict[str, Any]]:
    return make_world()


@pytest.fixture(scope="session")
def results(world: tuple[FakeStore, dict[str, Any]]) -> Results:
    return score_run(*world)


@pytest.fixture(scope="session")
def text_world() -> tuple[FakeStore, dict[str, Any]]:
    return make_text_world()


@pytest.fixture(scope="session")
def scored(text_world: tuple[FakeStore, dict[str, Any]]) -> Results:
    return score_run(*text_world)
