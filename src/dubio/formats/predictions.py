"""Read and write files of predictions.

dubio's own file is safetensors: ``logits`` [S, N, K] F32, ``labels`` I64, ``ood`` BOOL, ``member`` I64, optionally
``data_variance`` F32, ``model_variance`` F32, ``features`` F16 and ``score.<name>`` F64. Texts (``ids``, ``group``,
``column.<name>``) are their UTF-8 bytes in ``<text>.utf8`` with the end of each in ``<text>.ends``. Its metadata are
``dubio`` (``predictions``), ``schema``, ``target``, ``temperature`` and, where known, ``classes`` (a JSON list),
``kind``, ``empty_decision`` (``argmax``; otherwise it is left out) and ``system`` (the identity of a deployed model).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

import numpy as np
from numpy.lib.format import write_array, write_array_header_1_0
from numpy.typing import NDArray

from dubio.core.column_roles import names_units
from dubio.core.documents import parse_json
from dubio.core.errors import BadFile, MissingExtra, UserError, listing, nearest, one_of
from dubio.core.files import open_atomic
from dubio.core.npz import Shapes, read_npy, read_npz
from dubio.core.passes import row_blocks
from dubio.core.predictions import Predictions, checked_logits
from dubio.core.types import KINDS, TARGETS, EmptyDecision, Kind, StrArray, Target
from dubio.formats.arrays import (
    NAMES,
    SCORE,
    LabelFile,
    is_known,
    predictions_from_arrays,
    refuse_near_misses,
    with_logits,
)
from dubio.formats.columns import COLUMN, Roles
from dubio.formats.prediction_tables import numeric_columns, predictions_from_table
from dubio.formats.safetensors import read_tensors, write_tensors
from dubio.formats.values import TOLERANCE, VALUES, Values
from dubio.tables import ENDINGS, plain_names, read_table, table_ending
from dubio.tables.parquet import parquet_facts

Tensors = dict[str, NDArray[Any]]

SYSTEM_KEY = "dubio.system"
"""The identity of the deployed model that wrote a file: a key in the metadata of Parquet, an array of npz."""

TEXTS_TOGETHER = 1 << 14
"""Texts that are encoded together."""

SCHEMA = 1
"""Raised by hand when a file written by this dubio can no longer be read by an older one."""

_PLAIN = ("logits", "labels", "ood", "member", "data_variance", "model_variance", "features")
SUFFIXES = (".safetensors", ".npz", ".npy", *ENDINGS)


def is_prediction_file(text: str | Path) -> bool:
    """Return whether a text names a file of predictions: it exists, or its ending is that of one."""
    path = Path(text)
    return (table_ending(path) or path.suffix.lower()) in SUFFIXES or path.is_file()


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Write predictions atomically as dubio's own safetensors file, or their pooled probabilities as ``.npz``.

    Raises:
        OSError: When the system refuses to write.
    """
    if Path(path).suffix.lower() == ".npz":
        _write_npz(Path(path), predictions)
        return
    columns = {name: getattr(predictions, name) for name in _PLAIN}
    columns |= {SCORE + name: score.astype(np.float64, copy=False) for name, score in predictions.scores.items()}
    tensors: Tensors = {name: column for name, column in columns.items() if column is not None}
    texts = {"ids": predictions.ids, "group": predictions.group}
    for name, column in (texts | {COLUMN + name: column for name, column in predictions.columns.items()}).items():
        if column is not None:
            tensors[f"{name}.utf8"], tensors[f"{name}.ends"] = _encoded(column)
    metadata = {"dubio": "predictions", "schema": str(SCHEMA), "target": predictions.target}
    metadata["temperature"] = repr(float(predictions.temperature))
    if predictions.classes is not None:
        metadata["classes"] = json.dumps(predictions.classes)
    if predictions.kind is not None:
        metadata["kind"] = predictions.kind
    if predictions.system is not None:
        metadata["system"] = predictions.system
    if predictions.empty_decision == "argmax":
        metadata["empty_decision"] = "argmax"
    write_tensors(Path(path), tensors, metadata)


def _encoded(column: StrArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the UTF-8 bytes of texts, and where each ends."""
    content, sizes = bytearray(), np.empty(len(column), dtype=np.int64)
    for start in range(0, len(column), TEXTS_TOGETHER):
        raw = [text.encode("utf-8", "surrogatepass") for text in column[start : start + TEXTS_TOGETHER].tolist()]
        content += b"".join(raw)
        sizes[start : start + len(raw)] = [len(piece) for piece in raw]
    return np.frombuffer(content, dtype=np.uint8), np.cumsum(sizes)


def _write_npz(path: Path, predictions: Predictions) -> None:
    """Write the pooled probabilities and the other columns of the rows."""
    columns = {name: getattr(predictions, name) for name in ("ids", "group", "ood")}
    columns |= {COLUMN + name: column for name, column in predictions.columns.items()}
    columns |= {SCORE + name: score for name, score in predictions.scores.items()}
    if predictions.target == "multilabel" or (predictions.labels >= 0).any():
        columns["labels"] = predictions.labels
    if predictions.classes is not None:
        columns["classes"] = np.array(predictions.classes, dtype=np.str_)
    if predictions.empty_decision == "argmax":
        columns["empty_decision"] = np.array("argmax")
    if predictions.system is not None:
        columns[SYSTEM_KEY] = np.array(predictions.system)
    with open_atomic(path) as handle, ZipFile(handle, "w") as archive:
        with archive.open("probs.npy", "w", force_zip64=True) as member:  # not all rows at once, as numpy.savez
            shape = predictions.logits.shape[1:]
            write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": shape})
            for block in row_blocks(*predictions.logits.shape):
                member.write(predictions.take(np.arange(block.start, block.stop)).probs.astype("<f8").tobytes())
        for name, column in columns.items():
            if column is not None:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    write_array(member, np.asanyarray(column), allow_pickle=False)


def read_predictions(
    path: str | Path,
    *,
    values: Values | None = None,
    labels: Any = None,
    target: Target | None = None,
    tolerance: float = TOLERANCE,
    in_domain: str | None = None,
    group: str | None = None,
    ids: str | None = None,
    by: Iterable[str] = (),
    rows_are_independent: bool = False,
) -> Predictions:
    """Read predictions from a file, by its ending: .safetensors, .npz, .npy, or that of a table.

    Args:
        path: The file.
        values: The meaning of the numbers, where their names do not say it.
        labels: An array, or a file of labels (.npy, or .npz or .safetensors with an array ``labels``, or a table with a
            column ``label``), where the file has none. Labels of a file with ids (a column ``id``, an array ``ids``)
            belong to the rows of these ids, others to the rows in their order.
        target: The kind of prediction; ``multiclass`` unless the file says otherwise.
        tolerance: Largest difference from one of the sum of a row's probabilities.
        in_domain: For a table with a column ``domain``: the one that is in distribution; all others are not.
        group: The column (array) of groups, such as patients, where it is not called ``group``.
        ids: The column of ids, where it is not called ``id`` (an array: ``ids``).
        by: Columns of subgroups, such as a site; they become ``columns``.
        rows_are_independent: Accept a column that looks like groups and is not used; a note says so.

    Raises:
        BadFile: When the file cannot be read.
        UserError: When its content cannot be predictions, naming row and column; for a column that is not there; or for
            one that looks like groups and is not used.
    """
    path = Path(path)
    suffix = table_ending(path) or path.suffix.lower()
    if suffix not in SUFFIXES:
        raise BadFile(f"{str(path)!r}: predictions are read from files ending in {', '.join(SUFFIXES)} (or .csv.gz and "
                      "so on).")  # fmt: skip
    if target is not None:
        one_of("target", target, TARGETS)
    if not path.is_file():
        raise BadFile(f"{str(path)!r}: no such file.")
    if isinstance(labels, str | Path):
        labels = read_labels(labels, ids)
    if isinstance(by, str):
        raise UserError(f"by must be a list of names, such as [{by!r}]; given {by!r}.")
    roles = Roles(group, ids, tuple(by), rows_are_independent)
    try:
        return _read(path, suffix, values, labels, target, tolerance, in_domain, roles)
    except (BadFile, MissingExtra):
        raise
    except UserError as refusal:
        raise UserError(f"{str(path)!r}: {refusal}") from refusal


def _read(
    path: Path,
    suffix: str,
    values: Values | None,
    labels: Any,
    target: Target | None,
    tolerance: float,
    in_domain: str | None,
    roles: Roles,
) -> Predictions:
    """Read predictions in the format that an ending names."""
    options: Any = {"values": values, "labels": labels, "target": target or "multiclass", "tolerance": tolerance,
                    "roles": roles}  # fmt: skip
    if suffix in ENDINGS:
        table = read_table(path, numeric_columns(values, roles))
        predictions = predictions_from_table(table, **options, in_domain=in_domain)
        facts = parquet_facts(path) if suffix == ".parquet" else {}
        return predictions.with_checked(system=facts.get(SYSTEM_KEY))
    if in_domain is not None:
        raise UserError("in_domain is for a table with a column 'domain'; arrays say it with 'ood'.")
    if suffix != ".safetensors":
        arrays = {"array": read_npy(path)} if suffix == ".npy" else _read_arrays(path, roles)
        stated = arrays.pop(SYSTEM_KEY, np.array(""))
        if stated.dtype.kind != "U":
            raise UserError(f"array {SYSTEM_KEY!r} must be a text; given {stated.dtype}.")
        return predictions_from_arrays(arrays, **options).with_checked(system=str(stated) or None)
    tensors, metadata = read_tensors(path)
    if metadata.get("dubio") != "predictions":
        return predictions_from_arrays(tensors, **options)
    return _from_tensors(path, tensors, metadata, values, labels, target, roles)


def _read_arrays(path: Path, roles: Roles) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file; empty in place of one that is not needed, and has no value per row."""
    unread: set[str] = set()

    def choose(shapes: Shapes) -> set[str]:
        own = {name for name in shapes if name == SYSTEM_KEY and shapes[name] == ()}
        shapes = {name: shape for name, shape in shapes.items() if name not in own}
        assigned = roles.assigned({name: name for name in shapes}, "ids", NAMES)
        refuse_near_misses(assigned, roles)
        chosen = {name for role, name in assigned.items() if is_known(role)}
        others = shapes.keys() - chosen
        if len(others) == 1 and not assigned.keys() & set(VALUES):
            chosen |= others  # the predictions, under a name of their own
        named = set() if roles.rows_are_independent else set(filter(names_units, others))
        chosen |= named | {name for name in others if len(shapes[name] or ()) == 1}
        unread.update(shapes.keys() - chosen)
        return chosen | own

    return read_npz(path, choose) | dict.fromkeys(unread, np.empty((0, 0)))


def _from_tensors(
    path: Path,
    tensors: Tensors,
    metadata: dict[str, str],
    values: Values | None,
    labels: Any,
    target: Target | None,
    roles: Roles,
) -> Predictions:
    """Return the predictions of dubio's own file."""
    _check_metadata(path, metadata)
    stored = _with_texts(path, tensors)
    features = stored.pop("features", None)
    if features is not None and features.dtype != np.float16:
        raise UserError(f"features are stored in float16; given {features.dtype}.")
    arrays = roles.assigned(stored, "ids", NAMES)
    if "empty_decision" in metadata:
        arrays["empty_decision"] = metadata["empty_decision"]
    if "classes" in metadata:
        arrays["classes"] = np.array(_strings(path, metadata["classes"]), dtype=np.str_)
    own = cast(Target, metadata["target"])
    if target is not None and "multilabel" in (own, target) and own != target:
        raise UserError(f"the file says that it holds {own} predictions, and target (--target) says {target}.")
    if values not in (None, "logits") or arrays.get("logits", np.empty(0)).dtype != np.float32:
        raise UserError("a file written by dubio holds logits in float32.")
    temperature, kind = float(metadata["temperature"]), cast(Kind | None, metadata.get("kind"))
    return with_logits(
        arrays["logits"], arrays, labels=labels, target=target or own, temperature=temperature, kind=kind, roles=roles
    ).with_checked(system=metadata.get("system"), features=features)


def read_verified(path: Path) -> Predictions:
    """Read a file that :func:`write_predictions` wrote and whose hash was verified: its values are not checked again.

    Raises:
        BadFile: When it is not such a file.
    """
    tensors, metadata = read_tensors(path)
    _check_metadata(path, metadata)
    arrays = _with_texts(path, tensors)
    try:
        return Predictions(
            checked_logits(arrays.pop("logits")),
            arrays.pop("labels"),
            cast(Target, metadata["target"]),
            temperature=float(metadata["temperature"]),
            classes=tuple(_strings(path, metadata["classes"])) if "classes" in metadata else None,
            kind=cast(Kind | None, metadata.get("kind")),
            columns={name.removeprefix(COLUMN): arrays.pop(name) for name in list(arrays) if name.startswith(COLUMN)},
            scores={name.removeprefix(SCORE): arrays.pop(name) for name in list(arrays) if name.startswith(SCORE)},
            empty_decision=cast(EmptyDecision, metadata.get("empty_decision", "empty")),
            system=metadata.get("system"),
            **arrays,
        )
    except (KeyError, TypeError) as fault:
        raise BadFile(f"{str(path)!r} is not a file of predictions: {fault}") from fault


def _with_texts(path: Path, tensors: Tensors) -> dict[str, Any]:
    """Return the arrays of dubio's own file, with texts in place of their bytes."""
    texts = [name.removesuffix(".utf8") for name in tensors if name.endswith(".utf8")]
    bytes_of_texts = {f"{name}{ending}" for name in texts for ending in (".utf8", ".ends")}
    own = {name for name in tensors if is_known(name) or name in _PLAIN} - bytes_of_texts
    arrays = {name: array for name, array in tensors.items() if name in own}
    return arrays | {name: _texts(path, name, tensors) for name in texts}


def _check_metadata(path: Path, metadata: dict[str, str]) -> None:
    try:
        schema = int(metadata["schema"])
        float(metadata["temperature"])
        one_of("target", metadata["target"], TARGETS)
        one_of("kind", metadata.get("kind", "id"), KINDS)
    except (KeyError, ValueError) as fault:
        raise BadFile(f"{str(path)!r}: the metadata of its header are not those of predictions: {fault}") from fault
    if schema > SCHEMA:
        raise BadFile(f"{str(path)!r} has schema {schema}; this dubio reads up to {SCHEMA}. Use a newer dubio.")


def _strings(path: Path, text: str) -> list[str]:
    names = parse_json(text, f"{str(path)!r}: the classes in its header")
    if not isinstance(names, list) or not all(isinstance(item, str) for item in names):
        raise BadFile(f"{str(path)!r}: the classes in its header are not a JSON list of texts.")
    return names


def _texts(path: Path, name: str, tensors: Tensors) -> StrArray:
    raw, ends = tensors[f"{name}.utf8"], tensors.get(f"{name}.ends", np.empty(0))
    plain = (ends.dtype.str, ends.ndim, raw.dtype.str, raw.ndim) == ("<i8", 1, "|u1", 1)
    if not plain or (np.diff(ends, prepend=0) < 0).any() or (ends[-1] if len(ends) else 0) != len(raw):
        raise BadFile(f"{str(path)!r}: the texts {name!r} do not fit together.")
    data, bounds = raw.tobytes(), [0, *ends.tolist()]  # numbers of a mapped file take ten times as long one by one
    try:
        pieces = [data[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(bounds)]
    except UnicodeDecodeError as fault:
        raise BadFile(f"{str(path)!r}: the texts {name!r} are not UTF-8.") from fault
    return np.array(pieces, dtype=np.str_)


def read_labels(path: str | Path, ids: str | None = None) -> LabelFile:
    """Read labels from a file of their own: a bare .npy, an array ``labels``, or a column ``label``.

    Args:
        path: The file.
        ids: The column (array) of ids, where it has that one; else one called ``id`` (an array: ``ids``) is taken.

    Raises:
        BadFile: When there are none in it.
    """
    path = Path(path)
    suffix = table_ending(path) or path.suffix.lower()
    if suffix == ".npy":
        return LabelFile(path, read_npy(path))
    if suffix in ENDINGS:
        return _labels_of_table(path, ids)
    arrays: Tensors
    if suffix == ".npz":
        arrays = read_npz(path, lambda shapes: {"labels", "ids", ids or "ids"} & set(shapes))
    elif suffix == ".safetensors":
        arrays = _with_texts(path, read_tensors(path)[0])
    else:
        raise BadFile(f"{str(path)!r}: labels are read from files ending in {', '.join(SUFFIXES)}.")
    if "labels" not in arrays:
        raise BadFile(f"{str(path)!r} has no array labels.")
    return LabelFile(path, arrays["labels"], arrays.get(ids or "ids", arrays.get("ids")))


def _labels_of_table(path: Path, ids: str | None) -> LabelFile:
    """Read the column ``label`` of a table, and its ids where it has some."""
    table = read_table(path)
    cells = table.columns.get("label")
    if cells is None:
        hint = nearest("label", table.columns)
        guess = f" Did you mean {hint!r}? Call it 'label'." if hint else ""
        raise BadFile(f"{str(path)!r} has no column label.{guess} Its columns: {listing(table.columns)}.")
    labels = cells if isinstance(cells, np.ndarray) else table.text_array(plain_names(cells))
    column = next((name for name in (ids, "id") if name in table.columns), None)
    return LabelFile(path, labels, None if column is None else table.names(column, "id"))
