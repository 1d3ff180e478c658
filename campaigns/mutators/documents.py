"""Damage to JSON, JSON Lines and TOML on the level of values, types, keys and depth."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

HOSTILE_NUMBERS = (
    "1" * 400,
    "-" + "9" * 400,
    "1" * 5000,
    "1e400",
    "-1e400",
    "1e-320",
    "5e-324",
    "1e308",
    "-1e308",
    "1e39",
    "0",
    "-0.0",
    "-1",
    "2",
    "0.5",
    "1.5",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "4611686018427387904",
    "18446744073709551616",
    "4294967296",
    "1e999",
    "0.1" + "0" * 500 + "1",
    "1e-400",
    "65536",
    "1000000000",
)
HOSTILE_TEXTS = (
    "",
    " ",
    "\x00",
    "a\x00b",
    "=1+1",
    "@x",
    "-",
    "+",
    "<script>alert(1)</script>",
    "../../../etc/passwd",
    "/etc/passwd",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1e999",
    "\U0010ffff",
    "\uffff",
    "\ufeff",
    "\u202e",
    "a\nb",
    "a\r\nb",
    "a,b",
    'a"b',
    "a;b",
    "a\tb",
    "'",
    "\\",
    "é" * 100,
    "x" * 100_000,
    "%s%n",
    "{0}",
    "None",
    "null",
    "true",
    "1_000",
    "0x10",
    "٣",
    "１",
    "1,5",
    "1e5",
    "#",
    "[bold]",
    "[/x]",
    "~",
    ".",
)
RAW_JSON = (
    *HOSTILE_NUMBERS,
    "NaN",
    "Infinity",
    "-Infinity",
    "true",
    "false",
    "null",
    '""',
    '"\\ud800"',
    '"\\udfffx"',
    '"a\\u0000b"',
    "[]",
    "{}",
    "[[]]",
    "[null]",
    "[1]",
    "[[[1]]]",
    '{"a": 1}',
    '{"": {}}',
    '"\\ud800\\ud800"',
    '["\\udc80"]',
)


def _nested(rng: Random) -> str:
    """Return a value inside very many others."""
    depth = rng.choice((60, 500, 990, 5_000, 5_000, 20_000, 100_000))
    if rng.random() < 0.2:
        return rng.choice(("[", '{"a":')) * depth  # never closed
    return "[" * depth + "]" * depth if rng.random() < 0.5 else '{"a":' * depth + "1" + "}" * depth


class _Tree:
    """A JSON value that is being changed; what JSON values cannot express is put in as text at the end."""

    def __init__(self, rng: Random, value: Any) -> None:
        self.rng, self.value, self.raw = rng, value, dict[str, str]()

    def text(self) -> str:
        dumped = json.dumps(self.value, ensure_ascii=self.rng.random() < 0.5)
        for mark, raw in self.raw.items():
            dumped = dumped.replace(f'"{mark}"', raw)
        return dumped

    def mutate(self) -> None:
        holder, key = self._place()
        change = self.rng.choice(
            (self._hostile, self._hostile, self._near, self._near, self._drop, self._keys, self._copy)
        )
        change(holder, key)

    def _place(self) -> tuple[Any, Any]:
        """Return a random value as its container and key; values of every depth are about equally likely."""
        holder: Any = [self.value]
        key: Any = 0
        root = holder
        while isinstance(holder[key], dict | list) and holder[key] and self.rng.random() < 0.8:
            holder = holder[key]
            key = self.rng.choice(list(holder)) if isinstance(holder, dict) else self.rng.randrange(len(holder))
        return (self.__dict__, "value") if holder is root else (holder, key)

    def _put(self, raw: str) -> str:
        mark = f"@raw-{len(self.raw)}@"
        self.raw[mark] = raw
        return mark

    def _hostile(self, holder: Any, key: Any) -> None:
        if self.rng.random() < 0.15:
            holder[key] = self._put(_nested(self.rng))
        elif self.rng.random() < 0.3:
            holder[key] = self.rng.choice(HOSTILE_TEXTS)
        else:
            holder[key] = self._put(self.rng.choice(RAW_JSON))

    def _near(self, holder: Any, key: Any) -> None:
        """Put in a value of the same type, or of one that looks alike."""
        value = holder[key]
        if isinstance(value, bool) or value is None:
            holder[key] = self.rng.choice((True, False, None, 0, "true"))
        elif isinstance(value, int | float):
            holder[key] = self.rng.choice(
                (
                    -value,
                    value + 1,
                    value - 1,
                    value * 2,
                    value / 3,
                    str(value),
                    [value],
                    True,
                    self._put(self.rng.choice(HOSTILE_NUMBERS)),
                )
            )
        elif isinstance(value, str):
            holder[key] = self._near_text(value)
        elif isinstance(value, list):
            ways = (value[:-1], value[::-1], value * 2, value[:1], value + value[:1], {"0": value}, value * 500, None)
            holder[key] = self.rng.choice(ways)
        else:
            holder[key] = self.rng.choice(([value], [list(item) for item in value.items()], list(value), {}, None))

    def _near_text(self, value: str) -> Any:
        if value[:1] in ("{", "[") and self.rng.random() < 0.7:  # JSON in a text, as in the header of a file
            try:
                inner = _Tree(self.rng, json.loads(value))
            except ValueError:
                return value + " "
            inner.mutate()
            return inner.text()
        if value.isdecimal() and self.rng.random() < 0.5:
            return int(value)
        place = self.rng.randrange(len(value) + 1)
        odd = self.rng.choice(HOSTILE_TEXTS)[:1000]
        return self.rng.choice(
            (
                value[:place] + value[place + 1 :],
                value[:place] + odd + value[place:],
                value.upper(),
                value * 2,
                [value],
                None,
            )
        )

    def _drop(self, holder: Any, key: Any) -> None:
        if holder is self.__dict__:
            self.value = None
        else:
            del holder[key]

    def _keys(self, holder: Any, key: Any) -> None:
        """Rename a key, add one, or give one twice."""
        if holder is self.__dict__ or not isinstance(holder, dict):
            self._hostile(holder, key)
            return
        choice = self.rng.random()
        if choice < 0.4:
            value = holder.pop(key)
            holder[self.rng.choice((key + "x", key.upper(), key[:-1], self.rng.choice(HOSTILE_TEXTS)))] = value
        elif choice < 0.6:
            holder[self.rng.choice(HOSTILE_TEXTS)] = holder[key]
        else:
            mark = self._put(f'{json.dumps(key)}: {self.rng.choice(RAW_JSON)}, "spare"')
            holder[mark] = 0

    def _copy(self, holder: Any, key: Any) -> None:
        """Put another value of the document here."""
        other, place = self._place()
        holder[key] = json.loads(json.dumps(other[place]))


def mutate_json(rng: Random, raw: bytes) -> bytes:
    """Change values, types, keys and depth of a JSON document."""
    tree = _Tree(rng, json.loads(raw))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        tree.mutate()
    return tree.text().encode("utf-8", "surrogatepass")


def mutate_json_lines(rng: Random, raw: bytes) -> bytes:
    """Change one document of JSON Lines, or the lines themselves."""
    lines = raw.split(b"\n")
    place = rng.randrange(max(1, len(lines) - 1))
    choice = rng.random()
    if choice < 0.75:
        lines[place] = mutate_json(rng, lines[place] or b"{}")
    elif choice < 0.85:
        lines[place : place + 1] = rng.choice(
            ([], [lines[place]] * 2, [b""], [b"{}"], [b"[]"], [b"nonsense"], [lines[place]] * 3000)
        )
    else:
        for line in range(len(lines)):  # the same change in every line
            if lines[line]:
                lines[line] = mutate_json(Random(place), lines[line])
    return b"\n".join(lines)


TOML_VALUES = (
    *HOSTILE_NUMBERS,
    "nan",
    "inf",
    "-inf",
    "true",
    "[]",
    "{}",
    "[[]]",
    '""',
    '"\\U0010FFFF"',
    '"\\u0000"',
    '["a", 1]',
    "1979-05-27T07:32:00Z",
    "07:32:00",
    "0x7fffffffffffffffff",
    "1_000",
    '"""\n"""',
    "'x'",
    "{ a = 1 }",
    "[{ a = 1 }, { a = 2 }]",
    '"\\ud800"',
    '["x"]',
    "-1",
    "0",
    "1.0",
)


def mutate_toml(rng: Random, raw: bytes) -> bytes:
    """Change values, keys and tables of a TOML document, line by line."""
    lines = raw.decode().split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(lines))
        key, equals, value = lines[place].partition("=")
        choice = rng.random()
        if equals and choice < 0.6:
            lines[place] = f"{key}= {_toml_value(rng, value.strip())}"
        elif choice < 0.7:
            del lines[place : place + rng.choice((1, 1, 3))]
            lines = lines or [""]
        elif choice < 0.8:
            lines.insert(rng.randrange(len(lines)), lines[place])
        elif choice < 0.9:
            depth = rng.choice((3, 500, 5000))
            name = re.sub(r"[^a-z]", "", key) or "task"
            new = (
                f"{name} = 1",
                f"[{name}]",
                f"[[{name}]]",
                f"[{'.'.join(['a'] * depth)}]",
                f"{name}.x = 2",
                f'"" = {depth}',
                f"[preset.{name}]",
            )
            lines.insert(place, rng.choice(new))
        else:
            lines[place] = _near_line(rng, lines[place])
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _toml_value(rng: Random, value: str) -> str:
    choice = rng.random()
    if choice < 0.1:
        depth = rng.choice((50, 900, 5000, 50_000))
        return "[" * depth + "]" * depth if rng.random() < 0.6 else "{a = " * depth + "1" + "}" * depth
    if choice < 0.2:
        return json.dumps(rng.choice(HOSTILE_TEXTS))
    if choice < 0.35:
        return f"[{value}]"
    return rng.choice(TOML_VALUES)


def _near_line(rng: Random, line: str) -> str:
    place = rng.randrange(len(line) + 1)
    return rng.choice(
        (line[:place] + line[place + 1 :], line[:place] + rng.choice('[]{}"=.,\\#\x00é') + line[place:], line.upper())
    )
