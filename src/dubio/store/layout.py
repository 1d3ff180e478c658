"""Where things are in a store: the only file that knows its directories."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from dubio.core.specs import check_id

Room = Literal["fits", "predictions"]

LONGEST_SPLIT_NAME = 120


@dataclass(frozen=True)
class Layout:
    """The paths of a store at ``root``."""

    root: Path

    @property
    def header(self) -> Path:
        """Says that this is a store, and of which schema."""
        return self.root / "store.json"

    @property
    def index(self) -> Path:
        """The derived index."""
        return self.root / "index.sqlite"

    @property
    def scratch(self) -> Path:
        """Temporary directories of processes under way."""
        return self.root / "tmp"

    @property
    def locks(self) -> Path:
        """One lock file an id."""
        return self.root / "locks"

    @property
    def manifests(self) -> Path:
        """One file a benchmark run."""
        return self.root / "runs"

    @property
    def pictures(self) -> Path:
        """Small copies of test images, a directory a split."""
        return self.root / "pictures"

    @property
    def corrupt(self) -> Path:
        """What was found damaged and moved out of the way."""
        return self.root / "corrupt"

    @property
    def checkpoints(self) -> Path:
        """Fits under way."""
        return self.root / "checkpoints"

    @property
    def failures(self) -> Path:
        """What went wrong, one file an id."""
        return self.root / "failures"

    def room(self, room: Room) -> Path:
        """The directory of all fits or of all predictions."""
        return self.root / room

    def directory(self, room: Room, identifier: str) -> Path:
        """The directory of one fit or prediction."""
        return self.root / room / check_id(identifier)

    def checkpoint(self, fit_id: str) -> Path:
        """The directory of one fit's checkpoint."""
        return self.checkpoints / check_id(fit_id)

    def failure(self, identifier: str) -> Path:
        """The record of one failure."""
        return self.failures / f"{check_id(identifier)}.json"

    def lock(self, identifier: str) -> Path:
        """The lock file of one id."""
        return self.locks / f"{check_id(identifier)}.lock"


def split_file(split: str, fingerprint: str) -> str:
    """The file name of a prediction on one split; a split's name may hold any character."""
    safe = quote(split, safe="")
    if len(safe) > LONGEST_SPLIT_NAME:
        safe = f"{safe[:100]}~{hashlib.sha256(split.encode()).hexdigest()[:16]}"
    return f"{safe}-{check_id(fingerprint)}.safetensors"
