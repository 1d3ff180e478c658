"""Fits in a store: weights, encoder and record under the id of their specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from dubio.errors import CorruptFile
from dubio.store.atomic import Scratch
from dubio.store.identity import identity
from dubio.store.layout import Layout
from dubio.store.records import (
    RECORD,
    SPEC,
    file_facts,
    plain,
    pretty,
    read_json,
    read_record,
    read_spec,
    read_verified,
    seal,
    verify_file,
)

WEIGHTS = "weights.safetensors"
ENCODER = "encoder.json"

Tensors = dict[str, NDArray[Any]]


class StoredFit(NamedTuple):
    """A fit as the store keeps it."""

    spec: dict[str, Any]
    tensors: Tensors
    encoder: dict[str, Any]
    record: dict[str, Any]


def tensor_bytes(tensors: Mapping[str, NDArray[Any]], metadata: dict[str, str] | None = None) -> bytes:
    """Tensors as safetensors; laid out row by row first, since the format's writer takes the memory as it lies."""
    content: bytes = safetensors.save({name: np.asarray(array, order="C") for name, array in tensors.items()}, metadata)
    return content


def write_fit(
    layout: Layout, scratch: Scratch, spec: Mapping[str, Any], tensors: Tensors, encoder: Any, record: Mapping[str, Any]
) -> str:
    """Put a fit in its place, whole; returns its id."""
    files = {WEIGHTS: tensor_bytes(tensors), ENCODER: pretty(plain(encoder))}
    facts = {name: file_facts(content) for name, content in files.items()}
    total = sum(int(fact["bytes"]) for fact in facts.values())
    sealed = seal({**plain(record), "files": facts, "bytes": total})
    fit_id = identity(spec)
    scratch.write_directory(layout.directory("fits", fit_id), {SPEC: pretty(spec), **files, RECORD: sealed})
    return fit_id


def read_fit(layout: Layout, fit_id: str) -> StoredFit:
    """A fit, every file of it compared with its record.

    Raises:
        CorruptFile: When it is not there, or anything of it is not what was written.
    """
    directory = layout.directory("fits", fit_id)
    spec, record = read_spec(directory), read_record(directory)
    weights = read_verified(directory, WEIGHTS, _facts(record, WEIGHTS, directory.name))
    read_verified(directory, ENCODER, _facts(record, ENCODER, directory.name))
    try:
        tensors: Tensors = safetensors.load(weights)
    except SafetensorError as fault:
        raise CorruptFile(f"{directory / WEIGHTS}: {fault}.") from fault
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
