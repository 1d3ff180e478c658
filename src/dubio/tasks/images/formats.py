"""Formats of small images: the authors' python and binary files, folders of images, arrays, idx files.

The authors' python files are pickles, and a pickle is a program that may call whatever it names. They are read by an
unpickler that knows only numpy's names for an array and one for bytes, and that calls none of them: an array is built
here, from its shape and bytes. Every other name is refused.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import pickletools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile
from dubio.core.types import Examples
from dubio.tasks.images.files import array_names, class_folders, load_images, read_arrays
from dubio.tasks.sources.locate import Document, Layout

SIDE = 32
_PIXELS = 3 * SIDE * SIDE
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")

Parts = Mapping[str, Examples]
"""Images by part: ``train`` and ``test``; uint8 ``[N, 32, 32, 3]``, class indices, and ids that are unique."""


@dataclass(frozen=True)
class Format:
    """A format in which a data set may lie in a folder.

    Attributes:
        name: Its name.
        files: The names of its files, for a reader who places them.
        find: Returns its file or folder inside a folder, or None.
        read: Reads its images.
        partial: Whether it has no training images.
    """

    name: str
    files: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path], Parts]
    partial: bool = False

    def layout(self, counts: Mapping[str, int]) -> Layout:
        """Return the format as a layout of a corpus; an image is counted like a document."""

        def documents(path: Path) -> list[Document]:
            return [
                Document(subset, "", (str(label),))
                for subset, images in self.read(path).items()
                for label in images.labels.tolist()
            ]

        return Layout(self.name, self.files, self.find, documents, counts, partial=self.partial)


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


def _from_planes(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return rows of a red, a green and a blue plane ``[N, 3072]`` as images."""
    return np.ascontiguousarray(rows.reshape(len(rows), 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def python_format(folder: str, files: Mapping[str, tuple[str, ...]], label: str, classes: int) -> Format:
    """Return the format of the authors' python files: ``data`` and labels in each, read without executing them."""

    def read_batch(path: Path) -> tuple[NDArray[np.uint8], list[Any]]:
        batch = read_pickle(path)
        rows, labels = batch.get("data"), batch.get(label)
        if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != _PIXELS:
            raise BadFile(f"{path.name}: expected 'data', an array of {_PIXELS} bytes per row.")
        if not isinstance(labels, list):
            raise BadFile(f"{path.name}: expected {label!r}, a list of numbers.")
        return _from_planes(rows), labels

    def read(source: Path) -> Parts:
        parts = {}
        for subset, names in files.items():
            batches = [read_batch(source / name) for name in names]
            images = np.concatenate([images for images, _ in batches])
            labels = [value for _, values in batches for value in values]
            parts[subset] = _numbered(subset, images, labels, classes, source.name)
        return parts

    return _format_of_files("the authors' python files", folder, files, read)


def binary_format(folder: str, files: Mapping[str, tuple[str, ...]], label_bytes: int, classes: int) -> Format:
    """Return the format of the authors' binary files: label bytes (the last one counts), then 3,072 bytes per image."""
    length = label_bytes + _PIXELS

    def read(source: Path) -> Parts:
        parts = {}
        for subset, names in files.items():
            raw = np.concatenate([np.fromfile(source / name, dtype=np.uint8) for name in names])
            if len(raw) == 0 or len(raw) % length:
                raise BadFile(f"{source.name}: {', '.join(names)} must have {length} bytes per image.")
            rows = raw.reshape(-1, length)
            images = _from_planes(rows[:, label_bytes:])
            parts[subset] = _numbered(subset, images, rows[:, label_bytes - 1], classes, source.name)
        return parts

    return _format_of_files("the authors' binary files", folder, files, read)


def _format_of_files(
    name: str, folder: str, files: Mapping[str, tuple[str, ...]], read: Callable[[Path], Parts]
) -> Format:
    needed = [file for names in files.values() for file in names]

    def find(parent: Path) -> Path | None:
        for inner in (parent, parent / folder):
            if all((inner / file).is_file() for file in needed):
                return inner
        return None

    return Format(name, f"{folder} with {', '.join(needed)}", find, read)


def folder_format(classes: tuple[str, ...]) -> Format:
    """Return the format of class folders in ``train`` and ``test``; images are resized to 32×32 where they are not."""

    def find(parent: Path) -> Path | None:
        complete = all((parent / subset / name).is_dir() for subset in ("train", "test") for name in classes)
        return parent if complete else None

    def read(source: Path) -> Parts:
        parts = {}
        for subset in ("train", "test"):
            folders = {name: paths for name, paths in class_folders(source / subset).items() if paths}
            if unknown := sorted(set(folders) - set(classes)):
                raise BadFile(f"{source.name}/{subset}: folder {unknown[0]!r} is none of the {len(classes)} classes.")
            files = [(path, name) for name, paths in folders.items() for path in paths]
            if not files:
                raise BadFile(f"{source.name}/{subset}: no images.")
            images = load_images([path for path, _ in files], SIDE)
            labels = np.array([classes.index(name) for _, name in files], dtype=np.int64)
            ids = np.array([path.relative_to(source).as_posix() for path, _ in files], dtype=np.str_)
            parts[subset] = Examples(np.ascontiguousarray(np.broadcast_to(images, (*images.shape[:3], 3))), labels, ids)
        return parts

    return Format("folders of images", f"train/CLASS/*.png and test/CLASS/*.png ({classes[0]}, …)", find, read)


def read_npz(path: Path, classes: int) -> Parts:
    """Read the arrays ``x_train``, ``y_train``, ``x_test``, ``y_test``, or ``x`` and ``y`` of test images alone.

    Raises:
        BadFile: When it has neither, or they do not match.
    """
    arrays = read_arrays(path)
    names = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}
    if "x" in arrays and "x_test" not in arrays:
        names = {"test": ("x", "y")}
    for name in (name for pair in names.values() for name in pair):
        if name not in arrays:
            raise BadFile(f"{path.name} has no array {name!r}; it has {', '.join(arrays) or 'none'}.")
    return {
        subset: _numbered(subset, arrays[x], arrays[y].reshape(-1), classes, path.name)
        for subset, (x, y) in names.items()
    }


def npz_formats(stem: str, classes: int) -> tuple[Format, Format]:
    """Return the formats of arrays in ``STEM.npz`` or ``STEM_*.npz``: train and test, or test alone.

    A damaged file, or one with only some of the arrays, is found too where no file has them all: reading it says what
    is wrong with it, while skipping it would say that it is missing.
    """

    def candidates(parent: Path) -> dict[Path, frozenset[str]]:
        paths = sorted([*parent.glob(f"{stem}.npz"), *parent.glob(f"{stem}_*.npz")])
        return {path: array_names(path) for path in paths}

    def find_complete(parent: Path) -> Path | None:
        files = candidates(parent)
        good = (path for path, names in files.items() if {*_ARRAYS} <= names)
        bad = (path for path, names in files.items() if not names or ("x" not in names and names & {*_ARRAYS, "y"}))
        return next(good, None) or next(bad, None)

    def find_test(parent: Path) -> Path | None:
        return next((path for path, names in candidates(parent).items() if "x" in names), None)

    def read(path: Path) -> Parts:
        return read_npz(path, classes)

    files = f"{stem}.npz or {stem}_*.npz with"
    return (
        Format("arrays", f"{files} {', '.join(_ARRAYS)}", find_complete, read),
        Format("arrays of test images alone", f"{files} x, y", find_test, read, partial=True),
    )


def read_idx(path: Path, side: int) -> NDArray[np.uint8]:
    """Return the grey images ``[N, side, side]`` of a gzipped idx file.

    Raises:
        BadFile: When it is another file.
    """
    try:
        with gzip.open(path) as file:
            header = np.frombuffer(file.read(16), dtype=">u4").tolist()
            if header[:1] != [0x803] or header[2:] != [side, side]:
                raise BadFile(f"{path.name} is not an idx file of images of {side}×{side} pixels.")
            expected = header[1] * side * side
            pixels = np.frombuffer(file.read(expected), dtype=np.uint8)
    except BadFile:
        raise
    except (OSError, EOFError, zlib.error, ValueError) as fault:
        raise BadFile(f"{path.name} cannot be read: {fault}.") from fault
    if len(pixels) != expected:
        raise BadFile(f"{path.name} is truncated: {len(pixels):,} of {expected:,} bytes.")
    return pixels.reshape(-1, side, side)


_DAMAGED_PICKLE = (
    *(pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError),
    MemoryError,
)
_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
_BYTE_TYPES = ("u1", "|u1", "uint8")
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
    if name not in _BYTE_TYPES:
        raise _Refused("an array of another type than uint8")
    return _ByteType()


def _encode(text: str, encoding: str) -> bytes:
    """Return the bytes that Python 3 writes as text for Python 2."""
    if encoding != "latin1":
        raise _Refused(f"bytes encoded as {encoding!r}")
    return text.encode("latin-1")


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
        if (module, name) not in _NAMES:
            raise _Refused(f"the name {f'{module}.{name}'!r}")
        functions: dict[str, Callable[..., Any]] = {"_reconstruct": _reconstruct, "dtype": _dtype, "encode": _encode}
        return _NDARRAY if name == "ndarray" else _Callable(functions[name])


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
