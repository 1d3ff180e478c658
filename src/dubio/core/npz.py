"""Read npz and npy files without pickles, comparing every header with the file before it is used."""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dubio.core.errors import BadFile, DubioError
from dubio.core.files import reading
from dubio.core.unpacking import OPTION, VARIABLE, check_unpacked, limit_is_stated, size_text

FREE_BYTES = 256 << 20
MAX_RATIO = 200
"""An archive may unpack to 256 MB, or to 200 times its own size where that is more (and to no more than the limit on
unpacked files, whatever its size). Predictions and photographs compress far less. A limit that the user states is the
only one."""

PIECES = {zipfile.ZIP_STORED: 1 << 20, zipfile.ZIP_DEFLATED: 1 << 20, zipfile.ZIP_LZMA: 1 << 12}
"""Bytes that are unpacked together, by compression. Of LZMA, zipfile unpacks that number of packed bytes at once; each
may become seven kilobytes; of bzip2 a megabyte, which is why it is refused. numpy writes neither, other programs do."""


def read_npy(path: Path) -> NDArray[Any]:
    """Return the array of an npy file, memory-mapped and read-only.

    Raises:
        BadFile: When it is missing, pickled, truncated, or not what its header says.
    """
    with reading(path):
        with path.open("rb") as handle:
            shape, fortran, dtype = _header(handle, f"{str(path)!r}")
            start = handle.tell()
        _check_size(f"{str(path)!r}", shape, dtype, path.stat().st_size - start)
        if math.prod(shape) == 0:
            return np.empty(shape, dtype)
        return _checked_texts(np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C"), f"{str(path)!r}")


DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, lzma.LZMAError, NotImplementedError, RuntimeError, ValueError)
"""Errors of a damaged archive; a RuntimeError where it seems to be encrypted."""

Shapes = Mapping[str, tuple[int, ...] | None]
"""The shape of each array; None where its header cannot be read, as of Python objects."""


def read_npz(path: Path, choose: Callable[[Shapes], Collection[str]]) -> dict[str, NDArray[Any]]:
    """Return some arrays of an npz file.

    Args:
        path: The file.
        choose: Called with the shapes of all arrays, returns the names of those to read; others are not unpacked.

    Raises:
        BadFile: When it is missing, no archive, pickled, damaged, or unpacks to more than a file may.
    """
    try:
        with reading(path), zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            _check_archive(path, entries)
            named = {entry.filename.removesuffix(".npy"): entry for entry in entries}
            chosen = choose({name: _shape(archive, entry) for name, entry in named.items()})
            return {name: _unpack(path, archive, name, entry) for name, entry in named.items() if name in chosen}
    except (DubioError, MemoryError):
        raise
    except Exception as fault:  # a damaged archive fails in many ways: its names, its numbers, its data
        raise BadFile(f"{str(path)!r} is not an npz file, or is damaged: {fault}.") from fault


def array_names(path: Path) -> frozenset[str]:
    """Return the names of the arrays in an npz file without unpacking any; none where it cannot be opened."""
    try:
        with zipfile.ZipFile(path) as archive:
            return frozenset(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
    except (OSError, *DAMAGED):
        return frozenset()


def _check_archive(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        raise BadFile(f"{str(path)!r} holds an array of the same name twice.")
    if other := [entry.filename for entry in entries if entry.compress_type not in PIECES]:
        remedy = "save it with numpy.savez or numpy.savez_compressed"
        raise BadFile(f"{str(path)!r}: {other[0]!r} is compressed in a way that is not read; {remedy}.")
    declared = sum(entry.file_size for entry in entries)
    check_unpacked(path, declared)
    allowed = max(FREE_BYTES, MAX_RATIO * path.stat().st_size)
    if declared > allowed and not limit_is_stated():
        raise BadFile(
            f"{str(path)!r} would unpack to {size_text(declared)}, more than the {size_text(allowed)} that an archive "
            f"of its size may; it looks like a zip bomb. If you trust it, state a limit with {OPTION} (or {VARIABLE}), "
            "or save it with numpy.savez, uncompressed."
        )


def _shape(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[int, ...] | None:
    try:
        with archive.open(entry) as handle:
            return _header(handle, entry.filename)[0]
    except BadFile:
        return None


def _unpack(path: Path, archive: zipfile.ZipFile, name: str, entry: zipfile.ZipInfo) -> NDArray[Any]:
    where = f"{str(path)!r}: array {name!r}"
    with archive.open(entry) as handle:
        shape, fortran, dtype = _header(handle, where)
        size = entry.file_size - handle.tell()
        _check_size(where, shape, dtype, size)
        raw = np.empty(size, np.uint8)  # filled piece by piece: the whole array is held once
        most = PIECES[entry.compress_type]
        for start in range(0, size, most):
            piece = handle.read(min(most, size - start))
            if len(piece) < min(most, size - start):
                raise BadFile(f"{where} is truncated.")
            raw[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
    return _checked_texts(raw.view(dtype).reshape(shape, order="F" if fortran else "C"), where)


def _checked_texts(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Return an array, if its texts are; numpy writes any number as a character."""
    if array.dtype.kind == "U" and (row := row_that_is_no_text(array)) is not None:
        raise BadFile(f"{where}: row {row} is not Unicode text.")
    return array


def row_that_is_no_text(texts: NDArray[np.str_]) -> int | None:
    """Return the first row of an array of texts that has what is no character: half of a surrogate pair, or nothing."""
    if texts.dtype.itemsize == 0 or texts.size == 0:
        return None
    codes = np.ascontiguousarray(texts).reshape(len(texts) if texts.ndim else 1, -1).view(texts.dtype.byteorder + "u4")
    bad = ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any(axis=1)
    return int(bad.argmax()) if bad.any() else None


def _header(handle: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(handle)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise BadFile(f"{where} has npy version {version}; readable are 1.0 and 2.0.")
        shape, fortran, dtype = readers[version](handle)
    except BadFile:
        raise
    except Exception as fault:  # numpy parses the header as Python text, and a damaged one fails in many ways
        raise BadFile(f"{where} has no readable npy header: {fault}") from fault
    if dtype.hasobject:
        raise BadFile(f"{where} is an array of Python objects (pickled); save numbers or texts of a fixed type.")
    if dtype.kind == "V" or dtype.subdtype is not None or dtype.itemsize == 0:
        raise BadFile(f"{where} has type {dtype}; an array of one plain type is needed.")
    if any(type(length) is not int or length < 0 for length in shape):
        raise BadFile(f"{where} has shape {shape}.")
    return shape, fortran, dtype


def is_possible(shape: Sequence[int], dtype: np.dtype[Any]) -> bool:
    """Return whether numpy can hold such an array: beside a length of 0 it refuses large ones too."""
    return len(shape) <= 32 and math.prod(max(1, length) for length in shape) * dtype.itemsize < 1 << 63


def _check_size(where: str, shape: tuple[int, ...], dtype: np.dtype[Any], available: int) -> None:
    needed = math.prod(shape) * dtype.itemsize
    if needed != available:
        takes = f"has shape {shape} of {dtype}, which takes {needed} bytes"
        raise BadFile(f"{where} {takes}; the file has {available} for it.")
    if not is_possible(shape, dtype):
        raise BadFile(f"{where} has shape {shape}, which no array can have.")
