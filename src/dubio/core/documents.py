"""Parse JSON and TOML that anybody may have written: every such text that dubio reads goes through here.

What the formats allow and nothing of dubio can use is refused with the name of the document: nesting beyond
:data:`MAX_DEPTH`, whole numbers beyond 64 bits, numbers beyond the largest float, NaN and infinities, a key twice, half
of a surrogate pair, dates. Code that follows may then recurse, convert to float and print without a thought.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dubio.core.errors import BadFile, DubioError
from dubio.core.files import reading

MAX_DEPTH = 100
"""Levels of lists and tables inside each other; documents of dubio have fewer than 20."""

MAX_BYTES = 256 << 20
"""Bytes of a document: what its values take in memory is a multiple of them."""

_TOO_DEEP = f"lists and tables are nested deeper than {MAX_DEPTH} levels"


def parse_json(text: str | bytes, name: str, error: type[DubioError] = BadFile) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text, or its UTF-8 bytes.
        name: The document, as messages name it.
        error: The type of error to raise.

    Raises:
        BadFile: Or the given error, when it is not JSON or breaks a limit.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = _DECODER.decode(text)
        # Halves of pairs that stand in the text itself were let in by the caller: names of files need not be Unicode.
        if "\\ud" in text or "\\uD" in text:
            _check(value, is_text)
        elif text.count("[") + text.count("{") > MAX_DEPTH:
            _check(value, lambda text: True)
    except (json.JSONDecodeError, UnicodeDecodeError) as fault:
        raise error(f"{name} is not JSON: {fault}.") from fault
    except RecursionError as fault:
        raise error(f"{name}: {_TOO_DEEP}.") from fault
    except ValueError as fault:
        raise error(f"{name}: {fault}.") from fault
    return value


def parse_toml(text: str | bytes, name: str) -> dict[str, Any]:
    """Return the tables of a TOML text, or of its UTF-8 bytes.

    Raises:
        BadFile: When it is not TOML or breaks a limit.
    """
    try:
        table = tomllib.loads(text.decode("utf-8") if isinstance(text, bytes) else text, parse_float=_float)
        _check(table, is_text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise BadFile(f"{name} is not TOML: {fault}.") from fault
    except RecursionError as fault:
        raise BadFile(f"{name}: {_TOO_DEEP}.") from fault
    except ValueError as fault:  # also of int(), for thousands of digits
        raise BadFile(f"{name}: {fault}.") from fault
    return table


def read_document(path: Path) -> bytes:
    """Return the bytes of a document.

    Raises:
        BadFile: When it cannot be read, or has more than :data:`MAX_BYTES`.
    """
    with reading(path):
        if (size := path.stat().st_size) > MAX_BYTES:
            raise BadFile(f"{str(path)!r} has {size} bytes; at most {MAX_BYTES} are read.")
        return path.read_bytes()


def is_text(value: str) -> bool:
    """Return whether a text can be written as UTF-8: it has no half of a surrogate pair."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"the whole number {_cut(digits)} needs more than 64 bits")
    return int(digits)


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"the number {_cut(digits)} is not finite")
    return number


def _constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {_cut(key)!r} is there twice")
    return entries


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant, object_pairs_hook=_object)


def _check(tree: Any, valid_text: Callable[[str], bool]) -> None:
    """Check everything in a value without recursion: depth, texts, whole numbers, and that nothing is a date."""
    waiting = [(tree, 1)]
    while waiting:
        value, depth = waiting.pop()
        match value:
            case dict() | list() if depth > MAX_DEPTH:
                raise ValueError(_TOO_DEEP)
            case dict():
                waiting += [(item, depth + 1) for pair in value.items() for item in pair]
            case list():
                waiting += [(item, depth + 1) for item in value]
            case str() if not valid_text(value):
                raise ValueError(f"the text {_cut(value)!r} has half of a surrogate pair, and is not Unicode")
            case int() if not -(2**63) <= value < 2**63:
                raise ValueError("a whole number needs more than 64 bits")
            case str() | int() | float() | None:
                pass
            case _:
                raise ValueError(f"{value} is a date or time; write it in quotes")
