from __future__ import annotations

from typing import Any

import pytest

from dubio.reporting.results import Results
from dubio.reporting.scores import score_run
from dubio.studies.ensembles.study import Study
from tests.reporting.ensembles.study_world import make_study
from tests.reporting.world import FakeStore


@pytest.fixture(scope="session")
def study_world() -> tuple[FakeStore, dict[str, Any]]:
    return make_study()


@pytest.fixture(scope="session")
def scored(study_world: tuple[FakeStore, dict[str, Any]]) -> Results:
    return score_run(*study_world)


@pytest.fixture(scope="session")
def study(scored: Results) -> Study:
    return scored.studies["pictures"]
