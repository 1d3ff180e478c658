"""What every test may ask for, and what makes all of them repeat exactly."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

# Before numpy or torch is loaded: tests run side by side, one thread each; figures need no screen.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

# A shell that starts the tests in the background has them ignore interrupts, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# No deadline: the machine may be busy. Derandomised: a failure seen once is seen again.
settings.register_profile("dubio", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dubio")

ROOT = Path(__file__).resolve().parents[1]


LONG = (
    "test_fuzz", "browser/test_cockpit", "browser/test_layout", "browser/test_controls", "reporting/test_page",
    "campaigns/test_system_calls", "cli/test_run", "runner/test_execute", "test_killed_run", "test_docs",
)  # fmt: skip
"""The files that take longest, first of all: started last, they would leave the other processes idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, in that order; the order of the others stays."""
    places = {path: _place(path) for path in {item.path for item in items}}
    items.sort(key=lambda item: places[item.path])


def _place(path: Path) -> int:
    """Return the place of a file among those that take longest; behind them for all others."""
    name = path.with_suffix("").as_posix()
    return next((place for place, long in enumerate(LONG) if name.endswith(f"/{long}")), len(LONG))


def pytest_collection_finish() -> None:
    """Take modules and tests out of the collector's sight: a visit takes more than a tenth of a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Where real data sets lie: DUBIO_DATA, else ../shared/data beside the project; skips where there are none."""
    folder = Path(os.environ.get("DUBIO_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no real data: set DUBIO_DATA to the folder that holds it")
    return folder


@pytest.fixture(scope="session")
def texts_csv(tmp_path_factory):
    """A table of 400 texts of two classes."""
    from tests.deployment.helpers import text_task

    task = text_task(400, seed=3)
    rows = [
        f'{number},"{text}",{task.classes[label]}'
        for number, (text, label) in enumerate(
            (text, label)
            for split in task.splits
            for text, label in zip(split.data.inputs, split.data.labels, strict=True)
        )
    ]
    path = tmp_path_factory.mktemp("data") / "texts.csv"
    path.write_text("\n".join(["number,review,stars", *rows]) + "\n")
    return path


@pytest.fixture(scope="session")
def texts_run(texts_csv, tmp_path_factory):
    """A run of the texts with one seed: a single network, and one with noise."""
    import dubio
    from tests.executor_here import training_here

    with training_here():
        return dubio.run(
            data=texts_csv,
            data_options={"text": "review", "label": "stars", "id": "number"},
            methods=["deterministic", "mc-dropout"],
            seeds=1,
            settings={"epochs": 3, "mc-dropout.samples": 4, "encoding.min_frequency": 1},
            store=tmp_path_factory.mktemp("run") / "store",
            jobs=1,
            baselines=False,
            progress=False,
        )


@pytest.fixture(scope="session")
def clean():
    """An environment in which dubio was installed as the Dockerfile does it."""
    from tests.clean_environment import clean_environment

    with clean_environment() as environment:
        yield environment
