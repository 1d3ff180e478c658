"""Small files that stand for a lot of memory: refused in words, quickly, and within a bound on memory."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import json, pathlib, resource, sys, time
import numpy, pyarrow, pyarrow.csv, pyarrow.parquet
from dubio.core.errors import UserError
from dubio.formats import read_predictions
from dubio.tasks.own import own
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]), int(sys.argv[3])))
peak = lambda: int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
before, began = peak(), time.monotonic()
try:
    read = read_predictions if sys.argv[1] == "predictions" else (lambda path: own(data=path, text="t", label="y"))
    read(sys.argv[2])
    words = "read"
except UserError as refusal:
    words = str(refusal)
print(json.dumps({"words": words, "peak": peak() - before, "seconds": time.monotonic() - began}))
"""
ADDRESSES = 3_500_000_000
MEGABYTE = 1_000_000

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")


def refusal(path: Path, reader: str, *, megabytes: int, limit: str = "300MB") -> str:
    """Read a file in a process of its own; return the words of its refusal."""
    environment = {**os.environ, "DUBIO_MAX_UNPACKED": limit, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, reader, str(path), str(ADDRESSES)],
        capture_output=True, text=True, check=False, timeout=100, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    outcome = json.loads(done.stdout)
    assert outcome["peak"] < megabytes * MEGABYTE, outcome
    assert outcome["seconds"] < 60, outcome
    return str(outcome["words"])


def zip_bomb(row: bytes) -> Callable[[Path], None]:
    """A gzipped table of one row, over and over: about 400 MB, in 2 MB."""

    def write(path: Path) -> None:
        block = gzip.compress(row * (4 * MEGABYTE // len(row)), 1)
        path.write_bytes(gzip.compress(b"p0,p1,t,y\n") + block * 100)

    return write


def dictionary_parquet(path: Path) -> None:
    """One text of a megabyte, 5,000 times."""
    import pyarrow as pa
    from pyarrow import parquet

    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["x" * MEGABYTE]))
    parquet.write_table(pa.table({"t": texts, "y": texts, "p0": [0.5] * 5000, "p1": [0.5] * 5000}), path)


def constant_parquet(path: Path) -> None:
    """Two columns of 50 million equal numbers, in row groups that refer to a dictionary of one."""
    import pyarrow as pa
    from pyarrow import parquet

    group = pa.table({name: pa.repeat(0.5, MEGABYTE) for name in ("p0", "p1", "t", "y")})
    with parquet.ParquetWriter(path, group.schema) as writer:
        for _ in range(50):
            writer.write_table(group)


def list_parquet(path: Path) -> None:
    """Two rows, one of which has a list of 50 million labels."""
    import pyarrow as pa
    from pyarrow import parquet

    labels = pa.ListArray.from_arrays(pa.array([0, 1, 50 * MEGABYTE], pa.int32()), pa.nulls(50 * MEGABYTE, pa.int8()))
    parquet.write_table(pa.table({"t": ["a", "b"], "y": labels, "p0": [0.5, 1], "p1": [0.5, 0]}), path)


def wide_csv(path: Path) -> None:
    path.write_text(",".join(f"p{index}" for index in range(MEGABYTE)) + "\n" + "0," * MEGABYTE + "\n")


def long_field(path: Path) -> None:
    path.write_bytes(b'p0,p1,t,y\n0.5,0.5,"' + b"x" * (40 * MEGABYTE) + b'",a\n')


def long_row_of_lines(path: Path) -> None:
    path.write_bytes(b'p0,p1,t,y\n0.5,0.5,a,b\n0.5,0.5,"' + b"x\n" * (20 * MEGABYTE) + b'",a\n')


def long_line(path: Path) -> None:
    path.write_text('{"p0": 0.5, "p1": 0.5, "y": "a", "t": "' + "x" * (40 * MEGABYTE) + '"}\n')


def deep_line(path: Path) -> None:
    path.write_text('{"p0": 0.5, "y": "a", "t": ' + "[" * 100_000 + "]" * 100_000 + "}\n")


def new_names(path: Path) -> None:
    path.write_text("".join(f'{{"t": "a", "y": "b", "p0": 0.5, "n{index}": 1}}\n' for index in range(20_000)))


def one_long_name(path: Path) -> None:
    """An array of texts takes for each the space of the longest."""
    rows = "".join(f"0.5,0.5,t,{index}\n" for index in range(50_000))
    path.write_text("p0,p1,t,id\n" + rows + "0.5,0.5,t," + "y" * 100_000 + "\n")


UNPACKED = r"unpack.*300 MB.*--max-unpacked"


@pytest.mark.parametrize(
    ("name", "write", "words", "megabytes"),
    [
        ("t.csv.gz", zip_bomb(b"0.5,0.5,some text,a\n"), UNPACKED, 700),
        ("t.csv.gz", zip_bomb(b"\n"), "more than 1,000,000 blank lines", 200),
        ("t.jsonl.gz", zip_bomb(b'{"p0": 0.5, "p1": 0.5, "t": "some text", "y": "b"}\n'), "line 1 is not JSON", 200),
        ("t.parquet", dictionary_parquet, UNPACKED, 250),
        ("t.parquet", constant_parquet, UNPACKED, 200),
        ("t.parquet", list_parquet, UNPACKED, 200),
        ("t.csv", wide_csv, "1,000,000 columns; a table may have 100,000", 700),
        ("t.csv", long_field, "line 2 is longer than 16.8 MB", 200),
        pytest.param("t.csv", long_row_of_lines, r"field larger than field limit", 300, marks=pytest.mark.slow),
        ("t.jsonl", long_line, "line 1 is longer than 16.8 MB", 200),
        ("t.jsonl", deep_line, "nested deeper than 100 levels", 200),
        ("t.jsonl", new_names, UNPACKED, 700),
    ],
    ids=["gzip", "blank-lines", "json-gzip", "dictionary", "constant", "list", "wide", "field", "lines", "line", "deep",
         "names"],
)  # fmt: skip
def test_bombs_are_refused_within_bounds(
    tmp_path: Path, name: str, write: Callable[[Path], None], words: str, megabytes: int
) -> None:
    path = tmp_path / name
    write(path)
    began = time.monotonic()
    for reader in ("predictions", "own") if write in (dictionary_parquet, constant_parquet) else ("predictions",):
        text = refusal(path, reader, megabytes=megabytes)
        assert re.search(words, text), text
        assert str(path) in text
    assert time.monotonic() - began < 150


def test_an_array_of_names_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    one_long_name(path)
    assert "--max-unpacked" in refusal(path, "predictions", megabytes=200)
