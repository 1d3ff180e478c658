"""Records: what is known of a stored directory, and whether its files are still what was written.

``record.json`` names every file of its directory with its SHA-256 and size, beside timings and environment, and carries
the hash of itself under ``seal``. ``spec.json`` needs no entry: its hash is the directory's name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dubio.core.errors import CorruptFile
from dubio.core.specs import hash_file, identity

SPEC = "spec.json"
RECORD = "record.json"
SEAL = "seal"


def pretty(value: Any) -> bytes:
    """A JSON document for people and machines: sorted, indented, no NaN."""
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")


def plain(value: Any) -> Any:
    """A value as JSON holds it: numpy scalars as numbers, tuples as lists, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def facts_of(path: Path) -> dict[str, Any]:
    """What a record says of a file."""
    return {"sha256": hash_file(path), "bytes": path.stat().st_size}


def seal(record: Mapping[str, Any]) -> bytes:
    """The bytes of a record, with the hash of itself."""
    body = plain({name: value for name, value in record.items() if name != SEAL})
    return pretty({**body, SEAL: identity(body)})


def read_json(path: Path) -> Any:
    """A stored JSON file.

    Raises:
        CorruptFile: When it is missing or is not JSON.
    """
    try:
        return json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    except FileNotFoundError as fault:
        raise CorruptFile(f"{path}: the file is missing.") from fault
    except ValueError as fault:
        raise CorruptFile(f"{path}: not a whole JSON file ({fault}).") from fault


def read_record(directory: Path) -> dict[str, Any]:
    """The record of a stored directory.

    Raises:
        CorruptFile: When it is missing, damaged or has been altered.
    """
    path = directory / RECORD
    record = read_json(path)
    if not isinstance(record, dict) or not isinstance(record.get("files"), dict):
        raise CorruptFile(f"{path}: not a record.")
    found = record.pop(SEAL, None)
    if found != identity(record):
        raise CorruptFile(f"{path}: its content is not what was written.")
    return record


def read_spec(directory: Path) -> dict[str, Any]:
    """The specification a stored directory is named after.

    Raises:
        CorruptFile: When its hash is not the directory's name.
    """
    path = directory / SPEC
    spec = read_json(path)
    if not isinstance(spec, dict) or identity(spec) != directory.name:
        raise CorruptFile(f"{path}: its hash is not the id of its directory.")
    return spec


def verify_file(directory: Path, name: str, facts: Mapping[str, Any]) -> None:
    """Compare a stored file with its record without holding it in memory.

    Raises:
        CorruptFile: When it is missing or differs.
    """
    path = directory / name
    if not path.is_file():
        raise CorruptFile(f"{path}: the file is missing.")
    if path.stat().st_size != facts["bytes"]:
        raise CorruptFile(f"{path}: {path.stat().st_size} bytes, its record says {facts['bytes']}.")
    if hash_file(path) != facts["sha256"]:
        raise CorruptFile(f"{path}: its SHA-256 is not the one in its record.")
