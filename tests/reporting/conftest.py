from __future__ import annotations

from typing import Any

import pytest

import dubio
from dubio.reporting import Report, build_report
from dubio.reporting.run_view import RunView
from tests.executor_here import training_here
from tests.reporting.stored_runs import FakeStore, make_text_world, make_world


@pytest.fixture(scope="session")
def world() -> tuple[FakeStore, dict[str, Any]]:
    return make_world()


@pytest.fixture(scope="session")
def report(world: tuple[FakeStore, dict[str, Any]]) -> Report:
    return build_report(*world)


@pytest.fixture(scope="session")
def run(report: Report) -> RunView:
    return report.run


@pytest.fixture(scope="session")
def text_world() -> tuple[FakeStore, dict[str, Any]]:
    return make_text_world()


@pytest.fixture(scope="session")
def text_report(text_world: tuple[FakeStore, dict[str, Any]]) -> Report:
    return build_report(*text_world, options=("as-published",))


@pytest.fixture(scope="session")
def text_run(text_report: Report) -> RunView:
    return text_report.run


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> dubio.Run:
    """Two methods that were trained for an epoch, in a store."""
    with training_here():
        return dubio.run(
            "quick", tasks=["breast-cancer"], methods=["deterministic", "mc-dropout"], seeds=1, settings={"epochs": 1},
            store=tmp_path_factory.mktemp("run") / "store", jobs=1, progress=False,
        )  # fmt: skip
