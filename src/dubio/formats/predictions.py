"""Read and write files of predictions.

dubio's own file is safetensors: ``logits`` [S, N, K] F32, ``labels`` I64, ``ood`` BOOL, ``member`` I64, optionally
``data_variance`` F32, ``model_variance`` F32 and ``score.<name>`` F64. Texts (``ids``, ``group``, ``column.<name>``)
are their UTF-8 bytes in ``<text>.utf8`` with the end of each in ``<text>.ends``. Its metadata are ``dubio``
(``predictions``), ``schema``, ``target``, ``temperature`` and, where known, ``classes`` (a JSON list) and ``kind``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, MissingExtra, UserError, one_of
from dubio.core.predictions import Predictions
from dubio.core.types import KINDS, TARGETS, Kind, StrArray, Target
from dubio.formats.arrays import COLUMN, SCORE, is_known, predictions_from_arrays, refuse_near_misses, with_logits
from dubio.formats.columns import SEPARATORS, read_delimited, read_parquet
from dubio.formats.numpy_files import read_npy, read_npz
from dubio.formats.rows import predictions_from_columns
from dubio.formats.tensors import read_tensors, write_tensors
from dubio.formats.values import TOLERANCE, VALUES, Values

SCHEMA = 1
"""Bumped by hand when a file written by this dubio can no longer be read by an older one."""

_PLAIN = ("logits", "labels", "ood", "member", "data_variance", "model_variance")
SUFFIXES = (".safetensors", ".npz", ".npy", ".csv", ".tsv", ".parquet")


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Write predictions as dubio's own safetensors file, which exists only if it is whole.

    Raises:
        OSError: When the system refuses to write.
    """
    tensors: dict[str, NDArray[Any]] = {}
    for name in _PLAIN:
        column = getattr(predictions, name)
        if column is not None:
            tensors[name] = column
    for name, score in predictions.scores.items():
        tensors[SCORE + name] = score.astype(np.float64, copy=False)
    texts = {"ids": predictions.ids, "group": predictions.group}
    for name, column in (texts | {COLUMN + name: column for name, column in predictions.columns.items()}).items():
        if column is not None:
            raw = [text.encode("utf-8", "surrogatepass") for text in column.tolist()]
            tensors[f"{name}.utf8"] = np.frombuffer(b"".join(raw), dtype=np.uint8)
            tensors[f"{name}.ends"] = np.cumsum([len(piece) for piece in raw], dtype=np.int64)
    metadata = {
        "dubio": "predictions",
        "schema": str(SCHEMA),
        "target": predictions.target,
        "temperature": repr(float(predictions.temperature)),
    }
    if predictions.classes is not None:
        metadata["classes"] = json.dumps(predictions.classes)
    if predictions.kind is not None:
        metadata["kind"] = predictions.kind
    write_tensors(Path(path), tensors, metadata)


def read_predictions(
    path: str | Path,
    *,
    values: Values | None = None,
    labels: Any = None,
    target: Target | None = None,
    tolerance: float = TOLERANCE,
    in_domain: str | None = None,
) -> Predictions:
    """Predictions from a file, by its ending: .safetensors, .npz, .npy, .csv, .tsv or .parquet.

    Args:
        path: The file.
        values: What the numbers are, where their names do not say it.
        labels: An array, or a file of labels (.npy, or .npz or .safetensors with an array ``labels``, or a .csv or .tsv
            with a column ``label``), where the file has none.
        target: What is predicted; ``multiclass`` unless the file says otherwise.
        tolerance: How far from one a row of probabilities may sum.
        in_domain: For a table with a column ``domain``: which one is in distribution; all others are not.

    Raises:
        BadFile: When the file cannot be read as what it is.
        UserError: When what is in it cannot be predictions, naming row and column.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise BadFile(f"{str(path)!r}: predictions are read from files ending in {', '.join(SUFFIXES)}.")
    if target is not None:
        one_of("target", target, TARGETS)
    if not path.is_file():
        raise BadFile(f"{str(path)!r}: no such file.")
    given = read_labels(labels) if isinstance(labels, str | Path) else labels
    try:
        if suffix in (".csv", ".tsv", ".parquet"):
            frame = read_parquet(path) if suffix == ".parquet" else read_delimited(path, SEPARATORS[suffix])
            return predictions_from_columns(frame, values=values, labels=given, target=target or "multiclass",
                                            tolerance=tolerance, in_domain=in_domain)  # fmt: skip
        if in_domain is not None:
            raise UserError("in_domain is for a table with a column 'domain'; arrays say it with 'ood'.")
        if suffix == ".safetensors":
            return _from_tensors(path, values, given, target, tolerance)
        arrays = {"array": read_npy(path)} if suffix == ".npy" else read_npz(path, _wanted)
        return predictions_from_arrays(arrays, values=values, labels=given, target=target or "multiclass",
                                       tolerance=tolerance)  # fmt: skip
    except (BadFile, MissingExtra):
        raise
    except UserError as refusal:
        raise UserError(f"{str(path)!r}: {refusal}") from refusal


def _wanted(names: tuple[str, ...]) -> tuple[str, ...]:
    """The arrays of an npz file that say something to us; one of another name only where no name says what it is."""
    refuse_near_misses(names)
    known = tuple(name for name in names if is_known(name))
    others = tuple(name for name in names if not is_known(name))
    return known if len(others) != 1 or set(known) & set(VALUES) else known + others


def _from_tensors(
    path: Path, values: Values | None, labels: Any, target: Target | None, tolerance: float
) -> Predictions:
    tensors, metadata = read_tensors(path)
    if metadata.get("dubio") != "predictions":
        return predictions_from_arrays(tensors, values=values, labels=labels, target=target or "multiclass",
                                       tolerance=tolerance)  # fmt: skip
    _check_metadata(path, metadata)
    arrays: dict[str, Any] = {name: tensors[name] for name in tensors if is_known(name)}
    for name in [name.removesuffix(".utf8") for name in tensors if name.endswith(".utf8")]:
        arrays[name] = _texts(path, name, tensors)
    if "classes" in metadata:
        arrays["classes"] = np.array(_strings(path, metadata["classes"]), dtype=np.str_)
    own = cast(Target, metadata["target"])
    if target is not None and "multilabel" in (own, target) and own != target:
        raise UserError(f"the file says that it holds {own} predictions, and target (--target) says {target}.")
    if values not in (None, "logits") or arrays.get("logits", np.empty(0)).dtype != np.float32:
        raise UserError("a file written by dubio holds logits in float32.")
    return with_logits(
        arrays["logits"],
        arrays,
        labels=labels,
        target=target or own,
        temperature=float(metadata["temperature"]),
        kind=cast(Kind | None, metadata.get("kind")),
    )


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
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise BadFile(f"{str(path)!r}: the classes in its header are not a JSON list of texts.")
    return found


def _texts(path: Path, name: str, tensors: dict[str, NDArray[Any]]) -> StrArray:
    raw, ends = tensors[f"{name}.utf8"], tensors.get(f"{name}.ends")
    if (
        ends is None
        or ends.dtype != np.int64
        or raw.dtype != np.uint8
        or raw.ndim != 1
        or ends.ndim != 1
        or (np.diff(ends, prepend=0) < 0).any()
        or (ends[-1] if len(ends) else 0) != len(raw)
    ):
        raise BadFile(f"{str(path)!r}: the texts {name!r} do not fit together.")
    data, starts = raw.tobytes(), [0, *ends[:-1].tolist()]
    try:
        pieces = [data[start:end].decode("utf-8", "surrogatepass") for start, end in zip(starts, ends, strict=True)]
    except UnicodeDecodeError as fault:
        raise BadFile(f"{str(path)!r}: the texts {name!r} are not UTF-8.") from fault
    return np.array(pieces, dtype=np.str_)


def read_labels(path: str | Path) -> NDArray[Any]:
    """Labels from a file of their own: a bare .npy, an array ``labels``, or a column ``label``.

    Raises:
        BadFile: When there are none in it.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".npz":
        found = read_npz(path, lambda names: ("labels",))
    elif suffix == ".safetensors":
        found, _ = read_tensors(path)
    elif suffix in SEPARATORS:
        columns = read_delimited(path, SEPARATORS[suffix])
        found = {"labels": np.array(columns["label"])} if "label" in columns else {}
    else:
        raise BadFile(f"{str(path)!r}: labels are read from files ending in .npy, .npz, .safetensors, .csv or .tsv.")
    if "labels" not in found:
        raise BadFile(f"{str(path)!r} has no {'column label' if suffix in SEPARATORS else 'array labels'}.")
    return found["labels"]
