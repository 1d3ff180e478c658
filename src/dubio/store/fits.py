"""Fits in a store: weights, encoder and record under the id of their specification."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from dubio.core.errors import BadFile, CorruptFile
from dubio.core.specs import identity, to_plain
from dubio.formats.safetensors import read_tensors, write_tensors
from dubio.store.locks import ScratchDirectory
from dubio.store.records import (
    RECORD,
    SPEC,
    Layout,
    file_facts,
    json_bytes,
    read_json,
    read_record,
    read_spec,
    seal,
    verify_file,
)

WEIGHTS = "weights.safetensors"
ENCODER = "encoder.json"

Tensors = dict[str, NDArray[Any]]
Table = Mapping[str, Any]


class StoredFit(NamedTuple):
    """A fit in a store; its tensors are views of the mapped file."""

    spec: dict[str, Any]
    tensors: Tensors
    encoder: dict[str, Any]
    record: dict[str, Any]


def write_fit(
    layout: Layout, scratch: ScratchDirectory, spec: Table, tensors: Tensors, encoder: Any, record: Table
) -> str:
    """Store a fit and return its id."""
    fit_id = identity(spec)
    with scratch.directory(layout.directory("fits", fit_id)) as fresh:
        write_tensors(fresh / WEIGHTS, tensors, {})
        (fresh / ENCODER).write_bytes(json_bytes(to_plain(encoder)))
        facts = {name: file_facts(fresh / name) for name in (WEIGHTS, ENCODER)}
        total = sum(int(fact["bytes"]) for fact in facts.values())
        (fresh / SPEC).write_bytes(json_bytes(spec))
        (fresh / RECORD).write_bytes(seal({**to_plain(record), "files": facts, "bytes": total}))
    return fit_id


def read_fit(layout: Layout, fit_id: str) -> StoredFit:
    """Return a fit, every file of it verified.

    Raises:
        CorruptFile: When it is missing, or a file is not what was written.
    """
    spec, record = verify_fit(layout, fit_id)
    directory = layout.directory("fits", fit_id)
    try:
        tensors, _ = read_tensors(directory / WEIGHTS)
    except BadFile as fault:
        raise CorruptFile(str(fault)) from fault
    return StoredFit(spec, tensors, read_json(directory / ENCODER), record)


def verify_fit(layout: Layout, fit_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compare every file of a fit with its record; return specification and record.

    Raises:
        CorruptFile: When it is missing, or a file is not what was written.
    """
    directory = layout.directory("fits", fit_id)
    spec, record = read_spec(directory), read_fit_record(directory)
    for name in (WEIGHTS, ENCODER):
        verify_file(directory, name, record["files"][name])
    return spec, record


def read_fit_record(directory: Path) -> dict[str, Any]:
    """Read the record of a fit, which names its weights and its encoder.

    Raises:
        CorruptFile: When it does not, or is not what was written.
    """
    record = read_record(directory)
    for name in (WEIGHTS, ENCODER):
        if name not in record["files"]:
            raise CorruptFile(f"{directory / RECORD}: does not name {name}.")
    return record
