"""Damage to delimited tables on the level of cells, columns, names and rows, separators and encodings."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

from campaigns.mutators.documents import HOSTILE_NUMBERS, HOSTILE_TEXTS

LONGEST = 4_000_000
"""Characters of a damaged table at most: what is larger is a matter of the bombs."""

CELLS = (
    *HOSTILE_NUMBERS,
    *HOSTILE_TEXTS,
    '"',
    '""',
    '"a',
    "1;2",
    "[0.1, 0.9]",
    "[" * 5000,
    "1 ± 0.1",
    "**1**",
    "$1$",
    "0.93 (0.02)",
    "1/3",
    "1%",
)


def _change_cell(rng: Random, rows: list[list[str]]) -> None:
    row = rng.choice(rows)
    row[rng.randrange(len(row))] = rng.choice(CELLS)


def _change_column(rng: Random, rows: list[list[str]]) -> None:
    """Put one value, or values in turn, into a whole column."""
    column = rng.randrange(len(rows[0]))
    values = [rng.choice(CELLS) for _ in range(rng.choice((1, 1, 2)))]
    for number, row in enumerate(rows[1:]):
        if column < len(row):
            row[column] = values[number % len(values)]


def _change_name(rng: Random, rows: list[list[str]]) -> None:
    head = rows[0]
    place = rng.randrange(len(head))
    others = (
        "label",
        "id",
        "group",
        "sample",
        "member",
        "domain",
        "text",
        "split",
        "time",
        "patient",
        "p0",
        "p00",
        "p-1",
        "p1e3",
        "p99999999999",
        "logit0",
        "p_0",
        "class",
        "dataset",
        "method",
        "value",
        "metric",
        "seed",
        "",
    )
    head[place] = rng.choice(
        (rng.choice(head), rng.choice(others), rng.choice(CELLS)[:2000], head[place].upper(), f" {head[place]} ")
    )


def _change_shape(rng: Random, rows: list[list[str]]) -> None:
    place, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
    ways: tuple[Callable[[], Any], ...] = (
        lambda: rows.pop(place),
        lambda: rows.insert(place, list(rows[place])),
        lambda: rows.insert(place, [""]),
        lambda: rows[place].append("x"),
        lambda: rows[place].pop(),
        lambda: rows.sort(reverse=True),
        lambda: rows.__setitem__(0, list(rows[-1])),
        lambda: [row.pop(column) for row in rows if column < len(row)],
        lambda: rows.__delitem__(slice(1, None)),
        lambda: rows.__setitem__(slice(None), [row * rng.choice((2, 200)) for row in rows]),
        lambda: rows.extend(list(rows[-1]) for _ in range(rng.choice((10, 5000)))),
        lambda: rows.__setitem__(slice(None), [[*row, row[column % len(row)]] for row in rows if row]),
    )
    rng.choice(ways)()


def _split_row(line: str, separator: str) -> list[str]:
    return re.findall(rf'(?:^|{re.escape(separator)})((?:"(?:[^"]|"")*"|[^{re.escape(separator)}])*)', line) or [""]


def mutate_table(rng: Random, raw: bytes) -> bytes:
    """Change cells, columns, names and rows of a delimited text, its separators, quotes, line ends and encoding."""
    text = raw.decode("utf-8-sig")
    separator = max(",\t;|&", key=text.split("\n", 1)[0].count)
    rows = [_split_row(line, separator) for line in text.rstrip("\n").split("\n")]
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice((_change_cell, _change_cell, _change_column, _change_name, _change_shape))(rng, rows)
        rows = [row or [""] for row in rows] or [[""]]
    glue = separator if rng.random() < 0.95 else rng.choice(",;\t| :")
    end = "\n" if rng.random() < 0.92 else rng.choice(("\r\n", "\r", "\n\n", "\x0b", "\u2028", "\x00\n"))
    encoding = "utf-8" if rng.random() < 0.95 else rng.choice(("utf-8-sig", "utf-16", "latin-1", "utf-32", "cp1252"))
    text = end.join(glue.join(row) for row in rows) + rng.choice((end, end, "", end * 50))
    return text[:LONGEST].encode(encoding, "replace")
