from __future__ import annotations

from typing import Any

import pytest

from dubio.reporting import Report, build_report
from dubio.studies.ensembles.overview import EnsemblingStudy
from dubio.studies.ensembles.study import Study
from tests.reporting.stored_runs import FakeStore
from tests.studies.ensembles.helpers import make_study, study_section


@pytest.fixture(scope="session")
def study_world() -> tuple[FakeStore, dict[str, Any]]:
    return make_study()


@pytest.fixture(scope="session")
def report(study_world: tuple[FakeStore, dict[str, Any]]) -> Report:
    return build_report(*study_world)


@pytest.fixture(scope="session")
def section(report: Report) -> EnsemblingStudy:
    return study_section(report)


@pytest.fixture(scope="session")
def study(section: EnsemblingStudy) -> Study:
    return section.studies["pictures"]
