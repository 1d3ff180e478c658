"""The steps of the Dockerfile in a clean environment, and programs of it as a user without privileges."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
USER = 10001


def steps() -> list[tuple[str, str]]:
    """Return the steps of the Dockerfile: their words and what follows."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def of(word: str) -> list[str]:
    """Return what follows a word in each step that begins with it."""
    return [rest for name, rest in steps() if name == word]


@dataclass(frozen=True)
class Environment:
    """An environment in which dubio alone was installed, by the steps of the Dockerfile.

    Attributes:
        folder: A folder that every user may enter; ``app`` in it is the folder of the image.
    """

    folder: Path

    @property
    def app(self) -> Path:
        return self.folder / "app"

    def variables(self, **further: str) -> dict[str, str]:
        """Return the environment variables: nothing of this process but the settings of pip."""
        own = {"PATH": f"{self.folder / 'environment' / 'bin'}:/usr/bin:/bin", "HOME": str(self.folder / "home")}
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return {**own, "OMP_NUM_THREADS": "1", "COLUMNS": "300", **pip, **further}

    def start(self, words: list[str], cwd: Path, **options: Any) -> subprocess.Popen[str]:
        """Start a program as the user of the image, or as this one where that is not allowed."""
        user: Any = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
        variables = self.variables(**options.pop("variables", {}))
        return subprocess.Popen(words, cwd=cwd, env=variables, text=True, **user, **options)

    def writable(self, name: str) -> Path:
        """Make a folder that the user of the image may write."""
        path = self.folder / name
        path.mkdir()
        if os.geteuid() == 0:
            os.chown(path, USER, USER)
        return path


@contextmanager
def clean_environment() -> Iterator[Environment]:
    """Install dubio as the Dockerfile does; a folder of pytest could not be entered by another user."""
    with tempfile.TemporaryDirectory() as name:
        own = Environment(Path(name))
        own.folder.chmod(0o755)
        own.app.mkdir()
        own.writable("home")
        subprocess.run([_interpreter(), "-m", "venv", own.folder / "environment"], check=True)
        for words in map(str.split, of("COPY")):
            for source in words[:-1]:
                if source != "model":
                    _copy(ROOT / source, own.app / ("" if words[-1] in (".", "./") else words[-1]))
        for step in of("RUN"):
            if "useradd" not in step:  # which would make a user of this machine
                subprocess.run(["sh", "-c", step], cwd=own.app, env=own.variables(), check=True)
        yield own


def _interpreter() -> str:
    """Return an interpreter that the user of the image may run: this one, or the system's of the same version."""
    if os.geteuid() != 0 or all(path.stat().st_mode & 0o001 for path in Path(sys.base_prefix).resolve().parents):
        return sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return shutil.which(name, path="/usr/local/bin:/usr/bin") or pytest.skip(f"no {name} that another user may run")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target / source.name)
