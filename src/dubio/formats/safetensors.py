"""Named arrays in a safetensors file: written atomically, read memory-mapped, the whole header checked.

The layout is the public one: eight bytes with the length of a JSON header, the header, the data. A header that does not
describe the file exactly (truncated, overlapping, of another size) is refused before a value is read. The library
``safetensors`` writes metadata in no fixed order; files here have the same bytes for the same content, since stores
name them by their hash.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.documents import parse_json
from dubio.core.errors import BadFile
from dubio.core.files import open_atomic, reading
from dubio.core.npz import is_possible

MAX_HEADER = 100 << 20
"""Bytes a header may have, as in the reference implementation."""

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_NAMES = {np.dtype(code).str: name for name, code in _DTYPES.items() if name != "BF16"}


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write named arrays atomically.

    Args:
        path: The file; an existing one is replaced.
        tensors: Arrays of numbers or truth values.
        metadata: Texts for the header.

    Raises:
        BadFile: For an array of a type that such a file cannot hold.
        OSError: When the system refuses to write.
    """
    # The widest types first, so that every array starts at a multiple of its own width.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name in names:
        little = tensors[name].dtype.newbyteorder("<")
        if little.str not in _NAMES:
            raise BadFile(f"{str(path)!r}: array {name!r} has type {tensors[name].dtype}, which cannot be written.")
        start, end = end, end + tensors[name].nbytes
        header[name] = {"dtype": _NAMES[little.str], "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open_atomic(path) as handle:
        handle.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            array = tensors[name]
            handle.write(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(-1).data.cast("B"))


def read_tensors(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays by name, memory-mapped and read-only (bfloat16: read as float32), and the metadata.

    Raises:
        BadFile: When the file is missing, truncated, or its header does not describe it exactly.
    """
    with reading(path), path.open("rb") as handle:
        size = path.stat().st_size
        length = int.from_bytes(handle.read(8), "little")
        if size < 8 or length > min(MAX_HEADER, size - 8):
            raise BadFile(f"{str(path)!r} is not a safetensors file, or is truncated: its header exceeds the file.")
        text = handle.read(length)
    header = parse_json(text, f"{str(path)!r} is not a safetensors file: its header")
    if not isinstance(header, dict):
        raise BadFile(f"{str(path)!r} is not a safetensors file: its header is not a JSON object.")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise BadFile(f"{str(path)!r}: the metadata of the header must be texts.")
    start = 8 + length
    _check_layout(path, header, size - start)
    with reading(path):
        data = np.memmap(path, np.uint8, "r", offset=start) if size > start else np.empty(0, np.uint8)
    return {name: _view(path, name, entry, data) for name, entry in header.items()}, metadata


def _check_layout(path: Path, header: dict[str, Any], size: int) -> None:
    """Check that every entry is well formed, and that together they cover the data without gap or overlap."""
    ranges = []
    for name, entry in header.items():
        where = f"{str(path)!r}: array {name!r}"
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise BadFile(f"{where} must have dtype, shape and data_offsets.")
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
            raise BadFile(f"{where} has type {entry['dtype']!r}; readable are {', '.join(_DTYPES)}.")
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
            raise BadFile(f"{where}: shape and data_offsets must be lists of whole numbers.")
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        needed = math.prod(shape) * dtype.itemsize
        if offsets[1] - offsets[0] != needed:
            takes = f"has shape {shape}, which takes {needed} bytes"
            raise BadFile(f"{where} {takes}; its header gives it {offsets[1] - offsets[0]}.")
        if not is_possible(shape, dtype):
            raise BadFile(f"{where} has shape {shape}, which no array can have.")
        ranges.append((offsets[0], offsets[1], name))
    end = 0
    for first, last, name in sorted(ranges):
        if first != end:
            raise BadFile(f"{str(path)!r}: array {name!r} starts at byte {first}; expected {end}.")
        end = last
    if end != size:
        described = f"its header describes {end} bytes of data, the file has {size}"
        raise BadFile(f"{str(path)!r} is truncated or too long: {described}.")


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _view(path: Path, name: str, entry: dict[str, Any], data: NDArray[np.uint8]) -> NDArray[Any]:
    raw = data[entry["data_offsets"][0] : entry["data_offsets"][1]]
    if entry["dtype"] == "BOOL" and len(raw) and raw.max() > 1:
        raise BadFile(f"{str(path)!r}: array {name!r} is of truth values, and has a byte that is neither 0 nor 1.")
    array = raw.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    if entry["dtype"] == "BF16":  # the upper half of a float32, which numpy has no type for: read into memory
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array
