from __future__ import annotations

from typing import Any

import pytest

from dubio.report import Results, score_run

from .world import FakeStore, make_world


@pytest.fixture(scope="session")
def world() -> tuple[FakeStore, dict[str, Any]]:
    return make_world()


@pytest.fixture(scope="session")
def results(world: tuple[FakeStore, dict[str, Any]]) -> Results:
    return score_run(*world)
