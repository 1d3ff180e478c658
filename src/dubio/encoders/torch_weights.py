"""Weights in a file of ``torch.save``, read as data: nothing is unpickled, imported or called.

Such a file is a pickle, and a pickle is a program. Its instructions are listed by ``pickletools.genops``, which runs
none of them, and followed here by a machine that knows plain values and three kinds of names: ``OrderedDict``, the
function that rebuilds a tensor, and the types of storages. They are recognised, never looked up. Every other name or
instruction is refused.

The form is that of torch before version 1.6: five pickles (a magic number, a version, facts about the machine, the
tensors by name, the keys of their storages), then the number of values and the values of every storage.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile
from dubio.core.files import reading

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
ZIP = b"PK\x03\x04"
COUNT_BYTES = 8
MOST_AXES = 32
"""Largest number of axes of a tensor; numpy has no more."""

ORDERED = "collections OrderedDict"
REBUILD = "torch._utils _rebuild_tensor_v2"
STORAGES = {
    "torch DoubleStorage": "<f8", "torch FloatStorage": "<f4", "torch HalfStorage": "<f2", "torch LongStorage": "<i8",
    "torch IntStorage": "<i4", "torch ShortStorage": "<i2", "torch CharStorage": "|i1", "torch ByteStorage": "|u1",
    "torch BoolStorage": "|b1",
}  # fmt: skip
"""The names of storages in a file, and the types of their values."""


class Refused(ValueError):
    """An instruction, a name or a value that a file of weights does not need."""


@dataclass(frozen=True)
class Name:
    """A name that a pickle would import; here it is only a text."""

    text: str


@dataclass(frozen=True)
class Storage:
    """A storage as the pickle announces it: its values stand at the end of the file."""

    key: str
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as the pickle describes it: the values of a storage from an offset on, each once.

    Attributes:
        storage: The storage.
        offset: The position of its first value there.
        shape: Its shape.
        order: Its axes in the order of memory, the slowest first.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    order: tuple[int, ...]


def read_torch_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a state dict by name.

    Args:
        path: A file that torch before version 1.6 saved, or a later one with ``_use_new_zipfile_serialization=False``.

    Raises:
        BadFile: When it is another file, is truncated, or contains anything but named tensors; nothing is executed.
    """
    with reading(path):
        content = path.read_bytes()
    if content.startswith(ZIP):
        raise BadFile(f"{path.name} is not read: it is a zip archive, as torch saves since version 1.6.")
    stream = io.BytesIO(content)  # in memory, so that no instruction can claim more bytes than there are
    try:
        _check_start(stream)
        tensors = _tensors(PickleReader().run(stream))
        storages = _read_storages(stream, tensors)
        return {name: _array(name, tensor, storages) for name, tensor in tensors.items()}
    except (ValueError, LookupError, TypeError, OverflowError) as fault:  # what damaged instructions lead to
        raise BadFile(f"{path.name} is not read as weights that torch saved: {fault}.") from fault


def _check_start(stream: BinaryIO) -> None:
    """Check the magic number, the version, and that numbers are little-endian."""
    if PickleReader().run(stream) != MAGIC:
        raise Refused("it does not begin with torch's magic number")
    if (version := PickleReader().run(stream)) != PROTOCOL:
        raise Refused(f"its version must be {PROTOCOL}; given {version if isinstance(version, int) else 'no number'}")
    facts = PickleReader().run(stream)
    if not isinstance(facts, dict) or facts.get("little_endian") is not True:
        raise Refused("its numbers must be little-endian")


def _tensors(value: Any) -> dict[str, StoredTensor]:
    if not isinstance(value, dict):
        raise Refused(f"it must hold tensors by name; given a {type(value).__name__}")
    for name, tensor in value.items():
        if not isinstance(tensor, StoredTensor):
            raise Refused(f"{name!r} must be a tensor; given a {type(tensor).__name__}")
    return value


def _read_storages(stream: BinaryIO, tensors: dict[str, StoredTensor]) -> dict[str, NDArray[Any]]:
    """Return the values of every storage by its key, in the order of the file, which they fill to its end."""
    announced = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    if any(announced[tensor.storage.key] != tensor.storage for tensor in tensors.values()):
        raise Refused("two tensors describe one storage differently")
    keys = PickleReader().run(stream)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Refused("the keys of its storages must be a list of texts")
    if len(set(keys)) != len(keys) or set(keys) != announced.keys():
        raise Refused("the keys of its storages must be those of its tensors, each once")
    storages = {}
    for key in keys:
        storage = announced[key]
        stated = stream.read(COUNT_BYTES)
        count = int.from_bytes(stated, "little", signed=True)
        if len(stated) < COUNT_BYTES or count != storage.count:
            raise Refused(f"storage {key!r} has {count} values where {storage.count} are announced")
        values = stream.read(length := count * storage.dtype.itemsize)
        if len(values) < length:
            raise Refused(f"storage {key!r} needs {length} bytes; the file is truncated")
        storages[key] = np.frombuffer(values, storage.dtype)
    if stream.read(1):
        raise Refused("it goes on after its last storage")
    return storages


def _array(name: str, tensor: StoredTensor, storages: dict[str, NDArray[Any]]) -> NDArray[Any]:
    values, end = storages[tensor.storage.key], tensor.offset + math.prod(tensor.shape)
    if end > len(values):
        raise Refused(f"{name!r} needs {end} values of a storage that has {len(values)}")
    if values.dtype == np.bool_ and len(values) and values.view(np.uint8).max() > 1:
        raise Refused(f"{name!r} is of truth values, and has a byte that is neither 0 nor 1")
    in_memory = values[tensor.offset : end].reshape([tensor.shape[axis] for axis in tensor.order])
    return np.array(in_memory.transpose(np.argsort(tensor.order)), order="C").reshape(tensor.shape)


class PickleReader:
    """The machine that follows one pickle: a stack of values, positions of marks on it, and remembered values."""

    def __init__(self) -> None:
        """Start with an empty stack."""
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, stream: BinaryIO) -> Any:
        """Return the value of the next pickle of a stream.

        Raises:
            Refused: For an instruction or a name that weights do not need.
            ValueError: When the pickle is damaged or truncated; a LookupError where its stack is too small.
        """
        for instruction, argument, _ in pickletools.genops(stream):
            if instruction.name == "STOP":
                break
            if instruction.name in CONSTANTS:
                self.stack.append(CONSTANTS[instruction.name]())
            elif instruction.name in ARGUMENTS:
                self.stack.append(argument)
            elif instruction.name in ACTIONS:
                ACTIONS[instruction.name](self, argument)
            else:
                raise Refused(f"it contains the instruction {instruction.name}, which weights do not need")
        if len(self.stack) != 1:
            raise Refused(f"it must leave one value; it leaves {len(self.stack)}")
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        """Remove the values above the last mark and return them."""
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def make_tuple(self, count: int) -> None:
        """Join the last values into a tuple."""
        if count > len(self.stack):
            raise IndexError("a tuple of more values than there are")
        start = len(self.stack) - count
        self.stack[start:] = [tuple(self.stack[start:])]

    def set_items(self, items: list[Any]) -> None:
        """Add keys and values, one after another, to the dict below them; keys are texts."""
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2 or not all(isinstance(key, str) for key in items[::2]):
            raise Refused("items must be set by text in a dict")
        target.update(zip(items[::2], items[1::2], strict=True))

    def append(self, items: list[Any]) -> None:
        """Add values to the list below them."""
        if not isinstance(self.stack[-1], list):
            raise Refused("values must be added to a list")
        self.stack[-1].extend(items)

    def name(self, text: str) -> None:
        """Recognise a name, without looking it up.

        Raises:
            Refused: For a name that weights do not need.
        """
        if text not in (ORDERED, REBUILD, *STORAGES):
            raise Refused(f"it names {text[:80].replace(' ', '.')!r}, which weights do not need; nothing is executed")
        self.stack.append(Name(text))

    def persistent(self) -> None:
        """Recognise a storage: ('storage', its type, its key, a device, the number of its values, no view)."""
        match self.stack.pop():
            case ("storage", Name(kind), str(key), str(), int(count), None) if kind in STORAGES and count >= 0:
                self.stack.append(Storage(key, np.dtype(STORAGES[kind]), count))
            case _:
                raise Refused("a storage is described in another way than torch does")

    def call(self) -> None:
        """Recognise one of the two calls of a state dict, and make what it would give."""
        arguments, function = self.stack.pop(), self.stack.pop()
        match function, arguments:
            case Name("collections OrderedDict"), ():
                self.stack.append({})
            case Name("torch._utils _rebuild_tensor_v2"), (Storage() as storage, int(offset), shape, strides, *_):
                self.stack.append(_tensor(storage, offset, shape, strides))
            case _:
                raise Refused("it calls something in a way that weights do not need; nothing is executed")

    def build(self) -> None:
        """Leave out the attributes of an ``OrderedDict``: the versions of the modules that were saved."""
        if not isinstance(self.stack.pop(), dict) or not isinstance(self.stack[-1], dict):
            raise Refused("only a dict of tensors may have attributes")


def _tensor(storage: Storage, offset: int, shape: Any, strides: Any) -> StoredTensor:
    """Return the description of a tensor without gaps or repeats, its axes in memory in any order.

    Other strides could repeat a few values to an array of any size.
    """
    sound = _are_sizes(shape) and _are_sizes(strides) and len(shape) == len(strides) <= MOST_AXES and offset >= 0
    if not sound:
        raise Refused(f"a tensor needs an offset, and a shape and strides of at most {MOST_AXES} numbers from 0")
    order = tuple(sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis)))
    step = 1
    for axis in reversed(order):
        if shape[axis] > 1 and math.prod(shape) and strides[axis] != step:
            raise Refused(f"a tensor of shape {shape} has the strides {strides}, with gaps or repeats")
        step *= shape[axis]
    return StoredTensor(storage, offset, shape, order)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, tuple) and all(type(value) is int and value >= 0 for value in values)


CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
}  # fmt: skip
"""Instructions that put a new value on the stack."""

ARGUMENTS = ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE")
"""Instructions that put their argument, a number or a text, on the stack."""

ACTIONS: dict[str, Callable[[PickleReader, Any], None]] = {
    "PROTO": lambda reader, _: None,
    "MARK": lambda reader, _: reader.marks.append(len(reader.stack)),
    "TUPLE": lambda reader, _: reader.stack.append(tuple(reader.since_mark())),
    "TUPLE1": lambda reader, _: reader.make_tuple(1),
    "TUPLE2": lambda reader, _: reader.make_tuple(2),
    "TUPLE3": lambda reader, _: reader.make_tuple(3),
    "SETITEM": lambda reader, _: reader.set_items([reader.stack.pop(-2), reader.stack.pop()]),
    "SETITEMS": lambda reader, _: reader.set_items(reader.since_mark()),
    "APPEND": lambda reader, _: reader.append([reader.stack.pop()]),
    "APPENDS": lambda reader, _: reader.append(reader.since_mark()),
    "BINPUT": lambda reader, index: reader.memo.update({index: reader.stack[-1]}),
    "LONG_BINPUT": lambda reader, index: reader.memo.update({index: reader.stack[-1]}),
    "BINGET": lambda reader, index: reader.stack.append(reader.memo[index]),
    "LONG_BINGET": lambda reader, index: reader.stack.append(reader.memo[index]),
    "GLOBAL": lambda reader, text: reader.name(text),
    "BINPERSID": lambda reader, _: reader.persistent(),
    "REDUCE": lambda reader, _: reader.call(),
    "BUILD": lambda reader, _: reader.build(),
}
"""Instructions that change the stack in another way."""
