"""What every test may ask for, and what makes all of them repeat exactly."""

from __future__ import annotations

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


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Where real data sets lie: DUBIO_DATA, else ../shared/data beside the project; skips where there are none."""
    folder = Path(os.environ.get("DUBIO_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no real data: set DUBIO_DATA to the folder that holds it")
    return folder
