from __future__ import annotations

import pytest

from dubio.reporting import Report, build_report
from tests.reporting.sections.helpers import World, screening_world


@pytest.fixture(scope="package")
def eyes_world() -> World:
    return screening_world()


@pytest.fixture(scope="package")
def eyes(eyes_world: World) -> Report:
    return build_report(*eyes_world)
