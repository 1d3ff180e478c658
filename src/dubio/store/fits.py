"""Fits in a store: weights, encoder and record under the id of their specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from dubio.core.errors import BadFile, CorruptFile
from dubio.core.specs import identity
from dubio.formats.tensors import read_tensors, write_tensors
from dubio.store.atomic import Scratch
from dubio.store.layout import Layout
from dubio.store.records import (
    RECORD,
    SPEC,
    facts_of,
    plain,
    pretty,
    read_json,
    read_record,
    read_spec,
    seal,
    verify_file,
)

WEIGHTS = "weights.safetensors"
ENCODER = "encoder.json"

Tensors = dict[str, NDArray[Any]]


class StoredFit(NamedTuple):
    """A fit as the store keeps it; its tensors are the mapped file, of which memory holds what is being used."""

    spec: dict[str, Any]
    tensors: Tensors
    encoder: dict[str, Any]
    record: dict[str, Any]


def write_fit(
    layout: Layout, scratch: Scratch, spec: Mapping[str, Any], tensors: Tensors, encoder: Any, record: Mapping[str, Any]
) -> str:
    """Put a fit in its place, whole; returns its id."""
    fit_id = identity(spec)
    with scratch.directory(layout.directory("fits", fit_id)) as fresh:
        write_tensors(fresh / WEIGHTS, tensors, {})
        (fresh / ENCODER).write_bytes(pretty(plain(encoder)))
        facts = {name: facts_of(fresh / name) for name in (WEIGHTS, ENCODER)}
        total = sum(int(fact["bytes"]) for fact in facts.values())
        (fresh / SPEC).write_bytes(pretty(spec))
        (fresh / RECORD).write_bytes(seal({**plain(record), "files": facts, "bytes": total}))
    return fit_id


def read_fit(layout: Layout, fit_id: str) -> StoredFit:
    """A fit, every file of it compared with its record.

    Raises:
        CorruptFile: When it is not there, or anything of it is not what was written.
    """
    directory = layout.directory("fits", fit_id)
    spec, record = read_spec(directory), read_record(directory)
    for name in (WEIGHTS, ENCODER):
        verify_file(directory, name, _facts(record, name, fit_id))
    try:
        tensors, _ = read_tensors(directory / WEIGHTS)
    except BadFile as fault:
        raise CorruptFile(str(fault)) from fault
    return StoredFit(spec, tensors, read_json(directory / ENCODER), record)


def verify_fit(layout: Layout, fit_id: str) -> None:
    """Compare every file of a fit with its record.

    Raises:
        CorruptFile: When anything of it is not what was written.
    """
    directory = layout.directory("fits", fit_id)
    read_spec(directory)
    record = read_record(directory)
    for name in (WEIGHTS, ENCODER):
        verify_file(directory, name, _facts(record, name, fit_id))


def _facts(record: Mapping[str, Any], name: str, fit_id: str) -> Mapping[str, Any]:
    facts: Mapping[str, Any] | None = record["files"].get(name)
    if facts is None:
        raise CorruptFile(f"fit {fit_id}: its record does not name {name}.")
    return facts
