"""Preparing photographs: one after another in this process, or as a process of its own that answers in JSON lines.

As a process (``python -m dubio.tasks.fundus.worker``) the first line names the array's file, every further one a file
to prepare and the row it goes to; each is answered by one line. A worker writes pixels straight into the array's
file, so that nothing large travels between processes, and ends when its input does.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.tasks.fundus.disc import look, square
from dubio.tasks.fundus.findings import Sort
from dubio.tasks.fundus.opening import Unreadable, open_picture


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    Attributes:
        row: Its row in the array.
        digest: SHA-256 of the row's pixels, in hexadecimal.
        sort: What is wrong, if anything.
        words: The particulars.
    """

    row: int
    digest: str
    sort: Sort | None = None
    words: str = ""


def prepare_one(path: Path, row: int, array: NDArray[np.uint8]) -> Outcome:
    """Open a photograph, cut the eye out of it, and write it to its row; a file that cannot be read leaves it black."""
    size = array.shape[1]
    try:
        picture = open_picture(path, size)
    except Unreadable as fault:
        return Outcome(row, digest_of(array[row]), "unreadable", str(fault))
    seen = look(picture)
    pixels = square(picture, seen.box, size)
    array[row] = pixels
    return Outcome(row, digest_of(pixels), seen.problem)


def digest_of(pixels: NDArray[np.uint8]) -> str:
    """SHA-256 of a row."""
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()


def main() -> None:
    """Serve until the input ends."""
    array: NDArray[Any] = np.load(json.loads(sys.stdin.readline())["array"], mmap_mode="r+", allow_pickle=False)
    for line in sys.stdin:
        job = json.loads(line)
        outcome = prepare_one(Path(job["path"]), job["row"], array)
        sys.stdout.write(json.dumps(vars(outcome)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
