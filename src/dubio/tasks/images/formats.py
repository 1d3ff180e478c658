"""Reading the pickles of the CIFAR authors without executing them.

A pickle is a program for a small stack machine; Python's own reader lets it call whatever it names. This one knows only
the instructions that those files use (protocols 2 and 3: numbers, texts, bytes, lists, tuples, dicts), and of what a
file may name only numpy's words for an array, and one for bytes. Those are recognised and never called: an array is
made here, from its shape and bytes. Every other instruction or name is refused.

The forms in which small images lie in a folder: the authors' python and binary files, folders of images, arrays.
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
from dubio.core.types import IntArray, StrArray
from dubio.tasks.own.reading import DAMAGED, read_arrays, rows_of_folder
from dubio.tasks.sources.locate import Document, Layout

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


_DAMAGED_PICKLE = (
    *(pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError),
    MemoryError,
)


SIDE = 32
_PIXELS = 3 * SIDE * SIDE
_WHOLE = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images of one part.

    Attributes:
        images: uint8 ``[N, 32, 32, 3]``.
        labels: Class index ``[N]``.
        ids: Unique in the data set ``[N]``.
    """

    images: NDArray[np.uint8]
    labels: IntArray
    ids: StrArray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: IntArray) -> Pictures:
        """These rows, in this order."""
        return Pictures(self.images[rows], self.labels[rows], self.ids[rows])


Parts = Mapping[str, Pictures]
"""Images by part: ``train`` and ``test``."""


@dataclass(frozen=True)
class Form:
    """A form in which a data set may lie in a folder.

    Attributes:
        name: What it is called.
        looks: The names of its files, for a reader who places them.
        find: Its file or folder inside a folder, or None.
        read: Its images.
        partial: Whether it has no training images.
    """

    name: str
    looks: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path], Parts]
    partial: bool = False

    def layout(self, counts: Mapping[str, int]) -> Layout:
        """The form as the ways to data know it; an image is counted like a document."""

        def documents(path: Path) -> list[Document]:
            return [
                Document(part, "", (str(label),))
                for part, pictures in self.read(path).items()
                for label in pictures.labels.tolist()
            ]

        return Layout(self.name, self.looks, self.find, documents, counts, partial=self.partial)


def numbered(part: str, images: NDArray[np.uint8], labels: Any, classes: int, where: str) -> Pictures:
    """Images called by their place in a part.

    Raises:
        BadFile: When images and labels do not fit, or a label is none.
    """
    if isinstance(labels, list) and any(type(label) is not int for label in labels):
        raise BadFile(f"{where}: the labels of {part} must be whole numbers from 0 to {classes - 1}.")
    given = np.asarray(labels)
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE, 3) or given.shape != (len(images),):
        raise BadFile(f"{where}: {part} has {images.dtype} images {images.shape} and labels {given.shape}.")
    if given.dtype.kind not in "iu" or (len(given) and not 0 <= given.min() <= given.max() < classes):
        raise BadFile(f"{where}: the labels of {part} must be whole numbers from 0 to {classes - 1}.")
    ids = np.char.add(f"{part}/", np.arange(len(images)).astype(np.str_))
    return Pictures(images, given.astype(np.int64), ids)


def planes(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of a red, a green and a blue plane ``[N, 3072]`` as images."""
    return np.ascontiguousarray(rows.reshape(len(rows), 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def python_form(folder: str, files: Mapping[str, tuple[str, ...]], label: str, classes: int) -> Form:
    """The authors' python files: ``data`` and labels in each, read without executing them."""

    def read(place: Path) -> Parts:
        found = {}
        for part, names in files.items():
            dicts = [read_pickle(place / name) for name in names]
            for name, batch in zip(names, dicts, strict=True):
                rows = batch.get("data")
                if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != _PIXELS:
                    raise BadFile(f"{name}: expected 'data', an array of {_PIXELS} bytes a row.")
                if not isinstance(batch.get(label), list):
                    raise BadFile(f"{name}: expected {label!r}, a list of numbers.")
            labels = [value for batch in dicts for value in batch[label]]
            images = np.concatenate([planes(batch["data"]) for batch in dicts])
            found[part] = numbered(part, images, labels, classes, place.name)
        return found

    needed = [name for names in files.values() for name in names]
    return Form("the authors' python files", f"{folder} with {', '.join(needed)}", _folder_with(folder, needed), read)


def binary_form(folder: str, files: Mapping[str, tuple[str, ...]], heads: int, classes: int) -> Form:
    """The authors' binary files: ``heads`` label bytes (the last one counts) and 3,072 bytes an image."""

    def read(place: Path) -> Parts:
        found = {}
        for part, names in files.items():
            raw = np.concatenate([np.fromfile(place / name, dtype=np.uint8) for name in names])
            if len(raw) == 0 or len(raw) % (heads + _PIXELS):
                raise BadFile(f"{place.name}: {', '.join(names)} must have {heads + _PIXELS} bytes an image.")
            rows = raw.reshape(-1, heads + _PIXELS)
            found[part] = numbered(part, planes(rows[:, heads:]), rows[:, heads - 1], classes, place.name)
        return found

    needed = [name for names in files.values() for name in names]
    return Form("the authors' binary files", f"{folder} with {', '.join(needed)}", _folder_with(folder, needed), read)


def _folder_with(folder: str, needed: list[str]) -> Callable[[Path], Path | None]:
    def find(place: Path) -> Path | None:
        for inner in (place, place / folder):
            if all((inner / name).is_file() for name in needed):
                return inner
        return None

    return find


def folder_form(classes: tuple[str, ...]) -> Form:
    """A folder of images for each class, in ``train`` and ``test``; resized to 32×32 where they are not."""

    def find(place: Path) -> Path | None:
        whole = all((place / part / name).is_dir() for part in ("train", "test") for name in classes)
        return place if whole else None

    def read(place: Path) -> Parts:
        found = {}
        for part in ("train", "test"):
            rows = rows_of_folder(place / part, size=SIDE)
            if unknown := sorted({label for (label,) in rows.labels} - set(classes)):
                raise BadFile(f"{place.name}/{part}: the folder {unknown[0]!r} is none of the {len(classes)} classes.")
            assert isinstance(rows.inputs, np.ndarray)
            images = np.broadcast_to(rows.inputs, (*rows.inputs.shape[:3], 3))
            labels = np.array([classes.index(label) for (label,) in rows.labels], dtype=np.int64)
            found[part] = Pictures(np.ascontiguousarray(images), labels, np.char.add(f"{part}/", rows.ids))
        return found

    return Form("folders of images", f"train/CLASS/*.png and test/CLASS/*.png ({classes[0]}, …)", find, read)


def read_npz(path: Path, classes: int) -> Parts:
    """Arrays ``x_train``, ``y_train``, ``x_test``, ``y_test``, or ``x`` and ``y`` of test images alone.

    Raises:
        BadFile: When it has neither, or they do not fit.
    """
    arrays = read_arrays(path)
    names = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}
    if "x" in arrays and "x_test" not in arrays:
        names = {"test": ("x", "y")}
    for name in (name for pair in names.values() for name in pair):
        if name not in arrays:
            raise BadFile(f"{path.name} has no array {name!r}; it has {', '.join(arrays) or 'none'}.")
    return {
        part: numbered(part, arrays[x], arrays[y].reshape(-1), classes, path.name) for part, (x, y) in names.items()
    }


def npz_forms(stem: str, classes: int) -> tuple[Form, Form]:
    """Arrays in ``STEM.npz`` or ``STEM_*.npz``: train and test, or test alone.

    A damaged file, or one with only some of the arrays, is found too where there is none that has them all: reading it
    says what is wrong with it, while passing it over would say that it is not there.
    """

    def named(place: Path) -> dict[Path, frozenset[str]]:
        return {path: npz_names(path) for path in sorted([*place.glob(f"{stem}.npz"), *place.glob(f"{stem}_*.npz")])}

    def whole(place: Path) -> Path | None:
        files = named(place)
        good = (path for path, names in files.items() if {*_WHOLE} <= names)
        bad = (path for path, names in files.items() if not names or ("x" not in names and names & {*_WHOLE, "y"}))
        return next(good, None) or next(bad, None)

    def tested(place: Path) -> Path | None:
        return next((path for path, names in named(place).items() if "x" in names), None)

    def read(path: Path) -> Parts:
        return read_npz(path, classes)

    looks = f"{stem}.npz or {stem}_*.npz with"
    return (
        Form("arrays", f"{looks} {', '.join(_WHOLE)}", whole, read),
        Form("arrays of test images alone", f"{looks} x, y", tested, read, partial=True),
    )


def npz_names(path: Path) -> frozenset[str]:
    """The names of the arrays in an npz file, without reading them; none where it cannot be opened as one."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return frozenset(archive.files)
    except DAMAGED:
        return frozenset()


def read_idx(path: Path, side: int) -> NDArray[np.uint8]:
    """Grey images ``[N, side, side]`` of a gzipped idx file.

    Raises:
        BadFile: When it is another file.
    """
    try:
        with gzip.open(path) as file:
            head = np.frombuffer(file.read(16), dtype=">u4")
            if head.tolist()[:1] != [0x803] or head.tolist()[2:] != [side, side]:
                raise BadFile(f"{path.name} is no idx file of images of {side}×{side} pixels.")
            pixels = np.frombuffer(file.read(int(head[1]) * side * side), dtype=np.uint8)
    except (OSError, EOFError, zlib.error, ValueError) as fault:
        if isinstance(fault, BadFile):
            raise
        raise BadFile(f"{path.name} cannot be read: {fault}.") from fault
    if len(pixels) != int(head[1]) * side * side:
        raise BadFile(f"{path.name} is cut off: {len(pixels):,} of {int(head[1]) * side * side:,} bytes.")
    return pixels.reshape(-1, side, side)
