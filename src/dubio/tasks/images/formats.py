"""Formats of small images: the authors' python and binary files, folders of images, arrays, idx files.

The authors' python files are pickles, and a pickle is a program that may call whatever it names. They are read by an
unpickler that knows only numpy's names for an array and one for bytes, and that calls none of them: an array is built
here, from its shape and bytes. Every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile
from dubio.core.npz import array_names
from dubio.core.types import Examples
from dubio.core.unpacking import check_unpacked, open_gzip
from dubio.tasks.images.files import class_folders, load_images, read_arrays
from dubio.tasks.sources.locate import Layout, find_folder

SIDE = 32
_PIXELS = 3 * SIDE * SIDE
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")

Parts = Mapping[str, Examples]
"""Images by part: ``train`` and ``test``; uint8 ``[N, 32, 32, 3]``, class indices, and ids that are unique."""

Batch = tuple[NDArray[np.uint8], list[Any]]
"""Rows of pixels ``[N, 3072]`` and their labels."""


def _numbered(subset: str, images: NDArray[np.uint8], labels: Any, classes: int, source: str) -> Examples:
    """Return images whose ids are their positions in a part.

    Raises:
        BadFile: When images and labels do not match, or a label is not a class index.
    """
    invalid = f"{source}: the labels of {subset} must be integers from 0 to {classes - 1}."
    if isinstance(labels, list) and any(type(label) is not int for label in labels):
        raise BadFile(invalid)
    numbers = np.asarray(labels)
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE, 3) or numbers.shape != (len(images),):
        raise BadFile(f"{source}: {subset} has {images.dtype} images {images.shape} and labels {numbers.shape}.")
    if numbers.dtype.kind not in "iu" or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < classes):
        raise BadFile(invalid)
    return Examples(images, numbers.astype(np.int64), position_ids(subset, len(images)))


def position_ids(subset: str, count: int) -> NDArray[np.str_]:
    """Return the ids ``PART/0``, ``PART/1`` and so on."""
    return np.char.add(f"{subset}/", np.arange(count).astype(np.str_))


def python_format(folder: str, files: Mapping[str, Sequence[str]], label: str, classes: int) -> Layout:
    """Return the format of the authors' python files: ``data`` and labels in each, read without executing them."""

    def read(path: Path) -> Batch:
        batch = read_pickle(path)
        rows, labels = batch.get("data"), batch.get(label)
        if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != _PIXELS:
            raise BadFile(f"{path.name}: expected 'data', an array of {_PIXELS} bytes per row.")
        if not isinstance(labels, list):
            raise BadFile(f"{path.name}: expected {label!r}, a list of numbers.")
        return rows, labels

    return _batch_format("the authors' python files", folder, files, read, classes)


def binary_format(folder: str, files: Mapping[str, Sequence[str]], label_bytes: int, classes: int) -> Layout:
    """Return the format of the authors' binary files: label bytes (the last one counts), then 3,072 bytes per image."""

    def read(path: Path) -> Batch:
        raw = np.fromfile(path, dtype=np.uint8)
        if len(raw) == 0 or len(raw) % (label_bytes + _PIXELS):
            raise BadFile(f"{path.name} must have {label_bytes + _PIXELS} bytes per image.")
        rows = raw.reshape(-1, label_bytes + _PIXELS)
        return rows[:, label_bytes:], rows[:, label_bytes - 1].tolist()

    return _batch_format("the authors' binary files", folder, files, read, classes)


def _batch_format(
    name: str, folder: str, files: Mapping[str, Sequence[str]], read_batch: Callable[[Path], Batch], classes: int
) -> Layout:
    """Return a format of files that each hold a batch of one part; a row is a red, a green and a blue plane."""

    def read(source: Path) -> Parts:
        parts = {}
        for subset, names in files.items():
            batches = [read_batch(source / name) for name in names]
            planes = np.concatenate([rows for rows, _ in batches]).reshape(-1, 3, SIDE, SIDE)
            labels = [label for _, labels in batches for label in labels]
            images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
            parts[subset] = _numbered(subset, images, labels, classes, source.name)
        return parts

    needed = [file for names in files.values() for file in names]
    return Layout(name, f"{folder} with {', '.join(needed)}", find_folder(needed, folder), read)


def folder_format(classes: tuple[str, ...]) -> Layout:
    """Return the format of class folders in ``train`` and ``test``; images are resized to 32×32 where they are not."""

    def read(source: Path) -> Parts:
        parts = {}
        for subset in ("train", "test"):
            folders = {name: paths for name, paths in class_folders(source / subset).items() if paths}
            if unknown := sorted(set(folders) - set(classes)):
                raise BadFile(f"{source.name}/{subset}: folder {unknown[0]!r} is none of the {len(classes)} classes.")
            files = [(path, name) for name, paths in folders.items() for path in paths]
            if not files:
                raise BadFile(f"{source.name}/{subset}: no images.")
            images = load_images(source, [path for path, _ in files], SIDE)
            labels = np.array([classes.index(name) for _, name in files], dtype=np.int64)
            ids = np.array([path.relative_to(source).as_posix() for path, _ in files], dtype=np.str_)
            parts[subset] = Examples(np.ascontiguousarray(np.broadcast_to(images, (*images.shape[:3], 3))), labels, ids)
        return parts

    find = find_folder([f"{subset}/{name}" for subset in ("train", "test") for name in classes])
    return Layout("folders of images", f"train/CLASS/*.png and test/CLASS/*.png ({classes[0]}, …)", find, read)


def read_npz(path: Path, classes: int) -> Parts:
    """Read the arrays ``x_train``, ``y_train``, ``x_test``, ``y_test``, or ``x`` and ``y`` of test images alone.

    Raises:
        BadFile: When it has neither, or they do not match.
    """
    arrays = read_arrays(path)
    only_test = "x" in arrays and "x_test" not in arrays
    names = {"test": ("x", "y")} if only_test else {"train": _ARRAYS[:2], "test": _ARRAYS[2:]}
    for name in (name for pair in names.values() for name in pair):
        if name not in arrays:
            raise BadFile(f"{path.name} has no array {name!r}; it has {', '.join(arrays) or 'none'}.")
    return {
        name: _numbered(name, arrays[x], arrays[y].reshape(-1), classes, path.name) for name, (x, y) in names.items()
    }


def npz_formats(stem: str, classes: int) -> tuple[Layout, Layout]:
    """Return the formats of arrays in ``STEM.npz`` or ``STEM_*.npz``: train and test, or test alone.

    A damaged file, or one with only some of the arrays, is found too where no file has them all: reading it says what
    is wrong with it, while skipping it would say that it is missing.
    """

    def candidates(parent: Path) -> dict[Path, frozenset[str]]:
        paths = [*parent.glob(f"{stem}.npz"), *sorted(parent.glob(f"{stem}_*.npz"))]
        return {path: array_names(path) for path in paths}

    def find_complete(parent: Path) -> Path | None:
        files = candidates(parent)
        good = (path for path, names in files.items() if {*_ARRAYS} <= names)
        bad = (path for path, names in files.items() if not names or ("x" not in names and names & {*_ARRAYS, "y"}))
        return next(good, None) or next(bad, None)

    def find_test(parent: Path) -> Path | None:
        return next((path for path, names in candidates(parent).items() if "x" in names), None)

    read = partial(read_npz, classes=classes)
    files = f"{stem}.npz or {stem}_*.npz with"
    return (
        Layout("arrays", f"{files} {', '.join(_ARRAYS)}", find_complete, read),
        Layout("arrays of test images alone", f"{files} x, y", find_test, read, partial=True),
    )


def read_idx(path: Path, side: int) -> NDArray[np.uint8]:
    """Return the grey images ``[N, side, side]`` of a gzipped idx file.

    Raises:
        BadFile: When it is another file.
    """
    try:
        with open_gzip(path) as file:
            magic, count, *sides = np.frombuffer(file.read(16).ljust(16, b"\0"), dtype=">u4").tolist()
            if magic != 0x803 or sides != [side, side]:
                raise BadFile(f"{path.name} is not an idx file of images of {side}×{side} pixels.")
            check_unpacked(path, count * side * side)
            pixels = np.frombuffer(file.read(count * side * side), dtype=np.uint8)
    except OSError as fault:
        raise BadFile(f"{path.name} cannot be read: {fault}.") from fault
    if len(pixels) != count * side * side:
        raise BadFile(f"{path.name} is truncated: {len(pixels):,} of {count * side * side:,} bytes.")
    return pixels.reshape(-1, side, side)


_DAMAGED_PICKLE = (
    pickle.UnpicklingError, EOFError, ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError,
)  # fmt: skip
_NDARRAY = object()


class _Refused(pickle.UnpicklingError):
    """The file contains something that CIFAR's files do not have."""


class _ArrayState:
    """An array under construction; ``array`` is set once its content is known."""

    array: NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, by_columns, content = state
        if not isinstance(dtype, _ByteType):
            raise _Refused("an array without a type")
        raw = content.encode("latin-1") if isinstance(content, str) else content
        if not isinstance(raw, bytes) or math.prod(shape) != len(raw):
            raise ValueError(f"{len(raw)} bytes for an array of shape {shape}")
        self.array = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")


class _ByteType:
    """The type uint8; single bytes have no byte order to restore."""

    def __setstate__(self, state: Any) -> None:
        del state


def _reconstruct(kind: object, *_: Any) -> _ArrayState:
    if kind is not _NDARRAY:
        raise _Refused("an array of another class than ndarray")
    return _ArrayState()


def _dtype(name: object, *_: Any) -> _ByteType:
    if name not in ("u1", "|u1", "uint8"):
        raise _Refused("an array of another type than uint8")
    return _ByteType()


def _encode(text: str, encoding: str) -> bytes:
    """Return the bytes that Python 3 writes as text for Python 2."""
    if encoding != "latin1":
        raise _Refused(f"bytes encoded as {encoding!r}")
    return text.encode("latin-1")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy.dtype": _dtype,
    "_codecs.encode": _encode,
}


class _Callable:
    """A function that a file names: it may be called, and cannot be changed."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise _Refused("a state of something that is no array")


class _CifarUnpickler(pickle.Unpickler):
    """Reads numbers, texts, bytes, lists, tuples, dicts and uint8 arrays; it never imports or calls what a file names.

    The names that numpy writes for an array resolve to the functions above, which build the array from its shape and
    bytes; every other name is refused.
    """

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full == "numpy.ndarray":
            return _NDARRAY
        if full not in _FUNCTIONS:
            raise _Refused(f"the name {full!r}")
        return _Callable(_FUNCTIONS[full])


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dict in a pickle of the CIFAR authors: texts to numbers, texts, bytes, lists, dicts, uint8 arrays.

    Raises:
        BadFile: When it is no pickle of protocol 2 or 3, is cut off, or contains anything else; nothing is executed.
    """
    try:
        raw = path.read_bytes()
        for instruction, argument, _ in pickletools.genops(raw):
            # a later protocol could reserve any amount of memory before reading a byte, and so could a large index
            if instruction.proto > 3 or ("PUT" in instruction.name and int(argument or 0) > len(raw)):
                raise _Refused(f"the instruction {instruction.name}")
        content = _CifarUnpickler(io.BytesIO(raw), encoding="latin1").load()
    except _Refused as fault:
        raise BadFile(f"{path.name} is not read: it holds {fault}, which CIFAR's files do not have.") from fault
    except OSError as fault:
        raise BadFile(f"{path.name} cannot be read: {fault.strerror}.") from fault
    except _DAMAGED_PICKLE as fault:
        raise BadFile(f"{path.name} is not read: it is not a complete pickle of protocol 2 or 3: {fault}.") from fault
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise BadFile(f"{path.name}: expected a dict with names as keys.")
    return {key: value.array if isinstance(value, _ArrayState) else value for key, value in content.items()}
