"""The parts of rows that a model was made with, so that a later run on more rows leaves every one where it was.

Classes that were held out of training are held out again: chosen anew, among more rows, they could be others.

Were the rows divided anew, rows on which the earlier model was tested could be trained on, and a comparison of the two
models would favour the later one. A row is recognised by the SHA-256 of its text, numbers or pixels; its label may have
been corrected. Where equal rows were in several parts, test is preferred to cal, cal to val, val to train.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np

from dubio.core.errors import BadFile, UserError
from dubio.core.lazy_rows import row_keys
from dubio.core.npz import read_npz
from dubio.core.types import Inputs, IntArray, StrArray, Task
from dubio.tasks.splitting import PARTS, UNASSIGNED, SplitOptions, divide_further

DIGEST = 32
"""Bytes of the digest of a row."""


def write_parts(path: Path, task: Task) -> None:
    """Write the parts of a task's rows as npz: ``digests`` ``[N, 32]``, ``parts`` ``[N]`` and ``novel`` classes."""
    splits = [split for split in task.splits if split.name in PARTS]
    digests = [key for split in splits for key in input_keys(split.data.inputs)]
    parts = np.repeat([PARTS.index(split.name) for split in splits], [len(split.data) for split in splits])
    rows = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST)
    np.savez(path, digests=rows, parts=parts.astype(np.uint8), novel=np.array(task.novel, dtype=str))


def earlier_novel(path: Path) -> tuple[str, ...] | None:
    """Return the classes that an earlier model held out of training; None where its file does not say."""
    names = read_npz(path, lambda shapes: ["novel"] if "novel" in shapes else []).get("novel")
    if names is not None and (names.ndim != 1 or names.dtype.kind != "U"):
        raise BadFile(f"{str(path)!r} is not a file of parts, as dubio export writes it.")
    return None if names is None else tuple(names.tolist())


def read_earlier_parts(path: Path) -> dict[bytes, int]:
    """Return the part of each row in a file of :func:`write_parts`, by the digest of the row.

    Raises:
        BadFile: When it is no such file.
    """
    arrays = read_npz(path, lambda shapes: [name for name in ("digests", "parts") if name in shapes])
    digests, parts = (arrays.get(name, np.zeros(())) for name in ("digests", "parts"))
    fitting = digests.shape == (len(parts) if parts.ndim == 1 else -1, DIGEST)
    if not fitting or digests.dtype != np.uint8 or parts.dtype != np.uint8 or int(parts.max(initial=0)) >= len(PARTS):
        raise BadFile(f"{str(path)!r} is not a file of parts, as dubio export writes it.")
    earlier: dict[bytes, int] = {}
    for digest, index in zip(digests, parts.tolist(), strict=True):
        key = digest.tobytes()
        earlier[key] = max(index, earlier.get(key, index))
    return earlier


def input_keys(inputs: Inputs) -> list[bytes]:
    """Return the SHA-256 of each text, row of numbers or image."""
    if isinstance(inputs, tuple):
        return [sha256(text.encode("utf-8", "surrogatepass")).digest() for text in inputs]
    return row_keys(inputs)


def keep_earlier_parts(
    path: Path, parts: IntArray, pool: IntArray, inputs: Inputs, labels: IntArray, options: SplitOptions,
    group: StrArray | None,
) -> list[str]:  # fmt: skip
    """Give every row of a pool its earlier part, or one by the shares if it is new, in place; return a note.

    New rows of an earlier group go where that group is: a group is never divided.

    Args:
        path: The file of earlier parts.
        parts: The part of each row ``[N]``; changed.
        pool: Rows that are divided.
        inputs: Text, numbers or image of each row.
        labels: Class index ``[N]``, or multi-hot ``[N, K]``.
        options: Shares and seed for new rows.
        group: The group of each row ``[N]``, or None.

    Raises:
        UserError: When no earlier row is among these.
    """
    earlier, keys = read_earlier_parts(path), input_keys(inputs)
    own = np.array([earlier.get(keys[row], UNASSIGNED) for row in pool.tolist()], dtype=np.int64)
    recognised = int((own != UNASSIGNED).sum())
    if recognised == 0:
        raise UserError(
            f"none of the {len(earlier):,} rows of the earlier model is in the data, which must have all rows, old and "
            "new, with the same columns in the same order."
        )
    if group is not None:
        names, units = np.unique(group[pool], return_inverse=True)
        of_group = np.full(len(names), UNASSIGNED, dtype=np.int64)
        np.maximum.at(of_group, units, own)
        own = np.where(own == UNASSIGNED, of_group[units], own)
    parts[pool] = own
    fresh = pool[own == UNASSIGNED]
    divide_further(parts, fresh, labels, options, group=group)
    gone = len(set(earlier) - {keys[row] for row in pool.tolist()})
    missing = f" Earlier rows that are not in the data: {gone:,}." if gone else ""
    return [
        f"{recognised:,} rows of the earlier model are in the parts where they were; "
        f"{len(pool) - recognised:,} new rows split at random, stratified by label (seed {options.seed}).{missing}"
    ]
