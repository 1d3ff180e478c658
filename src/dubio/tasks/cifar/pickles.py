"""Reading the pickles of the CIFAR authors without executing them.

A pickle is a program for a small stack machine; Python's own reader lets it call whatever it names. This one knows only
the instructions that those files use (protocols 2 and 3: numbers, texts, bytes, lists, tuples, dicts), and of what a
file may name only numpy's words for an array, and one for bytes. Those are recognised and never called: an array is
made here, from its shape and bytes. Every other instruction or name is refused.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from dubio.core.errors import BadFile

_NAMES: Final = {
    "numpy.core.multiarray _reconstruct": "reconstruct",
    "numpy._core.multiarray _reconstruct": "reconstruct",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
_BYTES: Final = ("u1", "|u1", "uint8")


class _Refused(Exception):
    """What the file asks for is not known here."""


class _Word:
    """A name that the file mentions; it stands for itself."""

    def __init__(self, says: str) -> None:
        self.says = says


class _Made:
    """An array or its type under construction; ``value`` is the array once its content was given."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.value: Any = None


def read_pickle(path: Path) -> dict[str, Any]:
    """The dict that a file holds: keys are texts; values numbers, texts, bytes, lists, dicts and arrays of uint8.

    Raises:
        BadFile: When it is no pickle, is cut off, or holds anything else; nothing of it is executed.
    """
    try:
        found = _Machine().run(path.read_bytes())
    except _Refused as fault:
        raise BadFile(f"{path.name} is not read: it holds {fault}, which CIFAR's files do not have.") from fault
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as fault:
        raise BadFile(f"{path.name} is not read: it is not a whole pickle of protocol 2 or 3: {fault}.") from fault
    except OSError as fault:
        raise BadFile(f"{path.name} cannot be read: {fault.strerror}.") from fault
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise BadFile(f"{path.name}: expected a dict with names as keys.")
    return {key: value.value if isinstance(value, _Made) else value for key, value in found.items()}


class _Machine:
    """The stack, the marks on it, and what was remembered."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, program: bytes) -> Any:
        for instruction, argument, _ in pickletools.genops(program):
            name = instruction.name
            if name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name in _PUSHED:
                self.stack.append(argument)
            elif name in _STEPS:
                _STEPS[name](self, argument)
            else:
                raise _Refused(f"the instruction {name}")
        (result,) = self.stack
        return result

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def last(self, count: int) -> tuple[Any, ...]:
        if len(self.stack) < count:
            raise IndexError("the stack is empty")
        taken = tuple(self.stack[-count:])
        del self.stack[-count:]
        return taken

    def items(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict:
            raise TypeError("items of something that is no dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) not in (str, bytes):
                raise TypeError("a key that is no text")
            target[key] = value

    def extend(self, more: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise TypeError("elements of something that is no list")
        self.stack[-1].extend(more)

    def name(self, says: str) -> None:
        if says not in _NAMES:
            raise _Refused(f"the name {says.replace(' ', '.')!r}")
        self.stack.append(_Word(_NAMES[says]))

    def reduce(self) -> None:
        """An empty array or a type, where the file would call numpy."""
        called, arguments = self.last(2)
        if not isinstance(called, _Word) or not isinstance(arguments, tuple):
            raise _Refused("a call of something that is no name")
        if called.says == "reconstruct" and isinstance(arguments[0], _Word) and arguments[0].says == "ndarray":
            self.stack.append(_Made("array"))
        elif called.says == "dtype" and arguments[0] in _BYTES:
            self.stack.append(_Made("type"))
        elif called.says == "encode" and arguments[1:] == ("latin1",):  # how Python 3 writes bytes for Python 2
            self.stack.append(arguments[0].encode("latin-1"))
        else:
            raise _Refused("an array of another type than uint8")

    def build(self) -> None:
        """Give an array its content; of a type there is nothing to say for single bytes."""
        made, state = self.last(2)
        if not isinstance(made, _Made) or not isinstance(state, tuple):
            raise _Refused("a state of something that is no array")
        if made.what == "array":
            made.value = _array(*state)
        self.stack.append(made)


def _array(version: Any, shape: Any, kind: Any, by_columns: Any, content: Any) -> Any:
    if not isinstance(kind, _Made) or kind.what != "type":
        raise _Refused("an array without a type")
    raw = content.encode("latin-1") if isinstance(content, str) else content
    if not isinstance(raw, bytes) or math.prod(shape) != len(raw):
        raise ValueError(f"{len(raw)} bytes for an array of shape {shape}")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")


_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
_PUSHED = frozenset((*_NUMBERS, "BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "BINBYTES", "SHORT_BINBYTES"))
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, version: None,
    "STOP": lambda machine, _: None,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.stack.append(machine.last(1)),
    "TUPLE2": lambda machine, _: machine.stack.append(machine.last(2)),
    "TUPLE3": lambda machine, _: machine.stack.append(machine.last(3)),
    "APPEND": lambda machine, _: machine.extend(list(machine.last(1))),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.items(list(machine.last(2))),
    "SETITEMS": lambda machine, _: machine.items(machine.since_mark()),
    "BINPUT": lambda machine, place: machine.memo.__setitem__(place, machine.stack[-1]),
    "LONG_BINPUT": lambda machine, place: machine.memo.__setitem__(place, machine.stack[-1]),
    "BINGET": lambda machine, place: machine.stack.append(machine.memo[place]),
    "LONG_BINGET": lambda machine, place: machine.stack.append(machine.memo[place]),
    "GLOBAL": lambda machine, says: machine.name(says),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
}
